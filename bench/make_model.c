/*
 * Writes GGUF files with the shapes of published models (shapes.h) and random weights, for
 * measuring speed: what a model says does not matter to that, what it reads and multiplies does.
 * Weights are normal with deviation 1 / sqrt(columns), so that activations stay in range and
 * routers use all experts.
 *
 *     make_model SHAPE TYPE FILE
 *
 * TYPE is a mixture as llama.cpp's tool makes it (q4_k_m) or one type for all matrices: then the
 * output matrix has that type too, if it has 6 bits or more, else q6_K. Random blocks are encoded
 * once for each type and deviation and then drawn from, so that a file takes seconds. The
 * vocabulary is byte-level BPE over made-up words of up to four letters, with as many tokens as the
 * shape says. The same arguments give the same bytes.
 */
#include "quant/quant.h"
#include "shapes.h"

enum {
    CHUNK = 256,     /* elements drawn at once; no block is larger */
    N_CHUNKS = 4096, /* encoded chunks to draw from */
    MAX_PATTERNS = 64,
};

/* ---- random numbers (splitmix64) ---- */

static uint64_t state;

static uint64_t next_random(void)
{
    uint64_t z = state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

/* The sum of four even numbers: as good as normal for this, deviation 1. */
static double next_normal(void)
{
    uint64_t r = next_random();
    double sum = (double)((r & 0xFFFF) + (r >> 16 & 0xFFFF) + (r >> 32 & 0xFFFF) + (r >> 48));
    return (sum / 65535.0 - 2.0) * 1.7320508;
}

static void *take(size_t n)
{
    void *p = malloc(n);
    if (!p) {
        fprintf(stderr, "make_model: out of memory\n");
        exit(1);
    }
    return p;
}

/* ---- types ---- */

struct mix {
    const char *name;
    uint32_t type, more; /* of matrices; of attn_v and ffn_down in the layers that get more bits */
    uint32_t output;
    uint32_t file_type; /* general.file_type */
};

static const struct mix mixes[] = {
    {"q4_k_m", QUANT_Q4_K, QUANT_Q6_K, QUANT_Q6_K, 15},
    {"q4_k", QUANT_Q4_K, QUANT_Q4_K, QUANT_Q6_K, 14},
    {"q5_k", QUANT_Q5_K, QUANT_Q5_K, QUANT_Q6_K, 16},
    {"q6_k", QUANT_Q6_K, QUANT_Q6_K, QUANT_Q6_K, 18},
    {"q8_0", QUANT_Q8_0, QUANT_Q8_0, QUANT_Q8_0, 7},
    {"q4_0", QUANT_Q4_0, QUANT_Q4_0, QUANT_Q6_K, 2},
    {"q4_1", QUANT_Q4_1, QUANT_Q4_1, QUANT_Q6_K, 3},
    {"q5_0", QUANT_Q5_0, QUANT_Q5_0, QUANT_Q6_K, 8},
    {"iq4_nl", QUANT_IQ4_NL, QUANT_IQ4_NL, QUANT_Q6_K, 25},
    {"iq4_xs", QUANT_IQ4_XS, QUANT_IQ4_XS, QUANT_Q6_K, 30},
    {"mxfp4", QUANT_MXFP4, QUANT_MXFP4, QUANT_Q6_K, 38},
    {"bf16", QUANT_BF16, QUANT_BF16, QUANT_BF16, 32},
    {"f16", QUANT_F16, QUANT_F16, QUANT_F16, 1},
    {"f32", QUANT_F32, QUANT_F32, QUANT_F32, 0},
};

/* The first and the last eighth of the layers, and every third between. */
static bool gets_more_bits(uint32_t layer, uint32_t n)
{
    return layer < n / 8 || layer >= 7 * n / 8 || (layer - n / 8) % 3 == 2;
}

/* What llama.cpp stores where rows are not whole blocks of 256. */
static uint32_t smaller_blocks(uint32_t type)
{
    switch (type) {
    case QUANT_Q4_K: return QUANT_Q5_0;
    case QUANT_Q5_K: return QUANT_Q5_1;
    case QUANT_Q6_K: return QUANT_Q8_0;
    default: return QUANT_IQ4_NL;
    }
}

static const struct quant_type *type_of(const struct tensor *t, const struct mix *m,
                                        uint32_t n_layer)
{
    uint32_t id = m->type;
    if (t->role == ROLE_SMALL)
        id = QUANT_F32;
    else if (t->role == ROLE_OUTPUT)
        id = m->output;
    else if (t->role != ROLE_EMBED && t->role != ROLE_MATRIX && gets_more_bits(t->layer, n_layer))
        id = m->more;
    const struct quant_type *q = quant_type_of(id);
    if (t->dims[0] % q->block && q->block == CHUNK)
        q = quant_type_of(smaller_blocks(id));
    return t->dims[0] % q->block ? quant_type_of(QUANT_F16) : q;
}

/* ---- weights ---- */

/* Encoded chunks of normal numbers. */
struct pattern {
    const struct quant_type *type;
    double deviation;
    size_t chunk_bytes;
    uint8_t *data; /* [N_CHUNKS][chunk_bytes] */
};

static const struct pattern *pattern_of(const struct quant_type *type, double deviation)
{
    static struct pattern patterns[MAX_PATTERNS];
    static size_t n;
    for (size_t i = 0; i < n; i++)
        if (patterns[i].type == type && patterns[i].deviation == deviation)
            return &patterns[i];
    struct pattern *p = &patterns[n++];
    if (n == MAX_PATTERNS || !type->encode) {
        fprintf(stderr, "make_model: %s\n",
                type->encode ? "too many kinds of tensors" : "a type without encoder");
        exit(1);
    }
    *p = (struct pattern){type, deviation, CHUNK / type->block * type->block_bytes, NULL};
    p->data = take(N_CHUNKS * p->chunk_bytes);
    for (size_t i = 0; i < N_CHUNKS; i++) {
        float x[CHUNK];
        for (size_t j = 0; j < CHUNK; j++)
            x[j] = (float)(next_normal() * deviation);
        type->encode(x, p->data + i * p->chunk_bytes, CHUNK);
    }
    return p;
}

static void fill_matrix(const struct tensor *t, const struct quant_type *type, uint8_t *dst,
                        size_t n_rows)
{
    const struct pattern *p = pattern_of(type, t->b);
    const size_t row_bytes = (size_t)t->dims[0] / type->block * type->block_bytes;
    for (size_t r = 0; r < n_rows; r++, dst += row_bytes)
        for (size_t at = 0; at < row_bytes; at += p->chunk_bytes) {
            size_t n = row_bytes - at < p->chunk_bytes ? row_bytes - at : p->chunk_bytes;
            memcpy(dst + at, p->data + next_random() % N_CHUNKS * p->chunk_bytes, n);
        }
}

/* Llama 3: frequencies whose wave is longer than 8192 positions are divided by 32, those below 8192
 * / 4 stay. */
static float rope_factor(size_t i, size_t n, double base)
{
    const double period = 2.0 * 3.14159265358979 * pow(base, (double)i / (double)n),
                 turns = 8192.0 / period;
    if (turns >= 4.0)
        return 1.0f;
    if (turns <= 1.0)
        return 32.0f;
    const double smooth = (turns - 1.0) / 3.0;
    return (float)(1.0 / ((1.0 - smooth) / 32.0 + smooth));
}

static void fill_small(const struct tensor *t, const struct shape *s, float *dst, size_t n)
{
    for (size_t i = 0; i < n; i++)
        switch (t->fill) {
        case FILL_NORMAL: dst[i] = (float)(t->a + t->b * next_normal()); break;
        case FILL_EVEN:
            dst[i] = (float)(t->a + (t->b - t->a) * (double)(next_random() >> 40) * 0x1p-24);
            break;
        case FILL_ROPE: dst[i] = rope_factor(i, n, (double)s->rope_base); break;
        }
}

static size_t write_tensor(const struct file *f, const struct tensor *t, const struct mix *m)
{
    const struct quant_type *type = type_of(t, m, f->s->n_layer);
    const size_t n_rows = (size_t)(t->dims[1] * t->dims[2] * t->dims[3]);
    const size_t size = (size_t)t->dims[0] / type->block * type->block_bytes * n_rows;
    uint8_t *data = take(size);
    linnet_error e;
    if (t->role == ROLE_SMALL)
        fill_small(t, f->s, (float *)(void *)data, (size_t)t->dims[0] * n_rows);
    else
        fill_matrix(t, type, data, n_rows);
    need(gguf_write_tensor(f->w, data, size, &e), &e);
    free(data);
    return size;
}

/* ---- vocabulary ---- */

/* Byte-level BPE writes bytes as characters: printable ones as themselves, the others as U+0100 and
 * on. */
static size_t byte_char(unsigned byte, char *out)
{
    unsigned c = byte, skipped = 0;
    if (!((byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174)) {
        for (unsigned b = 0; b < byte; b++)
            skipped += !((b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174);
        c = 256 + skipped;
    }
    if (c < 128) {
        out[0] = (char)c;
        return 1;
    }
    out[0] = (char)(0xC0 | c >> 6);
    out[1] = (char)(0x80 | (c & 63));
    return 2;
}

enum { WORD = 12, N_CONTROL = 4 };

struct vocab_lists {
    struct gguf_str *tokens, *merges;
    int32_t *types;
    char *text; /* [n][2][WORD] */
    size_t n, n_merges;
};

static void add_token(struct vocab_lists *v, const char *s, size_t n, int32_t type)
{
    char *at = v->text + v->n * 2 * WORD;
    memcpy(at, s, n);
    v->tokens[v->n] = (struct gguf_str){at, n};
    v->types[v->n++] = type;
}

/* A token that is another one and a letter. */
static void add_word(struct vocab_lists *v, struct gguf_str first, char letter)
{
    char word[WORD];
    memcpy(word, first.s, first.n);
    word[first.n] = letter;
    char *merge = v->text + v->n * 2 * WORD + WORD;
    memcpy(merge, first.s, first.n);
    merge[first.n] = ' ';
    merge[first.n + 1] = letter;
    v->merges[v->n_merges++] = (struct gguf_str){merge, first.n + 2};
    add_token(v, word, first.n + 1, 1);
}

static void put_vocab(struct file *f)
{
    static const char *const control[N_CONTROL] = {"<|begin|>", "<|end|>", "<|turn|>", "<|pad|>"};
    const size_t n = f->s->n_vocab, words = n - N_CONTROL;
    struct vocab_lists v = {take(n * sizeof *v.tokens),
                            take(n * sizeof *v.merges),
                            take(n * sizeof *v.types),
                            take(n * 2 * WORD),
                            0,
                            0};
    for (unsigned b = 0; b < 256; b++) {
        char s[2];
        add_token(&v, s, byte_char(b, s), 1);
    }
    for (char c = 'a'; c <= 'z' && v.n < words; c++)
        for (char d = 'a'; d <= 'z' && v.n < words; d++)
            add_word(&v, v.tokens[(unsigned char)c], d);
    for (char d = 'a'; d <= 'z' && v.n < words; d++)
        add_word(&v, v.tokens[' '], d);
    for (size_t i = 256; v.n < words; i++)
        for (char d = 'a'; d <= 'z' && v.n < words; d++)
            add_word(&v, v.tokens[i], d);
    for (size_t i = 0; i < N_CONTROL; i++)
        add_token(&v, control[i], strlen(control[i]), 3);
    linnet_error e;
    need(gguf_put_str(f->w, "tokenizer.ggml.model", "gpt2", 4, &e), &e);
    need(gguf_put_str(f->w, "tokenizer.ggml.pre", f->s->pre, strlen(f->s->pre), &e), &e);
    need(gguf_put_array(f->w, "tokenizer.ggml.tokens", GGUF_STRING, v.tokens, n, &e), &e);
    need(gguf_put_array(f->w, "tokenizer.ggml.token_type", GGUF_I32, v.types, n, &e), &e);
    need(gguf_put_array(f->w, "tokenizer.ggml.merges", GGUF_STRING, v.merges, v.n_merges, &e), &e);
    need(gguf_put_u32(f->w, "tokenizer.ggml.bos_token_id", (uint32_t)words, &e), &e);
    need(gguf_put_u32(f->w, "tokenizer.ggml.eos_token_id", (uint32_t)words + 1, &e), &e);
    need(gguf_put_u32(f->w, "tokenizer.ggml.eot_token_id", (uint32_t)words + 2, &e), &e);
    need(gguf_put_u32(f->w, "tokenizer.ggml.padding_token_id", (uint32_t)words + 3, &e), &e);
    need(gguf_put_bool(f->w, "tokenizer.ggml.add_bos_token", false, &e), &e);
    free(v.tokens);
    free(v.merges);
    free(v.types);
    free(v.text);
}

/* ---- the file ---- */

static void describe(struct file *f, const struct mix *m)
{
    const struct shape *s = f->s;
    linnet_error e;
    char name[96];
    int n = snprintf(name, sizeof name, "%s %s, random weights", s->name, m->name);
    need(gguf_put_str(f->w, "general.architecture", s->arch, strlen(s->arch), &e), &e);
    need(gguf_put_str(f->w, "general.name", name, (size_t)n, &e), &e);
    need(gguf_put_u32(f->w, "general.quantization_version", 2, &e), &e);
    need(gguf_put_u32(f->w, "general.file_type", m->file_type, &e), &e);
    s->build(f, s);
    put_vocab(f);
    for (size_t i = 0; i < f->n; i++) {
        const struct tensor *t = &f->tensors[i];
        need(gguf_add_tensor(f->w, t->name, type_of(t, m, s->n_layer)->id, t->n_dims, t->dims, &e),
             &e);
    }
}

static int usage(void)
{
    fprintf(stderr, "usage: make_model SHAPE TYPE FILE\nshapes:");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        fprintf(stderr, " %s", shapes[i].name);
    fprintf(stderr, "\ntypes:");
    for (size_t i = 0; i < sizeof mixes / sizeof *mixes; i++)
        fprintf(stderr, " %s", mixes[i].name);
    fprintf(stderr, "\n");
    return 2;
}

int main(int argc, char **argv)
{
    const struct shape *s = NULL;
    const struct mix *m = NULL;
    if (argc != 4)
        return usage();
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (strcmp(shapes[i].name, argv[1]) == 0)
            s = &shapes[i];
    for (size_t i = 0; i < sizeof mixes / sizeof *mixes; i++)
        if (strcmp(mixes[i].name, argv[2]) == 0)
            m = &mixes[i];
    if (!s || !m)
        return usage();
    linnet_error e;
    struct file f = {.s = s};
    need(gguf_writer_create(&f.w, &e), &e);
    describe(&f, m);
    need(gguf_write_begin(f.w, argv[3], &e), &e);
    double params = 0, bytes = 0;
    for (size_t i = 0; i < f.n; i++) {
        const struct tensor *t = &f.tensors[i];
        params += (double)(t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3]);
        bytes += (double)write_tensor(&f, t, m);
    }
    need(gguf_write_end(f.w, &e), &e);
    gguf_writer_destroy(f.w);
    free(f.tensors);
    printf("%s: %.2f G parameters, %.2f GB\n", argv[3], params * 1e-9, bytes * 1e-9);
    return 0;
}
