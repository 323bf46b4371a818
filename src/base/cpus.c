/*
 * How many threads this process can keep running: the affinity mask, the cores behind it, and the
 * CPU quota of its control group; and which memory they are near to.
 *
 * A quota is a share of time, not of processors: threads above it are all stopped together for the
 * rest of the period, and a barrier between them then waits for the scheduler. So a quota of 1.5
 * CPUs means one thread. The quota of every enclosing group counts; the smallest wins. In a
 * container the path in /proc/self/cgroup may lie outside of what is mounted: groups that are not
 * there are skipped, and the walk ends at the mount's root, which then is the container's own
 * group.
 *
 * Everything is read through `root` + path, so that tests can lay out a machine of their own.
 */
#include "base/pool.h"

#include "base/limits.h"

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* the kernel's largest NR_CPUS; its PATH_MAX; more nodes than boards have sockets */
enum { MAX_CPUS = 8192, PATH_SIZE = 4096, MAX_NODES = 64 };

struct cpuset {
    unsigned long word[MAX_CPUS / (8 * sizeof(unsigned long))];
};

enum { WORD_BITS = 8 * sizeof(unsigned long) };

static bool has_cpu(const struct cpuset *s, unsigned cpu)
{
    return cpu < MAX_CPUS && (s->word[cpu / WORD_BITS] >> cpu % WORD_BITS & 1);
}

static void add_cpu(struct cpuset *s, unsigned cpu)
{
    if (cpu < MAX_CPUS)
        s->word[cpu / WORD_BITS] |= 1ul << cpu % WORD_BITS;
}

/* The kernel's list form: "0-3,8,10-11". */
static struct cpuset parse_list(const char *s)
{
    struct cpuset set = {{0}};
    while (*s >= '0' && *s <= '9') {
        char *end;
        unsigned long first = strtoul(s, &end, 10), last = first;
        if (*end == '-')
            last = strtoul(end + 1, &end, 10);
        for (unsigned long c = first; c <= last && c < MAX_CPUS; c++)
            add_cpu(&set, (unsigned)c);
        s = *end == ',' ? end + 1 : end;
    }
    return set;
}

static FILE *open_under(const char *root, const char *path)
{
    char full[2 * PATH_SIZE];
    int n = snprintf(full, sizeof full, "%s%s", root ? root : "", path);
    return n > 0 && (size_t)n < sizeof full ? fopen(full, "re") : NULL;
}

/* First line of a file; false when it is not there. */
static bool read_line(const char *root, const char *path, char *out, int size)
{
    FILE *f = open_under(root, path);
    if (!f)
        return false;
    bool ok = fgets(out, size, f) != NULL;
    fclose(f);
    return ok;
}

/* The mask of the calling thread, which its children inherit; under a test root that of its status
 * file. */
static struct cpuset read_affinity(const char *root)
{
    FILE *f = root ? open_under(root, "/proc/self/status") : NULL;
    if (f) {
        char line[PATH_SIZE];
        const char *name = "Cpus_allowed_list:\t";
        struct cpuset set = {{0}};
        while (fgets(line, sizeof line, f))
            if (strncmp(line, name, strlen(name)) == 0)
                set = parse_list(line + strlen(name));
        fclose(f);
        return set;
    }
    struct cpuset set = {{0}};
    if (sched_getaffinity(0, sizeof set, (cpu_set_t *)set.word) != 0)
        add_cpu(&set, 0);
    return set;
}

/* True unless a processor of the mask with a smaller number belongs to the same core. */
static bool is_first_of_core(const char *root, const struct cpuset *mask, unsigned cpu)
{
    char path[128], line[PATH_SIZE];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/topology/thread_siblings_list", cpu);
    if (!read_line(root, path, line, sizeof line))
        return true;
    struct cpuset siblings = parse_list(line);
    for (unsigned c = 0; c < cpu; c++)
        if (has_cpu(&siblings, c) && has_cpu(mask, c))
            return false;
    return true;
}

static unsigned count_cpus(const char *root, bool cores)
{
    struct cpuset mask = read_affinity(root);
    unsigned n = 0;
    for (unsigned c = 0; c < MAX_CPUS; c++)
        if (has_cpu(&mask, c) && (!cores || is_first_of_core(root, &mask, c)))
            n++;
    return n;
}

/* Whole CPUs of the quota in the group directory `dir`; UINT_MAX when it has none. */
static unsigned quota_of_group(const char *root, const char *dir, bool v2)
{
    char path[PATH_SIZE], line[128], period_line[128];
    long long quota = 0, period = 0;
    int n = snprintf(path, sizeof path, "%s/%s", dir, v2 ? "cpu.max" : "cpu.cfs_quota_us");
    if (n < 0 || (size_t)n >= sizeof path || !read_line(root, path, line, sizeof line))
        return UINT32_MAX;
    if (v2) {
        if (sscanf(line, "%18lld %18lld", &quota, &period) != 2) /* "max 100000": no limit */
            return UINT32_MAX;
    } else {
        n = snprintf(path, sizeof path, "%s/cpu.cfs_period_us", dir);
        if (n < 0 || (size_t)n >= sizeof path ||
            !read_line(root, path, period_line, sizeof period_line))
            return UINT32_MAX;
        quota = strtoll(line, NULL, 10); /* -1: no limit */
        period = strtoll(period_line, NULL, 10);
    }
    if (quota <= 0 || period <= 0)
        return UINT32_MAX;
    long long whole = quota / period;
    return whole < 1 ? 1 : whole > LIMIT_THREADS ? LIMIT_THREADS : (unsigned)whole;
}

