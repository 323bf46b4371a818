/*
 * Pre-tokenisers: the table of names, their published patterns, and the splitter.
 *
 * A pre-tokeniser is a list of stages. A stage cuts every piece left by the stage before it into
 * the matches of its pattern and the gaps between them; both go on to the next stage. A pattern
 * sees only its piece, so lookaheads and anchors stop at the piece's ends. Every byte of the text
 * lands in exactly one word.
 *
 * The patterns are those of the models' tokenizer settings, with two changes that do not alter
 * what they match: white space is spelt out as Unicode's White_Space (PCRE2's \s also takes
 * U+180E), and repeats whose backtracking would be quadratic are written so that it is not. Work
 * is linear in the text.
 */
#include "text/pretok.h"

#include "base/checked.h"

#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

/* Inside brackets: White_Space. SP is \s, NS is \S. */
#define WS                                                                                         \
    "\\t-\\r \\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}"                                  \
    "\\x{2029}\\x{202F}\\x{205F}\\x{3000}"
#define SP      "[" WS "]"
#define NS      "[^" WS "]"
#define SPACES  SP "+(?!" NS ")|" SP "+" /* all but the last space before a word, else all */
#define NEWLINE SP "*[\\r\\n]+"
#define SUFFIX  "(?i:'s|'t|'re|'ve|'m|'ll|'d)" /* English contractions */
#define OTHER   " ?[^" WS "\\p{L}\\p{N}]+"
#define LEAD    "[^\\r\\n\\p{L}\\p{N}]?" /* one space or mark that may start a word */
/* Letters that may stand in the upper and in the lower case part of a word; H: without Han. */
#define UPPER               "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER               "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define NOT_L               "\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}\\p{sc:Han}"
#define UPPER_H             "[^\\p{Ll}" NOT_L "]"
#define LOWER_H             "[^\\p{Lu}\\p{Lt}" NOT_L "]"
#define CASED(u, l, suffix) LEAD u "*" l "+" suffix "|" LEAD u "+" l "*" suffix
#define ASCII_PUNCT         "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~]"
#define CJK_KANA            "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+"

#define P_GPT2     "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+|" OTHER "|" SPACES
#define P_LLAMA3   SUFFIX "|" LEAD "\\p{L}+|\\p{N}{1,3}|" OTHER "[\\r\\n]*|" NEWLINE "|" SPACES
#define P_QWEN2    SUFFIX "|" LEAD "\\p{L}+|\\p{N}|" OTHER "[\\r\\n]*|" NEWLINE "|" SPACES
#define P_UFAKZEKA LEAD "\\p{L}+|\\p{N}|" OTHER "[\\r\\n]*|" NEWLINE "|" SPACES
#define P_QWEN35                                                                                   \
    SUFFIX "|" LEAD "[\\p{L}\\p{M}]+|\\p{N}| ?[^" WS "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" NEWLINE      \
           "|" SPACES
#define P_GPT4O                                                                                    \
    CASED(UPPER, LOWER, SUFFIX "?") "|\\p{N}{1,3}|" OTHER "[\\r\\n/]*|" NEWLINE "|" SPACES
#define P_TEKKEN CASED(UPPER, LOWER, "") "|\\p{N}|" OTHER "[\\r\\n/]*|" NEWLINE "|" SPACES
#define P_KIMI                                                                                     \
    "\\p{sc:Han}+|" CASED(UPPER_H, LOWER_H, SUFFIX "?") "|\\p{N}{1,3}|" OTHER "[\\r\\n]*|" NEWLINE \
                                                        "|" SPACES
#define P_DEEPSEEK3                                                                                \
    ASCII_PUNCT "[A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"                           \
                " ?[\\p{P}\\p{S}]+[\\r\\n]*|" NEWLINE "|" SPACES
#define P_SPARK                                                                                    \
    ASCII_PUNCT "[A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+|"         \
                "[\\r\\n]|" SPACES
