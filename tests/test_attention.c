/*
 * Attention: every table against plain C bit by bit, and plain C against softmax(q K) V in double,
 * for windows, soft caps, sinks, grouped queries, all KV types and the borders of pages.
 */
#include "kernel_test.h"

enum { PAGES = 24 };

struct scene {
    struct attn_job job;
    uint8_t
        *pages[PAGES]; /* allocated one by one with exactly the bytes of the seen rows readable */
    float *q, *out;
    const float *q_rows[256];
    float *out_rows[256];
    int32_t first[256], last[256];
    float sinks[256];
    float *k, *v; /* as stored, decoded: [n_keys][d_k], [n_keys][d_v] */
    size_t n_keys;
};

/* Keys 0..n_keys-1; unseen rows of the last page are NaN patterns. Values share the key rows when
 * `shared`. */
static void make(struct scene *s, size_t n_q, size_t n_keys, size_t d_k, size_t d_v,
                 enum kv_type k_type, enum kv_type v_type, bool shared)
{
    memset(s, 0, sizeof *s);
    struct attn_job *job = &s->job;
    *job = (struct attn_job){.n_q = n_q,
                             .q = s->q_rows,
                             .out = s->out_rows,
                             .first = s->first,
                             .last = s->last,
                             .d_k = d_k,
                             .d_v = d_v,
                             .k_type = k_type,
                             .v_type = v_type,
                             .pages = (const uint8_t *const *)s->pages,
                             .scale = 1 / sqrtf((float)d_k)};
    const size_t k_bytes = kv_row_bytes(k_type, d_k), v_bytes = kv_row_bytes(v_type, d_v);
    assert_true(k_bytes && v_bytes);
    job->k_rows = shared;
    job->k_stride = shared ? k_bytes + 6 : k_bytes;
    job->v_stride = shared ? job->k_stride : v_bytes + 2;
    job->k_off = 16;
    job->v_off = shared ? 16 : 16 + KV_PAGE * job->k_stride;
    const size_t page_bytes = job->v_off + KV_PAGE * job->v_stride;
    s->n_keys = n_keys;
    s->k = alloc64(n_keys * d_k * 4);
    s->v = alloc64(n_keys * d_v * 4);
    float *row = alloc64((d_k > d_v ? d_k : d_v) * 4);
    for (size_t p = 0; p < (n_keys + KV_PAGE - 1) / KV_PAGE; p++) {
        s->pages[p] = alloc64(page_bytes);
        memset(s->pages[p], 0xff, page_bytes);
    }
    for (size_t i = 0; i < n_keys; i++) {
        uint8_t *page = s->pages[i / KV_PAGE];
        for (size_t d = 0; d < d_k; d++)
            row[d] = 2 * rng_float();
        uint8_t *keys = page + job->k_off, *key = keys + i % KV_PAGE * job->k_stride;
        uint8_t one[ATTN_MAX_DIM * 4];
        if (!shared)
            key = one;
        GENERIC->kv_store(k_type, row, key, d_k);
        if (!shared)
            kv_key_put(k_type, key, keys, i % KV_PAGE, d_k);
        GENERIC->kv_load(k_type, key, s->k + i * d_k, d_k);
        uint8_t *value = page + job->v_off + i % KV_PAGE * job->v_stride;
        if (!shared) {
            for (size_t d = 0; d < d_v; d++)
                row[d] = 2 * rng_float();
            GENERIC->kv_store(v_type, row, value, d_v);
        }
        GENERIC->kv_load(v_type, value, s->v + i * d_v, d_v);
    }
    free(row);
    s->q = alloc64(n_q * d_k * 4);
    s->out = alloc64(n_q * d_v * 4);
    for (size_t i = 0; i < n_q * d_k; i++)
        s->q[i] = 3 * rng_float();
    for (size_t i = 0; i < n_q; i++) {
        s->q_rows[i] = s->q + i * d_k;
        s->out_rows[i] = s->out + i * d_v;
        s->last[i] = (int32_t)n_keys - 1;
        s->sinks[i] = 3 * rng_float();
    }
}

static void unmake(struct scene *s)
{
    for (int p = 0; p < PAGES; p++)
        free(s->pages[p]);
    free(s->k);
    free(s->v);
    free(s->q);
    free(s->out);
}

/* Query i in double; returns the result of element d in want[d]. */
static void naive(const struct scene *s, size_t i, double *want)
{
    const struct attn_job *job = &s->job;
    double top = job->sinks ? (double)job->sinks[i] : -INFINITY, sum = 0;
    double *p = alloc64(s->n_keys * sizeof *p);
    for (int32_t key = s->first[i]; key <= s->last[i]; key++) {
        double dot = 0;
        for (size_t d = 0; d < job->d_k; d++)
            dot += (double)s->q_rows[i][d] * (double)s->k[(size_t)key * job->d_k + d];
        dot *= (double)job->scale;
        if (job->softcap > 0)
            dot = (double)job->softcap * tanh(dot / (double)job->softcap);
        p[key] = dot;
        top = fmax(top, dot);
    }
    for (size_t d = 0; d < job->d_v; d++)
        want[d] = 0;
    for (int32_t key = s->first[i]; key <= s->last[i]; key++) {
        const double e = exp(p[key] - top);
        sum += e;
        for (size_t d = 0; d < job->d_v; d++)
            want[d] += e * (double)s->v[(size_t)key * job->d_v + d];
    }
    if (job->sinks)
        sum += exp((double)job->sinks[i] - top);
    for (size_t d = 0; d < job->d_v; d++)
        want[d] /= sum;
    free(p);
}

