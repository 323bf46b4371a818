/*
 * Speed of attention beside the limits of the machine: one query row over many keys (decode) as
 * bytes of keys and values read per second, and blocks of rows at the end of as many keys (prefill)
 * as multiply-adds of the keys seen, per cent of the float peak.
 *
 *     attention_bench [-t THREADS] [-k TABLE] [-s SHAPE] [-n KEYS] [-r ROWS] [-v KVTYPE] [-m MB]
 *
 * KV memory of several layers, -m megabytes in all, is walked through in turn, so that no pass
 * finds the last one's in a cache; 0 measures from the caches.
 */
#include "base/pool.h"
#include "kernel/kernel.h"
#include "kernel/probe.h"
#include "timing.h"

enum { MAX_THREADS = 64, REPEATS = 5, MOST_QUERIES = 2048 };

struct shape {
    const char *name;
    size_t n_head, n_kv, d_k, d_v;
    bool shared; /* values are a prefix of keys */
};

static const struct shape shapes[] = {
    {"llama-1b", 32, 8, 64, 64, false},   {"qwen3-0.6b", 16, 8, 128, 128, false},
    {"llama-8b", 32, 8, 128, 128, false}, {"gemma3-1b", 4, 1, 256, 256, false},
    {"mha", 16, 16, 64, 64, false},       {"mla-16", 16, 1, 576, 512, true},
};
static const char *const kv_names[KV_TYPE_COUNT] = {"f32", "f16", "bf16", "q8_0"};

struct work {
    const struct kernels *k;
    const struct shape *s;
    enum kv_type type;
    size_t n_keys, n_rows, n_layers, layer;
    size_t k_row, v_row, layer_bytes;
    const uint8_t **pages;
    float *q, *out; /* [n_rows][n_head][d] */
    size_t block_rows;
    void *scratch[MAX_THREADS];
};

static size_t cold_bytes = (size_t)256 << 20;

/* A block of rows and one KV head. */
static void run(void *arg, size_t chunk, unsigned worker)
{
    const struct work *w = arg;
    const struct shape *s = w->s;
    const size_t head = chunk % s->n_kv, row0 = chunk / s->n_kv * w->block_rows;
    const size_t group = s->n_head / s->n_kv;
    const float *q[MOST_QUERIES];
    float *out[MOST_QUERIES];
    int32_t first[MOST_QUERIES] = {0}, last[MOST_QUERIES];
    size_t n = 0;
    for (size_t r = row0; r < w->n_rows && r < row0 + w->block_rows; r++)
        for (size_t g = 0; g < group; g++, n++) {
            const size_t at = r * s->n_head + head * group + g;
            q[n] = w->q + at * s->d_k;
            out[n] = w->out + at * s->d_v;
            last[n] = (int32_t)(w->n_keys - w->n_rows + r);
        }
    const size_t base = w->layer * w->layer_bytes;
    const size_t values = s->shared ? 0 : s->n_kv * KV_PAGE * w->k_row;
    const struct attn_job job = {.n_q = n,
                                 .q = q,
                                 .out = out,
                                 .first = first,
                                 .last = last,
                                 .d_k = s->d_k,
                                 .d_v = s->d_v,
                                 .k_type = w->type,
                                 .v_type = w->type,
                                 .pages = w->pages,
                                 .k_off = base + head * KV_PAGE * w->k_row,
                                 .v_off = base + values + head * KV_PAGE * w->v_row,
                                 .k_rows = s->shared,
                                 .k_stride = w->k_row,
                                 .v_stride = w->v_row,
                                 .scale = 0.1f};
    w->k->attention(&job, w->scratch[worker]);
}

static double measure(struct pool *pool, struct work *w, size_t times)
{
    double best = 1e9;
    for (int r = 0; r < REPEATS; r++) {
        const double t0 = now();
        for (size_t i = 0; i < times; i++) {
            w->layer = i % w->n_layers;
            pool_run(pool, (w->n_rows + w->block_rows - 1) / w->block_rows * w->s->n_kv, run, w);
        }
        const double t = (now() - t0) / (double)times;
        best = t < best ? t : best;
    }
    return best;
}

