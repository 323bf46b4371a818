/*
 * Selective state spaces: the scans of Mamba and Mamba-2, in step form.
 *
 * A part takes its columns of the state, which stay in the nearest cache, through all rows of the
 * span.
 */
#include "run/exec.h"

void state_scan(struct linnet_context *c, const struct step *s, const struct span *span,
                uint32_t part, unsigned worker)
{
    (void)worker;
    const struct scan_step *v = s->args;
    const uint32_t n = s->a.width, c0 = part * SCAN_BLOCK;
    const uint32_t w = n - c0 < SCAN_BLOCK ? n - c0 : SCAN_BLOCK;
    const size_t at = (size_t)c0 * v->d_state; /* of this part in the state and in A */
    float *state = state_at(span, s) + at;
    for (size_t r = span->row0; r < span->row0 + span->n; r++) {
        const float *u = view_row(c, &s->a, r) + c0, *dt = view_row(c, &s->b, r) + c0;
        const float *bc = view_row(c, &s->c, r);
        float *y = view_row(c, &s->dst, r) + c0, x[SCAN_BLOCK];
        c->k->mul(x, dt, u, w);
        c->k->scan_each(state, y, x, dt, v->a + at, bc, bc + v->d_state, v->d_state, w);
        c->k->mul(x, v->d + c0, u, w);
        c->k->add(y, y, x, w);
    }
}

void state_ssd(struct linnet_context *c, const struct step *s, const struct span *span,
               uint32_t part, unsigned worker)
{
    (void)worker;
    const struct ssd_step *v = s->args;
    const uint32_t each = scan_blocks(v->d_head), head = part / each, c0 = part % each * SCAN_BLOCK;
    const uint32_t w = v->d_head - c0 < SCAN_BLOCK ? v->d_head - c0 : SCAN_BLOCK;
    const uint32_t first = head * v->d_head + c0, group = head / (v->n_head / v->n_group);
    float *state = state_at(span, s) + (size_t)first * v->d_state;
    for (size_t r = span->row0; r < span->row0 + span->n; r++) {
        const float *u = view_row(c, &s->a, r) + first;
        const float *b = view_row(c, &s->c, r) + (size_t)group * v->d_state;
        const float dt = view_row(c, &s->b, r)[head];
        float *y = view_row(c, &s->dst, r) + first, x[SCAN_BLOCK], decay = dt * v->a[head];
        c->k->exp(&decay, &decay, 1);
        c->k->scale(x, u, dt, w);
        c->k->scan(state, y, x, decay, b, b + (size_t)v->n_group * v->d_state, v->d_state, w);
        c->k->axpy(y, v->d[head], u, w);
    }
}
