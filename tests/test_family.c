/*
 * Families: the table against a second list, and what a model file must and may leave out.
 */
#include "made.h"

#include "model/family.h"

/* The facts that go silently wrong when a row is pasted in the wrong place (rope pairs above
 * all). */
static const struct {
    const char *arch, *pairs, *place, *norm, *qk_norm;
    int window_period;
} facts[] = {
    {"llama", "norm", "pre", "rms", "-", 0},
    {"mistral", "norm", "pre", "rms", "-", 0},
    {"mistral3", "norm", "pre", "rms", "-", 0},
    {"qwen2", "neox", "pre", "rms", "-", 0},
    {"qwen2vl", "neox", "pre", "rms", "-", 0},
    {"qwen2moe", "neox", "pre", "rms", "-", 0},
    {"qwen3", "neox", "pre", "rms", "head", 0},
    {"qwen3vl", "neox", "pre", "rms", "head", 0},
    {"qwen3moe", "neox", "pre", "rms", "head", 0},
    {"qwen3vlmoe", "neox", "pre", "rms", "head", 0},
    {"gemma", "neox", "pre", "rms", "-", 0},
    {"gemma2", "neox", "both", "rms", "-", 2},
    {"gemma3", "neox", "both", "rms", "head", 6},
    {"gpt2", "none", "pre", "layer", "-", 0},
    {"starcoder2", "neox", "pre", "layer", "-", 0},
    {"phi2", "neox", "parallel", "layer", "-", 0},
    {"stablelm", "neox", "by ffn_norm", "layer", "head", 0},
    {"command-r", "norm", "parallel", "layer", "head", 0},
    {"cohere2", "norm", "parallel", "layer", "-", 4},
    {"phi3", "neox", "pre", "rms", "-", 0},
    {"bitnet", "neox", "pre", "rms", "-", 0},
    {"smollm3", "norm", "pre", "rms", "-", 0},
    {"granite", "norm", "pre", "rms", "-", 0},
    {"granitemoe", "norm", "pre", "rms", "-", 0},
    {"minimax-m2", "neox", "pre", "rms", "row", 0},
    {"glm4", "norm", "both", "rms", "-", 0},
    {"glm4moe", "neox", "pre", "rms", "head", 0},
    {"olmo2", "neox", "post", "rms", "row", 4},
    {"exaone4", "neox", "post", "rms", "head", 4},
    {"gpt-oss", "neox", "pre", "rms", "-", 2},
    {"hunyuan-dense", "neox", "pre", "rms", "head after rope", 0},
    {"hunyuan-moe", "neox", "pre", "rms", "head after rope", 0},
    {"hy_v3", "neox", "pre", "rms", "head", 0},
    {"bailingmoe2", "neox", "pre", "rms", "head", 0},
};

static const char *const pair_names[] = {
    [ROPE_NONE] = "none", [ROPE_NORM] = "norm", [ROPE_NEOX] = "neox"};
static const char *const place_names[] = {[PLACE_PRE] = "pre",
                                          [PLACE_POST] = "post",
                                          [PLACE_BOTH] = "both",
                                          [PLACE_PARALLEL] = "parallel",
                                          [PLACE_BY_FFN_NORM] = "by ffn_norm"};
static const char *const norm_names[] = {[NORM_RMS] = "rms", [NORM_LAYER] = "layer"};
static const char *const qk_names[] = {[QK_NONE] = "-",
                                       [QK_HEAD] = "head",
                                       [QK_HEAD_AFTER_ROPE] = "head after rope",
                                       [QK_ROW] = "row"};

