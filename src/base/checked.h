/*
 * Checked size arithmetic: every size that comes from a file or a caller is computed with these.
 * Each returns true when the result fits, and writes *out only then.
 */
#ifndef LINNET_BASE_CHECKED_H
#define LINNET_BASE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool size_add(size_t a, size_t b, size_t *out)
{
    size_t r;
    if (__builtin_add_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

static inline bool size_mul(size_t a, size_t b, size_t *out)
{
    size_t r;
    if (__builtin_mul_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

static inline bool u64_add(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t r;
    if (__builtin_add_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

static inline bool u64_mul(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t r;
    if (__builtin_mul_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

/* Round `n` up to a multiple of `align`, a power of two. */
static inline bool size_align(size_t n, size_t align, size_t *out)
{
    size_t r;
    if (__builtin_add_overflow(n, align - 1, &r))
        return false;
    *out = r & ~(align - 1);
    return true;
}

#endif
