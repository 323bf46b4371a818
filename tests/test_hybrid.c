/*
 * Delta-rule families as files: layouts that mean the same give the same bits, and what is wrong or
 * missing is refused by name before anything runs.
 */
#include "hybrid.h"

static linnet_error err;
static const char *const archs[] = {"qwen3next",   "qwen35",  "qwen35moe",
                                    "kimi-linear", "kimi-k3", "bailingmoe3"};
enum { N_ARCHS = sizeof archs / sizeof *archs, N_TOKENS = 12 };

static void run(linnet_context *c, float *out)
{
    int32_t tokens[N_TOKENS];
    for (int i = 0; i < N_TOKENS; i++)
        tokens[i] = (i * 17 + 3) % N_VOCAB;
    linnet_session *s;
    assert_ok(linnet_session_create(c, &s, &err), err);
    linnet_item item = {s, tokens, N_TOKENS, LINNET_WANT_ALL};
    assert_ok(linnet_run(c, &item, 1, &err), err);
    for (size_t t = 0; t < N_TOKENS; t++)
        memcpy(out + t * N_VOCAB, linnet_logits(c, 0, t), N_VOCAB * sizeof *out);
    for (size_t i = 0; i < N_TOKENS * N_VOCAB; i++)
        assert_true(isfinite(out[i]));
    linnet_session_free(s);
}

/* Logits [N_TOKENS][N_VOCAB] of the model. */
static void logits_of(const struct hybrid *m, float *out)
{
    linnet_model *model;
    linnet_context *c;
    assert_ok(hybrid_open(m, &model, &err), err);
    assert_ok(linnet_context_create(model, NULL, &c, &err), err);
    run(c, out);
    linnet_context_free(c);
    linnet_model_close(model);
}

/* a and b have the same logits, or not; frees both. */
static void compare(struct hybrid *a, struct hybrid *b, bool same, const char *what)
{
    float x[N_TOKENS * N_VOCAB], y[N_TOKENS * N_VOCAB];
    logits_of(a, x);
    logits_of(b, y);
    if ((memcmp(x, y, sizeof x) == 0) != same)
        fail_msg("%s: %s: logits %s", a->arch, what, same ? "differ" : "are the same");
    hybrid_free(a);
    hybrid_free(b);
}

/* Opening fails with `status` and a text that has `part` in it; frees m. */
static void refuse(struct hybrid *m, linnet_status status, const char *part)
{
    linnet_model *model;
    linnet_status got = hybrid_open(m, &model, &err);
    if (got != status || !strstr(err.text, part))
        fail_msg("%s: wanted %s naming '%s', got %s: %s", m->arch, linnet_status_text(status), part,
                 linnet_status_text(got), err.text);
    hybrid_free(m);
}

/* ---- layouts ---- */

/* Rows [from, from + n) of tensor a to row `to` of tensor b, of the same row length. */
static void move_rows(const struct htensor *a, size_t from, struct htensor *b, size_t to, size_t n)
{
    memcpy(b->v + to * b->dims[0], a->v + from * a->dims[0], n * a->dims[0] * sizeof(float));
}

static void one_grouped_projection_means_the_two_flat_ones(void **state)
{
    (void)state;
    struct hybrid *flat = hybrid_new("qwen3next"), *old = hybrid_new("qwen3next");
    for (unsigned l = 0; l < 3; l++) {
        const unsigned r = GDN_V / GDN_K * GDN_DV, group = 2 * GDN_DK + 2 * r;
        htensor_add(old, mkgguf_blk(l, "ssm_in.weight"), 0, 1, D, GDN_K * group, 0);
        struct htensor *in = &old->tensors[old->n_tensors - 1];
        const struct htensor *qkv = htensor_find(old, mkgguf_blk(l, "attn_qkv.weight"));
        const struct htensor *z = htensor_find(old, mkgguf_blk(l, "attn_gate.weight"));
        for (unsigned g = 0; g < GDN_K; g++) {
            move_rows(qkv, g * GDN_DK, in, g * group, GDN_DK);
            move_rows(qkv, (GDN_K + g) * GDN_DK, in, g * group + GDN_DK, GDN_DK);
            move_rows(qkv, 2 * GDN_K * GDN_DK + g * r, in, g * group + 2 * GDN_DK, r);
            move_rows(z, g * r, in, g * group + 2 * GDN_DK + r, r);
        }
        htensor_drop(old, mkgguf_blk(l, "attn_qkv.weight"));
        htensor_drop(old, mkgguf_blk(l, "attn_gate.weight"));
    }
    compare(flat, old, true, "ssm_in");
}

