/*
 * `linnet completion SHELL`: a completion script for bash, zsh or fish, made from the option
 * tables.
 */
#include "cli/commands.h"

#include <string.h>

/* A quote inside single quotes: end them, an escaped quote, begin them again. */
#define SHELL_QUOTE "'\\''"

/* Text inside single quotes: characters of `drop` are left out, a quote becomes `quote`. */
static void put_quoted(const char *text, const char *drop, const char *quote)
{
    for (; *text; text++)
        if (*text == '\'')
            fputs(quote, stdout);
        else if (!strchr(drop, *text))
            putchar(*text);
}

static void put_choices(const char *choices)
{
    for (; *choices; choices++)
        putchar(*choices == '|' ? ' ' : *choices);
}

/* The hint of the first positional argument: what a bare word completes to. */
static enum cli_hint first_hint(const struct cli_command *c)
{
    return c->args ? c->args[0].hint : CLI_HINT_NONE;
}

static void print_bash(void)
{
    printf("# bash completion of linnet\n"
           "_linnet()\n{\n"
           "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} opts= kind=\n"
           "    COMPREPLY=()\n"
           "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
           "        COMPREPLY=($(compgen -W '--help --version");
    for (size_t i = 0; cli_commands[i]; i++)
        printf(" %s", cli_commands[i]->name);
    printf("' -- \"$cur\"))\n        return\n    fi\n"
           "    case \"${COMP_WORDS[1]} $prev\" in\n");
    for (size_t i = 0; cli_commands[i]; i++) {
        const struct cli_command *c = cli_commands[i];
        for (const struct cli_opt *o = c->opts; o && o->flag; o++) {
            if (o->type == CLI_TYPE_FLAG)
                continue;
            printf("    '%s %s'", c->name, o->flag);
            if (o->letter)
                printf("|'%s -%c'", c->name, o->letter);
            if (o->type == CLI_TYPE_CHOICE) {
                printf(") COMPREPLY=($(compgen -W '");
                put_choices(o->choices);
                printf("' -- \"$cur\")); return ;;\n");
            } else if (o->hint == CLI_HINT_FILE) {
                printf(") COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n");
            } else {
                printf(") return ;;\n");
            }
        }
    }
    printf("    esac\n    case \"${COMP_WORDS[1]}\" in\n");
    for (size_t i = 0; cli_commands[i]; i++) {
        const struct cli_command *c = cli_commands[i];
        printf("    %s) opts='--help", c->name);
        for (const struct cli_opt *o = c->opts; o && o->flag; o++)
            printf(" %s", o->flag);
        enum cli_hint hint = first_hint(c);
        printf("'; kind=%s ;;\n", hint == CLI_HINT_MODEL  ? "model"
                                  : hint == CLI_HINT_FILE ? "file"
                                                          : "none");
    }
    printf(
        "    esac\n"
        "    case \"$cur\" in\n"
        "    -*) COMPREPLY=($(compgen -W \"$opts\" -- \"$cur\")); return ;;\n"
        "    esac\n"
        "    case \"$kind\" in\n"
        "    model) COMPREPLY=($(compgen -W \"$(linnet list --names 2>/dev/null)\" -- \"$cur\")\n"
        "                      $(compgen -f -X '!*.gguf' -- \"$cur\") $(compgen -d -- \"$cur\")) "
        ";;\n"
        "    file) COMPREPLY=($(compgen -f -- \"$cur\")) ;;\n"
        "    esac\n"
        "}\n"
        "complete -o filenames -F _linnet linnet\n");
}

static void print_zsh_action(enum cli_hint hint)
{
    if (hint == CLI_HINT_MODEL)
        printf("_linnet_models");
    else if (hint == CLI_HINT_FILE)
        printf("_files");
    else
        putchar(' ');
}

static void print_zsh_option(const struct cli_opt *o)
{
    if (o->letter)
        printf(" \\\n            '(-%c %s)'{-%c,%s}'[", o->letter, o->flag, o->letter, o->flag);
    else
        printf(" \\\n            '%s%s[", o->type == CLI_TYPE_LIST ? "*" : "", o->flag);
    put_quoted(o->help, "[]:\\", SHELL_QUOTE);
    putchar(']');
    if (o->type == CLI_TYPE_CHOICE) {
        printf(":%s:(", o->arg ? o->arg : "value");
        put_choices(o->choices);
        putchar(')');
    } else if (o->type != CLI_TYPE_FLAG) {
        printf(":%s:", o->arg ? o->arg : "value");
        print_zsh_action(o->hint);
    }
    putchar('\'');
}

