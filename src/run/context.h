/*
 * Contexts and sessions inside: KV pages, the registers' memory, the batch being run.
 */
#ifndef LINNET_RUN_CONTEXT_H
#define LINNET_RUN_CONTEXT_H

#include "base/arena.h"
#include "model/model.h"

#include <stdatomic.h>

/*
 * KV memory. Positions are stored in pages of KV_PAGE; a page holds them for every layer of its
 * group. Layers with the same window form a group, so that pages behind a window can be let go
 * without asking other layers. Pages are counted: a fork shares them, and whoever writes to a
 * shared one copies it first.
 */
struct kv_page {
    uint32_t refs;
    struct kv_page *next; /* while free */
    char pad[64 - 2 * sizeof(void *)];
    uint8_t data[]; /* [group.page_bytes] */
};

/* Positions kept behind a window, so that going back a little needs nothing computed again. */
enum { KV_SLACK = 256 };

struct kv_group {
    uint32_t window; /* 0: all positions */
    size_t page_bytes;
    struct kv_page *free;
    void **slabs; /* memory that pages are cut from */
    size_t n_slabs, cap_slabs;
    size_t n_pages; /* in all slabs */
};

/* Where a slot of the plan lies in the pages of its group. */
struct kv_place {
    uint32_t group;
    size_t k_off, v_off; /* of head 0; heads are KV_PAGE rows apart */
    size_t k_row, v_row; /* bytes */
};

struct linnet_session {
    struct linnet_context *ctx;
    struct linnet_session *prev, *next; /* all sessions of the context */
    size_t n;                           /* tokens */
    int32_t *tokens;                    /* [ctx->n_ctx] */
    size_t valid; /* positions whose effect is in `state` and the pages, <= n; the rest is
                     run again before anything new */
    float *state; /* [plan.state_floats] after `valid` tokens, or NULL when the model has none */
    struct checkpoint **points; /* [n_points] by position */
    size_t n_points;
    float *log; /* inputs of recurrent steps, rows log_from..log_to; NULL: none is kept */
    size_t log_from, log_to;
    struct linnet_session *draft; /* of the draft head, in ctx->draft; NULL: the model has none */
    uint8_t ***pages;             /* [group][ctx->n_table] -> page data, NULL where there is none */
    bool in_batch;
};

/* Consecutive rows of one session in the batch. */
struct span {
    struct linnet_session *s;
    size_t row0, n;
    int32_t pos0; /* position of row0 */
};

/* Rows that share an attention job. */
struct attn_block {
    uint32_t span;
    uint32_t row0, n;
};
/* What a run gives back. */
struct output_item {
    size_t n_tokens;
    linnet_want want;
    size_t logits, hidden; /* first row of each */
};
struct outputs {
    struct output_item *items;
    size_t n_items, cap_items;
    float *logits; /* [cap_logits][n_vocab] */
    size_t cap_logits;
    float *hidden[2]; /* [cap_hidden][d_hidden], those of the last run in [turn] */
    size_t cap_hidden[2];
    unsigned turn;
};

struct linnet_context {
    struct linnet_model *m;
    const struct plan *p;
    const struct kernels *k;
    struct pool *pool;
    struct arena arena;
    uint32_t n_ctx, n_batch;
    enum kv_type kv_k, kv_v;
    size_t n_table; /* pages a full session has */
    struct {
        linnet_checkpoint_kind kind;
        size_t spacing, max;
        uint64_t bytes, used;
    } checkpoints;
    struct kv_group *groups;
    uint32_t n_groups;
    struct kv_place *places; /* [plan.n_kvs] */
    struct linnet_session *sessions;

    /* memory of registers: [reg.offset * n_batch] floats and so on */
    float *regs, *out_regs;
    uint8_t *quants, *out_quants;
    void *work; /* the one mapping of all four, and of attn_parts */
    size_t work_size;
    uint8_t *scratch;     /* [threads][KERNEL_SCRATCH] */
    const float **attn_q; /* [threads][attn_cap] */
    float **attn_out;
    int32_t *attn_range; /* [threads][2 * the same], then floats for sinks */
    float *attn_sinks;
    size_t attn_rows, attn_cap; /* rows of an attention block; times most heads of a group */
    float *attn_parts;          /* [attn_n_parts] results of splits, before they are merged */
    size_t attn_n_parts;

    /* the batch */
    int32_t *token, *pos;      /* [n_batch] */
    uint32_t *span_of;         /* [n_batch] */
    struct span *spans;        /* [n_batch] */
    struct attn_block *blocks; /* [n_batch + spans] */
    size_t n_rows, n_spans, n_blocks;
    size_t n_out, n_logit_rows; /* output rows; those with logits, which come first */
    int32_t *out_row;           /* [n_batch] batch row of each output row */
    float **keep;        /* [n_batch] where the hidden state of an output row goes, or NULL */
    const float **given; /* [n_batch] hidden state that came with a batch row, or NULL */

