/*
 * Recurrences of one token, and the convolution over positions: every table against the order of
 * operations that kernel.h states, bit by bit, for states of all shapes, with poisoned memory after
 * the end.
 */
#include "kernel_test.h"

enum { MAX_M = 24, MAX_N = 70, GUARD = 40 };

struct buffers {
    float s[MAX_M * MAX_N + GUARD], y[MAX_N + GUARD], x[MAX_N], dt[MAX_N], a[MAX_M * MAX_N];
    float v[6][MAX_M];
};

static void fill(struct buffers *b)
{
    for (size_t i = 0; i < sizeof b->s / sizeof *b->s; i++)
        b->s[i] = rng_float();
    for (size_t i = 0; i < sizeof b->y / sizeof *b->y; i++)
        b->y[i] = 7.0f;
    for (size_t i = 0; i < MAX_N; i++) {
        b->x[i] = rng_float();
        b->dt[i] = fabsf(rng_float());
    }
    for (size_t i = 0; i < MAX_M * MAX_N; i++)
        b->a[i] = -fabsf(rng_float()) * 4.0f;
    for (size_t i = 0; i < 6; i++)
        for (size_t j = 0; j < MAX_M; j++)
            b->v[i][j] = rng_float();
}

static void plain_scan(struct buffers *b, bool each, float decay, size_t m, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float sum = 0.0f;
        for (size_t j = 0; j < m; j++) {
            float *s = &b->s[j * n + i], d = b->dt[i] * b->a[j * n + i];
            GENERIC->exp(&d, &d, 1);
            *s = fmaf(b->v[0][j], b->x[i], (each ? d : decay) * *s);
            sum = fmaf(b->v[1][j], *s, sum);
        }
        b->y[i] = sum;
    }
}

static void plain_wkv(struct buffers *b, size_t m, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float t = 0.0f, sum = 0.0f;
        for (size_t j = 0; j < m; j++)
            t = fmaf(b->v[0][j], b->s[j * n + i], t);
        for (size_t j = 0; j < m; j++) {
            float *s = &b->s[j * n + i];
            *s = fmaf(b->v[3][j], b->x[i], fmaf(-b->v[1][j], t, b->v[2][j] * *s));
            sum = fmaf(b->v[4][j], *s, sum);
        }
        b->y[i] = sum;
    }
}

enum kind { SCAN, SCAN_EACH, WKV };

static void check(const struct kernels *k, enum kind kind, size_t m, size_t n)
{
    static struct buffers want, got;
    fill(&want);
    got = want;
    struct wkv_row row = {got.v[0], got.v[1], got.v[2], got.v[3], got.v[4]};
    for (int token = 0; token < 3; token++) {
        switch (kind) {
        case SCAN:
            plain_scan(&want, false, 0.75f, m, n);
            k->scan(got.s, got.y, got.x, 0.75f, got.v[0], got.v[1], m, n);
            break;
        case SCAN_EACH:
            plain_scan(&want, true, 0.0f, m, n);
            k->scan_each(got.s, got.y, got.x, got.dt, got.a, got.v[0], got.v[1], m, n);
            break;
        case WKV:
            plain_wkv(&want, m, n);
            k->wkv(got.s, got.y, &row, got.x, m, n);
            break;
        }
    }
    assert_same_floats(got.s, want.s, sizeof got.s / sizeof *got.s, "state");
    assert_same_floats(got.y, want.y, sizeof got.y / sizeof *got.y, "output");
}

static void every_table_follows_the_stated_order_and_stays_inside(void **state)
{
    (void)state;
    static const size_t rows[] = {0, 1, 3, 16, 24};
    FOR_TABLES(k)
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t n = 1; n <= MAX_N; n++) {
            check(k, SCAN, rows[i], n);
            check(k, SCAN_EACH, rows[i], n);
            check(k, WKV, rows[i], n);
        }
}

/* With keys of unit length and drop = seek, what the state says of a key is replaced by the new
 * value. */
