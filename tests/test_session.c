/*
 * Contexts, sessions and runs: lengths, going back, forking, limits, cancelling, observing.
 */
#include "mkgguf.h"

static linnet_model *model;
static linnet_context *ctx;
static linnet_error err;

enum { N_CTX = 200, N_TOKENS = 150 };
static int32_t tokens[N_TOKENS];
static size_t n_vocab;

static int open_all(void **state)
{
    (void)state;
    char path[64];
    struct mkgguf g = mkgguf_defaults("llama");
    mkgguf_temp(&g, path);
    linnet_context_options co;
    linnet_context_defaults(&co);
    co.n_ctx = N_CTX;
    co.n_batch = 32;
    linnet_model_options mo;
    linnet_model_defaults(&mo);
    mo.threads = 2;
    assert_ok(linnet_model_open(path, &mo, &model, &err), err);
    unlink(path);
    assert_ok(linnet_context_create(model, &co, &ctx, &err), err);
    linnet_model_info info;
    linnet_model_get_info(model, &info);
    n_vocab = info.n_vocab;
    for (int i = 0; i < N_TOKENS; i++)
        tokens[i] = (i * 37 + 11) % (int32_t)n_vocab;
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    linnet_context_free(ctx);
    linnet_model_close(model);
    return 0;
}

static linnet_session *session_of(size_t n)
{
    linnet_session *s;
    assert_ok(linnet_session_create(ctx, &s, &err), err);
    if (n) {
        linnet_item item = {s, tokens, n, LINNET_WANT_NONE};
        assert_ok(linnet_run(ctx, &item, 1, &err), err);
    }
    return s;
}

/* Logits after running tokens [from, to) on s. Static: valid until the next call. */
static const float *go_on(linnet_session *s, size_t from, size_t to)
{
    static float copy[4096];
    linnet_item item = {s, tokens + from, to - from, LINNET_WANT_LAST};
    assert_ok(linnet_run(ctx, &item, 1, &err), err);
    memcpy(copy, linnet_logits(ctx, 0, to - from - 1), n_vocab * sizeof(float));
    return copy;
}

static void a_rolled_back_session_goes_on_as_if_it_had_never_been_longer(void **state)
{
    (void)state;
    float want[4096];
    linnet_session *a = session_of(70);
    memcpy(want, go_on(a, 70, 80), n_vocab * sizeof(float));
    linnet_session *b = session_of(130);
    assert_ok(linnet_session_rollback(b, 70, &err), err);
    assert_int_equal(linnet_session_length(b), 70);
    assert_memory_equal(go_on(b, 70, 80), want, n_vocab * sizeof(float));
    assert_int_equal(linnet_session_rollback(b, 81, &err), LINNET_INVALID);
    assert_int_equal(linnet_session_length(b), 80);
    assert_ok(linnet_session_rollback(b, 0, &err), err);
    assert_memory_equal(go_on(b, 0, 80), want, n_vocab * sizeof(float));
    linnet_session_free(a);
    linnet_session_free(b);
}

static void a_fork_and_its_original_do_not_disturb_each_other(void **state)
{
    (void)state;
    float want_a[4096], want_b[4096];
    linnet_session *s = session_of(100), *f;
    memcpy(want_a, go_on(s, 100, 120), n_vocab * sizeof(float));
    linnet_session_free(s);
    s = session_of(100);
    memcpy(want_b, go_on(s, 20, 40), n_vocab * sizeof(float));
    linnet_session_free(s);

    s = session_of(100);
    assert_ok(linnet_session_fork(s, &f, &err), err);
    assert_int_equal(linnet_session_length(f), 100);
    assert_memory_equal(linnet_session_tokens(f), tokens, 100 * sizeof *tokens);
    /* 100 lies inside a page: both write to it */
    assert_memory_equal(go_on(f, 20, 40), want_b, n_vocab * sizeof(float));
    assert_memory_equal(go_on(s, 100, 120), want_a, n_vocab * sizeof(float));
    linnet_session_free(s);
    assert_ok(linnet_session_rollback(f, 100, &err), err);
    assert_memory_equal(go_on(f, 20, 40), want_b, n_vocab * sizeof(float));
    linnet_session_free(f);
}

