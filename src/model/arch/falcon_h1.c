/*
 * Falcon-H1 (arXiv 2507.22448; specification F20): attention and Mamba-2 side by side on the same
 * normed rows.
 *
 *     h = N x;  x += attn(h) + mamba2(h);  x += ffn(N' x)
 *
 * The model's many multipliers are in the weights of the file already.
 */
#include "base/limits.h"
#include "model/family.h"

void build_falcon_h1(struct loader *l, const struct family *f)
{
    struct plan *p = l->p;
    read_facts(l);
    const struct model_facts *m = &l->m->facts;
    float eps = key_eps(l, "attention.layer_norm_rms_epsilon");
    struct heads heads;
    read_heads(l, m->n_layer, false, &heads);
    const struct rope_table *rope = rope_read(l, heads.d_k);
    struct mamba_desc mamba = mamba2_read(l, eps);
    mamba.norm_optional = true; /* some sizes have none */
    struct ffn_desc ffn = {
        .kind = f->ffn, .suffix = "", .d_ff = key_u32(l, "feed_forward_length", 1, LIMIT_WIDTH)};
    struct view x = plan_embed(p, mat(l, "token_embd", m->n_vocab, m->d_model));
    for (uint32_t il = 0; il < m->n_layer && l->status == LINNET_OK; il++) {
        l->il = (int32_t)il;
        plan_begin_layer(p, l->il, x);
        struct attn_desc attn = attn_plain(&heads, il);
        attn.rope = f->pairs;
        attn.table = rope;
        struct view h = rms_norm(l, "attn_norm", x, eps);
        plan_add(p, x, x, block_attention(l, &attn, h));
        plan_add(p, x, x, block_mamba2(l, &mamba, h));
        /* the one norm whose tensor has no ".weight" */
        h = plan_norm(p, "ffn_norm", f->norm, x, vec(l, "ffn_norm", m->d_model), NULL, eps);
        plan_add(p, x, x, block_ffn(l, &ffn, h));
    }
    build_plain_head(l, f, "output_norm", eps, x);
}
