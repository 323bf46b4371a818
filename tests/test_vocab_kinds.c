/*
 * The other kinds of vocabulary (WordPiece, Unigram, RWKV, character BPE), normalisation, strip
 * rules; and files that lie about any of it.
 */
#include "test.h"

#include "mkvocab.h"

#include <math.h>

enum { IDS = 4096 };

static const char *ids_of(const struct vocab *v, const char *text, unsigned flags)
{
    static char out[IDS * 4];
    int32_t ids[IDS];
    size_t n, at = 0;
    linnet_error e;
    assert_ok(vocab_encode(v, text, strlen(text), flags, ids, IDS, &n, &e), e);
    out[0] = '\0';
    for (size_t i = 0; i < n; i++)
        at += (size_t)snprintf(out + at, sizeof out - at, "%s%d", i ? " " : "", ids[i]);
    return out;
}

static struct mktokens tokens;

static struct vocab *finish(struct mkvocab *m)
{
    struct vocab *v = NULL;
    linnet_error e;
    assert_ok(mkvocab_load(m, &v, &e), e);
    return v;
}

/* ---- WordPiece ------------------------------------------------------------------------------- */

#define M "\xE2\x96\x81"

static struct vocab *wordpiece(int lowercase)
{
    static const char *const texts[] = {
        M "hello", M "wor", "ld",       M "!", "s", M "\xE4\xB8\xAD",
        M "caf",   "e",     "\xC3\xA9", M "H", "i", M "x"};
    struct mkvocab m = {0};
    tokens.n = 0;
    mktoken(&tokens, "[CLS]", VOCAB_TYPE_CONTROL, 0);
    mktoken(&tokens, "[SEP]", VOCAB_TYPE_CONTROL, 0);
    mktoken(&tokens, "[UNK]", VOCAB_TYPE_CONTROL, 0);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        mktoken(&tokens, texts[i], VOCAB_TYPE_NORMAL, 0); /* ids from 3 */
    mkvocab_str(&m, "tokenizer.ggml.model", "bert");
    mktokens_put(&tokens, &m, false);
    mkvocab_u32(&m, "tokenizer.ggml.cls_token_id", 0);
    mkvocab_u32(&m, "tokenizer.ggml.seperator_token_id", 1);
    mkvocab_u32(&m, "tokenizer.ggml.unknown_token_id", 2);
    if (lowercase >= 0)
        mkvocab_bool(&m, "tokenizer.ggml.normalizer.lowercase", lowercase);
    return finish(&m);
}

static void wordpiece_takes_the_longest_piece_of_each_word(void **state)
{
    (void)state;
    struct vocab *v = wordpiece(-1);
    assert_string_equal(ids_of(v, "Hello  WORLDS!", 0), "3 4 5 7 6");
    assert_string_equal(ids_of(v, "hello!world", 0), "3 6 4 5");
    assert_string_equal(ids_of(v, "hello\xE4\xB8\xADhello", 0),
                        "3 8 3"); /* an ideograph is a word */
    assert_string_equal(ids_of(v, "caf\xC3\xA9 cafe\xCC\x81", 0), "9 10 9 10"); /* accents go */
    assert_string_equal(ids_of(v,
                               "he\xC2\xADllo h\x01"
                               "ello",
                               0),
                        "3 3"); /* format and control characters go */
    assert_string_equal(ids_of(v, "worldz hello", 0),
                        "2 3"); /* a word with an unknown part is unknown */
    assert_string_equal(ids_of(v, "hello", VOCAB_ADD_SPECIAL), "0 3 1");
    assert_string_equal(ids_of(v, "", VOCAB_ADD_SPECIAL), "0 1");
    vocab_free(v);
    v = wordpiece(0);
    assert_string_equal(ids_of(v, "Hi hello caf\xC3\xA9", 0), "12 13 3 9 11");
    vocab_free(v);
}