static void a_full_context_is_an_error_before_anything_is_written(void **state)
{
    (void)state;
    float want[4096];
    linnet_session *s = session_of(140);
    int32_t many[N_CTX];
    for (int i = 0; i < N_CTX; i++)
        many[i] = tokens[i % N_TOKENS];
    linnet_item too_long = {s, many, N_CTX - 140 + 1, LINNET_WANT_NONE};
    assert_int_equal(linnet_run(ctx, &too_long, 1, &err), LINNET_CONTEXT_FULL);
    assert_non_null(strstr(err.text, "61 tokens do not fit after 140 in a context of 200"));
    assert_int_equal(linnet_session_length(s), 140);
    memcpy(want, go_on(s, 140, 150), n_vocab * sizeof(float));
    assert_ok(linnet_session_rollback(s, 140, &err), err);
    linnet_item exact = {s, many, N_CTX - 140, LINNET_WANT_NONE};
    assert_ok(linnet_run(ctx, &exact, 1, &err), err);
    linnet_item one = {s, many, 1, LINNET_WANT_NONE};
    assert_int_equal(linnet_run(ctx, &one, 1, &err), LINNET_CONTEXT_FULL);
    assert_ok(linnet_session_rollback(s, 140, &err), err);
    assert_memory_equal(go_on(s, 140, 150), want, n_vocab * sizeof(float));
    linnet_session_free(s);
}

static void one_bad_item_stops_the_run_and_changes_no_session(void **state)
{
    (void)state;
    linnet_session *a = session_of(10), *b = session_of(20);
    int32_t bad[] = {1, (int32_t)n_vocab}, negative[] = {-1};
    linnet_item items[2] = {{a, tokens, 5, LINNET_WANT_LAST}, {b, bad, 2, LINNET_WANT_LAST}};
    assert_int_equal(linnet_run(ctx, items, 2, &err), LINNET_INVALID);
    assert_non_null(strstr(err.text, "item 1: token 1 is 300"));
    items[1].tokens = negative;
    items[1].n_tokens = 1;
    assert_int_equal(linnet_run(ctx, items, 2, &err), LINNET_INVALID);
    items[1] = items[0];
    assert_int_equal(linnet_run(ctx, items, 2, &err), LINNET_INVALID);
    assert_non_null(strstr(err.text, "twice"));
    items[1] = (linnet_item){b, tokens, 0, LINNET_WANT_LAST};
    assert_int_equal(linnet_run(ctx, items, 2, &err), LINNET_INVALID);
    items[1] = (linnet_item){NULL, tokens, 1, LINNET_WANT_LAST};
    assert_int_equal(linnet_run(ctx, items, 2, &err), LINNET_INVALID);
    assert_int_equal(linnet_session_length(a), 10);
    assert_int_equal(linnet_session_length(b), 20);
    assert_ok(linnet_run(ctx, items, 1, &err), err);
    linnet_session_free(a);
    linnet_session_free(b);
}

static void logits_are_there_for_wanted_tokens_alone(void **state)
{
    (void)state;
    linnet_session *a = session_of(0), *b = session_of(0), *c = session_of(0);
    linnet_item items[3] = {{a, tokens, 40, LINNET_WANT_ALL},
                            {b, tokens, 40, LINNET_WANT_NONE},
                            {c, tokens, 40, LINNET_WANT_LAST}};
    assert_ok(linnet_run(ctx, items, 3, &err), err);
    assert_non_null(linnet_logits(ctx, 0, 0));
    assert_null(linnet_logits(ctx, 0, 40));
    assert_null(linnet_logits(ctx, 1, 39));
    assert_null(linnet_logits(ctx, 2, 38));
    assert_null(linnet_logits(ctx, 3, 0));
    assert_memory_equal(linnet_logits(ctx, 2, 39), linnet_logits(ctx, 0, 39),
                        n_vocab * sizeof(float));
    linnet_session_free(a);
    linnet_session_free(b);
    linnet_session_free(c);
}

static bool cancel_at_layer_1(void *user, uint32_t layer, float *hidden, size_t n_rows,
                              size_t width)
{
    (void)hidden, (void)n_rows, (void)width;
    if (layer == 1)
        linnet_context_cancel(user);
    return false;
}

