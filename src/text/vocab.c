/*
 * Loading a vocabulary from a GGUF file: tokens, scores, types, merges, then every index that
 * encoding needs.
 *
 * Nothing in the file is believed: counts, element types, lengths and ids are checked here, once;
 * afterwards ids below n_tokens are safe to use as indexes. All memory is one arena. A merge that
 * names a part or a result outside the vocabulary can produce no token and is left out.
 */
#include "base/checked.h"
#include "base/limits.h"
#include "text/vocab_impl.h"

#include <math.h>
#include <stdlib.h>

#define KEY(name) "tokenizer.ggml." name

static linnet_status no_room(linnet_error *e)
{
    return err_memory(e, "a vocabulary", 0);
}

/* ---- reading --------------------------------------------------------------------------------- */

static linnet_status read_name(struct vocab *v, const struct gguf *g, const char *key,
                               const char **out, linnet_error *e)
{
    struct gguf_str s = {"", 0};
    linnet_status status = gguf_get_str(g, key, &s, e);
    if (status != LINNET_OK && status != LINNET_NOT_FOUND)
        return status;
    if (status == LINNET_OK && (s.n > 256 || memchr(s.s, '\0', s.n)))
        return err_set(e, LINNET_FORMAT, "%s is not a name", key);
    *out = arena_strndup(&v->arena, s.s, s.n);
    return *out ? LINNET_OK : no_room(e);
}

static linnet_status read_model(struct vocab *v, const struct gguf *g, linnet_error *e)
{
    static const struct {
        const char *name;
        enum vocab_kind kind;
    } models[] = {{"llama", VOCAB_SPM},      {"gpt2", VOCAB_BPE},   {"gemma4", VOCAB_BPE},
                  {"bert", VOCAB_WORDPIECE}, {"t5", VOCAB_UNIGRAM}, {"rwkv", VOCAB_RWKV}};
    linnet_status status = read_name(v, g, KEY("model"), &v->model, e);
    if (status == LINNET_OK)
        status = read_name(v, g, KEY("pre"), &v->pre, e);
    if (status != LINNET_OK)
        return status;
    if (!v->model[0] || strcmp(v->model, "none") == 0 || strcmp(v->model, "no_vocab") == 0)
        return err_set(e, LINNET_NOT_FOUND, "the file has no vocabulary (%s is %s)", KEY("model"),
                       v->model[0] ? v->model : "absent");
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        if (strcmp(models[i].name, v->model) == 0) {
            v->kind = models[i].kind;
            return LINNET_OK;
        }
    return err_set(e, LINNET_UNSUPPORTED, "%s is '%.100s', a vocabulary this version does not know",
                   KEY("model"), v->model);
}

/* The array `key` with exactly n elements of exactly this type; *out is NULL when it is absent. */
static linnet_status read_array(const struct gguf *g, const char *key, enum gguf_type elem,
                                size_t n, const struct gguf_kv **out, linnet_error *e)
{
    *out = gguf_find(g, key);
    if (!*out)
        return LINNET_OK;
    if ((*out)->type != GGUF_ARRAY || (*out)->elem != elem)
        return err_set(e, LINNET_FORMAT, "%s must be an array of %s", key,
                       elem == GGUF_F32 ? "float32" : "int32");
    if ((*out)->count != n)
        return err_set(e, LINNET_FORMAT, "%s has %llu elements for %zu tokens", key,
                       (unsigned long long)(*out)->count, n);
    return LINNET_OK;
}

static linnet_status read_texts(struct vocab *v, const struct gguf *g, linnet_error *e)
{
    const struct gguf_kv *kv;
    size_t n, total = 0;
    linnet_status status = gguf_get_array(g, KEY("tokens"), GGUF_KIND_STR, &kv, &n, e);
    if (status == LINNET_NOT_FOUND)
        return err_set(e, LINNET_FORMAT, "the file names a vocabulary but has no %s",
                       KEY("tokens"));
    if (status != LINNET_OK)
        return status;
    if (n == 0 || n > LIMIT_VOCAB)
        return err_set(e, LINNET_LIMIT, "%s has %zu tokens; 1 to %d are possible", KEY("tokens"), n,
                       LIMIT_VOCAB);
    for (size_t i = 0; i < n; i++) {
        struct gguf_str s = gguf_str_at(kv, i);
        if (s.n > LIMIT_TOKEN_BYTES)
            return err_set(e, LINNET_LIMIT, "token %zu has %zu bytes; %d are possible", i, s.n,
                           LIMIT_TOKEN_BYTES);
        total += s.n; /* at most 2^24 * 2^16 */
    }
    v->n_tokens = n;
    v->texts = ARENA_ARRAY(&v->arena, n, struct str);
    char *blob = ARENA_ARRAY(&v->arena, total + 1, char);
    if (!v->texts || !blob || !strmap_init(&v->by_text, &v->arena, v->texts, n))
        return no_room(e);
    for (size_t i = 0; i < n; i++) {
        struct gguf_str s = gguf_str_at(kv, i);
        if (s.n)
            memcpy(blob, s.s, s.n);
        v->texts[i] = (struct str){blob, (uint32_t)s.n};
        blob += s.n;
        if (s.n)
            strmap_put(&v->by_text, (int32_t)i);
    }
    return LINNET_OK;
}

