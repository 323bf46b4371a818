/*
 * Matrix products with the dot product extension: four exact products of signed bytes per lane in
 * one instruction.
 */
#include "kernel/arm/vec_neon.h"

#include <stdbool.h>

#define BLOCK      4
#define PAIR       1
#define EIGHT_BITS 0

static inline int32x4_t dot4(int32x4_t sum, int32x4_t w, int8x16_t x)
{
    return vdotq_s32(sum, vreinterpretq_s8_s32(w), x);
}

typedef int8x16_t x4;

static inline x4 x4_load(const int8_t *x)
{
    int32_t bytes;
    memcpy(&bytes, x, sizeof bytes);
    return vreinterpretq_s8_s32(vdupq_n_s32(bytes));
}

static inline vi dot_bytes(vi sum, vi w, x4 v, bool eight_bits)
{
    (void)eight_bits;
    return (vi){{dot4(sum.v[0], w.v[0], v), dot4(sum.v[1], w.v[1], v), dot4(sum.v[2], w.v[2], v),
                 dot4(sum.v[3], w.v[3], v)}};
}

#include "kernel/arm/arm.h"
#include "kernel/product.h"

void matmul_dotprod(const struct matmul *job, size_t tile0, size_t tile1, void *scratch)
{
    product_tiles(job, tile0, tile1, scratch);
}

uint64_t spin_dotprod(uint64_t rounds)
{
    return product_spin(rounds);
}