static void a_cancelled_run_leaves_the_session_as_it_was(void **state)
{
    (void)state;
    float want[4096];
    linnet_session *s = session_of(60);
    memcpy(want, go_on(s, 60, 90), n_vocab * sizeof(float));
    assert_ok(linnet_session_rollback(s, 60, &err), err);
    linnet_observer o;
    linnet_observer_defaults(&o);
    o.before_layer = cancel_at_layer_1;
    o.user = ctx;
    linnet_context_observe(ctx, &o);
    linnet_item item = {s, tokens + 60, 30, LINNET_WANT_LAST};
    assert_int_equal(linnet_run(ctx, &item, 1, &err), LINNET_CANCELLED);
    linnet_context_observe(ctx, NULL);
    assert_int_equal(linnet_session_length(s), 60);
    assert_memory_equal(go_on(s, 60, 90), want, n_vocab * sizeof(float));
    linnet_session_free(s);
}

struct seen {
    uint32_t layers[8];
    size_t n;
    int32_t captured_layer[8];
    size_t n_captured, rows, width;
    float first[8], hidden[64];
};

static bool note_layer(void *user, uint32_t layer, float *hidden, size_t n_rows, size_t width)
{
    struct seen *s = user;
    s->layers[s->n++] = layer;
    s->rows = n_rows;
    s->width = width;
    memcpy(s->hidden, hidden, width * sizeof *hidden);
    return false;
}

static void note_values(void *user, int32_t layer, const float *values, size_t n_rows, size_t width)
{
    struct seen *s = user;
    s->captured_layer[s->n_captured] = layer;
    s->first[s->n_captured++] = values[0];
    assert_int_equal(n_rows, 7);
    assert_int_equal(width, 64);
}

static void observing_changes_no_bit_and_sees_every_layer_once(void **state)
{
    (void)state;
    float want[4096];
    linnet_session *s = session_of(0);
    memcpy(want, go_on(s, 0, 7), n_vocab * sizeof(float));
    assert_ok(linnet_session_rollback(s, 0, &err), err);
    struct seen seen = {.n = 0};
    linnet_observer o;
    linnet_observer_defaults(&o);
    o.user = &seen;
    o.before_layer = note_layer;
    o.capture = "attn_norm";
    o.captured = note_values;
    linnet_context_observe(ctx, &o);
    assert_memory_equal(go_on(s, 0, 7), want, n_vocab * sizeof(float));
    linnet_context_observe(ctx, NULL);
    assert_int_equal(seen.n, 2);
    assert_int_equal(seen.layers[0], 0);
    assert_int_equal(seen.layers[1], 1);
    assert_int_equal(seen.rows, 7);
    assert_int_equal(seen.width, 64);
    assert_int_equal(seen.n_captured, 2);
    assert_int_equal(seen.captured_layer[0], 0);
    assert_int_equal(seen.captured_layer[1], 1);
    /* attn_norm of row 0 is its hidden state over its root mean square, times the weight: the sign
     * stays */
    assert_true((seen.first[1] > 0) == (seen.hidden[0] > 0));
    linnet_session_free(s);
}

static bool skip_layer_1(void *user, uint32_t layer, float *hidden, size_t n_rows, size_t width)
{
    (void)user, (void)hidden, (void)n_rows, (void)width;
    return layer == 1;
}

static void an_early_exit_is_the_last_layers_skipped(void **state)
{
    (void)state;
    float skipped[4096];
    linnet_session *s = session_of(0);
    const float *whole = go_on(s, 0, 9);
    memcpy(skipped, whole, n_vocab * sizeof(float));
    linnet_observer o;
    linnet_observer_defaults(&o);
    o.before_layer = skip_layer_1;
    linnet_context_observe(ctx, &o);
    assert_ok(linnet_session_rollback(s, 0, &err), err);
    const float *got = go_on(s, 0, 9);
    assert_memory_not_equal(got, skipped, n_vocab * sizeof(float));
    memcpy(skipped, got, n_vocab * sizeof(float));
    linnet_observer_defaults(&o);
    o.exit_layer = 1;
    linnet_context_observe(ctx, &o);
    assert_ok(linnet_session_rollback(s, 0, &err), err);
    assert_memory_equal(go_on(s, 0, 9), skipped, n_vocab * sizeof(float));
    linnet_context_observe(ctx, NULL);
    linnet_session_free(s);
}

