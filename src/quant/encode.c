/*
 * Encoders: f32 to blocks.
 *
 * q8_0, q4_0, q4_1, q5_0 and q5_1 choose scale and rounding exactly as the formats' reference
 * quantisers do. The others are plain: scales are rounded up so that the range of every group is
 * covered, each value goes to the nearest step, and nothing searches for a smaller error or weighs
 * by importance.
 *
 * No input is undefined. A block (super-block) that holds a NaN or an infinity gets a NaN scale, so
 * that all of it decodes to NaN and is seen; mxfp4 has no NaN: there a NaN is 0 and an infinity the
 * largest finite float. Values beyond the reach of a binary16 scale saturate; a scale too small for
 * binary16 makes the block zero.
 */
#include "quant/codec.h"

#include <float.h>
#include <math.h>

#define F16_MAX 65504.0f
#define F16_NAN 0x7e00u

static void store_u16(uint8_t *p, unsigned v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

static float clamp(float x, float lo, float hi)
{
    return x < lo ? lo : x > hi ? hi : x;
}

/* Nearest integer, halves away from zero, limited to [lo, hi]. */
static inline int nearest(float x, int lo, int hi)
{
    const float c = clamp(x, (float)lo, (float)hi);
    const int t = (int)c;
    const float rest = c - (float)t;
    return t + (rest >= 0.5f) - (rest <= -0.5f);
}

/* Truncation of a value that is not negative, limited to hi. */
static inline uint8_t truncated(float x, int hi)
{
    return (uint8_t)clamp(x, 0.0f, (float)hi);
}

/* The smallest binary16 that is not below x, 0 <= x; at most F16_MAX. */
static unsigned half_above(float x)
{
    const unsigned h = half_of_f32(x < F16_MAX ? x : F16_MAX);
    return half_to_f32((uint16_t)h) < x && h < 0x7bff ? h + 1 : h;
}

/* 1 / d, or 0 when d is zero or so small that its inverse is not finite. */
static float inverse(float d)
{
    return fabsf(d) < FLT_MIN ? 0.0f : 1.0f / d;
}

/* A float's order as an integer's: monotonic over everything but NaN. Integer minima and maxima are
 * associative, so the loops below are done in vectors; float ones would be one long chain. */
static inline int32_t order_key(float x)
{
    const uint32_t u = f32_bits(x);
    return (int32_t)(u ^ (u >> 31 ? 0x7fffffff : 0));
}

static float of_order_key(int32_t k)
{
    const uint32_t u = (uint32_t)k;
    return f32_of_bits(u ^ (u >> 31 ? 0x7fffffff : 0));
}

struct range {
    float min, max;
};

static struct range range_of(const float *x, size_t n)
{
    int32_t lo = INT32_MAX, hi = INT32_MIN;
    for (size_t i = 0; i < n; i++) {
        const int32_t k = order_key(x[i]);
        lo = k < lo ? k : lo;
        hi = k > hi ? k : hi;
    }
    return (struct range){of_order_key(lo), of_order_key(hi)};
}

/* Bits of the largest |x|: infinity or above when some x is not finite. */
static uint32_t largest_bits(const float *x, size_t n)
{
    uint32_t top = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t mag = f32_bits(x[i]) & 0x7fffffff;
        top = mag > top ? mag : top;
    }
    return top;
}

static bool all_finite(const float *x, size_t n)
{
    return largest_bits(x, n) < 0x7f800000;
}

static float largest(const float *x, size_t n)
{
    return f32_of_bits(largest_bits(x, n));
}

/* The first element of largest magnitude, with its sign. */
static float signed_largest(const float *x, size_t n)
{
    const float top = largest(x, n);
    for (size_t i = 0; i < n; i++)
        if (fabsf(x[i]) == top)
            return x[i];
    return top;
}

/* A block whose elements all decode to NaN: the binary16 at `at` is its scale. */
static void poison_block(uint8_t *dst, size_t bytes, size_t at)
{
    memset(dst, 0, bytes);
    store_u16(dst + at, F16_NAN);
}

void encode_f32(const float *src, uint8_t *dst, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t u = f32_bits(src[i]);
        store_u16(dst + 4 * i, u);
        store_u16(dst + 4 * i + 2, u >> 16);
    }
}

void encode_f16(const float *src, uint8_t *dst, size_t n)
{
    for (size_t i = 0; i < n; i++)
        store_u16(dst + 2 * i, half_of_f32(src[i]));
}

