/*
 * Matrix products with AVX2, through 16-bit sums (pairs.h). Products of many columns run on 8 rows
 * x 4 columns at a time: with 16 registers that leaves room for the 16-bit, 32-bit and float sums
 * of each.
 */
#include "kernel/x86/vec_avx2.h"

#include <stdbool.h>

#define BLOCK      4
#define PAIR       1
#define EIGHT_BITS 0
#define PAIRS

typedef __m256i piece, x4;
typedef __m256 piecef;
enum { ROWS = 8 };
#define x4_set         piece_set
#define piece_set      _mm256_set1_epi32
#define piece_load(p)  _mm256_loadu_si256((const void *)(p))
#define piece_to_float _mm256_cvtepi32_ps
#define piecef_set     _mm256_set1_ps
#define piecef_load    _mm256_loadu_ps
#define piecef_store   _mm256_storeu_ps
#define piecef_mul     _mm256_mul_ps
#define piecef_fma     _mm256_fmadd_ps

static inline piece piece_add16(piece a, piece b)
{
    piece sum = _mm256_add_epi16(a, b);
    __asm__("" : "+v"(sum)); /* else gcc adds up in a tree and spills */
    return sum;
}

static inline piece piece_products(piece w, piece x, bool eight_bits)
{
    if (eight_bits)
        return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
    return _mm256_maddubs_epi16(w, x);
}

static inline piece piece_sum(piece sum, piece words)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(words, _mm256_set1_epi16(1)));
}

/* The same for the two registers of a tile. */

static inline vi pair_products(vi w, x4 x, bool eight_bits)
{
    return (vi){piece_products(w.lo, x, eight_bits), piece_products(w.hi, x, eight_bits)};
}

static inline vi pair_add(vi a, vi b)
{
    return (vi){piece_add16(a.lo, b.lo), piece_add16(a.hi, b.hi)};
}

static inline vi pair_sum(vi sum, vi words)
{
    return (vi){piece_sum(sum.lo, words.lo), piece_sum(sum.hi, words.hi)};
}

#include "kernel/product.h"
#include "kernel/x86/pairs.h"
#include "kernel/x86/x86.h"

void matmul_avx2(const struct matmul *job, size_t tile0, size_t tile1, void *scratch)
{
    product_tiles(job, tile0, tile1, scratch);
}

uint64_t spin_avx2(uint64_t rounds)
{
    return product_spin(rounds);
}
