/*
 * `linnet tokenize` and `linnet detokenize`: text to token ids and back with a file's vocabulary.
 * The file needs no weights.
 *
 * With --jsonl, tokenize is a filter: one JSON object in, one out, flushed line by line, so that a
 * program can keep it as a partner. A line that cannot be done gives {"error": ...} and the next
 * one is read.
 */
#include "base/limits.h"
#include "cli/commands.h"
#include "text/vocab.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static int open_vocab(const char *name, struct vocab **v)
{
    linnet_error e;
    struct gguf *g;
    char *path = cli_model_path(name);
    if (!path)
        return CLI_FAILED;
    linnet_status status = gguf_open(path, &g, &e);
    free(path);
    if (status != LINNET_OK)
        return cli_fail_with(&e);
    status = vocab_load(g, v, &e);
    gguf_close(g);
    return status == LINNET_OK ? CLI_OK : cli_fail_with(&e);
}

/* Ids of a text, of any number. NULL on failure, with *e filled. */
static int32_t *encode(const struct vocab *v, const char *text, size_t n, unsigned flags,
                       size_t *n_ids, linnet_error *e)
{
    size_t cap = n + 16;
    int32_t *ids = cli_alloc(cap * sizeof *ids);
    linnet_status status = vocab_encode(v, text, n, flags, ids, cap, n_ids, e);
    if (status == LINNET_LIMIT && *n_ids > cap) {
        free(ids);
        cap = *n_ids;
        ids = cli_alloc(cap * sizeof *ids);
        status = vocab_encode(v, text, n, flags, ids, cap, n_ids, e);
    }
    if (status == LINNET_OK)
        return ids;
    free(ids);
    return NULL;
}

static char *decode(const struct vocab *v, const int32_t *ids, size_t n, unsigned flags,
                    size_t *n_text, linnet_error *e)
{
    size_t cap = n * vocab_piece_max(v) + 1;
    char *text = cli_alloc(cap);
    if (vocab_decode(v, ids, n, flags, text, cap, n_text, e) == LINNET_OK)
        return text;
    free(text);
    return NULL;
}

/* ---- base64 ---------------------------------------------------------------------------------- */

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static char *base64_write(const char *s, size_t n)
{
    char *out = cli_alloc((n + 2) / 3 * 4 + 1), *p = out;
    for (size_t i = 0; i < n; i += 3) {
        size_t left = n - i;
        uint32_t w = (uint32_t)(uint8_t)s[i] << 16 |
                     (left > 1 ? (uint32_t)(uint8_t)s[i + 1] << 8 : 0) |
                     (left > 2 ? (uint8_t)s[i + 2] : 0);
        *p++ = alphabet[w >> 18];
        *p++ = alphabet[w >> 12 & 63];
        *p++ = left > 1 ? alphabet[w >> 6 & 63] : '=';
        *p++ = left > 2 ? alphabet[w & 63] : '=';
    }
    *p = '\0';
    return out;
}

/* Decode in place; false when it is not base64. */
static bool base64_read(char *s, size_t n, size_t *n_out)
{
    size_t out = 0, pad = 0;
    uint32_t w = 0;
    if (n % 4)
        return false;
    while (pad < 2 && pad < n && s[n - 1 - pad] == '=')
        pad++;
    for (size_t i = 0; i < n; i++) {
        const char *p = i < n - pad ? strchr(alphabet, s[i]) : alphabet;
        if (!s[i] || !p)
            return false;
        w = w << 6 | (uint32_t)(p - alphabet);
        if (i % 4 == 3) {
            s[out++] = (char)(w >> 16);
            s[out++] = (char)(w >> 8);
            s[out++] = (char)w;
        }
    }
    *n_out = out - pad;
    return true;
}

/* ---- tokenize -------------------------------------------------------------------------------- */

struct tokenize_opts {
    bool add_special, parse_special, pieces, jsonl;
};

