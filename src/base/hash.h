/*
 * A 64-bit hash for finding damage and telling things apart: not for secrets, not for tables that
 * enemies fill. Four lanes of multiply and rotate over 32-byte stripes, so that it runs at memory
 * speed. Changing any one bit of the input always changes the result: every step is a bijection of
 * the lane.
 */
#ifndef LINNET_BASE_HASH_H
#define LINNET_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* Hash of data[0..n), going on from `seed` (0, or the hash of what came before). */
uint64_t hash64(uint64_t seed, const void *data, size_t n);

#endif
