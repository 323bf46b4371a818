/*
 * The frame of the program: what every subcommand is made of and may use.
 *
 * A subcommand is one file, src/cli/<name>.c, that defines `const struct cli_command cmd_<name>`,
 * and one line in commands.h. Its options are declared once, in a table; parsing, `linnet <name>
 * --help`, the shell completions and the man page are all made from that table.
 *
 * What a program would read goes to stdout, everything else to stderr. Exit codes: enum cli_exit.
 * Unlike the library, these functions may print and, when memory runs out, end the process.
 */
#ifndef LINNET_CLI_CLI_H
#define LINNET_CLI_CLI_H

#include "linnet.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum cli_exit {
    CLI_OK = 0,
    CLI_FAILED = 1, /* the work failed */
    CLI_USAGE = 2,  /* the command line is wrong; nothing was done */
};

/* ---- options --------------------------------------------------------------------------------- */

/* The kind of an option, and the C type of the field it sets. */
enum cli_type {
    CLI_TYPE_FLAG,   /* bool: takes no value */
    CLI_TYPE_INT,    /* int64_t in [imin, imax] */
    CLI_TYPE_NUMBER, /* double in [min, max] */
    CLI_TYPE_TEXT,   /* const char * */
    CLI_TYPE_CHOICE, /* const char *: one of `choices` */
    CLI_TYPE_LIST,   /* struct cli_list: may be given several times */
};

/* What shell completion offers for a value or argument. */
enum cli_hint { CLI_HINT_NONE, CLI_HINT_FILE, CLI_HINT_MODEL };

enum { CLI_LIST_MAX = 64 };
struct cli_list {
    size_t n;
    const char *item[CLI_LIST_MAX]; /* [n] */
};

/* One option. The table ends with an entry without a flag. Fill it like this:
 *
 *     {.flag = "--temp", CLI_NUMBER(struct run_opts, temp, 0, 10), .arg = "T", .def = "0.8",
 *      .help = "randomness; 0 always takes the likeliest token"}, */
struct cli_opt {
    const char *flag;    /* "--long-name"; without the dashes, the key in the configuration file */
    char letter;         /* 'n' for -n, or 0 */
    enum cli_type type;  /* these down to `choices`: by the macros below */
    size_t offset;       /* of the field in the command's option struct */
    int64_t imin, imax;  /* CLI_TYPE_INT */
    double min, max;     /* CLI_TYPE_NUMBER */
    const char *choices; /* CLI_TYPE_CHOICE: "f32|f16|q8_0" */
    const char *arg;     /* name of the value in help: "N", "FILE"; not for flags */
    const char *def;  /* default as it would be typed, shown in help; NULL leaves the field zero */
    const char *help; /* lower case, no full stop */
    enum cli_hint hint;
};

/* Offset of `field`, refused by the compiler unless the field has type T. */
#define CLI_FIELD(S, field, T) _Generic(((S *)0)->field, T : offsetof(S, field))

#define CLI_FLAG(S, field) .type = CLI_TYPE_FLAG, .offset = CLI_FIELD(S, field, bool)
#define CLI_INT(S, field, lo, hi)                                                                  \
    .type = CLI_TYPE_INT, .offset = CLI_FIELD(S, field, int64_t), .imin = (lo), .imax = (hi)
#define CLI_NUMBER(S, field, lo, hi)                                                               \
    .type = CLI_TYPE_NUMBER, .offset = CLI_FIELD(S, field, double), .min = (lo), .max = (hi)
#define CLI_TEXT(S, field) .type = CLI_TYPE_TEXT, .offset = CLI_FIELD(S, field, const char *)
#define CLI_CHOICE(S, field, list)                                                                 \
    .type = CLI_TYPE_CHOICE, .offset = CLI_FIELD(S, field, const char *), .choices = (list)
#define CLI_LIST(S, field) .type = CLI_TYPE_LIST, .offset = CLI_FIELD(S, field, struct cli_list)

/* One positional argument. The table ends with an entry without a name. */
struct cli_arg {
    const char *name; /* upper case: "MODEL" */
    const char *help;
    bool optional; /* all after an optional one are optional */
    bool repeated; /* only the last one */
    enum cli_hint hint;
};

/* Where `linnet --help` lists a command. */
enum cli_group {
    CLI_GROUP_RUN,
    CLI_GROUP_MODELS,
    CLI_GROUP_TEXT,
    CLI_GROUP_MEASURE,
    CLI_GROUP_HELP
};

struct cli_command {
    const char *name;
    enum cli_group group;
    const char *summary; /* one line, lower case, no full stop, under 62 characters */
    const char *about; /* paragraphs for --help and the man page; "" when the summary says it all */
    const struct cli_arg *args; /* or NULL */
    const struct cli_opt *opts; /* or NULL */
    size_t opts_size;           /* of the struct the options fill */
    const char *examples;       /* lines "command\twhat it does\n", or NULL */
    /* `opts` points to the filled struct, `args` to the `n` positional arguments. Returns enum
     * cli_exit. */
    int (*run)(const void *opts, int n, char **args);
};

