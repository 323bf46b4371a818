/*
 * Sessions of every kind of state: attention over f16 and q8_0 pages, windows, shared keys,
 * latents, delta rules, residual banks, scans, RWKV, convolutions. What holds for a session holds
 * for all.
 *
 * Data: one golden file of each kind (../shared/golden). `test_kinds --continue MODEL SESSION OUT
 * KV` is the other process of a_session_goes_on_in_another_process().
 */
#include "golden.h"
#include "mutant.h"

#include <sys/wait.h>

enum { N_TOKENS = 48, SPACING = 8, MAX_VOCAB = 512, N_KINDS = 11 };

static const struct kind {
    const char *name, *golden;
    linnet_kv_type kv;
    bool recurrent;
    bool halves; /* the second half of a layer keeps what the first half gave it */
} kinds[N_KINDS] = {
    {"attention", "llama", LINNET_KV_F16, false, false},
    {"q8_0 pages", "qwen3", LINNET_KV_Q8_0, false, false},
    {"windows", "gemma2", LINNET_KV_F16, false, false},
    {"shared keys", "gemma3n", LINNET_KV_F16, false, false},
    {"latents", "deepseek2-v3", LINNET_KV_F16, false, false},
    {"gated delta rule", "qwen35", LINNET_KV_F16, true, false},
    {"delta attention, residual banks", "kimi-k3", LINNET_KV_F16, true, false},
    {"Mamba", "mamba", LINNET_KV_F16, true, false},
    {"Mamba-2", "mamba2", LINNET_KV_F16, true, false},
    {"RWKV", "rwkv7", LINNET_KV_F16, true, true},
    {"short convolutions", "lfm2", LINNET_KV_F16, true, false},
};

static linnet_error err;
static const char *self;

/* A model with a context; the sizes of its logits. */
struct bench {
    linnet_model *m;
    linnet_context *c;
    uint32_t n_vocab, n_layer;
};

static void bench_open(struct bench *b, const char *path, linnet_kv_type kv)
{
    linnet_model_options mo;
    linnet_context_options co;
    linnet_model_info info;
    linnet_model_defaults(&mo);
    mo.threads = 1;
    assert_ok(linnet_model_open(path, &mo, &b->m, &err), err);
    linnet_context_defaults(&co);
    co.n_ctx = 64;
    co.kv_k = co.kv_v = kv;
    co.checkpoint_spacing = SPACING;
    assert_ok(linnet_context_create(b->m, &co, &b->c, &err), err);
    linnet_model_get_info(b->m, &info);
    b->n_vocab = info.n_vocab;
    b->n_layer = info.n_layer;
    assert_true(b->n_vocab <= MAX_VOCAB);
}

static void bench_close(struct bench *b)
{
    linnet_context_free(b->c);
    linnet_model_close(b->m);
}

static const char *path_of(const char *golden)
{
    char file[192];
    snprintf(file, sizeof file, "golden/%s.gguf", golden);
    return test_shared(file);
}

/* Token i of text number `text`. */
static int32_t token(const struct bench *b, int text, size_t i)
{
    return (int32_t)((i * 37 + (size_t)text * 101 + i * i * 7 + 11) % b->n_vocab);
}

/* Run tokens [from, to) of a text; the last one's logits go to out [n_vocab] unless it is NULL. */
static void go_on(const struct bench *b, linnet_session *s, int text, size_t from, size_t to,
                  float *out)
{
    int32_t tokens[2 * N_TOKENS];
    for (size_t i = from; i < to; i++)
        tokens[i - from] = token(b, text, i);
    linnet_item item = {s, tokens, to - from, LINNET_WANT_LAST};
    assert_ok(linnet_run(b->c, &item, 1, &err), err);
    if (out)
        memcpy(out, linnet_logits(b->c, 0, to - from - 1), b->n_vocab * sizeof *out);
}

static linnet_session *session_of(const struct bench *b, int text, size_t n, float *out)
{
    linnet_session *s;
    assert_ok(linnet_session_create(b->c, &s, &err), err);
    go_on(b, s, text, 0, n, out);
    return s;
}

static void same_bits(const struct bench *b, const struct kind *k, const char *what, const float *x,
                      const float *y)
{
    if (memcmp(x, y, b->n_vocab * sizeof *x) != 0)
        fail_msg("%s (%s): %s: logits differ", k->name, k->golden, what);
}

/* ---- what is run ---- */

static bool count_rows(void *user, uint32_t layer, float *hidden, size_t n_rows, size_t width)
{
    (void)hidden, (void)width;
    *(size_t *)user += layer == 0 ? n_rows : 0;
    return false;
}

