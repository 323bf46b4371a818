/*
 * Matrix products with AVX-512 and no VNNI, through 16-bit sums (pairs.h).
 */
#include "kernel/x86/vec_avx512.h"

#include <stdbool.h>
#include <string.h>

#define BLOCK      8
#define PAIR       1
#define EIGHT_BITS 0
#define PAIRS

typedef __m512i piece, x4;
typedef __m512 piecef;
enum { ROWS = 16 };
#define x4_set         piece_set
#define piece_set      _mm512_set1_epi32
#define piece_load(p)  _mm512_loadu_si512((const void *)(p))
#define piece_to_float _mm512_cvtepi32_ps
#define piecef_set     _mm512_set1_ps
#define piecef_load    _mm512_loadu_ps
#define piecef_store   _mm512_storeu_ps
#define piecef_mul     _mm512_mul_ps
#define piecef_fma     _mm512_fmadd_ps

static inline piece piece_add16(piece a, piece b)
{
    piece sum = _mm512_add_epi16(a, b);
    __asm__("" : "+v"(sum)); /* else gcc adds up in a tree and spills */
    return sum;
}

static inline piece piece_products(piece w, piece x, bool eight_bits)
{
    if (eight_bits) {
        const piece signed_x =
            _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(w), _mm512_setzero_si512(), x);
        return _mm512_maddubs_epi16(_mm512_abs_epi8(w), signed_x);
    }
    return _mm512_maddubs_epi16(w, x);
}

static inline piece piece_sum(piece sum, piece words)
{
    return _mm512_add_epi32(sum, _mm512_madd_epi16(words, _mm512_set1_epi16(1)));
}

/* A tile is one register. */
#define pair_products piece_products
#define pair_add      piece_add16
#define pair_sum      piece_sum

#include "kernel/product.h"
#include "kernel/x86/pairs.h"
#include "kernel/x86/x86.h"

void matmul_avx512(const struct matmul *job, size_t tile0, size_t tile1, void *scratch)
{
    product_tiles(job, tile0, tile1, scratch);
}

uint64_t spin_avx512(uint64_t rounds)
{
    return product_spin(rounds);
}
