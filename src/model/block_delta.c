/*
 * Linear attention with a delta rule: Gated DeltaNet (Gated Delta Networks, arXiv 2412.06464) and
 * Kimi Delta Attention (Kimi Linear, arXiv 2510.26692). Projections, a short causal convolution,
 * unit keys and queries, a decay and a step size, the rule itself, and a gated norm of each head's
 * output. The two differ in how wide the decay is (a number a head, or one for each key channel)
 * and in the shape of the gate.
 *
 * What a file stores in ssm_a is the decay rate with its sign: a sign that would let the state grow
 * is refused.
 */
#include "base/limits.h"
#include "model/block.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Convolution weights [n_channels][n_taps]; the file's contiguous dimension must be the taps. */
static const float *taps(struct loader *l, const char *name, uint32_t n_taps, uint32_t n_channels)
{
    uint64_t n = tensor_dim(l, name, 0);
    if (n && n != n_taps)
        load_fail(l, LINNET_FORMAT,
                  "tensor 'blk.%d.%s' has %llu taps, '%s.ssm.conv_kernel' says %u", l->il, name,
                  (unsigned long long)n, l->arch, n_taps);
    return vec_rows(l, name, n_channels, n_taps);
}

const float *decay_rates(struct loader *l, uint32_t n, uint32_t width, float sign)
{
    const char *name = has(l, "ssm_a.weight") ? "ssm_a.weight" : "ssm_a";
    const float *a = vec_rows(l, name, n, width);
    for (size_t i = 0; a && i < (size_t)n * width; i++)
        if (!(a[i] * sign <= 0.0f) || !isfinite(a[i])) {
            load_fail(l, LINNET_FORMAT, "tensor 'blk.%d.%s' holds %g; a %s file has %s there",
                      l->il, name, (double)a[i], l->arch,
                      sign > 0.0f ? "-exp(A_log)" : "exp(A_log)");
            return NULL;
        }
    return a;
}

/* What projections of x give the rule. */
struct inputs {
    struct view qkv;        /* [q heads | k heads | v heads] */
    struct view z;          /* gate of the output, as wide as v */
    struct view beta, rate; /* a number for each value head, before sigmoid and softplus */
};

/* Qwen3-Next's first files: one product, rows grouped by key head as q, k, its values, their gates
 * (specification B43.8). The convolution wants all q, then all k, then all v. */
static void project_grouped(struct loader *l, const struct gdn_desc *d, struct view x,
                            struct inputs *in)
{
    struct plan *p = l->p;
    const uint32_t keys = d->n_k * d->d_k, values = d->n_v * d->d_v, v_group = values / d->n_k;
    struct view y = plan_matmul(p, "qkvz", mat(l, "ssm_in", 2 * (keys + values), x.width), NULL, x);
    if (y.reg < 0)
        return;
    y = view_split(y, d->n_k);
    in->qkv = plan_new(p, "qkv", 2 * keys + values);
    plan_copy(p, view_split(view_part(in->qkv, 0, keys), d->n_k), view_part(y, 0, d->d_k));
    plan_copy(p, view_split(view_part(in->qkv, keys, keys), d->n_k), view_part(y, d->d_k, d->d_k));
    plan_copy(p, view_split(view_part(in->qkv, 2 * keys, values), d->n_k),
              view_part(y, 2 * d->d_k, v_group));
    in->z = view_part(y, 2 * d->d_k + v_group, v_group);
}

static struct inputs project(struct loader *l, const struct gdn_desc *d, struct view x)
{
    struct plan *p = l->p;
    const uint32_t keys = d->n_k * d->d_k, values = d->n_v * d->d_v;
    struct inputs in = {view_none(), view_none(), view_none(), view_none()};
    const bool grouped = d->fused && has(l, "ssm_in.weight");
    if (!grouped) {
        in.qkv = plan_matmul(p, "qkv", mat(l, "attn_qkv", 2 * keys + values, x.width), NULL, x);
        in.z = plan_matmul(p, "z", mat(l, "attn_gate", values, x.width), NULL, x);
    }
    if (d->fused) { /* for each key head its values' betas, then their alphas */
        struct view y = plan_matmul(p, "ba", mat(l, "ssm_ba", 2 * d->n_v, x.width), NULL, x);
        in.beta = view_part(view_split(y, d->n_k), 0, d->n_v / d->n_k);
        in.rate = view_part(view_split(y, d->n_k), d->n_v / d->n_k, d->n_v / d->n_k);
    } else {
        in.beta = plan_matmul(p, "beta", mat(l, "ssm_beta", d->n_v, x.width), NULL, x);
        in.rate = plan_matmul(p, "alpha", mat(l, "ssm_alpha", d->n_v, x.width), NULL, x);
    }
    if (grouped)
        project_grouped(l, d, x, &in);
    return in;
}

