/*
 * What a run must read and compute at least, counted from a plan.
 */
#include "mkgguf.h"

#include "model/cost.h"
#include "model/model.h"

static linnet_model *open_model(const struct mkgguf *g)
{
    char path[64];
    linnet_error err;
    linnet_model *m = NULL;
    linnet_model_options mo;
    linnet_model_defaults(&mo);
    mo.plan_only = true;
    mo.threads = 1;
    mkgguf_temp(g, path);
    assert_ok(linnet_model_open(path, &mo, &m, &err), err);
    unlink(path);
    return m;
}

/* Counts that come by different ways of rounding. */
static void assert_same(double a, double b)
{
    if (fabs(a - b) > 0.5)
        fail_msg("%f is not %f", a, b);
}

static struct cost cost_of(const linnet_model *m, uint64_t n_seqs, uint64_t n_rows, uint64_t n_out,
                           uint64_t pos)
{
    struct cost_run r = {n_seqs, n_rows, n_out, pos, KV_F16, KV_F16};
    return plan_cost(&m->plan, &r);
}

static void one_token_reads_the_weights_of_a_step_and_the_keys_and_values_so_far(void **state)
{
    (void)state;
    struct mkgguf g = mkgguf_defaults("llama");
    linnet_model *m = open_model(&g);
    const double row =
        2.0 * 2.0 * g.d_head * g.n_head_kv * g.n_layer; /* key and value of a position, f16 */
    assert_same(cost_of(m, 1, 1, 1, 0).bytes, (double)m->facts.step_bytes + row);
    assert_same(cost_of(m, 1, 1, 1, 99).bytes, (double)m->facts.step_bytes + 100 * row);
    linnet_model_close(m);
}

static void sequences_share_weights_but_not_keys_and_values(void **state)
{
    (void)state;
    struct mkgguf g = mkgguf_defaults("llama");
    linnet_model *m = open_model(&g);
    const double kv = cost_of(m, 1, 1, 1, 99).bytes - (double)m->facts.step_bytes;
    assert_same(cost_of(m, 4, 1, 4, 99).bytes, (double)m->facts.step_bytes + 4 * kv);
    linnet_model_close(m);
}

static void the_output_matrix_counts_for_wanted_rows_only(void **state)
{
    (void)state;
    struct mkgguf g = mkgguf_defaults("llama");
    linnet_model *m = open_model(&g);
    const double head = 2.0 * g.n_vocab * g.d_model;
    struct cost none = cost_of(m, 1, 7, 0, 0), two = cost_of(m, 1, 7, 2, 0);
    assert_same(two.f32_ops - none.f32_ops, 2 * head);
    assert_same(two.bytes - none.bytes, 4.0 * g.n_vocab * g.d_model);
    linnet_model_close(m);
}

static void products_are_counted_by_the_arithmetic_of_their_weights(void **state)
{
    (void)state;
    struct mkgguf g = mkgguf_defaults("llama");
    linnet_model *f32 = open_model(&g);
    g.type = QUANT_Q8_0;
    linnet_model *q8 = open_model(&g);
    struct cost a = cost_of(f32, 1, 3, 1, 0), b = cost_of(q8, 1, 3, 1, 0);
    assert_true(a.int8_ops == 0.0 && b.f32_ops == 0.0);
    assert_same(a.f32_ops, b.int8_ops);
    linnet_model_close(f32);
    linnet_model_close(q8);
}

static void a_mixture_reads_the_experts_that_its_rows_are_likely_to_use(void **state)
{
    (void)state;
    struct mkgguf g = mkgguf_defaults("qwen3moe");
    linnet_model *m = open_model(&g);
    const double expert = 3.0 * g.n_layer * g.d_model * g.n_ff_expert * 4.0;
    const double kv = 2.0 * 2.0 * g.d_head * g.n_head_kv * g.n_layer;
    const double rest = (double)m->facts.step_bytes - 2.0 * expert; /* 2 of 8 are used */
    assert_same(cost_of(m, 1, 1, 1, 0).bytes - kv, (double)m->facts.step_bytes);
    /* an expert is not used by two rows with probability (3/4)^2 */
    assert_same(cost_of(m, 1, 2, 1, 0).bytes - 2 * kv, rest + 8.0 * (1.0 - 9.0 / 16.0) * expert);
    assert_same(cost_of(m, 1, 400, 1, 0).bytes - 400 * kv, rest + 8.0 * expert);
    linnet_model_close(m);
}

static void add_window(void *arg, struct mkgguf_out *o)
{
    (void)arg;
    mkgguf_u32(o, "gemma3.attention.sliding_window", 32);
}

static void keys_behind_a_window_are_not_read(void **state)
{
    (void)state;
    struct mkgguf g = mkgguf_defaults("gemma3"); /* fewer than six layers: all have the window */
    g.more_keys = add_window;
    linnet_model *m = open_model(&g);
    const double row = 2.0 * 2.0 * g.d_head * g.n_head_kv * g.n_layer;
    assert_same(cost_of(m, 1, 1, 1, 31).bytes, (double)m->facts.step_bytes + 32 * row);
    assert_same(cost_of(m, 1, 1, 1, 300).bytes, (double)m->facts.step_bytes + 32 * row);
    assert_same(cost_of(m, 1, 8, 1, 300).bytes, (double)m->facts.step_bytes + 39 * row);
    linnet_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_token_reads_the_weights_of_a_step_and_the_keys_and_values_so_far),
        cmocka_unit_test(sequences_share_weights_but_not_keys_and_values),
        cmocka_unit_test(the_output_matrix_counts_for_wanted_rows_only),
        cmocka_unit_test(products_are_counted_by_the_arithmetic_of_their_weights),
        cmocka_unit_test(a_mixture_reads_the_experts_that_its_rows_are_likely_to_use),
        cmocka_unit_test(keys_behind_a_window_are_not_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
