/*
 * Feed-forward blocks: dense, and the mixture of experts. One mixture for all families: how it
 * routes is data. Rows are grouped by expert when it runs; the result does not depend on the
 * grouping.
 */
#include "base/limits.h"
#include "model/block.h"

#include <stdio.h>

/* act(gate) * up, or act(up) where the kind has no gate. */
static struct view activate(struct plan *p, enum ffn_kind kind, struct glu glu, struct view gate,
                            struct view up)
{
    switch (kind) {
    case FFN_SWIGLU:
        plan_gate_with(p, glu.f > 0.0f ? GATE_SILU_CLAMP : GATE_SILU, glu.f, 0.0f, gate, gate, up);
        return gate;
    case FFN_SITU: plan_gate_with(p, GATE_SITU, glu.f, glu.f2, gate, gate, up); return gate;
    case FFN_GEGLU: plan_gate(p, GATE_GELU, gate, gate, up); return gate;
    case FFN_OAI: plan_gate(p, GATE_OAI, gate, gate, up); return gate;
    case FFN_GELU: plan_act(p, ACT_GELU, up); return up;
    case FFN_RELU2: plan_act(p, ACT_RELU2, up); return up;
    }
    return view_none();
}

static bool gated(enum ffn_kind kind)
{
    return kind == FFN_SWIGLU || kind == FFN_GEGLU || kind == FFN_OAI || kind == FFN_SITU;
}

/* "ffn_" part suffix, as "ffn_gate_shexp". */
static const char *ffn_name(char buf[64], const char *part, const char *suffix)
{
    snprintf(buf, 64, "ffn_%s%s", part, suffix);
    return buf;
}

struct view block_ffn(struct loader *l, const struct ffn_desc *d, struct view x)
{
    struct plan *p = l->p;
    char gate_name[64], up_name[64], down_name[64], gate_weight[64];
    ffn_name(gate_name, "gate", d->suffix);
    ffn_name(up_name, "up", d->suffix);
    ffn_name(down_name, "down", d->suffix);
    snprintf(gate_weight, sizeof gate_weight, "ffn_gate%.16s.weight", d->suffix);
    char up_weight[64];
    snprintf(up_weight, sizeof up_weight, "ffn_up%.16s.weight", d->suffix);
    struct view gate = view_none(), up;
    uint64_t rows_up = tensor_dim(l, up_weight, 1);
    bool fused = !has(l, gate_weight) && rows_up && rows_up != d->d_ff;
    if (gated(d->kind) && fused) {
        uint32_t both = width_mul(l, "feed-forward", d->d_ff, 2);
        struct view y = plan_matmul(p, "gate_up", mat(l, up_name, both, x.width),
                                    bias_opt(l, up_name, both), x);
        gate = view_part(y, 0, d->d_ff);
        up = view_part(y, d->d_ff, d->d_ff);
    } else {
        if (gated(d->kind))
            gate = plan_matmul(p, "gate", mat(l, gate_name, d->d_ff, x.width),
                               bias_opt(l, gate_name, d->d_ff), x);
        up = plan_matmul(p, "up", mat(l, up_name, d->d_ff, x.width), bias_opt(l, up_name, d->d_ff),
                         x);
    }
    if (d->sparse)
        plan_sparsify(p, gate, d->sparsity);
    struct view h = activate(p, d->kind, d->glu, gate, up);
    if (d->sub_norm)
        plan_norm_pieces(p, d->norm, h, vec(l, "ffn_sub_norm.weight", d->d_ff), NULL, d->eps,
                         false);
    return plan_matmul(p, "ffn_out", mat(l, down_name, x.width, d->d_ff),
                       bias_opt(l, down_name, x.width), h);
}

