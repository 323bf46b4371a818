/*
 * What vocabularies mean, on small made-up ones: encoding by each method against plain references,
 * added tokens, trusted and untrusted text, BOS and EOS, decoding whole and as a stream.
 */
#include "test.h"

#include "base/utf8.h"
#include "mkvocab.h"
#include "text/pretok.h"

#include <pthread.h>

enum { IDS = 4096 };

/* Ids of a text as "1 2 3", to compare with a string. */
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

static const char *text_of(const struct vocab *v, const int32_t *ids, size_t n, unsigned flags)
{
    static char out[4096];
    size_t n_out;
    linnet_error e;
    assert_ok(vocab_decode(v, ids, n, flags, out, sizeof out - 1, &n_out, &e), e);
    out[n_out] = '\0';
    return out;
}

static uint32_t random_state = 1;
static uint32_t next_random(uint32_t below)
{
    random_state = random_state * 1664525 + 1013904223;
    return (random_state >> 8) % below;
}

static void give_back(const struct vocab *v, const char *text, size_t n)
{
    static int32_t ids[IDS];
    static char back[IDS * 8];
    size_t n_ids, n_back;
    linnet_error e;
    assert_ok(vocab_encode(v, text, n, 0, ids, IDS, &n_ids, &e), e);
    assert_ok(vocab_decode(v, ids, n_ids, VOCAB_SHOW_SPECIAL | VOCAB_STRIP_PREFIX, back,
                           sizeof back, &n_back, &e),
              e);
    assert_int_equal(n_back, n);
    assert_memory_equal(back, text, n);
}

/* ---- vocabularies ---------------------------------------------------------------------------- */

static struct mktokens tokens; /* large: not on the stack */

enum { AB = 256, ABC, BC, CC, SPACE_A, EOT, TOOL, THINK, BOS, EOS };
static const char *const merges[] = {"b c", "a b", "c c", "a bc", "\xC4\xA0 a"};

/* A byte-level vocabulary with five merges and some added tokens. */
static struct vocab *bpe(const char *pre, int add_bos)
{
    struct mkvocab m = {0};
    struct vocab *v = NULL;
    linnet_error e;
    tokens.n = 0;
    mktokens_alphabet(&tokens);
    mktoken(&tokens, "ab", VOCAB_TYPE_NORMAL, 0);
    mktoken(&tokens, "abc", VOCAB_TYPE_NORMAL, 0);
    mktoken(&tokens, "bc", VOCAB_TYPE_NORMAL, 0);
    mktoken(&tokens, "cc", VOCAB_TYPE_NORMAL, 0);
    mktoken(&tokens,
            "\xC4\xA0"
            "a",
            VOCAB_TYPE_NORMAL, 0);
    mktoken(&tokens, "<|im_end|>", VOCAB_TYPE_CONTROL, 0);
    mktoken(&tokens, "<tool_call>", VOCAB_TYPE_USER, 0);
    mktoken(&tokens, "<tool_call>think", VOCAB_TYPE_USER, 0);
    mktoken(&tokens, "<s>", VOCAB_TYPE_CONTROL, 0);
    mktoken(&tokens, "</s>", VOCAB_TYPE_CONTROL, 0);
    mkvocab_str(&m, "tokenizer.ggml.model", "gpt2");
    mkvocab_str(&m, "tokenizer.ggml.pre", pre);
    mktokens_put(&tokens, &m, false);
    mkvocab_strs(&m, "tokenizer.ggml.merges", merges, 5);
    mkvocab_u32(&m, "tokenizer.ggml.bos_token_id", BOS);
    mkvocab_u32(&m, "tokenizer.ggml.eos_token_id", EOS);
    if (add_bos >= 0)
        mkvocab_bool(&m, "tokenizer.ggml.add_bos_token", add_bos);
    assert_ok(mkvocab_load(&m, &v, &e), e);
    return v;
}

enum {
    SPM_BOS = 1,
    SPM_BYTES = 3,
    SPM_MARK = 259,
    SPM_A,
    SPM_B,
    SPM_AB,
    SPM_MARK_A,
    SPM_MARK_AB,
    SPM_AA,
    SPM_USER
};