static void every_dense_family_has_the_facts_of_the_second_list(void **state)
{
    (void)state;
    size_t n = 0;
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
        const struct family *f = family_of(facts[i].arch);
        if (!f)
            fail_msg("%s is not in the table", facts[i].arch);
        assert_string_equal(pair_names[f->pairs], facts[i].pairs);
        assert_string_equal(place_names[f->place], facts[i].place);
        assert_string_equal(norm_names[f->norm], facts[i].norm);
        assert_string_equal(qk_names[f->qk_norm], facts[i].qk_norm);
        assert_int_equal(f->window_period, facts[i].window_period);
        assert_ptr_equal(f->build, build_dense);
    }
    for (size_t i = 0; i < family_count(); i++)
        n += family_at(i)->build == build_dense;
    assert_int_equal(n, sizeof facts / sizeof *facts);
    assert_null(family_of("Llama"));
    assert_null(family_of(""));
}

/* What decides windows, scales and caps, of every family: specification A2 to A8, A11, F0.9. Caps
 * are those of files without the key, 0: none. */
static const struct {
    const char *arch, *ffn, *rotates, *window, *window_rope, *scales, *score;
    float attn_cap, final_cap;
    const char *tie;
} numbers[] = {
    /* clang-format off */
    {"llama", "swiglu", "all", "never", "same", "-", "head", 0, 0, "if absent"},
    {"mistral", "swiglu", "all", "never", "same", "-", "head", 0, 0, "if absent"},
    {"mistral3", "swiglu", "all", "never", "same", "-", "head", 0, 0, "if absent"},
    {"qwen2", "swiglu", "all", "never", "same", "-", "head", 0, 0, "if absent"},
    {"qwen2vl", "swiglu", "all", "never", "same", "-", "head", 0, 0, "if absent"},
    {"qwen2moe", "swiglu", "all", "never", "same", "-", "head", 0, 0, "if absent"},
    {"qwen3", "swiglu", "all", "never", "same", "-", "head", 0, 0, "if absent"},
    {"qwen3vl", "swiglu", "all", "never", "same", "-", "head", 0, 0, "if absent"},
    {"qwen3moe", "swiglu", "all", "never", "same", "-", "head", 0, 0, "if absent"},
    {"qwen3vlmoe", "swiglu", "all", "never", "same", "-", "head", 0, 0, "if absent"},
    {"qwen3next", "swiglu", "all", "never", "same", "-", "head", 0, 0, "if absent"},
    {"qwen35", "swiglu", "all", "never", "same", "-", "head", 0, 0, "if absent"},
    {"qwen35moe", "swiglu", "all", "never", "same", "-", "head", 0, 0, "if absent"},
    {"gemma", "geglu", "all", "never", "same", "gemma", "head", 0, 0, "if absent"},
    {"gemma2", "geglu", "all", "4096", "own base, scaled", "gemma", "46 layers", 50, 30,
     "if absent"},
    {"gemma3", "geglu", "all", "by key", "own base", "gemma", "62 layers", 0, 0, "if absent"},
    {"gpt2", "gelu", "never", "never", "same", "-", "head", 0, 0, "if absent"},
    {"starcoder2", "gelu", "all", "never", "same", "-", "head", 0, 0, "if absent"},
    {"phi2", "gelu", "all", "never", "same", "-", "head", 0, 0, "if absent"},
    {"stablelm", "swiglu", "all", "never", "same", "-", "head", 0, 0, "never"},
    {"command-r", "swiglu", "all", "never", "same", "cohere", "head", 0, 0, "always"},
    {"cohere2", "swiglu", "windowed", "required", "same", "cohere, required",
     "head", 0, 0, "always"},
    {"phi3", "swiglu", "all", "never", "same", "-", "head", 0, 0, "if absent"},
    {"bitnet", "swiglu", "all", "never", "same", "-", "head", 0, 0, "always"},
    {"smollm3", "swiglu", "3 of 4", "never", "same", "-", "head", 0, 0, "if absent"},
    {"granite", "swiglu", "by key", "never", "same", "granite", "head", 0, 0, "if absent"},
    {"granitemoe", "swiglu", "by key", "never", "same", "granite", "head", 0, 0, "if absent"},
    {"minimax-m2", "swiglu", "all", "never", "same", "-", "head", 0, 0, "never"},
    {"glm4", "swiglu", "all", "never", "same", "-", "head", 0, 0, "if absent"},
    {"glm4moe", "swiglu", "all", "never", "same", "-", "head", 0, 0, "if absent"},
    {"olmo2", "swiglu", "all", "by key", "plain", "-", "head", 0, 0, "never"},
    {"exaone4", "swiglu", "windowed", "64 layers", "same", "-", "head", 0, 0, "if absent"},
    {"gpt-oss", "swiglu", "all", "required", "own base, scaled", "-", "head", 0, 0, "never"},
    {"hunyuan-dense", "swiglu", "all", "never", "same", "-", "head", 0, 0, "if absent"},
    {"hunyuan-moe", "swiglu", "all", "never", "same", "-", "head", 0, 0, "if absent"},
    {"hy_v3", "swiglu", "all", "never", "same", "-", "head", 0, 0, "if absent"},
    {"bailingmoe2", "swiglu", "all", "never", "same", "-", "head", 0, 0, "never"},
    {"kimi-linear", "swiglu", "never", "never", "same", "-", "head", 0, 0, "never"},
    {"kimi-k3", "situ", "never", "never", "same", "-", "head", 0, 0, "never"},
    {"bailingmoe3", "swiglu", "all", "never", "same", "-", "head", 0, 0, "if absent"},
    {"lfm2", "swiglu", "all", "by key", "same", "-", "head", 0, 0, "if absent"},
    {"lfm2moe", "swiglu", "all", "never", "same", "-", "head", 0, 0, "if absent"},
    {"deepseek2", "swiglu", "all", "never", "same", "-", "head", 0, 0, "if absent"},
    {"mamba", "swiglu", "never", "never", "same", "-", "head", 0, 0, "if absent"},
    {"mamba2", "swiglu", "never", "never", "same", "-", "head", 0, 0, "if absent"},
    {"falcon-h1", "swiglu", "all", "never", "same", "-", "head", 0, 0, "if absent"},
    {"nemotron_h", "relu2", "never", "never", "same", "-", "head", 0, 0, "if absent"},
    {"nemotron_h_moe", "relu2", "never", "never", "same", "-", "head", 0, 0, "if absent"},
    {"granitehybrid", "swiglu", "by key", "never", "same", "granite", "head", 0, 0, "if absent"},
    {"gemma3n", "geglu", "all", "by key", "own base", "gemma", "head", 0, 30, "if absent"},
    {"gemma4", "geglu", "all", "required", "own base", "gemma", "head", 0, 30, "if absent"},
    {"rwkv7", "swiglu", "never", "never", "same", "-", "head", 0, 0, "never"},
    /* clang-format on */
};