/* Smallest quota of the group `group` below `mount` and all groups around it. */
static unsigned quota_of_path(const char *root, const char *mount, const char *group, bool v2)
{
    char dir[PATH_SIZE];
    if (strstr(group, "..")) /* a group outside of the namespace: only the root is visible */
        group = "/";
    int n = snprintf(dir, sizeof dir, "%s%s", mount, group);
    if (n < 0 || (size_t)n >= sizeof dir)
        return UINT32_MAX;
    unsigned least = UINT32_MAX;
    for (size_t mount_length = strlen(mount);;) {
        unsigned q = quota_of_group(root, dir, v2);
        if (q < least)
            least = q;
        char *slash = strrchr(dir, '/');
        if (!slash || (size_t)(slash - dir) < mount_length)
            return least;
        *slash = '\0';
    }
}

/* True when the comma-separated list has `name`. */
static bool list_has(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *s = list; s; s = strchr(s, ','), s = s ? s + 1 : NULL)
        if (strncmp(s, name, n) == 0 && (s[n] == ',' || s[n] == '\0'))
            return true;
    return false;
}

/* Lines of /proc/self/cgroup are "id:controllers:path"; version 2 has id 0 and no controllers. */
static unsigned read_quota(const char *root)
{
    FILE *f = open_under(root, "/proc/self/cgroup");
    if (!f)
        return UINT32_MAX;
    static const char *const v1_mounts[] = {"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"};
    static const char *const v2_mounts[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
    char line[PATH_SIZE];
    unsigned least = UINT32_MAX;
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group)
            continue;
        *controllers++ = '\0';
        *group++ = '\0';
        bool v2 = strcmp(line, "0") == 0 && *controllers == '\0';
        if (!v2 && !list_has(controllers, "cpu"))
            continue;
        for (size_t i = 0; i < 2; i++) {
            unsigned q = quota_of_path(root, v2 ? v2_mounts[i] : v1_mounts[i], group, v2);
            if (q < least)
                least = q;
        }
    }
    fclose(f);
    return least;
}

static unsigned limited(const char *root, bool cores)
{
    unsigned n = count_cpus(root, cores), quota = read_quota(root);
    if (n > quota)
        n = quota;
    return n < 1 ? 1 : n > LIMIT_THREADS ? LIMIT_THREADS : n;
}

static bool node_cpus(const char *root, unsigned node, struct cpuset *out)
{
    char path[128], line[PATH_SIZE];
    snprintf(path, sizeof path, "/sys/devices/system/node/node%u/cpulist", node);
    if (!read_line(root, path, line, sizeof line))
        return false;
    *out = parse_list(line);
    return true;
}

/* Cores of the mask on each node, up to `max` nodes; their sum. */
static unsigned count_node_cores(const char *root, unsigned *cores, unsigned max)
{
    const struct cpuset mask = read_affinity(root);
    unsigned total = 0;
    for (unsigned node = 0; node < max; node++) {
        struct cpuset cpus;
        cores[node] = 0;
        if (!node_cpus(root, node, &cpus))
            continue;
        for (unsigned c = 0; c < MAX_CPUS; c++)
            if (has_cpu(&cpus, c) && has_cpu(&mask, c) && is_first_of_core(root, &mask, c))
                cores[node]++;
        total += cores[node];
    }
    return total;
}

void pool_nodes(const char *root, unsigned n_threads, uint16_t *node_of)
{
    unsigned cores[MAX_NODES], total = count_node_cores(root, cores, MAX_NODES), before = 0, t = 0;
    for (unsigned node = 0; node < MAX_NODES && total; node++) {
        before += cores[node];
        for (const unsigned end = (n_threads * before + total / 2) / total; t < end; t++)
            node_of[t] = (uint16_t)node;
    }
    for (; t < n_threads; t++)
        node_of[t] = 0;
}

void pool_bind(uint16_t node)
{
    struct cpuset cpus, mask = read_affinity(NULL);
    unsigned long any = 0;
    if (!node_cpus(NULL, node, &cpus))
        return;
    for (size_t i = 0; i < sizeof mask.word / sizeof *mask.word; i++)
        any |= mask.word[i] &= cpus.word[i];
    if (any)
        sched_setaffinity(0, sizeof mask, (cpu_set_t *)mask.word);
}

unsigned pool_default_threads(const char *root)
{
    return limited(root, true);
}

unsigned pool_cpus_allowed(const char *root)
{
    return limited(root, false);
}
