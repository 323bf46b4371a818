/*
 * Unpacking of packed tiles (tile.h) in the vector operations of a vec_*.h that is included before
 * this file: for each weight type, the integers of a piece of a block as bytes (4 consecutive
 * columns of 16 rows per vector), and the scales and minima of its groups as f32.
 *
 * Integers come as unsigned bytes with a bias added where the contract has signed ones; the dot
 * product that follows starts at -bias * (sum of the activations), so it stays exact. Types whose
 * integers need all eight bits have the bias EIGHT_BITS that the including file defines: 128, or 0
 * for a dot product of signed bytes.
 *
 * Every function hands its vectors to `put`, which is either a store to the span (many columns) or
 * the dot products themselves (few columns): the caller's choice is a constant, so the compiler
 * keeps only one.
 */
#ifndef LINNET_KERNEL_UNPACK_H
#define LINNET_KERNEL_UNPACK_H

#include "kernel/tile.h"
#include "kernel/vecmath.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

/* Columns of X whose dot products share the unpacking of W in registers: as many as leave room for
 * the sums of a piece, and as the compiler can take: every type has its code for each number, which
 * under sanitizers takes minutes. */
#if defined(LINNET_SANITIZED)
#define FEW 1
#elif PAIR == 2
#define FEW 4
#elif BLOCK == 8
#define FEW 2
#else
#define FEW 1
#endif

/* The weights of one tile over up to SPAN columns. */
struct span {
    uint8_t q[SPAN / 4][TILE][4];
    float scale[SPAN / 16][TILE];
    float min[SPAN / 16][TILE];
};

/* Where the vectors go: to q, or multiplied by each x into the sum of their group. */
struct sink {
    bool store;            /* a constant: to q */
    uint8_t (*q)[TILE][4]; /* first quad of the piece */
    int n;                 /* a constant: columns of X */
    const int8_t *x[FEW];  /* [n] at the first column of the piece */
    vi sum[FEW][8];        /* [n] per group of the piece */
#ifdef PAIRS
    int bits;         /* a constant: of the weights */
    int count[8];     /* quads of each group so far */
    vi words[FEW][8]; /* their sums since the last that went to `sum` */
#endif
};

/* Ask for the line as far on in the stream as memory needs to bring it in time. Where a product of
 * one column takes its weights about as fast as memory gives them, the processor's own prefetcher
 * is not enough. Types that are unpacked in more than one piece are slower than memory, and slower
 * still when they ask. */
INLINE void fetch_ahead(const uint8_t *p)
{
#ifdef PAIRS
    __builtin_prefetch(p + 4096);
#else
    (void)p;
#endif
}

INLINE x4 x4_load(const int8_t *x)
{
    int32_t bytes;
    memcpy(&bytes, x, sizeof bytes);
    return x4_set(bytes);
}

#ifdef PAIRS

/* Quads whose products a 16-bit sum holds, for weights of so many bits (see pairs.h). */
INLINE int pair_run(int bits, int quads)
{
    const int most = bits == 4 ? 8 : bits == 5 ? 4 : bits == 6 ? 2 : 1;
    return most < quads ? most : quads;
}

INLINE void put_pairs(struct sink *k, int group, int per, int at, vi w)
{
    const int run = pair_run(k->bits, per), in_run = k->count[group]++ % run;
    UNROLL
    for (int j = 0; j < k->n; j++) {
        const vi p = pair_products(w, x4_load(k->x[j] + 4 * at), k->bits == 8);
        k->words[j][group] = in_run == 0 ? p : pair_add(k->words[j][group], p);
        if (in_run == run - 1)
            k->sum[j][group] = pair_sum(k->sum[j][group], k->words[j][group]);
    }
}

#endif

