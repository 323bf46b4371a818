/*
 * Row-local operations: each computes one row of its output from the same row of its inputs.
 */
#include "base/limits.h"
#include "run/exec.h"
#include "run/route.h"

#include <math.h>
#include <string.h>

static void do_embed(struct linnet_context *c, const struct step *s, size_t row)
{
    matrix_row(s->mat, (size_t)c->token[batch_row(c, s, row)], view_row(c, &s->dst, row));
}

static void do_embed_pos(struct linnet_context *c, const struct step *s, size_t row)
{
    matrix_row(s->mat, (size_t)c->pos[batch_row(c, s, row)], view_row(c, &s->dst, row));
}

static void do_rope_table(struct linnet_context *c, const struct step *s, size_t row)
{
    const struct rope_table *t = &c->p->ropes[s->index];
    const double *freq = c->n_ctx > t->long_above ? t->freq_long : t->freq;
    float *cs = view_row(c, &s->dst, row), *sn = cs + t->n_rot / 2;
    double pos = c->pos[batch_row(c, s, row)];
    for (uint32_t i = 0; i < t->n_rot / 2; i++) {
        cs[i] = (float)cos(pos * freq[i]) * t->mag;
        sn[i] = (float)sin(pos * freq[i]) * t->mag;
    }
}

/* Elementwise steps run once when all views are in one piece each, else piece by piece. */
struct pieces {
    uint32_t n, width;
    uint32_t dst, a, b; /* strides */
};

static struct pieces pieces_of(const struct step *s)
{
    const struct view *d = &s->dst, *a = &s->a, *b = s->b.reg >= 0 ? &s->b : &s->a;
    bool flat = (d->n == 1 || d->stride == d->width) && (a->n == 1 || a->stride == a->width) &&
                (b->n == 1 || b->stride == b->width);
    if (flat)
        return (struct pieces){1, d->n * d->width, 0, 0, 0};
    uint32_t n = d->n > a->n ? d->n : a->n;
    if (b->n > n)
        n = b->n;
    uint32_t width = d->n * d->width / n;
    /* a view in one piece lies flat, whatever the pieces of the others */
    return (struct pieces){n, width, d->n == 1 ? width : d->stride, a->n == 1 ? width : a->stride,
                           b->n == 1 ? width : b->stride};
}

#define EACH_PIECE(...)                                                                            \
    const struct pieces ps = pieces_of(s);                                                         \
    float *y = view_row(c, &s->dst, row);                                                          \
    const float *a = view_row(c, &s->a, row);                                                      \
    for (uint32_t i = 0; i < ps.n; i++, y += ps.dst, a += ps.a) {                                  \
        __VA_ARGS__;                                                                               \
    }

static void do_copy(struct linnet_context *c, const struct step *s, size_t row)
{
    EACH_PIECE(memmove(y, a, ps.width * sizeof *y))
}

static void do_add(struct linnet_context *c, const struct step *s, size_t row)
{
    const float *b = view_row(c, &s->b, row);
    EACH_PIECE(c->k->add(y, a, b, ps.width); b += ps.b)
}

static void do_sub(struct linnet_context *c, const struct step *s, size_t row)
{
    const float *b = view_row(c, &s->b, row);
    EACH_PIECE(memmove(y, a, ps.width * sizeof *y); c->k->axpy(y, -1.0f, b, ps.width); b += ps.b)
}

static void do_mul(struct linnet_context *c, const struct step *s, size_t row)
{
    const float *b = view_row(c, &s->b, row);
    EACH_PIECE(c->k->mul(y, a, b, ps.width); b += ps.b)
}

static void do_scale(struct linnet_context *c, const struct step *s, size_t row)
{
    EACH_PIECE(c->k->scale(y, a, s->f, ps.width))
}

static void do_add_vec(struct linnet_context *c, const struct step *s, size_t row)
{
    EACH_PIECE(c->k->add(y, a, s->w + (size_t)i * ps.width, ps.width))
}

static void do_mul_vec(struct linnet_context *c, const struct step *s, size_t row)
{
    EACH_PIECE(c->k->mul(y, a, s->w + (size_t)i * ps.width, ps.width))
}

static void do_norm(struct linnet_context *c, const struct step *s, size_t row)
{
    const uint32_t n = s->a.width;
    float *y = view_row(c, &s->dst, row);
    const float *a = view_row(c, &s->a, row);
    for (uint32_t i = 0; i < s->a.n; i++, y += s->dst.stride, a += s->a.stride) {
        size_t at = s->per_piece ? (size_t)i * n : 0;
        const float *w = s->w ? s->w + at : NULL, *b = s->w2 ? s->w2 + at : NULL;
        switch ((enum norm_kind)s->kind) {
        case NORM_RMS: c->k->rms_norm(y, a, w, n, s->f); break;
        case NORM_LAYER: c->k->layer_norm(y, a, w, b, n, s->f); break;
        case NORM_L2: c->k->l2_norm(y, a, n, s->f); break;
        }
    }
}

