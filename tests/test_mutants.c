/*
 * Every fault in a file of every family: the shared golden files with one key or tensor dropped, of
 * another type, shape or value. Such a file is refused by an error that names what is wrong and the
 * family, before anything runs; or what was changed is legal, and it runs to finite numbers.
 *
 * A family's files are taken in turn, and what an earlier one of them had is not changed again.
 */
#include "golden.h"
#include "mutant.h"

enum { N_TOKENS = 5, MAX_TESTS = 256 };

static linnet_error err;

/* Architectures with another family's files: the same maths under another name. */
static const struct {
    const char *arch, *of;
} aliases[] = {
    {"mistral", "llama"},
    {"qwen2vl", "qwen2"},
    {"qwen3vl", "qwen3"},
    {"qwen3vlmoe", "qwen3moe"},
};

/* Tensors that a file may lack, by the end of their names: without them another path is taken, or
 * none. */
static const char *const optional[] = {
    ".bias",
    ".scale",
    "input_scale",   /* F0.2, B3.17 */
    "output.weight", /* tied */
    "rope_freqs.weight",
    "rope_factors_short.weight",
    "rope_factors_long.weight",
    "layer_output_scale.weight",
    "nextn.eh_proj.weight",
    "nextn.embed_tokens.weight",
    "nextn.shared_head_head.weight",
    "nextn.shared_head_norm.weight",
    "layer_output_norm.weight",
    "ffn_routed_norm.weight",
    "ffn_latent_norm.weight",
};

/* And those of some families. */
static const struct {
    const char *arch, *name;
} optional_in[] = {
    {"falcon-h1", "ssm_norm.weight"},  /* F19.4 */
    {"kimi-k3", "attn_gate.weight"},   /* A31 */
    {"glm4moe", "attn_q_norm.weight"}, /* B45.4 */
    {"glm4moe", "attn_k_norm.weight"},
    {"stablelm", "attn_q_norm.weight"}, /* F5.3 */
    {"stablelm", "attn_k_norm.weight"},
    {"rwkv7", "blk.0.time_mix_v0.weight"}, /* layer 0 has no values to share */
    {"rwkv7", "blk.0.time_mix_v1.weight"},
    {"rwkv7", "blk.0.time_mix_v2.weight"},
    {"gemma3n", "blk.24.attn_k.weight"}, /* layers that read another's keys and values */
    {"gemma3n", "blk.24.attn_v.weight"},
    {"gemma3n", "blk.24.attn_k_norm.weight"},
    {"gemma4", "blk.5.attn_v.weight"}, /* values are the keys: A8.9 */
};

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

static bool is_optional(const char *arch, const char *name)
{
    for (size_t i = 0; i < sizeof optional / sizeof *optional; i++)
        if (ends_with(name, optional[i]))
            return true;
    for (size_t i = 0; i < sizeof optional_in / sizeof *optional_in; i++)
        if (strcmp(arch, optional_in[i].arch) == 0 && ends_with(name, optional_in[i].name))
            return true;
    return false;
}

/* ---- running ---- */

/* Logits [N_TOKENS][n_vocab] in new memory; NULL and a status when the copy is refused. */
static float *run(const struct mutant *m, size_t *n, linnet_status *status)
{
    static const int32_t tokens[N_TOKENS] = {1, 7, 3, 11, 2};
    linnet_model *model;
    linnet_context *c;
    linnet_session *s;
    linnet_model_info info;
    linnet_context_options co;
    *status = mutant_open(m, true, &model, &err);
    if (*status != LINNET_OK)
        return NULL;
    linnet_context_defaults(&co);
    co.n_ctx = 16;
    assert_ok(linnet_context_create(model, &co, &c, &err), err);
    assert_ok(linnet_session_create(c, &s, &err), err);
    linnet_item item = {s, tokens, N_TOKENS, LINNET_WANT_ALL | LINNET_WANT_HIDDEN};
    assert_ok(linnet_run(c, &item, 1, &err), err);
    linnet_model_get_info(model, &info);
    *n = N_TOKENS * info.n_vocab * (info.has_draft ? 2u : 1u);
    float *out = malloc(*n * sizeof *out);
    assert_non_null(out);
    memcpy(out, linnet_logits(c, 0, 0), N_TOKENS * info.n_vocab * sizeof *out);
    if (info.has_draft) {
        linnet_draft_item d = {s, 0, tokens, linnet_hidden(c, 0, 0), N_TOKENS, LINNET_WANT_ALL};
        assert_ok(linnet_draft_run(c, &d, 1, &err), err);
        memcpy(out + N_TOKENS * info.n_vocab, linnet_draft_logits(c, 0, 0),
               N_TOKENS * info.n_vocab * sizeof *out);
    }
    linnet_context_free(c);
    linnet_model_close(model);
    return out;
}