void encode_bf16(const float *src, uint8_t *dst, size_t n)
{
    for (size_t i = 0; i < n; i++)
        store_u16(dst + 2 * i, brain_of_f32(src[i]));
}

/* d = max|x| / 127 */
void encode_q8_0(const float *src, uint8_t *dst, size_t n)
{
    for (; n >= 32; n -= 32, src += 32, dst += 34) {
        if (!all_finite(src, 32)) {
            poison_block(dst, 34, 0);
            continue;
        }
        const float d = clamp(largest(src, 32) / 127.0f, 0.0f, F16_MAX), inv = inverse(d);
        store_u16(dst, half_of_f32(d));
        for (int i = 0; i < 32; i++)
            dst[2 + i] = (uint8_t)nearest(src[i] * inv, -127, 127);
    }
}

/* The q of a 32-element block of `bits` bits into its nibbles and, for 5, its word of fifth bits.
 */
static void store_q(const uint8_t q[32], int bits, uint8_t *dst)
{
    if (bits == 5) {
        uint32_t high = 0;
        for (int i = 0; i < 32; i++)
            high |= (uint32_t)(q[i] >> 4) << i;
        store_u16(dst, high);
        store_u16(dst + 2, high >> 16);
        dst += 4;
    }
    for (int i = 0; i < 16; i++)
        dst[i] = (uint8_t)((q[i] & 15) | q[i + 16] << 4);
}

/* The element of largest magnitude becomes the lowest code, -2^(bits-1): d has its sign, negated.
 */
static void encode_centred(const float *src, uint8_t *dst, size_t n, int bits)
{
    const size_t bytes = bits == 4 ? 18 : 22;
    const int centre = 1 << (bits - 1);
    for (; n >= 32; n -= 32, src += 32, dst += bytes) {
        if (!all_finite(src, 32)) {
            poison_block(dst, bytes, 0);
            continue;
        }
        const float d = clamp(signed_largest(src, 32) / (float)-centre, -F16_MAX, F16_MAX);
        const float inv = inverse(d);
        uint8_t q[32];
        for (int i = 0; i < 32; i++)
            q[i] = truncated(src[i] * inv + (float)centre + 0.5f, 2 * centre - 1);
        store_u16(dst, half_of_f32(d));
        store_q(q, bits, dst + 2);
    }
}

void encode_q4_0(const float *src, uint8_t *dst, size_t n)
{
    encode_centred(src, dst, n, 4);
}

void encode_q5_0(const float *src, uint8_t *dst, size_t n)
{
    encode_centred(src, dst, n, 5);
}

/* The range of the block in 2^bits - 1 steps from its minimum. */
static void encode_ranged(const float *src, uint8_t *dst, size_t n, int bits)
{
    const size_t bytes = bits == 4 ? 20 : 24;
    const int top = (1 << bits) - 1;
    for (; n >= 32; n -= 32, src += 32, dst += bytes) {
        if (!all_finite(src, 32)) {
            poison_block(dst, bytes, 0);
            continue;
        }
        const struct range r = range_of(src, 32);
        const float d = clamp((r.max - r.min) / (float)top, 0.0f, F16_MAX), inv = inverse(d);
        uint8_t q[32];
        for (int i = 0; i < 32; i++)
            q[i] = truncated((src[i] - r.min) * inv + 0.5f, top);
        store_u16(dst, half_of_f32(d));
        store_u16(dst + 2, half_of_f32(clamp(r.min, -F16_MAX, F16_MAX)));
        store_q(q, bits, dst + 4);
    }
}

void encode_q4_1(const float *src, uint8_t *dst, size_t n)
{
    encode_ranged(src, dst, n, 4);
}

void encode_q5_1(const float *src, uint8_t *dst, size_t n)
{
    encode_ranged(src, dst, n, 5);
}

/* ceil(x / d) for x >= 0, limited to hi. Never less than what covers x, but for the limit. */
static uint8_t steps_above(float x, float d, int hi)
{
    return d > 0.0f ? (uint8_t)clamp(ceilf(x / d), 0.0f, (float)hi) : 0;
}

/* Header and codes of a q4_K or q5_K super-block with codes 0..top. Minima are rounded up first;
 * the scale then has to reach from there to the group's maximum. */