/* Give each value head a key head of its own, a copy of the one it reads. */
static void spread_keys(struct hybrid *m, const char *tensor, bool tiled)
{
    struct htensor old = *htensor_find(m, tensor);
    struct htensor *t = htensor_find(m, tensor);
    t->dims[1] = 2 * GDN_V * GDN_DK + GDN_V * GDN_DV;
    t->n = (size_t)(t->dims[0] * t->dims[1]);
    t->v = malloc(t->n * sizeof *t->v);
    assert_non_null(t->v);
    for (unsigned h = 0; h < GDN_V; h++) {
        unsigned g = tiled ? h % GDN_K : h / (GDN_V / GDN_K);
        move_rows(&old, g * GDN_DK, t, h * GDN_DK, GDN_DK);
        move_rows(&old, (GDN_K + g) * GDN_DK, t, (GDN_V + h) * GDN_DK, GDN_DK);
    }
    move_rows(&old, 2 * GDN_K * GDN_DK, t, 2 * GDN_V * GDN_DK, GDN_V * GDN_DV);
    free(old.v);
}

static void value_heads_read_key_heads_tiled_or_grouped(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct hybrid *few = hybrid_new(archs[i]), *many = hybrid_new(archs[i]);
        for (unsigned l = 0; l < 3; l++) {
            spread_keys(many, mkgguf_blk(l, "attn_qkv.weight"), i == 1);
            spread_keys(many, mkgguf_blk(l, "ssm_conv1d.weight"), i == 1);
            if (i == 1)
                continue;
            /* ssm_ba: [key head][betas, alphas][value heads of it] becomes [value head][beta,
             * alpha] */
            struct htensor *ba = htensor_find(many, mkgguf_blk(l, "ssm_ba.weight"));
            const struct htensor *was = htensor_find(few, mkgguf_blk(l, "ssm_ba.weight"));
            const unsigned r = GDN_V / GDN_K;
            for (unsigned h = 0; h < GDN_V; h++)
                for (unsigned k = 0; k < 2; k++)
                    move_rows(was, h / r * 2 * r + k * r + h % r, ba, 2 * h + k, 1);
        }
        hkey_u32(many, "ssm.group_count", GDN_V);
        compare(few, many, true, "a key head for each value head");
    }
}

static void merged_experts_mean_the_separate_ones(void **state)
{
    (void)state;
    for (int i = 0; i < N_ARCHS; i++) {
        if (strcmp(archs[i], "qwen35") == 0)
            continue;
        struct hybrid *a = hybrid_new(archs[i]), *b = hybrid_new(archs[i]);
        for (unsigned l = 0; l < N_LAYER; l++) {
            struct htensor *gate = htensor_find(b, mkgguf_blk(l, "ffn_gate_exps.weight"));
            if (!gate)
                continue;
            struct htensor *up = htensor_find(b, mkgguf_blk(l, "ffn_up_exps.weight"));
            struct htensor *both = htensor_add(b, mkgguf_blk(l, "ffn_gate_up_exps.weight"), 0, 1,
                                               gate->dims[0], 2 * 24, 4);
            for (unsigned e = 0; e < 4; e++) {
                move_rows(gate, e * 24, both, e * 48, 24);
                move_rows(up, e * 24, both, e * 48 + 24, 24);
            }
            htensor_drop(b, mkgguf_blk(l, "ffn_gate_exps.weight"));
            htensor_drop(b, mkgguf_blk(l, "ffn_up_exps.weight"));
        }
        compare(a, b, true, "ffn_gate_up_exps");
    }
}

