/*
 * The limits of this machine, measured: what a speed is to be judged by.
 */
#ifndef LINNET_KERNEL_PROBE_H
#define LINNET_KERNEL_PROBE_H

#include "base/pool.h"
#include "kernel/kernel.h"

struct probe {
    double read; /* bytes per second from memory, all threads of the pool together */
    double int8; /* operations per second of the table's dot products of bytes; a multiply-add is
                    two */
    double f32;  /* the same of float multiply-adds */
};

/* Measure with this pool and table for about a fifth of a second, and raise each figure of *best to
 * what was reached. A limit is the best of several tries: everything else that a machine does can
 * only lower them. */
linnet_status probe_machine(struct pool *pool, const struct kernels *k, struct probe *best,
                            linnet_error *e);

#endif
