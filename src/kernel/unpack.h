/*
 * Unpacking of packed tiles (tile.h) in the vector operations of a vec_*.h that is included before this
 * file: for each weight type, the integers of a piece of a block as bytes (4 consecutive columns of 16 rows
 * per vector), and the scales and minima of its groups as f32.
 *
 * Integers come as unsigned bytes with a bias added where the contract has signed ones; the dot product that
 * follows starts at -bias * (sum of the activations), so it stays exact. Types whose integers need all eight
 * bits have the bias EIGHT_BITS that the including file defines: 128, or 0 for a dot product of signed bytes.
 *
 * Every function hands its vectors to `put`, which is either a store to the span (many columns) or the dot
 * product itself (one column): the caller's choice is a constant, so the compiler keeps only one.
 */
#ifndef LINNET_KERNEL_UNPACK_H
#define LINNET_KERNEL_UNPACK_H

#include "kernel/tile.h"

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
    bool eight_bits;       /* the weights may have more than six */
    vi sum[8];             /* per group of the piece */
};

/* Quad `quad` of group `group` (of `per` quads) of the piece. */
INLINE void put(struct sink *k, int group, int per, int quad, vi w)
{
    const int at = group * per + quad;
    if (k->q)
        vb_store(k->q[at][0], w);
    else
        k->sum[group] = dot_bytes(k->sum[group], w, k->x + 4 * at, k->eight_bits);
}

/* The high 16 bits of each lane as f16. */
INLINE vf high_half(vi a)
{
    return v_low_half(vi_shr(a, 16));
}

INLINE vi low_nibbles(vi a)
{
    return vi_and(a, vb_set(15));
}

INLINE vi high_nibbles(vi a)
{
    return vi_and(vb_shr(a, 4), vb_set(15));
}

/* Bits of `mask` from a, the others from b, where those of the mask are 0. */
INLINE vi mask_or(vi a, vi mask, vi b)
{
    return vi_or(vi_and(a, mask), b);
}

/* q8_0: f16 d; 8 units of int8. */

/* The type's signed bytes as this table wants them. */
INLINE vi biased(vi a)
{
    return EIGHT_BITS ? vi_xor(a, vb_set(EIGHT_BITS)) : a;
}

INLINE void ints_q8_0(struct sink *k, const uint8_t *body)
{
    UNROLL
    for (int v = 0; v < 8; v++)
        put(k, 0, 8, v, biased(vb_load(body + 64 * v)));
}

INLINE void scales_half(struct span *s, const uint8_t *head, size_t n_blocks)
{
    for (size_t b = 0; b < n_blocks; b++, head += 32)
        v_store(s->scale[b], v_load_f16((const void *)head));
}

/* q4_0: f16 d; 4 units of nibbles, low ones quad v and high ones quad v + 4. Biased by 8. */

INLINE void ints_nibbles(struct sink *k, const uint8_t *body)
{
    UNROLL
    for (int v = 0; v < 4; v++) {
        const vi a = vb_load(body + 64 * v);
        put(k, 0, 8, v, low_nibbles(a));
        put(k, 0, 8, v + 4, high_nibbles(a));
    }
}

/* q4_1: one unit of f16 d and f16 m (min is -m); 4 units of nibbles. */

INLINE void ints_q4_1(struct sink *k, const uint8_t *body)
{
    ints_nibbles(k, body + 64);
}

INLINE void scales_half_min(struct span *s, const uint8_t *body, size_t b)
{
    const vi dm = vb_load(body);
    v_store(s->scale[b], v_low_half(dm));
    v_store(s->min[b], v_of_bits(vi_xor(v_bits(high_half(dm)), vi_set(INT32_MIN))));
}

/* q5_0 and q5_1: a unit of fifth bits, bit i for element i, then 4 units of nibbles. q5_0 is biased by 16. */