/* The fields of a request: what is absent has its default, what has a wrong type is an error. */
static bool read_request(const json_t *request, const char **text, size_t *n, unsigned *flags,
                         const char **error)
{
    static const struct {
        const char *name;
        unsigned flag;
    } flag_names[] = {{"add_special", VOCAB_ADD_SPECIAL}, {"parse_special", VOCAB_PARSE_SPECIAL}};
    const json_t *value = json_object_get(request, "text_b64");
    if (!json_is_object(request) || !json_is_string(value)) {
        *error = json_is_object(request) ? "\"text_b64\" must be a string" : "not a JSON object";
        return false;
    }
    *text = json_string_value(value);
    *n = json_string_length(value);
    for (size_t i = 0; i < sizeof flag_names / sizeof flag_names[0]; i++) {
        value = json_object_get(request, flag_names[i].name);
        if (value && !json_is_boolean(value)) {
            *error = i ? "\"parse_special\" must be true or false"
                       : "\"add_special\" must be true or false";
            return false;
        }
        *flags |= json_is_true(value) ? flag_names[i].flag : 0;
    }
    return true;
}

static json_t *answer_ids(const struct vocab *v, const char *text, size_t n, unsigned flags,
                          linnet_error *e)
{
    size_t n_ids, n_back;
    int32_t *ids = encode(v, text, n, flags, &n_ids, e);
    if (!ids)
        return NULL;
    char *back = decode(v, ids, n_ids, VOCAB_SHOW_SPECIAL | VOCAB_WHOLE_TEXT, &n_back, e);
    json_t *answer = NULL, *list = json_array();
    if (back) {
        for (size_t i = 0; i < n_ids; i++)
            json_array_append_new(list, json_integer(ids[i]));
        char *encoded = base64_write(back, n_back);
        answer = json_pack("{s:O, s:s}", "ids", list, "detok_b64", encoded);
        free(encoded);
    }
    json_decref(list);
    free(back);
    free(ids);
    return answer;
}

static json_t *answer_line(const struct vocab *v, const char *line, size_t n)
{
    json_error_t where;
    linnet_error e = {.text = "out of memory"};
    json_t *request = json_loadb(line, n, JSON_ALLOW_NUL, &where), *answer = NULL;
    const char *field, *error = where.text;
    size_t n_text = 0;
    unsigned flags = 0;
    if (request && read_request(request, &field, &n_text, &flags, &error)) {
        char *text = cli_alloc(n_text + 1);
        memcpy(text, field, n_text + 1);
        if (base64_read(text, n_text, &n_text)) {
            answer = answer_ids(v, text, n_text, flags, &e);
            error = e.text;
        } else {
            error = "\"text_b64\" is not base64";
        }
        free(text);
    }
    if (!answer)
        answer = json_pack("{s:s}", "error", error);
    json_decref(request);
    return answer;
}

static int filter(const struct vocab *v, FILE *in, FILE *out)
{
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    int rc = CLI_OK;
    while (rc == CLI_OK && (n = getline(&line, &cap, in)) >= 0) {
        if (n > 0 && line[n - 1] == '\n')
            n--;
        if (n == 0)
            continue;
        json_t *answer = answer_line(v, line, (size_t)n);
        if (!answer || json_dumpf(answer, out, JSON_COMPACT) != 0 || fputc('\n', out) == EOF ||
            fflush(out) != 0)
            rc = cli_fail("cannot write: %s", strerror(errno));
        json_decref(answer);
    }
    if (rc == CLI_OK && ferror(in))
        rc = cli_fail("cannot read stdin: %s", strerror(errno));
    free(line);
    return rc;
}

/* A piece on one line: JSON's way of writing a string, with U+FFFD for what is not UTF-8. */
static void print_piece(const struct vocab *v, int32_t id)
{
    struct gguf_str s = vocab_piece(v, id);
    json_t *text = json_stringn(s.s, s.n);
    char *quoted = text ? json_dumps(text, JSON_ENCODE_ANY) : NULL;
    if (quoted) {
        printf("%8d  %s\n", id, quoted);
    } else {
        printf("%8d  bytes", id);
        for (size_t i = 0; i < s.n; i++)
            printf(" %02x", (uint8_t)s.s[i]);
        putchar('\n');
    }
    free(quoted);
    json_decref(text);
}