static void a_skipped_layer_still_stores_its_keys(void **state)
{
    (void)state;
    float want[4096];
    linnet_observer o;
    linnet_session *s = session_of(0);
    go_on(s, 0, 10);
    memcpy(want, go_on(s, 10, 20), n_vocab * sizeof(float));
    /* layer 1 is the last: its keys come from its input, which skipping it does not change */
    assert_ok(linnet_session_rollback(s, 0, &err), err);
    linnet_observer_defaults(&o);
    o.exit_layer = 1;
    linnet_context_observe(ctx, &o);
    go_on(s, 0, 10);
    linnet_context_observe(ctx, NULL);
    assert_memory_equal(go_on(s, 10, 20), want, n_vocab * sizeof(float));
    linnet_session_free(s);
}

static uint8_t *read_file(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    *n = (size_t)ftell(f);
    rewind(f);
    uint8_t *p = malloc(*n + 64);
    assert_int_equal(fread(p, 1, *n, f), *n);
    fclose(f);
    return p;
}

static void write_file(const char *path, const uint8_t *p, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    fclose(f);
}

static void a_damaged_saved_session_is_refused_and_harms_no_other(void **state)
{
    (void)state;
    char path[] = "/tmp/linnet-session-XXXXXX";
    float want[4096];
    size_t n;
    linnet_session *s = session_of(70), *loaded;
    close(mkstemp(path));
    assert_ok(linnet_session_save(s, path, &err), err);
    memcpy(want, go_on(s, 70, 75), n_vocab * sizeof(float));
    uint8_t *whole = read_file(path, &n);
    for (size_t i = 0; i < n; i += i < 200 || i + 50 > n ? 1 : 131) {
        whole[i] ^= (uint8_t)(1u << i % 8);
        write_file(path, whole, n);
        if (linnet_session_load(ctx, path, &loaded, &err) == LINNET_OK)
            fail_msg("a file with byte %zu changed was loaded", i);
        whole[i] ^= (uint8_t)(1u << i % 8);
    }
    const size_t sizes[] = {0, 1, 55, 56, 63, 64, 200, n / 2, n - 1, n + 1};
    whole[n] = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        write_file(path, whole, sizes[i]);
        if (linnet_session_load(ctx, path, &loaded, &err) == LINNET_OK)
            fail_msg("a file of %zu bytes instead of %zu was loaded", sizes[i], n);
    }
    assert_ok(linnet_session_rollback(s, 70, &err), err);
    assert_memory_equal(go_on(s, 70, 75), want, n_vocab * sizeof(float));
    write_file(path, whole, n);
    assert_ok(linnet_session_load(ctx, path, &loaded, &err), err);
    assert_int_equal(linnet_session_length(loaded), 70);
    assert_memory_equal(linnet_session_tokens(loaded), tokens, 70 * sizeof *tokens);
    assert_memory_equal(go_on(loaded, 70, 75), want, n_vocab * sizeof(float));
    linnet_session_free(s);
    linnet_session_free(loaded);
    unlink(path);
    free(whole);
}

static void a_session_of_another_model_or_kind_of_cache_is_refused(void **state)
{
    (void)state;
    char path[] = "/tmp/linnet-session-XXXXXX", file[64];
    linnet_session *s = session_of(10), *loaded;
    linnet_model *other;
    linnet_context *c;
    linnet_context_options co;
    close(mkstemp(path));
    assert_ok(linnet_session_save(s, path, &err), err);
    linnet_session_free(s);
    linnet_context_defaults(&co);
    co.n_ctx = N_CTX;
    co.kv_v = LINNET_KV_F32;
    assert_ok(linnet_context_create(model, &co, &c, &err), err);
    assert_int_equal(linnet_session_load(c, path, &loaded, &err), LINNET_MISMATCH);
    linnet_context_free(c);
    linnet_context_defaults(&co);
    co.n_ctx = 9;
    assert_ok(linnet_context_create(model, &co, &c, &err), err);
    assert_int_equal(linnet_session_load(c, path, &loaded, &err), LINNET_CONTEXT_FULL);
    linnet_context_free(c);
    /* other weights, and the same weights turned at another base */
    for (int i = 0; i < 2; i++) {
        struct mkgguf g = mkgguf_defaults("llama");
        g.seed = i == 0 ? 2 : 1;
        g.rope_base = i == 0 ? 10000.0f : 20000.0f;
        mkgguf_temp(&g, file);
        assert_ok(linnet_model_open(file, NULL, &other, &err), err);
        unlink(file);
        assert_ok(linnet_context_create(other, NULL, &c, &err), err);
        assert_int_equal(linnet_session_load(c, path, &loaded, &err), LINNET_MISMATCH);
        linnet_context_free(c);
        linnet_model_close(other);
    }
    unlink(path);
}

