/*
 * deepseek2 files: both generations, both kinds of query projection, what they must and may hold,
 * and their NextN blocks. Numbers against another implementation are in test_golden and test_draft.
 */
#include "made.h"

enum { N_HEAD = 4, D_NOPE = 32, D_ROPE = 8, D_V = 32, D_LATENT = 32, D_Q_LATENT = 32 };

/* What a file is, and one change to it. */
struct file {
    bool lora;      /* queries through a latent */
    bool joined;    /* attn_kv_b, and no *_length_mla keys */
    bool both;      /* attn_kv_b besides attn_k_b and attn_v_b */
    unsigned nextn; /* NextN blocks at the end */
    bool router_bias;
    bool only_trunk, only_nextn; /* leave out the tensors of the other part */
    const char *drop;            /* a key or tensor */
    const char *u32_key, *f32_key, *bool_key;
    double value;
    const char *tensor; /* replaced by a matrix of 32 x 33 */
};

static bool is_dropped(const struct file *f, const char *name)
{
    if (strncmp(name, "blk.", 4) == 0 && (name[4] == '3' ? f->only_trunk : f->only_nextn))
        return true;
    return f->drop && strcmp(f->drop, name) == 0;
}

/* Of what mkgguf makes for a llama: attention, keys of its heads, dense layers after the first. */
static bool drops(void *arg, const char *name)
{
    const struct file *f = arg;
    static const char *const ours[] = {"attn_q.",
                                       "attn_k.",
                                       "attn_v.",
                                       "attn_output.",
                                       "key_length",
                                       "value_length",
                                       ".rope.dimension_count"};
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        if (strstr(name, ours[i]))
            return true;
    bool trunk_mixture = strncmp(name, "blk.", 4) == 0 && name[4] != '0';
    if (trunk_mixture &&
        (strstr(name, "ffn_gate.") || strstr(name, "ffn_up.") || strstr(name, "ffn_down.")))
        return true;
    return is_dropped(f, name) || (f->tensor && strcmp(f->tensor, name) == 0);
}

static void key(struct mkgguf_out *o, const struct file *f, const char *name, uint32_t v)
{
    const char *full = mkgguf_key(o->m, name);
    if (!is_dropped(f, full) && !(f->u32_key && strcmp(f->u32_key, full) == 0))
        mkgguf_u32(o, full, v);
}

static void adds_keys(void *arg, struct mkgguf_out *o)
{
    const struct file *f = arg;
    key(o, f, "attention.kv_lora_rank", D_LATENT);
    key(o, f, "rope.dimension_count", D_ROPE);
    key(o, f, "attention.key_length", f->joined ? D_NOPE + D_ROPE : D_LATENT + D_ROPE);
    key(o, f, "attention.value_length", f->joined ? D_V : D_LATENT);
    if (!f->joined) {
        key(o, f, "attention.key_length_mla", D_NOPE + D_ROPE);
        key(o, f, "attention.value_length_mla", D_V);
    }
    if (f->lora)
        key(o, f, "attention.q_lora_rank", D_Q_LATENT);
    key(o, f, "expert_count", 8);
    key(o, f, "expert_used_count", 2);
    key(o, f, "leading_dense_block_count", 1);
    if (f->nextn)
        key(o, f, "nextn_predict_layers", f->nextn);
    if (f->u32_key)
        mkgguf_u32(o, f->u32_key, (uint32_t)f->value);
    if (f->f32_key)
        mkgguf_f32(o, f->f32_key, (float)f->value);
    if (f->bool_key)
        mkgguf_bool(o, f->bool_key, f->value != 0.0);
}

static void matrix(struct mkgguf_out *o, const struct file *f, unsigned l, const char *name,
                   unsigned in, unsigned out, unsigned n)
{
    const char *full = mkgguf_blk(l, name);
    if (!is_dropped(f, full) && !(f->tensor && strcmp(f->tensor, full) == 0))
        mkgguf_matrix(o, full, in, out, n);
}

static void norm(struct mkgguf_out *o, const struct file *f, unsigned l, const char *name,
                 unsigned n)
{
    const char *full = mkgguf_blk(l, name);
    if (!is_dropped(f, full) && !(f->tensor && strcmp(f->tensor, full) == 0))
        mkgguf_norm(o, full, n);
}

