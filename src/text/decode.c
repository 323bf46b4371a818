/*
 * Decoding: ids to bytes, whole or as a stream of complete characters.
 *
 * A token is its piece: bytes fixed at load. Decoding is their concatenation; a stream gives the
 * same bytes and only holds back the beginning of a character. Only VOCAB_STRIP_PREFIX and
 * VOCAB_CLEAN_SPACES edit it.
 */
#include "base/limits.h"
#include "text/vocab_impl.h"

#include <stdlib.h>

static bool valid_id(const struct vocab *v, int32_t id)
{
    return id >= 0 && (size_t)id < v->n_tokens;
}

struct gguf_str vocab_text(const struct vocab *v, int32_t id)
{
    if (!valid_id(v, id))
        return (struct gguf_str){"", 0};
    return (struct gguf_str){v->texts[id].s, v->texts[id].n};
}

struct gguf_str vocab_piece(const struct vocab *v, int32_t id)
{
    if (!valid_id(v, id))
        return (struct gguf_str){"", 0};
    return (struct gguf_str){v->pieces[id].s, v->pieces[id].n};
}

enum vocab_type vocab_type(const struct vocab *v, int32_t id)
{
    return valid_id(v, id) ? (enum vocab_type)v->types[id] : VOCAB_TYPE_UNDEFINED;
}

float vocab_score(const struct vocab *v, int32_t id)
{
    return valid_id(v, id) ? v->scores[id] : 0.0f;
}

bool vocab_is_special(const struct vocab *v, int32_t id)
{
    enum vocab_type type = vocab_type(v, id);
    return type == VOCAB_TYPE_CONTROL || type == VOCAB_TYPE_UNKNOWN;
}

bool vocab_is_eog(const struct vocab *v, int32_t id)
{
    return valid_id(v, id) && (v->flags[id] & TOKEN_EOG);
}

size_t vocab_piece_max(const struct vocab *v)
{
    return v->max_piece;
}

static linnet_status bad_id(const struct vocab *v, int32_t id, linnet_error *e)
{
    return err_set(e, LINNET_INVALID, "token id %d is outside the vocabulary of %zu", id,
                   v->n_tokens);
}

/* The piece that an id prints under these flags. */
static struct str shown(const struct vocab *v, int32_t id, unsigned flags)
{
    if (!(flags & VOCAB_SHOW_SPECIAL) && vocab_is_special(v, id))
        return (struct str){"", 0};
    return v->pieces[id];
}

/* The three passes below rewrite s[0..n) in place, reading ahead of where they write, and
 * return the new length. They are those of the models' common "clean up tokenization spaces". */

/* A space before one of ?!., goes. */
static size_t clean_marks(char *s, size_t n)
{
    size_t out = n ? 1 : 0;
    for (size_t i = 1; i < n; i++) {
        char c = s[i];
        if (s[i - 1] == ' ' && (c == '?' || c == '!' || c == '.' || c == ','))
            out--;
        s[out++] = c;
    }
    return out;
}

/* The spaces on both sides of a lone apostrophe go. */
static size_t clean_apostrophes(char *s, size_t n)
{
    size_t out = n ? 1 : 0;
    for (size_t i = 1; i < n; i++) {
        char c = s[i];
        if (c == '\'' && i + 1 < n && s[i - 1] == ' ' && s[i + 1] == ' ') {
            out--;
            s[++i] = '\0'; /* not a space to the next character */
        }
        s[out++] = c;
    }
    return out;
}

/* The space before 's, 'm, 're and 've goes. */
static size_t clean_suffixes(char *s, size_t n)
{
    size_t out = n ? 1 : 0;
    for (size_t i = 1; i < n; i++) {
        char c = s[i];
        if (s[i - 1] == ' ' && c == '\'' && i + 1 < n) {
            char a = s[i + 1], b = i + 2 < n ? s[i + 2] : '\0';
            if (a == 's' || a == 'm' || ((a == 'r' || a == 'v') && b == 'e'))
                out--;
        }
        s[out++] = c;
    }
    return out;
}

static linnet_status decode_plain(const struct vocab *v, const int32_t *ids, size_t n,
                                  unsigned flags, bool strip, struct bytes *out, linnet_error *e)
{
    for (size_t i = 0; i < n; i++) {
        if (!valid_id(v, ids[i]))
            return bad_id(v, ids[i], e);
        struct str p = shown(v, ids[i], flags);
        if (i == 0 && strip && p.n && p.s[0] == ' ') {
            p.s++;
            p.n--;
        }
        if (!bytes_add(out, p.s, p.n))
            return err_memory(e, "decoded text", out->n + p.n);
    }
    return LINNET_OK;
}

linnet_status vocab_decode(const struct vocab *v, const int32_t *ids, size_t n, unsigned flags,
                           char *out, size_t cap, size_t *n_out, linnet_error *e)
{
    bool strip = (flags & VOCAB_STRIP_PREFIX) && v->add_space_prefix;
    if (flags & VOCAB_REMOVE_SPECIAL) {
        int32_t last = v->special[v->kind == VOCAB_WORDPIECE ? VOCAB_SEP : VOCAB_EOS];
        if (n && v->add_bos && ids[0] == v->special[VOCAB_BOS]) {
            ids++;
            n--;
            strip = false;
        }
        if (n && v->add_eos && ids[n - 1] == last)
            n--;
    }
    struct bytes text = {0};
    linnet_status status = decode_plain(v, ids, n, flags, strip, &text, e);
    if (status == LINNET_OK) {
        if ((flags & VOCAB_CLEAN_SPACES) && v->clean_spaces) {
            text.n = clean_marks(text.s, text.n);
            text.n = clean_apostrophes(text.s, text.n);
            text.n = clean_suffixes(text.s, text.n);
        }
        *n_out = text.n;
        size_t fits = text.n < cap ? text.n : cap;
        if (fits)
            memcpy(out, text.s, fits);
        if (text.n > cap)
            status = err_set(e, LINNET_LIMIT, "the text is %zu bytes, there is room for %zu",
                             text.n, cap);
    }
    free(text.s);
    return status;
}

void detok_init(struct detok *d, const struct vocab *v, unsigned flags)
{
    *d = (struct detok){.v = v, .flags = flags};
}

size_t detok_room(const struct vocab *v)
{
    return (size_t)v->max_piece + sizeof((struct detok *)0)->held;
}

linnet_status detok_push(struct detok *d, int32_t id, char *out, size_t *n, linnet_error *e)
{
    if (!valid_id(d->v, id))
        return bad_id(d->v, id, e);
    struct str p = shown(d->v, id, d->flags);
    memcpy(out, d->held, d->n_held);
    memcpy(out + d->n_held, p.s, p.n);
    size_t total = d->n_held + p.n;
    d->n_held = (unsigned)utf8_incomplete_tail(out, total);
    memcpy(d->held, out + total - d->n_held, d->n_held);
    *n = total - d->n_held;
    return LINNET_OK;
}

size_t detok_flush(struct detok *d, char out[4])
{
    size_t n = d->n_held;
    memcpy(out, d->held, n);
    d->n_held = 0;
    return n;
}
