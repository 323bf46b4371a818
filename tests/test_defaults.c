/*
 * What a missing key means: docs/keys.md against the shared golden files. Each key of each family
 * is left out in turn: the file is refused by the key's name where the page says so, else the
 * logits are, to the last bit, those of the file with the page's value written out. A value that
 * the page calls used changes the logits when it is another one.
 */
#include "golden.h"
#include "mutant.h"

enum { N_TOKENS = 12, MAX_ROWS = 256 };

static linnet_error err;

/* A row of the page. */
struct row {
    char key[64], families[400], without[96];
    bool matters; /* some file shows it */
};
static struct row page[MAX_ROWS];
static size_t n_rows;

/* ---- the page ---- */

/* Cell `i` of a table's line, without blanks and backticks around it; false when there is none. */
static bool cell(const char *line, int i, char *out, size_t size)
{
    for (; i >= 0 && line; i--)
        line = (line = strchr(line, '|')) ? line + 1 : NULL;
    if (!line)
        return false;
    size_t n = strcspn(line, "|");
    while (n && (*line == ' ' || *line == '`'))
        line++, n--;
    while (n && (line[n - 1] == ' ' || line[n - 1] == '`'))
        n--;
    snprintf(out, size, "%.*s", (int)n, line);
    return true;
}

static void read_page(void)
{
    FILE *f = fopen("docs/keys.md", "r");
    char line[1024];
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        struct row *r = &page[n_rows];
        if (strncmp(line, "| `", 3) == 0 && cell(line, 0, r->key, sizeof r->key) &&
            cell(line, 1, r->families, sizeof r->families) &&
            cell(line, 2, r->without, sizeof r->without) && !strchr(r->key, ','))
            assert_true(++n_rows < MAX_ROWS);
    }
    fclose(f);
}

/* Is `arch` one of the families, which are separated by ", "? */
static bool lists(const char *families, const char *arch)
{
    size_t n = strlen(arch);
    for (const char *s = families; (s = strstr(s, arch)) != NULL; s += n) {
        bool begins = s == families || s[-1] == ' ' || s[-1] == '`';
        if (begins && (s[n] == '\0' || s[n] == ',' || s[n] == '`'))
            return true;
    }
    return false;
}

/* The row that names the family, else the one for all others. */
static struct row *row_of(const char *key, const char *arch)
{
    struct row *all = NULL;
    for (size_t i = 0; i < n_rows; i++) {
        if (strcmp(page[i].key, key) != 0)
            continue;
        if (lists(page[i].families, arch))
            return &page[i];
        if (strcmp(page[i].families, "all") == 0 || strcmp(page[i].families, "all others") == 0)
            all = &page[i];
    }
    return all;
}

/* ---- running ---- */

/* Logits in new memory; NULL when the copy is refused. */
static float *run(const struct mutant *m, size_t *n)
{
    int32_t tokens[N_TOKENS];
    linnet_model *model;
    linnet_context *c;
    linnet_session *s;
    linnet_model_info info;
    linnet_context_options co;
    for (int i = 0; i < N_TOKENS; i++)
        tokens[i] = (i * 37 + 5) % 200;
    if (mutant_open(m, false, &model, &err) != LINNET_OK)
        return NULL;
    linnet_context_defaults(&co);
    co.n_ctx = 0;
    assert_ok(linnet_context_create(model, &co, &c, &err), err);
    assert_ok(linnet_session_create(c, &s, &err), err);
    linnet_item item = {s, tokens, N_TOKENS, LINNET_WANT_ALL};
    assert_ok(linnet_run(c, &item, 1, &err), err);
    linnet_model_get_info(model, &info);
    *n = N_TOKENS * info.n_vocab;
    float *out = malloc(*n * sizeof *out);
    assert_non_null(out);
    memcpy(out, linnet_logits(c, 0, 0), *n * sizeof *out);
    linnet_context_free(c);
    linnet_model_close(model);
    return out;
}