static void adds_layer(struct mkgguf_out *o, const struct file *f, unsigned l)
{
    unsigned d = o->m->d_model, q = N_HEAD * (D_NOPE + D_ROPE);
    if (f->lora) {
        matrix(o, f, l, "attn_q_a.weight", d, D_Q_LATENT, 0);
        norm(o, f, l, "attn_q_a_norm.weight", D_Q_LATENT);
        matrix(o, f, l, "attn_q_b.weight", D_Q_LATENT, q, 0);
    } else {
        matrix(o, f, l, "attn_q.weight", d, q, 0);
    }
    matrix(o, f, l, "attn_kv_a_mqa.weight", d, D_LATENT + D_ROPE, 0);
    norm(o, f, l, "attn_kv_a_norm.weight", D_LATENT);
    if (f->joined || f->both)
        matrix(o, f, l, "attn_kv_b.weight", D_LATENT, N_HEAD * (D_NOPE + D_V), 0);
    if (!f->joined) {
        matrix(o, f, l, "attn_k_b.weight", D_NOPE, D_LATENT, N_HEAD);
        matrix(o, f, l, "attn_v_b.weight", D_LATENT, D_V, N_HEAD);
    }
    matrix(o, f, l, "attn_output.weight", N_HEAD * D_V, d, 0);
    if (l == 0)
        return;
    matrix(o, f, l, "ffn_gate_inp.weight", d, 8, 0);
    matrix(o, f, l, "ffn_gate_exps.weight", d, 32, 8);
    matrix(o, f, l, "ffn_up_exps.weight", d, 32, 8);
    matrix(o, f, l, "ffn_down_exps.weight", 32, d, 8);
    matrix(o, f, l, "ffn_gate_shexp.weight", d, 64, 0);
    matrix(o, f, l, "ffn_up_shexp.weight", d, 64, 0);
    matrix(o, f, l, "ffn_down_shexp.weight", 64, d, 0);
    if (f->router_bias)
        norm(o, f, l, "exp_probs_b.bias", 8);
}

static void adds_tensors(void *arg, struct mkgguf_out *o)
{
    const struct file *f = arg;
    unsigned d = o->m->d_model, last = o->m->n_layer - 1;
    for (unsigned l = 0; l <= last; l++)
        adds_layer(o, f, l);
    for (unsigned l = last + 1 - f->nextn; l <= last; l++) {
        matrix(o, f, l, "nextn.eh_proj.weight", 2 * d, d, 0);
        norm(o, f, l, "nextn.enorm.weight", d);
        norm(o, f, l, "nextn.hnorm.weight", d);
        norm(o, f, l, "nextn.shared_head_norm.weight", d);
    }
    if (f->tensor)
        mkgguf_matrix(o, f->tensor, 32, 33, 0);
}

static struct mkgguf of(struct file *f)
{
    struct mkgguf g = mkgguf_defaults("deepseek2");
    g.n_head = N_HEAD;
    g.n_head_kv = 1;
    g.n_layer = 3 + f->nextn;
    g.drop = drops;
    g.more_keys = adds_keys;
    g.more_tensors = adds_tensors;
    g.arg = f;
    return g;
}

/* Are the logits of two files the same to the last bit? */
static bool same_logits(const struct mkgguf *a, const struct mkgguf *b)
{
    size_t n;
    float *x = logits_of(a, &n), *y = logits_of(b, &n);
    bool same = memcmp(x, y, n * sizeof *x) == 0;
    free(x);
    free(y);
    return same;
}

/* Copy a made file with attn_kv_b to one with attn_k_b and attn_v_b of the same numbers: keys as
 * f32, bf16 or else f16, which is what the loader makes of them, values as they are. */
