/*
 * Contexts and sessions: their lives, and turning a caller's items into batches.
 *
 * A run is all or nothing: sessions grow only when every batch has run, and after a failure their
 * state is brought back to where it was. Rows written for a run that failed lie behind the
 * sessions' ends and are never read.
 */
#include "run/context.h"

#include "base/checked.h"
#include "base/limits.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { CHECKPOINTS_MAX = 4096 }; /* a list that is searched from end to end */
#define CONTEXT_ARENA_MAX ((size_t)64 << 30)

void linnet_context_defaults(linnet_context_options *options)
{
    *options = (linnet_context_options){.size = sizeof *options,
                                        .n_batch = 512,
                                        .kv_k = LINNET_KV_F16,
                                        .kv_v = LINNET_KV_F16,
                                        .checkpoint_spacing = 512,
                                        .checkpoint_max = 16,
                                        .checkpoint_bytes = UINT64_C(1) << 30};
}

void linnet_observer_defaults(linnet_observer *observer)
{
    *observer = (linnet_observer){.size = sizeof *observer, .exit_layer = UINT32_MAX};
}

static linnet_status take_options(struct linnet_context *c, const linnet_context_options *options,
                                  linnet_error *e)
{
    linnet_context_options o;
    linnet_context_defaults(&o);
    if (options && options->size != sizeof o)
        return err_set(
            e, LINNET_INVALID,
            "linnet_context_options of an unknown size: call linnet_context_defaults() first");
    if (options)
        o = *options;
    if (o.n_batch < 1 || o.n_batch > LIMIT_BATCH)
        return err_set(e, LINNET_INVALID, "n_batch is %u; it must be in 1..%d", o.n_batch,
                       LIMIT_BATCH);
    if (o.n_ctx > INT32_MAX)
        return err_set(e, LINNET_INVALID, "n_ctx is %u; it must be below 2^31", o.n_ctx);
    if ((unsigned)o.kv_k >= KV_TYPE_COUNT || (unsigned)o.kv_v >= KV_TYPE_COUNT)
        return err_set(e, LINNET_INVALID, "KV type %d or %d does not exist", (int)o.kv_k,
                       (int)o.kv_v);
    if (o.checkpoint_max > CHECKPOINTS_MAX || (unsigned)o.checkpoint_kind > LINNET_CHECKPOINT_DELTA)
        return err_set(e, LINNET_INVALID,
                       "checkpoint_max is %u (at most %d), checkpoint_kind %d (0..2)",
                       o.checkpoint_max, CHECKPOINTS_MAX, (int)o.checkpoint_kind);
    c->checkpoints.kind = o.checkpoint_kind;
    c->checkpoints.spacing = o.checkpoint_spacing;
    c->checkpoints.max = o.checkpoint_max;
    c->checkpoints.bytes = o.checkpoint_bytes;
    c->n_ctx = o.n_ctx ? o.n_ctx : c->m->facts.n_ctx_train;
    c->n_batch = o.n_batch < c->n_ctx ? o.n_batch : c->n_ctx;
    c->kv_k = (enum kv_type)o.kv_k;
    c->kv_v = (enum kv_type)o.kv_v;
    /* a table of positions cannot be read past its end */
    for (size_t i = 0; i < c->p->n_steps; i++)
        if (c->p->steps[i].op == OP_EMBED_POS && c->n_ctx > c->p->steps[i].mat->n_rows)
            return err_set(e, LINNET_INVALID,
                           "n_ctx is %u, but this model has learned positions for %zu only",
                           c->n_ctx, c->p->steps[i].mat->n_rows);
    return LINNET_OK;
}

static linnet_status begin(struct linnet_context *c, linnet_model *model, const struct plan *p,
                           const linnet_context_options *options, linnet_error *e)
{
    *c = (struct linnet_context){.m = model, .p = p, .k = model->kernels, .pool = model->pool};
    c->cancel = &c->cancel_own;
    arena_init(&c->arena, CONTEXT_ARENA_MAX);
    linnet_observer_defaults(&c->observer);
    linnet_status s = take_options(c, options, e);
    return s == LINNET_OK ? kv_init(c, e) : s;
}

linnet_status context_create(struct linnet_model *m, const struct plan *p,
                             const linnet_context_options *options, struct linnet_context **out,
                             linnet_error *e)
{
    struct linnet_context *c = malloc(sizeof *c);
    if (!c)
        return err_memory(e, "a context", sizeof *c);
    linnet_status s = begin(c, m, p, options, e);
    if (s == LINNET_OK)
        s = exec_init(c, e);
    if (s != LINNET_OK) {
        linnet_context_free(c);
        return s;
    }
    *out = c;
    return LINNET_OK;
}

