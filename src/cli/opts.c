/*
 * Command lines: parsing by a command's option table, and the help made from the same table.
 *
 * Accepted: --flag value, --flag=value, -n value, -nvalue, options anywhere among the arguments,
 * `--` to end them, a single `-` as an argument (stdin). A value out of range, a missing value, an
 * unknown option or a missing argument is an error that names it and says what would be right;
 * nothing is ignored or clamped.
 */
#include "cli/cli.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_end(const struct cli_opt *o)
{
    return o->flag == NULL;
}

static const struct cli_opt no_opts[1];
static const struct cli_arg no_args[1];

static const struct cli_opt *opts_of(const struct cli_command *cmd)
{
    return cmd->opts ? cmd->opts : no_opts;
}

static const struct cli_arg *args_of(const struct cli_command *cmd)
{
    return cmd->args ? cmd->args : no_args;
}

/* ---- values ---------------------------------------------------------------------------------- */

static bool set_int(const struct cli_opt *o, int64_t *field, const char *what, const char *text)
{
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (end == text || *end) {
        cli_warn("%s wants a whole number, not '%s'", what, text);
        return false;
    }
    if (errno == ERANGE || v < o->imin || v > o->imax) {
        char note[160];
        cli_opt_note(o, note, sizeof note);
        cli_warn("%s is out of range: %s (%s)", what, text, note);
        return false;
    }
    *field = v;
    return true;
}

static bool set_number(const struct cli_opt *o, double *field, const char *what, const char *text)
{
    char *end;
    double v = strtod(text, &end);
    if (end == text || *end || isnan(v)) {
        cli_warn("%s wants a number, not '%s'", what, text);
        return false;
    }
    if (!(v >= o->min && v <= o->max)) {
        char note[160];
        cli_opt_note(o, note, sizeof note);
        cli_warn("%s is out of range: %s (%s)", what, text, note);
        return false;
    }
    *field = v;
    return true;
}

static bool is_choice(const char *choices, const char *text)
{
    size_t n = strlen(text);
    for (const char *p = choices; *p;) {
        size_t len = strcspn(p, "|");
        if (len == n && strncmp(p, text, n) == 0)
            return true;
        p += len + (p[len] == '|');
    }
    return false;
}

bool cli_set_opt(const struct cli_opt *o, void *opts, const char *what, const char *text)
{
    void *field = (char *)opts + o->offset;
    switch (o->type) {
    case CLI_TYPE_FLAG: *(bool *)field = true; return true;
    case CLI_TYPE_INT: return set_int(o, field, what, text);
    case CLI_TYPE_NUMBER: return set_number(o, field, what, text);
    case CLI_TYPE_CHOICE:
        if (!is_choice(o->choices, text)) {
            cli_warn("%s cannot be '%s'; it is one of: %s", what, text, o->choices);
            return false;
        }
        *(const char **)field = text;
        return true;
    case CLI_TYPE_TEXT: *(const char **)field = text; return true;
    case CLI_TYPE_LIST: {
        struct cli_list *list = field;
        if (list->n == CLI_LIST_MAX) {
            cli_warn("%s is given more than %d times", what, CLI_LIST_MAX);
            return false;
        }
        list->item[list->n++] = text;
        return true;
    }
    }
    return false;
}

/* ---- parsing --------------------------------------------------------------------------------- */

struct parser {
    const struct cli_command *cmd;
    void *opts;
    int argc, at, n_args;
    char **argv;
    bool *help;
};

static void see_help(const struct cli_command *cmd)
{
    fprintf(stderr, "See 'linnet %s --help'.\n", cmd->name);
}

static const struct cli_opt *find_long(const struct cli_command *cmd, const char *word, size_t n)
{
    for (const struct cli_opt *o = opts_of(cmd); !is_end(o); o++)
        if (strlen(o->flag) == n && strncmp(o->flag, word, n) == 0)
            return o;
    return NULL;
}

static const struct cli_opt *find_letter(const struct cli_command *cmd, char letter)
{
    for (const struct cli_opt *o = opts_of(cmd); !is_end(o); o++)
        if (o->letter && o->letter == letter)
            return o;
    return NULL;
}

static bool unknown_option(const struct cli_command *cmd, const char *word)
{
    const char *flags[128];
    size_t n = 0;
    for (const struct cli_opt *o = opts_of(cmd); !is_end(o) && n < 126; o++)
        flags[n++] = o->flag;
    flags[n++] = "--help";
    flags[n] = NULL;
    const char *near = cli_nearest(word, flags);
    if (near)
        cli_warn("%s has no option '%s'; did you mean '%s'?", cmd->name, word, near);
    else
        cli_warn("%s has no option '%s'", cmd->name, word);
    return false;
}

