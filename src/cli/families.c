/*
 * `linnet families`: the model families this build runs, from the table the loader uses.
 * docs/models.md is its output with --markdown.
 */
#include "cli/cli.h"
#include "model/family.h"

#include <string.h>

struct families_opts {
    bool markdown;
};

/* What people call a family, which generations of its files there are, and what a session keeps for
 * each token of context and in all (bytes per element come from the KV type; state is f32). */
enum memory {
    MEM_KV,        /* grouped attention in every layer */
    MEM_KV_SHARED, /* the last layers reuse keys of earlier ones */
    MEM_LATENT,    /* MLA */
    MEM_DELTA_KV,  /* delta-rule layers and attention */
    MEM_DELTA_LATENT,
    MEM_CONV_KV, /* short convolutions and attention */
    MEM_SSM_KV,
    MEM_SSM,
};

static const char *const memory_text[] = {
    [MEM_KV] = "L x K x (dk + dv)",
    [MEM_KV_SHARED] = "Lo x K x (dk + dv), Lo layers own keys",
    [MEM_LATENT] = "L x (latent + rope)",
    [MEM_DELTA_KV] = "La x K x (dk + dv); H x dk x dv + convolutions for each delta layer",
    [MEM_DELTA_LATENT] = "La x (latent + rope); H x dk x dv + convolutions for each delta layer",
    [MEM_CONV_KV] = "La x K x (dk + dv); taps x width for each convolution",
    [MEM_SSM_KV] = "La x K x (dk + dv); inner x state + convolution for each recurrent layer",
    [MEM_SSM] = "nothing; a fixed state for each layer",
};

static const struct entry {
    const char *arch, *models, *files;
    enum memory memory;
} entries[] = {
    {"llama", "Llama 1, 2, 3; Mistral; Mixtral; SmolLM 2", "", MEM_KV},
    {"mistral", "Mistral, where a converter wrote this name", "", MEM_KV},
    {"mistral3", "Ministral 3, Mistral Small 3", "", MEM_KV},
    {"qwen2", "Qwen 2, Qwen 2.5", "", MEM_KV},
    {"qwen2vl", "text of Qwen 2-VL, 2.5-VL", "", MEM_KV},
    {"qwen2moe", "Qwen 1.5 MoE, Qwen 2 57B", "split and merged experts", MEM_KV},
    {"qwen3", "Qwen 3", "", MEM_KV},
    {"qwen3vl", "text of Qwen 3-VL", "", MEM_KV},
    {"qwen3moe", "Qwen 3 mixtures", "split and merged experts", MEM_KV},
    {"qwen3vlmoe", "text of Qwen 3-VL mixtures", "split and merged experts", MEM_KV},
    {"qwen3next", "Qwen 3 Next", "ssm_ba with attn_qkv, or the old ssm_in", MEM_DELTA_KV},
    {"qwen35", "Qwen 3.5, 3.6 dense", "interval or recurrent_layers", MEM_DELTA_KV},
    {"qwen35moe", "Qwen 3.5, 3.6 mixtures", "interval or recurrent_layers", MEM_DELTA_KV},
    {"gemma", "Gemma", "", MEM_KV},
    {"gemma2", "Gemma 2", "", MEM_KV},
    {"gemma3", "Gemma 3 (text)", "", MEM_KV},
    {"gemma3n", "Gemma 3n (text)", "", MEM_KV_SHARED},
    {"gemma4", "Gemma 4 (text), dense and mixture", "", MEM_KV_SHARED},
    {"deepseek2", "DeepSeek V2, V2.5, V3, R1; Kimi K2; GLM 4.7 Lite",
     "with and without _mla keys, kv_b split or joined", MEM_LATENT},
    {"kimi-linear", "Kimi Linear", "", MEM_DELTA_LATENT},
    {"kimi-k3", "Kimi K3", "also with an early converter's names (docs/keys.md)", MEM_DELTA_LATENT},
    {"bailingmoe2", "Ling 2, Ring 2", "", MEM_KV},
    {"bailingmoe3", "Ling 3", "", MEM_DELTA_LATENT},
    {"hunyuan-dense", "Hunyuan dense", "", MEM_KV},
    {"hunyuan-moe", "Hunyuan A13B", "", MEM_KV},
    {"hy_v3", "Hy3", "", MEM_KV},
    {"bitnet", "BitNet b1.58", "with and without .scale", MEM_KV},
    {"phi2", "Phi 2", "", MEM_KV},
    {"phi3", "Phi 3, 3.5, 4", "attn_qkv fused or split", MEM_KV},
    {"smollm3", "SmolLM 3", "", MEM_KV},
    {"olmo2", "OLMo 2, OLMo 3", "", MEM_KV},
    {"glm4", "GLM 4", "", MEM_KV},
    {"glm4moe", "GLM 4.5, 4.6", "", MEM_KV},
    {"gpt-oss", "gpt-oss", "MXFP4 experts and others", MEM_KV},
    {"granite", "Granite 3", "", MEM_KV},
    {"granitemoe", "Granite 3 mixtures", "", MEM_KV},
    {"granitehybrid", "Granite 4 H, Bamba", "", MEM_SSM_KV},
    {"exaone4", "EXAONE 4", "", MEM_KV},
    {"command-r", "Command R, R+; Aya", "", MEM_KV},
    {"cohere2", "Command R7B, Command A", "", MEM_KV},
    {"minimax-m2", "MiniMax M2", "", MEM_KV},
    {"lfm2", "LFM 2", "", MEM_CONV_KV},
    {"lfm2moe", "LFM 2 mixtures", "", MEM_CONV_KV},
    {"mamba", "Mamba", "", MEM_SSM},
    {"mamba2", "Mamba 2", "", MEM_SSM},
    {"falcon-h1", "Falcon H1", "", MEM_SSM_KV},
    {"nemotron_h", "Nemotron H", "", MEM_SSM_KV},
    {"nemotron_h_moe", "Nemotron H mixtures", "", MEM_SSM_KV},
    {"rwkv7", "RWKV 7", "", MEM_SSM},
    {"starcoder2", "StarCoder 2", "", MEM_KV},
    {"stablelm", "StableLM, StableLM 2", "", MEM_KV},
    {"gpt2", "GPT-2", "", MEM_KV},
};

