/*
 * The merge loop of byte-pair vocabularies: join neighbouring symbols, always the pair of lowest
 * rank and of equals the leftmost, until no neighbours merge.
 *
 * Short words are scanned for the best pair each time, which is fastest there. Long ones keep a
 * heap of (rank, position): n log n for n symbols, whatever the text. An entry of the heap is
 * valid when the pair that starts at its position still has its rank; entries that went stale are
 * skipped.
 */
#include "text/vocab_impl.h"

#include <stdlib.h>

enum { SHORT_WORD = 40 };

static void rate(const struct enc *x, const char *s, struct symbol *l, const struct symbol *r,
                 pair_fn *pair)
{
    if (!r || !pair(x, s, l, r, &l->rank, &l->merged))
        l->rank = NO_RANK;
}

static size_t merge_short(struct enc *x, const char *s, size_t n, pair_fn *pair)
{
    struct symbol *y = x->symbols;
    for (size_t i = 0; i < n; i++)
        rate(x, s, &y[i], i + 1 < n ? &y[i + 1] : NULL, pair);
    for (;;) {
        size_t best = 0;
        for (size_t i = 1; i < n; i++)
            if (y[i].rank < y[best].rank)
                best = i;
        if (y[best].rank == NO_RANK)
            return n;
        y[best].id = y[best].merged;
        y[best].len += y[best + 1].len;
        n--;
        memmove(&y[best + 1], &y[best + 2], (n - best - 1) * sizeof *y);
        rate(x, s, &y[best], best + 1 < n ? &y[best + 1] : NULL, pair);
        if (best)
            rate(x, s, &y[best - 1], &y[best], pair);
    }
}

/* The heap has four children to a node: half the levels of two, and the four lie in one cache
 * line. */
enum { ARITY = 4 };

static void sift_up(uint64_t *heap, size_t i)
{
    uint64_t key = heap[i];
    while (i && heap[(i - 1) / ARITY] > key) {
        heap[i] = heap[(i - 1) / ARITY];
        i = (i - 1) / ARITY;
    }
    heap[i] = key;
}

static void sift_down(uint64_t *heap, size_t n, size_t i)
{
    uint64_t key = heap[i];
    for (size_t child; (child = ARITY * i + 1) < n; i = child) {
        size_t end = n - child < ARITY ? n : child + ARITY;
        for (size_t k = child + 1; k < end; k++)
            if (heap[k] < heap[child])
                child = k;
        if (heap[child] >= key)
            break;
        heap[i] = heap[child];
    }
    heap[i] = key;
}

static uint64_t heap_key(const struct symbol *y, int32_t i)
{
    return (uint64_t)y[i].rank << 32 | (uint32_t)i;
}

/* Link and rate all symbols, put the pairs that merge on the heap. Returns the heap's size. */
static size_t merge_start(struct enc *x, const char *s, size_t n, pair_fn *pair)
{
    struct symbol *y = x->symbols;
    size_t size = 0;
    for (size_t i = 0; i < n; i++) {
        y[i].prev = (int32_t)i - 1;
        y[i].next = i + 1 < n ? (int32_t)i + 1 : -1;
        rate(x, s, &y[i], i + 1 < n ? &y[i + 1] : NULL, pair);
        if (y[i].rank != NO_RANK)
            x->heap[size++] = heap_key(y, (int32_t)i);
    }
    for (size_t i = (size + ARITY - 2) / ARITY; i-- > 0;)
        sift_down(x->heap, size, i);
    return size;
}

static size_t merge_long(struct enc *x, const char *s, size_t n, pair_fn *pair)
{
    /* Every merge takes an entry off and puts at most two on: never more than 2 n. */
    if (2 * n > x->heap_cap) {
        uint64_t *heap = realloc(x->heap, 2 * n * sizeof *heap);
        if (!heap) {
            enc_no_memory(x);
            return 0;
        }
        x->heap = heap;
        x->heap_cap = 2 * n;
    }
    struct symbol *y = x->symbols;
    uint64_t *heap = x->heap;
    size_t size = merge_start(x, s, n, pair);
    while (size) {
        uint64_t key = heap[0];
        int32_t l = (int32_t)(uint32_t)key;
        heap[0] = heap[--size];
        if (size)
            sift_down(heap, size, 0);
        if (y[l].rank != (uint32_t)(key >> 32))
            continue; /* gone, or another pair by now */
        int32_t r = y[l].next;
        y[l].id = y[l].merged;
        y[l].len += y[r].len;
        y[l].next = y[r].next;
        y[r].rank = NO_RANK;
        if (y[l].next >= 0)
            y[y[l].next].prev = l;
        int32_t before = y[l].prev;
        rate(x, s, &y[l], y[l].next >= 0 ? &y[y[l].next] : NULL, pair);
        if (y[l].rank != NO_RANK) {
            heap[size] = heap_key(y, l);
            sift_up(heap, size++);
        }
        if (before < 0)
            continue;
        rate(x, s, &y[before], &y[l], pair);
        if (y[before].rank != NO_RANK) {
            heap[size] = heap_key(y, before);
            sift_up(heap, size++);
        }
    }
    size_t left = 0;
    for (int32_t i = 0; i >= 0; i = y[i].next)
        y[left++] = y[i];
    return left;
}

size_t merge_symbols(struct enc *x, const char *s, size_t n, pair_fn *pair)
{
    if (n < 2)
        return n;
    return n <= SHORT_WORD ? merge_short(x, s, n, pair) : merge_long(x, s, n, pair);
}