INLINE void ints_5bit(struct sink *k, const uint8_t *bits, const uint8_t *body)
{
    const vi high = vb_load(bits);
    UNROLL
    for (int v = 0; v < 8; v++) {
        const vi a = vb_load(body + 64 * (v & 3));
        put(k, 0, 8, v, vi_or(v < 4 ? low_nibbles(a) : high_nibbles(a), vb_fifth_bits(high, v)));
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

INLINE void scales_6bit(struct span *s, const uint8_t *body, size_t b)
{
    (void)b; /* a block fills the span */
    const vi dm = vb_load(body), s0 = vb_load(body + 64), s1 = vb_load(body + 128);
    const vi s2 = vb_load(body + 192);
    const vf d = v_low_half(dm), dmin = high_half(dm);
    const vi six = vb_set(63), two = vb_set(0x30);
    const vi high0 = vi_and(vi_shr(s0, 2), two);
    const vi high1 = vi_and(vi_shr(s1, 2), two);
    const vi part[4] = {
        vi_and(s0, six),
        mask_or(s2, vb_set(15), high0),
        vi_and(s1, six),
        mask_or(vi_shr(s2, 4), vb_set(15), high1),
    };
    UNROLL
    for (int i = 0; i < 16; i++) {
        vi a = part[i / 4];
        if (i % 4 != 0)
            a = vi_shr(a, i % 4 * 8);
        if (i % 4 != 3)
            a = vi_and(a, vi_set(255));
        if (i < 8)
            v_store(s->scale[i], v_mul(d, v_of_int(a)));
        else
            v_store(s->min[i - 8], v_mul(dmin, v_of_int(a)));
    }
}

/* q4_K piece p of 64 columns: 8 units, low nibbles group 2p, high ones group 2p + 1. */
INLINE void ints_q4_k(struct sink *k, const uint8_t *body, int p)
{
    UNROLL
    for (int v = 0; v < 8; v++) {
        const vi a = vb_load(body + 64 * (4 + 8 * p + v));
        put(k, 0, 8, v, low_nibbles(a));
        put(k, 1, 8, v, high_nibbles(a));
    }
}

/* q5_K: the same with 8 units of fifth bits, bit g of a byte for group g, each before the first nibbles it goes
 * with. */
INLINE void ints_q5_k(struct sink *k, const uint8_t *body, int p)
{
    UNROLL
    for (int v = 0; v < 8; v++) {
        const vi a = vb_load(body + 64 * (p == 0 ? 5 + 2 * v : 12 + 8 * p + v));
        vi high = vb_load(body + 64 * (4 + 2 * v)); /* bits 2p, 2p + 1 to 4 and 5 */
        high = p < 2 ? vb_shl(high, 4 - 2 * p) : vb_shr(high, 2 * p - 4);
        put(k, 0, 8, v, mask_or(high, vb_set(16), low_nibbles(a)));
        put(k, 1, 8, v, mask_or(vb_shr(high, 1), vb_set(16), high_nibbles(a)));
    }
}

/* q6_K: 4 units of int8 scales; per half and quad v two units of nibbles and one of pairs; f16 d in the head.
 * Biased by 32. */

INLINE void scales_q6_k(struct span *s, const uint8_t *head, const uint8_t *body)
{
    const vf d = v_load_f16((const void *)head);
    UNROLL
    for (int g = 0; g < 16; g++) {
        vi a = vb_load(body + 64 * (g / 4));
        a = vi_shl(a, 24 - g % 4 * 8);
        v_store(s->scale[g], v_mul(d, v_of_int(vi_sar(a, 24))));
    }
}

/* Piece p of 128 columns, 8 groups. */
INLINE void ints_q6_k(struct sink *k, const uint8_t *body, int p)
{
    const vi pair = vb_set(0x30);
    UNROLL
    for (int v = 0; v < 8; v++) {
        const uint8_t *units = body + 64 * (4 + 24 * p + 3 * v);
        const vi a = vb_load(units), b = vb_load(units + 64), high = vb_load(units + 128);
        const int g = v / 4, quad = v % 4;
        put(k, g, 4, quad, mask_or(vb_shl(high, 4), pair, low_nibbles(a)));
        put(k, 2 + g, 4, quad, mask_or(vb_shl(high, 2), pair, low_nibbles(b)));
        put(k, 4 + g, 4, quad, mask_or(high, pair, high_nibbles(a)));
        put(k, 6 + g, 4, quad, mask_or(vb_shr(high, 2), pair, high_nibbles(b)));
    }
}

#endif
