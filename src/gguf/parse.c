/*
 * One GGUF file: the header, the keys, the tensor table, and where the tensors' bytes lie.
 *
 * Nothing in the file is believed. A count is compared with what the rest of the file has room for
 * before anything is allocated for it, so memory stays proportional to the file. Positions are only
 * ever moved forward by a length that was compared with what is left. Sizes of tensors are computed
 * with checked arithmetic and compared with the distance to the next tensor or the end of the file,
 * which also excludes overlaps. Names are well-formed UTF-8 without control characters, so that
 * they can be shown.
 *
 * Tables are looked up by binary search over pointers sorted by name: sorting finds duplicates,
 * needs no seed against chosen collisions, and a model looks up a few thousand names in its life.
 */
#include "gguf/part.h"

#include "base/checked.h"
#include "base/limits.h"
#include "base/utf8.h"
#include "quant/quant.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MIN_STRING = 8,                   /* an empty string: its length */
    MIN_KEY = MIN_STRING + 1 + 4 + 1, /* a one-byte name, a type, a one-byte value */
    MIN_ARRAY = 4 + 8,                /* an empty array: element type and count */
    MIN_TENSOR = MIN_STRING + 1 + 4 + 4 + 8,
    NAME_SLAB = 8192, /* names are copied into pieces of this size */
};

struct parser {
    struct gguf *g;
    struct gguf_part *part;
    unsigned index;
    const uint8_t *data;
    size_t size, pos; /* pos <= size */
    char *slab;       /* room for names */
    size_t slab_left;
    linnet_error *e;
};

/* ---- errors ---- */

const char *gguf_shown_path(const char *path)
{
    size_t n = strlen(path);
    if (n > 300)
        path += n - 300;
    while (n > 300 && (*path & 0xC0) == 0x80) /* not from inside a character */
        path++;
    return path;
}

int gguf_shown(const char *name)
{
    size_t n = strlen(name);
    return (int)utf8_valid_prefix(name, n > 120 ? 120 : n);
}

__attribute__((format(printf, 4, 5))) static linnet_status
fail(const struct parser *p, linnet_status status, size_t offset, const char *fmt, ...)
{
    char text[600];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return err_set(p->e, status, "'%s', offset %zu: %s", gguf_shown_path(p->part->path), offset,
                   text);
}

static linnet_status fail_short(const struct parser *p, const char *what)
{
    return fail(p, LINNET_FORMAT, p->pos, "the file ends inside %s (it has %zu bytes): cut short?",
                what, p->size);
}

static linnet_status fail_memory(const struct parser *p)
{
    return err_set(p->e, LINNET_NO_MEMORY, "'%s': out of memory for the file's tables",
                   gguf_shown_path(p->part->path));
}

bool gguf_plain_name(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] < 0x20 || s[i] == 0x7F)
            return false;
    return n > 0 && utf8_valid_prefix(s, n) == n;
}

/* ---- cursor ---- */

/* The next n bytes, or NULL when the file has fewer. */
static const uint8_t *take(struct parser *p, uint64_t n)
{
    if (n > p->size - p->pos)
        return NULL;
    const uint8_t *s = p->data + p->pos;
    p->pos += (size_t)n;
    return s;
}

static bool take_u32(struct parser *p, uint32_t *out)
{
    const uint8_t *s = take(p, 4);
    if (s)
        *out = gguf_load_u32(s);
    return s != NULL;
}

static bool take_u64(struct parser *p, uint64_t *out)
{
    const uint8_t *s = take(p, 8);
    if (s)
        *out = gguf_load_u64(s);
    return s != NULL;
}

static bool take_string(struct parser *p, struct gguf_str *out)
{
    uint64_t n;
    if (!take_u64(p, &n))
        return false;
    const uint8_t *s = take(p, n);
    if (!s)
        return false;
    *out = (struct gguf_str){(const char *)s, (size_t)n};
    return true;
}

/* Whether `count` things of at least `least` bytes each fit into the rest of the file. */
static bool has_room(const struct parser *p, uint64_t count, size_t least)
{
    return count <= (p->size - p->pos) / least;
}

