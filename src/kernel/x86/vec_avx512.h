/*
 * Vectors of 16 lanes as one 512-bit register. What each operation does is written in
 * vec_generic.h.
 */
#ifndef LINNET_KERNEL_VEC_AVX512_H
#define LINNET_KERNEL_VEC_AVX512_H

#include "quant/half.h"

#include <immintrin.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>

#if defined(LINNET_SANITIZED)
enum { ATTN_ACCS = 4 }; /* the code for 16 takes a quarter of an hour to compile */
#else
enum { ATTN_ACCS = 16 };
#endif

typedef __m512 vf;
typedef __m512i vi;
typedef __mmask16 vm;

static inline vm vm_first(size_t n)
{
    return (vm)((1u << n) - 1);
}

static inline vf v_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

static inline vf v_load_n(const float *p, size_t n)
{
    return _mm512_maskz_loadu_ps(vm_first(n), p);
}

static inline void v_store(float *p, vf a)
{
    _mm512_storeu_ps(p, a);
}

static inline void v_store_n(float *p, vf a, size_t n)
{
    _mm512_mask_storeu_ps(p, vm_first(n), a);
}

static inline vf v_set(float x)
{
    return _mm512_set1_ps(x);
}

static inline vi vi_set(int32_t x)
{
    return _mm512_set1_epi32(x);
}

static inline vf v_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}

static inline vf v_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}

static inline vf v_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}

static inline vf v_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}

static inline vf v_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}

static inline vf v_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}

static inline vf v_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}

static inline vm v_lt(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}

static inline vm v_is_nan(vf a)
{
    return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
}

static inline vf v_select(vm m, vf a, vf b)
{
    return _mm512_mask_blend_ps(m, b, a);
}

static inline vi v_to_int(vf a)
{
    return _mm512_cvtps_epi32(a);
}

static inline vf v_of_int(vi a)
{
    return _mm512_cvtepi32_ps(a);
}

static inline vi v_bits(vf a)
{
    return _mm512_castps_si512(a);
}

static inline vf v_of_bits(vi a)
{
    return _mm512_castsi512_ps(a);
}

static inline vi vi_add(vi a, vi b)
{
    return _mm512_add_epi32(a, b);
}

static inline vi vi_sub(vi a, vi b)
{
    return _mm512_sub_epi32(a, b);
}

static inline vi vi_and(vi a, vi b)
{
    return _mm512_and_si512(a, b);
}

static inline vi vi_or(vi a, vi b)
{
    return _mm512_or_si512(a, b);
}

static inline vi vi_max(vi a, vi b)
{
    return _mm512_max_epi32(a, b);
}

static inline vi vi_xor(vi a, vi b)
{
    return _mm512_xor_si512(a, b);
}

/* Shifts by a number that need not be constant before inlining. */
typedef int32_t s32x16 __attribute__((vector_size(64)));
typedef uint32_t u32x16 __attribute__((vector_size(64)));
typedef uint16_t u16x32 __attribute__((vector_size(64)));

static inline vi vi_shl(vi a, int n)
{
    return (vi)((u32x16)a << n);
}

static inline vi vi_shr(vi a, int n)
{
    return (vi)((u32x16)a >> n);
}

static inline vi vi_sar(vi a, int n)
{
    return (vi)((s32x16)a >> n);
}

static inline vi vb_shl(vi a, int n)
{
    return (vi)((u16x32)a << n);
}

static inline vi vb_shr(vi a, int n)
{
    return (vi)((u16x32)a >> n);
}

static inline vi vb_set(int x)
{
    return _mm512_set1_epi8((char)x);
}

static inline vi vb_load(const uint8_t *p)
{
    return _mm512_loadu_si512((const void *)p);
}

static inline void vb_store(uint8_t *p, vi a)
{
    _mm512_storeu_si512((void *)p, a);
}

/* 16 bytes for vb_lookup, and the bytes at indices 0-15 of them. */
static inline vi vb_table(const uint8_t *p)
{
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)p));
}

static inline vi vb_lookup(vi table, vi index)
{
    return _mm512_shuffle_epi8(table, index);
}

/* Byte v / 2 of the lane to all four bytes, then bits 0-3 or 4-7 of it. */
static inline vi vb_fifth_bits(vi high, int v)
{
    const vi lane = _mm512_broadcast_i32x4(_mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c));
    const vi byte = _mm512_shuffle_epi8(high, _mm512_add_epi8(lane, vb_set(v / 2)));
    const vi bit = _mm512_set1_epi32(v & 1 ? (int)0x80402010 : 0x08040201);
    return _mm512_maskz_mov_epi8(_mm512_test_epi8_mask(byte, bit), vb_set(16));
}

static inline float v_fold_add(vf a)
{
    const __m256 h = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}

static inline float v_fold_max(vf a)
{
    const __m256 h = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 q = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    q = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
}

/* The four folds together: halves of two registers side by side, then quarters of four. */
static inline void v_fold_add4(float dst[4], vf a, vf b, vf c, vf d)
{
    const vf ab = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
    const vf cd = _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xee));
    vf q = _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
    q = _mm512_add_ps(q, _mm512_permute_ps(q, 0x4e));
    q = _mm512_add_ps(q, _mm512_permute_ps(q, 0xb1));
    const vi first = _mm512_setr_epi32(0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12);
    _mm_storeu_ps(dst, _mm512_castps512_ps128(_mm512_permutexvar_ps(first, q)));
}

static inline int32_t vi_fold_max(vi a)
{
    return _mm512_reduce_max_epi32(a);
}

static inline int32_t vi_fold_add(vi a)
{
    return _mm512_reduce_add_epi32(a);
}

static inline void vi_store_i8(int8_t *p, vi a)
{
    _mm_storeu_si128((__m128i *)(void *)p, _mm512_cvtepi32_epi8(a));
}

static inline vi vi_load_i8(const int8_t *p)
{
    return _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}

static inline vi vi_load_u16(const uint16_t *p)
{
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

static inline void vi_store_u16(uint16_t *p, vi a)
{
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtepi32_epi16(a));
}

static inline vf v_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

static inline vf v_low_half(vi a)
{
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(a));
}

static inline void v_store_f16(uint16_t *p, vf a)
{
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}

static inline vf v_dup_even(vf a)
{
    return _mm512_moveldup_ps(a);
}

static inline vf v_dup_odd(vf a)
{
    return _mm512_movehdup_ps(a);
}

static inline vf v_zip_low(vf a, vf b)
{
    const vi order = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    return _mm512_permutex2var_ps(a, order, b);
}

#endif
