/*
 * Inside of a vocabulary: shared by the files of src/text that load, encode and decode. Nothing
 * outside src/text includes this.
 */
#ifndef LINNET_TEXT_VOCAB_IMPL_H
#define LINNET_TEXT_VOCAB_IMPL_H

#include "base/utf8.h"
#include "text/index.h"
#include "text/pretok.h"
#include "text/vocab.h"

/* U+2581, how SentencePiece writes a space. */
#define SPACE_MARK   "\xE2\x96\x81"
#define SPACE_MARK_N 3u

enum token_flags {
    TOKEN_EOG = 1,
    TOKEN_LSTRIP = 2, /* white space before it belongs to it */
    TOKEN_RSTRIP = 4, /* white space after it belongs to it */
};

/* A replacement table of a SentencePiece normaliser (normal.c). */
struct charsmap {
    const uint32_t *trie; /* [n_trie] double array */
    size_t n_trie;
    const char *strings; /* [n_strings] NUL-terminated replacements, the last byte is NUL */
    size_t n_strings;
    bool plain[128]; /* an ASCII character that stays as it is */
};

struct vocab {
    struct arena arena;
    enum vocab_kind kind;
    const char *model, *pre;
    size_t n_tokens;

    struct str *texts;  /* [n_tokens] as in the file */
    struct str *pieces; /* [n_tokens] the bytes each stands for */
    float *scores;      /* [n_tokens] */
    uint8_t *types;     /* [n_tokens] enum vocab_type */
    uint8_t *flags;     /* [n_tokens] enum token_flags */
    bool *learned;      /* [n_tokens] a merge makes it; BPE only, while loading */
    uint32_t max_piece;

    int32_t special[VOCAB_SPECIAL_COUNT];
    int32_t bytes[256]; /* id of each single byte, or -1 */
    bool add_bos, add_eos, add_space_prefix;
    bool clean_spaces;     /* decoding a whole text drops spaces before punctuation */
    bool merge_spaces;     /* Unigram: runs of spaces become one */
    bool lowercase;        /* WordPiece */
    bool strip_accents;    /* WordPiece */
    bool nfc;              /* BPE */
    bool whole_words;      /* BPE: see PRETOK_WHOLE_WORDS */
    bool chars;            /* BPE: see PRETOK_CHARS */
    struct pretok *pretok; /* BPE */

    struct strmap by_text; /* every token, by text */
    struct strmap words;   /* what ordinary text may become; by text, for byte-level BPE by piece */
    struct pairmap merges; /* BPE */
    uint32_t *rank;        /* SPM: [n_tokens] order of scores, best first, equal ones equal */
    struct trie trie;      /* WordPiece, Unigram, RWKV: the tokens ordinary text may become */
    struct trie marked;    /* control, unknown and user tokens, by text */
    bool marked_first[256];   /* first bytes of those */
    float unk_score;          /* Unigram: of an unknown character */
    struct charsmap charsmap; /* Unigram */

    /* SPM, Unigram, character BPE: where text may be cut into words without changing its ids,
     * because no token reaches across. Between ASCII characters a and b unless bit b of
     * joined[a] is set; before a SPACE_MARK unless it follows another one or a character of
     * before_mark. */
    uint8_t joined[128][16];
    uint32_t *before_mark; /* [n_before_mark] ascending code points */
    size_t n_before_mark;
    bool mark_cuts; /* SPACE_MARK is a token itself */
};

/* Fill specials, end tokens and strip rules (roles.c). Types, texts and by_text are set. */
linnet_status vocab_load_roles(struct vocab *v, const struct gguf *g, linnet_error *e);
/* The token whose text is the C string `s`, or -1. */
int32_t vocab_named(const struct vocab *v, const char *s);

/* ---- normal.c: Unicode normalisation --------------------------------------------------------- */

/* A growing byte string. */
struct bytes {
    char *s;
    size_t n, cap;
};
/* Room for `more` further bytes; false without memory or above LIMIT_TEXT_BYTES * 4. */
bool bytes_room(struct bytes *b, size_t more);
bool bytes_add(struct bytes *b, const char *s, size_t n);

/* True when this build can normalise (it was made with utf8proc). */
bool normal_available(void);
/* Append the NFC of s[0..n) (well-formed). False without memory. */
bool normal_nfc(struct bytes *out, const char *s, size_t n);
/* Append the text as BERT's normaliser leaves it: words separated by single spaces. */
bool normal_bert(struct bytes *out, const char *s, size_t n, bool lowercase, bool strip_accents);
/* Append the text after a SentencePiece character map, grapheme by grapheme. */
bool normal_charsmap(struct bytes *out, const struct charsmap *m, const char *s, size_t n);
/* Read and check a character map of n bytes (kept by reference, 4-aligned). */
linnet_status charsmap_init(struct charsmap *m, const void *data, size_t n, linnet_error *e);
bool normal_is_space(uint32_t cp); /* White_Space */

