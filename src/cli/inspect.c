/*
 * `linnet inspect`: what a model file says about itself: header, keys, tensor types, parameters,
 * size.
 *
 * Reads the header only; the file need not be one that can be run. Text from the file is shown with
 * control characters escaped, so that a hostile file cannot drive the terminal.
 */
#include "cli/engine.h"

#include "base/utf8.h"
#include "gguf/gguf.h"
#include "quant/quant.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

struct inspect_opts {
    bool json, tensors, full, plan;
    int64_t ctx;
    const char *kv;
};

enum {
    SHOWN_ITEMS = 6,  /* of an array */
    SHOWN_BYTES = 60, /* of a string; a chat template is thousands long */
};

static const char *type_name(enum gguf_type t)
{
    static const char *const names[] = {
        [GGUF_U8] = "u8",      [GGUF_I8] = "i8",       [GGUF_U16] = "u16", [GGUF_I16] = "i16",
        [GGUF_U32] = "u32",    [GGUF_I32] = "i32",     [GGUF_F32] = "f32", [GGUF_BOOL] = "bool",
        [GGUF_STRING] = "str", [GGUF_ARRAY] = "array", [GGUF_U64] = "u64", [GGUF_I64] = "i64",
        [GGUF_F64] = "f64",
    };
    return names[t];
}

static const char *tensor_type_name(uint32_t id)
{
    const struct quant_type *t = quant_type_of(id);
    return t ? t->name : "unknown";
}

static uint64_t count_params(const struct gguf *g)
{
    uint64_t n = 0;
    for (size_t i = 0; i < gguf_n_tensors(g); i++)
        n += gguf_tensor_at(g, i)->n_elems;
    return n;
}

/* ---- tensor types ---------------------------------------------------------------------------- */

struct type_row {
    uint32_t type;
    size_t tensors;
    uint64_t params, bytes;
};

static int by_bytes(const void *a, const void *b)
{
    const struct type_row *x = a, *y = b;
    return x->bytes < y->bytes ? 1 : x->bytes > y->bytes ? -1 : 0;
}

/* The types that occur, largest first; free() the rows. */
static size_t count_types(const struct gguf *g, struct type_row **out)
{
    size_t n = 0, room = quant_type_count() + 1;
    struct type_row *row = cli_alloc(room * sizeof *row);
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        size_t at = 0;
        while (at < n && row[at].type != t->type)
            at++;
        if (at == n) {
            if (n == room)
                continue; /* cannot be: the reader knows every type it lets pass */
            row[n++] = (struct type_row){.type = t->type};
        }
        row[at].tensors++;
        row[at].params += t->n_elems;
        row[at].bytes += t->size;
    }
    qsort(row, n, sizeof *row, by_bytes);
    *out = row;
    return n;
}

/* ---- for people ------------------------------------------------------------------------------ */

/* Text from the file, at most `max` bytes of it, control characters and broken UTF-8 made
 * visible. */
static void put_text(struct gguf_str s, size_t max)
{
    size_t n = s.n < max ? s.n : max;
    putchar('"');
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        size_t len = utf8_decode(s.s + i, s.n - i, &cp);
        if (cp == '\n')
            printf("\\n");
        else if (cp == '"' || cp == '\\')
            printf("\\%c", (int)cp);
        else if (cp == UTF8_REPLACEMENT && s.s[i] != '\xEF')
            for (size_t k = 0; k < len; k++)
                printf("\\x%02x", (unsigned)(unsigned char)s.s[i + k]);
        else if (cp < ' ' || (cp >= 0x7F && cp < 0xA0))
            printf("\\u%04x", (unsigned)cp);
        else
            fwrite(s.s + i, 1, len, stdout);
        i += len;
    }
    printf(s.n > max ? "\"..." : "\"");
}

static void put_item(const struct gguf_kv *kv, size_t i, size_t max)
{
    switch (kv->elem) {
    case GGUF_STRING: put_text(gguf_str_at(kv, i), max); break;
    case GGUF_BOOL: printf(gguf_int_at(kv, i) ? "true" : "false"); break;
    case GGUF_F32: printf("%.7g", gguf_float_at(kv, i)); break;
    case GGUF_F64: printf("%.17g", gguf_float_at(kv, i)); break;
    case GGUF_ARRAY: printf("[...]"); break;
    default: printf("%lld", (long long)gguf_int_at(kv, i)); break;
    }
}

