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

#include "kernel/arm/dot4.h"

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