#define P_BAILING                                                                                  \
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^" WS                          \
    "\\p{L}\\p{N}]++[\\r\\n]*|" SP "*[\\r\\n]|" SPACES
#define P_SEED                                                                                     \
    SUFFIX "|" LEAD "\\p{L}+|\\p{N}|"                                                              \
           " ?[^" WS "\\p{L}\\p{N}\\r\\n]+|" NEWLINE "|" SPACES
#define P_MINICPM SUFFIX "|" LEAD "\\p{L}+|\\p{N}+|" OTHER "[\\r\\n]*|" NEWLINE "|" SPACES
/* Words may hold single spaces between letters. */
#define P_EXAONE_MOE                                                                               \
    SUFFIX "|" LEAD "\\p{L}(?:\\p{M}++| ?\\p{L})*+|\\p{N}|" OTHER "[\\r\\n/]?|" SP                 \
           "*[\\r\\n]|" SPACES
#define P_JAIS2                                                                                    \
    SUFFIX "|" LEAD "\\p{L}+|\\p{N}{1,3}|" OTHER "[\\r\\n]*|" NEWLINE "|" SP "{512}(?!" NS ")|" SP \
           "{256}(?!" NS ")|" SP "{128}(?!" NS ")|" SP "{64}(?!" NS ")|" SP "{32}(?!" NS ")|" SP   \
           "{16}(?!" NS ")|" SP "{8}(?!" NS ")|" SP "{4}(?!" NS ")|" SP "{1,2}(?!" NS ")|" SP
#define P_BLOOM " ?[^(" WS "|.,!?)\\x{2026}\\x{3002}\\x{FF0C}\\x{3001}\\x{0964}\\x{06D4}\\x{060C}]+"
#define P_YOUTU CASED(UPPER, LOWER, SUFFIX "?") "|\\p{N}|" OTHER "[\\r\\n/]*|" NEWLINE "|" SPACES
/* Letters that have case, in the ranges DeepSeek's settings list. */
#define CASED_LETTERS                                                                              \
    "A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}"                 \
    "\\x{1C4}-\\x{293}\\x{295}-\\x{2AF}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37B}-\\x{37D}"         \
    "\\x{37F}\\x{386}\\x{388}-\\x{38A}\\x{38C}\\x{38E}-\\x{3A1}\\x{3A3}-\\x{3F5}"                  \
    "\\x{3F7}-\\x{481}\\x{48A}-\\x{52F}\\x{531}-\\x{556}\\x{10A0}-\\x{10C5}"                       \
    "\\x{13A0}-\\x{13F5}\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}"                 \
    "\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}"                 \
    "\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}\\x{1F59}"        \
    "\\x{1F5B}\\x{1F5D}\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}\\x{1FBE}"         \
    "\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}"                 \
    "\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}"                  \
    "\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}\\x{2124}\\x{2126}\\x{2128}"                   \
    "\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}\\x{2139}\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}"        \
    "\\x{214E}\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}\\x{2CEB}-\\x{2CEE}"         \
    "\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}"                  \
    "\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}"                 \
    "\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}\\x{10400}-\\x{1044F}"               \
    "\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}"         \
    "\\x{118A0}-\\x{118DF}\\x{1E900}-\\x{1E943}"
#define CJK_WIDE "[\\x{4E00}-\\x{9FA5}\\x{0800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+"

enum { MAX_STAGES = 6 };

/* A stage's pattern may begin with marks:
 *   GROUP3   its matches are cut into threes from the right;
 *   CUT3     the same, but a match is not cut off from what is beside it where no three begins;
 *   LETTERS  a space or nothing, then ASCII letters, then the end or an ASCII character that is
 *            neither a letter nor an apostrophe: the space and letters are a match wherever
 *            matching gets to them;
 *   LOWERS   the same of lower case letters, and any other letter may follow.
 * The last two let most words of most texts be found without the pattern matcher; no later stage of
 * a recipe may cut such a word. */
