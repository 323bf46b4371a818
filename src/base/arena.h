/*
 * Arenas: memory that is freed all at once. A model, a session and a request each own one.
 * An arena has a maximum; asking for more is an ordinary failure (NULL), never an abort.
 */
#ifndef LINNET_BASE_ARENA_H
#define LINNET_BASE_ARENA_H

#include <stddef.h>

struct arena_block;

struct arena {
    struct arena_block *head; /* newest block, or NULL */
    size_t used;              /* bytes handed out, all blocks */
    size_t max;               /* limit on `used` */
};

/* An empty arena that will hand out at most `max` bytes. Cannot fail. */
void arena_init(struct arena *a, size_t max);

/* Free everything handed out. The arena is empty and usable again. */
void arena_free(struct arena *a);

/* Zeroed memory for `n` objects of `size` bytes, aligned to 64. NULL when the product overflows,
 * the maximum is passed or the system has none. n == 0 gives a valid pointer to nothing. */
void *arena_alloc(struct arena *a, size_t n, size_t size);

/* A NUL-terminated copy of the `n` bytes at `s`; NULL as above. */
char *arena_strndup(struct arena *a, const char *s, size_t n);

/* printf into the arena; NULL as above. */
char *arena_printf(struct arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define ARENA_NEW(a, type)      ((type *)arena_alloc((a), 1, sizeof(type)))
#define ARENA_ARRAY(a, n, type) ((type *)arena_alloc((a), (n), sizeof(type)))

#endif
