/*
 * Nemotron-H, dense and mixtures (arXiv 2504.03624; specification F21, F22): one thing a layer, x
 * += f(N x).
 *
 * f is a feed-forward with squared ReLU where the layer has a width, attention without positions
 * where it has key heads, else Mamba-2.
 */
#include "base/limits.h"
#include "model/family.h"

struct nemotron {
    const struct family *f;
    struct heads heads;
    struct mamba_desc mamba;
    struct moe_extra moe;
    uint32_t *d_ff; /* [n_layer] */
    float eps;
};

static void read_all(struct loader *l, struct nemotron *d)
{
    read_facts(l);
    uint32_t n_layer = l->m->facts.n_layer;
    const char *rms = "attention.layer_norm_rms_epsilon", *layer = "attention.layer_norm_epsilon";
    key_ignore(l, layer); /* where both are there it is that of a NextN block */
    d->eps = key_eps(l, key_present(l, rms) || !key_present(l, layer) ? rms : layer);
    read_heads(l, n_layer, true, &d->heads);
    d->mamba = mamba2_read(l, d->eps);
    d->d_ff = ARENA_ARRAY(l->arena, n_layer, uint32_t);
    if (!d->d_ff)
        l->status = err_memory(l->e, "model description", n_layer * sizeof *d->d_ff);
    else if (!key_u32_each(l, "feed_forward_length", n_layer, 0, LIMIT_WIDTH, d->d_ff))
        load_fail(l, LINNET_FORMAT, "metadata key '%s.feed_forward_length' is missing", l->arch);
    if (d->f->moe)
        d->moe = (struct moe_extra){.d_latent = key_u32_or(l, "moe_latent_size", 0, LIMIT_WIDTH, 0),
                                    .latent = "ffn_latent"};
    rope_ignore(l);
    key_ignore(l, "attention.scale");
}

static struct view sublayer(struct loader *l, const struct nemotron *d, uint32_t il, struct view h)
{
    if (d->d_ff[il] == 0 && d->heads.n_kv[il] == 0)
        return block_mamba2(l, &d->mamba, h);
    if (d->d_ff[il] == 0) {
        struct attn_desc attn = attn_plain(&d->heads, il);
        return block_attention(l, &attn, h);
    }
    if (d->f->moe && has(l, "ffn_gate_inp.weight"))
        return block_moe_with(l, d->f->moe, &d->moe, h);
    return block_ffn(l, &(struct ffn_desc){.kind = d->f->ffn, .d_ff = d->d_ff[il], .suffix = ""},
                     h);
}

void build_nemotron_h(struct loader *l, const struct family *f)
{
    struct nemotron d = {.f = f};
    read_all(l, &d);
    const struct model_facts *m = &l->m->facts;
    struct view x = plan_embed(l->p, mat(l, "token_embd", m->n_vocab, m->d_model));
    for (uint32_t il = 0; il < m->n_layer && l->status == LINNET_OK; il++) {
        l->il = (int32_t)il;
        plan_begin_layer(l->p, l->il, x);
        plan_add(l->p, x, x, sublayer(l, &d, il, rms_norm(l, "attn_norm", x, d.eps)));
    }
    build_plain_head(l, f, "output_norm", d.eps, x);
}