static void split_file(const char *from, const char *to)
{
    struct gguf *g;
    struct gguf_writer *w;
    assert_ok(gguf_open(from, &g, &err), err);
    assert_ok(gguf_writer_create(&w, &err), err);
    for (size_t i = 0; i < gguf_n_kv(g); i++)
        assert_ok(gguf_put_kv(w, gguf_kv_at(g, i), &err), err);
    const uint64_t k_dims[] = {D_NOPE, D_LATENT, N_HEAD}, v_dims[] = {D_LATENT, D_V, N_HEAD};
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        unsigned l;
        if (!strstr(t->name, "attn_kv_b")) {
            assert_ok(gguf_add_tensor(w, t->name, t->type, t->n_dims, t->dims, &err), err);
            continue;
        }
        assert_int_equal(sscanf(t->name, "blk.%u.", &l), 1);
        uint32_t k_type = t->type == QUANT_F32 || t->type == QUANT_BF16 ? t->type : QUANT_F16;
        assert_ok(gguf_add_tensor(w, mkgguf_blk(l, "attn_k_b.weight"), k_type, 3, k_dims, &err),
                  err);
        assert_ok(gguf_add_tensor(w, mkgguf_blk(l, "attn_v_b.weight"), t->type, 3, v_dims, &err),
                  err);
    }
    assert_ok(gguf_write_begin(w, to, &err), err);
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        if (!strstr(t->name, "attn_kv_b")) {
            assert_ok(gguf_write_tensor(w, t->data, t->size, &err), err);
            continue;
        }
        const struct quant_type *type = quant_type_of(t->type);
        bool keeps = t->type == QUANT_F32 || t->type == QUANT_BF16;
        const struct quant_type *k_type = keeps ? type : quant_type_of(QUANT_F16);
        enum { EACH = D_NOPE + D_V };
        static float rows[N_HEAD * EACH][D_LATENT], keys[N_HEAD][D_LATENT][D_NOPE];
        static uint8_t k_bytes[sizeof keys], v_bytes[sizeof rows];
        type->decode(t->data, &rows[0][0], (size_t)N_HEAD * EACH * D_LATENT);
        size_t row_bytes, n_v = 0;
        assert_true(quant_row_bytes(type, D_LATENT, &row_bytes));
        for (size_t h = 0; h < N_HEAD; h++) {
            for (size_t c = 0; c < D_LATENT; c++)
                for (size_t k = 0; k < D_NOPE; k++)
                    keys[h][c][k] = rows[h * EACH + k][c];
            memcpy(v_bytes + n_v, t->data + (h * EACH + D_NOPE) * row_bytes, D_V * row_bytes);
            n_v += D_V * row_bytes;
        }
        k_type->encode(&keys[0][0][0], k_bytes, (size_t)N_HEAD * D_LATENT * D_NOPE);
        assert_ok(gguf_write_tensor(w, k_bytes,
                                    (size_t)N_HEAD * D_LATENT * D_NOPE * k_type->block_bytes, &err),
                  err);
        assert_ok(gguf_write_tensor(w, v_bytes, n_v, &err), err);
    }
    assert_ok(gguf_write_end(w, &err), err);
    gguf_writer_destroy(w);
    gguf_close(g);
}

static void logits_of_file(const char *path, float out[5][300])
{
    static const int32_t tokens[] = {1, 265, 290, 263, 277};
    linnet_model *m;
    linnet_context *c;
    linnet_session *s;
    assert_ok(linnet_model_open(path, NULL, &m, &err), err);
    assert_ok(linnet_context_create(m, NULL, &c, &err), err);
    assert_ok(linnet_session_create(c, &s, &err), err);
    linnet_item item = {s, tokens, 5, LINNET_WANT_ALL};
    assert_ok(linnet_run(c, &item, 1, &err), err);
    for (size_t i = 0; i < 5; i++)
        memcpy(out[i], linnet_logits(c, 0, i), sizeof out[i]);
    linnet_context_free(c);
    linnet_model_close(m);
}

static void a_joined_file_gives_the_bits_of_the_split_one(void **state)
{
    (void)state;
    static const uint32_t types[] = {QUANT_F32, QUANT_F16, QUANT_BF16, QUANT_Q8_0, QUANT_Q4_0};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        static float a[5][300], b[5][300];
        struct file f = {.joined = true, .lora = i % 2};
        struct mkgguf g = of(&f);
        char from[64], to[80];
        g.type = types[i];
        mkgguf_temp(&g, from);
        snprintf(to, sizeof to, "%s.split", from);
        split_file(from, to);
        logits_of_file(from, a);
        logits_of_file(to, b);
        if (memcmp(a, b, sizeof a) != 0)
            fail_msg("%s: joined and split files differ", quant_type_of(types[i])->name);
        unlink(from);
        unlink(to);
    }
}

