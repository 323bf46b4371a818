/*
 * Vectors of 16 lanes as four 128-bit registers. What each operation does is written in
 * vec_generic.h.
 */
#ifndef LINNET_KERNEL_VEC_NEON_H
#define LINNET_KERNEL_VEC_NEON_H

#include "quant/half.h"

#include <arm_neon.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { ATTN_ACCS = 4 };

typedef struct {
    float32x4_t v[4];
} vf;
typedef struct {
    int32x4_t v[4];
} vi;
typedef struct {
    uint32x4_t v[4];
} vm;

#define DEFINE_1(name, to, from, f)                                                                \
    static inline to name(from a)                                                                  \
    {                                                                                              \
        return (to){{f(a.v[0]), f(a.v[1]), f(a.v[2]), f(a.v[3])}};                                 \
    }
#define DEFINE_2(name, to, from, f)                                                                \
    static inline to name(from a, from b)                                                          \
    {                                                                                              \
        return (to){{f(a.v[0], b.v[0]), f(a.v[1], b.v[1]), f(a.v[2], b.v[2]), f(a.v[3], b.v[3])}}; \
    }
#define DEFINE_3(name, to, f)                                                                      \
    static inline to name(to a, to b, to c)                                                        \
    {                                                                                              \
        return (to){{f(a.v[0], b.v[0], c.v[0]), f(a.v[1], b.v[1], c.v[1]),                         \
                     f(a.v[2], b.v[2], c.v[2]), f(a.v[3], b.v[3], c.v[3])}};                       \
    }
#define DEFINE_SHIFT(name, lanes)                                                                  \
    static inline vi name(vi a, int n)                                                             \
    {                                                                                              \
        return (vi){{(int32x4_t)SHIFT((lanes)a.v[0], n), (int32x4_t)SHIFT((lanes)a.v[1], n),       \
                     (int32x4_t)SHIFT((lanes)a.v[2], n), (int32x4_t)SHIFT((lanes)a.v[3], n)}};     \
    }

static inline vf v_load(const float *p)
{
    return (vf){{vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)}};
}

static inline vf v_load_n(const float *p, size_t n)
{
    float a[16] = {0};
    memcpy(a, p, n * sizeof *p);
    return v_load(a);
}

static inline void v_store(float *p, vf a)
{
    vst1q_f32(p, a.v[0]);
    vst1q_f32(p + 4, a.v[1]);
    vst1q_f32(p + 8, a.v[2]);
    vst1q_f32(p + 12, a.v[3]);
}

static inline void v_store_n(float *p, vf x, size_t n)
{
    float a[16];
    v_store(a, x);
    memcpy(p, a, n * sizeof *p);
}

static inline vf v_set(float x)
{
    const float32x4_t a = vdupq_n_f32(x);
    return (vf){{a, a, a, a}};
}

static inline vi vi_set(int32_t x)
{
    const int32x4_t a = vdupq_n_s32(x);
    return (vi){{a, a, a, a}};
}

DEFINE_2(v_add, vf, vf, vaddq_f32)
DEFINE_2(v_sub, vf, vf, vsubq_f32)
DEFINE_2(v_mul, vf, vf, vmulq_f32)
DEFINE_2(v_div, vf, vf, vdivq_f32)
#define FMA(a, b, c) vfmaq_f32(c, a, b)
DEFINE_3(v_fma, vf, FMA)
#define MAX(a, b) vbslq_f32(vcgtq_f32(a, b), a, b)
#define MIN(a, b) vbslq_f32(vcltq_f32(a, b), a, b)
DEFINE_2(v_max, vf, vf, MAX)
DEFINE_2(v_min, vf, vf, MIN)
DEFINE_2(v_lt, vm, vf, vcltq_f32)
#define UNORDERED(a) vmvnq_u32(vceqq_f32(a, a))
DEFINE_1(v_is_nan, vm, vf, UNORDERED)

static inline vf v_select(vm m, vf a, vf b)
{
    return (vf){{vbslq_f32(m.v[0], a.v[0], b.v[0]), vbslq_f32(m.v[1], a.v[1], b.v[1]),
                 vbslq_f32(m.v[2], a.v[2], b.v[2]), vbslq_f32(m.v[3], a.v[3], b.v[3])}};
}

static inline vm vm_first(size_t n)
{
    static const uint32_t lanes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const uint32x4_t k = vdupq_n_u32((uint32_t)n);
    return (vm){{vcltq_u32(vld1q_u32(lanes), k), vcltq_u32(vld1q_u32(lanes + 4), k),
                 vcltq_u32(vld1q_u32(lanes + 8), k), vcltq_u32(vld1q_u32(lanes + 12), k)}};
}