static linnet_status read_properties(struct vocab *v, const struct gguf *g, linnet_error *e)
{
    const struct gguf_kv *scores, *types;
    size_t n = v->n_tokens;
    linnet_status status = read_array(g, KEY("scores"), GGUF_F32, n, &scores, e);
    if (status == LINNET_OK)
        status = read_array(g, KEY("token_type"), GGUF_I32, n, &types, e);
    if (status != LINNET_OK)
        return status;
    v->scores = ARENA_ARRAY(&v->arena, n, float);
    v->types = ARENA_ARRAY(&v->arena, n, uint8_t);
    v->flags = ARENA_ARRAY(&v->arena, n, uint8_t);
    if (!v->scores || !v->types || !v->flags)
        return no_room(e);
    for (size_t i = 0; i < n; i++) {
        v->scores[i] = scores ? (float)gguf_float_at(scores, i) : 0.0f;
        int64_t type = types ? gguf_int_at(types, i) : VOCAB_TYPE_NORMAL;
        if (type < VOCAB_TYPE_UNDEFINED || type > VOCAB_TYPE_BYTE)
            return err_set(e, LINNET_FORMAT, "%s of token %zu is %lld, not one of 0 to 6",
                           KEY("token_type"), i, (long long)type);
        if (!isfinite(v->scores[i]))
            return err_set(e, LINNET_FORMAT, "%s of token %zu is not finite", KEY("scores"), i);
        v->types[i] = (uint8_t)type;
    }
    return LINNET_OK;
}

static linnet_status read_merges(struct vocab *v, const struct gguf *g, linnet_error *e)
{
    const struct gguf_kv *kv;
    size_t n;
    linnet_status status = gguf_get_array(g, KEY("merges"), GGUF_KIND_STR, &kv, &n, e);
    if (status == LINNET_NOT_FOUND)
        return err_set(e, LINNET_FORMAT, "a '%s' vocabulary needs %s, which the file lacks",
                       v->model, KEY("merges"));
    if (status != LINNET_OK)
        return status;
    if (n > LIMIT_MERGES)
        return err_set(e, LINNET_LIMIT, "%s has %zu entries; %d are possible", KEY("merges"), n,
                       LIMIT_MERGES);
    v->learned = ARENA_ARRAY(&v->arena, v->n_tokens, bool);
    if (!v->learned || !pairmap_init(&v->merges, &v->arena, n))
        return no_room(e);
    char joined[256], *text;
    for (size_t i = 0; i < n; i++) {
        struct gguf_str s = gguf_str_at(kv, i);
        const char *space = s.n > 2 ? memchr(s.s + 1, ' ', s.n - 2) : NULL;
        if (!space)
            return err_set(e, LINNET_FORMAT, "%s entry %zu is not two tokens with a space between",
                           KEY("merges"), i);
        size_t left = (size_t)(space - s.s), right = s.n - left - 1;
        int32_t l = strmap_get(&v->by_text, s.s, left);
        int32_t r = strmap_get(&v->by_text, space + 1, right);
        if (l < 0 || r < 0 || left + right > v->by_text.max_len)
            continue;
        text = left + right <= sizeof joined ? joined : malloc(left + right);
        if (!text)
            return no_room(e);
        memcpy(text, s.s, left);
        memcpy(text + left, space + 1, right);
        int32_t both = strmap_get(&v->by_text, text, left + right);
        if (text != joined)
            free(text);
        if (both < 0)
            continue;
        pairmap_put(&v->merges, l, r, (uint32_t)i, both);
        v->learned[both] = true;
    }
    return LINNET_OK;
}

