/*
 * Packed matrices: the layout of a tile (tile.h), writing it, and reading rows back from either
 * form.
 *
 * A packed tile is never larger than the same rows in the file, but for two roundings up to 64
 * bytes (heads of the last run and end of the tile, so that every vector load is aligned). Also the
 * sizes of activation rows and of KV rows, which belong to no instruction set.
 */
#include "kernel/tile.h"

size_t act_bytes(size_t width)
{
    return act_spans(width) * sizeof(struct act_span);
}

size_t kv_row_bytes(enum kv_type type, size_t n)
{
    switch (type) {
    case KV_F32: return n * 4;
    case KV_F16:
    case KV_BF16: return n * 2;
    case KV_Q8_0: return n % 32 == 0 ? n / 32 * 34 : 0;
    default: return 0;
    }
}

/* Bytes of a value; and of 16 keys' scales before the values. */
static size_t key_size(enum kv_type type)
{
    return type == KV_F32 ? 4 : type == KV_Q8_0 ? 1 : 2;
}

/* Where value d of key i is, from the start of the head's keys; for q8_0 also its scale. */
static size_t key_at(enum kv_type type, size_t i, size_t d, size_t n)
{
    const size_t block = i / TILE * TILE * kv_row_bytes(type, n), scales = type == KV_Q8_0 ? n : 0;
    return block + scales + (d * TILE + i % TILE) * key_size(type);
}

static size_t key_scale_at(size_t i, size_t d, size_t n)
{
    return i / TILE * TILE * kv_row_bytes(KV_Q8_0, n) + (d / 32 * TILE + i % TILE) * 2;
}

void kv_key_put(enum kv_type type, const uint8_t *row, uint8_t *keys, size_t i, size_t n)
{
    const size_t size = key_size(type);
    uint8_t *to = keys + key_at(type, i, 0, n);
    if (type == KV_Q8_0)
        for (size_t d = 0; d < n; d++) {
            const uint8_t *block = row + d / 32 * 34;
            if (d % 32 == 0)
                memcpy(keys + key_scale_at(i, d, n), block, 2);
            to[d * TILE] = block[2 + d % 32];
        }
    else if (size == 2)
        for (size_t d = 0; d < n; d++)
            memcpy(to + d * TILE * 2, row + d * 2, 2);
    else
        for (size_t d = 0; d < n; d++)
            memcpy(to + d * TILE * 4, row + d * 4, 4);
}

void kv_key_get(enum kv_type type, const uint8_t *keys, size_t i, uint8_t *row, size_t n)
{
    const size_t size = key_size(type);
    for (size_t d = 0; d < n; d++) {
        const uint8_t *from = keys + key_at(type, i, d, n);
        if (type != KV_Q8_0) {
            memcpy(row + d * size, from, size);
            continue;
        }
        if (d % 32 == 0)
            memcpy(row + d / 32 * 34, keys + key_scale_at(i, d, n), 2);
        row[d / 32 * 34 + 2 + d % 32] = *from;
    }
}

/* Types whose odd bytes are at the end of the block; all others have them at its start. */
static bool head_is_last(uint32_t id)
{
    return id == QUANT_Q6_K || id == QUANT_Q3_K || id == QUANT_TQ1_0 || id == QUANT_TQ2_0;
}

/* q2_K: d, scales, pairs. */
static const uint8_t place_q2_k[21] = {
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 0,
};

/* q3_K: scales, then per quad the first unit of pairs and the one of third bits, then the other
 * pairs. */
static const uint8_t place_q3_k[27] = {
    4, 6, 8, 10, 12, 14, 16, 18,                                 /* third bits */
    3, 5, 7, 9,  11, 13, 15, 17, 19, 20, 21, 22, 23, 24, 25, 26, /* pairs */
    0, 1, 2,                                                     /* scales */
};

/* q5_K: d and scales, then each of 8 units of fifth bits before the first unit of nibbles it goes
 * with. */
static const uint8_t place_q5_k[44] = {
    0,  1,  2,  3,  4,  6,  8,  10, 12, 14, 16, 18, 5,  7,  9,  11, 13, 15, 17, 19, 20, 21,
    22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43,
};

/* q6_K: scales, then per quad of a half the two units of nibbles and the one of pairs. */
static const uint8_t place_q6_k[52] = {
    4,  7,  10, 13, 16, 19, 22, 25, 5,  8,  11, 14, 17, 20, 23, 26, /* nibbles, first half */
    28, 31, 34, 37, 40, 43, 46, 49, 29, 32, 35, 38, 41, 44, 47, 50, /* second half */
    6,  9,  12, 15, 18, 21, 24, 27, 30, 33, 36, 39, 42, 45, 48, 51, /* pairs */
    0,  1,  2,  3,                                                  /* scales */
};

static const uint8_t *place_of(uint32_t id)
{
    switch (id) {
    case QUANT_Q2_K: return place_q2_k;
    case QUANT_Q3_K: return place_q3_k;
    case QUANT_Q5_K: return place_q5_k;
    case QUANT_Q6_K: return place_q6_k;
    default: return NULL;
    }
}

struct tile_layout tile_layout(const struct quant_type *type, size_t n_cols)
{
    struct tile_layout l = {.n_blocks = n_cols / type->block};
    l.unit = type->block_bytes % 4 && type->block == 1 ? 2 : 4;
    l.head = type->block_bytes % l.unit;
    l.head_at = head_is_last(type->id) ? type->block_bytes - l.head : 0;
    l.units = type->block_bytes / l.unit;
    l.run = SPAN / type->block;
    while (l.run * TILE * l.head % 64 != 0)
        l.run *= 2;
    l.run_bytes = l.run * TILE * type->block_bytes;
    l.bytes =
        l.n_blocks ? round_up(tile_body(&l, l.n_blocks - 1) + l.units * TILE * l.unit, 64) : 0;
    l.place = place_of(type->id);
    return l;
}

