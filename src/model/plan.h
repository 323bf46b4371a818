/*
 * A plan: a model as a flat list of steps over named registers.
 *
 * A register is a matrix of activations [rows][width] f32; a plan does not know how many rows will
 * run. Steps are appended by a family's builder through the functions below. plan_finish() then
 * inserts what products need (quantised activations), groups neighbouring row-local steps into one
 * dispatch, and packs registers that do not live at the same time into the same memory.
 *
 * Two kinds of step matter to the executor. Row-local: row r of the output depends on row r of the
 * inputs alone (norms, rope, activations, routing). The rest (products, attention, recurrences) are
 * dispatched by themselves.
 *
 * A mistake of a builder (a width that does not fit) sticks in `broken`, which plan_finish()
 * reports; a view with reg -1, as a missing tensor gives, is passed on in silence because the
 * loader has reported the tensor.
 */
#ifndef LINNET_MODEL_PLAN_H
#define LINNET_MODEL_PLAN_H

#include "base/arena.h"
#include "base/err.h"
#include "kernel/kernel.h"

#include <stdbool.h>
#include <stdint.h>

/* `n` pieces of a register, each `width` floats, `stride` apart, the first at `off`. Heads are
 * pieces. */
struct view {
    int32_t reg; /* -1: none */
    uint32_t off, n, width, stride;
};

enum act_kind {
    ACT_SILU,
    ACT_GELU,
    ACT_GELU_ERF,
    ACT_RELU2,
    ACT_SIGMOID,
    ACT_SOFTPLUS,
    ACT_TANH,
    ACT_EXP
};
enum gate_kind {
    GATE_SILU,       /* silu(gate) * up */
    GATE_GELU,       /* gelu(gate) * up */
    GATE_SIGMOID,    /* sigmoid(gate) * up */
    GATE_OAI,        /* g = min(gate, 7): g * sigmoid(1.702 g) * (clamp(up, -7, 7) + 1) (gpt-oss) */
    GATE_SILU_CLAMP, /* min(silu(gate), f) * clamp(up, -f, f) (Ling 3) */
    GATE_SITU, /* f tanh(gate / f) * sigmoid(gate) * f2 tanh(up / f2); f2 <= 0: up as it is (Kimi
                  K3) */
};
enum norm_kind { NORM_RMS, NORM_LAYER, NORM_L2 };
enum rope_kind { ROPE_NONE, ROPE_NORM, ROPE_NEOX };
/* The values of <arch>.expert_gating_func. */
enum router_kind {
    ROUTER_BY_KEY = 0, /* in a family's description: the file must say */
    ROUTER_SOFTMAX = 1,
    ROUTER_SIGMOID = 2,
    ROUTER_SOFTMAX_OF_CHOSEN = 3,
    ROUTER_SQRT_SOFTPLUS = 4,
};

