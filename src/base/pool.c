/*
 * The thread pool.
 *
 * A job is published by setting the `next` of each lane and moving `epoch`. A lane is the share of
 * the chunks that belongs to the threads of one memory node. Whoever is awake takes chunk numbers
 * from its own lane until they run out, then from the others. A job is finished when its chunks
 * have run, not when every worker has been there: workers that sleep through a job cost it nothing,
 * so a pool with more threads than processors does not wait for the scheduler.
 *
 * What keeps a late worker out of the next job: it sets its flag `inside` before it takes a number,
 * and the caller, having closed every lane, waits until every flag is clear before it touches the
 * job's fields. Both sides write one word and then read the other (sequentially consistent), so
 * either the caller sees the flag and waits, or the worker sees the closed counter and leaves
 * without reading the fields.
 *
 * Waiting is a spin of at most SPIN_NS, then a futex. Nobody spins in a pool with more threads than
 * the affinity mask and quota let run: a spinning thread would take the time of one with work to
 * do. Such a pool also wakes no more workers than can run.
 *
 * A job must not call pool_run on its own pool.
 */
#include "base/pool.h"

#include "base/limits.h"

#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    MAX_LANES = 16, /* nodes after them share the last */
    LINE = 128,     /* two cache lines: x86 prefetches the neighbour of a missed line */
    SPIN_NS = 50 * 1000,
    SPIN_ROUNDS = 64, /* pauses between two looks at the clock */
};

static const uint64_t closed = UINT64_C(1) << 63;

struct lane {
    alignas(LINE) _Atomic uint64_t next; /* next chunk number; `closed` or more between jobs */
    uint64_t end;                        /* of the job's chunks in this lane */
    unsigned last;                       /* of its threads, + 1; they begin where lane - 1 ends */
};

struct pool_worker {
    alignas(LINE) _Atomic uint32_t inside; /* may be reading the job; futex of the caller */
    unsigned index;                        /* 1 .. n_threads - 1 */
    unsigned lane;
    uint16_t node;
    struct pool *pool;
    pthread_t thread;
};

struct pool {
    alignas(LINE) _Atomic uint32_t epoch; /* moves with every job; futex of sleeping workers */
    _Atomic bool stop;
    /* The job, and the ends of lanes: written while lanes are closed and nobody is inside. */
    pool_fn *fn;
    void *arg;

    struct lane lanes[MAX_LANES];
    unsigned n_lanes;

    alignas(LINE) _Atomic uint32_t sleepers; /* workers in the futex or on their way into it */
    _Atomic uint32_t caller_sleeps;

    alignas(LINE) pthread_mutex_t lock; /* serialises callers */
    unsigned n_threads;
    unsigned n_started;          /* workers that exist */
    unsigned max_helpers;        /* workers worth waking */
    bool spin;                   /* threads may spin while they wait */
    struct pool_worker *workers; /* [n_threads - 1] */
};

static void futex_wait(_Atomic uint32_t *word, uint32_t value)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, unsigned n)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb"); /* `yield` does nothing on most cores; isb waits tens of cycles */
#endif
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Spin while *word == value; true when it changed in time. */
static bool spin_while(_Atomic uint32_t *word, uint32_t value)
{
    uint64_t end = 0;
    for (;;) {
        for (unsigned i = 0; i < SPIN_ROUNDS; i++) {
            if (atomic_load_explicit(word, memory_order_relaxed) != value)
                return true;
            relax();
        }
        uint64_t now = now_ns();
        if (end == 0)
            end = now + SPIN_NS;
        else if (now >= end)
            return false;
    }
}

/* Take chunks until there are none, from lane `own` on. */
static void work(struct pool *p, unsigned worker, unsigned own)
{
    for (unsigned i = 0; i < p->n_lanes; i++) {
        struct lane *l = &p->lanes[(own + i) % p->n_lanes];
        uint64_t c = atomic_fetch_add(&l->next, 1);
        if (c >= closed)
            continue;
        const uint64_t end = l->end;
        for (; c < end; c = atomic_fetch_add_explicit(&l->next, 1, memory_order_relaxed))
            p->fn(p->arg, (size_t)c, worker);
    }
}

/* Share the chunks out over the lanes in the ratio of their threads, and open them. */
static void open_lanes(struct pool *p, size_t n_chunks)
{
    uint64_t begin[MAX_LANES];
    for (unsigned i = 0; i < p->n_lanes; i++) {
        struct lane *l = &p->lanes[i];
        begin[i] = i ? p->lanes[i - 1].end : 0;
        l->end = (uint64_t)(n_chunks / p->n_threads) * l->last +
                 n_chunks % p->n_threads * l->last / p->n_threads;
    }
    for (unsigned i = 0; i < p->n_lanes; i++)
        atomic_store(&p->lanes[i].next, begin[i]);
}

static void close_lanes(struct pool *p)
{
    for (unsigned i = 0; i < p->n_lanes; i++)
        atomic_store(&p->lanes[i].next, closed);
}

static void wait_for_job(struct pool *p, uint32_t seen)
{
    if (p->spin && spin_while(&p->epoch, seen))
        return;
    atomic_fetch_add(&p->sleepers, 1);
    while (atomic_load(&p->epoch) == seen)
        futex_wait(&p->epoch, seen);
    atomic_fetch_sub(&p->sleepers, 1);
}

static void *worker_main(void *arg)
{
    struct pool_worker *w = arg;
    struct pool *p = w->pool;
    if (p->n_lanes > 1)
        pool_bind(w->node);
    for (uint32_t seen = 0;;) {
        wait_for_job(p, seen);
        seen = atomic_load(&p->epoch);
        if (atomic_load(&p->stop))
            return NULL;
        atomic_store(&w->inside, 1);
        work(p, w->index, w->lane);
        atomic_store(&w->inside, 0);
        if (atomic_load(&p->caller_sleeps))
            futex_wake(&w->inside, 1);
    }
}

