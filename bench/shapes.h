/*
 * The shapes of published models, as keys and tensors of a GGUF file: what bench/make_model.c fills
 * with random numbers. Which type a tensor is stored in is not decided here, only its role.
 *
 * Three are scaled down so that a small machine can hold them: moe-3b is Qwen3-30B-A3B with 20
 * layers and 16 experts, 4 of them used; deepseek-v2-lite-w4 has a quarter of the width and the
 * same latent attention; ling-3-tiny-e4 a quarter of the experts.
 */
#ifndef LINNET_BENCH_SHAPES_H
#define LINNET_BENCH_SHAPES_H

#include "gguf/gguf.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum role {
    ROLE_MATRIX, /* a matrix of a product, none of the following */
    ROLE_EMBED,
    ROLE_OUTPUT, /* output, or token_embd where that is the output too */
    ROLE_ATTN_V,
    ROLE_FFN_DOWN,
    ROLE_SMALL, /* always F32: norms, biases, routers, convolutions */
};

enum fill {
    FILL_NORMAL, /* mean a, deviation b */
    FILL_EVEN,   /* evenly between a and b */
    FILL_ROPE,   /* the frequency factors of Llama 3.2 */
};

struct tensor {
    char name[64];
    enum role role;
    uint32_t layer;
    uint32_t n_dims;
    uint64_t dims[4];
    enum fill fill;
    double a, b;
};

struct file;
struct shape {
    const char *name, *arch;
    const char *pre; /* tokenizer.ggml.pre */
    void (*build)(struct file *f, const struct shape *s);
    uint32_t n_layer, d, d_ff, n_head, n_kv, d_head, n_vocab, n_ctx;
    bool tied;
    float rope_base, eps;
    uint32_t n_expert, n_used, d_expert; /* mixtures */
};

/* A file being described. */
struct file {
    struct gguf_writer *w;
    const struct shape *s;
    struct tensor *tensors; /* [n] */
    size_t n, cap;
};

static void need(linnet_status status, const linnet_error *e)
{
    if (status == LINNET_OK)
        return;
    fprintf(stderr, "make_model: %s\n", e->text);
    exit(1);
}

/* ---- keys: <arch>.<name> ---- */

static void put_u32(struct file *f, const char *name, uint32_t v)
{
    char key[128];
    linnet_error e;
    snprintf(key, sizeof key, "%s.%s", f->s->arch, name);
    need(gguf_put_u32(f->w, key, v, &e), &e);
}

static void put_f32(struct file *f, const char *name, float v)
{
    char key[128];
    linnet_error e;
    snprintf(key, sizeof key, "%s.%s", f->s->arch, name);
    need(gguf_put_f32(f->w, key, v, &e), &e);
}

static void put_bool(struct file *f, const char *name, bool v)
{
    char key[128];
    linnet_error e;
    snprintf(key, sizeof key, "%s.%s", f->s->arch, name);
    need(gguf_put_bool(f->w, key, v, &e), &e);
}

static void put_i32s(struct file *f, const char *name, const int32_t *v, size_t n)
{
    char key[128];
    linnet_error e;
    snprintf(key, sizeof key, "%s.%s", f->s->arch, name);
    need(gguf_put_array(f->w, key, GGUF_I32, v, n, &e), &e);
}

/* ---- tensors ---- */

enum { NO_LAYER = UINT32_MAX >> 1 };

static struct tensor *add(struct file *f, enum role role, uint32_t layer, const char *name)
{
    if (f->n == f->cap) {
        f->cap = f->cap ? f->cap * 2 : 256;
        f->tensors = realloc(f->tensors, f->cap * sizeof *f->tensors);
        if (!f->tensors) {
            fprintf(stderr, "make_model: out of memory\n");
            exit(1);
        }
    }
    struct tensor *t = &f->tensors[f->n++];
    *t = (struct tensor){.role = role, .layer = layer, .dims = {1, 1, 1, 1}};
    if (layer == NO_LAYER)
        snprintf(t->name, sizeof t->name, "%s", name);
    else
        snprintf(t->name, sizeof t->name, "blk.%u.%s", layer, name);
    return t;
}

/* Random rows that keep the size of what they multiply. */
static struct tensor *matrix(struct file *f, enum role role, uint32_t layer, const char *name,
                             uint32_t cols, uint32_t rows)
{
    struct tensor *t = add(f, role, layer, name);
    t->n_dims = 2;
    t->dims[0] = cols;
    t->dims[1] = rows;
    t->b = 1.0 / sqrt(cols);
    return t;
}

