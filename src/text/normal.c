/*
 * Unicode normalisation as vocabularies ask for it: NFC, BERT's cleaning, SentencePiece character
 * maps.
 *
 * Needs utf8proc. A build without it (LINNET_CORE_ONLY) keeps the interface and answers "not
 * available"; loading refuses such vocabularies there, so nothing is ever encoded without its
 * normaliser. Input is well-formed UTF-8; output goes to growing buffers with a maximum.
 */
#include "base/checked.h"
#include "base/limits.h"
#include "base/utf8.h"
#include "text/vocab_impl.h"

#include <stdlib.h>

#ifndef LINNET_CORE_ONLY
#include <utf8proc.h>
#endif

bool bytes_room(struct bytes *b, size_t more)
{
    size_t need;
    if (!size_add(b->n, more, &need) || need > (uint64_t)LIMIT_TEXT_BYTES * 4)
        return false;
    if (need <= b->cap)
        return true;
    size_t cap = need + need / 2 + 64;
    char *s = realloc(b->s, cap);
    if (!s)
        return false;
    b->s = s;
    b->cap = cap;
    return true;
}

bool bytes_add(struct bytes *b, const char *s, size_t n)
{
    if (n == 0)
        return true;
    if (!bytes_room(b, n))
        return false;
    memcpy(b->s + b->n, s, n);
    b->n += n;
    return true;
}

bool normal_is_space(uint32_t cp)
{
    if (cp < 0x80)
        return cp == ' ' || (cp >= '\t' && cp <= '\r');
    return cp == 0x85 || cp == 0xA0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A) ||
           cp == 0x2028 || cp == 0x2029 || cp == 0x202F || cp == 0x205F || cp == 0x3000;
}

linnet_status charsmap_init(struct charsmap *m, const void *data, size_t n, linnet_error *e)
{
    uint32_t trie_bytes = 0;
    if (n >= sizeof trie_bytes)
        memcpy(&trie_bytes, data, sizeof trie_bytes);
    if (n < sizeof trie_bytes || trie_bytes % 4 || trie_bytes == 0 ||
        trie_bytes >= n - sizeof trie_bytes)
        return err_set(
            e, LINNET_FORMAT,
            "tokenizer.ggml.precompiled_charsmap: its first part says %u bytes, the array has %zu",
            trie_bytes, n);
    const char *s = data;
    m->trie = (const uint32_t *)(const void *)(s + sizeof trie_bytes);
    m->n_trie = trie_bytes / 4;
    m->strings = s + sizeof trie_bytes + trie_bytes;
    m->n_strings = n - sizeof trie_bytes - trie_bytes;
    if (m->strings[m->n_strings - 1] != '\0')
        return err_set(e, LINNET_FORMAT,
                       "tokenizer.ggml.precompiled_charsmap: the last replacement has no end");
    return LINNET_OK;
}

/* The replacement of a chunk: that of its shortest prefix in the map, or NULL. (That the whole
 * chunk is replaced although only a prefix matched is how the models' own normaliser works, and
 * what they were trained with.) Each unit of the array: bits 0-7 label, 8 leaf, 9 wide offset,
 * 10-30 offset; a leaf's child holds the position of the replacement in bits 0-30. */
static const char *charsmap_find(const struct charsmap *m, const char *s, size_t n)
{
    if (!m->trie)
        return NULL;
    uint32_t unit = m->trie[0];
    size_t pos = (size_t)(unit >> 10) << ((unit & 1u << 9) >> 6);
    for (size_t i = 0; i < n && s[i]; i++) {
        uint8_t c = (uint8_t)s[i];
        pos ^= c;
        if (pos >= m->n_trie)
            return NULL;
        unit = m->trie[pos];
        if ((unit & (1u << 31 | 0xFF)) != c)
            return NULL;
        pos ^= (size_t)(unit >> 10) << ((unit & 1u << 9) >> 6);
        if (unit >> 8 & 1) {
            if (pos >= m->n_trie)
                return NULL;
            size_t at = m->trie[pos] & 0x7FFFFFFF;
            return at < m->n_strings ? m->strings + at : NULL;
        }
    }
    return NULL;
}