static const struct entry *entry_of(const char *arch)
{
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++)
        if (strcmp(entries[i].arch, arch) == 0)
            return &entries[i];
    return NULL;
}

static const char *rope_text(const struct family *f)
{
    static const char *const names[] = {
        [ROPE_NONE] = "none", [ROPE_NORM] = "adjacent", [ROPE_NEOX] = "halves"};
    return names[f->pairs];
}

static void window_text(const struct family *f, char *buf, size_t size)
{
    if (f->window == WINDOW_NEVER)
        snprintf(buf, size, "no");
    else if (f->window_period)
        snprintf(buf, size, "%u of %u layers", f->window_period - 1, f->window_period);
    else
        snprintf(buf, size, "by key");
}

static void print_markdown(void)
{
    printf("# Model families\n\n"
           "What `general.architecture` may be, made by `linnet families --markdown`. Any other "
           "name is refused.\n"
           "Every family runs from every weight format of `linnet dequant`, in any mixture.\n\n"
           "Memory: elements a session keeps for each token of context; after a semicolon, once "
           "for a session. L layers,\n"
           "La of them with attention, K key heads, H heads, dk and dv their sizes. `linnet "
           "inspect` gives bytes.\n\n"
           "NextN: whether the family's NextN block (multi-token prediction) can be run as a draft "
           "head. Of a file with\n"
           "several blocks the first is: it guesses further tokens from its own hidden states, and "
           "the other blocks are\n"
           "not loaded. In families without, a file's blocks are left alone.\n\n"
           "| architecture | models | rotary pairs | windows | mixture | NextN | files | memory |\n"
           "| --- | --- | --- | --- | --- | --- | --- | --- |\n");
    for (size_t i = 0; i < family_count(); i++) {
        const struct family *f = family_at(i);
        const struct entry *e = entry_of(f->arch);
        char window[48];
        window_text(f, window, sizeof window);
        printf("| `%s` | %s | %s | %s | %s | %s | %s | %s |\n", f->arch, e ? e->models : "",
               rope_text(f), window, f->moe ? "where the file has one" : "no",
               f->draft ? "yes" : "no", e ? e->files : "", e ? memory_text[e->memory] : "");
    }
}

static int run(const void *opts, int n, char **args)
{
    (void)n, (void)args;
    const struct families_opts *o = opts;
    if (o->markdown) {
        print_markdown();
        return CLI_OK;
    }
    for (size_t i = 0; i < family_count(); i++) {
        const struct entry *e = entry_of(family_at(i)->arch);
        printf("%-16s %s\n", family_at(i)->arch, e ? e->models : "");
    }
    return CLI_OK;
}

static const struct cli_opt opts[] = {
    {.flag = "--markdown",
     CLI_FLAG(struct families_opts, markdown),
     .help = "print the table of docs/models.md"},
    {0},
};

const struct cli_command cmd_families = {
    .name = "families",
    .group = CLI_GROUP_MODELS,
    .summary = "list the model families this build can run",
    .about = "",
    .opts = opts,
    .opts_size = sizeof(struct families_opts),
    .run = run,
};
