/*
 * The writer: keys and tensor descriptions are collected in memory, then the file is streamed.
 *
 * Keys are kept as the bytes they will be in the file. The header is written once everything is
 * known; tensors follow in the order they were added, each padded to the alignment
 * (general.alignment when that key was put, else 32). The file is written beside its final place
 * under a temporary name and renamed when it is complete, so a reader never sees half a file, and a
 * failed write leaves nothing behind.
 *
 * A writer that failed refuses to go on: the first error is the one that counts.
 */
#include "gguf/part.h"

#include "base/checked.h"
#include "base/limits.h"
#include "quant/quant.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct buffer {
    uint8_t *data; /* [size], room for max */
    size_t size, max;
};

struct out_key {
    struct out_key *next;
    const char *name;
};

struct out_tensor {
    struct out_tensor *next;
    const char *name;
    uint32_t type, n_dims;
    uint64_t dims[LIMIT_GGUF_DIMS];
    size_t size;
    uint64_t offset; /* into the data */
};

struct gguf_writer {
    enum { COLLECTING, WRITING, DONE, FAILED } state;
    struct arena arena;       /* lists and names */
    struct buffer keys;       /* keys in file form */
    struct out_key *key_list; /* newest first */
    struct out_tensor *tensor_list, **tensor_end;
    size_t n_keys, n_tensors;
    uint64_t alignment, data_size;
    const struct out_tensor *due; /* to be written next */
    FILE *file;                   /* in state WRITING, and FAILED after it */
    const char *path, *temporary;
};

/* ---- collecting ---- */

static linnet_status fail(struct gguf_writer *w, linnet_status status)
{
    w->state = FAILED;
    return status;
}

static linnet_status fail_memory(struct gguf_writer *w, size_t size, linnet_error *e)
{
    return fail(w, err_memory(e, "a file to be written", size));
}

/* Whether descriptions may still be added. */
static linnet_status check_collecting(const struct gguf_writer *w, linnet_error *e)
{
    if (w->state == COLLECTING)
        return LINNET_OK;
    return err_set(e, LINNET_INVALID,
                   w->state == FAILED ? "the writer has failed before" : "the header is written");
}

/* Append n bytes; false when there is no memory. */
static bool append(struct buffer *b, const void *data, size_t n)
{
    size_t need;
    if (!size_add(b->size, n, &need))
        return false;
    if (need > b->max) {
        size_t max = b->max ? b->max : 4096;
        while (max < need)
            if (!size_mul(max, 2, &max))
                return false;
        uint8_t *p = realloc(b->data, max);
        if (!p)
            return false;
        b->data = p;
        b->max = max;
    }
    if (n)
        memcpy(b->data + b->size, data, n);
    b->size = need;
    return true;
}

static bool append_u32(struct buffer *b, uint32_t v)
{
    uint8_t s[4] = {(uint8_t)v, (uint8_t)(v >> 8), (uint8_t)(v >> 16), (uint8_t)(v >> 24)};
    return append(b, s, sizeof s);
}

static bool append_u64(struct buffer *b, uint64_t v)
{
    return append_u32(b, (uint32_t)v) && append_u32(b, (uint32_t)(v >> 32));
}

static bool append_string(struct buffer *b, const char *s, size_t n)
{
    return append_u64(b, n) && append(b, s, n);
}

/* The name and type of a new key. */
static linnet_status begin_key(struct gguf_writer *w, const char *key, enum gguf_type type,
                               linnet_error *e)
{
    linnet_status status = check_collecting(w, e);
    if (status != LINNET_OK)
        return status;
    size_t n = strlen(key);
    if (n > LIMIT_GGUF_KEY || !gguf_plain_name(key, n))
        return fail(w, err_set(e, LINNET_INVALID, "a key must be plain text of 1 to %d bytes",
                               LIMIT_GGUF_KEY));
    if (w->n_keys >= LIMIT_GGUF_KEYS)
        return fail(w, err_set(e, LINNET_LIMIT, "more than %d keys", LIMIT_GGUF_KEYS));
    struct out_key *k = ARENA_NEW(&w->arena, struct out_key);
    const char *name = arena_strndup(&w->arena, key, n);
    if (!k || !name || !append_string(&w->keys, key, n) || !append_u32(&w->keys, (uint32_t)type))
        return fail_memory(w, n, e);
    *k = (struct out_key){w->key_list, name};
    w->key_list = k;
    w->n_keys++;
    return LINNET_OK;
}