static void apply_act(const struct kernels *k, enum act_kind kind, float *y, const float *x,
                      size_t n)
{
    switch (kind) {
    case ACT_SILU: k->silu(y, x, n); break;
    case ACT_GELU: k->gelu(y, x, n); break;
    case ACT_GELU_ERF: k->gelu_erf(y, x, n); break;
    case ACT_RELU2: k->relu2(y, x, n); break;
    case ACT_SIGMOID: k->sigmoid(y, x, n); break;
    case ACT_SOFTPLUS: k->softplus(y, x, n); break;
    case ACT_TANH: k->tanh(y, x, n); break;
    case ACT_EXP: k->exp(y, x, n); break;
    }
}

static void do_act(struct linnet_context *c, const struct step *s, size_t row)
{
    EACH_PIECE(apply_act(c->k, (enum act_kind)s->kind, y, a, ps.width))
}

/* y = sigmoid(g) * u, in blocks, so that y may be g or u. */
static void sigmoid_mul(const struct kernels *k, float *y, const float *g, const float *u, size_t n)
{
    float t[256];
    for (size_t i = 0; i < n; i += 256) {
        size_t m = n - i < 256 ? n - i : 256;
        k->sigmoid(t, g + i, m);
        k->mul(y + i, t, u + i, m);
    }
}

/* The clamped SwiGLU of gpt-oss (specification F15.5). */
static void oai_mul(const struct kernels *k, float *y, const float *g, const float *u, size_t n)
{
    const float alpha = 1.702f, limit = 7.0f;
    float a[256], t[256];
    for (size_t i = 0; i < n; i += 256) {
        size_t m = n - i < 256 ? n - i : 256;
        for (size_t j = 0; j < m; j++) {
            a[j] = g[i + j] > limit ? limit : g[i + j];
            t[j] = alpha * a[j];
        }
        k->sigmoid(t, t, m);
        for (size_t j = 0; j < m; j++) {
            float up = u[i + j] > limit ? limit : u[i + j] < -limit ? -limit : u[i + j];
            y[i + j] = a[j] * t[j] * (up + 1.0f);
        }
    }
}

/* The clamped SwiGLU of Ling 3 (specification X11): the limit cuts silu(g) from above and u on both
 * sides. */
static void silu_clamp_mul(const struct kernels *k, float *y, const float *g, const float *u,
                           size_t n, float limit)
{
    float a[256];
    for (size_t i = 0; i < n; i += 256) {
        size_t m = n - i < 256 ? n - i : 256;
        k->silu(a, g + i, m);
        for (size_t j = 0; j < m; j++) {
            float up = u[i + j] > limit ? limit : u[i + j] < -limit ? -limit : u[i + j];
            y[i + j] = (a[j] > limit ? limit : a[j]) * up;
        }
    }
}

/* SiTU (specification A31.1). */
static void situ_mul(const struct kernels *k, float *y, const float *g, const float *u, size_t n,
                     float beta, float linear_beta)
{
    float a[256], t[256];
    for (size_t i = 0; i < n; i += 256) {
        size_t m = n - i < 256 ? n - i : 256;
        k->softcap(a, g + i, beta, m);
        k->sigmoid(t, g + i, m);
        k->mul(a, a, t, m);
        if (linear_beta > 0.0f)
            k->softcap(t, u + i, linear_beta, m);
        k->mul(y + i, a, linear_beta > 0.0f ? t : u + i, m);
    }
}

static void apply_gate(const struct kernels *k, const struct step *s, float *y, const float *g,
                       const float *u, size_t n)
{
    switch ((enum gate_kind)s->kind) {
    case GATE_SILU: k->silu_mul(y, g, u, n); break;
    case GATE_GELU: k->gelu_mul(y, g, u, n); break;
    case GATE_SIGMOID: sigmoid_mul(k, y, g, u, n); break;
    case GATE_OAI: oai_mul(k, y, g, u, n); break;
    case GATE_SILU_CLAMP: silu_clamp_mul(k, y, g, u, n, s->f); break;
    case GATE_SITU: situ_mul(k, y, g, u, n, s->f, s->f2); break;
    }
}

