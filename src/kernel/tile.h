/*
 * Memory layouts that only kernels see: packed weight tiles and quantised activation rows.
 *
 * A packed tile holds TILE rows of a matrix. Each file block of a row is cut in two: `head` bytes
 * (what is left of its size modulo 4: the f16 scale of most types, one byte for MXFP4) and a body
 * of whole 4-byte units. The tile is a sequence of runs of blocks, each
 *
 *     heads   [blocks][TILE][head bytes]          then zeros up to a multiple of 64 bytes
 *     bodies  [blocks][units][TILE][unit bytes]
 *
 * and ends with zeros up to a multiple of 64 bytes. One 64-byte load takes the same 4 bytes of all
 * 16 rows: 4 consecutive int8, or 4 pairs of nibbles that belong to two runs of 4 elements, which
 * is what a 4-way integer dot instruction wants. f16 and bf16 have units of 2 bytes. Units are in
 * the order in which kernels read them, so that a pass over a tile is one ascending stream: that is
 * what the prefetchers of processors follow, and worth a factor of two to three in reading speed
 * against two or three streams.
 *
 * Nothing is converted: the packed form has the size of the file form, one packer serves every
 * type, and a row is found again by reading it back.
 */
#ifndef LINNET_KERNEL_TILE_H
#define LINNET_KERNEL_TILE_H

#include "kernel/kernel.h"

#include <string.h>

enum {
    SPAN = 256, /* columns that are unpacked at once; no block is larger */
};

struct tile_layout {
    size_t n_blocks; /* per row */
    size_t head;     /* head bytes per block: 0..3 */
    size_t head_at;  /* where they lie in the file's block */
    size_t unit;     /* bytes per interleaved unit: 2 or 4 */
    size_t units;    /* per block */
    size_t run;      /* blocks per run; a span never crosses the end of one */
    size_t run_bytes;
    size_t bytes;         /* of a tile */
    const uint8_t *place; /* [units] where a block's units go, or NULL: in order */
};

struct tile_layout tile_layout(const struct quant_type *type, size_t n_cols);

/* Blocks [b0, b0 + n) of one tile from rows in file layout: `dst` is a tile of `to`, where they
 * become blocks [at, at + n). Rows after n_rows are zero. */
void tile_pack(const struct matrix *m, const struct tile_layout *to, size_t tile, size_t b0,
               size_t n, uint8_t *dst, size_t at);

/* Blocks [b, b + n) of row r of a packed tile, in file layout. */
void tile_blocks(const struct tile_layout *l, const uint8_t *tile, size_t r, size_t b, size_t n,
                 uint8_t *dst);

static inline size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

/* Offsets of the head and of the body of block b. */
static inline size_t tile_head(const struct tile_layout *l, size_t b)
{
    return b / l->run * l->run_bytes + b % l->run * TILE * l->head;
}

static inline size_t tile_body(const struct tile_layout *l, size_t b)
{
    const size_t run = b / l->run, left = l->n_blocks - run * l->run;
    const size_t heads = round_up((left < l->run ? left : l->run) * TILE * l->head, 64);
    return run * l->run_bytes + heads + b % l->run * l->units * TILE * l->unit;
}

/* The quantised form of activations is rows of such spans: all that a product reads for a span of W
 * in one place, 5 cache lines in a row. */
struct act_span {
    int8_t q[SPAN];            /* the last span of a row ends with zeros */
    float d[SPAN / ACT_GROUP]; /* scales */
    int16_t sum16[SPAN / 16];  /* sums of 16 consecutive q */
};
_Static_assert(sizeof(struct act_span) == 320, "nothing between the arrays");

static inline size_t act_spans(size_t width)
{
    return (width + SPAN - 1) / SPAN;
}

static inline struct act_span *act_row(const struct act *a, size_t r)
{
    return (struct act_span *)(void *)a->quant + r * act_spans(a->width);
}

/* Rows that column j of a product reads and writes. */
static inline size_t matmul_x_row(const struct matmul *job, size_t j)
{
    return job->x_rows ? (size_t)job->x_rows[j] : j;
}

static inline size_t matmul_y_row(const struct matmul *job, size_t j)
{
    return job->y_rows ? (size_t)job->y_rows[j] : j;
}

extern const struct kernels kernels_generic;
#if defined(__x86_64__)
extern const struct kernels kernels_avx2, kernels_avx512, kernels_avx512vnni;
#elif defined(__aarch64__)
extern const struct kernels kernels_neon, kernels_dotprod;
#endif

#endif
