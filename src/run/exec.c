/*
 * The executor: runs a plan over a batch of rows.
 *
 * The one forward path. Prefill, decode, several sessions together, observed runs: all are this,
 * with other rows. Work is split between threads only across outputs (rows, tiles of 16 weight
 * rows, heads), never inside a sum, so the bits of a result do not depend on the split. A run
 * allocates nothing.
 */
#include "run/exec.h"
#include "base/checked.h"
#include "base/limits.h"

#include <string.h>
#include <sys/mman.h>

enum { TILE_RUN = 4 }; /* tiles of a product worth giving out together */
enum { FEW_ROWS = 4 }; /* rows up to which a product waits for memory */

/* A dispatch of row-local steps [first, last): each row goes through all of them while it is in the
 * caches. */
struct rows_job {
    struct linnet_context *c;
    size_t first, last, n_rows, per_chunk;
};

static void rows_chunk(void *arg, size_t chunk, unsigned worker)
{
    (void)worker;
    const struct rows_job *j = arg;
    size_t r0 = chunk * j->per_chunk;
    size_t r1 = r0 + j->per_chunk < j->n_rows ? r0 + j->per_chunk : j->n_rows;
    for (size_t r = r0; r < r1; r++) {
        for (size_t i = j->first; i < j->last; i++) {
            const struct step *s = &j->c->p->steps[i];
            row_fn *fn = row_fns[s->op];
            if (fn)
                fn(j->c, s, r);
        }
    }
}

static size_t rows_of(const struct linnet_context *c, const struct step *s)
{
    return s->logit_rows ? c->n_logit_rows : s->out_rows ? c->n_out : c->n_rows;
}

static void run_rows(struct linnet_context *c, size_t first, size_t last)
{
    size_t n = rows_of(c, &c->p->steps[first]);
    if (n == 0)
        return;
    struct rows_job job = {c, first, last, n, ceil_div(n, chunk_limit(c))};
    pool_run(c->pool, ceil_div(n, job.per_chunk), rows_chunk, &job);
}

/* The products of a step, cut into chunks. */
struct product_job {
    struct linnet_context *c;
    const struct step *s;
    const struct act *x;
    size_t n, n_chunks, per_chunk, total; /* rows; tiles */
};

static void product_tiles(const struct product_job *j, const struct product *q, size_t t0,
                          size_t t1, unsigned worker)
{
    struct matmul mm = {.w = q->w,
                        .x = j->x,
                        .n = j->n,
                        .y = view_row(j->c, &q->dst, 0),
                        .y_stride = j->c->p->regs[q->dst.reg].width,
                        .bias = q->bias};
    if (t0 < t1)
        j->c->k->matmul(&mm, t0, t1, scratch_of(j->c, worker));
}

/* The same share of every product: threads of a memory node read what they packed. */
static void product_share(void *arg, size_t chunk, unsigned worker)
{
    const struct product_job *j = arg;
    for (uint32_t i = 0; i < j->s->n_products; i++) {
        const struct product *q = &j->s->products[i];
        const size_t tiles = matrix_n_tiles(q->w);
        product_tiles(j, q, tiles * chunk / j->n_chunks, tiles * (chunk + 1) / j->n_chunks, worker);
    }
}

/* A run of tiles, the products one after another. */
static void product_run(void *arg, size_t chunk, unsigned worker)
{
    const struct product_job *j = arg;
    size_t t0 = chunk * j->per_chunk;
    size_t t1 = t0 + j->per_chunk < j->total ? t0 + j->per_chunk : j->total;
    for (uint32_t i = 0; i < j->s->n_products && t0 < t1; i++) {
        const struct product *q = &j->s->products[i];
        size_t tiles = matrix_n_tiles(q->w);
        if (t0 >= tiles) {
            t0 -= tiles;
            t1 -= tiles;
            continue;
        }
        size_t end = t1 < tiles ? t1 : tiles;
        product_tiles(j, q, t0, end, worker);
        t0 = 0;
        t1 -= end;
    }
}

static void run_matmul(struct linnet_context *c, const struct step *s)
{
    size_t n = rows_of(c, s);
    if (n == 0)
        return;
    struct act x = act_of(c, &s->a, s->quant, n);
    struct product_job job = {.c = c, .s = s, .x = &x, .n = n};
    for (uint32_t i = 0; i < s->n_products; i++)
        job.total += matrix_n_tiles(s->products[i].w);
    /* few rows wait for memory: as few pieces as keep threads busy. More rows: smaller pieces, that
     * end together on a busy machine, of whole runs of the tiles that kernels take together */
    if (n <= FEW_ROWS) {
        job.n_chunks = chunk_limit(c);
        pool_run(c->pool, job.n_chunks, product_share, &job);
    } else {
        job.per_chunk = ceil_div(ceil_div(job.total, 4 * chunk_limit(c)), TILE_RUN) * TILE_RUN;
        pool_run(c->pool, ceil_div(job.total, job.per_chunk), product_run, &job);
    }
}

