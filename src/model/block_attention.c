/*
 * The attention block: projections, normed and rotated heads, the KV slot, attention, the output
 * projection. Softmax attention with grouped heads; MLA and recurrent layers are blocks of their
 * own.
 */
#include "model/block.h"

/* Queries, keys and values of x, a row each; from one fused product or three. No keys and values
 * where they are another layer's. */
static void project(struct loader *l, const struct attn_desc *d, struct view x, struct view *q,
                    struct view *k, struct view *v)
{
    uint32_t nq = width_mul(l, "queries", d->n_head, d->d_k);
    uint32_t nk = width_mul(l, "keys", d->n_head_kv, d->d_k);
    uint32_t nv = width_mul(l, "values", d->n_head_kv, d->d_v);
    uint32_t rows_q = d->gated ? width_mul(l, "queries and gates", nq, 2) : nq;
    const float *bq = bias_opt(l, "attn_q", rows_q);
    *k = *v = view_none();
    if (d->kv) {
        *q = plan_matmul(l->p, "q", mat(l, "attn_q", rows_q, x.width), bq, x);
        return;
    }
    const float *bk = bias_opt(l, "attn_k", nk), *bv = bias_opt(l, "attn_v", nv);
    if (!d->gated && has(l, "attn_qkv.weight")) {
        uint32_t all = nq + nk + nv;
        struct view y = plan_matmul(l->p, "qkv", mat(l, "attn_qkv", all, x.width),
                                    bias_opt(l, "attn_qkv", all), x);
        *q = view_part(y, 0, nq);
        *k = view_part(y, nq, nk);
        *v = view_part(y, nq + nk, nv);
        plan_add_vec(l->p, *q, bq);
        plan_add_vec(l->p, *k, bk);
        plan_add_vec(l->p, *v, bv);
    } else {
        *q = plan_matmul(l->p, "q", mat(l, "attn_q", rows_q, x.width), bq, x);
        *k = plan_matmul(l->p, "k", mat(l, "attn_k", nk, x.width), bk, x);
        if (d->v_from_k && !has(l, "attn_v.weight")) {
            *v = plan_new(l->p, "v", nk);
            plan_copy(l->p, *v, *k);
        } else {
            *v = plan_matmul(l->p, "v", mat(l, "attn_v", nv, x.width), bv, x);
        }
    }
}

/* One norm weight for all heads, or a row for each: the tensor's size tells. */
static void norm_heads(struct loader *l, const struct attn_desc *d, const char *name,
                       struct view heads)
{
    if (d->qk_norm_optional && !has(l, name))
        return;
    uint64_t n_rows = tensor_dim(l, name, 1);
    bool each = n_rows == heads.n && heads.n > 1;
    const float *w = vec_rows(l, name, each ? heads.n : 1, heads.width);
    plan_norm_pieces(l->p, d->norm, heads, w, NULL, d->eps, each);
}

static void norm_row(struct loader *l, const struct attn_desc *d, const char *name, struct view row)
{
    plan_norm_pieces(l->p, d->norm, row, vec(l, name, row.width), NULL, d->eps, false);
}

/* Norms and rotation of queries or keys. */
static void norm_and_turn(struct loader *l, const struct attn_desc *d, const char *norm,
                          struct view heads)
{
    if (d->qk_norm == QK_ROW)
        norm_row(l, d, norm, view_flat(heads));
    if (d->qk_norm == QK_HEAD)
        norm_heads(l, d, norm, heads);
    if (d->table)
        plan_rope(l->p, d->rope, heads, plan_rope_table(l->p, d->table));
    if (d->qk_norm == QK_HEAD_AFTER_ROPE)
        norm_heads(l, d, norm, heads);
}

/* The KV slot to read, after this layer's keys and values went into it. */
static uint32_t store_kv(struct loader *l, const struct attn_desc *d, struct view k, struct view v)
{
    if (d->kv)
        return *d->kv;
    k = view_split(k, d->n_head_kv);
    v = view_split(v, d->n_head_kv);
    norm_and_turn(l, d, "attn_k_norm.weight", k);
    if (d->v_norm)
        plan_norm_pieces(l->p, NORM_RMS, v, NULL, NULL, d->eps, false);
    uint32_t slot = plan_kv_slot(l->p, &(struct kv_slot){.layer = l->il,
                                                         .n_head = d->n_head_kv,
                                                         .d_k = d->d_k,
                                                         .d_v = d->d_v,
                                                         .window = d->window});
    plan_kv_store(l->p, slot, k, v);
    return slot;
}

struct view block_attention(struct loader *l, const struct attn_desc *d, struct view x)
{
    struct plan *p = l->p;
    struct view q, k, v, gate = view_none();
    project(l, d, x, &q, &k, &v);
    q = view_split(q, d->n_head);
    if (d->gated && q.reg >= 0) {
        gate = view_part(q, d->d_k, d->d_k);
        q = view_part(q, 0, d->d_k);
    }
    norm_and_turn(l, d, "attn_q_norm.weight", q);
    uint32_t slot = store_kv(l, d, k, v);
    if (d->temp_scale != 0.0f)
        plan_pos_scale(p, q, d->temp_scale, d->temp_period);
    struct view o =
        view_split(plan_new(p, "heads", width_mul(l, "heads", d->n_head, d->d_v)), d->n_head);
    plan_attention(
        p, o, q,
        &(struct attn_step){.kv = slot,
                            .scale = d->scale,
                            .softcap = d->softcap,
                            .sinks = d->sinks ? vec(l, "attn_sinks.weight", d->n_head) : NULL,
                            .window = d->window});
    if (d->gated)
        plan_gate(p, GATE_SIGMOID, o, gate, o);
    o = view_flat(o);
    if (d->sub_norm)
        norm_row(l, d, "attn_sub_norm.weight", o);
    return plan_matmul(p, "attn_out", mat(l, "attn_output", x.width, o.width),
                       bias_opt(l, "attn_output", x.width), o);
}
