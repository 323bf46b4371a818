/*
 * The draft head: the plan of a model's NextN block, run in a context of its own. Each session has
 * one there, whose tokens are those of the head's rows; it forks, rolls back and ends with the
 * session it belongs to.
 *
 * A row at or before the end of the session came from the session's tokens and the trunk's hidden
 * states; rows after it are guesses. linnet_run() forgets guesses, and so never leaves a row behind
 * that another text would not have.
 */
#include "run/context.h"

#include <stdlib.h>

linnet_status draft_create(struct linnet_context *c, const linnet_context_options *options,
                           linnet_error *e)
{
    if (!c->m->has_draft)
        return LINNET_OK;
    linnet_status s = context_create(c->m, &c->m->draft, options, &c->draft, e);
    if (s == LINNET_OK)
        c->draft->cancel = c->cancel;
    return s;
}

void draft_free(struct linnet_context *c)
{
    linnet_context_free(c->draft);
    free(c->draft_items);
    free(c->draft_hidden);
}

void draft_appended(linnet_session *s, size_t old)
{
    linnet_session *d = s->draft;
    if (!d || d->n <= old)
        return;
    bool right = d->tokens[old] == s->tokens[old];
    session_cut(d, right ? old + 1 : old);
}

void draft_cut(linnet_session *s)
{
    if (s->draft && s->draft->n > s->n)
        session_cut(s->draft, s->n);
}

size_t linnet_draft_length(const linnet_session *s)
{
    return s->draft ? s->draft->n : 0;
}

static linnet_status check(const struct linnet_context *c, const linnet_draft_item *it, size_t i,
                           linnet_error *e)
{
    const linnet_session *s = it->session;
    if (!s || s->ctx != c)
        return err_set(e, LINNET_INVALID, "item %zu: its session is not one of this context", i);
    if (it->first > s->draft->n)
        return err_set(e, LINNET_INVALID,
                       "item %zu begins at row %zu of the draft head, which has %zu", i, it->first,
                       s->draft->n);
    if (!it->hidden && (it->first > 0 || it->n_tokens > 1))
        return err_set(e, LINNET_INVALID, "item %zu has no hidden states", i);
    for (size_t t = 0; t < it->n_tokens && it->first + t < s->n; t++)
        if (it->tokens[t] != s->tokens[it->first + t])
            return err_set(e, LINNET_INVALID,
                           "item %zu: token %zu is %d, but the session has %d at position %zu", i,
                           t, it->tokens[t], s->tokens[it->first + t], it->first + t);
    return LINNET_OK;
}

static linnet_status grow_items(struct linnet_context *c, size_t n, linnet_error *e)
{
    if (n <= c->cap_draft_items)
        return LINNET_OK;
    linnet_item *items = realloc(c->draft_items, n * sizeof *items);
    if (items)
        c->draft_items = items;
    const float **hidden = realloc(c->draft_hidden, n * sizeof *hidden);
    if (hidden)
        c->draft_hidden = hidden;
    if (!items || !hidden)
        return err_memory(e, "a list of items", n * sizeof *items);
    c->cap_draft_items = n;
    return LINNET_OK;
}

linnet_status linnet_draft_run(linnet_context *c, const linnet_draft_item *items, size_t n_items,
                               linnet_error *error)
{
    struct linnet_context *d = c->draft;
    if (!d)
        return err_set(error, LINNET_UNSUPPORTED,
                       "no draft head: the model has none, or was opened without `draft`");
    linnet_status s = grow_items(c, n_items, error);
    for (size_t i = 0; i < n_items && s == LINNET_OK; i++) {
        s = check(c, &items[i], i, error);
        if (s != LINNET_OK)
            return s;
        c->draft_items[i] = (linnet_item){items[i].session->draft, items[i].tokens,
                                          items[i].n_tokens, items[i].want};
        c->draft_hidden[i] = items[i].hidden;
    }
    if (s != LINNET_OK)
        return s;
    for (size_t i = 0; i < n_items; i++)
        session_cut(items[i].session->draft, items[i].first);
    /* what the last run gave may be what this one takes: its hidden states stay as they are */
    d->outputs.turn ^= 1;
    return context_run(d, c->draft_items, c->draft_hidden, n_items, error);
}

const float *linnet_draft_logits(const linnet_context *c, size_t item, size_t token)
{
    return c->draft ? linnet_logits(c->draft, item, token) : NULL;
}

const float *linnet_draft_hidden(const linnet_context *c, size_t item, size_t token)
{
    return c->draft ? linnet_hidden(c->draft, item, token) : NULL;
}
