/*
 * Vector kernels: plain C against the C library in double, and every table against plain C bit by
 * bit for lengths 1 to 520 with poisoned memory after the end (field bug 24).
 */
#include "kernel_test.h"

#include "quant/half.h"

enum { MAX = 520, GUARD = 64 };

/* Buffers of MAX + GUARD floats; what is after the first n is NaN, and must stay the very same
 * NaN. */
struct buffer {
    float v[MAX + GUARD];
};

static void poison(float *p, size_t from, size_t to)
{
    const float nan = f32_of_bits(0x7fc0dead);
    for (size_t i = from; i < to; i++)
        memcpy(p + i, &nan, sizeof nan);
}

static void fill(struct buffer *b, size_t n, float range)
{
    for (size_t i = 0; i < n; i++)
        b->v[i] = rng_float() * range;
    poison(b->v, n, MAX + GUARD);
}

static void assert_poisoned(const struct buffer *b, size_t n, const char *what)
{
    for (size_t i = n; i < MAX + GUARD; i++)
        if (f32_bits(b->v[i]) != 0x7fc0dead)
            fail_msg("%s wrote [%zu], past its %zu elements", what, i, n);
}

/* One function of one argument vector: exact function, range of arguments, largest error. */
struct unary {
    const char *name;
    size_t offset; /* in struct kernels */
    double (*exact)(double);
    double low, high, max_ulps, max_abs;
};

