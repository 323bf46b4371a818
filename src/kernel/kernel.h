/*
 * Kernels: the hot loops, behind one table of function pointers per instruction set.
 *
 * The contract that makes results reproducible: every output element is computed in one fixed order
 * of operations that is written here, whatever the number of columns, rows, threads or the position
 * in a batch, and every instruction set computes the same operations in the same order. So all
 * tables give the same bits, and a fast kernel is tested against the plain one with memcmp.
 *
 *   - No contraction by the compiler (-ffp-contract=off); `fma` below is a fused multiply-add, one
 * rounding.
 *   - A reduction over n floats runs in 16 lanes: lane l takes elements l, l+16, l+32, ... in order
 * (missing ones count as the neutral element), then lanes are folded by halves: l with l+8, l+4,
 * l+2, l+1.
 *   - A product with quantised weights is exact in integers inside a group, then one
 *     fma per group in index order (see struct matmul).
 *   - exp, tanh, sigmoid and the like are polynomials of our own, the same operations in every
 * table.
 *
 * Matrices are seen in tiles of 16 rows: the unit of packing, of threading and of registers.
 */
#ifndef LINNET_KERNEL_KERNEL_H
#define LINNET_KERNEL_KERNEL_H

#include "quant/quant.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TILE = 16,      /* rows of a matrix tile */
    ACT_GROUP = 32, /* activations per quantisation scale */
    F32_PANEL = 64, /* columns summed before a float product's partial sum is added to the total */
    KV_PAGE = 64,   /* positions per KV page, and keys per step of the online softmax */
    KV_SPLIT = 512, /* positions whose attention is summed by itself, then merged in order */
    ATTN_MAX_DIM = 2048,         /* most values of a key or value row */
    KERNEL_SCRATCH = 512 * 1024, /* bytes of per-worker scratch every kernel may use, 64-aligned */
};

/* A weight matrix W [n_rows][n_cols], y = W x. Owned by the model. */
struct matrix {
    const struct quant_type *type;
    size_t n_rows, n_cols;
    const uint8_t *data; /* rows in file layout, `row_bytes` apart; NULL once packed and dropped */
    size_t row_bytes;
    const uint8_t
        *packed; /* [n_tiles] tiles of matrix_tile_bytes(), or NULL: then `data` is read */
    float scale; /* the product is multiplied by it (spec B3.17); 1 for most */
};

/* Bytes of one packed tile of 16 rows; 0 for types that cannot be weights. The packed form of a
 * matrix is never larger than its file form plus the padding of the last tile and of at most 63
 * bytes twice per tile. */
size_t matrix_tile_bytes(const struct quant_type *type, size_t n_cols);
/* Pack tiles [tile0, tile1) of m->data to dst (start of tile0), zero rows after n_rows. */
void matrix_pack(const struct matrix *m, uint8_t *dst, size_t tile0, size_t tile1);
/* Row `row` of either form as f32 [n_cols]: embedding lookups. Bit-exact with type->decode. */
void matrix_row(const struct matrix *m, size_t row, float *dst);
static inline size_t matrix_n_tiles(const struct matrix *m)
{
    return (m->n_rows + TILE - 1) / TILE;
}

/* Activations X [n_rows][width] prepared once for all products that read them. The memory is the
 * caller's: act_bytes(width) per row for the quantised part, 64-aligned. */
struct act {
    size_t n_rows, width;
    const float *x; /* [n_rows][x_stride] */
    size_t x_stride;
    uint8_t *quant; /* [n_rows][act_bytes(width)]; the layout is kernel/tile.h's */
};
size_t act_bytes(size_t width);

/*
 * One product: for each of `n` columns j, y[y_rows[j]] = scale * (W x[x_rows[j]]) (+ bias).
 *
 * Order, quantised weights: acc = 0; for each group g of the weight type in index order, with s =
 * sum over the group of w_q * x_q (exact, int32), d = the activation scale of the 32-block that g
 * lies in:
 *     acc = fma((float)s * d, w_scale[g], acc)
 * and, for types with minima, then
 *     acc = fma(-(float)(sum of x_q over the group) * d, w_min[g], acc).
 * Order, f32/f16/bf16 weights: for each panel of F32_PANEL columns p = 0; p = fma(w[k], x[k], p)
 * for k in order; acc = acc + p. Then y = acc * scale (only when scale != 1) + bias (only when bias
 * != NULL).
 */
struct matmul {
    const struct matrix *w;
    const struct act *x;
    const int32_t *x_rows; /* [n] row of x per column, or NULL: j */
    const int32_t *y_rows; /* [n] row of y per column, or NULL: j */
    size_t n;
    float *y; /* [..][y_stride] */
    size_t y_stride;
    const float *bias; /* [n_rows] or NULL */
};

/* How keys and values are stored. */
enum kv_type { KV_F32, KV_F16, KV_BF16, KV_Q8_0, KV_TYPE_COUNT };
/* Bytes of a row of n values; 0 when n does not suit the type (q8_0: whole blocks of 32). */
size_t kv_row_bytes(enum kv_type type, size_t n);