enum op {
    OP_LAYER, /* the start of layer `layer`, with residual a; computes nothing */
    /* row-local */
    OP_EMBED,      /* dst = row `token` of mat */
    OP_EMBED_POS,  /* dst = row `position` of mat */
    OP_ROPE_TABLE, /* dst [n_rot] = cos [n_rot/2], sin [n_rot/2] of the row's position */
    OP_COPY,       /* dst = a */
    OP_ADD,        /* dst = a + b */
    OP_SUB,        /* dst = a - b; dst may be a, not b */
    OP_MUL,        /* dst = a * b */
    OP_SCALE,      /* dst = a * f */
    OP_ADD_VEC,    /* dst = a + w */
    OP_MUL_VEC,    /* dst = a * w */
    OP_NORM,       /* dst = norm of each piece of a, with weights w and bias w2 */
    OP_ACT,        /* dst = act(a) */
    OP_GATE,       /* dst = gate(a) * b */
    OP_SOFTCAP,    /* dst = f * tanh(a / f) */
    OP_LERP,       /* dst = a + (b - a) * c, or * w */
    OP_DOT_MUL,    /* each piece: dst += dot(a, b) * c */
    OP_RESCALE,    /* dst = dst * |a| / |dst|; 0 stays 0 */
    OP_SPARSIFY,   /* dst = max(0, a - mean(a) - f * deviation(a)), of a sample */
    OP_ROPE,       /* each piece of dst rotated in place by table a */
    OP_POS_SCALE,  /* dst = a * (1 + f * ln(1 + floor(position / f2))) */
    OP_KV_STORE,   /* keys a and values b into a KV slot */
    OP_QUANTISE,   /* a into a quant buffer */
    OP_ROUTE, /* dst [n_used] weights and c [n_used] expert ids (int32 bits) from router logits a */
    OP_COMBINE,  /* dst = sum over j, in order, of b[j] * piece j of a */
    OP_MUL_EACH, /* piece j of dst = b[j] * piece j of a */
    OP_MIX, /* dst = sum of p[j] * (pieces of a, then b), p = softmax of dot(w, rms norm of each);
               f: epsilon */
    OP_SELECT, /* dst (output rows) = a (batch rows) */
    OP_GIVEN,  /* dst = the hidden state that came with the token, zeros where none did */
    OP_HIDDEN, /* a is what the caller gets as the row's hidden state, if he asked for it */
    /* recurrent: a session's rows in order */
    OP_CONV,  /* dst = causal depthwise convolution of a over positions; conv_step */
    OP_DELTA, /* dst = gated delta rule of q, k, v in a, decays b, step sizes c; delta_step */
    OP_SHIFT, /* dst = a of the position before, 0 at the first; a part is SHIFT_BLOCK floats */
    OP_SCAN,  /* dst = selective scan of a with steps b and [B | C] in c; scan_step */
    OP_SSD,   /* the same with one decay a head; ssd_step */
    OP_WKV,   /* dst = delta rule of RWKV-7 over the pieces of a; wkv_step */
    /* dispatched by themselves */
    OP_MATMUL,     /* each product: dst = W a */
    OP_MOE_MATMUL, /* each product: piece j of dst = W[expert c[j]] times piece j of a, or a when it
                      is one piece */
    OP_HEAD_MATMUL, /* each product: piece j of dst = W[j] times piece j of a */
    OP_ATTENTION,   /* dst = attention of queries a over a KV slot */
    OP_COUNT
};

enum op_kind {
    OP_ROW,   /* row r of the output depends on row r of the inputs alone */
    OP_STATE, /* walks the rows of a session in order and carries state from one to the next */
    OP_OTHER, /* dispatched in its own way */
};
struct op_info {
    const char *name;
    enum op_kind kind;
};
extern const struct op_info op_infos[OP_COUNT];

/* One product of a group that shares its input. */
struct product {
    const struct matrix *w; /* [n_w] */
    uint32_t n_w;           /* 1, or the number of experts or heads */
    const float *bias;      /* [n_rows], or [n_expert][n_rows]; or NULL */
    struct view dst;
};

struct router {
    enum router_kind kind;
    uint32_t n_expert, n_used;
    uint32_t n_group, n_group_used; /* 1, 1: no groups */
    bool normalise;                 /* chosen weights divided by max(sum, 2^-14), */
    float scale;                    /* then multiplied by this */
    const float *bias;              /* [n_expert], added for the choice only; or NULL */
};

struct attn_step {
    uint32_t kv; /* KV slot */
    float scale, softcap;
    const float *sinks; /* [n_head] or NULL */
    uint32_t window;    /* keys seen, the own one included; 0: all */
};

/* Arguments of OP_CONV: y[p][c] = bias[c] + sum over t of weight[c][t] * x[p - n_taps + 1 + t][c],
 * in order of t; inputs before the text are 0. A part is CONV_BLOCK channels. */
struct conv_step {
    uint32_t n_taps;
    bool silu;           /* y = silu(y) */
    const float *weight; /* [n_taps][channels]; a builder gives [channels][n_taps] as files do */
    const float *bias;   /* [channels] or NULL */
};
enum { CONV_BLOCK = 128, SHIFT_BLOCK = 1024 };

/* Columns of a state that one part takes through a chunk of rows: with 128 rows of state they fill
 * half of a first-level cache. */
enum { SCAN_BLOCK = 32 };

/* Mamba (arXiv 2312.00752, eq. 2), channel c with inputs u_c and steps dt_c > 0, state [d_state]:
 *     s[j] = exp(dt_c A_cj) s[j] + dt_c u_c B[j],  y_c = sum over j of C[j] s[j] + D_c u_c
 * A part is SCAN_BLOCK channels, of which w exist; its state is [d_state][w]. */
struct scan_step {
    uint32_t d_state;
    const float *a; /* A, by part: [d_state][w] */
    const float *d; /* [channels] */
};

