/*
 * Speed of the kernels beside the limits of the machine, measured in the same run: read bandwidth,
 * integer and float peak of every table; bytes per second of one-column products (decode) and
 * operations per second of many-column products (prefill) for every packed type.
 *
 *     kernel_bench [-t THREADS] [-k TABLE] [-q TYPE] [-r ROWS] [-c COLS] [-n COLUMNS] [-m MB]
 *     kernel_bench -q recurrent [-t THREADS] [-k TABLE] [-n POSITIONS]
 *
 * -m is how much memory copies of a matrix are spread over; 0 measures decode from the caches.
 * Recurrent kernels run as a layer of 16 heads of 128 x 128 does, its rows as far apart as there.
 */
#include "base/cpu.h"
#include "base/pool.h"
#include "kernel/kernel.h"
#include "kernel/probe.h"
#include "timing.h"

enum { MAX_THREADS = 64, REPEATS = 5, COLD_BYTES = 256 << 20 };

struct work {
    const struct kernels *k;
    struct matmul *job;
    size_t n_tiles, tiles_per_chunk;
    struct matrix
        *copies; /* the same shape in other memory, so that no pass finds the last one in a cache */
    size_t n_copies;
    void *scratch[MAX_THREADS];
};

static void run_matmul(void *arg, size_t chunk, unsigned worker)
{
    struct work *w = arg;
    size_t t0 = chunk * w->tiles_per_chunk, t1 = t0 + w->tiles_per_chunk;
    w->k->matmul(w->job, t0, t1 < w->n_tiles ? t1 : w->n_tiles, w->scratch[worker]);
}

/* Best of REPEATS, in units per second, of `times` products with one copy after another. */
static double measure(struct pool *pool, struct work *w, size_t chunks, double units, size_t times)
{
    double best = 0;
    for (int r = 0; r < REPEATS; r++) {
        const double t0 = now();
        for (size_t i = 0; i < times; i++) {
            w->job->w = &w->copies[i % w->n_copies];
            pool_run(pool, chunks, run_matmul, w);
        }
        const double speed = units * (double)times / (now() - t0);
        best = speed > best ? speed : best;
    }
    return best;
}

static size_t cold_bytes = COLD_BYTES;

static void bench_type(struct pool *pool, struct work *w, const struct quant_type *t, size_t n_rows,
                       size_t n_cols, size_t n, const struct probe *limit)
{
    size_t row_bytes;
    if (!quant_row_bytes(t, n_cols, &row_bytes))
        return;
    struct matrix m = {
        .type = t, .n_rows = n_rows, .n_cols = n_cols, .row_bytes = row_bytes, .scale = 1};
    const size_t tiles = matrix_n_tiles(&m), bytes = tiles * matrix_tile_bytes(t, n_cols);
    const size_t n_copies = cold_bytes / bytes + 1;
    uint8_t *rows = take(n_rows * row_bytes), *packed = take(bytes * n_copies);
    for (size_t i = 0; i < n_rows * row_bytes; i++)
        rows[i] = (uint8_t)(i * 2654435761u >> 13) & 0x3b; /* small exponents in every f16 field */
    m.data = rows;
    double t0 = now();
    matrix_pack(&m, packed, 0, tiles);
    const double packing = (double)bytes / (now() - t0);
    struct matrix *copies = take(n_copies * sizeof *copies);
    for (size_t i = 0; i < n_copies; i++) {
        if (i)
            memcpy(packed + i * bytes, packed, bytes);
        copies[i] = m;
        copies[i].data = NULL;
        copies[i].packed = packed + i * bytes;
    }
    float *x = take(n * n_cols * 4), *y = take(n * n_rows * 4);
    for (size_t i = 0; i < n * n_cols; i++)
        x[i] = (float)(i * 7919 % 1000) / 500 - 1;
    struct act a = {.n_rows = n,
                    .width = n_cols,
                    .x = x,
                    .x_stride = n_cols,
                    .quant = take(n * act_bytes(n_cols))};
    w->k->quantise(&a, 0, n);
    struct matmul job = {.x = &a, .n = 1, .y = y, .y_stride = n_rows};
    w->job = &job;
    w->copies = copies;
    w->n_copies = n_copies;
    w->n_tiles = tiles;
    w->tiles_per_chunk = 8;
    const size_t chunks = (tiles + 7) / 8;
    const double decode = measure(pool, w, chunks, (double)bytes, n_copies);
    job.n = n;
    w->n_copies = 1;
    const double ops = 2.0 * (double)n_rows * (double)n_cols * (double)n;
    const double prefill = measure(pool, w, chunks, ops, 1);
    const double peak = t->group ? limit->int8 : limit->f32;
    printf("  %-8s %6.2f GB/s %4.0f%%   %7.1f Gop/s %4.0f%%   pack %5.2f GB/s\n", t->name,
           decode * 1e-9, decode / limit->read * 100, prefill * 1e-9, prefill / peak * 100,
           packing * 1e-9);
    fflush(stdout);
    free(rows);
    free(packed);
    free(copies);
    free(x);
    free(y);
    free(a.quant);
}

