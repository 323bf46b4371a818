/*
 * Draft heads (NextN, MTP) against the golden figures, and the promises about them: the trunk
 * computes the same with and without one, the bits do not depend on how rows are cut, on threads or
 * on company, and rows follow their session through rollback, fork and saving.
 */
#include "golden.h"

#include <unistd.h>

static linnet_error err;

struct runner {
    linnet_model *m;
    linnet_context *c;
    size_t n_embd;
};

static void runner_open(struct runner *r, const struct golden *g, unsigned threads, bool draft)
{
    linnet_model_info info;
    linnet_model_options mo;
    linnet_model_defaults(&mo);
    mo.threads = threads;
    mo.isa = getenv("LINNET_ISA");
    mo.draft = draft;
    assert_ok(linnet_model_open(g->path, &mo, &r->m, &err), err);
    linnet_model_get_info(r->m, &info);
    r->n_embd = info.n_embd;
    assert_int_equal(info.n_draft, 1);
    assert_int_equal(info.has_draft, draft);
    linnet_context_options co;
    linnet_context_defaults(&co);
    co.n_ctx = (uint32_t)json_integer_value(json_object_get(g->meta, "n_ctx"));
    co.n_batch = 24; /* less than the case has tokens: runs take several batches */
    co.kv_k = co.kv_v = LINNET_KV_F32;
    co.checkpoint_spacing = 8;
    assert_ok(linnet_context_create(r->m, &co, &r->c, &err), err);
}

static void runner_close(struct runner *r)
{
    linnet_context_free(r->c);
    linnet_model_close(r->m);
}

/* All that a case computes. */
struct figures {
    float *logits, *hidden;             /* of the trunk: [n_tokens][n_vocab], [n_tokens][n_embd] */
    float *draft_logits, *draft_hidden; /* of the head, likewise */
    float *before;                      /* [n_tokens][n_embd]: row i is hidden row i - 1 */
};

static float *zeros(size_t n)
{
    float *v = calloc(n, sizeof *v);
    assert_non_null(v);
    return v;
}

static void figures_free(struct figures *f)
{
    free(f->logits);
    free(f->hidden);
    free(f->draft_logits);
    free(f->draft_hidden);
    free(f->before);
}

static linnet_session *new_session(struct runner *r)
{
    linnet_session *s;
    assert_ok(linnet_session_create(r->c, &s, &err), err);
    return s;
}

static void run_trunk(struct runner *r, const struct golden *g, linnet_session *s, size_t from,
                      size_t to, struct figures *f)
{
    linnet_item item = {s, g->tokens + from, to - from, LINNET_WANT_ALL | LINNET_WANT_HIDDEN};
    assert_ok(linnet_run(r->c, &item, 1, &err), err);
    for (size_t i = 0; f && i < to - from; i++) {
        memcpy(f->logits + (from + i) * g->n_vocab, linnet_logits(r->c, 0, i),
               g->n_vocab * sizeof(float));
        memcpy(f->hidden + (from + i) * r->n_embd, linnet_hidden(r->c, 0, i),
               r->n_embd * sizeof(float));
        if (from + i + 1 < g->n_tokens)
            memcpy(f->before + (from + i + 1) * r->n_embd, linnet_hidden(r->c, 0, i),
                   r->n_embd * sizeof(float));
    }
}

static linnet_draft_item rows(const struct runner *r, const struct golden *g, linnet_session *s,
                              size_t from, size_t to, const struct figures *f)
{
    return (linnet_draft_item){.session = s,
                               .first = from,
                               .tokens = g->tokens + from,
                               .hidden = f->before + from * r->n_embd,
                               .n_tokens = to - from,
                               .want = LINNET_WANT_ALL | LINNET_WANT_HIDDEN};
}

static void run_draft(struct runner *r, const struct golden *g, linnet_session *s, size_t from,
                      size_t to, struct figures *f)
{
    linnet_draft_item item = rows(r, g, s, from, to, f);
    assert_ok(linnet_draft_run(r->c, &item, 1, &err), err);
    assert_int_equal(linnet_draft_length(s), to);
    for (size_t i = 0; i < to - from; i++) {
        memcpy(f->draft_logits + (from + i) * g->n_vocab, linnet_draft_logits(r->c, 0, i),
               g->n_vocab * sizeof(float));
        memcpy(f->draft_hidden + (from + i) * r->n_embd, linnet_draft_hidden(r->c, 0, i),
               r->n_embd * sizeof(float));
    }
}

