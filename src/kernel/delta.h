/*
 * The gated delta rule over a block of state columns, for vector.h. The order of operations of one
 * position, with state S [d_k][columns] and each column by itself:
 *
 *     S[i] = S[i] * a[i]                   a[i] = a where the decay is one number
 *
 *     w0 = w1 = 0
 *
 *     w0 = fma(S[i], k[i], w0) for even i, w1 = fma(S[i], k[i], w1) for odd i, ascending
 *
 *     w = w0 + w1
 *
 *     e = (v - w) * beta
 *
 *     S[i] = fma(k[i], e, S[i])
 *
 *     o0, o1 from S[i] and q[i] as w0, w1;  o = (o0 + o1) * scale
 *
 * Always this step form, so the bits do not depend on how a text is cut. The second pass over S and
 * the first of the next position are one pass: S is read and written once a position and stays in
 * L1 for the whole span.
 */
#ifndef LINNET_KERNEL_DELTA_H
#define LINNET_KERNEL_DELTA_H

/* Column vectors that share the loads of q, k and the decay: two where attention finds registers
 * for 16 sums. */
enum { DELTA_VECS = ATTN_ACCS >= 16 ? 2 : 1 };
enum { DELTA_AHEAD = 3 }; /* positions between asking for inputs and their use */

/* One position's numbers. */
struct delta_at {
    const float *q, *k, *v, *decay;
    float beta;
    float *o;
};

static inline struct delta_at delta_at(const struct delta_job *j, size_t t, size_t col)
{
    return (struct delta_at){.q = j->q + t * j->x_stride,
                             .k = j->k + t * j->x_stride,
                             .v = j->v + t * j->x_stride + col,
                             .decay = j->decay + t * j->decay_stride,
                             .beta = j->beta[t * j->beta_stride],
                             .o = j->o + t * j->o_stride + col};
}

/* Columns that a block may have less than its vectors hold: the others are 0 and stay 0. */
static inline vf delta_load(const float *p, size_t n)
{
    return n >= LANES ? v_load(p) : v_load_n(p, n);
}

static inline void delta_store(float *p, vf x, size_t n)
{
    if (n >= LANES)
        v_store(p, x);
    else
        v_store_n(p, x, n);
}

#define DELTA_INLINE static inline __attribute__((always_inline))

/* Row s, the i-th, of the state: decayed, and read by k into w. */
DELTA_INLINE void delta_decay(float *s, size_t i, const struct delta_at *p, bool each, size_t vecs,
                              vf *w)
{
    const vf a = v_set(each ? p->decay[i] : p->decay[0]), k = v_set(p->k[i]);
    for (size_t c = 0; c < vecs; c++) {
        const vf x = v_mul(v_load(s + c * LANES), a);
        w[c] = v_fma(x, k, w[c]);
        v_store(s + c * LANES, x);
    }
}

/* Row s, the i-th, of the state: corrected by k and e, and read by q into o. */
DELTA_INLINE void delta_correct(float *s, size_t i, const struct delta_at *p, size_t vecs,
                                const vf *e, vf *o)
{
    const vf k = v_set(p->k[i]), q = v_set(p->q[i]);
    for (size_t c = 0; c < vecs; c++) {
        const vf x = v_fma(k, e[c], v_load(s + c * LANES));
        o[c] = v_fma(x, q, o[c]);
        v_store(s + c * LANES, x);
    }
}

/* Both, of position p and of the one after it. */
DELTA_INLINE void delta_both(float *s, size_t i, const struct delta_at *p,
                             const struct delta_at *next, bool each, size_t vecs, const vf *e,
                             vf *o, vf *w)
{
    const vf k = v_set(p->k[i]), q = v_set(p->q[i]);
    const vf a = v_set(each ? next->decay[i] : next->decay[0]), k2 = v_set(next->k[i]);
    for (size_t c = 0; c < vecs; c++) {
        vf x = v_fma(k, e[c], v_load(s + c * LANES));
        o[c] = v_fma(x, q, o[c]);
        x = v_mul(x, a);
        w[c] = v_fma(x, k2, w[c]);
        v_store(s + c * LANES, x);
    }
}

