/*
 * Tiny models with random weights, made through the writer: 2 layers, 64 dimensions, 300 tokens
 * unless asked otherwise. The same parameters and seed give the same bytes. A tensor's values
 * depend on the seed and its own name only, so leaving one out changes no other.
 *
 * The families in mkgguf_families get the tensors their loaders ask for; an architecture that is
 * not there gets those of `llama` under its own name, and `more_keys` / `more_tensors` add the
 * rest. `drop` leaves out keys and tensors by name; to replace one, drop it and add another.
 */
#ifndef LINNET_MKGGUF_H
#define LINNET_MKGGUF_H

#include "test.h"

#include "base/limits.h"
#include "gguf/gguf.h"
#include "quant/quant.h"

#include <math.h>
#include <stdbool.h>
#include <unistd.h>

struct mkgguf_out;

struct mkgguf {
    const char *arch;
    uint64_t seed;
    unsigned n_layer, d_model, n_head, n_head_kv, d_head, n_ff, n_vocab, n_ctx;
    unsigned n_expert; /* 0: dense */
    unsigned n_expert_used, n_ff_expert, n_ff_shared;
    float rope_base, norm_eps;
    uint32_t type; /* of the matrices; the row lengths must be whole blocks */
    bool tied;     /* no output.weight */
    /* Any may be NULL. */
    bool (*drop)(void *arg, const char *name);
    void (*more_keys)(void *arg, struct mkgguf_out *o);
    void (*more_tensors)(void *arg, struct mkgguf_out *o);
    void *arg;
};

enum mkgguf_feature {
    MKGGUF_QKV_BIAS = 1,
    MKGGUF_QK_NORM = 2,
    MKGGUF_TIED = 4,
    MKGGUF_POST_NORMS = 8,
    MKGGUF_EXPERTS = 16,
    MKGGUF_SHARED_EXPERT = 32,
};

static const struct {
    const char *arch;
    int features;
} mkgguf_families[] = {
    {"llama", 0},
    {"qwen2", MKGGUF_QKV_BIAS},
    {"qwen3", MKGGUF_QK_NORM},
    {"gemma", MKGGUF_TIED},
    {"gemma2", MKGGUF_TIED | MKGGUF_POST_NORMS},
    {"gemma3", MKGGUF_TIED | MKGGUF_POST_NORMS | MKGGUF_QK_NORM},
    {"qwen2moe", MKGGUF_QKV_BIAS | MKGGUF_EXPERTS | MKGGUF_SHARED_EXPERT},
    {"qwen3moe", MKGGUF_QK_NORM | MKGGUF_EXPERTS},
};

struct mkgguf_tensor {
    char name[64];
    uint32_t type, n_dims;
    uint64_t dims[4];
    float mean, deviation;
};

enum { MKGGUF_MAX_TENSORS = 4096 };

struct mkgguf_out {
    const struct mkgguf *m;
    struct gguf_writer *w;
    bool more; /* more_keys or more_tensors is at work: what they add is not dropped */
    size_t n_tensors;
    struct mkgguf_tensor *tensors; /* [MKGGUF_MAX_TENSORS] */
};

static inline int mkgguf_features(const char *arch)
{
    for (size_t i = 0; i < sizeof mkgguf_families / sizeof *mkgguf_families; i++)
        if (strcmp(mkgguf_families[i].arch, arch) == 0)
            return mkgguf_families[i].features;
    return 0;
}

static inline struct mkgguf mkgguf_defaults(const char *arch)
{
    int f = mkgguf_features(arch);
    return (struct mkgguf){
        .arch = arch,
        .seed = 1,
        .n_layer = 2,
        .d_model = 64,
        .n_head = 4,
        .n_head_kv = 2,
        .d_head = 16,
        .n_ff = 96,
        .n_vocab = 300,
        .n_ctx = 512,
        .n_expert = f & MKGGUF_EXPERTS ? 8 : 0,
        .n_expert_used = f & MKGGUF_EXPERTS ? 2 : 0,
        .n_ff_expert = 32,
        .n_ff_shared = 32,
        .rope_base = 10000.0f,
        .norm_eps = 1e-5f,
        .type = QUANT_F32,
        .tied = (f & MKGGUF_TIED) != 0,
    };
}

