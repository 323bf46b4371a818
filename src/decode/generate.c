/*
 * The generate loop: run the prompt, sample, give out text, run the token, until something ends it.
 *
 * Text goes through two filters: the detokeniser, which holds back unfinished characters, and the
 * stop texts. When generation ends for another reason than a stop text, both are emptied, so that
 * no byte is lost and the text of a stream is the text of the tokens.
 */
#include "decode/stop.h"
#include "run/context.h"
#include "text/vocab.h"

#include <stdlib.h>
#include <time.h>

void linnet_generate_defaults(linnet_generate_options *options)
{
    *options = (linnet_generate_options){.size = sizeof *options, .max_tokens = SIZE_MAX};
}

struct writer {
    const linnet_generate_options *o;
    const struct vocab *v; /* NULL: no text is made */
    struct detok detok;
    struct stop_filter stop;
    char *piece;  /* [detok_room] */
    bool refused; /* the callback said to end */
};

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static linnet_status give(struct writer *w, const char *bytes, size_t n, linnet_error *e)
{
    const char *out;
    size_t n_out;
    linnet_status s = stop_push(&w->stop, bytes, n, &out, &n_out, e);
    if (s == LINNET_OK && n_out && w->o->text && !w->refused)
        w->refused = !w->o->text(w->o->user, out, n_out);
    return s;
}

static linnet_status write_token(struct writer *w, int32_t id, linnet_error *e)
{
    size_t n;
    if (!w->v)
        return LINNET_OK;
    linnet_status s = detok_push(&w->detok, id, w->piece, &n, e);
    return s == LINNET_OK ? give(w, w->piece, n, e) : s;
}

static linnet_status write_rest(struct writer *w, linnet_error *e)
{
    if (!w->v)
        return LINNET_OK;
    size_t n = detok_flush(&w->detok, w->piece);
    linnet_status s = give(w, w->piece, n, e);
    const char *out;
    size_t n_out;
    stop_flush(&w->stop, &out, &n_out);
    if (s == LINNET_OK && n_out && w->o->text && !w->refused)
        w->refused = !w->o->text(w->o->user, out, n_out);
    return s;
}

static linnet_status writer_init(struct writer *w, const linnet_generate_options *o,
                                 const struct vocab *v, linnet_error *e)
{
    *w = (struct writer){.o = o, .v = v};
    linnet_status s = stop_init(&w->stop, o->stop, o->n_stop, e);
    if (s != LINNET_OK || !v)
        return s;
    detok_init(&w->detok, v, 0);
    w->piece = malloc(detok_room(v));
    return w->piece ? LINNET_OK : err_memory(e, "the text of a token", detok_room(v));
}

static linnet_status run_one(linnet_session *s, const int32_t *tokens, size_t n, linnet_error *e)
{
    linnet_item item = {.session = s, .tokens = tokens, .n_tokens = n, .want = LINNET_WANT_LAST};
    return linnet_run(s->ctx, &item, 1, e);
}

/* Sample and write until something ends it; out->finish says what. */
static linnet_status decode(linnet_session *s, linnet_sampler *sampler, struct writer *w,
                            size_t last, linnet_generated *out, linnet_error *e)
{
    const linnet_generate_options *o = w->o;
    struct linnet_context *c = s->ctx;
    out->finish = LINNET_FINISH_LENGTH;
    while (out->n_tokens < o->max_tokens) {
        int32_t id;
        const float *logits = linnet_logits(c, 0, last);
        linnet_status status = linnet_sampler_pick(sampler, logits, c->m->facts.n_vocab, &id, e);
        if (status != LINNET_OK)
            return status;
        out->n_tokens++;
        out->pending = id;
        if (o->token)
            o->token(o->user, id, logits);
        if (!o->ignore_eog && w->v && vocab_is_eog(w->v, id)) {
            out->finish = LINNET_FINISH_EOG;
            return LINNET_OK;
        }
        status = write_token(w, id, e);
        if (status != LINNET_OK)
            return status;
        if (w->stop.stopped || w->refused) {
            out->finish = w->stop.stopped ? LINNET_FINISH_STOP : LINNET_FINISH_CANCELLED;
            return LINNET_OK;
        }
        if (out->n_tokens == o->max_tokens)
            return LINNET_OK;
        status = run_one(s, &id, 1, e);
        if (status == LINNET_CONTEXT_FULL || status == LINNET_CANCELLED) {
            out->finish =
                status == LINNET_CANCELLED ? LINNET_FINISH_CANCELLED : LINNET_FINISH_CONTEXT;
            return LINNET_OK;
        }
        if (status != LINNET_OK)
            return status;
        out->pending = -1;
        last = 0;
    }
    return LINNET_OK;
}

linnet_status linnet_generate(linnet_session *session, linnet_sampler *sampler,
                              const int32_t *prompt, size_t n_prompt,
                              const linnet_generate_options *options, linnet_generated *out,
                              linnet_error *error)
{
    linnet_generate_options o;
    linnet_generate_defaults(&o);
    if (options && options->size != sizeof o)
        return err_set(
            error, LINNET_INVALID,
            "linnet_generate_options of an unknown size: call linnet_generate_defaults() first");
    if (options)
        o = *options;
    *out = (linnet_generated){.finish = LINNET_FINISH_LENGTH, .pending = -1};
    struct writer w;
    linnet_status s = writer_init(&w, &o, session->ctx->m->vocab, error);
    double t0 = seconds();
    if (s == LINNET_OK)
        s = run_one(session, prompt, n_prompt, error);
    double t1 = seconds();
    out->prompt_seconds = t1 - t0;
    if (s == LINNET_CANCELLED) {
        out->finish = LINNET_FINISH_CANCELLED;
        s = LINNET_OK;
    } else if (s == LINNET_OK) {
        out->n_prompt = n_prompt;
        s = decode(session, sampler, &w, n_prompt - 1, out, error);
        linnet_status rest = write_rest(&w, s == LINNET_OK ? error : NULL);
        if (s == LINNET_OK)
            s = rest;
    }
    out->decode_seconds = seconds() - t1;
    stop_free(&w.stop);
    free(w.piece);
    return s;
}
