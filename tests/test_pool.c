#include "test.h"

#include "base/limits.h"
#include "base/pool.h"
#include "tempdir.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

/* ---- running jobs ---- */

enum { MAX_CHUNKS = 4096 };

struct job {
    unsigned n_threads;
    unsigned visits[MAX_CHUNKS]; /* times each chunk ran: not atomic, a double run is a data race */
    _Atomic unsigned bad_worker;
};

static void count_visit(void *arg, size_t chunk, unsigned worker)
{
    struct job *j = arg;
    j->visits[chunk]++;
    if (worker >= j->n_threads)
        atomic_fetch_add(&j->bad_worker, 1);
}

static void check_run(struct pool *p, struct job *j, size_t n_chunks)
{
    memset(j->visits, 0, sizeof j->visits);
    j->n_threads = pool_threads(p);
    pool_run(p, n_chunks, count_visit, j);
    for (size_t c = 0; c < MAX_CHUNKS; c++)
        if (j->visits[c] != (c < n_chunks))
            fail_msg("%u threads, %zu chunks: chunk %zu ran %u times", j->n_threads, n_chunks, c,
                     j->visits[c]);
    assert_int_equal(atomic_load(&j->bad_worker), 0);
}

static void every_chunk_runs_exactly_once(void **state)
{
    (void)state;
    linnet_error e;
    static struct job j;
    static const size_t counts[] = {0, 1, 2, 3, 7, 63, 64, 65, 1000, MAX_CHUNKS};
    for (unsigned threads = 1; threads <= 64; threads = threads < 9 ? threads + 1 : threads * 2) {
        struct pool *p = NULL;
        assert_ok(pool_create(threads, &p, &e), e);
        assert_int_equal(pool_threads(p), threads);
        for (unsigned round = 0; round < 20; round++)
            for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
                check_run(p, &j, counts[i]);
        pool_destroy(p);
    }
}

/* Field bug 23: the number of threads changes from call to call, and no work is lost or done twice.
 */
static void results_do_not_depend_on_a_changing_thread_count(void **state)
{
    (void)state;
    linnet_error e;
    static struct job j;
    uint32_t seed = 1;
    for (unsigned round = 0; round < 300; round++) {
        seed = seed * 1664525u + 1013904223u;
        struct pool *p = NULL;
        assert_ok(pool_create(1 + (seed >> 8) % 64, &p, &e), e);
        for (unsigned run = 0; run < round % 5; run++)
            check_run(p, &j, (seed >> 16) % 200 + run);
        pool_destroy(p);
    }
}

static void jobs_right_after_one_another_do_not_mix(void **state)
{
    (void)state;
    linnet_error e;
    static struct job jobs[2];
    struct pool *p = NULL;
    assert_ok(pool_create(4, &p, &e), e);
    for (unsigned k = 0; k < 2; k++)
        jobs[k].n_threads = 4;
    for (unsigned round = 0; round < 20000; round++) {
        struct job *j = &jobs[round & 1];
        size_t n = round % 9;
        for (size_t c = 0; c < 10; c++)
            j->visits[c] = 0;
        pool_run(p, n, count_visit, j);
        for (size_t c = 0; c < 10; c++)
            assert_int_equal(j->visits[c], c < n);
    }
    pool_destroy(p);
}

static void sleep_a_little(void *arg, size_t chunk, unsigned worker)
{
    struct timespec t = {0, 200000};
    (void)worker;
    if (chunk == 0)
        nanosleep(&t, NULL); /* longer than anybody spins */
    ((unsigned *)arg)[chunk]++;
}

static void workers_and_caller_that_fell_asleep_are_woken(void **state)
{
    (void)state;
    linnet_error e;
    struct pool *p = NULL;
    assert_ok(pool_create(2, &p, &e), e);
    unsigned visits[8] = {0};
    for (unsigned round = 0; round < 100; round++) {
        struct timespec pause = {0, 150000};
        nanosleep(&pause, NULL);
        pool_run(p, 2 + round % 7, sleep_a_little, visits);
    }
    assert_int_equal(visits[0], 100);
    assert_int_equal(visits[1], 100);
    assert_int_equal(visits[7], 14);
    pool_destroy(p);
}

