/*
 * The products of the x86 tables, which live in files of their own.
 */
#ifndef LINNET_KERNEL_X86_H
#define LINNET_KERNEL_X86_H

#include "kernel/tile.h"

void matmul_avx2(const struct matmul *job, size_t tile0, size_t tile1, void *scratch);
void matmul_avx512(const struct matmul *job, size_t tile0, size_t tile1, void *scratch);
void matmul_avx512vnni(const struct matmul *job, size_t tile0, size_t tile1, void *scratch);

/* Their spin_int8. */
uint64_t spin_avx2(uint64_t rounds);
uint64_t spin_avx512(uint64_t rounds);
uint64_t spin_avx512vnni(uint64_t rounds);

#endif
