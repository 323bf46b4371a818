/*
 * Matrix products in vector operations, for a file that has included a vec_*.h and defines
 *
 *     BLOCK               columns of X that a product keeps in registers
 *     PAIR                tiles of W that it keeps there side by side: 1 or 2
 *     EIGHT_BITS          bias of types with eight bits: 128; 0 when dot_bytes takes signed bytes
 *     x4, x4_set(bytes)   four int8 of X, given as an int32, in the form that products take
 *     dot_bytes(sum, w, q)
 *                         sum += four products of bytes per lane, exactly
 *
 * or, where there is no such operation, PAIRS and in its place
 *
 *     pair_products(w, q, eight)
 *                         per 16 bits the sum of two products of bytes; `eight` is a constant that
 *                         tells that the weights w are signed and may need eight bits
 *     pair_add, pair_sum  as their namesakes for a part of a tile in x86/pairs.h, which is included
 *                         after this file and has int_products()
 *
 * Many columns: tiles are unpacked SPAN columns of W at a time, TILES tiles together, into a
 * scratch that stays in the first-level cache while all columns of X pass by in blocks of BLOCK;
 * the partial sums of 16 rows x BLOCK columns are in registers over a span and in `sums` between
 * spans. Few columns: unpacking and product are fused, up to FEW columns at a time; no weight is
 * written back, and the tile is one ascending stream from memory.
 *
 * The order of operations is that of struct matmul.
 */
#ifndef LINNET_KERNEL_PRODUCT_H
#define LINNET_KERNEL_PRODUCT_H

#include "kernel/unpack.h"

enum {
    TILES = 4,               /* tiles that share a pass over X */
    CHUNK = 256,             /* columns of X per unpacking of W */
    FUSED = FEW > 1 ? 8 : 1, /* columns up to which unpacking and product are fused */
    MAX_SPANS = 512,         /* for those, of all columns: one may have 131,072 values */
};

/* What one column of X brings to a span of W, per 16 columns of W; a group of 32 counts at the
 * first of its two places. */
struct column {
    float d[SPAN / 16];
    int32_t start[SPAN / 16]; /* -bias * sum of the group's activations */
    float minus[SPAN / 16];   /* -(sum of the group's activations) * d */
};
_Static_assert(SPAN / 16 == TILE, "a vector holds a span");

struct scratch {
    struct span span[TILES];
    float panel[TILES][SPAN][TILE]; /* float weights */
    struct column column[BLOCK];
    float sums[TILES][CHUNK][TILE];
    uint8_t packed[TILE * SPAN * 4 + 64]; /* a span of a matrix that is not packed */
};
_Static_assert(sizeof(struct scratch) <= KERNEL_SCRATCH, "scratch is large enough");
_Static_assert(MAX_SPANS * sizeof(struct column) + sizeof(struct span) <= KERNEL_SCRATCH,
               "also for one");

/* Blocks of a packed tile from some column on. */
struct source {
    const uint8_t *head, *body;
};

typedef void dot_fn(const struct source *src, size_t n_blocks, struct span *s,
                    const int8_t *const *x, const struct column *c, float (*sums)[TILE]);

struct form {
    size_t group;
    bool has_min;
    int bits; /* of the unsigned integers */
    int bias;
    /* n_blocks blocks to s */
    void (*unpack)(const struct source *src, size_t n_blocks, struct span *s);
    /* sums of 1, 2, 4 columns, FEW at most, after n_blocks blocks; s is scratch for scales */
    dot_fn *const *dots;
};

INLINE vf step(vf acc, vi sum, float d, const float *scale)
{
    return v_fma(v_mul(v_of_int(sum), v_set(d)), v_load(scale), acc);
}

INLINE vf step_min(vf acc, float minus, const float *min)
{
    return v_fma(v_set(minus), v_load(min), acc);
}

/* The float steps of `n` groups of a column whose integer sums are given. */
INLINE vf steps(vf acc, const vi *sum, int n, size_t g, size_t group, bool has_min,
                const struct span *s, const struct column *c)
{
    UNROLL
    for (int i = 0; i < n; i++) {
        const size_t at = (g + (size_t)i) * group / 16;
        acc = step(acc, sum[i], c->d[at], s->scale[g + (size_t)i]);
        if (has_min)
            acc = step_min(acc, c->minus[at], s->min[g + (size_t)i]);
    }
    return acc;
}

INLINE void start(vi *sum, int n, const int32_t *from, size_t group)
{
    UNROLL
    for (int i = 0; i < n; i++)
        sum[i] = vi_set(from ? from[(size_t)i * group / 16] : 0);
}

#ifdef PAIRS
#define SINK_BITS(n) .bits = (n)
#else
#define SINK_BITS(n) .store = false
#endif