/* `n` elements: scalars as bytes in file form, strings as struct gguf_str. */
static linnet_status put_elements(struct gguf_writer *w, enum gguf_type elem, const void *values,
                                  size_t n, linnet_error *e)
{
    bool ok = true;
    size_t bytes;
    const uint8_t *bools = values;
    for (size_t i = 0; elem == GGUF_BOOL && i < n; i++)
        if (bools[i] > 1)
            return fail(w, err_set(e, LINNET_INVALID, "key '%s': a bool is %d, not 0 or 1",
                                   w->key_list->name, bools[i]));
    if (elem == GGUF_STRING) {
        const struct gguf_str *s = values;
        for (size_t i = 0; i < n && ok; i++)
            ok = append_string(&w->keys, s[i].s, s[i].n);
    } else {
        ok = size_mul(n, gguf_type_size((uint32_t)elem), &bytes) && append(&w->keys, values, bytes);
    }
    return ok ? LINNET_OK : fail_memory(w, n, e);
}

/* general.alignment decides how the file is laid out, and must be what readers accept. */
static linnet_status note_alignment(struct gguf_writer *w, const char *key, enum gguf_type type,
                                    const void *value, linnet_error *e)
{
    if (strcmp(key, "general.alignment") != 0)
        return LINNET_OK;
    uint32_t v = type == GGUF_U32 ? gguf_load_u32(value) : 0;
    if (v < GGUF_ALIGNMENT_MIN || v > LIMIT_GGUF_ALIGNMENT || (v & (v - 1)) != 0 ||
        w->n_tensors > 0)
        return fail(w, err_set(e, LINNET_INVALID,
                               "general.alignment must be a uint32, a power of two from %d to %d, "
                               "and come before the tensors",
                               GGUF_ALIGNMENT_MIN, LIMIT_GGUF_ALIGNMENT));
    w->alignment = v;
    return LINNET_OK;
}

linnet_status gguf_put(struct gguf_writer *w, const char *key, enum gguf_type type,
                       const void *value, linnet_error *e)
{
    if (type != GGUF_STRING && gguf_type_size((uint32_t)type) == 0)
        return fail(w, err_set(e, LINNET_INVALID, "key '%s': %s is not a scalar type", key,
                               gguf_type_name(type)));
    linnet_status status = note_alignment(w, key, type, value, e);
    if (status == LINNET_OK)
        status = begin_key(w, key, type, e);
    return status == LINNET_OK ? put_elements(w, type, value, 1, e) : status;
}

linnet_status gguf_put_array(struct gguf_writer *w, const char *key, enum gguf_type elem,
                             const void *values, size_t n, linnet_error *e)
{
    if (elem != GGUF_STRING && gguf_type_size((uint32_t)elem) == 0)
        return fail(w, err_set(e, LINNET_INVALID, "key '%s': an array of %s cannot be written", key,
                               gguf_type_name(elem)));
    if (n > LIMIT_GGUF_ARRAY)
        return fail(
            w, err_set(e, LINNET_LIMIT, "key '%s': more than %d elements", key, LIMIT_GGUF_ARRAY));
    linnet_status status = begin_key(w, key, GGUF_ARRAY, e);
    if (status != LINNET_OK)
        return status;
    if (!append_u32(&w->keys, (uint32_t)elem) || !append_u64(&w->keys, n))
        return fail_memory(w, 12, e);
    return put_elements(w, elem, values, n, e);
}

