/*
 * Routing: which experts a row goes to, and with what weights.
 */
#ifndef LINNET_RUN_ROUTE_H
#define LINNET_RUN_ROUTE_H

#include "kernel/kernel.h"
#include "model/plan.h"

/* From router logits [n_expert], which are overwritten: ids and weights [n_used], best first. The
 * ids are distinct and in range whatever the logits are. */
void route(const struct kernels *k, const struct router *r, float *logits, int32_t *ids,
           float *weights);

#endif