/* Sort (row, piece) pairs by expert: moe_x and moe_y list the rows of each expert one after
 * another, in order of row. */
static size_t group_by_expert(struct linnet_context *c, const struct step *s, uint32_t n_expert)
{
    uint32_t used = s->products[0].dst.n;
    memset(c->moe_count, 0, n_expert * sizeof *c->moe_count);
    for (size_t r = 0; r < c->n_rows; r++) {
        int32_t id[LIMIT_EXPERTS];
        memcpy(id, view_row(c, &s->c, r), used * sizeof *id);
        for (uint32_t j = 0; j < used; j++)
            c->moe_count[id[j]]++;
    }
    int32_t at = 0;
    size_t n_active = 0;
    for (uint32_t e = 0; e < n_expert; e++) {
        c->moe_start[e] = at;
        at += c->moe_count[e];
        if (c->moe_count[e])
            c->moe_active[n_active++] = (int32_t)e;
        c->moe_count[e] = 0;
    }
    for (size_t r = 0; r < c->n_rows; r++) {
        int32_t id[LIMIT_EXPERTS];
        memcpy(id, view_row(c, &s->c, r), used * sizeof *id);
        for (uint32_t j = 0; j < used; j++) {
            int32_t slot = c->moe_start[id[j]] + c->moe_count[id[j]]++;
            c->moe_y[slot] = (int32_t)(r * used + j);
            c->moe_x[slot] = s->a.n == 1 ? (int32_t)r : c->moe_y[slot];
        }
    }
    return n_active;
}

/* The same lists where each head has its own matrix: head h takes piece h of every row. */
static size_t group_by_head(struct linnet_context *c, uint32_t n_head)
{
    size_t n = c->n_rows;
    for (uint32_t h = 0; h < n_head; h++) {
        c->moe_active[h] = (int32_t)h;
        c->moe_start[h] = (int32_t)(h * n);
        c->moe_count[h] = (int32_t)n;
        for (size_t r = 0; r < n; r++)
            c->moe_x[h * n + r] = c->moe_y[h * n + r] = (int32_t)(r * n_head + h);
    }
    return n_head;
}

/* The share of one expert or head in a product, tiles [t0, t1). */
struct moe_job {
    struct linnet_context *c;
    const struct step *s;
    const struct act *x;
    size_t n_parts, n_active; /* n_parts of each matrix, the first ones of all come first */
};

static void moe_chunk(void *arg, size_t chunk, unsigned worker)
{
    const struct moe_job *j = arg;
    struct linnet_context *c = j->c;
    const size_t part = chunk / (j->n_active * j->s->n_products);
    const struct product *q = &j->s->products[chunk / j->n_active % j->s->n_products];
    const int32_t e = c->moe_active[chunk % j->n_active];
    const size_t tiles = matrix_n_tiles(q->w);
    const size_t t0 = tiles * part / j->n_parts, t1 = tiles * (part + 1) / j->n_parts;
    if (t0 == t1)
        return;
    struct matmul mm = {.w = &q->w[e],
                        .x = j->x,
                        .x_rows = c->moe_x + c->moe_start[e],
                        .y_rows = c->moe_y + c->moe_start[e],
                        .n = (size_t)c->moe_count[e],
                        .y = view_row(c, &q->dst, 0),
                        .y_stride = q->dst.stride,
                        .bias = q->bias ? q->bias + (size_t)e * q->w->n_rows : NULL};
    c->k->matmul(&mm, t0, t1, scratch_of(c, worker));
}

static void run_moe(struct linnet_context *c, const struct step *s)
{
    if (c->n_rows == 0)
        return;
    size_t most = 0;
    for (uint32_t i = 0; i < s->n_products; i++)
        if (matrix_n_tiles(s->products[i].w) > most)
            most = matrix_n_tiles(s->products[i].w);
    struct act x = act_of(c, &s->a, s->quant, c->n_rows);
    struct moe_job job = {.c = c, .s = s, .x = &x};
    uint32_t n_w = s->products[0].n_w;
    job.n_active = s->op == OP_HEAD_MATMUL ? group_by_head(c, n_w) : group_by_expert(c, s, n_w);
    const size_t matrices = job.n_active * s->n_products, nodes = pool_n_nodes(c->pool);
    job.n_parts = ceil_div(chunk_limit(c), matrices);
    job.n_parts = job.n_parts < nodes ? nodes : job.n_parts;
    job.n_parts = job.n_parts > most ? most : job.n_parts;
    pool_run(c->pool, job.n_parts * matrices, moe_chunk, &job);
}

