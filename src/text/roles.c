/*
 * Roles of tokens: begin, end, padding and the like; which tokens end a generation; which swallow
 * the white space beside them; what ADD_SPECIAL adds.
 *
 * Keys of the file come first. Where a key is absent a token is recognised by a text that
 * published models use, but only when it was put into the vocabulary by hand: a token that
 * ordinary text can become (a merge makes it, or it is a normal token with a text people write)
 * keeps its ordinary meaning. A role may end up without a token; then its id is -1 and nothing may
 * assume otherwise.
 */
#include "text/vocab_impl.h"

#include <ctype.h>

int32_t vocab_named(const struct vocab *v, const char *s)
{
    return strmap_get(&v->by_text, s, strlen(s));
}

static const struct {
    enum vocab_special role;
    const char *key;
} keys[] = {
    {VOCAB_BOS, "tokenizer.ggml.bos_token_id"},
    {VOCAB_EOS, "tokenizer.ggml.eos_token_id"},
    {VOCAB_EOT, "tokenizer.ggml.eot_token_id"},
    {VOCAB_EOM, "tokenizer.ggml.eom_token_id"},
    {VOCAB_UNK, "tokenizer.ggml.unknown_token_id"},
    {VOCAB_SEP, "tokenizer.ggml.seperator_token_id"}, /* so spelt in files */
    {VOCAB_PAD, "tokenizer.ggml.padding_token_id"},
    {VOCAB_MASK, "tokenizer.ggml.mask_token_id"},
    {VOCAB_CLS, "tokenizer.ggml.cls_token_id"},
    {VOCAB_FIM_PRE, "tokenizer.ggml.fim_pre_token_id"},
    {VOCAB_FIM_SUF, "tokenizer.ggml.fim_suf_token_id"},
    {VOCAB_FIM_MID, "tokenizer.ggml.fim_mid_token_id"},
    {VOCAB_FIM_PAD, "tokenizer.ggml.fim_pad_token_id"},
    {VOCAB_FIM_REP, "tokenizer.ggml.fim_rep_token_id"},
    {VOCAB_FIM_SEP, "tokenizer.ggml.fim_sep_token_id"},
    {VOCAB_FIM_PRE, "tokenizer.ggml.prefix_token_id"}, /* older names */
    {VOCAB_FIM_SUF, "tokenizer.ggml.suffix_token_id"},
    {VOCAB_FIM_MID, "tokenizer.ggml.middle_token_id"},
};

/* Ids a vocabulary model implies when its keys are absent. Taken only when the token there is
 * no ordinary one. */
static const struct {
    enum vocab_kind kind;
    enum vocab_special role;
    int32_t id;
} implied[] = {
    {VOCAB_SPM, VOCAB_UNK, 0},         {VOCAB_SPM, VOCAB_BOS, 1},
    {VOCAB_SPM, VOCAB_EOS, 2},         {VOCAB_WORDPIECE, VOCAB_PAD, 0},
    {VOCAB_WORDPIECE, VOCAB_UNK, 100}, {VOCAB_WORDPIECE, VOCAB_CLS, 101},
    {VOCAB_WORDPIECE, VOCAB_SEP, 102}, {VOCAB_WORDPIECE, VOCAB_MASK, 103},
    {VOCAB_UNIGRAM, VOCAB_PAD, 0},     {VOCAB_UNIGRAM, VOCAB_EOS, 1},
    {VOCAB_UNIGRAM, VOCAB_UNK, 2},
};

/* U+FF5C and U+2581, of which DeepSeek's names are made. */
#define BAR "\xEF\xBD\x9C"
#define LOW "\xE2\x96\x81"

