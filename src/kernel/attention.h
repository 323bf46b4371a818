/*
 * Attention of many queries over one KV head, for vector.h. The order of operations for one query:
 *
 *   q'[d] = q[d] * f, with f = scale * log2(e), or scale / softcap where there is a soft cap
 *   keys in splits of KV_SPLIT positions, in each page by page, both ascending, from the page of
 *   `first` to the page of `last`. At the start of a split m = ATTN_LOWEST, l = 0, o = 0; a page:
 *     s[i] = dot(q', k[i]); with a soft cap s = softcap * log2(e) * tanh(s); keys not seen are -inf
 *     m' = max(m, max of s); c = 2^(m - m'); p[i] = 2^(s[i] - m'), exactly 0 for keys not seen
 *     l = fma(l, c, sum of p); o = o * c                    sum in 16 lanes, as `sum`
 *     o = fma(p[i], v[i], o) for the keys seen, ascending; m = m'
 *   and at its end, with M = ATTN_LOWEST, L = 0, O = 0 before the first:
 *     M' = max(M, m); a = 2^(M - M'); c = 2^(m - M'); L = fma(l, c, L * a); O = fma(o, c, O * a)
 *   a sink s: M' = max(M, s * log2(e)); c = 2^(M - M'); L = fma(L, c, 2^(s * log2(e) - M')); else
 *   c = 1
 *   out = O * (c / L)
 *
 *   dot: for each panel of ATTN_PANEL dimensions t = 0; t = fma(q'[d], k[d], t) ascending; then s =
 *   t for the first, s = s + t for the others. With q8_0 keys k[d] are the integers of the block
 *   and s = t * scale for the first, s = fma(t, scale, s) for the others.
 *
 * Queries run in blocks. Many share one conversion of keys and values to f32, a few convert in
 * registers. Interleaved keys are multiplied with 16 keys in the lanes of a vector, rows of keys
 * with 16 queries: neither sums over lanes. Only pages with seen positions are read. d_k and d_v
 * are at most ATTN_MAX_DIM.
 */
#ifndef LINNET_KERNEL_ATTENTION_H
#define LINNET_KERNEL_ATTENTION_H

enum {
    ATTN_BLOCK = 64, /* most queries that share a conversion */
    ATTN_PANEL = 32, /* dimensions of a score summed by themselves */
    ATTN_SLICE = 64, /* dimensions of values converted at once */
    ATTN_TILE_Q = 4, /* queries that share a load of keys or values */
    PAGE_VECS = KV_PAGE / LANES,
};
#define ATTN_LOWEST -1e38f
#define LOG2_E      0x1.715476p+0f
#define ATTN_INLINE static inline __attribute__((always_inline))
#define ATTN_UNROLL _Pragma("GCC unroll 16")

struct attn_block {
    const struct attn_job *job;
    size_t q0, n;   /* queries [q0, q0 + n) */
    size_t n_lanes; /* n rounded up to whole vectors */
    size_t width_v; /* d_v rounded up to whole vectors */
    size_t k_block; /* bytes of 16 interleaved keys */
    size_t page1;   /* the last page of any query */
    float *q;       /* [n][d_k], or, for keys in rows, [d_k][n_lanes] */
    float *out;     /* [n][width_v] of the split */
    float *s;       /* scores, then probabilities: [n][KV_PAGE], or [KV_PAGE][n_lanes] */
    float *tile;    /* keys [PAGE_VECS][ATTN_PANEL][16] or [KV_PAGE][ATTN_PANEL], or values
                       [KV_PAGE][ATTN_SLICE] */
    /* by query; those of lanes that are none count as seeing nothing */
    _Alignas(64) float m[ATTN_BLOCK], l[ATTN_BLOCK], c[ATTN_BLOCK], top[ATTN_BLOCK],
        sum[ATTN_BLOCK];
    float all_m[ATTN_BLOCK], all_l[ATTN_BLOCK]; /* of the splits before */
};

/* 2^x for x <= 0, error < 1 ulp; below -125 as -125. A NaN gives a NaN. */
static inline vf v_exp2_low(vf x)
{
    x = v_max(v_set(-125.0f), x);
    const vf t = v_add(x, v_set(0x1.8p23f)); /* the nearest integer is in the low bits */
    const vf r = v_sub(x, v_sub(t, v_set(0x1.8p23f)));
    vf p = v_set(0.000154531634f);
    p = v_fma(p, r, v_set(0.00133908633f));
    p = v_fma(p, r, v_set(0.00961808302f));
    p = v_fma(p, r, v_set(0.0555035695f));
    p = v_fma(p, r, v_set(0.240226507f));
    p = v_fma(p, r, v_set(0.693147182f));
    p = v_fma(p, r, v_set(1.0f));
    return v_of_bits(vi_add(v_bits(p), vi_shl(v_bits(t), 23)));
}

static inline float exp2_low(float x)
{
    float y[LANES];
    v_store(y, v_exp2_low(v_set(x)));
    return y[0];
}

/* Bytes of a value of interleaved keys. */
static inline size_t attn_size(enum kv_type type)
{
    return type == KV_F32 ? 4 : type == KV_Q8_0 ? 1 : 2;
}