static bool parse_option(struct parser *p, char *word)
{
    bool is_long = word[1] == '-';
    size_t n = is_long ? strcspn(word, "=") : 2;
    char *value = word[n] ? word + n : NULL;
    if (is_long && value)
        *value++ = '\0'; /* --flag=value becomes two words */

    if ((is_long && strcmp(word, "--help") == 0) || (!is_long && strcmp(word, "-h") == 0)) {
        *p->help = true;
        return true;
    }
    const struct cli_opt *o = is_long ? find_long(p->cmd, word, n) : find_letter(p->cmd, word[1]);
    if (!o)
        return unknown_option(p->cmd, word);
    if (o->type == CLI_TYPE_FLAG) {
        if (value) {
            cli_warn("%s takes no value", o->flag);
            return false;
        }
        return cli_set_opt(o, p->opts, o->flag, NULL);
    }
    if (!value) {
        if (p->at == p->argc) {
            cli_warn("%s wants a value: %s %s", o->flag, o->flag, o->arg ? o->arg : "VALUE");
            return false;
        }
        value = p->argv[p->at++];
    }
    return cli_set_opt(o, p->opts, o->flag, value);
}

static bool check_args(const struct cli_command *cmd, int n, char **argv)
{
    const struct cli_arg *a = args_of(cmd);
    int i = 0;
    for (; a->name; a++) {
        if (i >= n && !a->optional) {
            cli_warn("%s wants %s: %s", cmd->name, a->name, a->help);
            return false;
        }
        i = a->repeated ? n : i + 1;
    }
    if (i < n) {
        cli_warn("%s does not take '%s'%s", cmd->name, argv[i],
                 i > 0 ? "; quote an argument that contains spaces" : "");
        return false;
    }
    return true;
}

int cli_parse(const struct cli_command *cmd, void *opts, int argc, char **argv, bool *help)
{
    *help = false;
    for (const struct cli_opt *o = opts_of(cmd); !is_end(o); o++)
        if (o->def && !cli_set_opt(o, opts, o->flag, o->def))
            return -1;
    if (!cli_apply_config(cmd, opts))
        return -1;
    struct parser p = {.cmd = cmd, .opts = opts, .argc = argc, .argv = argv, .help = help};
    bool only_args = false;
    while (p.at < argc) {
        char *word = argv[p.at++];
        if (only_args || word[0] != '-' || word[1] == '\0') {
            argv[p.n_args++] = word;
        } else if (strcmp(word, "--") == 0) {
            only_args = true;
        } else if (!parse_option(&p, word)) {
            see_help(cmd);
            return -1;
        }
        if (*help)
            return 0;
    }
    if (!check_args(cmd, p.n_args, argv)) {
        see_help(cmd);
        return -1;
    }
    return p.n_args;
}

/* ---- the nearest word ------------------------------------------------------------------------ */

enum { NEAR_MAX = 40 };

/* Edit distance with adjacent swaps (optimal string alignment). Words longer than NEAR_MAX are
 * far. */
static size_t distance(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    if (n > NEAR_MAX || m > NEAR_MAX)
        return NEAR_MAX;
    size_t d[NEAR_MAX + 1][NEAR_MAX + 1];
    for (size_t i = 0; i <= n; i++)
        for (size_t j = 0; j <= m; j++) {
            if (i == 0 || j == 0) {
                d[i][j] = i + j;
                continue;
            }
            size_t best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            if (d[i - 1][j] + 1 < best)
                best = d[i - 1][j] + 1;
            if (d[i][j - 1] + 1 < best)
                best = d[i][j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                d[i - 2][j - 2] + 1 < best)
                best = d[i - 2][j - 2] + 1;
            d[i][j] = best;
        }
    return d[n][m];
}

const char *cli_nearest(const char *word, const char *const *words)
{
    const char *near = NULL;
    size_t best = 1 + strlen(word) / 3;
    for (; *words; words++) {
        size_t d = distance(word, *words);
        bool begins = strlen(word) >= 2 && strncmp(word, *words, strlen(word)) == 0;
        if (begins)
            d = 1;
        if (d <= best && (!near || d < best)) {
            near = *words;
            best = d;
        }
    }
    return near;
}

/* ---- help ------------------------------------------------------------------------------------ */

void cli_usage_line(const struct cli_command *cmd, char *buf, size_t size)
{
    int n = snprintf(buf, size, "linnet %s%s", cmd->name, cmd->opts ? " [OPTIONS]" : "");
    for (const struct cli_arg *a = args_of(cmd); a->name; a++) {
        if (n < 0 || (size_t)n >= size)
            return;
        n += snprintf(buf + n, size - (size_t)n, a->optional ? " [%s%s]" : " %s%s", a->name,
                      a->repeated ? "..." : "");
    }
}