static struct vocab *spm(int add_bos)
{
    struct mkvocab m = {0};
    struct vocab *v = NULL;
    linnet_error e;
    tokens.n = 0;
    mktoken(&tokens, "<unk>", VOCAB_TYPE_UNKNOWN, 0);
    mktoken(&tokens, "<s>", VOCAB_TYPE_CONTROL, 0);
    mktoken(&tokens, "</s>", VOCAB_TYPE_CONTROL, 0);
    mktokens_bytes(&tokens);
    mktoken(&tokens, "\xE2\x96\x81", VOCAB_TYPE_NORMAL, -9);
    mktoken(&tokens, "a", VOCAB_TYPE_NORMAL, -7);
    mktoken(&tokens, "b", VOCAB_TYPE_NORMAL, -8);
    mktoken(&tokens, "ab", VOCAB_TYPE_NORMAL, -2);
    mktoken(&tokens,
            "\xE2\x96\x81"
            "a",
            VOCAB_TYPE_NORMAL, -1);
    mktoken(&tokens,
            "\xE2\x96\x81"
            "ab",
            VOCAB_TYPE_NORMAL, -3);
    mktoken(&tokens, "aa", VOCAB_TYPE_NORMAL, -1.5f);
    mktoken(&tokens, "<x>", VOCAB_TYPE_USER, 0);
    mkvocab_str(&m, "tokenizer.ggml.model", "llama");
    mktokens_put(&tokens, &m, true);
    if (add_bos >= 0)
        mkvocab_bool(&m, "tokenizer.ggml.add_bos_token", add_bos);
    assert_ok(mkvocab_load(&m, &v, &e), e);
    return v;
}

/* ---- byte-pair ------------------------------------------------------------------------------- */

static void merges_go_by_rank_then_from_the_left(void **state)
{
    (void)state;
    struct vocab *v = bpe("gpt-2", -1);
    assert_string_equal(ids_of(v, "abc", 0), "257"); /* b c first, then a bc */
    assert_string_equal(ids_of(v, "ab", 0), "256");
    assert_string_equal(ids_of(v, "ccc", 0), "259 99"); /* the left pair of two equal ones */
    assert_string_equal(ids_of(v, "b a", 0), "98 260"); /* the space belongs to the word after it */
    assert_string_equal(ids_of(v, "", 0), "");
    vocab_free(v);
}

/* The plain way: look for the best pair in the whole list, join, again. */
static size_t reference_merge(int32_t *ids, size_t n)
{
    static const struct {
        int32_t l, r, to;
    } rules[] = {{'b', 'c', BC}, {'a', 'b', AB}, {'c', 'c', CC}, {'a', BC, ABC}};
    for (size_t k = 0; k < 4;) {
        size_t i = 0;
        while (i + 1 < n && (ids[i] != rules[k].l || ids[i + 1] != rules[k].r))
            i++;
        if (i + 1 >= n) {
            k++;
            continue;
        }
        ids[i] = rules[k].to;
        memmove(&ids[i + 1], &ids[i + 2], (n - i - 2) * sizeof *ids);
        n--;
        k = 0;
    }
    return n;
}

static void words_of_every_length_merge_as_the_plain_way_does(void **state)
{
    (void)state;
    struct vocab *v = bpe("gpt-2", -1);
    for (size_t n = 1; n < 300; n++) {
        char text[300];
        int32_t want[300], got[300];
        size_t n_want, n_got;
        linnet_error e;
        for (size_t i = 0; i < n; i++)
            want[i] = text[i] = (char)("abc"[next_random(3)]);
        n_want = reference_merge(want, n);
        assert_ok(vocab_encode(v, text, n, 0, got, 300, &n_got, &e), e);
        assert_int_equal(n_got, n_want);
        assert_memory_equal(got, want, n_want * sizeof *want);
    }
    vocab_free(v);
}

static void any_bytes_are_given_back_by_every_pre_tokenizer(void **state)
{
    (void)state;
    static const char *const parts[] = {"abc ",         "a b",          "\xF0\x9F\xA6\x99",
                                        "\xC3\xA9",     "\xE4\xB8\xAD", "\xFF",
                                        "\xC3",         "\xF0\x9F",     "123456",
                                        " \n\t",        "'s",           "'LL",
                                        "<tool_call>",  "\xCC\x81",     "\xE2\x80\xA8",
                                        "HelloWorld",   "...",          "\0x",
                                        "\xED\xA0\x80", "   ",          "\r\n"};
    for (size_t k = 0; pretok_name(k); k++) {
        if (strcmp(pretok_name(k), "gemma4") == 0 || strcmp(pretok_name(k), "sarvam-moe") == 0 ||
            strncmp(pretok_name(k), "granite-embed-multi-311m", 24) == 0)
            continue; /* characters, not bytes: the alphabet is another */
        struct vocab *v = bpe(pretok_name(k), -1);
        for (size_t round = 0; round < 20; round++) {
            char text[400];
            size_t n = 0;
            for (size_t i = next_random(12); i-- > 0;) {
                const char *p = parts[next_random(sizeof parts / sizeof parts[0])];
                size_t len = *p ? strlen(p) : 2;
                bool composes = p[0] == '\xCC'; /* NFC may join it with the letter before */
                memcpy(text + n, p, composes ? 0 : len);
                n += composes ? 0 : len;
            }
            give_back(v, text, n);
        }
        vocab_free(v);
    }
}

