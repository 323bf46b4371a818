/*
 * Counting bytes and operations of a plan's steps.
 */
#include "model/cost.h"

#include <math.h>

/* Matrices of a product that `rows` rows use: all, or of a mixture the expected number of different
 * experts. */
static double matrices_used(const struct step *s, const struct product *q, double rows)
{
    const double n = q->n_w;
    return s->op == OP_MOE_MATMUL ? n * (1.0 - pow(1.0 - (double)q->dst.n / n, rows)) : n;
}

static void add_products(struct cost *c, const struct step *s, double rows)
{
    for (uint32_t i = 0; i < s->n_products && rows > 0; i++) {
        const struct product *q = &s->products[i];
        const double per_row = s->op == OP_MATMUL ? 1.0 : q->dst.n;
        const double ops = 2.0 * (double)q->w->n_rows * (double)q->w->n_cols * per_row * rows;
        c->bytes += matrices_used(s, q, rows) * (double)q->w->n_rows * (double)q->w->row_bytes;
        if (q->w->type->group)
            c->int8_ops += ops;
        else
            c->f32_ops += ops;
    }
}

static void add_attention(struct cost *c, const struct plan *p, const struct step *s,
                          const struct cost_run *r)
{
    const struct kv_slot *slot = &p->kvs[s->index];
    uint64_t end = r->pos + r->n_rows, first = 0;
    if (s->attn->window && r->pos + 1 > s->attn->window)
        first = r->pos + 1 - s->attn->window;
    size_t row =
        kv_row_bytes(r->kv_k, slot->d_k) + (slot->v_in_k ? 0 : kv_row_bytes(r->kv_v, slot->d_v));
    c->bytes += (double)r->n_seqs * (double)(end - first) * slot->n_head * (double)row;
}

struct cost plan_cost(const struct plan *p, const struct cost_run *r)
{
    struct cost c = {0};
    for (size_t i = 0; i < p->n_steps; i++) {
        const struct step *s = &p->steps[i];
        add_products(&c, s, s->out_rows ? (double)r->n_out : (double)(r->n_seqs * r->n_rows));
        if (s->op == OP_ATTENTION)
            add_attention(&c, p, s, r);
    }
    c.bytes +=
        2.0 * sizeof(float) * (double)p->state_floats * (double)r->n_seqs; /* read and written */
    return c;
}
