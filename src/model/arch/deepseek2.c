/*
 * DeepSeek V2, V2-Lite, V2.5, V3, R1 and what is stored under the same name (Kimi K2, GLM 4.7
 * Flash): latent attention and DeepSeekMoE. Sources: DeepSeek-V2 (arXiv 2405.04434), DeepSeek-V3
 * (arXiv 2412.19437).
 *
 *     x += MLA(N x);  x += FFN(N x), dense in the first leading_dense_block_count layers, a mixture
 * after them
 *
 * YaRN's temperature sits in the scores, not in the rotation: with mscale = f (1 + 0.1 m ln s)
 * scores are multiplied by mscale^2, where s is the scaling factor, f rope.scaling.attn_factor and
 * m ten times yarn_log_multiplier (the converter stores 0.1 mscale_all_dim). The rotation keeps
 * magnitude f; files without the key are scaled in both.
 */
#include "base/limits.h"
#include "model/family.h"

#include <math.h>

struct deepseek {
    const struct family *f;
    struct moe_family moe;
    struct mla_desc mla;
    uint32_t n_lead, d_ff;
    float eps;
};

static void read_rope(struct loader *l, const struct family *f, struct mla_desc *d)
{
    float base = key_rope_base(l, "rope.freq_base", 10000.0f);
    struct rope_scaling s = rope_scaling_read(l, f->yarn_keys);
    if (s.kind == SCALING_YARN) {
        float m = s.log_mul != 0.0f ? 10.0f * s.log_mul : 1.0f;
        float mscale = s.attn_factor * (1.0f + 0.1f * m * logf(fmaxf(s.factor, 1.0f)));
        d->scale *= mscale * mscale;
    }
    d->rope = f->pairs;
    d->table = rope_resolve(l, d->d_rope, base, &s, NULL, NULL, s.log_mul != 0.0f ? 1.0f : 0.0f);
    d->temp_scale = key_scale_or_0(l, "attention.temperature_scale", 0.0f);
    d->temp_period = (float)key_u32_or(l, "attention.temperature_length", 1, INT32_MAX, 1);
    if (d->temp_scale != 0.0f)
        key_u32(l, "attention.temperature_length", 1, INT32_MAX);
}

/* Files of GLM 4.7 Flash may lack the router's kind, which is not the family's. */
static enum router_kind router_when_absent(const struct model_facts *m, enum router_kind usual)
{
    bool glm = (m->n_layer_all == 47 || m->n_layer_all == 48) && m->n_vocab == 154880;
    return glm ? ROUTER_SIGMOID : usual;
}

static void layer(struct loader *l, void *family, uint32_t il, struct view x)
{
    const struct deepseek *d = family;
    l->il = (int32_t)il;
    plan_begin_layer(l->p, l->il, x);
    struct view h = rms_norm(l, "attn_norm", x, d->eps);
    plan_add(l->p, x, x, block_mla(l, &d->mla, h));
    h = rms_norm(l, "ffn_norm", x, d->eps);
    if (il >= d->n_lead)
        h = block_moe(l, &d->moe, h);
    else
        h = block_ffn(l, &(struct ffn_desc){.kind = d->f->ffn, .d_ff = d->d_ff, .suffix = ""}, h);
    plan_add(l->p, x, x, h);
}

void build_deepseek2(struct loader *l, const struct family *f)
{
    read_facts(l);
    const struct model_facts *m = &l->m->facts;
    struct deepseek d = {.f = f, .moe = *f->moe};
    d.eps = key_eps(l, "attention.layer_norm_rms_epsilon");
    d.mla = mla_read(l, d.eps, false);
    read_rope(l, f, &d.mla);
    /* 1 or head_count: an age of the file, not of the model */
    uint32_t n_kv = key_u32_or(l, "attention.head_count_kv", 1, LIMIT_HEADS, 1);
    if (n_kv != 1 && n_kv != d.mla.n_head)
        load_fail(l, LINNET_FORMAT,
                  "metadata key '%s.attention.head_count_kv' is %u; it must be 1 or "
                  "'%s.attention.head_count', %u",
                  l->arch, n_kv, l->arch, d.mla.n_head);
    d.moe.gating = router_when_absent(m, f->moe->gating);
    d.n_lead = key_u32_or(l, "leading_dense_block_count", 0, LIMIT_LAYERS, 0);
    d.d_ff = key_u32_or(l, "feed_forward_length", 0, LIMIT_WIDTH, 0);
    if (d.n_lead)
        d.d_ff = key_u32(l, "feed_forward_length", 1, LIMIT_WIDTH);
    const struct head_desc head = plain_head(f, "output_norm", d.eps);
    if (l->draft) {
        build_nextn(l, &head, layer, &d);
        return;
    }
    struct view x = plan_embed(l->p, mat(l, "token_embd", m->n_vocab, m->d_model));
    for (uint32_t il = 0; il < m->n_layer && l->status == LINNET_OK; il++)
        layer(l, &d, il, x);
    build_head(l, &head, x);
}
