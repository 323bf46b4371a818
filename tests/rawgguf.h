/*
 * GGUF files byte by byte, for tests of what the writer would refuse to write.
 */
#ifndef LINNET_RAWGGUF_H
#define LINNET_RAWGGUF_H

#include "test.h"

#include "gguf/gguf.h"

struct raw {
    uint8_t *data; /* [n], room for max */
    size_t n, max;
};

static inline void raw_bytes(struct raw *r, const void *s, size_t n)
{
    if (r->n + n > r->max) {
        r->max = (r->n + n) * 2;
        r->data = realloc(r->data, r->max);
        assert_non_null(r->data);
    }
    if (n)
        memcpy(r->data + r->n, s, n);
    r->n += n;
}

static inline void raw_uint(struct raw *r, uint64_t v, size_t bytes)
{
    uint8_t s[8];
    for (size_t i = 0; i < bytes; i++)
        s[i] = (uint8_t)(v >> 8 * i);
    raw_bytes(r, s, bytes);
}

static inline void raw_u32(struct raw *r, uint32_t v)
{
    raw_uint(r, v, 4);
}

static inline void raw_u64(struct raw *r, uint64_t v)
{
    raw_uint(r, v, 8);
}

static inline void raw_str(struct raw *r, const char *s)
{
    raw_u64(r, strlen(s));
    raw_bytes(r, s, strlen(s));
}

/* A new file with its first 24 bytes. */
static inline struct raw raw_header(uint32_t version, uint64_t n_tensors, uint64_t n_keys)
{
    struct raw r = {NULL, 0, 0};
    raw_bytes(&r, "GGUF", 4);
    raw_u32(&r, version);
    raw_u64(&r, n_tensors);
    raw_u64(&r, n_keys);
    return r;
}

/* A key and its type; the value comes next. */
static inline void raw_key(struct raw *r, const char *key, enum gguf_type type)
{
    raw_str(r, key);
    raw_u32(r, (uint32_t)type);
}

static inline void raw_key_u32(struct raw *r, const char *key, uint32_t v)
{
    raw_key(r, key, GGUF_U32);
    raw_u32(r, v);
}

static inline void raw_tensor(struct raw *r, const char *name, uint32_t type, uint32_t n_dims,
                              const uint64_t *dims, uint64_t offset)
{
    raw_str(r, name);
    raw_u32(r, n_dims);
    for (uint32_t d = 0; d < n_dims; d++)
        raw_u64(r, dims[d]);
    raw_u32(r, type);
    raw_u64(r, offset);
}

static inline void raw_zeros(struct raw *r, size_t n)
{
    while (n-- > 0)
        raw_bytes(r, "", 1);
}

/* Zeros up to a multiple of `align`. */
static inline void raw_pad(struct raw *r, size_t align)
{
    raw_zeros(r, (align - r->n % align) % align);
}

static inline void raw_free(struct raw *r)
{
    free(r->data);
    *r = (struct raw){NULL, 0, 0};
}

#endif