linnet_status linnet_context_create(linnet_model *model, const linnet_context_options *options,
                                    linnet_context **out, linnet_error *error)
{
    if (model->plan_only)
        return err_set(error, LINNET_INVALID,
                       "the model was opened with plan_only: it can be described, not run");
    struct linnet_context *c;
    linnet_status s = context_create(model, &model->plan, options, &c, error);
    if (s != LINNET_OK)
        return s;
    s = draft_create(c, options, error);
    if (s != LINNET_OK)
        linnet_context_free(c);
    else
        *out = c;
    return s;
}

void linnet_context_free(linnet_context *c)
{
    if (!c)
        return;
    for (linnet_session *s = c->sessions, *next; s; s = next) {
        next = s->next;
        linnet_session_free(s);
    }
    draft_free(c);
    kv_free(c);
    if (c->work)
        munmap(c->work, c->work_size);
    outputs_free(&c->outputs);
    arena_free(&c->arena);
    free(c);
}

uint32_t linnet_context_n_ctx(const linnet_context *c)
{
    return c->n_ctx;
}

linnet_status linnet_context_memory(const linnet_model *model,
                                    const linnet_context_options *options, linnet_memory *out,
                                    linnet_error *error)
{
    const struct plan *plans[] = {&model->plan, &model->draft};
    linnet_status s = LINNET_OK;
    *out = (linnet_memory){0};
    for (int i = 0; i < 1 + model->has_draft && s == LINNET_OK; i++) {
        struct linnet_context c;
        s = begin(&c, (linnet_model *)model, plans[i], options, error);
        if (s == LINNET_OK) {
            uint64_t checkpoints;
            out->work += exec_bytes(c.p, c.n_ctx, c.n_batch) +
                         (uint64_t)pool_threads(c.pool) * KERNEL_SCRATCH;
            out->kv += kv_bytes(&c, c.n_ctx);
            out->state += state_memory(&c, &checkpoints);
            out->checkpoints += checkpoints;
        }
        arena_free(&c.arena);
    }
    return s;
}

void linnet_context_cancel(linnet_context *c)
{
    atomic_store(c->cancel, true);
}

void linnet_context_observe(linnet_context *c, const linnet_observer *observer)
{
    c->observed = observer != NULL;
    if (observer)
        c->observer = *observer;
}

linnet_status linnet_session_create(linnet_context *c, linnet_session **out, linnet_error *error)
{
    struct linnet_session *s = calloc(1, sizeof *s);
    size_t tables = c->n_groups * c->n_table;
    if (!s)
        return err_memory(error, "a session", sizeof *s);
    s->ctx = c;
    s->tokens = malloc(((size_t)c->n_ctx + 1) * sizeof *s->tokens);
    s->pages = calloc(c->n_groups + 1, sizeof *s->pages);
    uint8_t **table = calloc(tables + 1, sizeof *table);
    if (!s->tokens || !s->pages || !table) {
        free(table);
        free(s->pages);
        free(s->tokens);
        free(s);
        return err_memory(error, "a session", tables * sizeof *table);
    }
    s->pages[0] = table;
    linnet_status status = state_create(s, error);
    if (status == LINNET_OK && c->draft)
        status = linnet_session_create(c->draft, &s->draft, error);
    for (uint32_t g = 1; g < c->n_groups; g++)
        s->pages[g] = table + g * c->n_table;
    s->next = c->sessions;
    if (s->next)
        s->next->prev = s;
    c->sessions = s;
    if (status != LINNET_OK)
        linnet_session_free(s);
    else
        *out = s;
    return status;
}

void linnet_session_free(linnet_session *s)
{
    if (!s)
        return;
    linnet_session_free(s->draft);
    kv_truncate(s, 0);
    if (s->prev)
        s->prev->next = s->next;
    else
        s->ctx->sessions = s->next;
    if (s->next)
        s->next->prev = s->prev;
    state_free(s);
    free(s->pages[0]);
    free(s->pages);
    free(s->tokens);
    free(s);
}

/* Make `to`, a new session, what s is. */
static void copy_session(linnet_session *s, linnet_session *to)
{
    kv_truncate(s, s->n); /* pages made ahead of need are not worth sharing */
    kv_share(s, to);
    to->n = s->n;
    memcpy(to->tokens, s->tokens, s->n * sizeof *s->tokens);
    state_copy(s, to);
}