/* Into the second-level cache, from where the prefetchers of loads take over: there are more misses
 * under way than the first level can have. Keys are short runs far apart, which no hardware
 * expects. Nothing happens where the address is none. */
static inline void attn_prefetch(const uint8_t *p, size_t ahead)
{
    __builtin_prefetch((const void *)((uintptr_t)p + ahead), 0, 2);
}

/* The part of a page that query i sees: [lo, hi), empty when lo >= hi. */
static inline void attn_seen(const struct attn_block *b, size_t i, size_t page, size_t *lo,
                             size_t *hi)
{
    const size_t base = page * KV_PAGE;
    const size_t first = (size_t)b->job->first[b->q0 + i],
                 end = (size_t)b->job->last[b->q0 + i] + 1;
    *lo = first > base ? first - base : 0;
    *hi = end < base + KV_PAGE ? (end > base ? end - base : 0) : KV_PAGE;
}

/* Bytes from values of a page to what is read after them, the keys of the next page. */
static size_t attn_next_keys(const struct attn_block *b, size_t page)
{
    const struct attn_job *job = b->job;
    if (page == b->page1)
        return 0;
    return (size_t)((uintptr_t)job->pages[page + 1] - (uintptr_t)job->pages[page]) + job->k_off -
           job->v_off;
}

/* What any of the queries [i0, i1) sees of it. False: nothing. */
static bool attn_seen_by_any(const struct attn_block *b, size_t i0, size_t i1, size_t page,
                             size_t *lo, size_t *hi)
{
    *lo = KV_PAGE;
    *hi = 0;
    for (size_t i = i0; i < i1; i++) {
        size_t a, z;
        attn_seen(b, i, page, &a, &z);
        if (a >= z)
            continue;
        *lo = a < *lo ? a : *lo;
        *hi = z > *hi ? z : *hi;
    }
    return *lo < *hi;
}

/* 16 values of interleaved keys; of q8_0 the integers. */
ATTN_INLINE vf attn_lanes(enum kv_type type, const uint8_t *p)
{
    switch (type) {
    case KV_F32: return v_load((const float *)(const void *)p);
    case KV_F16: return v_load_f16((const uint16_t *)(const void *)p);
    case KV_BF16: return bf16_wide((const uint16_t *)(const void *)p);
    default: return v_of_int(vi_load_i8((const int8_t *)p));
    }
}

/* Scores with the lanes over keys. */

struct attn_dots {
    const float *q; /* of the first query and dimension; the next query is q_stride floats on */
    size_t q_stride, nd;
    const uint8_t *k; /* 16 values of each dimension; the next 16 keys are `k_block` bytes on */
    size_t k_block;
    const uint8_t *scales; /* f16 [16], likewise, or NULL */
    size_t scale_block;
    float *s; /* [..][KV_PAGE] */
    bool first;
    size_t ahead; /* bytes from a key to what is read when its turn is over, mod 2^n */
};

ATTN_INLINE void attn_dots(const struct attn_dots *a, enum kv_type type, size_t i0, size_t v0,
                           const size_t nq, const size_t nv)
{
    const size_t size = attn_size(type) * LANES, q_stride = a->q_stride, k_block = a->k_block;
    const uint8_t *k = a->k + v0 * k_block;
    const float *q = a->q + i0 * q_stride;
    vf acc[ATTN_ACCS];
    ATTN_UNROLL
    for (size_t i = 0; i < nq * nv; i++)
        acc[i] = v_set(0.0f);
    for (size_t d = 0; d < a->nd; d++, k += size, q++) {
        vf key[PAGE_VECS];
        ATTN_UNROLL
        for (size_t v = 0; v < nv; v++) {
            key[v] = attn_lanes(type, k + v * k_block);
            attn_prefetch(k + v * k_block, a->ahead);
        }
        ATTN_UNROLL
        for (size_t i = 0; i < nq; i++) {
            const vf x = v_set(q[i * q_stride]);
            ATTN_UNROLL
            for (size_t v = 0; v < nv; v++)
                acc[i * nv + v] = v_fma(x, key[v], acc[i * nv + v]);
        }
    }
    ATTN_UNROLL
    for (size_t v = 0; v < nv; v++) {
        float *s = a->s + i0 * KV_PAGE + (v0 + v) * LANES;
        vf scale = v_set(1.0f);
        if (a->scales)
            scale =
                v_load_f16((const uint16_t *)(const void *)(a->scales + (v0 + v) * a->scale_block));
        ATTN_UNROLL
        for (size_t i = 0; i < nq; i++) {
            const vf t = acc[i * nv + v];
            if (a->scales)
                v_store(s + i * KV_PAGE,
                        a->first ? v_mul(t, scale) : v_fma(t, scale, v_load(s + i * KV_PAGE)));
            else
                v_store(s + i * KV_PAGE, a->first ? t : v_add(v_load(s + i * KV_PAGE), t));
        }
    }
}

