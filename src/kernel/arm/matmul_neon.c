/*
 * Matrix products with plain NEON: products of bytes as 16 bits, where two fit (2 * 128 * 127 =
 * 32,512), then sums of four as 32 bits.
 */
#include "kernel/arm/vec_neon.h"

#include <stdbool.h>

#define BLOCK      4
#define PAIR       1
#define EIGHT_BITS 0

static inline int32x4_t dot4(int32x4_t sum, int32x4_t w, int8x16_t x)
{
    const int8x16_t b = vreinterpretq_s8_s32(w);
    const int16x8_t low = vmull_s8(vget_low_s8(b), vget_low_s8(x)), high = vmull_high_s8(b, x);
    return vpadalq_s16(sum, vpaddq_s16(low, high));
}

#include "kernel/arm/dot4.h"

#include "kernel/arm/arm.h"
#include "kernel/product.h"

void matmul_neon(const struct matmul *job, size_t tile0, size_t tile1, void *scratch)
{
    product_tiles(job, tile0, tile1, scratch);
}

uint64_t spin_neon(uint64_t rounds)
{
    return product_spin(rounds);
}
