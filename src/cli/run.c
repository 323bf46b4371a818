/*
 * `linnet run`: a prompt goes in, text comes out as it is made.
 */
#include "cli/commands.h"
#include "cli/engine.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct run_opts {
    struct engine_opts engine;
    int64_t n, top_k, seed;
    double temp, top_p, min_p;
    struct cli_list stop;
    const char *session;
    bool special;
};

/* A prompt longer than this is not text for a model. */
#define PROMPT_MAX ((size_t)256 << 20)

struct output {
    bool failed;   /* stdout takes no more */
    bool mid_line; /* the text so far does not end in a line feed */
};

static bool on_text(void *user, const char *bytes, size_t n)
{
    struct output *out = user;
    if (fwrite(bytes, 1, n, stdout) != n || fflush(stdout) != 0)
        out->failed = true;
    out->mid_line = bytes[n - 1] != '\n';
    return !out->failed && !cli_interrupted;
}

static void print_speed(const linnet_generated *g)
{
    static const char *const why[] = {"token limit", "end of text", "stop text", "context full",
                                      "interrupted"};
    double p = g->prompt_seconds > 0 ? (double)g->n_prompt / g->prompt_seconds : 0;
    /* the first token comes from the prompt's logits: one step less was timed */
    double steps = g->n_tokens > 1 ? (double)(g->n_tokens - 1) : 0;
    char speed[CLI_NUM_LEN] = "";
    if (steps > 0 && g->decode_seconds > 0)
        snprintf(speed, sizeof speed, ", %.1f/s", steps / g->decode_seconds);
    fprintf(stderr, "%s[prompt %zu tokens, %.1f/s; generated %zu%s; %s]%s\n",
            cli_style(stderr, CLI_DIM), g->n_prompt, p, g->n_tokens, speed, why[g->finish],
            cli_style(stderr, CLI_PLAIN));
}

static linnet_status make_sampler(const struct run_opts *o, linnet_sampler **out, linnet_error *err)
{
    linnet_sampler_options so;
    linnet_sampler_defaults(&so);
    so.temp = (float)o->temp;
    so.top_k = (int32_t)o->top_k;
    so.top_p = (float)o->top_p;
    so.min_p = (float)o->min_p;
    so.seed = o->seed >= 0
                  ? (uint64_t)o->seed
                  : (uint64_t)getpid() * 0x9E3779B97F4A7C15u ^ (uint64_t)(cli_seconds() * 1e9);
    return linnet_sampler_create(&so, out, err);
}

static int generate(struct engine *e, const struct run_opts *o, const int32_t *ids, size_t n,
                    int32_t *pending)
{
    linnet_error err;
    linnet_sampler *sampler;
    linnet_generated g;
    struct output out = {0};
    linnet_generate_options go;
    linnet_generate_defaults(&go);
    if (o->n >= 0)
        go.max_tokens = (size_t)o->n;
    go.stop = o->stop.item;
    go.n_stop = o->stop.n;
    go.text = on_text;
    go.user = &out;
    if (make_sampler(o, &sampler, &err) != LINNET_OK)
        return cli_fail_with(&err);
    cli_interrupt_cancels(e->ctx);
    linnet_status s = linnet_generate(e->session, sampler, ids, n, &go, &g, &err);
    cli_interrupt_cancels(NULL);
    linnet_sampler_free(sampler);
    *pending = g.finish == LINNET_FINISH_CONTEXT || g.finish == LINNET_FINISH_STOP ? -1 : g.pending;
    if (cli_is_terminal(stdout))
        putchar('\n');
    fflush(stdout);
    if (s != LINNET_OK)
        return cli_fail_with(&err);
    if (!o->engine.quiet) {
        /* where both streams go to one place the figures have a line of their own */
        if (out.mid_line && !cli_is_terminal(stdout))
            fputc('\n', stderr);
        print_speed(&g);
    }
    return out.failed ? CLI_FAILED : CLI_OK;
}

/* Go on from the session in --session, when that file exists. */
static int load_session(struct engine *e, const char *path)
{
    linnet_error err;
    linnet_session *s;
    if (access(path, F_OK) != 0)
        return CLI_OK;
    if (linnet_session_load(e->ctx, path, &s, &err) != LINNET_OK)
        return cli_fail_with(&err);
    linnet_session_free(e->session);
    e->session = s;
    return CLI_OK;
}

/* `pending` was sampled and shown, but not run: the session must hold it too. */
static int save_session(const struct engine *e, const char *path, int32_t pending)
{
    linnet_error err;
    linnet_item item = {e->session, &pending, 1, LINNET_WANT_NONE};
    if (pending >= 0 && linnet_run(e->ctx, &item, 1, &err) != LINNET_OK)
        return cli_fail_with(&err);
    return linnet_session_save(e->session, path, &err) == LINNET_OK ? CLI_OK : cli_fail_with(&err);
}

/* Without a new prompt a session goes on from its last token: that one is run again. */
static int32_t take_last_token(const struct engine *e)
{
    size_t n = linnet_session_length(e->session);
    int32_t id = linnet_session_tokens(e->session)[n - 1];
    linnet_session_rollback(e->session, n - 1, NULL);
    return id;
}