/* Wake as many sleepers as can help with `n_chunks` besides those who are awake and the caller. */
static void wake_helpers(struct pool *p, size_t n_chunks)
{
    unsigned asleep = atomic_load(&p->sleepers);
    unsigned awake = p->n_started - asleep;
    unsigned want = n_chunks - 1 < p->max_helpers ? (unsigned)(n_chunks - 1) : p->max_helpers;
    if (asleep > 0 && want > awake)
        futex_wake(&p->epoch, want - awake < asleep ? want - awake : asleep);
}

/* After the lanes were closed: wait until no worker can be reading the job. */
static void wait_until_left(struct pool *p)
{
    for (unsigned i = 0; i < p->n_started; i++) {
        _Atomic uint32_t *inside = &p->workers[i].inside;
        if (atomic_load(inside) == 0)
            continue;
        if (p->spin && spin_while(inside, 1) && atomic_load(inside) == 0)
            continue;
        atomic_store(&p->caller_sleeps, 1);
        while (atomic_load(inside) != 0)
            futex_wait(inside, 1);
        atomic_store(&p->caller_sleeps, 0);
    }
}

void pool_run(struct pool *p, size_t n_chunks, pool_fn *fn, void *arg)
{
    if (n_chunks == 0)
        return;
    pthread_mutex_lock(&p->lock);
    if (n_chunks == 1 || p->n_started == 0) {
        for (size_t c = 0; c < n_chunks; c++)
            fn(arg, c, 0);
    } else {
        p->fn = fn;
        p->arg = arg;
        open_lanes(p, n_chunks);
        atomic_fetch_add(&p->epoch, 1);
        wake_helpers(p, n_chunks);
        work(p, 0, 0);
        close_lanes(p);
        wait_until_left(p);
    }
    pthread_mutex_unlock(&p->lock);
}

unsigned pool_threads(const struct pool *p)
{
    return p->n_threads;
}

unsigned pool_n_nodes(const struct pool *p)
{
    return p->n_lanes;
}

/* A lane for each run of threads with the same node. */
static void make_lanes(struct pool *p, const uint16_t *node_of)
{
    for (unsigned t = 0; t < p->n_threads; t++) {
        const bool more = t == 0 || (node_of[t] != node_of[t - 1] && p->n_lanes < MAX_LANES);
        p->n_lanes += more;
        p->lanes[p->n_lanes - 1].last = t + 1;
        if (t > 0) {
            p->workers[t - 1].lane = p->n_lanes - 1;
            p->workers[t - 1].node = node_of[t];
        }
    }
    close_lanes(p);
}

/* Workers take no signals: handlers run in the threads of the program that installed them. */
static linnet_status start_workers(struct pool *p, linnet_error *e)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int error = 0;
    while (p->n_started + 1 < p->n_threads) {
        struct pool_worker *w = &p->workers[p->n_started];
        w->pool = p;
        w->index = p->n_started + 1;
        error = pthread_create(&w->thread, NULL, worker_main, w);
        if (error)
            break;
        p->n_started++;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (error)
        return err_set(e, LINNET_NO_MEMORY, "cannot start thread %u of %u: ask for fewer threads",
                       p->n_started + 2, p->n_threads);
    return LINNET_OK;
}

linnet_status pool_create(unsigned n_threads, struct pool **out, linnet_error *e)
{
    uint16_t node_of[LIMIT_THREADS];
    if (n_threads == 0)
        n_threads = pool_default_threads(NULL);
    if (n_threads > LIMIT_THREADS)
        return err_set(e, LINNET_LIMIT, "%u threads asked for; the limit is %d", n_threads,
                       LIMIT_THREADS);
    pool_nodes(NULL, n_threads, node_of);
    return pool_create_on(node_of, n_threads, out, e);
}

linnet_status pool_create_on(const uint16_t *node_of, unsigned n_threads, struct pool **out,
                             linnet_error *e)
{
    struct pool *p = aligned_alloc(LINE, sizeof *p);
    if (!p)
        return err_memory(e, "the thread pool", sizeof *p);
    memset(p, 0, sizeof *p);
    pthread_mutex_init(&p->lock, NULL);
    p->n_threads = n_threads;

    unsigned cpus = pool_cpus_allowed(NULL);
    p->spin = n_threads <= cpus;
    p->max_helpers = p->spin ? n_threads - 1 : cpus > 2 ? cpus - 1 : 1;

    size_t size = sizeof *p->workers * (n_threads - 1);
    linnet_status status = LINNET_OK;
    if (n_threads > 1) {
        p->workers = aligned_alloc(LINE, size);
        if (p->workers)
            memset(p->workers, 0, size);
        else
            status = err_memory(e, "the thread pool", size);
    }
    if (status == LINNET_OK) {
        make_lanes(p, node_of);
        status = start_workers(p, e);
    }
    if (status != LINNET_OK) {
        pool_destroy(p);
        return status;
    }
    *out = p;
    return LINNET_OK;
}

void pool_destroy(struct pool *p)
{
    if (!p)
        return;
    atomic_store(&p->stop, true);
    atomic_fetch_add(&p->epoch, 1);
    futex_wake(&p->epoch, LIMIT_THREADS);
    for (unsigned i = 0; i < p->n_started; i++)
        pthread_join(p->workers[i].thread, NULL);
    pthread_mutex_destroy(&p->lock);
    free(p->workers);
    free(p);
}
