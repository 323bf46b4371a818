/*
 * Fuzzing vocabularies over small built-in ones of every kind: any text encodes to ids of the
 * vocabulary or fails with a status; untrusted text gives no control token; decoding, whole or as
 * a stream, gives the same bytes; and where every byte has a token, the bytes of the text itself.
 *
 * The first input byte chooses vocabulary and flags, the rest is text. With its high bit set the
 * text goes into a file instead, as a hostile character map and token texts.
 */
#include "gguf/gguf.h"
#include "text/vocab.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(x)                                                                                   \
    do {                                                                                           \
        if (!(x))                                                                                  \
            __builtin_trap();                                                                      \
    } while (0)

/* ---- files ----------------------------------------------------------------------------------- */

struct out {
    uint8_t *s;
    size_t n, cap;
    uint64_t n_keys;
};

static void put(struct out *o, const void *s, size_t n)
{
    if (o->n + n > o->cap) {
        o->cap = (o->n + n) * 2;
        CHECK((o->s = realloc(o->s, o->cap)) != NULL);
    }
    if (n)
        memcpy(o->s + o->n, s, n);
    o->n += n;
}

static void put_int(struct out *o, uint64_t v, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        put(o, &(uint8_t){(uint8_t)(v >> 8 * i)}, 1);
}

static void put_str(struct out *o, const char *s, size_t n)
{
    put_int(o, n, 8);
    put(o, s, n);
}

static void put_key(struct out *o, const char *key, enum gguf_type type)
{
    put_str(o, key, strlen(key));
    put_int(o, (uint64_t)type, 4);
    o->n_keys++;
}

static void put_array(struct out *o, const char *key, enum gguf_type elem, size_t n)
{
    put_key(o, key, GGUF_ARRAY);
    put_int(o, (uint64_t)elem, 4);
    put_int(o, n, 8);
}

static struct vocab *load(struct out *keys)
{
    struct out file = {0};
    struct gguf *g;
    struct vocab *v = NULL;
    linnet_error e;
    put(&file, "GGUF", 4);
    put_int(&file, 3, 4);
    put_int(&file, 0, 8);
    put_int(&file, keys->n_keys, 8);
    put(&file, keys->s, keys->n);
    if (gguf_open_memory(file.s, file.n, &g, &e) == LINNET_OK) {
        if (vocab_load(g, &v, &e) != LINNET_OK)
            v = NULL;
        gguf_close(g);
    }
    free(file.s);
    free(keys->s);
    return v;
}

/* ---- vocabularies ---------------------------------------------------------------------------- */

