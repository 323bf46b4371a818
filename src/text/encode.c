/*
 * Encoding: from text to ids. This file finds the marked tokens (control, unknown, user-defined)
 * in the text, hands the text between them to the vocabulary's own method, adds BOS and EOS, and
 * owns one call's state.
 *
 * Rules kept here: a control or unknown token is found only where the caller said the text is
 * trusted, and wholly so; user-defined tokens are found everywhere; of the tokens that match at a
 * place the longest wins, the leftmost place first. Every failure is sticky in `enc` and reported;
 * ids are never dropped silently.
 */
#include "base/checked.h"
#include "base/limits.h"
#include "text/vocab_impl.h"

#include <stdlib.h>

void enc_fail(struct enc *x, linnet_status status, const char *text)
{
    if (x->status == LINNET_OK)
        x->status = err_set(x->e, status, "%s", text);
}

void enc_no_memory(struct enc *x)
{
    enc_fail(x, LINNET_NO_MEMORY, "out of memory while encoding text");
}

bool enc_grow(struct enc *x)
{
    size_t cap = x->cap ? x->cap * 2 : 256;
    int32_t *ids = x->status == LINNET_OK ? realloc(x->ids, cap * sizeof *ids) : NULL;
    if (!ids) {
        enc_no_memory(x);
        return false;
    }
    x->ids = ids;
    x->cap = cap;
    return true;
}

void enc_bytes(struct enc *x, const char *s, size_t n)
{
    bool unknown = false;
    for (size_t i = 0; i < n; i++) {
        int32_t id = x->v->bytes[(uint8_t)s[i]];
        if (id >= 0)
            enc_emit(x, id);
        else
            unknown = true;
    }
    if (!unknown || x->v->kind == VOCAB_BPE)
        return; /* byte-pair vocabularies drop what has no token, as their own library does */
    if (x->v->special[VOCAB_UNK] >= 0)
        enc_emit(x, x->v->special[VOCAB_UNK]);
    else
        enc_fail(x, LINNET_UNSUPPORTED,
                 "the vocabulary has no token for a part of the text, and no unknown token");
}

void enc_emit_symbols(struct enc *x, const char *s, size_t n)
{
    const struct symbol *y = x->symbols;
    for (size_t i = 0; i < n;) {
        if (y[i].id >= 0) {
            enc_emit(x, y[i++].id);
            continue;
        }
        uint32_t off = y[i].off;
        size_t len = 0; /* unknown neighbours are one unknown */
        for (; i < n && y[i].id < 0; i++)
            len += y[i].len;
        enc_bytes(x, s + off, len);
    }
}

bool enc_symbols(struct enc *x, size_t n)
{
    if (n <= x->symbols_cap)
        return true;
    size_t cap = n + n / 2 + 64;
    struct symbol *p = realloc(x->symbols, cap * sizeof *p);
    if (!p) {
        enc_no_memory(x);
        return false;
    }
    x->symbols = p;
    x->symbols_cap = cap;
    return true;
}

/* memcmp(a, b, n) == 0 for the lengths of words, without a call for most of them. */
static bool same_word(const char *a, const char *b, size_t n)
{
    uint64_t x, y;
    uint32_t u, w;
    if (n > 16)
        return memcmp(a, b, n) == 0;
    if (n >= 8) {
        memcpy(&x, a, 8);
        memcpy(&y, b, 8);
        if (x != y)
            return false;
        memcpy(&x, a + n - 8, 8);
        memcpy(&y, b + n - 8, 8);
        return x == y;
    }
    if (n >= 4) {
        memcpy(&u, a, 4);
        memcpy(&w, b, 4);
        if (u != w)
            return false;
        memcpy(&u, a + n - 4, 4);
        memcpy(&w, b + n - 4, 4);
        return u == w;
    }
    return a[0] == b[0] && a[n - 1] == b[n - 1] && a[n / 2] == b[n / 2];
}

static bool kept_length(size_t n)
{
    return n > 0 && n <= WORD_KEY;
}

static void encode_held(struct enc *x, const struct held_word *w, word_encode_fn *fn)
{
    if (!x->slots || !kept_length(w->n)) {
        fn(x, w->s, w->n);
        return;
    }
    struct word_slot *slot = &x->slots[(w->hash >> 32) & x->slot_mask];
    if (slot->n_key == w->n && slot->hash == (uint32_t)w->hash &&
        same_word(slot->key, w->s, w->n)) {
        for (unsigned i = 0; i < slot->n_ids; i++)
            enc_emit(x, slot->ids[i]);
        return;
    }
    size_t from = x->n;
    fn(x, w->s, w->n);
    size_t n_ids = x->n - from;
    if (n_ids > WORD_IDS || x->status != LINNET_OK)
        return;
    slot->hash = (uint32_t)w->hash;
    slot->n_key = (uint16_t)w->n;
    slot->n_ids = (uint16_t)n_ids;
    memcpy(slot->key, w->s, w->n);
    memcpy(slot->ids, x->ids + from, n_ids * sizeof *slot->ids);
}

