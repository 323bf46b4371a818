/*
 * Routing against a plain reference in double precision: kinds, selection bias, groups,
 * normalising, scale; ties, and logits that are not numbers.
 */
#include "test.h"

#include "run/route.h"

#include <math.h>

enum { MAX_EXPERTS = 64 };

struct routed {
    int32_t ids[MAX_EXPERTS];
    float weights[MAX_EXPERTS];
};

/* ---- the reference: the paper's words, one at a time ---- */

static void ref_softmax(double *x, size_t n)
{
    double max = -INFINITY, sum = 0.0;
    for (size_t i = 0; i < n; i++)
        max = fmax(max, x[i]);
    for (size_t i = 0; i < n; i++)
        sum += x[i] = exp(x[i] - max);
    for (size_t i = 0; i < n; i++)
        x[i] /= sum;
}

/* How many of x [n] come before x[i]: larger, or as large and earlier. */
static uint32_t rank(const double *x, uint32_t n, uint32_t i)
{
    uint32_t before = 0;
    for (uint32_t j = 0; j < n; j++)
        before += x[j] > x[i] || (x[j] == x[i] && j < i);
    return before;
}

static void ref_route(const struct router *r, const float *logits, struct routed *out)
{
    double p[MAX_EXPERTS], score[MAX_EXPERTS], group[MAX_EXPERTS], sum = 0.0;
    uint32_t n = r->n_expert, each = n / r->n_group;
    for (uint32_t i = 0; i < n; i++) {
        double x = (double)logits[i];
        p[i] = r->kind == ROUTER_SIGMOID         ? 1.0 / (1.0 + exp(-x))
               : r->kind == ROUTER_SQRT_SOFTPLUS ? sqrt(log1p(exp(x)))
                                                 : x;
    }
    if (r->kind == ROUTER_SOFTMAX)
        ref_softmax(p, n);
    for (uint32_t i = 0; i < n; i++)
        score[i] = p[i] + (r->bias ? (double)r->bias[i] : 0.0);
    for (uint32_t g = 0; g < r->n_group; g++) {
        group[g] = 0.0;
        for (uint32_t i = 0; i < each; i++)
            if (rank(score + g * each, each, i) < (r->kind == ROUTER_SOFTMAX ? 1 : 2))
                group[g] += score[g * each + i];
    }
    for (uint32_t g = 0; g < r->n_group; g++)
        for (uint32_t i = 0; rank(group, r->n_group, g) >= r->n_group_used && i < each; i++)
            score[g * each + i] = -INFINITY;
    double w[MAX_EXPERTS];
    for (uint32_t i = 0; i < n; i++)
        if (rank(score, n, i) < r->n_used) {
            out->ids[rank(score, n, i)] = (int32_t)i;
            w[rank(score, n, i)] = p[i];
        }
    if (r->kind == ROUTER_SOFTMAX_OF_CHOSEN)
        ref_softmax(w, r->n_used);
    for (uint32_t j = 0; j < r->n_used; j++)
        sum += w[j];
    for (uint32_t j = 0; j < r->n_used; j++)
        out->weights[j] =
            (float)(w[j] / (r->normalise ? fmax(sum, 0x1p-14) : 1.0) * (double)r->scale);
}

/* ---- */

static struct routed run(const struct router *r, const float *logits)
{
    struct routed out;
    float p[MAX_EXPERTS];
    memcpy(p, logits, r->n_expert * sizeof *p);
    route(kernels_best(), r, p, out.ids, out.weights);
    return out;
}

static float random_in(uint64_t *seed, float low, float high)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return low + (high - low) * (float)(*seed >> 40) / (float)(1 << 24);
}

