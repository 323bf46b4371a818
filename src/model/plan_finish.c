/*
 * Plans: the one pass that makes them runnable, and describing their steps for people.
 *
 * Memory is shared between registers that no dispatch sees together: within a dispatch rows advance
 * independently of each other, so lifetimes are counted in dispatches, not steps.
 */
#include "model/plan.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool needs_quant(const struct step *s)
{
    for (uint32_t i = 0; i < s->n_products; i++)
        if (s->products[i].w->type->group != 0)
            return true;
    return false;
}

static bool writes(const struct step *s, int32_t reg)
{
    if (s->dst.reg == reg || (s->op == OP_ROUTE && s->c.reg == reg))
        return true;
    for (uint32_t i = 0; i < s->n_products; i++)
        if (s->products[i].dst.reg == reg)
            return true;
    return false;
}

/* The quant buffer that holds view x as it stands after the n steps, or -1. */
static int32_t find_quant(const struct step *steps, size_t n, struct view x)
{
    for (size_t i = n; i-- > 0;) {
        if (steps[i].op == OP_QUANTISE && view_same(steps[i].a, x))
            return steps[i].index;
        if (writes(&steps[i], x.reg))
            return -1;
    }
    return -1;
}

/* Copy the steps, with a quantise step before each product whose input has no int8 form yet. */
static bool insert_quantise(struct plan *p)
{
    struct step *out = ARENA_ARRAY(p->arena, p->n_steps * 2 + 1, struct step);
    p->quants = ARENA_ARRAY(p->arena, p->n_steps + 1, struct plan_quant);
    if (!out || !p->quants)
        return false;
    size_t n = 0;
    for (size_t i = 0; i < p->n_steps; i++) {
        struct step s = p->steps[i];
        if (needs_quant(&s))
            s.quant = find_quant(out, n, s.a);
        if (needs_quant(&s) && s.quant < 0) {
            p->quants[p->n_quants] = (struct plan_quant){.src = s.a, .out_rows = s.out_rows};
            s.quant = (int32_t)p->n_quants++;
            struct step quantise = {.op = OP_QUANTISE,
                                    .layer = s.layer,
                                    .out_rows = s.out_rows,
                                    .logit_rows = s.logit_rows};
            quantise.dst = quantise.b = quantise.c = view_none();
            quantise.a = s.a;
            quantise.index = s.quant;
            quantise.quant = -1;
            out[n++] = quantise;
        }
        out[n++] = s;
    }
    p->steps = out;
    p->n_steps = p->cap_steps = n;
    return true;
}

static void group_dispatches(struct plan *p)
{
    int32_t d = -1;
    for (size_t i = 0; i < p->n_steps; i++) {
        struct step *s = &p->steps[i];
        const struct step *prev = i ? s - 1 : NULL;
        bool join = prev && op_infos[s->op].kind == OP_ROW && op_infos[prev->op].kind == OP_ROW &&
                    s->out_rows == prev->out_rows && s->logit_rows == prev->logit_rows;
        if (!join)
            d++;
        s->dispatch = d;
    }
    p->n_dispatch = d + 1;
}

static void touch(struct plan *p, struct view v, int32_t dispatch)
{
    if (v.reg < 0)
        return;
    struct plan_reg *r = &p->regs[v.reg];
    if (r->first < 0)
        r->first = dispatch;
    r->last = dispatch;
}

static void find_lifetimes(struct plan *p)
{
    for (size_t i = 0; i < p->n_steps; i++) {
        const struct step *s = &p->steps[i];
        touch(p, s->dst, s->dispatch);
        touch(p, s->a, s->dispatch);
        touch(p, s->b, s->dispatch);
        touch(p, s->c, s->dispatch);
        for (uint32_t j = 0; j < s->n_products; j++)
            touch(p, s->products[j].dst, s->dispatch);
        if (s->op == OP_QUANTISE)
            p->quants[s->index].first = p->quants[s->index].last = s->dispatch;
        if (s->quant >= 0)
            p->quants[s->quant].last = s->dispatch;
    }
}

/* Something that needs `size` units from dispatch `first` to `last`. */
struct tenant {
    int32_t first, last;
    size_t size;
    size_t *offset;
};

static int larger_first(const void *a, const void *b)
{
    const struct tenant *x = a, *y = b;
    if (x->size != y->size)
        return x->size < y->size ? 1 : -1;
    return x->first < y->first ? -1 : x->first > y->first;
}

