/*
 * `linnet bench`: which tests it runs and what it says about them. How fast they are is not tested.
 */
#include "mkgguf.h"
#include "program.h"

#include <jansson.h>

static char model[64];

static int begin(void **state)
{
    struct mkgguf g = mkgguf_defaults("llama");
    mkgguf_temp(&g, model);
    return program_begin(state);
}

static int end(void **state)
{
    unlink(model);
    return program_end(state);
}

static json_t *bench_json(const char *opts)
{
    char args[300];
    snprintf(args, sizeof args, "bench %s --json -q -t 2 %s", model, opts);
    program_run(args, 0);
    json_t *j = json_loads(program_out, 0, NULL);
    assert_non_null(j);
    return j;
}

static json_int_t number(const json_t *test, const char *key)
{
    return json_integer_value(json_object_get(test, key));
}

static void tests_are_every_prompt_then_every_depth_for_each_number_of_sequences(void **state)
{
    (void)state;
    json_t *j = bench_json("-p 3,7 -n 2 -d 0,5 --parallel 1,2 -r 2"),
           *tests = json_object_get(j, "tests");
    static const json_int_t want[][3] = {{3, 0, 0}, {7, 0, 0}, {2, 0, 1},
                                         {2, 5, 1}, {2, 0, 2}, {2, 5, 2}};
    assert_int_equal(json_array_size(tests), 6);
    for (size_t i = 0; i < 6; i++) {
        const json_t *t = json_array_get(tests, i);
        assert_string_equal(json_string_value(json_object_get(t, "test")),
                            i < 2 ? "prompt" : "generate");
        assert_int_equal(number(t, "tokens"), want[i][0]);
        assert_int_equal(number(t, "after"), want[i][1]);
        assert_int_equal(number(t, "at_once"), want[i][2]);
    }
    json_decref(j);
}

static void each_test_has_a_time_for_each_run_and_its_tokens_per_second(void **state)
{
    (void)state;
    json_t *j = bench_json("-p 0 -n 4 -d 0 --parallel 3 -r 3");
    const json_t *t = json_array_get(json_object_get(j, "tests"), 0),
                 *s = json_object_get(t, "seconds");
    assert_int_equal(json_array_size(s), 3);
    double lo = 1e9, hi = 0.0;
    for (size_t i = 0; i < 3; i++) {
        double x = json_real_value(json_array_get(s, i));
        lo = x < lo ? x : lo;
        hi = x > hi ? x : hi;
    }
    const double speed = json_real_value(json_object_get(t, "tokens_per_second"));
    assert_true(lo > 0.0);
    assert_true(speed >= 12.0 / hi * 0.999 && speed <= 12.0 / lo * 1.001);
    json_decref(j);
}

static void the_machine_has_limits_and_every_test_says_which_binds(void **state)
{
    (void)state;
    json_t *j = bench_json("-p 16 -n 2 -d 0 -r 1");
    const json_t *machine = json_object_get(j, "machine");
    static const char *const keys[] = {"read_bytes_per_second", "int8_ops_per_second",
                                       "f32_ops_per_second"};
    for (size_t i = 0; i < 3; i++)
        assert_true(json_real_value(json_object_get(machine, keys[i])) > 1e6);
    const json_t *generate = json_array_get(json_object_get(j, "tests"), 1);
    assert_non_null(json_object_get(generate, "bound"));
    assert_true(json_real_value(json_object_get(generate, "limit")) > 0.0);
    json_decref(j);
}

static void from_stdin_answers_each_line_with_seconds_and_the_limit(void **state)
{
    (void)state;
    char args[600], lines[300];
    snprintf(lines, sizeof lines, "%s/lines", program_folder);
    snprintf(args, sizeof args, "bench %s -q -t 1 --from-stdin <%s", model, lines);
    FILE *f = fopen(lines, "w");
    assert_non_null(f);
    fputs("prompt 5\nlimits\ngenerate 3 700 2\nprompt 600\n",
          f); /* 700 needs a larger context than the first */
    fclose(f);
    program_run(args, 0);
    double x[9];
    assert_int_equal(sscanf(program_out, "%lf %lf\n%lf %lf %lf\n%lf %lf\n%lf %lf\n", &x[0], &x[1],
                            &x[2], &x[3], &x[4], &x[5], &x[6], &x[7], &x[8]),
                     9);
    for (size_t i = 0; i < 9; i++)
        assert_true(i == 1 ? x[i] == 0.0
                           : x[i] > 0.0); /* no limit before the machine was measured */
}

static void what_is_no_test_is_refused(void **state)
{
    (void)state;
    char args[300];
    static const char *const bad[] = {"-p x", "-p 1,,2", "-d -1", "--parallel 0", "-p 0 -n 0"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(args, sizeof args, "bench %s -q %s", model, bad[i]);
        program_run(args, 2);
    }
    snprintf(args, sizeof args, "bench %s -q --from-stdin </dev/null", model);
    program_run(args, 0);
    assert_string_equal(program_out, "");
    snprintf(args, sizeof args, "bench %s -q --from-stdin <%s", model, model);
    program_run(args, 1);
    program_assert_said("is no test");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tests_are_every_prompt_then_every_depth_for_each_number_of_sequences),
        cmocka_unit_test(each_test_has_a_time_for_each_run_and_its_tokens_per_second),
        cmocka_unit_test(the_machine_has_limits_and_every_test_says_which_binds),
        cmocka_unit_test(from_stdin_answers_each_line_with_seconds_and_the_limit),
        cmocka_unit_test(what_is_no_test_is_refused),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