static void agrees_with_the_reference(const struct router *r, const float *logits)
{
    struct routed got = run(r, logits), want;
    ref_route(r, logits, &want);
    for (uint32_t j = 0; j < r->n_used; j++) {
        if (got.ids[j] != want.ids[j] ||
            fabsf(got.weights[j] - want.weights[j]) > 1e-5f * fabsf(want.weights[j]))
            fail_msg("kind %d, bias %d, %u of %u groups, normalise %d: choice %u is %d (%g), not "
                     "%d (%g)",
                     (int)r->kind, r->bias != NULL, r->n_group_used, r->n_group, r->normalise, j,
                     got.ids[j], (double)got.weights[j], want.ids[j], (double)want.weights[j]);
    }
}

static void every_kind_of_router_agrees_with_the_reference(void **state)
{
    (void)state;
    static const struct {
        uint32_t n_expert, n_used, n_group, n_group_used;
    } shapes[] = {{1, 1, 1, 1},  {8, 2, 1, 1},  {8, 8, 1, 1}, {64, 6, 1, 1},
                  {64, 8, 8, 4}, {64, 8, 8, 3}, {8, 2, 8, 2}};
    uint64_t seed = 1;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int kind = ROUTER_SOFTMAX; kind <= ROUTER_SQRT_SOFTPLUS; kind++)
            for (unsigned flags = 0; flags < 8; flags++) {
                float logits[MAX_EXPERTS], bias[MAX_EXPERTS];
                struct router r = {.kind = (enum router_kind)kind,
                                   .n_expert = shapes[i].n_expert,
                                   .n_used = shapes[i].n_used,
                                   .n_group = shapes[i].n_group,
                                   .n_group_used = shapes[i].n_group_used,
                                   .normalise = flags & 1,
                                   .scale = flags & 2 ? 2.5f : 1.0f,
                                   .bias = flags & 4 ? bias : NULL};
                for (int round = 0; round < 20; round++) {
                    for (uint32_t e = 0; e < r.n_expert; e++) {
                        logits[e] = random_in(&seed, -4.0f, 4.0f);
                        bias[e] = random_in(&seed, -0.5f, 0.5f);
                    }
                    agrees_with_the_reference(&r, logits);
                }
            }
}

/* Specification B11.7. */
static void a_selection_bias_chooses_but_does_not_weigh(void **state)
{
    (void)state;
    static const float logits[] = {3, -5, -5, -1, -5}, bias[] = {0, 0, 0, 10, 0},
                       ramp[] = {0, 1, 2, 3};
    struct router r = {.kind = ROUTER_SIGMOID,
                       .n_expert = 5,
                       .n_used = 2,
                       .n_group = 1,
                       .n_group_used = 1,
                       .normalise = true,
                       .scale = 1.0f,
                       .bias = bias};
    struct routed got = run(&r, logits);
    assert_int_equal(got.ids[0], 3);
    assert_int_equal(got.ids[1], 0);
    assert_float_equal(got.weights[0], 0.220170f, 1e-6f);
    assert_float_equal(got.weights[1], 0.779830f, 1e-6f);
    r = (struct router){.kind = ROUTER_SIGMOID,
                        .n_expert = 4,
                        .n_used = 2,
                        .n_group = 1,
                        .n_group_used = 1,
                        .normalise = true,
                        .scale = 2.5f};
    got = run(&r, ramp);
    assert_int_equal(got.ids[0], 3);
    assert_int_equal(got.ids[1], 2);
    assert_float_equal(got.weights[0], 1.298938f, 1e-6f);
    assert_float_equal(got.weights[1], 1.201062f, 1e-6f);
}

static void of_equal_experts_and_groups_the_earlier_are_chosen(void **state)
{
    (void)state;
    static const float same[16] = {0};
    struct router r = {.kind = ROUTER_SIGMOID,
                       .n_expert = 16,
                       .n_used = 4,
                       .n_group = 4,
                       .n_group_used = 2,
                       .normalise = true,
                       .scale = 1.0f};
    struct routed got = run(&r, same);
    for (int32_t j = 0; j < 4; j++) {
        assert_int_equal(got.ids[j], j);
        assert_float_equal(got.weights[j], 0.25f, 0.0f);
    }
}