/* Vectors that nq queries have accumulators for, of at most `most`, a power of two. */
#define ATTN_VECS(nq, most)                                                                        \
    (ATTN_ACCS >= (nq) * (most)       ? (most)                                                     \
     : ATTN_ACCS >= (nq) * (most) / 2 ? (most) / 2                                                 \
     : ATTN_ACCS >= (nq) * (most) / 4 ? (most) / 4                                                 \
                                      : (most) / 8)

/* n queries and the key vectors [v0, v1). */
#define DEFINE_DOTS(name, type)                                                                    \
    static void name(const struct attn_dots *a, size_t n, size_t v0, size_t v1)                    \
    {                                                                                              \
        size_t i = 0;                                                                              \
        for (; i + 4 <= n; i += 4)                                                                 \
            for (size_t v = v0; v < v1; v += ATTN_VECS(4, PAGE_VECS))                              \
                attn_dots(a, type, i, v, 4, ATTN_VECS(4, PAGE_VECS));                              \
        for (; i + 2 <= n; i += 2)                                                                 \
            for (size_t v = v0; v < v1; v += ATTN_VECS(2, PAGE_VECS))                              \
                attn_dots(a, type, i, v, 2, ATTN_VECS(2, PAGE_VECS));                              \
        for (; i < n; i++)                                                                         \
            for (size_t v = v0; v < v1; v += ATTN_VECS(1, PAGE_VECS))                              \
                attn_dots(a, type, i, v, 1, ATTN_VECS(1, PAGE_VECS));                              \
    }
DEFINE_DOTS(attn_dots_f32, KV_F32)
DEFINE_DOTS(attn_dots_f16, KV_F16)
DEFINE_DOTS(attn_dots_bf16, KV_BF16)
DEFINE_DOTS(attn_dots_q8_0, KV_Q8_0)

ATTN_INLINE void attn_convert_keys(enum kv_type type, const uint8_t *k, size_t k_block, size_t nd,
                                   size_t ahead, float *dst)
{
    for (size_t v = 0; v < PAGE_VECS; v++, k += k_block, dst += ATTN_PANEL * LANES)
        for (size_t d = 0; d < nd; d++) {
            const uint8_t *at = k + d * LANES * attn_size(type);
            attn_prefetch(at, ahead);
            v_store(dst + d * LANES, attn_lanes(type, at));
        }
}

/* Raw scores of one page: s[i][r] for every seen key; other entries are anything. */
static void attn_scores(struct attn_block *b, size_t page)
{
    const struct attn_job *job = b->job;
    const enum kv_type type = job->k_type;
    const uint8_t *keys = job->pages[page] + job->k_off;
    const size_t d_k = job->d_k;
    struct attn_dots a = {
        .q_stride = d_k, .s = b->s, .ahead = job->v_off - job->k_off, .scale_block = b->k_block};
    for (size_t d = 0; d < d_k; d += ATTN_PANEL) {
        const uint8_t *k = keys + d * LANES * attn_size(type);
        a.nd = d_k - d < ATTN_PANEL ? d_k - d : ATTN_PANEL;
        a.q = b->q + d;
        a.first = d == 0;
        a.scales = NULL;
        if (type == KV_Q8_0) {
            a.scales = keys + d; /* 16 of 2 bytes for 32 dimensions, before the integers */
            k += d_k;
        }
        if (b->n <= ATTN_TILE_Q) {
            a.k = k;
            a.k_block = b->k_block;
            switch (type) {
            case KV_F32: attn_dots_f32(&a, b->n, 0, PAGE_VECS); break;
            case KV_F16: attn_dots_f16(&a, b->n, 0, PAGE_VECS); break;
            case KV_BF16: attn_dots_bf16(&a, b->n, 0, PAGE_VECS); break;
            default: attn_dots_q8_0(&a, b->n, 0, PAGE_VECS); break;
            }
            continue;
        }
        switch (type) {
        case KV_F32: attn_convert_keys(KV_F32, k, b->k_block, a.nd, a.ahead, b->tile); break;
        case KV_F16: attn_convert_keys(KV_F16, k, b->k_block, a.nd, a.ahead, b->tile); break;
        case KV_BF16: attn_convert_keys(KV_BF16, k, b->k_block, a.nd, a.ahead, b->tile); break;
        default: attn_convert_keys(KV_Q8_0, k, b->k_block, a.nd, a.ahead, b->tile); break;
        }
        a.k = (const uint8_t *)b->tile;
        a.k_block = ATTN_PANEL * LANES * sizeof(float);
        attn_dots_f32(&a, b->n, 0, PAGE_VECS);
    }
}

/* m, c from top: what the page's largest scores make of the sums so far. */
static void attn_raise(struct attn_block *b)
{
    for (size_t i = 0; i < b->n; i += LANES) {
        const vf old = v_load(b->m + i), m = v_max(old, v_load(b->top + i));
        v_store(b->c + i, v_exp2_low(v_sub(old, m)));
        v_store(b->m + i, m);
    }
}

/* l from c and sum, and out * c. */
static void attn_rescale(struct attn_block *b)
{
    for (size_t i = 0; i < b->n; i += LANES)
        v_store(b->l + i, v_fma(v_load(b->l + i), v_load(b->c + i), v_load(b->sum + i)));
    for (size_t i = 0; i < b->n; i++)
        if (b->c[i] != 1.0f)
            vec_scale(b->out + i * b->width_v, b->out + i * b->width_v, b->c[i], b->width_v);
}