static void a_joined_matrix_beside_the_split_ones_is_not_used(void **state)
{
    (void)state;
    struct file split = {0}, both = {.both = true};
    struct mkgguf a = of(&split), b = of(&both);
    assert_true(same_logits(&a, &b));
}

static void every_missing_tensor_is_named(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        struct file f = {.lora = kind, .joined = kind};
        struct mkgguf whole = of(&f);
        struct gguf *file = mkgguf_open(&whole);
        for (size_t i = 0; i < gguf_n_tensors(file); i++) {
            const char *name = gguf_tensor_at(file, i)->name;
            struct file part = f;
            part.drop = name;
            /* without the whole shared expert there is none: what is left of it is then unknown */
            if (strcmp(name, "output.weight") == 0 || strstr(name, "ffn_up_shexp"))
                continue;
            struct mkgguf g = of(&part);
            const char *named = strstr(name, "attn_k_b") ? "attn_kv_b.weight" : name;
            refused(&g, LINNET_FORMAT, named);
        }
        gguf_close(file);
    }
}

static void a_selection_bias_is_in_all_mixtures_or_in_none(void **state)
{
    (void)state;
    struct file f = {.router_bias = true};
    struct mkgguf whole = of(&f);
    struct gguf *file = mkgguf_open(&whole);
    size_t n = 0;
    for (size_t i = 0; i < gguf_n_tensors(file); i++) {
        f.drop = gguf_tensor_at(file, i)->name;
        if (!strstr(f.drop, "exp_probs_b.bias"))
            continue;
        struct mkgguf g = of(&f);
        refused(&g, LINNET_FORMAT, "exp_probs_b.bias");
        n++;
    }
    assert_true(n > 1);
    gguf_close(file);
}

static void shapes_that_do_not_fit_are_named(void **state)
{
    (void)state;
    static const char *const names[] = {
        "blk.0.attn_q_a.weight",      "blk.0.attn_q_b.weight",       "blk.1.attn_kv_a_mqa.weight",
        "blk.2.attn_k_b.weight",      "blk.0.attn_v_b.weight",       "blk.1.attn_output.weight",
        "blk.1.ffn_gate_inp.weight",  "blk.0.attn_kv_a_norm.weight", "blk.1.exp_probs_b.bias",
        "blk.2.ffn_down_exps.weight",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct file f = {.lora = true, .router_bias = true, .tensor = names[i]};
        struct mkgguf g = of(&f);
        refused(&g, LINNET_FORMAT, names[i]);
    }
    struct file f = {.joined = true, .tensor = "blk.1.attn_kv_b.weight"};
    struct mkgguf g = of(&f);
    refused(&g, LINNET_FORMAT, "blk.1.attn_kv_b.weight");
}

static void a_missing_required_key_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        bool joined;
    } keys[] = {
        {"attention.head_count", false},
        {"attention.kv_lora_rank", false},
        {"rope.dimension_count", false},
        {"attention.layer_norm_rms_epsilon", false},
        {"attention.value_length_mla", false},
        {"attention.key_length", true},
        {"attention.value_length", true},
        {"expert_count", false},
        {"expert_used_count", false},
        {"feed_forward_length", false},
        {"context_length", false},
        {"block_count", false},
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char full[96];
        snprintf(full, sizeof full, "deepseek2.%s", keys[i].key);
        struct file f = {.joined = keys[i].joined, .drop = full};
        struct mkgguf g = of(&f);
        refused(&g, LINNET_FORMAT, keys[i].key);
    }
}