#ifdef LINNET_CORE_ONLY

bool normal_available(void)
{
    return false;
}

bool normal_nfc(struct bytes *out, const char *s, size_t n)
{
    return bytes_add(out, s, n);
}

bool normal_bert(struct bytes *out, const char *s, size_t n, bool lowercase, bool strip_accents)
{
    (void)lowercase;
    (void)strip_accents;
    return bytes_add(out, s, n);
}

bool normal_charsmap(struct bytes *out, const struct charsmap *m, const char *s, size_t n)
{
    (void)charsmap_find(m, s, 0);
    return bytes_add(out, s, n);
}

#else

bool normal_available(void)
{
    return true;
}

static bool add_cp(struct bytes *out, uint32_t cp)
{
    if (!bytes_room(out, 4))
        return false;
    out->n += utf8_encode(cp, out->s + out->n);
    return true;
}

/* ---- NFC ------------------------------------------------------------------------------------- */

/* Characters that NFC leaves alone and that never join what is before them: the common ones,
 * ascending. */
static const struct range {
    uint32_t lo, hi;
} nfc_plain[] = {
    {0x0000, 0x02FF}, {0x0388, 0x0482}, {0x048A, 0x052F}, {0x0531, 0x0590},   {0x05D0, 0x05EA},
    {0x0620, 0x064A}, {0x1E00, 0x1EFF}, {0x2010, 0x2027}, {0x2030, 0x205E},   {0x20A0, 0x20BF},
    {0x2190, 0x2328}, {0x2500, 0x2ADB}, {0x3003, 0x3029}, {0x3041, 0x3096},   {0x30A1, 0x30FF},
    {0x4E00, 0x9FFF}, {0xAC00, 0xD7A3}, {0xFF01, 0xFFEE}, {0x1F300, 0x1FAFF},
};

static bool in_ranges(const struct range *r, size_t n, uint32_t cp)
{
    size_t lo = 0, hi = n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (cp > r[mid].hi)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < n && cp >= r[lo].lo;
}

/* Length of the longest prefix that is NFC whatever follows it, but for its last character. */
static size_t nfc_prefix(const char *s, size_t n)
{
    size_t i = 0;
    while (i < n) {
        if ((unsigned char)s[i] < 0x80) {
            i++;
            continue;
        }
        uint32_t cp;
        size_t len = utf8_decode(s + i, n - i, &cp);
        if (!in_ranges(nfc_plain, sizeof nfc_plain / sizeof nfc_plain[0], cp))
            return i;
        i += len;
    }
    return n;
}

static bool add_nfc(struct bytes *out, const char *s, size_t n)
{
    const utf8proc_option_t form = UTF8PROC_STABLE | UTF8PROC_COMPOSE;
    const utf8proc_uint8_t *u = (const utf8proc_uint8_t *)s;
    enum { SHORT = 255 };
    utf8proc_int32_t few[SHORT + 1], *cps = few, *many = NULL; /* one more for the final NUL */
    utf8proc_ssize_t len = utf8proc_decompose(u, (utf8proc_ssize_t)n, cps, SHORT, form);
    if (len > SHORT) {
        many = malloc(((size_t)len + 1) * sizeof *many);
        if (!many)
            return false;
        cps = many;
        len = utf8proc_decompose(u, (utf8proc_ssize_t)n, cps, len, form);
    }
    if (len >= 0)
        len = utf8proc_reencode(cps, len, form);
    bool ok = len >= 0 && bytes_add(out, (const char *)cps, (size_t)len);
    free(many);
    return ok;
}

