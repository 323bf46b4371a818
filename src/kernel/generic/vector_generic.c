/*
 * The plain C table: it runs on every machine, and the others must give its bits.
 */
#include "kernel/generic/generic.h"
#include "kernel/generic/vec_generic.h"
#include "kernel/vector.h"

static bool supported(void)
{
    return true;
}

const struct kernels kernels_generic = {
    .name = "generic",
    .supported = supported,
    .matmul = matmul_generic,
    .spin_int8 = spin_generic,
    VECTOR_KERNELS,
};