/* The lowest offset at which t meets none of the placed ones that live when it does. */
static size_t place(const struct tenant *placed, size_t n, const struct tenant *t)
{
    size_t at = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (size_t i = 0; i < n; i++) {
            const struct tenant *o = &placed[i];
            bool together = o->first <= t->last && t->first <= o->last;
            if (together && at < *o->offset + o->size && *o->offset < at + t->size) {
                at = *o->offset + o->size;
                moved = true;
            }
        }
    }
    return at;
}

static size_t pack(struct tenant *list, size_t n)
{
    size_t total = 0;
    if (n)
        qsort(list, n, sizeof *list, larger_first);
    for (size_t i = 0; i < n; i++) {
        *list[i].offset = place(list, i, &list[i]);
        if (*list[i].offset + list[i].size > total)
            total = *list[i].offset + list[i].size;
    }
    return total;
}

static void pack_domain(struct plan *p, struct tenant *list, bool out_rows, size_t *floats,
                        size_t *quant)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n_regs; i++) {
        struct plan_reg *r = &p->regs[i];
        if (r->out_rows == out_rows && r->first >= 0 && (int32_t)i != p->logits.reg)
            list[n++] =
                (struct tenant){r->first, r->last, ((size_t)r->width + 15) / 16 * 16, &r->offset};
    }
    *floats = pack(list, n);
    n = 0;
    for (size_t i = 0; i < p->n_quants; i++) {
        struct plan_quant *q = &p->quants[i];
        if (q->out_rows == out_rows)
            list[n++] =
                (struct tenant){q->first, q->last, act_bytes(q->src.width) * q->src.n, &q->offset};
    }
    *quant = pack(list, n);
}

linnet_status plan_finish(struct plan *p, linnet_error *e)
{
    if (!p->broken && !p->no_memory && p->logits.reg < 0)
        p->broken = "there are no logits";
    if (p->broken)
        return err_set(e, LINNET_UNSUPPORTED,
                       "the parts of this model do not fit together: %s (layer %d)", p->broken,
                       p->layer);
    if (p->no_memory || !insert_quantise(p))
        return err_memory(e, "the plan of the model", p->n_steps * sizeof *p->steps);
    group_dispatches(p);
    find_lifetimes(p);
    size_t most = p->n_regs > p->n_quants ? p->n_regs : p->n_quants;
    struct tenant *list = ARENA_ARRAY(p->arena, most, struct tenant);
    if (!list)
        return err_memory(e, "the plan of the model", most * sizeof *list);
    pack_domain(p, list, false, &p->row_floats, &p->row_quant);
    pack_domain(p, list, true, &p->out_floats, &p->out_quant);
    return LINNET_OK;
}

/* Text that grows in a fixed buffer and is cut at its end. */
struct line {
    char *buf;
    size_t size, n;
};

static void put(struct line *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void put(struct line *l, const char *fmt, ...)
{
    if (l->n >= l->size)
        return;
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(l->buf + l->n, l->size - l->n, fmt, args);
    va_end(args);
    l->n += n > 0 ? (size_t)n : 0;
}

static void put_view(struct line *l, const struct plan *p, struct view v)
{
    if (v.reg < 0)
        return;
    const struct plan_reg *r = &p->regs[v.reg];
    put(l, " %s#%d[", r->name, v.reg);
    if (v.n > 1)
        put(l, "%u x ", v.n);
    put(l, "%u]", v.width);
    if (v.off)
        put(l, "+%u", v.off);
}

const char *plan_describe(const struct plan *p, size_t i, char *buf, size_t size)
{
    const struct step *s = &p->steps[i];
    struct line l = {buf, size, 0};
    put(&l, "%4d %3d  %-10s", s->dispatch, s->layer, op_infos[s->op].name);
    put_view(&l, p, s->dst);
    for (uint32_t k = 0; k < s->n_products; k++) {
        const struct matrix *w = s->products[k].w;
        put_view(&l, p, s->products[k].dst);
        put(&l, " (%s %zu x %zu)", w->type->name, w->n_rows, w->n_cols);
    }
    if (s->a.reg >= 0)
        put(&l, " <-");
    put_view(&l, p, s->a);
    put_view(&l, p, s->b);
    put_view(&l, p, s->c);
    return buf;
}