/* A layer with a delta rule: rows of [q | k | v], each HEADS heads of HEAD_DIM. */
enum { HEADS = 16, HEAD_DIM = 128, STATE_COLS = 32, CHANNELS = 3 * HEADS * HEAD_DIM, TAPS = 4 };
enum { CHANNELS_EACH = 128, COL_BLOCKS = HEAD_DIM / STATE_COLS };

struct layer {
    const struct kernels *k;
    size_t n;
    float *x, *y;         /* [n][CHANNELS] */
    float *decay, *state; /* [n][HEADS * HEAD_DIM]; [HEADS][COL_BLOCKS][HEAD_DIM][STATE_COLS] */
    float *taps, *past;   /* [TAPS][CHANNELS]; [TAPS - 1][CHANNELS] */
    bool each;            /* a decay for each state row */
};

static void delta_part(void *arg, size_t part, unsigned worker)
{
    (void)worker;
    struct layer *l = arg;
    const size_t h = part / COL_BLOCKS, col = part % COL_BLOCKS * STATE_COLS;
    const size_t keys = (size_t)HEADS * HEAD_DIM;
    struct delta_job job = {.n = l->n,
                            .d_k = HEAD_DIM,
                            .n_cols = STATE_COLS,
                            .q = l->x + h * HEAD_DIM,
                            .k = l->x + keys + h * HEAD_DIM,
                            .v = l->x + 2 * keys + h * HEAD_DIM + col,
                            .x_stride = CHANNELS,
                            .decay = l->decay + h * HEAD_DIM,
                            .decay_stride = keys,
                            .decay_each = l->each,
                            .beta = l->decay,
                            .beta_stride = keys,
                            .o = l->y + h * HEAD_DIM + col,
                            .o_stride = CHANNELS,
                            .scale = 0.1f,
                            .state = l->state + part * HEAD_DIM * STATE_COLS};
    l->k->delta(&job);
}

static void conv_part(void *arg, size_t part, unsigned worker)
{
    (void)worker;
    struct layer *l = arg;
    const size_t c = part * CHANNELS_EACH;
    struct conv_job job = {.n = l->n,
                           .width = CHANNELS_EACH,
                           .n_taps = TAPS,
                           .x = l->x + c,
                           .x_stride = CHANNELS,
                           .y = l->y + c,
                           .y_stride = CHANNELS,
                           .weight = l->taps + c,
                           .weight_stride = CHANNELS,
                           .state = l->past + c,
                           .state_stride = CHANNELS,
                           .silu = true};
    l->k->conv(&job);
}

/* Units a second, the best of REPEATS. */
static double measure_layer(struct pool *pool, struct layer *l, pool_fn *fn, size_t parts,
                            double units)
{
    double best = 0;
    for (int r = 0; r < 4 * REPEATS; r++) {
        const double t0 = now();
        pool_run(pool, parts, fn, l);
        const double speed = units / (now() - t0);
        best = speed > best ? speed : best;
    }
    return best;
}

