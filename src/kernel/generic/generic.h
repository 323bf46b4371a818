/*
 * The plain C table's product, which lives in a file of its own.
 */
#ifndef LINNET_KERNEL_GENERIC_H
#define LINNET_KERNEL_GENERIC_H

#include "kernel/tile.h"

void matmul_generic(const struct matmul *job, size_t tile0, size_t tile1, void *scratch);
uint64_t spin_generic(uint64_t rounds);

#endif
