/*
 * The products of the aarch64 tables, which live in files of their own.
 */
#ifndef LINNET_KERNEL_ARM_H
#define LINNET_KERNEL_ARM_H

#include "kernel/tile.h"

void matmul_neon(const struct matmul *job, size_t tile0, size_t tile1, void *scratch);
void matmul_dotprod(const struct matmul *job, size_t tile0, size_t tile1, void *scratch);

/* Their spin_int8. */
uint64_t spin_neon(uint64_t rounds);
uint64_t spin_dotprod(uint64_t rounds);

#endif