linnet_status gguf_put_kv(struct gguf_writer *w, const struct gguf_kv *kv, linnet_error *e)
{
    linnet_status status =
        kv->type == GGUF_ARRAY ? LINNET_OK : note_alignment(w, kv->key, kv->type, kv->value, e);
    if (status == LINNET_OK)
        status = begin_key(w, kv->key, kv->type, e);
    if (status != LINNET_OK)
        return status;
    bool ok = true;
    if (kv->type == GGUF_ARRAY)
        ok = append_u32(&w->keys, (uint32_t)kv->elem) && append_u64(&w->keys, kv->count);
    ok = ok && append(&w->keys, kv->value, kv->size);
    return ok ? LINNET_OK : fail_memory(w, kv->size, e);
}

linnet_status gguf_put_u32(struct gguf_writer *w, const char *key, uint32_t v, linnet_error *e)
{
    uint8_t s[4] = {(uint8_t)v, (uint8_t)(v >> 8), (uint8_t)(v >> 16), (uint8_t)(v >> 24)};
    return gguf_put(w, key, GGUF_U32, s, e);
}

linnet_status gguf_put_f32(struct gguf_writer *w, const char *key, float v, linnet_error *e)
{
    uint32_t u;
    memcpy(&u, &v, sizeof u);
    uint8_t s[4] = {(uint8_t)u, (uint8_t)(u >> 8), (uint8_t)(u >> 16), (uint8_t)(u >> 24)};
    return gguf_put(w, key, GGUF_F32, s, e);
}

linnet_status gguf_put_bool(struct gguf_writer *w, const char *key, bool v, linnet_error *e)
{
    uint8_t s = v;
    return gguf_put(w, key, GGUF_BOOL, &s, e);
}

linnet_status gguf_put_str(struct gguf_writer *w, const char *key, const char *s, size_t n,
                           linnet_error *e)
{
    struct gguf_str str = {s, n};
    return gguf_put(w, key, GGUF_STRING, &str, e);
}

/* Bytes of the described tensor. */
static linnet_status size_tensor(struct out_tensor *t, linnet_error *e)
{
    const struct quant_type *type = quant_type_of(t->type);
    if (!type)
        return err_set(e, LINNET_INVALID, "tensor '%s': unknown type %" PRIu32, t->name, t->type);
    bool ok = t->dims[0] > 0 && quant_row_bytes(type, t->dims[0], &t->size);
    for (unsigned d = 1; d < t->n_dims && ok; d++)
        ok = t->dims[d] > 0 && t->dims[d] <= SIZE_MAX &&
             size_mul(t->size, (size_t)t->dims[d], &t->size);
    if (!ok)
        return err_set(e, LINNET_INVALID,
                       "tensor '%s': these dimensions are not whole blocks of type %s, or too many",
                       t->name, type->name);
    return LINNET_OK;
}

