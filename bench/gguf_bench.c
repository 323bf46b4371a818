/*
 * How long a large vocabulary's header takes to open: 262,144 tokens with scores and types, and
 * 520,000 merges (the size of the largest published vocabularies). Prints the median of 15
 * openings, from the page cache.
 */
#include "gguf/gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TOKENS = 262144, MERGES = 520000, TEXT = 24, ROUNDS = 15 };

static void need(linnet_status status, const linnet_error *e)
{
    if (status == LINNET_OK)
        return;
    fprintf(stderr, "gguf_bench: %s\n", e->text);
    exit(1);
}

/* n strings of a few bytes, as vocabularies have. */
static struct gguf_str *make_strings(size_t n, const char *format)
{
    struct gguf_str *strings = calloc(n, sizeof *strings);
    char *text = calloc(n, TEXT);
    if (!strings || !text)
        exit(1);
    for (size_t i = 0; i < n; i++) {
        unsigned k = (unsigned)(i * 2654435761u);
        int len = snprintf(text + i * TEXT, TEXT, format, k >> (k & 15), k & 0xFF);
        strings[i] = (struct gguf_str){text + i * TEXT, (size_t)len};
    }
    return strings;
}

static void write_file(const char *path)
{
    linnet_error e;
    struct gguf_writer *w;
    static float scores[TOKENS];
    static int32_t types[TOKENS];
    struct gguf_str *tokens = make_strings(TOKENS, "%x"), *merges = make_strings(MERGES, "%x %x");
    need(gguf_writer_create(&w, &e), &e);
    need(gguf_put_array(w, "tokenizer.ggml.tokens", GGUF_STRING, tokens, TOKENS, &e), &e);
    need(gguf_put_array(w, "tokenizer.ggml.scores", GGUF_F32, scores, TOKENS, &e), &e);
    need(gguf_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, types, TOKENS, &e), &e);
    need(gguf_put_array(w, "tokenizer.ggml.merges", GGUF_STRING, merges, MERGES, &e), &e);
    need(gguf_write_begin(w, path, &e), &e);
    need(gguf_write_end(w, &e), &e);
    gguf_writer_destroy(w);
    free((void *)tokens[0].s);
    free((void *)merges[0].s);
    free(tokens);
    free(merges);
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(void)
{
    char path[] = "/tmp/linnet-bench-XXXXXX";
    int fd = mkstemp(path);
    if (fd < 0)
        return 1;
    close(fd);
    write_file(path);
    double times[ROUNDS];
    uint64_t size = 0;
    for (int i = 0; i < ROUNDS; i++) {
        linnet_error e;
        struct gguf *g;
        double start = now_ms();
        need(gguf_open(path, &g, &e), &e);
        times[i] = now_ms() - start;
        size = gguf_file_size(g);
        gguf_close(g);
    }
    unlink(path);
    qsort(times, ROUNDS, sizeof *times, compare);
    printf("gguf header: %d tokens, %d merges, %.1f MB: %.2f ms\n", TOKENS, MERGES,
           (double)size * 1e-6, times[ROUNDS / 2]);
    return 0;
}