struct state_run {
    struct linnet_context *c;
    const struct step *s;
};

static void state_chunk(void *arg, size_t chunk, unsigned worker)
{
    const struct state_run *j = arg;
    state_fns[j->s->op](j->c, j->s, &j->c->spans[chunk / j->s->n_parts],
                        (uint32_t)(chunk % j->s->n_parts), worker);
}

void exec_state_step(struct linnet_context *c, const struct step *s)
{
    struct state_run job = {c, s};
    pool_run(c->pool, c->n_spans * s->n_parts, state_chunk, &job);
}

static void run_state(struct linnet_context *c, const struct step *s)
{
    state_log(c, s);
    exec_state_step(c, s);
}

static void run_step(struct linnet_context *c, size_t i)
{
    const struct step *s = &c->p->steps[i];
    switch (s->op) {
    case OP_MATMUL: run_matmul(c, s); break;
    case OP_MOE_MATMUL:
    case OP_HEAD_MATMUL: run_moe(c, s); break;
    case OP_ATTENTION: attend_step(c, s); break;
    default:
        if (op_infos[s->op].kind == OP_STATE)
            run_state(c, s);
        else
            run_rows(c, i, i + 1);
        break;
    }
}

/* First step after `i` of the dispatch that i begins. */
static size_t dispatch_end(const struct plan *p, size_t i)
{
    size_t j = i + 1;
    while (j < p->n_steps && p->steps[j].dispatch == p->steps[i].dispatch)
        j++;
    return j;
}

static linnet_status run_plain(struct linnet_context *c, linnet_error *e)
{
    const struct plan *p = c->p;
    for (size_t i = 0, next; i < p->n_steps; i = next) {
        next = dispatch_end(p, i);
        if (op_infos[p->steps[i].op].kind == OP_ROW)
            run_rows(c, i, next);
        else
            run_step(c, i);
        if (atomic_load_explicit(c->cancel, memory_order_relaxed))
            return err_set(e, LINNET_CANCELLED, "the run was stopped by the caller");
    }
    return LINNET_OK;
}

static void capture(struct linnet_context *c, const struct step *s, struct view v)
{
    if (v.reg < 0 || strcmp(c->p->regs[v.reg].name, c->observer.capture) != 0)
        return;
    const struct plan_reg *r = &c->p->regs[v.reg];
    c->observer.captured(c->observer.user, s->layer, reg_row(c, v.reg, 0), rows_of(c, s), r->width);
}

/* The last step that a skipped layer still runs. `i` is its OP_LAYER. */
static size_t skip_from(const struct plan *p, size_t i)
{
    size_t stop = i;
    for (size_t j = i + 1; j < p->n_steps && p->steps[j].op != OP_LAYER; j++)
        if (p->steps[j].kept)
            stop = j;
    return stop;
}

/* As run_plain, step by step, with everything an observer may ask for. */
static linnet_status run_observed(struct linnet_context *c, linnet_error *e)
{
    const struct plan *p = c->p;
    const linnet_observer *o = &c->observer;
    size_t skip_after = SIZE_MAX; /* past this step, go on at the next layer */
    int32_t kept = -1;            /* the residual of a skipped layer, which nothing may change */
    for (size_t i = 0; i < p->n_steps; i++) {
        const struct step *s = &p->steps[i];
        if (s->op == OP_LAYER) {
            skip_after = SIZE_MAX;
            bool skip = s->layer >= 0 && (uint32_t)s->layer >= o->exit_layer;
            if (s->layer >= 0 && !skip && o->before_layer)
                skip = o->before_layer(o->user, (uint32_t)s->layer, reg_row(c, s->a.reg, 0),
                                       c->n_rows, s->a.width);
            kept = skip ? s->a.reg : -1;
            if (skip)
                skip_after = skip_from(p, i);
        } else if (i <= skip_after && (kept < 0 || s->dst.reg != kept)) {
            run_step(c, i);
            if (o->capture && o->captured) {
                capture(c, s, s->dst);
                for (uint32_t j = 0; j < s->n_products; j++)
                    capture(c, s, s->products[j].dst);
            }
        }
        if (atomic_load_explicit(c->cancel, memory_order_relaxed))
            return err_set(e, LINNET_CANCELLED, "the run was stopped by the caller");
    }
    return LINNET_OK;
}

linnet_status exec_run(struct linnet_context *c, linnet_error *e)
{
    attend_blocks(c);
    return c->observed ? run_observed(c, e) : run_plain(c, e);
}