static void a_word_of_more_than_100_characters_is_unknown(void **state)
{
    (void)state;
    struct vocab *v = wordpiece(-1);
    char text[260] = "wor";
    for (size_t i = 3; i < 100; i++)
        text[i] = 's';
    int32_t ids[200];
    size_t n;
    linnet_error e;
    assert_ok(vocab_encode(v, text, 100, 0, ids, 200, &n, &e), e);
    assert_int_equal(n, 98);
    text[100] = 's';
    assert_ok(vocab_encode(v, text, 101, 0, ids, 200, &n, &e), e);
    assert_int_equal(n, 1);
    assert_int_equal(ids[0], 2);
    vocab_free(v);
}

/* ---- Unigram --------------------------------------------------------------------------------- */

static struct vocab *unigram(bool merge_spaces, const void *charsmap, size_t n)
{
    static const struct {
        const char *text;
        float score;
    } list[] = {{M, -3},        {"a", -4},   {"b", -4.5f},     {"ab", -5},    {M "a", -4.25f},
                {"ba", -7.75f}, {"bab", -9}, {"\xC3\xA9", -6}, {M "aba", -10}};
    struct mkvocab m = {0};
    tokens.n = 0;
    mktoken(&tokens, "<pad>", VOCAB_TYPE_CONTROL, 0);
    mktoken(&tokens, "</s>", VOCAB_TYPE_CONTROL, 0);
    mktoken(&tokens, "<unk>", VOCAB_TYPE_UNKNOWN, 0);
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        mktoken(&tokens, list[i].text, VOCAB_TYPE_NORMAL, list[i].score);
    mkvocab_str(&m, "tokenizer.ggml.model", "t5");
    mktokens_put(&tokens, &m, true);
    mkvocab_bool(&m, "tokenizer.ggml.add_space_prefix", true);
    mkvocab_bool(&m, "tokenizer.ggml.remove_extra_whitespaces", merge_spaces);
    if (charsmap) {
        mkvocab_array(&m, "tokenizer.ggml.precompiled_charsmap", GGUF_U8, n);
        raw_bytes(&m.keys, charsmap, n);
    }
    return finish(&m);
}

/* The best score of any way to cut s, unknown characters costing ten more than the worst token. */
static double best_score(const char *s)
{
    double best = *s ? -INFINITY : 0;
    for (size_t i = 2; *s && i < tokens.n; i++) {
        size_t n = i == 2 ? 1 : strlen(tokens.text[i]);
        double score = i == 2 ? -20.0 : (double)tokens.score[i];
        if (i > 2 && strncmp(s, tokens.text[i], n) != 0)
            continue;
        score += best_score(s + n);
        best = score > best ? score : best;
    }
    return best;
}

static void unigram_finds_the_best_of_all_cuts(void **state)
{
    (void)state;
    struct vocab *v = unigram(true, NULL, 0);
    for (unsigned bits = 0; bits < 1u << 9; bits++) {
        char text[16], marked[20] = M;
        int32_t ids[32];
        size_t n;
        double score = 0;
        linnet_error e;
        for (size_t i = 0; i < 9; i++)
            text[i] = bits >> i & 1 ? 'a' : 'b';
        memcpy(marked + 3, text, 9);
        marked[12] = '\0';
        assert_ok(vocab_encode(v, text, 9, 0, ids, 32, &n, &e), e);
        for (size_t i = 0; i < n; i++)
            score += (double)vocab_score(v, ids[i]);
        assert_true(fabs(score - best_score(marked)) < 1e-9);
    }
    vocab_free(v);
}

static void unigram_joins_unknown_characters(void **state)
{
    (void)state;
    struct vocab *v = unigram(true, NULL, 0);
    assert_string_equal(ids_of(v, "axya", 0), "7 2 4");
    assert_string_equal(ids_of(v, "\xE4\xB8\xAD\xE4\xB8\xAD\xFF", 0), "3 2");
    assert_string_equal(ids_of(v, "a", VOCAB_ADD_SPECIAL),
                        "7 1"); /* T5 ends with EOS, begins with nothing */
    vocab_free(v);
}

