/*
 * `linnet manual [COMMAND]`: the manual page of a command as roff, made from its tables. `make
 * install` writes linnet-<command>.1 with it; man/linnet.1 is written by hand.
 */
#include "cli/commands.h"

#include <ctype.h>
#include <string.h>

/* Text with roff's special characters made plain; a newline begins a paragraph. */
static void put(const char *text)
{
    bool line_start = true;
    for (; *text; text++) {
        if (line_start && (*text == '.' || *text == '\''))
            fputs("\\&", stdout);
        line_start = false;
        if (*text == '\\') {
            fputs("\\e", stdout);
        } else if (*text == '-') {
            fputs("\\-", stdout);
        } else if (*text == '\n') {
            while (text[1] == '\n')
                text++;
            if (text[1])
                fputs("\n.PP\n", stdout);
            line_start = true;
        } else {
            putchar(*text);
        }
    }
}

static void put_upper(const char *text)
{
    for (; *text; text++)
        putchar(toupper((unsigned char)*text));
}

static void print_options(const struct cli_command *c)
{
    printf(".SH OPTIONS\n");
    for (const struct cli_opt *o = c->opts; o && o->flag; o++) {
        printf(".TP\n.B ");
        if (o->letter)
            printf("\\-%c, ", o->letter);
        put(o->flag);
        if (o->type != CLI_TYPE_FLAG && o->arg)
            printf(" \\fI%s\\fR", o->arg);
        putchar('\n');
        char note[160];
        cli_opt_note(o, note, sizeof note);
        put(o->help);
        if (*note) {
            printf(" (");
            put(note);
            putchar(')');
        }
        printf(".\n");
    }
    printf(".TP\n.B \\-h, \\-\\-help\nshow a summary of the options.\n");
}

static void print_examples(const char *examples)
{
    printf(".SH EXAMPLES\n");
    for (const char *p = examples; *p;) {
        char line[400];
        size_t n = strcspn(p, "\n"), tab = strcspn(p, "\t");
        if (tab < n) {
            snprintf(line, sizeof line, "%.*s", (int)(n - tab - 1), p + tab + 1);
            printf(".PP\n");
            put(line);
            printf(":\n");
        }
        snprintf(line, sizeof line, "%.*s", (int)(tab < n ? tab : n), p);
        printf(".PP\n.RS 4\n.nf\n");
        put(line);
        printf("\n.fi\n.RE\n");
        p += n + (p[n] == '\n');
    }
}

static void print_page(const struct cli_command *c)
{
    char usage[200];
    printf(".TH LINNET\\-");
    put_upper(c->name);
    printf(" 1 \"\" \"linnet %s\" \"User Commands\"\n", linnet_version());
    printf(".SH NAME\nlinnet\\-%s \\- ", c->name);
    put(c->summary);
    cli_usage_line(c, usage, sizeof usage);
    printf("\n.SH SYNOPSIS\n.B ");
    put(usage);
    putchar('\n');
    if (c->about && *c->about) {
        printf(".SH DESCRIPTION\n");
        put(c->about);
        putchar('\n');
    }
    if (c->args) {
        printf(".SH ARGUMENTS\n");
        for (const struct cli_arg *a = c->args; a->name; a++) {
            printf(".TP\n.I ");
            put(a->name);
            putchar('\n');
            put(a->help);
            printf(".\n");
        }
    }
    print_options(c);
    if (c->examples)
        print_examples(c->examples);
    printf(".SH EXIT STATUS\n"
           "0 on success, 1 when the work failed, 2 when the command line is wrong.\n"
           ".SH SEE ALSO\n.BR linnet (1)\n");
}

static int run(const void *opts, int n, char **args)
{
    (void)opts;
    if (n == 0) {
        for (size_t i = 0; cli_commands[i]; i++)
            printf("%s\n", cli_commands[i]->name);
        return CLI_OK;
    }
    const struct cli_command *c = cli_find_command(args[0]);
    if (!c)
        return cli_usage(&cmd_manual, "there is no command '%s'; 'linnet manual' lists them",
                         args[0]);
    print_page(c);
    return CLI_OK;
}

static const struct cli_arg args[] = {
    {.name = "COMMAND",
     .help = "a subcommand; without it, the names of all are printed",
     .optional = true},
    {0},
};

const struct cli_command cmd_manual = {
    .name = "manual",
    .group = CLI_GROUP_HELP,
    .summary = "print the manual page of a command (roff)",
    .about = "",
    .args = args,
    .examples = "linnet manual pull | man -l -\tread it\n",
    .run = run,
};
