/*
 * Golden cases: tiny models of every family against the logits another implementation computes, and
 * the promise that the bits do not depend on how a text is cut, on the number of threads, on
 * company in the batch, or on the kernel set.
 *
 * Data: ../shared/golden (see its README). A case whose architecture is not in the family table is
 * not run.
 */
#include "golden.h"
#include "kernel/kernel.h"

#include <unistd.h>

struct runner {
    linnet_model *m;
    linnet_context *c;
};

static void runner_open_on(struct runner *r, const struct golden *g, unsigned threads,
                           linnet_checkpoint_kind kind, const char *isa)
{
    linnet_error e;
    linnet_model_options mo;
    linnet_model_defaults(&mo);
    mo.threads = threads;
    mo.isa = isa;
    assert_ok(linnet_model_open(g->path, &mo, &r->m, &e), e);
    linnet_context_options co;
    linnet_context_defaults(&co);
    co.n_ctx = (uint32_t)json_integer_value(json_object_get(g->meta, "n_ctx"));
    co.kv_k = co.kv_v = LINNET_KV_F32;
    co.checkpoint_spacing = 8;
    co.checkpoint_max = 3;
    co.checkpoint_kind = kind;
    if (linnet_context_create(r->m, &co, &r->c, &e) ==
        LINNET_INVALID) { /* learned positions: fewer than asked for */
        co.n_ctx = 0;
        assert_ok(linnet_context_create(r->m, &co, &r->c, &e), e);
    }
}

static void runner_open(struct runner *r, const struct golden *g, unsigned threads,
                        linnet_checkpoint_kind kind)
{
    runner_open_on(r, g, threads, kind, NULL);
}

static void runner_close(struct runner *r)
{
    linnet_context_free(r->c);
    linnet_model_close(r->m);
}

/* All logits of the case, its tokens run `chunk` at a time. */
static float *run_chunks(struct runner *r, const struct golden *g, size_t chunk)
{
    linnet_error e;
    linnet_session *s;
    float *out = malloc(g->n_tokens * g->n_vocab * sizeof *out);
    assert_ok(linnet_session_create(r->c, &s, &e), e);
    for (size_t at = 0; at < g->n_tokens; at += chunk) {
        size_t n = g->n_tokens - at < chunk ? g->n_tokens - at : chunk;
        linnet_item item = {s, g->tokens + at, n, LINNET_WANT_ALL};
        assert_ok(linnet_run(r->c, &item, 1, &e), e);
        for (size_t i = 0; i < n; i++)
            memcpy(out + (at + i) * g->n_vocab, linnet_logits(r->c, 0, i),
                   g->n_vocab * sizeof *out);
    }
    linnet_session_free(s);
    return out;
}

static void same_bits(const struct golden *g, const char *what, const float *a, const float *b)
{
    if (memcmp(a, b, g->n_tokens * g->n_vocab * sizeof *a) != 0)
        fail_msg("%s: logits %s differ from those of the whole batch", g->name, what);
}

/* Two sessions interleaved in one batch, one of them a few tokens ahead. */
static void check_company(struct runner *r, const struct golden *g, const float *alone)
{
    linnet_error e;
    linnet_session *s[2];
    assert_ok(linnet_session_create(r->c, &s[0], &e), e);
    assert_ok(linnet_session_create(r->c, &s[1], &e), e);
    linnet_item head = {s[1], g->tokens, 5, LINNET_WANT_NONE};
    assert_ok(linnet_run(r->c, &head, 1, &e), e);
    for (size_t at = 0; at + 5 + 3 <= g->n_tokens; at += 3) {
        linnet_item items[2] = {{s[0], g->tokens + at, 3, LINNET_WANT_ALL},
                                {s[1], g->tokens + at + 5, 3, LINNET_WANT_LAST}};
        assert_ok(linnet_run(r->c, items, 2, &e), e);
        size_t row = g->n_vocab * sizeof(float);
        for (size_t i = 0; i < 3; i++)
            assert_memory_equal(linnet_logits(r->c, 0, i), alone + (at + i) * g->n_vocab, row);
        assert_memory_equal(linnet_logits(r->c, 1, 2), alone + (at + 7) * g->n_vocab, row);
    }
    linnet_session_free(s[0]);
    linnet_session_free(s[1]);
}

/* Run tokens [from, to) and compare the logits with those of the whole batch. */
static void go_on(struct runner *r, const struct golden *g, linnet_session *s, size_t from,
                  size_t to, const float *whole)
{
    linnet_error e;
    linnet_item item = {s, g->tokens + from, to - from, LINNET_WANT_ALL};
    assert_ok(linnet_run(r->c, &item, 1, &e), e);
    for (size_t i = 0; i < to - from; i++)
        if (memcmp(linnet_logits(r->c, 0, i), whole + (from + i) * g->n_vocab,
                   g->n_vocab * sizeof *whole) != 0)
            fail_msg("%s: logits at %zu differ after going back to %zu", g->name, from + i, from);
}