#define DEFINE_DOT(n, type)                                                                        \
    static void dot_##n##_##type(const struct source *src, size_t n_blocks, struct span *s,        \
                                 const int8_t *const *x, const struct column *c,                   \
                                 float(*sums)[TILE])                                               \
    {                                                                                              \
        dots_##type(src, n_blocks, s, x, c, sums, n);                                              \
    }
#define DOT_NAME(n, type) dot_##n##_##type,
#if FEW == 4
#define EACH_DOT(M, type) M(1, type) M(2, type) M(4, type)
#elif FEW == 2
#define EACH_DOT(M, type) M(1, type) M(2, type)
#else
#define EACH_DOT(M, type) M(1, type)
#endif

/*
 * The functions of a type. HEADS fills the span's scales from the heads at src, SCALES(span,
 * body, block) from the body of a block; a block is PIECES pieces of GROUPS groups of GROUP
 * columns, each unpacked by INTS(sink, body of the block, piece).
 */
#define DEFINE_FORM(type, GROUP, GROUPS, PIECES, UNITS, BITS, BIAS, MIN, HEADS, SCALES, INTS)      \
    static void unpack_##type(const struct source *src, size_t n_blocks, struct span *s)           \
    {                                                                                              \
        HEADS;                                                                                     \
        const uint8_t *body = src->body;                                                           \
        struct sink k = {.store = true, .q = s->q};                                                \
        for (size_t b = 0; b < n_blocks; b++, body += (UNITS)*64) {                                \
            SCALES(s, body, b);                                                                    \
            UNROLL                                                                                 \
            for (int p = 0; p < (PIECES); p++, k.q += (GROUP) / 4 * (GROUPS))                      \
                INTS(&k, body, p);                                                                 \
        }                                                                                          \
    }                                                                                              \
    INLINE void dots_##type(const struct source *src, size_t n_blocks, struct span *s,             \
                            const int8_t *const *x, const struct column *c, float(*sums)[TILE],    \
                            int n)                                                                 \
    {                                                                                              \
        HEADS;                                                                                     \
        const uint8_t *body = src->body;                                                           \
        vf acc[FEW];                                                                               \
        UNROLL                                                                                     \
        for (int j = 0; j < n; j++)                                                                \
            acc[j] = v_load(sums[j]);                                                              \
        size_t g = 0;                                                                              \
        for (size_t b = 0; b < n_blocks; b++, body += (UNITS)*64) {                                \
            SCALES(s, body, b);                                                                    \
            UNROLL                                                                                 \
            for (int u = 0; (PIECES) * (GROUPS) == 1 && u < (UNITS); u++)                          \
                fetch_ahead(body + 64 * u);                                                        \
            UNROLL                                                                                 \
            for (int p = 0; p < (PIECES); p++, g += (GROUPS)) {                                    \
                struct sink k = {.n = n, SINK_BITS(BITS)};                                         \
                UNROLL                                                                             \
                for (int j = 0; j < n; j++) {                                                      \
                    k.x[j] = x[j] + g * (GROUP);                                                   \
                    start(k.sum[j], GROUPS, (BIAS) ? c[j].start + g *(GROUP) / 16 : NULL, GROUP);  \
                }                                                                                  \
                INTS(&k, body, p);                                                                 \
                UNROLL                                                                             \
                for (int j = 0; j < n; j++)                                                        \
                    acc[j] = steps(acc[j], k.sum[j], GROUPS, g, GROUP, MIN, s, &c[j]);             \
            }                                                                                      \
        }                                                                                          \
        UNROLL                                                                                     \
        for (int j = 0; j < n; j++)                                                                \
            v_store(sums[j], acc[j]);                                                              \
    }                                                                                              \
    EACH_DOT(DEFINE_DOT, type)                                                                     \
    static dot_fn *const type##_dots[] = {EACH_DOT(DOT_NAME, type)};                               \
    static const struct form form_##type = {GROUP, MIN, BITS, BIAS, unpack_##type, type##_dots};

/* Types of one piece per block, and what a type does not have. */
#define ONE_Q4_0(k, body, p)   ints_nibbles(k, body)
#define ONE_Q4_1(k, body, p)   ints_q4_1(k, body)
#define ONE_Q5_0(k, body, p)   ints_q5_0(k, body)
#define ONE_Q5_1(k, body, p)   ints_q5_1(k, body)
#define ONE_Q8_0(k, body, p)   ints_q8_0(k, body)
#define ONE_IQ4_NL(k, body, p) ints_iq4(k, body)
#define ONE_MXFP4(k, body, p)  ints_mxfp4(k, body)
#define ONE_NVFP4(k, body, p)  ints_nvfp4(k, body)
#define ONE_Q1_0(k, body, p)   ints_q1_0(k, body)
#define ONE_Q2_0(k, body, p)   ints_q2_0(k, body)
#define PIECE_Q2_0(k, body, p) ints_q2_0(k, (body) + 256 * (p))