/* Quad `quad` of group `group` (of `per` quads) of the piece. */
INLINE void put(struct sink *k, int group, int per, int quad, vi w)
{
    const int at = group * per + quad;
    if (k->store) {
        vb_store(k->q[at][0], w);
        return;
    }
#ifdef PAIRS
    put_pairs(k, group, per, at, w);
#else
    UNROLL
    for (int j = 0; j < k->n; j++)
        k->sum[j][group] = dot_bytes(k->sum[j][group], w, x4_load(k->x[j] + 4 * at));
#endif
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

/* q5_0 and q5_1: a unit of fifth bits, bit i for element i, then 4 units of nibbles. q5_0 is biased
 * by 16. */

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

/* q4_K and q5_K: a unit of f16 d and dmin, three units of 6-bit scales and minima (see
 * quant/unpack_k.c). */

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

/* q5_K: the same with 8 units of fifth bits, bit g of a byte for group g, each before the first
 * nibbles it goes with. */
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

/* q6_K: 4 units of int8 scales; per half and quad v two units of nibbles and one of pairs; f16 d in
 * the head. Biased by 32. */

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

/* q2_K: a unit of f16 d and dmin, 4 units of 4-bit scales (low) and minima (high), per half 8 units
 * of pairs. */

INLINE void scales_q2_k(struct span *s, const uint8_t *body, size_t b)
{
    const vi dm = vb_load(body);
    const vf d = v_low_half(dm), dmin = high_half(dm);
    (void)b;
    UNROLL
    for (int g = 0; g < 16; g++) {
        const vi a = vi_shr(vb_load(body + 64 * (1 + g / 4)), g % 4 * 8);
        v_store(s->scale[g], v_mul(d, v_of_int(vi_and(a, vi_set(15)))));
        v_store(s->min[g], v_mul(dmin, v_of_int(vi_and(vi_shr(a, 4), vi_set(15)))));
    }
}

/* Piece p of 128 columns, 8 groups, whose units of pairs start at `units`. */
INLINE void ints_pairs(struct sink *k, const uint8_t *units, int groups)
{
    const vi three = vb_set(3);
    UNROLL
    for (int v = 0; v < 8; v++) {
        const vi a = vb_load(units + 64 * v);
        const int g = groups == 8 ? v / 4 : 0, per = groups == 8 ? 4 : 8, step = groups / 4;
        put(k, g, per, v % per, vi_and(a, three));
        put(k, step + g, per, v % per, vi_and(vb_shr(a, 2), three));
        put(k, 2 * step + g, per, v % per, vi_and(vb_shr(a, 4), three));
        put(k, 3 * step + g, per, v % per, vi_and(vb_shr(a, 6), three));
    }
}

INLINE void ints_q2_k(struct sink *k, const uint8_t *body, int p)
{
    ints_pairs(k, body + 64 * (5 + 8 * p), 8);
}

/* tq2_0: the pairs alone, one f16 d. Biased by 1. */

INLINE void ints_tq2_0(struct sink *k, const uint8_t *body, int p)
{
    ints_pairs(k, body + 64 * 8 * p, 4);
}

/* q3_K: 3 units of 6-bit scales; per quad of the first half a unit of pairs and one of third bits,
 * bit g of a byte for 32 columns g, then the pairs of the second half. Biased by 4. */

INLINE void scales_q3_k(struct span *s, const uint8_t *head, const uint8_t *body)
{
    const vf d = v_load_f16((const void *)head);
    const vi top = vb_load(body + 128);
    UNROLL
    for (int g = 0; g < 16; g++) {
        const vi low = vi_shr(vb_load(body + 64 * (g % 8 / 4)), g % 4 * 8 + g / 8 * 4);
        const vi high = vi_shr(top, g % 4 * 8 + g / 4 * 2);
        const vi a = vi_or(vi_and(low, vi_set(15)), vi_shl(vi_and(high, vi_set(3)), 4));
        v_store(s->scale[g], v_mul(d, v_of_int(vi_sub(a, vi_set(32)))));
    }
}

INLINE void ints_q3_k(struct sink *k, const uint8_t *body, int p)
{
    const vi three = vb_set(3), four = vb_set(4);
    UNROLL
    for (int v = 0; v < 8; v++) {
        const vi a = vb_load(body + 64 * (p == 0 ? 3 + 2 * v : 19 + v));
        const vi bits = vb_load(body + 64 * (4 + 2 * v)); /* bits 4p to 4p + 3, each to 2 */
        const int g = v / 4, quad = v % 4;
        const vi b0 = p == 0 ? vb_shl(bits, 2) : vb_shr(bits, 2),
                 b1 = p == 0 ? vb_shl(bits, 1) : vb_shr(bits, 3);
        const vi b2 = p == 0 ? bits : vb_shr(bits, 4),
                 b3 = p == 0 ? vb_shr(bits, 1) : vb_shr(bits, 5);
        put(k, g, 4, quad, mask_or(b0, four, vi_and(a, three)));
        put(k, 2 + g, 4, quad, mask_or(b1, four, vi_and(vb_shr(a, 2), three)));
        put(k, 4 + g, 4, quad, mask_or(b2, four, vi_and(vb_shr(a, 4), three)));
        put(k, 6 + g, 4, quad, mask_or(b3, four, vi_and(vb_shr(a, 6), three)));
    }
}

/* iq4_nl and iq4_xs: nibbles are indices of the table of values. */

INLINE void ints_iq4(struct sink *k, const uint8_t *units)
{
    static const int8_t table[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                     1,    13,   25,  38,  53,  69,  89,  113};
    const vi values = biased(vb_table((const uint8_t *)table));
    UNROLL
    for (int v = 0; v < 4; v++) {
        const vi a = vb_load(units + 64 * v);
        put(k, 0, 8, v, vb_lookup(values, low_nibbles(a)));
        put(k, 0, 8, v + 4, vb_lookup(values, high_nibbles(a)));
    }
}

/* iq4_xs: a unit of f16 d and the top pairs of eight scales, one of their nibbles. Scales are
 * centred at 32. */

INLINE void scales_iq4_xs(struct span *s, const uint8_t *body, size_t b)
{
    const vi first = vb_load(body), nibbles = vb_load(body + 64);
    const vf d = v_low_half(first);
    (void)b;
    UNROLL
    for (int g = 0; g < 8; g++) {
        const vi low = vi_and(vi_shr(nibbles, 4 * g), vi_set(15));
        const vi high = vi_and(vi_shr(first, 16 + 2 * g), vi_set(3));
        const vi a = vi_sub(vi_or(low, vi_shl(high, 4)), vi_set(32));
        v_store(s->scale[g], v_mul(d, v_of_int(a)));
    }
}

INLINE void ints_iq4_xs(struct sink *k, const uint8_t *body, int p)
{
    ints_iq4(k, body + 64 * (2 + 4 * p));
}

/* mxfp4 and nvfp4: nibbles are e2m1 floats, 0 1 2 3 4 6 8 12 halves and their negatives. Biased by
 * 12. */

INLINE vi fp4_table(void)
{
    static const uint8_t values[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
    return vb_table(values);
}

/* The heads are exponents: 2^(e - 128), subnormal below 2. */
INLINE void scales_mxfp4(struct span *s, const uint8_t *head, size_t n_blocks)
{
    for (size_t b = 0; b < n_blocks; b++, head += TILE) {
        const vi e = vi_and(vi_load_i8((const int8_t *)head), vi_set(255));
        const vi normal = vi_shl(vi_sub(e, vi_set(1)), 23);
        const vi small = vi_shl(vi_add(e, vi_set(1)), 21); /* e = 0, 1 */
        v_store(s->scale[b],
                v_select(v_lt(v_of_int(e), v_set(2.0f)), v_of_bits(small), v_of_bits(normal)));
    }
}

INLINE void ints_mxfp4(struct sink *k, const uint8_t *body)
{
    const vi values = fp4_table();
    UNROLL
    for (int v = 0; v < 4; v++) {
        const vi a = vb_load(body + 64 * v);
        put(k, 0, 8, v, vb_lookup(values, low_nibbles(a)));
        put(k, 0, 8, v + 4, vb_lookup(values, high_nibbles(a)));
    }
}

/* nvfp4: a unit of four e4m3 scales (half the value; 0x7f is zero and other top bits are not read),
 * then two units of nibbles per 16 columns: quads 0 and 1 low, 2 and 3 high. */

INLINE void scales_nvfp4(struct span *s, const uint8_t *body, size_t b)
{
    const vi four = vb_load(body);
    UNROLL
    for (int g = 0; g < 4; g++) {
        const vi x = vi_and(vi_shr(four, 8 * g), vi_set(255)), e = vi_and(vi_shr(x, 3), vi_set(15));
        const vi m = vi_and(x, vi_set(7));
        const vf normal = v_of_bits(vi_or(vi_shl(vi_add(e, vi_set(119)), 23), vi_shl(m, 20)));
        const vf small = v_mul(v_of_int(m), v_set(0x1p-10f));
        const vf value = v_select(v_lt(v_of_int(e), v_set(1.0f)), small, normal);
        const vf off = v_abs(v_of_int(vi_sub(x, vi_set(127)))); /* 0 for x = 0x7f */
        v_store(s->scale[b * 4 + (size_t)g], v_select(v_lt(off, v_set(1.0f)), v_set(0.0f), value));
    }
}

INLINE void ints_nvfp4(struct sink *k, const uint8_t *body)
{
    const vi values = fp4_table();
    UNROLL
    for (int u = 0; u < 8; u++) {
        const vi a = vb_load(body + 64 * (1 + u));
        put(k, u / 2, 4, u % 2, vb_lookup(values, low_nibbles(a)));
        put(k, u / 2, 4, 2 + u % 2, vb_lookup(values, high_nibbles(a)));
    }
}

/* One f16 d for several groups. */
INLINE void scales_repeated(struct span *s, const uint8_t *head, size_t b, size_t n)
{
    const vf d = v_load_f16((const void *)head);
    for (size_t g = 0; g < n; g++)
        v_store(s->scale[b * n + g], d);
}

/* q1_0: per 32 columns a unit, bit i for column i; set is 1, clear -1. Biased by 1. */
INLINE void ints_q1_0(struct sink *k, const uint8_t *body)
{
    UNROLL
    for (int u = 0; u < 4; u++) {
        const vi bits = vb_load(body + 64 * u);
        UNROLL
        for (int v = 0; v < 8; v++)
            put(k, u, 8, v, vb_shr(vb_fifth_bits(bits, v), 3));
    }
}

/* q2_0: per 16 columns a unit of pairs, lowest first. Biased by 1. */
INLINE void ints_q2_0(struct sink *k, const uint8_t *body)
{
    UNROLL
    for (int u = 0; u < 4; u++) {
        const vi a = vb_load(body + 64 * u);
        UNROLL
        for (int v = 0; v < 4; v++) {
            const vi byte = vi_and(vi_shr(a, 8 * v), vi_set(255));
            const vi two = vi_or(
                byte, vi_shl(byte, 12)); /* pairs 0 and 1 in the low, 2 and 3 in the high half */
            put(k, u / 2, 8, u % 2 * 4 + v, vi_and(vi_or(two, vi_shl(two, 6)), vb_set(3)));
        }
    }
}

#endif
