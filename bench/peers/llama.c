/*
 * Times llama.cpp, or a relative with the same API, test by test: reads lines "prompt N" and
 * "generate N AFTER SEQUENCES" as `linnet bench --from-stdin` does, answers each with its seconds.
 * bench/compare compiles it outside of the repository against the headers and libraries that are
 * measured. -DPEER_IK: the older names of ik_llama.cpp.
 *
 *     peer MODEL THREADS KV_TYPE BACKENDS
 *
 * BACKENDS is the folder from which llama.cpp picks the best CPU backend, or one backend's library.
 * Everything is left at its default but threads, KV type and sizes. What stands before generation
 * is computed once and kept; what was generated is removed after each run. Tokens are random,
 * logits are asked for after the last.
 */
#include "llama.h"
#include "ggml-backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef PEER_IK
#define peer_close(m)             llama_free_model(m)
#define peer_clear(c)             llama_kv_cache_clear(c)
#define peer_remove(c, seq, from) llama_kv_cache_seq_rm(c, seq, from, -1)
#define peer_vocab(m)             llama_n_vocab(m)
#else
#define peer_close(m)             llama_model_free(m)
#define peer_clear(c)             llama_memory_clear(llama_get_memory(c), true)
#define peer_remove(c, seq, from) llama_memory_seq_rm(llama_get_memory(c), seq, from, -1)
#define peer_vocab(m)             llama_vocab_n_tokens(llama_model_get_vocab(m))
#endif

enum { MAX_SEQS = 1024, BATCH = 2048 };

struct peer {
    struct llama_model *model;
    struct llama_context *ctx;
    struct llama_batch batch;
    int threads, n_vocab;
    enum ggml_type kv;
    int n_ctx, n_seqs; /* of ctx */
    int depth, n_base; /* what its sequences hold */
};

static void fail(const char *what)
{
    fprintf(stderr, "peer: %s failed\n", what);
    exit(1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void need_ctx(struct peer *p, int n_ctx, int n_seqs)
{
    if (p->ctx && n_ctx <= p->n_ctx && n_seqs == p->n_seqs)
        return;
    if (p->ctx)
        llama_free(p->ctx);
    struct llama_context_params c = llama_context_default_params();
    p->n_ctx = (n_ctx + 255) / 256 * 256;
    p->n_seqs = n_seqs;
    p->depth = p->n_base = 0;
    c.n_ctx = (unsigned)(p->n_ctx * n_seqs);
    c.n_batch = BATCH;
    c.n_ubatch = 512;
    c.n_seq_max = (unsigned)n_seqs;
    c.n_threads = c.n_threads_batch = p->threads;
    c.type_k = c.type_v = p->kv;
    p->ctx = llama_init_from_model(p->model, c);
    if (!p->ctx)
        fail("making a context");
}

static void push(struct peer *p, int seq, int pos, int logits)
{
    struct llama_batch *b = &p->batch;
    int i = b->n_tokens++;
    b->token[i] = rand() % p->n_vocab;
    b->pos[i] = pos;
    b->n_seq_id[i] = 1;
    b->seq_id[i][0] = seq;
    b->logits[i] = (signed char)logits;
}

static void run(struct peer *p)
{
    if (llama_decode(p->ctx, p->batch))
        fail("llama_decode");
    llama_synchronize(p->ctx);
    p->batch.n_tokens = 0;
}

static void extend(struct peer *p, int seq, int from, int to)
{
    for (int at = from; at < to; at++) {
        push(p, seq, at, at + 1 == to);
        if (p->batch.n_tokens == BATCH || at + 1 == to)
            run(p);
    }
}

static double prompt(struct peer *p, int n)
{
    need_ctx(p, n, 1);
    peer_clear(p->ctx);
    p->depth = p->n_base = 0;
    double t = now();
    extend(p, 0, 0, n);
    return now() - t;
}

static double generate(struct peer *p, int n, int depth, int n_seqs)
{
    need_ctx(p, depth + n, n_seqs);
    if (p->depth != depth || p->n_base != n_seqs) {
        peer_clear(p->ctx);
        for (int s = 0; s < n_seqs; s++)
            extend(p, s, 0, depth);
        p->depth = depth;
        p->n_base = n_seqs;
    }
    double t = now();
    for (int i = 0; i < n; i++) {
        for (int s = 0; s < n_seqs; s++)
            push(p, s, depth + i, 1);
        run(p);
    }
    t = now() - t;
    if (depth == 0)
        peer_clear(p->ctx);
    for (int s = 0; s < n_seqs && depth; s++)
        if (!peer_remove(p->ctx, s, depth))
            p->depth = -1; /* recurrent state cannot go back: compute it again next time */
    return t;
}

static enum ggml_type kv_type(const char *name)
{
    return !strcmp(name, "f32")    ? GGML_TYPE_F32
           : !strcmp(name, "bf16") ? GGML_TYPE_BF16
           : !strcmp(name, "q8_0") ? GGML_TYPE_Q8_0
                                   : GGML_TYPE_F16;
}

static void quiet(enum ggml_log_level level, const char *text, void *user)
{
    (void)user;
    if (level == GGML_LOG_LEVEL_ERROR)
        fputs(text, stderr);
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "usage: peer MODEL THREADS KV_TYPE BACKENDS\n");
        return 2;
    }
    struct peer p = {.threads = (int)strtol(argv[2], NULL, 10), .kv = kv_type(argv[3])};
    llama_log_set(quiet, NULL);
    llama_backend_init();
#ifndef PEER_IK
    if (strstr(argv[4], ".so"))
        ggml_backend_load(argv[4]);
    else
        ggml_backend_load_all_from_path(argv[4]);
#endif
    struct llama_model_params mp = llama_model_default_params();
    mp.n_gpu_layers = 0;
    p.model = llama_model_load_from_file(argv[1], mp);
    if (!p.model)
        fail("loading the model");
    p.n_vocab = peer_vocab(p.model);
    p.batch = llama_batch_init(BATCH, 0, 1);
    char line[200];
    while (fgets(line, sizeof line, stdin)) {
        int n, depth, n_seqs;
        double t = -1.0;
        if (sscanf(line, "prompt %d", &n) == 1)
            t = prompt(&p, n);
        else if (sscanf(line, "generate %d %d %d", &n, &depth, &n_seqs) == 3 && n_seqs <= MAX_SEQS)
            t = generate(&p, n, depth, n_seqs);
        if (t < 0.0) {
            fprintf(stderr, "peer: no test: %s", line);
            return 1;
        }
        printf("%.9f\n", t);
        fflush(stdout);
    }
    llama_free(p.ctx);
    peer_close(p.model);
    return 0;
}