static const char *const ffn_names[] = {
    [FFN_SWIGLU] = "swiglu", [FFN_GEGLU] = "geglu", [FFN_GELU] = "gelu",
    [FFN_RELU2] = "relu2",   [FFN_OAI] = "oai",     [FFN_SITU] = "situ"};
static const char *const rotates_names[] = {[ROTATES_NEVER] = "never",
                                            [ROTATES_ALL] = "all",
                                            [ROTATES_WINDOWED] = "windowed",
                                            [ROTATES_3_OF_4] = "3 of 4",
                                            [ROTATES_BY_KEY] = "by key"};
static const char *const window_names[] = {[WINDOW_NEVER] = "never",
                                           [WINDOW_BY_KEY] = "by key",
                                           [WINDOW_REQUIRED] = "required",
                                           [WINDOW_DEFAULT_4096] = "4096",
                                           [WINDOW_IF_64_LAYERS] = "64 layers"};
static const char *const window_rope_names[] = {[WINDOW_ROPE_SAME] = "same",
                                                [WINDOW_ROPE_PLAIN] = "plain",
                                                [WINDOW_ROPE_OWN_BASE] = "own base",
                                                [WINDOW_ROPE_OWN_BASE_SCALED] = "own base, scaled"};
static const char *const scales_names[] = {[SCALES_NONE] = "-",
                                           [SCALES_GEMMA] = "gemma",
                                           [SCALES_GRANITE] = "granite",
                                           [SCALES_COHERE] = "cohere",
                                           [SCALES_COHERE2] = "cohere, required"};
