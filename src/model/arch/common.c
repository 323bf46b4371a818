/*
 * What every builder begins and ends with.
 */
#include "base/limits.h"
#include "model/family.h"

#include <math.h>
#include <stdio.h>

void read_facts(struct loader *l)
{
    struct model_facts *m = &l->m->facts;
    m->n_layer_all = key_u32(l, "block_count", 1, LIMIT_LAYERS);
    uint32_t nextn = key_u32_or(l, "nextn_predict_layers", 0, LIMIT_LAYERS, 0);
    if (nextn >= m->n_layer_all) {
        load_fail(l, LINNET_FORMAT, "metadata key '%s.nextn_predict_layers' is %u of %u layers", l->arch, nextn,
                  m->n_layer_all);
        nextn = 0;
    }
    m->n_layer = m->n_layer_all - nextn;
    m->d_model = key_u32(l, "embedding_length", 1, LIMIT_WIDTH);
    m->n_ctx_train = key_u32(l, "context_length", 1, INT32_MAX);
    l->il = -1;
    uint64_t rows = tensor_dim(l, "token_embd.weight", 1);
    if (rows == 0 || rows > LIMIT_VOCAB)
        load_fail(l, LINNET_FORMAT, "tensor 'token_embd.weight' is missing or has %llu rows", (unsigned long long)rows);
    uint32_t n_vocab = key_u32_or(l, "vocab_size", 1, LIMIT_VOCAB, (uint32_t)rows);
    const struct gguf_kv *tokens = gguf_find(l->g, "tokenizer.ggml.tokens");
    if (l->status == LINNET_OK && (n_vocab != rows || (tokens && tokens->count > rows)))
        load_fail(l, LINNET_MISMATCH, "the vocabulary has %llu tokens, '%s.vocab_size' says %u, 'token_embd.weight' has %llu rows",
                  (unsigned long long)(tokens ? tokens->count : 0), l->arch, n_vocab, (unsigned long long)rows);
    m->n_vocab = (uint32_t)rows;
}

void read_heads(struct loader *l, uint32_t n_layer, bool hybrid, struct heads *h)
{
    uint32_t min = hybrid ? 0 : 1, widest = 0;
    for (uint32_t i = 0; i < n_layer; i++)
        h->n[i] = 1;
    if (!key_u32_each(l, "attention.head_count", n_layer, min, LIMIT_WIDTH, h->n))
        load_fail(l, LINNET_FORMAT, "metadata key '%s.attention.head_count' is missing", l->arch);
    for (uint32_t i = 0; i < n_layer; i++)
        h->n_kv[i] = h->n[i];
    key_u32_each(l, "attention.head_count_kv", n_layer, min, LIMIT_WIDTH, h->n_kv);
    for (uint32_t i = 0; i < n_layer; i++) {
        if (h->n_kv[i] == 0)
            continue;
        if (h->n[i] == 0 || h->n[i] % h->n_kv[i])
            load_fail(l, LINNET_FORMAT, "layer %u: %u query heads do not divide into %u key heads", i, h->n[i],
                      h->n_kv[i]);
        widest = widest ? widest : h->n[i];
    }
    uint32_t d_head = widest ? l->m->facts.d_model / widest : 0;
    h->d_k = key_u32_or(l, "attention.key_length", 1, LIMIT_WIDTH, d_head);
    h->d_v = key_u32_or(l, "attention.value_length", 1, LIMIT_WIDTH, d_head);
    if (widest && (h->d_k == 0 || h->d_v == 0))
        load_fail(l, LINNET_FORMAT, "%u heads leave no width for a head of %u", widest, l->m->facts.d_model);
}

struct attn_desc attn_plain(const struct heads *h, uint32_t il)
{
    return (struct attn_desc){.n_head = h->n[il],
                              .n_head_kv = h->n_kv[il],
                              .d_k = h->d_k,
                              .d_v = h->d_v,
                              .qk_norm = QK_NONE,
                              .rope = ROPE_NONE,
                              .table = NULL,
                              .window = 0,
                              .scale = 1.0f / sqrtf((float)h->d_k)};
}

float key_factor(struct loader *l, const char *key)
{
    float f = key_f32_or(l, key, 0.0f);
    return f == 0.0f ? 1.0f : f;
}

struct view rms_norm(struct loader *l, const char *name, struct view x, float eps)
{
    char weight[64];
    snprintf(weight, sizeof weight, "%s.weight", name);
    return plan_norm(l->p, name, NORM_RMS, x, vec(l, weight, view_size(x)), NULL, eps);
}

struct view layer_norm(struct loader *l, const char *name, struct view x, float eps)
{
    char weight[64], bias[64];
    snprintf(weight, sizeof weight, "%s.weight", name);
    snprintf(bias, sizeof bias, "%s.bias", name);
    const float *w = vec(l, weight, view_size(x));
    return plan_norm(l->p, name, NORM_LAYER, x, w, vec(l, bias, view_size(x)), eps);
}

void build_head(struct loader *l, const struct head_desc *d, struct view x)
{
    struct plan *p = l->p;
    const struct model_facts *m = &l->m->facts;
    l->il = -1;
    plan_begin_layer(p, -1, x);
    x = plan_select(p, x);
    char weight[64], bias[64];
    snprintf(weight, sizeof weight, "%s.weight", d->norm_name);
    snprintf(bias, sizeof bias, "%s.bias", d->norm_name);
    x = plan_norm(p, "output_norm", d->norm, x, vec(l, weight, m->d_model),
                  d->norm_bias ? vec(l, bias, m->d_model) : NULL, d->eps);
    const struct matrix *w = d->tie == TIE_ALWAYS ? NULL : mat_opt(l, "output", m->n_vocab, m->d_model);
    if (!w && d->tie == TIE_NEVER)
        w = mat(l, "output", m->n_vocab, m->d_model);
    if (!w)
        w = mat(l, "token_embd", m->n_vocab, m->d_model);
    struct view y = plan_matmul(p, "logits", w, bias_opt(l, "output", m->n_vocab), x);
    if (y.reg < 0)
        return;
    plan_scale(p, y, d->logit_mul);
    plan_softcap(p, y, d->softcap);
    p->logits = y;
}

void build_plain_head(struct loader *l, const struct family *f, const char *norm_name, float eps, struct view x)
{
    build_head(l,
               &(struct head_desc){.norm_name = norm_name,
                                   .norm = f->norm,
                                   .norm_bias = f->norm_bias,
                                   .eps = eps,
                                   .tie = f->tie,
                                   .logit_mul = 1.0f,
                                   .softcap = 0.0f},
               x);
}
