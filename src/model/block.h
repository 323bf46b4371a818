/*
 * Blocks: the parts that families share. Each appends steps to the loader's plan for the layer
 * l->il, loading the tensors it needs by their usual names.
 */
#ifndef LINNET_MODEL_BLOCK_H
#define LINNET_MODEL_BLOCK_H

#include "model/load.h"

/* The rope.scaling.* keys (spec A13.6, A13.7, F0.6). */
enum rope_scaling_kind { SCALING_LINEAR, SCALING_NONE, SCALING_YARN, SCALING_LONGROPE };
struct rope_scaling {
    enum rope_scaling_kind kind;
    float factor;      /* 1 when absent */
    float attn_factor; /* multiplies the magnitude */
    uint32_t n_ctx_orig;
    float beta_fast, beta_slow;
    float log_mul; /* yarn_log_multiplier; 0 when absent */
};
/* `yarn_keys`: take yarn_beta_* from the file; else they are 32 and 1 whatever it says. */
struct rope_scaling rope_scaling_read(struct loader *l, bool yarn_keys);
/* Angles for n_rot dimensions. `scaling` NULL: none. `factors` [n_rot/2] divide the frequencies, or
 * NULL; `factors_long` replace them in contexts longer than scaling->n_ctx_orig, or NULL. The
 * magnitude of YaRN is ms(1) / ms(m_all), ms(m) = 1 + 0.1 m ln(factor) (YaRN, arXiv 2309.00071, eq.
 * 22). */
const struct rope_table *rope_resolve(struct loader *l, uint32_t n_rot, float base,
                                      const struct rope_scaling *scaling, const float *factors,
                                      const float *factors_long, float m_all);
/* What a family without further rules does with its keys: rope.dimension_count of heads of d_k,
 * rope.freq_base, rope.scaling.* and the tensor rope_freqs. */
const struct rope_table *rope_read(struct loader *l, uint32_t d_k);
/* Tensor `name` [n] of divisors of frequencies, all above 0, or NULL. */
const float *rope_factors(struct loader *l, const char *name, uint32_t n);
/* Files of families that do not rotate have the keys all the same. */
void rope_ignore(struct loader *l);

enum qk_norm {
    QK_NONE,
    QK_HEAD, /* each head by itself, weights shared or one row a head, before the rotation */
    QK_HEAD_AFTER_ROPE, /* each head by itself, after the rotation */
    QK_ROW,             /* all heads together */
};

/* One attention layer. */
struct attn_desc {
    uint32_t n_head, n_head_kv, d_k, d_v;
    enum qk_norm qk_norm;
    bool qk_norm_optional; /* use the weights when they are there */
    enum norm_kind norm;   /* of qk_norm and attn_sub_norm */
    float eps;
    enum rope_kind rope;
    const struct rope_table *table; /* NULL: this layer does not rotate */
    uint32_t window;                /* 0: full attention */
    float scale, softcap;           /* 0: no cap */
    float temp_scale,
        temp_period; /* queries times 1 + scale * ln(1 + floor(pos / period)); scale 0: off */
    bool sub_norm;   /* attn_sub_norm on the heads' output */
    bool sinks;      /* attn_sinks.weight [n_head] */
    bool v_from_k;   /* without attn_v values are the keys before norm and rotation */
    bool v_norm;     /* values of each head RMS-normed, without weight */
    const uint32_t
        *kv; /* KV slot of another layer to read: this one has no keys and values; NULL: its own */
    bool gated; /* attn_q holds d_k query rows and then d_k gate rows of each head; output times
                   sigmoid(gate) */
};
/* attn_output(attention(x)) from attn_{q,k,v} or attn_qkv, with the biases that are there. Its own
 * KV slot is the plan's last one. */
struct view block_attention(struct loader *l, const struct attn_desc *d, struct view x);