/* What a later position reads, asked for early, a line at a time: rows of activations lie too far
 * apart for prefetchers to see a pattern, and more of them than a cache holds lie between two uses
 * of a line. */
DELTA_INLINE void delta_fetch(const struct delta_at *p, size_t i, bool each)
{
    __builtin_prefetch(p->q + i);
    __builtin_prefetch(p->k + i);
    if (each)
        __builtin_prefetch(p->decay + i);
}

/* FN(row, i, sums) for each row of the state, the sums of even and of odd rows apart; FETCH(i) once
 * for each line of what has a number for each row. */
#define DELTA_ROWS(FN, FETCH)                                                                      \
    do {                                                                                           \
        float *s_ = s;                                                                             \
        size_t i_ = 0;                                                                             \
        while (i_ + 2 <= d_k) {                                                                    \
            const size_t stop_ = i_ + LANES <= d_k ? i_ + LANES : d_k - 1;                         \
            FETCH(i_);                                                                             \
            for (; i_ < stop_; i_ += 2, s_ += 2 * stride) {                                        \
                FN(s_, i_, 0);                                                                     \
                FN(s_ + stride, i_ + 1, 1);                                                        \
            }                                                                                      \
        }                                                                                          \
        if (i_ < d_k)                                                                              \
            FN(s_, i_, 0);                                                                         \
    } while (0)

/* `vecs` column vectors from column `col` on, all positions. */
DELTA_INLINE void delta_columns(const struct delta_job *j, size_t col, size_t vecs, bool each)
{
    const size_t d_k = j->d_k, stride = round_up(j->n_cols, LANES);
    float *s = j->state + col;
    struct delta_at at = delta_at(j, 0, col);
    vf w[2][DELTA_VECS], o[2][DELTA_VECS], e[DELTA_VECS];
    for (size_t c = 0; c < vecs; c++)
        w[0][c] = w[1][c] = v_set(0.0f);
#define DECAY(row, i, odd) delta_decay(row, i, &at, each, vecs, w[odd])
#define NOTHING(i)         (void)0
    DELTA_ROWS(DECAY, NOTHING);
    for (size_t t = 0; t < j->n; t++) {
        const struct delta_at now = at;
        const size_t left = j->n_cols - col;
        const struct delta_at later =
            delta_at(j, t + DELTA_AHEAD < j->n ? t + DELTA_AHEAD : t, col);
        for (size_t c = 0; c < vecs; c++) {
            __builtin_prefetch(later.v + c * LANES);
            __builtin_prefetch(later.o + c * LANES, 1);
            const vf v = delta_load(now.v + c * LANES, left - c * LANES);
            e[c] = v_mul(v_sub(v, v_add(w[0][c], w[1][c])), v_set(now.beta));
            w[0][c] = w[1][c] = o[0][c] = o[1][c] = v_set(0.0f);
        }
        if (t + 1 < j->n) {
            at = delta_at(j, t + 1, col);
#define BOTH(row, i, odd) delta_both(row, i, &now, &at, each, vecs, e, o[odd], w[odd])
#define FETCH(i)          delta_fetch(&later, i, each)
            DELTA_ROWS(BOTH, FETCH);
        } else {
#define CORRECT(row, i, odd) delta_correct(row, i, &now, vecs, e, o[odd])
            DELTA_ROWS(CORRECT, NOTHING);
        }
        for (size_t c = 0; c < vecs; c++)
            delta_store(now.o + c * LANES, v_mul(v_add(o[0][c], o[1][c]), v_set(j->scale)),
                        left - c * LANES);
    }
#undef DECAY
#undef BOTH
#undef FETCH
#undef NOTHING
#undef CORRECT
}

static void vec_delta(const struct delta_job *j)
{
    for (size_t col = 0; j->n > 0 && col < j->n_cols;) {
        const size_t vecs = j->n_cols - col > LANES ? DELTA_VECS : 1;
        if (vecs == 1)
            j->decay_each ? delta_columns(j, col, 1, true) : delta_columns(j, col, 1, false);
        else
            j->decay_each ? delta_columns(j, col, DELTA_VECS, true)
                          : delta_columns(j, col, DELTA_VECS, false);
        col += vecs * LANES;
    }
}

#endif
