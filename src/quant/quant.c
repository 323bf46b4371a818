/*
 * The table of weight formats: geometry, codecs, lookup, row sizes.
 *
 * Owns the one list of types (TYPES) and derives each block type's decoder from its unpack
 * function, so that decoding and the matrix kernels cannot disagree. Bit layouts live in
 * unpack_*.c, encoders in encode.c.
 *
 * Invariants: the table is in id order; group is 0, 16 or 32 and divides block; a type has unpack
 * exactly when group is not 0, and decode exactly when weight is true.
 */
#include "quant/quant.h"

#include "base/checked.h"
#include "quant/codec.h"

#include <strings.h>

/* Every type, in id order. P: ID, name, bytes, decode, encode. B: symbol, ID, name, elements,
 * bytes, group, has_min, encode. */
#define TYPES(P, B)                                                                                \
    P(F32, "f32", 4, decode_f32, encode_f32)                                                       \
    P(F16, "f16", 2, decode_f16, encode_f16)                                                       \
    B(q4_0, Q4_0, "q4_0", 32, 18, 32, false, encode_q4_0)                                          \
    B(q4_1, Q4_1, "q4_1", 32, 20, 32, true, encode_q4_1)                                           \
    B(q5_0, Q5_0, "q5_0", 32, 22, 32, false, encode_q5_0)                                          \
    B(q5_1, Q5_1, "q5_1", 32, 24, 32, true, encode_q5_1)                                           \
    B(q8_0, Q8_0, "q8_0", 32, 34, 32, false, encode_q8_0)                                          \
    B(q2_k, Q2_K, "q2_K", 256, 84, 16, true, NULL)                                                 \
    B(q3_k, Q3_K, "q3_K", 256, 110, 16, false, NULL)                                               \
    B(q4_k, Q4_K, "q4_K", 256, 144, 32, true, encode_q4_k)                                         \
    B(q5_k, Q5_K, "q5_K", 256, 176, 32, true, encode_q5_k)                                         \
    B(q6_k, Q6_K, "q6_K", 256, 210, 16, false, encode_q6_k)                                        \
    B(iq2_xxs, IQ2_XXS, "iq2_xxs", 256, 66, 32, false, NULL)                                       \
    B(iq2_xs, IQ2_XS, "iq2_xs", 256, 74, 16, false, NULL)                                          \
    B(iq3_xxs, IQ3_XXS, "iq3_xxs", 256, 98, 32, false, NULL)                                       \
    B(iq1_s, IQ1_S, "iq1_s", 256, 50, 32, false, NULL)                                             \
    B(iq4_nl, IQ4_NL, "iq4_nl", 32, 18, 32, false, encode_iq4_nl)                                  \
    B(iq3_s, IQ3_S, "iq3_s", 256, 110, 32, false, NULL)                                            \
    B(iq2_s, IQ2_S, "iq2_s", 256, 82, 16, false, NULL)                                             \
    B(iq4_xs, IQ4_XS, "iq4_xs", 256, 136, 32, false, encode_iq4_xs)                                \
    P(I8, "i8", 1, NULL, NULL)                                                                     \
    P(I16, "i16", 2, NULL, NULL)                                                                   \
    P(I32, "i32", 4, NULL, NULL)                                                                   \
    P(I64, "i64", 8, NULL, NULL)                                                                   \
    P(F64, "f64", 8, NULL, NULL)                                                                   \
    B(iq1_m, IQ1_M, "iq1_m", 256, 56, 16, false, NULL)                                             \
    P(BF16, "bf16", 2, decode_bf16, encode_bf16)                                                   \
    B(tq1_0, TQ1_0, "tq1_0", 256, 54, 32, false, NULL)                                             \
    B(tq2_0, TQ2_0, "tq2_0", 256, 66, 32, false, NULL)                                             \
    B(mxfp4, MXFP4, "mxfp4", 32, 17, 32, false, encode_mxfp4)                                      \
    B(nvfp4, NVFP4, "nvfp4", 64, 36, 16, false, NULL)                                              \
    B(q1_0, Q1_0, "q1_0", 128, 18, 32, false, NULL)                                                \
    B(q2_0, Q2_0, "q2_0", 64, 18, 32, false, NULL)                                                 \
    B(q2_0_g128, Q2_0_G128, "q2_0_g128", 128, 34, 32, false, NULL)

/* dst = scale * q - min. Subtracting the zero minimum of the other types changes no bit, not even
 * of -0. */
static void scale_block(const int8_t *q, const float *scale, const float *min, size_t n,
                        size_t group, float *dst)
{
    for (size_t i = 0; i < n; i += 16) {
        const float s = scale[i / group], m = min[i / group];
        for (size_t j = 0; j < 16; j++)
            dst[i + j] = s * (float)q[i + j] - m;
    }
}

#define DEFINE_DECODE(sym, ID, text, elements, bytes, grp, minima, enc)                            \
    static void decode_##sym(const uint8_t *src, float *dst, size_t n)                             \
    {                                                                                              \
        int8_t q[elements];                                                                        \
        float scale[(elements) / (grp)], min[(elements) / (grp)];                                  \
        for (; n >= (elements); n -= (elements), src += (bytes), dst += (elements)) {              \
            unpack_##sym(src, q, scale, min);                                                      \
            scale_block(q, scale, min, elements, grp, dst);                                        \
        }                                                                                          \
    }
#define NO_DECODE(ID, text, bytes, dec, enc)
TYPES(NO_DECODE, DEFINE_DECODE)

static void decode_f32(const uint8_t *src, float *dst, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = f32_of_bits(load_u32(src + 4 * i));
}

static void decode_f16(const uint8_t *src, float *dst, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = half_to_f32(load_u16(src + 2 * i));
}

static void decode_bf16(const uint8_t *src, float *dst, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = brain_to_f32(load_u16(src + 2 * i));
}

#define PLAIN_ROW(ID, text, bytes, dec, enc)                                                       \
    {QUANT_##ID, text, 1, bytes, 0, false, (dec) != NULL, NULL, dec, enc},
#define BLOCK_ROW(sym, ID, text, elements, bytes, grp, minima, enc)                                \
    {QUANT_##ID, text, elements, bytes, grp, minima, true, unpack_##sym, decode_##sym, enc},

static const struct quant_type types[] = {TYPES(PLAIN_ROW, BLOCK_ROW)};

enum { N_TYPES = sizeof types / sizeof types[0] };

const struct quant_type *quant_type_of(uint32_t id)
{
    for (size_t i = 0; i < N_TYPES; i++)
        if (types[i].id == id)
            return &types[i];
    return NULL;
}

const struct quant_type *quant_type_named(const char *name)
{
    for (size_t i = 0; i < N_TYPES; i++)
        if (strcasecmp(types[i].name, name) == 0)
            return &types[i];
    return NULL;
}

size_t quant_type_count(void)
{
    return N_TYPES;
}

const struct quant_type *quant_type_at(size_t i)
{
    return i < N_TYPES ? &types[i] : NULL;
}

bool quant_row_bytes(const struct quant_type *t, uint64_t n, size_t *out)
{
    if (n % t->block != 0 || n / t->block > SIZE_MAX)
        return false;
    return size_mul((size_t)(n / t->block), t->block_bytes, out);
}

float f16_to_f32(uint16_t h)
{
    return half_to_f32(h);
}

uint16_t f32_to_f16(float x)
{
    return half_of_f32(x);
}

float bf16_to_f32(uint16_t h)
{
    return brain_to_f32(h);
}

uint16_t f32_to_bf16(float x)
{
    return brain_of_f32(x);
}