static void one_matrix_for_q_k_v_means_the_three(void **state)
{
    (void)state;
    static const char *const names[] = {"attn_q.weight", "attn_k.weight", "attn_v.weight"};
    struct hybrid *a = hybrid_new("kimi-linear"), *b = hybrid_new("kimi-linear");
    for (unsigned l = 0; l < 3; l++) {
        struct htensor *all =
            htensor_add(b, mkgguf_blk(l, "attn_qkv.weight"), 0, 1, D, 3 * KDA_P, 0);
        for (unsigned i = 0; i < 3; i++) {
            move_rows(htensor_find(b, mkgguf_blk(l, names[i])), 0, all, i * KDA_P, KDA_P);
            htensor_drop(b, mkgguf_blk(l, names[i]));
            all = htensor_find(b, mkgguf_blk(l, "attn_qkv.weight"));
        }
    }
    compare(a, b, true, "attn_qkv");
}

static void a_norm_row_for_each_head_may_repeat_one(void **state)
{
    (void)state;
    struct hybrid *a = hybrid_new("bailingmoe3"), *b = hybrid_new("bailingmoe3");
    for (unsigned l = 0; l < 3; l++) {
        struct htensor old = *htensor_find(b, mkgguf_blk(l, "ssm_norm.weight"));
        old.v = memcpy(malloc(KDA_DH * sizeof(float)), old.v, KDA_DH * sizeof(float));
        htensor_drop(b, mkgguf_blk(l, "ssm_norm.weight"));
        struct htensor *t = htensor_add(b, mkgguf_blk(l, "ssm_norm.weight"), 1, 0, KDA_P, 0, 0);
        memcpy(t->v, old.v, KDA_DH * sizeof(float));
        memcpy(t->v + KDA_DH, old.v, KDA_DH * sizeof(float));
        free(old.v);
    }
    compare(a, b, true, "ssm_norm");
}

static void decay_rates_may_have_a_suffix_and_other_shapes(void **state)
{
    (void)state;
    struct hybrid *a = hybrid_new("kimi-k3"), *b = hybrid_new("kimi-k3");
    for (unsigned l = 0; l < 3; l++) {
        struct htensor *t = htensor_find(b, mkgguf_blk(l, "ssm_a"));
        assert_non_null(t);
        strcat(t->name, ".weight");
        t->n_dims = 1;
        t->dims[0] = 2;
    }
    compare(a, b, true, "ssm_a.weight");
}

static void recurrent_layers_are_those_of_the_array_or_the_interval(void **state)
{
    (void)state;
    const double kinds[4] = {1, 1, 1, 0};
    for (int i = 0; i < 3; i++) {
        struct hybrid *a = hybrid_new(archs[i]), *b = hybrid_new(archs[i]),
                      *c = hybrid_new(archs[i]);
        hkey_set(b, "attention.recurrent_layers", GGUF_U32, true, 4, kinds);
        hkey_u32(b, "full_attention_interval", 2); /* the array decides */
        hkey_drop(c, "full_attention_interval");   /* default 4 */
        float x[N_TOKENS * N_VOCAB], y[N_TOKENS * N_VOCAB];
        logits_of(a, x);
        logits_of(c, y);
        assert_memory_equal(x, y, sizeof x);
        hybrid_free(c);
        compare(a, b, true, "attention.recurrent_layers");
    }
}

