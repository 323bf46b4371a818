/*
 * Unpacking of the iq formats: 256-element super-blocks of indices into codebooks of small vectors
 * (iq_grid.c), and the two formats with a 16-entry table of values, iq4_nl and iq4_xs.
 *
 * The formats' factors of 1/2, 1/4 and 1/8 are powers of two and go into the group scale; d (11
 * bits) times a scale of 5 bits at most is exact, so the group scale never rounds.
 */
#include "quant/codec.h"
#include "quant/iq_grid.h"

const int8_t quant_iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                     1,    13,   25,  38,  53,  69,  89,  113};

static inline uint64_t lanes8(const int8_t v[8])
{
    return load_u64((const uint8_t *)v);
}

static inline uint64_t lanes4x2(const int8_t a[4], const int8_t b[4])
{
    return load_u32((const uint8_t *)a) | (uint64_t)load_u32((const uint8_t *)b) << 32;
}

/* Negate the lanes whose bit is set: ~v + 1, where nothing is carried out of a lane since v > 0. */
static inline void put_signed(int8_t *q, uint64_t v, unsigned signs)
{
    const uint64_t ones = bit_lanes(signs);
    store_lanes(q, (v ^ ones * 0xff) + ones);
}

/* Seven stored signs; the eighth makes the number of minus signs even. */
static inline unsigned even_signs(unsigned s)
{
    unsigned p = s ^ s >> 4;
    p = 0x6996u >> (p & 15) & 1;
    return s | p << 7;
}

/* f16 d, then per 32: four index bytes and a word with four 7-bit sign fields below a 4-bit scale.
 */
void unpack_iq2_xxs(const uint8_t *src, int8_t *q, float *scale, float *min)
{
    const float d = load_half(src);
    for (int g = 0; g < 8; g++, q += 32) {
        const uint8_t *index = src + 2 + 8 * g;
        const uint32_t word = load_u32(index + 4);
        scale[g] = d * (0.5f + (float)(word >> 28)) * 0.25f;
        min[g] = 0.0f;
        for (int k = 0; k < 4; k++)
            put_signed(q + 8 * k, lanes8(iq2_xxs_grid[index[k]]), even_signs(word >> 7 * k & 127));
    }
}

/* f16 d, 32 words of 9-bit index and 7 signs, 8 bytes with a scale per 16 elements, low nibble
 * first. */
void unpack_iq2_xs(const uint8_t *src, int8_t *q, float *scale, float *min)
{
    const float d = load_half(src);
    for (int g = 0; g < 16; g++) {
        scale[g] = d * (0.5f + (float)(src[66 + g / 2] >> 4 * (g & 1) & 15)) * 0.25f;
        min[g] = 0.0f;
    }
    for (int k = 0; k < 32; k++) {
        const unsigned word = load_u16(src + 2 + 2 * k);
        put_signed(q + 8 * k, lanes8(iq2_xs_grid[word & 511]), even_signs(word >> 9));
    }
}

/* f16 d, 32 low index bytes, 32 sign bytes, 8 bytes with the top two bits of four indices each, 8
 * bytes of scales as in iq2_xs. */
void unpack_iq2_s(const uint8_t *src, int8_t *q, float *scale, float *min)
{
    const float d = load_half(src);
    const uint8_t *low = src + 2, *signs = src + 34, *high = src + 66;
    for (int g = 0; g < 16; g++) {
        scale[g] = d * (0.5f + (float)(src[74 + g / 2] >> 4 * (g & 1) & 15)) * 0.25f;
        min[g] = 0.0f;
    }
    for (int k = 0; k < 32; k++) {
        const unsigned top = (unsigned)high[k / 4] >> 2 * (k & 3) & 3;
        const unsigned index = low[k] | top << 8;
        put_signed(q + 8 * k, lanes8(iq2_s_grid[index]), signs[k]);
    }
}

/* f16 d, 64 indices of four elements, then per 32 a word as in iq2_xxs. */
void unpack_iq3_xxs(const uint8_t *src, int8_t *q, float *scale, float *min)
{
    const float d = load_half(src);
    const uint8_t *index = src + 2;
    for (int g = 0; g < 8; g++, q += 32, index += 8) {
        const uint32_t word = load_u32(src + 66 + 4 * g);
        scale[g] = d * (0.5f + (float)(word >> 28)) * 0.5f;
        min[g] = 0.0f;
        for (int k = 0; k < 4; k++) {
            const uint64_t v = lanes4x2(iq3_xxs_grid[index[2 * k]], iq3_xxs_grid[index[2 * k + 1]]);
            put_signed(q + 8 * k, v, even_signs(word >> 7 * k & 127));
        }
    }
}

