/*
 * Unpacking of the formats whose block has one scale: the 32-element family q4_0 to q8_0, the one-
 * and two-bit formats, the ternary ones and the two 4-bit float formats (nvfp4 is four such blocks
 * in one).
 *
 * A 32-element block keeps nibbles as byte i = element i (low) and element i + 16 (high). A block
 * larger than a group repeats its scale for every group of 32.
 */
#include "quant/codec.h"

static inline void unpack_nibbles(const uint8_t qs[16], int8_t q[32], int centre)
{
    for (int i = 0; i < 16; i++) {
        q[i] = (int8_t)((qs[i] & 15) - centre);
        q[i + 16] = (int8_t)((qs[i] >> 4) - centre);
    }
}

/* Nibbles completed by bit i of `high` for element i. */
static inline void unpack_5bit(const uint8_t qs[16], uint32_t high, int8_t q[32], int centre)
{
    int8_t top[32];
    for (int b = 0; b < 4; b++)
        store_lanes(top + 8 * b, bit_lanes(high >> 8 * b) << 4);
    for (int i = 0; i < 16; i++) {
        q[i] = (int8_t)(((qs[i] & 15) | top[i]) - centre);
        q[i + 16] = (int8_t)((qs[i] >> 4 | top[i + 16]) - centre);
    }
}

/* f16 d, 16 bytes of nibbles centred at 8. */
void unpack_q4_0(const uint8_t *src, int8_t *q, float *scale, float *min)
{
    scale[0] = load_half(src);
    min[0] = 0.0f;
    unpack_nibbles(src + 2, q, 8);
}

/* f16 d, f16 m, nibbles: d * q + m. The stored m is added, so the minimum is its negative. */
void unpack_q4_1(const uint8_t *src, int8_t *q, float *scale, float *min)
{
    scale[0] = load_half(src);
    min[0] = -load_half(src + 2);
    unpack_nibbles(src + 4, q, 0);
}

/* f16 d, 32 fifth bits, nibbles; centred at 16. */
void unpack_q5_0(const uint8_t *src, int8_t *q, float *scale, float *min)
{
    scale[0] = load_half(src);
    min[0] = 0.0f;
    unpack_5bit(src + 6, load_u32(src + 2), q, 16);
}

/* f16 d, f16 m, 32 fifth bits, nibbles: d * q + m. */
void unpack_q5_1(const uint8_t *src, int8_t *q, float *scale, float *min)
{
    scale[0] = load_half(src);
    min[0] = -load_half(src + 2);
    unpack_5bit(src + 8, load_u32(src + 4), q, 0);
}

/* f16 d, 32 int8. */
void unpack_q8_0(const uint8_t *src, int8_t *q, float *scale, float *min)
{
    scale[0] = load_half(src);
    min[0] = 0.0f;
    memcpy(q, src + 2, 32);
}

static inline void repeat_scale(float d, size_t n, float *scale, float *min)
{
    for (size_t g = 0; g < n; g++) {
        scale[g] = d;
        min[g] = 0.0f;
    }
}

/* f16 d, 16 bytes: bit i set is +d, clear is -d. */
void unpack_q1_0(const uint8_t *src, int8_t *q, float *scale, float *min)
{
    repeat_scale(load_half(src), 4, scale, min);
    for (int b = 0; b < 16; b++) /* 0 becomes 0xff, 1 stays 1 */
        store_lanes(q + 8 * b, bit_lanes(src[2 + b]) * 0xfe ^ UINT64_MAX);
}

/* Pairs of bits, lowest first, centred at 1: values -1 0 1 2. Two bytes make eight lanes; the top
 * bits keep the subtraction inside its lane. */
static inline void unpack_pairs(const uint8_t *qs, size_t n, int8_t *q)
{
    for (size_t b = 0; b < n; b += 2) {
        uint64_t w = qs[b] | (uint64_t)qs[b + 1] << 32;
        w = (w | w << 6 | w << 12 | w << 18) & 0x0303030303030303u;
        w = ((w | 0x8080808080808080u) - 0x0101010101010101u) ^ 0x8080808080808080u;
        store_lanes(q + 4 * b, w);
    }
}

/* f16 d, 16 bytes of pairs. */
void unpack_q2_0(const uint8_t *src, int8_t *q, float *scale, float *min)
{
    repeat_scale(load_half(src), 2, scale, min);
    unpack_pairs(src + 2, 16, q);
}