/* Lanes [lo, hi) of 16 from v, the others `other`; lo and hi relative to the first lane. */
static inline vf attn_only(vf v, size_t at, size_t lo, size_t hi, vf other)
{
    if (hi < at + LANES)
        v = v_select(vm_first(hi > at ? hi - at : 0), v, other);
    if (lo > at)
        v = v_select(vm_first(lo < at + LANES ? lo - at : LANES), other, v);
    return v;
}

/* The largest score of query i. */
static void attn_top(struct attn_block *b, size_t i, size_t lo, size_t hi)
{
    float *s = b->s + i * KV_PAGE;
    const vf lowest = v_set(-INFINITY), cap = v_set(b->job->softcap * LOG2_E);
    const bool capped = b->job->softcap > 0, whole = lo == 0 && hi == KV_PAGE;
    vf top = lowest;
    ATTN_UNROLL
    for (size_t j = 0; j < PAGE_VECS; j++) {
        vf v = v_load(s + j * LANES);
        if (capped)
            v = v_mul(cap, v_tanh(v));
        if (!whole)
            v = attn_only(v, j * LANES, lo, hi, lowest);
        if (capped || !whole)
            v_store(s + j * LANES, v);
        top = v_max(v, top);
    }
    b->top[i] = v_fold_max(top);
}

/* Scores of query i to probabilities; their sums by lanes. */
static inline vf attn_powers(const struct attn_block *b, size_t i, size_t page)
{
    size_t lo, hi;
    attn_seen(b, i, page, &lo, &hi);
    if (lo >= hi)
        return v_set(0.0f);
    float *s = b->s + i * KV_PAGE;
    const bool whole = lo == 0 && hi == KV_PAGE;
    const vf m = v_set(b->m[i]);
    vf sum = v_set(0.0f);
    ATTN_UNROLL
    for (size_t j = 0; j < PAGE_VECS; j++) {
        vf p = v_exp2_low(v_sub(v_load(s + j * LANES), m));
        if (!whole)
            p = attn_only(p, j * LANES, lo, hi, v_set(0.0f));
        v_store(s + j * LANES, p);
        sum = v_add(sum, p);
    }
    return sum;
}

/* Scores of a page to probabilities, with the lanes over keys. */
static void attn_softmax(struct attn_block *b, size_t page)
{
    size_t lo, hi;
    for (size_t i = 0; i < b->n; i++) {
        attn_seen(b, i, page, &lo, &hi);
        b->top[i] = -INFINITY;
        if (lo < hi)
            attn_top(b, i, lo, hi);
    }
    attn_raise(b);
    for (size_t i = 0; i < b->n; i += 4) {
        vf sum[4];
        for (size_t j = 0; j < 4; j++)
            sum[j] = i + j < b->n ? attn_powers(b, i + j, page) : v_set(0.0f);
        v_fold_add4(b->sum + i, sum[0], sum[1], sum[2], sum[3]);
    }
    attn_rescale(b);
}

/* Scores and probabilities with the lanes over queries, of keys in rows. */

/* nk keys and nv vectors of queries: s[key][query] from k [..][ATTN_PANEL] and q [nd][n_lanes]. */
ATTN_INLINE void attn_row_dots(const float *q, size_t n_lanes, const float *k, size_t nd, float *s,
                               const float *scales, bool first, const size_t nk, const size_t nv)
{
    vf acc[ATTN_ACCS];
    ATTN_UNROLL
    for (size_t i = 0; i < nk * nv; i++)
        acc[i] = v_set(0.0f);
    for (size_t d = 0; d < nd; d++) {
        vf x[4];
        ATTN_UNROLL
        for (size_t v = 0; v < nv; v++)
            x[v] = v_load(q + d * n_lanes + v * LANES);
        ATTN_UNROLL
        for (size_t i = 0; i < nk; i++) {
            const vf key = v_set(k[i * ATTN_PANEL + d]);
            ATTN_UNROLL
            for (size_t v = 0; v < nv; v++)
                acc[i * nv + v] = v_fma(x[v], key, acc[i * nv + v]);
        }
    }
    ATTN_UNROLL
    for (size_t i = 0; i < nk; i++) {
        const vf scale = v_set(scales[i]);
        ATTN_UNROLL
        for (size_t v = 0; v < nv; v++) {
            float *at = s + i * n_lanes + v * LANES;
            const vf t = acc[i * nv + v];
            v_store(at, first ? v_mul(t, scale) : v_fma(t, scale, v_load(at)));
        }
    }
}

enum { ROWS_1 = ATTN_ACCS < 8 ? ATTN_ACCS : 8, ROWS_2 = ATTN_ACCS / 2, ROWS_4 = ATTN_ACCS / 4 };

