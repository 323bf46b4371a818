/*
 * Unpacking of packed tiles (tile.h) in 512-bit registers: for each weight type, the integers of a piece of
 * a block as unsigned bytes (4 consecutive columns of 16 rows per register), and the scales and minima of
 * its groups as f32. Integers that are signed in the contract come with a bias added; the dot product that
 * follows starts at -bias * (sum of the activations), so it stays exact.
 *
 * Every function hands its registers to `put`, which is either a store to the span (many columns) or the
 * dot product itself (one column): the caller's choice is a constant, so the compiler keeps only one.
 */
#ifndef LINNET_KERNEL_UNPACK512_H
#define LINNET_KERNEL_UNPACK512_H

#include "kernel/tile.h"
#include "kernel/x86/vec_avx512.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

/* The weights of one tile over up to SPAN columns. */
struct span {
    uint8_t q[SPAN / 4][TILE][4];
    float scale[SPAN / 16][TILE];
    float min[SPAN / 16][TILE];
};

/* Where the registers go: to q when it is not NULL, else multiplied by x into the sum of their group. */
struct sink {
    uint8_t (*q)[TILE][4]; /* first quad of the piece */
    const int8_t *x;       /* first column of the piece */
    __m512i sum[8];        /* per group of the piece */
};

/* Quad `quad` of group `group` (of `per` quads) of the piece. */
INLINE void put(struct sink *k, int group, int per, int quad, __m512i w)
{
    const int at = group * per + quad;
    if (k->q)
        _mm512_store_si512((void *)k->q[at], w);
    else
        k->sum[group] = DOT(k->sum[group], w, k->x + 4 * at);
}

INLINE __m512i load512(const uint8_t *p)
{
    return _mm512_loadu_si512((const void *)p);
}

/* 16 halves, one per row */
INLINE __m512 load_half16(const uint8_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

/* The low and the high halves of 16 dwords */
INLINE __m512 low_half(__m512i a)
{
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(a));
}

INLINE __m512 high_half(__m512i a)
{
    return low_half(_mm512_srli_epi32(a, 16));
}

/* Shifts by a number that is constant only after inlining. */
typedef uint16_t u16x32 __attribute__((vector_size(64)));
typedef uint32_t u32x16 __attribute__((vector_size(64)));

INLINE __m512i shl16(__m512i a, int n)
{
    return (__m512i)((u16x32)a << n);
}

INLINE __m512i shr16(__m512i a, int n)
{
    return (__m512i)((u16x32)a >> n);
}

INLINE __m512i shl32(__m512i a, int n)
{
    return (__m512i)((u32x16)a << n);
}

INLINE __m512i shr32(__m512i a, int n)
{
    return (__m512i)((u32x16)a >> n);
}

INLINE __m512i bytes(int x)
{
    return _mm512_set1_epi8((char)x);
}

INLINE __m512i low_nibbles(__m512i a)
{
    return _mm512_and_si512(a, bytes(15));
}

INLINE __m512i high_nibbles(__m512i a)
{
    return _mm512_and_si512(_mm512_srli_epi16(a, 4), bytes(15));
}

/* a & mask | b, for masks of bytes */
INLINE __m512i mask_or(__m512i a, __m512i mask, __m512i b)
{
    return _mm512_ternarylogic_epi32(a, mask, b, 0xea);
}

/* q8_0: f16 d; 8 units of int8. Biased by 128. */

INLINE void ints_q8_0(struct sink *k, const uint8_t *body)
{
    UNROLL
    for (int v = 0; v < 8; v++)
        put(k, 0, 8, v, _mm512_xor_si512(load512(body + 64 * v), bytes(128)));
}

INLINE void scales_half(struct span *s, const uint8_t *head, size_t n_blocks)
{
    for (size_t b = 0; b < n_blocks; b++, head += 32)
        _mm512_store_ps(s->scale[b], load_half16(head));
}

/* q4_0: f16 d; 4 units of nibbles, low ones quad v and high ones quad v + 4. Biased by 8. */

INLINE void ints_nibbles(struct sink *k, const uint8_t *body)
{
    UNROLL
    for (int v = 0; v < 4; v++) {
        const __m512i a = load512(body + 64 * v);
        put(k, 0, 8, v, low_nibbles(a));
        put(k, 0, 8, v + 4, high_nibbles(a));
    }
}

/* q4_1: one unit of f16 d and f16 m (min is -m); 4 units of nibbles. */

INLINE void ints_q4_1(struct sink *k, const uint8_t *body)
{
    ints_nibbles(k, body + 64);
}

INLINE void scales_half_min(struct span *s, const uint8_t *body, size_t n_blocks, size_t stride)
{
    for (size_t b = 0; b < n_blocks; b++, body += stride) {
        const __m512i dm = load512(body);
        _mm512_store_ps(s->scale[b], low_half(dm));
        _mm512_store_ps(s->min[b], v_of_bits(_mm512_xor_si512(v_bits(high_half(dm)), vi_set(INT32_MIN))));
    }
}

/* q5_0 and q5_1: a unit of fifth bits, bit i for element i, then 4 units of nibbles. q5_0 is biased by 16. */