/* The prompt: arguments joined by spaces, or stdin. */
static char *read_prompt(int n, char **args, size_t *len)
{
    if (n <= 1) {
        if (cli_is_terminal(stdin)) {
            cli_usage(&cmd_run, "no prompt: give one after the model, or pipe it in");
            return NULL;
        }
        char *piped = cli_read_stream(stdin, "stdin", PROMPT_MAX, len);
        /* the line feed that ends the last line is the file's, not the prompt's */
        if (piped && *len && piped[*len - 1] == '\n')
            piped[--*len] = '\0';
        return piped;
    }
    size_t total = 1;
    for (int i = 1; i < n; i++)
        total += strlen(args[i]) + 1;
    char *text = cli_alloc(total);
    *len = 0;
    for (int i = 1; i < n; i++) {
        size_t k = strlen(args[i]);
        if (i > 1)
            text[(*len)++] = ' ';
        memcpy(text + *len, args[i], k);
        *len += k;
    }
    text[*len] = '\0';
    return text;
}

static int run(const void *opts, int n_args, char **args)
{
    const struct run_opts *o = opts;
    struct engine e;
    int32_t pending = -1;
    size_t len, n = 0;
    for (size_t i = 0; i < o->stop.n; i++)
        if (!*o->stop.item[i])
            return cli_usage(&cmd_run, "--stop: the text is empty");
    char *prompt = read_prompt(n_args, args, &len);
    if (!prompt)
        return CLI_USAGE;
    cli_catch_interrupt();
    int rc = engine_open(&e, args[0], &o->engine, 0);
    if (rc != CLI_OK) {
        free(prompt);
        return rc;
    }
    if (o->session)
        rc = load_session(&e, o->session);
    bool begins = linnet_session_length(e.session) == 0;
    unsigned flags = (begins ? LINNET_ADD_SPECIAL : 0u) | (o->special ? LINNET_PARSE_SPECIAL : 0u);
    int32_t *ids = rc == CLI_OK ? engine_tokenize(&e, prompt, len, flags, &n) : NULL;
    free(prompt);
    if (ids && n == 0 && !begins) {
        ids[0] = take_last_token(&e);
        n = 1;
    }
    if (!ids)
        rc = CLI_FAILED;
    else if (n == 0)
        rc = cli_fail("the prompt is empty and this model has no token to begin a text with");
    else
        rc = generate(&e, o, ids, n, &pending);
    if (rc == CLI_OK && o->session)
        rc = save_session(&e, o->session, pending);
    free(ids);
    engine_close(&e);
    return rc;
}

static const struct cli_opt opts[] = {
    {.flag = "--max-tokens",
     .letter = 'n',
     CLI_INT(struct run_opts, n, -1, INT32_MAX),
     .arg = "N",
     .def = "-1",
     .help = "tokens to generate; -1: until the text ends"},
    {.flag = "--temp",
     CLI_NUMBER(struct run_opts, temp, 0, 100),
     .arg = "T",
     .def = "0.8",
     .help = "randomness; 0 always takes the likeliest token"},
    {.flag = "--top-k",
     CLI_INT(struct run_opts, top_k, 0, INT32_MAX),
     .arg = "K",
     .def = "40",
     .help = "choose from the K likeliest tokens; 0: from all"},
    {.flag = "--top-p",
     CLI_NUMBER(struct run_opts, top_p, 0.000001, 1),
     .arg = "P",
     .def = "0.95",
     .help = "choose from the likeliest tokens that reach P together"},
    {.flag = "--min-p",
     CLI_NUMBER(struct run_opts, min_p, 0, 1),
     .arg = "P",
     .def = "0.05",
     .help = "drop tokens less than P times as likely as the likeliest"},
    {.flag = "--seed",
     CLI_INT(struct run_opts, seed, -1, INT64_MAX),
     .arg = "N",
     .def = "-1",
     .help = "seed of the choices; -1: another one each time"},
    {.flag = "--stop",
     CLI_LIST(struct run_opts, stop),
     .arg = "TEXT",
     .help = "end before this text; may be repeated"},
    {.flag = "--special",
     CLI_FLAG(struct run_opts, special),
     .help = "the prompt is trusted: names of control tokens become those"},
    {.flag = "--session",
     CLI_TEXT(struct run_opts, session),
     .arg = "FILE",
     .hint = CLI_HINT_FILE,
     .help = "go on from this file if it exists, and save to it at the end"},
    ENGINE_OPTS(struct run_opts),
    {0},
};

static const struct cli_arg args[] = {
    {.name = "MODEL", .help = "model file or name", .hint = CLI_HINT_MODEL},
    {.name = "PROMPT",
     .help = "text to go on from; stdin when there is none",
     .optional = true,
     .repeated = true},
    {0},
};

const struct cli_command cmd_run = {
    .name = "run",
    .group = CLI_GROUP_RUN,
    .summary = "generate text from a prompt",
    .about = "The prompt is continued as it is, without a chat template. Text goes to stdout as it "
             "is made, figures to "
             "stderr. Ctrl-C ends with what was made. Without --ctx the context is what the model "
             "was trained for.",
    .args = args,
    .opts = opts,
    .opts_size = sizeof(struct run_opts),
    .examples = "linnet run smollm2 \"The capital of France is\"\tgo on from a prompt\n"
                "linnet run model.gguf -n 100 --temp 0 <prompt.txt\tthe likeliest 100 tokens\n",
    .run = run,
};