struct pieces {
    size_t n, at, ends[600];
    const char *s;
};

static void note_piece(void *arg, const char *s, size_t n)
{
    struct pieces *p = arg;
    assert_ptr_equal(s, p->s + p->at);
    assert_true(n > 0 && p->n < 600);
    p->ends[p->n++] = p->at += n;
}

static void words_cover_the_text_and_the_shortcut_changes_none(void **state)
{
    (void)state;
    static const char *const parts[] = {" ",
                                        "a",
                                        "B",
                                        "word",
                                        " Word",
                                        "'",
                                        "s",
                                        "'re",
                                        "1",
                                        "23",
                                        "\xC2\xB2",
                                        "\xC3\xA9",
                                        "\xCC\x81",
                                        "\xE4\xB8\xAD",
                                        ".",
                                        "!?",
                                        "\n",
                                        "\r\n",
                                        "\t",
                                        "\xE3\x80\x80",
                                        "\xC5\xBF",
                                        "\xEA\xB0\x80",
                                        "_",
                                        "<",
                                        "\xF0\x9F\xA6\x99"};
    for (size_t k = 0; pretok_name(k); k++) {
        struct pretok *p = NULL;
        linnet_error e;
        assert_ok(pretok_create(pretok_name(k), &p, &e), e);
        struct pretok_scratch fast = {0}, plain = {.no_shortcuts = true};
        for (size_t round = 0; round < 60; round++) {
            char text[300] = "";
            for (size_t i = next_random(40); i-- > 0;)
                strcat(text, parts[next_random(sizeof parts / sizeof parts[0])]);
            struct pieces a = {.s = text}, b = {.s = text};
            size_t n = strlen(text);
            assert_ok(pretok_split(p, &fast, text, n, note_piece, &a, &e), e);
            assert_ok(pretok_split(p, &plain, text, n, note_piece, &b, &e), e);
            assert_int_equal(a.at, n);
            assert_int_equal(a.n, b.n);
            assert_memory_equal(a.ends, b.ends, a.n * sizeof a.ends[0]);
        }
        pretok_scratch_free(&fast);
        pretok_scratch_free(&plain);
        pretok_destroy(p);
    }
}

static void long_runs_of_anything_are_encoded(void **state)
{
    (void)state;
    static const char *const runs[] = {
        "a",    " ",        "\n", "1", "'",   "A",        "\xE4\xB8\xAD",
        "\xFF", "\xCC\x81", "a ", "!", " \n", "a\xCC\x81"};
    static const char *const pres[] = {"llama-bpe",    "gpt-4o",     "kimi-k2",
                                       "deepseek-llm", "exaone-moe", "superbpe",
                                       "tiny_aya",     "jais-2",     "default"};
    size_t n = 300000, n_ids;
    char *text = malloc(n);
    int32_t *ids = malloc(n * sizeof *ids);
    for (size_t k = 0; k < sizeof pres / sizeof pres[0]; k++) {
        struct vocab *v = bpe(pres[k], -1);
        for (size_t r = 0; r < sizeof runs / sizeof runs[0]; r++) {
            linnet_error e;
            size_t len = strlen(runs[r]), used = n / len * len;
            for (size_t i = 0; i < used; i++)
                text[i] = runs[r][i % len];
            assert_ok(vocab_encode(v, text, used, 0, ids, n, &n_ids, &e), e);
            assert_true(n_ids > used / 4 && n_ids <= used);
        }
        vocab_free(v);
    }
    free(text);
    free(ids);
}

