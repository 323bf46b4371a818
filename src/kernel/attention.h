/*
 * Attention of many queries over one KV head, for vector.h. The order of operations for one query:
 *
 *   page by page, ascending, from the page of `first` to the page of `last`, with m = -inf, l = 0,
 * out = 0: s[i] = dot(q, k[i]) * scale          dot as struct kernels' dot; s[i] = -inf for keys
 * not seen s[i] = softcap * tanh(s[i] / softcap)                                 if softcap > 0 m'
 * = max(m, max of s); c = exp(m - m'); p[i] = exp(s[i] - m') l = fma(l, c, sum of p); out = out * c
 * sum in 16 lanes, as `sum` out = fma(p[i], v[i], out) for the keys seen, ascending m = m' a sink
 * s: m' = max(m, s); c = exp(m - m'); l = fma(l, c, exp(s - m')); out = out * c out = out * (1 / l)
 *
 * Queries run in blocks that share the conversion of keys and values to f32, a few rows at a time
 * in `scratch`. Nothing outside the seen positions is read. d_k and d_v are at most ATTN_MAX_DIM.
 */
#ifndef LINNET_KERNEL_ATTENTION_H
#define LINNET_KERNEL_ATTENTION_H

enum {
    ATTN_BLOCK = 32, /* most queries that share a conversion */
    ATTN_ROWS = 16,  /* keys or values converted at once */
};

struct attn_block {
    const struct attn_job *job;
    size_t q0, n;            /* queries [q0, q0 + n) */
    size_t width_k, width_v; /* d_k and d_v rounded up to whole vectors */
    float *q;                /* [n][width_k], zeros after d_k */
    float *out;              /* [n][width_v] */
    float *s;                /* [n][KV_PAGE] scores, then probabilities */
    float *rows;             /* [ATTN_ROWS][max(width_k, width_v)] */
    float m[ATTN_BLOCK], l[ATTN_BLOCK];
};

/* The part of rows [r0, r0 + ATTN_ROWS) of page `page` that query i sees: [lo, hi), empty when lo
 * >= hi. */
static inline void attn_seen(const struct attn_block *b, size_t i, size_t page, size_t r0,
                             size_t *lo, size_t *hi)
{
    const size_t base = page * KV_PAGE + r0;
    const size_t first = (size_t)b->job->first[b->q0 + i],
                 end = (size_t)b->job->last[b->q0 + i] + 1;
    *lo = first > base ? first - base : 0;
    *hi = end < base + ATTN_ROWS ? (end > base ? end - base : 0) : ATTN_ROWS;
}

/* What any query of the block sees of those rows. */
static void attn_seen_by_any(const struct attn_block *b, size_t page, size_t r0, size_t *lo,
                             size_t *hi)
{
    *lo = ATTN_ROWS;
    *hi = 0;
    for (size_t i = 0; i < b->n; i++) {
        size_t a, z;
        attn_seen(b, i, page, r0, &a, &z);
        if (a >= z)
            continue;
        *lo = a < *lo ? a : *lo;
        *hi = z > *hi ? z : *hi;
    }
}

static void attn_convert(enum kv_type type, const uint8_t *src, size_t stride, float *dst, size_t n,
                         size_t width, size_t lo, size_t hi)
{
    src += lo * stride;
    dst += lo * width;
    for (size_t r = lo; r < hi; r++, src += stride, dst += width) {
        switch (type) {
        case KV_F32: kv_load_row(KV_F32, src, dst, n, true); break;
        case KV_F16: kv_load_row(KV_F16, src, dst, n, true); break;
        case KV_BF16: kv_load_row(KV_BF16, src, dst, n, true); break;
        default: kv_load_row(KV_Q8_0, src, dst, n, true); break;
        }
    }
}

/* Dot products of `nq` queries from q with 4 rows from k, to s[..][4]. */
static inline __attribute__((always_inline)) void attn_dots(const float *q, const float *k,
                                                            size_t width, float *s, size_t nq)
{
    vf acc[4 * 4];
    for (size_t i = 0; i < 4 * nq; i++)
        acc[i] = v_set(0.0f);
    for (size_t d = 0; d < width; d += LANES) {
        const vf k0 = v_load(k + d), k1 = v_load(k + width + d);
        const vf k2 = v_load(k + 2 * width + d), k3 = v_load(k + 3 * width + d);
        for (size_t i = 0; i < nq; i++) {
            const vf v = v_load(q + i * width + d);
            acc[4 * i] = v_fma(v, k0, acc[4 * i]);
            acc[4 * i + 1] = v_fma(v, k1, acc[4 * i + 1]);
            acc[4 * i + 2] = v_fma(v, k2, acc[4 * i + 2]);
            acc[4 * i + 3] = v_fma(v, k3, acc[4 * i + 3]);
        }
    }
    for (size_t i = 0; i < nq; i++)
        v_fold_add4(s + i * KV_PAGE, acc[4 * i], acc[4 * i + 1], acc[4 * i + 2], acc[4 * i + 3]);
}