bool normal_nfc(struct bytes *out, const char *s, size_t n)
{
    while (n) {
        size_t plain = nfc_prefix(s, n);
        if (plain == n)
            return bytes_add(out, s, n);
        /* Normalise from the character before (it may compose) to the next ASCII one (it
         * cannot). */
        size_t from = plain, to = plain;
        while (from > 0 && ((unsigned char)s[--from] & 0xC0) == 0x80)
            ;
        while (to < n && (unsigned char)s[to] >= 0x80)
            to++;
        if (!bytes_add(out, s, from) || !add_nfc(out, s + from, to - from))
            return false;
        s += to;
        n -= to;
    }
    return true;
}

/* ---- BERT ------------------------------------------------------------------------------------ */

/* BERT's normaliser classifies by Unicode 8.0. These are the marks, format characters and
 * punctuation that came later, to it plain characters; three others changed class since. */
static const struct range after_unicode_8[] = {
    {0x61D, 0x61D},     {0x7FD, 0x7FD},     {0x890, 0x891},     {0x898, 0x89F},
    {0x8CA, 0x8E2},     {0x9FD, 0x9FE},     {0xA76, 0xA76},     {0xAFA, 0xAFF},
    {0xB55, 0xB55},     {0xC04, 0xC04},     {0xC3C, 0xC3C},     {0xC77, 0xC77},
    {0xC84, 0xC84},     {0xD00, 0xD00},     {0xD3B, 0xD3C},     {0xD81, 0xD81},
    {0xEBA, 0xEBA},     {0xECE, 0xECE},     {0x180F, 0x180F},   {0x1885, 0x1886},
    {0x1ABF, 0x1ACE},   {0x1B7D, 0x1B7E},   {0x1DF6, 0x1DFB},   {0x2E43, 0x2E4F},
    {0x2E52, 0x2E5D},   {0xA82C, 0xA82C},   {0xA8C5, 0xA8C5},   {0xA8FF, 0xA8FF},
    {0xA9BD, 0xA9BD},   {0x10D24, 0x10D27}, {0x10EAB, 0x10EAD}, {0x10EFD, 0x10EFF},
    {0x10F46, 0x10F50}, {0x10F55, 0x10F59}, {0x10F82, 0x10F89}, {0x11070, 0x11070},
    {0x11073, 0x11074}, {0x110C2, 0x110C2}, {0x110CD, 0x110CD}, {0x111CF, 0x111CF},
    {0x1123E, 0x1123E}, {0x11241, 0x11241}, {0x1133B, 0x1133B}, {0x11438, 0x1143F},
    {0x11442, 0x11444}, {0x11446, 0x11446}, {0x1144B, 0x1144F}, {0x1145A, 0x1145B},
    {0x1145D, 0x1145E}, {0x11660, 0x1166C}, {0x116B9, 0x116B9}, {0x1182F, 0x11837},
    {0x11839, 0x1183B}, {0x1193B, 0x1193C}, {0x1193E, 0x1193E}, {0x11943, 0x11946},
    {0x119D4, 0x119D7}, {0x119DA, 0x119DB}, {0x119E0, 0x119E0}, {0x119E2, 0x119E2},
    {0x11A01, 0x11A0A}, {0x11A33, 0x11A38}, {0x11A3B, 0x11A47}, {0x11A51, 0x11A56},
    {0x11A59, 0x11A5B}, {0x11A8A, 0x11A96}, {0x11A98, 0x11A9C}, {0x11A9E, 0x11AA2},
    {0x11B00, 0x11B09}, {0x11C30, 0x11C36}, {0x11C38, 0x11C3D}, {0x11C3F, 0x11C3F},
    {0x11C41, 0x11C45}, {0x11C70, 0x11C71}, {0x11C92, 0x11CA7}, {0x11CAA, 0x11CB0},
    {0x11CB2, 0x11CB3}, {0x11CB5, 0x11CB6}, {0x11D31, 0x11D36}, {0x11D3A, 0x11D3A},
    {0x11D3C, 0x11D3D}, {0x11D3F, 0x11D45}, {0x11D47, 0x11D47}, {0x11D90, 0x11D91},
    {0x11D95, 0x11D95}, {0x11D97, 0x11D97}, {0x11EF3, 0x11EF4}, {0x11EF7, 0x11EF8},
    {0x11F00, 0x11F01}, {0x11F36, 0x11F3A}, {0x11F40, 0x11F40}, {0x11F42, 0x11F4F},
    {0x11FFF, 0x11FFF}, {0x12FF1, 0x12FF2}, {0x13430, 0x13440}, {0x13447, 0x13455},
    {0x16E97, 0x16E9A}, {0x16F4F, 0x16F4F}, {0x16FE2, 0x16FE2}, {0x16FE4, 0x16FE4},
    {0x1CF00, 0x1CF2D}, {0x1CF30, 0x1CF46}, {0x1E000, 0x1E006}, {0x1E008, 0x1E018},
    {0x1E01B, 0x1E021}, {0x1E023, 0x1E024}, {0x1E026, 0x1E02A}, {0x1E08F, 0x1E08F},
    {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF},
    {0x1E944, 0x1E94A}, {0x1E95E, 0x1E95F},
};

