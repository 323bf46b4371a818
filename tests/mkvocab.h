/*
 * Small vocabulary files in memory, key by key, for tests of what vocabularies mean and of what a
 * hostile file may say. A key put twice is a different file: put it once.
 */
#ifndef LINNET_MKVOCAB_H
#define LINNET_MKVOCAB_H

#include "rawgguf.h"

#include "text/vocab.h"

struct mkvocab {
    struct raw keys;
    uint64_t n_keys;
};

static inline void mkvocab_key(struct mkvocab *m, const char *key, enum gguf_type type)
{
    raw_key(&m->keys, key, type);
    m->n_keys++;
}

static inline void mkvocab_str(struct mkvocab *m, const char *key, const char *value)
{
    mkvocab_key(m, key, GGUF_STRING);
    raw_str(&m->keys, value);
}

static inline void mkvocab_u32(struct mkvocab *m, const char *key, uint32_t value)
{
    mkvocab_key(m, key, GGUF_U32);
    raw_u32(&m->keys, value);
}

static inline void mkvocab_i64(struct mkvocab *m, const char *key, int64_t value)
{
    mkvocab_key(m, key, GGUF_I64);
    raw_u64(&m->keys, (uint64_t)value);
}

static inline void mkvocab_bool(struct mkvocab *m, const char *key, bool value)
{
    mkvocab_key(m, key, GGUF_BOOL);
    raw_uint(&m->keys, value, 1);
}

static inline void mkvocab_array(struct mkvocab *m, const char *key, enum gguf_type elem,
                                 uint64_t n)
{
    mkvocab_key(m, key, GGUF_ARRAY);
    raw_u32(&m->keys, (uint32_t)elem);
    raw_u64(&m->keys, n);
}

static inline void mkvocab_strs(struct mkvocab *m, const char *key, const char *const *s, size_t n)
{
    mkvocab_array(m, key, GGUF_STRING, n);
    for (size_t i = 0; i < n; i++)
        raw_str(&m->keys, s[i]);
}

static inline void mkvocab_i32s(struct mkvocab *m, const char *key, const int32_t *v, size_t n)
{
    mkvocab_array(m, key, GGUF_I32, n);
    for (size_t i = 0; i < n; i++)
        raw_u32(&m->keys, (uint32_t)v[i]);
}

static inline void mkvocab_f32s(struct mkvocab *m, const char *key, const float *v, size_t n)
{
    mkvocab_array(m, key, GGUF_F32, n);
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &v[i], 4);
        raw_u32(&m->keys, bits);
    }
}

/* The file of what was put, which is forgotten. */
static inline struct raw mkvocab_file(struct mkvocab *m)
{
    struct raw file = raw_header(3, 0, m->n_keys);
    raw_bytes(&file, m->keys.data, m->keys.n);
    raw_free(&m->keys);
    m->n_keys = 0;
    return file;
}

/* Load what was put and forget it. */
static inline linnet_status mkvocab_load(struct mkvocab *m, struct vocab **v, linnet_error *e)
{
    struct raw file = mkvocab_file(m);
    struct gguf *g;
    assert_ok(gguf_open_memory(file.data, file.n, &g, e), *e);
    linnet_status status = vocab_load(g, v, e);
    gguf_close(g);
    raw_free(&file);
    return status;
}

/* Tokens of a vocabulary under construction. */
enum { MKVOCAB_MAX = 1024 };
struct mktokens {
    size_t n;
    char text[MKVOCAB_MAX][40];
    int32_t type[MKVOCAB_MAX];
    float score[MKVOCAB_MAX];
};

static inline int32_t mktoken(struct mktokens *t, const char *text, int32_t type, float score)
{
    assert_true(t->n < MKVOCAB_MAX);
    snprintf(t->text[t->n], sizeof t->text[0], "%s", text);
    t->type[t->n] = type;
    t->score[t->n] = score;
    return (int32_t)t->n++;
}

static inline void mktokens_put(const struct mktokens *t, struct mkvocab *m, bool scores)
{
    const char *texts[MKVOCAB_MAX];
    for (size_t i = 0; i < t->n; i++)
        texts[i] = t->text[i];
    mkvocab_strs(m, "tokenizer.ggml.tokens", texts, t->n);
    mkvocab_i32s(m, "tokenizer.ggml.token_type", t->type, t->n);
    if (scores)
        mkvocab_f32s(m, "tokenizer.ggml.scores", t->score, t->n);
}

/* The character that stands for byte `b` in GPT-2's alphabet. */
static inline const char *mkvocab_alphabet(unsigned b, char out[4])
{
    unsigned cp = b;
    if (b < 0x21)
        cp = 0x100 + b;
    else if (b >= 0x7F && b <= 0xA0)
        cp = 0x100 + 33 + b - 0x7F;
    else if (b == 0xAD)
        cp = 0x143;
    size_t n = 0;
    if (cp >= 0x80)
        out[n++] = (char)(0xC0 | cp >> 6);
    out[n++] = (char)(cp >= 0x80 ? 0x80 | (cp & 63) : cp);
    out[n] = '\0';
    return out;
}

/* 256 single bytes, ids 0..255 in order. */
static inline void mktokens_alphabet(struct mktokens *t)
{
    char c[4];
    for (unsigned b = 0; b < 256; b++)
        mktoken(t, mkvocab_alphabet(b, c), VOCAB_TYPE_NORMAL, 0);
}

/* 256 byte tokens "<0xNN>". */
static inline void mktokens_bytes(struct mktokens *t)
{
    char text[8];
    for (unsigned b = 0; b < 256; b++) {
        snprintf(text, sizeof text, "<0x%02X>", b);
        mktoken(t, text, VOCAB_TYPE_BYTE, 0);
    }
}

#endif
