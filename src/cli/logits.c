/*
 * `linnet logits`: the raw logits of given tokens, for comparing with other programs.
 */
#include "cli/commands.h"
#include "cli/engine.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct logits_opts {
    struct engine_opts engine;
    const char *tokens, *out;
    int64_t chunk;
};

/* "1,2,3" or "1 2 3" -> ids; NULL after an error. */
static int32_t *parse_tokens(const char *text, size_t *n)
{
    int32_t *ids = cli_alloc((strlen(text) / 2 + 1) * sizeof *ids);
    const char *p = text;
    *n = 0;
    while (*p) {
        char *end;
        errno = 0;
        long v = strtol(p, &end, 10);
        if (end == p || errno || v < 0 || v > INT32_MAX || (*end && !strchr(", ", *end))) {
            cli_fail("--tokens: '%.20s' is not a token id", p);
            free(ids);
            return NULL;
        }
        ids[(*n)++] = (int32_t)v;
        p = end + strspn(end, ", ");
    }
    return ids;
}

static bool all_finite(const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x[i]) && !(x[i] < 0.0f && isinf(x[i])))
            return false;
    return true;
}

static int write_logits(const struct engine *e, const int32_t *ids, size_t n, size_t chunk, FILE *f)
{
    linnet_model_info info;
    linnet_model_get_info(e->model, &info);
    bool finite = true;
    for (size_t at = 0; at < n; at += chunk) {
        linnet_error err;
        linnet_item item = {e->session, ids + at, n - at < chunk ? n - at : chunk, LINNET_WANT_ALL};
        if (linnet_run(e->ctx, &item, 1, &err) != LINNET_OK)
            return cli_fail_with(&err);
        for (size_t i = 0; i < item.n_tokens; i++) {
            const float *row = linnet_logits(e->ctx, 0, i);
            finite = finite && all_finite(row, info.n_vocab);
            if (fwrite(row, sizeof(float), info.n_vocab, f) != info.n_vocab)
                return cli_fail("cannot write the logits: %s", strerror(errno));
        }
    }
    if (!finite)
        return cli_fail("the logits were written, but some are not numbers: the model's weights or "
                        "activations overflow");
    return CLI_OK;
}

/* The draft head's logits for the same tokens: its row i is fed the hidden state of token i - 1. */
static int write_draft(const struct engine *e, const int32_t *ids, size_t n, size_t chunk, FILE *f)
{
    linnet_model_info info;
    linnet_model_get_info(e->model, &info);
    if (!info.has_draft)
        return cli_fail("this %s model has no draft head", info.arch);
    const size_t width = info.n_embd * sizeof(float);
    chunk = chunk < n ? chunk : n;
    float *before = cli_alloc((chunk + 1) * width);
    int rc = CLI_OK;
    for (size_t at = 0; at < n && rc == CLI_OK; at += chunk) {
        linnet_error err;
        size_t count = n - at < chunk ? n - at : chunk;
        linnet_item item = {e->session, ids + at, count, LINNET_WANT_HIDDEN};
        linnet_draft_item rows = {e->session, at, ids + at, before, count, LINNET_WANT_ALL};
        linnet_status s = linnet_run(e->ctx, &item, 1, &err);
        for (size_t i = 0; i < count && s == LINNET_OK; i++)
            memcpy(before + (i + 1) * info.n_embd, linnet_hidden(e->ctx, 0, i), width);
        if (s == LINNET_OK)
            s = linnet_draft_run(e->ctx, &rows, 1, &err);
        if (s != LINNET_OK)
            rc = cli_fail_with(&err);
        for (size_t i = 0; i < count && rc == CLI_OK; i++)
            if (fwrite(linnet_draft_logits(e->ctx, 0, i), sizeof(float), info.n_vocab, f) !=
                info.n_vocab)
                rc = cli_fail("cannot write the logits: %s", strerror(errno));
        memcpy(before, before + count * info.n_embd, width);
    }
    free(before);
    return rc;
}

static int run(const void *opts, int n_args, char **args)
{
    (void)n_args;
    const struct logits_opts *o = opts;
    struct engine e;
    size_t n;
    if (!o->tokens || !o->out)
        return cli_usage(&cmd_logits, "--tokens and --out are both needed");
    int32_t *ids = parse_tokens(o->tokens, &n);
    if (!ids)
        return CLI_USAGE;
    int rc = engine_open(&e, args[0], &o->engine, 0);
    if (rc != CLI_OK) {
        free(ids);
        return rc;
    }
    FILE *f = strcmp(o->out, "-") == 0 ? stdout : fopen(o->out, "wb");
    if (!f) {
        rc = cli_fail("cannot write '%s': %s", o->out, strerror(errno));
    } else {
        size_t chunk = o->chunk ? (size_t)o->chunk : n ? n : 1;
        rc = (o->engine.draft ? write_draft : write_logits)(&e, ids, n, chunk, f);
        if ((f == stdout ? fflush(f) : fclose(f)) != 0 && rc == CLI_OK)
            rc = cli_fail("cannot write '%s': %s", o->out, strerror(errno));
    }
    free(ids);
    engine_close(&e);
    return rc;
}

static const struct cli_opt opts[] = {
    {.flag = "--tokens",
     CLI_TEXT(struct logits_opts, tokens),
     .arg = "IDS",
     .help = "token ids, as 1,2,3"},
    {.flag = "--out",
     .letter = 'o',
     CLI_TEXT(struct logits_opts, out),
     .arg = "FILE",
     .help = "where to write; - is stdout",
     .hint = CLI_HINT_FILE},
    {.flag = "--chunk",
     CLI_INT(struct logits_opts, chunk, 0, INT32_MAX),
     .arg = "N",
     .def = "0",
     .help = "tokens run at once; 0: all"},
    {.flag = "--draft",
     CLI_FLAG(struct logits_opts, engine.draft),
     .help = "the logits of the model's draft head (NextN, MTP) instead"},
    ENGINE_OPTS(struct logits_opts),
    {0},
};

static const struct cli_arg args[] = {
    {.name = "MODEL", .help = "model file or name", .hint = CLI_HINT_MODEL},
    {0},
};

const struct cli_command cmd_logits = {
    .name = "logits",
    .group = CLI_GROUP_MEASURE,
    .summary = "write the logits of given tokens",
    .about =
        "Runs the tokens as they are (no BOS is added) and writes raw little-endian float32, "
        "[tokens][vocabulary]. The "
        "bytes do not depend on --chunk or --threads. Without --ctx the context is what the model "
        "was trained for. With "
        "--draft row i is the draft head's, fed the hidden state before token i and that token.",
    .args = args,
    .opts = opts,
    .opts_size = sizeof(struct logits_opts),
    .examples = "linnet logits model.gguf --tokens 1,2,3 --out logits.f32\tlogits after each of "
                "three tokens\n",
    .run = run,
};
