/*
 * `linnet bench`: how fast a model runs, beside how fast this machine could run it.
 *
 * A test is a prompt of so many tokens in an empty session, or so many tokens generated one by one
 * after so many others, in one session or several at once. Tokens come from a fixed generator;
 * nothing is sampled. Each test runs once unmeasured, then --reps times. What stands before
 * generation is computed once and forked, so that it costs the measurement nothing.
 *
 * The limit of a test is the longer of two times: reading once every byte it must read
 * (model/cost.h) at the measured bandwidth, and its products at the measured peak.
 */
#include "cli/commands.h"
#include "cli/engine.h"

#include "kernel/probe.h"
#include "model/cost.h"
#include "model/model.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_SIZES = 16, /* values of one list option */
    MAX_REPS = 1000,
    MAX_SEQS = 1024,
    PIECE = 512, /* tokens between two looks at Ctrl-C: as many as a context runs at once */
};

struct bench_opts {
    struct engine_opts engine;
    const char *prompt, *depth, *parallel;
    int64_t gen, reps;
    bool json, from_stdin;
};

struct test {
    size_t prompt;             /* tokens of a prompt; 0: generation */
    size_t gen, depth, n_seqs; /* of generation */
    double seconds[MAX_REPS];  /* [n] */
    size_t n;
    double limit;      /* seconds */
    const char *bound; /* what the limit is of: "read", "int8", "f32" */
};

struct bench {
    const struct bench_opts *o;
    struct engine e;
    size_t n_vocab, n_ctx;
    linnet_session *base[MAX_SEQS]; /* [n_base], each of `depth` tokens */
    size_t n_base, depth;
    struct probe machine;
    struct test *tests; /* [n_tests] */
    size_t n_tests;
};

/* Token `at` of sequence `seq`. */
static int32_t token_at(const struct bench *b, size_t seq, size_t at)
{
    uint64_t x = (seq * 1000003u + at + 1) * 0x9E3779B97F4A7C15u;
    x ^= x >> 29;
    x *= 0xBF58476D1CE4E5B9u;
    return (int32_t)((x >> 32) % b->n_vocab);
}

/* ---- running ---- */

static linnet_status drop_base(struct bench *b, linnet_status s)
{
    while (b->n_base)
        linnet_session_free(b->base[--b->n_base]);
    b->depth = 0;
    return s;
}

/* A context that holds sessions of n positions. */
static linnet_status need_ctx(struct bench *b, size_t n, linnet_error *err)
{
    if (n <= b->n_ctx)
        return LINNET_OK;
    drop_base(b, LINNET_OK);
    linnet_context_free(b->e.ctx);
    b->e.ctx = NULL;
    linnet_context_options co;
    linnet_context_defaults(&co);
    co.n_ctx = (uint32_t)n;
    co.n_batch = PIECE;
    co.kv_k = co.kv_v = engine_kv_type(b->o->engine.kv);
    b->n_ctx = n;
    return linnet_context_create(b->e.model, &co, &b->e.ctx, err);
}

/* Append tokens of sequence `seq` until the session has `end`. */
static linnet_status extend(struct bench *b, linnet_session *s, size_t seq, size_t end,
                            linnet_error *err)
{
    int32_t ids[PIECE];
    while (linnet_session_length(s) < end && !cli_interrupted) {
        size_t at = linnet_session_length(s), n = end - at < PIECE ? end - at : PIECE;
        for (size_t i = 0; i < n; i++)
            ids[i] = token_at(b, seq, at + i);
        linnet_item item = {s, ids, n, at + n == end ? LINNET_WANT_LAST : LINNET_WANT_NONE};
        linnet_status status = linnet_run(b->e.ctx, &item, 1, err);
        if (status != LINNET_OK)
            return status;
    }
    return LINNET_OK;
}

static linnet_status run_prompt(struct bench *b, size_t n, double *seconds, linnet_error *err)
{
    linnet_session *s;
    linnet_status status = linnet_session_create(b->e.ctx, &s, err);
    if (status != LINNET_OK)
        return status;
    double t = cli_seconds();
    status = extend(b, s, 0, n, err);
    *seconds = cli_seconds() - t;
    linnet_session_free(s);
    return status;
}

