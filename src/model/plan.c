/*
 * Plans: appending steps, in program order. What makes them runnable is in plan_finish.c.
 */
#include "model/plan.h"

#include "base/checked.h"

#include <string.h>

const struct op_info op_infos[OP_COUNT] = {
    [OP_LAYER] = {"layer", OP_ROW},
    [OP_EMBED] = {"embed", OP_ROW},
    [OP_EMBED_POS] = {"embed_pos", OP_ROW},
    [OP_ROPE_TABLE] = {"rope_table", OP_ROW},
    [OP_COPY] = {"copy", OP_ROW},
    [OP_ADD] = {"add", OP_ROW},
    [OP_SUB] = {"sub", OP_ROW},
    [OP_MUL] = {"mul", OP_ROW},
    [OP_SCALE] = {"scale", OP_ROW},
    [OP_ADD_VEC] = {"add_vec", OP_ROW},
    [OP_MUL_VEC] = {"mul_vec", OP_ROW},
    [OP_NORM] = {"norm", OP_ROW},
    [OP_ACT] = {"act", OP_ROW},
    [OP_GATE] = {"gate", OP_ROW},
    [OP_SOFTCAP] = {"softcap", OP_ROW},
    [OP_LERP] = {"lerp", OP_ROW},
    [OP_DOT_MUL] = {"dot_mul", OP_ROW},
    [OP_RESCALE] = {"rescale", OP_ROW},
    [OP_SPARSIFY] = {"sparsify", OP_ROW},
    [OP_ROPE] = {"rope", OP_ROW},
    [OP_POS_SCALE] = {"pos_scale", OP_ROW},
    [OP_KV_STORE] = {"kv_store", OP_ROW},
    [OP_QUANTISE] = {"quantise", OP_ROW},
    [OP_ROUTE] = {"route", OP_ROW},
    [OP_COMBINE] = {"combine", OP_ROW},
    [OP_MUL_EACH] = {"mul_each", OP_ROW},
    [OP_MIX] = {"mix", OP_ROW},
    [OP_SELECT] = {"select", OP_ROW},
    [OP_GIVEN] = {"given", OP_ROW},
    [OP_HIDDEN] = {"hidden", OP_ROW},
    [OP_CONV] = {"conv", OP_STATE},
    [OP_DELTA] = {"delta", OP_STATE},
    [OP_SHIFT] = {"shift", OP_STATE},
    [OP_SCAN] = {"scan", OP_STATE},
    [OP_SSD] = {"ssd", OP_STATE},
    [OP_WKV] = {"wkv", OP_STATE},
    [OP_MATMUL] = {"matmul", OP_OTHER},
    [OP_MOE_MATMUL] = {"moe_matmul", OP_OTHER},
    [OP_HEAD_MATMUL] = {"head_matmul", OP_OTHER},
    [OP_ATTENTION] = {"attention", OP_OTHER},
};

void plan_init(struct plan *p, struct arena *arena)
{
    *p = (struct plan){.arena = arena, .layer = -1, .logits = view_none()};
}

static void broken(struct plan *p, const char *why)
{
    if (!p->broken)
        p->broken = why;
}

/* `array` with room for one element more, or NULL. */
static void *grow(struct plan *p, void *array, size_t n, size_t *cap, size_t size)
{
    if (n < *cap)
        return array;
    size_t want = *cap ? *cap * 2 : 64;
    void *bigger = arena_alloc(p->arena, want, size);
    if (!bigger) {
        p->no_memory = true;
        return NULL;
    }
    if (n)
        memcpy(bigger, array, n * size);
    *cap = want;
    return bigger;
}

struct view plan_new(struct plan *p, const char *name, uint32_t width)
{
    if (width == 0) {
        broken(p, "a register of width 0");
        return view_none();
    }
    struct plan_reg *regs = grow(p, p->regs, p->n_regs, &p->cap_regs, sizeof *regs);
    if (!regs)
        return view_none();
    p->regs = regs;
    regs[p->n_regs] = (struct plan_reg){
        .name = name, .width = width, .out_rows = p->out_rows, .layer = p->layer, .first = -1};
    return (struct view){(int32_t)p->n_regs++, 0, 1, width, width};
}

