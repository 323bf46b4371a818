/*
 * Rotation at far positions, by family, against angles in double precision: pairs, how many
 * dimensions turn, bases, scaling, and which layers have which (field bugs 14, 15). The queries of
 * each layer are captured before and after they are turned.
 */
#include "made.h"

enum { N_POS = 4096, N_BATCH = 512, N_LAYER = 6, WIDTH = 64, D_HEAD = 16 };

/* The last two writes of q in each layer: before and after the rotation. */
struct seen {
    float q[N_LAYER][2][N_BATCH * WIDTH];
};

static void note(void *user, int32_t layer, const float *values, size_t n_rows, size_t width)
{
    struct seen *s = user;
    assert_int_equal(width, WIDTH);
    assert_true(layer >= 0 && layer < N_LAYER);
    memcpy(s->q[layer][0], s->q[layer][1], sizeof s->q[layer][0]);
    memcpy(s->q[layer][1], values, n_rows * width * sizeof *values);
}

/* What a layer should do: turn pair i of the first n_rot dimensions of a head by pos * base^(-2i /
 * n_rot) / factor. */
struct rotation {
    bool neox;
    unsigned n_rot;
    double base, factor;
};

static void check_row(const char *arch, int layer, const struct rotation *r, size_t pos,
                      const float *before, const float *after)
{
    for (size_t h = 0; h < WIDTH; h += D_HEAD) {
        double want[D_HEAD];
        for (size_t i = 0; i < D_HEAD; i++)
            want[i] = (double)before[h + i];
        for (size_t i = 0; i < r->n_rot / 2; i++) {
            size_t a = r->neox ? i : 2 * i, b = r->neox ? i + r->n_rot / 2 : 2 * i + 1;
            double angle = (double)pos * pow(r->base, -2.0 * (double)i / r->n_rot) / r->factor;
            double x = (double)before[h + a], y = (double)before[h + b];
            want[a] = x * cos(angle) - y * sin(angle);
            want[b] = x * sin(angle) + y * cos(angle);
        }
        for (size_t i = 0; i < D_HEAD; i++)
            if (fabs(want[i] - (double)after[h + i]) > 2e-6 * (1 + fabs(want[i])))
                fail_msg("%s, layer %d, position %zu, dimension %zu: %g, not %g", arch, layer, pos,
                         i, (double)after[h + i], want[i]);
    }
}

struct made {
    const char *arch;
    unsigned n_rot;
    float factor, base_swa; /* 0: no key */
    unsigned window;
    struct rotation full, windowed;
};

static void adds_keys(void *arg, struct mkgguf_out *o)
{
    const struct made *m = arg;
    if (m->factor != 0.0f)
        mkgguf_f32(o, mkgguf_key(o->m, "rope.scaling.factor"), m->factor);
    if (m->base_swa != 0.0f)
        mkgguf_f32(o, mkgguf_key(o->m, "rope.freq_base_swa"), m->base_swa);
    if (m->window)
        mkgguf_u32(o, mkgguf_key(o->m, "attention.sliding_window"), m->window);
    mkgguf_u32(o, mkgguf_key(o->m, "rope.dimension_count"), m->n_rot);
}

static bool drops(void *arg, const char *name)
{
    (void)arg;
    return strstr(name, "rope.dimension_count") != NULL;
}

static void check_family(const struct made *made)
{
    static struct seen seen;
    static const size_t positions[] = {0, 1, 64, 511, 4095};
    struct mkgguf g = mkgguf_defaults(made->arch);
    linnet_model *m;
    linnet_context *c;
    linnet_session *s;
    linnet_context_options co;
    linnet_observer o;
    int32_t tokens[N_BATCH];
    g.n_layer = N_LAYER;
    g.n_ctx = N_POS;
    g.rope_base = 20000.0f;
    g.drop = drops;
    g.more_keys = adds_keys;
    g.arg = (void *)made;
    assert_ok(open_made(&g, &m), err);
    linnet_context_defaults(&co);
    co.n_batch = N_BATCH;
    assert_ok(linnet_context_create(m, &co, &c, &err), err);
    assert_ok(linnet_session_create(c, &s, &err), err);
    linnet_observer_defaults(&o);
    o.user = &seen;
    o.capture = "q";
    o.captured = note;
    linnet_context_observe(c, &o);
    for (size_t at = 0, p = 0; at < N_POS; at += N_BATCH) {
        for (size_t i = 0; i < N_BATCH; i++)
            tokens[i] = (int32_t)((at + i) * 31 % 300);
        linnet_item item = {s, tokens, N_BATCH, LINNET_WANT_NONE};
        assert_ok(linnet_run(c, &item, 1, &err), err);
        for (; p < sizeof positions / sizeof *positions && positions[p] < at + N_BATCH; p++)
            for (int l = 0; l < N_LAYER; l++) {
                size_t row = (positions[p] - at) * WIDTH;
                bool full = made->window == 0 || l == N_LAYER - 1;
                check_row(made->arch, l, full ? &made->full : &made->windowed, positions[p],
                          seen.q[l][0] + row, seen.q[l][1] + row);
            }
    }
    linnet_context_free(c);
    linnet_model_close(m);
}

static void queries_turn_as_the_family_says_at_far_positions(void **state)
{
    (void)state;
    static const struct made families[] = {
        {"llama", 16, 0, 0, 0, {false, 16, 20000, 1}, {false, 16, 20000, 1}},
        {"llama", 8, 4, 0, 0, {false, 8, 20000, 4}, {false, 8, 20000, 4}},
        {"qwen2", 16, 0, 0, 0, {true, 16, 20000, 1}, {true, 16, 20000, 1}},
        {"qwen3moe", 12, 0, 0, 0, {true, 12, 20000, 1}, {true, 12, 20000, 1}},
        /* windows: a base of their own, and no scaling */
        {"gemma3", 16, 8, 0, 8, {true, 16, 20000, 8}, {true, 16, 10000, 1}},
        {"gemma3", 16, 8, 500, 8, {true, 16, 20000, 8}, {true, 16, 500, 1}},
    };
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        check_family(&families[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(queries_turn_as_the_family_says_at_far_positions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
