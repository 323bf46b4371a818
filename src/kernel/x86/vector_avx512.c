/*
 * The AVX-512 tables: with and without VNNI they differ only in the matrix product.
 */
#include "kernel/x86/vec_avx512.h"

#include "base/cpu.h"
#include "kernel/vector.h"
#include "kernel/x86/x86.h"

static bool supported(void)
{
    return cpu_features()->avx512;
}

static bool vnni_supported(void)
{
    return cpu_features()->avx512_vnni;
}

const struct kernels kernels_avx512 = {
    .name = "avx512",
    .supported = supported,
    .matmul = matmul_avx512,
    .spin_int8 = spin_avx512,
    VECTOR_KERNELS,
};

const struct kernels kernels_avx512vnni = {
    .name = "avx512vnni",
    .supported = vnni_supported,
    .matmul = matmul_avx512vnni,
    .spin_int8 = spin_avx512vnni,
    VECTOR_KERNELS,
};
