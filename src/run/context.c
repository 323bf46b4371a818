/*
 * Contexts and sessions: their lives, and turning a caller's items into batches.
 *
 * A run is all or nothing: sessions grow only when every batch has run, and after a failure their state is brought back
 * to where it was. Rows written for a run that failed lie behind the sessions' ends and are never read.
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

static linnet_status take_options(struct linnet_context *c, const linnet_context_options *options, linnet_error *e)
{
    linnet_context_options o;
    linnet_context_defaults(&o);
    if (options && options->size != sizeof o)
        return err_set(e, LINNET_INVALID, "linnet_context_options of an unknown size: call linnet_context_defaults() first");
    if (options)
        o = *options;
    if (o.n_batch < 1 || o.n_batch > LIMIT_BATCH)
        return err_set(e, LINNET_INVALID, "n_batch is %u; it must be in 1..%d", o.n_batch, LIMIT_BATCH);
    if (o.n_ctx > INT32_MAX)
        return err_set(e, LINNET_INVALID, "n_ctx is %u; it must be below 2^31", o.n_ctx);
    if ((unsigned)o.kv_k >= KV_TYPE_COUNT || (unsigned)o.kv_v >= KV_TYPE_COUNT)
        return err_set(e, LINNET_INVALID, "KV type %d or %d does not exist", (int)o.kv_k, (int)o.kv_v);
    if (o.checkpoint_max > CHECKPOINTS_MAX || (unsigned)o.checkpoint_kind > LINNET_CHECKPOINT_DELTA)
        return err_set(e, LINNET_INVALID, "checkpoint_max is %u (at most %d), checkpoint_kind %d (0..2)",
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
            return err_set(e, LINNET_INVALID, "n_ctx is %u, but this model has learned positions for %zu only", c->n_ctx,
                           c->p->steps[i].mat->n_rows);
    return LINNET_OK;
}

static linnet_status begin(struct linnet_context *c, linnet_model *model, const linnet_context_options *options,
                           linnet_error *e)
{
    *c = (struct linnet_context){.m = model, .p = &model->plan, .k = model->kernels, .pool = model->pool};
    arena_init(&c->arena, CONTEXT_ARENA_MAX);
    linnet_observer_defaults(&c->observer);
    linnet_status s = take_options(c, options, e);
    return s == LINNET_OK ? kv_init(c, e) : s;
}

linnet_status linnet_context_create(linnet_model *model, const linnet_context_options *options,
                                    linnet_context **out, linnet_error *error)
{
    if (model->plan_only)
        return err_set(error, LINNET_INVALID, "the model was opened with plan_only: it can be described, not run");
    struct linnet_context *c = malloc(sizeof *c);
    if (!c)
        return err_memory(error, "a context", sizeof *c);
    linnet_status s = begin(c, model, options, error);
    if (s == LINNET_OK)
        s = exec_init(c, error);
    if (s != LINNET_OK) {
        linnet_context_free(c);
        return s;
    }
    *out = c;
    return LINNET_OK;
}

void linnet_context_free(linnet_context *c)
{
    if (!c)
        return;
    for (linnet_session *s = c->sessions, *next; s; s = next) {
        next = s->next;
        linnet_session_free(s);
    }
    kv_free(c);
    if (c->work)
        munmap(c->work, c->work_size);
    free(c->logits);
    free(c->item_logits);
    free(c->item_want);
    free(c->item_n);
    arena_free(&c->arena);
    free(c);
}

uint32_t linnet_context_n_ctx(const linnet_context *c)
{
    return c->n_ctx;
}

linnet_status linnet_context_memory(const linnet_model *model, const linnet_context_options *options,
                                    linnet_memory *out, linnet_error *error)
{
    struct linnet_context c;
    linnet_status s = begin(&c, (linnet_model *)model, options, error);
    if (s == LINNET_OK) {
        out->work = exec_bytes(c.p, c.n_batch) + (uint64_t)pool_threads(c.pool) * KERNEL_SCRATCH;
        out->kv = kv_bytes(&c, c.n_ctx);
        out->state = state_memory(&c, &out->checkpoints);
    }
    arena_free(&c.arena);
    return s;
}

void linnet_context_cancel(linnet_context *c)
{
    atomic_store(&c->cancel, true);
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

linnet_status linnet_session_fork(linnet_session *s, linnet_session **out, linnet_error *error)
{
    linnet_status status = linnet_session_create(s->ctx, out, error);
    if (status != LINNET_OK)
        return status;
    kv_truncate(s, s->n); /* pages made ahead of need are not worth sharing */
    kv_share(s, *out);
    (*out)->n = s->n;
    memcpy((*out)->tokens, s->tokens, s->n * sizeof *s->tokens);
    state_copy(s, *out);
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

