/*
 * The aarch64 tables: with and without the dot product extension they differ only in the matrix
 * product.
 */
#include "kernel/arm/vec_neon.h"

#include "base/cpu.h"
#include "kernel/arm/arm.h"
#include "kernel/vector.h"

static bool supported(void)
{
    return cpu_features()->neon;
}

static bool dotprod_supported(void)
{
    return cpu_features()->dotprod;
}

const struct kernels kernels_neon = {
    .name = "neon",
    .supported = supported,
    .matmul = matmul_neon,
    .spin_int8 = spin_neon,
    VECTOR_KERNELS,
};

const struct kernels kernels_dotprod = {
    .name = "dotprod",
    .supported = dotprod_supported,
    .matmul = matmul_dotprod,
    .spin_int8 = spin_dotprod,
    VECTOR_KERNELS,
};