static void do_gate(struct linnet_context *c, const struct step *s, size_t row)
{
    const float *b = view_row(c, &s->b, row);
    EACH_PIECE(apply_gate(c->k, s, y, a, b, ps.width); b += ps.b)
}

static void do_softcap(struct linnet_context *c, const struct step *s, size_t row)
{
    EACH_PIECE(c->k->softcap(y, a, s->f, ps.width))
}

static void do_lerp(struct linnet_context *c, const struct step *s, size_t row)
{
    const float *b = view_row(c, &s->b, row), *w = s->w ? s->w : view_row(c, &s->c, row);
    EACH_PIECE(c->k->lerp(y, a, b, w, ps.width); b += ps.b; w += ps.width)
}

static void do_rescale(struct linnet_context *c, const struct step *s, size_t row)
{
    float *y = view_row(c, &s->dst, row);
    const float *a = view_row(c, &s->a, row);
    const size_t n = s->a.width;
    const float own = sqrtf(c->k->dot(y, y, n));
    if (own != 0.0f)
        c->k->scale(y, y, sqrtf(c->k->dot(a, a, n)) / own, n);
}

static void do_sparsify(struct linnet_context *c, const struct step *s, size_t row)
{
    float *y = view_row(c, &s->dst, row), square = 0.0f, t[256];
    const float *a = view_row(c, &s->a, row);
    const size_t n = s->a.width;
    const float mean = c->k->sum(a, n) / (float)n;
    for (size_t i = 0; i < n; i += 256) {
        size_t m = n - i < 256 ? n - i : 256;
        for (size_t j = 0; j < m; j++)
            t[j] = a[i + j] - mean;
        square += c->k->dot(t, t, m);
    }
    const float cut = mean + s->f * sqrtf(square / (float)(n - 1));
    for (size_t i = 0; i < n; i++) {
        const float over = a[i] - cut;
        y[i] = over > 0.0f || over != over ? over : 0.0f; /* NaN stays: it must be seen */
    }
}

static void do_dot_mul(struct linnet_context *c, const struct step *s, size_t row)
{
    float *y = view_row(c, &s->dst, row);
    const float *a = view_row(c, &s->a, row), *b = view_row(c, &s->b, row),
                *x = view_row(c, &s->c, row);
    for (uint32_t i = 0; i < s->dst.n; i++) {
        float f = c->k->dot(a + (size_t)i * s->a.stride, b + (size_t)i * s->b.stride, s->a.width);
        c->k->axpy(y + (size_t)i * s->dst.stride, f, x + (size_t)i * s->c.stride, s->dst.width);
    }
}

static void do_rope(struct linnet_context *c, const struct step *s, size_t row)
{
    const uint32_t n_rot = s->a.width;
    const float *t = view_row(c, &s->a, batch_row(c, s, row));
    float *x = view_row(c, &s->dst, row);
    for (uint32_t i = 0; i < s->dst.n; i++)
        c->k->rope(x + (size_t)i * s->dst.stride, t, t + n_rot / 2, n_rot, s->kind == ROPE_NEOX);
}

static void do_pos_scale(struct linnet_context *c, const struct step *s, size_t row)
{
    float steps = floorf((float)c->pos[batch_row(c, s, row)] / s->f2);
    float f = 1.0f + s->f * (float)log(1.0 + (double)steps);
    EACH_PIECE(c->k->scale(y, a, f, ps.width))
}

static void do_kv_store(struct linnet_context *c, const struct step *s, size_t row)
{
    const struct kv_place *at = &c->places[s->index];
    const struct kv_slot *slot = &c->p->kvs[s->index];
    size_t pos = (size_t)c->pos[row];
    uint8_t *page = c->spans[c->span_of[row]].s->pages[at->group][pos / KV_PAGE];
    const float *k = view_row(c, &s->a, row);
    const float *v = slot->v_in_k ? NULL : view_row(c, &s->b, row);
    for (uint32_t h = 0; h < slot->n_head; h++) {
        size_t i = pos % KV_PAGE, r = (size_t)h * KV_PAGE + i;
        if (!v) { /* values are in the key's row */
            c->k->kv_store(c->kv_k, k + (size_t)h * s->a.stride, page + at->k_off + r * at->k_row,
                           slot->d_k);
            continue;
        }
        uint8_t key[ATTN_MAX_DIM * sizeof(float)];
        c->k->kv_store(c->kv_k, k + (size_t)h * s->a.stride, key, slot->d_k);
        kv_key_put(c->kv_k, key, page + at->k_off + (r - i) * at->k_row, i, slot->d_k);
        c->k->kv_store(c->kv_v, v + (size_t)h * s->b.stride, page + at->v_off + r * at->v_row,
                       slot->d_v);
    }
}

