/*
 * Vocabularies: text to token ids and back, as the GGUF file's `tokenizer.*` keys define it.
 *
 * A vocabulary is immutable after vocab_load and may be shared by any number of threads; what a
 * call needs beside it is allocated by the call. It keeps no pointer into the GGUF file. Every
 * special id may be absent (-1). Nothing here turns untrusted text into control tokens unless the
 * caller marks it as trusted.
 */
#ifndef LINNET_TEXT_VOCAB_H
#define LINNET_TEXT_VOCAB_H

#include "base/err.h"
#include "gguf/gguf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vocab;

enum vocab_kind {
    VOCAB_SPM,       /* SentencePiece BPE: pairs merged by token score, byte fallback */
    VOCAB_BPE,       /* byte-level BPE (or, for gemma4, BPE over characters with byte fallback) */
    VOCAB_WORDPIECE, /* BERT */
    VOCAB_UNIGRAM,   /* SentencePiece unigram (T5, XLM-R) */
    VOCAB_RWKV,      /* greedy longest match over bytes */
};

/* `tokenizer.ggml.token_type`, by number in the file. */
enum vocab_type {
    VOCAB_TYPE_UNDEFINED = 0,
    VOCAB_TYPE_NORMAL = 1,
    VOCAB_TYPE_UNKNOWN = 2,
    VOCAB_TYPE_CONTROL = 3,
    VOCAB_TYPE_USER = 4, /* added by hand: always matched whole in text, printed as text */
    VOCAB_TYPE_UNUSED = 5,
    VOCAB_TYPE_BYTE = 6, /* "<0xNN>" */
};

enum vocab_special {
    VOCAB_BOS,
    VOCAB_EOS,
    VOCAB_EOT, /* end of turn */
    VOCAB_EOM, /* end of message (a tool call follows) */
    VOCAB_UNK,
    VOCAB_SEP,
    VOCAB_PAD,
    VOCAB_MASK,
    VOCAB_CLS,
    VOCAB_NL, /* the token that is a line feed alone */
    VOCAB_FIM_PRE,
    VOCAB_FIM_SUF,
    VOCAB_FIM_MID,
    VOCAB_FIM_PAD,
    VOCAB_FIM_REP,
    VOCAB_FIM_SEP,
    VOCAB_SPECIAL_COUNT,
};

/* Read the vocabulary of an open file; the file need not hold any tensor. LINNET_NOT_FOUND when
 * it has none (`tokenizer.ggml.model` absent or "none" / "no_vocab"), LINNET_UNSUPPORTED for a
 * model or pre-tokenizer name that is not known (the text names it), LINNET_FORMAT for keys of
 * a wrong type, count or range. */
linnet_status vocab_load(const struct gguf *g, struct vocab **out, linnet_error *e);
void vocab_free(struct vocab *v);

enum vocab_kind vocab_kind(const struct vocab *v);
const char *vocab_model(const struct vocab *v); /* `tokenizer.ggml.model` */
const char *vocab_pre(const struct vocab *v);   /* `tokenizer.ggml.pre`, "" when absent */
size_t vocab_size(const struct vocab *v);
size_t vocab_bytes(const struct vocab *v); /* memory it holds */

/* Properties of token `id`, 0 <= id < vocab_size(). Strings live as long as the vocabulary and
 * are not NUL-terminated. Out of range ids give an empty string, type UNDEFINED and score 0. */
struct gguf_str vocab_text(const struct vocab *v, int32_t id); /* as written in the file */
struct gguf_str vocab_piece(const struct vocab *v,
                            int32_t id); /* the bytes it stands for, specials as text */
enum vocab_type vocab_type(const struct vocab *v, int32_t id);
float vocab_score(const struct vocab *v, int32_t id);
/* Control or unknown: text the model reads or writes as structure, hidden from users. */
bool vocab_is_special(const struct vocab *v, int32_t id);
/* Ends a generation: eos, eot, eom and the other end tokens the vocabulary is known to have. */
bool vocab_is_eog(const struct vocab *v, int32_t id);

