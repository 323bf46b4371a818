/*
 * Per-layer inputs (Gemma 3n and 4; specification B15.3): every token has a narrow vector for each
 * layer. A layer multiplies a gate of its hidden state with it and adds a projection of the
 * product.
 *
 * The table of these vectors may be the largest tensor of a file. Only the rows of tokens that run
 * are read.
 */
#include "model/block.h"

#include <math.h>

struct view block_layer_inputs(struct loader *l, uint32_t n_layer, uint32_t d, struct view e,
                               float eps)
{
    struct plan *p = l->p;
    uint32_t all = width_mul(l, "inputs of all layers", n_layer, d);
    struct view u = plan_embed(p, mat(l, "per_layer_token_embd", l->m->facts.n_vocab, all));
    plan_scale(p, u, sqrtf((float)d));
    struct view y =
        plan_matmul(p, "layer_inputs", mat(l, "per_layer_model_proj", all, e.width), NULL, e);
    plan_scale(p, y, 1.0f / sqrtf((float)e.width));
    u = view_split(u, n_layer);
    y = view_split(y, n_layer);
    plan_norm_pieces(p, NORM_RMS, y, vec(l, "per_layer_proj_norm.weight", d), NULL, eps, false);
    plan_add(p, y, y, u);
    plan_scale(p, y, sqrtf(0.5f));
    return y;
}

struct view block_layer_input(struct loader *l, struct view x, struct view u, float eps)
{
    struct plan *p = l->p;
    struct view gate = plan_matmul(p, "input_gate", mat(l, "inp_gate", u.width, x.width), NULL, x);
    plan_gate(p, GATE_GELU, gate, gate, u);
    struct view y = plan_matmul(p, "input", mat(l, "proj", x.width, u.width), NULL, gate);
    plan_norm_pieces(p, NORM_RMS, y, vec(l, "post_norm.weight", x.width), NULL, eps, false);
    return y;
}
