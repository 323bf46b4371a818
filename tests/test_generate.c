/*
 * Generating: what ends it, and that no byte of text is lost or given out that should not be.
 */
#include "mkgguf.h"

#include "decode/stop.h"

static linnet_error err;

/* Push `text` cut as `cuts` says (bit i: a cut after byte i); returns what came out in all,
 * static. */
static const char *filtered(const char *text, unsigned cuts, const char *const *stop, size_t n_stop,
                            bool *stopped)
{
    static char out[256];
    size_t n = strlen(text), at = 0, from = 0, n_piece;
    const char *piece;
    struct stop_filter f;
    assert_ok(stop_init(&f, stop, n_stop, &err), err);
    for (size_t i = 0; i < n; i++) {
        if (i + 1 < n && !(cuts >> i & 1))
            continue;
        assert_ok(stop_push(&f, text + from, i + 1 - from, &piece, &n_piece, &err), err);
        memcpy(out + at, piece, n_piece);
        at += n_piece;
        from = i + 1;
    }
    stop_flush(&f, &piece, &n_piece);
    memcpy(out + at, piece, n_piece);
    out[at + n_piece] = '\0';
    *stopped = f.stopped;
    stop_free(&f);
    return out;
}

static void a_stop_text_ends_the_stream_however_it_is_cut(void **state)
{
    (void)state;
    const struct {
        const char *text, *stop[3], *want;
        bool stopped;
    } cases[] = {
        {"hello world", {"lo w"}, "hel", true},
        {"hello world", {"xyz"}, "hello world", false},
        {"aaab", {"aab"}, "a", true},
        {"aabaaab", {"aaab"}, "aab", true},
        {"abcab", {"abcabc"}, "abcab", false},   /* held at the end: given out */
        {"one two", {"two", "one t"}, "", true}, /* the one that begins first */
        {"xENDy", {"END", "NDy"}, "x", true},
        {"\xF0\x9F\x98\x80!stop", {"!stop"}, "\xF0\x9F\x98\x80", true},
        {"stop", {"stop"}, "", true},
        {"abab", {"b", "ab"}, "", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n_stop = 0, n = strlen(cases[i].text);
        while (n_stop < 3 && cases[i].stop[n_stop])
            n_stop++;
        for (unsigned cuts = 0; cuts < 1u << (n - 1); cuts++) {
            bool stopped;
            assert_string_equal(filtered(cases[i].text, cuts, cases[i].stop, n_stop, &stopped),
                                cases[i].want);
            assert_int_equal(stopped, cases[i].stopped);
        }
    }
}

static void nothing_is_held_back_that_cannot_become_a_stop_text(void **state)
{
    (void)state;
    const char *const stop[] = {"<end>"};
    struct stop_filter f;
    const char *out;
    size_t n;
    assert_ok(stop_init(&f, stop, 1, &err), err);
    assert_ok(stop_push(&f, "abc<", 4, &out, &n, &err), err);
    assert_int_equal(n, 3);
    assert_ok(stop_push(&f, "b", 1, &out, &n, &err), err);
    assert_int_equal(n, 2);
    assert_memory_equal(out, "<b", 2);
    assert_ok(stop_push(&f, "<en", 3, &out, &n, &err), err);
    assert_int_equal(n, 0);
    assert_ok(stop_push(&f, "d>x", 3, &out, &n, &err), err);
    assert_int_equal(n, 0);
    assert_true(f.stopped);
    assert_ok(stop_push(&f, "more", 4, &out, &n, &err), err);
    assert_int_equal(n, 0);
    stop_free(&f);
    const char *const empty[] = {""};
    assert_int_equal(stop_init(&f, empty, 1, &err), LINNET_INVALID);
}

static linnet_model *model;
static linnet_context *ctx;

static int open_all(void **state)
{
    (void)state;
    char path[64];
    struct mkgguf g = mkgguf_defaults("llama");
    mkgguf_temp(&g, path);
    linnet_context_options co;
    linnet_context_defaults(&co);
    co.n_ctx = 64;
    assert_ok(linnet_model_open(path, NULL, &model, &err), err);
    unlink(path);
    assert_ok(linnet_context_create(model, &co, &ctx, &err), err);
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    linnet_context_free(ctx);
    linnet_model_close(model);
    return 0;
}

struct heard {
    char text[4096];
    size_t n, tokens, calls, end_after;
    int32_t ids[256];
};

static bool hear_text(void *user, const char *bytes, size_t n)
{
    struct heard *h = user;
    memcpy(h->text + h->n, bytes, n);
    h->n += n;
    h->text[h->n] = '\0';
    return ++h->calls != h->end_after;
}

static void hear_token(void *user, int32_t id, const float *logits)
{
    struct heard *h = user;
    assert_non_null(logits);
    h->ids[h->tokens++] = id;
}

static const int32_t prompt[] = {1, 270, 280, 262};

static linnet_generated generate(struct heard *h, size_t max, const char *stop, float temp)
{
    linnet_generate_options o;
    linnet_sampler_options so;
    linnet_sampler *sampler;
    linnet_session *s;
    linnet_generated g;
    linnet_generate_defaults(&o);
    linnet_sampler_defaults(&so);
    so.temp = temp;
    so.seed = 11;
    o.max_tokens = max;
    o.ignore_eog = true;
    o.text = hear_text;
    o.token = hear_token;
    o.user = h;
    o.stop = &stop;
    o.n_stop = stop ? 1 : 0;
    assert_ok(linnet_sampler_create(&so, &sampler, &err), err);
    assert_ok(linnet_session_create(ctx, &s, &err), err);
    assert_ok(linnet_generate(s, sampler, prompt, 4, &o, &g, &err), err);
    linnet_session_free(s);
    linnet_sampler_free(sampler);
    return g;
}

static void exactly_the_tokens_asked_for_are_made(void **state)
{
    (void)state;
    for (size_t n = 0; n <= 5; n++) {
        struct heard h = {.n = 0};
        linnet_generated g = generate(&h, n, NULL, 1.0f);
        assert_int_equal(g.n_tokens, n);
        assert_int_equal(h.tokens, n);
        assert_int_equal(g.n_prompt, 4);
        assert_int_equal(g.pending, n ? h.ids[n - 1] : -1);
        assert_int_equal(g.finish, LINNET_FINISH_LENGTH);
    }
}

static void the_stream_is_the_text_of_the_tokens(void **state)
{
    (void)state;
    struct heard h = {.n = 0};
    char whole[4096];
    size_t n;
    generate(&h, 50, NULL, 3.0f);
    assert_ok(linnet_detokenize(model, h.ids, h.tokens, false, whole, sizeof whole, &n, &err), err);
    assert_int_equal(h.n, n);
    assert_memory_equal(h.text, whole, n);
}

static void a_stop_text_cuts_the_same_text_short(void **state)
{
    (void)state;
    struct heard all = {.n = 0}, cut = {.n = 0};
    char stop[8] = {0};
    generate(&all, 50, NULL, 3.0f);
    assert_true(all.n > 30);
    memcpy(stop, all.text + 20, 3);
    const char *at = strstr(all.text, stop);
    linnet_generated g = generate(&cut, 50, stop, 3.0f);
    assert_int_equal(g.finish, LINNET_FINISH_STOP);
    assert_int_equal(cut.n, at - all.text);
    assert_memory_equal(cut.text, all.text, cut.n);
}

static void a_full_context_ends_the_text_and_loses_nothing(void **state)
{
    (void)state;
    struct heard h = {.n = 0};
    linnet_generated g = generate(&h, 1000, NULL, 1.0f);
    assert_int_equal(g.finish, LINNET_FINISH_CONTEXT);
    /* 4 of the prompt and 60 more are in the context; one more was sampled from the last logits */
    assert_int_equal(g.n_tokens, 61);
    assert_int_equal(h.tokens, 61);
}

static void the_callback_can_end_it(void **state)
{
    (void)state;
    struct heard h = {.end_after = 3};
    linnet_generated g = generate(&h, 50, NULL, 1.0f);
    assert_int_equal(g.finish, LINNET_FINISH_CANCELLED);
    assert_int_equal(h.calls, 3);
}

static void a_prompt_that_does_not_fit_is_an_error(void **state)
{
    (void)state;
    int32_t longer[65];
    for (int i = 0; i < 65; i++)
        longer[i] = 260;
    linnet_sampler *sampler;
    linnet_session *s;
    linnet_generated g;
    assert_ok(linnet_sampler_create(NULL, &sampler, &err), err);
    assert_ok(linnet_session_create(ctx, &s, &err), err);
    assert_int_equal(linnet_generate(s, sampler, longer, 65, NULL, &g, &err), LINNET_CONTEXT_FULL);
    assert_int_equal(linnet_session_length(s), 0);
    assert_int_equal(linnet_generate(s, sampler, longer, 0, NULL, &g, &err), LINNET_INVALID);
    linnet_session_free(s);
    linnet_sampler_free(sampler);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stop_text_ends_the_stream_however_it_is_cut),
        cmocka_unit_test(nothing_is_held_back_that_cannot_become_a_stop_text),
        cmocka_unit_test(exactly_the_tokens_asked_for_are_made),
        cmocka_unit_test(the_stream_is_the_text_of_the_tokens),
        cmocka_unit_test(a_stop_text_cuts_the_same_text_short),
        cmocka_unit_test(a_full_context_ends_the_text_and_loses_nothing),
        cmocka_unit_test(the_callback_can_end_it),
        cmocka_unit_test(a_prompt_that_does_not_fit_is_an_error),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
