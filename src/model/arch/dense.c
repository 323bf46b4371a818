/*
 * The builder of the families that are the llama block with other switches (specification F0.1):
 * attention and a feed-forward or a mixture, added to a residual. What differs is a row of
 * arch/families.c.
 */
#include "base/limits.h"
#include "model/family.h"

#include <math.h>
#include <stdio.h>

/* What the row and the file's keys say together. */
struct dense {
    const struct family *f;
    uint32_t n_layer, d_model;
    enum place place;
    enum rope_kind pairs;
    uint32_t n_lead; /* dense layers before the mixtures */
    float eps;
    struct heads heads;
    uint32_t d_ff[LIMIT_LAYERS];
    uint32_t windowed[LIMIT_LAYERS];
    uint32_t window; /* 0: no layer has one */
    const struct rope_table *rope, *rope_window;
    float residual_scale, score_scale, attn_softcap;
    float temp_scale, temp_period;
};

static void read_windows(struct loader *l, struct dense *d)
{
    const struct family *f = d->f;
    const char *key = "attention.sliding_window", *pattern = "attention.sliding_window_pattern";
    uint32_t absent =
        f->window == WINDOW_DEFAULT_4096 || f->window == WINDOW_IF_64_LAYERS ? 4096 : 0;
    uint32_t w = 0;
    if (f->window == WINDOW_NEVER || (f->window == WINDOW_IF_64_LAYERS && d->n_layer != 64))
        key_ignore(l, key);
    else if (f->window == WINDOW_REQUIRED)
        w = key_u32(l, key, 1, INT32_MAX);
    else /* by key: 0 means what the key's absence means */
        w = key_u32_or(l, key, absent ? 1 : 0, INT32_MAX, absent);
    d->window = w;
    key_ignore(l, pattern);
    if (w == 0)
        return;
    read_pattern(l, d->n_layer, f->window_period, d->windowed);
}

static void read_rope(struct loader *l, struct dense *d)
{
    const struct family *f = d->f;
    float base = key_rope_base(l, "rope.freq_base", 10000.0f);
    bool own_base =
        f->window_rope == WINDOW_ROPE_OWN_BASE || f->window_rope == WINDOW_ROPE_OWN_BASE_SCALED;
    float base_window = key_rope_base(l, "rope.freq_base_swa",
                                      f->window_rope == WINDOW_ROPE_OWN_BASE ? 10000.0f : base);
    struct rope_scaling scaling = rope_scaling_read(l, f->yarn_keys);
    uint32_t n_rot = key_u32_or(l, "rope.dimension_count", 0, LIMIT_WIDTH, d->heads.d_k);
    uint32_t sections[2] = {0, 0};
    key_u32_each(l, "rope.dimension_sections", 2, 0, LIMIT_WIDTH, sections);
    d->pairs = f->sections_neox && sections[0] && sections[1] ? ROPE_NEOX : f->pairs;
    float log_mul = f->yarn_log_mul ? scaling.log_mul : 0.0f;
    float alpha = f->rope_alpha ? key_scale_or_0(l, "rope.scaling.alpha", 0.0f) : 0.0f;
    if (alpha > 0.0f && d->heads.d_k > 2)
        base *= powf(alpha, (float)d->heads.d_k / (float)(d->heads.d_k - 2));
    if (f->temperature) {
        d->temp_scale = key_scale_or_0(l, "attention.temperature_scale", 0.0f);
        d->temp_period = (float)scaling.n_ctx_orig;
    }
    if (f->pairs == ROPE_NONE || f->rotates == ROTATES_NEVER)
        return;
    if (n_rot > d->heads.d_k) {
        load_fail(l, LINNET_FORMAT,
                  "metadata key '%s.rope.dimension_count' is %u, more than a head's %u", l->arch,
                  n_rot, d->heads.d_k);
        return;
    }
    const float *factors = rope_factors(l, "rope_freqs.weight", n_rot / 2);
    const float *long_factors = NULL;
    if (!factors) {
        factors = rope_factors(l, "rope_factors_short.weight", n_rot / 2);
        long_factors = rope_factors(l, "rope_factors_long.weight", n_rot / 2);
    }
    d->rope = rope_resolve(l, n_rot, base, &scaling, factors, long_factors, log_mul);
    d->rope_window = d->rope;
    if (f->window_rope != WINDOW_ROPE_SAME && d->window) {
        const struct rope_scaling *s =
            f->window_rope == WINDOW_ROPE_OWN_BASE_SCALED ? &scaling : NULL;
        d->rope_window = rope_resolve(l, n_rot, own_base ? base_window : base, s,
                                      s ? factors : NULL, NULL, log_mul);
    }
}

static void read_scores(struct loader *l, struct dense *d)
{
    uint32_t of_model = d->f->score_scale == SCORE_MODEL_46_LAYERS   ? 46
                        : d->f->score_scale == SCORE_MODEL_62_LAYERS ? 62
                                                                     : 0;
    bool model = of_model && d->n_layer == of_model;
    d->score_scale = 1.0f / sqrtf((float)(model ? d->d_model / d->heads.n[0] : d->heads.d_k));
    if (d->f->scales == SCALES_GRANITE)
        d->score_scale = key_scale_or_0(l, "attention.scale", d->score_scale);
    d->attn_softcap = softcap_key(l, "attn_logit_softcapping", d->f->attn_softcap);
}

