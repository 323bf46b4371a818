/*
 * Every vocabulary of the shared conformance data: the ids of all texts, and all ids back to
 * bytes. Where the models' own library and llama.cpp differ the own library's ids are expected
 * (docs/tokenizer.md).
 */
#include "test.h"

#include "gguf/gguf.h"
#include "text/vocab.h"

#include <jansson.h>

static const char *const names[] = {
    "bert-bge", "command-r", "deepseek-coder", "deepseek-llm", "falcon",
    "gemma-4",  "gpt-2",     "llama-bpe",      "llama-spm",    "nomic-bert-moe",
    "phi-3",    "qwen2",     "qwen35",         "refact",       "starcoder",
};

struct buf {
    char *s;
    size_t n;
};

static struct buf base64(const char *text)
{
    struct buf b = {malloc(strlen(text) + 1), 0};
    unsigned acc = 0, bits = 0;
    for (; *text && *text != '='; text++) {
        char c = *text;
        unsigned v = c >= 'A' && c <= 'Z'   ? (unsigned)(c - 'A')
                     : c >= 'a' && c <= 'z' ? (unsigned)(c - 'a') + 26
                     : c >= '0' && c <= '9' ? (unsigned)(c - '0') + 52
                     : c == '+'             ? 62
                                            : 63;
        acc = acc << 6 | v;
        bits += 6;
        if (bits >= 8) {
            bits -= 8;
            b.s[b.n++] = (char)(acc >> bits);
        }
    }
    return b;
}

static struct vocab *load(const char *name)
{
    char path[200];
    linnet_error e;
    struct gguf *g;
    struct vocab *v;
    snprintf(path, sizeof path, "golden-text/tokenizer/vocab/ggml-vocab-%s.gguf", name);
    const char *full = test_shared(path);
    if (!full)
        return NULL;
    assert_ok(gguf_open(full, &g, &e), e);
    assert_ok(vocab_load(g, &v, &e), e);
    gguf_close(g);
    return v;
}

