/*
 * Vectors of 16 lanes in plain C: the reference for the vector operations that vector.h is written
 * in. Every instruction set has a header with the same names; what each does to one lane is written
 * here.
 */
#ifndef LINNET_KERNEL_VEC_GENERIC_H
#define LINNET_KERNEL_VEC_GENERIC_H

#include "quant/half.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { ATTN_ACCS = 4 }; /* sums that attention keeps in registers */

typedef struct {
    float v[16];
} vf;
typedef struct {
    int32_t v[16];
} vi;
typedef vi vm; /* lanes are 0 or -1 */

#define LANE_LOOP for (int l = 0; l < 16; l++)
#define DEFINE_1(name, to, from, expr)                                                             \
    static inline to name(from a)                                                                  \
    {                                                                                              \
        to r;                                                                                      \
        LANE_LOOP r.v[l] = expr;                                                                   \
        return r;                                                                                  \
    }
#define DEFINE_2(name, to, from, expr)                                                             \
    static inline to name(from a, from b)                                                          \
    {                                                                                              \
        to r;                                                                                      \
        LANE_LOOP r.v[l] = expr;                                                                   \
        return r;                                                                                  \
    }

static inline vf v_load(const float *p)
{
    vf r;
    memcpy(&r, p, sizeof r);
    return r;
}

/* The first n < 16 lanes; the others are 0. Nothing after them is read. */
static inline vf v_load_n(const float *p, size_t n)
{
    vf r = {{0}};
    memcpy(&r, p, n * sizeof(float));
    return r;
}

static inline void v_store(float *p, vf a)
{
    memcpy(p, &a, sizeof a);
}

static inline void v_store_n(float *p, vf a, size_t n)
{
    memcpy(p, &a, n * sizeof(float));
}

static inline vf v_set(float x)
{
    vf r;
    LANE_LOOP r.v[l] = x;
    return r;
}

static inline vi vi_set(int32_t x)
{
    vi r;
    LANE_LOOP r.v[l] = x;
    return r;
}

DEFINE_2(v_add, vf, vf, a.v[l] + b.v[l])
DEFINE_2(v_sub, vf, vf, a.v[l] - b.v[l])
DEFINE_2(v_mul, vf, vf, a.v[l] * b.v[l])
DEFINE_2(v_div, vf, vf, a.v[l] / b.v[l])
/* When a lane is a NaN, or both are zeros, the second operand: as the x86 instructions. */
DEFINE_2(v_max, vf, vf, a.v[l] > b.v[l] ? a.v[l] : b.v[l])
DEFINE_2(v_min, vf, vf, a.v[l] < b.v[l] ? a.v[l] : b.v[l])
DEFINE_2(v_lt, vm, vf, a.v[l] < b.v[l] ? -1 : 0) /* false for NaN */

DEFINE_1(v_is_nan, vm, vf, a.v[l] != a.v[l] ? -1 : 0)

static inline vf v_fma(vf a, vf b, vf c)
{
    vf r;
    LANE_LOOP r.v[l] = fmaf(a.v[l], b.v[l], c.v[l]);
    return r;
}

/* m ? a : b */
static inline vf v_select(vm m, vf a, vf b)
{
    vf r;
    LANE_LOOP r.v[l] = m.v[l] ? a.v[l] : b.v[l];
    return r;
}

/* Lanes l < n are true. */
static inline vm vm_first(size_t n)
{
    vm r;
    LANE_LOOP r.v[l] = (size_t)l < n ? -1 : 0;
    return r;
}

/* Round to nearest even. Out of range and NaN: any value. */
DEFINE_1(v_to_int, vi, vf, (int32_t)lrintf(a.v[l]))
DEFINE_1(v_of_int, vf, vi, (float)a.v[l])
DEFINE_1(v_bits, vi, vf, (int32_t)f32_bits(a.v[l]))
DEFINE_1(v_of_bits, vf, vi, f32_of_bits((uint32_t)a.v[l]))