/* The id of a role, or -1: not every vocabulary has every role. */
int32_t vocab_special(const struct vocab *v, enum vocab_special which);
/* The id whose file text is exactly `s`, or -1. */
int32_t vocab_find(const struct vocab *v, const char *s, size_t n);
/* The id that stands for the single byte `b`, or -1. */
int32_t vocab_byte(const struct vocab *v, uint8_t b);

/* What `add_special` does, as keys and model kind say. */
bool vocab_add_bos(const struct vocab *v);
bool vocab_add_eos(const struct vocab *v);
bool vocab_add_space_prefix(const struct vocab *v);

enum vocab_encode_flags {
    VOCAB_ADD_SPECIAL = 1, /* begin / end with the ids the model expects (at most one BOS) */
    VOCAB_PARSE_SPECIAL =
        2, /* the text is trusted: the texts of control tokens become those tokens */
};

/* Encode text[0..n), any bytes (ill-formed UTF-8: docs/tokenizer.md). Writes min(*n_out, cap)
 * ids; *n_out is the number of ids in full, and LINNET_LIMIT is returned when that is above
 * `cap` (call again with room; n + 16 is nearly always enough). `out` may be NULL when cap is
 * 0. */
linnet_status vocab_encode(const struct vocab *v, const char *text, size_t n, unsigned flags,
                           int32_t *out, size_t cap, size_t *n_out, linnet_error *e);

/* A prompt made of parts: those a template wrote (trusted) and those that carry somebody's
 * text. The parts are read as one text, words may cross from one to the next, but a control
 * token is recognised only when it lies wholly inside neighbouring trusted parts. With
 * ADD_SPECIAL no second BOS is put before a text that already begins with one. `flags`:
 * ADD_SPECIAL only. */
struct vocab_part {
    const char *s;
    size_t n;
    bool trusted;
};
linnet_status vocab_encode_parts(const struct vocab *v, const struct vocab_part *parts,
                                 size_t n_parts, unsigned flags, int32_t *out, size_t cap,
                                 size_t *n_out, linnet_error *e);

enum vocab_decode_flags {
    VOCAB_SHOW_SPECIAL = 1,   /* control tokens print their text; else nothing */
    VOCAB_REMOVE_SPECIAL = 2, /* drop the BOS / EOS that ADD_SPECIAL would have added at the ends */
    VOCAB_STRIP_PREFIX = 4,   /* the ids begin a text: undo the space that encoding put before it */
    VOCAB_CLEAN_SPACES = 8,   /* drop spaces before punctuation where the vocabulary asks for it
                                 (WordPiece, some BPE). Ordinary text can lose spaces by it. */
    VOCAB_WHOLE_TEXT = VOCAB_STRIP_PREFIX | VOCAB_CLEAN_SPACES, /* as llama.cpp decodes a text */
    /* Without the last three the result is the plain concatenation of pieces, as a stream gives
     * it. */
};

/* Decode ids to bytes (which need not be valid UTF-8 when the ids are not). Same convention for
 * `cap` and *n_out as vocab_encode. An id out of range is LINNET_INVALID. */
linnet_status vocab_decode(const struct vocab *v, const int32_t *ids, size_t n, unsigned flags,
                           char *out, size_t cap, size_t *n_out, linnet_error *e);

/* Longest vocab_piece in bytes. */
size_t vocab_piece_max(const struct vocab *v);

/*
 * Streaming: ids in, whole characters out. The concatenation of everything pushed and flushed
 * equals vocab_decode of the ids with the same `flags` (SHOW_SPECIAL or 0), byte for byte. At most
 * 3 bytes (the beginning of one character) are held back.
 */
struct detok {
    const struct vocab *v; /* borrowed */
    unsigned flags;
    unsigned n_held;
    char held[4];
};
void detok_init(struct detok *d, const struct vocab *v, unsigned flags);
/* Room that detok_push needs: vocab_piece_max() + 3. */
size_t detok_room(const struct vocab *v);
/* Writes *n bytes to out[detok_room()]. LINNET_INVALID for an id out of range: nothing changes. */
linnet_status detok_push(struct detok *d, int32_t id, char *out, size_t *n, linnet_error *e);
/* The end: writes what was held (0..3 bytes, an unfinished character) and forgets it. */
size_t detok_flush(struct detok *d, char out[4]);

#endif