static const char *const words[] = {
    "<unk>",
    "<s>",
    "</s>",
    "<|im_end|>",
    "<tool>",
    "a",
    "b",
    "c",
    "ab",
    "abc",
    "bc",
    "\xE2\x96\x81",
    "\xE2\x96\x81"
    "a",
    "\xE2\x96\x81"
    "ab",
    "\xC3\xA9",
    "e",
    "\xE4\xB8\xAD",
    "\n",
    "\n\n",
    ".",
    "1",
    "12",
    "\xC4\xA0"
    "a",
    "'s",
};
static const int32_t word_types[] = {2, 3, 3, 3, 4, 1, 1, 1, 1, 1, 1, 1,
                                     1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
enum { WORDS = sizeof words / sizeof words[0] };
static const char *const merges[] = {
    "b c", "a b", "a bc", "\xC4\xA0 a", "1 2", "' s", "\xE2\x96\x81 a", "\xE2\x96\x81 ab", "\n \n"};

static const struct {
    const char *model, *pre;
    bool bytes; /* the vocabulary has a token for each byte */
    bool hex;   /* as <0xNN>, else in GPT-2's alphabet */
} kinds[] = {
    {"gpt2", "gpt-2", true, false},
    {"gpt2", "llama-bpe", true, false},
    {"gpt2", "gpt-4o", true, false},
    {"gpt2", "kimi-k2", true, false},
    {"gpt2", "deepseek-llm", true, false},
    {"gpt2", "superbpe", true, false},
    {"gpt2", "tiny_aya", true, false},
    {"gpt2", "exaone-moe", true, false},
    {"gpt2", "qwen2", false, false},
    {"gpt2", "default", true, false},
    {"llama", "", true, true},
    {"gemma4", "", true, true},
    {"bert", "", false, false},
    {"t5", "", false, false},
    {"rwkv", "", false, false},
    {"llama", "", false, false},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static void put_byte_token(struct out *o, unsigned b, bool hex)
{
    static const char digits[] = "0123456789ABCDEF";
    if (hex) {
        char text[6] = {'<', '0', 'x', digits[b >> 4], digits[b & 15], '>'};
        put_str(o, text, 6);
        return;
    }
    unsigned cp = b < 0x21                 ? 0x100 + b
                  : b >= 0x7F && b <= 0xA0 ? 0x121 + b - 0x7F
                  : b == 0xAD              ? 0x143
                                           : b;
    char text[2] = {(char)(cp < 0x80 ? cp : 0xC0 | cp >> 6), (char)(0x80 | (cp & 63))};
    put_str(o, text, cp < 0x80 ? 1 : 2);
}

static struct vocab *make(size_t k, const uint8_t *extra, size_t n_extra)
{
    struct out o = {0};
    bool alphabet = strcmp(kinds[k].model, "gpt2") == 0;
    size_t n_bytes = kinds[k].bytes || alphabet ? 256 : 0, n = n_bytes + WORDS + (n_extra > 0);
    put_key(&o, "tokenizer.ggml.model", GGUF_STRING);
    put_str(&o, kinds[k].model, strlen(kinds[k].model));
    put_key(&o, "tokenizer.ggml.pre", GGUF_STRING);
    put_str(&o, kinds[k].pre, strlen(kinds[k].pre));
    put_array(&o, "tokenizer.ggml.tokens", GGUF_STRING, n);
    for (unsigned b = 0; b < n_bytes; b++)
        put_byte_token(&o, b, kinds[k].hex);
    for (size_t i = 0; i < WORDS; i++)
        put_str(&o, words[i], strlen(words[i]));
    if (n_extra)
        put_str(&o, (const char *)extra, n_extra < 64 ? n_extra : 64);
    put_array(&o, "tokenizer.ggml.token_type", GGUF_I32, n);
    for (size_t i = 0; i < n; i++)
        put_int(&o,
                i < n_bytes           ? (kinds[k].hex ? 6 : 1)
                : i < n_bytes + WORDS ? (uint64_t)word_types[i - n_bytes]
                                      : 1,
                4);
    put_array(&o, "tokenizer.ggml.scores", GGUF_F32, n);
    for (size_t i = 0; i < n; i++) {
        float score = -(float)(i * 7 % 13);
        put(&o, &score, 4);
    }
    put_array(&o, "tokenizer.ggml.merges", GGUF_STRING, sizeof merges / sizeof merges[0]);
    for (size_t i = 0; i < sizeof merges / sizeof merges[0]; i++)
        put_str(&o, merges[i], strlen(merges[i]));
    put_key(&o, "tokenizer.ggml.unknown_token_id", GGUF_U32);
    put_int(&o, n_bytes, 4);
    if (n_extra) {
        put_array(&o, "tokenizer.ggml.precompiled_charsmap", GGUF_U8, n_extra);
        put(&o, extra, n_extra);
    }
    return load(&o);
}

/* ---- properties ------------------------------------------------------------------------------ */

static size_t decode(const struct vocab *v, const int32_t *ids, size_t n, unsigned flags,
                     char **out)
{
    linnet_error e;
    size_t got, cap = n * vocab_piece_max(v) + 1;
    CHECK((*out = malloc(cap)) != NULL);
    CHECK(vocab_decode(v, ids, n, flags, *out, cap, &got, &e) == LINNET_OK);
    return got;
}

static void check_stream(const struct vocab *v, const int32_t *ids, size_t n, const char *whole,
                         size_t n_whole)
{
    struct detok d;
    linnet_error e;
    char *piece = malloc(detok_room(v));
    size_t at = 0, got;
    CHECK(piece != NULL);
    detok_init(&d, v, VOCAB_SHOW_SPECIAL);
    for (size_t i = 0; i < n; i++, at += got) {
        CHECK(detok_push(&d, ids[i], piece, &got, &e) == LINNET_OK && d.n_held <= 3);
        CHECK(got <= n_whole - at && memcmp(whole + at, piece, got) == 0);
    }
    got = detok_flush(&d, piece);
    CHECK(got == n_whole - at && memcmp(whole + at, piece, got) == 0);
    free(piece);
}

static void check(const struct vocab *v, bool exact, unsigned flags, const char *text, size_t n)
{
    linnet_error e;
    size_t n_ids, cap = n * 4 + 16;
    int32_t *ids = malloc(cap * sizeof *ids);
    char *back;
    CHECK(ids != NULL);
    /* the text as three parts, so that joining is exercised too */
    struct vocab_part parts[] = {{text, n / 3, flags & VOCAB_PARSE_SPECIAL},
                                 {text + n / 3, n / 2 - n / 3, false},
                                 {text + n / 2, n - n / 2, flags & VOCAB_PARSE_SPECIAL}};
    if (vocab_encode_parts(v, parts, 3, flags, ids, cap, &n_ids, &e) == LINNET_OK) {
        for (size_t i = 0; i < n_ids; i++) {
            CHECK(ids[i] >= 0 && (size_t)ids[i] < vocab_size(v));
            CHECK((flags & (VOCAB_PARSE_SPECIAL | VOCAB_ADD_SPECIAL)) ||
                  vocab_type(v, ids[i]) != VOCAB_TYPE_CONTROL);
        }
        size_t n_back = decode(v, ids, n_ids, VOCAB_SHOW_SPECIAL, &back);
        check_stream(v, ids, n_ids, back, n_back);
        free(back);
        n_back = decode(v, ids, n_ids, VOCAB_SHOW_SPECIAL | VOCAB_STRIP_PREFIX, &back);
        if (exact && flags == 0 && !memchr(text, '<', n)) /* a marked token puts a space after it */
            CHECK(n_back == n && memcmp(back, text, n) == 0);
        free(back);
        decode(v, ids, n_ids, VOCAB_WHOLE_TEXT | VOCAB_REMOVE_SPECIAL, &back);
        free(back);
    }
    free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct vocab *vocabs[KINDS]; /* made once, kept for the process */
    if (size == 0 || size > 20000)
        return 0;
    size_t k = data[0] & 15;
    unsigned flags =
        (data[0] & 16 ? VOCAB_PARSE_SPECIAL : 0u) | (data[0] & 32 ? VOCAB_ADD_SPECIAL : 0u);
    const char *text = (const char *)data + 1;
    if (data[0] & 128) {
        struct vocab *v = make(k, data + 1, size - 1);
        if (v)
            check(v, false, flags, text, size - 1);
        vocab_free(v);
        return 0;
    }
    if (!vocabs[k])
        CHECK((vocabs[k] = make(k, NULL, 0)) != NULL);
    /* a U+2581 in the text is a space to these two kinds, as in their own library */
    bool marks = kinds[k].hex && memmem(text, size - 1, "\xE2\x96\x81", 3);
    check(vocabs[k], kinds[k].bytes && !marks, flags, text, size - 1);
    return 0;
}