static void do_quantise(struct linnet_context *c, const struct step *s, size_t row)
{
    struct act a = act_of(c, &s->a, s->index, s->out_rows ? c->n_out : c->n_rows);
    c->k->quantise(&a, row * s->a.n, (row + 1) * s->a.n);
}

static void do_select(struct linnet_context *c, const struct step *s, size_t row)
{
    memcpy(view_row(c, &s->dst, row), view_row(c, &s->a, (size_t)c->out_row[row]),
           s->a.width * sizeof(float));
}

static void do_given(struct linnet_context *c, const struct step *s, size_t row)
{
    float *y = view_row(c, &s->dst, row);
    if (c->given[row])
        memcpy(y, c->given[row], s->dst.width * sizeof *y);
    else
        memset(y, 0, s->dst.width * sizeof *y);
}

static void do_hidden(struct linnet_context *c, const struct step *s, size_t row)
{
    if (c->keep[row])
        memcpy(c->keep[row], view_row(c, &s->a, row), s->a.width * sizeof(float));
}

static void do_combine(struct linnet_context *c, const struct step *s, size_t row)
{
    float *y = view_row(c, &s->dst, row);
    const float *a = view_row(c, &s->a, row), *w = view_row(c, &s->b, row);
    c->k->scale(y, a, w[0], s->dst.width);
    for (uint32_t j = 1; j < s->a.n; j++)
        c->k->axpy(y, w[j], a + (size_t)j * s->a.stride, s->dst.width);
}

static void do_mul_each(struct linnet_context *c, const struct step *s, size_t row)
{
    float *y = view_row(c, &s->dst, row);
    const float *a = view_row(c, &s->a, row), *b = view_row(c, &s->b, row);
    for (uint32_t j = 0; j < s->a.n; j++)
        c->k->scale(y + (size_t)j * s->dst.stride, a + (size_t)j * s->a.stride, b[j], s->a.width);
}

static void do_mix(struct linnet_context *c, const struct step *s, size_t row)
{
    const uint32_t d = s->dst.width, n = s->a.n;
    const float *past = view_row(c, &s->a, row), *x = view_row(c, &s->b, row);
    float *y = view_row(c, &s->dst, row), p[MIX_MAX + 1];
    for (uint32_t j = 0; j <= n; j++) {
        const float *v = j < n ? past + (size_t)j * s->a.stride : x;
        p[j] = c->k->dot(v, s->w, d) / sqrtf(c->k->dot(v, v, d) / (float)d + s->f);
    }
    c->k->softmax(p, n + 1);
    c->k->scale(y, past, p[0], d);
    for (uint32_t j = 1; j <= n; j++)
        c->k->axpy(y, p[j], j < n ? past + (size_t)j * s->a.stride : x, d);
}

static void do_route(struct linnet_context *c, const struct step *s, size_t row)
{
    int32_t ids[LIMIT_EXPERTS];
    route(c->k, s->router, view_row(c, &s->a, row), ids, view_row(c, &s->dst, row));
    memcpy(view_row(c, &s->c, row), ids, s->router->n_used * sizeof *ids);
}

row_fn *const row_fns[OP_COUNT] = {
    [OP_EMBED] = do_embed,
    [OP_EMBED_POS] = do_embed_pos,
    [OP_ROPE_TABLE] = do_rope_table,
    [OP_COPY] = do_copy,
    [OP_ADD] = do_add,
    [OP_MUL] = do_mul,
    [OP_SCALE] = do_scale,
    [OP_ADD_VEC] = do_add_vec,
    [OP_MUL_VEC] = do_mul_vec,
    [OP_NORM] = do_norm,
    [OP_ACT] = do_act,
    [OP_GATE] = do_gate,
    [OP_SOFTCAP] = do_softcap,
    [OP_ROPE] = do_rope,
    [OP_POS_SCALE] = do_pos_scale,
    [OP_KV_STORE] = do_kv_store,
    [OP_QUANTISE] = do_quantise,
    [OP_ROUTE] = do_route,
    [OP_COMBINE] = do_combine,
    [OP_SELECT] = do_select,
    [OP_MUL_EACH] = do_mul_each,
    [OP_LERP] = do_lerp,
    [OP_DOT_MUL] = do_dot_mul,
    [OP_MIX] = do_mix,
    [OP_GIVEN] = do_given,
    [OP_HIDDEN] = do_hidden,
    [OP_SUB] = do_sub,
    [OP_RESCALE] = do_rescale,
    [OP_SPARSIFY] = do_sparsify,
};