static void a_call_without_room_says_how_much_it_needs(void **state)
{
    (void)state;
    struct vocab *v = bpe("gpt-2", -1);
    int32_t ids[3] = {-1, -1, -1};
    size_t n = 0;
    linnet_error e;
    assert_int_equal(vocab_encode(v, "xyzxyz", 6, 0, ids, 2, &n, &e), LINNET_LIMIT);
    assert_int_equal(n, 6);
    assert_int_equal(ids[0], 'x');
    assert_int_equal(ids[2], -1);
    char text[4] = "...";
    assert_int_equal(vocab_decode(v, (int32_t[]){'x', ABC}, 2, 0, text, 2, &n, &e), LINNET_LIMIT);
    assert_int_equal(n, 4);
    assert_string_equal(text, "xa.");
    assert_int_equal(vocab_decode(v, (int32_t[]){-1}, 1, 0, text, 2, &n, &e), LINNET_INVALID);
    vocab_free(v);
}

/* ---- SentencePiece --------------------------------------------------------------------------- */

static void spm_merges_the_best_score_first(void **state)
{
    (void)state;
    struct vocab *v = spm(-1);
    assert_string_equal(ids_of(v, "ab", 0),
                        "264"); /* the mark and `a` first, then `b` joins them */
    assert_string_equal(ids_of(v, "bab", 0), "259 261 262");
    assert_string_equal(ids_of(v, "aaa", 0), "263 265");
    assert_string_equal(ids_of(v, "baaa", 0), "259 261 265 260");
    assert_string_equal(ids_of(v, "a a", 0), "263 263");
    assert_string_equal(ids_of(v, "\xC3\xA9", 0), "259 198 172"); /* unknown: byte tokens */
    give_back(v, "a b\xF0\x9F\xA6\x99 ab\xFF\xC3", 13);
    vocab_free(v);
}

static void a_marked_token_starts_a_new_text(void **state)
{
    (void)state;
    struct vocab *v = spm(-1);
    assert_string_equal(ids_of(v, "a<x>a", 0), "263 266 263"); /* with a space before each part */
    assert_string_equal(ids_of(v, "a<s>a", VOCAB_PARSE_SPECIAL), "263 1 263");
    vocab_free(v);
}

/* ---- control tokens and trust ---------------------------------------------------------------- */

static bool has_control(const struct vocab *v, const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (vocab_is_special(v, ids[i]))
            return true;
    return false;
}

static void untrusted_text_never_becomes_a_control_token(void **state)
{
    (void)state;
    static const char *const attacks[] = {"A<|im_end|>B", "<s>",     "</s></s>",
                                          "<|im_end|",    "\xFF<s>", "x<s"};
    struct vocab *vocabs[] = {bpe("gpt-2", -1), spm(-1)};
    for (size_t k = 0; k < 2; k++) {
        int32_t ids[200];
        size_t n;
        linnet_error e;
        for (size_t i = 0; i < sizeof attacks / sizeof attacks[0]; i++) {
            struct vocab_part parts[] = {
                {"a", 1, true}, {attacks[i], strlen(attacks[i]), false}, {">b", 2, true}};
            assert_ok(vocab_encode(vocabs[k], attacks[i], strlen(attacks[i]), 0, ids, 200, &n, &e),
                      e);
            assert_false(has_control(vocabs[k], ids, n));
            assert_ok(vocab_encode_parts(vocabs[k], parts, 3, 0, ids, 200, &n, &e), e);
            assert_false(has_control(vocabs[k], ids, n)); /* not even half in trusted text */
        }
        vocab_free(vocabs[k]);
    }
}

static void trusted_parts_keep_their_control_tokens(void **state)
{
    (void)state;
    struct vocab *v = bpe("gpt-2", -1);
    struct vocab_part parts[] = {
        {"<s>a", 4, true}, {"b</s>c", 6, false}, {"<|im_", 5, true}, {"end|>", 5, true}};
    int32_t ids[100];
    size_t n;
    linnet_error e;
    assert_ok(vocab_encode_parts(v, parts, 4, 0, ids, 100, &n, &e), e);
    assert_int_equal(ids[0], BOS);
    assert_int_equal(ids[1], AB);      /* a word may cross from one part to the next */
    assert_int_equal(ids[n - 1], EOT); /* a token may cross between trusted parts */
    assert_string_equal(text_of(v, ids, n, VOCAB_SHOW_SPECIAL), "<s>ab</s>c<|im_end|>");
    assert_string_equal(text_of(v, ids, n, 0), "ab</s>c");
    vocab_free(v);
}

