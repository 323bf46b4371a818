/*
 * Pre-tokenisers: how text is cut into words before byte-pair merges, by the name in
 * `tokenizer.ggml.pre`.
 */
#ifndef LINNET_TEXT_PRETOK_H
#define LINNET_TEXT_PRETOK_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

/* What a name implies beside the patterns. */
enum pretok_flags {
    PRETOK_WHOLE_WORDS = 1,  /* a word that is a token is that token, whatever the merges say */
    PRETOK_ADD_BOS = 2,      /* BOS is added unless the file says otherwise */
    PRETOK_CLEAN_SPACES = 4, /* decoding a whole text drops spaces before punctuation */
    PRETOK_NFC = 8,          /* text is normalised to NFC first */
    PRETOK_CHARS = 16,       /* symbols are characters with spaces written as U+2581, not bytes */
    PRETOK_NO_BOS = 32,      /* no BOS unless the file names one */
    PRETOK_LSTRIP_MASK = 64, /* the mask token swallows the spaces before it */
};

struct pretok;

/* Compile the patterns of `name` ("" is the default). LINNET_UNSUPPORTED names an unknown one. */
linnet_status pretok_create(const char *name, struct pretok **out, linnet_error *e);
void pretok_destroy(struct pretok *p);
unsigned pretok_flags(const struct pretok *p);
/* The known names, i = 0, 1, ...; NULL past the last. */
const char *pretok_name(size_t i);

/* Per-call scratch. Zero it before first use; pretok_scratch_free afterwards. */
struct pretok_scratch {
    void *match, *context, *stack;
    size_t stack_size;
    bool no_shortcuts; /* find every word with the pattern matcher (tests compare) */
};
void pretok_scratch_free(struct pretok_scratch *x);

/* Called with each word in order; words are not empty and their concatenation is the text. */
typedef void pretok_word_fn(void *arg, const char *s, size_t n);

/* Cut s[0..n), well-formed UTF-8. An error (out of memory, a limit of the pattern matcher) is
 * reported, never swallowed: then the words given so far cover only a part. */
linnet_status pretok_split(const struct pretok *p, struct pretok_scratch *x, const char *s,
                           size_t n, pretok_word_fn *fn, void *arg, linnet_error *e);

#endif