/* Query i split by split, merged into its row of the output. */
static void in_parts(const struct kernels *k, const struct scene *s, size_t i, void *scratch)
{
    const struct attn_job *job = &s->job;
    const size_t stride = job->d_v + 2 + i % 3;
    const int32_t split0 = s->first[i] / KV_SPLIT, n = s->last[i] / KV_SPLIT + 1 - split0;
    float *parts = alloc64((size_t)n * stride * sizeof *parts);
    for (int32_t p = 0; p < n; p++) {
        const int32_t from = (split0 + p) * KV_SPLIT, to = from + KV_SPLIT - 1;
        const int32_t first = s->first[i] > from ? s->first[i] : from;
        const int32_t last = s->last[i] < to ? s->last[i] : to;
        float *out = parts + (size_t)p * stride;
        struct attn_job one = *job;
        one.n_q = 1;
        one.q += i;
        one.out = &out;
        one.first = &first;
        one.last = &last;
        one.sinks = NULL;
        one.part = true;
        k->attention(&one, scratch);
    }
    k->attn_merge(&(struct attn_merge){.n = (size_t)n,
                                       .d_v = job->d_v,
                                       .stride = stride,
                                       .parts = parts,
                                       .out = s->out_rows[i],
                                       .sink = job->sinks ? &job->sinks[i] : NULL});
    free(parts);
}

/* Generic against double; all tables against generic, the whole job, each query alone and in
 * parts. */
static void check(struct scene *s)
{
    struct attn_job *job = &s->job;
    void *scratch = alloc64(KERNEL_SCRATCH);
    const size_t n = job->n_q * job->d_v;
    float *want = alloc64(n * 4);
    double *exact = alloc64(job->d_v * sizeof *exact);
    memset(scratch, 0xff, KERNEL_SCRATCH);
    GENERIC->attention(job, scratch);
    memcpy(want, s->out, n * 4);
    for (size_t i = 0; i < job->n_q; i++) {
        naive(s, i, exact);
        for (size_t d = 0; d < job->d_v; d++)
            if (!(fabs((double)want[i * job->d_v + d] - exact[d]) <= 2e-5))
                fail_msg("query %zu [%zu]: %g, not %g", i, d, (double)want[i * job->d_v + d],
                         exact[d]);
    }
    FOR_TABLES(k)
    {
        memset(s->out, 0xff, n * 4);
        memset(scratch, 0xff, KERNEL_SCRATCH);
        k->attention(job, scratch);
        assert_same_floats(s->out, want, n, k->name);
        memset(s->out, 0xff, n * 4);
        for (size_t i = job->n_q; i-- > 0;) {
            struct attn_job one = *job;
            one.n_q = 1;
            one.q += i;
            one.out += i;
            one.first += i;
            one.last += i;
            if (one.sinks)
                one.sinks += i;
            k->attention(&one, scratch);
        }
        assert_same_floats(s->out, want, n, "queries alone");
        memset(s->out, 0xff, n * 4);
        for (size_t i = 0; i < job->n_q; i++)
            in_parts(k, s, i, scratch);
        assert_same_floats(s->out, want, n, "splits apart");
    }
    free(want);
    free(exact);
    free(scratch);
}

static void every_number_of_keys_and_kv_type(void **state)
{
    (void)state;
    for (size_t n_keys = 1; n_keys <= 200; n_keys++) {
        struct scene s;
        const enum kv_type k = (enum kv_type)(n_keys % KV_TYPE_COUNT),
                           v = (enum kv_type)(n_keys / 4 % 4);
        make(&s, 1 + n_keys % 6, n_keys, 64, 32, k, v, false);
        check(&s);
        unmake(&s);
    }
}

static void head_sizes_that_are_not_whole_vectors(void **state)
{
    (void)state;
    for (size_t d = 1; d <= 100; d++) {
        struct scene s;
        make(&s, 3, 70, d, 101 - d, (enum kv_type)(d % 3), (enum kv_type)(d / 3 % 3), false);
        check(&s);
        unmake(&s);
    }
}

static void windows_at_every_place_of_a_page(void **state)
{
    (void)state;
    struct scene s;
    make(&s, 200, 200, 32, 64, KV_F16, KV_Q8_0, false);
    for (int window = 1; window <= 130; window = window * 3 / 2 + 1) {
        for (int32_t i = 0; i < 200; i++) {
            s.last[i] = i;
            s.first[i] = i < window ? 0 : i - window + 1;
        }
        check(&s);
    }
    unmake(&s);
}

