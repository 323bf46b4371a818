/*
 * Unpacking of the k-quants: super-blocks of 256 elements whose 16 or 8 sub-blocks have integer
 * scales (and minima) of their own, multiplied by one or two binary16 factors.
 *
 * The product factor * integer scale needs at most 11 + 8 bits and is exact in f32, so a group's
 * scale carries no rounding of its own.
 */
#include "quant/codec.h"

enum { SUPER = 256 };

/* 16 bytes with a scale (low nibble) and a minimum (high) per 16 elements, 64 bytes of pairs of
 * bits, f16 d, f16 dmin. Pair k of byte i of a half is element 32k + i of its 128. */
void unpack_q2_k(const uint8_t *src, int8_t *q, float *scale, float *min)
{
    const float d = load_half(src + 80), dmin = load_half(src + 82);
    for (int g = 0; g < SUPER / 16; g++) {
        scale[g] = d * (float)(src[g] & 15);
        min[g] = dmin * (float)(src[g] >> 4);
    }
    for (int half = 0; half < 2; half++) {
        const uint8_t *qs = src + 16 + 32 * half;
        for (int k = 0; k < 4; k++, q += 32)
            for (int i = 0; i < 32; i++)
                q[i] = (int8_t)(qs[i] >> 2 * k & 3);
    }
}

/* 32 bytes of third bits (bit g of byte i for element 32g + i), 64 of pairs as in q2_K, 12 bytes
 * with sixteen 6-bit scales centred at 32, f16 d. Scale g has its low nibble in byte g & 7, low
 * half for g < 8, and its top two bits at bit 2(g >> 2) of byte 8 + (g & 3). Values are centred
 * at 4. */
void unpack_q3_k(const uint8_t *src, int8_t *q, float *scale, float *min)
{
    const float d = load_half(src + 108);
    const uint8_t *s = src + 96;
    for (int g = 0; g < SUPER / 16; g++) {
        const int v = (s[g & 7] >> 4 * (g >> 3) & 15) | (s[8 + (g & 3)] >> 2 * (g >> 2) & 3) << 4;
        scale[g] = d * (float)(v - 32);
        min[g] = 0.0f;
    }
    for (int half = 0; half < 2; half++) {
        const uint8_t *qs = src + 32 + 32 * half;
        for (int k = 0; k < 4; k++, q += 32)
            for (int i = 0; i < 32; i++)
                q[i] = (int8_t)(((qs[i] >> 2 * k & 3) | (src[i] >> (4 * half + k) & 1) << 2) - 4);
    }
}

/* The 12 bytes that hold eight 6-bit scales and eight 6-bit minima (q4_K, q5_K): bytes 0-3 are the
 * scales and 4-7 the minima of groups 0-3, whose top two bits complete the nibbles of bytes 8-11,
 * which are the low four bits of groups 4-7 (scale low, minimum high). */
static void unpack_scales_6bit(const uint8_t s[12], float d, float dmin, float scale[8],
                               float min[8])
{
    for (int g = 0; g < 4; g++) {
        scale[g] = d * (float)(s[g] & 63);
        min[g] = dmin * (float)(s[g + 4] & 63);
        scale[g + 4] = d * (float)((s[g + 8] & 15) | s[g] >> 6 << 4);
        min[g + 4] = dmin * (float)(s[g + 8] >> 4 | s[g + 4] >> 6 << 4);
    }
}

/* f16 d, f16 dmin, 12 bytes of scales, 128 bytes of nibbles: byte i of chunk c holds elements 64c +
 * i (low) and 64c + 32 + i (high). */
void unpack_q4_k(const uint8_t *src, int8_t *q, float *scale, float *min)
{
    unpack_scales_6bit(src + 4, load_half(src), load_half(src + 2), scale, min);
    const uint8_t *qs = src + 16;
    for (int c = 0; c < 4; c++, qs += 32, q += 64) {
        for (int i = 0; i < 32; i++) {
            q[i] = (int8_t)(qs[i] & 15);
            q[i + 32] = (int8_t)(qs[i] >> 4);
        }
    }
}

/* As q4_K, with 32 bytes of fifth bits before the nibbles: bit g of byte i belongs to element 32g +
 * i. */
void unpack_q5_k(const uint8_t *src, int8_t *q, float *scale, float *min)
{
    unpack_scales_6bit(src + 4, load_half(src), load_half(src + 2), scale, min);
    const uint8_t *qh = src + 16, *qs = src + 48;
    for (int c = 0; c < 4; c++, qs += 32, q += 64) {
        for (int i = 0; i < 32; i++) {
            q[i] = (int8_t)((qs[i] & 15) | (qh[i] >> 2 * c & 1) << 4);
            q[i + 32] = (int8_t)(qs[i] >> 4 | (qh[i] >> (2 * c + 1) & 1) << 4);
        }
    }
}

/* 128 bytes of low nibbles, 64 of high pairs of bits, 16 int8 scales, f16 d. Each half of 128
 * elements takes 64 + 32 bytes; element 32k + i of a half has its nibble in byte 32(k & 1) + i, low
 * for k < 2, and its pair at bit 2k of byte i. Values are centred at 32. */
void unpack_q6_k(const uint8_t *src, int8_t *q, float *scale, float *min)
{
    const float d = load_half(src + 208);
    for (int g = 0; g < SUPER / 16; g++) {
        scale[g] = d * (float)(int8_t)src[192 + g];
        min[g] = 0.0f;
    }
    for (int half = 0; half < 2; half++, q += 128) {
        const uint8_t *ql = src + 64 * half, *qh = src + 128 + 32 * half;
        for (int i = 0; i < 32; i++) {
            q[i] = (int8_t)(((ql[i] & 15) | (qh[i] & 3) << 4) - 32);
            q[i + 32] = (int8_t)(((ql[i + 32] & 15) | (qh[i] >> 2 & 3) << 4) - 32);
            q[i + 64] = (int8_t)((ql[i] >> 4 | (qh[i] >> 4 & 3) << 4) - 32);
            q[i + 96] = (int8_t)((ql[i + 32] >> 4 | qh[i] >> 6 << 4) - 32);
        }
    }
}