size_t matrix_tile_bytes(const struct quant_type *type, size_t n_cols)
{
    return type->weight ? tile_layout(type, n_cols).bytes : 0;
}

/* `units` units of a row to its lane and back; src and dst are at the row's first unit. */
static void spread(const struct tile_layout *l, uint8_t *dst, const uint8_t *src, size_t units)
{
    if (l->place)
        for (size_t u = 0; u < units; u++)
            memcpy(dst + l->place[u] * 4 * TILE, src + u * 4, 4);
    else if (l->unit == 4)
        for (size_t u = 0; u < units; u++)
            memcpy(dst + u * 4 * TILE, src + u * 4, 4);
    else
        for (size_t u = 0; u < units; u++)
            memcpy(dst + u * 2 * TILE, src + u * 2, 2);
}

static void collect(const struct tile_layout *l, uint8_t *dst, const uint8_t *src, size_t units)
{
    for (size_t u = 0; u < units; u++)
        memcpy(dst + u * l->unit, src + (l->place ? l->place[u] : u) * l->unit * TILE, l->unit);
}

static void clear_lane(const struct tile_layout *l, uint8_t *dst, size_t units)
{
    for (size_t u = 0; u < units; u++)
        memset(dst + u * l->unit * TILE, 0, l->unit);
}

/* Blocks [b, b + n) of row r, which is not in the matrix when src is NULL. */
static void pack_row(const struct tile_layout *l, const uint8_t *src, size_t n, uint8_t *dst,
                     size_t b, size_t r)
{
    const size_t gap = l->head_at == 0 ? l->head : 0, block_bytes = l->head + l->units * l->unit;
    size_t units = l->units;
    if (l->head == 0 && !l->place) { /* blocks follow each other without a seam */
        units *= n;
        n = n > 0;
    }
    for (size_t i = 0; i < n; i++) {
        uint8_t *head = dst + tile_head(l, b + i) + r * l->head;
        uint8_t *body = dst + tile_body(l, b + i) + r * l->unit;
        if (!src) {
            memset(head, 0, l->head);
            clear_lane(l, body, units);
            continue;
        }
        memcpy(head, src + i * block_bytes + l->head_at, l->head);
        spread(l, body, src + i * block_bytes + gap, units);
    }
}

void tile_pack(const struct matrix *m, const struct tile_layout *to, size_t tile, size_t b0,
               size_t n, uint8_t *dst, size_t at)
{
    /* A span at a time, so that what is written stays in the first-level cache until all rows are
     * in. */
    const size_t run = SPAN / m->type->block;
    for (size_t b = 0; b < n; b += run) {
        const size_t count = n - b < run ? n - b : run;
        for (size_t r = 0; r < TILE; r++) {
            const size_t row = tile * TILE + r;
            const uint8_t *src = NULL;
            if (row < m->n_rows)
                src = m->data + row * m->row_bytes + (b0 + b) * m->type->block_bytes;
            pack_row(to, src, count, dst, at + b, r);
        }
    }
}

/* The zeros after the heads of the last run and after the last body. */
static void pad_tile(const struct tile_layout *l, uint8_t *tile)
{
    const size_t last = l->n_blocks - 1, first = last / l->run * l->run;
    const size_t heads = tile_head(l, last) + TILE * l->head, bodies = tile_body(l, first);
    memset(tile + heads, 0, bodies - heads);
    const size_t end = tile_body(l, last) + l->units * TILE * l->unit;
    memset(tile + end, 0, l->bytes - end);
}

void matrix_pack(const struct matrix *m, uint8_t *dst, size_t tile0, size_t tile1)
{
    const struct tile_layout l = tile_layout(m->type, m->n_cols);
    if (l.n_blocks == 0)
        return;
    for (size_t t = tile0; t < tile1; t++, dst += l.bytes) {
        tile_pack(m, &l, t, 0, l.n_blocks, dst, 0);
        pad_tile(&l, dst);
    }
}

void tile_blocks(const struct tile_layout *l, const uint8_t *tile, size_t r, size_t b, size_t n,
                 uint8_t *dst)
{
    const size_t gap = l->head_at == 0 ? l->head : 0, block_bytes = l->head + l->units * l->unit;
    size_t units = l->units;
    if (l->head == 0 && !l->place) {
        units *= n;
        n = n > 0;
    }
    for (size_t i = 0; i < n; i++, dst += block_bytes) {
        memcpy(dst + l->head_at, tile + tile_head(l, b + i) + r * l->head, l->head);
        collect(l, dst + gap, tile + tile_body(l, b + i) + r * l->unit, units);
    }
}

void matrix_row(const struct matrix *m, size_t row, float *dst)
{
    if (!m->packed) {
        m->type->decode(m->data + row * m->row_bytes, dst, m->n_cols);
        return;
    }
    const struct tile_layout l = tile_layout(m->type, m->n_cols);
    const uint8_t *tile = m->packed + row / TILE * l.bytes;
    const size_t run = SPAN / m->type->block;
    uint8_t blocks[SPAN * 4];
    for (size_t b = 0; b < l.n_blocks; b += run) {
        const size_t n = l.n_blocks - b < run ? l.n_blocks - b : run;
        tile_blocks(&l, tile, row % TILE, b, n, blocks);
        m->type->decode(blocks, dst + b * m->type->block, n * m->type->block);
    }
}