/* ---- keys ---- */

static inline bool mkgguf_dropped(const struct mkgguf_out *o, const char *name)
{
    return !o->more && o->m->drop && o->m->drop(o->m->arg, name);
}

static inline void mkgguf_u32(struct mkgguf_out *o, const char *key, uint32_t v)
{
    linnet_error e;
    if (!mkgguf_dropped(o, key))
        assert_ok(gguf_put_u32(o->w, key, v, &e), e);
}

static inline void mkgguf_f32(struct mkgguf_out *o, const char *key, float v)
{
    linnet_error e;
    if (!mkgguf_dropped(o, key))
        assert_ok(gguf_put_f32(o->w, key, v, &e), e);
}

static inline void mkgguf_bool(struct mkgguf_out *o, const char *key, bool v)
{
    linnet_error e;
    if (!mkgguf_dropped(o, key))
        assert_ok(gguf_put_bool(o->w, key, v, &e), e);
}

static inline void mkgguf_str(struct mkgguf_out *o, const char *key, const char *v)
{
    linnet_error e;
    if (!mkgguf_dropped(o, key))
        assert_ok(gguf_put_str(o->w, key, v, strlen(v), &e), e);
}

/* Values in file form, as gguf_put_array. */
static inline void mkgguf_array(struct mkgguf_out *o, const char *key, enum gguf_type elem,
                                const void *values, size_t n)
{
    linnet_error e;
    if (!mkgguf_dropped(o, key))
        assert_ok(gguf_put_array(o->w, key, elem, values, n, &e), e);
}

/* "<arch>.<name>"; static, valid until the next call. */
static inline const char *mkgguf_key(const struct mkgguf *m, const char *name)
{
    static char key[128];
    snprintf(key, sizeof key, "%s.%s", m->arch, name);
    return key;
}

static inline void mkgguf_put_shape(struct mkgguf_out *o)
{
    const struct mkgguf *m = o->m;
    mkgguf_str(o, "general.architecture", m->arch);
    mkgguf_str(o, "general.name", "random");
    mkgguf_u32(o, mkgguf_key(m, "block_count"), m->n_layer);
    mkgguf_u32(o, mkgguf_key(m, "context_length"), m->n_ctx);
    mkgguf_u32(o, mkgguf_key(m, "embedding_length"), m->d_model);
    mkgguf_u32(o, mkgguf_key(m, "feed_forward_length"), m->n_ff);
    mkgguf_u32(o, mkgguf_key(m, "attention.head_count"), m->n_head);
    mkgguf_u32(o, mkgguf_key(m, "attention.head_count_kv"), m->n_head_kv);
    mkgguf_u32(o, mkgguf_key(m, "attention.key_length"), m->d_head);
    mkgguf_u32(o, mkgguf_key(m, "attention.value_length"), m->d_head);
    mkgguf_f32(o, mkgguf_key(m, "attention.layer_norm_rms_epsilon"), m->norm_eps);
    mkgguf_u32(o, mkgguf_key(m, "rope.dimension_count"), m->d_head);
    mkgguf_f32(o, mkgguf_key(m, "rope.freq_base"), m->rope_base);
    mkgguf_u32(o, mkgguf_key(m, "vocab_size"), m->n_vocab);
    if (m->n_expert == 0)
        return;
    mkgguf_u32(o, mkgguf_key(m, "expert_count"), m->n_expert);
    mkgguf_u32(o, mkgguf_key(m, "expert_used_count"), m->n_expert_used);
    if (mkgguf_features(m->arch) & MKGGUF_EXPERTS)
        mkgguf_u32(o, mkgguf_key(m, "expert_feed_forward_length"), m->n_ff_expert);
    if (mkgguf_features(m->arch) & MKGGUF_SHARED_EXPERT)
        mkgguf_u32(o, mkgguf_key(m, "expert_shared_feed_forward_length"), m->n_ff_shared);
}