/* False for a view that cannot be used: silently for none, as a builder's mistake otherwise. */
static bool usable(struct plan *p, struct view v)
{
    if (v.reg < 0)
        return false;
    size_t end = v.n ? (size_t)v.off + (size_t)(v.n - 1) * v.stride + v.width : 0;
    if ((size_t)v.reg >= p->n_regs || v.n == 0 || v.width == 0 || end > p->regs[v.reg].width) {
        broken(p, "a view does not fit its register");
        return false;
    }
    return true;
}

/* Append a step that writes dst; NULL when it cannot be. */
static struct step *append(struct plan *p, enum op op, struct view dst)
{
    struct step *steps = grow(p, p->steps, p->n_steps, &p->cap_steps, sizeof *steps);
    if (!steps)
        return NULL;
    p->steps = steps;
    struct step *s = &steps[p->n_steps++];
    *s = (struct step){.op = op,
                       .layer = p->layer,
                       .out_rows = p->out_rows,
                       .logit_rows = p->logit_rows,
                       .dst = dst,
                       .a = view_none(),
                       .b = view_none(),
                       .c = view_none(),
                       .quant = -1,
                       .index = -1};
    return s;
}

/* Elementwise steps go through their operands as one row, or piece by piece: then those in several
 * pieces must have the same number of them. */
static bool same_pieces(struct view dst, struct view a, struct view b)
{
    const struct view v[3] = {dst, a, b.reg >= 0 ? b : a};
    uint32_t n = 1;
    bool flat = true, same = true;
    for (int i = 0; i < 3; i++) {
        flat = flat && (v[i].n == 1 || v[i].stride == v[i].width);
        n = v[i].n > n ? v[i].n : n;
    }
    for (int i = 0; i < 3; i++)
        same = same && (v[i].n == 1 || v[i].n == n);
    return flat || same;
}

/* dst = op(a), or op(a, b) when b is a view: all of the same size. */
static struct step *elementwise(struct plan *p, enum op op, struct view dst, struct view a,
                                struct view b)
{
    if (!usable(p, dst) || !usable(p, a) || (b.reg >= 0 && !usable(p, b)))
        return NULL;
    if (view_size(dst) != view_size(a) || (b.reg >= 0 && view_size(a) != view_size(b))) {
        broken(p, "operands of different sizes");
        return NULL;
    }
    if (!same_pieces(dst, a, b)) {
        broken(p, "operands of different pieces");
        return NULL;
    }
    struct step *s = append(p, op, dst);
    if (s) {
        s->a = a;
        s->b = b;
    }
    return s;
}

void plan_begin_layer(struct plan *p, int32_t layer, struct view x)
{
    p->layer = layer;
    struct step *s = append(p, OP_LAYER, view_none());
    if (s)
        s->a = x;
}

static struct view lookup(struct plan *p, enum op op, const char *name, const struct matrix *m)
{
    if (!m)
        return view_none();
    struct view x = plan_new(p, name, (uint32_t)m->n_cols);
    struct step *s = usable(p, x) ? append(p, op, x) : NULL;
    if (s)
        s->mat = m;
    return x;
}

struct view plan_embed(struct plan *p, const struct matrix *m)
{
    return lookup(p, OP_EMBED, "x", m);
}

struct view plan_embed_pos(struct plan *p, const struct matrix *m)
{
    return lookup(p, OP_EMBED_POS, "embed_pos", m);
}

static void norm_step(struct plan *p, enum norm_kind kind, struct view dst, struct view x,
                      const float *w, const float *b, float eps, bool per_piece)
{
    struct step *s = elementwise(p, OP_NORM, dst, x, view_none());
    if (!s)
        return;
    s->kind = (int32_t)kind;
    s->w = w;
    s->w2 = b;
    s->f = eps;
    s->per_piece = per_piece;
}

struct view plan_norm(struct plan *p, const char *name, enum norm_kind kind, struct view x,
                      const float *w, const float *b, float eps)
{
    if (!usable(p, x))
        return view_none();
    struct view y = view_split(plan_new(p, name, view_size(x)), x.n);
    norm_step(p, kind, y, x, w, b, eps, false);
    return y;
}

void plan_norm_to(struct plan *p, enum norm_kind kind, struct view dst, struct view x,
                  const float *w, const float *b, float eps)
{
    norm_step(p, kind, dst, x, w, b, eps, false);
}