#define GROUP3  "\1"
#define CUT3    "\2"
#define LETTERS "\3"
#define LOWERS  "\4"
struct recipe {
    const char *stages[MAX_STAGES];
};
static const struct recipe r_default = {
    {"[\\p{P}$+<=>^~|]+", LETTERS P_GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}};
static const struct recipe r_gpt2 = {{LETTERS P_GPT2}};
static const struct recipe r_starcoder = {{"\\p{N}", LETTERS P_GPT2}};
static const struct recipe r_falcon = {{"[\\p{P}$+<=>^~|`]+", LETTERS P_GPT2, "[0-9][0-9][0-9]"}};
static const struct recipe r_llama3 = {{LETTERS P_LLAMA3}};
static const struct recipe r_qwen2 = {{LETTERS P_QWEN2}};
static const struct recipe r_qwen35 = {{LETTERS P_QWEN35}};
static const struct recipe r_ufakzeka = {{LETTERS P_UFAKZEKA}};
static const struct recipe r_gpt4o = {{LOWERS P_GPT4O}};
static const struct recipe r_tekken = {{LOWERS P_TEKKEN}};
static const struct recipe r_kimi = {{LOWERS P_KIMI}};
static const struct recipe r_bailing = {{LETTERS P_BAILING}};
static const struct recipe r_seed = {{LETTERS P_SEED}};
static const struct recipe r_minicpm = {{"\\p{N}{1,3}", LETTERS P_MINICPM}};
static const struct recipe r_exaone_moe = {{P_EXAONE_MOE}};
static const struct recipe r_jais2 = {{LETTERS P_JAIS2}};
static const struct recipe r_bloom = {{P_BLOOM}};
static const struct recipe r_viking = {{P_BLOOM, "\\p{N}"}};
static const struct recipe r_laguna = {{"[^\\n]+|\\n+", LETTERS P_QWEN2}};
static const struct recipe r_deepseek_llm = {
    {"[\\r\\n]", LETTERS SP "?[" CASED_LETTERS "]+",
     SP "?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}]+",
     "(?<!" SP ")" SP "+\\z", CJK_WIDE, "\\p{N}+"}};
static const struct recipe r_deepseek_coder = {
    {"[\\r\\n]", LETTERS SP "?\\p{L}+", SP "?\\p{P}+", CJK_WIDE, "\\p{N}"}};
static const struct recipe r_deepseek3 = {{"\\p{N}{1,3}", CJK_KANA, LETTERS P_DEEPSEEK3}};
static const struct recipe r_spark = {{"\\p{N}{1,3}", CJK_KANA, LETTERS P_SPARK, "\\p{N}"}};
static const struct recipe r_youtu = {
    {"[\\x{AC00}-\\x{D7A3}\\x{3131}-\\x{318E}]+|[\\x{FF01}\\x{2026}\\x{201C}\\x{201D}\\x{2018}"
     "\\x{2019}\\x{2014}\\x{FF1A}\\x{FF1B}\\x{FF0C}\\x{3001}-\\x{303F}\\x{FE30}-\\x{FE4F}]+|"
     "[\\x{3105}-\\x{312F}]+|" CJK_KANA,
     LOWERS P_YOUTU}};
static const struct recipe r_chameleon = {{"<sentinel:[0-9]+>", "IMGIMG[A-I]{1,4}Z",
                                           "[\\t\\n]|    |  ", "\\p{N}", "[\\p{P}!-/:-@\\[-`{-~]",
                                           LETTERS P_GPT2}};
static const struct recipe r_superbpe = {{"\\p{N}+", CUT3 "\\p{Nd}+"}};
static const struct recipe r_afmoe = {{GROUP3 "\\p{N}+",
                                       "[\\x{4E00}-\\x{9FFF}\\x{3400}-\\x{4DBF}\\x{F900}-\\x{FAFF}"
                                       "\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}"
                                       "\\x{FF65}-\\x{FF9F}\\x{2F00}-\\x{2FDF}\\x{0E40}-\\x{0E7F}"
                                       "\\x{0E80}-\\x{0EFF}\\x{1780}-\\x{17FF}"
                                       "\\x{1000}-\\x{109F}\\x{AA60}-\\x{AA7F}\\x{A9E0}-\\x{A9FF}"
                                       "\\x{AC00}-\\x{D7AF}\\x{1100}-\\x{11FF}]+",
                                       LETTERS P_DEEPSEEK3}};
