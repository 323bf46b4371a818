/*
 * How fast a vocabulary loads, encodes and decodes: text_bench FILE.gguf TEXT [RUNS]. The file
 * needs no weights. Prints the best of RUNS (default 5) for the text, then for a megabyte each of
 * runs that are hard on merges and patterns. One thread.
 */
#include "gguf/gguf.h"
#include "text/vocab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void fail(const char *text)
{
    fprintf(stderr, "text_bench: %s\n", text);
    exit(1);
}

static char *read_file(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END) != 0)
        fail("cannot read the text");
    *n = (size_t)ftell(f);
    rewind(f);
    char *s = malloc(*n + 1);
    if (!s || fread(s, 1, *n, f) != *n)
        fail("cannot read the text");
    fclose(f);
    return s;
}

/* Seconds of the best run; *n_ids tokens. */
static double encode(const struct vocab *v, const char *s, size_t n, int runs, int32_t *ids,
                     size_t cap, size_t *n_ids)
{
    double best = 1e9;
    linnet_error e;
    for (int i = 0; i < runs; i++) {
        double start = seconds();
        if (vocab_encode(v, s, n, 0, ids, cap, n_ids, &e) != LINNET_OK)
            fail(e.text);
        double took = seconds() - start;
        best = took < best ? took : best;
    }
    return best;
}

int main(int argc, char **argv)
{
    static const char *const runs[] = {"a", " ", "\n", "1", "A", "\xE4\xB8\xAD", "\xFF", "a "};
    enum { RUN = 1000000 };
    linnet_error e;
    struct gguf *g;
    struct vocab *v;
    if (argc < 3)
        fail("usage: text_bench FILE.gguf TEXT [RUNS]");
    if (gguf_open(argv[1], &g, &e) != LINNET_OK)
        fail(e.text);
    double start = seconds();
    if (vocab_load(g, &v, &e) != LINNET_OK)
        fail(e.text);
    printf("load    %.0f ms, %.1f MB\n", 1e3 * (seconds() - start), (double)vocab_bytes(v) / 1e6);
    size_t n, n_ids, n_text, cap;
    char *text = read_file(argv[2], &n), *run = malloc(RUN);
    cap = (n > RUN ? n : RUN) * 4 + 16;
    int32_t *ids = malloc(cap * sizeof *ids);
    char *back = malloc(cap);
    if (!run || !ids || !back)
        fail("out of memory");
    double took =
        encode(v, text, n, argc > 3 ? (int)strtol(argv[3], NULL, 10) : 5, ids, cap, &n_ids);
    printf("encode  %.1f MB/s, %zu tokens\n", (double)n / took / 1e6, n_ids);
    start = seconds();
    if (vocab_decode(v, ids, n_ids, VOCAB_SHOW_SPECIAL, back, cap, &n_text, &e) != LINNET_OK)
        fail(e.text);
    printf("decode  %.1f MB/s\n", (double)n_text / (seconds() - start) / 1e6);
    for (size_t k = 0; k < sizeof runs / sizeof runs[0]; k++) {
        size_t len = strlen(runs[k]), used = RUN / len * len;
        for (size_t i = 0; i < used; i++)
            run[i] = runs[k][i % len];
        took = encode(v, run, used, 1, ids, cap, &n_ids);
        printf("run     %02X%s: %.0f ms\n", (unsigned char)runs[k][0], len > 1 ? "..." : "",
               took * 1e3);
    }
    free(back);
    free(ids);
    free(run);
    free(text);
    vocab_free(v);
    gguf_close(g);
    return 0;
}