void plan_norm_pieces(struct plan *p, enum norm_kind kind, struct view x, const float *w,
                      const float *b, float eps, bool per_piece)
{
    norm_step(p, kind, x, x, w, b, eps, per_piece);
}

void plan_add(struct plan *p, struct view dst, struct view a, struct view b)
{
    elementwise(p, OP_ADD, dst, a, b);
}

void plan_sub(struct plan *p, struct view dst, struct view a, struct view b)
{
    elementwise(p, OP_SUB, dst, a, b);
}

void plan_mul(struct plan *p, struct view dst, struct view a, struct view b)
{
    elementwise(p, OP_MUL, dst, a, b);
}

void plan_copy(struct plan *p, struct view dst, struct view a)
{
    elementwise(p, OP_COPY, dst, a, view_none());
}

void plan_keep(struct plan *p, struct view dst, struct view a)
{
    struct step *s = elementwise(p, OP_COPY, dst, a, view_none());
    if (s)
        s->kept = true;
}

void plan_scale(struct plan *p, struct view x, float f)
{
    struct step *s = f == 1.0f ? NULL : elementwise(p, OP_SCALE, x, x, view_none());
    if (s)
        s->f = f;
}

static void with_vector(struct plan *p, enum op op, struct view x, const float *w)
{
    struct step *s = w ? elementwise(p, op, x, x, view_none()) : NULL;
    if (s)
        s->w = w;
}

void plan_add_vec(struct plan *p, struct view x, const float *w)
{
    with_vector(p, OP_ADD_VEC, x, w);
}

void plan_mul_vec(struct plan *p, struct view x, const float *w)
{
    with_vector(p, OP_MUL_VEC, x, w);
}

void plan_act(struct plan *p, enum act_kind kind, struct view x)
{
    struct step *s = elementwise(p, OP_ACT, x, x, view_none());
    if (s)
        s->kind = (int32_t)kind;
}

void plan_gate(struct plan *p, enum gate_kind kind, struct view dst, struct view gate,
               struct view up)
{
    plan_gate_with(p, kind, 0.0f, 0.0f, dst, gate, up);
}

void plan_gate_with(struct plan *p, enum gate_kind kind, float f, float f2, struct view dst,
                    struct view gate, struct view up)
{
    struct step *s = elementwise(p, OP_GATE, dst, gate, up);
    if (s) {
        s->kind = (int32_t)kind;
        s->f = f;
        s->f2 = f2;
    }
}

void plan_softcap(struct plan *p, struct view x, float cap)
{
    struct step *s = cap == 0.0f ? NULL : elementwise(p, OP_SOFTCAP, x, x, view_none());
    if (s)
        s->f = cap;
}

void plan_lerp(struct plan *p, struct view dst, struct view a, struct view b, struct view c)
{
    if (!usable(p, c))
        return;
    if (c.n != 1 || view_size(c) != view_size(a))
        broken(p, "operands of different sizes");
    struct step *s = elementwise(p, OP_LERP, dst, a, b);
    if (s)
        s->c = c;
}

void plan_lerp_vec(struct plan *p, struct view dst, struct view a, struct view b, const float *w)
{
    struct step *s = w ? elementwise(p, OP_LERP, dst, a, b) : NULL;
    if (s)
        s->w = w;
}

void plan_rescale(struct plan *p, struct view x, struct view like)
{
    if (usable(p, x) && usable(p, like) && (x.n != 1 || like.n != 1))
        broken(p, "a norm of more than one piece");
    elementwise(p, OP_RESCALE, x, like, view_none());
}

void plan_sparsify(struct plan *p, struct view x, float f)
{
    if (usable(p, x) && (x.n != 1 || x.width < 2))
        broken(p, "a deviation of fewer than two numbers");
    struct step *s = elementwise(p, OP_SPARSIFY, x, x, view_none());
    if (s)
        s->f = f;
}

void plan_dot_mul(struct plan *p, struct view dst, struct view a, struct view b, struct view c)
{
    if (!usable(p, c))
        return;
    if (dst.n != a.n || a.n != b.n || b.n != c.n || dst.width != c.width)
        broken(p, "operands of different pieces");
    struct step *s = elementwise(p, OP_DOT_MUL, dst, a, b);
    if (s)
        s->c = c;
}