static void print_keys(const struct gguf *g, bool full)
{
    int width = 0;
    for (size_t i = 0; i < gguf_n_kv(g); i++) {
        size_t n = strlen(gguf_kv_at(g, i)->key);
        width = n > (size_t)width && n <= 48 ? (int)n : width;
    }
    printf("\n%sKeys%s\n", cli_style(stdout, CLI_BOLD), cli_style(stdout, CLI_PLAIN));
    for (size_t i = 0; i < gguf_n_kv(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        printf("  %-*s  %-4s  ", width, kv->key, type_name(kv->elem));
        if (kv->type != GGUF_ARRAY) {
            put_item(kv, 0, full ? SIZE_MAX : SHOWN_BYTES);
        } else {
            char count[CLI_NUM_LEN];
            size_t n = full || kv->count < SHOWN_ITEMS ? (size_t)kv->count : SHOWN_ITEMS;
            printf("[%s]", cli_format_int(count, kv->count));
            for (size_t k = 0; k < n; k++) {
                putchar(' ');
                put_item(kv, k, full ? SIZE_MAX : 12);
            }
            if (n < kv->count)
                printf(" ...");
        }
        putchar('\n');
    }
}

/* "[576, 49152]": the contiguous dimension first, as in the file. */
static const char *format_dims(const struct gguf_tensor *t, char *buf, size_t size)
{
    int n = snprintf(buf, size, "[");
    for (uint32_t d = 0; d < t->n_dims && n > 0 && (size_t)n < size; d++)
        n += snprintf(buf + n, size - (size_t)n, "%s%llu", d ? ", " : "",
                      (unsigned long long)t->dims[d]);
    if (n > 0 && (size_t)n < size)
        snprintf(buf + n, size - (size_t)n, "]");
    return buf;
}

static void print_tensors(const struct gguf *g)
{
    int width = 4;
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        size_t n = strlen(gguf_tensor_at(g, i)->name);
        width = n > (size_t)width && n <= 64 ? (int)n : width;
    }
    printf("\n%s  %-*s  %-8s %-24s %9s%s\n", cli_style(stdout, CLI_BOLD), width, "TENSOR", "TYPE",
           "SHAPE", "SIZE", cli_style(stdout, CLI_PLAIN));
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        char dims[100], size[CLI_NUM_LEN];
        printf("  %-*s  %-8s %-24s %9s\n", width, t->name, tensor_type_name(t->type),
               format_dims(t, dims, sizeof dims), cli_format_size(size, t->size));
    }
}

static void print_types(const struct gguf *g)
{
    struct type_row *row;
    size_t n = count_types(g, &row);
    printf("\n%s  %-8s %8s %11s %9s  %s%s\n", cli_style(stdout, CLI_BOLD), "TYPE", "TENSORS",
           "PARAMETERS", "SIZE", "BITS EACH", cli_style(stdout, CLI_PLAIN));
    for (size_t i = 0; i < n; i++) {
        char params[CLI_NUM_LEN], size[CLI_NUM_LEN];
        double bits = row[i].params ? 8.0 * (double)row[i].bytes / (double)row[i].params : 0;
        printf("  %-8s %8zu %11s %9s  %9.2f\n", tensor_type_name(row[i].type), row[i].tensors,
               cli_format_count(params, row[i].params), cli_format_size(size, row[i].bytes), bits);
    }
    free(row);
}

static void print_fact(const char *name, const struct gguf *g, const char *key)
{
    struct gguf_str s;
    if (gguf_get_str(g, key, &s, NULL) != LINNET_OK)
        return;
    printf("  %-13s ", name);
    put_text(s, 200);
    putchar('\n');
}