#define NO_HEADS       (void)0
#define HALF_HEADS     scales_half(s, src->head, n_blocks)
#define EXPONENT_HEADS scales_mxfp4(s, src->head, n_blocks)

#define NO_SCALES(s, body, b)    (void)0
#define Q6_K_SCALES(s, body, b)  scales_q6_k(s, src->head, body)
#define Q3_K_SCALES(s, body, b)  scales_q3_k(s, src->head, body)
#define SAME_SCALES8(s, body, b) scales_repeated(s, src->head + (b)*32, b, 8)
#define SAME_SCALES4(s, body, b) scales_repeated(s, src->head + (b)*32, b, 4)
#define SAME_SCALES2(s, body, b) scales_repeated(s, src->head + (b)*32, b, 2)

DEFINE_FORM(q4_0, 32, 1, 1, 4, 4, 8, false, HALF_HEADS, NO_SCALES, ONE_Q4_0)
DEFINE_FORM(q4_1, 32, 1, 1, 5, 4, 0, true, NO_HEADS, scales_half_min, ONE_Q4_1)
DEFINE_FORM(q5_0, 32, 1, 1, 5, 5, 16, false, HALF_HEADS, NO_SCALES, ONE_Q5_0)
DEFINE_FORM(q5_1, 32, 1, 1, 6, 5, 0, true, NO_HEADS, scales_half_min, ONE_Q5_1)
DEFINE_FORM(q8_0, 32, 1, 1, 8, 8, EIGHT_BITS, false, HALF_HEADS, NO_SCALES, ONE_Q8_0)
DEFINE_FORM(q2_k, 16, 8, 2, 21, 4, 0, true, NO_HEADS, scales_q2_k, ints_q2_k)
DEFINE_FORM(q3_k, 16, 8, 2, 27, 4, 4, false, NO_HEADS, Q3_K_SCALES, ints_q3_k)
DEFINE_FORM(q4_k, 32, 2, 4, 36, 4, 0, true, NO_HEADS, scales_6bit, ints_q4_k)
DEFINE_FORM(q5_k, 32, 2, 4, 44, 5, 0, true, NO_HEADS, scales_6bit, ints_q5_k)
DEFINE_FORM(q6_k, 16, 8, 2, 52, 6, 32, false, NO_HEADS, Q6_K_SCALES, ints_q6_k)
DEFINE_FORM(iq4_nl, 32, 1, 1, 4, 8, EIGHT_BITS, false, HALF_HEADS, NO_SCALES, ONE_IQ4_NL)
DEFINE_FORM(iq4_xs, 32, 1, 8, 34, 8, EIGHT_BITS, false, NO_HEADS, scales_iq4_xs, ints_iq4_xs)
DEFINE_FORM(mxfp4, 32, 1, 1, 4, 5, 12, false, EXPONENT_HEADS, NO_SCALES, ONE_MXFP4)
DEFINE_FORM(nvfp4, 16, 4, 1, 9, 5, 12, false, NO_HEADS, scales_nvfp4, ONE_NVFP4)
DEFINE_FORM(tq2_0, 32, 4, 2, 16, 4, 1, false, NO_HEADS, SAME_SCALES8, ints_tq2_0)
DEFINE_FORM(q1_0, 32, 4, 1, 4, 4, 1, false, NO_HEADS, SAME_SCALES4, ONE_Q1_0)
DEFINE_FORM(q2_0, 32, 2, 1, 4, 4, 1, false, NO_HEADS, SAME_SCALES2, ONE_Q2_0)
DEFINE_FORM(q2_0_g128, 32, 2, 2, 8, 4, 1, false, NO_HEADS, SAME_SCALES4, PIECE_Q2_0)

/* Types without a form of their own, by the type's plain C unpack. */
static void unpack_any(const struct matrix *w, const struct tile_layout *l, const uint8_t *tile,
                       size_t b0, size_t n_blocks, struct span *s)
{
    const struct quant_type *type = w->type;
    const size_t groups = type->block / type->group;
    int8_t q[SPAN];
    float scale[SPAN / 16], min[SPAN / 16];
    uint8_t block[SPAN * 2];
    for (size_t r = 0; r < TILE; r++) {
        for (size_t b = 0; b < n_blocks; b++) {
            tile_blocks(l, tile, r, b0 + b, 1, block);
            type->unpack(block, q, scale, min);
            for (size_t i = 0; i < type->block; i += 4) {
                uint32_t quad;
                memcpy(&quad, q + i, 4);
                quad ^= EIGHT_BITS * 0x01010101u; /* adds 128 to signed bytes */
                memcpy(s->q[(b * type->block + i) / 4][r], &quad, 4);
            }
            for (size_t g = 0; g < groups; g++) {
                s->scale[b * groups + g][r] = scale[g];
                s->min[b * groups + g][r] = min[g];
            }
        }
    }
}