/* A SentencePiece-like vocabulary: <unk> <s> </s>, 256 byte tokens, then pieces. */
static inline void mkgguf_put_vocab(struct mkgguf_out *o)
{
    enum { TYPE_NORMAL = 1, TYPE_UNKNOWN, TYPE_CONTROL, TYPE_BYTE = 6, FIRST_PIECE = 259 };
    static const char *const special[] = {"<unk>", "<s>", "</s>"};
    static const char pieces[] = "\xE2\x96\x81 e t a o i n s h r d l u c m f w y p v b g k "
                                 "\xE2\x96\x81t he \xE2\x96\x81the in er an on \xE2\x96\x81"
                                 "a \xE2\x96\x81s re \xE2\x96\x81of nd";
    size_t n = o->m->n_vocab;
    struct gguf_str *tokens = calloc(n, sizeof *tokens);
    float *scores = calloc(n, sizeof *scores);
    int32_t *types = calloc(n, sizeof *types);
    char(*text)[16] = calloc(n, sizeof *text);
    assert_true(tokens && scores && types && text);
    const char *piece = pieces;
    for (size_t i = 0; i < n; i++) {
        types[i] = i == 0 ? TYPE_UNKNOWN : i < 3 ? TYPE_CONTROL : TYPE_BYTE;
        if (i < 3) {
            strcpy(text[i], special[i]);
        } else if (i < FIRST_PIECE) {
            snprintf(text[i], sizeof text[i], "<0x%02X>", (unsigned)(i - 3) & 0xFF);
        } else {
            size_t len = strcspn(piece, " ");
            if (len > 0)
                snprintf(text[i], sizeof text[i], "%.*s", (int)len, piece);
            else
                snprintf(text[i], sizeof text[i], "\xE2\x96\x81w%u", (unsigned)i % 1000000);
            piece += len + (piece[len] == ' ');
            types[i] = TYPE_NORMAL;
            scores[i] = -(float)(i - FIRST_PIECE);
        }
        tokens[i] = (struct gguf_str){text[i], strlen(text[i])};
    }
    mkgguf_str(o, "tokenizer.ggml.model", "llama");
    mkgguf_array(o, "tokenizer.ggml.tokens", GGUF_STRING, tokens, n);
    mkgguf_array(o, "tokenizer.ggml.scores", GGUF_F32, scores, n);
    mkgguf_array(o, "tokenizer.ggml.token_type", GGUF_I32, types, n);
    mkgguf_u32(o, "tokenizer.ggml.unknown_token_id", 0);
    mkgguf_u32(o, "tokenizer.ggml.bos_token_id", 1);
    mkgguf_u32(o, "tokenizer.ggml.eos_token_id", 2);
    mkgguf_bool(o, "tokenizer.ggml.add_bos_token", true);
    free(tokens);
    free(scores);
    free(types);
    free(text);
}

/* ---- tensors ---- */

/* A tensor with normally distributed values. Dimensions after the first 0 are left out. */
static inline void mkgguf_add(struct mkgguf_out *o, const char *name, uint32_t type, float mean,
                              float deviation, uint64_t d0, uint64_t d1, uint64_t d2, uint64_t d3)
{
    if (mkgguf_dropped(o, name))
        return;
    assert_true(o->n_tensors < MKGGUF_MAX_TENSORS);
    struct mkgguf_tensor *t = &o->tensors[o->n_tensors++];
    *t = (struct mkgguf_tensor){
        .type = type, .dims = {d0, d1, d2, d3}, .mean = mean, .deviation = deviation};
    assert_true(snprintf(t->name, sizeof t->name, "%s", name) < (int)sizeof t->name);
    while (t->n_dims < 4 && t->dims[t->n_dims] != 0)
        t->n_dims++;
}

/* "blk.<layer>.<name>"; static, valid until the next call. */
static inline const char *mkgguf_blk(unsigned layer, const char *name)
{
    static char full[64];
    snprintf(full, sizeof full, "blk.%u.%s", layer, name);
    return full;
}

/* A matrix {in, out} or a stack of them {in, out, n}, of the model's type, scaled by 1/sqrt(in). */
static inline void mkgguf_matrix(struct mkgguf_out *o, const char *name, unsigned in, unsigned out,
                                 unsigned n)
{
    mkgguf_add(o, name, o->m->type, 0.0f, 1.0f / sqrtf((float)in), in, out, n, 0);
}

/* A norm's weight, around one. */
static inline void mkgguf_norm(struct mkgguf_out *o, const char *name, unsigned n)
{
    mkgguf_add(o, name, QUANT_F32, 1.0f, 0.15f, n, 0, 0, 0);
}

