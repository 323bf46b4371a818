/*
 * Recurrent operations: each walks a session's rows in order, always in the step form, so that the bits do not depend
 * on how a text is cut. State is split into independent parts (heads, blocks of channels), never inside a sum.
 */
#include "run/exec.h"

#include <string.h>

static float *state_at(const struct span *span, const struct step *s)
{
    return span->s->state + s->state;
}

/* Part: CONV_BLOCK channels. State [n_taps - 1][channels]: the last inputs, oldest first. */
static void do_conv(struct linnet_context *c, const struct step *s, const struct span *span, uint32_t part,
                    unsigned worker)
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

state_fn *const state_fns[OP_COUNT] = {
    [OP_CONV] = do_conv,
};
