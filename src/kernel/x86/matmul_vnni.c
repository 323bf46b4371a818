/*
 * Matrix products with AVX-512 VNNI: four exact byte products per 32-bit lane in one instruction.
 */
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

static inline __attribute__((always_inline)) int32_t four_bytes(const int8_t *x)
{
    int32_t v;
    memcpy(&v, x, sizeof v);
    return v;
}

#define DOT(sum, w, x) _mm512_dpbusd_epi32(sum, w, _mm512_set1_epi32(four_bytes(x)))

#include "kernel/x86/matmul512.h"
#include "kernel/x86/x86.h"

void matmul_avx512vnni(const struct matmul *job, size_t tile0, size_t tile1, void *scratch)
{
    matmul512(job, tile0, tile1, scratch);
}

uint64_t spin_avx512vnni(uint64_t rounds)
{
    return spin512(rounds);
}
