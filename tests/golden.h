/*
 * The golden cases of ../shared/golden (see its README): their tokens, and the figures to compare
 * with.
 */
#ifndef LINNET_TEST_GOLDEN_H
#define LINNET_TEST_GOLDEN_H

#include "test.h"

#include "model/family.h"

#include <jansson.h>
#include <math.h>

struct golden {
    char name[128];
    json_t *meta;
    int32_t *tokens;
    size_t n_tokens, n_vocab;
    float *want;
    double tolerance;
    char path[4096];
};

static inline float *golden_floats(const char *path, size_t n)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return NULL;
    float *v = malloc(n * sizeof *v);
    size_t got = fread(v, sizeof *v, n, f);
    fclose(f);
    if (got != n) {
        free(v);
        return NULL;
    }
    return v;
}

/* The reference to compare with: exact GELU where there is one, unquantised activations for
 * quantised weights. */
static inline float *golden_wanted(const char *name, size_t n)
{
    static const char *const kinds[] = {"logits_exact", "ideal.logits", "logits"};
    for (size_t i = 0; i < 3; i++) {
        char file[256];
        snprintf(file, sizeof file, "golden/%s.%s.f32", name, kinds[i]);
        const char *path = test_shared(file);
        if (path)
            return golden_floats(path, n);
    }
    return NULL;
}

static inline void golden_open(struct golden *g, const char *name)
{
    char file[256];
    memset(g, 0, sizeof *g);
    snprintf(g->name, sizeof g->name, "%s", name);
    snprintf(file, sizeof file, "golden/%s.json", name);
    json_error_t je;
    g->meta = json_load_file(test_shared(file), 0, &je);
    assert_non_null(g->meta);
    json_t *tokens = json_object_get(g->meta, "tokens");
    g->n_tokens = json_array_size(tokens);
    g->n_vocab = (size_t)json_integer_value(json_object_get(g->meta, "n_vocab"));
    g->tokens = malloc(g->n_tokens * sizeof *g->tokens);
    for (size_t i = 0; i < g->n_tokens; i++)
        g->tokens[i] = (int32_t)json_integer_value(json_array_get(tokens, i));
    json_t *tol = json_object_get(g->meta, "tolerance_nmse");
    json_t *quantised = json_object_get(tol, "vs_ideal_quantised_activations");
    if (json_is_object(tol))
        g->tolerance = json_number_value(quantised ? quantised : json_object_get(tol, "vs_logits"));
    else
        g->tolerance = json_number_value(tol);
    json_t *exact = json_is_object(tol) ? json_object_get(tol, "vs_exact_gelu_logits") : NULL;
    if (exact)
        g->tolerance = json_number_value(exact);
    g->want = golden_wanted(name, g->n_tokens * g->n_vocab);
    assert_non_null(g->want);
    snprintf(file, sizeof file, "golden/%s.gguf", name);
    snprintf(g->path, sizeof g->path, "%s", test_shared(file));
}

static inline void golden_close(struct golden *g)
{
    json_decref(g->meta);
    free(g->tokens);
    free(g->want);
}

static inline double nmse(const float *a, const float *b, size_t n)
{
    double num = 0, den = 0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)a[i] - (double)b[i];
        num += d * d;
        den += (double)b[i] * (double)b[i];
    }
    return num / den;
}

/* A test for each case of INDEX.tsv that this build knows; `drafts`: for those with a draft head
 * alone. $GOLDEN names the one case to run. */
static inline size_t golden_list(struct CMUnitTest *tests, size_t cap, bool drafts,
                                 void (*run)(void **state))
{
    const char *path = test_shared("golden/INDEX.tsv");
    FILE *f = path ? fopen(path, "r") : NULL;
    char line[4096];
    size_t n = 0;
    const char *only = getenv("GOLDEN");
    while (f && fgets(line, sizeof line, f)) {
        char name[128], arch[128];
        if (sscanf(line, "%127s %127s", name, arch) != 2 || !family_of(arch) || n == cap)
            continue;
        if (only && strcmp(only, name) != 0)
            continue;
        if (drafts && (!strstr(name, "-mtp") || !family_of(arch)->draft))
            continue;
        char *copy = strdup(name);
        tests[n++] = (struct CMUnitTest){copy, run, NULL, NULL, copy};
    }
    if (f)
        fclose(f);
    return n;
}

/* The cases that are about families, not weight formats, in the order of INDEX.tsv. */
struct golden_case {
    char name[128], arch[64];
};

enum { GOLDEN_CASES = 256 };

static inline const struct golden_case *golden_case_at(size_t i)
{
    static struct golden_case cases[GOLDEN_CASES];
    static size_t n;
    const char *path = n == 0 ? test_shared("golden/INDEX.tsv") : NULL;
    FILE *f = path ? fopen(path, "r") : NULL;
    char line[4096];
    while (f && fgets(line, sizeof line, f)) {
        struct golden_case *c = &cases[n];
        if (sscanf(line, "%127s %63s", c->name, c->arch) == 2 && family_of(c->arch) &&
            strncmp(c->name, "quant-", 6) != 0)
            assert_true(++n < GOLDEN_CASES);
    }
    if (f)
        fclose(f);
    return i < n ? &cases[i] : NULL;
}

static inline size_t golden_n_cases(void)
{
    size_t n = 0;
    while (golden_case_at(n))
        n++;
    return n;
}

#endif