    /* rows by expert */
    int32_t *moe_count, *moe_start, *moe_active; /* [most experts] */
    int32_t *moe_x, *moe_y;                      /* [n_batch * most used] */

    struct outputs outputs;
    float *logits_out; /* where this batch's rows of logits go */

    struct linnet_context *draft; /* of the draft head, or NULL */
    linnet_item *draft_items;
    const float **draft_hidden;
    size_t cap_draft_items;

    uint64_t fingerprint; /* of model and layout, for saved sessions; 0 until it is asked for */
    linnet_observer observer;
    bool observed;
    _Atomic bool *cancel; /* to the flag, which a context shares with that of its draft head */
    _Atomic bool cancel_own;
};

/* context.c */
/* A context for one plan of the model. */
linnet_status context_create(struct linnet_model *m, const struct plan *p,
                             const linnet_context_options *options, struct linnet_context **out,
                             linnet_error *e);
/* linnet_run(), with hidden [n_items] -> [n_tokens][d_model] for plans that take hidden states. */
linnet_status context_run(struct linnet_context *c, const linnet_item *items,
                          const float *const *hidden, size_t n_items, linnet_error *e);
/* Forget what is at and after position n, which is not behind the session's end. */
void session_cut(struct linnet_session *s, size_t n);

/* outputs.c */
/* Make room for what the items want. */
linnet_status outputs_begin(struct linnet_context *c, const linnet_item *items, size_t n,
                            linnet_error *e);
void outputs_free(struct outputs *o);
bool outputs_has_logits(const struct outputs *o, size_t item, size_t token);
/* Where a hidden state goes; NULL when it is not wanted. */
float *outputs_hidden(const struct linnet_context *c, size_t item, size_t token);

/* draft.c */
linnet_status draft_create(struct linnet_context *c, const linnet_context_options *options,
                           linnet_error *e);
void draft_free(struct linnet_context *c);
/* Tokens from position `old` on were appended to s: guesses are forgotten. */
void draft_appended(linnet_session *s, size_t old);
/* s was rolled back. */
void draft_cut(linnet_session *s);

/* kv.c */
linnet_status kv_init(struct linnet_context *c, linnet_error *e);
void kv_free(struct linnet_context *c);
/* Make pages for positions [first, end) exist and belong to s alone. On failure nothing has changed
 * but that some pages may exist ahead of need. */
linnet_status kv_reserve(struct linnet_session *s, size_t first, size_t end, linnet_error *e);
/* Give back pages that hold no position below n. */
void kv_truncate(struct linnet_session *s, size_t n);
/* Give back pages that no position from n on, or up to KV_SLACK before it, can see. */
void kv_release_behind(struct linnet_session *s, size_t n);
/* Can position n be computed from the pages there are? */
bool kv_reaches(const struct linnet_session *s, size_t n);
/* Make a page of its own for s at a place where it has none. */
linnet_status kv_add_page(struct linnet_session *s, uint32_t group, size_t i, linnet_error *e);
void kv_share(struct linnet_session *from, struct linnet_session *to);
/* Bytes of KV for `n` positions, all groups. */
uint64_t kv_bytes(const struct linnet_context *c, size_t n);

/* state.c: recurrent state of a session. All do nothing for models without. */
linnet_status state_create(struct linnet_session *s, linnet_error *e);
void state_free(struct linnet_session *s);
/* Give `to`, a new session, the state of `from`. */
void state_copy(const struct linnet_session *from, struct linnet_session *to);
/* Bring the state to what it was after at most n tokens: sets s->valid. */
void state_rewind(struct linnet_session *s, size_t n);
/* The state was filled in from outside and stands at n. */
void state_restored(struct linnet_session *s, size_t n);
/* Keep a copy if s->valid is a place for one. */
void state_checkpoint(struct linnet_session *s);
/* The position after `pos` that a run must not jump over. */
size_t state_next_stop(const struct linnet_session *s, size_t pos);
/* Delta checkpoints: log the inputs of recurrent step t, before it runs; then that n rows from pos
 * have run. */
void state_log(struct linnet_context *c, const struct step *t);
void state_logged(struct linnet_session *s, size_t pos, size_t n);
/* Bytes of a session's state (and log), and at most of checkpoints. */
uint64_t state_memory(const struct linnet_context *c, uint64_t *checkpoints);

/* exec.c: run the plan over the batch. LINNET_CANCELLED when asked to. */
linnet_status exec_run(struct linnet_context *c, linnet_error *e);
/* Per-thread and per-batch memory that exec_run needs. */
linnet_status exec_init(struct linnet_context *c, linnet_error *e);
uint64_t exec_bytes(const struct plan *p, uint32_t n_ctx, uint32_t n_batch);
/* One recurrent step over the spans of the batch. */
void exec_state_step(struct linnet_context *c, const struct step *s);

#endif
