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
    SPAN = 256,     /* columns that are unpacked at once; no block is larger */
    ACT_PAD = SPAN, /* activation rows are padded with zeros to whole spans */
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

/* The quantised form of activation row r: q int8 [pad], d float [pad / 32], sum16 int16 [pad /
 * 16]. */
static inline size_t act_pad(size_t width)
{
    return round_up(width, ACT_PAD);
}

static inline const int8_t *act_q(const struct act *a, size_t r)
{
    return (const int8_t *)a->quant + r * act_bytes(a->width);
}

static inline const float *act_d(const struct act *a, size_t r)
{
    return (const float *)(const void *)(act_q(a, r) + act_pad(a->width));
}

static inline const int16_t *act_sum16(const struct act *a, size_t r)
{
    return (const int16_t *)(const void *)(act_q(a, r) + act_pad(a->width) / 8 * 9);
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

/* The end of a product: acc * scale + bias for rows [row0, row0 + TILE) that exist. */
static inline void matmul_finish(const struct matmul *job, size_t row0, size_t j,
                                 const float acc[TILE])
{
    const struct matrix *w = job->w;
    const size_t n = w->n_rows - row0 < TILE ? w->n_rows - row0 : TILE;
    float *y = job->y + matmul_y_row(job, j) * job->y_stride + row0;
    for (size_t r = 0; r < n; r++) {
        float v = acc[r];
        if (w->scale != 1.0f)
            v = v * w->scale;
        if (job->bias)
            v = v + job->bias[row0 + r];
        y[r] = v;
    }
}

extern const struct kernels kernels_generic;
#if defined(__x86_64__)
extern const struct kernels kernels_avx2, kernels_avx512, kernels_avx512vnni;
#elif defined(__aarch64__)
extern const struct kernels kernels_neon, kernels_dotprod;
#endif

#endif
