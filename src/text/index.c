/*
 * Building the index structures of a vocabulary (see index.h for what they are).
 *
 * Everything is sized before it is filled: a table never grows, a trie's nodes are counted first
 * from the common prefixes of the sorted strings. A false return means the arena had no room.
 */
#include "text/index.h"

#include "base/checked.h"

#include <stdlib.h>

/* Smallest power of two that holds n entries at a load of at most 2/3; 0 when that is too large. */
static size_t table_size(size_t n)
{
    size_t size = 8;
    while (size / 3 * 2 < n) {
        if (size > UINT32_MAX / 2)
            return 0;
        size *= 2;
    }
    return size;
}

bool strmap_init(struct strmap *m, struct arena *a, const struct str *keys, size_t max_entries)
{
    size_t size = table_size(max_entries);
    if (!size || !(m->slots = ARENA_ARRAY(a, size, struct strmap_slot)))
        return false;
    for (size_t i = 0; i < size; i++)
        m->slots[i].id = -1;
    m->keys = keys;
    m->mask = (uint32_t)(size - 1);
    m->max_len = 0;
    return true;
}

bool strmap_put(struct strmap *m, int32_t id)
{
    const struct str *k = &m->keys[id];
    uint64_t h = index_hash(k->s, k->n);
    uint32_t i = (uint32_t)h & m->mask;
    for (; m->slots[i].id >= 0; i = (i + 1) & m->mask) {
        const struct str *other = &m->keys[m->slots[i].id];
        if (m->slots[i].tag == (uint32_t)(h >> 32) && other->n == k->n &&
            memcmp(other->s, k->s, k->n) == 0)
            return false;
    }
    m->slots[i].id = id;
    m->slots[i].tag = (uint32_t)(h >> 32);
    if (k->n > m->max_len)
        m->max_len = k->n;
    return true;
}

bool pairmap_init(struct pairmap *m, struct arena *a, size_t max_entries)
{
    size_t size = table_size(max_entries);
    if (!size || !(m->slots = ARENA_ARRAY(a, size, struct pairmap_slot)))
        return false;
    for (size_t i = 0; i < size; i++)
        m->slots[i].left = -1;
    m->mask = (uint32_t)(size - 1);
    return true;
}

void pairmap_put(struct pairmap *m, int32_t left, int32_t right, uint32_t rank, int32_t id)
{
    uint32_t i = pairmap_hash(left, right) & m->mask;
    for (; m->slots[i].left >= 0; i = (i + 1) & m->mask)
        if (m->slots[i].left == left && m->slots[i].right == right)
            return;
    m->slots[i] = (struct pairmap_slot){left, right, rank, id};
}

static int compare_str(const void *a, const void *b, void *arg)
{
    int32_t ia = *(const int32_t *)a, ib = *(const int32_t *)b;
    const struct str *x = (const struct str *)arg + ia, *y = (const struct str *)arg + ib;
    int c = memcmp(x->s, y->s, x->n < y->n ? x->n : y->n);
    if (c)
        return c;
    if (x->n != y->n)
        return x->n < y->n ? -1 : 1;
    return ia < ib ? -1 : 1;
}

static uint32_t common_prefix(const struct str *x, const struct str *y)
{
    uint32_t n = x->n < y->n ? x->n : y->n, i = 0;
    while (i < n && x->s[i] == y->s[i])
        i++;
    return i;
}

/* Sort, drop repeats, count the nodes that a trie of the rest has. */
static size_t sort_and_count(const struct str *keys, int32_t *ids, size_t *n, size_t *n_nodes)
{
    qsort_r(ids, *n, sizeof *ids, compare_str, (void *)(uintptr_t)keys);
    size_t kept = 0, nodes = 1;
    for (size_t i = 0; i < *n; i++) {
        const struct str *k = &keys[ids[i]];
        uint32_t shared = kept ? common_prefix(&keys[ids[kept - 1]], k) : 0;
        if (kept && shared == k->n && keys[ids[kept - 1]].n == k->n)
            continue;
        nodes += k->n - shared;
        ids[kept++] = ids[i];
    }
    *n = kept;
    *n_nodes = nodes;
    return nodes;
}

struct span {
    uint32_t lo, hi, depth; /* strings below a node, and its depth */
};

bool trie_init(struct trie *t, struct arena *a, const struct str *keys, int32_t *ids, size_t n)
{
    memset(t, 0, sizeof *t);
    if (n == 0)
        return true;
    if (n > UINT32_MAX || sort_and_count(keys, ids, &n, &t->n_nodes) > UINT32_MAX)
        return false;
    t->nodes = ARENA_ARRAY(a, t->n_nodes, struct trie_node);
    struct span *spans = calloc(t->n_nodes, sizeof *spans);
    if (!t->nodes || !spans) {
        free(spans);
        return false;
    }
    spans[0] = (struct span){0, (uint32_t)n, 0};
    uint32_t used = 1;
    for (uint32_t i = 0; i < used; i++) { /* breadth first, so children are side by side */
        struct span s = spans[i];
        struct trie_node *node = &t->nodes[i];
        node->id = -1;
        if (keys[ids[s.lo]].n == s.depth)
            node->id = ids[s.lo++];
        node->child = used;
        while (s.lo < s.hi) {
            uint8_t label = (uint8_t)keys[ids[s.lo]].s[s.depth];
            uint32_t end = s.lo + 1;
            while (end < s.hi && (uint8_t)keys[ids[end]].s[s.depth] == label)
                end++;
            t->nodes[used].label = label;
            spans[used++] = (struct span){s.lo, end, s.depth + 1};
            node->n++;
            s.lo = end;
        }
    }
    free(spans);
    for (uint32_t c = 0; c < t->nodes[0].n; c++)
        t->root[t->nodes[t->nodes[0].child + c].label] = t->nodes[0].child + c;
    return true;
}
