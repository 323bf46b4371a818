/*
 * Matrix products with AVX-512 and no VNNI. The 16-bit sums of two byte products saturate when weights have
 * eight bits, so a weight is cut in its low seven bits and its eighth, whose products fit.
 */
#include "kernel/x86/vec_avx512.h"

#include <stdbool.h>
#include <string.h>

#define BLOCK      8
#define EIGHT_BITS 128

static inline vi dot_bytes(vi sum, vi w, const int8_t *x, bool eight_bits)
{
    int32_t four;
    memcpy(&four, x, sizeof four);
    const vi v = vi_set(four), one = _mm512_set1_epi16(1), top = vb_set(128);
    const vi low = eight_bits ? _mm512_andnot_si512(top, w) : w;
    sum = vi_add(sum, _mm512_madd_epi16(_mm512_maddubs_epi16(low, v), one));
    if (eight_bits)
        sum = vi_add(sum, _mm512_madd_epi16(_mm512_maddubs_epi16(vi_and(top, w), v), one));
    return sum;
}

#include "kernel/product.h"
#include "kernel/x86/x86.h"

void matmul_avx512(const struct matmul *job, size_t tile0, size_t tile1, void *scratch)
{
    product_tiles(job, tile0, tile1, scratch);
}

uint64_t spin_avx512(uint64_t rounds)
{
    return product_spin(rounds);
}
