/*
 * The delta-rule kernel: the recurrence against its definition in double, the pinned cases of
 * specification A21, and the promise that the bits depend neither on how a span is cut, nor on
 * which columns run together, nor on the table.
 */
#include "kernel_test.h"

enum { MAX_N = 24, MAX_DK = 130, MAX_COLS = 40, STRIDE = 3 * 160 };

/* A span: rows of [q d_k | k d_k | v n_cols] and so on, and a state. */
struct span {
    size_t n, d_k, n_cols;
    bool each;
    float x[MAX_N * STRIDE], decay[MAX_N * STRIDE], beta[MAX_N * 4], o[MAX_N * STRIDE];
    float state[3 * TILE * MAX_DK];
};

/* Row i, column c. */
static float *state_at(struct span *s, size_t i, size_t c)
{
    return s->state + i * ((s->n_cols + TILE - 1) / TILE * TILE) + c;
}

/* Positions [t0, t0 + n). */
static struct delta_job job_of(struct span *s, size_t t0, size_t n)
{
    float *x = s->x + t0 * STRIDE;
    return (struct delta_job){.n = n,
                              .d_k = s->d_k,
                              .n_cols = s->n_cols,
                              .q = x,
                              .k = x + s->d_k,
                              .v = x + 2 * s->d_k,
                              .x_stride = STRIDE,
                              .decay = s->decay + t0 * STRIDE,
                              .decay_stride = STRIDE,
                              .decay_each = s->each,
                              .beta = s->beta + t0 * 4,
                              .beta_stride = 4,
                              .o = s->o + t0 * STRIDE,
                              .o_stride = STRIDE,
                              .scale = 0.25f,
                              .state = s->state};
}

static void run(const struct kernels *k, struct span *s)
{
    struct delta_job job = job_of(s, 0, s->n);
    k->delta(&job);
}

static struct span *new_span(size_t n, size_t d_k, size_t n_cols, bool each)
{
    struct span *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->n = n;
    s->d_k = d_k;
    s->n_cols = n_cols;
    s->each = each;
    return s;
}

/* Random inputs of a real layer's size: unit keys, decays in (0, 1), steps in (0, 1). */
static struct span *random_span(size_t n, size_t d_k, size_t n_cols, bool each)
{
    struct span *s = new_span(n, d_k, n_cols, each);
    for (size_t i = 0; i < MAX_N * STRIDE; i++) {
        s->x[i] = rng_float();
        s->decay[i] = 0.5f + 0.5f * fabsf(rng_float());
    }
    for (size_t i = 0; i < MAX_N * 4; i++)
        s->beta[i] = fabsf(rng_float());
    for (size_t t = 0; t < n; t++)
        for (size_t part = 0; part < 2; part++)
            GENERIC->l2_norm(s->x + t * STRIDE + part * d_k, s->x + t * STRIDE + part * d_k, d_k,
                             1e-6f);
    for (size_t c = 0; c < n_cols; c++)
        for (size_t i = 0; i < d_k; i++)
            *state_at(s, i, c) = rng_float();
    return s;
}

/* The definition in double: output [n][n_cols] and the last state [d_k][n_cols]. */
static void exact(const struct span *s, double *o, double *S)
{
    const size_t d_k = s->d_k, nc = s->n_cols;
    for (size_t c = 0; c < nc; c++)
        for (size_t i = 0; i < d_k; i++)
            S[i * nc + c] = (double)*state_at((struct span *)s, i, c);
    for (size_t t = 0; t < s->n; t++) {
        const float *q = s->x + t * STRIDE, *k = q + d_k, *v = k + d_k, *a = s->decay + t * STRIDE;
        for (size_t c = 0; c < nc; c++) {
            double w = 0, r = 0;
            for (size_t i = 0; i < d_k; i++) {
                S[i * nc + c] *= (double)a[s->each ? i : 0];
                w += S[i * nc + c] * (double)k[i];
            }
            for (size_t i = 0; i < d_k; i++) {
                S[i * nc + c] += (double)s->beta[t * 4] * (double)k[i] * ((double)v[c] - w);
                r += S[i * nc + c] * (double)q[i];
            }
            o[t * nc + c] = 0.25 * r;
        }
    }
}

static void assert_same_span(const struct span *a, const struct span *b, const char *what)
{
    assert_same_floats(a->o, b->o, MAX_N * STRIDE, what);
    assert_same_floats(a->state, b->state, sizeof a->state / sizeof *a->state, what);
}