/* Keys [lo, hi), of which lo is a multiple of 8. */
static void attn_row_panel(const struct attn_block *b, const float *q, size_t nd,
                           const float *scales, bool first, size_t lo, size_t hi)
{
    const size_t n = b->n_lanes;
    size_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES)
        for (size_t r = lo; r < hi; r += ROWS_4)
            attn_row_dots(q + i, n, b->tile + r * ATTN_PANEL, nd, b->s + r * n + i, scales + r,
                          first, ROWS_4, 4);
    for (; i + 2 * LANES <= n; i += 2 * LANES)
        for (size_t r = lo; r < hi; r += ROWS_2)
            attn_row_dots(q + i, n, b->tile + r * ATTN_PANEL, nd, b->s + r * n + i, scales + r,
                          first, ROWS_2, 2);
    for (; i < n; i += LANES)
        for (size_t r = lo; r < hi; r += ROWS_1)
            attn_row_dots(q + i, n, b->tile + r * ATTN_PANEL, nd, b->s + r * n + i, scales + r,
                          first, ROWS_1, 1);
}

/* 32 dimensions of a key row from d on to dst; the scale goes to *scale. */
ATTN_INLINE void attn_convert_row(enum kv_type type, const uint8_t *row, size_t d, size_t nd,
                                  float *dst, float *scale)
{
    *scale = 1.0f;
    if (type == KV_Q8_0) {
        uint16_t half;
        row += d / 32 * 34;
        memcpy(&half, row, 2);
        *scale = half_to_f32(half);
        v_store(dst, v_of_int(vi_load_i8((const int8_t *)row + 2)));
        v_store(dst + LANES, v_of_int(vi_load_i8((const int8_t *)row + 2 + LANES)));
    } else {
        kv_load_row(type, row + d * attn_size(type), dst, nd, true);
    }
}

static void attn_row_scores(struct attn_block *b, size_t page)
{
    const struct attn_job *job = b->job;
    size_t lo, hi;
    if (!attn_seen_by_any(b, 0, b->n, page, &lo, &hi))
        return;
    lo = lo / 8 * 8;
    float scales[KV_PAGE];
    for (size_t d = 0; d < job->d_k; d += ATTN_PANEL) {
        const size_t nd = job->d_k - d < ATTN_PANEL ? job->d_k - d : ATTN_PANEL;
        const uint8_t *row = job->pages[page] + job->k_off + lo * job->k_stride;
        for (size_t r = lo; r < hi; r++, row += job->k_stride) {
            float *dst = b->tile + r * ATTN_PANEL;
            switch (job->k_type) {
            case KV_F32: attn_convert_row(KV_F32, row, d, nd, dst, scales + r); break;
            case KV_F16: attn_convert_row(KV_F16, row, d, nd, dst, scales + r); break;
            case KV_BF16: attn_convert_row(KV_BF16, row, d, nd, dst, scales + r); break;
            default: attn_convert_row(KV_Q8_0, row, d, nd, dst, scales + r); break;
            }
        }
        for (size_t r = hi; r < round_up(hi, 8); r++)
            scales[r] = 0.0f; /* their scores are not used */
        attn_row_panel(b, b->q + d * b->n_lanes, nd, scales, d == 0, lo, hi);
    }
}

/* Keys that 16 queries see of a page, as floats, so that vectors of them can be compared. */
struct attn_range {
    vf lo, hi;
    bool whole;
};

static struct attn_range attn_range(const struct attn_block *b, size_t i0, size_t page)
{
    float from[LANES], to[LANES];
    struct attn_range x = {.whole = true};
    for (size_t i = 0; i < LANES; i++) {
        size_t lo = KV_PAGE, hi = 0;
        if (i0 + i < b->n)
            attn_seen(b, i0 + i, page, &lo, &hi);
        x.whole = x.whole && (i0 + i >= b->n || (lo == 0 && hi == KV_PAGE));
        from[i] = (float)lo;
        to[i] = (float)hi;
    }
    x.lo = v_load(from);
    x.hi = v_load(to);
    return x;
}

static inline vf attn_in_range(const struct attn_range *x, size_t r, vf v, vf other)
{
    const vf at = v_set((float)r);
    return v_select(v_lt(at, x->lo), other, v_select(v_lt(at, x->hi), v, other));
}

/* The largest scores of queries i .. i + 15, of the keys [lo, hi) that any query sees. */
static void attn_row_top(struct attn_block *b, size_t i, const struct attn_range *x, size_t lo,
                         size_t hi)
{
    const vf lowest = v_set(-INFINITY), cap = v_set(b->job->softcap * LOG2_E);
    const bool capped = b->job->softcap > 0;
    vf top = lowest;
    for (size_t r = lo; r < hi; r++) {
        float *s = b->s + r * b->n_lanes + i;
        vf v = v_load(s);
        if (capped)
            v_store(s, v = v_mul(cap, v_tanh(v)));
        if (!x->whole)
            v = attn_in_range(x, r, v, lowest);
        top = v_max(v, top);
    }
    v_store(b->top + i, top);
}