/* Kimi K3 under the names of an early converter (specification A10). */
static struct hybrid *early_k3(void)
{
    static const char *const names[][2] = {
        {"kda.head_dim", "attention.kda_head_dim"},
        {"kda.gate_lower_bound", "gate_lower_bound"},
        {"attn_res.block_size", "attn_res_block_size"},
        {"activation.situ_beta", "activation_situ_beta"},
        {"activation.situ_linear_beta", "activation_situ_linear_beta"},
        {"expert_weights_norm", "moe_renormalize"},
        {"expert_latent_length", "routed_expert_hidden_size"},
    };
    static const char *const tensors[][2] = {{"ffn_routed_down.weight", "routed_exp_down.weight"},
                                             {"ffn_routed_up.weight", "routed_exp_up.weight"},
                                             {"ffn_routed_norm.weight", "routed_exp_norm.weight"}};
    struct hybrid *m = hybrid_new("kimi-k3");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        hkey_rename(m, names[i][0], names[i][1]);
    for (unsigned l = 1; l < N_LAYER; l++)
        for (size_t i = 0; i < 3; i++) {
            struct htensor *t = htensor_find(m, mkgguf_blk(l, tensors[i][0]));
            assert_non_null(t);
            snprintf(t->name, sizeof t->name, "%s", mkgguf_blk(l, tensors[i][1]));
        }
    hkey_drop(m, "expert_gating_func");
    hkey_text(m, "moe_router_activation_func", "sigmoid");
    hkey_text(m, "topk_method", "noaux_tc");
    hkey_drop(m, "attention.head_count_kv");
    hkey_set(m, "full_attn_layers", GGUF_U32, true, 1, (const double[]){3});
    hkey_set(m, "kda_layers", GGUF_U32, true, 3, (const double[]){0, 1, 2});
    hkey_bool(m, "use_full_rank_gate", true);
    hkey_bool(m, "mla_use_nope", true);
    hkey_bool(m, "mla_use_output_gate", true);
    hkey_bool(m, "latent_moe_use_norm", true);
    return m;
}

static void early_names_of_kimi_k3_mean_the_later_ones(void **state)
{
    (void)state;
    compare(hybrid_new("kimi-k3"), early_k3(), true, "early names");
    struct hybrid *m = early_k3(); /* the tensors tell which layers attend */
    hkey_drop(m, "full_attn_layers");
    hkey_drop(m, "kda_layers");
    compare(hybrid_new("kimi-k3"), m, true, "no list of layers");
    m = early_k3();
    hkey_drop(m, "moe_router_activation_func");
    hkey_text(m, "expert_gating_func", "sigmoid");
    compare(hybrid_new("kimi-k3"), m, true, "expert_gating_func as a text");
}

static void early_files_that_contradict_themselves_are_refused(void **state)
{
    (void)state;
    static const char *const flags[] = {"use_full_rank_gate", "mla_use_output_gate",
                                        "latent_moe_use_norm"};
    struct hybrid *m;
    for (size_t i = 0; i < 3; i++) {
        m = early_k3();
        hkey_bool(m, flags[i], false);
        refuse(m, LINNET_FORMAT, flags[i]);
    }
    m = early_k3();
    hkey_bool(m, "mla_use_nope", false);
    refuse(m, LINNET_UNSUPPORTED, "mla_use_nope");
    m = early_k3();
    hkey_text(m, "topk_method", "greedy");
    refuse(m, LINNET_UNSUPPORTED, "topk_method");
    m = early_k3();
    hkey_text(m, "moe_router_activation_func", "softmax");
    refuse(m, LINNET_UNSUPPORTED, "moe_router_activation_func");
    m = early_k3();
    hkey_set(m, "kda_layers", GGUF_U32, true, 2, (const double[]){0, 3});
    refuse(m, LINNET_FORMAT, "kda_layers");
    m = early_k3();
    hkey_set(m, "full_attn_layers", GGUF_U32, true, 1, (const double[]){4});
    refuse(m, LINNET_FORMAT, "full_attn_layers");
    m = hybrid_new("kimi-linear"); /* other families do not have these names */
    hkey_rename(m, "kda.head_dim", "attention.kda_head_dim");
    refuse(m, LINNET_FORMAT, "kda.head_dim");
    m = hybrid_new("kimi-k3"); /* both names at once */
    hkey_u32(m, "attn_res_block_size", 2);
    refuse(m, LINNET_UNSUPPORTED, "attn_res_block_size");
}

static void a_nextn_block_is_no_part_of_the_trunk(void **state)
{
    (void)state;
    for (int i = 0; i < N_ARCHS; i++) {
        struct hybrid *a = hybrid_new(archs[i]), *b = hybrid_new(archs[i]);
        hkey_u32(b, "block_count", N_LAYER + 1);
        hkey_u32(b, "nextn_predict_layers", 1);
        if (i >= 3)
            hkey_set(b, "attention.head_count_kv", GGUF_U32, true, 5,
                     (const double[]){0, 0, 0, 1, 1});
        htensor_add(b, "blk.4.attn_q.weight", 0, 1, D, 64, 0);
        htensor_add(b, "blk.4.nextn.eh_proj.weight", 0, 1, 2 * D, D, 0);
        compare(a, b, true, "nextn_predict_layers");
    }
}

