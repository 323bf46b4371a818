/*
 * UTF-8 after table 3-7 of the Unicode standard: the second byte's range depends on the lead byte,
 * which alone excludes overlong forms, surrogates and values above U+10FFFF.
 *
 * An ill-formed sequence is as long as the part of it that could still have become a character
 * ("maximal subpart", table 3-8), so that decoding always moves on and replaces the way other
 * programs do.
 */
#include "base/utf8.h"

/* Lead byte -> length and range of the second byte. */
struct lead {
    unsigned char length, low, high;
};

static struct lead lead_of(unsigned char b)
{
    if (b < 0x80)
        return (struct lead){1, 0, 0};
    if (b < 0xC2)
        return (struct lead){0, 0, 0};
    if (b < 0xE0)
        return (struct lead){2, 0x80, 0xBF};
    if (b < 0xF0)
        return (struct lead){3, b == 0xE0 ? 0xA0 : 0x80, b == 0xED ? 0x9F : 0xBF};
    if (b < 0xF5)
        return (struct lead){4, b == 0xF0 ? 0x90 : 0x80, b == 0xF4 ? 0x8F : 0xBF};
    return (struct lead){0, 0, 0};
}

size_t utf8_length(unsigned char b)
{
    return lead_of(b).length;
}

/* Bytes of s[0..n) that agree with the sequence its lead byte announces; *want is the announced
 * length. */
static size_t match(const unsigned char *s, size_t n, size_t *want)
{
    struct lead l = lead_of(s[0]);
    *want = l.length;
    if (l.length < 2)
        return l.length;
    if (n < 2 || s[1] < l.low || s[1] > l.high)
        return 1;
    size_t i = 2;
    while (i < l.length && i < n && (s[i] & 0xC0) == 0x80)
        i++;
    return i;
}

size_t utf8_decode(const char *s, size_t n, uint32_t *cp)
{
    const unsigned char *u = (const unsigned char *)s;
    size_t want;
    size_t got = match(u, n, &want);
    if (want == 0 || got < want) {
        *cp = UTF8_REPLACEMENT;
        return got ? got : 1;
    }
    static const unsigned char lead_mask[5] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    uint32_t c = u[0] & lead_mask[want];
    for (size_t i = 1; i < want; i++)
        c = c << 6 | (u[i] & 0x3F);
    *cp = c;
    return want;
}

size_t utf8_encode(uint32_t cp, char out[4])
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    size_t n = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    static const unsigned char lead_bits[5] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (size_t i = n - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (cp & 0x3F));
        cp >>= 6;
    }
    out[0] = (char)(lead_bits[n] | cp);
    return n;
}

size_t utf8_incomplete_tail(const char *s, size_t n)
{
    const unsigned char *u = (const unsigned char *)s;
    for (size_t tail = 1; tail <= 3 && tail <= n; tail++) {
        const unsigned char *p = u + n - tail;
        if ((*p & 0xC0) == 0x80)
            continue;
        size_t want;
        size_t got = match(p, tail, &want);
        return got == tail && got < want ? tail : 0;
    }
    return 0;
}

size_t utf8_valid_prefix(const char *s, size_t n)
{
    const unsigned char *u = (const unsigned char *)s;
    size_t i = 0;
    while (i < n) {
        if (u[i] < 0x80) {
            i++;
            continue;
        }
        size_t want;
        size_t got = match(u + i, n - i, &want);
        if (want == 0 || got < want)
            break;
        i += want;
    }
    return i;
}