linnet_status gguf_add_tensor(struct gguf_writer *w, const char *name, uint32_t type,
                              uint32_t n_dims, const uint64_t *dims, linnet_error *e)
{
    linnet_status status = check_collecting(w, e);
    if (status != LINNET_OK)
        return status;
    size_t n = strlen(name);
    if (n > LIMIT_GGUF_TENSOR_NAME || !gguf_plain_name(name, n))
        return fail(w,
                    err_set(e, LINNET_INVALID, "a tensor name must be plain text of 1 to %d bytes",
                            LIMIT_GGUF_TENSOR_NAME));
    if (n_dims < 1 || n_dims > LIMIT_GGUF_DIMS)
        return fail(w, err_set(e, LINNET_INVALID, "tensor '%s': %" PRIu32 " dimensions (1 to %d)",
                               name, n_dims, LIMIT_GGUF_DIMS));
    if (w->n_tensors >= LIMIT_GGUF_TENSORS)
        return fail(w, err_set(e, LINNET_LIMIT, "more than %d tensors", LIMIT_GGUF_TENSORS));
    struct out_tensor *t = ARENA_NEW(&w->arena, struct out_tensor);
    const char *copy = arena_strndup(&w->arena, name, n);
    if (!t || !copy)
        return fail_memory(w, sizeof *t + n, e);
    *t = (struct out_tensor){.name = copy, .type = type, .n_dims = n_dims, .offset = w->data_size};
    for (unsigned d = 0; d < n_dims; d++)
        t->dims[d] = dims[d];
    status = size_tensor(t, e);
    if (status != LINNET_OK)
        return fail(w, status);
    uint64_t end;
    if (!u64_add(w->data_size, t->size, &end) || !u64_add(end, w->alignment - 1, &end))
        return fail(w, err_set(e, LINNET_LIMIT, "tensor '%s': the file would be too large", name));
    w->data_size = end & ~(w->alignment - 1);
    *w->tensor_end = t;
    w->tensor_end = &t->next;
    w->n_tensors++;
    return LINNET_OK;
}

/* ---- writing ---- */

static linnet_status fail_io(struct gguf_writer *w, linnet_error *e)
{
    return fail(w, err_set(e, LINNET_IO, "cannot write '%s': %m", gguf_shown_path(w->temporary)));
}

static int compare_names(const void *a, const void *b)
{
    const char *const *x = a, *const *y = b;
    return strcmp(*x, *y);
}