static int print_ids(const struct vocab *v, const struct tokenize_opts *o, const char *text,
                     size_t n)
{
    linnet_error e;
    size_t n_ids;
    unsigned flags =
        (o->add_special ? VOCAB_ADD_SPECIAL : 0u) | (o->parse_special ? VOCAB_PARSE_SPECIAL : 0u);
    int32_t *ids = encode(v, text, n, flags, &n_ids, &e);
    if (!ids)
        return cli_fail_with(&e);
    for (size_t i = 0; i < n_ids; i++)
        if (o->pieces)
            print_piece(v, ids[i]);
        else
            printf("%s%d", i ? " " : "", ids[i]);
    if (!o->pieces)
        putchar('\n');
    free(ids);
    return fflush(stdout) == 0 ? CLI_OK : cli_fail("cannot write: %s", strerror(errno));
}

static int tokenize(const void *opts, int n, char **args)
{
    const struct tokenize_opts *o = opts;
    if (o->jsonl && (n > 1 || o->add_special || o->parse_special || o->pieces))
        return cli_usage(&cmd_tokenize, "--jsonl takes its text and flags from the lines on stdin");
    struct vocab *v = NULL;
    int rc = open_vocab(args[0], &v);
    if (rc == CLI_OK && o->jsonl) {
        rc = filter(v, stdin, stdout);
    } else if (rc == CLI_OK) {
        size_t n_text = n > 1 ? strlen(args[1]) : 0;
        char *text = n > 1 ? args[1] : cli_read_stream(stdin, "stdin", LIMIT_TEXT_BYTES, &n_text);
        rc = text ? print_ids(v, o, text, n_text) : CLI_FAILED;
        if (n <= 1)
            free(text);
    }
    vocab_free(v);
    return rc;
}

static const struct cli_arg tokenize_args[] = {
    {.name = "MODEL", .help = "a GGUF file or the name of a pulled model", .hint = CLI_HINT_MODEL},
    {.name = "TEXT",
     .help = "the text; without it stdin is read, every byte of it",
     .optional = true},
    {0},
};

static const struct cli_opt tokenize_options[] = {
    {.flag = "--add-special",
     CLI_FLAG(struct tokenize_opts, add_special),
     .help = "begin and end with the tokens the model expects, such as BOS"},
    {.flag = "--parse-special",
     CLI_FLAG(struct tokenize_opts, parse_special),
     .help = "names of control tokens in the text become those tokens"},
    {.flag = "--pieces",
     CLI_FLAG(struct tokenize_opts, pieces),
     .help = "one token a line, with its text"},
    {.flag = "--jsonl",
     CLI_FLAG(struct tokenize_opts, jsonl),
     .help = "read {\"text_b64\", \"add_special\", \"parse_special\"} a line, write {\"ids\", "
             "\"detok_b64\"}"},
    {0},
};

const struct cli_command cmd_tokenize = {
    .name = "tokenize",
    .group = CLI_GROUP_TEXT,
    .summary = "turn text into token ids",
    .about = "Uses the vocabulary of MODEL; the file needs no weights. With --jsonl each line of "
             "stdin is a request and "
             "each line of stdout its answer: the ids, and the text they decode to (detok_b64), or "
             "{\"error\": text}. An absent flag is false; other fields are not looked at.",
    .args = tokenize_args,
    .opts = tokenize_options,
    .opts_size = sizeof(struct tokenize_opts),
    .examples = "linnet tokenize model.gguf 'Hello world'\tprint ids\n"
                "linnet tokenize --pieces model.gguf <text.txt\tshow how a file is cut\n",
    .run = tokenize,
};

/* ---- detokenize ------------------------------------------------------------------------------ */

struct detokenize_opts {
    bool hide_special, stream;
};