/* What a change may lead to. */
enum outcome {
    REFUSED,          /* nothing else */
    REFUSED_OR_SAME,  /* or it was not used: the same bits */
    REFUSED_OR_FINITE /* or it is legal: finite numbers */
};

struct original {
    const struct gguf *g;
    const char *arch, *name;
    float *logits;
    size_t n;
};

/* Does the error say what is wrong in a file of which family? The text names `part`, unless
 * another key or tensor may be at fault as well: that contradicts it, or that is missed where the
 * file is now taken for another layout. */
static bool names_it(const char *arch, const char *part, bool alone)
{
    bool other =
        strstr(err.text, "tensor '") || strstr(err.text, "key '") || strstr(err.text, "keys '");
    bool kind = err.status == LINNET_FORMAT || err.status == LINNET_UNSUPPORTED ||
                err.status == LINNET_LIMIT || err.status == LINNET_MISMATCH;
    return kind && strstr(err.text, arch) && (strstr(err.text, part) || (other && !alone));
}

static void check(const struct original *o, const struct mutant *m, enum outcome want,
                  const char *what, const char *part)
{
    size_t n = 0;
    linnet_status status;
    float *got = run(m, &n, &status);
    if (!got) {
        bool alone = want == REFUSED_OR_SAME && m->changes[0].tensor;
        if (!names_it(o->arch, part, alone))
            fail_msg("%s: %s %s: the error does not name it: %s", o->name, what, part, err.text);
        return;
    }
    bool finite = true;
    for (size_t i = 0; i < n; i++)
        finite &= isfinite(got[i]) != 0;
    if (want == REFUSED)
        fail_msg("%s: %s %s was not refused", o->name, what, part);
    if (want == REFUSED_OR_SAME && (n != o->n || memcmp(got, o->logits, n * sizeof *got) != 0))
        fail_msg("%s: %s %s was not refused and changes the logits", o->name, what, part);
    if (!finite)
        fail_msg("%s: %s %s gives NaN or infinity", o->name, what, part);
    free(got);
}

/* ---- keys ---- */

static void set_all(struct mutant *m, const struct gguf_kv *kv, enum gguf_type type, double v)
{
    m->n = 0;
    mutant_set(m, kv->key, type, v);
    m->changes[0].array = kv->type == GGUF_ARRAY;
    m->changes[0].n = (size_t)kv->count;
}

static void change_integer(const struct original *o, struct mutant *m, const struct gguf_kv *kv)
{
    static const struct {
        const char *what;
        double v;
        enum outcome want;
    } values[] = {{"0 as", 0, REFUSED_OR_FINITE},
                  {"2^31 as", 2147483648.0, REFUSED_OR_SAME},
                  {"2^32-1 as", 4294967295.0, REFUSED_OR_SAME}};
    const char *part = strchr(kv->key, '.') + 1;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        set_all(m, kv, GGUF_U32, values[i].v);
        check(o, m, values[i].want, values[i].what, part);
    }
    set_all(m, kv, GGUF_U32, (double)gguf_int_at(kv, 0) + 1);
    check(o, m, REFUSED_OR_FINITE, "one more as", part);
    set_all(m, kv, GGUF_I32, -1);
    check(o, m, REFUSED_OR_SAME, "-1 as", part);
}

