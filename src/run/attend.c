/*
 * Attention over a batch: which thread computes what.
 *
 * Rows are cut into blocks, and a job is a block and one KV head with all or some of its query
 * heads. Where that makes too few jobs (one row, few KV heads), the keys are cut too, into the
 * splits of KV_SPLIT positions that the kernel sums by themselves anyway, and a second dispatch
 * merges what each brought. So neither the number of threads nor the way a batch was cut changes a
 * bit.
 */
#include "base/checked.h"
#include "run/exec.h"

enum {
    BLOCK_QUERIES = 64,   /* queries of a KV head worth sharing a conversion of the keys */
    BLOCK_ROWS = 16,      /* least rows of a block */
    LEAST_HEADS = 16,     /* query heads worth a conversion of the keys of their own */
    PART_ROWS = 8,        /* rows whose keys are cut at a full context */
    PART_ALIGN = TILE,    /* floats */
    PARTS_MAX = 16 << 20, /* floats */
};

/* Floats of the result of one split for one query. */
static size_t part_stride(size_t d_v)
{
    return ceil_div(d_v + 2, PART_ALIGN) * PART_ALIGN;
}

static size_t group_of(const struct plan *p, const struct step *s)
{
    return s->a.n / p->kvs[s->index].n_head;
}

void attend_init(struct linnet_context *c)
{
    size_t most = 1;
    for (size_t i = 0; i < c->p->n_steps; i++)
        if (c->p->steps[i].op == OP_ATTENTION && group_of(c->p, &c->p->steps[i]) > most)
            most = group_of(c->p, &c->p->steps[i]);
    c->attn_rows = BLOCK_QUERIES / most > BLOCK_ROWS ? BLOCK_QUERIES / most : BLOCK_ROWS;
    c->attn_cap = most * c->attn_rows;
}

size_t attend_part_floats(const struct plan *p, uint32_t n_ctx)
{
    size_t row = 0, n;
    for (size_t i = 0; i < p->n_steps; i++) {
        const struct step *s = &p->steps[i];
        size_t floats = s->op == OP_ATTENTION ? s->a.n * part_stride(p->kvs[s->index].d_v) : 0;
        row = floats > row ? floats : row;
    }
    if (!size_mul(row, (n_ctx / KV_SPLIT + 2) * (size_t)PART_ROWS, &n))
        return PARTS_MAX;
    return n < PARTS_MAX ? n : PARTS_MAX;
}

void attend_blocks(struct linnet_context *c)
{
    c->n_blocks = 0;
    for (uint32_t i = 0; i < c->n_spans; i++)
        for (size_t r = 0; r < c->spans[i].n; r += c->attn_rows) {
            size_t n = c->spans[i].n - r < c->attn_rows ? c->spans[i].n - r : c->attn_rows;
            c->blocks[c->n_blocks++] =
                (struct attn_block){i, (uint32_t)(c->spans[i].row0 + r), (uint32_t)n};
        }
}

struct attn_run {
    struct linnet_context *c;
    const struct step *s;
    const struct kv_slot *slot;
    uint32_t each, n_groups; /* query heads of a job, jobs of a KV head */
    size_t n_splits;         /* most of a block; 0: keys are not cut */
    size_t stride;           /* floats of a part */
};

/* The first position that row `row` sees. */
static int32_t first_of(const struct attn_run *j, size_t row)
{
    int32_t pos = j->c->pos[row], window = (int32_t)j->s->attn->window;
    return window && pos >= window ? pos - window + 1 : 0;
}

/* The split in which the first position lies that any row of a block sees. */
static size_t first_split(const struct attn_run *j, const struct attn_block *b)
{
    return (size_t)first_of(j, b->row0) / KV_SPLIT;
}

static float *part_of(const struct attn_run *j, size_t row, size_t head)
{
    return j->c->attn_parts + (row * j->s->a.n + head) * j->n_splits * j->stride;
}

/* The queries of a worker's job. */
struct attn_lists {
    const float **q;
    float **out, *sinks;
    int32_t *first, *last;
    size_t n;
};

/* One row's query heads [h0, h1), of the keys [first, last]; part: number of the split. */
static void add_row(const struct attn_run *j, struct attn_lists *l, size_t row, size_t h0,
                    size_t h1, int32_t first, int32_t last, size_t part)
{
    const struct step *s = j->s;
    for (size_t h = h0; h < h1; h++, l->n++) {
        l->q[l->n] = view_row(j->c, &s->a, row) + h * s->a.stride;
        l->out[l->n] = j->n_splits ? part_of(j, row, h) + part * j->stride
                                   : view_row(j->c, &s->dst, row) + h * s->dst.stride;
        l->first[l->n] = first;
        l->last[l->n] = last;
        if (s->attn->sinks)
            l->sinks[l->n] = s->attn->sinks[h];
    }
}

