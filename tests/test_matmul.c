/*
 * Matrix products: every table against plain C bit by bit, and plain C against naive arithmetic in
 * double.
 */
#include "kernel/tile.h"
#include "kernel_test.h"

#include "quant/half.h"

struct problem {
    struct matrix w;
    struct act x;
    uint8_t *rows, *packed;
    float *xs;
    void *scratch;
};

/* Random blocks whose scales and minima are finite and moderate. */
static void random_blocks(const struct quant_type *t, uint8_t *dst, size_t n_blocks)
{
    int8_t q[256];
    float scale[16], min[16], v[256];
    for (size_t b = 0; b < n_blocks; b++, dst += t->block_bytes) {
        bool good = false;
        while (!good) {
            for (size_t i = 0; i < t->block_bytes; i++)
                dst[i] = (uint8_t)rng();
            good = true;
            if (t->group) {
                t->unpack(dst, q, scale, min);
                for (size_t g = 0; g < t->block / t->group; g++)
                    good = good && fabsf(scale[g]) < 100 && fabsf(min[g]) < 100;
            } else {
                t->decode(dst, v, 1);
                good = fabsf(v[0]) < 100 && (v[0] == 0 || fabsf(v[0]) > 1e-20f);
            }
        }
    }
}

static void make(struct problem *p, const struct quant_type *t, size_t n_rows, size_t n_cols,
                 size_t n_x)
{
    memset(p, 0, sizeof *p);
    size_t row_bytes;
    assert_true(quant_row_bytes(t, n_cols, &row_bytes));
    p->rows = alloc64(n_rows * row_bytes);
    random_blocks(t, p->rows, n_rows * (n_cols / t->block));
    p->w = (struct matrix){.type = t,
                           .n_rows = n_rows,
                           .n_cols = n_cols,
                           .data = p->rows,
                           .row_bytes = row_bytes,
                           .scale = 1};
    const size_t size = matrix_n_tiles(&p->w) * matrix_tile_bytes(t, n_cols);
    p->packed = alloc64(size);
    memset(p->packed, 0xa5, size);
    matrix_pack(&p->w, p->packed, 0, matrix_n_tiles(&p->w));
    const size_t stride = n_cols + 3;
    p->xs = alloc64(n_x * stride * sizeof(float));
    for (size_t i = 0; i < n_x * stride; i++)
        p->xs[i] = i % stride >= n_cols ? NAN : rng_float() * (float)(1 + rng_below(4));
    p->x = (struct act){.n_rows = n_x, .width = n_cols, .x = p->xs, .x_stride = stride};
    p->x.quant = alloc64(n_x * act_bytes(n_cols));
    GENERIC->quantise(&p->x, 0, n_x);
    p->scratch = alloc64(KERNEL_SCRATCH);
}

static void unmake(struct problem *p)
{
    free(p->rows);
    free(p->packed);
    free(p->xs);
    free(p->x.quant);
    free(p->scratch);
}

static void run(const struct kernels *k, struct problem *p, bool packed, struct matmul *job)
{
    struct matrix w = p->w;
    w.packed = packed ? p->packed : NULL;
    w.data = packed ? NULL : p->rows;
    job->w = &w;
    job->x = &p->x;
    memset(p->scratch, 0xff, KERNEL_SCRATCH); /* NaN */
    k->matmul(job, 0, matrix_n_tiles(&w), p->scratch);
}

/* y = W x from decoded weights and the activations as the kernel sees them, in double; `size` gets
 * the sum of the magnitudes, the measure of acceptable error. */
static double naive(struct problem *p, const float *w, size_t x_row, double *size)
{
    const struct act_span *span = act_row(&p->x, x_row);
    double s = 0;
    *size = 0;
    for (size_t k = 0; k < p->w.n_cols; k++) {
        double x = (double)p->xs[x_row * p->x.x_stride + k];
        if (p->w.type->group)
            x = (double)span[k / SPAN].q[k % SPAN] * (double)span[k / SPAN].d[k % SPAN / 32];
        s += (double)w[k] * x;
        *size += fabs((double)w[k] * x);
    }
    return s;
}

