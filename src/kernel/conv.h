/*
 * Causal depthwise convolution over positions, for vector.h. The order of a channel's sum is the
 * one that kernel.h states, whatever the number of positions.
 *
 * Inputs are read where they lie: only the first n_taps - 1 positions of a span look into the
 * state, which is written once, at the end. Positions go outside and channels inside, so that a
 * position's channels are one ascending stream and the taps stay in the nearest cache.
 */
#ifndef LINNET_KERNEL_CONV_H
#define LINNET_KERNEL_CONV_H

enum { CONV_TAPS = 4 }; /* what nearly every model has: unrolled */

/* The row that tap j of position t reads. */
static inline const float *conv_input(const struct conv_job *v, size_t t, size_t j)
{
    const size_t past = v->n_taps - 1, at = t + j;
    return at < past ? v->state + at * v->state_stride : v->x + (at - past) * v->x_stride;
}

static void conv_any(const struct conv_job *v, size_t t, float *y)
{
#define BODY(LOAD, STORE)                                                                          \
    vf acc = v->bias ? LOAD(v->bias + i) : v_set(0.0f);                                            \
    for (size_t j = 0; j < v->n_taps; j++)                                                         \
        acc =                                                                                      \
            v_fma(LOAD(v->weight + j * v->weight_stride + i), LOAD(conv_input(v, t, j) + i), acc); \
    STORE(y + i, v->silu ? v_silu(acc) : acc);
    FOR_VECTORS(i, v->width, BODY);
#undef BODY
}

static void conv_four(const struct conv_job *v, size_t t, float *y)
{
    const float *x0 = conv_input(v, t, 0), *x1 = conv_input(v, t, 1);
    const float *x2 = conv_input(v, t, 2), *x3 = conv_input(v, t, 3);
    const float *w0 = v->weight, *w1 = w0 + v->weight_stride;
    const float *w2 = w1 + v->weight_stride, *w3 = w2 + v->weight_stride;
#define BODY(LOAD, STORE)                                                                          \
    vf acc = v->bias ? LOAD(v->bias + i) : v_set(0.0f);                                            \
    acc = v_fma(LOAD(w0 + i), LOAD(x0 + i), acc);                                                  \
    acc = v_fma(LOAD(w1 + i), LOAD(x1 + i), acc);                                                  \
    acc = v_fma(LOAD(w2 + i), LOAD(x2 + i), acc);                                                  \
    acc = v_fma(LOAD(w3 + i), LOAD(x3 + i), acc);                                                  \
    STORE(y + i, v->silu ? v_silu(acc) : acc);
    FOR_VECTORS(i, v->width, BODY);
#undef BODY
}

static void vec_conv(const struct conv_job *v)
{
    for (size_t t = 0; t < v->n; t++) {
        float *y = v->y + t * v->y_stride;
        v->n_taps == CONV_TAPS ? conv_four(v, t, y) : conv_any(v, t, y);
    }
    for (size_t j = 0; v->n > 0 && j + 1 < v->n_taps; j++)
        memcpy(v->state + j * v->state_stride, conv_input(v, v->n, j), v->width * sizeof(float));
}

#endif
