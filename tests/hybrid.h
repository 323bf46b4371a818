/*
 * Tiny models of the delta-rule families, held in memory so that a test can change keys and tensors
 * before the file is written: 4 layers (3 recurrent, 1 that attends), 32 dimensions, 40 tokens, no
 * vocabulary, f32. A tensor's values depend on its name alone.
 */
#ifndef LINNET_HYBRID_H
#define LINNET_HYBRID_H

#include "mkgguf.h"

enum { D = 32, N_LAYER = 4, N_VOCAB = 40, MAX_ARRAY = 8 };

struct hkey {
    char name[64];
    enum gguf_type type; /* GGUF_U32, GGUF_F32, GGUF_BOOL or GGUF_STRING */
    const char *text;
    bool array;
    size_t n;
    double v[MAX_ARRAY];
};

struct htensor {
    char name[64];
    unsigned n_dims;
    uint64_t dims[4];
    size_t n;
    float *v;
};

struct hybrid {
    const char *arch;
    struct hkey keys[64];
    size_t n_keys;
    struct htensor tensors[256];
    size_t n_tensors;
};

/* ---- keys ---- */

static inline struct hkey *hkey_find(struct hybrid *m, const char *name)
{
    for (size_t i = 0; i < m->n_keys; i++)
        if (strcmp(m->keys[i].name, name) == 0)
            return &m->keys[i];
    return NULL;
}

/* Add the key or replace its value. */
static inline void hkey_set(struct hybrid *m, const char *name, enum gguf_type type, bool array,
                            size_t n, const double *v)
{
    struct hkey *k = hkey_find(m, name);
    if (!k)
        k = &m->keys[m->n_keys++];
    assert_true(m->n_keys <= 64 && n <= MAX_ARRAY);
    *k = (struct hkey){.type = type, .array = array, .n = n};
    snprintf(k->name, sizeof k->name, "%s", name);
    if (n)
        memcpy(k->v, v, n * sizeof *v);
}

static inline void hkey_u32(struct hybrid *m, const char *name, uint32_t v)
{
    hkey_set(m, name, GGUF_U32, false, 1, &(double){v});
}

static inline void hkey_f32(struct hybrid *m, const char *name, double v)
{
    hkey_set(m, name, GGUF_F32, false, 1, &v);
}

static inline void hkey_bool(struct hybrid *m, const char *name, bool v)
{
    hkey_set(m, name, GGUF_BOOL, false, 1, &(double){v});
}

static inline void hkey_text(struct hybrid *m, const char *name, const char *text)
{
    hkey_set(m, name, GGUF_STRING, false, 0, NULL);
    hkey_find(m, name)->text = text;
}

static inline void hkey_rename(struct hybrid *m, const char *name, const char *to)
{
    struct hkey *k = hkey_find(m, name);
    assert_non_null(k);
    snprintf(k->name, sizeof k->name, "%s", to);
}

static inline void hkey_drop(struct hybrid *m, const char *name)
{
    struct hkey *k = hkey_find(m, name);
    assert_non_null(k);
    *k = m->keys[--m->n_keys];
}

/* ---- tensors ---- */

static inline struct htensor *htensor_find(struct hybrid *m, const char *name)
{
    for (size_t i = 0; i < m->n_tensors; i++)
        if (strcmp(m->tensors[i].name, name) == 0)
            return &m->tensors[i];
    return NULL;
}

/* Values normal around `mean`. Dimensions after the first 0 are left out. */
static inline struct htensor *htensor_add(struct hybrid *m, const char *name, float mean,
                                          float deviation, uint64_t d0, uint64_t d1, uint64_t d2)
{
    assert_true(m->n_tensors < 256 && !htensor_find(m, name));
    struct htensor *t = &m->tensors[m->n_tensors++];
    *t = (struct htensor){.dims = {d0, d1, d2, 0}, .n = 1};
    snprintf(t->name, sizeof t->name, "%s", name);
    for (; t->n_dims < 4 && t->dims[t->n_dims]; t->n_dims++)
        t->n *= (size_t)t->dims[t->n_dims];
    t->v = malloc(t->n * sizeof *t->v);
    assert_non_null(t->v);
    uint64_t state = 1;
    for (const char *s = name; *s; s++)
        state = (state ^ (unsigned char)*s) * 0x100000001B3u;
    for (size_t i = 0; i < t->n; i++)
        t->v[i] = mean + deviation * mkgguf_normal(&state);
    return t;
}

static inline void htensor_drop(struct hybrid *m, const char *name)
{
    struct htensor *t = htensor_find(m, name);
    if (!t)
        fail_msg("there is no tensor %s", name);
    free(t->v);
    *t = m->tensors[--m->n_tensors];
}