static void change_float(const struct original *o, struct mutant *m, const struct gguf_kv *kv)
{
    static const double finite[] = {0, -1, -1e30, 1e38, 1e-30};
    static const double never[] = {NAN, INFINITY};
    const char *part = strchr(kv->key, '.') + 1;
    for (size_t i = 0; i < sizeof finite / sizeof *finite; i++) {
        set_all(m, kv, GGUF_F32, finite[i]);
        check(o, m, REFUSED_OR_FINITE, "an absurd", part);
    }
    for (size_t i = 0; i < sizeof never / sizeof *never; i++) {
        set_all(m, kv, GGUF_F32, never[i]);
        check(o, m, REFUSED_OR_SAME, "no number as", part);
    }
}

static void change_key(const struct original *o, const struct gguf_kv *kv)
{
    struct mutant m = {.from = o->g};
    const char *part = strchr(kv->key, '.') + 1;
    mutant_drop_key(&m, kv->key);
    check(o, &m, REFUSED_OR_FINITE, "without", part);
    if (kv->elem == GGUF_F32 || kv->elem == GGUF_F64) {
        change_float(o, &m, kv);
    } else if (kv->elem == GGUF_BOOL) {
        for (int v = 0; v < 2; v++) {
            set_all(&m, kv, GGUF_BOOL, v);
            check(o, &m, REFUSED_OR_FINITE, "true or false as", part);
        }
    } else if (kv->elem != GGUF_STRING) {
        change_integer(o, &m, kv);
    }
    m.n = 0;
    mutant_set_text(&m, kv->key, "unheard of");
    check(o, &m, REFUSED_OR_SAME, "a text as", part);
    if (kv->type == GGUF_ARRAY && kv->elem != GGUF_STRING) {
        set_all(&m, kv, kv->elem, (double)gguf_int_at(kv, 0));
        m.changes[0].n--;
        check(o, &m, REFUSED_OR_SAME, "a short array as", part);
    }
}

/* ---- tensors ---- */

/* Dimensions in another order where that is another shape, else one element more. */
static void other_shape(const struct gguf_tensor *t, uint64_t dims[4])
{
    memcpy(dims, t->dims, 4 * sizeof *dims);
    unsigned a = 0, b = t->n_dims - 1;
    while (a < b && dims[a] == 1)
        a++;
    while (b > a && dims[b] == 1)
        b--;
    if (a != b && dims[a] != dims[b]) {
        dims[a] = t->dims[b];
        dims[b] = t->dims[a];
    } else {
        dims[b]++;
    }
}

static void change_tensor(const struct original *o, const struct gguf_tensor *t)
{
    struct mutant m = {.from = o->g};
    uint64_t dims[4];
    mutant_drop_tensor(&m, t->name);
    check(o, &m, is_optional(o->arch, t->name) ? REFUSED_OR_FINITE : REFUSED, "without", t->name);
    m.n = 0;
    other_shape(t, dims);
    mutant_tensor(&m, t->name, QUANT_F32, t->n_dims, dims);
    check(o, &m, REFUSED_OR_SAME, "another shape of", t->name);
    m.n = 0;
    mutant_tensor(&m, t->name, QUANT_I32, t->n_dims, t->dims);
    check(o, &m, REFUSED_OR_SAME, "integers in", t->name);
}

/* ---- families ---- */

/* The first and the last tensor of each name that earlier files did not have. */
static void change_tensors(const struct original *o, struct names *seen)
{
    struct names *mine = names_new(), *last = names_new();
    size_t n = gguf_n_tensors(o->g);
    bool *chosen = calloc(n, sizeof *chosen);
    assert_non_null(chosen);
    for (size_t i = 0; i < n; i++) {
        const char *name = gguf_tensor_at(o->g, i)->name;
        chosen[i] = names_add(seen, name) && names_add(mine, name);
    }
    for (size_t i = n; i-- > 0;) {
        const char *name = gguf_tensor_at(o->g, i)->name;
        chosen[i] |= names_add(last, name) && names_have(mine, name);
    }
    for (size_t i = 0; i < n; i++)
        if (chosen[i])
            change_tensor(o, gguf_tensor_at(o->g, i));
    free(chosen);
    names_free(mine);
    names_free(last);
}