static bool rotates(struct loader *l, const struct dense *d, uint32_t il)
{
    switch (d->f->rotates) {
    case ROTATES_NEVER: return false;
    case ROTATES_ALL: return true;
    case ROTATES_WINDOWED: return d->window == 0 || d->windowed[il];
    case ROTATES_3_OF_4: return (il + 1) % 4 != 0;
    case ROTATES_BY_KEY: return key_bool_or(l, "rope.scaling.finetuned", true);
    }
    return false;
}

static struct view attention(struct loader *l, const struct dense *d, uint32_t il, struct view x)
{
    const struct family *f = d->f;
    bool windowed = d->window && d->windowed[il];
    const struct rope_table *table = windowed ? d->rope_window : d->rope;
    return block_attention(l,
                           &(struct attn_desc){.n_head = d->heads.n[il],
                                               .n_head_kv = d->heads.n_kv[il],
                                               .d_k = d->heads.d_k,
                                               .d_v = d->heads.d_v,
                                               .qk_norm = f->qk_norm,
                                               .qk_norm_optional = f->qk_norm_optional,
                                               .norm = f->norm,
                                               .eps = d->eps,
                                               .rope = d->pairs,
                                               .table = rotates(l, d, il) ? table : NULL,
                                               .window = windowed ? d->window : 0,
                                               .scale = d->score_scale,
                                               .softcap = d->attn_softcap,
                                               .temp_scale = d->temp_scale,
                                               .temp_period = d->temp_period,
                                               .sub_norm = f->sub_norms,
                                               .sinks = f->sinks},
                           x);
}

/* By the key of leading dense layers where the family has it, else by the tensors: a layer of a
 * file with experts is dense only if it has a dense feed-forward. */
static bool is_mixture(struct loader *l, const struct dense *d, uint32_t il)
{
    if (!d->f->moe || d->f->lead_dense)
        return d->f->moe && il >= d->n_lead;
    bool mixture = has(l, "ffn_gate_inp.weight") ||
                   (!has(l, "ffn_up.weight") && key_u32_or(l, "expert_count", 0, LIMIT_EXPERTS, 0));
    if (mixture != (il >= d->n_lead) && key_present(l, "leading_dense_block_count") &&
        (mixture || d->n_lead != 0)) /* 0 also says that there is no mixture */
        load_fail(l, LINNET_FORMAT,
                  "metadata key '%s.leading_dense_block_count' is %u, and tensor "
                  "'blk.%u.ffn_gate_inp.weight' is %s",
                  l->arch, d->n_lead, il, mixture ? "there" : "missing");
    return mixture;
}

static struct view feed_forward(struct loader *l, const struct dense *d, uint32_t il, struct view x)
{
    const struct family *f = d->f;
    if (is_mixture(l, d, il))
        return block_moe(l, f->moe, x);
    if (d->d_ff[il] == 0)
        load_fail(l, LINNET_FORMAT,
                  "metadata key '%s.feed_forward_length' is missing or 0 for layer %u", l->arch,
                  il);
    return block_ffn(l,
                     &(struct ffn_desc){.kind = f->ffn,
                                        .d_ff = d->d_ff[il],
                                        .suffix = "",
                                        .sub_norm = f->sub_norms,
                                        .norm = f->norm,
                                        .eps = d->eps},
                     x);
}

/* N x with the layer's norm `name`. */
static struct view norm(struct loader *l, const struct dense *d, const char *name, struct view x)
{
    char weight[64];
    snprintf(weight, sizeof weight, "%s.weight", name);
    const float *w = vec(l, weight, d->d_model);
    snprintf(weight, sizeof weight, "%s.bias", name);
    const float *b = d->f->norm_bias ? vec(l, weight, d->d_model) : NULL;
    return plan_norm(l->p, name, d->f->norm, x, w, b, d->eps);
}

static void residual(struct loader *l, const struct dense *d, struct view x, struct view y)
{
    plan_scale(l->p, y, d->residual_scale);
    plan_add(l->p, x, x, y);
}

static void layer(struct loader *l, void *family, uint32_t il, struct view x)
{
    const struct dense *d = family;
    bool before = d->place != PLACE_POST;
    bool after = d->place == PLACE_POST || d->place == PLACE_BOTH;
    l->il = (int32_t)il;
    plan_begin_layer(l->p, l->il, x);
    struct view h = before ? norm(l, d, "attn_norm", x) : x;
    struct view y = attention(l, d, il, h);
    if (after)
        y = norm(l, d, "post_attention_norm", y);
    if (d->place == PLACE_PARALLEL) {
        struct view z = feed_forward(l, d, il, h);
        residual(l, d, x, y);
        residual(l, d, x, z);
        return;
    }
    residual(l, d, x, y);
    h = before ? norm(l, d, d->f->ffn_norm, x) : x;
    y = feed_forward(l, d, il, h);
    if (after)
        y = norm(l, d, "post_ffw_norm", y);
    residual(l, d, x, y);
}

