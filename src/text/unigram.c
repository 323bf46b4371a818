/*
 * SentencePiece unigram (T5, XLM-R): of all ways to cut a word into tokens the one with the
 * greatest sum of scores (log probabilities), found left to right over byte positions. A character
 * without a token costs `unk_score`; neighbours of that kind are one unknown token.
 *
 * White space separates words when the file asks for extra spaces to be removed; else each space
 * is a mark of its own. Ill-formed bytes are U+FFFD before the character map sees them.
 */
#include "text/vocab_impl.h"

#include <float.h>
#include <stdlib.h>

/* The best way to reach a byte position. */
struct best {
    double score;
    uint32_t from;
    int32_t id; /* -1: unknown */
};

static bool lattice(struct enc *x, size_t n)
{
    if (n + 1 > x->best_cap) {
        size_t cap = n + n / 2 + 64;
        struct best *p = realloc(x->best, cap * sizeof *p);
        if (!p) {
            enc_no_memory(x);
            return false;
        }
        x->best = p;
        x->best_cap = cap;
    }
    x->best[0] = (struct best){0, 0, -1};
    for (size_t i = 1; i <= n; i++)
        x->best[i].score = -DBL_MAX;
    return true;
}

static void offer(struct best *to, double score, size_t from, int32_t id)
{
    if (score > to->score)
        *to = (struct best){score, (uint32_t)from, id};
}

static void search(struct enc *x, const char *s, size_t n)
{
    const struct vocab *v = x->v;
    for (size_t i = 0; i < n;) {
        size_t first = char_length(s + i, n - i);
        double score = x->best[i].score;
        bool single = false;
        uint32_t node = v->trie.root[(uint8_t)s[i]];
        for (size_t end = i + 1; node; end++) {
            int32_t id = v->trie.nodes[node].id;
            if (id >= 0) {
                bool user = v->types[id] == VOCAB_TYPE_USER;
                offer(&x->best[end], score + (user ? 0.0 : (double)v->scores[id]), i, id);
                single |= end == i + first;
            }
            if (end == n)
                break;
            node = trie_step(&v->trie, node, (uint8_t)s[end]);
        }
        if (!single)
            offer(&x->best[i + first], score + (double)v->unk_score, i, -1);
        i += first;
    }
}

static void encode_word(struct enc *x, const char *s, size_t n)
{
    size_t steps = 0;
    if (!lattice(x, n))
        return;
    search(x, s, n);
    for (size_t end = n; end > 0; end = x->best[end].from)
        steps++;
    if (!enc_symbols(x, steps))
        return;
    for (size_t end = n, k = steps; end > 0; end = x->best[end].from)
        x->symbols[--k] = (struct symbol){.off = x->best[end].from,
                                          .len = (uint32_t)end - x->best[end].from,
                                          .id = x->best[end].id};
    enc_emit_symbols(x, s, steps);
}

/* s[0..n) with ill-formed bytes replaced, after the character map. */
static bool normalise(struct enc *x, const char *s, size_t n)
{
    struct bytes *out = &x->normal;
    out->n = 0;
    while (n) {
        size_t valid = utf8_valid_prefix(s, n);
        bool ok = x->v->charsmap.trie ? normal_charsmap(out, &x->v->charsmap, s, valid)
                                      : bytes_add(out, s, valid);
        uint32_t cp;
        size_t bad = valid < n ? utf8_decode(s + valid, n - valid, &cp) : 0;
        if (!ok || (bad && !bytes_add(out, "\xEF\xBF\xBD", 3)))
            return false;
        s += valid + bad;
        n -= valid + bad;
    }
    return true;
}

/* The normal form with spaces as marks, one before the first word and between words. */
static bool mark_spaces(struct enc *x)
{
    const struct bytes *in = &x->normal;
    struct bytes *out = &x->escaped;
    bool merge = x->v->merge_spaces, word = false, prefixed = !x->v->add_space_prefix;
    out->n = 0;
    for (size_t i = 0, len; i < in->n; i += len) {
        uint32_t cp = 0;
        for (len = 0; i + len < in->n && (signed char)in->s[i + len] > ' ';
             len++) /* plain ASCII at once */
            ;
        if (len == 0)
            len = utf8_decode(in->s + i, in->n - i, &cp);
        bool space = merge ? normal_is_space(cp) : cp == ' ';
        bool mark = space ? !merge : !word && (merge || !prefixed);
        if (mark && !bytes_add(out, SPACE_MARK, SPACE_MARK_N))
            return false;
        if (!space && !bytes_add(out, in->s + i, len))
            return false;
        prefixed |= !space;
        word = !space;
    }
    return true;
}

void unigram_encode(struct enc *x, const char *s, size_t n)
{
    if (!normalise(x, s, n) || !mark_spaces(x)) {
        enc_no_memory(x);
        return;
    }
    const struct bytes *text = &x->escaped;
    for (size_t i = 0, len; i < text->n && x->status == LINNET_OK; i += len) {
        len = word_end(x->v, text->s + i, text->n - i);
        word_next(x, text->s + i, len, encode_word);
    }
    word_flush(x, encode_word);
}