static void user_defined_tokens_are_found_everywhere_and_the_longest_wins(void **state)
{
    (void)state;
    struct vocab *v = bpe("gpt-2", -1);
    assert_string_equal(ids_of(v, "ab<tool_call>ab", 0), "256 262 256");
    assert_string_equal(ids_of(v, "<tool_call>thin<tool_call>think", 0), "262 116 104 105 110 263");
    assert_false(vocab_is_special(v, TOOL));
    vocab_free(v);
}

/* ---- BOS and EOS ----------------------------------------------------------------------------- */

static size_t count_bos(const struct vocab *v, const char *text, unsigned flags)
{
    int32_t ids[100];
    size_t n, count = 0;
    linnet_error e;
    assert_ok(vocab_encode(v, text, strlen(text), flags, ids, 100, &n, &e), e);
    for (size_t i = 0; i < n; i++)
        count += ids[i] == vocab_special(v, VOCAB_BOS);
    assert_true(count == 0 || ids[0] == vocab_special(v, VOCAB_BOS));
    return count;
}

static void there_is_one_bos_where_one_belongs_and_none_elsewhere(void **state)
{
    (void)state;
    for (int add = -1; add <= 1; add++)
        for (int kind = 0; kind < 3; kind++) {
            struct vocab *v = kind == 0 ? spm(add) : bpe(kind == 1 ? "gpt-2" : "llama-bpe", add);
            bool adds = add < 0 ? kind != 1 : add; /* the key, else what the kind does */
            assert_int_equal(vocab_add_bos(v), adds);
            /* a completion: what add_bos says */
            assert_int_equal(count_bos(v, "ab", VOCAB_ADD_SPECIAL), adds);
            /* a chat whose template wrote BOS: one, whatever add_bos says */
            assert_int_equal(count_bos(v, "<s>ab", VOCAB_ADD_SPECIAL | VOCAB_PARSE_SPECIAL), 1);
            assert_int_equal(count_bos(v, "<s>ab", VOCAB_PARSE_SPECIAL), 1);
            /* a chat whose template wrote none, and raw text: nothing is added unasked */
            assert_int_equal(count_bos(v, "ab", VOCAB_PARSE_SPECIAL), 0);
            assert_int_equal(count_bos(v, "ab", 0), 0);
            vocab_free(v);
        }
}

static void roles_may_be_absent(void **state)
{
    (void)state;
    static const char *const names[] = {"bos",       "eos",     "eot",     "eom",     "unknown",
                                        "seperator", "padding", "mask",    "cls",     "fim_pre",
                                        "fim_suf",   "fim_mid", "fim_pad", "fim_rep", "fim_sep"};
    for (size_t absent = 0; absent <= sizeof names / sizeof names[0]; absent++) {
        struct mkvocab m = {0};
        struct vocab *v = NULL;
        linnet_error e;
        tokens.n = 0;
        mktokens_alphabet(&tokens);
        mkvocab_str(&m, "tokenizer.ggml.model", "gpt2");
        mkvocab_str(&m, "tokenizer.ggml.pre", "llama-bpe");
        mktokens_put(&tokens, &m, false);
        mkvocab_strs(&m, "tokenizer.ggml.merges", merges, 0);
        mkvocab_bool(&m, "tokenizer.ggml.add_bos_token", true);
        mkvocab_bool(&m, "tokenizer.ggml.add_eos_token", true);
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
            char key[80];
            snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", names[i]);
            if (i != absent)
                mkvocab_u32(&m, key, 10 + (uint32_t)i);
        }
        assert_ok(mkvocab_load(&m, &v, &e), e);
        for (enum vocab_special s = 0; s < VOCAB_SPECIAL_COUNT; s++)
            assert_true(vocab_special(v, s) >= -1 && vocab_special(v, s) < 256);
        assert_int_equal(vocab_special(v, VOCAB_BOS), absent == 0 ? -1 : 10);
        assert_int_equal(vocab_special(v, VOCAB_EOS), absent == 1 ? -1 : 11);
        assert_int_equal(vocab_special(v, VOCAB_NL), '\n');
        assert_string_equal(ids_of(v, "z", VOCAB_ADD_SPECIAL), absent == 0   ? "122 11"
                                                               : absent == 1 ? "10 122"
                                                                             : "10 122 11");
        assert_false(vocab_is_eog(v, -1));
        assert_int_equal(vocab_is_eog(v, 11), absent != 1);
        vocab_free(v);
    }
}

