/*
 * Measuring the machine with the spin functions of a kernel table.
 *
 * Reading goes through PROBE_BYTES, more than the last-level caches of most machines hold, in huge
 * pages as weights lie in. With one thread the clock is processor time, which other programs
 * disturb less.
 */
#include "kernel/probe.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define PROBE_BYTES ((size_t)256 << 20)
enum {
    READ_CHUNK = 1 << 20,
    REPEATS = 5,
    CHUNKS_PER_THREAD = 4,
};
#define SPIN_SECONDS 0.01 /* of one measurement in registers */

struct probe_job {
    const struct kernels *k;
    uint8_t *bytes; /* [PROBE_BYTES] */
    uint64_t rounds;
    _Atomic uint64_t done; /* operations or bytes */
};

static void fill_chunk(void *arg, size_t chunk, unsigned worker)
{
    (void)worker;
    const struct probe_job *j = arg;
    memset(j->bytes + chunk * READ_CHUNK, 1, READ_CHUNK);
}

static void read_chunk(void *arg, size_t chunk, unsigned worker)
{
    (void)worker;
    struct probe_job *j = arg;
    atomic_fetch_add(&j->done, j->k->spin_read(j->bytes + chunk * READ_CHUNK, READ_CHUNK));
}

static void int8_chunk(void *arg, size_t chunk, unsigned worker)
{
    (void)chunk;
    (void)worker;
    struct probe_job *j = arg;
    atomic_fetch_add(&j->done, j->k->spin_int8(j->rounds));
}

static void f32_chunk(void *arg, size_t chunk, unsigned worker)
{
    (void)chunk;
    (void)worker;
    struct probe_job *j = arg;
    atomic_fetch_add(&j->done, j->k->spin_f32(j->rounds));
}

static double now(const struct pool *pool)
{
    struct timespec t;
    clock_gettime(pool_threads(pool) == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds of one pass; what it did is in j->done. */
static double pass(struct pool *pool, struct probe_job *j, pool_fn *fn, size_t chunks)
{
    atomic_store(&j->done, 0);
    const double t = now(pool);
    pool_run(pool, chunks, fn, j);
    return now(pool) - t;
}

static double best_of(struct pool *pool, struct probe_job *j, pool_fn *fn, size_t chunks,
                      double best)
{
    for (int i = 0; i < REPEATS; i++) {
        const double t = pass(pool, j, fn, chunks), speed = (double)atomic_load(&j->done) / t;
        best = speed > best ? speed : best;
    }
    return best;
}

static double best_spin(struct pool *pool, struct probe_job *j, pool_fn *fn, double best)
{
    const size_t chunks = (size_t)pool_threads(pool) * CHUNKS_PER_THREAD;
    for (j->rounds = 1000;
         pass(pool, j, fn, chunks) < SPIN_SECONDS && j->rounds < UINT64_C(1) << 40; j->rounds *= 2)
        ;
    return best_of(pool, j, fn, chunks, best);
}

linnet_status probe_machine(struct pool *pool, const struct kernels *k, struct probe *best,
                            linnet_error *e)
{
    struct probe_job job = {.k = k};
    void *bytes =
        mmap(NULL, PROBE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (bytes == MAP_FAILED)
        return err_memory(e, "memory to measure with", PROBE_BYTES);
    madvise(bytes, PROBE_BYTES, MADV_HUGEPAGE); /* advice: a refusal costs speed only */
    job.bytes = bytes;
    pool_run(pool, PROBE_BYTES / READ_CHUNK, fill_chunk, &job);
    best->read = best_of(pool, &job, read_chunk, PROBE_BYTES / READ_CHUNK, best->read);
    best->int8 = best_spin(pool, &job, int8_chunk, best->int8);
    best->f32 = best_spin(pool, &job, f32_chunk, best->f32);
    munmap(bytes, PROBE_BYTES);
    return LINNET_OK;
}
