/*
 * Matrix products with AVX-512 and no VNNI. The 16-bit sums of two byte products saturate when weights have
 * eight bits, so a weight is cut in its low seven bits and its eighth, whose products fit.
 */
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

static inline __attribute__((always_inline)) __m512i dot(__m512i sum, __m512i w, const int8_t *x)
{
    int32_t four;
    memcpy(&four, x, sizeof four);
    const __m512i v = _mm512_set1_epi32(four), one = _mm512_set1_epi16(1);
    const __m512i top = _mm512_set1_epi8((char)128);
    const __m512i low = _mm512_maddubs_epi16(_mm512_andnot_si512(top, w), v);
    const __m512i high = _mm512_maddubs_epi16(_mm512_and_si512(top, w), v);
    return _mm512_add_epi32(_mm512_add_epi32(sum, _mm512_madd_epi16(low, one)), _mm512_madd_epi16(high, one));
}

#define DOT(sum, w, x) dot(sum, w, x)

#include "kernel/x86/matmul512.h"
#include "kernel/x86/x86.h"

void matmul_avx512(const struct matmul *job, size_t tile0, size_t tile1, void *scratch)
{
    matmul512(job, tile0, tile1, scratch);
}

uint64_t spin_avx512(uint64_t rounds)
{
    return spin512(rounds);
}
