/*
 * Recurrent operations: each walks a session's rows in order, always in the step form, so that the
 * bits do not depend on how a text is cut. State is split into independent parts (heads, blocks of
 * channels), never inside a sum.
 */
#include "run/exec.h"

#include <string.h>

/* Part: CONV_BLOCK channels. State [n_taps - 1][channels]: the last inputs, oldest first. */
static void do_conv(struct linnet_context *c, const struct step *s, const struct span *span,
                    uint32_t part, unsigned worker)
{
    (void)worker;
    const struct conv_step *v = s->args;
    const uint32_t n = view_size(s->a), c0 = part * CONV_BLOCK;
    const uint32_t w = n - c0 < CONV_BLOCK ? n - c0 : CONV_BLOCK;
    const uint32_t past = v->n_taps - 1;
    float *state = state_at(span, s) + c0;
    for (size_t i = 0; i < span->n; i++) {
        const float *x = view_row(c, &s->a, span->row0 + i) + c0;
        float *y = view_row(c, &s->dst, span->row0 + i) + c0;
        float sum[CONV_BLOCK];
        for (uint32_t j = 0; j < w; j++) {
            float acc = v->bias ? v->bias[c0 + j] : 0.0f;
            const float *tap = v->weight + (size_t)(c0 + j) * v->n_taps;
            for (uint32_t t = 0; t < past; t++)
                acc += tap[t] * state[(size_t)t * n + j];
            sum[j] = acc + tap[past] * x[j];
        }
        for (uint32_t t = 0; t + 1 < past; t++)
            memcpy(state + (size_t)t * n, state + (size_t)(t + 1) * n, w * sizeof *state);
        if (past)
            memcpy(state + (size_t)(past - 1) * n, x, w * sizeof *state);
        if (v->silu)
            c->k->silu(y, sum, w);
        else
            memcpy(y, sum, w * sizeof *y);
    }
}

/* Element i of a view's row, whatever its pieces. */
static const float *view_elem(const struct linnet_context *c, const struct view *v, size_t row,
                              size_t i)
{
    return view_row(c, v, row) + i / v->width * v->stride + i % v->width;
}

/* Part: DELTA_BLOCK value columns of one head. */
static void do_delta(struct linnet_context *c, const struct step *s, const struct span *span,
                     uint32_t part, unsigned worker)
{
    (void)worker;
    const struct delta_step *d = s->args;
    const size_t blocks = (d->d_v + DELTA_BLOCK - 1) / DELTA_BLOCK,
                 tiles = (d->d_v + TILE - 1) / TILE;
    const size_t h = part / blocks, col = part % blocks * DELTA_BLOCK, row = span->row0;
    const size_t key_head = d->tiled ? h % d->n_k : h / (d->n_v / d->n_k);
    const float *qkv = view_row(c, &s->a, row);
    struct delta_job job = {
        .n = span->n,
        .d_k = d->d_k,
        .n_cols = d->d_v - col < DELTA_BLOCK ? d->d_v - col : DELTA_BLOCK,
        .q = qkv + key_head * d->d_k,
        .k = qkv + (d->n_k + key_head) * d->d_k,
        .v = qkv + 2 * (size_t)d->n_k * d->d_k + h * d->d_v + col,
        .x_stride = c->p->regs[s->a.reg].width,
        .decay = view_elem(c, &s->b, row, d->decay_each ? h * d->d_k : h),
        .decay_stride = c->p->regs[s->b.reg].width,
        .decay_each = d->decay_each,
        .beta = view_elem(c, &s->c, row, h),
        .beta_stride = c->p->regs[s->c.reg].width,
        .o = view_row(c, &s->dst, row) + h * d->d_v + col,
        .o_stride = c->p->regs[s->dst.reg].width,
        .scale = d->scale,
        .state = state_at(span, s) + (h * tiles * TILE + col) * d->d_k,
    };
    c->k->delta(&job);
}

state_fn *const state_fns[OP_COUNT] = {
    [OP_CONV] = do_conv,    [OP_DELTA] = do_delta, [OP_SHIFT] = state_shift,
    [OP_SCAN] = state_scan, [OP_SSD] = state_ssd,  [OP_WKV] = state_wkv,
};