/* A NUL-terminated copy. */
static const char *keep_name(struct parser *p, struct gguf_str s)
{
    if (s.n + 1 > p->slab_left) {
        size_t size = s.n + 1 > NAME_SLAB ? s.n + 1 : NAME_SLAB;
        p->slab = arena_alloc(&p->g->arena, size, 1);
        p->slab_left = p->slab ? size : 0;
        if (!p->slab)
            return NULL;
    }
    char *name = p->slab;
    memcpy(name, s.s, s.n);
    p->slab += s.n + 1;
    p->slab_left -= s.n + 1;
    return name;
}

/* The name of key or tensor number i: 1..max bytes of well-formed text without control characters.
 */
static linnet_status parse_name(struct parser *p, const char *what, size_t i, size_t max,
                                const char **out)
{
    size_t start = p->pos;
    uint64_t n;
    if (!take_u64(p, &n))
        return fail_short(p, "a name");
    if (n == 0 || n > max)
        return fail(p, LINNET_FORMAT, start, "the name of %s %zu has %" PRIu64 " bytes (1 to %zu)",
                    what, i, n, max);
    const uint8_t *bytes = take(p, n);
    if (!bytes)
        return fail_short(p, "a name");
    struct gguf_str s = {(const char *)bytes, (size_t)n};
    if (!gguf_plain_name(s.s, s.n))
        return fail(p, LINNET_FORMAT, start, "the name of %s %zu is not plain text", what, i);
    *out = keep_name(p, s);
    return *out ? LINNET_OK : fail_memory(p);
}

/* ---- metadata values ---- */

static const struct {
    const char *name;
    unsigned char size;
} types[] = {
    [GGUF_U8] = {"uint8", 1},    [GGUF_I8] = {"int8", 1},    [GGUF_U16] = {"uint16", 2},
    [GGUF_I16] = {"int16", 2},   [GGUF_U32] = {"uint32", 4}, [GGUF_I32] = {"int32", 4},
    [GGUF_F32] = {"float32", 4}, [GGUF_BOOL] = {"bool", 1},  [GGUF_STRING] = {"string", 0},
    [GGUF_ARRAY] = {"array", 0}, [GGUF_U64] = {"uint64", 8}, [GGUF_I64] = {"int64", 8},
    [GGUF_F64] = {"float64", 8},
};

enum { N_TYPES = sizeof types / sizeof *types };

const char *gguf_type_name(enum gguf_type type)
{
    return (unsigned)type < N_TYPES ? types[type].name : "unknown";
}

size_t gguf_type_size(uint32_t type)
{
    return type < N_TYPES ? types[type].size : 0;
}

/* `count` scalars of one type. */
static linnet_status parse_scalars(struct parser *p, const char *key, uint32_t type, uint64_t count)
{
    size_t size = gguf_type_size(type), start = p->pos;
    if (!has_room(p, count, size))
        return fail(p, LINNET_FORMAT, start,
                    "key '%.*s': %" PRIu64 " values of type %s pass the end of the file",
                    gguf_shown(key), key, count, gguf_type_name((enum gguf_type)type));
    const uint8_t *v = take(p, count * size);
    if (type != GGUF_BOOL)
        return LINNET_OK;
    for (size_t i = 0; i < count; i++)
        if (v[i] > 1)
            return fail(p, LINNET_FORMAT, start + i, "key '%.*s': a bool is %d, not 0 or 1",
                        gguf_shown(key), key, v[i]);
    return LINNET_OK;
}

/* `count` strings, noted in out[count]; out may be NULL. */
static linnet_status parse_strings(struct parser *p, const char *key, uint64_t count,
                                   struct gguf_str *out)
{
    for (size_t i = 0; i < count; i++) {
        size_t start = p->pos;
        struct gguf_str s;
        if (!take_string(p, &s))
            return fail(p, LINNET_FORMAT, start,
                        "key '%.*s': string %zu passes the end of the file", gguf_shown(key), key,
                        i);
        if (out)
            out[i] = s;
    }
    return LINNET_OK;
}

