/*
 * AltUp (alternating updates, arXiv 2301.13310) as Gemma 3n has it (specification B15.4 to B15.11).
 *
 * The hidden state is n streams s_i; only the active one runs through a layer f. m(x) =
 * tanh(W_router N x / d):
 *
 *     predict   p_o = s_o + sum over i of (W_predict m(s_active))[o n + i] s_i
 *     layer     y = f(p_active)
 *     correct   s_o = p_o + (1 + W_correct m(y))[o] (y - p_active)
 *
 * then what the layer's own input gives is added to all streams but the active one.
 */
#include "model/block.h"

struct view altup_stream(const struct altup *a, struct view streams, uint32_t i)
{
    return view_part(streams, i * a->d, a->d);
}

/* Index j of the tensors that hold a matrix for every stream but the active one. */
static uint32_t other(const struct altup *a, uint32_t j)
{
    return j < a->active ? j : j + 1;
}

void altup_begin(struct loader *l, struct altup *a, struct view e)
{
    struct plan *p = l->p;
    const struct matrix *w = a->n > 1 ? mat_stack(l, "altup_proj", a->n - 1, a->d, a->d) : NULL;
    a->streams = plan_new(p, "streams", width_mul(l, "streams", a->n, a->d));
    plan_copy(p, altup_stream(a, a->streams, a->active), e);
    for (uint32_t j = 0; w && j < a->n - 1; j++)
        plan_matmul_to(p, altup_stream(a, a->streams, other(a, j)), &w[j], NULL, e);
    for (uint32_t j = 0; w && j < a->n - 1; j++)
        plan_rescale(p, altup_stream(a, a->streams, other(a, j)), e);
}

static struct view router(struct loader *l, const struct altup *a, struct view x)
{
    struct plan *p = l->p;
    struct view h = plan_norm(p, "altup_norm", NORM_RMS, x,
                              vec(l, "altup_router_norm.weight", a->d), NULL, a->eps);
    struct view m = plan_matmul(p, "altup_router", mat(l, "altup_router", a->n, a->d), NULL, h);
    plan_scale(p, m, 1.0f / (float)a->d);
    plan_act(p, ACT_TANH, m);
    return m;
}

struct view altup_predict(struct loader *l, struct altup *a)
{
    struct plan *p = l->p;
    struct view m = router(l, a, altup_stream(a, a->streams, a->active));
    struct view c = plan_matmul(p, "altup_mix",
                                mat(l, "altup_predict_coef", (size_t)a->n * a->n, a->n), NULL, m);
    a->predicted = plan_new(p, "predicted", a->n * a->d);
    for (uint32_t o = 0; o < a->n; o++)
        plan_combine_to(p, altup_stream(a, a->predicted, o), view_split(a->streams, a->n),
                        view_part(c, o * a->n, a->n));
    plan_add(p, a->predicted, a->predicted, a->streams);
    return altup_stream(a, a->predicted, a->active);
}

void altup_correct(struct loader *l, struct altup *a, struct view y, struct view u)
{
    struct plan *p = l->p;
    const uint32_t n = a->n;
    float *ones = ARENA_ARRAY(l->arena, n, float);
    if (!ones) {
        l->status = err_memory(l->e, "ones", n * sizeof *ones);
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        ones[i] = 1.0f;
    struct view gain =
        plan_matmul(p, "altup_gain", mat(l, "altup_correct_coef", n, n), ones, router(l, a, y));
    plan_sub(p, y, y, altup_stream(a, a->predicted, a->active));
    for (uint32_t o = 0; o < n; o++)
        plan_combine_to(p, altup_stream(a, a->streams, o), y, view_part(gain, o, 1));
    plan_add(p, a->streams, a->streams, a->predicted);

    struct view first = plan_new(p, "corrected", a->d);
    plan_copy(p, first, altup_stream(a, a->streams, a->active));
    plan_mul_vec(p, first, vec(l, "altup_correct_scale.weight", a->d));
    struct view t = block_layer_input(l, first, u, a->eps);
    for (uint32_t j = 0; j < n - 1; j++) {
        struct view s = altup_stream(a, a->streams, other(a, j));
        plan_add(p, s, s, t);
    }
}

struct view altup_end(struct loader *l, const struct altup *a, struct view streams)
{
    struct plan *p = l->p;
    const struct matrix *w =
        a->n > 1 ? mat_stack(l, "altup_unembd_proj", a->n - 1, a->d, a->d) : NULL;
    struct view active = altup_stream(a, streams, a->active);
    struct view x = plan_new(p, "unembedded", a->d);
    plan_copy(p, x, active);
    for (uint32_t j = 0; w && j < a->n - 1; j++) {
        struct view y =
            plan_matmul(p, "stream", &w[j], NULL, altup_stream(a, streams, other(a, j)));
        plan_rescale(p, y, active);
        plan_add(p, x, x, y);
    }
    plan_scale(p, x, 1.0f / (float)a->n);
    return x;
}