static struct form form_of(const struct quant_type *type)
{
    switch (type->id) {
    case QUANT_Q4_0: return form_q4_0;
    case QUANT_Q4_1: return form_q4_1;
    case QUANT_Q5_0: return form_q5_0;
    case QUANT_Q5_1: return form_q5_1;
    case QUANT_Q8_0: return form_q8_0;
    case QUANT_Q2_K: return form_q2_k;
    case QUANT_Q3_K: return form_q3_k;
    case QUANT_Q4_K: return form_q4_k;
    case QUANT_Q5_K: return form_q5_k;
    case QUANT_Q6_K: return form_q6_k;
    case QUANT_IQ4_NL: return form_iq4_nl;
    case QUANT_IQ4_XS: return form_iq4_xs;
    case QUANT_MXFP4: return form_mxfp4;
    case QUANT_NVFP4: return form_nvfp4;
    case QUANT_TQ2_0: return form_tq2_0;
    case QUANT_Q1_0: return form_q1_0;
    case QUANT_Q2_0: return form_q2_0;
    case QUANT_Q2_0_G128: return form_q2_0_g128;
    default: return (struct form){type->group, type->has_min, 8, EIGHT_BITS, NULL, NULL};
    }
}

/* Column data of a span of X. */
INLINE void prepare(struct column *c, const struct act_span *x, const struct form *f)
{
    const vf scales = v_load(x->d), d = v_zip_low(scales, scales); /* sums are loaded too, unused */
    vf sum = v_of_int(vi_sar(vi_shl(vi_load_u16((const uint16_t *)x->sum16), 16), 16));
    if (f->group == 32)
        sum = v_add(v_dup_even(sum), v_dup_odd(sum));
    v_store(c->d, d);
    vb_store((uint8_t *)c->start, v_to_int(v_mul(sum, v_set((float)-f->bias))));
    v_store(c->minus, v_mul(v_mul(sum, v_set(-1.0f)), d));
}

/* `sums` of one or more tiles (CHUNK columns apart) and n columns += n_groups groups of their
 * spans. */
typedef void product_fn(const struct span *s, const int8_t *const *x, const struct column *c,
                        size_t n_groups, float (*sums)[TILE]);

#define EACH_TO_4(M, ...) M(1, __VA_ARGS__) M(2, __VA_ARGS__) M(3, __VA_ARGS__) M(4, __VA_ARGS__)
#if BLOCK == 6
#define EACH_N(M, ...) EACH_TO_4(M, __VA_ARGS__) M(5, __VA_ARGS__) M(6, __VA_ARGS__)
#elif BLOCK == 8
#define EACH_N(M, ...)                                                                             \
    EACH_TO_4(M, __VA_ARGS__)                                                                      \
    M(5, __VA_ARGS__) M(6, __VA_ARGS__) M(7, __VA_ARGS__) M(8, __VA_ARGS__)
#else
#define EACH_N EACH_TO_4
#endif

/* The products of 1 to PAIR tiles with 1 to BLOCK columns. */
typedef product_fn *const product_table[PAIR][BLOCK];
#if PAIR == 2
#define PRODUCT_TABLE(name, ...)                                                                   \
    {                                                                                              \
        {EACH_N(name, 1, __VA_ARGS__)},                                                            \
        {                                                                                          \
            EACH_N(name, 2, __VA_ARGS__)                                                           \
        }                                                                                          \
    }
#define EACH_PRODUCT(define, ...)                                                                  \
    EACH_N(define, 1, __VA_ARGS__)                                                                 \
    EACH_N(define, 2, __VA_ARGS__)
#else
#define PRODUCT_TABLE(name, ...)                                                                   \
    {                                                                                              \
        {                                                                                          \
            EACH_N(name, 1, __VA_ARGS__)                                                           \
        }                                                                                          \
    }
#define EACH_PRODUCT(define, ...) EACH_N(define, 1, __VA_ARGS__)
#endif

static const product_table *int_products(const struct form *f);

#ifndef PAIRS

/* m tiles by n columns; m, n, group and has_min are constants. A column's bytes are loaded once for
 * all tiles, a tile's once for all columns. */
