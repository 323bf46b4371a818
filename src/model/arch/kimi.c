/*
 * Kimi Linear, Kimi K3 and Ling 3 (bailingmoe3): layers of Kimi Delta Attention with a layer of
 * latent attention among them, told apart by head_count_kv, and a mixture in all but the first
 * layers. Sources: Kimi Linear (arXiv 2510.26692); specification A26, A29-A32, A44.7 and ling3
 * L1-L12, G.
 *
 *     x += attention(N x);  x += FFN(N' x)
 *
 * Kimi K3 lets each half of a layer read, instead of x, a mix of x and the states that x had at the
 * beginning of each block of layers, where the residual stream starts anew (attention residuals).
 * Ling 3 may have a NextN block.
 */
#include "base/limits.h"
#include "model/family.h"

#include <math.h>

struct kimi {
    const struct family *f;
    bool early; /* files of an early converter are known too */
    uint32_t n_layer, n_lead, d_ff;
    float eps;
    uint32_t attends[LIMIT_LAYERS]; /* is layer il latent attention? */
    struct kda_desc kda;
    struct mla_desc mla;
    bool gate_optional; /* latent attention has a gate where there is attn_gate */
    struct moe_family routing;
    struct moe_extra moe;
    float clamp[LIMIT_LAYERS], clamp_shared[LIMIT_LAYERS];
    uint32_t res_block; /* layers of a block of attention residuals; 0: none */
    struct view bank;   /* states at the beginnings of blocks */
    uint32_t n_bank;    /* of which there are so far */
};

/*
 * Files of an early converter of Kimi K3 (specification A10, A29.3): other names, lists of layers
 * in place of key heads by layer, texts in place of numbers, and flags for what the tensors show.
 */
static const struct key_alias early_names[] = {
    {"kda.head_dim", "attention.kda_head_dim"},
    {"kda.gate_lower_bound", "gate_lower_bound"},
    {"attn_res.block_size", "attn_res_block_size"},
    {"activation.situ_beta", "activation_situ_beta"},
    {"activation.situ_linear_beta", "activation_situ_linear_beta"},
    {"expert_group_count", "num_expert_group"},
    {"expert_group_used_count", "topk_group"},
    {"expert_weights_norm", "moe_renormalize"},
    {"expert_latent_length", "routed_expert_hidden_size"},
    {"nextn_predict_layers", "mtp_layer_count"},
    {NULL, NULL},
};

/* The layers of one kind in a list, of the other in another, which may be missing; without both the
 * tensors tell. */
static void read_early_kinds(struct loader *l, struct kimi *m)
{
    uint32_t list[LIMIT_LAYERS];
    key_ignore(l, "attention.head_count_kv");
    size_t n = key_list(l, "full_attn_layers", m->n_layer - 1, list, m->n_layer);
    for (size_t i = 0; i < n; i++)
        m->attends[list[i]] = 1;
    for (uint32_t il = 0; il < m->n_layer && !key_present(l, "full_attn_layers"); il++) {
        l->il = (int32_t)il;
        m->attends[il] = has(l, "attn_kv_a_mqa.weight");
    }
    l->il = -1;
    n = key_list(l, "kda_layers", m->n_layer - 1, list, m->n_layer);
    for (size_t i = 0; i < n; i++)
        if (m->attends[list[i]])
            load_fail(l, LINNET_FORMAT,
                      "metadata keys '%s.kda_layers' and '%s.full_attn_layers' both have layer %u",
                      l->arch, l->arch, list[i]);
}

/* A flag, if there, says whether a layer has a tensor. */
static void check_flag(struct loader *l, const char *flag, const char *tensor)
{
    bool there = has(l, tensor);
    if (key_bool_or(l, flag, there) != there)
        load_fail(l, LINNET_FORMAT, "metadata key '%s.%s' is %s, and tensor 'blk.%d.%s' is %s",
                  l->arch, flag, there ? "false" : "true", l->il, tensor,
                  there ? "there" : "missing");
}

static void must_be(struct loader *l, const char *key, bool right, const char *what)
{
    if (!right)
        load_fail(l, LINNET_UNSUPPORTED, "metadata key '%s.%s' must be %s in a %s file", l->arch,
                  key, what, l->arch);
}