static void bench_recurrent(struct pool *pool, const struct kernels *k, size_t n,
                            const struct probe *limit)
{
    const size_t keys = (size_t)HEADS * HEAD_DIM;
    struct layer l = {.k = k, .n = n};
    l.x = take(n * CHANNELS * sizeof *l.x);
    l.y = take(n * CHANNELS * sizeof *l.y);
    l.decay = take(n * keys * sizeof *l.decay);
    l.state = take(keys * HEAD_DIM * sizeof *l.state);
    l.taps = take(2 * TAPS * CHANNELS * sizeof *l.taps);
    l.past = l.taps + TAPS * CHANNELS;
    for (size_t i = 0; i < n * CHANNELS; i++)
        l.x[i] = ((float)(i * 7919 % 1000) / 500 - 1) * 0.1f;
    for (size_t i = 0; i < n * keys; i++)
        l.decay[i] = 0.9f;
    for (size_t i = 0; i < (size_t)TAPS * CHANNELS; i++)
        l.taps[i] = 0.25f;
    /* of each element of the state: decayed, read by k, corrected, read by q */
    const double flops = 7.0 * (double)(n * keys) * HEAD_DIM;
    for (int each = 0; each < 2; each++) {
        l.each = each;
        const double speed = measure_layer(pool, &l, delta_part, HEADS * COL_BLOCKS, flops);
        printf("  delta, a decay a %-4s  %6.1f Gop/s %4.0f%%   %8.2f us a position\n",
               each ? "row" : "head", speed * 1e-9, speed / limit->f32 * 100,
               flops / speed / (double)n * 1e6);
    }
    const double values = (double)n * CHANNELS;
    const double speed = measure_layer(pool, &l, conv_part, CHANNELS / CHANNELS_EACH, values);
    printf("  conv, 4 taps, silu      %6.2f G/s              %8.2f us a position\n", speed * 1e-9,
           values / speed / (double)n * 1e6);
    free(l.x);
    free(l.y);
    free(l.decay);
    free(l.state);
    free(l.taps);
}

int main(int argc, char **argv)
{
    unsigned threads = 0;
    const char *table = NULL, *only = NULL;
    size_t n_rows = 8192, n_cols = 2048, n = 512;
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *v = argv[i + 1];
        switch (argv[i][1]) {
        case 't': threads = (unsigned)strtoul(v, NULL, 10); break;
        case 'k': table = v; break;
        case 'q': only = v; break;
        case 'r': n_rows = strtoul(v, NULL, 10); break;
        case 'c': n_cols = strtoul(v, NULL, 10); break;
        case 'm': cold_bytes = strtoul(v, NULL, 10) << 20; break;
        case 'n': n = strtoul(v, NULL, 10); break;
        default: fprintf(stderr, "unknown option %s\n", argv[i]); return 2;
        }
    }
    struct pool *pool;
    linnet_error e;
    if (pool_create(threads, &pool, &e) != LINNET_OK) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    struct work w = {0};
    const unsigned n_threads = pool_threads(pool);
    if (n_threads == 1)
        clock_id = CLOCK_PROCESS_CPUTIME_ID;
    for (unsigned i = 0; i < n_threads && i < MAX_THREADS; i++)
        w.scratch[i] = take(KERNEL_SCRATCH);
    printf("%u threads, %zu x %zu, %zu columns\n", n_threads, n_rows, n_cols, n);
    for (size_t i = 0; i < kernels_count(); i++) {
        w.k = kernels_at(i);
        if (!w.k->supported() || (table && strcmp(table, w.k->name) != 0))
            continue;
        struct probe limit = {0};
        if (probe_machine(pool, w.k, &limit, &e) != LINNET_OK) {
            fprintf(stderr, "%s\n", e.text);
            return 1;
        }
        printf("%s: read %.1f GB/s, int8 %.0f Gop/s, f32 %.0f Gop/s\n", w.k->name,
               limit.read * 1e-9, limit.int8 * 1e-9, limit.f32 * 1e-9);
        if (only && strcmp(only, "recurrent") == 0) {
            bench_recurrent(pool, w.k, n, &limit);
            continue;
        }
        for (size_t q = 0; q < quant_type_count(); q++) {
            const struct quant_type *t = quant_type_at(q);
            if (t->weight && (only ? strcmp(only, t->name) == 0 : t->block_bytes))
                bench_type(pool, &w, t, n_rows, n_cols, n, &limit);
        }
    }
    pool_destroy(pool);
    return 0;
}