static linnet_status read_bpe(struct vocab *v, const struct gguf *g, linnet_error *e)
{
    if (strcmp(v->model, "gemma4") == 0)
        v->pre = "gemma4";
    linnet_status status = pretok_create(v->pre, &v->pretok, e);
    if (status != LINNET_OK)
        return status;
    unsigned flags = pretok_flags(v->pretok);
    v->chars = flags & PRETOK_CHARS;
    v->whole_words = flags & PRETOK_WHOLE_WORDS;
    v->clean_spaces = flags & PRETOK_CLEAN_SPACES;
    v->nfc = flags & PRETOK_NFC;
    status = gguf_get_bool(g, KEY("normalizer.nfc"), &v->nfc, e);
    if (status != LINNET_OK && status != LINNET_NOT_FOUND)
        return status;
    return read_merges(v, g, e);
}

static linnet_status read_bert(struct vocab *v, const struct gguf *g, linnet_error *e)
{
    v->clean_spaces = true;
    v->lowercase = true;
    linnet_status status = gguf_get_bool(g, KEY("normalizer.lowercase"), &v->lowercase, e);
    if (status != LINNET_OK && status != LINNET_NOT_FOUND)
        return status;
    v->strip_accents = v->lowercase;
    status = gguf_get_bool(g, KEY("normalizer.strip_accents"), &v->strip_accents, e);
    return status == LINNET_NOT_FOUND ? LINNET_OK : status;
}

static linnet_status read_charsmap(struct vocab *v, const struct gguf *g, linnet_error *e)
{
    const char *key = KEY("precompiled_charsmap");
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv)
        return LINNET_OK;
    if (kv->type != GGUF_ARRAY || (kv->elem != GGUF_U8 && kv->elem != GGUF_I8))
        return err_set(e, LINNET_FORMAT, "%s must be an array of bytes", key);
    if (kv->count == 0)
        return LINNET_OK;
    void *copy = ARENA_ARRAY(&v->arena, (size_t)kv->count, char);
    if (!copy)
        return no_room(e);
    memcpy(copy, kv->value, (size_t)kv->count);
    return charsmap_init(&v->charsmap, copy, (size_t)kv->count, e);
}

/* ---- pieces ---------------------------------------------------------------------------------- */

/* The byte that a character of the GPT-2 alphabet stands for, or -1. Printable bytes stand for
 * themselves, the 68 others are U+0100 and up in their order. */
static int alphabet_byte(uint32_t cp)
{
    if ((cp >= 0x21 && cp <= 0x7E) || (cp >= 0xA1 && cp <= 0xAC) || (cp >= 0xAE && cp <= 0xFF))
        return (int)cp;
    if (cp < 0x100 || cp >= 0x100 + 68)
        return -1;
    cp -= 0x100;
    return (int)(cp < 33 ? cp : cp < 67 ? cp + 0x7F - 33 : 0xAD);
}

static size_t alphabet_piece(struct str text, char *out)
{
    size_t n = 0;
    for (size_t i = 0; i < text.n;) {
        uint32_t cp;
        size_t len = utf8_decode(text.s + i, text.n - i, &cp);
        int byte = alphabet_byte(cp);
        if (byte >= 0) {
            out[n++] = (char)byte;
        } else {
            memcpy(out + n, text.s + i, len);
            n += len;
        }
        i += len;
    }
    return n;
}

static size_t marks_to_spaces(struct str text, char *out)
{
    size_t n = 0;
    for (size_t i = 0; i < text.n;) {
        if (text.n - i >= SPACE_MARK_N && memcmp(text.s + i, SPACE_MARK, SPACE_MARK_N) == 0) {
            out[n++] = ' ';
            i += SPACE_MARK_N;
        } else {
            out[n++] = text.s[i++];
        }
    }
    return n;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'                 ? c - '0'
           : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                : -1;
}

static size_t unescape(struct str text, char *out)
{
    size_t n = 0;
    for (size_t i = 0; i < text.n; i++) {
        char c = text.s[i];
        if (c != '\\' || i + 1 == text.n) {
            out[n++] = c;
            continue;
        }
        c = text.s[++i];
        if (c == 'x' && text.n - i > 2 && hex_digit(text.s[i + 1]) >= 0 &&
            hex_digit(text.s[i + 2]) >= 0) {
            out[n++] = (char)(hex_digit(text.s[i + 1]) * 16 + hex_digit(text.s[i + 2]));
            i += 2;
        } else {
            out[n++] = c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c;
        }
    }
    return n;
}