static void the_recurrence_is_the_one_of_the_definition(void **state)
{
    (void)state;
    static double o[MAX_N * MAX_COLS], S[MAX_DK * MAX_COLS];
    for (int each = 0; each < 2; each++) {
        struct span *s = random_span(MAX_N, 128, 32, each);
        exact(s, o, S);
        run(GENERIC, s);
        for (size_t t = 0; t < s->n; t++)
            for (size_t c = 0; c < s->n_cols; c++)
                if (fabs((double)s->o[t * STRIDE + c] - o[t * s->n_cols + c]) > 1e-6)
                    fail_msg("position %zu, column %zu: %g, not %g", t, c,
                             (double)s->o[t * STRIDE + c], o[t * s->n_cols + c]);
        for (size_t c = 0; c < s->n_cols; c++)
            for (size_t i = 0; i < s->d_k; i++)
                assert_true(fabs((double)*state_at(s, i, c) - S[i * s->n_cols + c]) < 1e-6);
        free(s);
    }
}

static void every_table_gives_the_same_bits_and_stays_inside(void **state)
{
    (void)state;
    for (size_t d_k = 1; d_k <= MAX_DK; d_k += d_k < 20 ? 1 : 55)
        for (size_t n_cols = 1; n_cols <= MAX_COLS; n_cols += n_cols < 34 ? 3 : 1)
            for (int each = 0; each < 2; each++) {
                struct span *first = random_span(1 + rng_below(4), d_k, n_cols, each);
                for (size_t i = 0; i < MAX_N * STRIDE; i++)
                    first->o[i] = NAN;
                struct span *want = malloc(sizeof *want), *got = malloc(sizeof *got);
                assert_true(want && got);
                *want = *first;
                run(GENERIC, want);
                for (size_t t = 0; t < MAX_N; t++)
                    for (size_t c = 0; c < STRIDE; c++)
                        if (isnan(want->o[t * STRIDE + c]) != (t >= first->n || c >= n_cols))
                            fail_msg("d_k %zu, %zu columns: output [%zu][%zu]", d_k, n_cols, t, c);
                for (size_t c = n_cols; c < (n_cols + TILE - 1) / TILE * TILE; c++)
                    for (size_t i = 0; i < d_k; i++)
                        assert_true(*state_at(want, i, c) == 0.0f);
                FOR_TABLES(k)
                {
                    *got = *first;
                    run(k, got);
                    assert_same_span(got, want, k->name);
                }
                free(first);
                free(want);
                free(got);
            }
}

static void the_cut_of_a_span_changes_no_bit(void **state)
{
    (void)state;
    struct span *first = random_span(MAX_N, 128, 32, true), *whole = malloc(sizeof *whole),
                *cut = malloc(sizeof *cut);
    assert_true(whole && cut);
    FOR_TABLES(k)
    {
        *whole = *first;
        run(k, whole);
        for (size_t each = 1; each < MAX_N; each += each < 4 ? 1 : 5) {
            *cut = *first;
            for (size_t t = 0; t < MAX_N; t += each) {
                struct delta_job job = job_of(cut, t, MAX_N - t < each ? MAX_N - t : each);
                k->delta(&job);
            }
            assert_same_span(cut, whole, "cut in time");
        }
    }
    free(first);
    free(whole);
    free(cut);
}

/* One position of d_k = n_cols = 2 on the state {s00, s01, s10, s11}; k, q, a of both rows. */
static struct span *small(const float s[4], const float k[2], const float q[2], const float a[2],
                          const float v[2], float beta)
{
    struct span *p = new_span(1, 2, 2, true);
    for (int i = 0; i < 2; i++) {
        p->x[i] = q[i];
        p->x[2 + i] = k[i];
        p->x[4 + i] = v[i];
        p->decay[i] = a[i];
        p->state[i] = s[i];
        *state_at(p, 1, (size_t)i) = s[2 + i];
    }
    p->beta[0] = beta;
    return p;
}

#define V2(a, b)                                                                                   \
    (const float[2])                                                                               \
    {                                                                                              \
        a, b                                                                                       \
    }
#define V4(a, b, c, d)                                                                             \
    (const float[4])                                                                               \
    {                                                                                              \
        a, b, c, d                                                                                 \
    }

