/*
 * Vectors of 16 lanes as two 256-bit registers. What each operation does is written in
 * vec_generic.h.
 */
#ifndef LINNET_KERNEL_VEC_AVX2_H
#define LINNET_KERNEL_VEC_AVX2_H

#include "quant/half.h"

#include <immintrin.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { ATTN_ACCS = 4 };

typedef struct {
    __m256 lo, hi;
} vf;
typedef struct {
    __m256i lo, hi;
} vi;
typedef vf vm;

#define DEFINE_1(name, to, from, f)                                                                \
    static inline to name(from a)                                                                  \
    {                                                                                              \
        return (to){f(a.lo), f(a.hi)};                                                             \
    }
#define DEFINE_2(name, to, from, f)                                                                \
    static inline to name(from a, from b)                                                          \
    {                                                                                              \
        return (to){f(a.lo, b.lo), f(a.hi, b.hi)};                                                 \
    }

static inline vf v_load(const float *p)
{
    return (vf){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}

static inline vf v_load_n(const float *p, size_t n)
{
    float a[16] = {0};
    memcpy(a, p, n * sizeof *p);
    return v_load(a);
}

static inline void v_store(float *p, vf a)
{
    _mm256_storeu_ps(p, a.lo);
    _mm256_storeu_ps(p + 8, a.hi);
}

static inline void v_store_n(float *p, vf x, size_t n)
{
    float a[16];
    v_store(a, x);
    memcpy(p, a, n * sizeof *p);
}

static inline vf v_set(float x)
{
    return (vf){_mm256_set1_ps(x), _mm256_set1_ps(x)};
}

static inline vi vi_set(int32_t x)
{
    return (vi){_mm256_set1_epi32(x), _mm256_set1_epi32(x)};
}

DEFINE_2(v_add, vf, vf, _mm256_add_ps)
DEFINE_2(v_sub, vf, vf, _mm256_sub_ps)
DEFINE_2(v_mul, vf, vf, _mm256_mul_ps)
DEFINE_2(v_div, vf, vf, _mm256_div_ps)
DEFINE_2(v_max, vf, vf, _mm256_max_ps)
DEFINE_2(v_min, vf, vf, _mm256_min_ps)
#define LESS(a, b) _mm256_cmp_ps(a, b, _CMP_LT_OQ)
DEFINE_2(v_lt, vm, vf, LESS)
#define UNORDERED(a) _mm256_cmp_ps(a, a, _CMP_UNORD_Q)
DEFINE_1(v_is_nan, vm, vf, UNORDERED)

static inline vf v_fma(vf a, vf b, vf c)
{
    return (vf){_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}

static inline vf v_select(vm m, vf a, vf b)
{
    return (vf){_mm256_blendv_ps(b.lo, a.lo, m.lo), _mm256_blendv_ps(b.hi, a.hi, m.hi)};
}

DEFINE_1(v_to_int, vi, vf, _mm256_cvtps_epi32)
DEFINE_1(v_of_int, vf, vi, _mm256_cvtepi32_ps)
DEFINE_1(v_bits, vi, vf, _mm256_castps_si256)
DEFINE_1(v_of_bits, vf, vi, _mm256_castsi256_ps)
DEFINE_2(vi_add, vi, vi, _mm256_add_epi32)
DEFINE_2(vi_sub, vi, vi, _mm256_sub_epi32)
DEFINE_2(vi_and, vi, vi, _mm256_and_si256)
DEFINE_2(vi_or, vi, vi, _mm256_or_si256)
DEFINE_2(vi_xor, vi, vi, _mm256_xor_si256)
DEFINE_2(vi_max, vi, vi, _mm256_max_epi32)

static inline vm vm_first(size_t n)
{
    const __m256i k = _mm256_set1_epi32((int)n);
    const __m256i low = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i high = _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15);
    return v_of_bits((vi){_mm256_cmpgt_epi32(k, low), _mm256_cmpgt_epi32(k, high)});
}

/* Shifts by a number that need not be constant before inlining. */
typedef int32_t s32x8 __attribute__((vector_size(32)));
typedef uint32_t u32x8 __attribute__((vector_size(32)));
typedef uint16_t u16x16 __attribute__((vector_size(32)));

static inline vi vi_shl(vi a, int n)
{
    return (vi){(__m256i)((u32x8)a.lo << n), (__m256i)((u32x8)a.hi << n)};
}

static inline vi vi_shr(vi a, int n)
{
    return (vi){(__m256i)((u32x8)a.lo >> n), (__m256i)((u32x8)a.hi >> n)};
}

static inline vi vi_sar(vi a, int n)
{
    return (vi){(__m256i)((s32x8)a.lo >> n), (__m256i)((s32x8)a.hi >> n)};
}

static inline vi vb_shl(vi a, int n)
{
    return (vi){(__m256i)((u16x16)a.lo << n), (__m256i)((u16x16)a.hi << n)};
}

static inline vi vb_shr(vi a, int n)
{
    return (vi){(__m256i)((u16x16)a.lo >> n), (__m256i)((u16x16)a.hi >> n)};
}

static inline vi vb_set(int x)
{
    return (vi){_mm256_set1_epi8((char)x), _mm256_set1_epi8((char)x)};
}

static inline vi vb_load(const uint8_t *p)
{
    return (vi){_mm256_loadu_si256((const void *)p), _mm256_loadu_si256((const void *)(p + 32))};
}

static inline void vb_store(uint8_t *p, vi a)
{
    _mm256_storeu_si256((void *)p, a.lo);
    _mm256_storeu_si256((void *)(p + 32), a.hi);
}

/* 16 bytes for vb_lookup, and the bytes at indices 0-15 of them. */
static inline vi vb_table(const uint8_t *p)
{
    const __m256i t = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)p));
    return (vi){t, t};
}