/* The byte of "<0xNN>", or -1. */
static int byte_token(struct str t)
{
    if (t.n != 6 || memcmp(t.s, "<0x", 3) != 0 || t.s[5] != '>' || hex_digit(t.s[3]) < 0 ||
        hex_digit(t.s[4]) < 0)
        return -1;
    return hex_digit(t.s[3]) * 16 + hex_digit(t.s[4]);
}

static bool byte_level(const struct vocab *v)
{
    return v->kind == VOCAB_BPE && !v->chars;
}

static size_t make_piece(const struct vocab *v, int32_t id, char *out)
{
    struct str text = v->texts[id];
    enum vocab_type type = v->types[id];
    bool marked =
        type == VOCAB_TYPE_CONTROL || type == VOCAB_TYPE_UNKNOWN || type == VOCAB_TYPE_USER;
    int byte = type == VOCAB_TYPE_BYTE ? byte_token(text) : -1;
    if (byte >= 0) {
        out[0] = (char)byte;
        return 1;
    }
    if (v->kind == VOCAB_RWKV)
        return unescape(text, out);
    if (marked) {
        memcpy(out, text.s, text.n);
        return text.n;
    }
    return byte_level(v) ? alphabet_piece(text, out) : marks_to_spaces(text, out);
}

/* Pieces are never longer than texts. */
static linnet_status make_pieces(struct vocab *v, linnet_error *e)
{
    size_t total = 0;
    for (size_t i = 0; i < v->n_tokens; i++)
        total += v->texts[i].n;
    char *blob = ARENA_ARRAY(&v->arena, total + 1, char);
    v->pieces = ARENA_ARRAY(&v->arena, v->n_tokens, struct str);
    if (!blob || !v->pieces)
        return no_room(e);
    for (size_t i = 0; i < v->n_tokens; i++) {
        size_t n = make_piece(v, (int32_t)i, blob);
        v->pieces[i] = (struct str){blob, (uint32_t)n};
        blob += n;
        if (n > v->max_piece)
            v->max_piece = (uint32_t)n;
    }
    return LINNET_OK;
}

/* ---- indexes --------------------------------------------------------------------------------- */

/* May ordinary text become this token? */
static bool ordinary(const struct vocab *v, int32_t id)
{
    switch (v->types[id]) {
    case VOCAB_TYPE_NORMAL:
    case VOCAB_TYPE_UNDEFINED:
    case VOCAB_TYPE_UNUSED: return v->texts[id].n > 0;
    case VOCAB_TYPE_USER: return !byte_level(v) && v->texts[id].n > 0;
    default: return false;
    }
}

static bool make_words(struct vocab *v)
{
    if (!strmap_init(&v->words, &v->arena, byte_level(v) ? v->pieces : v->texts, v->n_tokens))
        return false;
    for (size_t b = 0; b < 256; b++)
        v->bytes[b] = -1;
    bool by_piece = byte_level(v) || v->kind == VOCAB_RWKV;
    for (size_t i = 0; i < v->n_tokens; i++) {
        int32_t id = (int32_t)i;
        int byte = -1;
        if (by_piece)
            byte = ordinary(v, id) && v->pieces[i].n == 1 ? (uint8_t)v->pieces[i].s[0] : -1;
        else if (v->types[i] == VOCAB_TYPE_BYTE)
            byte = byte_token(v->texts[i]);
        if (byte >= 0 && v->bytes[byte] < 0)
            v->bytes[byte] = id;
        if (ordinary(v, id) && (!byte_level(v) || v->pieces[i].n > 0))
            strmap_put(&v->words, id);
    }
    v->special[VOCAB_NL] = v->kind == VOCAB_WORDPIECE ? -1 : strmap_get(&v->words, "\n", 1);
    if (v->special[VOCAB_NL] < 0)
        v->special[VOCAB_NL] = v->bytes['\n'];
    return true;
}

static int compare_ranked(const void *a, const void *b, void *arg)
{
    const float *scores = arg;
    float x = scores[*(const int32_t *)a], y = scores[*(const int32_t *)b];
    return x > y ? -1 : x < y;
}

