/*
 * The hash. Words are read as little-endian whatever the machine, so that files can be moved.
 */
#include "base/hash.h"

#include <string.h>

static const uint64_t mul_a = 0x9E3779B97F4A7C15u, mul_b = 0xC2B2AE3D27D4EB4Fu;

static uint64_t rotate(uint64_t x, int n)
{
    return x << n | x >> (64 - n);
}

static uint64_t word(const uint8_t *p)
{
    uint64_t w;
    memcpy(&w, p, sizeof w);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    w = __builtin_bswap64(w);
#endif
    return w;
}

static uint64_t step(uint64_t lane, uint64_t w)
{
    return rotate((lane ^ w) * mul_a, 31) * mul_b;
}

uint64_t hash64(uint64_t seed, const void *data, size_t n)
{
    const uint8_t *p = data;
    uint64_t lane[4] = {seed, seed + mul_a, seed + mul_b, seed ^ mul_a};
    size_t left = n;
    for (; left >= 32; left -= 32, p += 32)
        for (size_t i = 0; i < 4; i++)
            lane[i] = step(lane[i], word(p + 8 * i));
    uint8_t tail[32] = {0};
    if (left)
        memcpy(tail, p, left);
    for (size_t i = 0; i < 4; i++)
        lane[i] = step(lane[i], word(tail + 8 * i));
    uint64_t h = n;
    for (size_t i = 0; i < 4; i++)
        h = step(h, lane[i]);
    return h ^ h >> 29;
}
