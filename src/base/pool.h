/*
 * The thread pool: one set of workers that runs one job at a time, split into chunks taken by an
 * atomic counter. The caller's thread works too. Workers spin briefly after a job, then sleep, so
 * that a decode step costs microseconds and an idle process nothing.
 *
 * Results must not depend on which worker runs a chunk or how many workers there are: jobs write
 * disjoint outputs and reduce nothing across chunks.
 */
#ifndef LINNET_BASE_POOL_H
#define LINNET_BASE_POOL_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

struct pool;

/* Runs chunk `chunk` of the job. `worker` is 0 for the caller, 1..n-1 for the rest: an index into
 * per-worker scratch, nothing else. */
typedef void pool_fn(void *arg, size_t chunk, unsigned worker);

/* A pool of `n_threads` in all, the caller included. 0 means pool_default_threads(). Threads are
 * shared out over memory nodes by pool_nodes(). */
linnet_status pool_create(unsigned n_threads, struct pool **out, linnet_error *e);

/* The same with the node of each thread given: node_of [n_threads], equal ones next to each other.
 */
linnet_status pool_create_on(const uint16_t *node_of, unsigned n_threads, struct pool **out,
                             linnet_error *e);
void pool_destroy(struct pool *p);

unsigned pool_threads(const struct pool *p);
/* Memory nodes its threads are on. */
unsigned pool_n_nodes(const struct pool *p);

/* Run fn(arg, c, worker) for every c in [0, n_chunks), return when all are done. Threads of a node
 * take the chunks of its share first, [0, n_chunks) cut in the ratio of threads: jobs that cut the
 * same memory in the same ratio find it where they first touched it. Calls from several threads are
 * serialised. With one thread, or one chunk, nothing is dispatched. Never allocates. */
void pool_run(struct pool *p, size_t n_chunks, pool_fn *fn, void *arg);

/* Threads worth using: cores in the affinity mask (hyper-threads of one core count once), limited
 * by the cgroup v1/v2 quota (rounded down, at least 1). `root` is prefixed to /sys and /proc paths
 * for tests; NULL means the real ones. */
unsigned pool_default_threads(const char *root);

/* Threads that can run at the same time: as above, but every hyper-thread counts. */
unsigned pool_cpus_allowed(const char *root);

/* Share n_threads out over the memory nodes with cores in the affinity mask, in the ratio of those
 * cores: node_of [n_threads] gets the number of each thread's node, rising. One node, 0, where the
 * machine does not tell. */
void pool_nodes(const char *root, unsigned n_threads, uint16_t *node_of);

/* Keep the calling thread on the allowed processors of a node; nothing happens where there are
 * none. */
void pool_bind(uint16_t node);

#endif