/* Ranks from scores, the best 0, equal scores equal ranks. */
static bool make_ranks(struct vocab *v)
{
    v->rank = ARENA_ARRAY(&v->arena, v->n_tokens, uint32_t);
    int32_t *order = malloc(v->n_tokens * sizeof *order);
    if (!v->rank || !order) {
        free(order);
        return false;
    }
    for (size_t i = 0; i < v->n_tokens; i++)
        order[i] = (int32_t)i;
    qsort_r(order, v->n_tokens, sizeof *order, compare_ranked, v->scores);
    uint32_t rank = 0;
    for (size_t i = 0; i < v->n_tokens; i++) {
        if (i && v->scores[order[i]] != v->scores[order[i - 1]])
            rank++;
        v->rank[order[i]] = rank;
    }
    free(order);
    return true;
}

static int compare_cp(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* Call out(cp) for each character before a mark inside the tokens; returns how many there are. */
static size_t scan_marks(const struct vocab *v, uint32_t *out)
{
    size_t count = 0;
    for (size_t i = 0; i < v->n_tokens; i++) {
        if (!ordinary(v, (int32_t)i))
            continue;
        struct str t = v->texts[i];
        uint32_t before = 0x2581, cp;
        for (size_t k = 0; k < t.n; before = cp) {
            k += utf8_decode(t.s + k, t.n - k, &cp);
            if (cp != 0x2581 || before == 0x2581)
                continue;
            if (out)
                out[count] = before;
            count++;
        }
    }
    return count;
}

/* Does ordinary text of this one ASCII character or mark have tokens of its own? Only then may
 * text be cut beside it: unknown neighbours must meet, to become one unknown token. */
static bool stands_alone(const struct vocab *v, const char *s, size_t n)
{
    return strmap_get(&v->words, s, n) >= 0 || (n == 1 && v->bytes[(uint8_t)s[0]] >= 0);
}

static void make_joined(struct vocab *v)
{
    bool alone[128];
    for (unsigned a = 0; a < 128; a++)
        alone[a] = stands_alone(v, &(char){(char)a}, 1);
    for (unsigned a = 0; a < 128; a++)
        for (unsigned b = 0; b < 128; b++)
            if (!alone[a] || !alone[b])
                v->joined[a][b >> 3] |= (uint8_t)(1u << (b & 7));
    for (size_t i = 0; i < v->n_tokens; i++) {
        if (!ordinary(v, (int32_t)i))
            continue;
        struct str t = v->texts[i];
        for (size_t k = 1; k < t.n; k++) {
            uint8_t a = (uint8_t)t.s[k - 1], b = (uint8_t)t.s[k];
            if ((a | b) < 0x80)
                v->joined[a][b >> 3] |= (uint8_t)(1u << (b & 7));
        }
    }
    v->mark_cuts = stands_alone(v, SPACE_MARK, SPACE_MARK_N);
}

/* Where text may be cut. */
static bool make_cuts(struct vocab *v)
{
    size_t n = scan_marks(v, NULL), kept = 0;
    uint32_t *cps = ARENA_ARRAY(&v->arena, n + 1, uint32_t);
    if (!cps)
        return false;
    scan_marks(v, cps);
    qsort(cps, n, sizeof *cps, compare_cp);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || cps[i] != cps[i - 1])
            cps[kept++] = cps[i];
    v->before_mark = cps;
    v->n_before_mark = kept;
    make_joined(v);
    return true;
}

static bool is_marked(const struct vocab *v, int32_t id)
{
    return v->texts[id].n > 0 &&
           (v->types[id] == VOCAB_TYPE_CONTROL || v->types[id] == VOCAB_TYPE_UNKNOWN ||
            v->types[id] == VOCAB_TYPE_USER);
}

static bool in_trie(const struct vocab *v, int32_t id)
{
    return ordinary(v, id) && v->pieces[id].n > 0;
}

static bool make_trie(struct vocab *v, struct trie *t, const struct str *keys,
                      bool (*member)(const struct vocab *v, int32_t id))
{
    int32_t *ids = malloc(v->n_tokens * sizeof *ids);
    size_t n = 0;
    for (size_t i = 0; ids && i < v->n_tokens; i++)
        if (member(v, (int32_t)i))
            ids[n++] = (int32_t)i;
    bool ok = ids && trie_init(t, &v->arena, keys, ids, n);
    free(ids);
    return ok;
}

/* What an unknown character costs (ten less than the worst token), and the characters that the map
 * leaves alone. */