/* ---- keys that change the maths ---- */

static void a_key_that_is_read_changes_the_logits(void **state)
{
    (void)state;
    static const struct {
        const char *arch, *key;
        double v;
    } keys[] = {
        {"qwen35", "rope.freq_base", 100},
        {"qwen35", "attention.layer_norm_rms_epsilon", 1e-2},
        {"qwen3next", "expert_weights_scale", 2},
        {"kimi-linear", "kda.gate_lower_bound", -5},
        {"kimi-linear", "expert_weights_scale", 2},
        {"kimi-k3", "kda.gate_lower_bound", -1},
        {"kimi-k3", "activation.situ_beta", 0.5},
        {"kimi-k3", "activation.situ_linear_beta", 0},
        {"bailingmoe3", "kda.gate_lower_bound", -1},
        {"bailingmoe3", "rope.freq_base", 100},
        {"bailingmoe3", "swiglu_clamp_exp", 0.05},
        {"bailingmoe3", "swiglu_clamp_shexp", 0.05},
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        struct hybrid *a = hybrid_new(keys[i].arch), *b = hybrid_new(keys[i].arch);
        hkey_f32(b, keys[i].key, keys[i].v);
        compare(a, b, false, keys[i].key);
    }
}

static void keys_that_mean_nothing_here_change_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *arch, *key;
        double v;
    } keys[] = {
        {"kimi-linear", "rope.freq_base", 100}, /* nothing rotates */
        {"kimi-k3", "rope.freq_base", 100},
        {"bailingmoe3", "swiglu_clamp_exp", 0},   /* no clamp */
        {"bailingmoe3", "swiglu_clamp_exp", 1e9}, /* one that nothing reaches */
        {"bailingmoe3", "swiglu_clamp_shexp", 1e-7},
        {"qwen35moe", "feed_forward_length", 0}, /* every layer is a mixture */
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        struct hybrid *a = hybrid_new(keys[i].arch), *b = hybrid_new(keys[i].arch);
        if (strcmp(keys[i].key, "feed_forward_length") == 0)
            hkey_drop(b, keys[i].key);
        else
            hkey_f32(b, keys[i].key, keys[i].v);
        compare(a, b, true, keys[i].key);
    }
    struct hybrid *a = hybrid_new("kimi-linear"), *b = hybrid_new("kimi-linear");
    hkey_bool(b, "expert_weights_norm", false); /* Kimi Linear renormalises whatever it says */
    compare(a, b, true, "expert_weights_norm");
    a = hybrid_new("bailingmoe3");
    b = hybrid_new("bailingmoe3");
    hkey_bool(b, "kda.safe_gate", true);
    compare(a, b, true, "kda.safe_gate");
}

static void the_latent_gate_of_kimi_is_optional(void **state)
{
    (void)state;
    struct hybrid *a = hybrid_new("kimi-k3"), *b = hybrid_new("kimi-k3");
    htensor_drop(b, "blk.3.attn_gate.weight");
    compare(a, b, false, "attn_gate");
    a = hybrid_new("kimi-k3");
    b = hybrid_new("kimi-k3");
    htensor_drop(b, "blk.2.ffn_routed_norm.weight");
    compare(a, b, false, "ffn_routed_norm");
}

/* ---- what is refused ---- */

static bool is_optional(const char *arch, const char *name)
{
    bool kimi = strncmp(arch, "kimi", 4) == 0, qwen = strncmp(arch, "qwen", 4) == 0;
    return (!kimi && strcmp(name, "output.weight") == 0) || (!qwen && strstr(name, "_shexp")) ||
           (kimi && strstr(name, "blk.3.attn_gate")) || strstr(name, "ffn_routed_norm");
}

