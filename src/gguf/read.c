/*
 * Opening a model: one file, the files of a split set, or bytes in memory; and looking things up in
 * it.
 *
 * A split set is <prefix>-00001-of-000NN.gguf and its neighbours. The first part holds the
 * metadata; the others are only asked for their number, so that parts of two models, or a renamed
 * part, are refused. Tensors of all parts form one table, in which a name may appear once.
 */
#include "gguf/part.h"

#include "base/checked.h"
#include "base/limits.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    /* Table bytes per file byte: a one-byte tensor entry of 25 bytes costs about 10 times its size.
     */
    TABLE_RATIO = 16,
    TABLE_SLACK = 1 << 16, /* and what small files need for the arena's rounding */
    SUFFIX = sizeof "-00001-of-00001.gguf" - 1,
};

/* ---- parts ---- */

static linnet_status reserve_part(struct gguf *g, linnet_error *e)
{
    if (g->n_parts < g->n_parts_max)
        return LINNET_OK;
    size_t max = g->n_parts_max ? g->n_parts_max * 2 : 1;
    struct gguf_part *parts = realloc(g->parts, max * sizeof *parts);
    if (!parts)
        return err_memory(e, "the parts of a model", max * sizeof *parts);
    g->parts = parts;
    g->n_parts_max = max;
    return LINNET_OK;
}

/* Append a part for `map`, which belongs to the model from here on. */
static linnet_status add_part(struct gguf *g, const char *path, struct mapfile map, bool borrowed,
                              linnet_error *e)
{
    size_t room;
    if (!size_mul(map.size, TABLE_RATIO, &room) || !size_add(room, TABLE_SLACK, &room) ||
        !size_add(g->arena.max, room, &g->arena.max))
        g->arena.max = SIZE_MAX;
    struct gguf_part *part = &g->parts[g->n_parts++];
    *part = (struct gguf_part){.map = map, .borrowed = borrowed};
    part->path = arena_strndup(&g->arena, path, strlen(path));
    if (!part->path)
        return err_memory(e, "a path", strlen(path) + 1);
    return gguf_parse(g, part, (unsigned)(g->n_parts - 1), e);
}

static linnet_status open_part(struct gguf *g, const char *path, linnet_error *e)
{
    struct mapfile map;
    linnet_status status = reserve_part(g, e);
    if (status == LINNET_OK)
        status = mapfile_open(path, &map, e);
    if (status == LINNET_OK)
        status = add_part(g, path, map, false, e);
    return status;
}

/* Close all parts and forget their tables; the model is as new. */
static void drop_parts(struct gguf *g)
{
    for (size_t i = 0; i < g->n_parts; i++)
        if (!g->parts[i].borrowed)
            mapfile_close(&g->parts[i].map);
    g->n_parts = 0;
    arena_free(&g->arena);
    arena_init(&g->arena, 0);
}

/* ---- split sets ---- */

/* Take the number and count out of "...-00002-of-00003.gguf". */
static bool parse_split_name(const char *path, unsigned *number, unsigned *count)
{
    static const char pattern[SUFFIX + 1] = "-ddddd-of-ddddd.gguf";
    size_t n = strlen(path);
    if (n < SUFFIX)
        return false;
    const char *s = path + n - SUFFIX;
    unsigned value[2] = {0, 0};
    for (size_t i = 0, second = 0; i < SUFFIX; i++) {
        if (pattern[i] != 'd' && s[i] != pattern[i])
            return false;
        if (pattern[i] == 'o')
            second = 1;
        if (pattern[i] != 'd')
            continue;
        if (s[i] < '0' || s[i] > '9')
            return false;
        value[second] = value[second] * 10 + (unsigned)(s[i] - '0');
    }
    *number = value[0];
    *count = value[1];
    return true;
}

