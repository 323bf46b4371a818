/*
 * Byte-pair vocabularies with a merge list: the GPT-2 kind (symbols are bytes, words are cut by
 * the pre-tokeniser) and the gemma4 kind (symbols are characters, spaces written as U+2581, bytes
 * as a fallback).
 *
 * Ill-formed UTF-8 is not replaced: its bytes become byte tokens, so that decoding gives the text
 * back. Only a byte the vocabulary has no token for becomes U+FFFD.
 */
#include "text/vocab_impl.h"

static bool merge_pair(const struct enc *x, const char *s, const struct symbol *l,
                       const struct symbol *r, uint32_t *rank, int32_t *id)
{
    (void)s;
    if (l->id < 0 || r->id < 0)
        return false;
    const struct pairmap_slot *m = pairmap_get(&x->v->merges, l->id, r->id);
    if (!m)
        return false;
    *rank = m->rank;
    *id = m->id;
    return true;
}

/* One word: bytes, or characters where the vocabulary works on those. */
static void encode_word(struct enc *x, const char *s, size_t n)
{
    const struct vocab *v = x->v;
    int32_t whole = v->whole_words ? strmap_get(&v->words, s, n) : -1;
    if (whole >= 0) {
        enc_emit(x, whole);
        return;
    }
    size_t count = 0;
    if (!enc_symbols(x, n))
        return;
    for (size_t i = 0; i < n; count++) {
        size_t len = v->chars ? char_length(s + i, n - i) : 1;
        int32_t id = v->chars ? strmap_get(&v->words, s + i, len) : v->bytes[(uint8_t)s[i]];
        x->symbols[count] = (struct symbol){.off = (uint32_t)i, .len = (uint32_t)len, .id = id};
        i += len;
    }
    enc_emit_symbols(x, s, merge_symbols(x, s, count, merge_pair));
}

static void word_fn(void *arg, const char *s, size_t n)
{
    word_next(arg, s, n, encode_word);
}

/* Bytes that are not UTF-8. */
static void encode_raw(struct enc *x, const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t end = i;
        while (end < n && x->v->bytes[(uint8_t)s[end]] >= 0)
            end++;
        if (end > i)
            word_next(x, s + i, end - i, encode_word);
        if (end < n)
            word_next(x, "\xEF\xBF\xBD", 3, encode_word), end++;
        i = end;
    }
}

static void encode_valid(struct enc *x, const char *s, size_t n)
{
    if (x->v->nfc) {
        x->normal.n = 0;
        if (!normal_nfc(&x->normal, s, n)) {
            enc_no_memory(x);
            return;
        }
        s = x->normal.s;
        n = x->normal.n;
    }
    linnet_status status = pretok_split(x->v->pretok, &x->pretok, s, n, word_fn, x, x->e);
    word_flush(x, encode_word);
    if (status != LINNET_OK && x->status == LINNET_OK)
        x->status = status;
}

/* The gemma4 kind: lines and runs of line feeds, cut further where no token can reach across. */
static void encode_chars(struct enc *x, const char *s, size_t n)
{
    for (size_t i = 0; i < n && x->status == LINNET_OK;) {
        bool feeds = s[i] == '\n';
        size_t end = i;
        while (end < n && (s[end] == '\n') == feeds)
            end++;
        int32_t run = feeds ? strmap_get(&x->v->words, s + i, end - i) : -1;
        if (run >= 0) {
            word_flush(x, encode_word);
            enc_emit(x, run);
        }
        for (size_t len; run < 0 && i < end; i += len) {
            len = word_end(x->v, s + i, end - i);
            word_next(x, s + i, len, encode_word);
        }
        i = end;
    }
}

void bpe_encode(struct enc *x, const char *s, size_t n)
{
    if (x->v->chars) {
        x->escaped.n = 0;
        if (!escape_spaces(&x->escaped, s, n)) {
            enc_no_memory(x);
            return;
        }
        encode_chars(x, x->escaped.s, x->escaped.n);
        word_flush(x, encode_word);
        return;
    }
    while (n && x->status == LINNET_OK) {
        size_t valid = utf8_valid_prefix(s, n), bad = valid;
        if (valid)
            encode_valid(x, s, valid);
        while (bad < n && utf8_valid_prefix(s + bad, n - bad < 4 ? n - bad : 4) == 0) {
            uint32_t cp;
            bad += utf8_decode(s + bad, n - bad, &cp);
        }
        if (bad > valid && x->status == LINNET_OK)
            encode_raw(x, s + valid, bad - valid);
        word_flush(x, encode_word);
        s += bad;
        n -= bad;
    }
}