/* Texts by which roles are known, best first. */
static const struct {
    enum vocab_special role;
    const char *text;
} named_roles[] = {
    {VOCAB_EOT, "<|eot_id|>"},
    {VOCAB_EOT, "<|im_end|>"},
    {VOCAB_EOT, "<|end|>"},
    {VOCAB_EOT, "<end_of_turn>"},
    {VOCAB_EOT, "<turn|>"},
    {VOCAB_EOT, "[EOT]"},
    {VOCAB_EOT, "<end_of_utterance>"},
    {VOCAB_EOT, "<|endoftext|>"},
    {VOCAB_EOT, "<|end_of_text|>"},
    {VOCAB_EOT, "<EOT>"},
    {VOCAB_EOT, "_<EOT>"},
    {VOCAB_EOT, LOW "<EOT>"},
    {VOCAB_EOT, "<" BAR "end" LOW "of" LOW "sentence" BAR ">"},
    {VOCAB_EOM, "<|eom_id|>"},
    {VOCAB_FIM_PRE, "<|fim_prefix|>"},
    {VOCAB_FIM_PRE, "<fim-prefix>"},
    {VOCAB_FIM_PRE, "<fim_prefix>"},
    {VOCAB_FIM_PRE, "<" BAR "fim" LOW "begin" BAR ">"},
    {VOCAB_FIM_PRE, "<PRE>"},
    {VOCAB_FIM_PRE, LOW "<PRE>"},
    {VOCAB_FIM_PRE, "<|code_prefix|>"},
    {VOCAB_FIM_PRE, "<|prefix|>"},
    {VOCAB_FIM_SUF, "<|fim_suffix|>"},
    {VOCAB_FIM_SUF, "<fim-suffix>"},
    {VOCAB_FIM_SUF, "<fim_suffix>"},
    {VOCAB_FIM_SUF, "<" BAR "fim" LOW "hole" BAR ">"},
    {VOCAB_FIM_SUF, "<SUF>"},
    {VOCAB_FIM_SUF, LOW "<SUF>"},
    {VOCAB_FIM_SUF, "<|code_suffix|>"},
    {VOCAB_FIM_SUF, "<|suffix|>"},
    {VOCAB_FIM_MID, "<|fim_middle|>"},
    {VOCAB_FIM_MID, "<fim-middle>"},
    {VOCAB_FIM_MID, "<fim_middle>"},
    {VOCAB_FIM_MID, "<" BAR "fim" LOW "end" BAR ">"},
    {VOCAB_FIM_MID, "<MID>"},
    {VOCAB_FIM_MID, LOW "<MID>"},
    {VOCAB_FIM_MID, "<|code_middle|>"},
    {VOCAB_FIM_MID, "<|middle|>"},
    {VOCAB_FIM_PAD, "<|fim_pad|>"},
    {VOCAB_FIM_PAD, "<fim-pad>"},
    {VOCAB_FIM_PAD, "<fim_pad>"},
    {VOCAB_FIM_REP, "<|fim_repo|>"},
    {VOCAB_FIM_REP, "<|repo_name|>"},
    {VOCAB_FIM_REP, "<fim-repo>"},
    {VOCAB_FIM_REP, "<REPO>"},
    {VOCAB_FIM_REP, "<reponame>"},
    {VOCAB_FIM_SEP, "<|file_sep|>"},
};

/* Texts of tokens that end a generation. `</s>` is also an HTML tag, which some vocabularies
 * hold as such: it counts only where `<s>` is a control token. */
static const struct {
    const char *text, *partner;
} named_ends[] = {
    {"<|eot_id|>", NULL},
    {"<|im_end|>", NULL},
    {"<|end|>", NULL},
    {"<|return|>", NULL},
    {"<|call|>", NULL},
    {"<|calls|>", NULL},
    {"<|flush|>", NULL},
    {"<end_of_turn>", NULL},
    {"<turn|>", NULL},
    {"<|tool_response>", NULL},
    {"<|endoftext|>", NULL},
    {"<|end_of_text|>", NULL},
    {"<|eom_id|>", NULL},
    {"<EOT>", NULL},
    {"_<EOT>", NULL},
    {LOW "<EOT>", NULL},
    {"[EOT]", NULL},
    {"[EOS]", NULL},
    {"<end_of_utterance>", NULL},
    {"<eos>", NULL},
    {"</s>", "<s>"},
    {"<" BAR "end" LOW "of" LOW "sentence" BAR ">", NULL},
    {"[e~[", NULL},
};

/* A token put in by hand: control or user-defined, or called normal in the file but out of
 * reach of merges. */
static bool by_hand(const struct vocab *v, int32_t id)
{
    switch (v->types[id]) {
    case VOCAB_TYPE_CONTROL:
    case VOCAB_TYPE_UNKNOWN:
    case VOCAB_TYPE_USER: return true;
    case VOCAB_TYPE_NORMAL: return v->kind == VOCAB_BPE && v->learned && !v->learned[id];
    default: return false;
    }
}

