/*
 * LFM2 and LFM2-MoE (specification F16, F17): short gated convolutions, and attention in the layers
 * that have key heads.
 *
 *     x += op(N x);  x += ffn(N' x)
 *     [b | c | u] = W_in h,  op(h) = W_out (c * conv(b * u))
 */
#include "base/limits.h"
#include "model/family.h"

struct lfm2 {
    const struct family *f;
    uint32_t n_layer, n_lead; /* layers from n_lead on are mixtures */
    uint32_t d_ff, n_taps, window;
    float eps;
    struct heads heads;
    const struct rope_table *rope;
};

static void read_all(struct loader *l, struct lfm2 *d)
{
    read_facts(l);
    d->n_layer = l->m->facts.n_layer;
    d->eps = key_eps(l, "attention.layer_norm_rms_epsilon");
    read_heads(l, d->n_layer, true, &d->heads);
    d->rope = rope_read(l, d->heads.d_k);
    d->n_taps = key_u32(l, "shortconv.l_cache", 1, LIMIT_CONV);
    d->d_ff = key_u32(l, "feed_forward_length", 1, LIMIT_WIDTH);
    d->n_lead = d->n_layer;
    if (d->f->moe)
        d->n_lead = key_u32_or(l, "leading_dense_block_count", 0, LIMIT_LAYERS, 0);
    if (d->f->window == WINDOW_BY_KEY)
        d->window = key_u32_or(l, "attention.sliding_window", 0, INT32_MAX, 0);
}

static struct view short_conv(struct loader *l, const struct lfm2 *d, struct view h)
{
    struct plan *p = l->p;
    uint32_t n = h.width;
    struct view all = plan_matmul(
        p, "conv_in", mat(l, "shortconv.in_proj", width_mul(l, "convolution", n, 3), n), NULL, h);
    struct view b = view_part(all, 0, n), c = view_part(all, n, n), u = view_part(all, 2 * n, n);
    plan_mul(p, b, b, u);
    const float *taps = vec_rows(l, "shortconv.conv.weight", n, d->n_taps);
    struct view y = plan_conv(
        p, "conv", &(struct conv_step){.n_taps = d->n_taps, .silu = false, .weight = taps}, b);
    plan_mul(p, y, y, c);
    return plan_matmul(p, "conv_out", mat(l, "shortconv.out_proj", n, n), NULL, y);
}

static struct view attention(struct loader *l, const struct lfm2 *d, uint32_t il, struct view h)
{
    struct attn_desc attn = attn_plain(&d->heads, il);
    attn.qk_norm = d->f->qk_norm;
    attn.norm = d->f->norm;
    attn.eps = d->eps;
    attn.rope = d->f->pairs;
    attn.table = d->rope;
    attn.window = d->window;
    return block_attention(l, &attn, h);
}

static void layer(struct loader *l, const struct lfm2 *d, uint32_t il, struct view x)
{
    l->il = (int32_t)il;
    plan_begin_layer(l->p, l->il, x);
    struct view h = rms_norm(l, "attn_norm", x, d->eps);
    plan_add(l->p, x, x, d->heads.n_kv[il] ? attention(l, d, il, h) : short_conv(l, d, h));
    h = rms_norm(l, "ffn_norm", x, d->eps);
    if (il >= d->n_lead)
        plan_add(l->p, x, x, block_moe(l, d->f->moe, h));
    else
        plan_add(
            l->p, x, x,
            block_ffn(l, &(struct ffn_desc){.kind = d->f->ffn, .d_ff = d->d_ff, .suffix = ""}, h));
}

void build_lfm2(struct loader *l, const struct family *f)
{
    struct lfm2 d = {.f = f};
    read_all(l, &d);
    struct view x =
        plan_embed(l->p, mat(l, "token_embd", l->m->facts.n_vocab, l->m->facts.d_model));
    for (uint32_t il = 0; il < d.n_layer && l->status == LINNET_OK; il++)
        layer(l, &d, il, x);
    build_plain_head(l, f, "token_embd_norm", d.eps,
                     x); /* the final norm, whatever its name says */
}