static bool same_rope(const struct rope_table *a, const struct rope_table *b)
{
    size_t size = a->n_rot / 2 * sizeof *a->freq;
    return a->n_rot == b->n_rot && a->mag == b->mag && a->long_above == b->long_above &&
           memcmp(a->freq, b->freq, size) == 0 && memcmp(a->freq_long, b->freq_long, size) == 0;
}

struct view plan_rope_table(struct plan *p, const struct rope_table *rope)
{
    if (!rope)
        return view_none();
    for (size_t i = 0; i < p->n_steps; i++) {
        const struct step *s = &p->steps[i];
        if (s->op == OP_ROPE_TABLE && same_rope(&p->ropes[s->index], rope))
            return s->dst;
    }
    struct rope_table *ropes = grow(p, p->ropes, p->n_ropes, &p->cap_ropes, sizeof *ropes);
    if (!ropes)
        return view_none();
    p->ropes = ropes;
    struct view t = plan_new(p, "rope", rope->n_rot);
    struct step *s = usable(p, t) ? append(p, OP_ROPE_TABLE, t) : NULL;
    if (s) {
        ropes[p->n_ropes] = *rope;
        s->index = (int32_t)p->n_ropes++;
    }
    return t;
}

void plan_rope(struct plan *p, enum rope_kind kind, struct view x, struct view table)
{
    if (kind == ROPE_NONE || !usable(p, x) || !usable(p, table))
        return;
    if (table.width > x.width)
        broken(p, "more rotated dimensions than a head has");
    struct step *s = append(p, OP_ROPE, x);
    if (s) {
        s->a = table;
        s->kind = (int32_t)kind;
    }
}

void plan_pos_scale(struct plan *p, struct view x, float f, float period)
{
    struct step *s = elementwise(p, OP_POS_SCALE, x, x, view_none());
    if (s) {
        s->f = f;
        s->f2 = period;
    }
}

uint32_t plan_kv_slot(struct plan *p, const struct kv_slot *slot)
{
    struct kv_slot *kvs = grow(p, p->kvs, p->n_kvs, &p->cap_kvs, sizeof *kvs);
    if (!kvs)
        return 0;
    p->kvs = kvs;
    kvs[p->n_kvs] = *slot;
    return (uint32_t)p->n_kvs++;
}

void plan_kv_store(struct plan *p, uint32_t slot, struct view k, struct view v)
{
    if (slot >= p->n_kvs || !usable(p, k) || (!p->kvs[slot].v_in_k && !usable(p, v)))
        return;
    const struct kv_slot *kv = &p->kvs[slot];
    if (k.n != kv->n_head || k.width != kv->d_k)
        broken(p, "keys do not fit their KV slot");
    if (!kv->v_in_k && (v.n != kv->n_head || v.width != kv->d_v))
        broken(p, "values do not fit their KV slot");
    struct step *s = append(p, OP_KV_STORE, view_none());
    if (s) {
        s->a = k;
        s->b = kv->v_in_k ? view_none() : v;
        s->kept = true;
        s->index = (int32_t)slot;
    }
}

void plan_attention(struct plan *p, struct view dst, struct view q, const struct attn_step *attn)
{
    if (attn->kv >= p->n_kvs || !usable(p, dst) || !usable(p, q))
        return;
    const struct kv_slot *kv = &p->kvs[attn->kv];
    if (q.width != kv->d_k || dst.width != kv->d_v || q.n != dst.n || q.n % kv->n_head != 0)
        broken(p, "queries do not fit their KV slot");
    if (kv->d_k > ATTN_MAX_DIM || kv->d_v > ATTN_MAX_DIM)
        broken(p, "a head is wider than 2048");
    struct attn_step *copy = ARENA_NEW(p->arena, struct attn_step);
    struct step *s = copy ? append(p, OP_ATTENTION, dst) : NULL;
    if (!s) {
        p->no_memory = true;
        return;
    }
    *copy = *attn;
    s->a = q;
    s->attn = copy;
    s->index = (int32_t)attn->kv;
}

