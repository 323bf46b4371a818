/*
 * Families: what `general.architecture` may be, and what each name means. A family is a row of data
 * and a builder; most share one builder (arch/dense.c) and differ in their row alone. No column has
 * a default: a value that nobody thought about does not exist.
 */
#ifndef LINNET_MODEL_FAMILY_H
#define LINNET_MODEL_FAMILY_H

#include "base/limits.h"
#include "model/block.h"

enum place {
    PLACE_PRE,         /* x += f(N x) */
    PLACE_POST,        /* x += N f(x) */
    PLACE_BOTH,        /* x += N' f(N x) */
    PLACE_PARALLEL,    /* x += attn(N x) + ffn(N x) */
    PLACE_BY_FFN_NORM, /* parallel where there is no ffn_norm, else pre (StableLM 2) */
};
enum rotates {
    ROTATES_NEVER,
    ROTATES_ALL,
    ROTATES_WINDOWED, /* layers with a window alone, if any layer has one */
    ROTATES_3_OF_4,   /* layer il unless (il + 1) % 4 == 0 */
    ROTATES_BY_KEY,   /* rope.scaling.finetuned false: no layer (Granite) */
};
/* How layers with a window rotate. */
enum window_rope {
    WINDOW_ROPE_SAME,
    WINDOW_ROPE_PLAIN,           /* same base, no scaling */
    WINDOW_ROPE_OWN_BASE,        /* rope.freq_base_swa, default 10000, no scaling */
    WINDOW_ROPE_OWN_BASE_SCALED, /* rope.freq_base_swa, default rope.freq_base, with scaling */
};
enum window_rule {
    WINDOW_NEVER,        /* whatever the keys say */
    WINDOW_BY_KEY,       /* if attention.sliding_window is there and not 0 */
    WINDOW_REQUIRED,     /* attention.sliding_window must be there */
    WINDOW_DEFAULT_4096, /* attention.sliding_window, default 4096 */
    WINDOW_IF_64_LAYERS, /* default 4096, but only in models of 64 layers (EXAONE 4) */
};
enum scales {
    SCALES_NONE,
    SCALES_GEMMA,   /* embeddings times sqrt(d_model) */
    SCALES_GRANITE, /* embedding_scale, residual_scale, attention.scale, logits / logit_scale */
    SCALES_COHERE,  /* logits * logit_scale, 1 when absent or 0 */
    SCALES_COHERE2, /* the same, required */
};
/* Score scale where n_embd / n_head and the head size differ. */
enum score_scale {
    SCORE_HEAD,            /* 1 / sqrt(d_head) */
    SCORE_MODEL_46_LAYERS, /* 1 / sqrt(d_model / n_head) in models of 46 layers (Gemma 2 27B) */
    SCORE_MODEL_62_LAYERS, /* the same of 62 layers (Gemma 3 27B) */
};
enum tie {
    TIE_IF_ABSENT, /* output.weight, else token_embd.weight */
    TIE_NEVER,     /* output.weight is required */
    TIE_ALWAYS,    /* token_embd.weight */
};

struct family {
    const char *arch; /* general.architecture */
    void (*build)(struct loader *l, const struct family *f);
    bool draft; /* build() can also make the plan of its NextN block, when loader.draft asks for it
                 */
    /* columns of arch/dense.c; other builders state what they use */
    enum norm_kind norm;
    bool norm_bias; /* every norm has a bias */
    enum place place;
    enum qk_norm qk_norm;
    bool qk_norm_optional;
    enum rope_kind pairs;
    bool sections_neox; /* rope.dimension_sections with two or more entries above 0 means NEOX pairs
                           (GLM-4V) */
    enum rotates rotates;
    bool n_rot_is_head; /* the head's size is rope.dimension_count (gpt-oss) */
    bool rope_alpha;    /* rope.scaling.alpha raises the base (Hunyuan, NTK-aware scaling) */
    enum window_rule window;
    uint32_t window_period; /* without the pattern key: layer il has the window unless il % period
                               == period - 1 */
    enum window_rope window_rope;
    bool sinks;           /* attn_sinks */
    const char *ffn_norm; /* name of the norm before the feed-forward, where the place has one */
    enum ffn_kind ffn;
    bool sub_norms; /* BitNet */
    bool positions; /* learned absolute positions, position_embd (GPT-2) */
    enum scales scales;
    enum score_scale score_scale;
    float attn_softcap;  /* when attn_logit_softcapping is absent; < 0: the family has none */
    float final_softcap; /* when final_logit_softcapping is absent; < 0: the family has none */
    bool yarn_keys;      /* rope.scaling.yarn_beta_* are read */
    bool yarn_log_mul;   /* rope.scaling.yarn_log_multiplier divides the magnitude */
    bool temperature;    /* attention.temperature_scale over rope.scaling.original_context_length */
    enum tie tie;
    bool lead_dense; /* leading_dense_block_count: layers from it on are mixtures. Else those with
                        ffn_gate_inp */
    const struct moe_family *moe; /* NULL: no mixtures */
};