static void encode_first_held(struct enc *x, word_encode_fn *fn)
{
    const struct held_word *w = &x->held[x->first_held];
    x->first_held = (x->first_held + 1) % HELD_WORDS;
    x->n_held--;
    if (x->status == LINNET_OK)
        encode_held(x, w, fn);
}

void word_next(struct enc *x, const char *s, size_t n, word_encode_fn *fn)
{
    if (x->n_held == HELD_WORDS)
        encode_first_held(x, fn);
    struct held_word *w = &x->held[(x->first_held + x->n_held++) % HELD_WORDS];
    *w = (struct held_word){s, n, 0};
    if (x->slots && kept_length(n)) {
        w->hash = index_hash(s, n);
        __builtin_prefetch(&x->slots[(w->hash >> 32) & x->slot_mask], 1);
    }
}

void word_flush(struct enc *x, word_encode_fn *fn)
{
    while (x->n_held)
        encode_first_held(x, fn);
}

/* May text be cut before the space mark at s[at]? */
static bool cut_before_mark(const struct vocab *v, const char *s, size_t at)
{
    size_t back = at;
    while (back > 0 && ((unsigned char)s[--back] & 0xC0) == 0x80)
        ;
    if (!v->mark_cuts ||
        (at - back == SPACE_MARK_N && memcmp(s + back, SPACE_MARK, SPACE_MARK_N) == 0))
        return false;
    if (v->n_before_mark == 0)
        return true;
    uint32_t cp;
    utf8_decode(s + back, at - back, &cp);
    size_t lo = 0, hi = v->n_before_mark;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (v->before_mark[mid] < cp)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo == v->n_before_mark || v->before_mark[lo] != cp;
}

size_t word_end(const struct vocab *v, const char *s, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        uint8_t a = (uint8_t)s[i - 1], b = (uint8_t)s[i];
        if ((a | b) < 0x80) {
            if (!(v->joined[a][b >> 3] >> (b & 7) & 1))
                return i;
        } else if (b == (uint8_t)SPACE_MARK[0] && n - i >= SPACE_MARK_N &&
                   memcmp(s + i, SPACE_MARK, SPACE_MARK_N) == 0 && cut_before_mark(v, s, i)) {
            return i;
        }
    }
    return n;
}

static void encode_plain(struct enc *x, const char *s, size_t n)
{
    if (n == 0 || x->status != LINNET_OK)
        return;
    switch (x->v->kind) {
    case VOCAB_SPM: spm_encode(x, s, n); break;
    case VOCAB_BPE: bpe_encode(x, s, n); break;
    case VOCAB_WORDPIECE: wordpiece_encode(x, s, n); break;
    case VOCAB_UNIGRAM: unigram_encode(x, s, n); break;
    case VOCAB_RWKV: rwkv_encode(x, s, n); break;
    }
}

/* The longest marked token at s[0]: user tokens within n bytes, the others within `trusted`. */
static int32_t match_marked(const struct vocab *v, const char *s, size_t n, size_t trusted,
                            size_t *len)
{
    int32_t found = -1;
    uint32_t node = v->marked.root[(uint8_t)s[0]];
    for (size_t i = 1; node; i++) {
        int32_t id = v->marked.nodes[node].id;
        if (id >= 0 && (v->types[id] == VOCAB_TYPE_USER || i <= trusted)) {
            found = id;
            *len = i;
        }
        if (i == n)
            break;
        node = trie_step(&v->marked, node, (uint8_t)s[i]);
    }
    return found;
}

/* What C's isspace takes in the C locale: what strip rules strip. */
static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* A stretch of neighbouring trusted parts. */
struct run {
    size_t start, end;
};

static void encode_text(struct enc *x, const char *s, size_t n, const struct run *runs,
                        size_t n_runs, bool added_bos)
{
    const struct vocab *v = x->v;
    size_t start = 0, r = 0, begin = x->n;
    for (size_t p = 0; p < n && x->status == LINNET_OK;) {
        if (!v->marked_first[(uint8_t)s[p]]) {
            p++;
            continue;
        }
        while (r < n_runs && runs[r].end <= p)
            r++;
        size_t len = 0, trusted = r < n_runs && runs[r].start <= p ? runs[r].end - p : 0;
        int32_t id = match_marked(v, s + p, n - p, trusted, &len);
        if (id < 0) {
            p++;
            continue;
        }
        size_t end = p;
        if (v->flags[id] & TOKEN_LSTRIP)
            while (end > start && is_blank(s[end - 1]))
                end--;
        encode_plain(x, s + start, end - start);
        if (!(added_bos && x->n == begin && id == v->special[VOCAB_BOS]))
            enc_emit(x, id);
        p += len;
        if (v->flags[id] & TOKEN_RSTRIP)
            while (p < n && is_blank(s[p]))
                p++;
        start = p;
    }
    encode_plain(x, s + start, n - start);
}