static inline void hybrid_free(struct hybrid *m)
{
    for (size_t i = 0; i < m->n_tensors; i++)
        free(m->tensors[i].v);
    free(m);
}

/* ---- families ---- */

static inline void h_matrix(struct hybrid *m, unsigned l, const char *name, unsigned in,
                            unsigned out)
{
    htensor_add(m, mkgguf_blk(l, name), 0.0f, 1.0f / sqrtf((float)in), in, out, 0);
}

static inline void h_norm(struct hybrid *m, unsigned l, const char *name, unsigned n)
{
    htensor_add(m, mkgguf_blk(l, name), 1.0f, 0.15f, n, 0, 0);
}

static inline void h_common(struct hybrid *m)
{
    hkey_u32(m, "context_length", 128);
    hkey_u32(m, "embedding_length", D);
    hkey_u32(m, "block_count", N_LAYER);
    hkey_u32(m, "feed_forward_length", 48);
    hkey_u32(m, "attention.head_count", 2);
    hkey_f32(m, "attention.layer_norm_rms_epsilon", 1e-5);
    hkey_u32(m, "rope.dimension_count", 8);
    hkey_f32(m, "rope.freq_base", 10000);
    hkey_u32(m, "ssm.conv_kernel", 4);
    htensor_add(m, "token_embd.weight", 0, 1, D, N_VOCAB, 0);
    htensor_add(m, "output_norm.weight", 1, 0.15f, D, 0, 0);
    htensor_add(m, "output.weight", 0, 0.2f, D, N_VOCAB, 0);
}

static inline void h_experts(struct hybrid *m, unsigned l, unsigned width)
{
    htensor_add(m, mkgguf_blk(l, "ffn_gate_inp.weight"), 0, 0.4f, D, 4, 0);
    htensor_add(m, mkgguf_blk(l, "ffn_gate_exps.weight"), 0, 0.2f, width, 24, 4);
    htensor_add(m, mkgguf_blk(l, "ffn_up_exps.weight"), 0, 0.2f, width, 24, 4);
    htensor_add(m, mkgguf_blk(l, "ffn_down_exps.weight"), 0, 0.2f, 24, width, 4);
    h_matrix(m, l, "ffn_gate_shexp.weight", D, 20);
    h_matrix(m, l, "ffn_up_shexp.weight", D, 20);
    h_matrix(m, l, "ffn_down_shexp.weight", 20, D);
}

static inline void h_dense(struct hybrid *m, unsigned l)
{
    h_matrix(m, l, "ffn_gate.weight", D, 48);
    h_matrix(m, l, "ffn_up.weight", D, 48);
    h_matrix(m, l, "ffn_down.weight", 48, D);
}

enum { GDN_K = 2, GDN_V = 6, GDN_DK = 8, GDN_DV = 10, GDN_C = 2 * GDN_K * GDN_DK + GDN_V * GDN_DV };

/* qwen3next, qwen35 or qwen35moe: 2 key heads of 8, 6 value heads of 10. */
static inline void h_qwen(struct hybrid *m)
{
    bool next = strcmp(m->arch, "qwen3next") == 0, moe = strcmp(m->arch, "qwen35") != 0;
    hkey_u32(m, "attention.head_count_kv", 1);
    hkey_u32(m, "attention.key_length", 16);
    hkey_u32(m, "attention.value_length", 16);
    hkey_u32(m, "ssm.state_size", GDN_DK);
    hkey_u32(m, "ssm.group_count", GDN_K);
    hkey_u32(m, "ssm.time_step_rank", GDN_V);
    hkey_u32(m, "ssm.inner_size", GDN_V * GDN_DV);
    hkey_u32(m, "full_attention_interval", 4);
    if (!next)
        hkey_set(m, "rope.dimension_sections", GGUF_U32, true, 4, (const double[]){2, 1, 1, 0});
    if (moe) {
        hkey_u32(m, "expert_count", 4);
        hkey_u32(m, "expert_used_count", 2);
    }
    for (unsigned l = 0; l < N_LAYER; l++) {
        h_norm(m, l, "attn_norm.weight", D);
        h_norm(m, l, "post_attention_norm.weight", D);
        if (l % 4 == 3) {
            h_matrix(m, l, "attn_q.weight", D, 2 * 2 * 16);
            h_matrix(m, l, "attn_k.weight", D, 16);
            h_matrix(m, l, "attn_v.weight", D, 16);
            h_matrix(m, l, "attn_output.weight", 2 * 16, D);
            h_norm(m, l, "attn_q_norm.weight", 16);
            h_norm(m, l, "attn_k_norm.weight", 16);
        } else {
            h_matrix(m, l, "attn_qkv.weight", D, GDN_C);
            h_matrix(m, l, "attn_gate.weight", D, GDN_V * GDN_DV);
            h_matrix(m, l, "ssm_conv1d.weight", 4, GDN_C);
            htensor_add(m, mkgguf_blk(l, "ssm_dt.bias"), -1, 0.5f, GDN_V, 0, 0);
            htensor_add(m, mkgguf_blk(l, "ssm_a"), -1, 0.2f, GDN_V, 0, 0);
            if (next)
                h_matrix(m, l, "ssm_ba.weight", D, 2 * GDN_V);
            else
                h_matrix(m, l, "ssm_beta.weight", D, GDN_V);
            if (!next)
                h_matrix(m, l, "ssm_alpha.weight", D, GDN_V);
            h_norm(m, l, "ssm_norm.weight", GDN_DV);
            h_matrix(m, l, "ssm_out.weight", GDN_V * GDN_DV, D);
        }
        if (!moe)
            h_dense(m, l);
        if (moe) {
            h_experts(m, l, D);
            htensor_add(m, mkgguf_blk(l, "ffn_gate_inp_shexp.weight"), 0, 0.2f, D, 0, 0);
        }
    }
}

