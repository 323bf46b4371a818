/*
 * Opening a model: file, family, plan, packed weights. Everything that can be wrong with a file
 * comes out here, before anything runs.
 */
#include "model/model.h"

#include "base/checked.h"
#include "base/limits.h"
#include "model/family.h"
#include "model/load.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Plans, descriptors, norms and biases: far above what the largest published model needs. */
#define MODEL_ARENA_MAX ((size_t)4 << 30)

void linnet_model_defaults(linnet_model_options *options)
{
    *options = (linnet_model_options){.size = sizeof *options};
}

static bool tick(const linnet_model_options *o, float fraction)
{
    return !o->progress || o->progress(o->user, fraction);
}

/* A matrix the plan multiplies with, in the order of first use. */
struct use {
    struct matrix *m;
    size_t tiles, tile_bytes, offset;
};

static int by_address(const void *a, const void *b)
{
    const struct use *x = a, *y = b;
    return x->m < y->m ? -1 : x->m > y->m;
}

static int by_file(const void *a, const void *b)
{
    const struct use *x = a, *y = b;
    return x->m->data < y->m->data ? -1 : x->m->data > y->m->data;
}

/* Matrices of a plan's products, to list [n] on from `at` unless it is NULL. Returns the new
 * `at`. */
static size_t add_uses(const struct plan *p, struct use *list, size_t at)
{
    for (size_t i = 0; i < p->n_steps; i++)
        for (uint32_t j = 0; j < p->steps[i].n_products; j++) {
            const struct product *q = &p->steps[i].products[j];
            for (uint32_t k = 0; list && k < q->n_w; k++)
                list[at + k].m = (struct matrix *)&q->w[k];
            at += q->n_w;
        }
    return at;
}

/* Every distinct matrix of the plans' products. The arena owns the list. */
static linnet_status list_uses(linnet_model *m, struct use **out, size_t *n_out, linnet_error *e)
{
    size_t n = add_uses(&m->draft, NULL, add_uses(&m->plan, NULL, 0));
    struct use *list = ARENA_ARRAY(&m->arena, n, struct use);
    if (!list)
        return err_memory(e, "list of matrices", n * sizeof *list);
    add_uses(&m->draft, list, add_uses(&m->plan, list, 0));
    if (n)
        qsort(list, n, sizeof *list, by_address);
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (i == 0 || list[i].m != list[kept - 1].m)
            list[kept++] = list[i];
    *out = list;
    *n_out = kept;
    return LINNET_OK;
}

struct pack_job {
    const struct use *use;
    uint8_t *dst;
};

enum { PACK_TILES = 16 }; /* tiles per chunk of packing */

static void pack_chunk(void *arg, size_t chunk, unsigned worker)
{
    (void)worker;
    const struct pack_job *j = arg;
    size_t t0 = chunk * PACK_TILES;
    size_t t1 = t0 + PACK_TILES < j->use->tiles ? t0 + PACK_TILES : j->use->tiles;
    matrix_pack(j->use->m, j->dst + t0 * j->use->tile_bytes, t0, t1);
}

static bool inside(const struct gguf_tensor *t, const struct matrix *w)
{
    return w->data >= t->data && w->data < t->data + t->size;
}

/* The tensor that a matrix lies in; NULL for one that was made while loading. */
static const struct gguf_tensor *tensor_of(const linnet_model *m, const struct matrix *w)
{
    for (size_t i = 0; i < gguf_n_tensors(m->gguf); i++)
        if (inside(gguf_tensor_at(m->gguf, i), w))
            return gguf_tensor_at(m->gguf, i);
    return NULL;
}

/* Use i of the list, which is in file order, is packed: let go of what only packing needed. */
static void drop_source(linnet_model *m, const struct use *list, size_t n, size_t i,
                        const struct gguf_tensor **in)
{
    struct matrix *w = list[i].m;
    if (!*in || !inside(*in, w))
        *in = tensor_of(m, w);
    if (!*in)
        w->data = NULL;
    else if (i + 1 == n || !inside(*in, list[i + 1].m))
        gguf_tensor_drop(m->gguf, *in);
}

/* Copy weights into the layout kernels read. The pages of the file are let go as they are copied,
 * so that the weights are never resident twice. */