INLINE void ints_5bit(struct sink *k, const uint8_t *bits, const uint8_t *body)
{
    const __m512i high = load512(bits);
    /* byte i/8 of the lane to all four bytes of quad i/4; then bit i%8 of it */
    const __m512i even = _mm512_set1_epi32(0x08040201), odd = _mm512_set1_epi32((int)0x80402010);
    const __m512i lane = _mm512_broadcast_i32x4(_mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c));
    UNROLL
    for (int v = 0; v < 8; v++) {
        const __m512i a = load512(body + 64 * (v & 3));
        const __m512i byte = _mm512_shuffle_epi8(high, _mm512_add_epi8(lane, bytes(v / 2)));
        const __mmask64 set = _mm512_test_epi8_mask(byte, v & 1 ? odd : even);
        const __m512i low = v < 4 ? low_nibbles(a) : high_nibbles(a);
        put(k, 0, 8, v, _mm512_mask_add_epi8(low, set, low, bytes(16)));
    }
}

INLINE void ints_q5_0(struct sink *k, const uint8_t *body)
{
    ints_5bit(k, body, body + 64);
}

INLINE void ints_q5_1(struct sink *k, const uint8_t *body)
{
    ints_5bit(k, body + 64, body + 128);
}

/* q4_K and q5_K: a unit of f16 d and dmin, three units of 6-bit scales and minima (see quant/unpack_k.c). */

INLINE void scales_6bit(struct span *s, const uint8_t *body)
{
    const __m512i dm = load512(body), s0 = load512(body + 64), s1 = load512(body + 128);
    const __m512i s2 = load512(body + 192);
    const __m512 d = low_half(dm), dmin = high_half(dm);
    const __m512i six = bytes(63), two = bytes(0x30);
    const __m512i high0 = _mm512_and_si512(_mm512_srli_epi32(s0, 2), two);
    const __m512i high1 = _mm512_and_si512(_mm512_srli_epi32(s1, 2), two);
    const __m512i part[4] = {
        _mm512_and_si512(s0, six),
        mask_or(s2, bytes(15), high0),
        _mm512_and_si512(s1, six),
        mask_or(_mm512_srli_epi32(s2, 4), bytes(15), high1),
    };
    UNROLL
    for (int i = 0; i < 16; i++) {
        __m512i a = part[i / 4];
        if (i % 4 != 0)
            a = shr32(a, i % 4 * 8);
        if (i % 4 != 3)
            a = _mm512_and_si512(a, vi_set(255));
        if (i < 8)
            _mm512_store_ps(s->scale[i], _mm512_mul_ps(d, v_of_int(a)));
        else
            _mm512_store_ps(s->min[i - 8], _mm512_mul_ps(dmin, v_of_int(a)));
    }
}

/* q4_K piece p of 64 columns: 8 units, low nibbles group 2p, high ones group 2p + 1. */
INLINE void ints_q4_k(struct sink *k, const uint8_t *body, int p)
{
    UNROLL
    for (int v = 0; v < 8; v++) {
        const __m512i a = load512(body + 64 * (4 + 8 * p + v));
        put(k, 0, 8, v, low_nibbles(a));
        put(k, 1, 8, v, high_nibbles(a));
    }
}

/* q5_K: the same after 8 units of fifth bits, bit g of a byte for group g. */
INLINE void ints_q5_k(struct sink *k, const uint8_t *body, int p)
{
    UNROLL
    for (int v = 0; v < 8; v++) {
        const __m512i a = load512(body + 64 * (12 + 8 * p + v));
        __m512i high = load512(body + 64 * (4 + v)); /* bits 2p, 2p + 1 to 4 and 5 */
        high = p < 2 ? shl16(high, 4 - 2 * p) : shr16(high, 2 * p - 4);
        put(k, 0, 8, v, mask_or(high, bytes(16), low_nibbles(a)));
        put(k, 1, 8, v, mask_or(_mm512_srli_epi16(high, 1), bytes(16), high_nibbles(a)));
    }
}

/* q6_K: 32 units of low nibbles, 16 of high pairs, 4 of int8 scales; f16 d in the head. Biased by 32. */

INLINE void scales_q6_k(struct span *s, const uint8_t *head, const uint8_t *body)
{
    const __m512 d = load_half16(head);
    UNROLL
    for (int g = 0; g < 16; g++) {
        __m512i a = load512(body + 64 * (48 + g / 4));
        a = shl32(a, 24 - g % 4 * 8);
        _mm512_store_ps(s->scale[g], _mm512_mul_ps(d, v_of_int(_mm512_srai_epi32(a, 24))));
    }
}

/* Piece p of 128 columns, 8 groups. */
INLINE void ints_q6_k(struct sink *k, const uint8_t *body, int p)
{
    const __m512i pair = bytes(0x30);
    UNROLL
    for (int v = 0; v < 8; v++) {
        const __m512i a = load512(body + 64 * (16 * p + v)), b = load512(body + 64 * (16 * p + 8 + v));
        const __m512i high = load512(body + 64 * (32 + 8 * p + v));
        const int g = v / 4, quad = v % 4;
        put(k, g, 4, quad, mask_or(_mm512_slli_epi16(high, 4), pair, low_nibbles(a)));
        put(k, 2 + g, 4, quad, mask_or(_mm512_slli_epi16(high, 2), pair, low_nibbles(b)));
        put(k, 4 + g, 4, quad, mask_or(high, pair, high_nibbles(a)));
        put(k, 6 + g, 4, quad, mask_or(_mm512_srli_epi16(high, 2), pair, high_nibbles(b)));
    }
}

#endif