/* Digits that end at a word's end; the others are left to the second stage. */
static const struct recipe r_tiny_aya = {
    {GROUP3 "(?<!\\p{Nd})\\p{Nd}++(?![\\p{L}\\p{M}\\p{N}\\p{Pc}])", LOWERS P_GPT4O}};
/* Merges run over whole lines. */
static const struct recipe r_lines = {{"[^\\n]+|\\n+"}};

static const struct {
    const char *name;
    const struct recipe *recipe;
    unsigned flags;
} table[] = {
    {"default", &r_default, PRETOK_CLEAN_SPACES},
    {"gpt-2", &r_gpt2, PRETOK_CLEAN_SPACES},
    {"phi-2", &r_gpt2, PRETOK_CLEAN_SPACES},
    {"jina-es", &r_gpt2, PRETOK_CLEAN_SPACES},
    {"jina-de", &r_gpt2, PRETOK_CLEAN_SPACES},
    {"jina-v2-es", &r_gpt2, PRETOK_CLEAN_SPACES | PRETOK_LSTRIP_MASK},
    {"jina-v2-de", &r_gpt2, PRETOK_CLEAN_SPACES | PRETOK_LSTRIP_MASK},
    {"jina-v1-en", &r_gpt2, PRETOK_CLEAN_SPACES},
    {"jina-v2-code", &r_gpt2, PRETOK_CLEAN_SPACES | PRETOK_LSTRIP_MASK},
    {"roberta-bpe", &r_gpt2, PRETOK_CLEAN_SPACES},
    {"gigachat", &r_gpt2, PRETOK_CLEAN_SPACES},
    {"a.x-4.0", &r_gpt2, PRETOK_CLEAN_SPACES},
    {"mellum", &r_gpt2, PRETOK_CLEAN_SPACES},
    {"modern-bert", &r_gpt2, PRETOK_CLEAN_SPACES | PRETOK_NFC | PRETOK_LSTRIP_MASK},
    {"mpt", &r_gpt2, PRETOK_CLEAN_SPACES | PRETOK_NFC},
    {"olmo", &r_gpt2, PRETOK_CLEAN_SPACES | PRETOK_NFC},
    {"jais", &r_gpt2, PRETOK_CLEAN_SPACES},
    {"exaone4", &r_gpt2, PRETOK_CLEAN_SPACES},
    {"trillion", &r_gpt2, 0},
    {"granite-docling", &r_gpt2, 0},
    {"starcoder", &r_starcoder, PRETOK_CLEAN_SPACES},
    {"refact", &r_starcoder, PRETOK_CLEAN_SPACES},
    {"codeshell", &r_starcoder, PRETOK_CLEAN_SPACES},
    {"exaone", &r_starcoder, PRETOK_CLEAN_SPACES},
    {"minerva-7b", &r_starcoder, PRETOK_CLEAN_SPACES},
    {"mellum2", &r_starcoder, PRETOK_CLEAN_SPACES},
    {"command-r", &r_starcoder, PRETOK_NFC},
    {"smollm", &r_starcoder, 0},
    {"falcon", &r_falcon, PRETOK_CLEAN_SPACES},
    {"llama3", &r_llama3, PRETOK_CLEAN_SPACES | PRETOK_WHOLE_WORDS | PRETOK_ADD_BOS},
    {"llama-v3", &r_llama3, PRETOK_CLEAN_SPACES | PRETOK_WHOLE_WORDS | PRETOK_ADD_BOS},
    {"llama-bpe", &r_llama3, PRETOK_CLEAN_SPACES | PRETOK_WHOLE_WORDS | PRETOK_ADD_BOS},
    {"falcon3", &r_llama3, PRETOK_CLEAN_SPACES | PRETOK_WHOLE_WORDS | PRETOK_ADD_BOS},
    {"falcon-h1", &r_llama3, PRETOK_CLEAN_SPACES | PRETOK_WHOLE_WORDS | PRETOK_ADD_BOS},
    {"pixtral", &r_llama3, PRETOK_CLEAN_SPACES | PRETOK_WHOLE_WORDS | PRETOK_ADD_BOS},
    {"midm-2.0", &r_llama3, PRETOK_CLEAN_SPACES | PRETOK_WHOLE_WORDS | PRETOK_ADD_BOS},
    {"lfm2", &r_llama3, PRETOK_CLEAN_SPACES | PRETOK_WHOLE_WORDS | PRETOK_ADD_BOS},
    {"jina-v5-nano", &r_llama3, PRETOK_CLEAN_SPACES | PRETOK_WHOLE_WORDS | PRETOK_ADD_BOS},
    {"dbrx", &r_llama3, PRETOK_CLEAN_SPACES},
    {"smaug-bpe", &r_llama3, PRETOK_CLEAN_SPACES},
    {"glm4", &r_llama3, PRETOK_CLEAN_SPACES | PRETOK_NO_BOS},
    {"chatglm-bpe", &r_llama3, PRETOK_CLEAN_SPACES | PRETOK_NO_BOS},
    {"jais-2", &r_jais2, PRETOK_CLEAN_SPACES},
    {"qwen2", &r_qwen2, PRETOK_NFC},
    {"deepseek-r1-qwen", &r_qwen2, PRETOK_NFC},
    {"kormo", &r_qwen2, 0},
    {"f2llmv2", &r_qwen2, PRETOK_NFC},
    {"megrez", &r_qwen2, PRETOK_CLEAN_SPACES},
    {"stablelm2", &r_qwen2, PRETOK_CLEAN_SPACES},
    {"hunyuan", &r_qwen2, 0},
    {"solar-open", &r_qwen2, 0},
    {"grok-2", &r_qwen2, 0},
    {"qwen35", &r_qwen35, 0},
    {"ufakzeka", &r_ufakzeka, 0},
    {"deepseek-llm", &r_deepseek_llm, 0},
    {"deepseek-coder", &r_deepseek_coder, 0},
    {"deepseek-v3", &r_deepseek3, 0},
    {"hunyuan-dense", &r_deepseek3, 0},
    {"hy_v4", &r_deepseek3, 0},
    {"joyai-llm", &r_deepseek3, 0},
    {"spark2_5", &r_spark, 0},
    {"youtu", &r_youtu, PRETOK_WHOLE_WORDS},
    {"gpt-4o", &r_gpt4o, 0},
    {"llama4", &r_gpt4o, 0},
    {"kanana2", &r_gpt4o, 0},
    {"talkie", &r_gpt4o, 0},
    {"minimax-m2", &r_gpt4o, 0},
    {"granite-embed-multi-97m", &r_gpt4o, PRETOK_WHOLE_WORDS},
    {"tiny_aya", &r_tiny_aya, 0},
    {"cohere2moe", &r_tiny_aya, 0},
    {"tekken", &r_tekken, PRETOK_WHOLE_WORDS | PRETOK_ADD_BOS},
    {"kimi-k2", &r_kimi, 0},
    {"bailingmoe", &r_bailing, 0},
    {"bailingmoe2", &r_bailing, 0},
    {"llada-moe", &r_bailing, 0},
    {"seed-coder", &r_seed, 0},
    {"minicpm5", &r_minicpm, PRETOK_CLEAN_SPACES | PRETOK_WHOLE_WORDS},
    {"exaone-moe", &r_exaone_moe, PRETOK_CLEAN_SPACES},
    {"bloom", &r_bloom, PRETOK_CLEAN_SPACES},
    {"gpt3-finnish", &r_bloom, PRETOK_CLEAN_SPACES},
    {"poro-chat", &r_bloom, 0},
    {"viking", &r_viking, 0},
    {"laguna", &r_laguna, 0},
    {"chameleon", &r_chameleon, PRETOK_ADD_BOS},
    {"superbpe", &r_superbpe, 0},
    {"afmoe", &r_afmoe, 0},
    {"gemma4", &r_lines, PRETOK_CHARS | PRETOK_ADD_BOS | PRETOK_CLEAN_SPACES},
    {"granite-embed-multi-311m", &r_lines, PRETOK_CHARS | PRETOK_ADD_BOS | PRETOK_CLEAN_SPACES},
    {"sarvam-moe", &r_lines, PRETOK_CHARS},
};