static void change_case(const char *arch, const char *name, struct names *seen)
{
    char file[192];
    struct gguf *g;
    linnet_status status;
    snprintf(file, sizeof file, "golden/%s.gguf", name);
    assert_ok(gguf_open(test_shared(file), &g, &err), err);
    struct original o = {.g = g, .arch = arch, .name = name};
    struct mutant whole = {.from = g};
    o.logits = run(&whole, &o.n, &status);
    if (!o.logits)
        fail_msg("%s: %s", name, err.text);
    size_t len = strlen(arch);
    for (size_t i = 0; i < gguf_n_kv(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        if (strncmp(kv->key, arch, len) == 0 && kv->key[len] == '.' && names_add(seen, kv->key))
            change_key(&o, kv);
    }
    change_tensors(&o, seen);
    free(o.logits);
    gguf_close(g);
}

static void a_fault_is_refused_by_name_or_harmless(void **state)
{
    const char *arch = *state;
    struct names *seen = names_new();
    size_t n_files = 0;
    for (size_t i = 0; i < golden_n_cases(); i++)
        if (strcmp(golden_case_at(i)->arch, arch) == 0) {
            change_case(arch, golden_case_at(i)->name, seen);
            n_files++;
        }
    names_free(seen);
    if (n_files == 0)
        fail_msg("%s: there is no file of this family", arch);
}

static void a_model_that_sees_ahead_is_refused(void **state)
{
    (void)state;
    if (golden_n_cases() == 0)
        test_skip_shared("test_mutants");
    for (size_t i = 0; i < golden_n_cases(); i++) {
        char file[192], key[96];
        struct gguf *g;
        linnet_model *model;
        snprintf(file, sizeof file, "golden/%s.gguf", golden_case_at(i)->name);
        snprintf(key, sizeof key, "%s.attention.causal", golden_case_at(i)->arch);
        assert_ok(gguf_open(test_shared(file), &g, &err), err);
        struct mutant m = {.from = g};
        mutant_set(&m, key, GGUF_BOOL, 0);
        assert_int_equal(mutant_open(&m, false, &model, &err), LINNET_UNSUPPORTED);
        assert_non_null(strstr(err.text, key));
        gguf_close(g);
    }
}

static void another_name_of_a_family_means_the_same(void **state)
{
    (void)state;
    if (golden_n_cases() == 0)
        test_skip_shared("test_mutants");
    for (size_t a = 0; a < sizeof aliases / sizeof *aliases; a++)
        for (size_t i = 0; i < golden_n_cases(); i++) {
            if (strcmp(golden_case_at(i)->arch, aliases[a].of) != 0)
                continue;
            char file[192];
            struct gguf *g;
            size_t n, n_alias;
            linnet_status status;
            snprintf(file, sizeof file, "golden/%s.gguf", golden_case_at(i)->name);
            assert_ok(gguf_open(test_shared(file), &g, &err), err);
            struct mutant own = {.from = g}, alias = {.from = g, .arch = aliases[a].arch};
            float *x = run(&own, &n, &status), *y = run(&alias, &n_alias, &status);
            if (!y)
                fail_msg("%s as %s: %s", golden_case_at(i)->name, aliases[a].arch, err.text);
            assert_int_equal(n, n_alias);
            assert_memory_equal(x, y, n * sizeof *x);
            free(x);
            free(y);
            gguf_close(g);
        }
}

int main(void)
{
    static struct CMUnitTest tests[MAX_TESTS];
    const char *only = getenv("ARCH");
    size_t n = 0;
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(another_name_of_a_family_means_the_same);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(a_model_that_sees_ahead_is_refused);
    for (size_t i = 0; i < family_count() && golden_n_cases(); i++) {
        const char *arch = family_at(i)->arch;
        bool alias = false;
        for (size_t a = 0; a < sizeof aliases / sizeof *aliases; a++)
            alias |= strcmp(aliases[a].arch, arch) == 0;
        if (!alias && (!only || strcmp(only, arch) == 0))
            tests[n++] = (struct CMUnitTest){arch, a_fault_is_refused_by_name_or_harmless, NULL,
                                             NULL, (void *)arch};
    }
    return _cmocka_run_group_tests("mutants", tests, n, NULL, NULL);
}
