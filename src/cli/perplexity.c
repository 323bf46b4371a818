/*
 * `linnet perplexity`: how well a model predicts a text. Windows are cut as llama.cpp cuts them by
 * default, so that figures can be compared: windows of --ctx tokens that do not overlap, each
 * beginning with BOS where the model begins texts with it; the second half of each window is
 * scored.
 */
#include "cli/commands.h"
#include "cli/engine.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>

struct perplexity_opts {
    struct engine_opts engine;
    int64_t chunks;
    bool json;
};

#define TEXT_MAX ((size_t)4 << 30)

struct score {
    double sum, sum2; /* of -log p, and its square */
    size_t n;
};

/* -log of the probability that softmax(logits) gives to `id`. */
static double surprise(const float *logits, size_t n, int32_t id)
{
    float max = logits[0];
    for (size_t i = 1; i < n; i++)
        max = logits[i] > max ? logits[i] : max;
    double sum = 0.0;
    for (size_t i = 0; i < n; i++)
        sum += exp((double)(logits[i] - max));
    return log(sum) - (double)(logits[id] - max);
}

/* Score the second half of a window of n tokens. The head runs for that half alone. */
static linnet_status score_window(struct engine *e, int32_t *ids, size_t n, size_t n_vocab,
                                  struct score *out, linnet_error *err)
{
    int32_t first = ids[0];
    size_t half = n / 2;
    if (linnet_adds_bos(e->model))
        ids[0] = linnet_token_bos(e->model);
    linnet_status s = linnet_session_rollback(e->session, 0, err);
    linnet_item prompt = {e->session, ids, half, LINNET_WANT_NONE};
    linnet_item scored = {e->session, ids + half, n - half, LINNET_WANT_ALL};
    if (s == LINNET_OK)
        s = linnet_run(e->ctx, &prompt, 1, err);
    if (s == LINNET_OK)
        s = linnet_run(e->ctx, &scored, 1, err);
    for (size_t i = 0; s == LINNET_OK && i + 1 < scored.n_tokens; i++) {
        double v = surprise(linnet_logits(e->ctx, 0, i), n_vocab, scored.tokens[i + 1]);
        out->sum += v;
        out->sum2 += v * v;
        out->n++;
    }
    ids[0] = first;
    return s;
}

/* exp(mean), and the standard error of it by propagation through exp. */
static void figures(const struct score *s, double *ppl, double *error)
{
    double n = (double)s->n, mean = s->sum / n, var = s->sum2 / n - mean * mean;
    *ppl = exp(mean);
    *error = s->n > 1 && var > 0 ? *ppl * sqrt(var / (n - 1)) : 0.0;
}

static void report(const struct perplexity_opts *o, const struct score *s, size_t windows,
                   size_t n_ctx)
{
    double ppl, error;
    figures(s, &ppl, &error);
    if (!o->json) {
        printf("perplexity %.4f +- %.4f (%zu windows of %zu tokens, %zu scored)\n", ppl, error,
               windows, n_ctx, s->n);
        return;
    }
    json_t *j =
        json_pack("{s:f, s:f, s:I, s:I, s:I}", "perplexity", ppl, "error", error, "windows",
                  (json_int_t)windows, "n_ctx", (json_int_t)n_ctx, "scored", (json_int_t)s->n);
    json_dumpf(j, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(j);
}

static int measure(struct engine *e, const struct perplexity_opts *o, int32_t *ids, size_t n)
{
    linnet_model_info info;
    linnet_model_get_info(e->model, &info);
    size_t n_ctx = linnet_context_n_ctx(e->ctx), windows = n / n_ctx, i;
    if (n < 2 * n_ctx)
        return cli_fail("the text has %zu tokens; %zu are needed for two windows of %zu (--ctx)", n,
                        2 * n_ctx, n_ctx);
    if (o->chunks && (size_t)o->chunks < windows)
        windows = (size_t)o->chunks;
    struct score score = {0};
    struct cli_progress bar;
    cli_interrupt_cancels(e->ctx);
    cli_progress_start(&bar, "perplexity", false, 0, windows, o->engine.quiet);
    for (i = 0; i < windows && !cli_interrupted; i++) {
        linnet_error err;
        linnet_status status = score_window(e, ids + i * n_ctx, n_ctx, info.n_vocab, &score, &err);
        if (status == LINNET_CANCELLED)
            break;
        if (status != LINNET_OK) {
            cli_progress_end(&bar);
            return cli_fail_with(&err);
        }
        cli_progress_update(&bar, i + 1);
    }
    cli_progress_end(&bar);
    cli_interrupt_cancels(NULL);
    if (score.n == 0)
        return CLI_FAILED;
    if (!isfinite(score.sum))
        return cli_fail(
            "a probability is not a number: the model's weights or activations overflow");
    report(o, &score, i, n_ctx);
    return i < windows ? CLI_FAILED : CLI_OK;
}

static int run(const void *opts, int n_args, char **args)
{
    (void)n_args;
    const struct perplexity_opts *o = opts;
    struct engine e;
    size_t len, n = 0;
    char *text = cli_read_file(args[1], TEXT_MAX, &len);
    if (!text)
        return CLI_FAILED;
    cli_catch_interrupt();
    int rc = engine_open(&e, args[0], &o->engine, 0);
    if (rc == CLI_OK) {
        int32_t *ids = engine_tokenize(&e, text, len, LINNET_ADD_SPECIAL, &n);
        rc = ids ? measure(&e, o, ids, n) : CLI_FAILED;
        free(ids);
        engine_close(&e);
    }
    free(text);
    return rc;
}

static const struct cli_opt opts[] = {
    {.flag = "--chunks",
     CLI_INT(struct perplexity_opts, chunks, 0, INT32_MAX),
     .arg = "N",
     .def = "0",
     .help = "windows to score; 0: all"},
    {.flag = "--json", CLI_FLAG(struct perplexity_opts, json), .help = "print the result as JSON"},
    {.flag = "--ctx",
     .letter = 'c',
     CLI_INT(struct perplexity_opts, engine.ctx, 4, INT32_MAX),
     .arg = "N",
     .def = "512",
     .help = "tokens in a window"},
    ENGINE_OPTS_NO_CTX(struct perplexity_opts),
    {0},
};

static const struct cli_arg args[] = {
    {.name = "MODEL", .help = "model file or name", .hint = CLI_HINT_MODEL},
    {.name = "FILE", .help = "text to score; - is stdin", .hint = CLI_HINT_FILE},
    {0},
};

const struct cli_command cmd_perplexity = {
    .name = "perplexity",
    .group = CLI_GROUP_MEASURE,
    .summary = "how well a model predicts a text",
    .about = "Cuts the text into windows of --ctx tokens, begins each with BOS if the model wants "
             "one, and scores the second "
             "half of each, as llama.cpp's tool does by default. The error is the standard error "
             "of the mean, through exp.",
    .args = args,
    .opts = opts,
    .opts_size = sizeof(struct perplexity_opts),
    .examples = "linnet perplexity smollm2 text.txt\tscore a file\n",
    .run = run,
};
