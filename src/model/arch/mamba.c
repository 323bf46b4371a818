/*
 * Mamba, FalconMamba and Mamba-2 (specification F18, F19): x += mamba(N x), and nothing else.
 */
#include "model/family.h"

static void build(struct loader *l, const struct family *f, bool second)
{
    read_facts(l);
    float eps = key_eps(l, "attention.layer_norm_rms_epsilon");
    struct mamba_desc d = second ? mamba2_read(l, eps) : mamba_read(l, eps);
    key_u32_or(l, "attention.head_count", 0, 0, 0); /* required by writers, and always 0 */
    key_u32_or(l, "feed_forward_length", 0, 0, 0);
    struct view x =
        plan_embed(l->p, mat(l, "token_embd", l->m->facts.n_vocab, l->m->facts.d_model));
    for (uint32_t il = 0; il < l->m->facts.n_layer && l->status == LINNET_OK; il++) {
        l->il = (int32_t)il;
        plan_begin_layer(l->p, l->il, x);
        struct view h = rms_norm(l, "attn_norm", x, eps);
        plan_add(l->p, x, x, second ? block_mamba2(l, &d, h) : block_mamba(l, &d, h));
    }
    build_plain_head(l, f, "output_norm", eps, x);
}

void build_mamba(struct loader *l, const struct family *f)
{
    build(l, f, false);
}

void build_mamba2(struct loader *l, const struct family *f)
{
    build(l, f, true);
}