/* A number under "<architecture>.<key>". */
static void print_number(const char *name, const struct gguf *g, const char *key)
{
    struct gguf_str arch;
    uint32_t v;
    if (gguf_get_str(g, "general.architecture", &arch, NULL) != LINNET_OK)
        return;
    char *full = cli_printf("%.*s.%s", arch.n < 100 ? (int)arch.n : 100, arch.s, key);
    char text[CLI_NUM_LEN];
    if (gguf_get_u32(g, full, &v, NULL) == LINNET_OK)
        printf("  %-13s %s\n", name, cli_format_int(text, v));
    free(full);
}

static void print_summary(const struct gguf *g, const char *path)
{
    char size[CLI_NUM_LEN], params[CLI_NUM_LEN], count[CLI_NUM_LEN];
    size_t parts = gguf_n_parts(g), n;
    const struct gguf_kv *tokens;
    printf("%s%s%s\n", cli_style(stdout, CLI_BOLD), path, cli_style(stdout, CLI_PLAIN));
    print_fact("name", g, "general.name");
    print_fact("architecture", g, "general.architecture");
    print_fact("licence", g, "general.license");
    printf("  %-13s %s, GGUF version %u", "size", cli_format_size(size, gguf_file_size(g)),
           (unsigned)gguf_version(g));
    if (parts > 1)
        printf(", %zu files", parts);
    printf("\n  %-13s %s in %zu tensors\n", "parameters", cli_format_count(params, count_params(g)),
           gguf_n_tensors(g));
    print_number("layers", g, "block_count");
    print_number("width", g, "embedding_length");
    print_number("context", g, "context_length");
    if (gguf_get_array(g, "tokenizer.ggml.tokens", GGUF_KIND_STR, &tokens, &n, NULL) == LINNET_OK)
        printf("  %-13s %s tokens\n", "vocabulary", cli_format_int(count, n));
}

/* ---- for programs ---------------------------------------------------------------------------- */

/* Bytes that are not UTF-8 become replacement characters: JSON has no other way. */
static json_t *json_text(struct gguf_str s, size_t max)
{
    size_t n = s.n < max ? s.n : max, at = 0;
    char *buf = cli_alloc(3 * n + 4);
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        i += utf8_decode(s.s + i, s.n - i, &cp);
        at += utf8_encode(cp, buf + at);
    }
    json_t *j = json_stringn(buf, at);
    free(buf);
    return j;
}

static json_t *json_item(const struct gguf_kv *kv, size_t i)
{
    double v;
    switch (kv->elem) {
    case GGUF_STRING: return json_text(gguf_str_at(kv, i), SIZE_MAX);
    case GGUF_BOOL: return json_boolean(gguf_int_at(kv, i));
    case GGUF_F32:
    case GGUF_F64: v = gguf_float_at(kv, i); return isfinite(v) ? json_real(v) : json_null();
    case GGUF_ARRAY: return json_null();
    default: return json_integer(gguf_int_at(kv, i));
    }
}

static json_t *json_keys(const struct gguf *g, bool full)
{
    json_t *all = json_object();
    for (size_t i = 0; i < gguf_n_kv(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        json_t *j = json_object();
        json_object_set_new(j, "type", json_string(type_name(kv->elem)));
        if (kv->type != GGUF_ARRAY) {
            json_object_set_new(j, "value", json_item(kv, 0));
        } else {
            size_t n = full || kv->count < SHOWN_ITEMS ? (size_t)kv->count : SHOWN_ITEMS;
            json_t *items = json_array();
            for (size_t k = 0; k < n; k++)
                json_array_append_new(items, json_item(kv, k));
            json_object_set_new(j, "count", json_integer((json_int_t)kv->count));
            json_object_set_new(j, n < kv->count ? "first" : "values", items);
        }
        struct gguf_str key = {kv->key, strlen(kv->key)};
        json_t *name = json_text(key, SIZE_MAX);
        json_object_set_new(all, json_string_value(name), j);
        json_decref(name);
    }
    return all;
}

static json_t *json_tensors(const struct gguf *g)
{
    json_t *all = json_array();
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        struct gguf_str name = {t->name, strlen(t->name)};
        json_t *dims = json_array(), *j = json_object();
        for (uint32_t d = 0; d < t->n_dims; d++)
            json_array_append_new(dims, json_integer((json_int_t)t->dims[d]));
        json_object_set_new(j, "name", json_text(name, SIZE_MAX));
        json_object_set_new(j, "type", json_string(tensor_type_name(t->type)));
        json_object_set_new(j, "shape", dims);
        json_object_set_new(j, "bytes", json_integer((json_int_t)t->size));
        json_object_set_new(j, "file", json_integer((json_int_t)t->part));
        json_object_set_new(j, "offset", json_integer((json_int_t)t->offset));
        json_array_append_new(all, j);
    }
    return all;
}