/* Raw scores of one page: s[i][r] for every seen key; other entries are anything. */
static void attn_scores(struct attn_block *b, size_t page)
{
    const struct attn_job *job = b->job;
    for (size_t r0 = 0; r0 < KV_PAGE; r0 += ATTN_ROWS) {
        size_t lo, hi;
        attn_seen_by_any(b, page, r0, &lo, &hi);
        if (lo >= hi)
            continue;
        const uint8_t *keys = job->pages[page] + job->k_off;
        attn_convert(job->k_type, keys + r0 * job->k_stride, job->k_stride, b->rows, job->d_k,
                     b->width_k, lo, hi);
        for (size_t r = lo / 4 * 4; r < hi; r += 4) {
            const float *k = b->rows + r * b->width_k;
            float *s = b->s + r0 + r;
            size_t i = 0;
            for (; i + ATTN_Q <= b->n; i += ATTN_Q)
                attn_dots(b->q + i * b->width_k, k, b->width_k, s + i * KV_PAGE, ATTN_Q);
            for (; i < b->n; i++)
                attn_dots(b->q + i * b->width_k, k, b->width_k, s + i * KV_PAGE, 1);
        }
    }
}

/* One query's scores of a page to probabilities; keys not seen get 0. */
static void attn_softmax(struct attn_block *b, size_t i, size_t page)
{
    const struct attn_job *job = b->job;
    const int64_t base = (int64_t)(page * KV_PAGE);
    const int64_t first = job->first[b->q0 + i] - base, last = job->last[b->q0 + i] - base;
    if (first >= KV_PAGE || last < 0)
        return;
    float *s = b->s + i * KV_PAGE;
    const vf lowest = v_set(-INFINITY), scale = v_set(job->scale), cap = v_set(job->softcap);
    vf v[KV_PAGE / LANES], top = lowest;
    for (int j = 0; j < KV_PAGE / LANES; j++) {
        const int64_t begin = first - j * LANES, end = last + 1 - j * LANES;
        v[j] = v_mul(v_load(s + j * LANES), scale);
        if (job->softcap > 0)
            v[j] = v_mul(cap, v_tanh(v_div(v[j], cap)));
        if (end < LANES)
            v[j] = v_select(vm_first(end > 0 ? (size_t)end : 0), v[j], lowest);
        if (begin > 0)
            v[j] = v_select(vm_first(begin < LANES ? (size_t)begin : LANES), lowest, v[j]);
        top = v_max(v[j], top);
    }
    const float highest = v_fold_max(top), m = highest > b->m[i] ? highest : b->m[i];
    const vf vm_ = v_set(m);
    vf sum = v_set(0.0f);
    for (int j = 0; j < KV_PAGE / LANES; j++) {
        const vf p = v_exp(v_sub(v[j], vm_));
        v_store(s + j * LANES, p);
        sum = v_add(sum, p);
    }
    float c[LANES];
    v_store(c, v_exp(v_set(b->m[i] - m)));
    b->l[i] = fmaf(b->l[i], c[0], v_fold_add(sum));
    b->m[i] = m;
    if (c[0] != 1.0f)
        vec_scale(b->out + i * b->width_v, b->out + i * b->width_v, c[0], b->width_v);
}

/* out += p v for rows [lo, hi) of the converted values. */
static void attn_add_values(float *out, const float *p, const float *rows, size_t width, size_t lo,
                            size_t hi)
{
    size_t d = 0;
    for (; d + 4 * LANES <= width; d += 4 * LANES) {
        vf a0 = v_load(out + d), a1 = v_load(out + d + LANES);
        vf a2 = v_load(out + d + 2 * LANES), a3 = v_load(out + d + 3 * LANES);
        for (size_t r = lo; r < hi; r++) {
            const float *v = rows + r * width + d;
            const vf pr = v_set(p[r]);
            a0 = v_fma(pr, v_load(v), a0);
            a1 = v_fma(pr, v_load(v + LANES), a1);
            a2 = v_fma(pr, v_load(v + 2 * LANES), a2);
            a3 = v_fma(pr, v_load(v + 3 * LANES), a3);
        }
        v_store(out + d, a0);
        v_store(out + d + LANES, a1);
        v_store(out + d + 2 * LANES, a2);
        v_store(out + d + 3 * LANES, a3);
    }
    for (; d < width; d += LANES) {
        vf a = v_load(out + d);
        for (size_t r = lo; r < hi; r++)
            a = v_fma(v_set(p[r]), v_load(rows + r * width + d), a);
        v_store(out + d, a);
    }
}