/* Join the parts and list the trusted stretches. Frees nothing: the caller owns both. */
static linnet_status join_parts(const struct vocab_part *parts, size_t n_parts, size_t total,
                                char **text, struct run **runs, size_t *n_runs, linnet_error *e)
{
    *runs = malloc((n_parts + 1) * sizeof **runs);
    *text = n_parts > 1 ? malloc(total + 1) : NULL;
    if (!*runs || (n_parts > 1 && !*text))
        return err_memory(e, "the text of a prompt", total);
    size_t at = 0, k = 0;
    for (size_t i = 0; i < n_parts; i++) {
        if (parts[i].n == 0)
            continue;
        if (*text)
            memcpy(*text + at, parts[i].s, parts[i].n);
        if (parts[i].trusted) {
            if (k == 0 || (*runs)[k - 1].end != at)
                (*runs)[k++] = (struct run){at, at};
            (*runs)[k - 1].end = at + parts[i].n;
        }
        at += parts[i].n;
    }
    *n_runs = k;
    return LINNET_OK;
}

enum { MAX_SLOTS = 32768 }; /* 2 MB */

/* A cache of words pays only on texts of some length; its size follows the text's. */
static void make_slots(struct enc *x, size_t n)
{
    if (n < 256 || x->v->kind == VOCAB_RWKV)
        return;
    size_t slots = 64;
    while (slots < MAX_SLOTS && slots < n / 32)
        slots *= 2;
    x->slots = calloc(slots, sizeof *x->slots);
    if (!x->slots)
        enc_no_memory(x);
    x->slot_mask = slots - 1;
}

static void enc_free(struct enc *x)
{
    free(x->ids);
    free(x->slots);
    free(x->symbols);
    free(x->heap);
    free(x->best);
    free(x->escaped.s);
    free(x->normal.s);
    pretok_scratch_free(&x->pretok);
}

linnet_status vocab_encode_parts(const struct vocab *v, const struct vocab_part *parts,
                                 size_t n_parts, unsigned flags, int32_t *out, size_t cap,
                                 size_t *n_out, linnet_error *e)
{
    size_t total = 0;
    for (size_t i = 0; i < n_parts; i++)
        if (!size_add(total, parts[i].n, &total) || total > LIMIT_TEXT_BYTES)
            return err_set(e, LINNET_LIMIT, "a text of more than %d bytes in one call",
                           LIMIT_TEXT_BYTES);
    char *text = NULL;
    struct run *runs = NULL;
    size_t n_runs = 0;
    struct enc x = {.v = v, .e = e};
    x.status = join_parts(parts, n_parts, total, &text, &runs, &n_runs, e);
    if (x.status == LINNET_OK) {
        bool bos = (flags & VOCAB_ADD_SPECIAL) && v->add_bos;
        make_slots(&x, total);
        if (bos)
            enc_emit(&x, v->special[VOCAB_BOS]);
        if (total)
            encode_text(&x, text ? text : parts[0].s, total, runs, n_runs, bos);
        if ((flags & VOCAB_ADD_SPECIAL) && v->add_eos)
            enc_emit(&x, v->special[v->kind == VOCAB_WORDPIECE ? VOCAB_SEP : VOCAB_EOS]);
    }
    if (x.status == LINNET_OK) {
        *n_out = x.n;
        size_t fits = x.n < cap ? x.n : cap;
        if (fits)
            memcpy(out, x.ids, fits * sizeof *out);
        if (x.n > cap)
            x.status =
                err_set(e, LINNET_LIMIT, "the text is %zu tokens, there is room for %zu", x.n, cap);
    }
    enc_free(&x);
    free(text);
    free(runs);
    return x.status;
}

linnet_status vocab_encode(const struct vocab *v, const char *text, size_t n, unsigned flags,
                           int32_t *out, size_t cap, size_t *n_out, linnet_error *e)
{
    struct vocab_part part = {text, n, (flags & VOCAB_PARSE_SPECIAL) != 0};
    return vocab_encode_parts(v, &part, 1, flags, out, cap, n_out, e);
}