static void matrices(struct file *f, enum role role, uint32_t layer, const char *name,
                     uint32_t cols, uint32_t rows, uint32_t n)
{
    struct tensor *t = matrix(f, role, layer, name, cols, rows);
    t->n_dims = 3;
    t->dims[2] = n;
}

static void norm(struct file *f, uint32_t layer, const char *name, uint32_t n)
{
    struct tensor *t = add(f, ROLE_SMALL, layer, name);
    t->n_dims = 1;
    t->dims[0] = n;
    t->a = 1.0;
    t->b = 0.1;
}

static struct tensor *even(struct file *f, uint32_t layer, const char *name, uint32_t n, double low,
                           double high)
{
    struct tensor *t = add(f, ROLE_SMALL, layer, name);
    t->n_dims = 1;
    t->dims[0] = n;
    t->fill = FILL_EVEN;
    t->a = low;
    t->b = high;
    return t;
}

/* ---- what families share ---- */

static void common(struct file *f, const struct shape *s)
{
    put_u32(f, "vocab_size", s->n_vocab);
    put_u32(f, "context_length", s->n_ctx);
    put_u32(f, "embedding_length", s->d);
    put_u32(f, "block_count", s->n_layer);
    put_u32(f, "feed_forward_length", s->d_ff);
    put_u32(f, "attention.head_count", s->n_head);
    put_f32(f, "attention.layer_norm_rms_epsilon", s->eps);
    put_f32(f, "rope.freq_base", s->rope_base);
    matrix(f, s->tied ? ROLE_OUTPUT : ROLE_EMBED, NO_LAYER, "token_embd.weight", s->d, s->n_vocab);
    norm(f, NO_LAYER, "output_norm.weight", s->d);
    if (!s->tied)
        matrix(f, ROLE_OUTPUT, NO_LAYER, "output.weight", s->d, s->n_vocab);
}

static void head_keys(struct file *f, const struct shape *s, uint32_t n_rot)
{
    put_u32(f, "attention.head_count_kv", s->n_kv);
    put_u32(f, "attention.key_length", s->d_head);
    put_u32(f, "attention.value_length", s->d_head);
    put_u32(f, "rope.dimension_count", n_rot);
}

/* `gated`: rows of queries and of gates, head by head. */
static void attention(struct file *f, const struct shape *s, uint32_t il, bool gated, bool qk_norm)
{
    norm(f, il, "attn_norm.weight", s->d);
    matrix(f, ROLE_MATRIX, il, "attn_q.weight", s->d, s->n_head * s->d_head * (gated ? 2 : 1));
    matrix(f, ROLE_MATRIX, il, "attn_k.weight", s->d, s->n_kv * s->d_head);
    matrix(f, ROLE_ATTN_V, il, "attn_v.weight", s->d, s->n_kv * s->d_head);
    matrix(f, ROLE_MATRIX, il, "attn_output.weight", s->n_head * s->d_head, s->d);
    if (qk_norm) {
        norm(f, il, "attn_q_norm.weight", s->d_head);
        norm(f, il, "attn_k_norm.weight", s->d_head);
    }
}

static void feed_forward(struct file *f, const struct shape *s, uint32_t il)
{
    matrix(f, ROLE_MATRIX, il, "ffn_gate.weight", s->d, s->d_ff);
    matrix(f, ROLE_MATRIX, il, "ffn_up.weight", s->d, s->d_ff);
    matrix(f, ROLE_FFN_DOWN, il, "ffn_down.weight", s->d_ff, s->d);
}

static void mixture_keys(struct file *f, const struct shape *s)
{
    put_u32(f, "expert_count", s->n_expert);
    put_u32(f, "expert_used_count", s->n_used);
    put_u32(f, "expert_feed_forward_length", s->d_expert);
}

/* `d_shared`: width of the expert that every token uses; 0: none. */
static void mixture(struct file *f, const struct shape *s, uint32_t il, uint32_t d_shared)
{
    matrix(f, ROLE_SMALL, il, "ffn_gate_inp.weight", s->d, s->n_expert);
    matrices(f, ROLE_MATRIX, il, "ffn_gate_exps.weight", s->d, s->d_expert, s->n_expert);
    matrices(f, ROLE_MATRIX, il, "ffn_up_exps.weight", s->d, s->d_expert, s->n_expert);
    matrices(f, ROLE_FFN_DOWN, il, "ffn_down_exps.weight", s->d_expert, s->d, s->n_expert);
    if (d_shared) {
        matrix(f, ROLE_MATRIX, il, "ffn_gate_shexp.weight", s->d, d_shared);
        matrix(f, ROLE_MATRIX, il, "ffn_up_shexp.weight", s->d, d_shared);
        matrix(f, ROLE_FFN_DOWN, il, "ffn_down_shexp.weight", d_shared, s->d);
    }
}

