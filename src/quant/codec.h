/*
 * What the codec files of this folder share: unaligned loads and the list of codec functions that
 * the table in quant.c is made of. Nothing outside src/quant includes this.
 */
#ifndef LINNET_QUANT_CODEC_H
#define LINNET_QUANT_CODEC_H

#include "quant/half.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* File data is little-endian and has no alignment. */
static inline uint16_t load_u16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static inline uint32_t load_u32(const uint8_t *p)
{
    return load_u16(p) | (uint32_t)load_u16(p + 2) << 16;
}

static inline uint64_t load_u64(const uint8_t *p)
{
    return load_u32(p) | (uint64_t)load_u32(p + 4) << 32;
}

/* Eight int8 at once, the first in the lowest byte. */
static inline void store_lanes(int8_t *q, uint64_t lanes)
{
    for (int i = 0; i < 8; i++)
        q[i] = (int8_t)(lanes >> 8 * i);
}

/* Bit i of `bits` (eight of them) as the value 0 or 1 of byte i. */
static inline uint64_t bit_lanes(unsigned bits)
{
    const uint64_t one_each = (bits & 255) * 0x0101010101010101u & 0x8040201008040201u;
    return (one_each + 0x7f7f7f7f7f7f7f7fu) >> 7 & 0x0101010101010101u;
}

static inline float load_half(const uint8_t *p)
{
    return half_to_f32(load_u16(p));
}

typedef void unpack_fn(const uint8_t *src, int8_t *q, float *scale, float *min);
typedef void encode_fn(const float *src, uint8_t *dst, size_t n);

unpack_fn unpack_q4_0, unpack_q4_1, unpack_q5_0, unpack_q5_1, unpack_q8_0;
unpack_fn unpack_q1_0, unpack_q2_0, unpack_q2_0_g128, unpack_tq1_0, unpack_tq2_0;
unpack_fn unpack_mxfp4, unpack_nvfp4;
unpack_fn unpack_q2_k, unpack_q3_k, unpack_q4_k, unpack_q5_k, unpack_q6_k;
unpack_fn unpack_iq1_s, unpack_iq1_m, unpack_iq2_xxs, unpack_iq2_xs, unpack_iq2_s;
unpack_fn unpack_iq3_xxs, unpack_iq3_s, unpack_iq4_nl, unpack_iq4_xs;

encode_fn encode_f32, encode_f16, encode_bf16;
encode_fn encode_q4_0, encode_q4_1, encode_q5_0, encode_q5_1, encode_q8_0;
encode_fn encode_q4_k, encode_q5_k, encode_q6_k, encode_iq4_nl, encode_iq4_xs, encode_mxfp4;

/* What a nibble stands for: iq4_nl and iq4_xs. */
extern const int8_t quant_iq4_values[16];

#endif
