/*
 * Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1): all heads read one
 * narrow latent per position, which is all that is cached. Kimi K3 and Ling 3 gate the heads'
 * output.
 *
 *     c | k_r = W_kv_a x,  c normed, k_r rotated: the cached row
 *     head h:  k = [K_h c | k_r],  v = V_h c,  q = [q_nope | q_rope], q_rope rotated
 *
 * It runs in the absorbed form always, whatever the number of rows: q_nope . (K_h c) = (K_h^T
 * q_nope) . c, and sum p (V_h c) = V_h (sum p c). So attention is that of many query heads over one
 * key head [c | k_r] whose values are the c in it. Files hold K_h^T and V_h apart (attn_k_b,
 * attn_v_b) or, older ones, [K_h ; V_h] as attn_kv_b.
 */
#include "base/limits.h"
#include "model/block.h"

#include <math.h>

/* Newer files have the cache's widths under the plain names; Ling 3 has the heads' value there. */
static void check_cache_widths(struct loader *l, const struct mla_desc *d)
{
    const uint32_t n_row = d->d_latent + d->d_rope;
    uint32_t k = key_u32_or(l, "attention.key_length", 1, UINT32_MAX, n_row),
             v = key_u32_or(l, "attention.value_length", 1, UINT32_MAX, d->d_latent);
    if (k != n_row)
        load_fail(l, LINNET_FORMAT,
                  "metadata key '%s.attention.key_length' is %u; beside key_length_mla it must be "
                  "'%s.attention.kv_lora_rank' + '%s.rope.dimension_count', %u",
                  l->arch, k, l->arch, l->arch, n_row);
    if (v != d->d_latent && v != d->d_v)
        load_fail(l, LINNET_FORMAT,
                  "metadata key '%s.attention.value_length' is %u; beside key_length_mla it must "
                  "be '%s.attention.kv_lora_rank' (%u) or value_length_mla (%u)",
                  l->arch, v, l->arch, d->d_latent, d->d_v);
}

struct mla_desc mla_read(struct loader *l, float eps, bool mla_keys)
{
    struct mla_desc d = {.gate = MLA_UNGATED, .eps = eps, .rope = ROPE_NONE};
    d.n_head = key_u32(l, "attention.head_count", 1, LIMIT_HEADS);
    d.d_latent = key_u32(l, "attention.kv_lora_rank", 1, LIMIT_WIDTH);
    d.d_rope = key_u32(l, "rope.dimension_count", 1, LIMIT_WIDTH);
    /* newer files: key_length and value_length are those of the cache, and the heads' have names of
     * their own */
    bool newer = mla_keys || key_present(l, "attention.key_length_mla") ||
                 key_present(l, "attention.value_length_mla");
    uint32_t d_k =
        key_u32(l, newer ? "attention.key_length_mla" : "attention.key_length", 1, LIMIT_WIDTH);
    d.d_v =
        key_u32(l, newer ? "attention.value_length_mla" : "attention.value_length", 1, LIMIT_WIDTH);
    if (d.d_rope >= d_k)
        load_fail(l, LINNET_FORMAT,
                  "metadata key '%s.rope.dimension_count' is %u; it must be below the keys' width, "
                  "which is %u",
                  l->arch, d.d_rope, d_k);
    else
        d.d_nope = d_k - d.d_rope;
    if (newer)
        check_cache_widths(l, &d);
    d.d_q_latent = key_u32_or(l, "attention.q_lora_rank", 0, LIMIT_WIDTH, 0);
    d.scale = 1.0f / sqrtf((float)d_k);
    return d;
}

/* Queries and the cached row from x, and the gate where there is one; neighbours, so that they are
 * one step. */
struct inputs {
    struct view q, row, gate;
};

static struct inputs project(struct loader *l, const struct mla_desc *d, struct view x)
{
    struct plan *p = l->p;
    struct inputs in = {.gate = view_none()};
    uint32_t nq = width_mul(l, "queries", d->n_head, d->d_nope + d->d_rope);
    uint32_t n_row = d->d_latent + d->d_rope;
    bool lora = d->d_q_latent || has(l, "attn_q_a.weight");
    uint32_t n_a = d->d_q_latent;
    if (lora && n_a == 0)
        n_a = (uint32_t)(tensor_dim(l, "attn_q_a.weight", 1) & UINT32_MAX);
    if (lora)
        in.q = plan_matmul(p, "q_latent", mat(l, "attn_q_a", n_a, x.width),
                           bias_opt(l, "attn_q_a", n_a), x);
    else
        in.q = plan_matmul(p, "q", mat(l, "attn_q", nq, x.width), bias_opt(l, "attn_q", nq), x);
    in.row = plan_matmul(p, "kv_latent", mat(l, "attn_kv_a_mqa", n_row, x.width),
                         bias_opt(l, "attn_kv_a_mqa", n_row), x);
    if (d->gate != MLA_UNGATED) {
        uint32_t n = d->gate == MLA_GATE_HEAD ? d->n_head : width_mul(l, "gate", d->n_head, d->d_v);
        in.gate = plan_matmul(p, "attn_gate", mat(l, "attn_gate", n, x.width),
                              bias_opt(l, "attn_gate", n), x);
    }
    if (lora) {
        plan_norm_pieces(p, NORM_RMS, in.q, vec(l, "attn_q_a_norm.weight", n_a), NULL, d->eps,
                         false);
        in.q = plan_matmul(p, "q", mat(l, "attn_q_b", nq, n_a), bias_opt(l, "attn_q_b", nq), in.q);
    }
    return in;
}