/* Sessions that hold what stands before generation. */
static linnet_status make_base(struct bench *b, const struct test *t, linnet_error *err)
{
    if (t->depth < b->depth)
        drop_base(b, LINNET_OK);
    b->depth = t->depth;
    for (size_t i = 0; i < t->n_seqs; i++) {
        linnet_status s =
            i < b->n_base ? LINNET_OK : linnet_session_create(b->e.ctx, &b->base[i], err);
        if (s != LINNET_OK)
            return s;
        b->n_base = i < b->n_base ? b->n_base : i + 1;
        s = extend(b, b->base[i], i, t->depth, err);
        if (s != LINNET_OK || cli_interrupted)
            return drop_base(b, s);
    }
    while (b->n_base > t->n_seqs)
        linnet_session_free(b->base[--b->n_base]);
    return LINNET_OK;
}

static linnet_status generate(struct bench *b, const struct test *t, linnet_session **fork,
                              linnet_error *err)
{
    int32_t ids[MAX_SEQS];
    linnet_item items[MAX_SEQS];
    for (size_t n = 0; n < t->gen && !cli_interrupted; n++) {
        for (size_t i = 0; i < t->n_seqs; i++) {
            ids[i] = token_at(b, i, t->depth + n);
            items[i] = (linnet_item){fork[i], &ids[i], 1, LINNET_WANT_LAST};
        }
        linnet_status s = linnet_run(b->e.ctx, items, t->n_seqs, err);
        if (s != LINNET_OK)
            return s;
    }
    return LINNET_OK;
}

static linnet_status run_generation(struct bench *b, const struct test *t, double *seconds,
                                    linnet_error *err)
{
    linnet_session *fork[MAX_SEQS];
    size_t n = 0;
    linnet_status s = make_base(b, t, err);
    for (; s == LINNET_OK && n < t->n_seqs && !cli_interrupted; n++) {
        s = linnet_session_fork(b->base[n], &fork[n], err);
        if (s != LINNET_OK)
            break;
    }
    if (s == LINNET_OK && !cli_interrupted) {
        double start = cli_seconds();
        s = generate(b, t, fork, err);
        *seconds = cli_seconds() - start;
    }
    while (n)
        linnet_session_free(fork[--n]);
    return s;
}

/* One run of a test, from the state that it needs. After Ctrl-C *seconds means nothing. */
static linnet_status run_test(struct bench *b, const struct test *t, double *seconds,
                              linnet_error *err)
{
    linnet_status s = need_ctx(b, t->prompt ? t->prompt : t->depth + t->gen, err);
    if (s != LINNET_OK)
        return s;
    return t->prompt ? run_prompt(b, t->prompt, seconds, err) : run_generation(b, t, seconds, err);
}

/* ---- limits ---- */

static struct cost cost_at(const struct bench *b, uint64_t n_seqs, uint64_t n_rows, uint64_t n_out,
                           uint64_t pos)
{
    enum kv_type kv = (enum kv_type)engine_kv_type(b->o->engine.kv);
    struct cost_run r = {n_seqs, n_rows, n_out, pos, kv, kv};
    return plan_cost(&b->e.model->plan, &r);
}

static void add_limit(const struct bench *b, struct test *t, const struct cost *c)
{
    double read = c->bytes / b->machine.read, int8 = c->int8_ops / b->machine.int8,
           f32 = c->f32_ops / b->machine.f32;
    t->limit += read > int8 + f32 ? read : int8 + f32;
    t->bound = read > int8 + f32 ? "read" : int8 > f32 ? "int8" : "f32";
}

static void find_limit(const struct bench *b, struct test *t)
{
    t->limit = 0.0;
    for (size_t at = 0; at < t->prompt; at += PIECE) {
        size_t n = t->prompt - at < PIECE ? t->prompt - at : PIECE;
        struct cost c = cost_at(b, 1, n, at + n == t->prompt, at);
        add_limit(b, t, &c);
    }
    for (size_t i = 0; i < t->gen; i++) {
        struct cost c = cost_at(b, t->n_seqs, 1, t->n_seqs, t->depth + i);
        add_limit(b, t, &c);
    }
}

/* ---- figures ---- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct figures {
    double median, spread; /* seconds; half the range divided by the median */
};

static struct figures figures_of(const struct test *t)
{
    double x[MAX_REPS];
    memcpy(x, t->seconds, t->n * sizeof *x);
    qsort(x, t->n, sizeof *x, by_value);
    double median = (x[(t->n - 1) / 2] + x[t->n / 2]) / 2.0;
    return (struct figures){median, (x[t->n - 1] - x[0]) / 2.0 / median};
}