static struct buf read_shared(const char *name, const char *suffix)
{
    char path[200];
    snprintf(path, sizeof path, "golden-text/tokenizer/%s%s", name, suffix);
    const char *full = test_shared(path);
    if (!full)
        return (struct buf){NULL, 0};
    FILE *f = fopen(full, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    struct buf b = {malloc((size_t)ftell(f) + 1), (size_t)ftell(f)};
    rewind(f);
    assert_int_equal(fread(b.s, 1, b.n, f), b.n);
    b.s[b.n] = '\0';
    fclose(f);
    return b;
}

struct tally {
    const char *name;
    size_t rows, bad;
};

static void bad(struct tally *t, size_t row, const char *what)
{
    if (t->bad++ < 10)
        print_message("%s row %zu: %s\n", t->name, row, what);
}

static bool same_ids(const struct vocab *v, bool added, const int32_t *ids, size_t n,
                     const json_t *want)
{
    if (added && vocab_add_bos(v))
        ids++, n--;
    if (added && vocab_add_eos(v))
        n--;
    if (json_array_size(want) != n)
        return false;
    for (size_t i = 0; i < n; i++)
        if (json_integer_value(json_array_get(want, i)) != ids[i])
            return false;
    return true;
}

static bool decodes_to(const struct vocab *v, const int32_t *ids, size_t n, unsigned flags,
                       const char *want_s, size_t want_n)
{
    linnet_error e;
    size_t got_n, cap = want_n + 1;
    char *got = malloc(cap);
    linnet_status status = vocab_decode(v, ids, n, flags, got, cap, &got_n, &e);
    bool same = status == LINNET_OK && got_n == want_n && memcmp(got, want_s, got_n) == 0;
    free(got);
    return same;
}

/* Push the ids one by one: whole characters only, and in all the bytes of the plain decoding. */
static bool streams_to(const struct vocab *v, const int32_t *ids, size_t n, const char *want_s,
                       size_t want_n)
{
    linnet_error e;
    struct detok d;
    char *out = malloc(detok_room(v));
    size_t at = 0, got;
    bool ok = true;
    detok_init(&d, v, VOCAB_SHOW_SPECIAL);
    for (size_t i = 0; i < n && ok; i++) {
        ok = detok_push(&d, ids[i], out, &got, &e) == LINNET_OK && got <= want_n - at &&
             memcmp(out, want_s + at, got) == 0;
        at += got;
    }
    got = detok_flush(&d, out);
    ok = ok && got == want_n - at && memcmp(out, want_s + at, got) == 0;
    free(out);
    return ok;
}

static void check_decoding(const struct vocab *v, const json_t *row, size_t number, struct tally *t)
{
    const json_t *list = json_object_get(row, "ids");
    size_t n = json_array_size(list);
    int32_t *ids = malloc((n + 1) * sizeof *ids);
    for (size_t i = 0; i < n; i++)
        ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
    struct buf detok = base64(json_string_value(json_object_get(row, "detok_b64")));
    const json_t *other = json_object_get(row, "pieces_b64");
    struct buf pieces =
        base64(json_string_value(other ? other : json_object_get(row, "detok_b64")));
    if (!decodes_to(v, ids, n, VOCAB_SHOW_SPECIAL | VOCAB_WHOLE_TEXT, detok.s, detok.n))
        bad(t, number, "detok differs");
    if (!decodes_to(v, ids, n, VOCAB_SHOW_SPECIAL, pieces.s, pieces.n))
        bad(t, number, "pieces differ");
    if (!streams_to(v, ids, n, pieces.s, pieces.n))
        bad(t, number, "the stream differs");
    free(ids);
    free(detok.s);
    free(pieces.s);
}

/* What the models' own library answers for a row's text, from the row itself or, for rows with
 * added tokens (which have no such answer), from the row of the same text without: then *added
 * says to leave out both ends. */
static const json_t *wanted_ids(const json_t *row, json_t *answers, bool *added)
{
    char key[8192];
    const char *text = json_string_value(json_object_get(row, "text_b64"));
    snprintf(key, sizeof key, "%d%.8000s", json_is_true(json_object_get(row, "parse_special")),
             text);
    *added = false;
    if (json_is_false(json_object_get(row, "ref_agrees"))) {
        json_object_set(answers, key, json_object_get(row, "ref_ids"));
        return json_object_get(row, "ref_ids");
    }
    const json_t *own = json_object_get(row, "ref") ? NULL : json_object_get(answers, key);
    *added = own != NULL;
    return own ? own : json_object_get(row, "ids");
}

static void check_row(const struct vocab *v, const json_t *row, json_t *answers, size_t number,
                      struct tally *t)
{
    linnet_error e;
    struct buf text = base64(json_string_value(json_object_get(row, "text_b64")));
    bool added;
    const json_t *want = wanted_ids(row, answers, &added);
    unsigned flags =
        (json_is_true(json_object_get(row, "parse_special")) ? VOCAB_PARSE_SPECIAL : 0) |
        (json_is_true(json_object_get(row, "add_special")) ? VOCAB_ADD_SPECIAL : 0);
    size_t n, cap = text.n * 4 + 16;
    int32_t *ids = malloc(cap * sizeof *ids);
    linnet_status status = vocab_encode(v, text.s, text.n, flags, ids, cap, &n, &e);
    t->rows++;
    if (status != LINNET_OK) {
        bad(t, number, e.text);
    } else if (json_object_get(row, "invalid_utf8")) {
        /* Byte tokens give ill-formed text back, where every byte has a token. */
        bool bytes = vocab_kind(v) == VOCAB_BPE || vocab_kind(v) == VOCAB_SPM;
        for (int b = 0; b < 256; b++)
            bytes &= vocab_byte(v, (uint8_t)b) >= 0;
        struct buf whole = {malloc(text.n + 1), text.n + vocab_add_space_prefix(v)};
        whole.s[0] = ' ';
        memcpy(whole.s + vocab_add_space_prefix(v), text.s, text.n);
        if (bytes && !(flags & VOCAB_ADD_SPECIAL) &&
            !decodes_to(v, ids, n, VOCAB_SHOW_SPECIAL, whole.s, whole.n))
            bad(t, number, "ill-formed text is not given back");
        free(whole.s);
    } else if (!same_ids(v, added, ids, n, want)) {
        bad(t, number, "ids differ");
    }
    if (json_is_array(json_object_get(row, "ids")))
        check_decoding(v, row, number, t);
    free(ids);
    free(text.s);
}

static void each_row_agrees(void **state)
{
    (void)state;
    size_t total_bad = 0;
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        struct vocab *v = load(names[k]);
        if (!v)
            test_skip_shared("the tokenizer conformance test");
        struct buf file = read_shared(names[k], ".jsonl");
        assert_non_null(file.s);
        struct tally t = {.name = names[k]};
        size_t number = 0;
        json_t *answers = json_object();
        for (char *rest = file.s, *line; (line = strsep(&rest, "\n")) != NULL && *line; number++) {
            json_t *row = json_loads(line, JSON_ALLOW_NUL, NULL);
            assert_non_null(row);
            check_row(v, row, answers, number, &t);
            json_decref(row);
        }
        json_decref(answers);
        assert_int_equal(t.rows, 858);
        if (t.bad)
            print_message("%s: %zu wrong of %zu rows\n", t.name, t.bad, t.rows);
        total_bad += t.bad;
        free(file.s);
        vocab_free(v);
    }
    assert_int_equal(total_bad, 0);
}

/* The texts and ids that llama.cpp's maintainers made with the models' own tokenizers. */
static void each_inp_and_out_agree(void **state)
{
    (void)state;
    static const char mark[] = "\n__ggml_vocab_test__\n";
    size_t texts = 0, wrong = 0;
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        struct vocab *v = load(names[k]);
        if (!v)
            test_skip_shared("the .inp/.out test");
        char path[100];
        snprintf(path, sizeof path, "vocab/ggml-vocab-%s.gguf", names[k]);
        struct buf inp = read_shared(path, ".inp"), out = read_shared(path, ".out");
        char *ids_at = out.s;
        for (char *text = inp.s, *end; inp.s && *ids_at; text = end + strlen(mark)) {
            end = strstr(text, mark);
            size_t n_text = end ? (size_t)(end - text) : strlen(text), n, i = 0;
            int32_t ids[4096];
            linnet_error e;
            assert_ok(vocab_encode(v, text, n_text, 0, ids, 4096, &n, &e), e);
            bool same = true;
            while (*ids_at && *ids_at != '\n') {
                long want = strtol(ids_at, &ids_at, 10);
                same = same && i < n && ids[i] == want;
                i++;
                while (*ids_at == ' ')
                    ids_at++;
            }
            ids_at += *ids_at == '\n';
            texts++;
            if (!same || i != n) {
                wrong++;
                print_message("%s: text '%.*s' differs\n", names[k],
                              (int)(n_text < 40 ? n_text : 40), text);
            }
            if (!end)
                break;
        }
        free(inp.s);
        free(out.s);
        vocab_free(v);
    }
    assert_true(texts > 500);
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_row_agrees),
        cmocka_unit_test(each_inp_and_out_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