/* Element type and count of an array, whose elements come next. */
static linnet_status parse_array_head(struct parser *p, const char *key, uint32_t *elem,
                                      uint64_t *count)
{
    size_t start = p->pos;
    if (!take_u32(p, elem) || !take_u64(p, count))
        return fail_short(p, "an array");
    if (*elem >= N_TYPES)
        return fail(p, LINNET_FORMAT, start, "key '%.*s': unknown element type %" PRIu32,
                    gguf_shown(key), key, *elem);
    size_t least = *elem == GGUF_STRING  ? MIN_STRING
                   : *elem == GGUF_ARRAY ? MIN_ARRAY
                                         : gguf_type_size(*elem);
    if (!has_room(p, *count, least))
        return fail(p, LINNET_FORMAT, start,
                    "key '%.*s': an array claims %" PRIu64
                    " elements, the rest of the file has room for %zu",
                    gguf_shown(key), key, *count, (p->size - p->pos) / least);
    if (*count > LIMIT_GGUF_ARRAY)
        return fail(p, LINNET_LIMIT, start,
                    "key '%.*s': an array has %" PRIu64 " elements, the limit is %d",
                    gguf_shown(key), key, *count, LIMIT_GGUF_ARRAY);
    return LINNET_OK;
}

/* `count` arrays inside an array: checked and passed over. */
static linnet_status skip_arrays(struct parser *p, const char *key, uint64_t count, unsigned depth)
{
    if (depth > LIMIT_GGUF_ARRAY_DEPTH)
        return fail(p, LINNET_LIMIT, p->pos, "key '%.*s': arrays nest deeper than %d",
                    gguf_shown(key), key, LIMIT_GGUF_ARRAY_DEPTH);
    for (size_t i = 0; i < count; i++) {
        uint32_t elem;
        uint64_t n;
        linnet_status status = parse_array_head(p, key, &elem, &n);
        if (status == LINNET_OK)
            status = elem == GGUF_STRING  ? parse_strings(p, key, n, NULL)
                     : elem == GGUF_ARRAY ? skip_arrays(p, key, n, depth + 1)
                                          : parse_scalars(p, key, elem, n);
        if (status != LINNET_OK)
            return status;
    }
    return LINNET_OK;
}

static linnet_status parse_value(struct parser *p, struct gguf_kv *kv)
{
    size_t start = p->pos;
    uint32_t type, elem;
    uint64_t count = 1;
    if (!take_u32(p, &type))
        return fail_short(p, "a value");
    if (type >= N_TYPES)
        return fail(p, LINNET_FORMAT, start, "key '%.*s': unknown value type %" PRIu32,
                    gguf_shown(kv->key), kv->key, type);
    elem = type;
    if (type == GGUF_ARRAY) {
        linnet_status status = parse_array_head(p, kv->key, &elem, &count);
        if (status != LINNET_OK)
            return status;
    }
    kv->type = (enum gguf_type)type;
    kv->elem = (enum gguf_type)elem;
    kv->count = count;
    kv->value = p->data + p->pos;

    start = p->pos;
    linnet_status status;
    if (elem == GGUF_STRING) {
        struct gguf_str *strings = ARENA_ARRAY(&p->g->arena, (size_t)count, struct gguf_str);
        if (!strings)
            return fail_memory(p);
        kv->strings = strings;
        status = parse_strings(p, kv->key, count, strings);
    } else if (elem == GGUF_ARRAY) {
        status = skip_arrays(p, kv->key, count, 2);
    } else {
        status = parse_scalars(p, kv->key, elem, count);
    }
    kv->size = p->pos - start;
    return status;
}

static int compare_keys(const void *a, const void *b)
{
    const struct gguf_kv *const *x = a, *const *y = b;
    return strcmp((*x)->key, (*y)->key);
}

static linnet_status parse_keys(struct parser *p, uint64_t count)
{
    struct gguf_part *part = p->part;
    part->kv = ARENA_ARRAY(&p->g->arena, (size_t)count, struct gguf_kv);
    part->kv_sort = ARENA_ARRAY(&p->g->arena, (size_t)count, const struct gguf_kv *);
    if (!part->kv || !part->kv_sort)
        return fail_memory(p);
    for (size_t i = 0; i < count; i++) {
        struct gguf_kv *kv = &part->kv[i];
        linnet_status status = parse_name(p, "key", i, LIMIT_GGUF_KEY, &kv->key);
        if (status == LINNET_OK)
            status = parse_value(p, kv);
        if (status != LINNET_OK)
            return status;
        part->kv_sort[i] = kv;
    }
    part->n_kv = (size_t)count;
    qsort(part->kv_sort, part->n_kv, sizeof *part->kv_sort, compare_keys);
    for (size_t i = 1; i < part->n_kv; i++) {
        const char *key = part->kv_sort[i]->key;
        if (strcmp(part->kv_sort[i - 1]->key, key) == 0)
            return fail(p, LINNET_FORMAT, p->pos, "key '%.*s' appears twice", gguf_shown(key), key);
    }
    return LINNET_OK;
}

