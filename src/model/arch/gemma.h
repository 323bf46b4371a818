/*
 * Attention of Gemma 3n and 4: windowed and full layers with widths and rotations of their own, and
 * last layers that read the keys and values of earlier ones.
 */
#ifndef LINNET_MODEL_ARCH_GEMMA_H
#define LINNET_MODEL_ARCH_GEMMA_H

#include "model/family.h"

struct gemma_attention {
    const struct family *f;
    struct heads heads;
    uint32_t windowed[LIMIT_LAYERS]; /* 0 or 1 */
    uint32_t window, n_own;          /* layers from n_own on have no keys and values */
    uint32_t d_head[2];              /* of full and of windowed layers */
    const struct rope_table *rope[2];
    float eps;
    bool v_from_k; /* full layers without attn_v: values are the keys before norm and rotation */
    uint32_t slot[LIMIT_LAYERS]; /* KV slots of the layers built so far */
};

/* `shared`: layers without keys and values when the file does not say. */
void gemma_attention_read(struct loader *l, struct gemma_attention *g, const struct family *f,
                          float eps, uint32_t shared);
struct view gemma_attention(struct loader *l, struct gemma_attention *g, uint32_t il,
                            struct view h);

#endif
