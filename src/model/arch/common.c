/*
 * What every builder begins and ends with, and the NextN block around a layer of any family.
 */
#include "base/limits.h"
#include "model/family.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Does the file hold any tensor of block `il`? */
static bool block_is_there(struct loader *l, uint32_t il)
{
    char prefix[32];
    int n = snprintf(prefix, sizeof prefix, "blk.%u.", il);
    for (size_t i = 0; i < gguf_n_tensors(l->g); i++)
        if (strncmp(gguf_tensor_at(l->g, i)->name, prefix, (size_t)n) == 0)
            return true;
    return false;
}

/* The last `nextn` blocks must be what the key says, or not in the file. */
static void check_nextn(struct loader *l, uint32_t nextn)
{
    const struct model_facts *m = &l->m->facts;
    bool any = false;
    for (uint32_t il = m->n_layer; il < m->n_layer_all; il++) {
        l->il = (int32_t)il;
        bool head = has(l, "nextn.eh_proj.weight");
        any |= head;
        if (!head && block_is_there(l, il))
            load_fail(l, LINNET_FORMAT,
                      "metadata key '%s.nextn_predict_layers' is %u, and tensor "
                      "'blk.%u.nextn.eh_proj.weight' is missing",
                      l->arch, nextn, il);
    }
    l->il = -1;
    if (any && !block_is_there(l, 0))
        load_fail(l, LINNET_UNSUPPORTED,
                  "this file holds the NextN block of a %s model without the model: open the file "
                  "that has both",
                  l->arch);
}

void read_facts(struct loader *l)
{
    struct model_facts *m = &l->m->facts;
    m->n_layer_all = key_u32(l, "block_count", 1, LIMIT_LAYERS);
    uint32_t nextn = key_u32_or(l, "nextn_predict_layers", 0, LIMIT_LAYERS, 0);
    if (nextn >= m->n_layer_all) {
        load_fail(l, LINNET_FORMAT,
                  "metadata key '%s.nextn_predict_layers' is %u; it must be below "
                  "'%s.block_count', %u",
                  l->arch, nextn, l->arch, m->n_layer_all);
        nextn = 0;
    }
    m->n_layer = m->n_layer_all - nextn;
    m->d_model = key_u32(l, "embedding_length", 1, LIMIT_WIDTH);
    m->n_ctx_train = key_u32(l, "context_length", 1, INT32_MAX);
    check_nextn(l, nextn);
    if (!key_bool_or(l, "attention.causal", true))
        load_fail(
            l, LINNET_UNSUPPORTED,
            "metadata key '%s.attention.causal' is false; %s models that see what comes after "
            "a token cannot be run, so it must be true",
            l->arch, l->arch);
    uint64_t n_rows = tensor_dim(l, "token_embd.weight", 1);
    if (n_rows == 0 || n_rows > LIMIT_VOCAB)
        load_fail(l, LINNET_FORMAT,
                  "tensor 'token_embd.weight' is missing or has %llu rows; a %s file has 1 to %d",
                  (unsigned long long)n_rows, l->arch, LIMIT_VOCAB);
    uint32_t n_vocab = key_u32_or(l, "vocab_size", 1, LIMIT_VOCAB, (uint32_t)n_rows);
    const struct gguf_kv *tokens = gguf_find(l->g, "tokenizer.ggml.tokens");
    /* with a token for each row, the key is what it was before tokens were added */
    const bool stale = tokens && tokens->count == n_rows;
    if (l->status == LINNET_OK &&
        ((n_vocab != n_rows && !stale) || (tokens && tokens->count > n_rows)))
        load_fail(l, LINNET_MISMATCH,
                  "the vocabulary has %llu tokens, '%s.vocab_size' says %u, 'token_embd.weight' "
                  "has %llu rows",
                  (unsigned long long)(tokens ? tokens->count : 0), l->arch, n_vocab,
                  (unsigned long long)n_rows);
    m->n_vocab = (uint32_t)n_rows;
}