INLINE void int_product(const struct span *s, const int8_t *const *x, const struct column *c,
                        size_t n_groups, float (*sums)[TILE], int m, int n, int group, bool has_min)
{
    vf acc[PAIR][BLOCK];
    const int8_t *xs[BLOCK];
    UNROLL
    for (int j = 0; j < n; j++) {
        xs[j] = x[j];
        UNROLL
        for (int i = 0; i < m; i++)
            acc[i][j] = v_load(sums[i * CHUNK + j]);
    }
    for (size_t g = 0; g < n_groups; g++) {
        vi sum[PAIR][BLOCK];
        const size_t k0 = g * (size_t)group;
        UNROLL
        for (int j = 0; j < n; j++) {
            UNROLL
            for (int i = 0; i < m; i++)
                sum[i][j] = vi_set(c[j].start[k0 / 16]);
        }
        UNROLL
        for (int v = 0; v < group / 4; v++) {
            vi w[PAIR];
            UNROLL
            for (int i = 0; i < m; i++)
                w[i] = vb_load(s[i].q[k0 / 4 + (size_t)v][0]);
            UNROLL
            for (int j = 0; j < n; j++) {
                const x4 q = x4_load(xs[j] + k0 + 4 * v);
                UNROLL
                for (int i = 0; i < m; i++)
                    sum[i][j] = dot_bytes(sum[i][j], w[i], q);
            }
        }
        UNROLL
        for (int j = 0; j < n; j++) {
            UNROLL
            for (int i = 0; i < m; i++) {
                acc[i][j] = step(acc[i][j], sum[i][j], c[j].d[k0 / 16], s[i].scale[g]);
                if (has_min)
                    acc[i][j] = step_min(acc[i][j], c[j].minus[k0 / 16], s[i].min[g]);
            }
        }
    }
    UNROLL
    for (int j = 0; j < n; j++) {
        UNROLL
        for (int i = 0; i < m; i++)
            v_store(sums[i * CHUNK + j], acc[i][j]);
    }
}

#define DEFINE_PRODUCT(n, m, group, has_min)                                                       \
    static void product_##m##_##n##_##group##_##has_min(                                           \
        const struct span *s, const int8_t *const *x, const struct column *c, size_t n_groups,     \
        float(*sums)[TILE])                                                                        \
    {                                                                                              \
        int_product(s, x, c, n_groups, sums, m, n, group, has_min);                                \
    }
#define PRODUCT_NAME(n, m, group, has_min) product_##m##_##n##_##group##_##has_min,
EACH_PRODUCT(DEFINE_PRODUCT, 32, 0)
EACH_PRODUCT(DEFINE_PRODUCT, 32, 1)
EACH_PRODUCT(DEFINE_PRODUCT, 16, 0)
EACH_PRODUCT(DEFINE_PRODUCT, 16, 1)

static const product_table *int_products(const struct form *f)
{
    static const product_table table[2][2] = {
        {PRODUCT_TABLE(PRODUCT_NAME, 32, 0), PRODUCT_TABLE(PRODUCT_NAME, 32, 1)},
        {PRODUCT_TABLE(PRODUCT_NAME, 16, 0), PRODUCT_TABLE(PRODUCT_NAME, 16, 1)},
    };
    return &table[f->group == 16][f->has_min];
}

#endif

/* The end of a product: acc * scale + bias for the rows of a tile that exist. */
static void finish(const struct matmul *job, size_t tile, size_t j, const float acc[TILE])
{
    const struct matrix *w = job->w;
    const size_t row0 = tile * TILE, n = w->n_rows - row0;
    float *y = job->y + matmul_y_row(job, j) * job->y_stride + row0;
    vf v = v_load(acc);
    if (w->scale != 1.0f)
        v = v_mul(v, v_set(w->scale));
    if (job->bias)
        v = v_add(v, n < TILE ? v_load_n(job->bias + row0, n) : v_load(job->bias + row0));
    if (n < TILE)
        v_store_n(y, v, n);
    else
        v_store(y, v);
}

/* Blocks [b0, b0 + n) of a tile, packed to `copy` first when the matrix is not. */
static struct source source_at(const struct matrix *w, const struct tile_layout *l, size_t tile,
                               size_t b0, size_t n, uint8_t *copy)
{
    if (w->packed) {
        const uint8_t *p = w->packed + tile * l->bytes;
        return (struct source){p + tile_head(l, b0), p + tile_body(l, b0)};
    }
    const struct tile_layout part = tile_layout(w->type, n * w->type->block);
    tile_pack(w, &part, tile, b0, n, copy, 0);
    return (struct source){copy, copy + tile_body(&part, 0)};
}

/* Columns [j, j + step) of n in blocks of nearly equal size, none above BLOCK. */
static size_t block_size(size_t n)
{
    const size_t blocks = (n + BLOCK - 1) / BLOCK;
    return (n + blocks - 1) / blocks;
}

static void unpack_span(const struct matmul *job, const struct tile_layout *l, const struct form *f,
                        size_t tile, size_t b0, size_t n_blocks, struct span *s, uint8_t *copy)
{
    const struct matrix *w = job->w;
    if (f->unpack) {
        const struct source src = source_at(w, l, tile, b0, n_blocks, copy);
        f->unpack(&src, n_blocks, s);
    } else if (w->packed) {
        unpack_any(w, l, w->packed + tile * l->bytes, b0, n_blocks, s);
    } else {
        const struct tile_layout part = tile_layout(w->type, n_blocks * w->type->block);
        tile_pack(w, &part, tile, b0, n_blocks, copy, 0);
        unpack_any(w, &part, copy, 0, n_blocks, s);
    }
}