static void read_early_routing(struct loader *l, struct kimi *m)
{
    const char *key =
        key_is_text(l, "expert_gating_func") ? "expert_gating_func" : "moe_router_activation_func";
    if (key_present(l, key)) {
        must_be(l, key, key_is(l, key, "sigmoid", true), "sigmoid");
        m->routing.gating = ROUTER_SIGMOID;
        m->routing.gating_key = false;
    }
    must_be(l, "topk_method", key_is(l, "topk_method", "noaux_tc", true), "noaux_tc");
    must_be(l, "mla_use_nope", key_bool_or(l, "mla_use_nope", true), "true");
}

static bool read_common(struct loader *l, struct kimi *m)
{
    read_facts(l);
    m->n_layer = l->m->facts.n_layer + l->draft; /* the NextN block's layer follows the trunk's */
    m->eps = key_eps(l, "attention.layer_norm_rms_epsilon");
    if (!m->early && !key_is_array(l, "attention.head_count_kv"))
        load_fail(
            l, LINNET_FORMAT,
            "metadata key '%s.attention.head_count_kv' must be an array with 0 for each layer of "
            "delta attention",
            l->arch);
    if (key_is_array(l, "attention.head_count_kv"))
        key_u32_each(l, "attention.head_count_kv", m->n_layer, 0, LIMIT_HEADS, m->attends);
    else if (m->early)
        read_early_kinds(l, m);
    m->mla = mla_read(l, m->eps, true);
    m->kda.n_head = m->mla.n_head;
    m->kda.d_head = key_u32(l, "kda.head_dim", 1, LIMIT_WIDTH);
    m->kda.n_taps = key_u32(l, "ssm.conv_kernel", 2, LIMIT_CONV);
    m->kda.eps = m->eps;
    m->n_lead = key_u32_or(l, "leading_dense_block_count", 0, LIMIT_LAYERS, 0);
    m->d_ff = key_u32_or(l, "feed_forward_length", 0, LIMIT_WIDTH, 0);
    if (m->n_lead)
        m->d_ff = key_u32(l, "feed_forward_length", 1, LIMIT_WIDTH);
    return l->status == LINNET_OK;
}

static void read_lower_bound(struct loader *l, struct kimi *m)
{
    m->kda.lower_bound = key_f32(l, "kda.gate_lower_bound", -SCALE_MAX, BELOW_0);
}

static void read_kimi(struct loader *l, struct kimi *m)
{
    key_ignore(l, "rope.freq_base"); /* nothing rotates: the delta layers know the order */
    if (key_present(l, "kda.gate_lower_bound"))
        read_lower_bound(l, m);
    m->gate_optional = true;
}

static void read_k3(struct loader *l, struct kimi *m)
{
    read_kimi(l, m);
    m->moe.experts.f = key_f32(l, "activation.situ_beta", SCALE_MIN, SCALE_MAX);
    m->moe.experts.f2 = key_f32(l, "activation.situ_linear_beta", 0.0f, SCALE_MAX);
    m->moe.shared = m->moe.experts;
    m->moe.d_latent = key_u32_or(l, "expert_latent_length", 0, LIMIT_WIDTH, 0);
    m->moe.latent = "ffn_routed";
    m->moe.eps = m->eps;
    m->res_block = key_u32_or(l, "attn_res.block_size", 0, LIMIT_LAYERS, 0);
    read_early_routing(l, m);
}

static void read_ling3(struct loader *l, struct kimi *m)
{
    read_lower_bound(l, m);
    if (!key_bool_or(l, "kda.safe_gate", true))
        load_fail(
            l, LINNET_UNSUPPORTED,
            "metadata key '%s.kda.safe_gate' is false: only decays with a lower bound are known",
            l->arch);
    m->kda.rate_positive = true;
    m->mla.gate = MLA_GATE_HEAD;
    m->mla.rope = m->f->pairs;
    m->mla.table = rope_read(l, m->mla.d_rope);
    key_f32_each(l, "swiglu_clamp_exp", m->n_layer, 0.0f, FLT_MAX, m->clamp);
    key_f32_each(l, "swiglu_clamp_shexp", m->n_layer, 0.0f, FLT_MAX, m->clamp_shared);
}

/* A limit this small means none (specification X11). */
static float clamp_of(float limit)
{
    return limit > 1e-6f ? limit : 0.0f;
}

static struct view attention(struct loader *l, const struct kimi *m, uint32_t il, struct view h)
{
    if (m->early)
        check_flag(l, m->attends[il] ? "mla_use_output_gate" : "use_full_rank_gate",
                   m->attends[il] ? "attn_gate.weight" : "ssm_g.weight");
    if (!m->attends[il])
        return block_kda(l, &m->kda, h);
    struct mla_desc d = m->mla;
    if (m->gate_optional && has(l, "attn_gate.weight"))
        d.gate = MLA_GATE_CHANNEL;
    return block_mla(l, &d, h);
}