void cli_opt_note(const struct cli_opt *o, char *buf, size_t size)
{
    char range[120] = "";
    if (o->type == CLI_TYPE_INT && o->imax < INT32_MAX)
        snprintf(range, sizeof range, "%lld to %lld", (long long)o->imin, (long long)o->imax);
    else if (o->type == CLI_TYPE_INT)
        snprintf(range, sizeof range, "%lld or more", (long long)o->imin);
    else if (o->type == CLI_TYPE_NUMBER && o->max < 1e9)
        snprintf(range, sizeof range, "%g to %g", o->min, o->max);
    else if (o->type == CLI_TYPE_NUMBER)
        snprintf(range, sizeof range, "%g or more", o->min);
    else if (o->type == CLI_TYPE_CHOICE)
        snprintf(range, sizeof range, "%s", o->choices);
    snprintf(buf, size, "%s%s%s%s", range, *range && o->def ? ", " : "", o->def ? "default " : "",
             o->def ? o->def : "");
}

static void opt_head(const struct cli_opt *o, char *buf, size_t size)
{
    char letter[8] = "    ";
    if (o->letter)
        snprintf(letter, sizeof letter, "-%c, ", o->letter);
    bool value = o->type != CLI_TYPE_FLAG;
    snprintf(buf, size, "%s%s%s%s", letter, o->flag, value ? " " : "",
             value && o->arg ? o->arg : "");
}

static void print_row(FILE *f, const char *head, int width, const char *text)
{
    fprintf(f, "  %s%s%s", cli_style(f, CLI_BOLD), head, cli_style(f, CLI_PLAIN));
    int n = 2 + (int)strlen(head);
    int column = 2 + width + 2;
    if (n + 1 >= column) {
        fputc('\n', f);
        n = 0;
    }
    fprintf(f, "%*s", column - n, "");
    cli_wrap(f, column, column, text);
    fputc('\n', f);
}

static void print_options(const struct cli_command *cmd, FILE *f)
{
    char head[80], text[1200], note[160];
    int width = (int)strlen("-h, --help");
    for (const struct cli_opt *o = opts_of(cmd); !is_end(o); o++) {
        opt_head(o, head, sizeof head);
        int n = (int)strlen(head);
        if (n > width && n <= 26)
            width = n;
    }
    fprintf(f, "\nOptions\n");
    for (const struct cli_opt *o = opts_of(cmd); !is_end(o); o++) {
        opt_head(o, head, sizeof head);
        cli_opt_note(o, note, sizeof note);
        snprintf(text, sizeof text, *note ? "%s (%s)" : "%s", o->help, note);
        print_row(f, head, width, text);
    }
    print_row(f, "-h, --help", width, "show this help");
}

static void print_examples(const struct cli_command *cmd, FILE *f)
{
    fprintf(f, "\nExamples\n");
    for (const char *p = cmd->examples; *p;) {
        size_t line = strcspn(p, "\n"), tab = strcspn(p, "\t");
        if (tab < line)
            fprintf(f, "  # %.*s\n", (int)(line - tab - 1), p + tab + 1);
        fprintf(f, "  %.*s\n", (int)(tab < line ? tab : line), p);
        p += line + (p[line] == '\n');
    }
}

void cli_print_help(const struct cli_command *cmd, FILE *f)
{
    char usage[200];
    cli_usage_line(cmd, usage, sizeof usage);
    fprintf(f, "%slinnet %s%s: %s\n\nUsage: %s\n", cli_style(f, CLI_BOLD), cmd->name,
            cli_style(f, CLI_PLAIN), cmd->summary, usage);
    if (cmd->about && *cmd->about) {
        fputc('\n', f);
        cli_wrap(f, 0, 0, cmd->about);
        fputc('\n', f);
    }
    if (cmd->args) {
        int width = 0;
        for (const struct cli_arg *a = args_of(cmd); a->name; a++)
            width = (int)strlen(a->name) > width ? (int)strlen(a->name) : width;
        fprintf(f, "\nArguments\n");
        for (const struct cli_arg *a = args_of(cmd); a->name; a++)
            print_row(f, a->name, width, a->help);
    }
    print_options(cmd, f);
    if (cmd->examples)
        print_examples(cmd, f);
}

void cli_print_overview(FILE *f)
{
    static const char *const title[] = {
        [CLI_GROUP_RUN] = "Run",         [CLI_GROUP_MODELS] = "Models", [CLI_GROUP_TEXT] = "Text",
        [CLI_GROUP_MEASURE] = "Measure", [CLI_GROUP_HELP] = "Help",
    };
    fprintf(f,
            "linnet %s: run language models from GGUF files\n"
            "Usage: linnet COMMAND [OPTIONS] [ARGUMENTS]\n\n",
            linnet_version());
    for (int group = 0; group <= CLI_GROUP_HELP; group++) {
        bool first = true;
        for (size_t i = 0; cli_commands[i]; i++) {
            const struct cli_command *c = cli_commands[i];
            if ((int)c->group != group)
                continue;
            fprintf(f, "%-8s %s%-11s%s %s\n", first ? title[group] : "", cli_style(f, CLI_BOLD),
                    c->name, cli_style(f, CLI_PLAIN), c->summary);
            first = false;
        }
    }
    fprintf(f, "\n'linnet COMMAND --help' tells all about one. First steps: linnet pull smollm2\n");
}