static void encode_k_min(const float *x, int top, uint8_t *dst, uint8_t q[256])
{
    float max[8], low[8], top_low = 0.0f, top_step = 0.0f;
    for (int g = 0; g < 8; g++) {
        const struct range r = range_of(x + 32 * g, 32);
        max[g] = r.max;
        low[g] = r.min < 0.0f ? -r.min : 0.0f;
        top_low = low[g] > top_low ? low[g] : top_low;
    }
    const unsigned hmin = half_above(top_low / 63.0f);
    const float dmin = half_to_f32((uint16_t)hmin);
    uint8_t ls[8], lm[8];
    float step[8];
    for (int g = 0; g < 8; g++) {
        lm[g] = steps_above(low[g], dmin, 63);
        step[g] = clamp((max[g] + dmin * (float)lm[g]) / (float)top, 0.0f, FLT_MAX);
        top_step = step[g] > top_step ? step[g] : top_step;
    }
    const unsigned hd = half_above(top_step / 63.0f);
    const float d = half_to_f32((uint16_t)hd);
    for (int g = 0; g < 8; g++) {
        ls[g] = steps_above(step[g], d, 63);
        const float inv = inverse(d * (float)ls[g]), m = dmin * (float)lm[g];
        for (int i = 32 * g; i < 32 * g + 32; i++)
            q[i] = (uint8_t)nearest((x[i] + m) * inv, 0, top);
    }
    store_u16(dst, hd);
    store_u16(dst + 2, hmin);
    for (int g = 0; g < 4; g++) {
        dst[4 + g] = (uint8_t)(ls[g] | ls[g + 4] >> 4 << 6);
        dst[8 + g] = (uint8_t)(lm[g] | lm[g + 4] >> 4 << 6);
        dst[12 + g] = (uint8_t)((ls[g + 4] & 15) | lm[g + 4] << 4);
    }
}

void encode_q4_k(const float *src, uint8_t *dst, size_t n)
{
    for (; n >= 256; n -= 256, src += 256, dst += 144) {
        if (!all_finite(src, 256)) {
            poison_block(dst, 144, 0);
            continue;
        }
        uint8_t q[256];
        encode_k_min(src, 15, dst, q);
        for (int i = 0; i < 128; i++) {
            const uint8_t *p = q + i / 32 * 64 + i % 32;
            dst[16 + i] = (uint8_t)(p[0] | p[32] << 4);
        }
    }
}

void encode_q5_k(const float *src, uint8_t *dst, size_t n)
{
    for (; n >= 256; n -= 256, src += 256, dst += 176) {
        if (!all_finite(src, 256)) {
            poison_block(dst, 176, 0);
            continue;
        }
        uint8_t q[256];
        encode_k_min(src, 31, dst, q);
        memset(dst + 16, 0, 32);
        for (int i = 0; i < 256; i++)
            dst[16 + i % 32] |= (uint8_t)(q[i] >> 4 << i / 32);
        for (int i = 0; i < 128; i++) {
            const uint8_t *p = q + i / 32 * 64 + i % 32;
            dst[48 + i] = (uint8_t)((p[0] & 15) | p[32] << 4);
        }
    }
}

/* max|x| of a group in 31 steps either side, so that no element is cut. */
static void encode_q6_k_block(const float *x, uint8_t *dst)
{
    float step[16], top = 0.0f;
    for (int g = 0; g < 16; g++) {
        step[g] = largest(x + 16 * g, 16) / 31.0f;
        top = step[g] > top ? step[g] : top;
    }
    const unsigned hd = half_above(top / 127.0f);
    const float d = half_to_f32((uint16_t)hd);
    uint8_t q[256];
    for (int g = 0; g < 16; g++) {
        dst[192 + g] = steps_above(step[g], d, 127);
        const float inv = inverse(d * (float)dst[192 + g]);
        for (int i = 16 * g; i < 16 * g + 16; i++)
            q[i] = (uint8_t)(nearest(x[i] * inv, -31, 31) + 32);
    }
    store_u16(dst + 208, hd);
    for (int i = 0; i < 128; i++) { /* nibble byte i: elements p[0] (low) and p[64] (high) */
        const uint8_t *p = q + i / 64 * 128 + i % 64;
        dst[i] = (uint8_t)((p[0] & 15) | p[64] << 4);
    }
    for (int i = 0; i < 64; i++) {
        const uint8_t *p = q + i / 32 * 128 + i % 32;
        dst[128 + i] = (uint8_t)(p[0] >> 4 | p[32] >> 4 << 2 | p[64] >> 4 << 4 | p[96] >> 4 << 6);
    }
}

