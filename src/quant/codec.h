/*
 * What the codec files of this folder share: unaligned loads and the list of codec functions that the
 * table in quant.c is made of. Nothing outside src/quant includes this.
 */
#ifndef LINNET_QUANT_CODEC_H
#define LINNET_QUANT_CODEC_H

#include "quant/half.h"

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

static inline float load_half(const uint8_t *p)
{
    return half_to_f32(load_u16(p));
}

typedef void unpack_fn(const uint8_t *src, int8_t *q, float *scale, float *min);
typedef void encode_fn(const float *src, uint8_t *dst, size_t n);

unpack_fn unpack_q4_0, unpack_q4_1, unpack_q5_0, unpack_q5_1, unpack_q8_0;
unpack_fn unpack_q4_k, unpack_q5_k, unpack_q6_k;

#endif