/* ---- encoding: one call's state -------------------------------------------------------------- */

enum { WORD_KEY = 28, WORD_IDS = 7, HELD_WORDS = 8 };
/* Words seen in this call and their ids: text repeats itself. One cache line each. */
struct word_slot {
    uint32_t hash;
    uint16_t n_key; /* 0: free */
    uint16_t n_ids;
    char key[WORD_KEY];
    int32_t ids[WORD_IDS];
};

struct symbol {
    uint32_t off, len; /* in the word */
    int32_t id;        /* token, or -1: a character the vocabulary does not have */
    int32_t prev, next;
    uint32_t rank;  /* of the pair with the next symbol, NO_RANK when it does not merge */
    int32_t merged; /* what that pair becomes */
};
#define NO_RANK UINT32_MAX

struct enc {
    const struct vocab *v;
    int32_t *ids; /* [cap] of them n are written */
    size_t cap, n;
    linnet_error *e;
    linnet_status status; /* first failure; then nothing more is done */

    struct word_slot *slots; /* [slot_mask + 1] or NULL */
    size_t slot_mask;
    struct held_word {
        const char *s;
        size_t n;
        uint64_t hash;
    } held[HELD_WORDS]; /* a ring */
    unsigned first_held, n_held;
    struct pretok_scratch pretok;
    struct symbol *symbols; /* [symbols_cap] */
    size_t symbols_cap;
    uint64_t *heap; /* [heap_cap] */
    size_t heap_cap;
    struct best *best; /* [best_cap] Unigram lattice */
    size_t best_cap;
    struct bytes escaped, normal;
};

bool enc_grow(struct enc *x);
static inline void enc_emit(struct enc *x, int32_t id)
{
    if (x->n < x->cap || enc_grow(x))
        x->ids[x->n++] = id;
}

void enc_fail(struct enc *x, linnet_status status, const char *text);
void enc_no_memory(struct enc *x);
/* Ids for bytes that are no token: byte tokens, else the unknown token, else an error. */
void enc_bytes(struct enc *x, const char *s, size_t n);

/* Encode a word: the next of the text. Words that were seen before are looked up; the others go to
 * `fn`, which writes the ids of a word. Some words are held back so that their places in the table
 * are in the cache when they are looked at: word_flush at the end, while their texts are valid. */
typedef void word_encode_fn(struct enc *x, const char *s, size_t n);
void word_next(struct enc *x, const char *s, size_t n, word_encode_fn *fn);
void word_flush(struct enc *x, word_encode_fn *fn);

/* Write the tokens of x->symbols[0..n), which are parts of s; those that are none as enc_bytes
 * does. */
void enc_emit_symbols(struct enc *x, const char *s, size_t n);
/* Append s[0..n) with spaces as SPACE_MARK. False without memory. */
bool escape_spaces(struct bytes *out, const char *s, size_t n);

/* Reserve for n symbols; false (and a failed x) without memory. */
bool enc_symbols(struct enc *x, size_t n);
/* Merge x->symbols[0..n), the characters or bytes of s, until no pair is left that `pair`
 * accepts: always the pair of lowest rank, the leftmost of equals. Returns how many symbols are
 * left, at the front of the array. */
typedef bool pair_fn(const struct enc *x, const char *s, const struct symbol *l,
                     const struct symbol *r, uint32_t *rank, int32_t *id);
size_t merge_symbols(struct enc *x, const char *s, size_t n, pair_fn *pair);

/* Text between marked tokens: any bytes, n > 0. */
void bpe_encode(struct enc *x, const char *s, size_t n);
void spm_encode(struct enc *x, const char *s, size_t n);
void wordpiece_encode(struct enc *x, const char *s, size_t n);
void unigram_encode(struct enc *x, const char *s, size_t n);
void rwkv_encode(struct enc *x, const char *s, size_t n);

/* The end of the word that starts at s[0]: the first place where text may be cut (see
 * vocab.joined). */
size_t word_end(const struct vocab *v, const char *s, size_t n);

/* utf8_decode of the length alone, fast for ASCII. Ill-formed: as utf8_decode. */
static inline size_t char_length(const char *s, size_t n)
{
    uint32_t cp;
    return (unsigned char)s[0] < 0x80 ? 1 : utf8_decode(s, n, &cp);
}

#endif