static bool make_unigram(struct vocab *v)
{
    float least = INFINITY;
    for (size_t i = 0; i < v->n_tokens; i++)
        if (v->types[i] == VOCAB_TYPE_NORMAL && v->scores[i] < least)
            least = v->scores[i];
    v->unk_score = (least < INFINITY ? least : 0.0f) - 10.0f;
    struct bytes out = {0};
    bool ok = true;
    for (unsigned b = 1; ok && v->charsmap.trie && b < 128; b++) {
        char c = (char)b;
        out.n = 0;
        ok = normal_charsmap(&out, &v->charsmap, &c, 1);
        v->charsmap.plain[b] = ok && out.n == 1 && out.s[0] == c;
    }
    free(out.s);
    return ok;
}

static bool make_indexes(struct vocab *v)
{
    if (!make_words(v) || !make_trie(v, &v->marked, v->texts, is_marked))
        return false;
    for (size_t b = 0; b < 256; b++)
        v->marked_first[b] = v->marked.root[b] != 0;
    switch (v->kind) {
    case VOCAB_SPM: return make_ranks(v) && make_cuts(v);
    case VOCAB_BPE: return !v->chars || make_cuts(v);
    case VOCAB_UNIGRAM:
        return make_unigram(v) && make_cuts(v) && make_trie(v, &v->trie, v->texts, in_trie);
    case VOCAB_WORDPIECE: return make_trie(v, &v->trie, v->texts, in_trie);
    case VOCAB_RWKV: return make_trie(v, &v->trie, v->pieces, in_trie);
    }
    return false;
}

static linnet_status load(struct vocab *v, const struct gguf *g, linnet_error *e)
{
    linnet_status status = read_model(v, g, e);
    if (status == LINNET_OK)
        status = read_texts(v, g, e);
    if (status == LINNET_OK)
        status = read_properties(v, g, e);
    if (status == LINNET_OK && v->kind == VOCAB_BPE)
        status = read_bpe(v, g, e);
    if (status == LINNET_OK && v->kind == VOCAB_WORDPIECE)
        status = read_bert(v, g, e);
    if (status == LINNET_OK && v->kind == VOCAB_UNIGRAM)
        status = read_charsmap(v, g, e);
    if (status == LINNET_OK && !normal_available() &&
        (v->nfc || v->kind == VOCAB_WORDPIECE || v->charsmap.trie))
        status =
            err_set(e, LINNET_UNSUPPORTED,
                    "this vocabulary normalises text, which a build without utf8proc cannot do");
    if (status == LINNET_OK)
        status = vocab_load_roles(v, g, e);
    if (status == LINNET_OK)
        status = make_pieces(v, e);
    if (status == LINNET_OK && !make_indexes(v))
        status = no_room(e);
    return status;
}

linnet_status vocab_load(const struct gguf *g, struct vocab **out, linnet_error *e)
{
    struct vocab *v = calloc(1, sizeof *v);
    if (!v)
        return no_room(e);
    arena_init(&v->arena, SIZE_MAX / 2); /* every size below is bounded by the file's own */
    linnet_status status = load(v, g, e);
    if (status != LINNET_OK) {
        vocab_free(v);
        return status;
    }
    *out = v;
    return LINNET_OK;
}

void vocab_free(struct vocab *v)
{
    if (!v)
        return;
    pretok_destroy(v->pretok);
    arena_free(&v->arena);
    free(v);
}

/* ---- properties ------------------------------------------------------------------------------ */

enum vocab_kind vocab_kind(const struct vocab *v)
{
    return v->kind;
}

const char *vocab_model(const struct vocab *v)
{
    return v->model;
}

const char *vocab_pre(const struct vocab *v)
{
    return v->pre;
}

size_t vocab_size(const struct vocab *v)
{
    return v->n_tokens;
}

size_t vocab_bytes(const struct vocab *v)
{
    return v->arena.used + sizeof *v;
}

int32_t vocab_special(const struct vocab *v, enum vocab_special which)
{
    return (unsigned)which < VOCAB_SPECIAL_COUNT ? v->special[which] : -1;
}

int32_t vocab_find(const struct vocab *v, const char *s, size_t n)
{
    return n ? strmap_get(&v->by_text, s, n) : -1;
}

int32_t vocab_byte(const struct vocab *v, uint8_t b)
{
    return v->bytes[b];
}

bool vocab_add_bos(const struct vocab *v)
{
    return v->add_bos;
}

bool vocab_add_eos(const struct vocab *v)
{
    return v->add_eos;
}

bool vocab_add_space_prefix(const struct vocab *v)
{
    return v->add_space_prefix;
}