static void end_tokens_are_known_by_key_and_by_name(void **state)
{
    (void)state;
    struct vocab *v = bpe("gpt-2", -1);
    assert_true(vocab_is_eog(v, EOS));
    assert_true(vocab_is_eog(v, EOT));
    assert_int_equal(vocab_special(v, VOCAB_EOT), EOT);
    assert_false(vocab_is_eog(v, BOS));
    assert_false(vocab_is_eog(v, TOOL));
    assert_false(vocab_is_eog(v, 100000));
    vocab_free(v);
}

/* A vocabulary learned from web pages may have </s> as ordinary text. */
static void an_ordinary_token_keeps_its_meaning_whatever_its_text(void **state)
{
    (void)state;
    static const char *const html[] = {"s >", "/ s>", "< /s>", "< s>"};
    struct mkvocab m = {0};
    struct vocab *v = NULL;
    linnet_error e;
    tokens.n = 0;
    mktokens_alphabet(&tokens);
    mktoken(&tokens, "s>", VOCAB_TYPE_NORMAL, 0);
    mktoken(&tokens, "/s>", VOCAB_TYPE_NORMAL, 0);
    mktoken(&tokens, "</s>", VOCAB_TYPE_NORMAL, 0);
    mktoken(&tokens, "<s>", VOCAB_TYPE_NORMAL, 0);
    mkvocab_str(&m, "tokenizer.ggml.model", "gpt2");
    mkvocab_str(&m, "tokenizer.ggml.pre", "superbpe"); /* does not cut here */
    mktokens_put(&tokens, &m, false);
    mkvocab_strs(&m, "tokenizer.ggml.merges", html, 4);
    assert_ok(mkvocab_load(&m, &v, &e), e);
    assert_int_equal(vocab_type(v, 258), VOCAB_TYPE_NORMAL);
    assert_false(vocab_is_eog(v, 258));
    assert_string_equal(ids_of(v, "</s>", 0), "258");
    vocab_free(v);
}

/* ---- decoding -------------------------------------------------------------------------------- */

static void a_stream_gives_whole_characters_and_every_byte(void **state)
{
    (void)state;
    /* every way to cut this into 1 to 6 byte tokens comes out the same */
    static const char text[] = "a\xF0\x9F\xA6\x99\xC3\xA9\xE4\xB8\xAD\xE2\x82";
    struct vocab *v = bpe("gpt-2", -1);
    struct detok d;
    char piece[64], all[64];
    size_t n, total = 0;
    linnet_error e;
    assert_true(detok_room(v) <= sizeof piece);
    detok_init(&d, v, 0);
    for (size_t i = 0; text[i]; i++) {
        assert_ok(detok_push(&d, (uint8_t)text[i], piece, &n, &e), e);
        assert_int_equal(utf8_valid_prefix(piece, n), n);
        memcpy(all + total, piece, n);
        total += n;
    }
    assert_int_equal(total, strlen(text) - 2); /* the last character never ended */
    n = detok_flush(&d, piece);
    assert_int_equal(n, 2);
    memcpy(all + total, piece, n);
    assert_memory_equal(all, text, strlen(text));
    assert_int_equal(detok_flush(&d, piece), 0);
    assert_int_equal(detok_push(&d, 99999, piece, &n, &e), LINNET_INVALID);
    vocab_free(v);
}

static void a_stream_equals_the_whole_for_any_ids(void **state)
{
    (void)state;
    struct vocab *vocabs[] = {bpe("gpt-2", -1), spm(-1)};
    for (size_t k = 0; k < 2; k++) {
        const struct vocab *v = vocabs[k];
        for (size_t round = 0; round < 500; round++) {
            int32_t ids[24];
            char whole[1200], stream[1200], piece[100];
            size_t n = next_random(24), n_whole, n_stream = 0, got;
            unsigned flags = round & 1 ? VOCAB_SHOW_SPECIAL : 0;
            struct detok d;
            linnet_error e;
            for (size_t i = 0; i < n; i++)
                ids[i] = (int32_t)next_random((uint32_t)vocab_size(v));
            assert_ok(vocab_decode(v, ids, n, flags, whole, sizeof whole, &n_whole, &e), e);
            detok_init(&d, v, flags);
            for (size_t i = 0; i < n; i++, n_stream += got) {
                assert_ok(detok_push(&d, ids[i], piece, &got, &e), e);
                memcpy(stream + n_stream, piece, got);
            }
            got = detok_flush(&d, piece);
            assert_true(got <= 3);
            memcpy(stream + n_stream, piece, got);
            assert_int_equal(n_stream + got, n_whole);
            assert_memory_equal(stream, whole, n_whole);
        }
        vocab_free(vocabs[k]);
    }
}

