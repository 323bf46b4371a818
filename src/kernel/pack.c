/*
 * Packed matrices: the layout of a tile (tile.h), writing it, and reading rows back from either form.
 *
 * A packed tile is never larger than the same rows in the file, but for two roundings up to 64 bytes (head
 * and body of each tile, so that every vector load is aligned). Also the sizes of activation rows and of KV
 * rows, which belong to no instruction set.
 */
#include "kernel/tile.h"

size_t act_bytes(size_t width)
{
    const size_t pad = act_pad(width);
    return pad + pad / 32 * sizeof(float) + pad / 16 * sizeof(int16_t);
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

/* Types whose odd bytes are at the end of the block; all others have them at its start. */
static bool head_is_last(uint32_t id)
{
    return id == QUANT_Q6_K || id == QUANT_Q3_K || id == QUANT_TQ1_0 || id == QUANT_TQ2_0;
}

struct tile_layout tile_layout(const struct quant_type *type, size_t n_cols)
{
    struct tile_layout l = {.n_blocks = n_cols / type->block};
    l.unit = type->block_bytes % 4 && type->block == 1 ? 2 : 4;
    l.head = type->block_bytes % l.unit;
    l.head_at = head_is_last(type->id) ? type->block_bytes - l.head : 0;
    l.units = type->block_bytes / l.unit;
    l.body = round_up(l.n_blocks * TILE * l.head, 64);
    l.bytes = l.body + round_up(l.n_blocks * l.units * TILE * l.unit, 64);
    return l;
}

size_t matrix_tile_bytes(const struct quant_type *type, size_t n_cols)
{
    return type->weight ? tile_layout(type, n_cols).bytes : 0;
}

/* Where block b of a packed tile has its body. */
static size_t body_at(const struct tile_layout *l, size_t b)
{
    return l->body + b * l->units * TILE * l->unit;
}

/* `units` units of one row to its lane, or from it; src and dst are at the row's first unit. */
static void spread(uint8_t *dst, const uint8_t *src, size_t units, size_t unit)
{
    if (unit == 4)
        for (size_t u = 0; u < units; u++)
            memcpy(dst + u * 4 * TILE, src + u * 4, 4);
    else
        for (size_t u = 0; u < units; u++)
            memcpy(dst + u * 2 * TILE, src + u * 2, 2);
}

static void collect(uint8_t *dst, const uint8_t *src, size_t units, size_t unit)
{
    for (size_t u = 0; u < units; u++)
        memcpy(dst + u * unit, src + u * unit * TILE, unit);
}

static void clear_lane(uint8_t *dst, size_t units, size_t unit)
{
    for (size_t u = 0; u < units; u++)
        memset(dst + u * unit * TILE, 0, unit);
}

/* Blocks [b, b + n) of row r, which is not in the matrix when src is NULL. */
static void pack_row(const struct tile_layout *l, const uint8_t *src, size_t n, uint8_t *dst, size_t b,
                     size_t r)
{
    const size_t gap = l->head_at == 0 ? l->head : 0, block_bytes = l->head + l->units * l->unit;
    size_t units = l->units;
    if (l->head == 0) { /* blocks follow each other without a seam */
        units *= n;
        n = n > 0;
    }
    for (size_t i = 0; i < n; i++) {
        uint8_t *head = dst + ((b + i) * TILE + r) * l->head;
        uint8_t *body = dst + body_at(l, b + i) + r * l->unit;
        if (!src) {
            memset(head, 0, l->head);
            clear_lane(body, units, l->unit);
            continue;
        }
        memcpy(head, src + i * block_bytes + l->head_at, l->head);
        spread(body, src + i * block_bytes + gap, units, l->unit);
    }
}

void tile_pack(const struct matrix *m, const struct tile_layout *to, size_t tile, size_t b0, size_t n,
               uint8_t *dst, size_t at)
{
    /* A span at a time, so that what is written stays in the first-level cache until all rows are in. */
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

void matrix_pack(const struct matrix *m, uint8_t *dst, size_t tile0, size_t tile1)
{
    const struct tile_layout l = tile_layout(m->type, m->n_cols);
    const size_t head = l.n_blocks * TILE * l.head, body = body_at(&l, l.n_blocks);
    for (size_t t = tile0; t < tile1; t++, dst += l.bytes) {
        tile_pack(m, &l, t, 0, l.n_blocks, dst, 0);
        memset(dst + head, 0, l.body - head);
        memset(dst + body, 0, l.bytes - body);
    }
}

void tile_blocks(const struct tile_layout *l, const uint8_t *tile, size_t r, size_t b, size_t n,
                 uint8_t *dst)
{
    const size_t gap = l->head_at == 0 ? l->head : 0, block_bytes = l->head + l->units * l->unit;
    size_t units = l->units;
    if (l->head == 0) {
        units *= n;
        n = n > 0;
    }
    for (size_t i = 0; i < n; i++, dst += block_bytes) {
        memcpy(dst + l->head_at, tile + ((b + i) * TILE + r) * l->head, l->head);
        collect(dst + gap, tile + body_at(l, b + i) + r * l->unit, units, l->unit);
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