/* Do two copies have the same logits? Both must open. */
static bool same(const struct mutant *a, const struct mutant *b)
{
    size_t n, m;
    float *x = run(a, &n), *y = run(b, &m);
    if (!x || !y)
        fail_msg("%s", err.text);
    bool equal = n == m && memcmp(x, y, n * sizeof *x) == 0;
    free(x);
    free(y);
    return equal;
}

/* ---- values ---- */

static const char *full_key(const char *arch, const char *key)
{
    static char full[4][160];
    static unsigned next;
    char *s = full[next++ % 4];
    snprintf(s, sizeof full[0], "%s.%s", arch, key);
    return s;
}

/* A number of the file: of a key, the largest of an array. */
static double number_of(const struct gguf *g, const char *arch, const char *key)
{
    const struct gguf_kv *kv = gguf_find(g, full_key(arch, key));
    double v = 0;
    if (!kv)
        fail_msg("%s has no key %s", arch, key);
    for (uint64_t i = 0; i < kv->count; i++)
        v = fmax(v, gguf_float_at(kv, (size_t)i));
    return v;
}

/* Write the page's value: a number, true or false, a text, a key, or a quotient of two. */
static void write_value(struct mutant *m, const char *arch, const char *key, const char *value,
                        enum gguf_type type)
{
    char a[64], b[64], *end;
    double v = strtod(value, &end);
    if (sscanf(value, "%63[a-z_.]` / `%63[a-z_.]", a, b) == 2)
        mutant_set(m, key, GGUF_U32, number_of(m->from, arch, a) / number_of(m->from, arch, b));
    else if (end != value)
        mutant_set(m, key, type, v);
    else if (strcmp(value, "true") == 0 || strcmp(value, "false") == 0)
        mutant_set(m, key, GGUF_BOOL, value[0] == 't');
    else if (gguf_find(m->from, full_key(arch, value)))
        mutant_set(m, key, type, number_of(m->from, arch, value));
    else
        mutant_set_text(m, key, value);
}

static enum gguf_type type_of(const struct gguf_kv *kv, const char *value)
{
    bool truth = kv && kv->elem == GGUF_BOOL && !(value[0] >= '0' && value[0] <= '9');
    if (truth || (kv && (kv->elem == GGUF_F32 || kv->elem == GGUF_STRING)))
        return kv->elem;
    if (strcmp(value, "true") == 0 || strcmp(value, "false") == 0)
        return GGUF_BOOL;
    return strchr(value, '.') && value[0] <= '9' ? GGUF_F32 : GGUF_U32;
}

/* Does the file's value, or any other, change the logits of the file without the key, or is it
 * refused? */
static bool matters(const struct mutant *without, const struct gguf_kv *kv, const char *key,
                    enum gguf_type type)
{
    static const double other[] = {0.25, 1, 2, 3, 4, 8, 1000, 0};
    struct mutant own = {.from = without->from};
    if (kv && !same(without, &own))
        return true;
    for (size_t i = 0; i < sizeof other / sizeof *other && type != GGUF_STRING; i++) {
        struct mutant m = {.from = without->from};
        size_t n, k;
        mutant_set(&m, key, type, type == GGUF_BOOL ? (double)(i % 2) : other[i]);
        float *y = run(&m, &k), *x = y ? run(without, &n) : NULL;
        bool differ = !y || (x && memcmp(x, y, n * sizeof *x) != 0);
        free(x);
        free(y);
        if (differ)
            return true;
    }
    return false;
}

/* ---- rules ---- */

/* Are both refused, for the same reason? */
static bool same_refusal(const struct mutant *a, const struct mutant *b)
{
    size_t n;
    linnet_error first;
    if (run(a, &n))
        return false;
    first = err;
    return !run(b, &n) && strcmp(first.text, err.text) == 0;
}

static void check_refused(const char *name, const char *arch, const char *key)
{
    if (!strstr(err.text, key) || !strstr(err.text, arch))
        fail_msg("%s without %s: the error does not name it: %s", name, key, err.text);
}

static bool is(const struct row *r, const char *s)
{
    return strcmp(r->without, s) == 0;
}