static void every_missing_tensor_is_named(void **state)
{
    (void)state;
    for (int a = 0; a < N_ARCHS; a++) {
        struct hybrid *whole = hybrid_new(archs[a]);
        for (size_t i = 0; i < whole->n_tensors; i++) {
            const char *name = whole->tensors[i].name;
            if (is_optional(archs[a], name))
                continue;
            struct hybrid *m = hybrid_new(archs[a]);
            htensor_drop(m, name);
            /* without the second of a pair the first has the wrong shape; of one that decides the
             * layout, the other
             *                layout's tensor is missed */
            const char *part = name;
            if (strstr(name, "ssm_f_b"))
                part = "ssm_f_a.weight";
            else if (strstr(name, "ssm_g_b") || strstr(name, "ssm_g.weight"))
                part = "ssm_g_a.weight";
            else if (strstr(name, "attn_k_b"))
                part = "attn_kv_b.weight";
            else if (strstr(name, "attn_q_a.weight"))
                part = "attn_q.weight";
            refuse(m, LINNET_FORMAT, part);
        }
        hybrid_free(whole);
    }
}

static void every_missing_key_is_named(void **state)
{
    (void)state;
    static const char *const all[] = {"block_count",
                                      "embedding_length",
                                      "context_length",
                                      "attention.head_count",
                                      "attention.layer_norm_rms_epsilon",
                                      "ssm.conv_kernel"};
    static const char *const qwen[] = {"ssm.state_size", "ssm.group_count", "ssm.time_step_rank",
                                       "ssm.inner_size"};
    static const char *const kimi[] = {
        "attention.head_count_kv", "attention.kv_lora_rank", "kda.head_dim",
        "rope.dimension_count",    "expert_count",           "expert_used_count",
        "expert_gating_func"};
    static const struct {
        const char *arch, *key;
    } own[] = {{"qwen35", "rope.dimension_sections"},   {"qwen35", "feed_forward_length"},
               {"qwen35moe", "expert_count"},           {"qwen35moe", "expert_used_count"},
               {"kimi-k3", "activation.situ_beta"},     {"kimi-k3", "activation.situ_linear_beta"},
               {"bailingmoe3", "kda.gate_lower_bound"}, {"kimi-linear", "feed_forward_length"}};
    for (int a = 0; a < N_ARCHS; a++) {
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
            struct hybrid *m = hybrid_new(archs[a]);
            hkey_drop(m, all[i]);
            refuse(m, LINNET_FORMAT, all[i]);
        }
        for (size_t i = 0; i < (a < 3 ? sizeof qwen / sizeof *qwen : sizeof kimi / sizeof *kimi);
             i++) {
            if (strcmp(archs[a], "kimi-k3") == 0 && strcmp(kimi[i], kimi[0]) == 0)
                continue; /* its tensors tell */
            struct hybrid *m = hybrid_new(archs[a]);
            hkey_drop(m, a < 3 ? qwen[i] : kimi[i]);
            refuse(m, LINNET_FORMAT, a < 3 ? qwen[i] : kimi[i]);
        }
    }
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        struct hybrid *m = hybrid_new(own[i].arch);
        hkey_drop(m, own[i].key);
        refuse(m, LINNET_FORMAT, own[i].key);
    }
}

