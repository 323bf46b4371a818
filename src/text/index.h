/*
 * Index structures of a vocabulary: byte strings to ids, pairs of ids to merges, and a byte trie
 * for longest match. All are built once into the vocabulary's arena and are read-only afterwards.
 * Keys are borrowed: the strings live in the vocabulary. Hashing is open addressing at a load of
 * at most 2/3.
 */
#ifndef LINNET_TEXT_INDEX_H
#define LINNET_TEXT_INDEX_H

#include "base/arena.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct str {
    const char *s;
    uint32_t n;
};

static inline uint64_t index_mix(uint64_t x)
{
    x ^= x >> 32;
    x *= 0x9E3779B97F4A7C15u;
    x ^= x >> 29;
    x *= 0xBF58476D1CE4E5B9u;
    return x ^ (x >> 32);
}

/* 64-bit hash of n bytes: 8 bytes at a time, each folded in with a multiplication. */
static inline uint64_t index_hash(const char *s, size_t n)
{
    uint64_t h = n * 0xD6E8FEB86659FD93u;
    uint64_t w;
    for (; n > 8; s += 8, n -= 8) {
        memcpy(&w, s, 8);
        h = (h ^ w) * 0x9E3779B97F4A7C15u;
        h ^= h >> 32;
    }
    w = 0;
    if (n >= 4) {
        uint32_t lo, hi;
        memcpy(&lo, s, 4);
        memcpy(&hi, s + n - 4, 4);
        w = (uint64_t)hi << 32 | lo;
    } else if (n) {
        w = (uint64_t)(uint8_t)s[0] << 16 | (uint64_t)(uint8_t)s[n / 2] << 8 | (uint8_t)s[n - 1];
    }
    return index_mix(h ^ w);
}

/* Strings to ids. Ids index `keys`. */
struct strmap {
    const struct str *keys; /* [number of ids] */
    struct strmap_slot {
        uint32_t tag; /* high half of the hash */
        int32_t id;   /* -1: free */
    } * slots;        /* [mask + 1] */
    uint32_t mask;
    uint32_t max_len; /* longest key put in */
};

bool strmap_init(struct strmap *m, struct arena *a, const struct str *keys, size_t max_entries);
/* Add keys[id]. False when an equal key is there already: the first one stays. */
bool strmap_put(struct strmap *m, int32_t id);

static inline int32_t strmap_get_hashed(const struct strmap *m, const char *s, size_t n, uint64_t h)
{
    uint32_t tag = (uint32_t)(h >> 32);
    for (uint32_t i = (uint32_t)h & m->mask;; i = (i + 1) & m->mask) {
        const struct strmap_slot *slot = &m->slots[i];
        if (slot->id < 0)
            return -1;
        if (slot->tag == tag) {
            const struct str *k = &m->keys[slot->id];
            if (k->n == n && memcmp(k->s, s, n) == 0)
                return slot->id;
        }
    }
}

/* The id of s[0..n), or -1. */
static inline int32_t strmap_get(const struct strmap *m, const char *s, size_t n)
{
    if (n > m->max_len)
        return -1;
    return strmap_get_hashed(m, s, n, index_hash(s, n));
}

/* Merges: two neighbouring ids become one, lower rank first. */
struct pairmap {
    struct pairmap_slot {
        int32_t left, right; /* left -1: free */
        uint32_t rank;
        int32_t id;
    } * slots; /* [mask + 1] */
    uint32_t mask;
};

bool pairmap_init(struct pairmap *m, struct arena *a, size_t max_entries);
/* The first rank given to a pair stays. */
void pairmap_put(struct pairmap *m, int32_t left, int32_t right, uint32_t rank, int32_t id);

static inline uint32_t pairmap_hash(int32_t left, int32_t right)
{
    uint64_t k = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    k *= 0x9E3779B97F4A7C15u;
    return (uint32_t)(k >> 32) ^ (uint32_t)(k >> 15);
}

static inline const struct pairmap_slot *pairmap_get(const struct pairmap *m, int32_t left,
                                                     int32_t right)
{
    for (uint32_t i = pairmap_hash(left, right) & m->mask;; i = (i + 1) & m->mask) {
        const struct pairmap_slot *slot = &m->slots[i];
        if (slot->left < 0)
            return NULL;
        if (slot->left == left && slot->right == right)
            return slot;
    }
}

/* A byte trie. Children of a node lie side by side, ordered by label. */
struct trie {
    struct trie_node {
        uint32_t child; /* index of the first child */
        int32_t id;     /* of the string that ends here, or -1 */
        uint16_t n;     /* children, 0..256 */
        uint8_t label;
    } * nodes; /* [n_nodes], the root first; NULL when no string was given */
    size_t n_nodes;
    uint32_t root[256]; /* child of the root by first byte, 0 when there is none */
};

/* Build over keys[ids[0..n)] (non-empty strings; the first of equal ones stays). `ids` is
 * reordered. */
bool trie_init(struct trie *t, struct arena *a, const struct str *keys, int32_t *ids, size_t n);

/* The child of `node` along byte `b`, or 0. */
static inline uint32_t trie_step(const struct trie *t, uint32_t node, uint8_t b)
{
    const struct trie_node *p = &t->nodes[node];
    uint32_t lo = p->child, hi = p->child + p->n;
    while (hi - lo > 4) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (t->nodes[mid].label <= b)
            lo = mid;
        else
            hi = mid;
    }
    for (; lo < hi; lo++)
        if (t->nodes[lo].label == b)
            return lo;
    return 0;
}

#endif