static void attn_values(struct attn_block *b, size_t page)
{
    const struct attn_job *job = b->job;
    for (size_t r0 = 0; r0 < KV_PAGE; r0 += ATTN_ROWS) {
        size_t lo, hi;
        attn_seen_by_any(b, page, r0, &lo, &hi);
        if (lo >= hi)
            continue;
        const uint8_t *values = job->pages[page] + job->v_off;
        attn_convert(job->v_type, values + r0 * job->v_stride, job->v_stride, b->rows, job->d_v,
                     b->width_v, lo, hi);
        for (size_t i = 0; i < b->n; i++) {
            attn_seen(b, i, page, r0, &lo, &hi);
            if (lo < hi)
                attn_add_values(b->out + i * b->width_v, b->s + i * KV_PAGE + r0, b->rows,
                                b->width_v, lo, hi);
        }
    }
}

static void attn_finish(struct attn_block *b, size_t i)
{
    const struct attn_job *job = b->job;
    const float *out = b->out + i * b->width_v;
    float l = b->l[i], c[LANES] = {1.0f};
    if (job->sinks) {
        const float s = job->sinks[b->q0 + i], m = s > b->m[i] ? s : b->m[i];
        float e[LANES];
        v_store(c, v_exp(v_set(b->m[i] - m)));
        v_store(e, v_exp(v_set(s - m)));
        l = fmaf(l, c[0], e[0]);
    }
    const vf vc = v_set(c[0]), inverse = v_set(1.0f / l);
    float *y = job->out[b->q0 + i];
#define BODY(LOAD, STORE) STORE(y + d, v_mul(v_mul(LOAD(out + d), vc), inverse));
    FOR_VECTORS(d, job->d_v, BODY);
#undef BODY
}

static void attn_run(struct attn_block *b)
{
    const struct attn_job *job = b->job;
    size_t page0 = SIZE_MAX, page1 = 0;
    for (size_t i = 0; i < b->n; i++) {
        const size_t first = (size_t)job->first[b->q0 + i] / KV_PAGE;
        const size_t last = (size_t)job->last[b->q0 + i] / KV_PAGE;
        page0 = first < page0 ? first : page0;
        page1 = last > page1 ? last : page1;
        b->m[i] = -INFINITY;
        b->l[i] = 0.0f;
        memcpy(b->q + i * b->width_k, job->q[b->q0 + i], job->d_k * sizeof(float));
        memset(b->q + i * b->width_k + job->d_k, 0, (b->width_k - job->d_k) * sizeof(float));
    }
    memset(b->out, 0, b->n * b->width_v * sizeof(float));
    for (size_t page = page0; page <= page1; page++) {
        attn_scores(b, page);
        for (size_t i = 0; i < b->n; i++)
            attn_softmax(b, i, page);
        attn_values(b, page);
    }
    for (size_t i = 0; i < b->n; i++)
        attn_finish(b, i);
}

static void vec_attention(const struct attn_job *job, void *scratch)
{
    struct attn_block b = {.job = job};
    b.width_k = round_up(job->d_k, LANES);
    b.width_v = round_up(job->d_v, LANES);
    const size_t widest = b.width_k > b.width_v ? b.width_k : b.width_v;
    const size_t per_query = b.width_k + b.width_v + KV_PAGE;
    const size_t room = KERNEL_SCRATCH / sizeof(float) - ATTN_ROWS * widest;
    const size_t most = room / per_query < ATTN_BLOCK ? room / per_query : ATTN_BLOCK;
    b.rows = scratch;
    b.q = b.rows + ATTN_ROWS * widest;
    b.out = b.q + most * b.width_k;
    b.s = b.out + most * b.width_v;
    for (; b.q0 < job->n_q; b.q0 += b.n) {
        b.n = job->n_q - b.q0 < most ? job->n_q - b.q0 : most;
        attn_run(&b);
    }
}

#endif
