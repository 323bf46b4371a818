/*
 * Products of bytes for product.h from a dot4(sum, w, x), which adds four exact products of signed
 * bytes to each of four lanes.
 */
#ifndef LINNET_KERNEL_DOT4_H
#define LINNET_KERNEL_DOT4_H

typedef int8x16_t x4;

static inline x4 x4_set(int32_t bytes)
{
    return vreinterpretq_s8_s32(vdupq_n_s32(bytes));
}

static inline vi dot_bytes(vi sum, vi w, x4 v)
{
    return (vi){{dot4(sum.v[0], w.v[0], v), dot4(sum.v[1], w.v[1], v), dot4(sum.v[2], w.v[2], v),
                 dot4(sum.v[3], w.v[3], v)}};
}

#endif