enum mla_gate {
    MLA_UNGATED,
    MLA_GATE_CHANNEL, /* heads' output times sigmoid(attn_gate x) */
    MLA_GATE_HEAD,    /* the same with one number a head */
};
/* One layer of multi-head latent attention. */
struct mla_desc {
    uint32_t n_head;
    uint32_t d_nope, d_rope,
        d_v; /* of a head: the part of its key without rotation, the part with, its value */
    uint32_t d_latent;   /* width of what all heads share and the cache holds, d_rope apart */
    uint32_t d_q_latent; /* rows of attn_q_a; 0: as many as it has, where there is one */
    enum mla_gate gate;
    float eps; /* of the norms of both latents */
    enum rope_kind rope;
    const struct rope_table *table; /* NULL: this layer does not rotate */
    float scale;
    float temp_scale, temp_period; /* as in struct attn_desc */
};
/* The widths as the keys give them, in files with and, unless the family has `mla_keys`, without
 * *_length_mla; scale 1 / sqrt(d_nope +
 * d_rope); no gate, no rotation, no temperature. */
struct mla_desc mla_read(struct loader *l, float eps, bool mla_keys);
/* attn_output(latent attention(x)), x normed. */
struct view block_mla(struct loader *l, const struct mla_desc *d, struct view x);

/* One Gated DeltaNet layer. */
struct gdn_desc {
    uint32_t n_k, n_v, d_k, d_v; /* key heads and value heads; d_k is also the queries' */
    uint32_t n_taps;             /* of the convolution, at least 2 */
    bool tiled;                  /* value head h reads key head h % n_k, not h / (n_v / n_k) */
    bool fused; /* beta and alpha are one tensor ssm_ba; ssm_in may stand for attn_qkv and attn_gate
                 */
    float eps;
};
/* ssm_out(gated norm(delta rule(x))). */
struct view block_gdn(struct loader *l, const struct gdn_desc *d, struct view x);

/* A layer of Mamba or Mamba-2, by the ssm.* keys (spec F18, F19). */
struct mamba_desc {
    uint32_t d_inner, d_state, n_taps;
    uint32_t rank;            /* Mamba: of the time step's projection */
    bool norm_dbc;            /* Mamba: time step, B and C are normed (FalconMamba) */
    uint32_t n_head, n_group; /* Mamba-2 */
    bool norm_optional;       /* Mamba-2: use ssm_norm when it is there */
    float eps;
};
struct mamba_desc mamba_read(struct loader *l, float eps);
struct mamba_desc mamba2_read(struct loader *l, float eps);
struct view block_mamba(struct loader *l, const struct mamba_desc *d, struct view x);
struct view block_mamba2(struct loader *l, const struct mamba_desc *d, struct view x);

/* A layer of RWKV-7. */
struct rwkv_desc {
    uint32_t d, d_head, d_ff;
    uint32_t rank_w, rank_a, rank_v, rank_g; /* of the decay, learning rate, value share and gate */
    float eps;                               /* of the layer norms, which are the caller's */
};
/* `v_first`: the values of layer 0, which it sets and the others mix into their own. */
struct view block_time_mix(struct loader *l, const struct rwkv_desc *r, struct view h,
                           struct view *v_first);
struct view block_channel_mix(struct loader *l, const struct rwkv_desc *r, struct view h);

/* ssm_a, [n][width] times `sign`, must leave no positive number: state would grow. */
const float *decay_rates(struct loader *l, uint32_t n, uint32_t width, float sign);

/* One layer of Kimi Delta Attention. */
struct kda_desc {
    uint32_t n_head, d_head;
    uint32_t n_taps;    /* of the convolutions, at least 2 */
    float lower_bound;  /* of the decay's logarithm, < 0; 0: unbounded */
    bool rate_positive; /* ssm_a holds exp(A_log), not -exp(A_log) */
    float eps;
};
/* attn_output(gated norm(delta rule(x))). */
struct view block_kda(struct loader *l, const struct kda_desc *d, struct view x);

/* Gemma 3n and 4: an input for each layer, made from the token and its scaled embedding e (spec
 * B15.3): n_layer pieces of width d. */
struct view block_layer_inputs(struct loader *l, uint32_t n_layer, uint32_t d, struct view e,
                               float eps);
