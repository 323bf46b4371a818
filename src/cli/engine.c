/*
 * Opening a model for a command. The environment is read here, never in the library: LINNET_ISA
 * names the kernel set, for comparisons.
 */
#include "cli/engine.h"

#include <stdlib.h>
#include <string.h>

static bool on_progress(void *user, float fraction)
{
    cli_progress_update(user, (uint64_t)(fraction * 1000.0f));
    return !cli_interrupted;
}

linnet_kv_type engine_kv_type(const char *name)
{
    static const char *const names[] = {"f32", "f16", "bf16", "q8_0"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0)
            return (linnet_kv_type)i;
    return LINNET_KV_F16;
}

static linnet_status open_model(struct engine *e, const char *path, const struct engine_opts *o,
                                linnet_error *err)
{
    struct cli_progress bar;
    linnet_model_options mo;
    linnet_model_defaults(&mo);
    mo.threads = (unsigned)o->threads;
    mo.draft = o->draft;
    mo.isa = getenv("LINNET_ISA");
    if (mo.isa && !*mo.isa)
        mo.isa = NULL;
    mo.progress = on_progress;
    mo.user = &bar;
    cli_progress_start(&bar, "loading", false, 0, 1000, o->quiet || !cli_is_terminal(stderr));
    linnet_status s = linnet_model_open(path, &mo, &e->model, err);
    cli_progress_end(&bar);
    return s;
}

static linnet_status open_context(struct engine *e, const struct engine_opts *o, uint32_t n_ctx,
                                  linnet_error *err)
{
    linnet_context_options co;
    linnet_context_defaults(&co);
    co.n_ctx = n_ctx ? n_ctx : (uint32_t)o->ctx;
    co.kv_k = co.kv_v = engine_kv_type(o->kv);
    linnet_status s = linnet_context_create(e->model, &co, &e->ctx, err);
    return s == LINNET_OK ? linnet_session_create(e->ctx, &e->session, err) : s;
}

int engine_open(struct engine *e, const char *name, const struct engine_opts *o, uint32_t n_ctx)
{
    linnet_error err;
    *e = (struct engine){0};
    char *path = cli_model_path(name);
    if (!path)
        return CLI_FAILED;
    linnet_status s = open_model(e, path, o, &err);
    free(path);
    if (s == LINNET_OK)
        s = open_context(e, o, n_ctx, &err);
    if (s == LINNET_OK)
        return CLI_OK;
    engine_close(e);
    return cli_fail_with(&err);
}

void engine_close(struct engine *e)
{
    linnet_context_free(e->ctx);
    linnet_model_close(e->model);
    *e = (struct engine){0};
}

int32_t *engine_tokenize(const struct engine *e, const char *text, size_t n, unsigned flags,
                         size_t *n_out)
{
    linnet_error err;
    size_t cap = n + 16;
    int32_t *ids = cli_alloc(cap * sizeof *ids);
    linnet_status s = linnet_tokenize(e->model, text, n, flags, ids, cap, n_out, &err);
    if (s == LINNET_LIMIT) {
        free(ids);
        ids = cli_alloc(*n_out * sizeof *ids);
        s = linnet_tokenize(e->model, text, n, flags, ids, *n_out, n_out, &err);
    }
    if (s == LINNET_OK)
        return ids;
    free(ids);
    cli_fail_with(&err);
    return NULL;
}