uint64_t exec_bytes(const struct plan *p, uint32_t n_ctx, uint32_t n_batch)
{
    return ((uint64_t)(p->row_floats + p->out_floats) * sizeof(float) + p->row_quant +
            p->out_quant) *
               n_batch +
           attend_part_floats(p, n_ctx) * sizeof(float);
}

/* The widest needs of any step: experts (or heads with matrices), of which a row uses. */
static void most(const struct plan *p, size_t *experts, size_t *used)
{
    *experts = *used = 1;
    for (size_t i = 0; i < p->n_steps; i++) {
        const struct step *s = &p->steps[i];
        if (s->op != OP_MOE_MATMUL && s->op != OP_HEAD_MATMUL)
            continue;
        if (s->products[0].n_w > *experts)
            *experts = s->products[0].n_w;
        if (s->products[0].dst.n > *used)
            *used = s->products[0].dst.n;
    }
}

static bool map_registers(struct linnet_context *c)
{
    const struct plan *p = c->p;
    enum { N = 5 };
    c->attn_n_parts = attend_part_floats(p, c->n_ctx);
    size_t sizes[N] = {p->row_floats * sizeof(float), p->out_floats * sizeof(float), p->row_quant,
                       p->out_quant, c->attn_n_parts * sizeof(float)};
    uint8_t *at[N];
    size_t total = 0, offset[N];
    for (int i = 0; i < N; i++) {
        offset[i] = total;
        if (!size_mul(sizes[i], i < 4 ? c->n_batch : 1, &sizes[i]) ||
            !size_align(sizes[i], 4096, &sizes[i]) || !size_add(total, sizes[i], &total))
            return false;
    }
    c->work_size = total;
    c->work = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    if (c->work == MAP_FAILED) {
        c->work = NULL;
        return false;
    }
    madvise(c->work, total, MADV_HUGEPAGE); /* advice: a refusal costs speed only */
    for (int i = 0; i < N; i++)
        at[i] = (uint8_t *)c->work + offset[i];
    c->regs = (float *)(void *)at[0];
    c->out_regs = (float *)(void *)at[1];
    c->quants = at[2];
    c->out_quants = at[3];
    c->attn_parts = (float *)(void *)at[4];
    return true;
}

linnet_status exec_init(struct linnet_context *c, linnet_error *e)
{
    size_t experts, used, n = c->n_batch, threads = pool_threads(c->pool);
    most(c->p, &experts, &used);
    attend_init(c);
    c->scratch = ARENA_ARRAY(&c->arena, threads * KERNEL_SCRATCH, uint8_t);
    c->attn_q = ARENA_ARRAY(&c->arena, threads * c->attn_cap, const float *);
    c->attn_out = ARENA_ARRAY(&c->arena, threads * c->attn_cap, float *);
    c->attn_range = ARENA_ARRAY(&c->arena, threads * c->attn_cap * 2, int32_t);
    c->attn_sinks = ARENA_ARRAY(&c->arena, threads * c->attn_cap, float);
    c->token = ARENA_ARRAY(&c->arena, n, int32_t);
    c->pos = ARENA_ARRAY(&c->arena, n, int32_t);
    c->out_row = ARENA_ARRAY(&c->arena, n, int32_t);
    c->keep = ARENA_ARRAY(&c->arena, n, float *);
    c->given = ARENA_ARRAY(&c->arena, n, const float *);
    c->span_of = ARENA_ARRAY(&c->arena, n, uint32_t);
    c->spans = ARENA_ARRAY(&c->arena, n, struct span);
    c->blocks = ARENA_ARRAY(&c->arena, n, struct attn_block);
    c->moe_count = ARENA_ARRAY(&c->arena, experts, int32_t);
    c->moe_start = ARENA_ARRAY(&c->arena, experts, int32_t);
    c->moe_active = ARENA_ARRAY(&c->arena, experts, int32_t);
    c->moe_x = ARENA_ARRAY(&c->arena, n * used, int32_t);
    c->moe_y = ARENA_ARRAY(&c->arena, n * used, int32_t);
    bool all = c->scratch && c->attn_q && c->attn_out && c->attn_range && c->attn_sinks &&
               c->token && c->pos && c->out_row && c->keep && c->given && c->span_of && c->spans &&
               c->blocks && c->moe_count && c->moe_start && c->moe_active && c->moe_x && c->moe_y;
    if (!all || !map_registers(c))
        return err_memory(e, "working memory of a context; a smaller n_batch needs less",
                          (size_t)exec_bytes(c->p, c->n_ctx, c->n_batch));
    return LINNET_OK;
}
