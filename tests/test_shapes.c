/*
 * Projections that are not square: heads whose widths do not add up to the model's, keys and values
 * of different widths, one to eight query heads a key head. The perplexity of a text is the same on
 * the plain C kernels and on the machine's own, to the last bit, and that of a model that learned
 * nothing.
 */
#include "made.h"

enum { N_TEXT = 500, N_VOCAB = 300 };

struct shape {
    unsigned d_model, n_head, n_head_kv, d_k, d_v;
};

static const struct shape shapes[] = {
    {64, 4, 4, 16, 16}, /* square */
    {64, 3, 1, 24, 24}, {40, 6, 2, 16, 16}, {72, 8, 1, 10, 10}, {56, 5, 5, 8, 8},
    {64, 4, 2, 24, 40}, {64, 6, 2, 40, 12}, {48, 8, 1, 6, 30},
};

/* What depends on the values' width is made here. */
static bool drops(void *arg, const char *name)
{
    (void)arg;
    return strstr(name, "attn_v.weight") || strstr(name, "attn_output.weight") ||
           strstr(name, "value_length");
}

static void adds_keys(void *arg, struct mkgguf_out *o)
{
    const struct shape *s = arg;
    mkgguf_u32(o, "llama.attention.value_length", s->d_v);
}

static void adds_tensors(void *arg, struct mkgguf_out *o)
{
    const struct shape *s = arg;
    for (unsigned l = 0; l < o->m->n_layer; l++) {
        mkgguf_matrix(o, mkgguf_blk(l, "attn_v.weight"), s->d_model, s->n_head_kv * s->d_v, 0);
        mkgguf_matrix(o, mkgguf_blk(l, "attn_output.weight"), s->n_head * s->d_v, s->d_model, 0);
    }
}

/* Mean negative log-likelihood of the text. */
static double loss(const char *path, const char *isa)
{
    static int32_t text[N_TEXT];
    linnet_model *m;
    linnet_context *c;
    linnet_session *s;
    linnet_model_options mo;
    linnet_context_options co;
    double sum = 0;
    for (size_t i = 0; i < N_TEXT; i++)
        text[i] = (int32_t)((i * i * 31 + i * 7 + i / 9) % N_VOCAB);
    linnet_model_defaults(&mo);
    mo.threads = 1;
    mo.isa = isa;
    assert_ok(linnet_model_open(path, &mo, &m, &err), err);
    linnet_context_defaults(&co);
    co.n_ctx = N_TEXT;
    assert_ok(linnet_context_create(m, &co, &c, &err), err);
    assert_ok(linnet_session_create(c, &s, &err), err);
    linnet_item item = {s, text, N_TEXT, LINNET_WANT_ALL};
    assert_ok(linnet_run(c, &item, 1, &err), err);
    for (size_t i = 0; i + 1 < N_TEXT; i++) {
        const float *x = linnet_logits(c, 0, i);
        double total = 0;
        for (size_t v = 0; v < N_VOCAB; v++)
            total += exp((double)x[v]);
        sum += log(total) - (double)x[text[i + 1]];
    }
    linnet_context_free(c);
    linnet_model_close(m);
    return sum / (N_TEXT - 1);
}

static void perplexity_is_that_of_the_plain_kernels_for_every_shape(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const struct shape *s = &shapes[i];
        char path[64];
        struct mkgguf g = mkgguf_defaults("llama");
        g.d_model = s->d_model;
        g.n_head = s->n_head;
        g.n_head_kv = s->n_head_kv;
        g.d_head = s->d_k;
        g.drop = drops;
        g.more_keys = adds_keys;
        g.more_tensors = adds_tensors;
        g.arg = (void *)s;
        mkgguf_temp(&g, path);
        double plain = loss(path, "generic"), best = loss(path, NULL);
        unlink(path);
        if (memcmp(&plain, &best, sizeof plain) != 0)
            fail_msg("%u heads of %u and %u over %u in %u: %.9g on the plain kernels, %.9g here",
                     s->n_head, s->d_k, s->d_v, s->n_head_kv, s->d_model, plain, best);
        assert_true(best > 5.0 && best < 7.0); /* ln 300 is 5.7 */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(perplexity_is_that_of_the_plain_kernels_for_every_shape),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