static inline vi vb_lookup(vi table, vi index)
{
    return (vi){_mm256_shuffle_epi8(table.lo, index.lo), _mm256_shuffle_epi8(table.hi, index.hi)};
}

/* Byte v / 2 of the lane to all four bytes, then bits 0-3 or 4-7 of it. */
static inline __m256i fifth_bits(__m256i high, int v)
{
    const __m256i lane =
        _mm256_broadcastsi128_si256(_mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c));
    const __m256i byte =
        _mm256_shuffle_epi8(high, _mm256_add_epi8(lane, _mm256_set1_epi8((char)(v / 2))));
    const __m256i bit = _mm256_set1_epi32(v & 1 ? (int)0x80402010 : 0x08040201);
    const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(byte, bit), bit);
    return _mm256_and_si256(set, _mm256_set1_epi8(16));
}

static inline vi vb_fifth_bits(vi high, int v)
{
    return (vi){fifth_bits(high.lo, v), fifth_bits(high.hi, v)};
}

static inline float v_fold_add(vf a)
{
    const __m256 h = _mm256_add_ps(a.lo, a.hi);
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}

static inline float v_fold_max(vf a)
{
    const __m256 h = _mm256_max_ps(a.lo, a.hi);
    __m128 q = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    q = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
}

/* The four folds together: quarters of two registers side by side, then a transposition of four. */
static inline void v_fold_add4(float dst[4], vf a, vf b, vf c, vf d)
{
    const __m256 a8 = _mm256_add_ps(a.lo, a.hi), b8 = _mm256_add_ps(b.lo, b.hi);
    const __m256 c8 = _mm256_add_ps(c.lo, c.hi), d8 = _mm256_add_ps(d.lo, d.hi);
    const __m256 ab =
        _mm256_add_ps(_mm256_permute2f128_ps(a8, b8, 0x20), _mm256_permute2f128_ps(a8, b8, 0x31));
    const __m256 cd =
        _mm256_add_ps(_mm256_permute2f128_ps(c8, d8, 0x20), _mm256_permute2f128_ps(c8, d8, 0x31));
    /* lanes 0 1 of a, 0 1 of c | the same of b and d, plus lanes 2 3 of each */
    __m256 q = _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xee));
    q = _mm256_add_ps(q, _mm256_movehdup_ps(q)); /* a . c . | b . d . */
    const __m128 ac = _mm256_castps256_ps128(q), bd = _mm256_extractf128_ps(q, 1);
    const __m128 r = _mm_shuffle_ps(ac, bd, 0x88); /* a c b d */
    _mm_storeu_ps(dst, _mm_shuffle_ps(r, r, 0xd8));
}

