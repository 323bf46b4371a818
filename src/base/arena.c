/*
 * Arenas: chains of blocks that double in size up to 1 MiB. Large requests get a block of their
 * own.
 */
#include "base/arena.h"

#include "base/checked.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN = 64, FIRST = 4096, LARGEST = 1 << 20 };

struct arena_block {
    struct arena_block *next;
    size_t size; /* bytes after the header */
    size_t used;
    char pad[ALIGN - 3 * sizeof(size_t)];
};

_Static_assert(sizeof(struct arena_block) == ALIGN, "block header keeps the alignment");

void arena_init(struct arena *a, size_t max)
{
    *a = (struct arena){.max = max};
}

void arena_free(struct arena *a)
{
    struct arena_block *b = a->head;
    while (b) {
        struct arena_block *next = b->next;
        free(b);
        b = next;
    }
    a->head = NULL;
    a->used = 0;
}

static struct arena_block *new_block(struct arena *a, size_t need)
{
    size_t size = a->head ? a->head->size * 2 : FIRST;
    if (size > LARGEST)
        size = LARGEST;
    if (size < need)
        size = need;
    size_t total;
    if (!size_add(size, sizeof(struct arena_block), &total) || !size_align(total, ALIGN, &total))
        return NULL;
    struct arena_block *b = aligned_alloc(ALIGN, total);
    if (!b)
        return NULL;
    b->size = total - sizeof *b;
    b->used = 0;
    b->next = a->head;
    a->head = b;
    return b;
}

void *arena_alloc(struct arena *a, size_t n, size_t size)
{
    size_t need;
    if (!size_mul(n, size, &need) || !size_align(need, ALIGN, &need))
        return NULL;
    if (need > a->max - a->used)
        return NULL;
    struct arena_block *b = a->head;
    if (!b || need > b->size - b->used)
        b = new_block(a, need);
    if (!b)
        return NULL;
    char *p = (char *)(b + 1) + b->used;
    b->used += need;
    a->used += need;
    memset(p, 0, need);
    return p;
}

char *arena_strndup(struct arena *a, const char *s, size_t n)
{
    size_t need;
    if (!size_add(n, 1, &need))
        return NULL;
    char *p = arena_alloc(a, need, 1);
    if (p && n)
        memcpy(p, s, n);
    return p;
}

char *arena_printf(struct arena *a, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (n < 0)
        return NULL;
    char *p = arena_alloc(a, (size_t)n + 1, 1);
    if (!p)
        return NULL;
    va_start(args, fmt);
    vsnprintf(p, (size_t)n + 1, fmt, args);
    va_end(args);
    return p;
}
