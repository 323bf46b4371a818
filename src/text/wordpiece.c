/*
 * WordPiece (BERT): normalise, cut into words, take the longest token from the front of each word.
 * GGUF files store first pieces with U+2581 before them and continuing pieces bare. A word with a
 * part that is no token, or of more than 100 characters, is the unknown token as a whole.
 */
#include "text/vocab_impl.h"

enum { MAX_WORD_CHARS = 100 }; /* of the models' own settings */

/* The longest token at s[0], the walk starting at `node`; its length in *len. */
static int32_t longest(const struct vocab *v, uint32_t node, const char *s, size_t n, size_t *len)
{
    int32_t found = -1;
    for (size_t i = 0; i < n; i++) {
        node = node ? trie_step(&v->trie, node, (uint8_t)s[i]) : v->trie.root[(uint8_t)s[i]];
        if (!node)
            break;
        if (v->trie.nodes[node].id >= 0) {
            found = v->trie.nodes[node].id;
            *len = i + 1;
        }
    }
    return found;
}

/* The trie's node after SPACE_MARK, or 0. */
static uint32_t mark_node(const struct vocab *v)
{
    uint32_t node = v->trie.root[(uint8_t)SPACE_MARK[0]];
    for (size_t i = 1; node && i < SPACE_MARK_N; i++)
        node = trie_step(&v->trie, node, (uint8_t)SPACE_MARK[i]);
    return node;
}

static bool pieces(struct enc *x, const char *s, size_t n)
{
    const struct vocab *v = x->v;
    size_t chars = 0, len = 0;
    for (size_t i = 0; i < n; i++)
        chars += ((unsigned char)s[i] & 0xC0) != 0x80;
    uint32_t start = mark_node(v);
    if (chars > MAX_WORD_CHARS || !start)
        return false;
    for (size_t i = 0; i < n; i += len) {
        /* A continuing piece cannot begin with the mark: those are first pieces. */
        if (i && n - i >= SPACE_MARK_N && memcmp(s + i, SPACE_MARK, SPACE_MARK_N) == 0)
            return false;
        int32_t id = longest(v, i ? 0 : start, s + i, n - i, &len);
        if (id < 0)
            return false;
        enc_emit(x, id);
    }
    return true;
}

static void encode_word(struct enc *x, const char *s, size_t n)
{
    size_t from = x->n;
    if (pieces(x, s, n))
        return;
    x->n = from;
    if (x->v->special[VOCAB_UNK] >= 0)
        enc_emit(x, x->v->special[VOCAB_UNK]);
    else
        enc_fail(x, LINNET_UNSUPPORTED, "a word has no tokens and the vocabulary no unknown token");
}

void wordpiece_encode(struct enc *x, const char *s, size_t n)
{
    struct bytes *text = &x->normal;
    text->n = 0;
    if (!normal_bert(text, s, n, x->v->lowercase, x->v->strip_accents)) {
        enc_no_memory(x);
        return;
    }
    for (size_t i = 0; i < text->n && x->status == LINNET_OK;) {
        const char *space = memchr(text->s + i, ' ', text->n - i);
        size_t end = space ? (size_t)(space - text->s) : text->n;
        if (end > i)
            word_next(x, text->s + i, end - i, encode_word);
        i = end + 1;
    }
    word_flush(x, encode_word);
}