size_t plan_state(struct plan *p, size_t n)
{
    size_t at = p->state_floats;
    size_t end;
    if (!size_add(at, n, &end) || !size_align(end, 16, &end) || end > SIZE_MAX / sizeof(float)) {
        broken(p, "recurrent state larger than memory can be");
        return 0;
    }
    p->state_floats = end;
    return at;
}

struct step *plan_state_step(struct plan *p, enum op op, struct view dst, size_t state,
                             uint32_t n_parts, const void *args, size_t size)
{
    void *copy = arena_alloc(p->arena, 1, size);
    struct step *s = copy && usable(p, dst) ? append(p, op, dst) : NULL;
    if (!s)
        return NULL;
    if (size)
        memcpy(copy, args, size);
    s->args = copy;
    s->state = state;
    s->n_parts = n_parts;
    s->kept = true;
    return s;
}

/* [channels][n_taps] as [n_taps][channels], which is what a vector of channels reads. */
static const float *transposed_taps(struct plan *p, const struct conv_step *conv, uint32_t channels)
{
    float *out = ARENA_ARRAY(p->arena, (size_t)conv->n_taps * channels, float);
    if (!out)
        p->no_memory = true;
    for (size_t c = 0; out && c < channels; c++)
        for (size_t t = 0; t < conv->n_taps; t++)
            out[t * channels + c] = conv->weight[c * conv->n_taps + t];
    return out;
}

struct view plan_conv(struct plan *p, const char *name, const struct conv_step *conv, struct view x)
{
    if (!conv->weight || !usable(p, x))
        return view_none();
    if (x.n != 1 || conv->n_taps == 0)
        broken(p, "a convolution of shapes that do not fit");
    struct view y = plan_new(p, name, x.width);
    size_t state = plan_state(p, (size_t)(conv->n_taps - 1) * x.width);
    struct conv_step args = *conv;
    args.weight = transposed_taps(p, conv, x.width);
    struct step *s = plan_state_step(p, OP_CONV, y, state, (x.width + CONV_BLOCK - 1) / CONV_BLOCK,
                                     &args, sizeof args);
    if (s)
        s->a = x;
    return y;
}

struct view plan_delta(struct plan *p, const char *name, const struct delta_step *delta,
                       struct view qkv, struct view decay, struct view beta)
{
    if (!usable(p, qkv) || !usable(p, decay) || !usable(p, beta))
        return view_none();
    const struct delta_step *d = delta;
    if (d->n_k == 0 || d->n_v % d->n_k || qkv.n != 1 ||
        qkv.width != 2 * d->n_k * d->d_k + d->n_v * d->d_v ||
        view_size(decay) != d->n_v * (d->decay_each ? d->d_k : 1) || view_size(beta) != d->n_v) {
        broken(p, "a delta rule of shapes that do not fit");
        return view_none();
    }
    struct view y = view_split(plan_new(p, name, d->n_v * d->d_v), d->n_v);
    size_t columns = (size_t)(d->d_v + TILE - 1) / TILE * TILE;
    size_t state = plan_state(p, d->n_v * columns * d->d_k);
    uint32_t blocks = (d->d_v + DELTA_BLOCK - 1) / DELTA_BLOCK;
    struct step *s = plan_state_step(p, OP_DELTA, y, state, d->n_v * blocks, d, sizeof *d);
    if (s) {
        s->a = qkv;
        s->b = decay;
        s->c = beta;
    }
    return y;
}

struct view plan_shift(struct plan *p, const char *name, struct view x)
{
    if (!usable(p, x))
        return view_none();
    if (x.n != 1)
        broken(p, "a shift of more than one piece");
    struct view y = plan_new(p, name, x.width);
    uint32_t parts = (x.width + SHIFT_BLOCK - 1) / SHIFT_BLOCK;
    struct step *s = plan_state_step(p, OP_SHIFT, y, plan_state(p, x.width), parts, NULL, 0);
    if (s)
        s->a = x;
    return y;
}

/* A scan's step with `n` floats of state in `n_parts` parts, whose inputs have the given sizes. */
static struct view scan_op(struct plan *p, enum op op, size_t n, uint32_t n_parts, const void *args,
                           size_t size, struct view u, struct view dt, struct view bc)
{
    if (!usable(p, u) || (dt.reg >= 0 && !usable(p, dt)) || (bc.reg >= 0 && !usable(p, bc)))
        return view_none();
    struct view y = plan_new(p, op_infos[op].name, u.width);
    struct step *s = plan_state_step(p, op, y, plan_state(p, n), n_parts, args, size);
    if (s) {
        s->a = u;
        s->b = dt;
        s->c = bc;
    }
    return y;
}