static const char *const score_names[] = {[SCORE_HEAD] = "head",
                                          [SCORE_MODEL_46_LAYERS] = "46 layers",
                                          [SCORE_MODEL_62_LAYERS] = "62 layers"};
static const char *const tie_names[] = {
    [TIE_IF_ABSENT] = "if absent", [TIE_NEVER] = "never", [TIE_ALWAYS] = "always"};

static void every_family_has_the_windows_scales_and_caps_of_the_second_list(void **state)
{
    (void)state;
    const size_t n = sizeof numbers / sizeof *numbers;
    assert_int_equal(n, family_count());
    for (size_t i = 0; i < n; i++) {
        const struct family *f = family_of(numbers[i].arch);
        if (!f)
            fail_msg("%s is not in the table", numbers[i].arch);
        assert_string_equal(ffn_names[f->ffn], numbers[i].ffn);
        assert_string_equal(rotates_names[f->rotates], numbers[i].rotates);
        assert_string_equal(window_names[f->window], numbers[i].window);
        assert_string_equal(window_rope_names[f->window_rope], numbers[i].window_rope);
        assert_string_equal(scales_names[f->scales], numbers[i].scales);
        assert_string_equal(score_names[f->score_scale], numbers[i].score);
        assert_true(fmaxf(f->attn_softcap, 0.0f) == numbers[i].attn_cap);
        assert_true(fmaxf(f->final_softcap, 0.0f) == numbers[i].final_cap);
        assert_string_equal(tie_names[f->tie], numbers[i].tie);
    }
}

/* Field bug 16: the 27B models divide by the width a head would have if heads filled the model. */
static void scores_are_scaled_by_the_head_but_in_the_27b_models(void **state)
{
    (void)state;
    static const struct {
        const char *arch;
        unsigned n_layer;
        float by;
    } models[] = {{"llama", 2, 24},  {"gemma2", 2, 24},  {"gemma2", 46, 16},
                  {"gemma3", 2, 24}, {"gemma3", 62, 16}, {"gemma3", 46, 24}};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct mkgguf g = mkgguf_defaults(models[i].arch);
        linnet_model *m;
        size_t n = 0;
        g.n_layer = models[i].n_layer;
        g.d_head = 24; /* 64 dimensions in 4 heads would be 16 */
        assert_ok(open_made(&g, &m), err);
        for (size_t k = 0; k < m->plan.n_steps; k++) {
            const struct attn_step *a = m->plan.steps[k].attn;
            if (!a)
                continue;
            assert_true(fabsf(a->scale - 1.0f / sqrtf(models[i].by)) < 1e-6f);
            n++;
        }
        assert_int_equal(n, models[i].n_layer);
        linnet_model_close(m);
    }
}

static void the_families_with_a_draft_head_are_these(void **state)
{
    (void)state;
    static const char *const with[] = {"deepseek2", "glm4moe",   "hy_v3",      "qwen3next",
                                       "qwen35",    "qwen35moe", "bailingmoe3"};
    const size_t n_with = sizeof with / sizeof *with;
    size_t n = 0;
    for (size_t i = 0; i < n_with; i++)
        assert_true(family_of(with[i])->draft);
    for (size_t i = 0; i < family_count(); i++)
        n += family_at(i)->draft;
    assert_int_equal(n, n_with);
}