static void values_that_cannot_be_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *arch, *key;
        double v;
        const char *part;
        linnet_status status;
    } bad[] = {
        {"qwen35", "full_attention_interval", 0, "full_attention_interval", LINNET_FORMAT},
        {"qwen3next", "ssm.conv_kernel", 1, "ssm.conv_kernel", LINNET_FORMAT},
        {"qwen3next", "ssm.conv_kernel", 3, "has 4 taps", LINNET_FORMAT},
        {"qwen35", "ssm.conv_kernel", 1e6, "ssm.conv_kernel", LINNET_FORMAT},
        {"qwen35", "ssm.group_count", 0, "ssm.group_count", LINNET_FORMAT},
        {"qwen35", "ssm.group_count", 4, "6 value heads", LINNET_FORMAT},
        {"qwen35", "ssm.time_step_rank", 7, "ssm.inner_size", LINNET_FORMAT},
        {"qwen35", "ssm.state_size", 1u << 24, "delta keys", LINNET_LIMIT},
        {"qwen35", "ssm.state_size", 9, "attn_qkv.weight", LINNET_FORMAT},
        {"qwen35", "attention.value_length", 8, "key_length", LINNET_FORMAT},
        {"qwen35", "attention.head_count", 3, "attn_q.weight", LINNET_FORMAT},
        {"qwen35", "attention.head_count_kv", 0, "no key heads", LINNET_FORMAT},
        {"qwen35", "rope.dimension_count", 17, "rope.dimension_count", LINNET_FORMAT},
        {"qwen35", "rope.dimension_count", 7, "even number", LINNET_FORMAT},
        {"qwen35moe", "expert_used_count", 5, "expert_used_count", LINNET_FORMAT},
        {"qwen35moe", "expert_count", 0, "expert_count", LINNET_FORMAT},
        {"kimi-linear", "ssm.conv_kernel", 1, "ssm.conv_kernel", LINNET_FORMAT},
        {"kimi-linear", "ssm.conv_kernel", 5, "has 4 taps", LINNET_FORMAT},
        {"kimi-linear", "kda.head_dim", 0, "kda.head_dim", LINNET_FORMAT},
        {"kimi-linear", "kda.head_dim", 9, "attn_q.weight", LINNET_FORMAT},
        {"kimi-linear", "attention.head_count_kv", 1, "must be an array", LINNET_FORMAT},
        {"kimi-linear", "expert_gating_func", 9, "expert_gating_func", LINNET_FORMAT},
        {"kimi-linear", "rope.dimension_count", 16, "rope.dimension_count", LINNET_FORMAT},
        {"kimi-k3", "expert_latent_length", 15, "ffn_routed_down.weight", LINNET_FORMAT},
        {"kimi-k3", "expert_latent_length", 0, "ffn_gate_exps.weight", LINNET_FORMAT},
        {"kimi-k3", "attn_res.block_size", 0, "res_score", LINNET_UNSUPPORTED},
        {"bailingmoe3", "kda.safe_gate", 0, "kda.safe_gate", LINNET_UNSUPPORTED},
        {"bailingmoe3", "expert_group_count", 3, "expert groups", LINNET_FORMAT},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct hybrid *m = hybrid_new(bad[i].arch);
        hkey_u32(m, bad[i].key, (uint32_t)bad[i].v);
        refuse(m, bad[i].status, bad[i].part);
    }
    static const struct {
        const char *arch, *key;
        double v;
    } floats[] = {{"kimi-linear", "kda.gate_lower_bound", 0},
                  {"kimi-k3", "kda.gate_lower_bound", 5},
                  {"bailingmoe3", "kda.gate_lower_bound", 0},
                  {"kimi-k3", "activation.situ_beta", 0},
                  {"kimi-k3", "activation.situ_beta", -1}};
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++) {
        struct hybrid *m = hybrid_new(floats[i].arch);
        hkey_f32(m, floats[i].key, floats[i].v);
        refuse(m, LINNET_FORMAT, floats[i].key);
    }
}

static void arrays_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    struct hybrid *m = hybrid_new("qwen35");
    hkey_set(m, "attention.recurrent_layers", GGUF_U32, true, 3, (const double[]){1, 1, 1});
    refuse(m, LINNET_FORMAT, "attention.recurrent_layers");
    m = hybrid_new("qwen35");
    hkey_set(m, "attention.recurrent_layers", GGUF_U32, true, 4, (const double[]){1, 1, 2, 0});
    refuse(m, LINNET_FORMAT, "attention.recurrent_layers");
    m = hybrid_new("qwen35");
    hkey_set(m, "rope.dimension_sections", GGUF_U32, true, 3, (const double[]){2, 1, 1});
    refuse(m, LINNET_FORMAT, "rope.dimension_sections");
    m = hybrid_new("kimi-k3");
    hkey_set(m, "attention.head_count_kv", GGUF_U32, true, 3, (const double[]){0, 0, 0});
    refuse(m, LINNET_FORMAT, "attention.head_count_kv");
    m = hybrid_new("kimi-k3"); /* a layer with the tensors of the other kind */
    hkey_set(m, "attention.head_count_kv", GGUF_U32, true, 4, (const double[]){0, 0, 1, 1});
    refuse(m, LINNET_FORMAT, "blk.2.attn_");
    m = hybrid_new("bailingmoe3");
    hkey_set(m, "swiglu_clamp_exp", GGUF_F32, true, 3, (const double[]){0, 0, 0});
    refuse(m, LINNET_FORMAT, "swiglu_clamp_exp");
}