static inline int32_t vi_fold_max(vi a)
{
    const __m256i h = _mm256_max_epi32(a.lo, a.hi);
    __m128i q = _mm_max_epi32(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1));
    q = _mm_max_epi32(q, _mm_shuffle_epi32(q, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(q, _mm_shuffle_epi32(q, 0xb1)));
}

static inline int32_t vi_fold_add(vi a)
{
    const __m256i h = _mm256_add_epi32(a.lo, a.hi);
    __m128i q = _mm_add_epi32(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1));
    q = _mm_add_epi32(q, _mm_shuffle_epi32(q, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(q, _mm_shuffle_epi32(q, 0xb1)));
}

/* The low 16 bits of each lane, in order. */
static inline __m256i low_words(vi a)
{
    const __m256i mask = _mm256_set1_epi32(0xffff);
    const __m256i w =
        _mm256_packus_epi32(_mm256_and_si256(a.lo, mask), _mm256_and_si256(a.hi, mask));
    return _mm256_permute4x64_epi64(w, 0xd8);
}

static inline void vi_store_i8(int8_t *p, vi a)
{
    const __m256i w = _mm256_and_si256(low_words(a), _mm256_set1_epi16(255));
    const __m128i b = _mm_packus_epi16(_mm256_castsi256_si128(w), _mm256_extracti128_si256(w, 1));
    _mm_storeu_si128((void *)p, b);
}

static inline vi vi_load_i8(const int8_t *p)
{
    const __m128i b = _mm_loadu_si128((const void *)p);
    return (vi){_mm256_cvtepi8_epi32(b), _mm256_cvtepi8_epi32(_mm_srli_si128(b, 8))};
}

static inline vi vi_load_u16(const uint16_t *p)
{
    return (vi){_mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)p)),
                _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)(p + 8)))};
}

static inline void vi_store_u16(uint16_t *p, vi a)
{
    _mm256_storeu_si256((void *)p, low_words(a));
}

static inline vf v_load_f16(const uint16_t *p)
{
    return (vf){_mm256_cvtph_ps(_mm_loadu_si128((const void *)p)),
                _mm256_cvtph_ps(_mm_loadu_si128((const void *)(p + 8)))};
}

static inline vf v_low_half(vi a)
{
    const __m256i w = low_words(a);
    return (vf){_mm256_cvtph_ps(_mm256_castsi256_si128(w)),
                _mm256_cvtph_ps(_mm256_extracti128_si256(w, 1))};
}

static inline void v_store_f16(uint16_t *p, vf a)
{
    _mm_storeu_si128((void *)p, _mm256_cvtps_ph(a.lo, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128((void *)(p + 8), _mm256_cvtps_ph(a.hi, _MM_FROUND_TO_NEAREST_INT));
}

DEFINE_1(v_dup_even, vf, vf, _mm256_moveldup_ps)
DEFINE_1(v_dup_odd, vf, vf, _mm256_movehdup_ps)

static inline vf v_zip_low(vf a, vf b)
{
    const __m256 even = _mm256_unpacklo_ps(a.lo, b.lo), odd = _mm256_unpackhi_ps(a.lo, b.lo);
    return (vf){_mm256_permute2f128_ps(even, odd, 0x20), _mm256_permute2f128_ps(even, odd, 0x31)};
}

#undef DEFINE_1
#undef DEFINE_2
#undef LESS
#undef UNORDERED

#endif