/* What part i of a set says about itself must agree with its place. */
static linnet_status check_split_part(const struct gguf *g, size_t i, unsigned count,
                                      linnet_error *e)
{
    const struct gguf_part *part = &g->parts[i];
    const char *path = gguf_shown_path(part->path);
    int64_t no, n, tensors;
    linnet_status status = gguf_part_i64_or(part, "split.no", -1, &no, e);
    if (status == LINNET_OK)
        status = gguf_part_i64_or(part, "split.count", -1, &n, e);
    if (status == LINNET_OK)
        status = gguf_part_i64_or(part, "split.tensors.count", (int64_t)g->n_tensors, &tensors, e);
    if (status != LINNET_OK)
        return status;
    if (n != (int64_t)count)
        return err_set(e, LINNET_MISMATCH,
                       "'%s': split.count is %" PRId64 ", but the set has %u parts", path, n,
                       count);
    if (no != (int64_t)i)
        return err_set(e, LINNET_MISMATCH,
                       "'%s': split.no is %" PRId64 ", but its place in the set is %zu", path, no,
                       i);
    if (tensors != (int64_t)g->n_tensors)
        return err_set(e, LINNET_MISMATCH,
                       "'%s': split.tensors.count is %" PRId64 ", but the set has %zu tensors",
                       path, tensors, g->n_tensors);
    return LINNET_OK;
}

static size_t count_tensors(const struct gguf *g)
{
    size_t n = 0;
    for (size_t i = 0; i < g->n_parts; i++)
        n += g->parts[i].n_tensors;
    return n;
}

/* Open the parts of a set that are not open yet: all `count`, or all but the first. */
static linnet_status open_others(struct gguf *g, const char *path, unsigned count, linnet_error *e)
{
    size_t size = strlen(path) + 1;
    char *sibling = malloc(size);
    if (!sibling)
        return err_memory(e, "a path", size);
    memcpy(sibling, path, size);
    char *suffix = sibling + size - 1 - SUFFIX;
    linnet_status status = LINNET_OK;
    while (g->n_parts < count && status == LINNET_OK) {
        char text[48]; /* count <= LIMIT_GGUF_SHARDS, so the suffix keeps its length */
        snprintf(text, sizeof text, "-%05u-of-%05u.gguf", (unsigned)g->n_parts + 1, count);
        memcpy(suffix, text, SUFFIX);
        status = open_part(g, sibling, e);
    }
    free(sibling);
    return status;
}

/* Open the set that `path`, already open as the only part, is a member of. */
static linnet_status open_split(struct gguf *g, const char *path, int64_t claimed, linnet_error *e)
{
    unsigned number, count;
    if (!parse_split_name(path, &number, &count))
        return err_set(e, LINNET_FORMAT,
                       "'%s' is one of %" PRId64 " parts of a model, but is not named like one "
                       "(<prefix>-00001-of-%05" PRId64 ".gguf): restore its name",
                       gguf_shown_path(path), claimed, claimed);
    if (number < 1 || number > count || claimed != (int64_t)count)
        return err_set(e, LINNET_MISMATCH,
                       "'%s': split.count is %" PRId64 ", which its name does not agree with",
                       gguf_shown_path(path), claimed);
    if (number != 1)
        drop_parts(g);
    linnet_status status = open_others(g, path, count, e);
    if (status != LINNET_OK)
        return status;
    g->n_tensors = count_tensors(g);
    for (size_t i = 0; i < g->n_parts && status == LINNET_OK; i++)
        status = check_split_part(g, i, count, e);
    return status;
}

/* ---- tensors of all parts ---- */