/* Ids separated by white space or commas; NULL after an error. */
static int32_t *parse_ids(const char *text, int32_t *ids, size_t *n, size_t *cap)
{
    for (const char *p = text; *p;) {
        if (strchr(" \t\r\n,", *p)) {
            p++;
            continue;
        }
        char *end;
        errno = 0;
        long id = strtol(p, &end, 10);
        if (end == p || errno || id < 0 || id > INT32_MAX || (*end && !strchr(" \t\r\n,", *end))) {
            cli_fail("'%.20s' is not a token id", p);
            free(ids);
            return NULL;
        }
        if (*n == *cap) {
            *cap = *cap * 2 + 16;
            int32_t *more = cli_alloc(*cap * sizeof *more);
            if (*n)
                memcpy(more, ids, *n * sizeof *more);
            free(ids);
            ids = more;
        }
        ids[(*n)++] = (int32_t)id;
        p = end;
    }
    return ids;
}

static int32_t *gather_ids(int n, char **args, size_t *n_ids)
{
    size_t cap = 16, n_text = 0;
    int32_t *ids = cli_alloc(cap * sizeof *ids);
    *n_ids = 0;
    for (int i = 0; ids && i < n; i++)
        ids = parse_ids(args[i], ids, n_ids, &cap);
    if (n > 0 || !ids)
        return ids;
    char *text = cli_read_stream(stdin, "stdin", LIMIT_TEXT_BYTES, &n_text);
    if (!text) {
        free(ids);
        return NULL;
    }
    ids = parse_ids(text, ids, n_ids, &cap);
    free(text);
    return ids;
}

static int detokenize(const void *opts, int n, char **args)
{
    const struct detokenize_opts *o = opts;
    unsigned flags =
        (o->hide_special ? 0u : VOCAB_SHOW_SPECIAL) | (o->stream ? 0u : VOCAB_STRIP_PREFIX);
    linnet_error e;
    struct vocab *v = NULL;
    size_t n_ids, n_text;
    int rc = open_vocab(args[0], &v);
    int32_t *ids = rc == CLI_OK ? gather_ids(n - 1, args + 1, &n_ids) : NULL;
    if (rc == CLI_OK && !ids)
        rc = CLI_USAGE;
    if (rc == CLI_OK) {
        char *text = decode(v, ids, n_ids, flags, &n_text, &e);
        if (!text)
            rc = cli_fail_with(&e);
        else if (fwrite(text, 1, n_text, stdout) != n_text || fflush(stdout) != 0)
            rc = cli_fail("cannot write: %s", strerror(errno));
        else if (cli_is_terminal(stdout))
            putchar('\n');
        free(text);
    }
    free(ids);
    vocab_free(v);
    return rc;
}

static const struct cli_arg detokenize_args[] = {
    {.name = "MODEL", .help = "a GGUF file or the name of a pulled model", .hint = CLI_HINT_MODEL},
    {.name = "IDS",
     .help = "token ids, also separated by commas; without them stdin is read",
     .optional = true,
     .repeated = true},
    {0},
};

static const struct cli_opt detokenize_options[] = {
    {.flag = "--hide-special",
     CLI_FLAG(struct detokenize_opts, hide_special),
     .help = "leave control tokens out instead of printing their names"},
    {.flag = "--stream",
     CLI_FLAG(struct detokenize_opts, stream),
     .help = "the ids go on from others: keep the space at the front"},
    {0},
};

const struct cli_command cmd_detokenize = {
    .name = "detokenize",
    .group = CLI_GROUP_TEXT,
    .summary = "turn token ids into text",
    .about = "Prints exactly the bytes the tokens stand for, but for the space that some "
             "vocabularies put before a "
             "text. The file needs no weights.",
    .args = detokenize_args,
    .opts = detokenize_options,
    .opts_size = sizeof(struct detokenize_opts),
    .examples = "linnet detokenize model.gguf 9707 1879\tprint the text of two tokens\n",
    .run = detokenize,
};
