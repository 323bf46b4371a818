/*
 * One token of a recurrence, written once in 16-lane vector operations and included by vector.h.
 *
 * A state is a matrix s [m][n] whose n columns do not see each other. A vector of columns goes down
 * all rows before the next one starts, so what is summed over rows stays in registers; two vectors
 * go side by side, which hides the latency of the sums. The order of a sum is that of the rows,
 * whatever n is.
 */
#ifndef LINNET_KERNEL_RECURRENCE_H
#define LINNET_KERNEL_RECURRENCE_H

/* BODY(V, LOAD, STORE) for the vectors of n columns: pairs with V = 2, then one or none with V = 1.
 * Whole vectors only; the rest is left to LOAD_REST and STORE_REST with V = 1. */
#define FOR_COLUMNS(i, n, BODY)                                                                    \
    do {                                                                                           \
        size_t i = 0;                                                                              \
        for (; i + 2 * LANES <= (n); i += 2 * LANES) {                                             \
            BODY(2, v_load, v_store)                                                               \
        }                                                                                          \
        if (i + LANES <= (n)) {                                                                    \
            BODY(1, v_load, v_store)                                                               \
            i += LANES;                                                                            \
        }                                                                                          \
        if (i < (n)) {                                                                             \
            const size_t rest_ = (n)-i;                                                            \
            BODY(1, LOAD_REST, STORE_REST)                                                         \
        }                                                                                          \
    } while (0)
#define EACH_V(V) for (size_t v = 0; v < V; v++)

static void vec_scan(float *s, float *y, const float *x, float decay, const float *b,
                     const float *c, size_t m, size_t n)
{
    const vf d = v_set(decay);
#define BODY(V, LOAD, STORE)                                                                       \
    vf vx[V], sum[V];                                                                              \
    EACH_V(V)                                                                                      \
    {                                                                                              \
        vx[v] = LOAD(x + i + v * LANES);                                                           \
        sum[v] = v_set(0.0f);                                                                      \
    }                                                                                              \
    for (size_t j = 0; j < m; j++) {                                                               \
        const vf vb = v_set(b[j]), vc = v_set(c[j]);                                               \
        EACH_V(V)                                                                                  \
        {                                                                                          \
            float *at = s + j * n + i + v * LANES;                                                 \
            const vf t = v_fma(vb, vx[v], v_mul(d, LOAD(at)));                                     \
            STORE(at, t);                                                                          \
            sum[v] = v_fma(vc, t, sum[v]);                                                         \
        }                                                                                          \
    }                                                                                              \
    EACH_V(V) STORE(y + i + v * LANES, sum[v]);
    FOR_COLUMNS(i, n, BODY);
#undef BODY
}

static void vec_scan_each(float *s, float *y, const float *x, const float *dt, const float *a,
                          const float *b, const float *c, size_t m, size_t n)
{
#define BODY(V, LOAD, STORE)                                                                       \
    vf vx[V], vdt[V], sum[V];                                                                      \
    EACH_V(V)                                                                                      \
    {                                                                                              \
        vx[v] = LOAD(x + i + v * LANES);                                                           \
        vdt[v] = LOAD(dt + i + v * LANES);                                                         \
        sum[v] = v_set(0.0f);                                                                      \
    }                                                                                              \
    for (size_t j = 0; j < m; j++) {                                                               \
        const vf vb = v_set(b[j]), vc = v_set(c[j]);                                               \
        EACH_V(V)                                                                                  \
        {                                                                                          \
            float *at = s + j * n + i + v * LANES;                                                 \
            const vf d = v_exp(v_mul(vdt[v], LOAD(a + j * n + i + v * LANES)));                    \
            const vf t = v_fma(vb, vx[v], v_mul(d, LOAD(at)));                                     \
            STORE(at, t);                                                                          \
            sum[v] = v_fma(vc, t, sum[v]);                                                         \
        }                                                                                          \
    }                                                                                              \
    EACH_V(V) STORE(y + i + v * LANES, sum[v]);
    FOR_COLUMNS(i, n, BODY);
#undef BODY
}

static void vec_wkv(float *s, float *y, const struct wkv_row *t, const float *value, size_t m,
                    size_t n)
{
#define BODY(V, LOAD, STORE)                                                                       \
    vf vv[V], seen[V], sum[V];                                                                     \
    EACH_V(V)                                                                                      \
    {                                                                                              \
        vv[v] = LOAD(value + i + v * LANES);                                                       \
        seen[v] = sum[v] = v_set(0.0f);                                                            \
    }                                                                                              \
    for (size_t j = 0; j < m; j++) {                                                               \
        const vf kk = v_set(t->seek[j]);                                                           \
        EACH_V(V) seen[v] = v_fma(kk, LOAD(s + j * n + i + v * LANES), seen[v]);                   \
    }                                                                                              \
    for (size_t j = 0; j < m; j++) {                                                               \
        const vf w = v_set(t->decay[j]), k = v_set(t->key[j]);                                     \
        const vf drop = v_set(-t->drop[j]), r = v_set(t->read[j]);                                 \
        EACH_V(V)                                                                                  \
        {                                                                                          \
            float *at = s + j * n + i + v * LANES;                                                 \
            const vf u = v_fma(k, vv[v], v_fma(drop, seen[v], v_mul(w, LOAD(at))));                \
            STORE(at, u);                                                                          \
            sum[v] = v_fma(r, u, sum[v]);                                                          \
        }                                                                                          \
    }                                                                                              \
    EACH_V(V) STORE(y + i + v * LANES, sum[v]);
    FOR_COLUMNS(i, n, BODY);
#undef BODY
}

#undef EACH_V
#undef FOR_COLUMNS

#endif
