/*
 * Samplers against definitions written out here, and what they refuse.
 */
#include "test.h"

#include <math.h>

enum { N = 1000 };
static linnet_error err;

static linnet_sampler *sampler_of(float temp, int32_t k, float p, float min_p, uint64_t seed)
{
    linnet_sampler_options o;
    linnet_sampler *s;
    linnet_sampler_defaults(&o);
    o.temp = temp;
    o.top_k = k;
    o.top_p = p;
    o.min_p = min_p;
    o.seed = seed;
    assert_ok(linnet_sampler_create(&o, &s, &err), err);
    return s;
}

static int32_t pick(linnet_sampler *s, const float *logits, size_t n)
{
    int32_t id = -1;
    assert_ok(linnet_sampler_pick(s, logits, n, &id, &err), err);
    return id;
}

/* Distinct logits in a scrambled order: id -> rank (0 = likeliest) is 77 * id mod N. */
static void make_logits(float *logits)
{
    for (int i = 0; i < N; i++)
        logits[i] = -0.01f * (float)((i * 77) % N);
}

static int rank(int32_t id)
{
    return id * 77 % N;
}

static void greedy_takes_the_likeliest_and_of_equals_the_lowest_id(void **state)
{
    (void)state;
    float logits[5] = {1.0f, 3.0f, -2.0f, 3.0f, 2.9f};
    linnet_sampler *s = sampler_of(0.0f, 40, 0.95f, 0.05f, 1);
    assert_int_equal(pick(s, logits, 5), 1);
    linnet_sampler_free(s);
}

static void top_k_keeps_exactly_the_k_likeliest(void **state)
{
    (void)state;
    float logits[N];
    bool seen[N] = {false};
    make_logits(logits);
    linnet_sampler *s = sampler_of(1.0f, 7, 1.0f, 0.0f, 3);
    for (int i = 0; i < 2000; i++)
        seen[rank(pick(s, logits, N))] = true;
    for (int i = 0; i < N; i++)
        assert_int_equal(seen[i], i < 7);
    linnet_sampler_free(s);
}

static void top_p_keeps_the_shortest_prefix_that_reaches_p(void **state)
{
    (void)state;
    float logits[N];
    double total = 0, sum = 0;
    int keep = 0, top = 0;
    make_logits(logits);
    for (int i = 0; i < N; i++)
        total += exp(-0.01 * i);
    while (sum < 0.3 * total)
        sum += exp(-0.01 * keep++);
    linnet_sampler *s = sampler_of(1.0f, 0, 0.3f, 0.0f, 4);
    for (int i = 0; i < 20000; i++) {
        int r = rank(pick(s, logits, N));
        top = r > top ? r : top;
    }
    assert_int_equal(top, keep - 1);
    linnet_sampler_free(s);
}

static void min_p_drops_what_is_too_unlikely_beside_the_likeliest(void **state)
{
    (void)state;
    float logits[N];
    make_logits(logits);
    /* exp(-0.01 r) >= 0.5 for r <= 69 */
    linnet_sampler *s = sampler_of(1.0f, 0, 1.0f, 0.5f, 5);
    bool last = false;
    for (int i = 0; i < 20000; i++) {
        int r = rank(pick(s, logits, N));
        assert_true(r <= 69);
        last |= r == 69;
    }
    assert_true(last);
    linnet_sampler_free(s);
}

static void frequencies_follow_the_temperature(void **state)
{
    (void)state;
    const float logits[3] = {0.0f, 1.0f, 2.0f};
    const double temps[] = {0.5, 1.0, 2.0};
    for (size_t t = 0; t < 3; t++) {
        linnet_sampler *s = sampler_of((float)temps[t], 0, 1.0f, 0.0f, 6);
        double total = 0, want[3], n = 60000;
        int count[3] = {0};
        for (int i = 0; i < 3; i++)
            total += want[i] = exp((double)logits[i] / temps[t]);
        for (int i = 0; i < (int)n; i++)
            count[pick(s, logits, 3)]++;
        for (int i = 0; i < 3; i++) {
            double p = want[i] / total, sigma = sqrt(p * (1 - p) / n);
            assert_true(fabs(count[i] / n - p) < 5 * sigma);
        }
        linnet_sampler_free(s);
    }
}

static void the_same_seed_gives_the_same_tokens_and_another_seed_others(void **state)
{
    (void)state;
    float logits[N];
    make_logits(logits);
    linnet_sampler *a = sampler_of(1.0f, 0, 1.0f, 0.0f, 7), *b = sampler_of(1.0f, 0, 1.0f, 0.0f, 7);
    linnet_sampler *c = sampler_of(1.0f, 0, 1.0f, 0.0f, 8);
    int same = 0;
    for (int i = 0; i < 100; i++) {
        int32_t id = pick(a, logits, N);
        assert_int_equal(pick(b, logits, N), id);
        same += pick(c, logits, N) == id;
    }
    assert_true(same < 20);
    linnet_sampler_free(a);
    linnet_sampler_free(b);
    linnet_sampler_free(c);
}

static void numbers_that_are_none_are_an_error(void **state)
{
    (void)state;
    const float bad[] = {NAN, INFINITY, -NAN};
    for (float temp = 0.0f; temp < 2.0f; temp += 1.0f) {
        linnet_sampler *s = sampler_of(temp, 40, 0.9f, 0.05f, 9);
        int32_t id = -7;
        for (size_t i = 0; i < 3; i++) {
            float logits[4] = {1.0f, 2.0f, 0.5f, 0.0f};
            logits[2] = bad[i];
            assert_int_equal(linnet_sampler_pick(s, logits, 4, &id, &err), LINNET_NUMERIC);
        }
        float none[3] = {-INFINITY, -INFINITY, -INFINITY};
        assert_int_equal(linnet_sampler_pick(s, none, 3, &id, &err), LINNET_NUMERIC);
        assert_int_equal(id, -7);
        none[1] = 0.0f;
        assert_int_equal(pick(s, none, 3), 1);
        linnet_sampler_free(s);
    }
}

static void options_out_of_range_are_named(void **state)
{
    (void)state;
    linnet_sampler_options o;
    linnet_sampler *s;
    linnet_sampler_defaults(&o);
    o.temp = -1.0f;
    assert_int_equal(linnet_sampler_create(&o, &s, &err), LINNET_INVALID);
    assert_non_null(strstr(err.text, "temp"));
    linnet_sampler_defaults(&o);
    o.top_p = 0.0f;
    assert_int_equal(linnet_sampler_create(&o, &s, &err), LINNET_INVALID);
    linnet_sampler_defaults(&o);
    o.min_p = NAN;
    assert_int_equal(linnet_sampler_create(&o, &s, &err), LINNET_INVALID);
    linnet_sampler_defaults(&o);
    o.top_k = -1;
    assert_int_equal(linnet_sampler_create(&o, &s, &err), LINNET_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_takes_the_likeliest_and_of_equals_the_lowest_id),
        cmocka_unit_test(top_k_keeps_exactly_the_k_likeliest),
        cmocka_unit_test(top_p_keeps_the_shortest_prefix_that_reaches_p),
        cmocka_unit_test(min_p_drops_what_is_too_unlikely_beside_the_likeliest),
        cmocka_unit_test(frequencies_follow_the_temperature),
        cmocka_unit_test(the_same_seed_gives_the_same_tokens_and_another_seed_others),
        cmocka_unit_test(numbers_that_are_none_are_an_error),
        cmocka_unit_test(options_out_of_range_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