static int compare_tensors(const void *a, const void *b)
{
    const struct gguf_tensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static linnet_status index_tensors(struct gguf *g, linnet_error *e)
{
    size_t n = g->n_tensors = count_tensors(g);
    g->tensors = g->parts[0].tensors;
    if (g->n_parts > 1)
        g->tensors = ARENA_ARRAY(&g->arena, n, struct gguf_tensor);
    g->tensors_sort = ARENA_ARRAY(&g->arena, n, const struct gguf_tensor *);
    if (!g->tensors || !g->tensors_sort)
        return err_memory(e, "the tensor table", n * sizeof *g->tensors);
    for (size_t i = 0, at = 0; i < g->n_parts && g->n_parts > 1; i++) {
        memcpy(g->tensors + at, g->parts[i].tensors, g->parts[i].n_tensors * sizeof *g->tensors);
        at += g->parts[i].n_tensors;
    }
    for (size_t i = 0; i < n; i++)
        g->tensors_sort[i] = &g->tensors[i];
    qsort(g->tensors_sort, n, sizeof *g->tensors_sort, compare_tensors);
    for (size_t i = 1; i < n; i++) {
        const struct gguf_tensor *t = g->tensors_sort[i];
        if (strcmp(g->tensors_sort[i - 1]->name, t->name) == 0)
            return err_set(e, LINNET_FORMAT, "'%s': tensor '%.*s' appears twice",
                           gguf_shown_path(g->parts[t->part].path), gguf_shown(t->name), t->name);
    }
    return LINNET_OK;
}

/* ---- open, close ---- */

static struct gguf *new_model(linnet_error *e)
{
    struct gguf *g = calloc(1, sizeof *g);
    if (!g)
        err_memory(e, "a model file", sizeof *g);
    else
        arena_init(&g->arena, 0);
    return g;
}

static linnet_status finish(struct gguf *g, linnet_status status, struct gguf **out,
                            linnet_error *e)
{
    if (status == LINNET_OK)
        status = index_tensors(g, e);
    if (status == LINNET_OK)
        *out = g;
    else
        gguf_close(g);
    return status;
}

linnet_status gguf_open(const char *path, struct gguf **out, linnet_error *e)
{
    struct gguf *g = new_model(e);
    if (!g)
        return LINNET_NO_MEMORY;
    int64_t count = 1;
    linnet_status status = open_part(g, path, e);
    if (status == LINNET_OK)
        status = gguf_part_i64_or(&g->parts[0], "split.count", 1, &count, e);
    if (status == LINNET_OK && count > LIMIT_GGUF_SHARDS)
        status = err_set(e, LINNET_LIMIT, "'%s': split.count is %" PRId64 ", the limit is %d",
                         gguf_shown_path(path), count, LIMIT_GGUF_SHARDS);
    if (status == LINNET_OK && count > 1)
        status = open_split(g, path, count, e);
    return finish(g, status, out, e);
}

linnet_status gguf_open_memory(const void *data, size_t size, struct gguf **out, linnet_error *e)
{
    struct gguf *g = new_model(e);
    if (!g)
        return LINNET_NO_MEMORY;
    linnet_status status = reserve_part(g, e);
    if (status == LINNET_OK)
        status = add_part(g, "(memory)", (struct mapfile){data, size}, true, e);
    return finish(g, status, out, e);
}

void gguf_close(struct gguf *g)
{
    if (!g)
        return;
    drop_parts(g);
    free(g->parts);
    free(g);
}

/* ---- access ---- */

uint32_t gguf_version(const struct gguf *g)
{
    return g->parts[0].version;
}

uint64_t gguf_alignment(const struct gguf *g)
{
    return g->parts[0].alignment;
}

size_t gguf_n_parts(const struct gguf *g)
{
    return g->n_parts;
}

const char *gguf_part_path(const struct gguf *g, size_t part)
{
    return g->parts[part].path;
}

uint64_t gguf_file_size(const struct gguf *g)
{
    uint64_t size = 0;
    for (size_t i = 0; i < g->n_parts; i++)
        size += g->parts[i].map.size;
    return size;
}

size_t gguf_n_kv(const struct gguf *g)
{
    return g->parts[0].n_kv;
}

const struct gguf_kv *gguf_kv_at(const struct gguf *g, size_t i)
{
    return &g->parts[0].kv[i];
}

const struct gguf_kv *gguf_find(const struct gguf *g, const char *key)
{
    return gguf_part_find(&g->parts[0], key);
}

size_t gguf_n_tensors(const struct gguf *g)
{
    return g->n_tensors;
}

const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i)
{
    return &g->tensors[i];
}

const struct gguf_tensor *gguf_tensor_find(const struct gguf *g, const char *name)
{
    struct gguf_tensor wanted = {.name = name};
    const struct gguf_tensor *pointer = &wanted;
    const struct gguf_tensor **found =
        bsearch(&pointer, g->tensors_sort, g->n_tensors, sizeof *found, compare_tensors);
    return found ? *found : NULL;
}

void gguf_tensor_drop(const struct gguf *g, const struct gguf_tensor *t)
{
    const struct gguf_part *part = &g->parts[t->part];
    if (!part->borrowed)
        mapfile_drop(&part->map, t->offset, t->size);
}
