/*
 * GGUF: reading files nobody vouches for, and writing them.
 *
 * The reader maps the file (and its split parts), checks every count, length, offset, alignment,
 * type, dimension product, overlap and duplicate name with checked arithmetic, and keeps a table of
 * keys and tensors. Nothing in the file is believed. Metadata is borrowed from the mapping.
 */
#ifndef LINNET_GGUF_GGUF_H
#define LINNET_GGUF_GGUF_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Metadata value types, by their number in the file. */
enum gguf_type {
    GGUF_U8 = 0,
    GGUF_I8 = 1,
    GGUF_U16 = 2,
    GGUF_I16 = 3,
    GGUF_U32 = 4,
    GGUF_I32 = 5,
    GGUF_F32 = 6,
    GGUF_BOOL = 7,
    GGUF_STRING = 8,
    GGUF_ARRAY = 9,
    GGUF_U64 = 10,
    GGUF_I64 = 11,
    GGUF_F64 = 12,
};

/* Bytes borrowed from the mapping: valid while the gguf is open, not NUL-terminated. */
struct gguf_str {
    const char *s;
    size_t n;
};

struct gguf_kv {
    const char *key; /* NUL-terminated */
    enum gguf_type type;
    enum gguf_type elem;            /* of an array; else == type */
    uint64_t count;                 /* of an array; else 1 */
    const uint8_t *value;           /* the value's or first element's bytes, unaligned */
    size_t size;                    /* bytes at `value` */
    const struct gguf_str *strings; /* [count] when elem is GGUF_STRING */
};

/* "uint32", "string", ...; "unknown" for a number that is none. */
const char *gguf_type_name(enum gguf_type type);

struct gguf_tensor {
    const char *name; /* NUL-terminated */
    uint32_t type;    /* ggml type id; known to quant_type_of() */
    uint32_t n_dims;  /* 1..4 as written */
    uint64_t dims[4]; /* ne0 (contiguous) first; trailing ones are 1 */
    uint64_t n_elems;
    const uint8_t *data; /* `size` bytes in the mapping; alignment as the file gives it */
    size_t size;
    size_t offset; /* of data in its part's mapping */
    unsigned part; /* index of the split part that holds it */
};

struct gguf;

/* Open `path`. For a file named <prefix>-NNNNN-of-MMMMM.gguf whose split.count says so, open all
 * its parts (they lie beside it; any part may be named). Errors name the file, the offset and the
 * key or tensor. */
linnet_status gguf_open(const char *path, struct gguf **out, linnet_error *e);

/* The same over bytes in memory (tests, fuzzing): one part, borrowed until gguf_close. */
linnet_status gguf_open_memory(const void *data, size_t size, struct gguf **out, linnet_error *e);
void gguf_close(struct gguf *g);

uint32_t gguf_version(const struct gguf *g);   /* 2 or 3 */
uint64_t gguf_alignment(const struct gguf *g); /* of tensor data */
size_t gguf_n_parts(const struct gguf *g);
const char *gguf_part_path(const struct gguf *g, size_t part);
uint64_t gguf_file_size(const struct gguf *g); /* all parts */

size_t gguf_n_kv(const struct gguf *g);
const struct gguf_kv *gguf_kv_at(const struct gguf *g, size_t i);
const struct gguf_kv *gguf_find(const struct gguf *g, const char *key); /* NULL when absent */

size_t gguf_n_tensors(const struct gguf *g);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i);
const struct gguf_tensor *gguf_tensor_find(const struct gguf *g, const char *name); /* or NULL */

/* Release the pages behind a tensor that was copied elsewhere (mapfile_drop). */
void gguf_tensor_drop(const struct gguf *g, const struct gguf_tensor *t);

/*
 * Typed getters. LINNET_OK: found and written. LINNET_NOT_FOUND: the key is absent; *out untouched.
 * LINNET_FORMAT: present with a wrong type, or a value outside the range of *out; the text says
 * which. Integers accept every integer width and bool; floats accept f32, f64 and every integer;
 * bool accepts bool and integers 0 and 1.
 */