/* ---- families ---- */

static void build_llama(struct file *f, const struct shape *s)
{
    common(f, s);
    head_keys(f, s, s->d_head);
    struct tensor *t = even(f, NO_LAYER, "rope_freqs.weight", s->d_head / 2, 0.0, 0.0);
    t->fill = FILL_ROPE;
    for (uint32_t il = 0; il < s->n_layer; il++) {
        attention(f, s, il, false, false);
        norm(f, il, "ffn_norm.weight", s->d);
        feed_forward(f, s, il);
    }
}

static void build_qwen3(struct file *f, const struct shape *s)
{
    common(f, s);
    head_keys(f, s, s->d_head);
    if (s->n_expert)
        mixture_keys(f, s);
    for (uint32_t il = 0; il < s->n_layer; il++) {
        attention(f, s, il, false, true);
        norm(f, il, "ffn_norm.weight", s->d);
        if (s->n_expert)
            mixture(f, s, il, 0);
        else
            feed_forward(f, s, il);
    }
}

static void build_gemma3(struct file *f, const struct shape *s)
{
    common(f, s);
    head_keys(f, s, s->d_head);
    put_u32(f, "attention.sliding_window", 512);
    put_f32(f, "rope.freq_base_swa", 10000.0f);
    for (uint32_t il = 0; il < s->n_layer; il++) {
        attention(f, s, il, false, true);
        norm(f, il, "post_attention_norm.weight", s->d);
        norm(f, il, "ffn_norm.weight", s->d);
        feed_forward(f, s, il);
        norm(f, il, "post_ffw_norm.weight", s->d);
    }
}

/* Three gated delta-net layers, then one of gated attention (Qwen3.5). */
static void build_qwen35(struct file *f, const struct shape *s)
{
    const uint32_t heads = 16, d_state = 128, width = heads * d_state;
    const int32_t sections[4] = {11, 11, 10, 0};
    common(f, s);
    head_keys(f, s, 64);
    put_i32s(f, "rope.dimension_sections", sections, 4);
    put_u32(f, "ssm.conv_kernel", 4);
    put_u32(f, "ssm.state_size", d_state);
    put_u32(f, "ssm.group_count", heads);
    put_u32(f, "ssm.time_step_rank", heads);
    put_u32(f, "ssm.inner_size", width);
    put_u32(f, "full_attention_interval", 4);
    for (uint32_t il = 0; il < s->n_layer; il++) {
        if (il % 4 == 3) {
            attention(f, s, il, true, true);
        } else {
            norm(f, il, "attn_norm.weight", s->d);
            matrix(f, ROLE_MATRIX, il, "attn_qkv.weight", s->d, 3 * width);
            matrix(f, ROLE_MATRIX, il, "attn_gate.weight", s->d, width);
            matrix(f, ROLE_SMALL, il, "ssm_conv1d.weight", 4, 3 * width);
            even(f, il, "ssm_dt.bias", heads, -1.0, 1.0);
            even(f, il, "ssm_a", heads, -2.0, -0.1);
            matrix(f, ROLE_MATRIX, il, "ssm_beta.weight", s->d, heads);
            matrix(f, ROLE_MATRIX, il, "ssm_alpha.weight", s->d, heads);
            norm(f, il, "ssm_norm.weight", d_state);
            matrix(f, ROLE_MATRIX, il, "ssm_out.weight", width, s->d);
        }
        norm(f, il, "post_attention_norm.weight", s->d);
        feed_forward(f, s, il);
    }
}

/* Latent attention: keys of `d_head` without rotation and 64 with it, from a latent of 512. q_rank
 * 0: no latent of queries. `gated`: a gate for each head's output. */
