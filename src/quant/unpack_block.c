/*
 * Unpacking of the formats with small blocks of their own scale: the 32-element family q4_0 to q8_0.
 *
 * A 32-element block keeps nibbles as byte i = element i (low) and element i + 16 (high).
 */
#include "quant/codec.h"

static inline void unpack_nibbles(const uint8_t qs[16], int8_t q[32], int centre)
{
    for (int i = 0; i < 16; i++) {
        q[i] = (int8_t)((qs[i] & 15) - centre);
        q[i + 16] = (int8_t)((qs[i] >> 4) - centre);
    }
}

/* Nibbles completed by bit i of `high` for element i. */
static inline void unpack_5bit(const uint8_t qs[16], uint32_t high, int8_t q[32], int centre)
{
    for (int i = 0; i < 16; i++) {
        q[i] = (int8_t)(((qs[i] & 15) | (int)(high >> i & 1) << 4) - centre);
        q[i + 16] = (int8_t)((qs[i] >> 4 | (int)(high >> (i + 16) & 1) << 4) - centre);
    }
}

/* f16 d, 16 bytes of nibbles centred at 8. */
void unpack_q4_0(const uint8_t *src, int8_t *q, float *scale, float *min)
{
    scale[0] = load_half(src);
    min[0] = 0.0f;
    unpack_nibbles(src + 2, q, 8);
}

/* f16 d, f16 m, nibbles: d * q + m. The stored m is added, so the minimum is its negative. */
void unpack_q4_1(const uint8_t *src, int8_t *q, float *scale, float *min)
{
    scale[0] = load_half(src);
    min[0] = -load_half(src + 2);
    unpack_nibbles(src + 4, q, 0);
}

/* f16 d, 32 fifth bits, nibbles; centred at 16. */
void unpack_q5_0(const uint8_t *src, int8_t *q, float *scale, float *min)
{
    scale[0] = load_half(src);
    min[0] = 0.0f;
    unpack_5bit(src + 6, load_u32(src + 2), q, 16);
}

/* f16 d, f16 m, 32 fifth bits, nibbles: d * q + m. */
void unpack_q5_1(const uint8_t *src, int8_t *q, float *scale, float *min)
{
    scale[0] = load_half(src);
    min[0] = -load_half(src + 2);
    unpack_5bit(src + 8, load_u32(src + 4), q, 0);
}

/* f16 d, 32 int8. */
void unpack_q8_0(const uint8_t *src, int8_t *q, float *scale, float *min)
{
    scale[0] = load_half(src);
    min[0] = 0.0f;
    memcpy(q, src + 2, 32);
}