static void extra_spaces_go_only_when_the_file_says_so(void **state)
{
    (void)state;
    struct vocab *v = unigram(true, NULL, 0);
    assert_string_equal(ids_of(v, "  a   a ", 0), "7 7");
    assert_string_equal(ids_of(v,
                               "a\n\xC2\x85"
                               "a",
                               0),
                        "7 7");
    assert_string_equal(ids_of(v, " ", 0), "");
    vocab_free(v);
    v = unigram(false, NULL, 0);
    assert_string_equal(ids_of(v, "a  a", 0), "7 3 7");
    vocab_free(v);
}

/* A character map that turns `A` into `ab` and `\xC3\x89` into `\xC3\xA9`: a double array made
 * by hand. A unit's offset times its label's exclusive or is where its child is. */
static size_t make_charsmap(uint8_t *out)
{
    uint32_t units[1024] = {0};
    static const char strings[] = "ab\0\xC3\xA9";
    uint32_t root = 256, c3 = 512, leaf_a = 768, leaf_89 = 800;
    units[0] = root << 10;
    units[root ^ 'A'] = (uint32_t)((root ^ 'A') ^ leaf_a) << 10 | 1u << 8 | 'A';
    units[leaf_a] = 1u << 31 | 0;
    units[root ^ 0xC3] = (uint32_t)((root ^ 0xC3) ^ c3) << 10 | 0xC3;
    units[c3 ^ 0x89] = (uint32_t)((c3 ^ 0x89) ^ leaf_89) << 10 | 1u << 8 | 0x89;
    units[leaf_89] = 1u << 31 | 3;
    uint32_t bytes = sizeof units;
    memcpy(out, &bytes, 4);
    memcpy(out + 4, units, sizeof units);
    memcpy(out + 4 + sizeof units, strings, sizeof strings);
    return 4 + sizeof units + sizeof strings;
}

static void a_character_map_is_applied_first(void **state)
{
    (void)state;
    uint8_t map[5000];
    struct vocab *v = unigram(true, map, make_charsmap(map));
    assert_string_equal(ids_of(v, "A", 0), "3 6");
    assert_string_equal(ids_of(v, "bA", 0), "3 9");
    assert_string_equal(ids_of(v, "\xC3\x89", 0), "3 10");
    vocab_free(v);
}

static void a_character_map_that_lies_is_refused_or_harmless(void **state)
{
    (void)state;
    uint8_t map[5000];
    size_t n = make_charsmap(map);
    for (size_t cut = 0; cut < n; cut += 97) {
        struct mkvocab m = {0};
        struct vocab *v = NULL;
        linnet_error e;
        const char *text = "aA\xC3\x89!";
        int32_t id = 0;
        mkvocab_str(&m, "tokenizer.ggml.model", "t5");
        mkvocab_strs(&m, "tokenizer.ggml.tokens", &text, 1);
        mkvocab_array(&m, "tokenizer.ggml.precompiled_charsmap", GGUF_I8, cut);
        raw_bytes(&m.keys, map, cut);
        linnet_status status = mkvocab_load(&m, &v, &e);
        assert_true(status == LINNET_OK ? cut == 0 || cut > 4100 : status == LINNET_FORMAT);
        size_t got;
        if (status == LINNET_OK) /* no unknown token: an error, not a crash */
            vocab_encode(v, text, strlen(text), 0, &id, 1, &got, &e);
        vocab_free(status == LINNET_OK ? v : NULL);
    }
    for (size_t at = 4; at + 4 < n; at += 4) { /* every unit pointing far away */
        uint8_t bad[5000];
        memcpy(bad, map, n);
        memset(bad + at, 0xFF, 4);
        if (at + 4 >= n - 7)
            break;
        struct vocab *v = unigram(true, bad, n);
        ids_of(v, "aA\xC3\x89 A", 0);
        vocab_free(v);
    }
}

/* ---- RWKV, character BPE --------------------------------------------------------------------- */