static void latent_attention(struct file *f, const struct shape *s, uint32_t il, uint32_t q_rank,
                             bool gated)
{
    const uint32_t rank = 512, rotated = 64, d_q = s->n_head * (s->d_head + rotated);
    norm(f, il, "attn_norm.weight", s->d);
    norm(f, il, "attn_kv_a_norm.weight", rank);
    if (q_rank) {
        norm(f, il, "attn_q_a_norm.weight", q_rank);
        matrix(f, ROLE_MATRIX, il, "attn_q_a.weight", s->d, q_rank);
        matrix(f, ROLE_MATRIX, il, "attn_q_b.weight", q_rank, d_q);
    } else {
        matrix(f, ROLE_MATRIX, il, "attn_q.weight", s->d, d_q);
    }
    matrix(f, ROLE_MATRIX, il, "attn_kv_a_mqa.weight", s->d, rank + rotated);
    matrices(f, ROLE_MATRIX, il, "attn_k_b.weight", s->d_head, rank, s->n_head);
    matrices(f, ROLE_MATRIX, il, "attn_v_b.weight", rank, s->d_head, s->n_head);
    if (gated)
        matrix(f, ROLE_MATRIX, il, "attn_gate.weight", s->d, s->n_head);
    matrix(f, ROLE_MATRIX, il, "attn_output.weight", s->n_head * s->d_head, s->d);
}

static void latent_keys(struct file *f, const struct shape *s)
{
    put_u32(f, "rope.dimension_count", 64);
    put_u32(f, "attention.kv_lora_rank", 512);
    put_u32(f, "attention.key_length", 512 + 64);
    put_u32(f, "attention.value_length", 512);
    put_u32(f, "attention.key_length_mla", s->d_head + 64);
    put_u32(f, "attention.value_length_mla", s->d_head);
    put_u32(f, "leading_dense_block_count", 1);
    mixture_keys(f, s);
}

static void build_deepseek2(struct file *f, const struct shape *s)
{
    common(f, s);
    put_u32(f, "attention.head_count_kv", 1);
    latent_keys(f, s);
    put_u32(f, "expert_shared_count", 2);
    put_f32(f, "expert_weights_scale", 1.0f);
    for (uint32_t il = 0; il < s->n_layer; il++) {
        latent_attention(f, s, il, 0, false);
        norm(f, il, "ffn_norm.weight", s->d);
        if (il == 0)
            feed_forward(f, s, il);
        else
            mixture(f, s, il, 2 * s->d_expert);
    }
}

/* Kimi delta attention (Ling 3). */
static void delta_attention(struct file *f, const struct shape *s, uint32_t il)
{
    static const char *const conv[] = {"ssm_conv1d_q.weight", "ssm_conv1d_k.weight",
                                       "ssm_conv1d_v.weight"};
    const uint32_t width = s->n_head * s->d_head;
    norm(f, il, "attn_norm.weight", s->d);
    for (int i = 0; i < 3; i++) {
        struct tensor *t = matrix(f, ROLE_SMALL, il, conv[i], 4, 1);
        t->n_dims = 4;
        t->dims[2] = width;
    }
    matrix(f, ROLE_MATRIX, il, "attn_q.weight", s->d, width);
    matrix(f, ROLE_MATRIX, il, "attn_k.weight", s->d, width);
    matrix(f, ROLE_ATTN_V, il, "attn_v.weight", s->d, width);
    matrix(f, ROLE_MATRIX, il, "ssm_f_a.weight", s->d, width);
    matrix(f, ROLE_MATRIX, il, "ssm_beta.weight", s->d, s->n_head);
    struct tensor *a = even(f, il, "ssm_a", 1, 1.0, 4.0);
    a->n_dims = 2;
    a->dims[1] = s->n_head;
    even(f, il, "ssm_dt.bias", width, -4.0, 0.0);
    matrix(f, ROLE_MATRIX, il, "ssm_g_a.weight", s->d, width);
    norm(f, il, "ssm_norm.weight", s->d_head);
    matrix(f, ROLE_MATRIX, il, "attn_output.weight", width, s->d);
}

