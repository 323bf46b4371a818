/*
 * What the measuring programs share: a clock, and memory to measure in.
 */
#ifndef LINNET_BENCH_TIMING_H
#define LINNET_BENCH_TIMING_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

/* One thread is measured in processor time, which a busy machine disturbs less. */
static clockid_t clock_id = CLOCK_MONOTONIC;

static double now(void)
{
    struct timespec t;
    clock_gettime(clock_id, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* In huge pages where there are any: prefetchers stop at the end of a page, and with small ones a
 * core reads little more than half as fast. */
static void *take(size_t n)
{
    n = (n + (1 << 21) - 1) >> 21 << 21;
    void *p = aligned_alloc(1 << 21, n);
    if (!p) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    madvise(p, n, MADV_HUGEPAGE);
    memset(p, 0, n);
    return p;
}

#endif