struct pretok {
    unsigned flags;
    unsigned n_stages;
    struct stage {
        pcre2_code *code;
        bool jit, group3, cut3, letters, lowers;
        bool starts[256]; /* bytes that may begin a match */
    } stages[MAX_STAGES];
};

const char *pretok_name(size_t i)
{
    return i < sizeof table / sizeof table[0] ? table[i].name : NULL;
}

unsigned pretok_flags(const struct pretok *p)
{
    return p->flags;
}

void pretok_destroy(struct pretok *p)
{
    if (!p)
        return;
    for (unsigned i = 0; i < p->n_stages; i++)
        pcre2_code_free(p->stages[i].code);
    free(p);
}

/* Which bytes can begin a match: ASCII characters are tried, all others are taken to. A lone
 * character that neither matches nor is the beginning of a match begins none. */
static bool find_starts(struct stage *stage)
{
    pcre2_match_data *match = pcre2_match_data_create(1, NULL);
    if (!match)
        return false;
    for (unsigned b = 0; b < 256; b++) {
        PCRE2_UCHAR c = (PCRE2_UCHAR)b;
        stage->starts[b] =
            b >= 0x80 || pcre2_match(stage->code, &c, 1, 0, PCRE2_ANCHORED | PCRE2_PARTIAL_HARD,
                                     match, NULL) != PCRE2_ERROR_NOMATCH;
    }
    pcre2_match_data_free(match);
    return true;
}