/* The products of tiles [tile, tile + n_tiles) with columns [j0, j0 + n). */
struct pass {
    const struct matmul *job;
    const struct form *f;
    size_t tile, n_tiles, j0, n;
    struct scratch *t;
};

/* A span of W: its index, its groups, and whether sums are complete after it. */
struct part {
    size_t span, n_groups;
    bool last;
    const uint8_t *next[TILES]; /* bytes that are unpacked after this span, or NULL */
    size_t next_size, next_step;
};

/* Ask for columns [j, j + n) of X, their sums, the rows of Y they will go to, and a share of the
 * weights of the next span: a product alone keeps no memory busy. */
INLINE void fetch_block(const struct pass *p, const struct part *part, size_t j, size_t n)
{
    const struct matmul *job = p->job;
    for (size_t c = j; c < j + n; c++) {
        const struct act_span *x = act_row(job->x, matmul_x_row(job, p->j0 + c)) + part->span;
        UNROLL
        for (size_t line = 0; line < sizeof *x; line += 64)
            __builtin_prefetch((const char *)x + line);
        for (size_t i = 0; i < p->n_tiles; i++)
            __builtin_prefetch(p->t->sums[i][c], 1);
        if (part->last) {
            const float *y = job->y + matmul_y_row(job, p->j0 + c) * job->y_stride;
            for (size_t i = 0; i < p->n_tiles; i++)
                __builtin_prefetch(y + (p->tile + i) * TILE, 1);
        }
    }
}

INLINE void fetch_weights(const struct pass *p, const struct part *part, size_t block)
{
    const size_t from = block * part->next_step, to = from + part->next_step;
    for (size_t i = 0; i < p->n_tiles; i++)
        for (size_t at = from; part->next[i] && at < to && at < part->next_size; at += 64)
            __builtin_prefetch(part->next[i] + at, 0, 2);
}

/* All columns with a span of W that is unpacked. */
static void span_columns(const struct pass *p, const struct part *part)
{
    const product_table *products = int_products(p->f);
    struct scratch *t = p->t;
    const size_t size = block_size(p->n);
    for (size_t j = 0, n, block = 0; j < p->n; j += n, block++) {
        n = p->n - j < size ? p->n - j : size;
        const int8_t *x[BLOCK];
        for (size_t c = 0; c < n; c++) {
            const size_t row = matmul_x_row(p->job, p->j0 + j + c);
            const struct act_span *span = act_row(p->job->x, row) + part->span;
            x[c] = span->q;
            prepare(&t->column[c], span, p->f);
        }
        const size_t next = j + n;
        fetch_block(p, part, next, p->n - next < size ? p->n - next : size);
        fetch_weights(p, part, block);
        for (size_t i = 0; i < p->n_tiles; i += PAIR) {
            const size_t m = p->n_tiles - i < PAIR ? p->n_tiles - i : PAIR;
            (*products)[m - 1][n - 1](&t->span[i], x, t->column, part->n_groups, &t->sums[i][j]);
        }
        for (size_t c = j; part->last && c < next; c++)
            for (size_t i = 0; i < p->n_tiles; i++)
                finish(p->job, p->tile + i, p->j0 + c, t->sums[i][c]);
    }
}

/* Quantised weights. */
static void many_columns(const struct pass *p)
{
    const struct matrix *w = p->job->w;
    const struct tile_layout l = tile_layout(w->type, w->n_cols);
    const size_t run = SPAN / w->type->block, n_col_blocks = p->n / block_size(p->n) + 1;
    for (size_t i = 0; i < p->n_tiles; i++)
        memset(p->t->sums[i], 0, p->n * sizeof p->t->sums[i][0]);
    for (size_t b0 = 0; b0 < l.n_blocks; b0 += run) {
        const size_t n_blocks = l.n_blocks - b0 < run ? l.n_blocks - b0 : run;
        struct part part = {.span = b0 / run,
                            .n_groups = n_blocks * w->type->block / p->f->group,
                            .last = b0 + run >= l.n_blocks};
        const size_t next_block = part.last ? 0 : b0 + run, left = l.n_blocks - next_block;
        part.next_size = (left < run ? left : run) * l.units * l.unit * TILE;
        part.next_step = round_up(part.next_size / n_col_blocks + 1, 64);
        for (size_t i = 0; i < p->n_tiles; i++) {
            unpack_span(p->job, &l, p->f, p->tile + i, b0, n_blocks, &p->t->span[i], p->t->packed);
            const size_t next_tile = p->tile + i + (part.last ? TILES : 0);
            if (w->packed && next_tile < matrix_n_tiles(w))
                part.next[i] = source_at(w, &l, next_tile, next_block, run, NULL).body;
        }
        span_columns(p, &part);
    }
}

