/*
 * Routing, one row at a time, in this order: logits to scores (softmax, sigmoid, ...); the
 * selection bias added for the choice only; all but the best groups closed; the best experts
 * chosen; their unbiased scores divided by their sum and scaled. Of equals the lower id is chosen.
 * NaN is above every number, so that a broken logit reaches the output, where it is seen, instead
 * of steering rows to other experts in silence.
 */
#include "run/route.h"

#include "base/limits.h"

#include <math.h>
#include <string.h>

static bool above(float a, float b)
{
    return a > b || (isnan(a) && !isnan(b));
}

/* Logits p to scores in place; score [n_expert] is what the choice goes by. */
static void score_experts(const struct kernels *k, const struct router *r, float *p, float *score)
{
    switch (r->kind) {
    case ROUTER_BY_KEY: break; /* in no plan */
    case ROUTER_SOFTMAX: k->softmax(p, r->n_expert); break;
    case ROUTER_SIGMOID: k->sigmoid(p, p, r->n_expert); break;
    case ROUTER_SOFTMAX_OF_CHOSEN: break;
    case ROUTER_SQRT_SOFTPLUS:
        k->softplus(p, p, r->n_expert);
        for (uint32_t i = 0; i < r->n_expert; i++)
            p[i] = sqrtf(p[i]);
        break;
    }
    for (uint32_t i = 0; i < r->n_expert; i++)
        score[i] = r->bias ? p[i] + r->bias[i] : p[i];
}

/* What a group is judged by: its best expert (softmax routers, DeepSeek-V2) or the sum of its two
 * best (DeepSeek-V3 and later). */
static float judge(const struct router *r, const float *score, uint32_t n)
{
    float best = score[0], second = -INFINITY;
    for (uint32_t i = 1; i < n; i++) {
        if (above(score[i], best)) {
            second = best;
            best = score[i];
        } else if (above(score[i], second)) {
            second = score[i];
        }
    }
    return r->kind == ROUTER_SOFTMAX || n == 1 ? best : best + second;
}

/* closed[expert] = true for all but the best groups. */
static void close_groups(const struct router *r, const float *score, bool *closed)
{
    const uint32_t each = r->n_expert / r->n_group;
    float value[LIMIT_EXPERTS];
    bool open[LIMIT_EXPERTS] = {false};
    for (uint32_t g = 0; g < r->n_group; g++)
        value[g] = judge(r, score + (size_t)g * each, each);
    for (uint32_t j = 0; j < r->n_group_used; j++) {
        uint32_t best = UINT32_MAX;
        for (uint32_t g = 0; g < r->n_group; g++)
            if (!open[g] && (best == UINT32_MAX || above(value[g], value[best])))
                best = g;
        open[best] = true;
    }
    for (uint32_t i = 0; i < r->n_expert; i++)
        closed[i] = !open[i / each];
}

static void choose(const struct router *r, const float *score, bool *closed, int32_t *ids)
{
    for (uint32_t j = 0; j < r->n_used; j++) {
        int32_t best = -1;
        for (uint32_t i = 0; i < r->n_expert; i++)
            if (!closed[i] && (best < 0 || above(score[i], score[best])))
                best = (int32_t)i;
        ids[j] = best;
        closed[best] = true;
    }
}

void route(const struct kernels *k, const struct router *r, float *logits, int32_t *ids,
           float *weights)
{
    float score[LIMIT_EXPERTS];
    bool closed[LIMIT_EXPERTS];
    memset(closed, 0, r->n_expert * sizeof *closed);
    score_experts(k, r, logits, score);
    if (r->n_group > 1)
        close_groups(r, score, closed);
    choose(r, score, closed, ids);
    for (uint32_t j = 0; j < r->n_used; j++)
        weights[j] = logits[ids[j]];
    if (r->kind == ROUTER_SOFTMAX_OF_CHOSEN)
        k->softmax(weights, r->n_used);
    float sum = 0.0f;
    for (uint32_t j = 0; j < r->n_used; j++)
        sum += weights[j];
    const float f = r->normalise ? 1.0f / fmaxf(sum, 0x1p-14f) : 1.0f;
    for (uint32_t j = 0; j < r->n_used; j++)
        weights[j] = weights[j] * f * r->scale;
}