static void values_that_cannot_be_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        double value;
        const char *named;
    } keys[] = {
        {"attention.head_count", 0, "attention.head_count"},
        {"attention.head_count", 1 << 20, "attention.head_count"},
        {"attention.kv_lora_rank", 0, "attention.kv_lora_rank"},
        {"attention.kv_lora_rank", 2147483648.0, "attention.kv_lora_rank"},
        {"rope.dimension_count", 40, "rope.dimension_count"},
        {"rope.dimension_count", 7, "attention.key_length"},
        {"attention.key_length_mla", 4, "rope.dimension_count"},
        {"expert_used_count", 9, "expert_used_count"},
        {"expert_count", 0, "expert_count"},
        {"expert_gating_func", 5, "expert_gating_func"},
        {"nextn_predict_layers", 3, "nextn_predict_layers"},
        {"attention.q_lora_rank", 16, "attn_q_a.weight"},
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char full[96];
        snprintf(full, sizeof full, "deepseek2.%s", keys[i].key);
        struct file f = {.lora = true, .u32_key = full, .value = keys[i].value, .drop = full};
        struct mkgguf g = of(&f);
        refused(&g, LINNET_FORMAT, keys[i].named);
    }
    struct file f = {.f32_key = "deepseek2.attention.temperature_scale", .value = 0.5};
    struct mkgguf g = of(&f);
    refused(&g, LINNET_FORMAT, "attention.temperature_length");
}

/* Groups of 8 experts: 3 do not divide, 2 used experts need room, more groups used than there
 * are. */
static void groups_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    struct file f = {.u32_key = "deepseek2.expert_group_count", .value = 3};
    struct mkgguf g = of(&f);
    refused(&g, LINNET_FORMAT, "expert groups do not fit: 8 experts in 3 groups");
    f.value = 4;
    refused(&g, LINNET_FORMAT, "4 groups, 0 groups");
}

/* Leaving a key out gives the logits of writing it with `absent`, and not those of `other`. */
static void an_optional_key_left_out_means_its_documented_default(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        char type; /* u, f, b */
        double absent, other;
    } keys[] = {
        {"expert_weights_norm", 'b', 0, 1},  {"expert_weights_scale", 'f', 1, 3},
        {"expert_weights_scale", 'f', 0, 3}, {"expert_gating_func", 'u', 1, 2},
        {"rope.scaling.factor", 'f', 1, 4},  {"attention.temperature_scale", 'f', 0, 0},
        {"expert_group_count", 'u', 0, 0},   {"expert_group_count", 'u', 1, 1},
        {"nextn_predict_layers", 'u', 0, 0},
    };
    struct file plain = {0};
    struct mkgguf a = of(&plain);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char full[96];
        snprintf(full, sizeof full, "deepseek2.%s", keys[i].key);
        struct file f = {.value = keys[i].absent};
        if (keys[i].type == 'u')
            f.u32_key = full;
        else if (keys[i].type == 'f')
            f.f32_key = full;
        else
            f.bool_key = full;
        struct mkgguf b = of(&f);
        if (!same_logits(&a, &b))
            fail_msg("%s: leaving it out is not %g", full, keys[i].absent);
        f.value = keys[i].other;
        if (keys[i].other != keys[i].absent && same_logits(&a, &b))
            fail_msg("%s: %g gives the same logits as leaving it out", full, keys[i].other);
    }
}

static void a_nextn_block_changes_nothing_unless_it_is_asked_for(void **state)
{
    (void)state;
    struct file trunk = {0}, with = {.nextn = 1};
    struct mkgguf a = of(&trunk), b = of(&with);
    assert_true(same_logits(&a, &b));
    made_with_draft = true;
    assert_true(same_logits(&a, &b));
    made_with_draft = false;
}

/* Logits of the draft head after five tokens. */
static void draft_logits_of(const struct mkgguf *g, float out[300])
{
    static const int32_t tokens[] = {1, 265, 290, 263, 277};
    linnet_model *m;
    linnet_context *c;
    linnet_session *s;
    assert_ok(open_made(g, &m), err);
    assert_ok(linnet_context_create(m, NULL, &c, &err), err);
    assert_ok(linnet_session_create(c, &s, &err), err);
    linnet_item item = {s, tokens, 5, LINNET_WANT_HIDDEN};
    assert_ok(linnet_run(c, &item, 1, &err), err);
    linnet_draft_item d = {s, 0, tokens, linnet_hidden(c, 0, 0), 5, LINNET_WANT_LAST};
    assert_ok(linnet_draft_run(c, &d, 1, &err), err);
    memcpy(out, linnet_draft_logits(c, 0, 4), 300 * sizeof *out);
    linnet_context_free(c);
    linnet_model_close(m);
}