struct client {
    struct pool *pool;
    unsigned long sum;
};

static void add_chunk(void *arg, size_t chunk, unsigned worker)
{
    (void)worker;
    ((unsigned long *)arg)[chunk] += chunk + 1;
}

static void *client_main(void *arg)
{
    struct client *c = arg;
    unsigned long part[10] = {0};
    for (unsigned i = 0; i < 1000; i++)
        pool_run(c->pool, 10, add_chunk, part);
    for (unsigned i = 0; i < 10; i++)
        c->sum += part[i];
    return NULL;
}

static void calls_from_several_threads_are_serialised(void **state)
{
    (void)state;
    linnet_error e;
    struct pool *p = NULL;
    assert_ok(pool_create(3, &p, &e), e);
    struct client clients[4];
    pthread_t threads[4];
    for (unsigned i = 0; i < 4; i++) {
        clients[i] = (struct client){p, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, client_main, &clients[i]), 0);
    }
    for (unsigned i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(clients[i].sum, 55000);
    }
    pool_destroy(p);
}

static void too_many_threads_are_refused(void **state)
{
    (void)state;
    linnet_error e;
    struct pool *p = NULL;
    assert_int_equal(pool_create(LIMIT_THREADS + 1, &p, &e), LINNET_LIMIT);
    assert_non_null(strstr(e.text, "513"));
    assert_null(p);
    pool_destroy(NULL);
    assert_ok(pool_create(0, &p, &e), e);
    assert_int_equal(pool_threads(p), pool_default_threads(NULL));
    pool_destroy(p);
}

enum { NODE_CHUNKS = 60 };

/* The chunks each worker ran, in its order. */
struct diary {
    size_t n[6], chunk[6][NODE_CHUNKS];
};

static void write_diary(void *arg, size_t chunk, unsigned worker)
{
    struct diary *d = arg;
    d->chunk[worker][d->n[worker]++] = chunk;
    sched_yield();
}

/* Field bug 29: memory is read by the threads of the node that wrote it first. */
static void threads_take_the_chunks_of_their_node_before_others(void **state)
{
    (void)state;
    linnet_error e;
    struct pool *p = NULL;
    const uint16_t node_of[6] = {3, 3, 5, 5, 5, 9}; /* none of this machine's */
    const size_t begin[6] = {0, 0, 20, 20, 20, 50}, end[6] = {20, 20, 50, 50, 50, 60};
    assert_ok(pool_create_on(node_of, 6, &p, &e), e);
    assert_int_equal(pool_n_nodes(p), 3);
    for (int round = 0; round < 50; round++) {
        struct diary d = {.n = {0}};
        pool_run(p, NODE_CHUNKS, write_diary, &d);
        for (unsigned w = 0; w < 6; w++) {
            bool away = false;
            for (size_t i = 0; i < d.n[w]; i++) {
                const bool own = d.chunk[w][i] >= begin[w] && d.chunk[w][i] < end[w];
                assert_false(own && away);
                away = !own;
            }
        }
        if (d.n[0])
            assert_true(d.chunk[0][0] < end[0]);
    }
    pool_destroy(p);
}

static void count_chunk(void *arg, size_t chunk, unsigned worker)
{
    (void)worker;
    atomic_fetch_add((_Atomic unsigned *)arg + chunk, 1);
}

static void nodes_that_are_done_help_the_others(void **state)
{
    (void)state;
    linnet_error e;
    struct pool *p = NULL;
    uint16_t node_of[40];
    for (uint16_t t = 0; t < 40; t++)
        node_of[t] = t; /* more nodes than are told apart */
    assert_ok(pool_create_on(node_of, 40, &p, &e), e);
    for (size_t n = 0; n < 200; n++) {
        _Atomic unsigned ran[200] = {0};
        pool_run(p, n, count_chunk, ran);
        for (size_t chunk = 0; chunk < n; chunk++)
            assert_int_equal(ran[chunk], 1);
    }
    pool_destroy(p);
}

/* ---- how many threads ---- */

static char root[64];

static int make_root(void **state)
{
    (void)state;
    tempdir_make(root);
    return 0;
}

static int remove_root(void **state)
{
    (void)state;
    tempdir_remove(root);
    return 0;
}