/*
 * Interleaved keys of one head in a page: KV_PAGE rows' bytes in all. Per 16 keys, one block of 16
 * rows' bytes: with q8_0 the f16 scales [n / 32][16] first; then the values [n][16] (f32, f16, bf16
 * or int8). So 16 scores are computed in the lanes of a vector without a sum over lanes. Put writes
 * key i of the page from a row as kv_store() makes it, get is the inverse.
 */
void kv_key_put(enum kv_type type, const uint8_t *row, uint8_t *keys, size_t i, size_t n);
void kv_key_get(enum kv_type type, const uint8_t *keys, size_t i, uint8_t *row, size_t n);

/*
 * Attention of n_q queries over one KV head. Query i sees keys first[i]..last[i] (inclusive; first
 * > last is not allowed). Keys lie in pages of KV_PAGE positions: position p is key p % KV_PAGE of
 * page p / KV_PAGE. score = dot(q, k) * scale; softcap > 0: score = softcap * tanh(score /
 * softcap). Softmax is online, page by page in splits of KV_SPLIT positions that are merged in
 * order (kernel/attention.h has the order of operations); a query's result does not depend on the
 * others of the job, nor on whether its splits were computed by one job or by several. sinks[i] (or
 * NULL) is one more score without a value, taken in last.
 */
struct attn_job {
    size_t n_q;
    const float *const *q;       /* [n_q] -> [d_k] */
    float *const *out;           /* [n_q] -> [d_v]; of a part [d_v + 2] */
    const int32_t *first, *last; /* [n_q] */
    size_t d_k, d_v;
    enum kv_type k_type, v_type;
    const uint8_t *const *pages; /* [page] */
    size_t k_off,
        v_off; /* this head's keys are at page + k_off, interleaved, or, with k_rows, in */
    size_t k_stride, v_stride; /* rows k_stride bytes apart; values at page + v_off, in rows. Rows
                                  may be the same bytes (MLA: values are a prefix of keys) */
    bool k_rows;
    bool part; /* all queries see keys of one and the same split only: out is what it brings, for
                  attn_merge() */
    float scale, softcap;
    const float *sinks; /* [n_q] or NULL; not for parts */
};

/* The result of one query from the parts of all splits it sees, ascending. */
struct attn_merge {
    size_t n, d_v, stride; /* floats from part to part */
    const float *parts;    /* [n][stride] */
    float *out;            /* [d_v] */
    const float *sink;     /* [1] or NULL */
};

/*
 * The gated delta rule of one head over `n` consecutive positions and n_cols of its value columns,
 * in the step form:
 *     S = (I - beta k k^T) Diag(a) S + beta k v^T;  o = scale * S^T q
 * (Gated Delta Networks, arXiv 2412.06464, eq. 10, with one decay a head; Kimi Linear, arXiv
 * 2510.26692, eq. 1, with one a row). Columns do not depend on each other. The order of operations
 * is in kernel/delta.h.
 */
struct delta_job {
    size_t n, d_k, n_cols;
    const float *q, *k,
        *v; /* [d_k], [d_k], [n_cols] of the first position; the next ones x_stride floats apart */
    size_t x_stride;
    const float *decay; /* [1], or [d_k] with decay_each, in (0, 1] */
    size_t decay_stride;
    bool decay_each;
    const float *beta; /* [1] */
    size_t beta_stride;
    float *o; /* [n_cols] */
    size_t o_stride;
    float scale;
    float *state; /* [d_k][n_cols rounded up to TILE]; columns after n_cols are 0 and stay 0 */
};

/*
 * A causal depthwise convolution over `n` consecutive positions of `width` channels: acc = bias, or
 * 0 without one; acc = fma(weight[j], x[p - n_taps + 1 + j], acc) for j in order; y = acc, or
 * silu(acc). What lies before the first position is in `state`, which is left holding the last
 * n_taps - 1 inputs. y is no part of x.
 */
struct conv_job {
    size_t n, width, n_taps;
    const float *x; /* [n][width], x_stride floats apart, and so on */
    size_t x_stride;
    float *y;
    size_t y_stride;
    const float *weight; /* [n_taps][width] */
    size_t weight_stride;
    const float *bias; /* [width] or NULL */
    float *state;      /* [n_taps - 1][width], oldest first */
    size_t state_stride;
    bool silu;
};

/* One token's vectors [m] for a head of the delta rule of RWKV-7: what is looked for in the state
 * and then taken out of it, how the state decays, what is put in, what is read. */
struct wkv_row {
    const float *seek, *drop, *decay, *key, *read;
};

struct kernels {
    const char *name; /* "generic", "avx2", "avx512", "avx512vnni", "neon", "dotprod" */
    bool (*supported)(void);