/* The families with builders of their own: the pairs they rotate. */
static void every_other_family_rotates_the_pairs_of_the_second_list(void **state)
{
    (void)state;
    static const struct {
        const char *arch, *pairs;
    } others[] = {
        {"qwen3next", "neox"},  {"qwen35", "neox"},         {"qwen35moe", "neox"},
        {"deepseek2", "norm"},  {"bailingmoe3", "norm"},    {"kimi-linear", "none"},
        {"kimi-k3", "none"},    {"gemma3n", "neox"},        {"gemma4", "neox"},
        {"lfm2", "neox"},       {"lfm2moe", "neox"},        {"falcon-h1", "neox"},
        {"nemotron_h", "none"}, {"nemotron_h_moe", "none"}, {"granitehybrid", "norm"},
        {"mamba", "none"},      {"mamba2", "none"},         {"rwkv7", "none"},
    };
    size_t n = 0;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const struct family *f = family_of(others[i].arch);
        if (!f)
            fail_msg("%s is not in the table", others[i].arch);
        assert_string_equal(pair_names[f->pairs], others[i].pairs);
    }
    for (size_t i = 0; i < family_count(); i++)
        n += family_at(i)->build != build_dense;
    assert_int_equal(n, sizeof others / sizeof *others);
}

static void an_unknown_architecture_is_refused_by_name(void **state)
{
    (void)state;
    struct mkgguf g = mkgguf_defaults("llama9000");
    refused(&g, LINNET_UNSUPPORTED, "llama9000");
}

struct change {
    const char *drop;
    const char *u32_key;
    uint32_t u32;
    const char *f32_key;
    float f32;
    const char *str_key, *str;
    const char *tensor;
    unsigned in, out;
    const char *extra_key;
    bool extra_is_float;
    double extra;
};

static bool drops(void *arg, const char *name)
{
    const struct change *c = arg;
    return c->drop && strcmp(name, c->drop) == 0;
}

static void adds_keys(void *arg, struct mkgguf_out *o)
{
    const struct change *c = arg;
    if (c->u32_key)
        mkgguf_u32(o, c->u32_key, c->u32);
    if (c->f32_key)
        mkgguf_f32(o, c->f32_key, c->f32);
    if (c->str_key)
        mkgguf_str(o, c->str_key, c->str);
    if (c->extra_key && c->extra_is_float)
        mkgguf_f32(o, c->extra_key, (float)c->extra);
    else if (c->extra_key)
        mkgguf_u32(o, c->extra_key, (uint32_t)c->extra);
}

static void adds_tensors(void *arg, struct mkgguf_out *o)
{
    const struct change *c = arg;
    if (c->tensor)
        mkgguf_matrix(o, c->tensor, c->in, c->out, 1.0f);
}

static struct mkgguf changed(const char *arch, struct change *c)
{
    struct mkgguf g = mkgguf_defaults(arch);
    g.drop = drops;
    g.more_keys = adds_keys;
    g.more_tensors = adds_tensors;
    g.arg = c;
    return g;
}

static void an_unknown_key_or_tensor_is_refused_by_name(void **state)
{
    (void)state;
    struct change key = {.u32_key = "llama.attention.new_trick", .u32 = 1};
    struct mkgguf g = changed("llama", &key);
    refused(&g, LINNET_UNSUPPORTED, "llama.attention.new_trick");
    struct change tensor = {.tensor = "blk.0.attn_surprise.weight", .in = 64, .out = 64};
    g = changed("llama", &tensor);
    refused(&g, LINNET_UNSUPPORTED, "blk.0.attn_surprise.weight");
    struct change scaling = {.str_key = "llama.rope.scaling.type", .str = "spiral"};
    g = changed("llama", &scaling);
    refused(&g, LINNET_UNSUPPORTED, "spiral");
}