/* f16 d, 64 low index bytes, 8 bytes with the ninth index bits, 32 sign bytes, 4 bytes with a scale
 * per 32 elements, low nibble first. */
void unpack_iq3_s(const uint8_t *src, int8_t *q, float *scale, float *min)
{
    const float d = load_half(src);
    const uint8_t *low = src + 2, *high = src + 66, *signs = src + 74;
    for (int g = 0; g < 8; g++) {
        scale[g] = d * (float)(1 + 2 * (src[106 + g / 2] >> 4 * (g & 1) & 15));
        min[g] = 0.0f;
    }
    for (int k = 0; k < 32; k++, low += 2) {
        const unsigned top = (unsigned)high[k / 4] >> 2 * (k & 3);
        const int8_t *a = iq3_s_grid[low[0] | (top & 1) << 8];
        const int8_t *b = iq3_s_grid[low[1] | (top & 2) << 7];
        put_signed(q + 8 * k, lanes4x2(a, b), signs[k]);
    }
}

/* An iq1 vector has values g + delta with g in -1 0 1 and delta = +-1/8; eighths make it whole: the
 * grid holds 8g, the scale an eighth. */
static inline void put_shifted(int8_t *q, const int8_t v[8], bool minus)
{
    const int8_t delta = minus ? -1 : 1;
    for (int j = 0; j < 8; j++)
        q[j] = (int8_t)(v[j] + delta);
}

/* f16 d, 32 low index bytes, then per 32 a word: four times three high index bits, a 3-bit scale,
 * the sign of delta. */
void unpack_iq1_s(const uint8_t *src, int8_t *q, float *scale, float *min)
{
    const float d = load_half(src);
    for (int g = 0; g < 8; g++, q += 32) {
        const uint8_t *low = src + 2 + 4 * g;
        const unsigned word = load_u16(src + 34 + 2 * g);
        scale[g] = d * (float)(2 * (word >> 12 & 7) + 1) * 0.125f;
        min[g] = 0.0f;
        for (int k = 0; k < 4; k++)
            put_shifted(q + 8 * k, iq1_grid[low[k] | (word >> 3 * k & 7) << 8], word >> 15);
    }
}

/* 32 low index bytes, 16 bytes with a nibble per vector (three high index bits, the sign of delta),
 * then four words: twelve bits of 3-bit scales, one per 16 elements, under four bits of d. */
void unpack_iq1_m(const uint8_t *src, int8_t *q, float *scale, float *min)
{
    unsigned half = 0;
    for (int w = 0; w < 4; w++)
        half |= (unsigned)load_u16(src + 48 + 2 * w) >> 12 << 4 * w;
    const float d = half_to_f32((uint16_t)half);
    for (int g = 0; g < 16; g++) {
        const unsigned word = load_u16(src + 48 + 2 * (g / 4));
        scale[g] = d * (float)(2 * (word >> 3 * (g & 3) & 7) + 1) * 0.125f;
        min[g] = 0.0f;
    }
    for (int k = 0; k < 32; k++) {
        const unsigned high = (unsigned)src[32 + k / 2] >> 4 * (k & 1) & 15;
        put_shifted(q + 8 * k, iq1_grid[src[k] | (high & 7) << 8], high >> 3);
    }
}

static inline void unpack_iq4(const uint8_t qs[16], int8_t q[32])
{
    for (int i = 0; i < 16; i++) {
        q[i] = quant_iq4_values[qs[i] & 15];
        q[i + 16] = quant_iq4_values[qs[i] >> 4];
    }
}

/* f16 d, 16 bytes of nibbles, each an index of the value table. */
void unpack_iq4_nl(const uint8_t *src, int8_t *q, float *scale, float *min)
{
    scale[0] = load_half(src);
    min[0] = 0.0f;
    unpack_iq4(src + 2, q);
}

/* f16 d, a word with the top two bits of eight 6-bit scales, 4 bytes with their low nibbles, then
 * 16 bytes of nibbles per 32. Scales are centred at 32. */
void unpack_iq4_xs(const uint8_t *src, int8_t *q, float *scale, float *min)
{
    const float d = load_half(src);
    const unsigned high = load_u16(src + 2);
    for (int g = 0; g < 8; g++) {
        const unsigned low = src[4 + g / 2] >> 4 * (g & 1) & 15;
        const unsigned s = low | (high >> 2 * g & 3) << 4;
        scale[g] = d * (float)((int)s - 32);
        min[g] = 0.0f;
        unpack_iq4(src + 8 + 16 * g, q + 32 * g);
    }
}