linnet_status linnet_session_fork(linnet_session *s, linnet_session **out, linnet_error *error)
{
    linnet_status status = linnet_session_create(s->ctx, out, error);
    if (status != LINNET_OK)
        return status;
    copy_session(s, *out);
    if (s->draft)
        copy_session(s->draft, (*out)->draft);
    return LINNET_OK;
}

size_t linnet_session_length(const linnet_session *s)
{
    return s->n;
}

const int32_t *linnet_session_tokens(const linnet_session *s)
{
    return s->tokens;
}

/* Make the state one that s->n can be reached from. */
static void go_back(linnet_session *s)
{
    if (s->valid > s->n)
        state_rewind(s, s->n);
    if (!kv_reaches(s, s->valid)) /* the pages behind a window are gone: from the beginning */
        state_rewind(s, 0);
}

void session_cut(linnet_session *s, size_t n)
{
    s->n = n;
    go_back(s);
    kv_truncate(s, s->valid);
    draft_cut(s);
}

linnet_status linnet_session_rollback(linnet_session *s, size_t length, linnet_error *error)
{
    if (length > s->n)
        return err_set(error, LINNET_INVALID, "cannot roll back to %zu: the session has %zu tokens",
                       length, s->n);
    session_cut(s, length);
    return LINNET_OK;
}

static linnet_status check_item(struct linnet_context *c, const linnet_item *it, size_t i,
                                linnet_error *e)
{
    linnet_session *s = it->session;
    if (!s || s->ctx != c)
        return err_set(e, LINNET_INVALID, "item %zu: its session is not one of this context", i);
    if (s->in_batch)
        return err_set(e, LINNET_INVALID, "item %zu: its session is in the batch twice", i);
    if (it->n_tokens == 0)
        return err_set(e, LINNET_INVALID, "item %zu has no tokens", i);
    if (it->n_tokens > c->n_ctx - s->n)
        return err_set(e, LINNET_CONTEXT_FULL,
                       "item %zu: %zu tokens do not fit after %zu in a context of %u", i,
                       it->n_tokens, s->n, c->n_ctx);
    for (size_t t = 0; t < it->n_tokens; t++)
        if (it->tokens[t] < 0 || (uint32_t)it->tokens[t] >= c->m->facts.n_vocab)
            return err_set(e, LINNET_INVALID,
                           "item %zu: token %zu is %d; the vocabulary has ids 0..%u", i, t,
                           it->tokens[t], c->m->facts.n_vocab - 1);
    s->in_batch = true;
    return LINNET_OK;
}

/* Note what is wanted of a batch row. Rows with logits come first: the others wait at the end of
 * the list. */
static void add_output(struct linnet_context *c, size_t row, bool logits, float *hidden,
                       size_t *waiting)
{
    size_t at = logits ? c->n_logit_rows++ : hidden ? c->n_batch - ++*waiting : SIZE_MAX;
    if (at == SIZE_MAX)
        return;
    c->out_row[at] = (int32_t)row;
    c->keep[at] = hidden;
}

static void join_outputs(struct linnet_context *c, size_t waiting)
{
    size_t to = c->n_logit_rows, from = c->n_batch - waiting;
    memmove(c->out_row + to, c->out_row + from, waiting * sizeof *c->out_row);
    memmove(c->keep + to, c->keep + from, waiting * sizeof *c->keep);
    c->n_out = to + waiting;
}

/* The items of a run, and how far it has come. */
struct progress {
    const linnet_item *items;
    const float *const *hidden; /* [n_items] -> [n_tokens][d_model], or NULL */
    size_t n_items;
    size_t i, done; /* item, its rows done */
    size_t valid;   /* where item i's session stood at first */
    size_t waiting; /* rows of the batch with a hidden state and without logits */
};