static json_t *json_types(const struct gguf *g)
{
    struct type_row *row;
    size_t n = count_types(g, &row);
    json_t *all = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(
            all, json_pack("{s:s, s:I, s:I, s:I}", "type", tensor_type_name(row[i].type), "tensors",
                           (json_int_t)row[i].tensors, "parameters", (json_int_t)row[i].params,
                           "bytes", (json_int_t)row[i].bytes));
    free(row);
    return all;
}

/* ---- running it ------------------------------------------------------------------------------ */

/* What running the model would take; `why` says why it cannot be run. */
struct needs {
    bool runs;
    linnet_model *model; /* plan only */
    linnet_model_info info;
    uint32_t n_ctx;
    linnet_memory memory;
    linnet_error why;
};

static void find_needs(struct needs *n, const char *path, const struct inspect_opts *o)
{
    linnet_model_options mo;
    linnet_context_options co;
    *n = (struct needs){0};
    linnet_model_defaults(&mo);
    linnet_context_defaults(&co);
    mo.plan_only = true;
    mo.threads = 1;
    co.n_ctx = (uint32_t)o->ctx;
    co.kv_k = co.kv_v = engine_kv_type(o->kv);
    if (linnet_model_open(path, &mo, &n->model, &n->why) != LINNET_OK)
        return;
    linnet_model_get_info(n->model, &n->info);
    n->n_ctx = co.n_ctx ? co.n_ctx : n->info.n_ctx_train;
    n->runs = linnet_context_memory(n->model, &co, &n->memory, &n->why) == LINNET_OK;
}

static void print_needs(const struct needs *n, const struct inspect_opts *o)
{
    char a[CLI_NUM_LEN], b[CLI_NUM_LEN], c[CLI_NUM_LEN], d[CLI_NUM_LEN], ctx[CLI_NUM_LEN];
    printf("\n%sto run it%s\n", cli_style(stdout, CLI_BOLD), cli_style(stdout, CLI_PLAIN));
    if (!n->runs) {
        printf("  cannot: %s\n", n->why.text);
        return;
    }
    printf(
        "  %s: %s of weights, %s of session state (%s positions, %s), %s of working memory\n",
        cli_format_size(a, n->info.weight_bytes + n->memory.kv + n->memory.state + n->memory.work),
        cli_format_size(b, n->info.weight_bytes),
        cli_format_size(c, n->memory.kv + n->memory.state), cli_format_int(ctx, n->n_ctx), o->kv,
        cli_format_size(d, n->memory.work));
}

static json_t *json_needs(const struct needs *n, const struct inspect_opts *o)
{
    if (!n->runs)
        return json_pack("{s:b, s:s}", "possible", 0, "why", n->why.text);
    return json_pack("{s:b, s:I, s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "possible", 1, "n_ctx",
                     (json_int_t)n->n_ctx, "kv_type", o->kv, "weight_bytes",
                     (json_int_t)n->info.weight_bytes, "kv_bytes", (json_int_t)n->memory.kv,
                     "state_bytes", (json_int_t)n->memory.state, "checkpoint_bytes",
                     (json_int_t)n->memory.checkpoints, "work_bytes", (json_int_t)n->memory.work,
                     "step_bytes", (json_int_t)n->info.step_bytes);
}

static void print_plan(const struct needs *n)
{
    char line[600];
    printf("%splan%s  dispatch, layer, step, what it writes <- what it reads\n",
           cli_style(stdout, CLI_BOLD), cli_style(stdout, CLI_PLAIN));
    for (size_t i = 0; n->model && linnet_model_plan_line(n->model, i, line, sizeof line); i++)
        printf("%s\n", line);
    putchar('\n');
}