/* Few columns: their data for all spans first, then tile by tile. */
static void few_columns(const struct matmul *job, const struct form *f, size_t tile0, size_t tile1,
                        void *scratch)
{
    const struct matrix *w = job->w;
    const struct tile_layout l = tile_layout(w->type, w->n_cols);
    const size_t run = SPAN / w->type->block, n = job->n;
    struct span *s = scratch;
    struct column *columns = (void *)(s + 1); /* [span][n] */
    const struct act_span *x[FUSED] = {NULL};
    for (size_t j = 0; j < n; j++) {
        x[j] = act_row(job->x, matmul_x_row(job, j));
        for (size_t i = 0; i * run < l.n_blocks; i++)
            prepare(&columns[i * n + j], &x[j][i], f);
    }
    for (size_t tile = tile0; tile < tile1; tile++) {
        _Alignas(64) float sums[FUSED][TILE] = {{0}};
        for (size_t b0 = 0, i = 0; b0 < l.n_blocks; b0 += run, i++) {
            const size_t n_blocks = l.n_blocks - b0 < run ? l.n_blocks - b0 : run;
            const struct source src = source_at(w, &l, tile, b0, n_blocks, NULL);
            const int8_t *q[FUSED] = {NULL};
            for (size_t j = 0; j < n; j++)
                q[j] = x[j][i].q;
            for (size_t j = 0, m; j < n; j += m) {
                m = n - j >= FEW ? FEW : n - j >= 2 ? 2 : 1;
                f->dots[m / 2](&src, n_blocks, s, q + j, &columns[i * n + j], sums + j);
            }
        }
        for (size_t j = 0; j < n; j++)
            finish(job, tile, j, sums[j]);
    }
}

/* Float weights. */

/* Column k of a tile as f32, by how it is stored; id is a constant. */
INLINE vf float_weights(const uint8_t *body, size_t k, uint32_t id)
{
    if (id == QUANT_F32)
        return v_load((const void *)(body + 64 * k));
    if (id == QUANT_F16)
        return v_load_f16((const void *)(body + 32 * k));
    return v_of_bits(vi_shl(vi_load_u16((const void *)(body + 32 * k)), 16));
}

/* 16 rows x n columns over n_k columns of W; n and id are constants. */
INLINE void float_product(const uint8_t *body, const float *const *x, size_t n_k,
                          float (*sums)[TILE], int n, uint32_t id)
{
    vf acc[BLOCK];
    const float *xs[BLOCK];
    UNROLL
    for (int j = 0; j < n; j++) {
        acc[j] = v_load(sums[j]);
        xs[j] = x[j];
    }
    for (size_t k0 = 0; k0 < n_k; k0 += F32_PANEL) {
        const size_t end = n_k - k0 < F32_PANEL ? n_k : k0 + F32_PANEL;
        vf p[BLOCK];
        UNROLL
        for (int j = 0; j < n; j++)
            p[j] = v_set(0.0f);
        for (size_t k = k0; k < end; k++) {
            const vf w = float_weights(body, k, id);
            if (n == 1 && id != QUANT_F32 && k % 2 == 0)
                fetch_ahead(body + 32 * k);
            UNROLL
            for (int j = 0; j < n; j++)
                p[j] = v_fma(w, v_set(xs[j][k]), p[j]);
        }
        UNROLL
        for (int j = 0; j < n; j++)
            acc[j] = v_add(acc[j], p[j]);
    }
    UNROLL
    for (int j = 0; j < n; j++)
        v_store(sums[j], acc[j]);
}

typedef void float_fn(const uint8_t *body, const float *const *x, size_t n_k, float (*sums)[TILE]);