/* What layer l->il adds for its input `u`: N W_proj(gelu(W_gate x) * u). */
struct view block_layer_input(struct loader *l, struct view x, struct view u, float eps);

/* AltUp (arXiv 2301.13310) as Gemma 3n has it: n streams of width d, of which one goes through the
 * layers. */
struct altup {
    uint32_t n, active, d;
    float eps;
    struct view streams, predicted; /* [n * d] */
};
/* The part of a register of streams that stream i is. */
struct view altup_stream(const struct altup *a, struct view streams, uint32_t i);
/* The streams before the first layer, from the scaled embedding e. */
void altup_begin(struct loader *l, struct altup *a, struct view e);
/* Before a layer: predict what it will do to every stream; returns the active one's prediction, the
 * layer's input. */
struct view altup_predict(struct loader *l, struct altup *a);
/* After it: correct all streams by what it did, its output being y, and add what its own input u
 * gives. */
void altup_correct(struct loader *l, struct altup *a, struct view y, struct view u);
/* After the last layer: one hidden state from all streams. */
struct view altup_end(struct loader *l, const struct altup *a, struct view streams);

enum ffn_kind {
    FFN_SWIGLU, /* down(silu(gate x) * up x) */
    FFN_GEGLU,  /* down(gelu(gate x) * up x) */
    FFN_GELU,   /* down(gelu(up x)) */
    FFN_RELU2,  /* down(relu(up x)^2) */
    FFN_OAI,    /* down of the clamped SwiGLU of gpt-oss */
    FFN_SITU,   /* down(situ(gate x, up x)), of glu.f and glu.f2 */
};
/* Numbers that a file gives a feed-forward's activation: FFN_SWIGLU is clamped at f, 0: not at all;
 * for FFN_SITU f bounds the gate and f2 the other factor. */
struct glu {
    float f, f2;
};
struct ffn_desc {
    enum ffn_kind kind;
    uint32_t d_ff;
    const char *suffix; /* "" or "_shexp" */
    bool sub_norm;      /* ffn_sub_norm before down */
    enum norm_kind norm;
    float eps;
    struct glu glu;
    bool sparse; /* of the gate only what is above its mean by `sparsity` deviations passes (Gemma
                    3n) */
    float sparsity;
};
/* Feed-forward. Without ffn_gate, ffn_up may hold gate and up rows, gate first (spec F4.1). */
struct view block_ffn(struct loader *l, const struct ffn_desc *d, struct view x);

enum rule { NEVER, ALWAYS, BY_KEY };
/* How a family routes; the facts of spec B9.7. */
struct moe_family {
    const char *width_key; /* of the routed experts, where the file has it */
    enum router_kind gating;
    bool gating_key;       /* expert_gating_func overrides `gating` */
    enum rule normalise;   /* BY_KEY: expert_weights_norm */
    bool scale_key;        /* expert_weights_scale is read; absent or 0 means 1 */
    const char *bias_name; /* selection bias, or NULL */
    bool bias_required;
    bool groups;       /* expert_group_count, expert_group_used_count */
    bool shared;       /* ffn_*_shexp when they are there */
    bool shared_gated; /* times sigmoid(ffn_gate_inp_shexp x) */
    enum ffn_kind kind;
};
/* Layers of a file without mixtures: its family's keys of them, if there, must be 0. */
void moe_none(struct loader *l);
/* Routed experts plus the shared one. */
struct view block_moe(struct loader *l, const struct moe_family *f, struct view x);
/* What a file may add to its family's mixture. */
struct moe_extra {
    struct glu experts, shared;
    const struct view *logits; /* the router's, where they are not ffn_gate_inp x; or NULL */
    uint32_t d_latent;         /* experts work at this width, between <latent>_down and <latent>_up;
                                  0: at x's */
    const char *latent;        /* not NULL with d_latent: <latent>_down, _up and, optional, _norm */
    float eps;                 /* of <latent>_norm */
};
struct view block_moe_with(struct loader *l, const struct moe_family *f,
                           const struct moe_extra *extra, struct view x);

#endif
