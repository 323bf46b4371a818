/*
 * UTF-8: decoding, encoding and validation of single characters.
 */
#ifndef LINNET_BASE_UTF8_H
#define LINNET_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

#define UTF8_REPLACEMENT 0xFFFDu

/* Decode the character at s[0..n). Writes the code point and returns its length 1..4. On an
 * ill-formed sequence (overlong, surrogate, above U+10FFFF, cut short) writes UTF8_REPLACEMENT and
 * returns the length of the maximal ill-formed prefix (Unicode 15, table 3-8), at least 1. n must
 * be at least 1. */
size_t utf8_decode(const char *s, size_t n, uint32_t *cp);

/* Encode `cp` (a valid scalar value) into out[4]; returns the length 1..4. */
size_t utf8_encode(uint32_t cp, char out[4]);

/* Length that the lead byte `b` announces: 1..4, or 0 when no well-formed sequence starts with
 * it. */
size_t utf8_length(unsigned char b);

/* Bytes at the end of s[0..n) that are the beginning of a character that more bytes could complete:
 * 0..3. A streaming writer holds these back. */
size_t utf8_incomplete_tail(const char *s, size_t n);

/* Number of bytes of the longest well-formed prefix of s[0..n). */
size_t utf8_valid_prefix(const char *s, size_t n);

#endif