struct view plan_scan(struct plan *p, const struct scan_step *scan, struct view u, struct view dt,
                      struct view bc)
{
    if (!scan->a || !scan->d || dt.reg < 0 || bc.reg < 0)
        return view_none();
    if (u.n != 1 || dt.n != 1 || dt.width != u.width || bc.n != 1 || bc.width != 2 * scan->d_state)
        broken(p, "a scan of shapes that do not fit");
    return scan_op(p, OP_SCAN, (size_t)u.width * scan->d_state, scan_blocks(u.width), scan,
                   sizeof *scan, u, dt, bc);
}

struct view plan_ssd(struct plan *p, const struct ssd_step *ssd, struct view u, struct view dt,
                     struct view bc)
{
    if (!ssd->a || !ssd->d || dt.reg < 0 || bc.reg < 0)
        return view_none();
    if (u.n != 1 || u.width != ssd->n_head * ssd->d_head || dt.n != 1 || dt.width != ssd->n_head ||
        bc.n != 1 || bc.width != 2 * ssd->n_group * ssd->d_state)
        broken(p, "a scan of shapes that do not fit");
    return scan_op(p, OP_SSD, (size_t)u.width * ssd->d_state,
                   ssd->n_head * scan_blocks(ssd->d_head), ssd, sizeof *ssd, u, dt, bc);
}

struct view plan_wkv(struct plan *p, const struct wkv_step *wkv, struct view all)
{
    if (all.n != WKV_COUNT || all.width != wkv->n_head * wkv->d_head)
        broken(p, "a delta rule of shapes that do not fit");
    return scan_op(p, OP_WKV, (size_t)all.width * wkv->d_head,
                   wkv->n_head * scan_blocks(wkv->d_head), wkv, sizeof *wkv, all, view_none(),
                   view_none());
}

/* Add a product to the last step when that has the same input, else in a step of its own. Only the
 * last step will do: nothing in between may have changed the input. */
static void add_product(struct plan *p, enum op op, struct view x, struct view ids,
                        const struct product *q)
{
    struct step *s = p->n_steps ? &p->steps[p->n_steps - 1] : NULL;
    bool join = s && s->op == op && view_same(s->a, x) && s->c.reg == ids.reg &&
                s->layer == p->layer && s->out_rows == p->out_rows;
    if (!join)
        s = append(p, op, view_none());
    struct product *list = s ? ARENA_ARRAY(p->arena, s->n_products + 1, struct product) : NULL;
    if (!list) {
        p->no_memory = true;
        return;
    }
    s->a = x;
    s->c = ids;
    if (s->n_products)
        memcpy(list, s->products, s->n_products * sizeof *list);
    list[s->n_products] = *q;
    s->products = list;
    s->n_products++;
}

void plan_matmul_to(struct plan *p, struct view dst, const struct matrix *w, const float *bias,
                    struct view x)
{
    if (!w || !usable(p, x) || !usable(p, dst))
        return;
    if (x.n != 1 || x.width != w->n_cols || dst.n != 1 || dst.width != w->n_rows)
        broken(p, "a product of shapes that do not fit");
    add_product(p, OP_MATMUL, x, view_none(), &(struct product){w, 1, bias, dst});
}

struct view plan_matmul(struct plan *p, const char *name, const struct matrix *w, const float *bias,
                        struct view x)
{
    if (!w)
        return view_none();
    struct view y = plan_new(p, name, (uint32_t)w->n_rows);
    plan_matmul_to(p, y, w, bias, x);
    return y;
}

void plan_route(struct plan *p, const struct router *r, struct view logits, struct view *ids,
                struct view *weights)
{
    *ids = *weights = view_none();
    if (!usable(p, logits))
        return;
    if (logits.width != r->n_expert)
        broken(p, "router logits of another width than experts");
    *ids = plan_new(p, "expert_ids", r->n_used);
    *weights = plan_new(p, "expert_weights", r->n_used);
    struct router *copy = ARENA_NEW(p->arena, struct router);
    struct step *s = copy ? append(p, OP_ROUTE, *weights) : NULL;
    if (!s) {
        p->no_memory = true;
        return;
    }
    *copy = *r;
    s->a = logits;
    s->c = *ids;
    s->router = copy;
}