static linnet_status compile(struct stage *stage, const char *pattern, linnet_error *e)
{
    int error;
    PCRE2_SIZE offset;
    for (; *pattern && *pattern <= LOWERS[0]; pattern++) {
        stage->group3 |= *pattern == GROUP3[0];
        stage->cut3 |= *pattern == CUT3[0];
        stage->letters |= *pattern == LETTERS[0];
        stage->lowers |= *pattern == LOWERS[0];
    }
    stage->code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP,
                                &error, &offset, NULL);
    if (!stage->code && error == PCRE2_ERROR_HEAP_FAILED)
        return err_memory(e, "a pre-tokenizer pattern", 0);
    if (!stage->code) {
        PCRE2_UCHAR text[200];
        pcre2_get_error_message(error, text, sizeof text);
        return err_set(e, LINNET_UNSUPPORTED,
                       "this PCRE2 library does not take a pre-tokenizer pattern (offset %zu: %s)",
                       offset, (const char *)text);
    }
    /* Without a JIT (some platforms have none) the interpreter runs the same pattern, slower. */
    int jit = pcre2_jit_compile(stage->code, PCRE2_JIT_COMPLETE);
    if (jit == PCRE2_ERROR_NOMEMORY)
        return err_memory(e, "a pre-tokenizer pattern", 0);
    stage->jit = jit == 0;
    return find_starts(stage) ? LINNET_OK : err_memory(e, "the pre-tokenizer", 64);
}