enum { KDA_DH = 8, KDA_P = 2 * KDA_DH };

static inline void h_kda(struct hybrid *m, unsigned l)
{
    bool ling = strcmp(m->arch, "bailingmoe3") == 0, k3 = strcmp(m->arch, "kimi-k3") == 0;
    static const char *const names[] = {"q", "k", "v"};
    for (int i = 0; i < 3; i++) {
        char s[32];
        snprintf(s, sizeof s, "attn_%s.weight", names[i]);
        h_matrix(m, l, s, D, KDA_P);
        snprintf(s, sizeof s, "ssm_conv1d_%s.weight", names[i]);
        htensor_add(m, mkgguf_blk(l, s), 0, 0.5f, 4, 1, KDA_P);
    }
    h_matrix(m, l, "ssm_beta.weight", D, 2);
    htensor_add(m, mkgguf_blk(l, "ssm_a"), ling ? 1 : -1, 0.2f, 1, 2, 0);
    htensor_add(m, mkgguf_blk(l, "ssm_dt.bias"), 0, 0.5f, KDA_P, 0, 0);
    h_matrix(m, l, "ssm_f_a.weight", D, ling ? KDA_P : 6);
    if (!ling)
        h_matrix(m, l, "ssm_f_b.weight", 6, KDA_P);
    h_matrix(m, l, k3 ? "ssm_g.weight" : "ssm_g_a.weight", D, ling || k3 ? KDA_P : 6);
    if (!ling && !k3)
        h_matrix(m, l, "ssm_g_b.weight", 6, KDA_P);
    h_norm(m, l, "ssm_norm.weight", KDA_DH);
}

static inline void h_mla(struct hybrid *m, unsigned l)
{
    bool ling = strcmp(m->arch, "bailingmoe3") == 0, k3 = strcmp(m->arch, "kimi-k3") == 0;
    if (ling || k3) {
        h_matrix(m, l, "attn_q_a.weight", D, 12);
        h_norm(m, l, "attn_q_a_norm.weight", 12);
        h_matrix(m, l, "attn_q_b.weight", 12, 2 * 16);
        h_matrix(m, l, "attn_gate.weight", D, ling ? 2 : KDA_P);
    } else {
        h_matrix(m, l, "attn_q.weight", D, 2 * 16);
    }
    h_matrix(m, l, "attn_kv_a_mqa.weight", D, 10 + 8);
    h_norm(m, l, "attn_kv_a_norm.weight", 10);
    htensor_add(m, mkgguf_blk(l, "attn_k_b.weight"), 0, 0.3f, 8, 10, 2);
    htensor_add(m, mkgguf_blk(l, "attn_v_b.weight"), 0, 0.3f, 10, 8, 2);
}