/* One block of rows, some of the query heads of one KV head, and all keys or one split. */
static void attn_chunk(void *arg, size_t chunk, unsigned worker)
{
    const struct attn_run *j = arg;
    struct linnet_context *c = j->c;
    const struct step *s = j->s;
    const struct kv_place *at = &c->places[s->index];
    size_t split = 0;
    if (j->n_splits) {
        split = chunk % j->n_splits;
        chunk /= j->n_splits;
    }
    size_t group = group_of(c->p, s), g0 = chunk % j->n_groups * j->each;
    size_t g1 = g0 + j->each < group ? g0 + j->each : group;
    chunk /= j->n_groups;
    size_t head = chunk % j->slot->n_head;
    const struct attn_block *b = &c->blocks[chunk / j->slot->n_head];
    struct attn_lists l = {.q = c->attn_q + worker * c->attn_cap,
                           .out = c->attn_out + worker * c->attn_cap,
                           .sinks = c->attn_sinks + worker * c->attn_cap,
                           .first = c->attn_range + (size_t)worker * 2 * c->attn_cap};
    l.last = l.first + c->attn_cap;
    for (uint32_t i = 0; i < b->n; i++) {
        size_t row = b->row0 + i;
        int32_t first = first_of(j, row), last = c->pos[row];
        if (j->n_splits) {
            int32_t from = (int32_t)((first_split(j, b) + split) * KV_SPLIT);
            first = first > from ? first : from;
            last = last < from + KV_SPLIT - 1 ? last : from + KV_SPLIT - 1;
            if (first > last)
                continue;
        }
        add_row(j, &l, row, head * group + g0, head * group + g1, first, last, split);
    }
    struct attn_job job = {.n_q = l.n,
                           .q = l.q,
                           .out = l.out,
                           .first = l.first,
                           .last = l.last,
                           .d_k = j->slot->d_k,
                           .d_v = j->slot->d_v,
                           .k_type = c->kv_k,
                           .v_type = j->slot->v_in_k ? c->kv_k : c->kv_v,
                           .pages = (const uint8_t *const *)c->spans[b->span].s->pages[at->group],
                           .k_off = at->k_off + head * KV_PAGE * at->k_row,
                           .v_off = at->v_off + head * KV_PAGE * at->v_row,
                           .k_rows = j->slot->v_in_k,
                           .k_stride = at->k_row,
                           .v_stride = at->v_row,
                           .part = j->n_splits > 0,
                           .scale = s->attn->scale,
                           .softcap = s->attn->softcap,
                           .sinks = s->attn->sinks && !j->n_splits ? l.sinks : NULL};
    if (l.n)
        c->k->attention(&job, scratch_of(c, worker));
}

/* One query of one block. */
static void merge_chunk(void *arg, size_t chunk, unsigned worker)
{
    (void)worker;
    const struct attn_run *j = arg;
    const struct step *s = j->s;
    size_t head = chunk % s->a.n;
    const struct attn_block *b = &j->c->blocks[chunk / s->a.n];
    for (size_t row = b->row0; row < b->row0 + b->n; row++) {
        size_t first = (size_t)first_of(j, row) / KV_SPLIT,
               end = (size_t)j->c->pos[row] / KV_SPLIT + 1;
        struct attn_merge job = {.n = end - first,
                                 .d_v = j->slot->d_v,
                                 .stride = j->stride,
                                 .parts = part_of(j, row, head) +
                                          (first - first_split(j, b)) * j->stride,
                                 .out = view_row(j->c, &s->dst, row) + head * s->dst.stride,
                                 .sink = s->attn->sinks ? &s->attn->sinks[head] : NULL};
        j->c->k->attn_merge(&job);
    }
}

/* Splits of the block that sees most; 0 when they bring nothing or there is no room for parts. */
static size_t count_splits(const struct attn_run *j)
{
    const struct linnet_context *c = j->c;
    size_t most = 0, room = c->attn_n_parts / (c->n_rows * j->s->a.n * j->stride);
    for (size_t i = 0; i < c->n_blocks; i++) {
        const struct attn_block *b = &c->blocks[i];
        size_t n = (size_t)c->pos[b->row0 + b->n - 1] / KV_SPLIT + 1 - first_split(j, b);
        most = n > most ? n : most;
    }
    return most > 1 && most <= room ? most : 0;
}

void attend_step(struct linnet_context *c, const struct step *s)
{
    struct attn_run j = {.c = c, .s = s, .slot = &c->p->kvs[s->index]};
    size_t group = group_of(c->p, s), chunks = c->n_blocks * j.slot->n_head;
    if (chunks == 0)
        return;
    j.stride = part_stride(j.slot->d_v);
    if (chunks < chunk_limit(c)) {
        j.n_splits = count_splits(&j);
        chunks *= j.n_splits ? j.n_splits : 1;
    }
    size_t groups = ceil_div(chunk_limit(c), chunks), most = ceil_div(group, LEAST_HEADS);
    j.each = (uint32_t)ceil_div(group, groups < most ? groups : most);
    j.n_groups = (uint32_t)ceil_div(group, j.each);
    pool_run(c->pool, chunks * j.n_groups, attn_chunk, &j);
    if (j.n_splits)
        pool_run(c->pool, c->n_blocks * s->a.n, merge_chunk, &j);
}