/* Field bug 33. Going back costs the tokens since the checkpoint before, and no more. */
static void a_second_turn_runs_its_own_tokens_alone(void **state)
{
    const struct kind *k = *state;
    struct bench b;
    float x[MAX_VOCAB], y[MAX_VOCAB];
    size_t rows = 0;
    linnet_observer o;
    bench_open(&b, path_of(k->golden), k->kv);
    linnet_session *fresh = session_of(&b, 0, 48, x), *s = session_of(&b, 0, 40, NULL);
    linnet_observer_defaults(&o);
    o.before_layer = count_rows;
    o.user = &rows;
    linnet_context_observe(b.c, &o);
    go_on(&b, s, 0, 40, 48, y);
    assert_int_equal(rows, 8);
    same_bits(&b, k, "a second turn", x, y);

    rows = 0;
    assert_ok(linnet_session_rollback(s, 29, &err), err);
    go_on(&b, s, 1, 29, 39, y);
    assert_int_equal(rows, 10 + (k->recurrent ? 29 % SPACING : 0));
    linnet_context_observe(b.c, NULL);
    linnet_session_free(fresh);
    fresh = session_of(&b, 0, 29, NULL);
    go_on(&b, fresh, 1, 29, 39, x);
    same_bits(&b, k, "an edit in the middle", x, y);
    bench_close(&b);
}

/* Field bug 21: memory that was used before, or never, changes nothing. */
static void the_same_text_gives_the_same_bits_twenty_times(void **state)
{
    const struct kind *k = *state;
    struct bench b;
    float x[MAX_VOCAB], y[MAX_VOCAB];
    bench_open(&b, path_of(k->golden), k->kv);
    linnet_session_free(session_of(&b, 0, 20, x));
    for (int i = 0; i < 20; i++) {
        linnet_session_free(session_of(&b, 1 + i, 33, y));
        linnet_session_free(session_of(&b, 0, 20, y));
        same_bits(&b, k, "again", x, y);
    }
    bench_close(&b);
}

/* ---- company ---- */

/* Field bug 34: four texts, interleaved in batches of different cuts, against each alone. */
static void check_company(const char *golden, linnet_kv_type kv)
{
    enum { N = 4 };
    static const size_t cuts[N] = {3, 1, 5, 2};
    const struct kind k = {.name = golden, .golden = golden, .kv = kv};
    struct bench b;
    linnet_session *s[N];
    size_t at[N] = {0};
    float alone[N][MAX_VOCAB];
    bench_open(&b, path_of(golden), kv);
    for (int i = 0; i < N; i++) {
        linnet_session_free(session_of(&b, i, 20, alone[i]));
        assert_ok(linnet_session_create(b.c, &s[i], &err), err);
    }
    for (int ended = 0; ended < N;) {
        linnet_item items[N];
        int32_t tokens[N][8];
        int who[N], n = 0;
        for (int i = 0; i < N; i++) {
            size_t cut = 20 - at[i] < cuts[i] ? 20 - at[i] : cuts[i];
            for (size_t t = 0; t < cut; t++)
                tokens[n][t] = token(&b, i, at[i] + t);
            items[n] = (linnet_item){s[i], tokens[n], cut, LINNET_WANT_LAST};
            who[n] = i;
            n += cut > 0;
        }
        assert_ok(linnet_run(b.c, items, (size_t)n, &err), err);
        for (int j = 0; j < n; j++) {
            at[who[j]] += items[j].n_tokens;
            if (at[who[j]] < 20)
                continue;
            ended++;
            same_bits(&b, &k, "in company", alone[who[j]],
                      linnet_logits(b.c, (size_t)j, items[j].n_tokens - 1));
        }
    }
    bench_close(&b);
}

static void interleaved_sessions_of_every_family_are_as_alone(void **state)
{
    (void)state;
    const char *last = "";
    if (golden_n_cases() == 0)
        test_skip_shared("test_kinds");
    for (size_t i = 0; i < golden_n_cases(); i++) {
        const struct golden_case *c = golden_case_at(i);
        if (strcmp(c->arch, last) != 0)
            check_company(c->name, LINNET_KV_F16);
        last = c->arch;
    }
}

static void interleaved_sessions_are_as_alone(void **state)
{
    const struct kind *k = *state;
    check_company(k->golden, k->kv);
}

/* ---- saving ---- */

static uint8_t *read_file(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    *n = (size_t)ftell(f);
    rewind(f);
    uint8_t *p = malloc(*n);
    assert_true(p && fread(p, 1, *n, f) == *n);
    fclose(f);
    return p;
}

static void write_at(const char *path, size_t at, uint8_t byte)
{
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, (long)at, SEEK_SET), 0);
    assert_int_equal(fputc(byte, f), byte);
    assert_int_equal(fclose(f), 0);
}

