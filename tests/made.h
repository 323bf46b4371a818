/*
 * Opening and running models that mkgguf.h makes.
 */
#ifndef LINNET_TEST_MADE_H
#define LINNET_TEST_MADE_H

#include "mkgguf.h"

static linnet_error err;
static bool made_with_draft; /* models are opened with their draft head */

/* Open the model; what failed is in err. */
static inline linnet_status open_made(const struct mkgguf *g, linnet_model **m)
{
    char path[64];
    linnet_model_options mo;
    linnet_model_defaults(&mo);
    mo.threads = 1;
    mo.draft = made_with_draft;
    mkgguf_temp(g, path);
    *m = NULL;
    err.text[0] = '\0';
    linnet_status s = linnet_model_open(path, &mo, m, &err);
    unlink(path);
    return s;
}

/* Opening fails with `status`, and the text names `what`. */
static inline void refused(const struct mkgguf *g, linnet_status status, const char *what)
{
    linnet_model *m;
    linnet_status got = open_made(g, &m);
    if (got != status || !strstr(err.text, what))
        fail_msg("%s: wanted status %d naming '%s', got %d: %s", g->arch, (int)status, what,
                 (int)got, err.text);
}

/* Logits after five tokens; the caller frees them. */
static inline float *logits_of(const struct mkgguf *g, size_t *n)
{
    static const int32_t tokens[] = {1, 265, 290, 263, 277};
    linnet_model *m;
    linnet_context *c;
    linnet_session *s;
    linnet_model_info info;
    assert_ok(open_made(g, &m), err);
    assert_ok(linnet_context_create(m, NULL, &c, &err), err);
    assert_ok(linnet_session_create(c, &s, &err), err);
    linnet_item item = {s, tokens, 5, LINNET_WANT_LAST};
    assert_ok(linnet_run(c, &item, 1, &err), err);
    linnet_model_get_info(m, &info);
    *n = info.n_vocab;
    float *out = malloc(*n * sizeof *out);
    memcpy(out, linnet_logits(c, 0, 4), *n * sizeof *out);
    linnet_context_free(c);
    linnet_model_close(m);
    return out;
}

#endif