static void assert_state(struct span *p, float a, float b, float c, float d)
{
    const float want[4] = {a, b, c, d};
    const float got[4] = {p->state[0], p->state[1], p->state[TILE], p->state[TILE + 1]};
    assert_same_floats(got, want, 4, "state");
    free(p);
}

static void a_column_does_not_depend_on_the_others(void **state)
{
    (void)state;
    struct span *all = random_span(MAX_N, 128, 32, true), *half = malloc(sizeof *half);
    assert_non_null(half);
    *half = *all;
    half->n_cols = 16;
    for (size_t i = 0; i < all->d_k; i++)
        for (size_t c = 0; c < 16; c++)
            *state_at(half, i, c) = *state_at(all, i, c);
    FOR_TABLES(k)
    {
        struct span *a = malloc(sizeof *a), *b = malloc(sizeof *b);
        assert_true(a && b);
        *a = *all;
        *b = *half;
        run(k, a);
        run(k, b);
        for (size_t t = 0; t < MAX_N; t++)
            assert_same_floats(a->o + t * STRIDE, b->o + t * STRIDE, 16, "16 of 32 columns");
        free(a);
        free(b);
    }
    free(all);
    free(half);
}

static void a_step_from_nothing_with_a_unit_key_writes_the_value(void **state)
{
    (void)state;
    FOR_TABLES(k)
    {
        struct span *p = small(V4(0, 0, 0, 0), V2(1, 0), V2(1, 0), V2(1, 1), V2(3, -7), 1);
        run(k, p);
        assert_true(p->o[0] == 0.25f * 3 && p->o[1] == 0.25f * -7);
        assert_state(p, 3, -7, 0, 0);
    }
}

static void a_decay_of_zero_forgets_everything(void **state)
{
    (void)state;
    FOR_TABLES(k)
    {
        struct span *p = small(V4(10, 20, 40, 80), V2(0, 1), V2(1, 0), V2(0, 0), V2(3, 5), 1);
        run(k, p);
        assert_state(p, 0, 0, 3, 5);
    }
}

static void a_step_size_of_zero_only_decays(void **state)
{
    (void)state;
    FOR_TABLES(k)
    {
        struct span *p =
            small(V4(10, 20, 40, 80), V2(0.6f, 0.8f), V2(1, 0), V2(0.5f, 0.25f), V2(3, 5), 0);
        run(k, p);
        assert_state(p, 5, 10, 10, 20);
    }
}

static void orthogonal_keys_do_not_disturb_each_other(void **state)
{
    (void)state;
    FOR_TABLES(k)
    {
        struct span *p = small(V4(10, 20, 0, 0), V2(0, 1), V2(0, 1), V2(1, 1), V2(3, 5), 0.5f);
        run(k, p);
        assert_state(p, 10, 20, 1.5f, 2.5f);
    }
}

static void keys_and_queries_of_zero_give_zero(void **state)
{
    (void)state;
    FOR_TABLES(k)
    {
        struct span *p = small(V4(1, 2, 3, 4), V2(0, 0), V2(0, 0), V2(1, 1), V2(3, 5), 1);
        run(k, p);
        assert_true(p->o[0] == 0 && p->o[1] == 0);
        assert_state(p, 1, 2, 3, 4);
    }
}

static void a_value_that_is_not_a_number_stays_in_its_column(void **state)
{
    (void)state;
    FOR_TABLES(k)
    {
        struct span *s = random_span(MAX_N, 16, 32, false);
        s->x[2 * 16 + 5] = NAN;
        run(k, s);
        for (size_t t = 0; t < s->n; t++)
            for (size_t c = 0; c < 32; c++)
                assert_int_equal(isnan(s->o[t * STRIDE + c]), c == 5);
        free(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_recurrence_is_the_one_of_the_definition),
        cmocka_unit_test(every_table_gives_the_same_bits_and_stays_inside),
        cmocka_unit_test(the_cut_of_a_span_changes_no_bit),
        cmocka_unit_test(a_column_does_not_depend_on_the_others),
        cmocka_unit_test(a_step_from_nothing_with_a_unit_key_writes_the_value),
        cmocka_unit_test(a_decay_of_zero_forgets_everything),
        cmocka_unit_test(a_step_size_of_zero_only_decays),
        cmocka_unit_test(orthogonal_keys_do_not_disturb_each_other),
        cmocka_unit_test(keys_and_queries_of_zero_give_zero),
        cmocka_unit_test(a_value_that_is_not_a_number_stays_in_its_column),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
