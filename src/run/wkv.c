/*
 * RWKV: the row before, and the generalised delta rule, in step form.
 */
#include "run/exec.h"

#include <string.h>

void state_shift(struct linnet_context *c, const struct step *s, const struct span *span,
                 uint32_t part, unsigned worker)
{
    (void)worker;
    const uint32_t c0 = part * SHIFT_BLOCK;
    const size_t size =
        (s->a.width - c0 < SHIFT_BLOCK ? s->a.width - c0 : SHIFT_BLOCK) * sizeof(float);
    float *last = state_at(span, s) + c0;
    const float *before = last;
    for (size_t r = span->row0; r < span->row0 + span->n; r++) {
        memcpy(view_row(c, &s->dst, r) + c0, before, size);
        before = view_row(c, &s->a, r) + c0;
    }
    if (before != last)
        memcpy(last, before, size);
}

void state_wkv(struct linnet_context *c, const struct step *s, const struct span *span,
               uint32_t part, unsigned worker)
{
    (void)worker;
    const struct wkv_step *v = s->args;
    const uint32_t each = scan_blocks(v->d_head), head = part / each, c0 = part % each * SCAN_BLOCK;
    const uint32_t w = v->d_head - c0 < SCAN_BLOCK ? v->d_head - c0 : SCAN_BLOCK;
    const uint32_t first = head * v->d_head;
    float *state = state_at(span, s) + (size_t)(first + c0) * v->d_head;
    for (size_t r = span->row0; r < span->row0 + span->n; r++) {
        const float *x[WKV_COUNT];
        for (uint32_t i = 0; i < WKV_COUNT; i++)
            x[i] = view_row(c, &s->a, r) + (size_t)i * s->a.stride + first;
        struct wkv_row row = {.seek = x[WKV_SEEK],
                              .drop = x[WKV_DROP],
                              .decay = x[WKV_DECAY],
                              .key = x[WKV_KEY],
                              .read = x[WKV_READ]};
        c->k->wkv(state, view_row(c, &s->dst, r) + first + c0, &row, x[WKV_VALUE] + c0, v->d_head,
                  w);
    }
}