static void build_bailing3(struct file *f, const struct shape *s)
{
    int32_t n_kv[64] = {0};
    for (uint32_t il = 3; il < s->n_layer; il += 4)
        n_kv[il] = 1;
    common(f, s);
    put_i32s(f, "attention.head_count_kv", n_kv, s->n_layer);
    latent_keys(f, s);
    put_u32(f, "attention.q_lora_rank", 256);
    put_u32(f, "ssm.conv_kernel", 4);
    put_u32(f, "kda.head_dim", s->d_head);
    put_bool(f, "kda.safe_gate", true);
    put_f32(f, "kda.gate_lower_bound", -5.0f);
    put_u32(f, "expert_group_count", 8);
    put_u32(f, "expert_group_used_count", 4);
    put_u32(f, "expert_shared_count", 1);
    put_u32(f, "expert_shared_feed_forward_length", s->d_expert);
    put_f32(f, "expert_weights_scale", 2.5f);
    put_bool(f, "expert_weights_norm", true);
    put_u32(f, "expert_gating_func", 2);
    for (uint32_t il = 0; il < s->n_layer; il++) {
        if (n_kv[il])
            latent_attention(f, s, il, 256, true);
        else
            delta_attention(f, s, il);
        norm(f, il, "ffn_norm.weight", s->d);
        if (il == 0) {
            feed_forward(f, s, il);
        } else {
            even(f, il, "exp_probs_b.bias", s->n_expert, -0.05, 0.05);
            mixture(f, s, il, s->d_expert);
        }
    }
}

static const struct shape shapes[] = {
    {.name = "llama-3.2-1b",
     .arch = "llama",
     .pre = "llama-bpe",
     .build = build_llama,
     .n_layer = 16,
     .d = 2048,
     .d_ff = 8192,
     .n_head = 32,
     .n_kv = 8,
     .d_head = 64,
     .n_vocab = 128256,
     .n_ctx = 131072,
     .tied = true,
     .rope_base = 500000.0f,
     .eps = 1e-5f},
    {.name = "qwen3-0.6b",
     .arch = "qwen3",
     .pre = "qwen2",
     .build = build_qwen3,
     .n_layer = 28,
     .d = 1024,
     .d_ff = 3072,
     .n_head = 16,
     .n_kv = 8,
     .d_head = 128,
     .n_vocab = 151936,
     .n_ctx = 40960,
     .tied = true,
     .rope_base = 1e6f,
     .eps = 1e-6f},
    {.name = "gemma-3-1b",
     .arch = "gemma3",
     .pre = "gpt-2",
     .build = build_gemma3,
     .n_layer = 26,
     .d = 1152,
     .d_ff = 6912,
     .n_head = 4,
     .n_kv = 1,
     .d_head = 256,
     .n_vocab = 262144,
     .n_ctx = 32768,
     .tied = true,
     .rope_base = 1e6f,
     .eps = 1e-6f},
    {.name = "moe-3b",
     .arch = "qwen3moe",
     .pre = "qwen2",
     .build = build_qwen3,
     .n_layer = 20,
     .d = 2048,
     .d_ff = 6144,
     .n_head = 32,
     .n_kv = 4,
     .d_head = 128,
     .n_vocab = 151936,
     .n_ctx = 40960,
     .tied = false,
     .rope_base = 1e6f,
     .eps = 1e-6f,
     .n_expert = 16,
     .n_used = 4,
     .d_expert = 1024},
    {.name = "qwen3.5-2b",
     .arch = "qwen35",
     .pre = "qwen2",
     .build = build_qwen35,
     .n_layer = 24,
     .d = 2048,
     .d_ff = 6144,
     .n_head = 8,
     .n_kv = 2,
     .d_head = 256,
     .n_vocab = 248320,
     .n_ctx = 262144,
     .tied = true,
     .rope_base = 1e7f,
     .eps = 1e-6f},
    {.name = "deepseek-v2-lite-w4",
     .arch = "deepseek2",
     .pre = "deepseek-llm",
     .build = build_deepseek2,
     .n_layer = 27,
     .d = 512,
     .d_ff = 2736,
     .n_head = 16,
     .n_kv = 1,
     .d_head = 128,
     .n_vocab = 102400,
     .n_ctx = 32768,
     .tied = false,
     .rope_base = 10000.0f,
     .eps = 1e-6f,
     .n_expert = 64,
     .n_used = 6,
     .d_expert = 352},
    {.name = "ling-3-tiny-e4",
     .arch = "bailingmoe3",
     .pre = "gpt-2",
     .build = build_bailing3,
     .n_layer = 24,
     .d = 1536,
     .d_ff = 4608,
     .n_head = 16,
     .n_kv = 1,
     .d_head = 128,
     .n_vocab = 157184,
     .n_ctx = 131072,
     .tied = false,
     .rope_base = 6e6f,
     .eps = 1e-6f,
     .n_expert = 32,
     .n_used = 8,
     .d_expert = 512},
};

#endif