static struct view feed_forward(struct loader *l, const struct kimi *m, uint32_t il, struct view h)
{
    struct moe_extra extra = m->moe;
    if (m->f->ffn == FFN_SWIGLU) {
        extra.experts.f = clamp_of(m->clamp[il]);
        extra.shared.f = clamp_of(m->clamp_shared[il]); /* also that of the dense layers */
    }
    if (il >= m->n_lead) {
        if (m->early && has(l, "routed_exp_down.weight"))
            extra.latent = "routed_exp";
        if (m->early && extra.d_latent)
            check_flag(l, "latent_moe_use_norm",
                       has(l, "routed_exp_norm.weight") ? "routed_exp_norm.weight"
                                                        : "ffn_routed_norm.weight");
        return block_moe_with(l, &m->routing, &extra, h);
    }
    return block_ffn(
        l,
        &(struct ffn_desc){.kind = m->f->ffn, .d_ff = m->d_ff, .suffix = "", .glu = extra.shared},
        h);
}

/* What a half of a layer reads: x, or the mix of it and the bank (A26.2). The file's score is the
 * norm's gain times the query that all positions share. */
static struct view recall(struct loader *l, const struct kimi *m, const char *score, struct view x)
{
    if (!m->res_block)
        return x;
    const float *w = vec(l, score, view_size(x));
    if (!m->n_bank)
        return x;
    struct view past = m->bank;
    past.n = m->n_bank;
    return plan_mix(l->p, "recalled", past, x, w, m->eps);
}

static void layer(struct loader *l, void *family, uint32_t il, struct view x)
{
    struct kimi *m = family;
    struct plan *p = l->p;
    l->il = (int32_t)il;
    plan_begin_layer(p, l->il, x);
    bool begins = m->res_block && il % m->res_block == 0;
    if (begins)
        plan_keep(p, view_part(view_flat(m->bank), m->n_bank * x.width, x.width), x);
    struct view h = rms_norm(l, "attn_norm", recall(l, m, "attn_res_score.weight", x), m->eps);
    m->n_bank += begins; /* the layer that begins a block does not see its own state twice */
    struct view y = attention(l, m, il, h);
    if (begins)
        plan_copy(p, x, y);
    else
        plan_add(p, x, x, y);
    h = rms_norm(l, "ffn_norm", recall(l, m, "ffn_res_score.weight", x), m->eps);
    plan_add(p, x, x, feed_forward(l, m, il, h));
}

static void build(struct loader *l, struct kimi *m)
{
    struct plan *p = l->p;
    uint32_t d = l->m->facts.d_model;
    const struct head_desc head = plain_head(m->f, "output_norm", m->eps);
    if (l->draft) {
        build_nextn(l, &head, layer, m);
        return;
    }
    struct view x = plan_embed(p, mat(l, "token_embd", l->m->facts.n_vocab, d));
    if (m->res_block) {
        uint32_t n = (m->n_layer + m->res_block - 1) / m->res_block;
        m->bank = view_split(plan_new(p, "bank", width_mul(l, "attention residuals", n, d)), n);
    }
    for (uint32_t il = 0; il < m->n_layer && l->status == LINNET_OK; il++)
        layer(l, m, il, x);
    l->il = -1;
    x = recall(l, m, "output_res_score.weight", x);
    build_head(l, &head, x);
}

/* Read what all three have, then what `own` adds, and build. */
static void build_with(struct loader *l, const struct family *f,
                       void (*own)(struct loader *l, struct kimi *m))
{
    struct kimi *m = ARENA_NEW(l->arena, struct kimi);
    if (!m) {
        l->status = err_memory(l->e, "model description", sizeof *m);
        return;
    }
    m->f = f;
    m->routing = *f->moe;
    m->early = l->aliases != NULL;
    if (!read_common(l, m))
        return;
    own(l, m);
    if (l->status == LINNET_OK)
        build(l, m);
}

void build_kimi_linear(struct loader *l, const struct family *f)
{
    build_with(l, f, read_kimi);
}

void build_kimi_k3(struct loader *l, const struct family *f)
{
    l->aliases = early_names;
    build_with(l, f, read_k3);
}

void build_bailingmoe3(struct loader *l, const struct family *f)
{
    build_with(l, f, read_ling3);
}
