/*
 * What the kernel tests share: random data, float comparison, guarded buffers and the loop over
 * tables.
 */
#ifndef LINNET_KERNEL_TEST_H
#define LINNET_KERNEL_TEST_H

#include "test.h"

#include "kernel/kernel.h"

#include <math.h>

static uint64_t rng_state = 0x9e3779b97f4a7c15u;

static inline uint32_t rng(void)
{
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return (uint32_t)(rng_state >> 32);
}

static inline size_t rng_below(size_t n)
{
    return rng() % n;
}

/* uniform in [-1, 1) */
static inline float rng_float(void)
{
    return (float)(int32_t)rng() * 0x1p-31f;
}

static inline void *alloc64(size_t n)
{
    void *p = aligned_alloc(64, (n + 63) / 64 * 64 + 64);
    assert_non_null(p);
    return p;
}

/* The same bits, or both NaN: which NaN is not part of the contract. */
static inline bool same_float(float a, float b)
{
    return (a != a && b != b) || memcmp(&a, &b, sizeof a) == 0;
}

static inline void assert_same_floats(const float *got, const float *want, size_t n,
                                      const char *what)
{
    for (size_t i = 0; i < n; i++)
        if (!same_float(got[i], want[i]))
            fail_msg("%s: [%zu] is %a, not %a", what, i, (double)got[i], (double)want[i]);
}

/* Distance of `got` from `want` in units of the last place of `want` as a normal float. */
static inline double ulps(float got, double want)
{
    if (got != got || want != want)
        return got != got && want != want ? 0 : INFINITY;
    if ((double)got == want || (float)want == got)
        return 0;
    int e;
    frexp(want, &e);
    e = e < -125 ? -125 : e;
    return fabs((double)got - want) / ldexp(1.0, e - 24);
}

/* Each table that runs here, best first; the last one is generic. */
#define FOR_TABLES(t)                                                                              \
    for (size_t i_##t = 0; i_##t < kernels_count(); i_##t++)                                       \
        for (const struct kernels *t = kernels_at(i_##t)->supported() ? kernels_at(i_##t) : NULL;  \
             t; t = NULL)

#define GENERIC kernels_named("generic")

#endif