/* The whole case, trunk and head by turns, `chunk` tokens at a time. */
static struct figures run_case(struct runner *r, const struct golden *g, size_t chunk)
{
    size_t v = g->n_tokens * g->n_vocab, h = g->n_tokens * r->n_embd;
    struct figures f = {zeros(v), zeros(h), zeros(v), zeros(h), zeros(h)};
    linnet_session *s = new_session(r);
    for (size_t at = 0; at < g->n_tokens; at += chunk) {
        size_t to = at + chunk < g->n_tokens ? at + chunk : g->n_tokens;
        run_trunk(r, g, s, at, to, &f);
        run_draft(r, g, s, at, to, &f);
    }
    linnet_session_free(s);
    return f;
}

static void same(const struct golden *g, const char *what, const float *a, const float *b, size_t n)
{
    if (memcmp(a, b, n * sizeof *a) != 0)
        fail_msg("%s: %s: not the same bits", g->name, what);
}

static void same_figures(const struct golden *g, const struct runner *r, const char *what,
                         const struct figures *a, const struct figures *b)
{
    same(g, what, a->logits, b->logits, g->n_tokens * g->n_vocab);
    same(g, what, a->hidden, b->hidden, g->n_tokens * r->n_embd);
    same(g, what, a->draft_logits, b->draft_logits, g->n_tokens * g->n_vocab);
    same(g, what, a->draft_hidden, b->draft_hidden, g->n_tokens * r->n_embd);
}

static void agrees(const struct golden *g, const char *kind, const float *got, size_t n)
{
    char file[256];
    snprintf(file, sizeof file, "golden/%s.%s.f32", g->name, kind);
    float *want = golden_floats(test_shared(file), n);
    assert_non_null(want);
    double e = nmse(got, want, n);
    printf("# %-20s %-14s NMSE %.3g (tolerance %.3g)\n", g->name, kind, e, g->tolerance);
    if (!(e <= g->tolerance))
        fail_msg("%s: %s: NMSE %g is above %g", g->name, kind, e, g->tolerance);
    free(want);
}

static void check_trunk_alone(const struct golden *g, const struct figures *f)
{
    struct runner r;
    runner_open(&r, g, 1, false);
    linnet_session *s = new_session(&r);
    linnet_item item = {s, g->tokens, g->n_tokens, LINNET_WANT_ALL};
    assert_ok(linnet_run(r.c, &item, 1, &err), err);
    for (size_t i = 0; i < g->n_tokens; i++)
        same(g, "without the head", linnet_logits(r.c, 0, i), f->logits + i * g->n_vocab,
             g->n_vocab);
    assert_null(linnet_hidden(r.c, 0, 0));
    assert_int_equal(linnet_draft_length(s), 0);
    linnet_draft_item draft = rows(&r, g, s, 0, 1, f);
    assert_int_equal(linnet_draft_run(r.c, &draft, 1, &err), LINNET_UNSUPPORTED);
    /* hidden states of all tokens with the logits of the last alone */
    linnet_session *t = new_session(&r);
    item = (linnet_item){t, g->tokens, g->n_tokens, LINNET_WANT_LAST | LINNET_WANT_HIDDEN};
    assert_ok(linnet_run(r.c, &item, 1, &err), err);
    for (size_t i = 0; i < g->n_tokens; i++)
        same(g, "hidden alone", linnet_hidden(r.c, 0, i), f->hidden + i * r.n_embd, r.n_embd);
    assert_null(linnet_logits(r.c, 0, g->n_tokens - 2));
    same(g, "last", linnet_logits(r.c, 0, g->n_tokens - 1),
         f->logits + (g->n_tokens - 1) * g->n_vocab, g->n_vocab);
    runner_close(&r);
}