const struct gguf_kv *gguf_part_find(const struct gguf_part *part, const char *key)
{
    struct gguf_kv wanted = {.key = key};
    const struct gguf_kv *pointer = &wanted;
    const struct gguf_kv **found =
        bsearch(&pointer, part->kv_sort, part->n_kv, sizeof *found, compare_keys);
    return found ? *found : NULL;
}

/* ---- tensors ---- */

/* The id a tensor's type has in memory; a file cannot name the ids that exist only there. */
static const struct quant_type *type_in_file(uint32_t id)
{
    return id <= UINT16_MAX ? quant_type_of(id) : NULL;
}

/* Bytes of a tensor stored as `type`; false when its rows are not whole blocks or the size
 * overflows. */
static bool tensor_bytes(const struct gguf_tensor *t, const struct quant_type *type, size_t *out)
{
    size_t row;
    return quant_row_bytes(type, t->dims[0], &row) &&
           t->n_elems / t->dims[0] <= SIZE_MAX && /* rows; a no-op where size_t has 64 bits */
           size_mul(row, (size_t)(t->n_elems / t->dims[0]), out);
}

/* Dimensions, type and size of one tensor. A file may write a scalar as no dimensions. */
static linnet_status parse_shape(struct parser *p, struct gguf_tensor *t)
{
    size_t start = p->pos;
    int shown = gguf_shown(t->name);
    if (!take_u32(p, &t->n_dims))
        return fail_short(p, "the tensor table");
    if (t->n_dims > LIMIT_GGUF_DIMS)
        return fail(p, LINNET_FORMAT, start, "tensor '%.*s' has %" PRIu32 " dimensions (1 to %d)",
                    shown, t->name, t->n_dims, LIMIT_GGUF_DIMS);
    t->n_elems = 1;
    for (unsigned d = 0; d < LIMIT_GGUF_DIMS; d++) {
        t->dims[d] = 1;
        if (d < t->n_dims && !take_u64(p, &t->dims[d]))
            return fail_short(p, "the tensor table");
        if (t->dims[d] == 0)
            return fail(p, LINNET_FORMAT, start, "tensor '%.*s': dimension %u is 0", shown, t->name,
                        d);
        if (!u64_mul(t->n_elems, t->dims[d], &t->n_elems))
            return fail(p, LINNET_FORMAT, start,
                        "tensor '%.*s': the number of elements passes 64 bits", shown, t->name);
    }
    if (t->n_dims == 0)
        t->n_dims = 1;

    start = p->pos;
    if (!take_u32(p, &t->type))
        return fail_short(p, "the tensor table");
    const struct quant_type *type = type_in_file(t->type);
    if (!type)
        return fail(p, LINNET_UNSUPPORTED, start,
                    "tensor '%.*s' has type %" PRIu32 ", which this version does not know", shown,
                    t->name, t->type);
    if (t->dims[0] % type->block != 0)
        return fail(p, LINNET_FORMAT, start,
                    "tensor '%.*s': rows of %" PRIu64 " elements are not whole %s blocks of %u",
                    shown, t->name, t->dims[0], type->name, type->block);
    if (!tensor_bytes(t, type, &t->size))
        return fail(p, LINNET_FORMAT, start,
                    "tensor '%.*s': the size of %" PRIu64 " elements of type %s passes %zu bits",
                    shown, t->name, t->n_elems, type->name, 8 * sizeof(size_t));
    return LINNET_OK;
}

/* The tensor's place, as an offset into the part's data; made absolute when the table's end is
 * known. */