/* Mamba-2 (arXiv 2405.21060), head h with inputs u [d_head] and a step dt_h > 0, state
 * [d_state][d_head]:
 *     s[j] = exp(dt_h A_h) s[j] + dt_h B[j] u,  y = sum over j of C[j] s[j] + D_h u
 * n_head / n_group consecutive heads share B and C. A part is SCAN_BLOCK columns of a head. */
struct ssd_step {
    uint32_t n_head, d_head, d_state, n_group;
    const float *a, *d; /* [n_head] */
};

/* RWKV-7 (arXiv 2503.14456, eq. 17), head h: vectors of d_head by WKV_*, state S [key][value], S_t
 * =
 *     diag(decay) S - drop (seek^T S) + key value^T,  y = read^T S_t
 * The pieces of `a` are [WKV_COUNT][n_head * d_head]. A part is SCAN_BLOCK values of a head. */
enum { WKV_READ, WKV_DECAY, WKV_KEY, WKV_VALUE, WKV_DROP, WKV_SEEK, WKV_COUNT };
struct wkv_step {
    uint32_t n_head, d_head;
};
static inline uint32_t scan_blocks(uint32_t columns)
{
    return (columns + SCAN_BLOCK - 1) / SCAN_BLOCK;
}

/*
 * Arguments of OP_DELTA. a is [q: n_k heads of d_k | k: n_k heads of d_k | v: n_v heads of d_v]; b
 * is a decay for each value head, or for each of its d_k state rows; c a step size for each value
 * head. A part is DELTA_BLOCK value columns of a head; its state is [d_k][columns rounded up to
 * TILE], and those of a head follow each other.
 */
struct delta_step {
    uint32_t n_k, n_v, d_k, d_v;
    bool tiled;      /* value head h reads key head h % n_k, not h / (n_v / n_k) */
    bool decay_each; /* each row of the state has its own decay */
    float scale;     /* of what q reads */
};
enum { DELTA_BLOCK = 32 };

enum { MIX_MAX = 1024 }; /* past states of OP_MIX */

struct step {
    enum op op;
    int32_t layer;   /* -1 before the first layer and after the last */
    bool out_rows;   /* runs over the rows whose output was asked for, not over all rows */
    bool logit_rows; /* of those, runs over the ones whose logits were asked for: they come first */
    int32_t dispatch; /* steps of one dispatch are neighbours */
    struct view dst, a, b, c;
    const float *w, *w2;
    const struct matrix *mat;
    float f, f2;
    int32_t kind;  /* act_kind, gate_kind, norm_kind or rope_kind */
    int32_t index; /* rope table, KV slot or quant buffer */
    bool kept; /* runs even when an observer skips its layer: what it writes is read by other layers
                  or positions, as keys, values and recurrent state are */
    bool per_piece; /* OP_NORM: w and w2 hold a row for each piece, not one for all */
    struct product *products;
    uint32_t n_products;
    int32_t quant;    /* quant buffer of a product's input; -1: no product needs one */
    uint32_t n_parts; /* OP_STATE: independent parts of the work */
    size_t state;     /* OP_STATE: first float of its state in the session's */
    const void *args; /* what else the operation needs; its type goes with `op` */
    const struct router *router;
    const struct attn_step *attn;
};

struct plan_reg {
    const char *name;
    uint32_t width;
    bool out_rows;
    int32_t layer;       /* that it was made in */
    int32_t first, last; /* dispatches of first write and last use */
    size_t offset;       /* floats per row that lie before it */
};

/* The int8 form of a view: [rows * pieces][act_bytes(width)]. */
struct plan_quant {
    struct view src;
    bool out_rows;
    int32_t first, last;
    size_t offset; /* bytes per row that lie before it */
};

/* Rotation: pair i at position p turns by p * freq[i]; cos and sin are multiplied by `mag`. A
 * context opened with more than `long_above` positions uses freq_long (long rope, spec F4.2): the
 * context decides, not the text, so that cached keys stay valid while a text grows. */
struct rope_table {
    uint32_t n_rot;
    float mag;
    const double *freq;      /* [n_rot/2] */
    const double *freq_long; /* [n_rot/2], or freq */
    uint32_t long_above;
};

/* Keys and values of an attention layer that owns them. */
struct kv_slot {
    int32_t layer;
    uint32_t n_head, d_k, d_v;
    uint32_t window; /* 0: every position is kept */
    bool v_in_k;     /* values are the first d_v of the key row (MLA) and not stored again */
};