void moe_none(struct loader *l)
{
    static const char *const keys[] = {"expert_count", "expert_used_count",
                                       "expert_feed_forward_length", "expert_shared_count",
                                       "expert_shared_feed_forward_length"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (key_u32_or(l, keys[i], 0, UINT32_MAX, 0))
            load_fail(l, LINNET_FORMAT,
                      "metadata key '%s.%s' is not 0, and tensor 'blk.%d.ffn_gate_inp.weight' is "
                      "missing",
                      l->arch, keys[i], l->il);
}

/* A model that has selection biases has one in every mixture: one that is missing would route
 * another way. */
static void same_in_all_layers(struct loader *l, const char *name)
{
    bool here = has(l, name);
    if (l->moe_bias == 0)
        l->moe_bias = here ? 1 : -1;
    else if (here != (l->moe_bias > 0))
        load_fail(l, LINNET_FORMAT,
                  "tensor 'blk.%d.%s' is %s, unlike in the layers before; a %s file has it in all "
                  "or in none",
                  l->il, name, here ? "there" : "missing", l->arch);
}

static struct router read_router(struct loader *l, const struct moe_family *f)
{
    struct router r = {.kind = f->gating, .scale = 1.0f, .n_group = 1, .n_group_used = 1};
    r.n_expert = key_u32(l, "expert_count", 1, LIMIT_EXPERTS);
    uint32_t used[LIMIT_LAYERS];
    size_t n = (size_t)l->il + 1;
    if (!key_u32_each(l, "expert_used_count", n, 0, r.n_expert, used) || used[n - 1] == 0) {
        load_fail(l, LINNET_FORMAT,
                  "metadata key '%s.expert_used_count' is missing or 0 for layer %d; it must be in "
                  "1..%u",
                  l->arch, l->il, r.n_expert);
        used[n - 1] = 1;
    }
    r.n_used = used[n - 1];
    key_ignore(l, "expert_gating_func");
    if (f->gating == ROUTER_BY_KEY)
        r.kind = (enum router_kind)key_u32(l, "expert_gating_func", 1, 4);
    else if (f->gating_key && key_u32_or(l, "expert_gating_func", 0, 4, 0))
        r.kind = (enum router_kind)key_u32(l, "expert_gating_func", 1, 4);
    bool norm = key_bool_or(l, "expert_weights_norm", false);
    r.normalise = f->normalise == ALWAYS || (f->normalise == BY_KEY && norm);
    float scale = key_scale_or_0(l, "expert_weights_scale", 1.0f);
    if (f->scale_key)
        r.scale = scale;
    uint32_t n_group = key_u32_or(l, "expert_group_count", 0, LIMIT_EXPERTS, 0);
    uint32_t n_group_used = key_u32_or(l, "expert_group_used_count", 0, LIMIT_EXPERTS, 0);
    if (f->groups && n_group > 1) {
        r.n_group = n_group;
        r.n_group_used = n_group_used;
        if (r.n_expert % n_group || n_group_used < 1 || n_group_used > n_group ||
            r.n_used > r.n_expert / n_group * n_group_used)
            load_fail(
                l, LINNET_FORMAT,
                "metadata keys '%s.expert_group_count' and '%s.expert_group_used_count': expert "
                "groups do not fit: %u experts in %u groups, %u groups and %u experts used",
                l->arch, l->arch, r.n_expert, n_group, n_group_used, r.n_used);
    }
    if (f->bias_name && !f->bias_required)
        same_in_all_layers(l, f->bias_name);
    if (f->bias_name)
        r.bias = f->bias_required ? vec(l, f->bias_name, r.n_expert)
                                  : vec_opt(l, f->bias_name, r.n_expert);
    return r;
}

/* A key's value for the current layer, from a scalar or an array; 0 when absent. */
static uint32_t key_here(struct loader *l, const char *key)
{
    uint32_t v[LIMIT_LAYERS];
    size_t n = (size_t)l->il + 1;
    return key_u32_each(l, key, n, 0, UINT32_MAX, v) ? v[n - 1] : 0;
}

/* The routed experts' width is their tensors'; a key that says another is refused. */
static void check_width(struct loader *l, const struct moe_family *f, uint64_t d_ff)
{
    uint32_t width = key_here(l, f->width_key);
    key_ignore(l, "expert_feed_forward_length"); /* there and unused where another key has it */
    if (width && width != d_ff)
        load_fail(l, LINNET_FORMAT,
                  "metadata key '%s.%s' is %u; tensor 'blk.%d.ffn_down_exps.weight' has experts of "
                  "width %llu",
                  l->arch, f->width_key, width, l->il, (unsigned long long)d_ff);
}

/* Does the layer have a shared expert? By its tensors, and by the keys where there are any: they
 * give its width, or how many experts of one width it is (specification B3.5, A44). */
static bool has_shared(struct loader *l, const struct moe_family *f, uint64_t d_ff)
{
    static const char count_key[] = "expert_shared_count",
                      width_key[] = "expert_shared_feed_forward_length";
    bool says = key_present(l, count_key);
    says = key_present(l, width_key) || says;
    uint32_t count = key_u32_or(l, count_key, 0, LIMIT_EXPERTS, 0);
    uint32_t width = key_here(l, width_key);
    if (!f->shared)
        return false;
    uint64_t got = tensor_dim(l, "ffn_up_shexp.weight", 1);
    if (got == 0)
        return f->shared_gated || count || width;
    uint64_t one = width ? width : d_ff;
    if ((width && got == width) || (count && got == one * count) || !says)
        return true;
    return load_fail(l, LINNET_FORMAT,
                     "metadata keys '%s.%s' %u and '%s.%s' %u contradict tensor "
                     "'blk.%d.ffn_up_shexp.weight', which has %llu rows",
                     l->arch, count_key, count, l->arch, width_key, width, l->il,
                     (unsigned long long)got);
}

/* The chosen experts' hidden activations, [n_used] pieces. */
static struct view expert_hidden(struct loader *l, const struct moe_family *f, struct glu glu,
                                 const struct router *r, struct view x, struct view ids,
                                 uint32_t d_ff)
{
    struct plan *p = l->p;
    uint32_t n = r->n_expert;
    if (has(l, "ffn_gate_up_exps.weight")) {
        uint32_t both = width_mul(l, "experts", d_ff, 2);
        struct view y =
            plan_moe_matmul(p, "expert_gate_up", mat_stack(l, "ffn_gate_up_exps", n, both, x.width),
                            n, bias_rows_opt(l, "ffn_gate_up_exps", n, both), x, ids, r->n_used);
        return activate(p, f->kind, glu, view_part(y, 0, d_ff), view_part(y, d_ff, d_ff));
    }
    struct view gate = view_none();
    if (gated(f->kind))
        gate = plan_moe_matmul(p, "expert_gate", mat_stack(l, "ffn_gate_exps", n, d_ff, x.width), n,
                               bias_rows_opt(l, "ffn_gate_exps", n, d_ff), x, ids, r->n_used);
    struct view up =
        plan_moe_matmul(p, "expert_up", mat_stack(l, "ffn_up_exps", n, d_ff, x.width), n,
                        bias_rows_opt(l, "ffn_up_exps", n, d_ff), x, ids, r->n_used);
    return activate(p, f->kind, glu, gate, up);
}

/* Into and out of the narrower rows that some mixtures' experts work on (specification A31.6,
 * F22.3). */
static struct view to_latent(struct loader *l, const struct moe_extra *extra, struct view x)
{
    char down[64];
    snprintf(down, sizeof down, "%s_down", extra->latent);
    return plan_matmul(l->p, "latent", mat(l, down, extra->d_latent, x.width), NULL, x);
}

static struct view from_latent(struct loader *l, const struct moe_extra *extra, struct view y,
                               uint32_t d)
{
    char norm[64], up[64];
    snprintf(norm, sizeof norm, "%s_norm.weight", extra->latent);
    snprintf(up, sizeof up, "%s_up", extra->latent);
    if (has(l, norm))
        plan_norm_pieces(l->p, NORM_RMS, y, vec(l, norm, extra->d_latent), NULL, extra->eps, false);
    return plan_matmul(l->p, "routed", mat(l, up, d, extra->d_latent), NULL, y);
}

/* Width of the experts' hidden activations, 0 with an error. It comes from the tensors: the keys
 * name it differently in each family. */
static uint32_t expert_width(struct loader *l, const struct moe_family *f)
{
    uint64_t d_ff = tensor_dim(l, "ffn_down_exps.weight", 0);
    if (d_ff == 0 || d_ff > LIMIT_WIDTH / 2) {
        load_fail(
            l, LINNET_FORMAT,
            "tensor 'blk.%d.ffn_down_exps.weight' is missing or has rows of %llu; a mixture of "
            "a %s file has 1 to %d",
            l->il, (unsigned long long)d_ff, l->arch, LIMIT_WIDTH / 2);
        return 0;
    }
    check_width(l, f, d_ff);
    return (uint32_t)d_ff;
}

/* Sum of the chosen experts' outputs. */
static struct view routed(struct loader *l, const struct moe_family *f,
                          const struct moe_extra *extra, const struct router *r, struct view logits,
                          uint32_t d_ff, struct view x)
{
    struct plan *p = l->p;
    const uint32_t d = x.width, d_in = extra->d_latent ? extra->d_latent : d;
    width_mul(l, "experts", d_ff, r->n_used);
    width_mul(l, "experts", d_in, r->n_used);
    if (extra->d_latent)
        x = to_latent(l, extra, x);
    struct view ids, weights;
    plan_route(p, r, logits, &ids, &weights);
    struct view h = expert_hidden(l, f, extra->experts, r, x, ids, d_ff);
    struct view y = plan_moe_matmul(
        p, "expert_down", mat_stack(l, "ffn_down_exps", r->n_expert, d_in, d_ff), r->n_expert,
        bias_rows_opt(l, "ffn_down_exps", r->n_expert, d_in), h, ids, r->n_used);
    struct view out = plan_combine(p, "experts", y, weights);
    return extra->d_latent ? from_latent(l, extra, out, d) : out;
}

static struct view shared(struct loader *l, const struct moe_family *f, struct glu glu,
                          struct view x)
{
    struct plan *p = l->p;
    uint64_t d_ff = tensor_dim(l, "ffn_up_shexp.weight", 1);
    if (d_ff == 0 || d_ff > LIMIT_WIDTH) {
        mat(l, "ffn_up_shexp", 1, x.width); /* missing, which is an error */
        return view_none();
    }
    struct view g = view_none();
    if (f->shared_gated)
        g = plan_matmul(p, "shared_gate", mat(l, "ffn_gate_inp_shexp", 1, x.width), NULL, x);
    struct view s = block_ffn(
        l,
        &(struct ffn_desc){.kind = f->kind, .d_ff = (uint32_t)d_ff, .suffix = "_shexp", .glu = glu},
        x);
    if (!f->shared_gated)
        return s;
    plan_act(p, ACT_SIGMOID, g);
    return plan_combine(p, "shared", s, g);
}

struct view block_moe_with(struct loader *l, const struct moe_family *f,
                           const struct moe_extra *extra, struct view x)
{
    const struct router r = read_router(l, f);
    const uint32_t d_ff = expert_width(l, f);
    if (d_ff == 0)
        return view_none();
    const struct view logits =
        extra->logits ? *extra->logits
                      : plan_matmul(l->p, "router", mat(l, "ffn_gate_inp", r.n_expert, x.width),
                                    bias_opt(l, "ffn_gate_inp", r.n_expert), x);
    /* before the routing: its first products become one step with the router's, which alone would
     * keep one thread busy */
    struct view always = view_none();
    if (has_shared(l, f, d_ff))
        always = shared(l, f, extra->shared, x);
    struct view out = routed(l, f, extra, &r, logits, d_ff, x);
    if (always.reg >= 0)
        plan_add(l->p, out, out, always);
    return out;
}

struct view block_moe(struct loader *l, const struct moe_family *f, struct view x)
{
    return block_moe_with(l, f, &(struct moe_extra){.d_latent = 0}, x);
}
