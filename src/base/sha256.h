/*
 * SHA-256 (FIPS 180-4): what downloaded files are checked with.
 */
#ifndef LINNET_BASE_SHA256_H
#define LINNET_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

struct sha256 {
    uint32_t state[8];
    uint64_t total;    /* bytes seen */
    uint8_t block[64]; /* the last, unfinished block: total % 64 bytes */
};

enum { SHA256_SIZE = 32, SHA256_HEX = 65 };

void sha256_init(struct sha256 *h);
void sha256_update(struct sha256 *h, const void *data, size_t n);

/* Finish; `h` must be initialised again before it is used again. */
void sha256_final(struct sha256 *h, uint8_t out[SHA256_SIZE]);

/* 64 lower-case hexadecimal digits and a NUL. */
void sha256_hex(const uint8_t digest[SHA256_SIZE], char out[SHA256_HEX]);

#endif