linnet_status linnet_session_rollback(linnet_session *s, size_t length, linnet_error *error)
{
    if (length > s->n)
        return err_set(error, LINNET_INVALID, "cannot roll back to %zu: the session has %zu tokens", length, s->n);
    s->n = length;
    go_back(s);
    kv_truncate(s, s->valid);
    return LINNET_OK;
}

static size_t rows_wanted(const linnet_item *it)
{
    return it->want == LINNET_WANT_ALL ? it->n_tokens : it->want == LINNET_WANT_LAST ? 1 : 0;
}

static linnet_status check_item(struct linnet_context *c, const linnet_item *it, size_t i, linnet_error *e)
{
    linnet_session *s = it->session;
    if (!s || s->ctx != c)
        return err_set(e, LINNET_INVALID, "item %zu: its session is not one of this context", i);
    if (s->in_batch)
        return err_set(e, LINNET_INVALID, "item %zu: its session is in the batch twice", i);
    if (it->n_tokens == 0)
        return err_set(e, LINNET_INVALID, "item %zu has no tokens", i);
    if (it->n_tokens > c->n_ctx - s->n)
        return err_set(e, LINNET_CONTEXT_FULL, "item %zu: %zu tokens do not fit after %zu in a context of %u", i,
                       it->n_tokens, s->n, c->n_ctx);
    for (size_t t = 0; t < it->n_tokens; t++)
        if (it->tokens[t] < 0 || (uint32_t)it->tokens[t] >= c->m->facts.n_vocab)
            return err_set(e, LINNET_INVALID, "item %zu: token %zu is %d; the vocabulary has ids 0..%u", i, t,
                           it->tokens[t], c->m->facts.n_vocab - 1);
    s->in_batch = true;
    return LINNET_OK;
}

/* Room to remember n items and their logits. */
static linnet_status grow_items(struct linnet_context *c, const linnet_item *items, size_t n, linnet_error *e)
{
    if (n > c->cap_items || !c->item_logits) {
        size_t *rows = realloc(c->item_logits, (n + 1) * sizeof *rows);
        if (rows)
            c->item_logits = rows;
        uint8_t *want = realloc(c->item_want, n + 1);
        if (want)
            c->item_want = want;
        size_t *len = realloc(c->item_n, (n + 1) * sizeof *len);
        if (len)
            c->item_n = len;
        if (!rows || !want || !len)
            return err_memory(e, "a list of items", n * sizeof *rows);
        c->cap_items = n;
    }
    size_t total = 0;
    for (size_t i = 0; i < n; i++) {
        c->item_logits[i] = total;
        c->item_want[i] = (uint8_t)items[i].want;
        c->item_n[i] = items[i].n_tokens;
        total += rows_wanted(&items[i]);
    }
    c->n_logits = total;
    if (total <= c->cap_logits)
        return LINNET_OK;
    size_t size;
    if (!size_mul(total, c->m->facts.n_vocab, &size) || !size_mul(size, sizeof(float), &size))
        size = SIZE_MAX;
    free(c->logits);
    c->cap_logits = 0;
    c->logits = size == SIZE_MAX ? NULL : malloc(size);
    if (!c->logits)
        return err_memory(e, "logits; ask for fewer rows at once", size);
    c->cap_logits = total;
    return LINNET_OK;
}