static void the_first_of_several_nextn_blocks_is_run(void **state)
{
    (void)state;
    struct file one = {.nextn = 1}, two = {.nextn = 2};
    struct mkgguf a = of(&one), b = of(&two);
    linnet_model *m;
    linnet_model_info info;
    float x[300], y[300];
    assert_true(same_logits(&a, &b));
    made_with_draft = true;
    assert_ok(open_made(&b, &m), err);
    linnet_model_get_info(m, &info);
    assert_int_equal(info.n_draft, 2);
    assert_true(info.has_draft);
    linnet_model_close(m);
    draft_logits_of(&a, x);
    draft_logits_of(&b, y);
    assert_memory_equal(x, y, sizeof x);
    two.drop = "blk.4.nextn.eh_proj.weight"; /* the second is not run, but must be one */
    refused(&b, LINNET_FORMAT, two.drop);
    two.drop = "blk.3.nextn.eh_proj.weight";
    refused(&b, LINNET_FORMAT, two.drop);
    made_with_draft = false;
}

static void every_missing_tensor_of_a_nextn_block_is_named(void **state)
{
    (void)state;
    struct file f = {.nextn = 1};
    struct mkgguf whole = of(&f);
    struct gguf *file = mkgguf_open(&whole);
    made_with_draft = true;
    for (size_t i = 0; i < gguf_n_tensors(file); i++) {
        const char *name = gguf_tensor_at(file, i)->name;
        struct file part = f;
        part.drop = name;
        bool optional = strstr(name, "nextn.shared_head_norm") || strstr(name, "nextn.eh_proj") ||
                        strstr(name, "shexp");
        if (strncmp(name, "blk.3.", 6) != 0 || optional)
            continue;
        struct mkgguf g = of(&part);
        refused(&g, LINNET_FORMAT, strstr(name, "attn_k_b") ? "blk.3.attn_kv_b.weight" : name);
    }
    made_with_draft = false;
    gguf_close(file);
}

static void files_of_the_trunk_or_the_nextn_block_alone_are_known(void **state)
{
    (void)state;
    linnet_model *m;
    linnet_model_info info;
    struct file whole = {.nextn = 1}, trunk = {.nextn = 1, .only_trunk = true};
    struct file head = {.nextn = 1, .only_nextn = true};
    struct mkgguf a = of(&whole), b = of(&trunk), c = of(&head);
    assert_true(same_logits(&a, &b));
    made_with_draft = true;
    assert_ok(open_made(&b, &m), err);
    linnet_model_get_info(m, &info);
    assert_int_equal(info.n_draft, 1);
    assert_false(info.has_draft);
    linnet_model_close(m);
    refused(&c, LINNET_UNSUPPORTED, "holds the NextN block of a deepseek2 model without the model");
    made_with_draft = false;
    refused(&c, LINNET_UNSUPPORTED, "holds the NextN block of a deepseek2 model without the model");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_joined_file_gives_the_bits_of_the_split_one),
        cmocka_unit_test(a_joined_matrix_beside_the_split_ones_is_not_used),
        cmocka_unit_test(every_missing_tensor_is_named),
        cmocka_unit_test(a_selection_bias_is_in_all_mixtures_or_in_none),
        cmocka_unit_test(shapes_that_do_not_fit_are_named),
        cmocka_unit_test(a_missing_required_key_is_named),
        cmocka_unit_test(values_that_cannot_be_are_named),
        cmocka_unit_test(groups_that_do_not_fit_are_refused),
        cmocka_unit_test(an_optional_key_left_out_means_its_documented_default),
        cmocka_unit_test(a_nextn_block_changes_nothing_unless_it_is_asked_for),
        cmocka_unit_test(the_first_of_several_nextn_blocks_is_run),
        cmocka_unit_test(every_missing_tensor_of_a_nextn_block_is_named),
        cmocka_unit_test(files_of_the_trunk_or_the_nextn_block_alone_are_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