static void rwkv_takes_the_longest_token_over_bytes(void **state)
{
    (void)state;
    static const char *const list[] = {"a",          "ab",    "abcd", "b",   "\\n", "\\n\\n",
                                       "\\xe4\\xb8", "\\xad", "c",    "\\'", "\\\\"};
    struct mkvocab m = {0};
    tokens.n = 0;
    mktoken(&tokens, "<s>", VOCAB_TYPE_CONTROL, 0);
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        mktoken(&tokens, list[i], VOCAB_TYPE_NORMAL, 0);
    mkvocab_str(&m, "tokenizer.ggml.model", "rwkv");
    mktokens_put(&tokens, &m, false);
    struct vocab *v = finish(&m);
    assert_string_equal(ids_of(v, "abcabcdab", 0), "2 9 3 2");
    assert_string_equal(ids_of(v, "\n\n\n\xE4\xB8\xAD'\\", 0), "6 5 7 8 10 11");
    assert_int_equal(vocab_special(v, VOCAB_NL), 5);
    assert_int_equal(vocab_byte(v, 0xAD), 8);
    int32_t ids[4];
    size_t n;
    linnet_error e;
    assert_int_equal(vocab_encode(v, "z", 1, 0, ids, 4, &n, &e), LINNET_UNSUPPORTED);
    vocab_free(v);
}

static void character_bpe_merges_inside_lines_and_falls_back_to_bytes(void **state)
{
    (void)state;
    static const char *const merges[] = {"a b", M " a", M "a b", "\n \n"};
    struct mkvocab m = {0};
    tokens.n = 0;
    mktokens_bytes(&tokens);
    static const char *const list[] = {M, "a", "b", "ab", M "a", M "ab", "\n", "\n\n", "\n\n\n"};
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        mktoken(&tokens, list[i], VOCAB_TYPE_NORMAL, 0); /* ids from 256 */
    mktoken(&tokens, "<bos>", VOCAB_TYPE_CONTROL, 0);
    mkvocab_str(&m, "tokenizer.ggml.model", "gemma4");
    mktokens_put(&tokens, &m, false);
    mkvocab_strs(&m, "tokenizer.ggml.merges", merges, 4);
    mkvocab_u32(&m, "tokenizer.ggml.bos_token_id", 265);
    mkvocab_bool(&m, "tokenizer.ggml.add_bos_token", false); /* known to be wrong in such files */
    struct vocab *v = finish(&m);
    assert_string_equal(ids_of(v, "ab ab", 0), "259 256 259"); /* a b ranks before mark a */
    assert_string_equal(ids_of(v, "a a", 0), "257 260");
    assert_string_equal(ids_of(v, "a\n\n\nb", 0),
                        "257 264 258"); /* a run of line feeds is its token */
    assert_string_equal(ids_of(v, "\n\n\n\n", 0), "263 263");
    assert_string_equal(ids_of(v, "\xC3\xA9\xFF", 0), "195 169 255");
    assert_string_equal(ids_of(v, "a", VOCAB_ADD_SPECIAL), "265 257");
    assert_int_equal(vocab_special(v, VOCAB_NL), 262);
    vocab_free(v);
}

/* ---- normalisation and strip rules ----------------------------------------------------------- */

static struct vocab *bytes_with(const char *pre, const char *key, bool value)
{
    static const char *const merges[] = {"\xC3\x83 \xC2\xA9"}; /* the two bytes of U+00E9 */
    struct mkvocab m = {0};
    tokens.n = 0;
    mktokens_alphabet(&tokens);
    mktoken(&tokens, "\xC3\x83\xC2\xA9", VOCAB_TYPE_NORMAL, 0);
    mkvocab_str(&m, "tokenizer.ggml.model", "gpt2");
    mkvocab_str(&m, "tokenizer.ggml.pre", pre);
    mktokens_put(&tokens, &m, false);
    mkvocab_strs(&m, "tokenizer.ggml.merges", merges, 1);
    if (key)
        mkvocab_bool(&m, key, value);
    return finish(&m);
}