enum bert_class { BERT_PLAIN, BERT_DROP, BERT_MARK, BERT_PUNCT };

static enum bert_class bert_class(uint32_t cp)
{
    if (cp < 0x80) {
        if (cp < 0x20 || cp == 0x7F)
            return BERT_DROP;
        bool alnum = (cp >= '0' && cp <= '9') || ((cp | 0x20) >= 'a' && (cp | 0x20) <= 'z');
        return alnum || cp == ' ' ? BERT_PLAIN : BERT_PUNCT;
    }
    if (cp == 0x166D || cp == 0x111C9)
        return BERT_PUNCT;
    if (cp == 0x1734)
        return BERT_MARK;
    if (in_ranges(after_unicode_8, sizeof after_unicode_8 / sizeof after_unicode_8[0], cp))
        return BERT_PLAIN;
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CO: return BERT_DROP;
    case UTF8PROC_CATEGORY_MN: return BERT_MARK;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO: return BERT_PUNCT;
    default: return BERT_PLAIN;
    }
}

/* Ideographs, each a word of its own (the ranges of BERT's own code, one of which is short). */
static bool bert_ideograph(uint32_t cp)
{
    return (cp >= 0x4E00 && cp <= 0x9FFF) || (cp >= 0x3400 && cp <= 0x4DBF) ||
           (cp >= 0x20000 && cp <= 0x2A6DF) || (cp >= 0x2A700 && cp <= 0x2B73F) ||
           (cp >= 0x2B740 && cp <= 0x2B81F) || (cp >= 0x2B920 && cp <= 0x2CEAF) ||
           (cp >= 0xF900 && cp <= 0xFAFF) || (cp >= 0x2F800 && cp <= 0x2FA1F);
}

static bool close_word(struct bytes *out)
{
    return out->n == 0 || out->s[out->n - 1] == ' ' || bytes_add(out, " ", 1);
}

/* One character after decomposition. */
static bool bert_put(struct bytes *out, uint32_t cp, bool lowercase, bool strip_accents)
{
    enum bert_class c = bert_class(cp);
    if (strip_accents && c == BERT_MARK)
        return true;
    if (c == BERT_PUNCT)
        return close_word(out) && add_cp(out, cp) && close_word(out);
    if (lowercase && cp == 0x130) /* the one lower case form of two characters */
        return bytes_add(out, "i\xCC\x87", 3);
    if (lowercase)
        cp = cp < 0x80 ? (cp >= 'A' && cp <= 'Z' ? cp + 32 : cp)
                       : (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp);
    return add_cp(out, cp);
}