static double exact_sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}
static double exact_silu(double x)
{
    return x / (1 + exp(-x));
}
static double exact_gelu(double x)
{
    return x / (1 + exp(-2 * sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
static double exact_gelu_erf(double x)
{
    return 0.5 * x * (1 + erf(x * sqrt(0.5)));
}
static double exact_relu2(double x)
{
    return x > 0 ? x * x : 0;
}
static double exact_softplus(double x)
{
    return x > 20 ? x : log1p(exp(x));
}

typedef void unary_fn(float *, const float *, size_t);

#define UNARY(f) #f, offsetof(struct kernels, f)
static const struct unary unaries[] = {
    {UNARY(exp), exp, -87, 88.7, 1.0, 0},
    {UNARY(exp), exp, -104, -87, 1.0, 0},
    {UNARY(tanh), tanh, -12, 12, 2.5, 0},
    {UNARY(tanh), tanh, -0.7, 0.7, 2.5, 0},
    {UNARY(sigmoid), exact_sigmoid, -80, 30, 2.5, 0},
    {UNARY(silu), exact_silu, -80, 30, 3.0, 0},
    /* the argument of exp carries its own rounding, so the small side is only good in absolute
     * terms */
    {UNARY(gelu), exact_gelu, -1, 12, 8.0, 0},
    {UNARY(gelu), exact_gelu, -12, -1, 0, 4e-7},
    {UNARY(gelu_erf), exact_gelu_erf, 0, 12, 4.0, 0},
    {UNARY(gelu_erf), exact_gelu_erf, -12, 0, 0, 5e-7},
    {UNARY(relu2), exact_relu2, -3, 3, 0.5, 0},
    {UNARY(softplus), exact_softplus, -80, 40, 4.0, 0},
};

static unary_fn *unary_of(const struct kernels *k, const struct unary *u)
{
    unary_fn *f;
    memcpy(&f, (const char *)k + u->offset, sizeof f);
    return f;
}

static void elementary_functions_are_within_their_stated_errors(void **state)
{
    (void)state;
    enum { N = 200000 };
    float *x = alloc64(N * 4), *y = alloc64(N * 4);
    for (size_t t = 0; t < sizeof unaries / sizeof *unaries; t++) {
        const struct unary *u = &unaries[t];
        for (size_t i = 0; i < N; i++)
            x[i] = (float)(u->low + (u->high - u->low) * (double)i / (N - 1));
        unary_of(GENERIC, u)(y, x, N);
        double worst = 0, worst_abs = 0;
        float at = 0;
        for (size_t i = 0; i < N; i++) {
            const double want = u->exact((double)x[i]), e = ulps(y[i], want);
            worst_abs = fmax(worst_abs, fabs((double)y[i] - want));
            at = e > worst ? x[i] : at;
            worst = fmax(worst, e);
        }
        if (u->max_ulps > 0 ? worst > u->max_ulps : worst_abs > u->max_abs)
            fail_msg("%s: %.2f ulps at %a, %g absolute", u->name, worst, (double)at, worst_abs);
    }
    free(x);
    free(y);
}

static float apply(unary_fn *f, float x)
{
    float y;
    f(&y, &x, 1);
    return y;
}

static void elementary_functions_have_the_right_values_at_the_edges(void **state)
{
    (void)state;
    FOR_TABLES(k)
    {
        assert_true(apply(k->exp, 0) == 1.0f);
        assert_true(apply(k->exp, -INFINITY) == 0.0f);
        assert_true(apply(k->exp, INFINITY) == INFINITY);
        assert_true(apply(k->exp, 89) == INFINITY);
        assert_true(apply(k->exp, 3e38f) == INFINITY);
        assert_true(apply(k->exp, -3e38f) == 0.0f);
        assert_true(apply(k->exp, -103.0f) == 0x1p-149f);
        assert_true(apply(k->sigmoid, 0) == 0.5f);
        assert_true(apply(k->sigmoid, INFINITY) == 1.0f);
        assert_true(apply(k->sigmoid, -INFINITY) == 0.0f);
        assert_true(apply(k->silu, 0) == 0.0f);
        assert_true(apply(k->silu, -1000.0f) == 0.0f);
        assert_true(apply(k->silu, 1000.0f) == 1000.0f);
        assert_true(apply(k->tanh, 0) == 0.0f);
        assert_true(apply(k->tanh, 100) == 1.0f);
        assert_true(apply(k->tanh, -INFINITY) == -1.0f);
        assert_true(apply(k->tanh, 1e-30f) == 1e-30f);
        assert_true(apply(k->gelu, 0) == 0.0f);
        assert_true(apply(k->gelu, -1e20f) == 0.0f);
        assert_true(apply(k->gelu, 1e20f) == 1e20f);
        assert_true(apply(k->gelu_erf, 0) == 0.0f);
        assert_true(apply(k->gelu_erf, 50) == 50.0f);
        assert_true(apply(k->gelu_erf, -50) == 0.0f);
        assert_true(apply(k->softplus, INFINITY) == INFINITY);
        assert_true(apply(k->softplus, -INFINITY) == 0.0f);
        assert_true(apply(k->softplus, 25.5f) == 25.5f);
        assert_true(apply(k->softplus, -50.0f) > 0.0f);
        assert_true(apply(k->relu2, -3) == 0.0f);
        for (size_t t = 0; t < sizeof unaries / sizeof *unaries; t++)
            assert_true(isnan(apply(unary_of(k, &unaries[t]), NAN)));
    }
}

static void elementwise_functions_give_the_same_bits_and_stay_inside(void **state)
{
    (void)state;
    struct buffer a, b, w, want, got;
    FOR_TABLES(k)
    {
        for (size_t n = 1; n <= MAX; n++) {
            fill(&a, n, n % 3 ? 4.0f : 90.0f);
            fill(&b, n, 2.0f);
            fill(&w, n, 1.0f);
            if (n > 20) {
                a.v[7] = -INFINITY;
                a.v[n - 1] = NAN;
                a.v[n - 2] = INFINITY;
                a.v[n - 3] = -0.0f;
            }
#define CHECK(call_want, call_got, what)                                                           \
    do {                                                                                           \
        poison(want.v, 0, MAX + GUARD);                                                            \
        poison(got.v, 0, MAX + GUARD);                                                             \
        call_want;                                                                                 \
        call_got;                                                                                  \
        assert_same_floats(got.v, want.v, n, what);                                                \
        assert_poisoned(&got, n, what);                                                            \
    } while (0)
            for (size_t t = 0; t < sizeof unaries / sizeof *unaries; t++) {
                const struct unary *u = &unaries[t];
                CHECK(unary_of(GENERIC, u)(want.v, a.v, n), unary_of(k, u)(got.v, a.v, n), u->name);
            }
#define BINARY(f) CHECK(GENERIC->f(want.v, a.v, b.v, n), k->f(got.v, a.v, b.v, n), #f)
            BINARY(add);
            BINARY(mul);
            BINARY(silu_mul);
            BINARY(gelu_mul);
            CHECK(GENERIC->scale(want.v, a.v, 0.3f, n), k->scale(got.v, a.v, 0.3f, n), "scale");
            CHECK(GENERIC->softcap(want.v, a.v, 15, n), k->softcap(got.v, a.v, 15, n), "softcap");
            CHECK(GENERIC->lerp(want.v, a.v, b.v, w.v, n), k->lerp(got.v, a.v, b.v, w.v, n),
                  "lerp");
            CHECK((memcpy(want.v, b.v, n * 4), GENERIC->axpy(want.v, 0.7f, a.v, n)),
                  (memcpy(got.v, b.v, n * 4), k->axpy(got.v, 0.7f, a.v, n)), "axpy");
            CHECK((memcpy(want.v, a.v, n * 4), GENERIC->silu(want.v, want.v, n)),
                  (memcpy(got.v, a.v, n * 4), k->silu(got.v, got.v, n)), "silu in place");
        }
    }
}

static void norms_and_reductions_give_the_same_bits_and_stay_inside(void **state)
{
    (void)state;
    struct buffer a, w, b, want, got;
    FOR_TABLES(k)
    {
        for (size_t n = 1; n <= MAX; n++) {
            fill(&a, n, 3.0f);
            fill(&w, n, 1.0f);
            fill(&b, n, 1.0f);
            CHECK(GENERIC->rms_norm(want.v, a.v, w.v, n, 1e-5f),
                  k->rms_norm(got.v, a.v, w.v, n, 1e-5f), "rms_norm");
            CHECK(GENERIC->rms_norm(want.v, a.v, NULL, n, 1e-5f),
                  k->rms_norm(got.v, a.v, NULL, n, 1e-5f), "rms_norm without weight");
            CHECK(GENERIC->layer_norm(want.v, a.v, w.v, b.v, n, 1e-5f),
                  k->layer_norm(got.v, a.v, w.v, b.v, n, 1e-5f), "layer_norm");
            CHECK(GENERIC->layer_norm(want.v, a.v, NULL, NULL, n, 1e-5f),
                  k->layer_norm(got.v, a.v, NULL, NULL, n, 1e-5f), "layer_norm without weights");
            CHECK(GENERIC->l2_norm(want.v, a.v, n, 1e-6f), k->l2_norm(got.v, a.v, n, 1e-6f),
                  "l2_norm");
            CHECK((memcpy(want.v, a.v, n * 4), GENERIC->softmax(want.v, n)),
                  (memcpy(got.v, a.v, n * 4), k->softmax(got.v, n)), "softmax");
            assert_true(same_float(k->dot(a.v, w.v, n), GENERIC->dot(a.v, w.v, n)));
            assert_true(same_float(k->sum(a.v, n), GENERIC->sum(a.v, n)));
            assert_true(same_float(k->max(a.v, n), GENERIC->max(a.v, n)));
        }
    }
}

static void reductions_are_those_of_the_definition(void **state)
{
    (void)state;
    struct buffer a, b;
    for (size_t n = 0; n <= MAX; n++) {
        fill(&a, n, 1.0f);
        fill(&b, n, 1.0f);
        double dot = 0, sum = 0, top = -INFINITY;
        float lanes[16] = {0};
        for (size_t i = 0; i < n; i++) {
            dot += (double)a.v[i] * (double)b.v[i];
            sum += (double)a.v[i];
            top = fmax(top, (double)a.v[i]);
            lanes[i % 16] = fmaf(a.v[i], b.v[i], lanes[i % 16]);
        }
        for (int half = 8; half; half /= 2)
            for (int l = 0; l < half; l++)
                lanes[l] += lanes[l + half];
        FOR_TABLES(k)
        {
            assert_true(k->dot(a.v, b.v, n) == lanes[0]);
            assert_true(fabs((double)k->dot(a.v, b.v, n) - dot) <= 1e-7 * (double)(n + 1));
            assert_true(fabs((double)k->sum(a.v, n) - sum) <= 1e-7 * (double)(n + 1));
            assert_true((double)k->max(a.v, n) == top);
        }
    }
}

static void norms_are_those_of_the_definition(void **state)
{
    (void)state;
    struct buffer a, w, b, y;
    for (size_t n = 1; n <= MAX; n += 7) {
        fill(&a, n, 3.0f);
        fill(&w, n, 1.0f);
        fill(&b, n, 1.0f);
        double ss = 0, mean = 0, var = 0, e = 0;
        for (size_t i = 0; i < n; i++) {
            ss += (double)a.v[i] * (double)a.v[i];
            mean += (double)a.v[i] / (double)n;
            e += exp((double)a.v[i]);
        }
        for (size_t i = 0; i < n; i++)
            var += ((double)a.v[i] - mean) * ((double)a.v[i] - mean) / (double)n;
        const double eps = 1e-3;
#define CLOSE(want) assert_true(fabs((double)y.v[i] - (want)) <= 2e-6 * (1 + fabs(want)))
        GENERIC->rms_norm(y.v, a.v, w.v, n, 1e-3f);
        for (size_t i = 0; i < n; i++)
            CLOSE((double)a.v[i] / sqrt(ss / (double)n + eps) * (double)w.v[i]);
        GENERIC->layer_norm(y.v, a.v, w.v, b.v, n, 1e-3f);
        for (size_t i = 0; i < n; i++)
            CLOSE(((double)a.v[i] - mean) / sqrt(var + eps) * (double)w.v[i] + (double)b.v[i]);
        GENERIC->l2_norm(y.v, a.v, n, 1e-3f);
        for (size_t i = 0; i < n; i++)
            CLOSE((double)a.v[i] / sqrt(ss + eps));
        memcpy(y.v, a.v, sizeof y.v);
        GENERIC->softmax(y.v, n);
        for (size_t i = 0; i < n; i++)
            CLOSE(exp((double)a.v[i]) / e);
    }
}

static void rope_gives_the_same_bits_and_turns_pairs(void **state)
{
    (void)state;
    struct buffer x, want, got;
    float c[MAX / 2 + GUARD], s[MAX / 2 + GUARD];
    for (size_t n = 2; n <= MAX; n += 2) {
        fill(&x, n, 2.0f);
        for (size_t i = 0; i < n / 2; i++) {
            c[i] = cosf((float)i);
            s[i] = sinf((float)i);
        }
        poison(c, n / 2, MAX / 2 + GUARD);
        poison(s, n / 2, MAX / 2 + GUARD);
        for (int neox = 0; neox < 2; neox++) {
            for (size_t i = 0; i < n / 2; i++) {
                const size_t ia = neox ? i : 2 * i, ib = neox ? i + n / 2 : 2 * i + 1;
                want.v[ia] = fmaf(x.v[ia], c[i], -(x.v[ib] * s[i]));
                want.v[ib] = fmaf(x.v[ia], s[i], x.v[ib] * c[i]);
            }
            FOR_TABLES(k)
            {
                got = x;
                k->rope(got.v, c, s, n, neox);
                assert_same_floats(got.v, want.v, n, neox ? "rope neox" : "rope");
                assert_poisoned(&got, n, "rope");
            }
        }
    }
}

static void rope_is_identity_at_position_zero(void **state)
{
    (void)state;
    struct buffer x, got;
    float c[64], s[64] = {0};
    for (size_t i = 0; i < 64; i++)
        c[i] = 1;
    fill(&x, 128, 2.0f);
    FOR_TABLES(k)
    {
        for (int neox = 0; neox < 2; neox++) {
            got = x;
            k->rope(got.v, c, s, 128, neox);
            assert_same_floats(got.v, x.v, 128, "rope");
        }
    }
}

static void stored_keys_and_values_are_those_of_the_number_formats(void **state)
{
    (void)state;
    struct buffer x, got;
    uint8_t want_bytes[MAX * 4], bytes[MAX * 4 + GUARD];
    for (size_t n = 1; n <= MAX; n++) {
        fill(&x, n, n % 2 ? 1e-6f : 1000.0f);
        x.v[0] = n % 5 ? x.v[0] : 1e30f; /* beyond f16: infinity, not garbage */
        for (enum kv_type type = KV_F16; type <= KV_BF16; type++) {
            assert_int_equal(kv_row_bytes(type, n), 2 * n);
            for (size_t i = 0; i < n; i++) {
                const uint16_t h = type == KV_F16 ? half_of_f32(x.v[i]) : brain_of_f32(x.v[i]);
                memcpy(want_bytes + 2 * i, &h, 2);
            }
            FOR_TABLES(k)
            {
                memset(bytes, 0x5a, sizeof bytes);
                k->kv_store(type, x.v, bytes, n);
                assert_memory_equal(bytes, want_bytes, 2 * n);
                for (size_t i = 2 * n; i < sizeof bytes; i++)
                    assert_int_equal(bytes[i], 0x5a);
                poison(got.v, 0, MAX + GUARD);
                k->kv_load(type, bytes, got.v, n);
                for (size_t i = 0; i < n; i++) {
                    uint16_t h;
                    memcpy(&h, bytes + 2 * i, 2);
                    assert_true(got.v[i] == (type == KV_F16 ? half_to_f32(h) : brain_to_f32(h)));
                }
                assert_poisoned(&got, n, "kv_load");
            }
        }
        FOR_TABLES(k)
        {
            k->kv_store(KV_F32, x.v, bytes, n);
            poison(got.v, 0, MAX + GUARD);
            k->kv_load(KV_F32, bytes, got.v, n);
            assert_memory_equal(got.v, x.v, n * 4);
            assert_poisoned(&got, n, "kv_load f32");
        }
    }
}

static void q8_0_rows_are_blocks_of_the_file_type(void **state)
{
    (void)state;
    const struct quant_type *t = quant_type_of(QUANT_Q8_0);
    struct buffer x, want, got;
    uint8_t bytes[MAX * 2], first[MAX * 2];
    assert_int_equal(kv_row_bytes(KV_Q8_0, 48), 0);
    for (size_t n = 32; n <= MAX; n += 32) {
        assert_int_equal(kv_row_bytes(KV_Q8_0, n), n / 32 * 34);
        fill(&x, n, 5.0f);
        GENERIC->kv_store(KV_Q8_0, x.v, first, n);
        t->decode(first, want.v, n);
        for (size_t i = 0; i < n; i++)
            assert_true(fabsf(want.v[i] - x.v[i]) <= 5.0f / 127 * 0.57f); /* d has 11 bits */
        FOR_TABLES(k)
        {
            memset(bytes, 0x5a, sizeof bytes);
            k->kv_store(KV_Q8_0, x.v, bytes, n);
            assert_memory_equal(bytes, first, n / 32 * 34);
            assert_int_equal(bytes[n / 32 * 34], 0x5a);
            poison(got.v, 0, MAX + GUARD);
            k->kv_load(KV_Q8_0, bytes, got.v, n);
            assert_memory_equal(got.v, want.v, n * 4);
            assert_poisoned(&got, n, "kv_load q8_0");
        }
    }
}

static void values_that_are_not_finite_survive_storing(void **state)
{
    (void)state;
    float x[32] = {1, -INFINITY, NAN, INFINITY}, y[32];
    uint8_t bytes[128];
    FOR_TABLES(k)
    {
        for (enum kv_type type = 0; type < KV_TYPE_COUNT; type++) {
            k->kv_store(type, x, bytes, 32);
            k->kv_load(type, bytes, y, 32);
            if (type == KV_Q8_0) {
                for (int i = 0; i < 32; i++)
                    assert_true(isnan(y[i]));
            } else {
                assert_true(y[0] == 1 && y[1] == -INFINITY && isnan(y[2]) && y[3] == INFINITY);
            }
        }
    }
}

static void the_best_table_is_supported_and_found_by_its_name(void **state)
{
    (void)state;
    assert_true(kernels_best()->supported());
    assert_ptr_equal(kernels_named(kernels_best()->name), kernels_best());
    assert_null(kernels_named("no such table"));
    assert_non_null(GENERIC);
    assert_null(kernels_at(kernels_count()));
    fprintf(stderr, "tables tested here:");
    FOR_TABLES(k)
    fprintf(stderr, " %s", k->name);
    fprintf(stderr, "\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_table_is_supported_and_found_by_its_name),
        cmocka_unit_test(elementary_functions_are_within_their_stated_errors),
        cmocka_unit_test(elementary_functions_have_the_right_values_at_the_edges),
        cmocka_unit_test(elementwise_functions_give_the_same_bits_and_stay_inside),
        cmocka_unit_test(norms_and_reductions_give_the_same_bits_and_stay_inside),
        cmocka_unit_test(reductions_are_those_of_the_definition),
        cmocka_unit_test(norms_are_those_of_the_definition),
        cmocka_unit_test(rope_gives_the_same_bits_and_turns_pairs),
        cmocka_unit_test(rope_is_identity_at_position_zero),
        cmocka_unit_test(stored_keys_and_values_are_those_of_the_number_formats),
        cmocka_unit_test(q8_0_rows_are_blocks_of_the_file_type),
        cmocka_unit_test(values_that_are_not_finite_survive_storing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
