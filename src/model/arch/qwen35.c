/*
 * Qwen3-Next, Qwen 3.5 and 3.6, dense and mixtures: layers of Gated DeltaNet with a layer of gated
 * full attention among them (specification A5, A20, B7, B43). A NextN block at the end is no part
 * of the trunk.
 */
#include "base/limits.h"
#include "model/family.h"

#include <math.h>

struct qwen35 {
    const struct family *f;
    uint32_t n_layer, d_ff;
    float eps;
    uint32_t recurrent[LIMIT_LAYERS]; /* is layer il a DeltaNet? */
    struct gdn_desc gdn;
    struct heads heads;
    struct attn_desc attn; /* of a layer that attends, but for its heads */
};

/* What the files of an architecture look like. */
struct layout {
    bool tiled;    /* value heads are ordered so that head h reads key head h % n_k */
    bool fused;    /* ssm_ba, and ssm_in in older files */
    bool sections; /* rope.dimension_sections */
};

/* The array, else every interval-th layer attends (A5.4, A11.1). */
static void read_kinds(struct loader *l, struct qwen35 *m)
{
    uint32_t interval = key_u32_or(l, "full_attention_interval", 1, LIMIT_LAYERS, 4);
    if (key_u32_each(l, "attention.recurrent_layers", m->n_layer, 0, 1, m->recurrent))
        return;
    for (uint32_t il = 0; il < m->n_layer; il++)
        m->recurrent[il] = (il + 1) % interval != 0;
}

static void read_gdn(struct loader *l, struct qwen35 *m, const struct layout *layout)
{
    struct gdn_desc *d = &m->gdn;
    d->tiled = layout->tiled;
    d->fused = layout->fused;
    d->eps = m->eps;
    d->n_k = key_u32(l, "ssm.group_count", 1, LIMIT_WIDTH);
    d->n_v = key_u32(l, "ssm.time_step_rank", 1, LIMIT_WIDTH);
    d->d_k = key_u32(l, "ssm.state_size", 1, LIMIT_WIDTH);
    d->n_taps = key_u32(l, "ssm.conv_kernel", 2, LIMIT_CONV);
    uint32_t inner = key_u32(l, "ssm.inner_size", 1, LIMIT_WIDTH);
    if (inner % d->n_v)
        load_fail(
            l, LINNET_FORMAT,
            "metadata key '%s.ssm.inner_size' is %u, which does not divide into %u value heads",
            l->arch, inner, d->n_v);
    d->d_v = inner / d->n_v;
}

/* Sections give pairs of dimensions the position in time, row or column of an image (A13.6). A
 * token of a text has the same in all, so that they change nothing. */
static void read_sections(struct loader *l, uint32_t n_rot)
{
    uint32_t sections[4], sum = 0;
    if (!key_u32_each(l, "rope.dimension_sections", 4, 0, LIMIT_WIDTH, sections)) {
        load_fail(l, LINNET_FORMAT,
                  "metadata key '%s.rope.dimension_sections' is missing, and every %s file must "
                  "have it",
                  l->arch, l->arch);
        return;
    }
    for (int i = 0; i < 4; i++)
        sum += sections[i];
    if (sum != n_rot / 2)
        load_fail(l, LINNET_FORMAT,
                  "metadata key '%s.rope.dimension_sections' has %u pairs; it must have those of "
                  "'%s.rope.dimension_count', %u",
                  l->arch, sum, l->arch, n_rot / 2);
}

static void read_attention(struct loader *l, struct qwen35 *m, const struct family *f,
                           const struct layout *layout)
{
    struct attn_desc *d = &m->attn;
    read_heads(l, m->n_layer, true, &m->heads);
    d->d_k = m->heads.d_k;
    d->d_v = m->heads.d_v;
    if (d->d_v != d->d_k)
        load_fail(
            l, LINNET_FORMAT,
            "metadata keys '%s.attention.key_length' and value_length are %u and %u; the gate "
            "needs them equal",
            l->arch, d->d_k, d->d_v);
    uint32_t n_rot = key_u32_or(l, "rope.dimension_count", 1, d->d_k ? d->d_k : 1, d->d_k);
    struct rope_scaling scaling = rope_scaling_read(l, f->yarn_keys);
    d->table = rope_resolve(l, n_rot, key_rope_base(l, "rope.freq_base", 10000.0f), &scaling, NULL,
                            NULL, 0.0f);
    d->rope = f->pairs;
    d->qk_norm = f->qk_norm;
    d->norm = f->norm;
    d->eps = m->eps;
    d->gated = true;
    d->scale = 1.0f / sqrtf((float)d->d_k);
    if (layout->sections)
        read_sections(l, n_rot);
}

static struct view attention(struct loader *l, const struct qwen35 *m, uint32_t il, struct view h)
{
    struct attn_desc d = m->attn;
    d.n_head = m->heads.n[il];
    d.n_head_kv = m->heads.n_kv[il];
    if (d.n_head_kv == 0) {
        load_fail(l, LINNET_FORMAT,
                  "layer %u attends, and '%s.attention.head_count_kv' gives it no key heads", il,
                  l->arch);
        return view_none();
    }
    return block_attention(l, &d, h);
}

static void layer(struct loader *l, void *family, uint32_t il, struct view x)
{
    const struct qwen35 *m = family;
    const struct family *f = m->f;
    l->il = (int32_t)il;
    plan_begin_layer(l->p, l->il, x);
    struct view h = rms_norm(l, "attn_norm", x, m->eps);
    plan_add(l->p, x, x, m->recurrent[il] ? block_gdn(l, &m->gdn, h) : attention(l, m, il, h));
    h = rms_norm(l, f->ffn_norm, x, m->eps);
    if (f->moe)
        plan_add(l->p, x, x, block_moe(l, f->moe, h));
    else
        plan_add(
            l->p, x, x,
            block_ffn(l, &(struct ffn_desc){.kind = f->ffn, .d_ff = m->d_ff, .suffix = ""}, h));
}

static void build(struct loader *l, const struct family *f, const struct layout *layout)
{
    struct qwen35 *m = ARENA_NEW(l->arena, struct qwen35);
    if (!m) {
        l->status = err_memory(l->e, "model description", sizeof *m);
        return;
    }
    m->f = f;
    read_facts(l);
    m->n_layer = l->m->facts.n_layer + l->draft; /* the NextN block's layer follows the trunk's, */
    m->eps = key_eps(l, "attention.layer_norm_rms_epsilon");
    read_kinds(l, m);
    if (l->draft)
        m->recurrent[m->n_layer - 1] = 0; /* and attends */
    read_gdn(l, m, layout);
    read_attention(l, m, f, layout);
    if (f->moe)
        key_u32_or(l, "feed_forward_length", 0, LIMIT_WIDTH, 0); /* of no layer */
    else
        m->d_ff = key_u32(l, "feed_forward_length", 1, LIMIT_WIDTH);
    const struct head_desc head = plain_head(f, "output_norm", m->eps);
    if (l->draft) {
        build_nextn(l, &head, layer, m);
        return;
    }
    struct view x =
        plan_embed(l->p, mat(l, "token_embd", l->m->facts.n_vocab, l->m->facts.d_model));
    for (uint32_t il = 0; il < m->n_layer && l->status == LINNET_OK; il++)
        layer(l, m, il, x);
    build_head(l, &head, x);
}

void build_qwen3next(struct loader *l, const struct family *f)
{
    build(l, f, &(struct layout){.tiled = false, .fused = true, .sections = false});
}

void build_qwen35(struct loader *l, const struct family *f)
{
    build(l, f, &(struct layout){.tiled = true, .fused = false, .sections = true});
}