linnet_status pretok_create(const char *name, struct pretok **out, linnet_error *e)
{
    size_t i = 0;
    const char *wanted = name[0] ? name : "default";
    while (i < sizeof table / sizeof table[0] && strcmp(table[i].name, wanted) != 0)
        i++;
    if (i == sizeof table / sizeof table[0])
        return err_set(e, LINNET_UNSUPPORTED,
                       "tokenizer.ggml.pre is '%.100s', a pre-tokenizer this version does not know",
                       name);
    struct pretok *p = calloc(1, sizeof *p);
    if (!p)
        return err_memory(e, "the pre-tokenizer", sizeof *p);
    p->flags = table[i].flags;
    for (unsigned k = 0; k < MAX_STAGES && table[i].recipe->stages[k]; k++) {
        linnet_status status = compile(&p->stages[p->n_stages++], table[i].recipe->stages[k], e);
        if (status != LINNET_OK) {
            pretok_destroy(p);
            return status;
        }
    }
    *out = p;
    return LINNET_OK;
}

void pretok_scratch_free(struct pretok_scratch *x)
{
    pcre2_match_data_free(x->match);
    pcre2_match_context_free(x->context);
    pcre2_jit_stack_free(x->stack);
    memset(x, 0, sizeof *x);
}

/* One split in progress. */
struct split {
    const struct pretok *p;
    struct pretok_scratch *x;
    pretok_word_fn *fn;
    void *arg;
    linnet_error *e;
};

/* The matcher's stack when the machine stack does not do, doubled on demand up to this. */
enum { STACK_START = 1 << 20, STACK_MAX = 64 << 20 };

static bool grow_stack(struct pretok_scratch *x)
{
    size_t size = x->stack_size ? x->stack_size * 2 : STACK_START;
    if (size > STACK_MAX)
        return false;
    pcre2_jit_stack *stack = pcre2_jit_stack_create(STACK_START, size, NULL);
    if (!stack)
        return false;
    pcre2_jit_stack_assign(x->context, NULL, stack);
    pcre2_jit_stack_free(x->stack);
    x->stack = stack;
    x->stack_size = size;
    return true;
}

static linnet_status match_error(const struct split *k, int rc)
{
    PCRE2_UCHAR text[200];
    pcre2_get_error_message(rc, text, sizeof text);
    return err_set(k->e, rc == PCRE2_ERROR_NOMEMORY ? LINNET_NO_MEMORY : LINNET_LIMIT,
                   "the text cannot be cut into words: %s", (const char *)text);
}

/* The next match of stage `stage` at or after `from`: PCRE2's return code, the match in span[2]. */
static int next_match(const struct split *k, unsigned stage, const char *s, size_t n, size_t from,
                      size_t span[2])
{
    const pcre2_code *code = k->p->stages[stage].code;
    const uint32_t options = PCRE2_NO_UTF_CHECK;
    int rc;
    do {
        if (k->p->stages[stage].jit)
            rc = pcre2_jit_match(code, (PCRE2_SPTR)s, n, from, options, k->x->match, k->x->context);
        else
            rc = pcre2_match(code, (PCRE2_SPTR)s, n, from, options, k->x->match, k->x->context);
    } while (rc == PCRE2_ERROR_JIT_STACKLIMIT && grow_stack(k->x));
    if (rc >= 0) {
        const PCRE2_SIZE *o = pcre2_get_ovector_pointer(k->x->match);
        span[0] = o[0];
        span[1] = o[1];
    }
    return rc;
}

static linnet_status run_stage(const struct split *k, unsigned stage, const char *s, size_t n);

/* Hand a piece of stage `stage` on. */
static linnet_status pass(const struct split *k, unsigned stage, const char *s, size_t n)
{
    if (n == 0)
        return LINNET_OK;
    if (stage + 1 < k->p->n_stages)
        return run_stage(k, stage + 1, s, n);
    k->fn(k->arg, s, n);
    return LINNET_OK;
}

static size_t count_chars(const char *s, size_t n)
{
    size_t chars = 0;
    for (size_t i = 0; i < n; i++)
        chars += ((unsigned char)s[i] & 0xC0) != 0x80;
    return chars;
}