static void print_zsh(void)
{
    printf("#compdef linnet\n"
           "_linnet_models()\n{\n"
           "    local -a names\n"
           "    names=(${(f)\"$(linnet list --names 2>/dev/null)\"})\n"
           "    compadd -a names\n"
           "    _files -g '*.gguf'\n}\n"
           "_linnet()\n{\n"
           "    local -a commands\n"
           "    commands=(\n");
    for (size_t i = 0; cli_commands[i]; i++) {
        printf("        '%s:", cli_commands[i]->name);
        put_quoted(cli_commands[i]->summary, ":\\", SHELL_QUOTE);
        printf("'\n");
    }
    printf("    )\n"
           "    if (( CURRENT == 2 )); then\n"
           "        _describe command commands\n"
           "        return\n"
           "    fi\n"
           "    local command=$words[2]\n"
           "    shift words\n"
           "    (( CURRENT-- ))\n"
           "    case $command in\n");
    for (size_t i = 0; cli_commands[i]; i++) {
        const struct cli_command *c = cli_commands[i];
        printf("    %s)\n        _arguments -s '(-h --help)'{-h,--help}'[show help]'", c->name);
        for (const struct cli_opt *o = c->opts; o && o->flag; o++)
            print_zsh_option(o);
        for (const struct cli_arg *a = c->args; a && a->name; a++) {
            printf(" \\\n            '%s:", a->repeated ? "*" : a->optional ? ":" : "");
            put_quoted(a->name, ":\\", SHELL_QUOTE);
            putchar(':');
            print_zsh_action(a->hint);
            putchar('\'');
        }
        printf("\n        ;;\n");
    }
    printf("    esac\n}\n"
           "if [ \"$funcstack[1]\" = _linnet ]; then _linnet \"$@\"; else compdef _linnet linnet; "
           "fi\n");
}

static void print_fish(void)
{
    printf("# fish completion of linnet\n"
           "complete -c linnet -f\n"
           "complete -c linnet -n __fish_use_subcommand -l help -d 'show help'\n"
           "complete -c linnet -n __fish_use_subcommand -l version -d 'show the version'\n");
    for (size_t i = 0; cli_commands[i]; i++) {
        const struct cli_command *c = cli_commands[i];
        printf("complete -c linnet -n __fish_use_subcommand -a %s -d '", c->name);
        put_quoted(c->summary, "\\", "\\'");
        printf("'\n");
        for (const struct cli_opt *o = c->opts; o && o->flag; o++) {
            printf("complete -c linnet -n '__fish_seen_subcommand_from %s' -l %s", c->name,
                   o->flag + 2);
            if (o->letter)
                printf(" -s %c", o->letter);
            if (o->type != CLI_TYPE_FLAG)
                printf(" -r%s", o->hint == CLI_HINT_FILE ? " -F" : "");
            if (o->type == CLI_TYPE_CHOICE) {
                printf(" -a '");
                put_choices(o->choices);
                printf("'");
            }
            printf(" -d '");
            put_quoted(o->help, "\\", "\\'");
            printf("'\n");
        }
        if (first_hint(c) == CLI_HINT_MODEL)
            printf("complete -c linnet -n '__fish_seen_subcommand_from %s' -F "
                   "-a '(linnet list --names 2>/dev/null)'\n",
                   c->name);
        else if (first_hint(c) == CLI_HINT_FILE)
            printf("complete -c linnet -n '__fish_seen_subcommand_from %s' -F\n", c->name);
    }
}

static int run(const void *opts, int n, char **args)
{
    (void)opts;
    (void)n;
    if (strcmp(args[0], "bash") == 0)
        print_bash();
    else if (strcmp(args[0], "zsh") == 0)
        print_zsh();
    else if (strcmp(args[0], "fish") == 0)
        print_fish();
    else
        return cli_usage(&cmd_completion,
                         "there is no completion for '%s'; it is one of: bash zsh fish", args[0]);
    return CLI_OK;
}

static const struct cli_arg args[] = {
    {.name = "SHELL", .help = "bash, zsh or fish"},
    {0},
};

const struct cli_command cmd_completion = {
    .name = "completion",
    .group = CLI_GROUP_HELP,
    .summary = "print a completion script for bash, zsh or fish",
    .about = "'make install' puts these where the shells look; this is for an uninstalled program.",
    .args = args,
    .examples = "source <(linnet completion bash)\tin this shell\n",
    .run = run,
};
