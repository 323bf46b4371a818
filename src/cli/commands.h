/*
 * Every subcommand, in the order in which help lists them inside a group. To add one: a line here
 * and a file src/cli/<name>.c that defines `const struct cli_command cmd_<name>`.
 */
#ifndef LINNET_CLI_COMMANDS_H
#define LINNET_CLI_COMMANDS_H

#include "cli/cli.h"

#define CLI_COMMANDS(X)                                                                            \
    X(run)                                                                                         \
    X(pull)                                                                                        \
    X(list)                                                                                        \
    X(rm)                                                                                          \
    X(inspect)                                                                                     \
    X(families)                                                                                    \
    X(perplexity)                                                                                  \
    X(bench)                                                                                       \
    X(logits)                                                                                      \
    X(dequant)                                                                                     \
    X(tokenize)                                                                                    \
    X(detokenize)                                                                                  \
    X(completion)                                                                                  \
    X(manual)

#define CLI_DECLARE(name) extern const struct cli_command cmd_##name;
CLI_COMMANDS(CLI_DECLARE)
#undef CLI_DECLARE

#endif