static void every_missing_tensor_is_named(void **state)
{
    (void)state;
    static const char *const archs[] = {"llama",  "qwen2",  "qwen3",    "gemma",
                                        "gemma2", "gemma3", "qwen2moe", "qwen3moe"};
    for (size_t a = 0; a < sizeof archs / sizeof *archs; a++) {
        struct mkgguf whole = mkgguf_defaults(archs[a]);
        struct gguf *file = mkgguf_open(&whole);
        for (size_t i = 0; i < gguf_n_tensors(file); i++) {
            const char *name = gguf_tensor_at(file, i)->name;
            if (strstr(name, ".bias") || strcmp(name, "output.weight") == 0)
                continue; /* optional */
            if (strstr(name, "shexp"))
                continue; /* a mixture may have no shared expert: the rest of it is then left over
                           */
            char part[64];
            /* a missing router makes its layer dense: the error then is about the dense tensors */
            snprintf(part, sizeof part, "%s", strstr(name, "ffn_gate_inp.weight") ? "blk." : name);
            struct change c = {.drop = name};
            struct mkgguf g = changed(archs[a], &c);
            refused(&g, LINNET_FORMAT, part);
        }
        gguf_close(file);
    }
}

static void a_missing_required_key_is_named(void **state)
{
    (void)state;
    static const char *const keys[] = {"block_count", "embedding_length", "context_length",
                                       "attention.head_count", "attention.layer_norm_rms_epsilon"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char full[96];
        snprintf(full, sizeof full, "llama.%s", keys[i]);
        struct change c = {.drop = full};
        struct mkgguf g = changed("llama", &c);
        refused(&g, LINNET_FORMAT, full);
    }
    struct change c = {.drop = "qwen3moe.expert_used_count"};
    struct mkgguf g = changed("qwen3moe", &c);
    refused(&g, LINNET_FORMAT, "expert_used_count");
}

/* Leaving a key out gives the logits of writing it with `absent`, and not those of `other`. */
static void defaults_to(const char *arch, const char *key, bool is_float, double absent,
                        double other)
{
    char full[96];
    size_t n;
    snprintf(full, sizeof full, "%s.%s", arch, key);
    struct change base = {.f32_key = strcmp(arch, "granite") == 0 ? "granite.logit_scale" : NULL,
                          .f32 = 1.0f};
    struct change with = base, more = base;
    with.extra_key = more.extra_key = full;
    with.extra_is_float = more.extra_is_float = is_float;
    with.extra = absent;
    more.extra = other;
    struct mkgguf a = changed(arch, &base), b = changed(arch, &with), c = changed(arch, &more);
    float *x = logits_of(&a, &n), *y = logits_of(&b, &n), *z = logits_of(&c, &n);
    if (memcmp(x, y, n * sizeof *x) != 0)
        fail_msg("%s: leaving it out is not %g", full, absent);
    if (memcmp(x, z, n * sizeof *x) == 0)
        fail_msg("%s: %g gives the same logits as leaving it out", full, other);
    free(x);
    free(y);
    free(z);
}