/* Field bug 32: every byte of the header, both ends and many places of the body. */
static void a_changed_byte_is_refused_and_harms_no_session(void **state)
{
    const struct kind *k = *state;
    enum { HEADER = 56, ENDS = 40, PLACES = 150 };
    char path[] = "/tmp/linnet-kinds-XXXXXX";
    struct bench b;
    float x[MAX_VOCAB], y[MAX_VOCAB];
    size_t n;
    bench_open(&b, path_of(k->golden), k->kv);
    linnet_session *s = session_of(&b, 0, 40, NULL), *loaded;
    close(mkstemp(path));
    assert_ok(linnet_session_save(s, path, &err), err);
    uint8_t *bytes = read_file(path, &n);
    size_t step = n > PLACES ? n / PLACES : 1;
    for (size_t i = 0; i < n; i += i < HEADER + ENDS || i + ENDS > n ? 1 : step) {
        write_at(path, i, bytes[i] ^ (uint8_t)(1u << i % 8));
        if (linnet_session_load(b.c, path, &loaded, &err) == LINNET_OK)
            fail_msg("%s: a file with byte %zu of %zu changed was loaded", k->name, i, n);
        write_at(path, i, bytes[i]);
    }
    go_on(&b, s, 0, 40, 48, x);
    assert_ok(linnet_session_load(b.c, path, &loaded, &err), err);
    go_on(&b, loaded, 0, 40, 48, y);
    same_bits(&b, k, "loaded", x, y);
    linnet_session_free(session_of(&b, 0, 48, y));
    same_bits(&b, k, "the session that ran on", x, y);
    free(bytes);
    unlink(path);
    bench_close(&b);
}

/* The other process: load, go on, write the logits. */
static int continue_elsewhere(char **argv)
{
    struct bench b;
    linnet_session *s;
    float y[MAX_VOCAB];
    bench_open(&b, argv[2], (linnet_kv_type)strtol(argv[5], NULL, 10));
    if (linnet_session_load(b.c, argv[3], &s, &err) != LINNET_OK)
        return 1;
    go_on(&b, s, 0, 40, 48, y);
    FILE *f = fopen(argv[4], "wb");
    size_t n = f ? fwrite(y, sizeof *y, b.n_vocab, f) : 0;
    bool good = f && fclose(f) == 0 && n == b.n_vocab;
    bench_close(&b);
    return good ? 0 : 1;
}

static void a_session_goes_on_in_another_process(void **state)
{
    const struct kind *k = *state;
    char session[] = "/tmp/linnet-kinds-XXXXXX", out[] = "/tmp/linnet-kinds-XXXXXX", line[8192];
    struct bench b;
    float x[MAX_VOCAB];
    size_t n;
    bench_open(&b, path_of(k->golden), k->kv);
    linnet_session *s = session_of(&b, 0, 40, NULL);
    close(mkstemp(session));
    close(mkstemp(out));
    assert_ok(linnet_session_save(s, session, &err), err);
    const char *runner = getenv("RUNNER");
    snprintf(line, sizeof line, "%s %s --continue %s %s %s %d", runner ? runner : "", self,
             path_of(k->golden), session, out, (int)k->kv);
    int status = system(line);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    uint8_t *y = read_file(out, &n);
    go_on(&b, s, 0, 40, 48, x);
    assert_int_equal(n, b.n_vocab * sizeof *x);
    same_bits(&b, k, "in another process", x, (const float *)y);
    free(y);
    unlink(session);
    unlink(out);
    bench_close(&b);
}

/* ---- observers ---- */

/* What the last layer keeps of a text comes from its input, which skipping it does not change. */
static void a_skipped_layer_keeps_what_later_tokens_need(void **state)
{
    const struct kind *k = *state;
    struct bench b;
    float x[MAX_VOCAB], y[MAX_VOCAB], skipped[MAX_VOCAB];
    linnet_observer o;
    bench_open(&b, path_of(k->golden), k->kv);
    linnet_session *s = session_of(&b, 0, 30, y);
    go_on(&b, s, 0, 30, 40, x);
    linnet_observer_defaults(&o);
    o.exit_layer = b.n_layer - 1;
    linnet_context_observe(b.c, &o);
    s = session_of(&b, 0, 30, skipped);
    linnet_context_observe(b.c, NULL);
    assert_memory_not_equal(skipped, y, b.n_vocab * sizeof *y);
    go_on(&b, s, 0, 30, 40, y);
    same_bits(&b, k, "after tokens without the last layer", x, y);
    bench_close(&b);
}

/* ---- memory ---- */

/* The golden Mamba: 4 layers that keep 3 inputs of a convolution of 128 channels, and 16 numbers
 * for each channel. What a step reads of a row is 128 + 128 + 128 + 2 x 16 numbers. */