static void attn_row_powers(struct attn_block *b, size_t i, const struct attn_range *x, size_t lo,
                            size_t hi)
{
    const vf m = v_load(b->m + i), zero = v_set(0.0f);
    vf sum[LANES]; /* of the keys r, r + 16, ..: what is one lane where lanes are over keys */
    for (size_t l = 0; l < LANES; l++)
        sum[l] = zero;
    for (size_t r = lo; r < hi; r++) {
        float *s = b->s + r * b->n_lanes + i;
        vf p = v_exp2_low(v_sub(v_load(s), m));
        if (!x->whole)
            p = attn_in_range(x, r, p, zero);
        v_store(s, p);
        sum[r % LANES] = v_add(sum[r % LANES], p);
    }
    for (size_t half = LANES / 2; half; half /= 2)
        for (size_t l = 0; l < half; l++)
            sum[l] = v_add(sum[l], sum[l + half]);
    v_store(b->sum + i, sum[0]);
}

static void attn_row_softmax(struct attn_block *b, size_t page)
{
    size_t lo, hi;
    attn_seen_by_any(b, 0, b->n, page, &lo, &hi);
    struct attn_range x[ATTN_BLOCK / LANES];
    for (size_t i = 0; i < b->n_lanes; i += LANES) {
        x[i / LANES] = attn_range(b, i, page);
        attn_row_top(b, i, &x[i / LANES], lo, hi);
    }
    attn_raise(b);
    for (size_t i = 0; i < b->n_lanes; i += LANES)
        attn_row_powers(b, i, &x[i / LANES], lo, hi);
    attn_rescale(b);
}

/* Values. */

struct attn_adds {
    float *out; /* [..][out_stride] from the first dimension */
    const float *p;
    size_t out_stride, p_stride, p_step; /* floats from query to query, from key to key */
    const uint8_t *v;
    size_t v_stride, d; /* bytes from key to key; the first dimension in a row */
    size_t ahead;
};

/* out += p v for keys [lo, hi), nq queries and nv vectors. */
ATTN_INLINE void attn_adds(const struct attn_adds *a, enum kv_type type, size_t i0, size_t d0,
                           size_t lo, size_t hi, const size_t nq, const size_t nv)
{
    float *out = a->out + i0 * a->out_stride + d0;
    const size_t out_stride = a->out_stride, p_stride = a->p_stride, p_step = a->p_step;
    const float *p = a->p + i0 * p_stride + lo * p_step;
    const uint8_t *row = a->v + lo * a->v_stride;
    vf acc[ATTN_ACCS];
    ATTN_UNROLL
    for (size_t i = 0; i < nq; i++) {
        ATTN_UNROLL
        for (size_t v = 0; v < nv; v++)
            acc[i * nv + v] = v_load(out + i * out_stride + v * LANES);
    }
    for (size_t r = lo; r < hi; r++, row += a->v_stride, p += p_step) {
        vf value[8];
        ATTN_UNROLL
        for (size_t v = 0; v < nv; v++)
            value[v] = kv_load16(type, row, a->d + d0 + v * LANES);
        ATTN_UNROLL
        for (size_t v = 0; v < nv; v += 64 / (LANES * attn_size(type)))
            attn_prefetch(row + (d0 + v * LANES) * attn_size(type), a->ahead);
        ATTN_UNROLL
        for (size_t i = 0; i < nq; i++) {
            const vf x = v_set(p[i * p_stride]);
            ATTN_UNROLL
            for (size_t v = 0; v < nv; v++)
                acc[i * nv + v] = v_fma(x, value[v], acc[i * nv + v]);
        }
    }
    ATTN_UNROLL
    for (size_t i = 0; i < nq; i++) {
        ATTN_UNROLL
        for (size_t v = 0; v < nv; v++)
            v_store(out + i * out_stride + v * LANES, acc[i * nv + v]);
    }
}

/* All `width` dimensions, a whole number of vectors, for nq queries. */
ATTN_INLINE void attn_adds_wide(const struct attn_adds *a, enum kv_type type, size_t i,
                                size_t width, size_t lo, size_t hi, const size_t nq,
                                const size_t nv)
{
    size_t d = 0;
    for (; d + nv * LANES <= width; d += nv * LANES)
        attn_adds(a, type, i, d, lo, hi, nq, nv);
    for (; nv > 4 && d + 4 * LANES <= width; d += 4 * LANES)
        attn_adds(a, type, i, d, lo, hi, nq, 4);
    for (; d < width; d += LANES)
        attn_adds(a, type, i, d, lo, hi, nq, 1);
}

#define DEFINE_ADDS(name, type)                                                                    \
    static void name(const struct attn_adds *a, size_t i, size_t nq, size_t width, size_t lo,      \
                     size_t hi)                                                                    \
    {                                                                                              \
        switch (nq) {                                                                              \
        case 4: attn_adds_wide(a, type, i, width, lo, hi, 4, ATTN_VECS(4, 8)); break;              \
        case 3: attn_adds_wide(a, type, i, width, lo, hi, 3, ATTN_VECS(3, 8)); break;              \
        case 2: attn_adds_wide(a, type, i, width, lo, hi, 2, ATTN_VECS(2, 8)); break;              \
        default: attn_adds_wide(a, type, i, width, lo, hi, 1, ATTN_VECS(1, 8)); break;             \
        }                                                                                          \
    }
DEFINE_ADDS(attn_adds_f32, KV_F32)
DEFINE_ADDS(attn_adds_f16, KV_F16)
DEFINE_ADDS(attn_adds_bf16, KV_BF16)
DEFINE_ADDS(attn_adds_q8_0, KV_Q8_0)

