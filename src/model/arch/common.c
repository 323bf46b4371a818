/*
 * What every builder begins and ends with.
 */
#include "base/limits.h"
#include "model/family.h"

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

void build_head(struct loader *l, const struct head_desc *d, struct view x)
{
    struct plan *p = l->p;
    const struct model_facts *m = &l->m->facts;
    l->il = -1;
    plan_begin_layer(p, -1, x);
    x = plan_select(p, x);
    x = plan_norm(p, "output_norm", d->norm, x, vec(l, "output_norm.weight", m->d_model),
                  d->norm_bias ? vec(l, "output_norm.bias", m->d_model) : NULL, d->eps);
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