/* Add up to `room` of an item's rows, from row `done` on, as a span; less when a checkpoint is due. `valid` is where
 * its session stood at first. */
static size_t add_span(struct linnet_context *c, const linnet_item *it, size_t valid, size_t done, size_t room)
{
    const linnet_session *s = it->session;
    size_t again = s->n - valid, total = again + it->n_tokens;
    size_t n = total - done < room ? total - done : room;
    size_t stop = state_next_stop(s, valid + done) - (valid + done);
    n = n < stop ? n : stop;
    c->spans[c->n_spans] = (struct span){it->session, c->n_rows, n, (int32_t)(valid + done)};
    for (size_t t = done; t < done + n; t++) {
        size_t row = c->n_rows++;
        c->token[row] = t < again ? s->tokens[valid + t] : it->tokens[t - again];
        c->pos[row] = (int32_t)(valid + t);
        c->span_of[row] = (uint32_t)c->n_spans;
        bool wanted = it->want == LINNET_WANT_ALL || (it->want == LINNET_WANT_LAST && t + 1 == total);
        if (wanted && t >= again)
            c->out_row[c->n_out++] = (int32_t)row;
    }
    c->n_spans++;
    return n;
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

static linnet_status run_batches(struct linnet_context *c, const linnet_item *items, size_t n_items, linnet_error *e)
{
    size_t i = 0, done = 0, logits = 0, valid = 0;
    while (i < n_items) {
        bool cut = false; /* a session is in a batch once: what is left of it waits for the next */
        c->n_rows = c->n_spans = c->n_out = 0;
        c->logits_out = c->logits ? c->logits + logits * c->m->facts.n_vocab : NULL;
        while (i < n_items && c->n_rows < c->n_batch && !cut) {
            if (done == 0)
                valid = items[i].session->valid;
            size_t total = items[i].session->n - valid + items[i].n_tokens;
            done += add_span(c, &items[i], valid, done, c->n_batch - c->n_rows);
            cut = done < total;
            if (!cut) {
                i++;
                done = 0;
            }
        }
        logits += c->n_out;
        linnet_status s = run_batch(c, e);
        if (s != LINNET_OK)
            return s;
    }
    return LINNET_OK;
}

static linnet_status check_items(struct linnet_context *c, const linnet_item *items, size_t n_items, linnet_error *e)
{
    linnet_status s = LINNET_OK;
    for (size_t i = 0; i < n_items && s == LINNET_OK; i++)
        s = check_item(c, &items[i], i, e);
    for (size_t i = 0; i < n_items; i++)
        if (items[i].session && items[i].session->ctx == c)
            items[i].session->in_batch = false;
    return s;
}

linnet_status linnet_run(linnet_context *c, const linnet_item *items, size_t n_items, linnet_error *error)
{
    c->n_items = 0;
    linnet_status s = check_items(c, items, n_items, error);
    if (s != LINNET_OK)
        return s;
    s = grow_items(c, items, n_items, error);
    if (s == LINNET_OK)
        s = run_batches(c, items, n_items, error);
    atomic_store(&c->cancel, false);
    for (size_t i = 0; i < n_items; i++) {
        linnet_session *t = items[i].session;
        if (s != LINNET_OK) {
            go_back(t);
            continue;
        }
        memcpy(t->tokens + t->n, items[i].tokens, items[i].n_tokens * sizeof *t->tokens);
        t->n += items[i].n_tokens;
    }
    if (s == LINNET_OK)
        c->n_items = n_items;
    return s;
}

const float *linnet_logits(const linnet_context *c, size_t item, size_t token)
{
    if (item >= c->n_items || token >= c->item_n[item] || c->item_want[item] == LINNET_WANT_NONE)
        return NULL;
    size_t row = c->item_logits[item];
    if (c->item_want[item] == LINNET_WANT_ALL)
        row += token;
    else if (token + 1 != c->item_n[item])
        return NULL;
    return c->logits + row * c->m->facts.n_vocab;
}