ATTN_INLINE void attn_convert_value(enum kv_type type, const uint8_t *row, size_t stride, size_t d,
                                    size_t n, size_t rows, size_t ahead, float *dst)
{
    row += type == KV_Q8_0 ? d / 32 * 34 : d * attn_size(type);
    for (size_t r = 0; r < rows; r++, row += stride, dst += ATTN_SLICE) {
        for (size_t i = 0; i < n * attn_size(type); i += 64)
            attn_prefetch(row + i, ahead);
        kv_load_row(type, row, dst, n, true);
    }
}

/* Dimensions [d, d + n) of the values [lo, hi) of a page to the tile. */
static void attn_convert_values(const struct attn_block *b, size_t page, size_t d, size_t n,
                                size_t lo, size_t hi)
{
    const struct attn_job *job = b->job;
    const size_t stride = job->v_stride, rows = hi - lo;
    const uint8_t *row = job->pages[page] + job->v_off + lo * stride;
    const size_t ahead = attn_next_keys(b, page);
    float *dst = b->tile + lo * ATTN_SLICE;
    switch (job->v_type) {
    case KV_F32: attn_convert_value(KV_F32, row, stride, d, n, rows, ahead, dst); break;
    case KV_F16: attn_convert_value(KV_F16, row, stride, d, n, rows, ahead, dst); break;
    case KV_BF16: attn_convert_value(KV_BF16, row, stride, d, n, rows, ahead, dst); break;
    default: attn_convert_value(KV_Q8_0, row, stride, d, n, rows, ahead, dst); break;
    }
}

typedef void attn_adds_fn(const struct attn_adds *a, size_t i, size_t nq, size_t width, size_t lo,
                          size_t hi);

/* Queries [i, i + nq), each over the keys it sees: those that all see together, the rest one by
 * one. */
static void attn_add_tile(const struct attn_block *b, const struct attn_adds *a, attn_adds_fn *add,
                          size_t i, size_t nq, size_t width, size_t page)
{
    size_t lo[ATTN_TILE_Q], hi[ATTN_TILE_Q], from = 0, to = KV_PAGE;
    for (size_t j = 0; j < nq; j++) {
        attn_seen(b, i + j, page, &lo[j], &hi[j]);
        from = lo[j] > from ? lo[j] : from;
        to = hi[j] < to ? hi[j] : to;
    }
    if (from >= to)
        from = to = KV_PAGE; /* all of each alone */
    for (size_t j = 0; j < nq; j++) {
        const size_t end = hi[j] < from ? hi[j] : from;
        if (lo[j] < end)
            add(a, i + j, 1, width, lo[j], end);
    }
    if (from < to)
        add(a, i, nq, width, from, to);
    for (size_t j = 0; j < nq && from < to; j++)
        if (hi[j] > to)
            add(a, i + j, 1, width, to, hi[j]);
}

static void attn_values(struct attn_block *b, size_t page)
{
    const struct attn_job *job = b->job;
    size_t lo, hi;
    if (!attn_seen_by_any(b, 0, b->n, page, &lo, &hi))
        return;
    struct attn_adds a = {.out = b->out,
                          .out_stride = b->width_v,
                          .p = b->s,
                          .p_stride = job->k_rows ? 1 : KV_PAGE,
                          .p_step = job->k_rows ? b->n_lanes : 1,
                          .v = job->pages[page] + job->v_off,
                          .v_stride = job->v_stride};
    attn_adds_fn *add = attn_adds_f32;
    size_t slice = ATTN_SLICE;
    const bool direct = b->n <= ATTN_TILE_Q && job->d_v % LANES == 0;
    if (direct) {
        slice = b->width_v;
        a.ahead = attn_next_keys(b, page);
        add = job->v_type == KV_F32    ? attn_adds_f32
              : job->v_type == KV_F16  ? attn_adds_f16
              : job->v_type == KV_BF16 ? attn_adds_bf16
                                       : attn_adds_q8_0;
    } else {
        a.v = (const uint8_t *)b->tile;
        a.v_stride = ATTN_SLICE * sizeof(float);
    }
    for (size_t d = 0; d < job->d_v; d += slice, a.out += slice) {
        const size_t n = job->d_v - d < slice ? job->d_v - d : slice;
        if (!direct)
            attn_convert_values(b, page, d, n, lo, hi);
        for (size_t i = 0; i < b->n; i += ATTN_TILE_Q)
            attn_add_tile(b, &a, add, i, b->n - i < ATTN_TILE_Q ? b->n - i : ATTN_TILE_Q,
                          round_up(n, LANES), page);
    }
}

/* Totals over splits. */

/* O, M, L with one split's o, m, l. */
static void attn_take(float *all, float *all_m, float *all_l, const float *o, float m, float l,
                      size_t d_v)
{
    const float top = m > *all_m ? m : *all_m;
    const float a = exp2_low(*all_m - top), c = exp2_low(m - top);
    *all_m = top;
    *all_l = fmaf(l, c, *all_l * a);
    const vf va = v_set(a), vc = v_set(c);
#define BODY(LOAD, STORE) STORE(all + d, v_fma(LOAD(o + d), vc, v_mul(LOAD(all + d), va)));
    FOR_VECTORS(d, d_v, BODY);
#undef BODY
}