static void nfc_follows_the_pre_tokenizer_unless_a_key_says_otherwise(void **state)
{
    (void)state;
    const char *text = "xe\xCC\x81 \xFFz";
    struct vocab *v = bytes_with("qwen2", NULL, false);
    assert_string_equal(ids_of(v, text, 0), "120 256 32 255 122");
    vocab_free(v);
    v = bytes_with("qwen2", "tokenizer.ggml.normalizer.nfc", false);
    assert_string_equal(ids_of(v, text, 0), "120 101 204 129 32 255 122");
    vocab_free(v);
    v = bytes_with("qwen35", NULL, false);
    assert_string_equal(ids_of(v, text, 0), "120 101 204 129 32 255 122");
    vocab_free(v);
    v = bytes_with("gpt-2", "tokenizer.ggml.normalizer.nfc", true);
    assert_string_equal(ids_of(v, text, 0), "120 256 32 255 122");
    vocab_free(v);
}

static void phi3_tokens_swallow_the_space_after_them(void **state)
{
    (void)state;
    for (int phi = 0; phi < 2; phi++) {
        struct mkvocab m = {0};
        tokens.n = 0;
        mktoken(&tokens, "<unk>", VOCAB_TYPE_UNKNOWN, 0);
        mktoken(&tokens, "<s>", VOCAB_TYPE_CONTROL, 0);
        mktoken(&tokens, "<|user|>", VOCAB_TYPE_CONTROL, 0);
        mktoken(&tokens, M, VOCAB_TYPE_NORMAL, -2);
        mktoken(&tokens, "a", VOCAB_TYPE_NORMAL, -1);
        mkvocab_str(&m, "general.architecture", phi ? "phi3" : "llama");
        mkvocab_str(&m, "tokenizer.ggml.model", "llama");
        mktokens_put(&tokens, &m, true);
        struct vocab *v = finish(&m);
        assert_string_equal(ids_of(v, "<|user|>  a", VOCAB_PARSE_SPECIAL),
                            phi ? "2 3 4" : "2 3 3 3 4");
        assert_string_equal(ids_of(v, "<s> a", VOCAB_PARSE_SPECIAL), "1 3 3 4");
        vocab_free(v);
    }
}

/* ---- files that lie -------------------------------------------------------------------------- */

/* A sound file but for one thing. */
struct lie {
    const char *key; /* this key is */
    int type, elem;  /* of this type (and, for an array, of these elements) */
    uint64_t count;
    const char *text; /* its value when it is a string */
};

static linnet_status tell(const struct lie *lie, linnet_error *e)
{
    static const char *const texts[] = {"a", "b", "ab"};
    static const int32_t types[] = {1, 1, 1};
    static const float scores[] = {0, -1, -2};
    static const char *const merges[] = {"a b"};
    static const char *const keys[] = {"tokenizer.ggml.model",  "tokenizer.ggml.pre",
                                       "tokenizer.ggml.tokens", "tokenizer.ggml.token_type",
                                       "tokenizer.ggml.scores", "tokenizer.ggml.merges"};
    struct mkvocab m = {0};
    struct vocab *v = NULL;
    for (size_t i = 0; i < 6; i++) {
        if (lie && strcmp(lie->key, keys[i]) == 0)
            continue;
        switch (i) {
        case 0: mkvocab_str(&m, keys[i], "gpt2"); break;
        case 1: mkvocab_str(&m, keys[i], "gpt-2"); break;
        case 2: mkvocab_strs(&m, keys[i], texts, 3); break;
        case 3: mkvocab_i32s(&m, keys[i], types, 3); break;
        case 4: mkvocab_f32s(&m, keys[i], scores, 3); break;
        default: mkvocab_strs(&m, keys[i], merges, 1); break;
        }
    }
    if (lie && lie->type == GGUF_ARRAY) {
        mkvocab_array(&m, lie->key, (enum gguf_type)lie->elem, lie->count);
        size_t size = lie->elem == GGUF_STRING || lie->elem >= GGUF_U64 ? 8
                      : lie->elem <= GGUF_I8 || lie->elem == GGUF_BOOL  ? 1
                      : lie->elem <= GGUF_I16                           ? 2
                                                                        : 4;
        raw_zeros(&m.keys, size * lie->count);
    } else if (lie && lie->type == GGUF_STRING) {
        mkvocab_str(&m, lie->key, lie->text);
    } else if (lie && lie->type >= 0) {
        mkvocab_u32(&m, lie->key, 1);
    }
    linnet_status status = mkvocab_load(&m, &v, e);
    if (status == LINNET_OK)
        vocab_free(v);
    return status;
}

