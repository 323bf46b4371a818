/*
 * Integer products of many columns for x86 without four-way byte products, for a file that includes
 * product.h with PAIRS and defines, for one register `piece` of ROWS rows of a tile,
 *
 *     piece, piecef                its integer and float types
 *     piece_products(w, x, eight)  16-bit sums of two byte products
 *     piece_add16
 *     piece_sum(sum, words)        sum + 32-bit sums of two words
 *     piece_set, piece_load, piece_to_float, piecef_set, piecef_load, piecef_store, piecef_mul,
 *     piecef_fma
 *
 * vpmaddubsw saturates, so what may be added up in 16 bits depends on the bits of the weights
 * (activations are within 127):
 *
 *     4 bits  2 * 15 * 127 = 3,810    eight sums fit 16 bits (30,480): a whole group of 32
 *     5 bits  2 * 31 * 127 = 7,874    four (31,496)
 *     6 bits  2 * 63 * 127 = 16,002   two (32,004)
 *     8 bits  2 * 128 * 127 = 32,512  one, as |w| times x with the sign of w
 */
#ifndef LINNET_KERNEL_PAIRS_H
#define LINNET_KERNEL_PAIRS_H

/* ROWS rows x n columns, over n_groups groups of `group` columns. q and scales are at the first of
 * the rows. All but pointers and n_groups are constants. */
INLINE void piece_product(const uint8_t *q, const float *scale, const float *min,
                          const int8_t *const *x, const struct column *c, size_t n_groups,
                          float (*sums)[TILE], int n, int group, bool has_min, int bits)
{
    const int run = pair_run(bits, group / 4);
    piecef acc[BLOCK];
    UNROLL
    for (int j = 0; j < n; j++)
        acc[j] = piecef_load(sums[j]);
    for (size_t g = 0; g < n_groups; g++, q += group / 4 * 64) {
        const size_t k0 = g * (size_t)group;
        piece sum[BLOCK];
        UNROLL
        for (int j = 0; j < n; j++)
            sum[j] = piece_set(c[j].start[k0 / 16]);
        UNROLL
        for (int v0 = 0; v0 < group / 4; v0 += run) {
            piece words[BLOCK];
            UNROLL
            for (int v = 0; v < run; v++) {
                const piece w = piece_load(q + 64 * (v0 + v));
                UNROLL
                for (int j = 0; j < n; j++) {
                    const piece p = piece_products(w, x4_load(x[j] + k0 + 4 * (v0 + v)), bits == 8);
                    words[j] = v == 0 ? p : piece_add16(words[j], p);
                }
            }
            UNROLL
            for (int j = 0; j < n; j++)
                sum[j] = piece_sum(sum[j], words[j]);
        }
        UNROLL
        for (int j = 0; j < n; j++) {
            const piecef s = piecef_mul(piece_to_float(sum[j]), piecef_set(c[j].d[k0 / 16]));
            acc[j] = piecef_fma(s, piecef_load(scale + g * TILE), acc[j]);
            if (has_min)
                acc[j] = piecef_fma(piecef_set(c[j].minus[k0 / 16]), piecef_load(min + g * TILE),
                                    acc[j]);
        }
    }
    UNROLL
    for (int j = 0; j < n; j++)
        piecef_store(sums[j], acc[j]);
}

#define DEFINE_PRODUCT(n, m, group, minima, bits)                                                  \
    static void product_##n##_##group##_##minima##_##bits(                                         \
        const struct span *s, const int8_t *const *x, const struct column *c, size_t n_groups,     \
        float(*sums)[TILE])                                                                        \
    {                                                                                              \
        for (int r = 0; r < TILE; r += ROWS)                                                       \
            piece_product(s->q[0][r], &s->scale[0][r], &s->min[0][r], x, c, n_groups,              \
                          (float(*)[TILE])(void *)&sums[0][r], n, group, minima, bits);            \
    }
#define PRODUCT_NAME(n, m, group, minima, bits) product_##n##_##group##_##minima##_##bits,

/* The forms there are: group, minima, bits. */
EACH_PRODUCT(DEFINE_PRODUCT, 32, 0, 4)
EACH_PRODUCT(DEFINE_PRODUCT, 32, 0, 5)
EACH_PRODUCT(DEFINE_PRODUCT, 32, 0, 8)
EACH_PRODUCT(DEFINE_PRODUCT, 32, 1, 4)
EACH_PRODUCT(DEFINE_PRODUCT, 32, 1, 5)
EACH_PRODUCT(DEFINE_PRODUCT, 32, 1, 8)
EACH_PRODUCT(DEFINE_PRODUCT, 16, 0, 4)
EACH_PRODUCT(DEFINE_PRODUCT, 16, 0, 5)
EACH_PRODUCT(DEFINE_PRODUCT, 16, 0, 6)
EACH_PRODUCT(DEFINE_PRODUCT, 16, 0, 8)
EACH_PRODUCT(DEFINE_PRODUCT, 16, 1, 4)
EACH_PRODUCT(DEFINE_PRODUCT, 16, 1, 8)

static const product_table *int_products(const struct form *f)
{
    static const struct {
        size_t group;
        bool has_min;
        int bits;
        product_table products;
    } table[] = {
        /* by rising bits: the first that is wide enough */
        {32, 0, 4, PRODUCT_TABLE(PRODUCT_NAME, 32, 0, 4)},
        {32, 0, 5, PRODUCT_TABLE(PRODUCT_NAME, 32, 0, 5)},
        {32, 0, 8, PRODUCT_TABLE(PRODUCT_NAME, 32, 0, 8)},
        {32, 1, 4, PRODUCT_TABLE(PRODUCT_NAME, 32, 1, 4)},
        {32, 1, 5, PRODUCT_TABLE(PRODUCT_NAME, 32, 1, 5)},
        {32, 1, 8, PRODUCT_TABLE(PRODUCT_NAME, 32, 1, 8)},
        {16, 0, 4, PRODUCT_TABLE(PRODUCT_NAME, 16, 0, 4)},
        {16, 0, 5, PRODUCT_TABLE(PRODUCT_NAME, 16, 0, 5)},
        {16, 0, 6, PRODUCT_TABLE(PRODUCT_NAME, 16, 0, 6)},
        {16, 0, 8, PRODUCT_TABLE(PRODUCT_NAME, 16, 0, 8)},
        {16, 1, 4, PRODUCT_TABLE(PRODUCT_NAME, 16, 1, 4)},
        {16, 1, 8, PRODUCT_TABLE(PRODUCT_NAME, 16, 1, 8)},
    };
    enum { N = sizeof table / sizeof table[0] };
    for (size_t i = 0; i < N; i++)
        if (table[i].group == f->group && table[i].has_min == f->has_min &&
            table[i].bits >= f->bits)
            return &table[i].products;
    return &table[N - 1]
                .products; /* not reached: every group and minimum has an entry of eight bits */
}

#endif