/* f16 d, 32 bytes of pairs: the layout of PrismML's files. */
void unpack_q2_0_g128(const uint8_t *src, int8_t *q, float *scale, float *min)
{
    repeat_scale(load_half(src), 4, scale, min);
    unpack_pairs(src + 2, 32, q);
}

/* Digit k of the base-3 fraction src[i] / 256 is element stride * k + i: multiplying by 3^k modulo
 * 256 drops the digits before it, and the integer part of three times the rest is it. */
static inline void unpack_trits(const uint8_t *src, int stride, int digits, int8_t *q)
{
    static const uint8_t power[5] = {1, 3, 9, 27, 81};
    for (int k = 0; k < digits; k++) {
        for (int i = 0; i < stride; i++) {
            const uint8_t rest = (uint8_t)(src[i] * power[k]);
            q[stride * k + i] = (int8_t)((rest * 3 >> 8) - 1);
        }
    }
}

/* 32 + 16 bytes of five trits, 4 bytes of four, f16 d. */
void unpack_tq1_0(const uint8_t *src, int8_t *q, float *scale, float *min)
{
    repeat_scale(load_half(src + 52), 8, scale, min);
    unpack_trits(src, 32, 5, q);
    unpack_trits(src + 32, 16, 5, q + 160);
    unpack_trits(src + 48, 4, 4, q + 240);
}

/* 64 bytes, f16 d: pair k of byte i of a half is element 32k + i of its 128. */
void unpack_tq2_0(const uint8_t *src, int8_t *q, float *scale, float *min)
{
    repeat_scale(load_half(src + 64), 8, scale, min);
    for (int half = 0; half < 2; half++, src += 32)
        for (int k = 0; k < 4; k++, q += 32)
            for (int i = 0; i < 32; i++)
                q[i] = (int8_t)((src[i] >> 2 * k & 3) - 1);
}

/* Twice the value of an e2m1 nibble: 0 1 2 3 4 6 8 12 and their negatives. Comparisons instead of a
 * table let the compiler do 16 at a time. */
static inline int8_t fp4_twice(uint8_t nibble)
{
    const int8_t m = (int8_t)(nibble & 7);
    const int8_t v = (int8_t)(m + (m > 4) + (m > 5) + (m > 6 ? 3 : 0));
    return (int8_t)(nibble & 8 ? -v : v);
}

/* A byte of exponent, value 2^(e - 127), and 16 bytes of e2m1 nibbles. e = 0 and 1 make the halved
 * scale subnormal; 255, NaN in the OCP definition, is an exponent like any other in this file
 * format. */
void unpack_mxfp4(const uint8_t *src, int8_t *q, float *scale, float *min)
{
    const uint32_t e = src[0];
    scale[0] = f32_of_bits(e >= 2 ? (e - 1) << 23 : 0x00200000u << e);
    min[0] = 0.0f;
    for (int i = 0; i < 16; i++) {
        q[i] = fp4_twice(src[1 + i] & 15);
        q[i + 16] = fp4_twice(src[1 + i] >> 4);
    }
}

/* Half the value of an unsigned e4m3 byte, bias 7; 0x7f (NaN) counts as zero and the top bit is not
 * read, as the format's writer has it. */
static float half_of_ue4m3(uint8_t x)
{
    const uint32_t e = x >> 3 & 15, m = x & 7;
    if (x == 0x7f)
        return 0.0f;
    if (e == 0)
        return (float)m * 0x1p-10f;
    return f32_of_bits((e + 127 - 7 - 1) << 23 | m << 20);
}

/* Four ue4m3 scales, then 8 bytes of e2m1 nibbles for each 16 elements, low nibbles first. */
void unpack_nvfp4(const uint8_t *src, int8_t *q, float *scale, float *min)
{
    int8_t low[32], high[32];
    for (int i = 0; i < 32; i++) {
        low[i] = fp4_twice(src[4 + i] & 15);
        high[i] = fp4_twice(src[4 + i] >> 4);
    }
    for (int g = 0; g < 4; g++) {
        scale[g] = half_of_ue4m3(src[g]);
        min[g] = 0.0f;
        memcpy(q + 16 * g, low + 8 * g, 8);
        memcpy(q + 16 * g + 8, high + 8 * g, 8);
    }
}
