/*
 * Granite 4 Hybrid and Bamba (specification F23): Mamba-2, with attention in the layers that have
 * key heads.
 *
 *     x += r op(N x);  x += r ffn(N' x)
 *
 * with a mixture or a dense feed-forward, and Granite's multipliers: of embeddings, of residuals
 * (r), of attention scores, and the divisor of the logits.
 */
#include "base/limits.h"
#include "model/family.h"

struct granite {
    const struct family *f;
    struct heads heads;
    const struct rope_table *rope; /* NULL: no rotation */
    struct mamba_desc mamba;
    uint32_t d_ff;
    float eps, residual, score_scale; /* 0: the usual one */
};

static void read_all(struct loader *l, struct granite *g)
{
    read_facts(l);
    g->eps = key_eps(l, "attention.layer_norm_rms_epsilon");
    read_heads(l, l->m->facts.n_layer, true, &g->heads);
    g->mamba = mamba2_read(l, g->eps);
    g->d_ff = key_u32_or(l, "feed_forward_length", 0, LIMIT_WIDTH, 0);
    g->residual = key_scale_or_0(l, "residual_scale", 1.0f);
    g->score_scale = key_scale_or_0(l, "attention.scale", 0.0f);
    if (!key_bool_or(l, "rope.scaling.finetuned", true))
        rope_ignore(l);
    else
        g->rope = rope_read(l, g->heads.d_k);
}

static struct view attention(struct loader *l, const struct granite *g, uint32_t il, struct view h)
{
    struct attn_desc attn = attn_plain(&g->heads, il);
    attn.rope = g->f->pairs;
    attn.table = g->rope;
    if (g->score_scale != 0.0f)
        attn.scale = g->score_scale;
    return block_attention(l, &attn, h);
}

static struct view feed_forward(struct loader *l, const struct granite *g, struct view h)
{
    if (has(l, "ffn_gate_inp.weight"))
        return block_moe(l, g->f->moe, h);
    if (g->d_ff == 0)
        key_u32(l, "feed_forward_length", 1, LIMIT_WIDTH);
    moe_none(l);
    return block_ffn(l, &(struct ffn_desc){.kind = g->f->ffn, .d_ff = g->d_ff, .suffix = ""}, h);
}

static void residual(struct loader *l, const struct granite *g, struct view x, struct view y)
{
    plan_scale(l->p, y, g->residual);
    plan_add(l->p, x, x, y);
}

void build_granite_hybrid(struct loader *l, const struct family *f)
{
    struct granite g = {.f = f};
    read_all(l, &g);
    const struct model_facts *m = &l->m->facts;
    struct view x = plan_embed(l->p, mat(l, "token_embd", m->n_vocab, m->d_model));
    plan_scale(l->p, x, key_scale_or_0(l, "embedding_scale", 1.0f));
    for (uint32_t il = 0; il < m->n_layer && l->status == LINNET_OK; il++) {
        l->il = (int32_t)il;
        plan_begin_layer(l->p, l->il, x);
        struct view h = rms_norm(l, "attn_norm", x, g.eps);
        residual(l, &g, x,
                 g.heads.n_kv[il] ? attention(l, &g, il, h) : block_mamba2(l, &g.mamba, h));
        residual(l, &g, x, feed_forward(l, &g, rms_norm(l, "ffn_norm", x, g.eps)));
    }
    build_head(l,
               &(struct head_desc){.norm_name = "output_norm",
                                   .norm = f->norm,
                                   .norm_bias = f->norm_bias,
                                   .eps = g.eps,
                                   .tie = f->tie,
                                   .logit_mul = 1.0f / key_scale_or_0(l, "logit_scale", 1.0f),
                                   .softcap = 0.0f},
               x);
}
