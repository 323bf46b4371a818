/*
 * Weight formats: one descriptor per ggml type, found by id or name. Nothing else in the tree
 * switches on a type.
 *
 * Every block-quantised type is, to the arithmetic, the same thing: int8 values in groups of 16 or
 * 32, each group with a float scale and (some types) a float minimum:
 *
 *     value[i] = scale[g] * q[i] - min[g]        g = i / group, both operations rounded to f32
 *
 * `unpack` turns one block into that form exactly, so that decoding is bit-exact and matrix kernels
 * need one integer inner loop for all types.
 */
#ifndef LINNET_QUANT_QUANT_H
#define LINNET_QUANT_QUANT_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ggml type ids that code refers to by name (all others only through the table). */
enum quant_id {
    QUANT_F32 = 0,
    QUANT_F16 = 1,
    QUANT_Q4_0 = 2,
    QUANT_Q4_1 = 3,
    QUANT_Q5_0 = 6,
    QUANT_Q5_1 = 7,
    QUANT_Q8_0 = 8,
    QUANT_Q2_K = 10,
    QUANT_Q3_K = 11,
    QUANT_Q4_K = 12,
    QUANT_Q5_K = 13,
    QUANT_Q6_K = 14,
    QUANT_IQ2_XXS = 16,
    QUANT_IQ2_XS = 17,
    QUANT_IQ3_XXS = 18,
    QUANT_IQ1_S = 19,
    QUANT_IQ4_NL = 20,
    QUANT_IQ3_S = 21,
    QUANT_IQ2_S = 22,
    QUANT_IQ4_XS = 23,
    QUANT_I8 = 24,
    QUANT_I16 = 25,
    QUANT_I32 = 26,
    QUANT_I64 = 27,
    QUANT_F64 = 28,
    QUANT_IQ1_M = 29,
    QUANT_BF16 = 30,
    QUANT_TQ1_0 = 34,
    QUANT_TQ2_0 = 35,
    QUANT_MXFP4 = 39,
    QUANT_NVFP4 = 40,
    QUANT_Q1_0 = 41,
    QUANT_Q2_0 = 42,
    /* Not a file id: the 34-byte, 128-element layout some files write under id 42 (spec D2). */
    QUANT_Q2_0_G128 = 0x10000 + 42,
};

struct quant_type {
    uint32_t id;
    const char *name; /* as llama.cpp prints it: "q4_K", "iq2_xxs", "bf16" */
    uint32_t block;   /* elements per block */
    uint32_t block_bytes;
    uint32_t group; /* elements per scale: 16 or 32; 0 for f32, f16, bf16 and the plain integers */
    bool has_min;   /* min[] is not always zero */
    bool weight;    /* may be a weight of a matrix product */
    /* One block -> q[block], scale[block/group], min[block/group]. NULL when group is 0. min is
     * written (zeros) even when has_min is false. Types whose scale covers more than a group repeat
     * it. */
    void (*unpack)(const uint8_t *src, int8_t *q, float *scale, float *min);
    /* n elements (a multiple of block) -> f32, bit-exact. NULL for types that cannot be weights. */
    void (*decode)(const uint8_t *src, float *dst, size_t n);
    /* n elements -> blocks; NULL when there is no encoder. */
    void (*encode)(const float *src, uint8_t *dst, size_t n);
};

/* NULL when unknown. */
const struct quant_type *quant_type_of(uint32_t id);
const struct quant_type *quant_type_named(const char *name); /* case-insensitive */
size_t quant_type_count(void);
const struct quant_type *quant_type_at(size_t i); /* in id order */

/* Bytes of a row of n elements; false when n is not whole blocks or the size overflows. */
bool quant_row_bytes(const struct quant_type *t, uint64_t n, size_t *out);

/* IEEE binary16 and bfloat16, round to nearest even; NaN stays NaN. */
float f16_to_f32(uint16_t h);
uint16_t f32_to_f16(float x);
float bf16_to_f32(uint16_t h);
uint16_t f32_to_bf16(float x);

#endif