static void put(const char *name, const char *text)
{
    tempdir_text(root, name, text);
}

/* A machine with `n` processors in cores of `width`, numbered as Linux does: all first threads,
 * then all second. */
static void put_machine(unsigned n, unsigned width)
{
    char name[128], text[128];
    snprintf(text, sizeof text, "Name:\tx\nCpus_allowed:\tffff\nCpus_allowed_list:\t0-%u\n", n - 1);
    put("proc/self/status", text);
    unsigned cores = n / width;
    for (unsigned c = 0; c < n; c++) {
        size_t used = 0;
        for (unsigned t = 0; t < width; t++)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%u", t ? "," : "",
                                     c % cores + t * cores);
        strcpy(text + used, "\n");
        snprintf(name, sizeof name, "sys/devices/system/cpu/cpu%u/topology/thread_siblings_list",
                 c);
        put(name, text);
    }
}

static void hyper_threads_of_a_core_count_once(void **state)
{
    (void)state;
    put_machine(8, 2);
    assert_int_equal(pool_default_threads(root), 4);
    assert_int_equal(pool_cpus_allowed(root), 8);
    put("proc/self/status", "Cpus_allowed_list:\t4-7\n"); /* only second threads */
    assert_int_equal(pool_default_threads(root), 4);
    put("proc/self/status", "Cpus_allowed_list:\t0,4,5\n"); /* both of core 0, one of core 1 */
    assert_int_equal(pool_default_threads(root), 2);
    assert_int_equal(pool_cpus_allowed(root), 3);
}

static void a_machine_that_says_nothing_about_cores_counts_processors(void **state)
{
    (void)state;
    put("proc/self/status", "Cpus_allowed_list:\t0-2,5\n");
    assert_int_equal(pool_default_threads(root), 4);
    put("proc/self/status", "Cpus_allowed_list:\t0-1023\n");
    assert_int_equal(pool_default_threads(root), LIMIT_THREADS);
}

/* Field bug 28: more threads than the quota pays for stop each other. */
static void a_quota_of_one_and_a_half_means_one_thread(void **state)
{
    (void)state;
    put_machine(8, 1);
    put("proc/self/cgroup", "0::/app\n");
    put("sys/fs/cgroup/app/cpu.max", "150000 100000\n");
    assert_int_equal(pool_default_threads(root), 1);
    put("sys/fs/cgroup/app/cpu.max", "350000 100000\n");
    assert_int_equal(pool_default_threads(root), 3);
    put("sys/fs/cgroup/app/cpu.max", "50000 100000\n");
    assert_int_equal(pool_default_threads(root), 1);
    put("sys/fs/cgroup/app/cpu.max", "max 100000\n");
    assert_int_equal(pool_default_threads(root), 8);
    put("sys/fs/cgroup/app/cpu.max", "999999999999 100000\n");
    assert_int_equal(pool_default_threads(root), 8);
}

static void the_smallest_quota_on_the_way_up_wins(void **state)
{
    (void)state;
    put_machine(16, 1);
    put("proc/self/cgroup", "0::/slice/app/worker\n");
    put("sys/fs/cgroup/slice/app/worker/cpu.max", "1200000 100000\n");
    put("sys/fs/cgroup/slice/app/cpu.max", "max 100000\n");
    put("sys/fs/cgroup/slice/cpu.max", "500000 100000\n");
    assert_int_equal(pool_default_threads(root), 5);
    put("sys/fs/cgroup/cpu.max", "200000 100000\n");
    assert_int_equal(pool_default_threads(root), 2);
}

static void the_first_version_of_control_groups_is_understood(void **state)
{
    (void)state;
    put_machine(8, 1);
    put("proc/self/cgroup", "5:memory:/x\n4:cpuset:/y\n3:cpu,cpuacct:/docker/abc\n0::/\n");
    put("sys/fs/cgroup/cpu/docker/abc/cpu.cfs_quota_us", "-1\n");
    put("sys/fs/cgroup/cpu/docker/abc/cpu.cfs_period_us", "100000\n");
    assert_int_equal(pool_default_threads(root), 8);
    put("sys/fs/cgroup/cpu/docker/abc/cpu.cfs_quota_us", "250000\n");
    assert_int_equal(pool_default_threads(root), 2);
    put("sys/fs/cgroup/cpu/docker/abc/cpu.cfs_period_us", "0\n"); /* nonsense is no limit */
    assert_int_equal(pool_default_threads(root), 8);
}