static inline void mkgguf_bias(struct mkgguf_out *o, const char *name, unsigned n)
{
    mkgguf_add(o, name, QUANT_F32, 0.0f, 0.1f, n, 0, 0, 0);
}

static inline void mkgguf_add_attention(struct mkgguf_out *o, unsigned l, int features)
{
    const struct mkgguf *m = o->m;
    unsigned d = m->d_model, q = m->n_head * m->d_head, kv = m->n_head_kv * m->d_head;
    mkgguf_norm(o, mkgguf_blk(l, "attn_norm.weight"), d);
    mkgguf_matrix(o, mkgguf_blk(l, "attn_q.weight"), d, q, 0);
    mkgguf_matrix(o, mkgguf_blk(l, "attn_k.weight"), d, kv, 0);
    mkgguf_matrix(o, mkgguf_blk(l, "attn_v.weight"), d, kv, 0);
    mkgguf_matrix(o, mkgguf_blk(l, "attn_output.weight"), q, d, 0);
    if (features & MKGGUF_QKV_BIAS) {
        mkgguf_bias(o, mkgguf_blk(l, "attn_q.bias"), q);
        mkgguf_bias(o, mkgguf_blk(l, "attn_k.bias"), kv);
        mkgguf_bias(o, mkgguf_blk(l, "attn_v.bias"), kv);
    }
    if (features & MKGGUF_QK_NORM) {
        mkgguf_norm(o, mkgguf_blk(l, "attn_q_norm.weight"), m->d_head);
        mkgguf_norm(o, mkgguf_blk(l, "attn_k_norm.weight"), m->d_head);
    }
    if (features & MKGGUF_POST_NORMS)
        mkgguf_norm(o, mkgguf_blk(l, "post_attention_norm.weight"), d);
}

static inline void mkgguf_add_ffn(struct mkgguf_out *o, unsigned l, int features)
{
    const struct mkgguf *m = o->m;
    unsigned d = m->d_model, f = m->n_ff, fe = m->n_ff_expert, fs = m->n_ff_shared;
    mkgguf_norm(o, mkgguf_blk(l, "ffn_norm.weight"), d);
    if (features & MKGGUF_POST_NORMS)
        mkgguf_norm(o, mkgguf_blk(l, "post_ffw_norm.weight"), d);
    if (m->n_expert == 0) {
        mkgguf_matrix(o, mkgguf_blk(l, "ffn_gate.weight"), d, f, 0);
        mkgguf_matrix(o, mkgguf_blk(l, "ffn_up.weight"), d, f, 0);
        mkgguf_matrix(o, mkgguf_blk(l, "ffn_down.weight"), f, d, 0);
        return;
    }
    if (!(features & MKGGUF_EXPERTS)) /* Mixtral: experts as wide as the dense layer */
        fe = f;
    mkgguf_add(o, mkgguf_blk(l, "ffn_gate_inp.weight"), QUANT_F32, 0.0f, 1.0f, d, m->n_expert, 0,
               0);
    mkgguf_matrix(o, mkgguf_blk(l, "ffn_gate_exps.weight"), d, fe, m->n_expert);
    mkgguf_matrix(o, mkgguf_blk(l, "ffn_up_exps.weight"), d, fe, m->n_expert);
    mkgguf_matrix(o, mkgguf_blk(l, "ffn_down_exps.weight"), fe, d, m->n_expert);
    if (features & MKGGUF_SHARED_EXPERT) {
        mkgguf_add(o, mkgguf_blk(l, "ffn_gate_inp_shexp.weight"), QUANT_F32, 0.0f, 0.1f, d, 0, 0,
                   0);
        mkgguf_matrix(o, mkgguf_blk(l, "ffn_gate_shexp.weight"), d, fs, 0);
        mkgguf_matrix(o, mkgguf_blk(l, "ffn_up_shexp.weight"), d, fs, 0);
        mkgguf_matrix(o, mkgguf_blk(l, "ffn_down_shexp.weight"), fs, d, 0);
    }
}

/* ---- values ---- */