DEFINE_1(v_to_int, vi, vf, vcvtnq_s32_f32)
DEFINE_1(v_of_int, vf, vi, vcvtq_f32_s32)
DEFINE_1(v_bits, vi, vf, vreinterpretq_s32_f32)
DEFINE_1(v_of_bits, vf, vi, vreinterpretq_f32_s32)
DEFINE_2(vi_add, vi, vi, vaddq_s32)
DEFINE_2(vi_sub, vi, vi, vsubq_s32)
DEFINE_2(vi_and, vi, vi, vandq_s32)
DEFINE_2(vi_or, vi, vi, vorrq_s32)
DEFINE_2(vi_xor, vi, vi, veorq_s32)
DEFINE_2(vi_max, vi, vi, vmaxq_s32)

#define SHIFT(a, n) ((a) << (n))
DEFINE_SHIFT(vi_shl, uint32x4_t)
DEFINE_SHIFT(vb_shl, uint16x8_t)
#undef SHIFT
#define SHIFT(a, n) ((a) >> (n))
DEFINE_SHIFT(vi_shr, uint32x4_t)
DEFINE_SHIFT(vi_sar, int32x4_t)
DEFINE_SHIFT(vb_shr, uint16x8_t)
#undef SHIFT

static inline vi vb_set(int x)
{
    const int32x4_t a = vreinterpretq_s32_u8(vdupq_n_u8((uint8_t)x));
    return (vi){{a, a, a, a}};
}

static inline vi vb_load(const uint8_t *p)
{
    return (vi){{vreinterpretq_s32_u8(vld1q_u8(p)), vreinterpretq_s32_u8(vld1q_u8(p + 16)),
                 vreinterpretq_s32_u8(vld1q_u8(p + 32)), vreinterpretq_s32_u8(vld1q_u8(p + 48))}};
}

static inline void vb_store(uint8_t *p, vi a)
{
    vst1q_u8(p, vreinterpretq_u8_s32(a.v[0]));
    vst1q_u8(p + 16, vreinterpretq_u8_s32(a.v[1]));
    vst1q_u8(p + 32, vreinterpretq_u8_s32(a.v[2]));
    vst1q_u8(p + 48, vreinterpretq_u8_s32(a.v[3]));
}

/* 16 bytes for vb_lookup, and the bytes at indices 0-15 of them. */
static inline vi vb_table(const uint8_t *p)
{
    const int32x4_t t = vreinterpretq_s32_u8(vld1q_u8(p));
    return (vi){{t, t, t, t}};
}

static inline int32x4_t lookup(int32x4_t table, int32x4_t index)
{
    return vreinterpretq_s32_u8(
        vqtbl1q_u8(vreinterpretq_u8_s32(table), vreinterpretq_u8_s32(index)));
}

static inline vi vb_lookup(vi table, vi a)
{
    return (vi){{lookup(table.v[0], a.v[0]), lookup(table.v[1], a.v[1]), lookup(table.v[2], a.v[2]),
                 lookup(table.v[3], a.v[3])}};
}

/* Byte v / 2 of the lane to all four bytes, then bits 0-3 or 4-7 of it. */
static inline int32x4_t fifth_bits(int32x4_t high, int v)
{
    static const uint8_t lanes[16] = {0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12};
    const uint8x16_t from = vaddq_u8(vld1q_u8(lanes), vdupq_n_u8((uint8_t)(v / 2)));
    const uint8x16_t byte = vqtbl1q_u8(vreinterpretq_u8_s32(high), from);
    const uint8x16_t bit = vreinterpretq_u8_u32(vdupq_n_u32(v & 1 ? 0x80402010u : 0x08040201u));
    return vreinterpretq_s32_u8(vandq_u8(vtstq_u8(byte, bit), vdupq_n_u8(16)));
}

static inline vi vb_fifth_bits(vi a, int v)
{
    return (vi){{fifth_bits(a.v[0], v), fifth_bits(a.v[1], v), fifth_bits(a.v[2], v),
                 fifth_bits(a.v[3], v)}};
}

static inline float v_fold_add(vf a)
{
    const float32x4_t q = vaddq_f32(vaddq_f32(a.v[0], a.v[2]), vaddq_f32(a.v[1], a.v[3]));
    const float32x2_t d = vadd_f32(vget_low_f32(q), vget_high_f32(q));
    return vget_lane_f32(d, 0) + vget_lane_f32(d, 1);
}

static inline float v_fold_max(vf a)
{
    const float32x4_t x = MAX(a.v[0], a.v[2]), y = MAX(a.v[1], a.v[3]), q = MAX(x, y);
    const float32x2_t low = vget_low_f32(q), high = vget_high_f32(q);
    const float32x2_t d = vbsl_f32(vcgt_f32(low, high), low, high);
    const float m = vget_lane_f32(d, 0), n = vget_lane_f32(d, 1);
    return m > n ? m : n;
}