static linnet_status pack_weights(linnet_model *m, const linnet_model_options *o, linnet_error *e)
{
    struct use *list = NULL;
    size_t n = 0, total = 0, done = 0;
    linnet_status status = list_uses(m, &list, &n, e);
    if (status != LINNET_OK)
        return status;
    if (n)
        qsort(list, n, sizeof *list, by_file);
    for (size_t i = 0; i < n; i++) {
        struct use *u = &list[i];
        u->tiles = matrix_n_tiles(u->m);
        u->tile_bytes = matrix_tile_bytes(u->m->type, u->m->n_cols);
        u->offset = total;
        size_t size;
        if (!size_mul(u->tiles, u->tile_bytes, &size) || !size_align(size, 64, &size) ||
            !size_add(total, size, &total))
            return err_set(e, LINNET_LIMIT, "the packed weights are larger than memory can be");
    }
    if (total == 0)
        return LINNET_OK;
    m->packed = mmap(NULL, total, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (m->packed == MAP_FAILED) {
        m->packed = NULL;
        return err_memory(e, "packed weights", total);
    }
    m->packed_size = total;
    madvise(m->packed, total, MADV_HUGEPAGE); /* advice: a refusal costs speed only */
    const struct gguf_tensor *in = NULL;
    for (size_t i = 0; i < n; i++) {
        struct use *u = &list[i];
        struct pack_job job = {u, (uint8_t *)m->packed + u->offset};
        pool_run(m->pool, (u->tiles + PACK_TILES - 1) / PACK_TILES, pack_chunk, &job);
        u->m->packed = job.dst;
        done += u->tiles * u->tile_bytes;
        drop_source(m, list, n, i, &in);
        if (!tick(o, (float)((double)done / (double)total)))
            return err_set(e, LINNET_CANCELLED, "loading was stopped by the caller");
    }
    arena_free(&m->until_packed);
    return LINNET_OK;
}

static void count_bytes(linnet_model *m)
{
    struct model_facts *f = &m->facts;
    for (size_t i = 0; i < gguf_n_tensors(m->gguf); i++) {
        f->n_params += gguf_tensor_at(m->gguf, i)->n_elems;
        f->weight_bytes += gguf_tensor_at(m->gguf, i)->size;
    }
    for (size_t i = 0; i < m->plan.n_steps; i++) {
        const struct step *s = &m->plan.steps[i];
        for (uint32_t j = 0; j < s->n_products; j++) {
            const struct matrix *w = s->products[j].w;
            uint64_t used = s->op == OP_MATMUL ? 1 : s->products[j].dst.n;
            f->step_bytes += used * w->n_rows * w->row_bytes;
        }
    }
}

static linnet_status find_family(linnet_model *m, linnet_error *e)
{
    struct gguf_str s;
    linnet_status status = gguf_get_str(m->gguf, "general.architecture", &s, e);
    if (status == LINNET_NOT_FOUND)
        return err_set(e, LINNET_FORMAT,
                       "metadata key 'general.architecture' is missing: not a model file");
    if (status != LINNET_OK)
        return status;
    m->facts.arch = arena_strndup(&m->arena, s.s, s.n);
    if (!m->facts.arch)
        return err_memory(e, "architecture name", s.n);
    m->family = strlen(m->facts.arch) == s.n ? family_of(m->facts.arch) : NULL;
    if (!m->family)
        return err_set(e, LINNET_UNSUPPORTED,
                       "architecture '%.64s' (general.architecture) is not one this build can run",
                       m->facts.arch);
    return LINNET_OK;
}

/* Does the file hold the NextN block that it counts? Files of the trunk alone do not. */
static bool holds_draft(struct loader *l)
{
    l->il = (int32_t)l->m->facts.n_layer;
    bool there = l->m->facts.n_layer < l->m->facts.n_layer_all && has(l, "nextn.eh_proj.weight");
    l->il = -1;
    return there;
}

static void build_draft(linnet_model *m, struct loader *l)
{
    if (l->status != LINNET_OK || !holds_draft(l))
        return;
    if (!m->family->draft) {
        load_fail(l, LINNET_UNSUPPORTED,
                  "the NextN block of %s is not one this build can run; open the model without it",
                  l->arch);
        return;
    }
    m->has_draft = l->draft = true;
    l->p = &m->draft;
    plan_init(&m->draft, &m->arena);
    m->family->build(l, m->family);
    bool forgets = m->draft.state_floats != 0; /* going back must need no hidden state again */
    for (size_t i = 0; i < m->draft.n_kvs; i++)
        forgets |= m->draft.kvs[i].window != 0;
    if (forgets)
        load_fail(l, LINNET_UNSUPPORTED,
                  "the NextN block of this %s file is recurrent or has a window", l->arch);
}

static linnet_status build_plans(linnet_model *m, bool draft, linnet_error *e)
{
    linnet_error own;
    struct loader l = {
        .m = m, .g = m->gguf, .arena = &m->arena, .p = &m->plan, .arch = m->facts.arch, .il = -1};
    l.e = e ? e : &own;
    l.seen_kv = ARENA_ARRAY(&m->arena, gguf_n_kv(m->gguf), bool);
    l.seen_tensor = ARENA_ARRAY(&m->arena, gguf_n_tensors(m->gguf), bool);
    l.mats = ARENA_ARRAY(&m->arena, gguf_n_tensors(m->gguf), const struct matrix *);
    if (!l.seen_kv || !l.seen_tensor || !l.mats)
        return err_memory(e, "model description", gguf_n_kv(m->gguf) + gguf_n_tensors(m->gguf));
    plan_init(&m->plan, &m->arena);
    m->family->build(&l, m->family);
    if (draft)
        build_draft(m, &l);
    load_finish(&l);
    if (l.status != LINNET_OK)
        return l.status;
    linnet_status s = plan_finish(&m->plan, e);
    return s == LINNET_OK && m->has_draft ? plan_finish(&m->draft, e) : s;
}

static linnet_status open_all(linnet_model *m, const char *path, const linnet_model_options *o,
                              linnet_error *e)
{
    m->kernels = o->isa ? kernels_named(o->isa) : kernels_best();
    if (!m->kernels)
        return err_set(e, LINNET_UNSUPPORTED,
                       "kernel set '%.32s' does not exist or this processor cannot run it", o->isa);
    m->plan_only = o->plan_only;
    linnet_status s = gguf_open(path, &m->gguf, e);
    if (s == LINNET_OK)
        s = find_family(m, e);
    if (s == LINNET_OK) {
        s = vocab_load(m->gguf, &m->vocab, e);
        if (s == LINNET_NOT_FOUND)
            s = LINNET_OK; /* ids in, logits out: a vocabulary is not needed to run */
    }
    if (s == LINNET_OK)
        s = build_plans(m, o->draft, e);
    if (s == LINNET_OK)
        s = pool_create(o->threads, &m->pool, e);
    if (s == LINNET_OK && !o->plan_only)
        s = pack_weights(m, o, e);
    if (s == LINNET_OK)
        count_bytes(m);
    return s;
}

linnet_status linnet_model_open(const char *path, const linnet_model_options *options,
                                linnet_model **out, linnet_error *error)
{
    linnet_model_options o;
    linnet_model_defaults(&o);
    if (options && options->size != sizeof o)
        return err_set(
            error, LINNET_INVALID,
            "linnet_model_options of an unknown size: call linnet_model_defaults() first");
    if (options)
        o = *options;
    if (o.threads > LIMIT_THREADS)
        return err_set(error, LINNET_INVALID, "%u threads: the most is %d", o.threads,
                       LIMIT_THREADS);
    linnet_model *m = calloc(1, sizeof *m);
    if (!m)
        return err_memory(error, "a model", sizeof *m);
    arena_init(&m->arena, MODEL_ARENA_MAX);
    arena_init(&m->until_packed, SIZE_MAX);
    linnet_status s = open_all(m, path, &o, error);
    if (s != LINNET_OK) {
        linnet_model_close(m);
        return s;
    }
    *out = m;
    return LINNET_OK;
}

void linnet_model_close(linnet_model *m)
{
    if (!m)
        return;
    pool_destroy(m->pool);
    vocab_free(m->vocab);
    if (m->packed)
        munmap(m->packed, m->packed_size);
    gguf_close(m->gguf);
    arena_free(&m->arena);
    arena_free(&m->until_packed);
    free(m);
}

void linnet_model_get_info(const linnet_model *m, linnet_model_info *out)
{
    const struct model_facts *f = &m->facts;
    *out = (linnet_model_info){.arch = f->arch,
                               .isa = m->kernels->name,
                               .threads = pool_threads(m->pool),
                               .n_layer = f->n_layer,
                               .n_draft = f->n_layer_all - f->n_layer,
                               .has_draft = m->has_draft,
                               .n_embd = f->d_model,
                               .n_vocab = f->n_vocab,
                               .n_ctx_train = f->n_ctx_train,
                               .n_params = f->n_params,
                               .weight_bytes = f->weight_bytes,
                               .step_bytes = f->step_bytes};
}

bool linnet_model_plan_line(const linnet_model *m, size_t i, char *buf, size_t size)
{
    bool draft = i >= m->plan.n_steps;
    i -= draft ? m->plan.n_steps : 0;
    if (size == 0 || i >= (draft ? m->draft : m->plan).n_steps)
        return false;
    plan_describe(draft ? &m->draft : &m->plan, i, buf, size);
    return true;
}
