/*
 * Matrix products with AVX2. There is no four-way byte product; vpmaddubsw gives 16-bit sums of two and
 * saturates, so what it may add up depends on the bits of the weights (activations are within 127):
 *
 *     4 bits  2 * 15 * 127 = 3,810    eight sums fit 16 bits (30,480): a whole group of 32
 *     5 bits  2 * 31 * 127 = 7,874    four (31,496)
 *     6 bits  2 * 63 * 127 = 16,002   two (32,004)
 *     8 bits  2 * 128 * 127 = 32,512  one, as |w| times x with the sign of w
 *
 * Products run on 8 rows x 4 columns at a time: with 16 registers that leaves room for 16-bit, 32-bit and
 * float sums of each.
 */
#include "kernel/x86/vec_avx2.h"

#include <stdbool.h>

#define BLOCK      4
#define EIGHT_BITS 0
#define INT_PRODUCTS

static inline __m256i four_bytes(const int8_t *x)
{
    int32_t four;
    memcpy(&four, x, sizeof four);
    return _mm256_set1_epi32(four);
}

/* Sums of two products as 16 bits. */
static inline __m256i products(__m256i w, __m256i x, bool eight_bits)
{
    if (eight_bits)
        return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
    return _mm256_maddubs_epi16(w, x);
}

static inline vi dot_bytes(vi sum, vi w, const int8_t *x, bool eight_bits)
{
    const __m256i v = four_bytes(x), one = _mm256_set1_epi16(1);
    sum.lo = _mm256_add_epi32(sum.lo, _mm256_madd_epi16(products(w.lo, v, eight_bits), one));
    sum.hi = _mm256_add_epi32(sum.hi, _mm256_madd_epi16(products(w.hi, v, eight_bits), one));
    return sum;
}

#include "kernel/product.h"
#include "kernel/x86/x86.h"

/* 8 rows x n columns, over n_groups groups of `group` columns. q and scales are at the first of the 8 rows. All
 * but pointers and n_groups are constants. */
INLINE void half_product(const uint8_t *q, const float *scale, const float *min, const int8_t *const *x,
                         const struct column *c, size_t n_groups, float (*sums)[TILE], int n, int group,
                         bool has_min, int bits)
{
    const int run = bits == 4 ? 8 : bits == 5 ? 4 : bits == 6 ? 2 : 1; /* quads per 16-bit sum */
    const __m256i one = _mm256_set1_epi16(1);
    __m256 acc[BLOCK];
    UNROLL
    for (int j = 0; j < n; j++)
        acc[j] = _mm256_load_ps(sums[j]);
    for (size_t g = 0; g < n_groups; g++, q += group / 4 * 64) {
        const size_t k0 = g * (size_t)group;
        __m256i sum[BLOCK];
        UNROLL
        for (int j = 0; j < n; j++)
            sum[j] = _mm256_set1_epi32(c[j].start[g]);
        UNROLL
        for (int v0 = 0; v0 < group / 4; v0 += run) {
            __m256i part[BLOCK];
            UNROLL
            for (int v = 0; v < run; v++) {
                const __m256i w = _mm256_load_si256((const void *)(q + 64 * (v0 + v)));
                UNROLL
                for (int j = 0; j < n; j++) {
                    const __m256i p = products(w, four_bytes(x[j] + k0 + 4 * (v0 + v)), bits == 8);
                    part[j] = v == 0 ? p : _mm256_add_epi16(part[j], p);
                    __asm__("" : "+x"(part[j])); /* else gcc adds up in a tree and spills */
                }
            }
            UNROLL
            for (int j = 0; j < n; j++)
                sum[j] = _mm256_add_epi32(sum[j], _mm256_madd_epi16(part[j], one));
        }
        UNROLL
        for (int j = 0; j < n; j++) {
            const __m256 d = _mm256_broadcast_ss(&c[j].d[k0 / ACT_GROUP]);
            const __m256 s = _mm256_mul_ps(_mm256_cvtepi32_ps(sum[j]), d);
            acc[j] = _mm256_fmadd_ps(s, _mm256_load_ps(scale + g * TILE), acc[j]);
            if (has_min)
                acc[j] = _mm256_fmadd_ps(_mm256_broadcast_ss(&c[j].minus[g]), _mm256_load_ps(min + g * TILE),
                                         acc[j]);
        }
    }
    UNROLL
    for (int j = 0; j < n; j++)
        _mm256_store_ps(sums[j], acc[j]);
}

/* The forms there are: group, has_min, bits. */
#define DEFINE_PRODUCT(n, group, minima, bits)                                                        \
    static void product_##n##_##group##_##minima##_##bits(const struct span *s, const int8_t *const *x, \
                                                       const struct column *c, size_t n_groups,    \
                                                       float(*sums)[TILE])                         \
    {                                                                                              \
        for (int h = 0; h < TILE; h += 8)                                                          \
            half_product(s->q[0][h], &s->scale[0][h], &s->min[0][h], x, c, n_groups,               \
                         (float(*)[TILE])(void *)&sums[0][h], n, group, minima, bits);             \
    }
#define PRODUCT_NAME(n, group, minima, bits) product_##n##_##group##_##minima##_##bits,
#define EACH_FORM(M, group, minima, bits)                                                             \
    M(1, group, minima, bits) M(2, group, minima, bits)                                            \
    M(3, group, minima, bits) M(4, group, minima, bits)

EACH_FORM(DEFINE_PRODUCT, 32, 0, 4)
EACH_FORM(DEFINE_PRODUCT, 32, 0, 5)
EACH_FORM(DEFINE_PRODUCT, 32, 0, 8)
EACH_FORM(DEFINE_PRODUCT, 32, 1, 4)
EACH_FORM(DEFINE_PRODUCT, 32, 1, 5)
EACH_FORM(DEFINE_PRODUCT, 32, 1, 8)
EACH_FORM(DEFINE_PRODUCT, 16, 0, 6)
EACH_FORM(DEFINE_PRODUCT, 16, 0, 8)
EACH_FORM(DEFINE_PRODUCT, 16, 1, 8)

static product_fn *const *int_products(const struct form *f)
{
    static product_fn *const group32[2][3][BLOCK] = {
        {{EACH_FORM(PRODUCT_NAME, 32, 0, 4)}, {EACH_FORM(PRODUCT_NAME, 32, 0, 5)}, {EACH_FORM(PRODUCT_NAME, 32, 0, 8)}},
        {{EACH_FORM(PRODUCT_NAME, 32, 1, 4)}, {EACH_FORM(PRODUCT_NAME, 32, 1, 5)}, {EACH_FORM(PRODUCT_NAME, 32, 1, 8)}},
    };
    static product_fn *const group16[3][BLOCK] = {
        {EACH_FORM(PRODUCT_NAME, 16, 0, 6)},
        {EACH_FORM(PRODUCT_NAME, 16, 0, 8)},
        {EACH_FORM(PRODUCT_NAME, 16, 1, 8)},
    };
    if (f->group == 32)
        return group32[f->has_min][f->bits == 4 ? 0 : f->bits == 5 ? 1 : 2];
    return group16[f->has_min ? 2 : f->bits == 6 ? 0 : 1];
}

void matmul_avx2(const struct matmul *job, size_t tile0, size_t tile1, void *scratch)
{
    product_tiles(job, tile0, tile1, scratch);
}

uint64_t spin_avx2(uint64_t rounds)
{
    return product_spin(rounds);
}