static inline uint64_t mkgguf_random(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u; /* splitmix64 */
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

/* Nearly normal with deviation 1: four uniform numbers, scaled (no two machines disagree on a sum).
 */
static inline float mkgguf_normal(uint64_t *state)
{
    uint64_t r = mkgguf_random(state);
    float sum = 0.0f;
    for (unsigned i = 0; i < 4; i++, r >>= 16)
        sum += (float)(r & 0xFFFF) - 32767.5f;
    return sum / 65536.0f * 1.7320508f;
}

static inline void mkgguf_write_values(struct mkgguf_out *o, const struct mkgguf_tensor *t)
{
    linnet_error e;
    uint64_t state = o->m->seed;
    for (const char *s = t->name; *s; s++)
        state = (state ^ (unsigned char)*s) * 0x100000001B3u;
    size_t n = 1, row;
    for (unsigned d = 0; d < t->n_dims; d++)
        n *= (size_t)t->dims[d];
    const struct quant_type *type = quant_type_of(t->type);
    assert_true(type && (type->encode || t->type == QUANT_F32));
    assert_true(quant_row_bytes(type, t->dims[0], &row));
    size_t size = row * (n / (size_t)t->dims[0]);
    float *values = malloc(n * sizeof *values);
    uint8_t *bytes = malloc(size);
    assert_true(values && bytes);
    for (size_t i = 0; i < n; i++)
        values[i] = t->mean + t->deviation * mkgguf_normal(&state);
    if (t->type == QUANT_F32)
        memcpy(bytes, values, size);
    else
        type->encode(values, bytes, n);
    assert_ok(gguf_write_tensor(o->w, bytes, size, &e), e);
    free(values);
    free(bytes);
}

/* ---- the file ---- */

/* Write the model to `path`. Any failure fails the test. */
static inline void mkgguf_write(const struct mkgguf *m, const char *path)
{
    linnet_error e;
    int features = mkgguf_features(m->arch);
    struct mkgguf_out out = {.m = m}, *o = &out;
    o->tensors = calloc(MKGGUF_MAX_TENSORS, sizeof *o->tensors);
    assert_non_null(o->tensors);
    assert_ok(gguf_writer_create(&o->w, &e), e);
    mkgguf_put_shape(o);
    mkgguf_put_vocab(o);
    o->more = true;
    if (m->more_keys)
        m->more_keys(m->arg, o);
    o->more = false;
    mkgguf_matrix(o, "token_embd.weight", m->d_model, m->n_vocab, 0);
    for (unsigned l = 0; l < m->n_layer; l++) {
        mkgguf_add_attention(o, l, features);
        mkgguf_add_ffn(o, l, features);
    }
    mkgguf_norm(o, "output_norm.weight", m->d_model);
    if (!m->tied)
        mkgguf_matrix(o, "output.weight", m->d_model, m->n_vocab, 0);
    o->more = true;
    if (m->more_tensors)
        m->more_tensors(m->arg, o);
    o->more = false;
    for (size_t i = 0; i < o->n_tensors; i++) {
        const struct mkgguf_tensor *t = &o->tensors[i];
        assert_ok(gguf_add_tensor(o->w, t->name, t->type, t->n_dims, t->dims, &e), e);
    }
    assert_ok(gguf_write_begin(o->w, path, &e), e);
    for (size_t i = 0; i < o->n_tensors; i++)
        mkgguf_write_values(o, &o->tensors[i]);
    assert_ok(gguf_write_end(o->w, &e), e);
    gguf_writer_destroy(o->w);
    free(o->tensors);
}

/* Write the model to a new temporary file; its path goes to path[64]. The caller unlinks it. */
static inline void mkgguf_temp(const struct mkgguf *m, char path[64])
{
    strcpy(path, "/tmp/linnet-model-XXXXXX.gguf");
    int fd = mkstemps(path, 5);
    assert_true(fd >= 0);
    close(fd);
    unlink(path); /* some file systems write out a file that is renamed over another */
    mkgguf_write(m, path);
}

/* The model, open; the file is gone when it is closed. */
static inline struct gguf *mkgguf_open(const struct mkgguf *m)
{
    char path[64];
    linnet_error e;
    struct gguf *g = NULL;
    mkgguf_temp(m, path);
    linnet_status status = gguf_open(path, &g, &e);
    unlink(path);
    assert_ok(status, e);
    return g;
}

#endif