/* Two sessions in one draft run, at different positions and with different wants. */
static void check_company(struct runner *r, const struct golden *g, struct figures *f)
{
    linnet_session *s[2] = {new_session(r), new_session(r)};
    run_trunk(r, g, s[0], 0, 12, NULL);
    run_trunk(r, g, s[1], 0, g->n_tokens, NULL);
    run_draft(r, g, s[1], 0, 20, f);
    linnet_draft_item items[2] = {rows(r, g, s[0], 0, 12, f), rows(r, g, s[1], 20, g->n_tokens, f)};
    items[0].want = LINNET_WANT_LAST;
    items[1].want = LINNET_WANT_HIDDEN;
    assert_ok(linnet_draft_run(r->c, items, 2, &err), err);
    same(g, "company", linnet_draft_logits(r->c, 0, 11), f->draft_logits + 11 * g->n_vocab,
         g->n_vocab);
    assert_null(linnet_draft_logits(r->c, 0, 10));
    assert_null(linnet_draft_hidden(r->c, 0, 11));
    assert_null(linnet_draft_logits(r->c, 1, 0));
    for (size_t i = 20; i < g->n_tokens; i++)
        same(g, "company", linnet_draft_hidden(r->c, 1, i - 20), f->draft_hidden + i * r->n_embd,
             r->n_embd);
    linnet_session_free(s[0]);
    linnet_session_free(s[1]);
}

/* Three steps beyond the session's end, each fed the head's own hidden state in place: the logits
 * of the last. */
static float *guess(struct runner *r, const struct golden *g, linnet_session *s,
                    const struct figures *f)
{
    enum { STEPS = 3 };
    size_t n = linnet_session_length(s);
    const float *hidden = f->before + n * r->n_embd;
    for (size_t k = 0; k < STEPS; k++) {
        linnet_draft_item item = {.session = s,
                                  .first = n + k,
                                  .tokens = g->tokens + n + k,
                                  .hidden = k ? linnet_draft_hidden(r->c, 0, 0) : hidden,
                                  .n_tokens = 1,
                                  .want = LINNET_WANT_LAST | LINNET_WANT_HIDDEN};
        assert_ok(linnet_draft_run(r->c, &item, 1, &err), err);
        bool true_hidden = k == 0; /* later rows are not those of the text */
        const float *row = f->draft_logits + (n + k) * g->n_vocab;
        assert_int_equal(memcmp(linnet_draft_logits(r->c, 0, 0), row, g->n_vocab * sizeof *row) ==
                             0,
                         true_hidden);
    }
    assert_int_equal(linnet_draft_length(s), n + STEPS);
    float *out = zeros(g->n_vocab);
    memcpy(out, linnet_draft_logits(r->c, 0, 0), g->n_vocab * sizeof *out);
    return out;
}

/* A guess is the same the second time, in a fork and in a loaded session, and going on forgets
 * it. */
static void check_guessing(struct runner *r, const struct golden *g, struct figures *f)
{
    const size_t n = 18;
    linnet_session *s = new_session(r), *fork, *loaded;
    char path[] = "/tmp/linnet-draft-XXXXXX";
    close(mkstemp(path));
    run_trunk(r, g, s, 0, n, NULL);
    run_draft(r, g, s, 0, n, f);
    assert_ok(linnet_session_save(s, path, &err), err);
    float *first = guess(r, g, s, f);
    assert_ok(linnet_session_fork(s, &fork, &err), err);
    assert_int_equal(linnet_draft_length(fork), n + 3);
    assert_ok(linnet_session_load(r->c, path, &loaded, &err), err);
    assert_int_equal(linnet_draft_length(loaded), n);
    linnet_session *again[] = {s, fork, loaded};
    for (size_t i = 0; i < 3; i++) {
        float *second = guess(r, g, again[i], f);
        same(g, "a guess again", first, second, g->n_vocab);
        free(second);
    }
    /* the row of the appended token stays, the guesses after it go */
    run_trunk(r, g, s, n, n + 2, NULL);
    assert_int_equal(linnet_draft_length(s), n + 1);
    run_draft(r, g, s, n + 1, n + 2, f);
    int32_t other = (g->tokens[n] + 1) % (int32_t)g->n_vocab;
    linnet_item item = {fork, &other, 1, LINNET_WANT_NONE};
    assert_ok(linnet_run(r->c, &item, 1, &err), err);
    assert_int_equal(linnet_draft_length(fork), n);

    assert_ok(linnet_session_rollback(loaded, n, &err), err);
    assert_int_equal(linnet_draft_length(loaded), n);
    assert_ok(linnet_session_rollback(loaded, 7, &err), err);
    assert_int_equal(linnet_draft_length(loaded), 7);
    run_trunk(r, g, loaded, 7, g->n_tokens, NULL);
    run_draft(r, g, loaded, 5, g->n_tokens, f); /* two rows again: what they were */
    free(first);
    linnet_session_free(s);
    linnet_session_free(fork);
    linnet_session_free(loaded);
    unlink(path);
}

