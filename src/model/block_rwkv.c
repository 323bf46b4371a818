/*
 * The time mix and the channel mix of RWKV-7 (arXiv 2503.14456, section 4; specification F24).
 *
 * Both mix a row with the row before: x_s = x + (x' - x) * mu_s. The time mix moves a state per
 * head by a generalised delta rule with
 *
 *     decay = exp(-0.606531 sigmoid(w)),  seek = unit(k * k_k),  drop = a * seek,
 *     key = k * (1 + (a - 1) * k_a)
 *
 * where w, the learning rate a, the share of layer 0's values in v and the gate g are low-rank
 * functions of their x_s.
 */
#include "model/block.h"

/* e^-0.5, written like this in every implementation of the model */
#define DECAY_SCALE 0.606531f
/* of the group norm of the heads; no key holds it */
#define GROUP_EPS 64e-5f
/* keys shorter than 1e-12 are not made unit: l2 norm adds to the square */
#define SEEK_EPS 1e-24f

/* The inner half of a low-rank function, W_1 x, and the outer one, W_2 t + c. */
static struct view inner(struct loader *l, const struct rwkv_desc *r, const char *w1, uint32_t rank,
                         struct view x)
{
    return plan_matmul(l->p, "low_rank", mat(l, w1, rank, r->d), NULL, x);
}

static void outer(struct loader *l, const struct rwkv_desc *r, const char *w2, const char *c,
                  struct view t, struct view dst)
{
    plan_matmul_to(l->p, dst, mat(l, w2, r->d, t.width), c ? vec(l, c, r->d) : NULL, t);
}

/* The six mixtures of h with the row before, as one register of six parts. */
enum { MIX_R, MIX_W, MIX_K, MIX_V, MIX_A, MIX_G, MIX_COUNT };
static struct view mixtures(struct loader *l, const struct rwkv_desc *r, struct view h)
{
    const float *mu = vec_rows(l, "time_mix_lerp_fused.weight", MIX_COUNT, r->d);
    struct view before = plan_shift(l->p, "before", h);
    struct view x = plan_new(l->p, "mixed", width_mul(l, "mixtures", MIX_COUNT, r->d));
    for (uint32_t i = 0; mu && i < MIX_COUNT; i++)
        plan_lerp_vec(l->p, view_part(x, i * r->d, r->d), h, before, mu + (size_t)i * r->d);
    return x;
}

/* The values of layer 0 are mixed into those of the others; `first` is set by layer 0. */
static void share_values(struct loader *l, const struct rwkv_desc *r, struct view x, struct view v,
                         struct view *first)
{
    if (l->il == 0) {
        *first = plan_new(l->p, "v_first", r->d);
        plan_copy(l->p, *first, v);
        tensor_ignore(l, "time_mix_v0.weight");
        tensor_ignore(l, "time_mix_v1.weight");
        tensor_ignore(l, "time_mix_v2.weight");
        return;
    }
    struct view share = plan_new(l->p, "v_share", r->d);
    outer(l, r, "time_mix_v2", "time_mix_v0.weight", inner(l, r, "time_mix_v1", r->rank_v, x),
          share);
    plan_act(l->p, ACT_SIGMOID, share);
    plan_lerp(l->p, v, v, *first, share);
}

struct view block_time_mix(struct loader *l, const struct rwkv_desc *r, struct view h,
                           struct view *v_first)
{
    struct plan *p = l->p;
    const uint32_t d = r->d, n_head = d / r->d_head;
    struct view x = mixtures(l, r, h);
#define X(i) view_part(x, (i)*d, d)
    struct view all = plan_new(p, "wkv_in", width_mul(l, "time mix", WKV_COUNT, d));
    struct view read = view_part(all, WKV_READ * d, d), decay = view_part(all, WKV_DECAY * d, d);
    struct view key = view_part(all, WKV_KEY * d, d), value = view_part(all, WKV_VALUE * d, d);
    struct view drop = view_part(all, WKV_DROP * d, d), seek = view_part(all, WKV_SEEK * d, d);
    struct view rate = plan_new(p, "rate", d), gate = plan_new(p, "gate", d);

    plan_matmul_to(p, read, mat(l, "time_mix_receptance", d, d), NULL, X(MIX_R));
    plan_matmul_to(p, key, mat(l, "time_mix_key", d, d), NULL, X(MIX_K));
    plan_matmul_to(p, value, mat(l, "time_mix_value", d, d), NULL, X(MIX_V));
    struct view w = inner(l, r, "time_mix_w1", r->rank_w, X(MIX_W));
    struct view a = inner(l, r, "time_mix_a1", r->rank_a, X(MIX_A));
    struct view g = inner(l, r, "time_mix_g1", r->rank_g, X(MIX_G));
    plan_act(p, ACT_TANH, w);
    plan_act(p, ACT_SIGMOID, g);
    outer(l, r, "time_mix_w2", "time_mix_w0.weight", w, decay);
    outer(l, r, "time_mix_a2", "time_mix_a0.weight", a, rate);
    outer(l, r, "time_mix_g2", NULL, g, gate);
    share_values(l, r, X(MIX_V), value, v_first);
#undef X
    plan_act(p, ACT_SIGMOID, decay);
    plan_scale(p, decay, -DECAY_SCALE);
    plan_act(p, ACT_EXP, decay);
    plan_act(p, ACT_SIGMOID, rate);
    plan_copy(p, seek, key);
    plan_mul_vec(p, seek, vec(l, "time_mix_k_k.weight", d));
    plan_norm_pieces(p, NORM_L2, view_split(seek, n_head), NULL, NULL, SEEK_EPS, false);
    plan_mul(p, drop, key, rate);
    plan_lerp_vec(p, key, key, drop, vec(l, "time_mix_k_a.weight", d));
    plan_mul(p, drop, rate, seek);

    struct view o = plan_wkv(p, &(struct wkv_step){.n_head = n_head, .d_head = r->d_head},
                             view_split(all, WKV_COUNT));
    struct view heads = view_split(o, n_head);
    plan_norm_pieces(p, NORM_LAYER, heads, vec(l, "time_mix_ln.weight", d),
                     vec(l, "time_mix_ln.bias", d), GROUP_EPS, true);
    plan_mul_vec(p, read, vec(l, "time_mix_r_k.weight", d));
    plan_dot_mul(p, heads, view_split(read, n_head), view_split(key, n_head),
                 view_split(value, n_head));
    plan_mul(p, o, o, gate);
    return plan_matmul(p, "time_out", mat(l, "time_mix_output", d, d), NULL, o);
}

struct view block_channel_mix(struct loader *l, const struct rwkv_desc *r, struct view h)
{
    struct plan *p = l->p;
    struct view x = plan_shift(p, "before", h);
    plan_lerp_vec(p, x, h, x, vec(l, "channel_mix_lerp_k.weight", r->d));
    struct view k = plan_matmul(p, "up", mat(l, "channel_mix_key", r->d_ff, r->d), NULL, x);
    plan_act(p, ACT_RELU2, k);
    return plan_matmul(p, "channel_out", mat(l, "channel_mix_value", r->d, r->d_ff), NULL, k);
}