void read_heads(struct loader *l, uint32_t n_layer, bool hybrid, struct heads *h)
{
    uint32_t min = hybrid ? 0 : 1, widest = 0;
    for (uint32_t i = 0; i < n_layer; i++)
        h->n[i] = 1;
    if (!key_u32_each(l, "attention.head_count", n_layer, min, LIMIT_WIDTH, h->n))
        key_u32(l, "attention.head_count", 1, LIMIT_WIDTH); /* missing, which is an error */
    for (uint32_t i = 0; i < n_layer; i++)
        h->n_kv[i] = h->n[i];
    key_u32_each(l, "attention.head_count_kv", n_layer, min, LIMIT_WIDTH, h->n_kv);
    for (uint32_t i = 0; i < n_layer; i++) {
        if (h->n_kv[i] == 0)
            continue;
        if (h->n[i] == 0 || h->n[i] % h->n_kv[i])
            load_fail(l, LINNET_FORMAT,
                      "metadata keys '%s.attention.head_count' and '%s.attention.head_count_kv': "
                      "%u query heads do not divide into %u key heads in layer %u",
                      l->arch, l->arch, h->n[i], h->n_kv[i], i);
        widest = widest ? widest : h->n[i];
    }
    uint32_t d_head = widest ? l->m->facts.d_model / widest : 0;
    h->d_k = key_u32_or(l, "attention.key_length", 1, LIMIT_WIDTH, d_head);
    h->d_v = key_u32_or(l, "attention.value_length", 1, LIMIT_WIDTH, d_head);
    if (widest && (h->d_k == 0 || h->d_v == 0))
        load_fail(l, LINNET_FORMAT,
                  "metadata key '%s.attention.head_count' is %u, which leaves no width for a head "
                  "of '%s.embedding_length' %u",
                  l->arch, widest, l->arch, l->m->facts.d_model);
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

void read_pattern(struct loader *l, uint32_t n_layer, uint32_t period, uint32_t *windowed)
{
    const char *key = "attention.sliding_window_pattern";
    if (key_is_array(l, key)) {
        key_u32_each(l, key, n_layer, 0, 1, windowed);
        return;
    }
    period = key_u32_or(l, key, 0, LIMIT_LAYERS, period);
    for (uint32_t i = 0; i < n_layer; i++)
        windowed[i] = period == 0 || i % period < period - 1;
}

float softcap_key(struct loader *l, const char *key, float absent)
{
    return absent < 0.0f ? 0.0f : key_cap(l, key, absent);
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

/* The logits of hidden state x, which the caller may have too. */
static void append_logits(struct loader *l, const struct head_desc *d, const struct matrix *w,
                          const float *bias, struct view x)
{
    plan_hidden(l->p, x);
    struct view y = plan_matmul(l->p, "logits", w, bias, x);
    if (y.reg < 0)
        return;
    plan_scale(l->p, y, d->logit_mul);
    plan_softcap(l->p, y, d->softcap);
    l->p->logits = y;
}

static const struct matrix *output_matrix(struct loader *l, enum tie tie)
{
    const struct model_facts *m = &l->m->facts;
    const struct matrix *w =
        tie == TIE_ALWAYS ? NULL : mat_opt(l, "output", m->n_vocab, m->d_model);
    if (!w && tie == TIE_NEVER)
        w = mat(l, "output", m->n_vocab, m->d_model);
    return w ? w : mat(l, "token_embd", m->n_vocab, m->d_model);
}

/* The final norm of the output rows of x, from tensor `name` of the layer l->il. */
static struct view final_norm(struct loader *l, const struct head_desc *d, const char *name,
                              struct view x)
{
    const uint32_t n = l->m->facts.d_model;
    char weight[64], bias[64];
    snprintf(weight, sizeof weight, "%s.weight", name);
    snprintf(bias, sizeof bias, "%s.bias", name);
    const float *w = vec(l, weight, n), *b = d->norm_bias ? vec(l, bias, n) : NULL;
    if (!l->p->out_rows) {
        plan_begin_layer(l->p, -1, x);
        x = plan_select(l->p, x);
    }
    return plan_norm(l->p, "output_norm", d->norm, x, w, b, d->eps);
}

void build_head(struct loader *l, const struct head_desc *d, struct view x)
{
    l->il = -1;
    x = final_norm(l, d, d->norm_name, x);
    const struct matrix *w = output_matrix(l, d->tie);
    append_logits(l, d, w, bias_opt(l, "output", l->m->facts.n_vocab), x);
}

/*
 * Row p of the block sees token p and the trunk's hidden state of token p - 1 (zeros before the
 * first), and predicts token p + 1: x = W [enorm(embedding) ; hnorm(hidden)], one layer, a norm, a
 * head. Embedding, norm and head are its own where the file has them, else the trunk's. Only the
 * first of several blocks is run; its hidden state can take the trunk's place for one token more.
 */
void build_nextn(struct loader *l, const struct head_desc *d, layer_fn *layer, void *family)
{
    struct plan *p = l->p;
    const uint32_t n = l->m->facts.d_model, n_vocab = l->m->facts.n_vocab, il = l->m->facts.n_layer;
    l->il = -1;
    const struct matrix *embed = mat(l, "token_embd", n_vocab, n), *out = output_matrix(l, d->tie);
    l->il = (int32_t)il;
    const struct matrix *own_embed = mat_opt(l, "nextn.embed_tokens", n_vocab, n);
    const struct matrix *own_out = mat_opt(l, "nextn.shared_head_head", n_vocab, n);
    const float *enorm = vec(l, "nextn.enorm.weight", n), *hnorm = vec(l, "nextn.hnorm.weight", n);

    struct view token = plan_embed(p, own_embed ? own_embed : embed);
    struct view hidden = plan_given(p, "hidden", n);
    struct view both = plan_new(p, "token_hidden", width_mul(l, "token and hidden state", n, 2));
    plan_norm_to(p, d->norm, view_part(both, 0, n), token, enorm, NULL, d->eps);
    plan_norm_to(p, d->norm, view_part(both, n, n), hidden, hnorm, NULL, d->eps);
    struct view x = plan_matmul(p, "nextn", mat(l, "nextn.eh_proj", n, both.width), NULL, both);
    layer(l, family, il, x);

    l->il = (int32_t)il;
    const char *norm = has(l, "nextn.shared_head_norm.weight") ? "nextn.shared_head_norm"
                       : has(l, "layer_output_norm.weight")    ? "layer_output_norm"
                                                               : NULL;
    l->il = norm ? (int32_t)il : -1;
    x = final_norm(l, d, norm ? norm : d->norm_name, x);
    l->il = -1;
    append_logits(l, d, own_out ? own_out : out, NULL, x);
}

struct head_desc plain_head(const struct family *f, const char *norm_name, float eps)
{
    return (struct head_desc){.norm_name = norm_name,
                              .norm = f->norm,
                              .norm_bias = f->norm_bias,
                              .eps = eps,
                              .tie = f->tie,
                              .logit_mul = 1.0f,
                              .softcap = 0.0f};
}

void build_plain_head(struct loader *l, const struct family *f, const char *norm_name, float eps,
                      struct view x)
{
    const struct head_desc d = plain_head(f, norm_name, eps);
    build_head(l, &d, x);
}