static void memory_of_recurrent_state_is_what_the_shapes_say(void **state)
{
    (void)state;
    enum { MAX = 5, STATE = 4 * (3 * 128 + 16 * 128) * 4, LOG = 4 * (3 * 128 + 32) * 4 };
    static const struct {
        linnet_checkpoint_kind kind;
        uint64_t limit, state, checkpoints;
    } want[] = {
        {LINNET_CHECKPOINT_EXACT, 1u << 30, STATE, MAX * STATE},
        {LINNET_CHECKPOINT_F16, 1u << 30, STATE, MAX * STATE / 2},
        {LINNET_CHECKPOINT_DELTA, 1u << 30, STATE + SPACING * LOG, MAX * STATE},
        {LINNET_CHECKPOINT_EXACT, 1000, STATE, 1000},
    };
    if (!path_of("mamba"))
        test_skip_shared("test_kinds");
    struct bench b;
    bench_open(&b, path_of("mamba"), LINNET_KV_F16);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        linnet_context_options co;
        linnet_memory memory;
        linnet_context_defaults(&co);
        co.checkpoint_kind = want[i].kind;
        co.checkpoint_spacing = SPACING;
        co.checkpoint_max = MAX;
        co.checkpoint_bytes = want[i].limit;
        assert_ok(linnet_context_memory(b.m, &co, &memory, &err), err);
        assert_int_equal(memory.kv, 0);
        assert_int_equal(memory.state, want[i].state);
        assert_int_equal(memory.checkpoints, want[i].checkpoints);
    }
    bench_close(&b);
}

/* ---- files ---- */

static void layers_that_share_keys_need_none_of_their_own(void **state)
{
    (void)state;
    const char *path = path_of("gemma3n");
    struct gguf *g;
    if (!path)
        test_skip_shared("test_kinds");
    assert_ok(gguf_open(path, &g, &err), err);
    struct mutant m = {.from = g};
    mutant_drop_tensor(&m, "blk.24.attn_k.weight");
    mutant_drop_tensor(&m, "blk.23.attn_v.weight");
    mutant_drop_tensor(&m, "blk.22.attn_k_norm.weight");
    struct bench whole, part;
    linnet_context_options co;
    float x[MAX_VOCAB], y[MAX_VOCAB];
    bench_open(&whole, path, LINNET_KV_F16);
    part = whole;
    assert_ok(mutant_open(&m, false, &part.m, &err), err);
    linnet_context_defaults(&co);
    co.n_ctx = 64;
    assert_ok(linnet_context_create(part.m, &co, &part.c, &err), err);
    session_of(&whole, 0, 20, x);
    session_of(&part, 0, 20, y);
    same_bits(&whole, &kinds[3], "without keys of its own", x, y);
    bench_close(&part);
    bench_close(&whole);
    gguf_close(g);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void **state);
    } rules[] = {
        {"a_second_turn_runs_its_own_tokens_alone", a_second_turn_runs_its_own_tokens_alone},
        {"the_same_text_gives_the_same_bits_twenty_times",
         the_same_text_gives_the_same_bits_twenty_times},
        {"interleaved_sessions_are_as_alone", interleaved_sessions_are_as_alone},
        {"a_changed_byte_is_refused_and_harms_no_session",
         a_changed_byte_is_refused_and_harms_no_session},
        {"a_session_goes_on_in_another_process", a_session_goes_on_in_another_process},
        {"a_skipped_layer_keeps_what_later_tokens_need",
         a_skipped_layer_keeps_what_later_tokens_need}, /* not of kinds with halves: the last */
    };
    enum { N_RULES = sizeof rules / sizeof *rules };
    static struct CMUnitTest tests[N_RULES * N_KINDS + 3];
    static char names[N_RULES * N_KINDS][128];
    size_t n = 0;
    if (argc == 6 && strcmp(argv[1], "--continue") == 0)
        return continue_elsewhere(argv);
    self = argv[0];
    for (size_t r = 0; r < N_RULES && path_of("llama"); r++)
        for (size_t i = 0; i < N_KINDS; i++) {
            if (kinds[i].halves && r == N_RULES - 1)
                continue;
            snprintf(names[n], sizeof names[n], "%s: %s", kinds[i].name, rules[r].name);
            tests[n] = (struct CMUnitTest){names[n], rules[r].run, NULL, NULL, (void *)&kinds[i]};
            n++;
        }
    tests[n++] =
        (struct CMUnitTest)cmocka_unit_test(interleaved_sessions_of_every_family_are_as_alone);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(layers_that_share_keys_need_none_of_their_own);
    tests[n++] =
        (struct CMUnitTest)cmocka_unit_test(memory_of_recurrent_state_is_what_the_shapes_say);
    return _cmocka_run_group_tests("kinds", tests, n, NULL, NULL);
}