static void attn_finish(float *all, float m, float l, const float *sink, size_t d_v)
{
    float c = 1.0f;
    if (sink) {
        const float s = *sink * LOG2_E, top = s > m ? s : m;
        c = exp2_low(m - top);
        l = fmaf(l, c, exp2_low(s - top));
    }
    vec_scale(all, all, c / l, d_v);
}

static void vec_attn_merge(const struct attn_merge *job)
{
    float m = ATTN_LOWEST, l = 0.0f;
    memset(job->out, 0, job->d_v * sizeof *job->out);
    for (size_t i = 0; i < job->n; i++) {
        const float *part = job->parts + i * job->stride;
        attn_take(job->out, &m, &l, part, part[job->d_v], part[job->d_v + 1], job->d_v);
    }
    attn_finish(job->out, m, l, job->sink, job->d_v);
}

static void attn_load_queries(struct attn_block *b)
{
    const struct attn_job *job = b->job;
    const float scale = job->softcap > 0 ? job->scale / job->softcap : job->scale * LOG2_E;
    if (!job->k_rows) {
        for (size_t i = 0; i < b->n; i++)
            vec_scale(b->q + i * job->d_k, job->q[b->q0 + i], scale, job->d_k);
        return;
    }
    for (size_t d = 0; d < job->d_k; d++)
        for (size_t i = 0; i < b->n_lanes; i++)
            b->q[d * b->n_lanes + i] = i < b->n ? job->q[b->q0 + i][d] * scale : 0.0f;
}

static void attn_begin_split(struct attn_block *b)
{
    for (size_t i = 0; i < b->n_lanes; i++) {
        b->m[i] = ATTN_LOWEST;
        b->l[i] = 0.0f;
        b->top[i] = -INFINITY;
        b->sum[i] = 0.0f;
    }
    memset(b->out, 0, b->n * b->width_v * sizeof(float));
}

static void attn_end_split(struct attn_block *b)
{
    const struct attn_job *job = b->job;
    for (size_t i = 0; i < b->n; i++) {
        float *all = job->out[b->q0 + i];
        const float *o = b->out + i * b->width_v;
        if (b->l[i] == 0.0f) /* saw nothing of it */
            continue;
        if (!job->part) {
            attn_take(all, &b->all_m[i], &b->all_l[i], o, b->m[i], b->l[i], job->d_v);
            continue;
        }
        memcpy(all, o, job->d_v * sizeof *o);
        all[job->d_v] = b->m[i];
        all[job->d_v + 1] = b->l[i];
    }
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
        b->all_m[i] = ATTN_LOWEST;
        b->all_l[i] = 0.0f;
        if (!job->part)
            memset(job->out[b->q0 + i], 0, job->d_v * sizeof(float));
    }
    b->page1 = page1;
    attn_load_queries(b);
    attn_begin_split(b);
    for (size_t page = page0; page <= page1; page++) {
        size_t lo, hi;
        if (attn_seen_by_any(b, 0, b->n, page, &lo, &hi)) {
            if (job->k_rows) {
                attn_row_scores(b, page);
                attn_row_softmax(b, page);
            } else {
                attn_scores(b, page);
                attn_softmax(b, page);
            }
            attn_values(b, page);
        }
        if (page == page1 || (page + 1) % (KV_SPLIT / KV_PAGE) == 0) {
            attn_end_split(b);
            attn_begin_split(b);
        }
    }
    for (size_t i = 0; i < b->n && !job->part; i++)
        attn_finish(job->out[b->q0 + i], b->all_m[i], b->all_l[i],
                    job->sinks ? &job->sinks[b->q0 + i] : NULL, job->d_v);
}

static void vec_attention(const struct attn_job *job, void *scratch)
{
    struct attn_block b = {.job = job};
    b.width_v = round_up(job->d_v, LANES);
    b.k_block = LANES * kv_row_bytes(job->k_type, job->d_k);
    const size_t fixed = KV_PAGE * ATTN_SLICE;
    const size_t per_query = job->d_k + b.width_v + KV_PAGE;
    const size_t room = (KERNEL_SCRATCH / sizeof(float) - fixed) / per_query / LANES * LANES;
    const size_t most = room < ATTN_BLOCK ? room : ATTN_BLOCK;
    b.tile = scratch;
    b.s = b.tile + fixed;
    b.out = b.s + KV_PAGE * most;
    b.q = b.out + most * b.width_v;
    for (; b.q0 < job->n_q; b.q0 += b.n) {
        b.n = job->n_q - b.q0 < most ? job->n_q - b.q0 : most;
        b.n_lanes = round_up(b.n, LANES);
        attn_run(&b);
    }
}
_Static_assert((KV_PAGE * ATTN_SLICE + LANES * (2 * ATTN_MAX_DIM + KV_PAGE)) * sizeof(float) <=
                   KERNEL_SCRATCH,
               "16 of the widest queries fit the scratch");

#endif