static linnet_status parse_offset(struct parser *p, struct gguf_tensor *t)
{
    size_t start = p->pos;
    uint64_t offset;
    if (!take_u64(p, &offset))
        return fail_short(p, "the tensor table");
    if (offset > p->size)
        return fail(p, LINNET_FORMAT, start,
                    "tensor '%.*s': offset %" PRIu64 " of the data is after the end of the file",
                    gguf_shown(t->name), t->name, offset);
    if (offset % p->part->alignment != 0)
        return fail(p, LINNET_FORMAT, start,
                    "tensor '%.*s': offset %" PRIu64 " is not aligned to %" PRIu64,
                    gguf_shown(t->name), t->name, offset, p->part->alignment);
    t->offset = (size_t)offset;
    return LINNET_OK;
}

static int compare_offsets(const void *a, const void *b)
{
    const struct gguf_tensor *const *x = a, *const *y = b;
    return ((*x)->offset > (*y)->offset) - ((*x)->offset < (*y)->offset);
}

/* Bytes from a tensor to the next one or the end of the file. order[] is sorted by offset. */
static size_t span_of(const struct parser *p, struct gguf_tensor *const *order, size_t i)
{
    size_t end = i + 1 < p->part->n_tensors ? order[i + 1]->offset : p->size;
    return end - order[i]->offset;
}

/*
 * Spec D2: two layouts are written under id 42. A tensor whose bytes cannot hold 64-element blocks
 * but do hold 128-element ones has the latter. Small tensors fit both ways because of the padding
 * between tensors; they take the layout that was proved for another tensor of the same file, which
 * had one writer.
 */
static void choose_q2_0_layout(const struct parser *p, struct gguf_tensor *const *order)
{
    const struct quant_type *wide = quant_type_of(QUANT_Q2_0_G128);
    bool proved = false;
    if (!wide)
        return;
    for (unsigned pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < p->part->n_tensors; i++) {
            struct gguf_tensor *t = order[i];
            size_t size, padded, span = span_of(p, order, i);
            if (t->type != QUANT_Q2_0 || !tensor_bytes(t, wide, &size) || size > span)
                continue;
            if (!size_align(size, (size_t)p->part->alignment, &padded))
                continue;
            bool proof = t->size > span;
            if (proof || (pass == 1 && proved && padded >= t->size)) {
                t->type = QUANT_Q2_0_G128;
                t->size = size;
            }
            proved = proved || proof;
        }
    }
}

/* Make offsets absolute, and check that every tensor lies between its offset and the next one's. */
static linnet_status place_tensors(struct parser *p)
{
    struct gguf_part *part = p->part;
    size_t n = part->n_tensors, base, table_end = p->pos;
    if (n == 0)
        return LINNET_OK;
    if (!size_align(table_end, (size_t)part->alignment, &base) || base > p->size)
        return fail(p, LINNET_FORMAT, table_end,
                    "the file ends before the tensor data: cut short?");
    struct gguf_tensor **order = ARENA_ARRAY(&p->g->arena, n, struct gguf_tensor *);
    if (!order)
        return fail_memory(p);
    for (size_t i = 0; i < n; i++) {
        struct gguf_tensor *t = order[i] = &part->tensors[i];
        if (t->offset > p->size - base)
            return fail(p, LINNET_FORMAT, table_end,
                        "tensor '%.*s' begins %zu bytes after the end of the file: cut short?",
                        gguf_shown(t->name), t->name, t->offset - (p->size - base));
        t->offset += base;
    }
    qsort(order, n, sizeof *order, compare_offsets);
    choose_q2_0_layout(p, order);
    for (size_t i = 0; i < n; i++) {
        struct gguf_tensor *t = order[i];
        size_t span = span_of(p, order, i);
        if (t->size > span && i + 1 < n)
            return fail(p, LINNET_FORMAT, t->offset, "tensor '%.*s' (%zu bytes) overlaps '%.*s'",
                        gguf_shown(t->name), t->name, t->size, gguf_shown(order[i + 1]->name),
                        order[i + 1]->name);
        if (t->size > span)
            return fail(p, LINNET_FORMAT, t->offset,
                        "tensor '%.*s' (%zu bytes) passes the end of the file by %zu: cut short?",
                        gguf_shown(t->name), t->name, t->size, t->size - span);
        t->data = p->data + t->offset;
    }
    return LINNET_OK;
}