/* The four folds together, by pairs. */
static inline void v_fold_add4(float dst[4], vf a, vf b, vf c, vf d)
{
    const float32x4_t a4 = vaddq_f32(vaddq_f32(a.v[0], a.v[2]), vaddq_f32(a.v[1], a.v[3]));
    const float32x4_t b4 = vaddq_f32(vaddq_f32(b.v[0], b.v[2]), vaddq_f32(b.v[1], b.v[3]));
    const float32x4_t c4 = vaddq_f32(vaddq_f32(c.v[0], c.v[2]), vaddq_f32(c.v[1], c.v[3]));
    const float32x4_t d4 = vaddq_f32(vaddq_f32(d.v[0], d.v[2]), vaddq_f32(d.v[1], d.v[3]));
    const float32x4_t ab = vcombine_f32(vadd_f32(vget_low_f32(a4), vget_high_f32(a4)),
                                        vadd_f32(vget_low_f32(b4), vget_high_f32(b4)));
    const float32x4_t cd = vcombine_f32(vadd_f32(vget_low_f32(c4), vget_high_f32(c4)),
                                        vadd_f32(vget_low_f32(d4), vget_high_f32(d4)));
    vst1q_f32(dst, vpaddq_f32(ab, cd));
}

static inline int32_t vi_fold_max(vi a)
{
    return vmaxvq_s32(vmaxq_s32(vmaxq_s32(a.v[0], a.v[1]), vmaxq_s32(a.v[2], a.v[3])));
}

static inline int32_t vi_fold_add(vi a)
{
    return vaddvq_s32(vaddq_s32(vaddq_s32(a.v[0], a.v[1]), vaddq_s32(a.v[2], a.v[3])));
}

/* The low 16 bits of lanes 0-7 or 8-15. */
static inline int16x8_t low_words(vi a, int half)
{
    return vcombine_s16(vmovn_s32(a.v[2 * half]), vmovn_s32(a.v[2 * half + 1]));
}

static inline void vi_store_i8(int8_t *p, vi a)
{
    vst1q_s8(p, vcombine_s8(vmovn_s16(low_words(a, 0)), vmovn_s16(low_words(a, 1))));
}

static inline vi vi_load_i8(const int8_t *p)
{
    const int8x16_t b = vld1q_s8(p);
    const int16x8_t low = vmovl_s8(vget_low_s8(b)), high = vmovl_s8(vget_high_s8(b));
    return (vi){{vmovl_s16(vget_low_s16(low)), vmovl_s16(vget_high_s16(low)),
                 vmovl_s16(vget_low_s16(high)), vmovl_s16(vget_high_s16(high))}};
}

static inline int32x4_t load_u16x4(const uint16_t *p)
{
    return vreinterpretq_s32_u32(vmovl_u16(vld1_u16(p)));
}

static inline vi vi_load_u16(const uint16_t *p)
{
    return (vi){{load_u16x4(p), load_u16x4(p + 4), load_u16x4(p + 8), load_u16x4(p + 12)}};
}

static inline void vi_store_u16(uint16_t *p, vi a)
{
    vst1q_u16(p, vreinterpretq_u16_s16(low_words(a, 0)));
    vst1q_u16(p + 8, vreinterpretq_u16_s16(low_words(a, 1)));
}

static inline float32x4_t half4(uint16x4_t a)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(a));
}

static inline vf v_load_f16(const uint16_t *p)
{
    return (vf){{half4(vld1_u16(p)), half4(vld1_u16(p + 4)), half4(vld1_u16(p + 8)),
                 half4(vld1_u16(p + 12))}};
}

static inline float32x4_t low_half4(int32x4_t a)
{
    return half4(vmovn_u32(vreinterpretq_u32_s32(a)));
}

DEFINE_1(v_low_half, vf, vi, low_half4)

static inline void v_store_f16(uint16_t *p, vf a)
{
    for (int i = 0; i < 4; i++)
        vst1_u16(p + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(a.v[i])));
}

#define DUP_EVEN(a) vtrn1q_f32(a, a)
#define DUP_ODD(a)  vtrn2q_f32(a, a)
DEFINE_1(v_dup_even, vf, vf, DUP_EVEN)
DEFINE_1(v_dup_odd, vf, vf, DUP_ODD)

static inline vf v_zip_low(vf a, vf b)
{
    return (vf){{vzip1q_f32(a.v[0], b.v[0]), vzip2q_f32(a.v[0], b.v[0]), vzip1q_f32(a.v[1], b.v[1]),
                 vzip2q_f32(a.v[1], b.v[1])}};
}

#undef DEFINE_1
#undef DEFINE_2
#undef DEFINE_3
#undef DEFINE_SHIFT
#undef FMA
#undef MAX
#undef MIN
#undef UNORDERED
#undef DUP_EVEN
#undef DUP_ODD

#endif