static linnet_status read_ids(struct vocab *v, const struct gguf *g, linnet_error *e)
{
    for (size_t i = 0; i < sizeof implied / sizeof implied[0]; i++) {
        int32_t id = implied[i].id;
        if (implied[i].kind == v->kind && (size_t)id < v->n_tokens &&
            (v->types[id] == VOCAB_TYPE_CONTROL || v->types[id] == VOCAB_TYPE_UNKNOWN))
            v->special[implied[i].role] = id;
    }
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        int64_t id;
        linnet_status status = gguf_get_i64(g, keys[i].key, &id, e);
        if (status == LINNET_NOT_FOUND)
            continue;
        if (status != LINNET_OK)
            return status;
        /* Files write -1, as an unsigned number perhaps, or one past the end for "none". */
        bool none = id == -1 || id == UINT32_MAX || id == (int64_t)v->n_tokens;
        if (!none && (id < 0 || (uint64_t)id >= v->n_tokens))
            return err_set(e, LINNET_FORMAT,
                           "metadata key '%s' is %lld; the vocabulary has tokens 0 to %zu, and -1 "
                           "means none",
                           keys[i].key, (long long)id, v->n_tokens - 1);
        v->special[keys[i].role] = none ? -1 : (int32_t)id;
    }
    if (v->kind == VOCAB_WORDPIECE && v->special[VOCAB_BOS] < 0)
        v->special[VOCAB_BOS] = v->special[VOCAB_CLS];
    if (v->special[VOCAB_CLS] < 0 && v->kind == VOCAB_WORDPIECE)
        v->special[VOCAB_CLS] = v->special[VOCAB_BOS];
    return LINNET_OK;
}

static void find_named_roles(struct vocab *v)
{
    for (size_t i = 0; i < sizeof named_roles / sizeof named_roles[0]; i++) {
        int32_t *id = &v->special[named_roles[i].role];
        int32_t found = *id < 0 ? vocab_named(v, named_roles[i].text) : -1;
        if (found < 0 || !by_hand(v, found))
            continue;
        *id = found;
        v->types[found] = VOCAB_TYPE_CONTROL;
    }
}

static void find_ends(struct vocab *v)
{
    static const enum vocab_special ending[] = {VOCAB_EOS,     VOCAB_EOT,     VOCAB_EOM,
                                                VOCAB_FIM_PAD, VOCAB_FIM_REP, VOCAB_FIM_SEP};
    for (size_t i = 0; i < sizeof named_ends / sizeof named_ends[0]; i++) {
        int32_t id = vocab_named(v, named_ends[i].text);
        if (id < 0 || !by_hand(v, id))
            continue;
        int32_t partner = named_ends[i].partner ? vocab_named(v, named_ends[i].partner) : id;
        if (partner < 0 || (partner != id && v->types[partner] != VOCAB_TYPE_CONTROL))
            continue;
        v->types[id] = VOCAB_TYPE_CONTROL;
        v->flags[id] |= TOKEN_EOG;
    }
    for (size_t i = 0; i < sizeof ending / sizeof ending[0]; i++)
        if (v->special[ending[i]] >= 0)
            v->flags[v->special[ending[i]]] |= TOKEN_EOG;
    /* In the harmony format and its kin <|end|> closes one message of several; others end the
     * turn. */
    int32_t end = vocab_named(v, "<|end|>");
    bool call = vocab_named(v, "<|call|>") >= 0 || vocab_named(v, "<|calls|>") >= 0;
    bool other = vocab_named(v, "<|return|>") >= 0 || vocab_named(v, "<|flush|>") >= 0;
    if (end >= 0 && call && other && end != v->special[VOCAB_EOS]) {
        v->flags[end] &= (uint8_t)~TOKEN_EOG;
        if (v->special[VOCAB_EOT] == end)
            v->special[VOCAB_EOT] = -1;
    }
}

/* Does the string value of `key`, in lower case, contain `part`? */
static bool value_has(const struct gguf *g, const char *key, const char *part)
{
    struct gguf_str s;
    if (gguf_get_str(g, key, &s, NULL) != LINNET_OK)
        return false;
    size_t n = strlen(part);
    for (size_t i = 0; i + n <= s.n; i++) {
        size_t k = 0;
        while (k < n && tolower((unsigned char)s.s[i + k]) == part[k])
            k++;
        if (k == n)
            return true;
    }
    return false;
}

