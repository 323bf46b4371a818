/*
 * A loaded model: the file, its vocabulary, its weights as matrices, and the plan that runs it.
 * Immutable after loading and shared by any number of contexts.
 */
#ifndef LINNET_MODEL_MODEL_H
#define LINNET_MODEL_MODEL_H

#include "base/arena.h"
#include "base/err.h"
#include "base/pool.h"
#include "gguf/gguf.h"
#include "kernel/kernel.h"
#include "model/plan.h"
#include "text/vocab.h"

struct family;

/* Facts of a model that others than its builder ask for. */
struct model_facts {
    const char *arch;     /* general.architecture */
    uint32_t n_layer;     /* of the trunk: without NextN blocks */
    uint32_t n_layer_all; /* block_count */
    uint32_t d_model;
    uint32_t n_vocab;
    uint32_t n_ctx_train; /* context_length */
    uint64_t n_params;    /* elements of all tensors */
    uint64_t weight_bytes;
    uint64_t step_bytes; /* weight bytes read to decode one token */
};

struct linnet_model {
    struct arena arena;
    struct arena until_packed; /* what is needed only until the weights are packed */
    struct gguf *gguf;
    struct vocab *vocab; /* NULL when the file has none */
    const struct family *family;
    struct model_facts facts;
    struct plan plan;
    struct plan draft; /* of the NextN block: predicts the token after the next from a token and a
                          hidden state */
    bool has_draft;    /* there is one, and it was asked for */
    struct pool *pool;
    const struct kernels *kernels;
    bool plan_only;
    void *packed; /* one mapping of packed_size bytes that all packed matrices lie in */
    size_t packed_size;
};

#endif