/* Integers wrap. */
DEFINE_2(vi_add, vi, vi, (int32_t)((uint32_t)a.v[l] + (uint32_t)b.v[l]))
DEFINE_2(vi_sub, vi, vi, (int32_t)((uint32_t)a.v[l] - (uint32_t)b.v[l]))
DEFINE_2(vi_and, vi, vi, a.v[l] & b.v[l])
DEFINE_2(vi_or, vi, vi, a.v[l] | b.v[l])
DEFINE_2(vi_max, vi, vi, a.v[l] > b.v[l] ? a.v[l] : b.v[l])
#define vi_shl(a, n) vi_shl_(a, n)
#define vi_shr(a, n) vi_shr_(a, n) /* zeros come in */
#define vi_sar(a, n) vi_sar_(a, n) /* the sign comes in */
static inline vi vi_shl_(vi a, int n)
{
    LANE_LOOP a.v[l] = (int32_t)((uint32_t)a.v[l] << n);
    return a;
}
static inline vi vi_shr_(vi a, int n)
{
    LANE_LOOP a.v[l] = (int32_t)((uint32_t)a.v[l] >> n);
    return a;
}
static inline vi vi_sar_(vi a, int n)
{
    LANE_LOOP a.v[l] = a.v[l] >> n;
    return a;
}

/* Folds by halves: l with l + 8, l + 4, l + 2, l + 1. */
static inline float v_fold_add(vf a)
{
    for (int half = 8; half >= 1; half /= 2)
        for (int l = 0; l < half; l++)
            a.v[l] = a.v[l] + a.v[l + half];
    return a.v[0];
}

static inline float v_fold_max(vf a)
{
    for (int half = 8; half >= 1; half /= 2)
        for (int l = 0; l < half; l++)
            a.v[l] = a.v[l] > a.v[l + half] ? a.v[l] : a.v[l + half];
    return a.v[0];
}

static inline void v_fold_add4(float dst[4], vf a, vf b, vf c, vf d)
{
    dst[0] = v_fold_add(a);
    dst[1] = v_fold_add(b);
    dst[2] = v_fold_add(c);
    dst[3] = v_fold_add(d);
}

static inline int32_t vi_fold_max(vi a)
{
    int32_t m = a.v[0];
    LANE_LOOP m = a.v[l] > m ? a.v[l] : m;
    return m;
}

static inline int32_t vi_fold_add(vi a)
{
    int32_t s = 0;
    LANE_LOOP s += a.v[l];
    return s;
}

/* The low bytes of the lanes. */
static inline void vi_store_i8(int8_t *p, vi a)
{
    LANE_LOOP p[l] = (int8_t)a.v[l];
}

static inline vi vi_load_i8(const int8_t *p)
{
    vi r;
    LANE_LOOP r.v[l] = p[l];
    return r;
}

static inline vi vi_load_u16(const uint16_t *p)
{
    vi r;
    LANE_LOOP r.v[l] = p[l];
    return r;
}

static inline void vi_store_u16(uint16_t *p, vi a)
{
    LANE_LOOP p[l] = (uint16_t)a.v[l];
}

static inline vf v_load_f16(const uint16_t *p)
{
    vf r;
    LANE_LOOP r.v[l] = half_to_f32(p[l]);
    return r;
}

static inline void v_store_f16(uint16_t *p, vf a)
{
    LANE_LOOP p[l] = half_of_f32(a.v[l]);
}

/* Lanes 0 0 2 2 4 4 ..., and 1 1 3 3 5 5 ... */
DEFINE_1(v_dup_even, vf, vf, a.v[l & ~1])
DEFINE_1(v_dup_odd, vf, vf, a.v[l | 1])
/* Lanes a0 b0 a1 b1 ... a7 b7 */
DEFINE_2(v_zip_low, vf, vf, l & 1 ? b.v[l / 2] : a.v[l / 2])

#undef DEFINE_1
#undef DEFINE_2
#undef LANE_LOOP

#endif