static json_t *json_plan(const struct needs *n)
{
    char line[600];
    json_t *all = json_array();
    for (size_t i = 0; n->model && linnet_model_plan_line(n->model, i, line, sizeof line); i++)
        json_array_append_new(all, json_string(line));
    return all;
}

static int print_json(const struct gguf *g, const struct inspect_opts *o, const struct needs *n)
{
    json_t *root = json_object(), *paths = json_array();
    for (size_t i = 0; i < gguf_n_parts(g); i++) {
        const char *path = gguf_part_path(g, i);
        struct gguf_str text = {path, strlen(path)};
        json_array_append_new(paths, json_text(text, SIZE_MAX));
    }
    json_object_set_new(root, "files", paths);
    json_object_set_new(root, "bytes", json_integer((json_int_t)gguf_file_size(g)));
    json_object_set_new(root, "version", json_integer((json_int_t)gguf_version(g)));
    json_object_set_new(root, "alignment", json_integer((json_int_t)gguf_alignment(g)));
    json_object_set_new(root, "parameters", json_integer((json_int_t)count_params(g)));
    json_object_set_new(root, "types", json_types(g));
    json_object_set_new(root, "keys", json_keys(g, o->full));
    json_object_set_new(root, "run", json_needs(n, o));
    if (o->plan)
        json_object_set_new(root, "plan", json_plan(n));
    if (o->tensors)
        json_object_set_new(root, "tensors", json_tensors(g));
    int rc = json_dumpf(root, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(root);
    return rc == 0 ? CLI_OK : cli_fail("the description cannot be written as JSON");
}

/* ---- the command ----------------------------------------------------------------------------- */

static int run(const void *opts, int n, char **args)
{
    (void)n;
    const struct inspect_opts *o = opts;
    linnet_error e;
    struct gguf *g = NULL;
    char *path = cli_model_path(args[0]);
    if (!path)
        return CLI_FAILED;
    int rc = CLI_OK;
    struct needs needs = {0};
    if (gguf_open(path, &g, &e) == LINNET_OK)
        find_needs(&needs, path, o);
    if (!g) {
        rc = cli_fail_with(&e);
    } else if (o->json) {
        rc = print_json(g, o, &needs);
    } else {
        print_summary(g, path);
        print_needs(&needs, o);
        print_types(g);
        if (o->plan)
            print_plan(&needs);
        if (o->tensors)
            print_tensors(g);
        print_keys(g, o->full);
    }
    linnet_model_close(needs.model);
    gguf_close(g);
    free(path);
    return rc;
}

static const struct cli_arg args[] = {
    {.name = "MODEL", .help = "a GGUF file, or a model that was pulled", .hint = CLI_HINT_MODEL},
    {0},
};

static const struct cli_opt options[] = {
    {.flag = "--tensors",
     .letter = 't',
     CLI_FLAG(struct inspect_opts, tensors),
     .help = "list every tensor too"},
    {.flag = "--plan",
     .letter = 'p',
     CLI_FLAG(struct inspect_opts, plan),
     .help = "list the steps that run it"},
    {.flag = "--ctx",
     .letter = 'c',
     CLI_INT(struct inspect_opts, ctx, 0, INT32_MAX),
     .arg = "N",
     .def = "0",
     .help = "count memory for N positions; 0: as many as the model was trained for"},
    {.flag = "--kv-type",
     CLI_CHOICE(struct inspect_opts, kv, "f16|f32|bf16|q8_0"),
     .arg = "TYPE",
     .def = "f16",
     .help = "and with keys and values kept in this type"},
    {.flag = "--full",
     CLI_FLAG(struct inspect_opts, full),
     .help = "show whole arrays and strings, not only their beginnings"},
    {.flag = "--json", CLI_FLAG(struct inspect_opts, json), .help = "print JSON"},
    {0},
};

const struct cli_command cmd_inspect = {
    .name = "inspect",
    .group = CLI_GROUP_MODELS,
    .summary = "show what is in a model file",
    .about = "",
    .args = args,
    .opts = options,
    .opts_size = sizeof(struct inspect_opts),
    .examples = "linnet inspect smollm2 --json | jq .parameters\tone fact for a script\n",
    .run = run,
};