/* NULL when the name is not known. */
const struct family *family_of(const char *arch);
size_t family_count(void);
const struct family *family_at(size_t i);

/* Builders: append the family's steps, set plan.logits. */
void build_dense(struct loader *l, const struct family *f);
void build_lfm2(struct loader *l, const struct family *f);
void build_deepseek2(struct loader *l, const struct family *f);
void build_qwen3next(struct loader *l, const struct family *f);
void build_qwen35(struct loader *l, const struct family *f);
void build_mamba(struct loader *l, const struct family *f);
void build_mamba2(struct loader *l, const struct family *f);
void build_rwkv7(struct loader *l, const struct family *f);
void build_kimi_linear(struct loader *l, const struct family *f);
void build_kimi_k3(struct loader *l, const struct family *f);
void build_bailingmoe3(struct loader *l, const struct family *f);
void build_falcon_h1(struct loader *l, const struct family *f);
void build_nemotron_h(struct loader *l, const struct family *f);
void build_granite_hybrid(struct loader *l, const struct family *f);
void build_gemma3n(struct loader *l, const struct family *f);
void build_gemma4(struct loader *l, const struct family *f);

/* What every builder begins with: block_count less nextn_predict_layers, embedding_length, the
 * vocabulary's size; into l->m->facts. */
void read_facts(struct loader *l);

/* Attention heads by layer, and their widths. */
struct heads {
    uint32_t n[LIMIT_LAYERS],
        n_kv[LIMIT_LAYERS]; /* in hybrids n_kv 0: the layer has no attention */
    uint32_t d_k, d_v;
};
/* The keys attention.head_count, head_count_kv, key_length and value_length. Not a hybrid: every
 * layer attends. */
void read_heads(struct loader *l, uint32_t n_layer, bool hybrid, struct heads *h);
/* Attention of layer il without norms, rotation, window or cap; scores times 1 / sqrt(d_k). */
struct attn_desc attn_plain(const struct heads *h, uint32_t il);
/* attention.sliding_window_pattern into [n_layer] of 0 or 1: an array, or a period, of which the
 * key's absence means `period`. Layer il has a window unless il % period == period - 1; period 0:
 * all have. */
void read_pattern(struct loader *l, uint32_t n_layer, uint32_t period, uint32_t *windowed);
/* A cap, 0: off; `absent` < 0: the family has none, whatever the key says. */
float softcap_key(struct loader *l, const char *key, float absent);

/* N x with the tensor <name>.weight, into a new register. */
struct view rms_norm(struct loader *l, const char *name, struct view x, float eps);
/* The same with mean and bias. */
struct view layer_norm(struct loader *l, const char *name, struct view x, float eps);

/* And ends with: select (unless the builder did), final norm, output head (tied or not), caps and
 * scales. `x` is the last residual. */
struct head_desc {
    const char *norm_name; /* tensor of the final norm */
    enum norm_kind norm;
    bool norm_bias;
    float eps;
    enum tie tie;
    float logit_mul; /* 1: none */
    float softcap;   /* 0: none */
};
void build_head(struct loader *l, const struct head_desc *d, struct view x);
/* A head without caps and scales. */
struct head_desc plain_head(const struct family *f, const char *norm_name, float eps);
/* Of a family without caps and scales. */
void build_plain_head(struct loader *l, const struct family *f, const char *norm_name, float eps,
                      struct view x);

/* Append layer `il` to the plan: x += what it adds. `family` is what the builder knows. */
typedef void layer_fn(struct loader *l, void *family, uint32_t il, struct view x);
/* The plan of the NextN block (multi-token prediction, DeepSeek-V3, arXiv 2412.19437, section 2.2),
 * which holds one ordinary layer of the family. */
void build_nextn(struct loader *l, const struct head_desc *d, layer_fn *layer, void *family);

#endif
