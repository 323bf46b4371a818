/*
 * The table of subcommands, made from commands.h.
 */
#include "cli/commands.h"

#include <string.h>

const struct cli_command *const cli_commands[] = {
#define ENTRY(name) &cmd_##name,
    CLI_COMMANDS(ENTRY)
#undef ENTRY
        NULL,
};

const struct cli_command *cli_find_command(const char *name)
{
    for (size_t i = 0; cli_commands[i]; i++)
        if (strcmp(cli_commands[i]->name, name) == 0)
            return cli_commands[i];
    return NULL;
}