static void bench(struct pool *pool, struct work *w, size_t n_rows, const struct probe *limit)
{
    const struct shape *s = w->s;
    w->block_rows = 64 * s->n_kv / s->n_head;
    w->block_rows = w->block_rows > 16 ? w->block_rows : 16;
    w->k_row = kv_row_bytes(w->type, s->d_k);
    w->v_row = s->shared ? w->k_row : kv_row_bytes(w->type, s->d_v);
    w->layer_bytes = s->n_kv * KV_PAGE * (w->k_row + (s->shared ? 0 : w->v_row));
    const size_t n_pages = (w->n_keys + KV_PAGE - 1) / KV_PAGE;
    w->n_layers = cold_bytes / (w->layer_bytes * n_pages) + 1;
    uint8_t *kv = take(w->layer_bytes * w->n_layers * n_pages);
    for (size_t i = 0; i < w->layer_bytes * w->n_layers * n_pages; i++)
        kv[i] = (uint8_t)(i * 2654435761u >> 13) & 0x3b; /* small exponents in every f16 */
    w->pages = take(n_pages * sizeof *w->pages);
    for (size_t i = 0; i < n_pages; i++)
        w->pages[i] = kv + i * w->layer_bytes * w->n_layers;
    w->q = take(n_rows * s->n_head * s->d_k * 4);
    w->out = take(n_rows * s->n_head * s->d_v * 4);
    for (size_t i = 0; i < n_rows * s->n_head * s->d_k; i++)
        w->q[i] = (float)(i * 7919 % 1000) / 500 - 1;
    w->n_rows = 1;
    const double decode = measure(pool, w, w->n_layers > 16 ? w->n_layers : 16);
    const double bytes = (double)(w->n_keys * w->layer_bytes / KV_PAGE);
    const double each = 2.0 * (double)(s->n_head * (s->d_k + s->d_v));
    printf("  %-10s %-4s decode %6.2f GB/s %4.0f%% %7.1f Gflop/s %4.0f%%", s->name,
           kv_names[w->type], bytes / decode * 1e-9, bytes / decode / limit->read * 100,
           each * (double)w->n_keys / decode * 1e-9,
           each * (double)w->n_keys / decode / limit->f32 * 100);
    w->n_rows = n_rows;
    const double prefill = measure(pool, w, 1), n = (double)n_rows;
    const double seen = n * (double)w->n_keys - n * (n - 1) / 2;
    printf("   prefill %7.1f Gflop/s %4.0f%%\n", each * seen / prefill * 1e-9,
           each * seen / prefill / limit->f32 * 100);
    fflush(stdout);
    free(kv);
    free(w->pages);
    free(w->q);
    free(w->out);
}

int main(int argc, char **argv)
{
    unsigned threads = 0;
    const char *table = NULL, *shape = NULL, *type = NULL;
    size_t n_keys = 4096, n_rows = 512;
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *v = argv[i + 1];
        switch (argv[i][1]) {
        case 't': threads = (unsigned)strtoul(v, NULL, 10); break;
        case 'k': table = v; break;
        case 's': shape = v; break;
        case 'n': n_keys = strtoul(v, NULL, 10); break;
        case 'r': n_rows = strtoul(v, NULL, 10); break;
        case 'v': type = v; break;
        case 'm': cold_bytes = strtoul(v, NULL, 10) << 20; break;
        default: fprintf(stderr, "unknown option %s\n", argv[i]); return 2;
        }
    }
    n_rows = n_rows < n_keys ? n_rows : n_keys;
    struct pool *pool;
    linnet_error e;
    if (pool_create(threads, &pool, &e) != LINNET_OK) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    struct work w = {.n_keys = n_keys};
    if (pool_threads(pool) == 1)
        clock_id = CLOCK_PROCESS_CPUTIME_ID;
    for (unsigned i = 0; i < pool_threads(pool) && i < MAX_THREADS; i++)
        w.scratch[i] = take(KERNEL_SCRATCH);
    printf("%u threads, %zu keys, %zu rows\n", pool_threads(pool), n_keys, n_rows);
    for (size_t i = 0; i < kernels_count(); i++) {
        w.k = kernels_at(i);
        if (!w.k->supported() || (table && strcmp(table, w.k->name) != 0))
            continue;
        struct probe limit = {0};
        if (probe_machine(pool, w.k, &limit, &e) != LINNET_OK) {
            fprintf(stderr, "%s\n", e.text);
            return 1;
        }
        printf("%s: read %.1f GB/s, f32 %.0f Gflop/s\n", w.k->name, limit.read * 1e-9,
               limit.f32 * 1e-9);
        for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
            for (int t = 0; t < KV_TYPE_COUNT; t++) {
                w.s = &shapes[s];
                w.type = (enum kv_type)t;
                if ((shape ? strcmp(shape, w.s->name) == 0 : true) &&
                    (type ? strcmp(type, kv_names[t]) == 0 : t == KV_F16 || t == KV_Q8_0))
                    bench(pool, &w, n_rows, &limit);
            }
    }
    pool_destroy(pool);
    return 0;
}