struct plan {
    struct arena *arena;
    struct step *steps;
    struct plan_reg *regs;
    struct plan_quant *quants;
    struct rope_table *ropes;
    struct kv_slot *kvs;
    size_t n_steps, n_regs, n_quants, n_ropes, n_kvs;
    size_t cap_steps, cap_regs, cap_ropes, cap_kvs;
    int32_t n_dispatch;
    int32_t layer;   /* being built */
    bool out_rows;   /* past plan_select() */
    bool logit_rows; /* past plan_hidden() */
    bool no_memory;
    const char *broken; /* first mistake of the builder */
    struct view
        logits; /* set by the builder before plan_finish(); not part of the packed registers */
    uint32_t d_hidden;            /* width of the hidden state that plan_hidden() got; 0: none */
    size_t state_floats;          /* of recurrent state a session has */
    size_t row_floats, row_quant; /* packed size of a batch row: floats, bytes */
    size_t out_floats, out_quant; /* of an output row */
};

static inline struct view view_none(void)
{
    return (struct view){.reg = -1};
}
/* The same floats as n equal pieces. */
static inline struct view view_split(struct view v, uint32_t n)
{
    return (struct view){v.reg, v.off, n, v.width / n, v.width / n};
}
/* `width` floats of each piece, from its float `off` on. */
static inline struct view view_part(struct view v, uint32_t off, uint32_t width)
{
    return (struct view){v.reg, v.off + off, v.n, width, v.stride};
}
/* Piece i alone. */
static inline struct view view_piece(struct view v, uint32_t i)
{
    return (struct view){v.reg, v.off + i * v.stride, 1, v.width, v.width};
}
/* Pieces as one, where they touch. */
static inline struct view view_flat(struct view v)
{
    return (struct view){v.reg, v.off, 1, v.n * v.width, v.n * v.width};
}
static inline bool view_same(struct view a, struct view b)
{
    return a.reg == b.reg && a.off == b.off && a.n == b.n && a.width == b.width &&
           (a.n == 1 || a.stride == b.stride);
}
static inline uint32_t view_size(struct view v)
{
    return v.n * v.width;
}

void plan_init(struct plan *p, struct arena *arena);

/* A new register of the current layer and row domain, as one piece. */
struct view plan_new(struct plan *p, const char *name, uint32_t width);
/* Layer `layer` begins, with residual x: where hooks run. -1 after the last. */
void plan_begin_layer(struct plan *p, int32_t layer, struct view x);

struct view plan_embed(struct plan *p, const struct matrix *m);
struct view plan_embed_pos(struct plan *p, const struct matrix *m);
struct view plan_norm(struct plan *p, const char *name, enum norm_kind kind, struct view x,
                      const float *w, const float *b, float eps);
void plan_norm_to(struct plan *p, enum norm_kind kind, struct view dst, struct view x,
                  const float *w, const float *b, float eps);
/* In place, piece by piece. */
void plan_norm_pieces(struct plan *p, enum norm_kind kind, struct view x, const float *w,
                      const float *b, float eps, bool per_piece);
void plan_add(struct plan *p, struct view dst, struct view a, struct view b);
void plan_sub(struct plan *p, struct view dst, struct view a, struct view b);
void plan_mul(struct plan *p, struct view dst, struct view a, struct view b);
void plan_copy(struct plan *p, struct view dst, struct view a);
void plan_keep(struct plan *p, struct view dst, struct view a); /* a copy for other layers: kept */
void plan_scale(struct plan *p, struct view x, float f);        /* f == 1 adds no step */
void plan_add_vec(struct plan *p, struct view x,
                  const float *w); /* [view_size(x)]; NULL adds no step */
void plan_mul_vec(struct plan *p, struct view x, const float *w);
void plan_act(struct plan *p, enum act_kind kind, struct view x);
void plan_gate(struct plan *p, enum gate_kind kind, struct view dst, struct view gate,
               struct view up);
/* The kinds with parameters. */
void plan_gate_with(struct plan *p, enum gate_kind kind, float f, float f2, struct view dst,
                    struct view gate, struct view up);
void plan_softcap(struct plan *p, struct view x, float cap); /* cap == 0 adds no step */
/* dst = a + (b - a) * c, c in one piece; or with a vector w [view_size(a)] in place of c. */
void plan_lerp(struct plan *p, struct view dst, struct view a, struct view b, struct view c);
void plan_lerp_vec(struct plan *p, struct view dst, struct view a, struct view b, const float *w);
/* x with the L2 norm of `like`; both in one piece. */
void plan_rescale(struct plan *p, struct view x, struct view like);
/* What of x (one piece, two floats at least) is above its mean by `f` sample standard deviations;
 * the rest is 0. */