struct view plan_moe_matmul(struct plan *p, const char *name, const struct matrix *experts,
                            uint32_t n_expert, const float *bias, struct view x, struct view ids,
                            uint32_t n_used)
{
    if (!experts || !usable(p, x) || !usable(p, ids))
        return view_none();
    if (x.width != experts->n_cols || (x.n != 1 && x.n != n_used))
        broken(p, "an expert product of shapes that do not fit");
    struct view y = view_split(plan_new(p, name, (uint32_t)experts->n_rows * n_used), n_used);
    add_product(p, OP_MOE_MATMUL, x, ids, &(struct product){experts, n_expert, bias, y});
    return y;
}

void plan_combine_to(struct plan *p, struct view dst, struct view y, struct view weights)
{
    if (!usable(p, dst) || !usable(p, y) || !usable(p, weights))
        return;
    if (dst.n != 1 || dst.width != y.width || weights.n != 1 || weights.width < y.n)
        broken(p, "a weighted sum of shapes that do not fit");
    struct step *s = append(p, OP_COMBINE, dst);
    if (s) {
        s->a = y;
        s->b = weights;
    }
}

struct view plan_combine(struct plan *p, const char *name, struct view y, struct view weights)
{
    if (!usable(p, y) || !usable(p, weights))
        return view_none();
    struct view out = plan_new(p, name, y.width);
    plan_combine_to(p, out, y, weights);
    return out;
}

void plan_mul_each(struct plan *p, struct view x, struct view factors)
{
    if (!usable(p, x) || !usable(p, factors))
        return;
    if (view_size(factors) != x.n)
        broken(p, "factors that are not one for each piece");
    struct step *s = append(p, OP_MUL_EACH, x);
    if (s) {
        s->a = x;
        s->b = factors;
    }
}

/* Does piece j of row r lie (r * n + j) * stride floats after piece 0 of row 0? */
static bool evenly_spaced(const struct plan *p, struct view v)
{
    return v.n == 1 || (size_t)v.n * v.stride == p->regs[v.reg].width;
}

void plan_head_matmul(struct plan *p, struct view dst, const struct matrix *w, uint32_t n,
                      struct view x)
{
    if (!w || !usable(p, x) || !usable(p, dst))
        return;
    if (x.n != n || dst.n != n || x.width != w->n_cols || dst.width != w->n_rows || p->out_rows ||
        !evenly_spaced(p, x) || !evenly_spaced(p, dst))
        broken(p, "a product by heads of shapes that do not fit");
    add_product(p, OP_HEAD_MATMUL, x, view_none(), &(struct product){w, n, NULL, dst});
}

struct view plan_mix(struct plan *p, const char *name, struct view past, struct view x,
                     const float *w, float eps)
{
    if (!w || !usable(p, past) || !usable(p, x))
        return view_none();
    if (past.width != view_size(x) || past.n > MIX_MAX)
        broken(p, "states of a mix do not fit");
    struct view y = plan_new(p, name, past.width);
    struct step *s = usable(p, y) ? append(p, OP_MIX, y) : NULL;
    if (s) {
        s->a = past;
        s->b = x;
        s->w = w;
        s->f = eps;
    }
    return y;
}

struct view plan_select(struct plan *p, struct view x)
{
    if (!usable(p, x))
        return view_none();
    p->out_rows = true;
    struct view y = plan_new(p, "selected", view_size(x));
    struct step *s = usable(p, y) ? append(p, OP_SELECT, y) : NULL;
    if (s)
        s->a = x;
    return y;
}

struct view plan_given(struct plan *p, const char *name, uint32_t width)
{
    struct view x = plan_new(p, name, width);
    if (usable(p, x))
        append(p, OP_GIVEN, x);
    return x;
}

void plan_hidden(struct plan *p, struct view x)
{
    if (!usable(p, x))
        return;
    struct step *s = append(p, OP_HIDDEN, view_none());
    if (s)
        s->a = x;
    p->d_hidden = x.width;
    p->logit_rows = true;
}