/* K_h^T [n_head] of {d_nope} to {d_latent}, and V_h [n_head] of {d_latent} to {d_v}. */
static void head_matrices(struct loader *l, const struct mla_desc *d, const struct matrix **k,
                          const struct matrix **v)
{
    if (has(l, "attn_k_b.weight")) {
        *k = mat_stack(l, "attn_k_b", d->n_head, d->d_latent, d->d_nope);
        *v = mat_stack(l, "attn_v_b", d->n_head, d->d_v, d->d_latent);
        tensor_ignore(l, "attn_kv_b.weight"); /* some files hold both forms */
        return;
    }
    uint32_t each = d->d_nope + d->d_v;
    const struct matrix *both =
        mat(l, "attn_kv_b", width_mul(l, "keys and values", d->n_head, each), d->d_latent);
    *k = mat_stack_transposed(l, both, d->n_head, each, 0, d->d_nope);
    *v = mat_stack_rows(l, both, d->n_head, each, d->d_nope, d->d_v);
}

static void apply_gate(struct plan *p, enum mla_gate kind, struct view o, struct view gate)
{
    if (kind == MLA_GATE_CHANNEL)
        plan_gate(p, GATE_SIGMOID, view_flat(o), gate, view_flat(o));
    if (kind == MLA_GATE_HEAD) {
        plan_act(p, ACT_SIGMOID, gate);
        plan_mul_each(p, o, gate);
    }
}

struct view block_mla(struct loader *l, const struct mla_desc *d, struct view x)
{
    struct plan *p = l->p;
    const struct matrix *k_heads, *v_heads;
    const uint32_t n_row = d->d_latent + d->d_rope;
    struct inputs in = project(l, d, x);
    head_matrices(l, d, &k_heads, &v_heads);
    struct view table = d->table ? plan_rope_table(p, d->table) : view_none();

    struct view row = in.row;
    plan_norm_pieces(p, NORM_RMS, view_part(row, 0, d->d_latent),
                     vec(l, "attn_kv_a_norm.weight", d->d_latent), NULL, d->eps, false);
    plan_rope(p, d->rope, view_part(row, d->d_latent, d->d_rope), table);
    uint32_t slot = plan_kv_slot(p, &(struct kv_slot){.layer = l->il,
                                                      .n_head = 1,
                                                      .d_k = n_row,
                                                      .d_v = d->d_latent,
                                                      .window = 0,
                                                      .v_in_k = true});
    plan_kv_store(p, slot, row, view_none());

    struct view q = view_split(in.q, d->n_head);
    plan_rope(p, d->rope, view_part(q, d->d_nope, d->d_rope), table);
    if (d->temp_scale != 0.0f)
        plan_pos_scale(p, q, d->temp_scale, d->temp_period);
    struct view absorbed =
        view_split(plan_new(p, "q_absorbed", width_mul(l, "queries", d->n_head, n_row)), d->n_head);
    plan_copy(p, view_part(absorbed, d->d_latent, d->d_rope), view_part(q, d->d_nope, d->d_rope));
    plan_head_matmul(p, view_part(absorbed, 0, d->d_latent), k_heads, d->n_head,
                     view_part(q, 0, d->d_nope));

    struct view mixed = view_split(
        plan_new(p, "latents", width_mul(l, "latents", d->n_head, d->d_latent)), d->n_head);
    plan_attention(p, mixed, absorbed, &(struct attn_step){.kv = slot, .scale = d->scale});
    struct view o =
        view_split(plan_new(p, "heads", width_mul(l, "heads", d->n_head, d->d_v)), d->n_head);
    plan_head_matmul(p, o, v_heads, d->n_head, mixed);
    apply_gate(p, d->gate, o, in.gate);
    o = view_flat(o);
    return plan_matmul(p, "attn_out", mat(l, "attn_output", x.width, o.width),
                       bias_opt(l, "attn_output", x.width), o);
}
