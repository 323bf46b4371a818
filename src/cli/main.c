/*
 * The program: finds the subcommand, parses its options and hands over.
 *
 * Owns the process-wide set-up (SIGPIPE, the check that stdout was written) and nothing else. A
 * command line that is wrong costs exit code 2 and a message that says what to type instead.
 */
#include "cli/cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int unknown_command(const char *name)
{
    const char *names[128];
    size_t n = 0;
    for (; cli_commands[n] && n < 127; n++)
        names[n] = cli_commands[n]->name;
    names[n] = NULL;
    const char *near = cli_nearest(name, names);
    const char *kind = name[0] == '-' ? "option" : "command";
    if (near)
        cli_fail("there is no %s '%s'; did you mean 'linnet %s'?", kind, name, near);
    else
        cli_fail("there is no %s '%s'; 'linnet --help' lists what there is", kind, name);
    return CLI_USAGE;
}

static int run_command(const struct cli_command *cmd, int argc, char **argv)
{
    void *opts = cli_alloc(cmd->opts_size + 1);
    memset(opts, 0, cmd->opts_size + 1);
    bool help = false;
    int n = cli_parse(cmd, opts, argc, argv, &help);
    int rc = CLI_USAGE;
    if (help) {
        cli_print_help(cmd, stdout);
        rc = CLI_OK;
    } else if (n >= 0) {
        rc = cmd->run(opts, n, argv);
    }
    free(opts);
    return rc;
}

/* A full disk must not look like success. A reader that went away (EPIPE) is no error of ours. */
static int close_stdout(int rc)
{
    errno = 0;
    bool bad = ferror(stdout) != 0;
    if (fclose(stdout) == 0 && !bad)
        return rc;
    if (errno == EPIPE)
        return rc;
    return cli_fail("the output was not written completely: %s",
                    errno ? strerror(errno) : "write error");
}

int main(int argc, char **argv)
{
    /* `linnet ... | head -1` ends quietly even when the parent had SIGPIPE ignored */
    signal(SIGPIPE, SIG_DFL);

    if (argc < 2) {
        cli_print_overview(stderr);
        return CLI_USAGE;
    }
    const char *word = argv[1];
    bool help = strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0;
    int rc = CLI_OK;
    if (help && argc > 2) {
        const struct cli_command *cmd = cli_find_command(argv[2]);
        if (cmd)
            cli_print_help(cmd, stdout);
        else
            rc = unknown_command(argv[2]);
    } else if (help) {
        cli_print_overview(stdout);
    } else if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) {
        printf("linnet %s\n", linnet_version());
    } else {
        const struct cli_command *cmd = cli_find_command(word);
        rc = cmd ? run_command(cmd, argc - 2, argv + 2) : unknown_command(word);
    }
    return close_stdout(rc);
}