/* A session saved in the middle, loaded into another context, goes on as if nothing had been. */
static void check_saving(struct runner *r, const struct golden *g, const float *whole)
{
    linnet_error e;
    linnet_session *s, *loaded;
    struct runner other;
    char path[] = "/tmp/linnet-session-XXXXXX";
    close(mkstemp(path));
    assert_ok(linnet_session_create(r->c, &s, &e), e);
    go_on(r, g, s, 0, 21, whole);
    assert_ok(linnet_session_save(s, path, &e), e);
    linnet_session_free(s);
    runner_open(&other, g, 2, LINNET_CHECKPOINT_EXACT);
    assert_ok(linnet_session_load(other.c, path, &loaded, &e), e);
    assert_int_equal(linnet_session_length(loaded), 21);
    go_on(&other, g, loaded, 21, g->n_tokens, whole);
    assert_ok(linnet_session_rollback(loaded, 3, &e), e);
    go_on(&other, g, loaded, 3, g->n_tokens, whole);
    runner_close(&other);
    unlink(path);
}

/* Going back by any distance, twice in a row, and forking, change no bit of what follows. */
static void check_going_back(struct runner *r, const struct golden *g, const float *whole)
{
    linnet_error e;
    linnet_session *s, *fork;
    const size_t n = g->n_tokens, back[] = {1, 2, 7, 8, 9, 15, 17, n / 2, n - 1};
    assert_ok(linnet_session_create(r->c, &s, &e), e);
    go_on(r, g, s, 0, n, whole);
    for (size_t i = 0; i < sizeof back / sizeof *back; i++) {
        size_t to = n - back[i];
        assert_ok(linnet_session_rollback(s, to, &e), e);
        go_on(r, g, s, to, to + 1, whole);
        assert_ok(linnet_session_rollback(s, to, &e), e);
        assert_ok(linnet_session_fork(s, &fork, &e), e);
        go_on(r, g, s, to, n, whole);
        go_on(r, g, fork, to, n, whole);
        linnet_session_free(fork);
    }
    assert_ok(linnet_session_rollback(s, 0, &e), e);
    go_on(r, g, s, 0, 20, whole);
    go_on(r, g, s, 20, n, whole);
    linnet_session_free(s);
}

/* Checkpoints of half the size: what follows is near, and the state before them is left alone. */
static void check_half(const struct golden *g, const float *whole)
{
    linnet_error e;
    linnet_session *s;
    struct runner r;
    const size_t to = 21, n = g->n_tokens;
    runner_open(&r, g, 1, LINNET_CHECKPOINT_F16);
    assert_ok(linnet_session_create(r.c, &s, &e), e);
    go_on(&r, g, s, 0, n, whole);
    assert_ok(linnet_session_rollback(s, to, &e), e);
    linnet_item item = {s, g->tokens + to, n - to, LINNET_WANT_ALL};
    assert_ok(linnet_run(r.c, &item, 1, &e), e);
    double error = nmse(linnet_logits(r.c, 0, 0), whole + to * g->n_vocab, (n - to) * g->n_vocab);
    if (!(error < 1e-3))
        fail_msg("%s: NMSE %g after going back to a rounded state", g->name, error);
    runner_close(&r);
}

/* Every other kernel set that this machine can run. */
static void check_kernels(const struct golden *g, const float *whole)
{
    for (size_t i = 0; i < kernels_count(); i++) {
        if (!kernels_at(i)->supported() || kernels_at(i) == kernels_best())
            continue;
        struct runner r;
        runner_open_on(&r, g, 1, LINNET_CHECKPOINT_EXACT, kernels_at(i)->name);
        float *other = run_chunks(&r, g, g->n_tokens);
        same_bits(g, kernels_at(i)->name, other, whole);
        free(other);
        runner_close(&r);
    }
}

static void check_case(const char *name)
{
    struct golden g;
    golden_open(&g, name);
    const size_t chunks[] = {1, 3, 16};
    struct runner r;
    runner_open(&r, &g, 1, LINNET_CHECKPOINT_EXACT);
    float *whole = run_chunks(&r, &g, g.n_tokens);
    double e = nmse(whole, g.want, g.n_tokens * g.n_vocab);
    printf("# %-32s NMSE %.3g (tolerance %.3g)\n", name, e, g.tolerance);
    if (!(e <= g.tolerance))
        fail_msg("%s: NMSE %g is above %g", name, e, g.tolerance);
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        float *part = run_chunks(&r, &g, chunks[i]);
        same_bits(&g, "in chunks", part, whole);
        free(part);
    }
    check_company(&r, &g, whole);
    check_going_back(&r, &g, whole);
    check_saving(&r, &g, whole);
    check_half(&g, whole);
    runner_close(&r);
    check_kernels(&g, whole);
    const unsigned threads[] = {2, 7};
    for (size_t i = 0; i < 2; i++) {
        runner_open(&r, &g, threads[i], i ? LINNET_CHECKPOINT_EXACT : LINNET_CHECKPOINT_DELTA);
        float *other = run_chunks(&r, &g, g.n_tokens);
        same_bits(&g, "of more threads", other, whole);
        float *one = run_chunks(&r, &g, 1);
        same_bits(&g, "of more threads, token by token,", one, whole);
        check_going_back(&r, &g, whole);
        free(one);
        free(other);
        runner_close(&r);
    }
    free(whole);
    golden_close(&g);
}

static void case_test(void **state)
{
    check_case(*state);
}

static void golden_cases_are_there(void **state)
{
    (void)state;
    if (!test_shared("golden/INDEX.tsv"))
        test_skip_shared("test_golden");
}

int main(void)
{
    static struct CMUnitTest tests[257];
    tests[0] = (struct CMUnitTest)cmocka_unit_test(golden_cases_are_there);
    size_t n = 1 + golden_list(tests + 1, 256, false, case_test);
    return _cmocka_run_group_tests("golden", tests, n, NULL, NULL);
}