static double tokens_of(const struct test *t)
{
    return t->prompt ? (double)t->prompt : (double)(t->gen * t->n_seqs);
}

static void name_of(const struct test *t, char *buf, size_t size)
{
    if (t->prompt) {
        snprintf(buf, size, "prompt %zu", t->prompt);
        return;
    }
    int n = snprintf(buf, size, "generate %zu", t->gen);
    if (t->depth)
        n += snprintf(buf + n, size - (size_t)n, " after %zu", t->depth);
    if (t->n_seqs > 1)
        snprintf(buf + n, size - (size_t)n, ", %zu at once", t->n_seqs);
}

static void print_text(const struct bench *b)
{
    linnet_model_info m;
    char size[CLI_NUM_LEN], params[CLI_NUM_LEN];
    linnet_model_get_info(b->e.model, &m);
    printf("%s: %s parameters, %s; %s, %u thread%s, kv %s\n", m.arch,
           cli_format_count(params, m.n_params), cli_format_size(size, m.weight_bytes), m.isa,
           m.threads, m.threads == 1 ? "" : "s", b->o->engine.kv);
    printf("this machine: reads %.1f GB/s, int8 %.0f Gop/s, f32 %.0f Gop/s\n\n",
           b->machine.read * 1e-9, b->machine.int8 * 1e-9, b->machine.f32 * 1e-9);
    printf("%s%-34s %10s %8s %10s %9s%s\n", cli_style(stdout, CLI_BOLD), "test", "tokens/s",
           "spread", "limit", "of limit", cli_style(stdout, CLI_PLAIN));
    for (size_t i = 0; i < b->n_tests; i++) {
        const struct test *t = &b->tests[i];
        if (t->n == 0)
            continue;
        char name[64];
        struct figures f = figures_of(t);
        name_of(t, name, sizeof name);
        printf("%-34s %10.2f %7.1f%% %10.1f %8.0f%%  %s\n", name, tokens_of(t) / f.median,
               f.spread * 100.0, tokens_of(t) / t->limit, t->limit / f.median * 100.0, t->bound);
    }
}

static json_t *json_test(const struct test *t)
{
    struct figures f = figures_of(t);
    json_t *seconds = json_array();
    for (size_t i = 0; i < t->n; i++)
        json_array_append_new(seconds, json_real(t->seconds[i]));
    json_t *j =
        t->prompt
            ? json_pack("{s:s, s:I}", "test", "prompt", "tokens", (json_int_t)t->prompt)
            : json_pack("{s:s, s:I, s:I, s:I}", "test", "generate", "tokens", (json_int_t)t->gen,
                        "after", (json_int_t)t->depth, "at_once", (json_int_t)t->n_seqs);
    json_t *rest =
        json_pack("{s:f, s:f, s:f, s:f, s:s, s:o}", "tokens_per_second", tokens_of(t) / f.median,
                  "spread", f.spread, "limit", tokens_of(t) / t->limit, "of_limit",
                  t->limit / f.median, "bound", t->bound, "seconds", seconds);
    json_object_update(j, rest);
    json_decref(rest);
    return j;
}

static void print_json(const struct bench *b)
{
    linnet_model_info m;
    linnet_model_get_info(b->e.model, &m);
    json_t *tests = json_array();
    for (size_t i = 0; i < b->n_tests; i++)
        if (b->tests[i].n)
            json_array_append_new(tests, json_test(&b->tests[i]));
    json_t *j = json_pack("{s:s, s:s, s:I, s:I, s:I, s:s, s:i, s:s, s:{s:f, s:f, s:f}, s:o}",
                          "version", linnet_version(), "arch", m.arch, "parameters",
                          (json_int_t)m.n_params, "weight_bytes", (json_int_t)m.weight_bytes,
                          "step_bytes", (json_int_t)m.step_bytes, "isa", m.isa, "threads",
                          (int)m.threads, "kv_type", b->o->engine.kv, "machine",
                          "read_bytes_per_second", b->machine.read, "int8_ops_per_second",
                          b->machine.int8, "f32_ops_per_second", b->machine.f32, "tests", tests);
    json_dumpf(j, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(8));
    putchar('\n');
    json_decref(j);
}

/* ---- the tests that were asked for ---- */