/* kimi-linear, kimi-k3 or bailingmoe3: 2 heads of 8; the first layer's feed-forward is dense. */
static inline void h_kimi(struct hybrid *m)
{
    bool ling = strcmp(m->arch, "bailingmoe3") == 0, k3 = strcmp(m->arch, "kimi-k3") == 0;
    hkey_set(m, "attention.head_count_kv", GGUF_U32, true, 4, (const double[]){0, 0, 0, 1});
    hkey_u32(m, "attention.kv_lora_rank", 10);
    hkey_u32(m, "attention.key_length", 18);
    hkey_u32(m, "attention.key_length_mla", 16);
    hkey_u32(m, "attention.value_length_mla", 8);
    hkey_u32(m, "kda.head_dim", KDA_DH);
    hkey_u32(m, "expert_count", 4);
    hkey_u32(m, "expert_used_count", 2);
    hkey_u32(m, "expert_gating_func", 2);
    hkey_bool(m, "expert_weights_norm", true);
    hkey_u32(m, "leading_dense_block_count", 1);
    if (ling || k3)
        hkey_f32(m, "kda.gate_lower_bound", -5);
    if (k3) {
        hkey_u32(m, "attn_res.block_size", 2);
        hkey_u32(m, "expert_latent_length", 14);
        hkey_f32(m, "activation.situ_beta", 1.5);
        hkey_f32(m, "activation.situ_linear_beta", 3);
        htensor_add(m, "output_res_score.weight", 0, 0.2f, D, 0, 0);
    }
    for (unsigned l = 0; l < N_LAYER; l++) {
        h_norm(m, l, "attn_norm.weight", D);
        h_norm(m, l, "ffn_norm.weight", D);
        l == 3 ? h_mla(m, l) : h_kda(m, l);
        h_matrix(m, l, "attn_output.weight", KDA_P, D);
        if (k3) {
            htensor_add(m, mkgguf_blk(l, "attn_res_score.weight"), 0, 0.2f, D, 0, 0);
            htensor_add(m, mkgguf_blk(l, "ffn_res_score.weight"), 0, 0.2f, D, 0, 0);
        }
        if (l == 0) {
            h_dense(m, l);
            continue;
        }
        h_experts(m, l, k3 ? 14 : D);
        htensor_add(m, mkgguf_blk(l, "exp_probs_b.bias"), 0, 0.1f, 4, 0, 0);
        if (k3) {
            h_matrix(m, l, "ffn_routed_down.weight", D, 14);
            h_matrix(m, l, "ffn_routed_up.weight", 14, D);
            h_norm(m, l, "ffn_routed_norm.weight", 14);
        }
    }
}

static inline struct hybrid *hybrid_new(const char *arch)
{
    struct hybrid *m = calloc(1, sizeof *m);
    assert_non_null(m);
    m->arch = arch;
    h_common(m);
    if (strncmp(arch, "qwen", 4) == 0)
        h_qwen(m);
    else
        h_kimi(m);
    return m;
}

/* ---- the file ---- */

static inline void h_put_key(struct gguf_writer *w, const struct hybrid *m, const struct hkey *k)
{
    linnet_error e;
    char full[128];
    uint32_t u[MAX_ARRAY];
    float f[MAX_ARRAY];
    snprintf(full, sizeof full, "%s.%s", m->arch, k->name);
    for (size_t i = 0; i < k->n; i++) {
        f[i] = (float)k->v[i];
        u[i] = k->type == GGUF_F32 ? 0 : (uint32_t)k->v[i];
    }
    if (k->type == GGUF_STRING)
        assert_ok(gguf_put_str(w, full, k->text, strlen(k->text), &e), e);
    else if (k->array)
        assert_ok(gguf_put_array(w, full, k->type, k->type == GGUF_F32 ? (void *)f : u, k->n, &e),
                  e);
    else if (k->type == GGUF_F32)
        assert_ok(gguf_put_f32(w, full, f[0], &e), e);
    else if (k->type == GGUF_BOOL)
        assert_ok(gguf_put_bool(w, full, u[0] != 0, &e), e);
    else
        assert_ok(gguf_put_u32(w, full, u[0], &e), e);
}

/* Write the model and open it; the file is gone when it returns. */
static inline linnet_status hybrid_open(const struct hybrid *m, linnet_model **out, linnet_error *e)
{
    char path[64] = "/tmp/linnet-hybrid-XXXXXX.gguf";
    int fd = mkstemps(path, 5);
    assert_true(fd >= 0);
    close(fd);
    unlink(path);
    struct gguf_writer *w;
    assert_ok(gguf_writer_create(&w, e), *e);
    assert_ok(gguf_put_str(w, "general.architecture", m->arch, strlen(m->arch), e), *e);
    for (size_t i = 0; i < m->n_keys; i++)
        h_put_key(w, m, &m->keys[i]);
    for (size_t i = 0; i < m->n_tensors; i++) {
        const struct htensor *t = &m->tensors[i];
        assert_ok(gguf_add_tensor(w, t->name, QUANT_F32, t->n_dims, t->dims, e), *e);
    }
    assert_ok(gguf_write_begin(w, path, e), *e);
    for (size_t i = 0; i < m->n_tensors; i++)
        assert_ok(gguf_write_tensor(w, m->tensors[i].v, m->tensors[i].n * sizeof(float), e), *e);
    assert_ok(gguf_write_end(w, e), *e);
    gguf_writer_destroy(w);
    linnet_model_options mo;
    linnet_model_defaults(&mo);
    mo.threads = 1;
    *out = NULL;
    e->text[0] = '\0';
    linnet_status status = linnet_model_open(path, &mo, out, e);
    unlink(path);
    return status;
}

#endif