/* Add up to `room` of the present item's rows as a span; less when a checkpoint is due. */
static void add_span(struct linnet_context *c, struct progress *p, size_t room)
{
    const linnet_item *it = &p->items[p->i];
    const linnet_session *s = it->session;
    size_t again = s->n - p->valid, total = again + it->n_tokens, d = c->m->facts.d_model;
    size_t n = total - p->done < room ? total - p->done : room;
    size_t stop = state_next_stop(s, p->valid + p->done) - (p->valid + p->done);
    n = n < stop ? n : stop;
    c->spans[c->n_spans] = (struct span){it->session, c->n_rows, n, (int32_t)(p->valid + p->done)};
    for (size_t t = p->done; t < p->done + n; t++) {
        size_t row = c->n_rows++;
        c->token[row] = t < again ? s->tokens[p->valid + t] : it->tokens[t - again];
        c->pos[row] = (int32_t)(p->valid + t);
        c->span_of[row] = (uint32_t)c->n_spans;
        c->given[row] = NULL;
        if (t < again)
            continue;
        if (p->hidden && c->pos[row] > 0)
            c->given[row] = p->hidden[p->i] + (t - again) * d;
        add_output(c, row, outputs_has_logits(&c->outputs, p->i, t - again),
                   outputs_hidden(c, p->i, t - again), &p->waiting);
    }
    c->n_spans++;
    p->done += n;
}

/* Run the batch; sessions that took part have come further even when it fails. */
static linnet_status run_batch(struct linnet_context *c, linnet_error *e)
{
    for (size_t i = 0; i < c->n_spans; i++) {
        const struct span *p = &c->spans[i];
        linnet_status s = kv_reserve(p->s, (size_t)p->pos0, (size_t)p->pos0 + p->n, e);
        if (s != LINNET_OK)
            return s;
    }
    linnet_status s = exec_run(c, e);
    for (size_t i = 0; i < c->n_spans; i++) {
        struct span *p = &c->spans[i];
        p->s->valid += p->n;
        if (s != LINNET_OK)
            continue;
        state_logged(p->s, (size_t)p->pos0, p->n);
        state_checkpoint(p->s);
        kv_release_behind(p->s, p->s->valid);
    }
    return s;
}

static linnet_status run_batches(struct linnet_context *c, struct progress *p, linnet_error *e)
{
    size_t logits = 0;
    while (p->i < p->n_items) {
        bool cut = false; /* a session is in a batch once: what is left of it waits for the next */
        c->n_rows = c->n_spans = c->n_logit_rows = p->waiting = 0;
        c->logits_out = c->outputs.logits ? c->outputs.logits + logits * c->m->facts.n_vocab : NULL;
        while (p->i < p->n_items && c->n_rows < c->n_batch && !cut) {
            const linnet_session *s = p->items[p->i].session;
            if (p->done == 0)
                p->valid = s->valid;
            add_span(c, p, c->n_batch - c->n_rows);
            cut = p->done < s->n - p->valid + p->items[p->i].n_tokens;
            if (!cut) {
                p->i++;
                p->done = 0;
            }
        }
        join_outputs(c, p->waiting);
        logits += c->n_logit_rows;
        linnet_status s = run_batch(c, e);
        if (s != LINNET_OK)
            return s;
    }
    return LINNET_OK;
}

static linnet_status check_items(struct linnet_context *c, const linnet_item *items, size_t n_items,
                                 linnet_error *e)
{
    linnet_status s = LINNET_OK;
    for (size_t i = 0; i < n_items && s == LINNET_OK; i++)
        s = check_item(c, &items[i], i, e);
    for (size_t i = 0; i < n_items; i++)
        if (items[i].session && items[i].session->ctx == c)
            items[i].session->in_batch = false;
    return s;
}

linnet_status context_run(struct linnet_context *c, const linnet_item *items,
                          const float *const *hidden, size_t n_items, linnet_error *error)
{
    c->outputs.n_items = 0;
    linnet_status s = check_items(c, items, n_items, error);
    if (s != LINNET_OK)
        return s;
    s = outputs_begin(c, items, n_items, error);
    struct progress p = {.items = items, .hidden = hidden, .n_items = n_items};
    if (s == LINNET_OK)
        s = run_batches(c, &p, error);
    atomic_store(c->cancel, false);
    for (size_t i = 0; i < n_items; i++) {
        linnet_session *t = items[i].session;
        if (s != LINNET_OK) {
            go_back(t);
            continue;
        }
        memcpy(t->tokens + t->n, items[i].tokens, items[i].n_tokens * sizeof *t->tokens);
        t->n += items[i].n_tokens;
        draft_appended(t, t->n - items[i].n_tokens);
    }
    if (s == LINNET_OK)
        c->outputs.n_items = n_items;
    return s;
}

linnet_status linnet_run(linnet_context *c, const linnet_item *items, size_t n_items,
                         linnet_error *error)
{
    return context_run(c, items, NULL, n_items, error);
}