static void an_optional_key_left_out_means_its_documented_default(void **state)
{
    (void)state;
    static const struct {
        const char *arch, *key;
        bool is_float;
        double absent, other;
    } keys[] = {
        {"llama", "rope.scaling.factor", true, 1, 4},
        {"llama", "rope.scaling.factor", true, 0, 4},
        {"llama", "rope.scaling.attn_factor", true, 1, 1.5},
        {"llama", "rope.scale_linear", true, 1, 4},
        {"gemma2", "attention.sliding_window", false, 4096, 2},
        {"gemma2", "attn_logit_softcapping", true, 50, 0.1},
        {"gemma2", "final_logit_softcapping", true, 30, 0.5},
        {"gemma2", "rope.freq_base_swa", true, 10000, 50},
        {"gemma3", "attention.sliding_window", false, 0, 2},
        {"gemma3", "final_logit_softcapping", true, 0, 0.5},
        {"qwen3moe", "expert_weights_scale", true, 1, 3},
        {"qwen3moe", "expert_weights_scale", true, 0, 3},
        {"qwen2moe", "expert_weights_scale", true, 1, 3},
        {"granite", "embedding_scale", true, 1, 3},
        {"granite", "embedding_scale", true, 0, 3},
        {"granite", "residual_scale", true, 0, 3},
        {"granite", "attention.scale", true, 0.25, 2},
        {"granite", "rope.scaling.finetuned", false, 1, 0},
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        defaults_to(keys[i].arch, keys[i].key, keys[i].is_float, keys[i].absent, keys[i].other);
}

static void a_key_that_repeats_what_the_file_shows_may_be_left_out(void **state)
{
    (void)state;
    static const char *const keys[] = {"attention.head_count_kv", "attention.key_length",
                                       "attention.value_length",  "rope.dimension_count",
                                       "rope.freq_base",          "vocab_size"};
    struct mkgguf whole = mkgguf_defaults("llama");
    whole.n_head_kv = whole.n_head;
    size_t n;
    float *want = logits_of(&whole, &n);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char full[96];
        snprintf(full, sizeof full, "llama.%s", keys[i]);
        struct change c = {.drop = full};
        struct mkgguf g = changed("llama", &c);
        g.n_head_kv = g.n_head;
        float *got = logits_of(&g, &n);
        if (memcmp(got, want, n * sizeof *got) != 0)
            fail_msg("%s: leaving it out changes the logits", full);
        free(got);
    }
    free(want);
}

static void shapes_that_do_not_fit_are_named(void **state)
{
    (void)state;
    static const char *const names[] = {"blk.1.ffn_up.weight", "blk.0.attn_k.weight",
                                        "blk.1.attn_output.weight", "output.weight"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct change c = {.drop = names[i], .tensor = names[i], .in = 64, .out = 40};
        struct mkgguf g = changed("llama", &c);
        refused(&g, LINNET_FORMAT, names[i]);
    }
    struct change c = {
        .drop = "blk.1.attn_norm.weight", .tensor = "blk.1.attn_norm.weight", .in = 63, .out = 1};
    struct mkgguf g = changed("llama", &c);
    refused(&g, LINNET_FORMAT, "blk.1.attn_norm.weight");
}

/* Field bug 17: windows at the edges of pages and chunks. */
static void a_window_sees_the_same_however_the_prompt_is_cut(void **state)
{
    (void)state;
    const unsigned windows[] = {1, 7, 8, 9, 64};
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
        unsigned w = windows[i];
        struct change c = {.u32_key = "gemma2.attention.sliding_window", .u32 = w};
        struct mkgguf g = changed("gemma2", &c);
        linnet_model *m;
        linnet_context *x;
        linnet_session *s;
        int32_t tokens[150];
        static float want[150][300];
        for (int t = 0; t < 150; t++)
            tokens[t] = (t * 31 + 7) % 300;
        assert_ok(open_made(&g, &m), err);
        assert_ok(linnet_context_create(m, NULL, &x, &err), err);
        const unsigned cuts[] = {150, 1, w > 1 ? w - 1 : 1, w, w + 1};
        for (size_t k = 0; k < sizeof cuts / sizeof *cuts; k++) {
            assert_ok(linnet_session_create(x, &s, &err), err);
            for (unsigned at = 0; at < 150; at += cuts[k]) {
                size_t n = 150 - at < cuts[k] ? 150 - at : cuts[k];
                linnet_item item = {s, tokens + at, n, LINNET_WANT_ALL};
                assert_ok(linnet_run(x, &item, 1, &err), err);
                for (size_t t = 0; t < n; t++)
                    if (k == 0)
                        memcpy(want[at + t], linnet_logits(x, 0, t), sizeof want[0]);
                    else
                        assert_memory_equal(linnet_logits(x, 0, t), want[at + t], sizeof want[0]);
            }
            linnet_session_free(s);
        }
        linnet_context_free(x);
        linnet_model_close(m);
    }
}

