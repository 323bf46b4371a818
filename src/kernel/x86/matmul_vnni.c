/*
 * Matrix products with AVX-512 VNNI: four exact byte products per 32-bit lane in one instruction.
 */
#include "kernel/x86/vec_avx512.h"

#include <stdbool.h>
#include <string.h>

#define BLOCK      6
#define PAIR       2
#define EIGHT_BITS 128

typedef vi x4;
#define x4_set vi_set

static inline vi dot_bytes(vi sum, vi w, x4 q)
{
    return _mm512_dpbusd_epi32(sum, w, q);
}

#include "kernel/product.h"
#include "kernel/x86/x86.h"

void matmul_avx512vnni(const struct matmul *job, size_t tile0, size_t tile1, void *scratch)
{
    product_tiles(job, tile0, tile1, scratch);
}

uint64_t spin_avx512vnni(uint64_t rounds)
{
    return product_spin(rounds);
}
