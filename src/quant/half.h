/*
 * binary16 and bfloat16 in plain integer arithmetic, inlined: every block format stores its scales as
 * binary16, so unpacking spends a good part of its time here. The callable forms are in quant.h.
 *
 * Results are those of the hardware conversions (F16C, vcvtneps2bf16 apart from its flushing of
 * denormals): round to nearest, ties to even; a NaN keeps its sign and upper payload and is made quiet.
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

static inline float half_to_f32(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    const uint32_t mag = (uint32_t)(h & 0x7fff) << 13; /* exponent and mantissa where f32 has them */
    if (mag >= 0x0f800000) /* infinity; a NaN gets its quiet bit */
        return f32_of_bits(sign | 0x70000000 | mag | (mag > 0x0f800000 ? 0x00400000 : 0));
    if (mag >= 0x00800000) /* normal: rebias the exponent, 127 - 15 */
        return f32_of_bits(sign | (mag + (112u << 23)));
    /* Zero or subnormal, mantissa * 2^-24: as the low mantissa bits of 0.5, whose ulp is 2^-24. */
    const float x = f32_of_bits(0x3f000000 | (h & 0x3ff)) - 0.5f;
    return f32_of_bits(sign | f32_bits(x));
}

static inline uint16_t half_of_f32(float x)
{
    const uint32_t u = f32_bits(x);
    const uint32_t sign = u >> 16 & 0x8000, mag = u & 0x7fffffff;
    if (mag > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | (mag >> 13 & 0x3ff));
    if (mag >= 0x477ff000) /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7c00);
    if (mag >= 0x38800000) { /* 2^-14 and above: normal; a carry moves into the exponent by itself */
        const uint32_t odd = mag >> 13 & 1;
        return (uint16_t)(sign | (mag - (112u << 23) + 0xfff + odd) >> 13);
    }
    /* Subnormal: adding 0.5 shifts the value to units of 2^-24 and rounds it. */
    return (uint16_t)(sign | (f32_bits(f32_of_bits(mag) + 0.5f) - 0x3f000000));
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