/* Copy letters and digits from the front of s[0..n), the bulk of most texts; returns how many,
 * or n + 1 without memory. */
static size_t copy_ascii(struct bytes *out, const char *s, size_t n, bool lowercase)
{
    size_t i = 0;
    while (i < n && ((s[i] >= 'a' && s[i] <= 'z') || (s[i] >= 'A' && s[i] <= 'Z') ||
                     (s[i] >= '0' && s[i] <= '9')))
        i++;
    if (i == 0)
        return 0;
    if (!bytes_room(out, i))
        return n + 1;
    for (size_t k = 0; k < i; k++) {
        bool upper = lowercase && s[k] >= 'A' && s[k] <= 'Z';
        out->s[out->n + k] = (char)(upper ? s[k] | 32 : s[k]);
    }
    out->n += i;
    return i;
}

bool normal_bert(struct bytes *out, const char *s, size_t n, bool lowercase, bool strip_accents)
{
    for (size_t i = 0; i < n;) {
        i += copy_ascii(out, s + i, n - i, lowercase);
        if (i >= n)
            return i == n;
        uint32_t cp;
        i += utf8_decode(s + i, n - i, &cp);
        bool line = cp == '\t' || cp == '\n' || cp == '\r';
        if (!line && (cp == UTF8_REPLACEMENT || bert_class(cp) == BERT_DROP))
            continue;
        if (normal_is_space(cp)) {
            if (!close_word(out))
                return false;
            continue;
        }
        bool ideograph = bert_ideograph(cp);
        if (ideograph && !close_word(out))
            return false;
        utf8proc_int32_t parts[8] = {
            (utf8proc_int32_t)cp}; /* no canonical decomposition is longer */
        utf8proc_ssize_t n_parts = 1;
        if (strip_accents && cp >= 0x80) {
            int boundary = 0;
            n_parts = utf8proc_decompose_char((utf8proc_int32_t)cp, parts, 8, UTF8PROC_DECOMPOSE,
                                              &boundary);
        }
        for (utf8proc_ssize_t k = 0; k < n_parts && k < 8; k++)
            if (!bert_put(out, (uint32_t)parts[k], lowercase, strip_accents))
                return false;
        if (ideograph && !close_word(out))
            return false;
    }
    return true;
}

/* ---- SentencePiece character maps ------------------------------------------------------------ */

/* Length of the grapheme cluster at s[0]. */
static size_t grapheme(const char *s, size_t n)
{
    uint32_t cp, next;
    utf8proc_int32_t state = 0;
    size_t i = utf8_decode(s, n, &cp);
    while (i < n) {
        size_t len = utf8_decode(s + i, n - i, &next);
        if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)cp, (utf8proc_int32_t)next, &state))
            break;
        cp = next;
        i += len;
    }
    return i;
}

/* A cluster this long or longer is replaced character by character: again the models' own rule. */
enum { LONG_CLUSTER = 6 };

bool normal_charsmap(struct bytes *out, const struct charsmap *m, const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t run = i;
        while (run < n && (unsigned char)s[run] < 0x80 && m->plain[(unsigned char)s[run]] &&
               (run + 1 == n || (unsigned char)s[run + 1] < 0x80))
            run++;
        if (run > i) {
            if (!bytes_add(out, s + i, run - i))
                return false;
            i = run;
            continue;
        }
        size_t len = grapheme(s + i, n - i);
        const char *to = len < LONG_CLUSTER ? charsmap_find(m, s + i, len) : NULL;
        if (to) {
            if (!bytes_add(out, to, strlen(to)))
                return false;
            i += len;
            continue;
        }
        for (size_t end = i + len; i < end;) {
            uint32_t cp;
            size_t one = utf8_decode(s + i, end - i, &cp);
            to = charsmap_find(m, s + i, one);
            if (!bytes_add(out, to ? to : s + i, to ? strlen(to) : one))
                return false;
            i += one;
        }
    }
    return true;
}

#endif
