/*
 * The AVX2 table.
 */
#include "kernel/x86/vec_avx2.h"

#include "base/cpu.h"
#include "kernel/vector.h"
#include "kernel/x86/x86.h"

static bool supported(void)
{
    return cpu_features()->avx2;
}

const struct kernels kernels_avx2 = {
    .name = "avx2",
    .supported = supported,
    .matmul = matmul_avx2,
    .spin_int8 = spin_avx2,
    VECTOR_KERNELS,
};