/* Every command in the order of help, ended by NULL. */
extern const struct cli_command *const cli_commands[];
const struct cli_command *cli_find_command(const char *name); /* or NULL */

/* Set the defaults, then what the configuration file says (config.c), then parse argv[0..argc)
 * (after the command's name) into `opts` (opts_size bytes) and gather the positional arguments at
 * the front of argv. Returns their number, or -1 after printing what is wrong. `*help` is set when
 * --help or -h was given: then nothing else was checked. */
int cli_parse(const struct cli_command *cmd, void *opts, int argc, char **argv, bool *help);

/* Set one option from text: true when it is in range. `what` names it in the error that is
 * printed. */
bool cli_set_opt(const struct cli_opt *o, void *opts, const char *what, const char *text);

/* Set the options of `cmd` that the configuration file names; false after printing what is
 * wrong. */
bool cli_apply_config(const struct cli_command *cmd, void *opts);

void cli_print_help(const struct cli_command *cmd, FILE *f);
void cli_print_overview(FILE *f);
void cli_usage_line(const struct cli_command *cmd, char *buf, size_t size);

/* "range and default" of an option as help shows it, without parentheses; "" when there is
 * nothing. */
void cli_opt_note(const struct cli_opt *o, char *buf, size_t size);

/* The word of `words` (ended by NULL) nearest to `word`, or NULL when none is near enough to
 * suggest. */
const char *cli_nearest(const char *word, const char *const *words);

/* ---- messages -------------------------------------------------------------------------------- */

/* "linnet: ..." on stderr. cli_fail and cli_usage return CLI_FAILED and CLI_USAGE, so that
 * `return cli_fail(...)` reads well. Text says what is wrong and what to do next. */
void cli_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
int cli_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
int cli_usage(const struct cli_command *cmd, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
int cli_fail_with(const linnet_error *e); /* cli_fail with the error's text */

/* Escape sequences for a stream: "" unless it is a terminal and NO_COLOR is not set. */
enum cli_style { CLI_PLAIN, CLI_BOLD, CLI_DIM, CLI_RED, CLI_GREEN };
const char *cli_style(FILE *f, enum cli_style style);
bool cli_is_terminal(FILE *f);

/* Print `text` to `f`, its words wrapped to 80 columns with `indent` spaces before each line but
 * the first (`column` says where the first starts). A newline in the text ends a line; ends without
 * one. */
void cli_wrap(FILE *f, int indent, int column, const char *text);

/* ---- progress -------------------------------------------------------------------------------- */

/* A bar on stderr when that is a terminal, else now and then a line. All fields are private. */
struct cli_progress {
    const char *title;
    bool bytes;            /* counts are bytes, not items */
    uint64_t total;        /* 0 when unknown */
    uint64_t first;        /* count at the start, which cost no time (a resumed download) */
    double started, drawn; /* seconds */
    int tenth;
    bool on_screen, quiet;
};
void cli_progress_start(struct cli_progress *p, const char *title, bool bytes, uint64_t first,
                        uint64_t total, bool quiet);
void cli_progress_update(struct cli_progress *p, uint64_t done);
void cli_progress_end(struct cli_progress *p); /* clears the bar */

double cli_seconds(void); /* monotonic clock */

/* ---- interruption ---------------------------------------------------------------------------- */

/* Not 0 after Ctrl-C or SIGTERM once cli_catch_interrupt() was called. The second one kills. */
extern volatile sig_atomic_t cli_interrupted;
void cli_catch_interrupt(void);
/* An interrupt also ends the run of this context, so that a long prompt stops; NULL: of none. */
void cli_interrupt_cancels(linnet_context *context);

/* ---- models ---------------------------------------------------------------------------------- */

/* The file that a command's MODEL argument means: the path itself when there is such a file, else a
 * model that `linnet pull` brought (store.h). NULL after printing what to do. Free with free(). */
char *cli_model_path(const char *name);

/* ---- small things ---------------------------------------------------------------------------- */

enum { CLI_NUM_LEN = 32 };
/* "1.24 GB" (powers of 1000); returns buf. */
const char *cli_format_size(char buf[CLI_NUM_LEN], uint64_t bytes);
/* "134.5 M", "1.24 B": counts of parameters; returns buf. */
const char *cli_format_count(char buf[CLI_NUM_LEN], uint64_t n);
/* "49,152"; returns buf. */
const char *cli_format_int(char buf[CLI_NUM_LEN], uint64_t n);

/* The rest of a stream, at most `max` bytes, with a NUL after it; NULL after printing an error that
 * calls it `name`. Free with free(). */
char *cli_read_stream(FILE *f, const char *name, size_t max, size_t *n);
/* The same for a path; "-" is stdin. */
char *cli_read_file(const char *path, size_t max, size_t *n);

/* malloc that ends the program with a message instead of returning NULL; printf into it. */
void *cli_alloc(size_t n);
char *cli_printf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
