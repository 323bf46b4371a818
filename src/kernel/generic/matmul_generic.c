/*
 * Matrix products in plain C: the contract of kernel.h written down, for every weight type and both
 * forms of a matrix. The fast kernels are tested against this one bit by bit, so it is kept simple.
 */
#include "kernel/generic/generic.h"

#include <math.h>

enum { CHUNK = 4096 }; /* columns whose totals are kept at once */

struct row {
    const struct matrix *w;
    struct tile_layout layout;
    size_t index;
};

/* Blocks [b, b + n) of the row in file layout: a pointer into the matrix, or into `copy`. */
static const uint8_t *row_blocks(const struct row *r, size_t b, size_t n, uint8_t *copy)
{
    if (!r->w->packed)
        return r->w->data + r->index * r->w->row_bytes + b * r->w->type->block_bytes;
    const uint8_t *tile = r->w->packed + r->index / TILE * r->layout.bytes;
    tile_blocks(&r->layout, tile, r->index % TILE, b, n, copy);
    return copy;
}

static void row_float(const struct matmul *job, const struct row *r, size_t j0, size_t n,
                      float *acc)
{
    const size_t n_cols = r->w->n_cols;
    float w[F32_PANEL];
    uint8_t copy[F32_PANEL * 4];
    for (size_t k0 = 0; k0 < n_cols; k0 += F32_PANEL) {
        const size_t len = n_cols - k0 < F32_PANEL ? n_cols - k0 : F32_PANEL;
        r->w->type->decode(row_blocks(r, k0, len, copy), w, len);
        for (size_t j = 0; j < n; j++) {
            const float *x = job->x->x + matmul_x_row(job, j0 + j) * job->x->x_stride + k0;
            float p = 0.0f;
            for (size_t k = 0; k < len; k++)
                p = fmaf(w[k], x[k], p);
            acc[j] = acc[j] + p;
        }
    }
}

static void row_quantised(const struct matmul *job, const struct row *r, size_t j0, size_t n,
                          float *acc)
{
    const struct quant_type *type = r->w->type;
    const size_t group = type->group;
    int8_t q[SPAN];
    float scale[SPAN / 16], min[SPAN / 16];
    uint8_t copy[SPAN * 2];
    for (size_t b = 0; b < r->layout.n_blocks; b++) {
        type->unpack(row_blocks(r, b, 1, copy), q, scale, min);
        for (size_t j = 0; j < n; j++) {
            const size_t x_row = matmul_x_row(job, j0 + j);
            for (size_t g = 0; g < type->block / group; g++) {
                const size_t k0 = b * type->block + g * group;
                const struct act_span *span = act_row(job->x, x_row) + k0 / SPAN;
                const int8_t *x = span->q + k0 % SPAN, *w = q + g * group;
                const float d = span->d[k0 % SPAN / ACT_GROUP];
                int32_t s = 0, sum = 0;
                for (size_t i = 0; i < group; i++) {
                    s += w[i] * x[i];
                    sum += x[i];
                }
                acc[j] = fmaf((float)s * d, scale[g], acc[j]);
                if (type->has_min)
                    acc[j] = fmaf(-(float)sum * d, min[g], acc[j]);
            }
        }
    }
}

void matmul_generic(const struct matmul *job, size_t tile0, size_t tile1, void *scratch)
{
    const struct matrix *w = job->w;
    struct row r = {.w = w, .layout = tile_layout(w->type, w->n_cols)};
    const size_t end = tile1 * TILE < w->n_rows ? tile1 * TILE : w->n_rows;
    float *acc = scratch;
    for (r.index = tile0 * TILE; r.index < end; r.index++) {
        for (size_t j0 = 0; j0 < job->n; j0 += CHUNK) {
            const size_t n = job->n - j0 < CHUNK ? job->n - j0 : CHUNK;
            for (size_t j = 0; j < n; j++)
                acc[j] = 0.0f;
            if (w->type->group)
                row_quantised(job, &r, j0, n, acc);
            else
                row_float(job, &r, j0, n, acc);
            for (size_t j = 0; j < n; j++) {
                float v = acc[j];
                if (w->scale != 1.0f)
                    v = v * w->scale;
                if (job->bias)
                    v = v + job->bias[r.index];
                job->y[matmul_y_row(job, j0 + j) * job->y_stride + r.index] = v;
            }
        }
    }
}

uint64_t spin_generic(uint64_t rounds)
{
    enum { N = 256 };
    int8_t w[N], x[N];
    int32_t sum = 0;
    for (int i = 0; i < N; i++)
        w[i] = x[i] = (int8_t)i;
    for (uint64_t r = 0; r < rounds / 16; r++) {
        w[r % N]++;
        for (int i = 0; i < N; i++)
            sum += w[i] * x[i];
    }
    return rounds / 16 * N * 2 + (sum == 12345);
}