linnet_status gguf_get_u32(const struct gguf *g, const char *key, uint32_t *out, linnet_error *e);
linnet_status gguf_get_i64(const struct gguf *g, const char *key, int64_t *out, linnet_error *e);
linnet_status gguf_get_f32(const struct gguf *g, const char *key, float *out, linnet_error *e);
linnet_status gguf_get_bool(const struct gguf *g, const char *key, bool *out, linnet_error *e);
linnet_status gguf_get_str(const struct gguf *g, const char *key, struct gguf_str *out,
                           linnet_error *e);

/* Scalar or array (spec A0.2): a scalar is copied to all n entries; an array must have at least
 * n. */
linnet_status gguf_get_u32_each(const struct gguf *g, const char *key, size_t n, uint32_t *out,
                                linnet_error *e);
linnet_status gguf_get_f32_each(const struct gguf *g, const char *key, size_t n, float *out,
                                linnet_error *e);

/* Arrays. `*n` is the array's length; elements are read with the _at functions (index checked by
 * the caller). gguf_get_array fails with LINNET_FORMAT unless the element type is one of the
 * accepted kinds. */
enum gguf_kind { GGUF_KIND_INT, GGUF_KIND_FLOAT, GGUF_KIND_BOOL, GGUF_KIND_STR };
linnet_status gguf_get_array(const struct gguf *g, const char *key, enum gguf_kind kind,
                             const struct gguf_kv **out, size_t *n, linnet_error *e);
int64_t gguf_int_at(const struct gguf_kv *kv, size_t i);  /* integers and bool; u64 saturates */
double gguf_float_at(const struct gguf_kv *kv, size_t i); /* floats and integers */
struct gguf_str gguf_str_at(const struct gguf_kv *kv, size_t i);

/*
 * Writer. Build in memory (keys and tensor descriptions), then stream: gguf_write_begin writes the
 * header, gguf_write_tensor each tensor's bytes in the order they were added, gguf_write_end
 * finishes. The file appears under its name only when finished (temporary file, then rename).
 */
struct gguf_writer;
linnet_status gguf_writer_create(struct gguf_writer **out, linnet_error *e);
void gguf_writer_destroy(struct gguf_writer *w); /* removes an unfinished file */
linnet_status gguf_put_u32(struct gguf_writer *w, const char *key, uint32_t v, linnet_error *e);
linnet_status gguf_put_f32(struct gguf_writer *w, const char *key, float v, linnet_error *e);
linnet_status gguf_put_bool(struct gguf_writer *w, const char *key, bool v, linnet_error *e);
linnet_status gguf_put_str(struct gguf_writer *w, const char *key, const char *s, size_t n,
                           linnet_error *e);
/* Any type: `value` holds the scalar's or the elements' bytes in file form (little endian); for
 * strings an array of struct gguf_str. */
linnet_status gguf_put(struct gguf_writer *w, const char *key, enum gguf_type type,
                       const void *value, linnet_error *e);
linnet_status gguf_put_array(struct gguf_writer *w, const char *key, enum gguf_type elem,
                             const void *values, size_t n, linnet_error *e);
/* Copy a key as it stands from a file that was read. */
linnet_status gguf_put_kv(struct gguf_writer *w, const struct gguf_kv *kv, linnet_error *e);
linnet_status gguf_add_tensor(struct gguf_writer *w, const char *name, uint32_t type,
                              uint32_t n_dims, const uint64_t *dims, linnet_error *e);
linnet_status gguf_write_begin(struct gguf_writer *w, const char *path, linnet_error *e);
linnet_status gguf_write_tensor(struct gguf_writer *w, const void *data, size_t size,
                                linnet_error *e);
linnet_status gguf_write_end(struct gguf_writer *w, linnet_error *e);

#endif
