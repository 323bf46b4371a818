/*
 * What the executor's parts share: where the rows of registers lie, and the tables of functions by
 * operation.
 */
#ifndef LINNET_RUN_EXEC_H
#define LINNET_RUN_EXEC_H

#include "run/context.h"

static inline float *reg_row(const struct linnet_context *c, int32_t reg, size_t row)
{
    const struct plan_reg *r = &c->p->regs[reg];
    if (reg == c->p->logits.reg)
        return c->logits_out + row * r->width;
    float *base = r->out_rows ? c->out_regs : c->regs;
    return base + r->offset * c->n_batch + row * r->width;
}

static inline float *view_row(const struct linnet_context *c, const struct view *v, size_t row)
{
    return reg_row(c, v->reg, row) + v->off;
}

static inline uint8_t *quant_base(const struct linnet_context *c, int32_t q)
{
    const struct plan_quant *b = &c->p->quants[q];
    return (b->out_rows ? c->out_quants : c->quants) + b->offset * c->n_batch;
}

/* The batch row that row `row` of a step stands for. */
static inline size_t batch_row(const struct linnet_context *c, const struct step *s, size_t row)
{
    return s->out_rows ? (size_t)c->out_row[row] : row;
}

/* A view as the input of products. */
static inline struct act act_of(const struct linnet_context *c, const struct view *v, int32_t quant,
                                size_t rows)
{
    return (struct act){.n_rows = rows * v->n,
                        .width = v->width,
                        .x = view_row(c, v, 0),
                        .x_stride = v->n == 1 ? c->p->regs[v->reg].width : v->stride,
                        .quant = quant >= 0 ? quant_base(c, quant) : NULL};
}

/* Pieces a dispatch is cut into, so that a slow core does not hold up the rest. */
static inline size_t chunk_limit(const struct linnet_context *c)
{
    enum { CHUNKS_PER_THREAD = 4 };
    size_t t = pool_threads(c->pool);
    return t == 1 ? 1 : t * CHUNKS_PER_THREAD;
}

static inline size_t ceil_div(size_t a, size_t b)
{
    return (a + b - 1) / b;
}

static inline uint8_t *scratch_of(const struct linnet_context *c, unsigned worker)
{
    return c->scratch + (size_t)worker * KERNEL_SCRATCH;
}

/* attend.c: attention over the batch. */
/* Sets attn_rows and attn_cap. */
void attend_init(struct linnet_context *c);
/* Floats for the results of splits. */
size_t attend_part_floats(const struct plan *p, uint32_t n_ctx);
/* Cut each span's rows into attention blocks. */
void attend_blocks(struct linnet_context *c);
void attend_step(struct linnet_context *c, const struct step *s);

/* Row-local operations: one row. NULL for operations that are not. */
typedef void row_fn(struct linnet_context *c, const struct step *s, size_t row);
extern row_fn *const row_fns[OP_COUNT];

/* Recurrent operations: part `part` of step.n_parts for all rows of a span, in order; reads and
 * writes that part of the session's state. Parts are independent of each other. */
typedef void state_fn(struct linnet_context *c, const struct step *s, const struct span *span,
                      uint32_t part, unsigned worker);
extern state_fn *const state_fns[OP_COUNT];
state_fn state_scan, state_ssd;  /* scan.c */
state_fn state_shift, state_wkv; /* wkv.c */

/* The step's state in a session. */
static inline float *state_at(const struct span *span, const struct step *s)
{
    return span->s->state + s->state;
}

#endif