static size_t fit_cols(const struct quant_type *t, size_t k)
{
    return (k + t->block - 1) / t->block * t->block;
}

#define FOR_WEIGHT_TYPES(t)                                                                        \
    for (size_t i_##t = 0; i_##t < quant_type_count(); i_##t++)                                    \
        for (const struct quant_type *t = quant_type_at(i_##t)->weight ? quant_type_at(i_##t)      \
                                                                       : NULL;                     \
             t; t = NULL)

static void rows_read_back_from_the_packed_form_are_the_decoded_rows(void **state)
{
    (void)state;
    FOR_WEIGHT_TYPES(t)
    {
        const size_t n_cols = fit_cols(t, 300), n_rows = 37;
        struct problem p;
        make(&p, t, n_rows, n_cols, 1);
        float *want = alloc64(n_cols * 4), *got = alloc64(n_cols * 4);
        for (size_t r = 0; r < n_rows; r++) {
            t->decode(p.rows + r * p.w.row_bytes, want, n_cols);
            matrix_row(&p.w, r, got);
            assert_memory_equal(got, want, n_cols * 4);
            struct matrix packed = p.w;
            packed.data = NULL;
            packed.packed = p.packed;
            matrix_row(&packed, r, got);
            assert_memory_equal(got, want, n_cols * 4);
        }
        free(want);
        free(got);
        unmake(&p);
    }
}

static void a_packed_matrix_is_not_larger_than_its_file_form(void **state)
{
    (void)state;
    FOR_WEIGHT_TYPES(t)
    {
        for (size_t k = t->block; k <= 8192; k += t->block > 1 ? t->block : 61) {
            size_t row;
            assert_true(quant_row_bytes(t, k, &row));
            const size_t tile = matrix_tile_bytes(t, k);
            assert_int_equal(tile % 64, 0);
            assert_in_range(tile, row * TILE, row * TILE + 2 * 63);
        }
    }
    assert_int_equal(matrix_tile_bytes(quant_type_of(QUANT_I32), 64), 0);
}

static void packing_in_pieces_gives_the_same_bytes(void **state)
{
    (void)state;
    const struct quant_type *t = quant_type_of(QUANT_Q6_K);
    struct problem p;
    make(&p, t, 100, 512, 1);
    const size_t tile = matrix_tile_bytes(t, 512), n = matrix_n_tiles(&p.w);
    uint8_t *pieces = alloc64(n * tile);
    for (size_t i = n; i-- > 0;)
        matrix_pack(&p.w, pieces + i * tile, i, i + 1);
    assert_memory_equal(pieces, p.packed, n * tile);
    free(pieces);
    unmake(&p);
}

static void plain_products_are_exact_up_to_float_rounding(void **state)
{
    (void)state;
    FOR_WEIGHT_TYPES(t)
    {
        const size_t n_cols = fit_cols(t, 500), n_rows = 20, n = 3;
        struct problem p;
        make(&p, t, n_rows, n_cols, n);
        float *y = alloc64(n * n_rows * 4), *w = alloc64(n_cols * 4);
        struct matmul job = {.n = n, .y = y, .y_stride = n_rows};
        run(GENERIC, &p, true, &job);
        for (size_t r = 0; r < n_rows; r++) {
            t->decode(p.rows + r * p.w.row_bytes, w, n_cols);
            for (size_t j = 0; j < n; j++) {
                double size, want = naive(&p, w, j, &size);
                /* at most two roundings per element, and half of that again for minima */
                assert_true(fabs((double)y[j * n_rows + r] - want) <= size * 0x1p-21);
            }
        }
        free(y);
        free(w);
        unmake(&p);
    }
}

/* One shape of one type on every table, packed and not, columns mapped at random; then the same in
 * pieces. */
static void check_shape(const struct quant_type *t, size_t n_rows, size_t n_cols, size_t n)
{
    struct problem p;
    const size_t n_x = n + 2, y_stride = n_rows + 5;
    make(&p, t, n_rows, n_cols, n_x);
    p.w.scale = rng() & 1 ? 1.0f : 0.37f;
    int32_t *x_rows = alloc64(n * 4), *y_rows = alloc64(n * 4);
    float *bias = alloc64(n_rows * 4);
    for (size_t j = 0; j < n; j++) {
        x_rows[j] = (int32_t)rng_below(n_x);
        y_rows[j] = (int32_t)j;
        const size_t other = rng_below(j + 1);
        y_rows[j] = y_rows[other];
        y_rows[other] = (int32_t)j;
    }
    for (size_t r = 0; r < n_rows; r++)
        bias[r] = rng_float();
    const size_t size = n * y_stride * sizeof(float);
    float *want = alloc64(size), *got = alloc64(size);
    const bool mapped = rng() & 1;
    struct matmul job = {.n = n,
                         .y = want,
                         .y_stride = y_stride,
                         .bias = rng() & 1 ? bias : NULL,
                         .x_rows = mapped ? x_rows : NULL,
                         .y_rows = mapped ? y_rows : NULL};
    memset(want, 0x77, size);
    run(GENERIC, &p, true, &job);
    job.y = got;
    FOR_TABLES(k)
    {
        for (int packed = 0; packed < 2; packed++) {
            memset(got, 0x77, size);
            run(k, &p, packed, &job);
            if (memcmp(got, want, size) != 0) {
                for (size_t i = 0; i < n * y_stride; i++)
                    if (!same_float(got[i], want[i]))
                        fail_msg("%s %s %zux%zu n=%zu packed=%d: column %zu row %zu: %a, not %a",
                                 k->name, t->name, n_rows, n_cols, n, packed, i / y_stride,
                                 i % y_stride, (double)got[i], (double)want[i]);
            }
        }
        /* tiles in pieces, columns one at a time */
        memset(got, 0x77, size);
        struct matrix w = p.w;
        w.packed = p.packed;
        struct matmul part = job;
        part.w = &w;
        part.x = &p.x;
        for (size_t t0 = 0; t0 < matrix_n_tiles(&w);) {
            const size_t left = matrix_n_tiles(&w) - t0, take = 1 + rng_below(left < 7 ? left : 7);
            k->matmul(&part, t0, t0 + take, p.scratch);
            t0 += take;
        }
        assert_memory_equal(got, want, size);
        memset(got, 0x77, size);
        for (size_t j = 0; j < n; j++) {
            const int32_t x_row = mapped ? x_rows[j] : (int32_t)j;
            const int32_t y_row = mapped ? y_rows[j] : (int32_t)j;
            part.n = 1;
            part.x_rows = &x_row;
            part.y_rows = &y_row;
            k->matmul(&part, 0, matrix_n_tiles(&w), p.scratch);
        }
        assert_memory_equal(got, want, size);
    }
    free(want);
    free(got);
    free(bias);
    free(x_rows);
    free(y_rows);
    unmake(&p);
}

static const size_t column_counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 17, 33};

static void all_tables_give_the_same_bits_for_every_type_and_row_count(void **state)
{
    (void)state;
    static const size_t row_counts[] = {1, 2, 15, 16, 17, 31, 32, 33, 47, 48, 63, 65, 80, 127, 130};
    FOR_WEIGHT_TYPES(t)
    {
        for (size_t i = 0; i < sizeof row_counts / sizeof *row_counts; i++) {
            const size_t n =
                column_counts[(i + t->id) % (sizeof column_counts / sizeof *column_counts)];
            check_shape(t, row_counts[i], fit_cols(t, 1 + rng_below(300)), n);
        }
    }
}

static void all_tables_give_the_same_bits_for_every_row_length(void **state)
{
    (void)state;
    FOR_WEIGHT_TYPES(t)
    {
        for (size_t k = t->block; k <= 1040; k += t->block > 1 ? t->block : 13)
            check_shape(t, 17, k, column_counts[k / t->block % 12]);
        check_shape(t, 33, 4096, 2);
        check_shape(t, 16, 4096, 9);
    }
}

static void many_columns_are_computed_in_several_passes(void **state)
{
    (void)state;
    check_shape(quant_type_of(QUANT_Q4_K), 70, 512, 700);
    check_shape(quant_type_of(QUANT_Q8_0), 90, 320, 1030);
    check_shape(quant_type_of(QUANT_F16), 40, 200, 1500);
}

static void extreme_quants_and_activations_do_not_saturate(void **state)
{
    (void)state;
    /* every quant at an end of its range against activations that are all at the ends of theirs */
    FOR_WEIGHT_TYPES(t)
    {
        if (t->group == 0)
            continue;
        struct problem p;
        const size_t n_cols = fit_cols(t, 512), n = 9, size = n * 32 * sizeof(float);
        make(&p, t, 32, n_cols, n);
        for (int fill = 0; fill < 4; fill++) {
            static const uint8_t bytes[4] = {0x00, 0xff, 0x80, 0x7f};
            int8_t q[256];
            float scale[16], min[16];
            for (size_t b = 0; b < 32 * n_cols / t->block; b++) {
                uint8_t *block = p.rows + b * t->block_bytes;
                uint8_t before[512];
                memcpy(before, block, t->block_bytes);
                memset(block + 2, bytes[fill], t->block_bytes - 4u);
                t->unpack(block, q, scale, min);
                for (size_t g = 0; g < t->block / t->group; g++)
                    if (!(fabsf(scale[g]) < 1e6f && fabsf(min[g]) < 1e6f))
                        memcpy(block, before, t->block_bytes);
            }
            matrix_pack(&p.w, p.packed, 0, 2);
            for (size_t i = 0; i < n * p.x.x_stride; i++)
                p.xs[i] = (i / p.x.x_stride) % 3 == 0   ? 1.0f
                          : (i / p.x.x_stride) % 3 == 1 ? -1.0f
                          : rng() & 1                   ? 1.0f
                                                        : -1.0f;
            GENERIC->quantise(&p.x, 0, n);
            float *want = alloc64(size), *got = alloc64(size);
            struct matmul job = {.n = n, .y = want, .y_stride = 32};
            run(GENERIC, &p, true, &job);
            job.y = got;
            FOR_TABLES(k)
            {
                run(k, &p, true, &job);
                assert_same_floats(got, want, n * 32, k->name);
                job.n = 1;
                run(k, &p, true, &job);
                assert_same_floats(got, want, 32, k->name);
                job.n = n;
            }
            free(want);
            free(got);
        }
        unmake(&p);
    }
}

static void large_activations_stay_finite(void **state)
{
    (void)state;
    /* field bug 22: block sums beyond the range of f16 */
    FOR_WEIGHT_TYPES(t)
    {
        struct problem p;
        const size_t n_cols = fit_cols(t, 256);
        make(&p, t, 16, n_cols, 1);
        for (size_t k = 0; k < n_cols; k++)
            p.xs[k] = 60000.0f + rng_float();
        GENERIC->quantise(&p.x, 0, 1);
        float y[16], *w = alloc64(n_cols * 4);
        struct matmul job = {.n = 1, .y = y, .y_stride = 16};
        FOR_TABLES(k)
        {
            run(k, &p, true, &job);
            for (size_t r = 0; r < 16; r++) {
                double size = 0, want = 0;
                t->decode(p.rows + r * p.w.row_bytes, w, n_cols);
                for (size_t i = 0; i < n_cols; i++) {
                    want += (double)w[i] * (double)p.xs[i];
                    size += fabs((double)w[i] * (double)p.xs[i]);
                }
                assert_true(isfinite(y[r]));
                assert_true(fabs((double)y[r] - want) <= 0.01 * size);
            }
        }
        free(w);
        unmake(&p);
    }
}

static void activations_that_are_not_finite_show_in_every_row(void **state)
{
    (void)state;
    FOR_WEIGHT_TYPES(t)
    {
        struct problem p;
        make(&p, t, 16, fit_cols(t, 256), 3);
        for (size_t k = 0; k < 40; k++)
            p.xs[k] = 1;
        p.xs[17] = NAN;
        p.xs[p.x.x_stride + 18] = INFINITY;
        GENERIC->quantise(&p.x, 0, 3);
        float y[48];
        struct matmul job = {.n = 3, .y = y, .y_stride = 16};
        FOR_TABLES(k)
        {
            run(k, &p, true, &job);
            for (size_t r = 0; r < 16; r++) {
                assert_true(isnan(y[r]));
                assert_false(isfinite(y[16 + r]) && t->group);
                assert_true(isfinite(y[32 + r]));
            }
        }
        unmake(&p);
    }
}

static void quantising_is_within_half_a_step_and_sums_are_those_of_the_quants(void **state)
{
    (void)state;
    for (size_t width = 1; width <= 600; width += width < 80 ? 1 : 37) {
        float *xs = alloc64(width * 4);
        for (size_t i = 0; i < width; i++)
            xs[i] = ldexpf(rng_float(), (int)rng_below(20) - 10);
        const size_t size = act_bytes(width), pad = (width + 255) / 256 * 256;
        assert_int_equal(size % 64, 0);
        struct act a = {.n_rows = 1, .width = width, .x = xs, .x_stride = width};
        uint8_t *want = alloc64(size), *got = alloc64(size);
        memset(want, 0x55, size);
        a.quant = want;
        GENERIC->quantise(&a, 0, 1);
        for (size_t i = 0; i < pad; i++) {
            const struct act_span *span = act_row(&a, 0) + i / SPAN;
            const size_t at = i % SPAN;
            if (at % 16 == 0) {
                int s = 0;
                for (size_t k = at; k < at + 16; k++)
                    s += span->q[k];
                assert_int_equal(span->sum16[at / 16], s);
            }
            assert_true(span->q[at] >= -127);
            const double x = i < width ? (double)xs[i] : 0.0, d = (double)span->d[at / 32];
            assert_true(fabs(x - (double)span->q[at] * d) <= 0.5001 * d);
        }
        a.quant = got;
        FOR_TABLES(k)
        {
            memset(got, 0xaa, size);
            k->quantise(&a, 0, 1);
            assert_memory_equal(got, want, size);
        }
        free(xs);
        free(want);
        free(got);
    }
}

static void quantising_handles_zero_tiny_and_not_finite_groups(void **state)
{
    (void)state;
    float xs[5 * 32] = {0};
    xs[32] = 1e-45f;
    xs[64 + 5] = INFINITY;
    xs[96 + 31] = NAN;
    for (int i = 0; i < 32; i++)
        xs[128 + i] = 3.4e38f;
    struct act a = {.n_rows = 1, .width = 160, .x = xs, .x_stride = 160};
    _Alignas(64) uint8_t quant[320];
    assert_int_equal(act_bytes(160), sizeof quant);
    a.quant = quant;
    const float *d = act_row(&a, 0)->d;
    FOR_TABLES(k)
    {
        k->quantise(&a, 0, 1);
        assert_true(d[0] == 0 && d[1] == 0 && isnan(d[2]) && isnan(d[3]) && isfinite(d[4]));
        for (int i = 0; i < 128; i++)
            assert_int_equal(quant[i], 0);
        for (int i = 128; i < 160; i++)
            assert_int_equal(quant[i], 127);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_read_back_from_the_packed_form_are_the_decoded_rows),
        cmocka_unit_test(a_packed_matrix_is_not_larger_than_its_file_form),
        cmocka_unit_test(packing_in_pieces_gives_the_same_bytes),
        cmocka_unit_test(plain_products_are_exact_up_to_float_rounding),
        cmocka_unit_test(all_tables_give_the_same_bits_for_every_type_and_row_count),
        cmocka_unit_test(all_tables_give_the_same_bits_for_every_row_length),
        cmocka_unit_test(many_columns_are_computed_in_several_passes),
        cmocka_unit_test(extreme_quants_and_activations_do_not_saturate),
        cmocka_unit_test(large_activations_stay_finite),
        cmocka_unit_test(activations_that_are_not_finite_show_in_every_row),
        cmocka_unit_test(quantising_is_within_half_a_step_and_sums_are_those_of_the_quants),
        cmocka_unit_test(quantising_handles_zero_tiny_and_not_finite_groups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