static void queries_that_see_disjoint_parts(void **state)
{
    (void)state;
    /* pages nobody sees may be absent */
    struct scene s;
    make(&s, 9, 500, 64, 64, KV_BF16, KV_F16, false);
    for (int i = 0; i < 9; i++) {
        s.first[i] = i % 2 ? 0 : 300 + i;
        s.last[i] = i % 2 ? 10 * i : 310 + 5 * i;
    }
    for (int p = 2; p < 4; p++) {
        free(s.pages[p]);
        s.pages[p] = NULL;
    }
    check(&s);
    unmake(&s);
}

static void soft_caps_and_sinks(void **state)
{
    (void)state;
    for (int mode = 1; mode < 4; mode++) {
        struct scene s;
        make(&s, 8, 150, 128, 128, KV_F16, KV_F16, false);
        s.job.softcap = mode & 1 ? 2.5f : 0;
        s.job.sinks = mode & 2 ? s.sinks : NULL;
        s.sinks[0] = 100;
        s.sinks[1] = -100;
        check(&s);
        unmake(&s);
    }
}

static void many_splits_with_windows_and_sinks(void **state)
{
    (void)state;
    for (int mode = 0; mode < 4; mode++) {
        struct scene s;
        const bool shared = mode & 1;
        make(&s, 70, 1400, 48, 32, KV_F16, mode & 2 || shared ? KV_F16 : KV_Q8_0, shared);
        s.job.sinks = mode & 2 ? s.sinks : NULL;
        for (int i = 0; i < 70; i++) {
            s.last[i] = 1330 + i;
            s.first[i] = i % 3 == 0 ? 0 : 17 * i;
        }
        check(&s);
        unmake(&s);
    }
}

static void interleaved_keys_come_back(void **state)
{
    (void)state;
    for (int t = 0; t < KV_TYPE_COUNT; t++)
        for (size_t n = 32; n <= 96; n += t == KV_Q8_0 ? 32 : 13) {
            const enum kv_type type = (enum kv_type)t;
            const size_t bytes = kv_row_bytes(type, n), total = bytes * KV_PAGE;
            uint8_t *rows = alloc64(total), *keys = alloc64(total + 1), *got = alloc64(bytes);
            memset(keys, 0, total);
            keys[total] = 0x5a;
            for (size_t i = 0; i < total; i++)
                rows[i] = (uint8_t)rng();
            for (size_t i = 0; i < KV_PAGE; i++)
                kv_key_put(type, rows + i * bytes, keys, i, n);
            for (size_t i = 0; i < KV_PAGE; i++) {
                kv_key_get(type, keys, i, got, n);
                assert_memory_equal(got, rows + i * bytes, bytes);
            }
            assert_int_equal(keys[total], 0x5a);
            free(rows);
            free(keys);
            free(got);
        }
}

static void values_that_are_a_prefix_of_the_keys(void **state)
{
    (void)state;
    for (int type = 0; type < KV_TYPE_COUNT; type++) {
        struct scene s;
        make(&s, 128, 90, 576, 512, (enum kv_type)type, (enum kv_type)type, true);
        check(&s);
        unmake(&s);
    }
}

static void the_widest_heads_fit_the_scratch(void **state)
{
    (void)state;
    struct scene s;
    make(&s, 5, 66, 2048, 2048, KV_F16, KV_F16, false);
    check(&s);
    unmake(&s);
}

static void a_key_that_is_not_a_number_reaches_only_who_sees_it(void **state)
{
    (void)state;
    struct scene s;
    make(&s, 6, 100, 64, 64, KV_F16, KV_F16, false);
    for (int i = 0; i < 6; i++)
        s.last[i] = 60 + 4 * i;
    float bad[64] = {[3] = NAN};
    uint8_t row[128];
    GENERIC->kv_store(KV_F16, bad, row, 64);
    kv_key_put(KV_F16, row, s.pages[1] + s.job.k_off, 70 - 64, 64);
    void *scratch = alloc64(KERNEL_SCRATCH);
    FOR_TABLES(k)
    {
        k->attention(&s.job, scratch);
        for (size_t i = 0; i < 6; i++)
            for (size_t d = 0; d < 64; d++)
                assert_true(isnan(s.out_rows[i][d]) == (s.last[i] >= 70));
    }
    free(scratch);
    unmake(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_number_of_keys_and_kv_type),
        cmocka_unit_test(head_sizes_that_are_not_whole_vectors),
        cmocka_unit_test(windows_at_every_place_of_a_page),
        cmocka_unit_test(queries_that_see_disjoint_parts),
        cmocka_unit_test(soft_caps_and_sinks),
        cmocka_unit_test(many_splits_with_windows_and_sinks),
        cmocka_unit_test(interleaved_keys_come_back),
        cmocka_unit_test(values_that_are_a_prefix_of_the_keys),
        cmocka_unit_test(the_widest_heads_fit_the_scratch),
        cmocka_unit_test(a_key_that_is_not_a_number_reaches_only_who_sees_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