static void a_decay_that_would_grow_is_refused(void **state)
{
    (void)state;
    for (int i = 0; i < N_ARCHS; i++) {
        struct hybrid *m = hybrid_new(archs[i]);
        htensor_find(m, "blk.1.ssm_a")->v[1] *= -1;
        refuse(m, LINNET_FORMAT, "blk.1.ssm_a");
        m = hybrid_new(archs[i]);
        htensor_find(m, "blk.1.ssm_a")->v[0] = NAN;
        refuse(m, LINNET_FORMAT, "blk.1.ssm_a");
    }
}

static void tensors_of_the_wrong_shape_are_named(void **state)
{
    (void)state;
    static const char *const names[] = {"blk.0.ssm_norm.weight", "blk.0.ssm_dt.bias",
                                        "blk.0.ssm_a"};
    for (int a = 0; a < N_ARCHS; a++)
        for (int i = 0; i < 3; i++) {
            struct hybrid *m = hybrid_new(archs[a]);
            htensor_drop(m, names[i]);
            htensor_add(m, names[i], -1, 0, 7, 0, 0);
            refuse(m, LINNET_FORMAT, names[i]);
        }
}

/* ---- observers ---- */

static bool skip_odd(void *user, uint32_t layer, float *hidden, size_t n_rows, size_t width)
{
    (void)user, (void)hidden, (void)n_rows, (void)width;
    return layer % 2 == 0;
}

/* The states that later layers mix in are there although the layers that store them are skipped. */
static void skipped_layers_leave_nothing_undefined(void **state)
{
    (void)state;
    for (int i = 0; i < N_ARCHS; i++) {
        struct hybrid *m = hybrid_new(archs[i]);
        linnet_model *model;
        linnet_context *c;
        linnet_observer o;
        float full[N_TOKENS * N_VOCAB], x[N_TOKENS * N_VOCAB], y[N_TOKENS * N_VOCAB];
        assert_ok(hybrid_open(m, &model, &err), err);
        assert_ok(linnet_context_create(model, NULL, &c, &err), err);
        linnet_observer_defaults(&o);
        o.before_layer = skip_odd;
        linnet_context_observe(c, &o);
        run(c, x);
        linnet_context_observe(c, NULL);
        run(c, full);
        linnet_context_observe(c, &o);
        run(c, y);
        assert_memory_equal(x, y, sizeof x);
        assert_memory_not_equal(x, full, sizeof x);
        linnet_context_free(c);
        linnet_model_close(model);
        hybrid_free(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_grouped_projection_means_the_two_flat_ones),
        cmocka_unit_test(value_heads_read_key_heads_tiled_or_grouped),
        cmocka_unit_test(merged_experts_mean_the_separate_ones),
        cmocka_unit_test(one_matrix_for_q_k_v_means_the_three),
        cmocka_unit_test(a_norm_row_for_each_head_may_repeat_one),
        cmocka_unit_test(decay_rates_may_have_a_suffix_and_other_shapes),
        cmocka_unit_test(recurrent_layers_are_those_of_the_array_or_the_interval),
        cmocka_unit_test(early_names_of_kimi_k3_mean_the_later_ones),
        cmocka_unit_test(early_files_that_contradict_themselves_are_refused),
        cmocka_unit_test(a_nextn_block_is_no_part_of_the_trunk),
        cmocka_unit_test(a_key_that_is_read_changes_the_logits),
        cmocka_unit_test(keys_that_mean_nothing_here_change_nothing),
        cmocka_unit_test(the_latent_gate_of_kimi_is_optional),
        cmocka_unit_test(every_missing_tensor_is_named),
        cmocka_unit_test(every_missing_key_is_named),
        cmocka_unit_test(values_that_cannot_be_are_refused),
        cmocka_unit_test(arrays_that_do_not_fit_are_refused),
        cmocka_unit_test(a_decay_that_would_grow_is_refused),
        cmocka_unit_test(tensors_of_the_wrong_shape_are_named),
        cmocka_unit_test(skipped_layers_leave_nothing_undefined),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