static void an_epsilon_that_cannot_be_is_refused(void **state)
{
    (void)state;
    const float bad[] = {-1.0f, 1.0f, 1e38f, NAN, INFINITY};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct mkgguf g = mkgguf_defaults("llama");
        g.norm_eps = bad[i];
        refused(&g, LINNET_FORMAT, "llama.attention.layer_norm_rms_epsilon");
    }
}

/* Converters write them whether or not a model has what they are about. */
static void keys_that_say_there_is_none_change_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *arch, *key;
        bool is_float;
        double value;
    } none[] = {
        {"llama", "llama.attention.layer_norm_epsilon", true, 1e-6},
        {"llama", "llama.expert_count", false, 0},
        {"llama", "llama.expert_used_count", false, 0},
        {"llama", "llama.expert_weights_scale", true, 0},
        {"llama", "llama.leading_dense_block_count", false, 0},
        {"llama", "llama.attn_logit_softcapping", true, 0},
        {"qwen2", "qwen2.final_logit_softcapping", true, 0},
    };
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        struct change with = {
            .extra_key = none[i].key, .extra_is_float = none[i].is_float, .extra = none[i].value};
        struct mkgguf a = mkgguf_defaults(none[i].arch), b = changed(none[i].arch, &with);
        size_t n;
        float *x = logits_of(&a, &n), *y = logits_of(&b, &n);
        if (memcmp(x, y, n * sizeof *x) != 0)
            fail_msg("%s changes the logits", none[i].key);
        free(x);
        free(y);
    }
    struct change experts = {.extra_key = "llama.expert_used_count", .extra = 2};
    struct mkgguf g = changed("llama", &experts);
    refused(&g, LINNET_UNSUPPORTED, "llama.expert_used_count");
    struct change cap = {
        .extra_key = "llama.attn_logit_softcapping", .extra_is_float = true, .extra = 50};
    g = changed("llama", &cap);
    refused(&g, LINNET_UNSUPPORTED, "llama.attn_logit_softcapping");
}

static void counts_that_cannot_be_are_refused(void **state)
{
    (void)state;
    struct mkgguf g = mkgguf_defaults("llama");
    g.n_head = 3; /* 3 heads of 16 over 2 key heads */
    refused(&g, LINNET_FORMAT, "3 query heads do not divide into 2 key heads");
    g = mkgguf_defaults("qwen3moe");
    g.n_expert_used = 9;
    refused(&g, LINNET_FORMAT, "expert_used_count");
    g = mkgguf_defaults("qwen3moe");
    g.n_expert_used = 0;
    refused(&g, LINNET_FORMAT, "expert_used_count");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_dense_family_has_the_facts_of_the_second_list),
        cmocka_unit_test(every_family_has_the_windows_scales_and_caps_of_the_second_list),
        cmocka_unit_test(scores_are_scaled_by_the_head_but_in_the_27b_models),
        cmocka_unit_test(the_families_with_a_draft_head_are_these),
        cmocka_unit_test(every_other_family_rotates_the_pairs_of_the_second_list),
        cmocka_unit_test(an_unknown_architecture_is_refused_by_name),
        cmocka_unit_test(an_unknown_key_or_tensor_is_refused_by_name),
        cmocka_unit_test(every_missing_tensor_is_named),
        cmocka_unit_test(a_missing_required_key_is_named),
        cmocka_unit_test(an_optional_key_left_out_means_its_documented_default),
        cmocka_unit_test(a_key_that_repeats_what_the_file_shows_may_be_left_out),
        cmocka_unit_test(shapes_that_do_not_fit_are_named),
        cmocka_unit_test(a_window_sees_the_same_however_the_prompt_is_cut),
        cmocka_unit_test(an_epsilon_that_cannot_be_is_refused),
        cmocka_unit_test(keys_that_say_there_is_none_change_nothing),
        cmocka_unit_test(counts_that_cannot_be_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