static void check_refusals(struct runner *r, const struct golden *g, const struct figures *f)
{
    linnet_session *s = new_session(r);
    run_trunk(r, g, s, 0, 4, NULL);
    linnet_draft_item gap = rows(r, g, s, 1, 3, f), none = rows(r, g, s, 0, 3, f), wrong = none,
                      empty = none;
    assert_int_equal(linnet_draft_run(r->c, &gap, 1, &err), LINNET_INVALID);
    assert_non_null(strstr(err.text, "begins at row 1"));
    none.hidden = NULL;
    assert_int_equal(linnet_draft_run(r->c, &none, 1, &err), LINNET_INVALID);
    int32_t tokens[3] = {g->tokens[0], (g->tokens[1] + 1) % (int32_t)g->n_vocab, g->tokens[2]};
    wrong.tokens = tokens;
    assert_int_equal(linnet_draft_run(r->c, &wrong, 1, &err), LINNET_INVALID);
    assert_non_null(strstr(err.text, "token 1"));
    empty.n_tokens = 0;
    assert_int_equal(linnet_draft_run(r->c, &empty, 1, &err), LINNET_INVALID);
    linnet_draft_item twice[2] = {rows(r, g, s, 0, 3, f), rows(r, g, s, 0, 3, f)};
    assert_int_equal(linnet_draft_run(r->c, twice, 2, &err), LINNET_INVALID);
    linnet_context_cancel(r->c);
    linnet_draft_item good = rows(r, g, s, 0, 3, f);
    assert_int_equal(linnet_draft_run(r->c, &good, 1, &err), LINNET_CANCELLED);
    assert_int_equal(linnet_draft_length(s), 0);
    assert_int_equal(linnet_session_length(s), 4);
    assert_ok(linnet_draft_run(r->c, &good, 1, &err), err);
    same(g, "after a run that was stopped", linnet_draft_logits(r->c, 0, 2),
         f->draft_logits + 2 * g->n_vocab, g->n_vocab);
    linnet_session_free(s);
}

static void case_test(void **state)
{
    struct golden g;
    golden_open(&g, *state);
    struct runner r;
    runner_open(&r, &g, 1, true);
    struct figures f = run_case(&r, &g, g.n_tokens);
    agrees(&g, "logits", f.logits, g.n_tokens * g.n_vocab);
    agrees(&g, "nextn_h", f.hidden, g.n_tokens * r.n_embd);
    agrees(&g, "draft_h", f.draft_hidden, g.n_tokens * r.n_embd);
    agrees(&g, "draft_logits", f.draft_logits, g.n_tokens * g.n_vocab);
    check_trunk_alone(&g, &f);
    struct figures again = run_case(&r, &g, g.n_tokens);
    check_company(&r, &g, &again);
    check_guessing(&r, &g, &again);
    same_figures(&g, &r, "in company, guessing, after going back", &again, &f);
    figures_free(&again);
    check_refusals(&r, &g, &f);
    runner_close(&r);
    const unsigned threads[] = {1, 2, 7};
    const size_t chunks[] = {1, 3, 16, 1000};
    for (size_t t = 0; t < 3; t++) {
        runner_open(&r, &g, threads[t], true);
        for (size_t i = 0; i < 4; i++) {
            struct figures part = run_case(&r, &g, chunks[i]);
            same_figures(&g, &r, "in chunks, of more threads", &part, &f);
            figures_free(&part);
        }
        runner_close(&r);
    }
    figures_free(&f);
    golden_close(&g);
}

static void golden_cases_are_there(void **state)
{
    (void)state;
    if (!test_shared("golden/INDEX.tsv"))
        test_skip_shared("test_draft");
}

int main(void)
{
    static struct CMUnitTest tests[33];
    tests[0] = (struct CMUnitTest)cmocka_unit_test(golden_cases_are_there);
    size_t n = 1 + golden_list(tests + 1, 32, true, case_test);
    return _cmocka_run_group_tests("draft", tests, n, NULL, NULL);
}