    /* Fill quant of rows [row0, row1): per 32 values d = max|x| / 127, q = round to nearest even of
     * x * (1/d) (d == 0: all 0). Non-finite input gives d = NaN, so that it is seen in the
     * product. */
    void (*quantise)(const struct act *a, size_t row0, size_t row1);
    /* Tiles [tile0, tile1) of a product. `scratch` is KERNEL_SCRATCH bytes of this worker's own. */
    void (*matmul)(const struct matmul *job, size_t tile0, size_t tile1, void *scratch);

    /* y = x / sqrt(mean(x^2) + eps) * w; w may be NULL. y may be x. */
    void (*rms_norm)(float *y, const float *x, const float *w, size_t n, float eps);
    /* y = (x - mean) / sqrt(var + eps) * w + b; w, b may be NULL. */
    void (*layer_norm)(float *y, const float *x, const float *w, const float *b, size_t n,
                       float eps);
    /* y = x / sqrt(sum(x^2) + eps) */
    void (*l2_norm)(float *y, const float *x, size_t n, float eps);
    void (*softmax)(float *x, size_t n); /* in place, maximum subtracted */
    float (*dot)(const float *a, const float *b, size_t n);
    float (*sum)(const float *a, size_t n);
    float (*max)(const float *a, size_t n);
    void (*add)(float *y, const float *a, const float *b, size_t n);
    void (*mul)(float *y, const float *a, const float *b, size_t n);
    void (*scale)(float *y, const float *a, float s, size_t n);
    void (*axpy)(float *y, float s, const float *x, size_t n);      /* y = fma(s, x, y) */
    void (*softcap)(float *y, const float *x, float cap, size_t n); /* cap * tanh(x / cap) */
    void (*lerp)(float *y, const float *a, const float *b, const float *w,
                 size_t n); /* y = fma(b - a, w, a) */
    /* elementwise; y may be x */
    void (*silu)(float *y, const float *x, size_t n);
    void (*gelu)(float *y, const float *x, size_t n);     /* tanh form */
    void (*gelu_erf)(float *y, const float *x, size_t n); /* exact form */
    void (*relu2)(float *y, const float *x, size_t n);    /* max(x, 0)^2 */
    void (*sigmoid)(float *y, const float *x, size_t n);
    void (*softplus)(float *y, const float *x, size_t n); /* x > 20 ? x : log1p(exp(x)) */
    void (*exp)(float *y, const float *x, size_t n);
    void (*tanh)(float *y, const float *x, size_t n);
    /* y = act(gate) * up */
    void (*silu_mul)(float *y, const float *gate, const float *up, size_t n);
    void (*gelu_mul)(float *y, const float *gate, const float *up, size_t n);
    /* Rotate the first n_rot of x in place: pairs (2i, 2i+1), or with neox (i, i + n_rot/2); cos
     * and sin are [n_rot/2]. (a, b) -> (a*c - b*s, a*s + b*c) as fma(a, c, -(b*s)), fma(a, s,
     * b*c). */
    void (*rope)(float *x, const float *cos, const float *sin, size_t n_rot, bool neox);

    void (*kv_store)(enum kv_type type, const float *x, uint8_t *dst, size_t n);
    void (*kv_load)(enum kv_type type, const uint8_t *src, float *x, size_t n);
    void (*attention)(const struct attn_job *job, void *scratch);
    void (*attn_merge)(const struct attn_merge *job);
    void (*delta)(const struct delta_job *job);
    void (*conv)(const struct conv_job *job);

    /* Recurrences, one token each, over a state s [m][n] in place; y [n] is what is read from it.
     * Sums over j = 0..m-1 start at 0 and run in that order; columns do not see each other. scan:
     * s[j] = fma(b[j], x, decay * s[j]); y = sum of fma(c[j], s[j], .) scan_each: the same with the
     * decay exp(dt * a[j]) of each element; a [m][n], dt [n]. */
    void (*scan)(float *s, float *y, const float *x, float decay, const float *b, const float *c,
                 size_t m, size_t n);
    void (*scan_each)(float *s, float *y, const float *x, const float *dt, const float *a,
                      const float *b, const float *c, size_t m, size_t n);
    /* t = sum of fma(seek[j], s[j], .); s[j] = fma(key[j], value, fma(-drop[j], t, decay[j] *
     * s[j])); y = sum of fma(read[j], s[j], .); value [n] */
    void (*wkv)(float *s, float *y, const struct wkv_row *t, const float *value, size_t m,
                size_t n);

    /* The limits of the machine, for measurements beside which a speed can be judged. Integer and
     * float multiply-adds in registers, the fastest this table uses; bytes read from memory, size a
     * multiple of
     * 512. Each returns what was done: operations (a multiply-add is two), operations, bytes. */
    uint64_t (*spin_int8)(uint64_t rounds);
    uint64_t (*spin_f32)(uint64_t rounds);
    uint64_t (*spin_read)(const void *p, size_t size);
};

/* The fastest table this machine supports; or by name, NULL when unknown or not supported here. */
const struct kernels *kernels_best(void);
const struct kernels *kernels_named(const char *name);
/* All tables compiled in, best first; entries may be unsupported on this machine. */
size_t kernels_count(void);
const struct kernels *kernels_at(size_t i);

#endif