#define DEFINE_FLOAT(n, id)                                                                        \
    static void float_##n##_##id(const uint8_t *body, const float *const *x, size_t n_k,           \
                                 float(*sums)[TILE])                                               \
    {                                                                                              \
        float_product(body, x, n_k, sums, n, QUANT_##id);                                          \
    }
#define FLOAT_NAME(n, id) float_##n##_##id,
EACH_N(DEFINE_FLOAT, F32)
EACH_N(DEFINE_FLOAT, F16)
EACH_N(DEFINE_FLOAT, BF16)
static float_fn *const float_f32[BLOCK] = {EACH_N(FLOAT_NAME, F32)};
static float_fn *const float_f16[BLOCK] = {EACH_N(FLOAT_NAME, F16)};
static float_fn *const float_bf16[BLOCK] = {EACH_N(FLOAT_NAME, BF16)};

static void float_columns(const struct matmul *job, size_t tile, size_t n_tiles, size_t j0,
                          size_t n, struct scratch *t)
{
    const struct matrix *w = job->w;
    const uint32_t id = w->type->id;
    const struct tile_layout l = tile_layout(w->type, w->n_cols);
    /* with few columns the weights are converted in registers */
    const bool convert = id != QUANT_F32 && n > 2 * BLOCK;
    float_fn *const *by_n = id == QUANT_F32 || convert ? float_f32
                            : id == QUANT_F16          ? float_f16
                                                       : float_bf16;
    for (size_t i = 0; i < n_tiles; i++)
        memset(t->sums[i], 0, n * sizeof t->sums[i][0]);
    for (size_t k0 = 0; k0 < w->n_cols; k0 += SPAN) {
        const size_t n_k = w->n_cols - k0 < SPAN ? w->n_cols - k0 : SPAN;
        const uint8_t *body[TILES];
        for (size_t i = 0; i < n_tiles; i++) {
            uint8_t *panel = (uint8_t *)t->panel[i];
            body[i] = source_at(w, &l, tile + i, k0, n_k, convert ? t->packed : panel).body;
            if (convert) {
                for (size_t k = 0; k < n_k; k++)
                    v_store(t->panel[i][k], id == QUANT_F16
                                                ? float_weights(body[i], k, QUANT_F16)
                                                : float_weights(body[i], k, QUANT_BF16));
                body[i] = panel;
            }
        }
        for (size_t j = 0, size = block_size(n); j < n; j += size) {
            const size_t in_block = n - j < size ? n - j : size;
            const float *x[BLOCK];
            for (size_t c = 0; c < in_block; c++)
                x[c] = job->x->x + matmul_x_row(job, j0 + j + c) * job->x->x_stride + k0;
            for (size_t i = 0; i < n_tiles; i++)
                by_n[in_block - 1](body[i], x, n_k, &t->sums[i][j]);
        }
    }
    for (size_t j = 0; j < n; j++)
        for (size_t i = 0; i < n_tiles; i++)
            finish(job, tile + i, j0 + j, t->sums[i][j]);
}

/* Dot products as the products do them, without memory; with PAIRS those of weights of four bits,
 * which are the fastest. */
static uint64_t product_spin(uint64_t rounds)
{
    enum { SUMS = BLOCK == 8 ? 12 : 4, QUADS = 8 };
    static const int8_t bytes[4 * SUMS] = {1, -1, 1, -1};
    static const uint8_t weights[64] = {1, 2, 3};
    const uint8_t *from = weights;
    const int8_t *x = bytes;
    __asm__("" : "+r"(from)); /* else registers of a tile are known to be the same */
    const vi w = vb_load(from);
    vi sum[SUMS];
    for (int i = 0; i < SUMS; i++)
        sum[i] = vi_set(i);
    for (uint64_t r = 0; r < rounds; r += QUADS) {
#ifdef PAIRS
        vi words[SUMS];
#endif
        UNROLL
        for (int q = 0; q < QUADS; q++) {
            __asm__ volatile("" : "+r"(x));
            UNROLL
            for (int i = 0; i < SUMS; i++) {
#ifdef PAIRS
                const vi p = pair_products(w, x4_load(x + 4 * i), false);
                words[i] = q == 0 ? p : pair_add(words[i], p);
                if (q == QUADS - 1)
                    sum[i] = pair_sum(sum[i], words[i]);
#else
                sum[i] = dot_bytes(sum[i], w, x4_load(x + 4 * i));
#endif
            }
        }
    }
    int32_t total = 0;
    for (int i = 0; i < SUMS; i++)
        total |= vi_fold_max(sum[i]);
    return (rounds + QUADS - 1) / QUADS * QUADS * SUMS * 64 * 2 + (total == 12345);
}

static void product_tiles(const struct matmul *job, size_t tile0, size_t tile1, void *scratch)
{
    const struct matrix *w = job->w;
    const struct form f = form_of(w->type);
    if (job->n <= FUSED && f.dots && w->packed && job->n * act_spans(w->n_cols) <= MAX_SPANS) {
        few_columns(job, &f, tile0, tile1, scratch);
        return;
    }
    for (size_t j0 = 0; j0 < job->n; j0 += CHUNK) {
        const size_t n = job->n - j0 < CHUNK ? job->n - j0 : CHUNK;
        for (size_t tile = tile0; tile < tile1; tile += TILES) {
            const size_t n_tiles = tile1 - tile < TILES ? tile1 - tile : TILES;
            if (w->type->group == 0)
                float_columns(job, tile, n_tiles, j0, n, scratch);
            else
                many_columns(&(struct pass){job, &f, tile, n_tiles, j0, n, scratch});
        }
    }
}

#endif