/* Files do not carry the strip flags of added tokens; these are the published ones. */
static void find_strips(struct vocab *v, const struct gguf *g)
{
    if ((v->pretok && (pretok_flags(v->pretok) & PRETOK_LSTRIP_MASK)) ||
        value_has(g, "general.architecture", "nomic-bert-moe") ||
        value_has(g, "general.architecture", "jina-bert-v3")) {
        int32_t mask = v->special[VOCAB_MASK];
        if (mask < 0)
            mask = vocab_named(v, "<mask>");
        if (mask >= 0)
            v->flags[mask] |= TOKEN_LSTRIP;
    }
    bool phi3 = value_has(g, "general.architecture", "phi3") ||
                value_has(g, "general.name", "phi-3") || value_has(g, "general.name", "phi3");
    if (v->kind != VOCAB_SPM || !phi3)
        return;
    static const char *const keep[] = {"<unk>", "<s>", "<|endoftext|>"};
    for (size_t i = 0; i < v->n_tokens; i++)
        if (v->types[i] == VOCAB_TYPE_CONTROL || v->types[i] == VOCAB_TYPE_UNKNOWN ||
            v->types[i] == VOCAB_TYPE_USER)
            v->flags[i] |= TOKEN_RSTRIP;
    for (size_t i = 0; i < sizeof keep / sizeof keep[0]; i++) {
        int32_t id = vocab_named(v, keep[i]);
        if (id >= 0)
            v->flags[id] &= (uint8_t)~TOKEN_RSTRIP;
    }
}

static linnet_status read_flag(const struct gguf *g, const char *key, bool *flag, linnet_error *e)
{
    linnet_status status = gguf_get_bool(g, key, flag, e);
    return status == LINNET_NOT_FOUND ? LINNET_OK : status;
}

static linnet_status read_additions(struct vocab *v, const struct gguf *g, linnet_error *e)
{
    unsigned flags = v->pretok ? pretok_flags(v->pretok) : 0;
    v->add_bos = v->kind == VOCAB_SPM || v->kind == VOCAB_WORDPIECE || (flags & PRETOK_ADD_BOS);
    v->add_eos = v->kind == VOCAB_UNIGRAM || v->kind == VOCAB_WORDPIECE;
    v->add_space_prefix = v->kind == VOCAB_SPM;
    bool bos = v->add_bos, eos = v->add_eos, prefix = v->add_space_prefix;
    linnet_status status = read_flag(g, "tokenizer.ggml.add_bos_token", &bos, e);
    if (status == LINNET_OK)
        status = read_flag(g, "tokenizer.ggml.add_eos_token", &eos, e);
    if (status == LINNET_OK)
        status = read_flag(g, "tokenizer.ggml.add_space_prefix", &prefix, e);
    if (status == LINNET_OK)
        status = read_flag(g, "tokenizer.ggml.remove_extra_whitespaces", &v->merge_spaces, e);
    if (status != LINNET_OK)
        return status;
    if (v->kind == VOCAB_SPM || v->kind == VOCAB_UNIGRAM)
        v->add_space_prefix = prefix;
    /* BERT always has both ends; RWKV none; gemma4 files that deny BOS are known to be wrong. */
    if (v->kind != VOCAB_WORDPIECE && v->kind != VOCAB_RWKV) {
        v->add_bos = bos || v->chars;
        v->add_eos = eos;
    }
    if (v->special[VOCAB_BOS] < 0)
        v->add_bos = false;
    if (v->special[v->kind == VOCAB_WORDPIECE ? VOCAB_SEP : VOCAB_EOS] < 0)
        v->add_eos = false;
    return LINNET_OK;
}

linnet_status vocab_load_roles(struct vocab *v, const struct gguf *g, linnet_error *e)
{
    for (size_t i = 0; i < VOCAB_SPECIAL_COUNT; i++)
        v->special[i] = -1;
    linnet_status status = read_ids(v, g, e);
    if (status != LINNET_OK)
        return status;
    find_named_roles(v);
    find_ends(v);
    find_strips(v, g);
    return read_additions(v, g, e);
}