/* q and k of a convolved row to unit length, head by head. */
static void unit_keys(struct plan *p, struct view qkv, uint32_t n_heads, uint32_t d_k, float eps)
{
    plan_norm_pieces(p, NORM_L2, view_split(view_part(qkv, 0, n_heads * d_k), n_heads), NULL, NULL,
                     eps, false);
}

static bool check_gdn(struct loader *l, const struct gdn_desc *d)
{
    if (d->n_v % d->n_k)
        return load_fail(l, LINNET_FORMAT,
                         "%u value heads ('%s.ssm.time_step_rank') do not divide into %u key heads "
                         "('%s.ssm.group_count')",
                         d->n_v, l->arch, d->n_k, l->arch);
    uint32_t keys = width_mul(l, "delta keys", d->n_k, d->d_k),
             values = width_mul(l, "delta values", d->n_v, d->d_v);
    width_mul(l, "delta keys and values", 2 * keys + values, 1);
    return l->status == LINNET_OK;
}

struct view block_gdn(struct loader *l, const struct gdn_desc *d, struct view x)
{
    if (!check_gdn(l, d))
        return view_none();
    struct plan *p = l->p;
    const uint32_t channels = 2 * d->n_k * d->d_k + d->n_v * d->d_v;
    struct inputs in = project(l, d, x);
    struct view qkv =
        plan_conv(p, "conv",
                  &(struct conv_step){.n_taps = d->n_taps,
                                      .silu = true,
                                      .weight = taps(l, "ssm_conv1d.weight", d->n_taps, channels),
                                      .bias = bias_opt(l, "ssm_conv1d", channels)},
                  in.qkv);
    unit_keys(p, qkv, 2 * d->n_k, d->d_k, d->eps);
    plan_act(p, ACT_SIGMOID, in.beta);
    /* decay = exp(-A softplus(alpha + dt)), 2412.06464 section 3.4 after Mamba-2; ssm_a = -A */
    plan_add_vec(p, in.rate, vec(l, "ssm_dt.bias", d->n_v));
    plan_act(p, ACT_SOFTPLUS, in.rate);
    plan_mul_vec(p, in.rate, decay_rates(l, 1, d->n_v, 1.0f));
    plan_act(p, ACT_EXP, in.rate);
    struct view o = plan_delta(p, "delta",
                               &(struct delta_step){.n_k = d->n_k,
                                                    .n_v = d->n_v,
                                                    .d_k = d->d_k,
                                                    .d_v = d->d_v,
                                                    .tiled = d->tiled,
                                                    .decay_each = false,
                                                    .scale = 1.0f / sqrtf((float)d->d_k)},
                               qkv, in.rate, in.beta);
    plan_norm_pieces(p, NORM_RMS, o, vec(l, "ssm_norm.weight", d->d_v), NULL, d->eps, false);
    o = view_flat(o);
    plan_gate(p, GATE_SILU, o, in.z, o);
    return plan_matmul(p, "ssm_out", mat(l, "ssm_out", x.width, d->n_v * d->d_v), NULL, o);
}

static bool check_kda(struct loader *l, const struct kda_desc *d)
{
    uint32_t width = width_mul(l, "delta heads", d->n_head, d->d_head);
    width_mul(l, "delta keys and values", width, 3);
    return l->status == LINNET_OK;
}

/* [q | k | v] of x, one register. */
static struct view kda_qkv(struct loader *l, uint32_t width, struct view x)
{
    struct plan *p = l->p;
    if (has(l, "attn_qkv.weight"))
        return plan_matmul(p, "qkv", mat(l, "attn_qkv", 3 * width, x.width), NULL, x);
    static const char *const names[] = {"attn_q", "attn_k", "attn_v"};
    struct view qkv = plan_new(p, "qkv", 3 * width);
    for (uint32_t i = 0; i < 3; i++)
        plan_matmul_to(p, view_part(qkv, i * width, width), mat(l, names[i], width, x.width), NULL,
                       x);
    return qkv;
}

/* The convolutions of q, k and v as one of all their channels. */
static const float *kda_taps(struct loader *l, uint32_t n_taps, uint32_t width)
{
    static const char *const names[] = {"ssm_conv1d_q.weight", "ssm_conv1d_k.weight",
                                        "ssm_conv1d_v.weight"};
    const size_t n = (size_t)n_taps * width;
    float *all = ARENA_ARRAY(l->arena, 3 * n, float);
    if (!all)
        l->status = err_memory(l->e, "convolution weights", 3 * n * sizeof *all);
    for (uint32_t i = 0; i < 3; i++) {
        const float *w = taps(l, names[i], n_taps, width);
        if (w && all)
            memcpy(all + i * n, w, n * sizeof *w);
    }
    return all;
}

