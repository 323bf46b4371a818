/*
 * What running a plan costs at least: the bytes that must come from memory and the operations of
 * its products. With the limits of the machine (kernel/probe.h) that is a bound on speed.
 */
#ifndef LINNET_MODEL_COST_H
#define LINNET_MODEL_COST_H

#include "model/plan.h"

/* A run of `n_rows` tokens in each of `n_seqs` sessions, from position `pos` on, with `n_out` rows
 * of logits in all. */
struct cost_run {
    uint64_t n_seqs, n_rows, n_out, pos;
    enum kv_type kv_k, kv_v;
};

/* Attention and recurrences are not counted as operations. */
struct cost {
    /* Weights, keys and values, states, each once; of a mixture as many experts as even routing
     * would use. */
    double bytes;
    double int8_ops; /* of products with quantised weights; a multiply-add is two */
    double f32_ops;  /* of products with float weights */
};

struct cost plan_cost(const struct plan *p, const struct cost_run *r);

#endif