/* Pass on s[0..n) in groups of three characters counted from the right. */
static linnet_status pass_groups(const struct split *k, unsigned stage, const char *s, size_t n)
{
    size_t chars = count_chars(s, n), start = 0;
    for (size_t i = 1; i <= n; i++) {
        if (i < n && ((unsigned char)s[i] & 0xC0) == 0x80)
            continue;
        if (--chars % 3 == 0) {
            linnet_status status = pass(k, stage, s + start, i - start);
            if (status != LINNET_OK)
                return status;
            start = i;
        }
    }
    return LINNET_OK;
}

/* A CUT3 stage: the piece is cut where a multiple of three characters is left of a match, and
 * nowhere else. */
static linnet_status run_cuts(const struct split *k, unsigned stage, const char *s, size_t n)
{
    size_t begin = 0, done = 0, span[2];
    while (done < n) {
        int rc = next_match(k, stage, s, n, done, span);
        if (rc == PCRE2_ERROR_NOMATCH)
            break;
        if (rc < 0)
            return match_error(k, rc);
        size_t chars = count_chars(s + span[0], span[1] - span[0]);
        for (size_t i = span[0]; i < span[1]; i++) {
            if (((unsigned char)s[i] & 0xC0) == 0x80 || chars-- % 3 != 0)
                continue;
            linnet_status status = pass(k, stage, s + begin, i - begin);
            if (status != LINNET_OK)
                return status;
            begin = i;
        }
        done = span[1];
    }
    return pass(k, stage, s + begin, n - begin);
}

static bool is_letter(char c)
{
    return (unsigned char)((c | 32) - 'a') < 26;
}

/* The end of a plain word at s[at] (see LETTERS), or `at`. */
static size_t plain_word(const struct stage *stage, const char *s, size_t n, size_t at)
{
    size_t begin = at + (s[at] == ' '), end = begin;
    if (stage->letters)
        while (end < n && is_letter(s[end]))
            end++;
    else
        while (end < n && s[end] >= 'a' && s[end] <= 'z')
            end++;
    bool closed = end == n || ((unsigned char)s[end] < 0x80 && s[end] != '\'');
    return end > begin && closed ? end : at;
}

static linnet_status run_stage(const struct split *k, unsigned stage, const char *s, size_t n)
{
    const struct stage *p = &k->p->stages[stage];
    if (p->cut3)
        return run_cuts(k, stage, s, n);
    bool plain = (p->letters || p->lowers) && !k->x->no_shortcuts;
    linnet_status status = LINNET_OK;
    size_t done = 0, span[2];
    while (done < n && status == LINNET_OK) {
        if (plain && (span[1] = plain_word(p, s, n, done)) > done) {
            k->fn(k->arg, s + done, span[1] - done);
            done = span[1];
            continue;
        }
        size_t from = done;
        while (from < n && !p->starts[(unsigned char)s[from]])
            from++;
        int rc = from < n ? next_match(k, stage, s, n, from, span) : PCRE2_ERROR_NOMATCH;
        if (rc == PCRE2_ERROR_NOMATCH)
            break;
        if (rc < 0 || span[1] <= span[0]) /* no pattern here matches the empty string */
            return match_error(k, rc < 0 ? rc : PCRE2_ERROR_INTERNAL);
        status = pass(k, stage, s + done, span[0] - done);
        if (status == LINNET_OK)
            status = p->group3 ? pass_groups(k, stage, s + span[0], span[1] - span[0])
                               : pass(k, stage, s + span[0], span[1] - span[0]);
        done = span[1];
    }
    return status == LINNET_OK ? pass(k, stage, s + done, n - done) : status;
}

linnet_status pretok_split(const struct pretok *p, struct pretok_scratch *x, const char *s,
                           size_t n, pretok_word_fn *fn, void *arg, linnet_error *e)
{
    struct split k = {p, x, fn, arg, e};
    if (!x->match)
        x->match = pcre2_match_data_create(1, NULL);
    if (!x->context)
        x->context = pcre2_match_context_create(NULL);
    if (!x->match || !x->context)
        return err_memory(e, "the pre-tokenizer", 256);
    return run_stage(&k, 0, s, n);
}