static linnet_status parse_tensors(struct parser *p, uint64_t count)
{
    struct gguf_part *part = p->part;
    part->tensors = ARENA_ARRAY(&p->g->arena, (size_t)count, struct gguf_tensor);
    if (!part->tensors)
        return fail_memory(p);
    for (size_t i = 0; i < count; i++) {
        struct gguf_tensor *t = &part->tensors[i];
        t->part = p->index;
        linnet_status status = parse_name(p, "tensor", i, LIMIT_GGUF_TENSOR_NAME, &t->name);
        if (status == LINNET_OK)
            status = parse_shape(p, t);
        if (status == LINNET_OK)
            status = parse_offset(p, t);
        if (status != LINNET_OK)
            return status;
    }
    part->n_tensors = (size_t)count;
    return place_tensors(p);
}

/* ---- the file ---- */

static linnet_status parse_version(struct parser *p)
{
    const uint8_t *magic = take(p, 4);
    if (!magic)
        return fail(p, LINNET_FORMAT, 0, "%zu bytes are not a GGUF file", p->size);
    bool reversed = memcmp(magic, "FUGG", 4) == 0;
    if (!reversed && memcmp(magic, "GGUF", 4) != 0)
        return fail(p, LINNET_FORMAT, 0, "not a GGUF file: it begins with %02x %02x %02x %02x",
                    magic[0], magic[1], magic[2], magic[3]);
    uint32_t version;
    if (!take_u32(p, &version))
        return fail_short(p, "the header");
    if (reversed || (version != 0 && (version & 0xFFFF) == 0))
        return fail(p, LINNET_UNSUPPORTED, 4,
                    "a big-endian GGUF file: convert it to little-endian first");
    if (version == 1)
        return fail(p, LINNET_UNSUPPORTED, 4,
                    "GGUF version 1 is not supported: convert the model again");
    if (version != 2 && version != 3)
        return fail(p, LINNET_UNSUPPORTED, 4,
                    "unknown GGUF version %" PRIu32 " (2 and 3 are known)", version);
    p->part->version = version;
    return LINNET_OK;
}

static linnet_status check_count(const struct parser *p, const char *what, uint64_t n, size_t least,
                                 uint64_t limit)
{
    if (!has_room(p, n, least))
        return fail(p, LINNET_FORMAT, p->pos,
                    "the header claims %" PRIu64 " %s, the file has room for %zu", n, what,
                    (p->size - p->pos) / least);
    if (n > limit)
        return fail(p, LINNET_LIMIT, p->pos, "%" PRIu64 " %s: the limit is %" PRIu64, n, what,
                    limit);
    return LINNET_OK;
}

static linnet_status parse_alignment(struct parser *p)
{
    int64_t alignment;
    linnet_status status =
        gguf_part_i64_or(p->part, "general.alignment", GGUF_ALIGNMENT, &alignment, p->e);
    if (status != LINNET_OK)
        return status;
    if (alignment < GGUF_ALIGNMENT_MIN || alignment > LIMIT_GGUF_ALIGNMENT ||
        (alignment & (alignment - 1)) != 0)
        return fail(p, LINNET_FORMAT, p->pos,
                    "general.alignment is %" PRId64 ", not a power of two from %d to %d", alignment,
                    GGUF_ALIGNMENT_MIN, LIMIT_GGUF_ALIGNMENT);
    p->part->alignment = (uint64_t)alignment;
    return LINNET_OK;
}

linnet_status gguf_parse(struct gguf *g, struct gguf_part *part, unsigned index, linnet_error *e)
{
    struct parser parser = {.g = g,
                            .part = part,
                            .index = index,
                            .data = part->map.data,
                            .size = part->map.size,
                            .e = e};
    struct parser *p = &parser;
    uint64_t n_tensors, n_keys;
    linnet_status status = parse_version(p);
    if (status != LINNET_OK)
        return status;
    if (!take_u64(p, &n_tensors) || !take_u64(p, &n_keys))
        return fail_short(p, "the header");
    status = check_count(p, "keys", n_keys, MIN_KEY, LIMIT_GGUF_KEYS);
    if (status == LINNET_OK)
        status = parse_keys(p, n_keys);
    if (status == LINNET_OK)
        status = parse_alignment(p);
    if (status == LINNET_OK)
        status = check_count(p, "tensors", n_tensors, MIN_TENSOR, LIMIT_GGUF_TENSORS);
    if (status == LINNET_OK)
        status = parse_tensors(p, n_tensors);
    return status;
}