/* "32,128" -> sizes, each lo..hi; the number of them, or -1 after an error. */
static int parse_sizes(const char *flag, const char *text, long lo, long hi, size_t *out)
{
    int n = 0;
    for (const char *p = text; *p;) {
        char *end;
        errno = 0;
        long v = strtol(p, &end, 10);
        if (end == p || errno || v < lo || v > hi || (*end && *end != ',') || n == MAX_SIZES) {
            cli_usage(&cmd_bench, "%s: '%s' is not a list of at most %d numbers in %ld..%ld", flag,
                      text, MAX_SIZES, lo, hi);
            return -1;
        }
        out[n++] = (size_t)v;
        p = *end ? end + 1 : end;
    }
    return n;
}

static int list_tests(struct bench *b)
{
    const struct bench_opts *o = b->o;
    size_t prompt[MAX_SIZES], depth[MAX_SIZES], seqs[MAX_SIZES];
    int n_prompt = parse_sizes("--prompt", o->prompt, 0, 1 << 24, prompt);
    int n_depth = parse_sizes("--after", o->depth, 0, 1 << 24, depth);
    int n_seqs = parse_sizes("--parallel", o->parallel, 1, MAX_SEQS, seqs);
    if (n_prompt < 0 || n_depth < 0 || n_seqs < 0)
        return CLI_USAGE;
    b->tests = cli_alloc((size_t)(n_prompt + n_depth * n_seqs + 1) * sizeof *b->tests);
    for (int i = 0; i < n_prompt; i++)
        if (prompt[i])
            b->tests[b->n_tests++] = (struct test){.prompt = prompt[i]};
    for (int s = 0; s < n_seqs && o->gen; s++)
        for (int d = 0; d < n_depth; d++)
            b->tests[b->n_tests++] =
                (struct test){.gen = (size_t)o->gen, .depth = depth[d], .n_seqs = seqs[s]};
    return b->n_tests ? CLI_OK
                      : cli_usage(&cmd_bench, "nothing to do: --prompt and --gen are both empty");
}

static linnet_status run_tests(struct bench *b, linnet_error *err)
{
    const size_t reps = (size_t)b->o->reps;
    struct cli_progress bar;
    linnet_status s = probe_machine(b->e.model->pool, b->e.model->kernels, &b->machine, err);
    size_t most = 1;
    for (size_t i = 0; i < b->n_tests; i++) {
        size_t n = b->tests[i].prompt + b->tests[i].depth + b->tests[i].gen;
        most = n > most ? n : most;
    }
    if (s == LINNET_OK)
        s = need_ctx(b, most, err);
    cli_progress_start(&bar, "measuring", false, 0, b->n_tests * (reps + 1), b->o->engine.quiet);
    for (size_t i = 0; i < b->n_tests && s == LINNET_OK; i++) {
        struct test *t = &b->tests[i];
        for (size_t r = 0; r <= reps && s == LINNET_OK && !cli_interrupted; r++) {
            double seconds;
            s = run_test(b, t, &seconds, err);
            if (r && s == LINNET_OK && !cli_interrupted)
                t->seconds[t->n++] = seconds;
            cli_progress_update(&bar, i * (reps + 1) + r + 1);
        }
    }
    cli_progress_end(&bar);
    if (s == LINNET_OK)
        s = probe_machine(b->e.model->pool, b->e.model->kernels, &b->machine, err);
    for (size_t i = 0; i < b->n_tests; i++)
        find_limit(b, &b->tests[i]);
    return s;
}

static int measure(struct bench *b)
{
    linnet_error err;
    int rc = list_tests(b);
    if (rc != CLI_OK)
        return rc;
    linnet_status s = run_tests(b, &err);
    if (s != LINNET_OK)
        return cli_fail_with(&err);
    if (b->o->json)
        print_json(b);
    else
        print_text(b);
    return cli_interrupted ? CLI_FAILED : CLI_OK;
}

static linnet_status answer_limits(struct bench *b, linnet_error *err)
{
    linnet_status s = probe_machine(b->e.model->pool, b->e.model->kernels, &b->machine, err);
    if (s == LINNET_OK)
        printf("%.0f %.0f %.0f\n", b->machine.read, b->machine.int8, b->machine.f32);
    return s;
}

/* A test a line, its seconds and its limit a line, for programs that let several engines take
 * turns. */
