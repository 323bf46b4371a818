/*
 * SentencePiece BPE: symbols are characters, a pair merges when its text is a token, the token of
 * the best score first. Characters that are no token become byte tokens, ill-formed UTF-8
 * likewise.
 *
 * Merging a text as one word would be n log n over all of it. Text is cut where no token reaches
 * across (see vocab.joined), which changes nothing and lets words be remembered.
 */
#include "text/vocab_impl.h"

bool escape_spaces(struct bytes *out, const char *s, size_t n)
{
    while (n) {
        const char *space = memchr(s, ' ', n);
        size_t run = space ? (size_t)(space - s) : n;
        if (!bytes_add(out, s, run) || (space && !bytes_add(out, SPACE_MARK, SPACE_MARK_N)))
            return false;
        s += run + (space != NULL);
        n -= run + (space != NULL);
    }
    return true;
}

static bool text_pair(const struct enc *x, const char *s, const struct symbol *l,
                      const struct symbol *r, uint32_t *rank, int32_t *id)
{
    int32_t token = strmap_get(&x->v->words, s + l->off, l->len + r->len);
    if (token < 0)
        return false;
    *rank = x->v->rank[token];
    *id = token;
    return true;
}

static void encode_word(struct enc *x, const char *s, size_t n)
{
    size_t count = 0;
    if (!enc_symbols(x, n))
        return;
    for (size_t i = 0; i < n; count++) {
        size_t len = char_length(s + i, n - i);
        x->symbols[count] = (struct symbol){
            .off = (uint32_t)i, .len = (uint32_t)len, .id = strmap_get(&x->v->words, s + i, len)};
        i += len;
    }
    count = merge_symbols(x, s, count, text_pair);
    enc_emit_symbols(x, s, count);
}

void spm_encode(struct enc *x, const char *s, size_t n)
{
    struct bytes *text = &x->escaped;
    text->n = 0;
    if ((x->v->add_space_prefix && !bytes_add(text, SPACE_MARK, SPACE_MARK_N)) ||
        !escape_spaces(text, s, n)) {
        enc_no_memory(x);
        return;
    }
    for (size_t i = 0, len; i < text->n && x->status == LINNET_OK; i += len) {
        len = word_end(x->v, text->s + i, text->n - i);
        word_next(x, text->s + i, len, encode_word);
    }
    word_flush(x, encode_word);
}
