/*
 * binary16 and bfloat16 in plain integer arithmetic, inlined: every block format stores its scales
 * as binary16, so unpacking spends a good part of its time here. The callable forms are in quant.h.
 *
 * Results are those of the hardware conversions (F16C, vcvtneps2bf16 apart from its flushing of
 * denormals): round to nearest, ties to even; a NaN keeps its sign and upper payload and is made
 * quiet.
 */
#ifndef LINNET_QUANT_HALF_H
#define LINNET_QUANT_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t f32_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static inline float f32_of_bits(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* Both directions compute the result of every case and then choose, so that loops become vector
 * code. */

static inline float half_to_f32(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    const uint32_t mag = (uint32_t)(h & 0x7fff) << 13; /* fields where f32 has them */
    const uint32_t normal = mag + (112u << 23);        /* exponent bias 127 - 15 */
    /* m * 2^-24: m as the low mantissa bits of 0.5, whose ulp is 2^-24 */
    const uint32_t subnormal = f32_bits(f32_of_bits(0x3f000000 | (h & 0x3ff)) - 0.5f);
    const uint32_t special = 0x70000000 | mag | (mag > 0x0f800000 ? 0x00400000 : 0);
    const uint32_t finite = mag < 0x00800000 ? subnormal : normal;
    return f32_of_bits(sign | (mag < 0x0f800000 ? finite : special));
}

static inline uint16_t half_of_f32(float x)
{
    const uint32_t u = f32_bits(x), sign = u >> 16 & 0x8000, mag = u & 0x7fffffff;
    /* a carry out of the mantissa moves into the exponent by itself */
    const uint32_t normal = (mag - (112u << 23) + 0xfff + (mag >> 13 & 1)) >> 13;
    /* below 2^-14: adding 0.5 shifts the value to units of 2^-24 and rounds it */
    const uint32_t subnormal = f32_bits(f32_of_bits(mag) + 0.5f) - 0x3f000000;
    const uint32_t special = mag > 0x7f800000 ? 0x7e00 | (mag >> 13 & 0x3ff) : 0x7c00;
    const uint32_t finite = mag < 0x38800000 ? subnormal : normal;
    return (uint16_t)(sign | (mag < 0x477ff000 ? finite : special)); /* 65520: infinity */
}

static inline float brain_to_f32(uint16_t h)
{
    const uint32_t u = (uint32_t)h << 16;
    return f32_of_bits((u & 0x7fffffff) > 0x7f800000 ? u | 0x00400000 : u);
}

static inline uint16_t brain_of_f32(float x)
{
    const uint32_t u = f32_bits(x);
    if ((u & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

#endif
