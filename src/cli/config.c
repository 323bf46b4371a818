/*
 * The configuration file, $XDG_CONFIG_HOME/linnet/config (default ~/.config): defaults of the
 * user's own.
 *
 *     # for every command that has --threads
 *     threads = 4
 *     # for one command; wins over a line without it
 *     run.temp = 0.2
 *
 * A key is an option's flag without its dashes. Options that take no value have no key: a script
 * must be able to rely on their absence. A key that no command knows is an error that names the
 * line, whatever command runs; a value out of range is one of the commands that have the option.
 * The command line wins over the file.
 */
#include "cli/cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { CONFIG_MAX = 1 << 20 };

/* The file's text: options point into it until the program ends. */
static char *text;

static char *config_path(void)
{
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    if (config && config[0] == '/')
        return cli_printf("%s/linnet/config", config);
    return cli_printf("%s/.config/linnet/config", home ? home : "");
}

static const struct cli_opt *find_key(const struct cli_command *cmd, const char *key)
{
    for (const struct cli_opt *o = cmd->opts; o && o->flag; o++)
        if (strcmp(o->flag + 2, key) == 0 && o->type != CLI_TYPE_FLAG)
            return o;
    return NULL;
}

struct line {
    const char *path;
    int number;
    char *key, *value;
};

static bool wrong(const struct line *l, const char *what)
{
    cli_warn("%s:%d: %s '%s'", l->path, l->number, what, l->key);
    return false;
}

/* Check a line against the commands it speaks of, and set the option when `cmd` is one and the line
 * is as specific as this pass wants. */
static bool apply(const struct line *l, const struct cli_command *cmd, void *opts, bool specific)
{
    char *dot = strchr(l->key, '.');
    const struct cli_command *only = NULL;
    const char *key = dot ? dot + 1 : l->key;
    if (dot) {
        *dot = '\0';
        only = cli_find_command(l->key);
        if (!only)
            return wrong(l, "there is no command");
        *dot = '.';
        if (!find_key(only, key))
            return wrong(l, "this command has no such option with a value:");
    }
    bool known = only != NULL;
    for (size_t i = 0; !known && cli_commands[i]; i++)
        known = find_key(cli_commands[i], key) != NULL;
    if (!known)
        return wrong(l, "no command has an option with a value named");
    const struct cli_opt *o = find_key(cmd, key);
    if (!o || (only && only != cmd) || specific != (only != NULL))
        return true;
    char *what = cli_printf("%s:%d: %s", l->path, l->number, l->key);
    bool ok = cli_set_opt(o, opts, what, l->value);
    free(what);
    return ok;
}

/* Cut the spaces from both ends. */
static char *trim(char *s)
{
    s += strspn(s, " \t\r");
    size_t n = strlen(s);
    while (n > 0 && strchr(" \t\r", s[n - 1]))
        s[--n] = '\0';
    return s;
}

static bool apply_all(const char *path, char *copy, const struct cli_command *cmd, void *opts,
                      bool specific)
{
    int number = 0;
    for (char *at = copy; at;) {
        char *next = strchr(at, '\n');
        if (next)
            *next++ = '\0';
        number++;
        char *words = trim(at);
        at = next;
        if (*words == '\0' || *words == '#')
            continue;
        char *equals = strchr(words, '=');
        struct line l = {.path = path, .number = number, .key = words};
        if (!equals)
            return wrong(&l, "a line is KEY = VALUE, not");
        *equals = '\0';
        l.key = trim(words);
        l.value = trim(equals + 1);
        if (!apply(&l, cmd, opts, specific))
            return false;
    }
    return true;
}

bool cli_apply_config(const struct cli_command *cmd, void *opts)
{
    if (!cmd->opts)
        return true;
    char *path = config_path();
    FILE *f = fopen(path, "rb");
    bool ok = f != NULL || errno == ENOENT || errno == ENOTDIR;
    size_t n;
    if (!ok)
        cli_warn("cannot read %s: %s", path, strerror(errno));
    char *read = f ? cli_read_stream(f, path, CONFIG_MAX, &n) : NULL;
    if (f)
        fclose(f);
    if (read) {
        /* parsing cuts the text into words, so each pass has its own copy; values live in them */
        free(text);
        text = cli_alloc(2 * (n + 1));
        memcpy(text, read, n + 1);
        memcpy(text + n + 1, read, n + 1);
        ok = apply_all(path, text, cmd, opts, false) &&
             apply_all(path, text + n + 1, cmd, opts, true);
    } else if (f) {
        ok = false;
    }
    free(read);
    free(path);
    return ok;
}
