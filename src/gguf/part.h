/*
 * Inside src/gguf: one file of a model as the parser leaves it, and the open model that holds them.
 */
#ifndef LINNET_GGUF_PART_H
#define LINNET_GGUF_PART_H

#include "base/arena.h"
#include "base/mapfile.h"
#include "gguf/gguf.h"

/* Tables are in the model's arena; names and values point there or into the mapping. */
struct gguf_part {
    const char *path;
    struct mapfile map;
    bool borrowed; /* `map` is the caller's memory */
    uint32_t version;
    uint64_t alignment;
    size_t n_kv;
    struct gguf_kv *kv;             /* [n_kv], in file order */
    const struct gguf_kv **kv_sort; /* [n_kv], by key */
    size_t n_tensors;
    struct gguf_tensor *tensors; /* [n_tensors], in file order */
};

struct gguf {
    struct arena arena;
    struct gguf_part *parts; /* [n_parts], room for n_parts_max */
    size_t n_parts, n_parts_max;
    size_t n_tensors;
    struct gguf_tensor *tensors;             /* [n_tensors], part after part */
    const struct gguf_tensor **tensors_sort; /* [n_tensors], by name */
};

/* Read and check the header of the file mapped in `part`, which becomes number `index` of `g`. */
linnet_status gguf_parse(struct gguf *g, struct gguf_part *part, unsigned index, linnet_error *e);

/* The key of a part, or NULL. */
const struct gguf_kv *gguf_part_find(const struct gguf_part *part, const char *key);

/* An integer key of a part, or `absent`; a wrong type or value is LINNET_FORMAT. */
linnet_status gguf_part_i64_or(const struct gguf_part *part, const char *key, int64_t absent,
                               int64_t *out, linnet_error *e);

/* The end of a path, short enough to leave room in an error text. */
const char *gguf_shown_path(const char *path);

/* Whether s[0..n) can name a key or tensor: not empty, well-formed UTF-8, no control characters. */
bool gguf_plain_name(const char *s, size_t n);

/* Bytes of a checked name to show in an error text: a long name is cut between characters. */
int gguf_shown(const char *name);

/* Bytes of a scalar of this type; 0 for strings, arrays and unknown types. */
size_t gguf_type_size(uint32_t type);

static inline uint32_t gguf_load_u32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline uint64_t gguf_load_u64(const uint8_t *p)
{
    return gguf_load_u32(p) | (uint64_t)gguf_load_u32(p + 4) << 32;
}

/* Default of general.alignment. */
enum { GGUF_ALIGNMENT = 32, GGUF_ALIGNMENT_MIN = 8 };

#endif