static void arrays_of_a_wrong_type_or_count_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        int elem;
        bool counted;
    } arrays[] = {{"tokenizer.ggml.token_type", GGUF_I32, true},
                  {"tokenizer.ggml.scores", GGUF_F32, true},
                  {"tokenizer.ggml.tokens", GGUF_STRING, false},
                  {"tokenizer.ggml.merges", GGUF_STRING, false}};
    linnet_error e;
    assert_ok(tell(NULL, &e), e);
    for (size_t i = 0; i < 4; i++) {
        for (int elem = GGUF_U8; elem <= GGUF_F64; elem++) {
            struct lie lie = {arrays[i].key, GGUF_ARRAY, elem, 3, NULL};
            if (elem == GGUF_ARRAY || elem == arrays[i].elem)
                continue;
            assert_int_equal(tell(&lie, &e), LINNET_FORMAT);
            assert_non_null(strstr(e.text, arrays[i].key));
        }
        assert_int_equal(tell(&(struct lie){arrays[i].key, GGUF_U32, 0, 0, NULL}, &e),
                         LINNET_FORMAT);
        assert_non_null(strstr(e.text, arrays[i].key));
        for (uint64_t n = 0; arrays[i].counted && n <= 4; n++)
            if (n != 3) {
                struct lie lie = {arrays[i].key, GGUF_ARRAY, arrays[i].elem, n, NULL};
                assert_int_equal(tell(&lie, &e), LINNET_FORMAT);
                assert_non_null(strstr(e.text, arrays[i].key));
            }
    }
}

static void what_is_not_known_is_named(void **state)
{
    (void)state;
    linnet_error e;
    assert_int_equal(tell(&(struct lie){"tokenizer.ggml.model", GGUF_STRING, 0, 0, "plamo2"}, &e),
                     LINNET_UNSUPPORTED);
    assert_non_null(strstr(e.text, "plamo2"));
    assert_int_equal(tell(&(struct lie){"tokenizer.ggml.pre", GGUF_STRING, 0, 0, "klingon"}, &e),
                     LINNET_UNSUPPORTED);
    assert_non_null(strstr(e.text, "klingon"));
    assert_int_equal(tell(&(struct lie){"tokenizer.ggml.model", GGUF_STRING, 0, 0, "none"}, &e),
                     LINNET_NOT_FOUND);
    assert_int_equal(tell(&(struct lie){"tokenizer.ggml.model", -1, 0, 0, NULL}, &e),
                     LINNET_NOT_FOUND);
    assert_int_equal(tell(&(struct lie){"tokenizer.ggml.pre", -1, 0, 0, NULL}, &e),
                     LINNET_OK); /* the default */
    assert_int_equal(tell(&(struct lie){"tokenizer.ggml.merges", -1, 0, 0, NULL}, &e),
                     LINNET_FORMAT);
    assert_int_equal(tell(&(struct lie){"tokenizer.ggml.tokens", -1, 0, 0, NULL}, &e),
                     LINNET_FORMAT);
    assert_int_equal(
        tell(&(struct lie){"tokenizer.ggml.tokens", GGUF_ARRAY, GGUF_STRING, 0, NULL}, &e),
        LINNET_LIMIT);
    assert_int_equal(tell(&(struct lie){"tokenizer.ggml.bos_token_id", GGUF_STRING, 0, 0, "x"}, &e),
                     LINNET_FORMAT);
    assert_int_equal(
        tell(&(struct lie){"tokenizer.ggml.add_bos_token", GGUF_STRING, 0, 0, "x"}, &e),
        LINNET_FORMAT);
    assert_int_equal(
        tell(&(struct lie){"tokenizer.ggml.normalizer.nfc", GGUF_STRING, 0, 0, "x"}, &e),
        LINNET_FORMAT);
}

