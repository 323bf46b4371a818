/*
 * What commands that run a model share: the options for it, and opening it with progress on a
 * terminal.
 */
#ifndef LINNET_CLI_ENGINE_H
#define LINNET_CLI_ENGINE_H

#include "cli/cli.h"

struct engine_opts {
    int64_t threads, ctx;
    const char *kv;
    bool quiet;
    bool draft; /* load the draft head, where the file has one */
};

/* Rows of an option table; the command's struct S has a `struct engine_opts engine`. */
#define ENGINE_OPTS(S)                                                                             \
    {.flag = "--ctx",                                                                              \
     .letter = 'c',                                                                                \
     CLI_INT(S, engine.ctx, 0, INT32_MAX),                                                         \
     .arg = "N",                                                                                   \
     .def = "0",                                                                                   \
     .help = "positions of context; 0: as many as the model was trained for"},                     \
        ENGINE_OPTS_NO_CTX(S)
#define ENGINE_OPTS_NO_CTX(S)                                                                      \
    {.flag = "--threads",                                                                          \
     .letter = 't',                                                                                \
     CLI_INT(S, engine.threads, 0, 512),                                                           \
     .arg = "N",                                                                                   \
     .def = "0",                                                                                   \
     .help = "threads; 0: as many as this process may use"},                                       \
        {.flag = "--kv-type",                                                                      \
         CLI_CHOICE(S, engine.kv, "f16|f32|bf16|q8_0"),                                            \
         .arg = "TYPE",                                                                            \
         .def = "f16",                                                                             \
         .help = "how keys and values are kept"},                                                  \
    {                                                                                              \
        .flag = "--quiet", .letter = 'q', CLI_FLAG(S, engine.quiet),                               \
        .help = "no progress and no figures"                                                       \
    }

struct engine {
    linnet_model *model;
    linnet_context *ctx;
    linnet_session *session;
};

/* Open model `name` (a path or a pulled name), a context of `n_ctx` positions (0: what --ctx says;
 * when that is 0 too, what the model was trained for) and a session. Returns CLI_OK, or prints the
 * error and returns its exit code; then nothing is left open. */
int engine_open(struct engine *e, const char *name, const struct engine_opts *o, uint32_t n_ctx);
void engine_close(struct engine *e);

/* The KV type named by --kv-type. */
linnet_kv_type engine_kv_type(const char *name);

/* The tokens of a text, or NULL after an error. Free with free(). */
int32_t *engine_tokenize(const struct engine *e, const char *text, size_t n, unsigned flags,
                         size_t *n_out);

#endif