static void a_plan_only_model_is_described_and_not_run(void **state)
{
    (void)state;
    char path[64], line[400];
    struct mkgguf g = mkgguf_defaults("llama");
    mkgguf_temp(&g, path);
    linnet_model_options mo;
    linnet_model *m;
    linnet_context *c;
    linnet_memory memory;
    linnet_model_defaults(&mo);
    mo.plan_only = true;
    assert_ok(linnet_model_open(path, &mo, &m, &err), err);
    unlink(path);
    assert_true(linnet_model_plan_line(m, 0, line, sizeof line));
    assert_int_equal(linnet_context_create(m, NULL, &c, &err), LINNET_INVALID);
    linnet_context_options co;
    linnet_context_defaults(&co);
    co.n_ctx = 128;
    co.kv_k = co.kv_v = LINNET_KV_F32;
    assert_ok(linnet_context_memory(m, &co, &memory, &err), err);
    /* 128 positions x 2 layers x (keys + values) of 2 heads x 16 x 4 bytes */
    assert_int_equal(memory.kv, 128 * 2 * 2 * 2 * 16 * 4);
    assert_int_equal(memory.state, 0);
    assert_true(memory.work > 0);
    linnet_model_close(m);
}

static void options_out_of_range_are_named(void **state)
{
    (void)state;
    linnet_context_options co;
    linnet_context *c;
    linnet_context_defaults(&co);
    co.n_batch = 0;
    assert_int_equal(linnet_context_create(model, &co, &c, &err), LINNET_INVALID);
    assert_non_null(strstr(err.text, "n_batch"));
    linnet_context_defaults(&co);
    co.kv_k = (linnet_kv_type)9;
    assert_int_equal(linnet_context_create(model, &co, &c, &err), LINNET_INVALID);
    co = (linnet_context_options){0};
    assert_int_equal(linnet_context_create(model, &co, &c, &err), LINNET_INVALID);
    assert_non_null(strstr(err.text, "linnet_context_defaults"));
    /* heads of 16 are no whole blocks of 32 */
    linnet_context_defaults(&co);
    co.kv_k = LINNET_KV_Q8_0;
    assert_int_equal(linnet_context_create(model, &co, &c, &err), LINNET_UNSUPPORTED);
    assert_non_null(strstr(err.text, "q8_0"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rolled_back_session_goes_on_as_if_it_had_never_been_longer),
        cmocka_unit_test(a_fork_and_its_original_do_not_disturb_each_other),
        cmocka_unit_test(a_full_context_is_an_error_before_anything_is_written),
        cmocka_unit_test(one_bad_item_stops_the_run_and_changes_no_session),
        cmocka_unit_test(logits_are_there_for_wanted_tokens_alone),
        cmocka_unit_test(a_cancelled_run_leaves_the_session_as_it_was),
        cmocka_unit_test(observing_changes_no_bit_and_sees_every_layer_once),
        cmocka_unit_test(an_early_exit_is_the_last_layers_skipped),
        cmocka_unit_test(a_skipped_layer_still_stores_its_keys),
        cmocka_unit_test(a_damaged_saved_session_is_refused_and_harms_no_other),
        cmocka_unit_test(a_session_of_another_model_or_kind_of_cache_is_refused),
        cmocka_unit_test(a_plan_only_model_is_described_and_not_run),
        cmocka_unit_test(options_out_of_range_are_named),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