static float embedding_scale(struct loader *l, const struct dense *d)
{
    if (d->f->scales == SCALES_GEMMA)
        return sqrtf((float)d->d_model);
    if (d->f->scales != SCALES_GRANITE)
        return 1.0f;
    return key_scale_or_0(l, "embedding_scale", 1.0f);
}

static float logit_multiplier(struct loader *l, const struct dense *d)
{
    if (d->f->scales == SCALES_GRANITE)
        return 1.0f / key_f32(l, "logit_scale", SCALE_MIN, SCALE_MAX);
    if (d->f->scales == SCALES_COHERE2)
        return key_f32(l, "logit_scale", SCALE_MIN, SCALE_MAX);
    if (d->f->scales != SCALES_COHERE)
        return 1.0f;
    return key_scale_or_0(l, "logit_scale", 1.0f);
}

/* Keys that converters write and that mean nothing: the tensors decide, or the number is fixed
 * (F5.2, F7.1, F25.4). */
static void skip_dead_keys(struct loader *l)
{
    static const char *const keys[] = {"use_parallel_residual", "n_deepstack_layers", "swin_norm"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        key_ignore(l, keys[i]);
    if (l->m->family->scales != SCALES_GRANITE)
        key_ignore(l, "attention.scale");
}

/* gpt-oss: a head is rope.dimension_count wide; keys that repeat it must say the same. */
static void head_is_rotated(struct loader *l, struct heads *h)
{
    uint32_t n_rot = key_u32_or(l, "rope.dimension_count", 1, LIMIT_WIDTH, h->d_k);
    static const char *const keys[] = {"attention.key_length", "attention.value_length"};
    for (size_t i = 0; i < 2; i++)
        if (key_u32_or(l, keys[i], 1, LIMIT_WIDTH, n_rot) != n_rot)
            load_fail(l, LINNET_FORMAT,
                      "metadata keys '%s.%s' and '%s.rope.dimension_count' (%u) must be equal",
                      l->arch, keys[i], l->arch, n_rot);
    h->d_k = h->d_v = n_rot;
}

static void read_all(struct loader *l, struct dense *d)
{
    const struct family *f = d->f;
    read_facts(l);
    skip_dead_keys(l);
    d->n_layer = l->m->facts.n_layer + l->draft; /* the NextN block's layer follows the trunk's */
    d->d_model = l->m->facts.d_model;
    d->eps = key_eps(l, f->norm == NORM_RMS ? "attention.layer_norm_rms_epsilon"
                                            : "attention.layer_norm_epsilon");
    read_heads(l, d->n_layer, false, &d->heads);
    if (f->n_rot_is_head)
        head_is_rotated(l, &d->heads);
    key_u32_each(l, "feed_forward_length", d->n_layer, 0, LIMIT_WIDTH, d->d_ff);
    read_windows(l, d);
    read_rope(l, d);
    read_scores(l, d);
    d->residual_scale =
        f->scales == SCALES_GRANITE ? key_scale_or_0(l, "residual_scale", 1.0f) : 1.0f;
    d->n_lead = key_u32_or(l, "leading_dense_block_count", 0, LIMIT_LAYERS, 0);
    d->place = f->place;
    if (f->place == PLACE_BY_FFN_NORM) {
        l->il = 0;
        d->place = has(l, "ffn_norm.weight") ? PLACE_PRE : PLACE_PARALLEL;
        l->il = -1;
    }
}

void build_dense(struct loader *l, const struct family *f)
{
    struct dense *d = ARENA_NEW(l->arena, struct dense);
    if (!d) {
        l->status = err_memory(l->e, "model description", sizeof *d);
        return;
    }
    d->f = f;
    read_all(l, d);
    if (l->status != LINNET_OK)
        return;
    const struct head_desc head = {.norm_name = "output_norm",
                                   .norm = f->norm,
                                   .norm_bias = f->norm_bias,
                                   .eps = d->eps,
                                   .tie = f->tie,
                                   .logit_mul = logit_multiplier(l, d),
                                   .softcap =
                                       softcap_key(l, "final_logit_softcapping", f->final_softcap)};
    if (l->draft) {
        build_nextn(l, &head, layer, d);
        return;
    }
    struct view x = plan_embed(l->p, mat(l, "token_embd", l->m->facts.n_vocab, d->d_model));
    plan_scale(l->p, x, embedding_scale(l, d));
    if (f->positions) {
        struct view pos =
            plan_embed_pos(l->p, mat(l, "position_embd", l->m->facts.n_ctx_train, d->d_model));
        plan_add(l->p, x, x, pos);
    }
    for (uint32_t il = 0; il < d->n_layer && l->status == LINNET_OK; il++)
        layer(l, d, il, x);
    build_head(l, &head, x);
}
