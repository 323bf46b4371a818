/*
 * The table of weight formats: geometry, codecs, lookup, row sizes.
 *
 * Owns the one list of types (TYPES) and derives each block type's decoder from its unpack
 * function, so that decoding and the matrix kernels cannot disagree. Bit layouts live in unpack_*.c,
 * encoders in encode*.c.
 *
 * Invariants: the table is in id order; group is 0, 16 or 32 and divides block; a type has unpack
 * exactly when group is not 0, and decode exactly when weight is true.
 */
#include "quant/quant.h"

#include "base/checked.h"
#include "quant/codec.h"

#include <strings.h>

/* Every type, in id order. P: ID, name, bytes, decode, encode. B: symbol, ID, name, elements, bytes,
 * group, has_min, encode. */
#define TYPES(P, B)                                                                                \
    P(F32, "f32", 4, decode_f32, NULL)                                                             \
    P(F16, "f16", 2, decode_f16, NULL)                                                             \
    B(q4_0, Q4_0, "q4_0", 32, 18, 32, false, NULL)                                                 \
    B(q4_1, Q4_1, "q4_1", 32, 20, 32, true, NULL)                                                  \
    B(q5_0, Q5_0, "q5_0", 32, 22, 32, false, NULL)                                                 \
    B(q5_1, Q5_1, "q5_1", 32, 24, 32, true, NULL)                                                  \
    B(q8_0, Q8_0, "q8_0", 32, 34, 32, false, NULL)                                                 \
    B(q4_k, Q4_K, "q4_K", 256, 144, 32, true, NULL)                                                \
    B(q5_k, Q5_K, "q5_K", 256, 176, 32, true, NULL)                                                \
    B(q6_k, Q6_K, "q6_K", 256, 210, 16, false, NULL)                                               \
    P(I8, "i8", 1, NULL, NULL)                                                                     \
    P(I16, "i16", 2, NULL, NULL)                                                                   \
    P(I32, "i32", 4, NULL, NULL)                                                                   \
    P(I64, "i64", 8, NULL, NULL)                                                                   \
    P(F64, "f64", 8, NULL, NULL)                                                                   \
    P(BF16, "bf16", 2, decode_bf16, NULL)

/* Decode by unpacking: one function per type, so that the geometry is constant inside the loops. */
static inline __attribute__((always_inline)) void
decode_blocks(unpack_fn *unpack, size_t block, size_t bytes, size_t group, bool has_min,
              const uint8_t *src, float *dst, size_t n)
{
    int8_t q[256];
    float scale[16], min[16];
    for (; n >= block; n -= block, src += bytes) {
        unpack(src, q, scale, min);
        for (size_t g = 0; g < block / group; g++, dst += group) {
            for (size_t i = 0; i < group; i++) {
                const float x = scale[g] * (float)q[g * group + i];
                dst[i] = has_min ? x - min[g] : x;
            }
        }
    }
}

#define DEFINE_DECODE(sym, ID, text, elements, bytes, grp, minima, enc)                            \
    static void decode_##sym(const uint8_t *src, float *dst, size_t n)                             \
    {                                                                                              \
        decode_blocks(unpack_##sym, elements, bytes, grp, minima, src, dst, n);                    \
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