static void a_group_seen_from_inside_a_container_is_found_at_the_root(void **state)
{
    (void)state;
    put_machine(8, 1);
    put("proc/self/cgroup", "3:cpuacct,cpu:/docker/not/visible/here\n");
    put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "400000\n");
    put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    assert_int_equal(pool_default_threads(root), 4);
    put("proc/self/cgroup", "0::/../../elsewhere\n");
    put("sys/fs/cgroup/cpu.max", "300000 100000\n");
    put("elsewhere/cpu.max", "100000 100000\n");
    assert_int_equal(pool_default_threads(root), 3);
}

static void check_nodes(unsigned n_threads, const uint16_t *want)
{
    uint16_t got[16];
    pool_nodes(root, n_threads, got);
    assert_memory_equal(got, want, n_threads * sizeof *got);
}

static void threads_are_shared_out_over_nodes_by_their_cores(void **state)
{
    (void)state;
    put_machine(16, 2); /* cores 0-7 with second threads 8-15 */
    check_nodes(4, (const uint16_t[]){0, 0, 0, 0});
    put("sys/devices/system/node/node0/cpulist", "0-3,8-11\n");
    put("sys/devices/system/node/node1/cpulist", "\n"); /* memory alone */
    put("sys/devices/system/node/node2/cpulist", "4-7,12-15\n");
    check_nodes(8, (const uint16_t[]){0, 0, 0, 0, 2, 2, 2, 2});
    check_nodes(2, (const uint16_t[]){0, 2});
    check_nodes(1, (const uint16_t[]){0});
    put("proc/self/status", "Cpus_allowed_list:\t0-3,8-11\n");
    check_nodes(6, (const uint16_t[]){0, 0, 0, 0, 0, 0});
    put("proc/self/status", "Cpus_allowed_list:\t0,4-6\n"); /* one core here, three there */
    check_nodes(4, (const uint16_t[]){0, 2, 2, 2});
    check_nodes(12, (const uint16_t[]){0, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2, 2});
}

static void the_affinity_mask_limits_the_default(void **state)
{
    (void)state;
    cpu_set_t old, one;
    assert_int_equal(sched_getaffinity(0, sizeof old, &old), 0);
    CPU_ZERO(&one);
    for (size_t c = 0; c < CPU_SETSIZE; c++)
        if (CPU_ISSET(c, &old) && CPU_COUNT(&one) == 0)
            CPU_SET(c, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    unsigned n = pool_default_threads(NULL);
    sched_setaffinity(0, sizeof old, &old);
    assert_int_equal(n, 1);
    assert_in_range(pool_default_threads(NULL), 1, (unsigned)CPU_COUNT(&old));
}

int main(void)
{
#define WITH_ROOT(f) cmocka_unit_test_setup_teardown(f, make_root, remove_root)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_chunk_runs_exactly_once),
        cmocka_unit_test(results_do_not_depend_on_a_changing_thread_count),
        cmocka_unit_test(jobs_right_after_one_another_do_not_mix),
        cmocka_unit_test(workers_and_caller_that_fell_asleep_are_woken),
        cmocka_unit_test(calls_from_several_threads_are_serialised),
        cmocka_unit_test(too_many_threads_are_refused),
        cmocka_unit_test(threads_take_the_chunks_of_their_node_before_others),
        cmocka_unit_test(nodes_that_are_done_help_the_others),
        WITH_ROOT(threads_are_shared_out_over_nodes_by_their_cores),
        WITH_ROOT(hyper_threads_of_a_core_count_once),
        WITH_ROOT(a_machine_that_says_nothing_about_cores_counts_processors),
        WITH_ROOT(a_quota_of_one_and_a_half_means_one_thread),
        WITH_ROOT(the_smallest_quota_on_the_way_up_wins),
        WITH_ROOT(the_first_version_of_control_groups_is_understood),
        WITH_ROOT(a_group_seen_from_inside_a_container_is_found_at_the_root),
        cmocka_unit_test(the_affinity_mask_limits_the_default),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
