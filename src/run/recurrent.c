/*
 * Recurrent operations: each walks a session's rows in order, always in the step form, so that the bits do not depend
 * on how a text is cut. State is split into independent parts (heads, blocks of channels), never inside a sum.
 */
#include "run/exec.h"

state_fn *const state_fns[OP_COUNT] = {0};