static int answer(struct bench *b)
{
    char line[200];
    while (!cli_interrupted && fgets(line, sizeof line, stdin)) {
        struct test t = {.n_seqs = 1};
        linnet_error err;
        double seconds = 0.0;
        if (strcmp(line, "limits\n") == 0) {
            if (answer_limits(b, &err) != LINNET_OK)
                return cli_fail_with(&err);
            fflush(stdout);
            continue;
        }
        bool known = sscanf(line, "prompt %zu", &t.prompt) == 1 && t.prompt > 0;
        if (!known)
            known =
                sscanf(line, "generate %zu %zu %zu", &t.gen, &t.depth, &t.n_seqs) == 3 && t.gen > 0;
        if (!known || t.n_seqs < 1 || t.n_seqs > MAX_SEQS || t.prompt + t.gen + t.depth > INT32_MAX)
            return cli_fail("'%.*s' is no test: 'prompt N' or 'generate N AFTER SEQUENCES'",
                            (int)strcspn(line, "\n"), line);
        if (run_test(b, &t, &seconds, &err) != LINNET_OK)
            return cli_fail_with(&err);
        if (cli_interrupted)
            break;
        if (b->machine.read > 0.0)
            find_limit(b, &t);
        printf("%.9f %.9f\n", seconds, t.limit);
        fflush(stdout);
    }
    return cli_interrupted ? CLI_FAILED : CLI_OK;
}

static int run(const void *opts, int n_args, char **args)
{
    (void)n_args;
    struct bench b = {.o = opts};
    cli_catch_interrupt();
    int rc = engine_open(&b.e, args[0], &b.o->engine, PIECE);
    if (rc != CLI_OK)
        return rc;
    linnet_model_info info;
    linnet_model_get_info(b.e.model, &info);
    b.n_vocab = info.n_vocab;
    b.n_ctx = PIECE;
    rc = b.o->from_stdin ? answer(&b) : measure(&b);
    free(b.tests);
    engine_close(&b.e);
    return rc;
}

static const struct cli_opt opts[] = {
    {.flag = "--prompt",
     .letter = 'p',
     CLI_TEXT(struct bench_opts, prompt),
     .arg = "SIZES",
     .def = "32,128,512",
     .help = "tokens of the prompts; 0: none"},
    {.flag = "--gen",
     .letter = 'n',
     CLI_INT(struct bench_opts, gen, 0, 1 << 24),
     .arg = "N",
     .def = "64",
     .help = "tokens to generate; 0: none"},
    {.flag = "--after",
     .letter = 'd',
     CLI_TEXT(struct bench_opts, depth),
     .arg = "SIZES",
     .def = "0,512",
     .help = "tokens that stand before the generated ones"},
    {.flag = "--parallel",
     CLI_TEXT(struct bench_opts, parallel),
     .arg = "SIZES",
     .def = "1",
     .help = "sequences that generate at once"},
    {.flag = "--reps",
     .letter = 'r',
     CLI_INT(struct bench_opts, reps, 1, MAX_REPS),
     .arg = "N",
     .def = "5",
     .help = "runs of each test; the median counts"},
    {.flag = "--json", CLI_FLAG(struct bench_opts, json), .help = "print the result as JSON"},
    {.flag = "--from-stdin",
     CLI_FLAG(struct bench_opts, from_stdin),
     .help = "read tests, one a line, and answer each"},
    ENGINE_OPTS_NO_CTX(struct bench_opts),
    {0},
};

static const struct cli_arg args[] = {
    {.name = "MODEL", .help = "model file or name", .hint = CLI_HINT_MODEL},
    {0},
};

const struct cli_command cmd_bench = {
    .name = "bench",
    .group = CLI_GROUP_MEASURE,
    .summary = "how fast a model runs, and how fast it could",
    .about = "Measures prompts and generation with made-up tokens; nothing is sampled. The spread "
             "is half the range of the "
             "runs. The limit is what this machine's memory bandwidth and peak arithmetic, "
             "measured in the same run, "
             "allow: the weights, keys and values that must be read (read), or the products of the "
             "weights (int8, f32).\n"
             "With --from-stdin a line is 'prompt N' or 'generate N AFTER SEQUENCES', answered "
             "with seconds and the seconds "
             "of the limit, or 'limits', which measures the machine and answers bytes read, int8 "
             "and f32 operations per "
             "second; before it limits are 0.",
    .args = args,
    .opts = opts,
    .opts_size = sizeof(struct bench_opts),
    .examples = "linnet bench smollm2\tprompts and generation\n"
                "linnet bench model.gguf -p 0 -d 4096 --parallel 1,4,16\tgeneration in a long "
                "context, several at once\n",
    .run = run,
};