/* Groups {9, -9} and {2, 1} (as biased sigmoid scores): two best together, or the best alone. */
static void groups_are_judged_by_two_experts_unless_the_router_is_softmax(void **state)
{
    (void)state;
    static const float logits[] = {0, 0, 0, 0}, bias[] = {9, -9, 2, 1};
    struct router r = {.kind = ROUTER_SIGMOID,
                       .n_expert = 4,
                       .n_used = 1,
                       .n_group = 2,
                       .n_group_used = 1,
                       .scale = 1.0f,
                       .bias = bias};
    assert_int_equal(run(&r, logits).ids[0], 2);
    r.kind = ROUTER_SOFTMAX;
    assert_int_equal(run(&r, logits).ids[0], 0);
}

/* Weights that all but vanish are divided by 2^-14 at least, not by their sum. */
static void vanishing_weights_are_not_blown_up(void **state)
{
    (void)state;
    static const float logits[] = {-30, -40};
    struct router r = {.kind = ROUTER_SIGMOID,
                       .n_expert = 2,
                       .n_used = 1,
                       .n_group = 1,
                       .n_group_used = 1,
                       .normalise = true,
                       .scale = 1.0f};
    struct routed got = run(&r, logits);
    assert_int_equal(got.ids[0], 0);
    assert_float_equal(got.weights[0], (float)(exp(-30.0) * 0x1p14), 1e-12f);
}

static void ids_are_in_range_and_distinct_whatever_the_logits(void **state)
{
    (void)state;
    static const float odd[] = {NAN, INFINITY, -INFINITY, 0.0f, 3e38f, -3e38f};
    uint64_t seed = 7;
    for (int round = 0; round < 4000; round++) {
        float logits[MAX_EXPERTS];
        for (uint32_t e = 0; e < 16; e++)
            logits[e] = odd[(size_t)random_in(&seed, 0.0f, 5.99f)];
        struct router r = {.kind = (enum router_kind)(1 + round % 4),
                           .n_expert = 16,
                           .n_used = 5,
                           .n_group = round & 4 ? 4 : 1,
                           .n_group_used = round & 4 ? 2 : 1,
                           .normalise = true,
                           .scale = 1.0f};
        struct routed got = run(&r, logits);
        uint32_t seen = 0;
        for (uint32_t j = 0; j < r.n_used; j++) {
            assert_in_range(got.ids[j], 0, 15);
            assert_int_equal(seen >> got.ids[j] & 1, 0);
            seen |= 1u << got.ids[j];
        }
    }
}

static void a_nan_logit_is_seen_in_the_weights(void **state)
{
    (void)state;
    float logits[] = {1, 2, 3, 4, 5, 6, 7, 8};
    for (int kind = ROUTER_SOFTMAX; kind <= ROUTER_SQRT_SOFTPLUS; kind++)
        for (uint32_t n_group = 1; n_group <= 4; n_group *= 4)
            for (int at = 0; at < 8; at++) {
                float saved = logits[at];
                logits[at] = NAN;
                struct router r = {.kind = (enum router_kind)kind,
                                   .n_expert = 8,
                                   .n_used = 2,
                                   .n_group = n_group,
                                   .n_group_used = 1,
                                   .scale = 1.0f};
                struct routed got = run(&r, logits);
                assert_true(isnan(got.weights[0]));
                logits[at] = saved;
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_of_router_agrees_with_the_reference),
        cmocka_unit_test(a_selection_bias_chooses_but_does_not_weigh),
        cmocka_unit_test(of_equal_experts_and_groups_the_earlier_are_chosen),
        cmocka_unit_test(groups_are_judged_by_two_experts_unless_the_router_is_softmax),
        cmocka_unit_test(vanishing_weights_are_not_blown_up),
        cmocka_unit_test(ids_are_in_range_and_distinct_whatever_the_logits),
        cmocka_unit_test(a_nan_logit_is_seen_in_the_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
