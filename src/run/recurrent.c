/*
 * Recurrent operations: each walks a session's rows in order, always in the step form, so that the
 * bits do not depend on how a text is cut. State is split into independent parts (heads, blocks of
 * channels), never inside a sum.
 */
#include "run/exec.h"

/* Part: CONV_BLOCK channels. State [n_taps - 1][channels]: the last inputs, oldest first. */
static void do_conv(struct linnet_context *c, const struct step *s, const struct span *span,
                    uint32_t part, unsigned worker)
{
    (void)worker;
    const struct conv_step *v = s->args;
    const uint32_t n = view_size(s->a), c0 = part * CONV_BLOCK;
    struct conv_job job = {
        .n = span->n,
        .width = n - c0 < CONV_BLOCK ? n - c0 : CONV_BLOCK,
        .n_taps = v->n_taps,
        .x = view_row(c, &s->a, span->row0) + c0,
        .x_stride = c->p->regs[s->a.reg].width,
        .y = view_row(c, &s->dst, span->row0) + c0,
        .y_stride = c->p->regs[s->dst.reg].width,
        .weight = v->weight + c0,
        .weight_stride = n,
        .bias = v->bias ? v->bias + c0 : NULL,
        .state = state_at(span, s) + c0,
        .state_stride = n,
        .silu = v->silu,
    };
    c->k->conv(&job);
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
