/*
 * What a run gives back: logits and hidden states of the rows that were asked for, kept until the
 * next run.
 */
#include "base/checked.h"
#include "run/context.h"

#include <stdlib.h>

/* Room for `rows` rows of `width` floats in *buf; what was in it is lost. */
static linnet_status grow(float **buf, size_t *cap, size_t rows, size_t width, const char *what,
                          linnet_error *e)
{
    size_t size;
    if (rows <= *cap)
        return LINNET_OK;
    if (!size_mul(rows, width, &size) || !size_mul(size, sizeof(float), &size))
        return err_memory(e, what, SIZE_MAX);
    free(*buf);
    *cap = 0;
    *buf = malloc(size);
    if (!*buf)
        return err_memory(e, what, size);
    *cap = rows;
    return LINNET_OK;
}

static size_t n_logits(const linnet_item *it)
{
    if (it->want & LINNET_WANT_ALL)
        return it->n_tokens;
    return it->want & LINNET_WANT_LAST ? 1 : 0;
}

linnet_status outputs_begin(struct linnet_context *c, const linnet_item *items, size_t n,
                            linnet_error *e)
{
    struct outputs *o = &c->outputs;
    if (n > o->cap_items) {
        struct output_item *list = realloc(o->items, n * sizeof *list);
        if (!list)
            return err_memory(e, "a list of items", n * sizeof *list);
        o->items = list;
        o->cap_items = n;
    }
    size_t logits = 0, hidden = 0;
    for (size_t i = 0; i < n; i++) {
        o->items[i] = (struct output_item){items[i].n_tokens, items[i].want, logits, hidden};
        logits += n_logits(&items[i]);
        hidden += items[i].want & LINNET_WANT_HIDDEN ? items[i].n_tokens : 0;
    }
    if (hidden && c->p->d_hidden == 0)
        return err_set(e, LINNET_UNSUPPORTED, "hidden states of %s models cannot be had",
                       c->m->facts.arch);
    linnet_status s = grow(&o->logits, &o->cap_logits, logits, c->m->facts.n_vocab,
                           "logits; ask for fewer rows at once", e);
    if (s == LINNET_OK)
        s = grow(&o->hidden[o->turn], &o->cap_hidden[o->turn], hidden, c->p->d_hidden,
                 "hidden states; ask for fewer rows at once", e);
    return s;
}

void outputs_free(struct outputs *o)
{
    free(o->items);
    free(o->logits);
    free(o->hidden[0]);
    free(o->hidden[1]);
}

bool outputs_has_logits(const struct outputs *o, size_t item, size_t token)
{
    const struct output_item *it = &o->items[item];
    return it->want & LINNET_WANT_ALL || (it->want & LINNET_WANT_LAST && token + 1 == it->n_tokens);
}

float *outputs_hidden(const struct linnet_context *c, size_t item, size_t token)
{
    const struct outputs *o = &c->outputs;
    const struct output_item *it = &o->items[item];
    return it->want & LINNET_WANT_HIDDEN
               ? o->hidden[o->turn] + (it->hidden + token) * c->p->d_hidden
               : NULL;
}

const float *linnet_logits(const linnet_context *c, size_t item, size_t token)
{
    const struct outputs *o = &c->outputs;
    if (item >= o->n_items || token >= o->items[item].n_tokens ||
        !outputs_has_logits(o, item, token))
        return NULL;
    size_t row = o->items[item].logits + (o->items[item].want & LINNET_WANT_ALL ? token : 0);
    return o->logits + row * c->m->facts.n_vocab;
}

const float *linnet_hidden(const linnet_context *c, size_t item, size_t token)
{
    const struct outputs *o = &c->outputs;
    if (item >= o->n_items || token >= o->items[item].n_tokens)
        return NULL;
    return outputs_hidden(c, item, token);
}