/* A name that appears twice among n, or NULL. Sorts them. */
static const char *find_duplicate(const char **names, size_t n)
{
    qsort(names, n, sizeof *names, compare_names);
    for (size_t i = 1; i < n; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            return names[i];
    return NULL;
}

static linnet_status check_names(struct gguf_writer *w, linnet_error *e)
{
    const char **keys = ARENA_ARRAY(&w->arena, w->n_keys, const char *);
    const char **tensors = ARENA_ARRAY(&w->arena, w->n_tensors, const char *);
    if (!keys || !tensors)
        return err_memory(e, "names", (w->n_keys + w->n_tensors) * sizeof *keys);
    size_t n = 0;
    for (const struct out_key *k = w->key_list; k; k = k->next)
        keys[n++] = k->name;
    n = 0;
    for (const struct out_tensor *t = w->tensor_list; t; t = t->next)
        tensors[n++] = t->name;
    const char *twice = find_duplicate(keys, w->n_keys);
    if (twice)
        return err_set(e, LINNET_INVALID, "key '%s' was put twice", twice);
    twice = find_duplicate(tensors, w->n_tensors);
    if (twice)
        return err_set(e, LINNET_INVALID, "tensor '%s' was added twice", twice);
    return LINNET_OK;
}

/* Open "<path>.<process>-<n>.part", a file that did not exist. */
static linnet_status open_temporary(struct gguf_writer *w, const char *path, linnet_error *e)
{
    w->path = arena_strndup(&w->arena, path, strlen(path));
    int fd = -1;
    for (unsigned n = 0; n < 100 && fd < 0; n++) {
        w->temporary = arena_printf(&w->arena, "%s.%ld-%u.part", path, (long)getpid(), n);
        if (!w->path || !w->temporary)
            return err_memory(e, "a path", strlen(path));
        fd = open(w->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0 && errno != EEXIST)
            break;
    }
    w->file = fd >= 0 ? fdopen(fd, "wb") : NULL;
    if (w->file)
        return LINNET_OK;
    linnet_status status =
        err_set(e, LINNET_IO, "cannot create '%s': %m", gguf_shown_path(w->temporary));
    if (fd >= 0) {
        close(fd);
        unlink(w->temporary);
    }
    return status;
}

/* Zeros up to the next multiple of the alignment. */
static bool pad(struct gguf_writer *w, uint64_t position)
{
    static const uint8_t zeros[256];
    uint64_t left = (w->alignment - position % w->alignment) % w->alignment;
    while (left > 0) {
        size_t n = left < sizeof zeros ? (size_t)left : sizeof zeros;
        if (fwrite(zeros, 1, n, w->file) != n)
            return false;
        left -= n;
    }
    return true;
}

static bool append_tensor(struct buffer *b, const struct out_tensor *t)
{
    bool ok = append_string(b, t->name, strlen(t->name)) && append_u32(b, t->n_dims);
    for (unsigned d = 0; d < t->n_dims && ok; d++)
        ok = append_u64(b, t->dims[d]);
    return ok && append_u32(b, t->type & UINT16_MAX) && /* QUANT_Q2_0_G128 is 42 in files */
           append_u64(b, t->offset);
}

linnet_status gguf_write_begin(struct gguf_writer *w, const char *path, linnet_error *e)
{
    linnet_status status = check_collecting(w, e);
    if (status == LINNET_OK)
        status = check_names(w, e);
    if (status == LINNET_OK)
        status = open_temporary(w, path, e);
    if (status != LINNET_OK)
        return fail(w, status);

    struct buffer b = {NULL, 0, 0};
    bool ok = append(&b, "GGUF", 4) && append_u32(&b, 3) && append_u64(&b, w->n_tensors) &&
              append_u64(&b, w->n_keys) && append(&b, w->keys.data, w->keys.size);
    for (const struct out_tensor *t = w->tensor_list; t && ok; t = t->next)
        ok = append_tensor(&b, t);
    if (!ok)
        status = fail_memory(w, b.size, e);
    else if (fwrite(b.data, 1, b.size, w->file) != b.size || !pad(w, b.size))
        status = fail_io(w, e);
    free(b.data);
    if (status == LINNET_OK) {
        w->state = WRITING;
        w->due = w->tensor_list;
    }
    return status;
}

linnet_status gguf_write_tensor(struct gguf_writer *w, const void *data, size_t size,
                                linnet_error *e)
{
    if (w->state != WRITING || !w->due)
        return fail(w, err_set(e, LINNET_INVALID, "no tensor is due to be written"));
    if (size != w->due->size)
        return fail(w, err_set(e, LINNET_INVALID, "tensor '%s' has %zu bytes, not %zu",
                               w->due->name, w->due->size, size));
    if (fwrite(data, 1, size, w->file) != size || !pad(w, size))
        return fail_io(w, e);
    w->due = w->due->next;
    return LINNET_OK;
}

linnet_status gguf_write_end(struct gguf_writer *w, linnet_error *e)
{
    if (w->state != WRITING)
        return fail(w, err_set(e, LINNET_INVALID, "no file is being written"));
    if (w->due)
        return fail(w, err_set(e, LINNET_INVALID, "tensor '%s' was not written", w->due->name));
    if (fflush(w->file) != 0)
        return fail_io(w, e);
    FILE *f = w->file;
    w->file = NULL;
    if (fclose(f) != 0 || rename(w->temporary, w->path) != 0) {
        linnet_status status = fail_io(w, e);
        unlink(w->temporary);
        return status;
    }
    w->state = DONE;
    return LINNET_OK;
}

/* ---- life ---- */

linnet_status gguf_writer_create(struct gguf_writer **out, linnet_error *e)
{
    struct gguf_writer *w = calloc(1, sizeof *w);
    if (!w)
        return err_memory(e, "a file to be written", sizeof *w);
    arena_init(&w->arena, SIZE_MAX);
    w->alignment = GGUF_ALIGNMENT;
    w->tensor_end = &w->tensor_list;
    *out = w;
    return LINNET_OK;
}

void gguf_writer_destroy(struct gguf_writer *w)
{
    if (!w)
        return;
    if (w->file) {
        fclose(w->file);
        unlink(w->temporary);
    }
    free(w->keys.data);
    arena_free(&w->arena);
    free(w);
}