void plan_sparsify(struct plan *p, struct view x, float f);
/* dst, a, b, c in equal pieces: each piece of dst += dot(a, b) * c. */
void plan_dot_mul(struct plan *p, struct view dst, struct view a, struct view b, struct view c);
/* The rows' angles of a table; the register is made once and reused. */
struct view plan_rope_table(struct plan *p, const struct rope_table *rope);
void plan_rope(struct plan *p, enum rope_kind kind, struct view x, struct view table);
void plan_pos_scale(struct plan *p, struct view x, float f, float period);
uint32_t plan_kv_slot(struct plan *p, const struct kv_slot *slot);
void plan_kv_store(struct plan *p, uint32_t slot, struct view k, struct view v);
void plan_attention(struct plan *p, struct view dst, struct view q, const struct attn_step *attn);

/* `n` floats of recurrent state, zero at the beginning of a text: their offset in the session's
 * state. */
size_t plan_state(struct plan *p, size_t n);
/* Append a recurrent step in `n_parts` independent parts. `args` (copied, `size` bytes) goes with
 * the operation. */
struct step *plan_state_step(struct plan *p, enum op op, struct view dst, size_t state,
                             uint32_t n_parts, const void *args, size_t size);

/* Convolution of x (one piece) into a new register; allots its state of (n_taps - 1) * width
 * floats. */
struct view plan_conv(struct plan *p, const char *name, const struct conv_step *conv,
                      struct view x);

/* The delta rule on qkv (one piece) into a new register of n_v pieces; allots its state. */
struct view plan_delta(struct plan *p, const char *name, const struct delta_step *delta,
                       struct view qkv, struct view decay, struct view beta);
/* Row before of x (one piece), into a new register. */
struct view plan_shift(struct plan *p, const char *name, struct view x);
/* Scans of u into new registers. bc is [B | C]: of all groups B, then of all groups C. */
struct view plan_scan(struct plan *p, const struct scan_step *scan, struct view u, struct view dt,
                      struct view bc);
struct view plan_ssd(struct plan *p, const struct ssd_step *ssd, struct view u, struct view dt,
                     struct view bc);
struct view plan_wkv(struct plan *p, const struct wkv_step *wkv, struct view all);

/* W x (+ bias) into a new register, or into dst. Neighbouring products of one input become one
 * step. */
struct view plan_matmul(struct plan *p, const char *name, const struct matrix *w, const float *bias,
                        struct view x);
void plan_matmul_to(struct plan *p, struct view dst, const struct matrix *w, const float *bias,
                    struct view x);
void plan_route(struct plan *p, const struct router *r, struct view logits, struct view *ids,
                struct view *weights);
/* Products with the chosen experts, into a new register of n_used pieces. */
struct view plan_moe_matmul(struct plan *p, const char *name, const struct matrix *experts,
                            uint32_t n_expert, const float *bias, struct view x, struct view ids,
                            uint32_t n_used);
struct view plan_combine(struct plan *p, const char *name, struct view y, struct view weights);
/* The same into dst, which is no part of y. */
void plan_combine_to(struct plan *p, struct view dst, struct view y, struct view weights);
/* Piece j of x times factors[j], in place. */
void plan_mul_each(struct plan *p, struct view x, struct view factors);
/* Products of each head with a matrix of its own, w [n]: x and dst are n pieces that fill their
 * registers but for gaps of the same size. */
void plan_head_matmul(struct plan *p, struct view dst, const struct matrix *w, uint32_t n,
                      struct view x);
/* Softmax attention of a row over its own earlier states, the pieces of `past`, and x, into a new
 * register. */
struct view plan_mix(struct plan *p, const char *name, struct view past, struct view x,
                     const float *w, float eps);
/* From here on only rows whose output was asked for. */
struct view plan_select(struct plan *p, struct view x);
/* Hidden states from the caller, into a new register. */
struct view plan_given(struct plan *p, const char *name, uint32_t width);
/* x is the row's hidden state; from here on only rows whose logits were asked for. */
void plan_hidden(struct plan *p, struct view x);

/* Check, insert quantisation, group into dispatches, pack registers. Once, at the end. */
linnet_status plan_finish(struct plan *p, linnet_error *e);

/* A line of text for step i, without newline; returns buf. */
const char *plan_describe(const struct plan *p, size_t i, char *buf, size_t size);

#endif