static void added_ends_can_be_removed(void **state)
{
    (void)state;
    struct vocab *v = spm(1);
    const int32_t ids[] = {SPM_BOS, SPM_MARK_A, SPM_B, 2};
    assert_string_equal(text_of(v, ids, 4, VOCAB_SHOW_SPECIAL), "<s> ab</s>");
    assert_string_equal(text_of(v, ids, 4, VOCAB_SHOW_SPECIAL | VOCAB_REMOVE_SPECIAL),
                        " ab</s>"); /* no EOS is added */
    assert_string_equal(text_of(v, ids + 1, 2, VOCAB_STRIP_PREFIX), "ab");
    assert_string_equal(text_of(v, ids, 4, 0), " ab");
    vocab_free(v);
}

static void spaces_are_cleaned_only_when_asked(void **state)
{
    (void)state;
    struct vocab *v = bpe("gpt-2", -1);
    const char *text = "it 's , a ' b ! don 't we 've";
    int32_t ids[100];
    size_t n;
    linnet_error e;
    assert_ok(vocab_encode(v, text, strlen(text), 0, ids, 100, &n, &e), e);
    assert_string_equal(text_of(v, ids, n, 0), text);
    assert_string_equal(text_of(v, ids, n, VOCAB_CLEAN_SPACES), "it's, a'b! don 't we've");
    vocab_free(v);
}

/* ---- threads --------------------------------------------------------------------------------- */

static const char shared_text[] = "abc ab cc 's <tool_call> HELLO 123 \xE4\xB8\xAD";
static int32_t shared_ids[64];
static size_t shared_n;

static void *encode_often(void *arg)
{
    intptr_t wrong = 0;
    for (int i = 0; i < 300; i++) {
        int32_t ids[64];
        size_t n;
        linnet_error e;
        wrong +=
            vocab_encode(arg, shared_text, strlen(shared_text), 0, ids, 64, &n, &e) != LINNET_OK ||
            n != shared_n || memcmp(ids, shared_ids, n * sizeof *ids) != 0;
    }
    return (void *)wrong;
}

static void threads_share_a_vocabulary(void **state)
{
    (void)state;
    struct vocab *v = bpe("llama-bpe", -1);
    pthread_t threads[3];
    void *wrong;
    linnet_error e;
    assert_ok(vocab_encode(v, shared_text, strlen(shared_text), 0, shared_ids, 64, &shared_n, &e),
              e);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, encode_often, v), 0);
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
    vocab_free(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_go_by_rank_then_from_the_left),
        cmocka_unit_test(words_of_every_length_merge_as_the_plain_way_does),
        cmocka_unit_test(any_bytes_are_given_back_by_every_pre_tokenizer),
        cmocka_unit_test(words_cover_the_text_and_the_shortcut_changes_none),
        cmocka_unit_test(long_runs_of_anything_are_encoded),
        cmocka_unit_test(a_call_without_room_says_how_much_it_needs),
        cmocka_unit_test(spm_merges_the_best_score_first),
        cmocka_unit_test(a_marked_token_starts_a_new_text),
        cmocka_unit_test(untrusted_text_never_becomes_a_control_token),
        cmocka_unit_test(trusted_parts_keep_their_control_tokens),
        cmocka_unit_test(user_defined_tokens_are_found_everywhere_and_the_longest_wins),
        cmocka_unit_test(there_is_one_bos_where_one_belongs_and_none_elsewhere),
        cmocka_unit_test(roles_may_be_absent),
        cmocka_unit_test(end_tokens_are_known_by_key_and_by_name),
        cmocka_unit_test(an_ordinary_token_keeps_its_meaning_whatever_its_text),
        cmocka_unit_test(a_stream_gives_whole_characters_and_every_byte),
        cmocka_unit_test(a_stream_equals_the_whole_for_any_ids),
        cmocka_unit_test(added_ends_can_be_removed),
        cmocka_unit_test(spaces_are_cleaned_only_when_asked),
        cmocka_unit_test(threads_share_a_vocabulary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