void encode_q6_k(const float *src, uint8_t *dst, size_t n)
{
    for (; n >= 256; n -= 256, src += 256, dst += 210) {
        if (all_finite(src, 256))
            encode_q6_k_block(src, dst);
        else
            poison_block(dst, 210, 208);
    }
}

/* 32 elements to the nearest entries of the iq4 table at 1 / inv per unit. */
static void encode_iq4(const float *x, float inv, uint8_t *dst)
{
    uint8_t q[32];
    for (int i = 0; i < 32; i++) {
        const float v = x[i] * inv;
        uint8_t k = 0;
        for (int j = 0; j < 15; j++)
            k = (uint8_t)(k + (2.0f * v > (float)(quant_iq4_values[j] + quant_iq4_values[j + 1])));
        q[i] = k;
    }
    store_q(q, 4, dst);
}

/* The element of largest magnitude becomes -127, the end of the table that reaches further. */
void encode_iq4_nl(const float *src, uint8_t *dst, size_t n)
{
    for (; n >= 32; n -= 32, src += 32, dst += 18) {
        if (!all_finite(src, 32)) {
            poison_block(dst, 18, 0);
            continue;
        }
        const float d = clamp(signed_largest(src, 32) / -127.0f, -F16_MAX, F16_MAX);
        store_u16(dst, half_of_f32(d));
        encode_iq4(src, inverse(d), dst + 2);
    }
}

/* As iq4_nl for each 32, with scales of 31 steps either side. */
static void encode_iq4_xs_block(const float *x, uint8_t *dst)
{
    float step[8], top = 0.0f;
    for (int g = 0; g < 8; g++) {
        step[g] = signed_largest(x + 32 * g, 32) / -127.0f;
        top = fabsf(step[g]) > top ? fabsf(step[g]) : top;
    }
    const unsigned hd = half_above(top / 31.0f);
    const float d = half_to_f32((uint16_t)hd);
    unsigned high = 0;
    memset(dst + 4, 0, 4);
    for (int g = 0; g < 8; g++) {
        const int steps = steps_above(fabsf(step[g]), d, 31);
        const int s = step[g] < 0.0f ? -steps : steps;
        const unsigned code = (unsigned)(s + 32);
        dst[4 + g / 2] |= (uint8_t)((code & 15) << 4 * (g & 1));
        high |= code >> 4 << 2 * g;
        encode_iq4(x + 32 * g, inverse(d * (float)s), dst + 8 + 16 * g);
    }
    store_u16(dst, hd);
    store_u16(dst + 2, high);
}

void encode_iq4_xs(const float *src, uint8_t *dst, size_t n)
{
    for (; n >= 256; n -= 256, src += 256, dst += 136) {
        if (all_finite(src, 256))
            encode_iq4_xs_block(src, dst);
        else
            poison_block(dst, 136, 0);
    }
}

/* Nearest e2m1 code of v, ties to the even code; magnitudes above 6 become 6. */
static uint8_t fp4_of(float v)
{
    const float a = fabsf(v);
    const int code = (a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) +
                     (a >= 3.5f) + (a > 5.0f);
    return (uint8_t)(code > 0 && v < 0.0f ? code | 8 : code);
}

/* The exponent that puts max|x| in [4, 8), the top binade of e2m1 (OCP MX 1.0, section 6.3). */
void encode_mxfp4(const float *src, uint8_t *dst, size_t n)
{
    for (; n >= 32; n -= 32, src += 32, dst += 17) {
        float x[32], top = 0.0f;
        for (int i = 0; i < 32; i++) {
            x[i] = isnan(src[i]) ? 0.0f : clamp(src[i], -FLT_MAX, FLT_MAX);
            top = fabsf(x[i]) > top ? fabsf(x[i]) : top;
        }
        int e = 0;
        if (top > 0.0f) {
            (void)frexpf(top, &e); /* top in [2^(e-1), 2^e) */
            e = e - 1 - 2 + 127;
            e = e < 0 ? 0 : e;
        }
        const float inv = f32_of_bits((uint32_t)(254 - e) << 23); /* 2^(127 - e), e <= 252 */
        dst[0] = (uint8_t)e;
        uint8_t q[32];
        for (int i = 0; i < 32; i++)
            q[i] = fp4_of(x[i] * inv);
        store_q(q, 4, dst + 1);
    }
}