static void the_delta_rule_replaces_what_a_key_recalls(void **state)
{
    (void)state;
    enum { M = 4, N = 3 };
    const float key[M] = {0.6f, 0.0f, 0.8f, 0.0f}, ones[M] = {1, 1, 1, 1}, value[N] = {2, -3, 5};
    const struct wkv_row row = {.seek = key, .drop = key, .decay = ones, .key = key, .read = key};
    FOR_TABLES(k)
    {
        float s[M * N], y[N];
        for (size_t i = 0; i < M * N; i++)
            s[i] = (float)i;
        k->wkv(s, y, &row, value, M, N);
        for (size_t i = 0; i < N; i++)
            assert_true(fabsf(y[i] - value[i]) < 1e-5f);
        assert_true(s[1 * N + 2] == 5.0f); /* a row the key does not touch */
    }
}

enum { CONV_N = 7, CONV_WIDTH = 70, CONV_STRIDE = 80, CONV_TAPS_MOST = 6 };

/* Rows with gaps between them, which nothing may write. */
struct conv_buffers {
    float x[CONV_N * CONV_STRIDE], y[CONV_N * CONV_STRIDE];
    float weight[CONV_TAPS_MOST * CONV_STRIDE], bias[CONV_STRIDE];
    float state[CONV_TAPS_MOST * CONV_STRIDE];
};

static void fill_conv(struct conv_buffers *b)
{
    float *p = (float *)b;
    for (size_t i = 0; i < sizeof *b / sizeof *p; i++)
        p[i] = rng_float();
}

static struct conv_job conv_of(struct conv_buffers *b, size_t t0, size_t n, size_t n_taps,
                               size_t width, bool bias, bool silu)
{
    return (struct conv_job){.n = n,
                             .width = width,
                             .n_taps = n_taps,
                             .x = b->x + t0 * CONV_STRIDE,
                             .x_stride = CONV_STRIDE,
                             .y = b->y + t0 * CONV_STRIDE,
                             .y_stride = CONV_STRIDE,
                             .weight = b->weight,
                             .weight_stride = CONV_STRIDE,
                             .bias = bias ? b->bias : NULL,
                             .state = b->state,
                             .state_stride = CONV_STRIDE,
                             .silu = silu};
}

static void plain_conv(const struct conv_job *v)
{
    const size_t past = v->n_taps - 1;
    for (size_t c = 0; c < v->width; c++) {
        float in[CONV_TAPS_MOST + CONV_N];
        for (size_t j = 0; j < past + v->n; j++)
            in[j] =
                j < past ? v->state[j * v->state_stride + c] : v->x[(j - past) * v->x_stride + c];
        for (size_t t = 0; t < v->n; t++) {
            float acc = v->bias ? v->bias[c] : 0.0f;
            for (size_t j = 0; j < v->n_taps; j++)
                acc = fmaf(v->weight[j * v->weight_stride + c], in[t + j], acc);
            if (v->silu)
                GENERIC->silu(&acc, &acc, 1);
            v->y[t * v->y_stride + c] = acc;
        }
        for (size_t j = 0; j < past; j++)
            v->state[j * v->state_stride + c] = in[v->n + j];
    }
}

static void check_conv(const struct kernels *k, size_t n_taps, size_t width, bool bias, bool silu)
{
    static struct conv_buffers want, got, cut;
    fill_conv(&want);
    got = cut = want;
    struct conv_job plain = conv_of(&want, 0, CONV_N, n_taps, width, bias, silu);
    plain_conv(&plain);
    struct conv_job whole = conv_of(&got, 0, CONV_N, n_taps, width, bias, silu);
    k->conv(&whole);
    for (size_t t = 0, n = 1; t < CONV_N; t += n, n = t + 2 < CONV_N ? 2 : CONV_N - t) {
        struct conv_job part = conv_of(&cut, t, n, n_taps, width, bias, silu);
        k->conv(&part);
    }
    const size_t all = sizeof want / sizeof(float);
    assert_same_floats((float *)&got, (float *)&want, all, "convolution");
    assert_same_floats((float *)&cut, (float *)&want, all, "convolution in parts");
}

static void a_convolution_is_its_definition_however_it_is_cut(void **state)
{
    (void)state;
    FOR_TABLES(k)
    for (size_t n_taps = 1; n_taps <= CONV_TAPS_MOST; n_taps++)
        for (size_t width = 1; width <= CONV_WIDTH; width++)
            check_conv(k, n_taps, width, width % 2, width % 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_table_follows_the_stated_order_and_stays_inside),
        cmocka_unit_test(the_delta_rule_replaces_what_a_key_recalls),
        cmocka_unit_test(a_convolution_is_its_definition_however_it_is_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