/* -1, in either form, and one past the end mean that there is none. */
static void ids_outside_the_vocabulary_are_refused_by_key(void **state)
{
    (void)state;
    static const struct {
        int64_t id;
        linnet_status status;
    } ids[] = {
        {2, LINNET_OK},  {3, LINNET_OK},      {4, LINNET_FORMAT},       {UINT32_MAX, LINNET_OK},
        {-1, LINNET_OK}, {-2, LINNET_FORMAT}, {1000000, LINNET_FORMAT}, {INT32_MAX, LINNET_FORMAT}};
    static const char *const texts[] = {"a", "b", "c"};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        struct mkvocab m = {0};
        struct vocab *v = NULL;
        linnet_error e;
        tokens.n = 0;
        for (int t = 0; t < 3; t++)
            mktoken(&tokens, texts[t], VOCAB_TYPE_NORMAL, 0);
        mkvocab_str(&m, "tokenizer.ggml.model", "t5");
        mktokens_put(&tokens, &m, true);
        mkvocab_i64(&m, "tokenizer.ggml.padding_token_id", ids[i].id);
        linnet_status status = mkvocab_load(&m, &v, &e);
        assert_int_equal(status, ids[i].status);
        if (status == LINNET_OK)
            assert_int_equal(vocab_special(v, VOCAB_PAD), ids[i].id == 2 ? 2 : -1);
        else
            assert_non_null(strstr(e.text, "tokenizer.ggml.padding_token_id"));
        vocab_free(v);
    }
}

static void values_out_of_range_are_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {"a", ""};
    static const int32_t bad_types[] = {1, 7};
    static const float bad_scores[] = {0, NAN};
    static const char *const bad_merges[] = {"a b", "ab"};
    for (int k = 0; k < 3; k++) {
        struct mkvocab m = {0};
        struct vocab *v = NULL;
        linnet_error e;
        mkvocab_str(&m, "tokenizer.ggml.model", "gpt2");
        mkvocab_strs(&m, "tokenizer.ggml.tokens", texts, 2);
        if (k == 0)
            mkvocab_i32s(&m, "tokenizer.ggml.token_type", bad_types, 2);
        if (k == 1)
            mkvocab_f32s(&m, "tokenizer.ggml.scores", bad_scores, 2);
        mkvocab_strs(&m, "tokenizer.ggml.merges", bad_merges, k == 2 ? 2 : 1);
        assert_int_equal(mkvocab_load(&m, &v, &e), LINNET_FORMAT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wordpiece_takes_the_longest_piece_of_each_word),
        cmocka_unit_test(a_word_of_more_than_100_characters_is_unknown),
        cmocka_unit_test(unigram_finds_the_best_of_all_cuts),
        cmocka_unit_test(unigram_joins_unknown_characters),
        cmocka_unit_test(extra_spaces_go_only_when_the_file_says_so),
        cmocka_unit_test(a_character_map_is_applied_first),
        cmocka_unit_test(a_character_map_that_lies_is_refused_or_harmless),
        cmocka_unit_test(rwkv_takes_the_longest_token_over_bytes),
        cmocka_unit_test(character_bpe_merges_inside_lines_and_falls_back_to_bytes),
        cmocka_unit_test(nfc_follows_the_pre_tokenizer_unless_a_key_says_otherwise),
        cmocka_unit_test(phi3_tokens_swallow_the_space_after_them),
        cmocka_unit_test(arrays_of_a_wrong_type_or_count_are_refused_by_name),
        cmocka_unit_test(what_is_not_known_is_named),
        cmocka_unit_test(ids_outside_the_vocabulary_are_refused_by_key),
        cmocka_unit_test(values_out_of_range_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