/* One key of one file, which may not have it. */
static void check_key(const struct gguf *g, const char *name, const char *arch, const char *key,
                      struct row *r)
{
    const char *full = full_key(arch, key);
    const struct gguf_kv *kv = gguf_find(g, full);
    const enum gguf_type type = type_of(kv, r->without);
    struct mutant own = {.from = g}, without = {.from = g}, with = {.from = g};
    size_t n;
    mutant_drop_key(&without, full);
    float *x = run(&without, &n);
    const bool refused = x == NULL;
    free(x);
    if (refused && (is(r, "refused") || is(r, "as the tensors"))) {
        check_refused(name, arch, key);
        r->matters = true;
    } else if (is(r, "refused")) {
        fail_msg("%s without %s is not refused", name, key);
    } else if (is(r, "as the tensors") || is(r, "by rule")) {
        if (is(r, "as the tensors") && !same(&without, &own))
            fail_msg("%s: without %s the tensors do not decide", name, key);
        r->matters = true;
    } else if (is(r, "not used")) {
        if (refused || (kv && !same(&without, &own)))
            fail_msg("%s: %s is used", name, key);
        r->matters = true;
    } else {
        write_value(&with, arch, full, r->without, type);
        if (refused ? !same_refusal(&without, &with) : !same(&without, &with))
            fail_msg("%s: leaving out %s is not %s: %s", name, key, r->without, err.text);
        r->matters = r->matters || refused || matters(&without, kv, full, type);
    }
}

static void check_file(const char *name, const char *arch, struct names *seen)
{
    char file[192];
    struct gguf *g;
    size_t len = strlen(arch);
    snprintf(file, sizeof file, "golden/%s.gguf", name);
    assert_ok(gguf_open(test_shared(file), &g, &err), err);
    for (size_t k = 0; k < gguf_n_kv(g); k++) {
        const char *full = gguf_kv_at(g, k)->key, *key = full + len + 1;
        if (strncmp(full, arch, len) != 0 || full[len] != '.' || names_have(seen, key))
            continue;
        struct row *r = row_of(key, arch);
        if (!r)
            fail_msg("docs/keys.md does not say what a file without %s means", full);
        check_key(g, name, arch, key, r);
        if (r->matters)
            names_add(seen, key);
    }
    /* keys that no file has */
    for (size_t i = 0; i < n_rows; i++)
        if (lists(page[i].families, arch) && strcmp(page[i].without, "refused") != 0 &&
            !names_have(seen, page[i].key) && !gguf_find(g, full_key(arch, page[i].key)))
            check_key(g, name, arch, page[i].key, &page[i]);
    gguf_close(g);
}

static void a_missing_key_means_what_the_page_says(void **state)
{
    const char *arch = *state;
    struct names *seen = names_new();
    for (size_t i = 0; i < golden_n_cases(); i++)
        if (strcmp(golden_case_at(i)->arch, arch) == 0)
            check_file(golden_case_at(i)->name, arch, seen);
    names_free(seen);
}

/* Runs last. */
static void every_row_of_the_page_is_shown_by_a_file(void **state)
{
    (void)state;
    if (golden_n_cases() == 0)
        test_skip_shared("test_defaults");
    for (size_t i = 0; i < n_rows && !getenv("ARCH"); i++)
        if (!page[i].matters)
            fail_msg("no file shows what docs/keys.md says of %s in %s", page[i].key,
                     page[i].families);
}

int main(void)
{
    static struct CMUnitTest tests[MAX_ROWS];
    const char *only = getenv("ARCH");
    size_t n = 0;
    read_page();
    for (size_t i = 0; i < family_count(); i++) {
        const char *arch = family_at(i)->arch;
        bool there = false;
        for (size_t k = 0; k < golden_n_cases(); k++)
            there |= strcmp(golden_case_at(k)->arch, arch) == 0;
        if (there && (!only || strcmp(only, arch) == 0))
            tests[n++] = (struct CMUnitTest){arch, a_missing_key_means_what_the_page_says, NULL,
                                             NULL, (void *)arch};
    }
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(every_row_of_the_page_is_shown_by_a_file);
    return _cmocka_run_group_tests("defaults", tests, n, NULL, NULL);
}