/* A product of `width` rows that may go through a narrower row: W x where the file has one matrix,
 * <name> or <name>_a, W_b (W_a x) where it has <name>_b too. `up` is W_b, or NULL. */
struct product_pair {
    struct view y;
    const struct matrix *up;
};

static struct product_pair begin_product(struct loader *l, const char *name, uint32_t width,
                                         struct view x)
{
    char a[64], b[64], weight[64];
    snprintf(a, sizeof a, "%s.weight", name);
    snprintf(b, sizeof b, "%s_b", name);
    snprintf(weight, sizeof weight, "%s_b.weight", name);
    bool one = has(l, a);
    snprintf(a, sizeof a, one ? "%s" : "%s_a", name);
    uint32_t rows = width;
    struct product_pair r = {view_none(), NULL};
    if (!one && has(l, weight)) {
        uint64_t rank = tensor_dim(l, weight, 0);
        rows = rank <= LIMIT_WIDTH ? (uint32_t)rank : 0;
        r.up = mat(l, b, width, rows);
    }
    r.y = plan_matmul(l->p, "projected", mat(l, a, rows, x.width), NULL, x);
    return r;
}

static struct view end_product(struct loader *l, struct product_pair r)
{
    return r.up ? plan_matmul(l->p, "projected", r.up, NULL, r.y) : r.y;
}

/* Decay of each key channel from its projection z (2510.26692 section 4; bounded below as in
 * specification A21.4): exp(-A softplus(z + dt)), or exp(lower_bound sigmoid(A (z + dt))); A is a
 * number a head. */
static void kda_decay(struct loader *l, const struct kda_desc *d, struct view z)
{
    struct plan *p = l->p;
    const float sign = d->rate_positive ? -1.0f : 1.0f;
    const float *rate = decay_rates(l, 1, d->n_head, sign);
    float *each = ARENA_ARRAY(l->arena, (size_t)d->n_head * d->d_head, float);
    if (!each)
        l->status = err_memory(l->e, "decay rates", (size_t)d->n_head * d->d_head * sizeof *each);
    const float to = d->lower_bound < 0.0f ? -sign : sign;
    for (size_t i = 0; rate && each && i < (size_t)d->n_head * d->d_head; i++)
        each[i] = to * rate[i / d->d_head];
    plan_add_vec(p, z, vec(l, "ssm_dt.bias", (size_t)d->n_head * d->d_head));
    if (d->lower_bound < 0.0f) {
        plan_mul_vec(p, z, each);
        plan_act(p, ACT_SIGMOID, z);
        plan_scale(p, z, d->lower_bound);
    } else {
        plan_act(p, ACT_SOFTPLUS, z);
        plan_mul_vec(p, z, each);
    }
    plan_act(p, ACT_EXP, z);
}

struct view block_kda(struct loader *l, const struct kda_desc *d, struct view x)
{
    if (!check_kda(l, d))
        return view_none();
    struct plan *p = l->p;
    const uint32_t width = d->n_head * d->d_head;
    struct view qkv = kda_qkv(l, width, x);
    struct view beta = plan_matmul(p, "beta", mat(l, "ssm_beta", d->n_head, x.width), NULL, x);
    struct product_pair f = begin_product(l, "ssm_f", width, x),
                        g = begin_product(l, "ssm_g", width, x);
    struct view z = end_product(l, f), gate = end_product(l, g);
    qkv = plan_conv(p, "conv",
                    &(struct conv_step){
                        .n_taps = d->n_taps, .silu = true, .weight = kda_taps(l, d->n_taps, width)},
                    qkv);
    unit_keys(p, qkv, 2 * d->n_head, d->d_head, d->eps);
    plan_act(p, ACT_SIGMOID, beta);
    kda_decay(l, d, z);
    struct view o = plan_delta(p, "delta",
                               &(struct delta_step){.n_k = d->n_head,
                                                    .n_v = d->n_head,
                                                    .d_k = d->d_head,
                                                    .d_v = d->d_head,
                                                    .tiled = false,
                                                    .decay_each = true,
                                                    .scale = 1.0f / sqrtf((float)d->d_head)},
                               qkv, z, beta);
    bool each = d->n_head > 1 &&
                tensor_dim(l, "ssm_norm.weight", 0) * tensor_dim(l, "ssm_norm.weight", 1) == width;
    plan_norm_pieces(p, NORM_RMS, o,
                     vec_rows(l, "ssm_norm.weight", each ? d->n_head : 1, d->d_head), NULL, d->eps,
                     each);
    plan_gate(p, GATE_SIGMOID, o, gate, o);
    return plan_matmul(p, "attn_out", mat(l, "attn_output", x.width, width), NULL, view_flat(o));
}
