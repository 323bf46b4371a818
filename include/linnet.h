/*
 * linnet: run large language models from GGUF files on the CPU.
 *
 * This is the whole public interface. Handles are opaque; option structs are plain and are filled
 * by their linnet_*_defaults() before use. Every function that can fail returns a linnet_status and
 * takes an optional linnet_error (may be NULL) that receives a text naming what was wrong, where,
 * and what to do. The library never prints, exits, aborts, reads the environment or installs signal
 * handlers.
 */
#ifndef LINNET_H
#define LINNET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

/* Every status the library can return: name, one-line meaning. */
#define LINNET_STATUS_MAP(X)                                                                       \
    X(OK, "success")                                                                               \
    X(INVALID, "an argument is out of its documented range")                                       \
    X(NO_MEMORY, "out of memory")                                                                  \
    X(IO, "a file or network operation failed")                                                    \
    X(FORMAT, "a file or text is malformed")                                                       \
    X(UNSUPPORTED, "well-formed, but not something this build can run")                            \
    X(NOT_FOUND, "the named thing does not exist")                                                 \
    X(LIMIT, "a documented limit was exceeded")                                                    \
    X(CONTEXT_FULL, "the context has no room for these tokens")                                    \
    X(MISMATCH, "two things that must agree do not")                                               \
    X(CANCELLED, "stopped at the caller's request")                                                \
    X(NUMERIC, "a computation produced NaN or infinity")

typedef enum linnet_status {
#define LINNET_STATUS_ENUM(name, text) LINNET_##name,
    LINNET_STATUS_MAP(LINNET_STATUS_ENUM)
#undef LINNET_STATUS_ENUM
} linnet_status;

/* Detail of a failure. Caller-owned; written only when a call fails. */
typedef struct linnet_error {
    linnet_status status;
    char text[1000]; /* NUL-terminated UTF-8 */
} linnet_error;

/* The meaning of a status; never NULL. */
const char *linnet_status_text(linnet_status status);

/* "major.minor.patch" of this library. */
const char *linnet_version(void);

/*
 * Models: a GGUF file ready to run. Immutable after opening; any number of contexts may share one,
 * from any number of threads.
 */
typedef struct linnet_model linnet_model;

typedef struct linnet_model_options {
    size_t size;      /* sizeof(linnet_model_options), set by linnet_model_defaults() */
    unsigned threads; /* worker threads, 1..512; 0: as many as the affinity mask and CPU quota make
                         useful */
    const char *isa;  /* kernel set: "generic", "avx2", "avx512", "avx512vnni", "neon", "dotprod";
                         NULL: the best */
    bool draft; /* also load the head that predicts one token more (NextN, MTP), where the file has
                   one */
    bool plan_only; /* check the file and make its plan, but load no weights: the model can be
                       described (linnet_model_get_info, _plan_line, linnet_context_memory) and not
                       run */
    /* Called now and then while loading, fraction in 0..1; return false to give up
     * (LINNET_CANCELLED). */
    bool (*progress)(void *user, float fraction);
    void *user;
} linnet_model_options;

void linnet_model_defaults(linnet_model_options *options);

/* Open the model in `path` (any part of a split file). `options` may be NULL. LINNET_UNSUPPORTED
 * names an architecture, key or tensor this build does not know; LINNET_FORMAT what is wrong in the
 * file and where. */
linnet_status linnet_model_open(const char *path, const linnet_model_options *options,
                                linnet_model **out, linnet_error *error);
/* Close after all its contexts. NULL is allowed. */
void linnet_model_close(linnet_model *model);

typedef struct linnet_model_info {
    const char *arch; /* general.architecture; valid while the model is open */
    const char *isa;  /* kernel set in use */
    unsigned threads;
    uint32_t n_layer; /* without prediction heads for further tokens */
    uint32_t n_draft; /* such heads that the model was trained with */
    bool has_draft;   /* the first of them is loaded: linnet_draft_run() */
    uint32_t n_embd;
    uint32_t n_vocab;
    uint32_t n_ctx_train; /* positions the model was trained for */
    uint64_t n_params;
    uint64_t weight_bytes; /* of all tensors in the file */
    uint64_t step_bytes;   /* of the weights that decoding one token reads */
} linnet_model_info;

void linnet_model_get_info(const linnet_model *model, linnet_model_info *out);

/* One line describing step `i` of the model's plan, and after it the draft head's, in buf[size],
 * for people; false when i is past the end. */
bool linnet_model_plan_line(const linnet_model *model, size_t i, char *buf, size_t size);

/*
 * Contexts: working memory to run a model, and the sessions that live in it. A context is used by
 * one thread at a time (linnet_context_cancel excepted).
 */
typedef struct linnet_context linnet_context;
typedef struct linnet_session linnet_session;

typedef enum linnet_kv_type {
    LINNET_KV_F32,
    LINNET_KV_F16,
    LINNET_KV_BF16,
    LINNET_KV_Q8_0
} linnet_kv_type;

/* How recurrent state is kept for going back. */
typedef enum linnet_checkpoint_kind {
    LINNET_CHECKPOINT_EXACT, /* copies: a session that went back gives the same bits as one that
                                never went on */
    LINNET_CHECKPOINT_F16,   /* copies of half the size; going back rounds the state */
    LINNET_CHECKPOINT_DELTA, /* exact copies, and the updates since the last one are logged: going
                                back by less than the spacing runs no token again. Costs the inputs
                                of all recurrent layers for each token between two copies, so choose
                                a small spacing */
} linnet_checkpoint_kind;

typedef struct linnet_context_options {
    size_t size;      /* sizeof(linnet_context_options), set by linnet_context_defaults() */
    uint32_t n_ctx;   /* positions a session may hold; 0: as many as the model was trained for */
    uint32_t n_batch; /* rows run at once, 1..65536; more tokens are run in pieces. Default 512 */
    linnet_kv_type kv_k; /* how keys are stored; default f16 */
    linnet_kv_type kv_v; /* how values are stored; default f16 */
    /* Models with recurrent layers: copies of the state at every checkpoint_spacing-th position (0:
     * none), at most checkpoint_max a session and checkpoint_bytes in all. Going back starts from
     * the nearest and runs the tokens since then again. Defaults 512, 16, 1 GiB. */
    linnet_checkpoint_kind checkpoint_kind;
    uint32_t checkpoint_spacing, checkpoint_max;
    uint64_t checkpoint_bytes;
} linnet_context_options;

void linnet_context_defaults(linnet_context_options *options);
linnet_status linnet_context_create(linnet_model *model, const linnet_context_options *options,
                                    linnet_context **out, linnet_error *error);
/* Frees its sessions too. NULL is allowed. */
void linnet_context_free(linnet_context *context);
uint32_t linnet_context_n_ctx(const linnet_context *context);

typedef struct linnet_memory {
    uint64_t work;        /* of the context */
    uint64_t kv;          /* keys and values of a session when it is full */
    uint64_t state;       /* recurrent state of a session */
    uint64_t checkpoints; /* at most, of a session's state */
} linnet_memory;

/* Bytes that a context of these options would take, before it is made. */
linnet_status linnet_context_memory(const linnet_model *model,
                                    const linnet_context_options *options, linnet_memory *out,
                                    linnet_error *error);

/* From any thread: the run in progress, or else the next one, ends with LINNET_CANCELLED. */
void linnet_context_cancel(linnet_context *context);

/*
 * Sessions: a text so far, as token ids and the state computed from them. A value: it can be forked
 * and rolled back.
 */
linnet_status linnet_session_create(linnet_context *context, linnet_session **out,
                                    linnet_error *error);
void linnet_session_free(linnet_session *session); /* NULL is allowed */
/* A copy that shares memory with the original until either changes. */
linnet_status linnet_session_fork(linnet_session *session, linnet_session **out,
                                  linnet_error *error);
size_t linnet_session_length(const linnet_session *session); /* tokens */
const int32_t *
linnet_session_tokens(const linnet_session *session); /* [length]; until the session changes */
/* Forget everything from position `length` on. LINNET_INVALID when it is longer than the
 * session. */
linnet_status linnet_session_rollback(linnet_session *session, size_t length, linnet_error *error);

/* Write the session to `path` (a temporary file first, then renamed), and make a session of such a
 * file, also in another process: it goes on to the same bits. Loading refuses, before anything
 * changes, a file that is damaged (LINNET_FORMAT), of another model, KV type or layout
 * (LINNET_MISMATCH), or too long for the context. */
linnet_status linnet_session_save(const linnet_session *session, const char *path,
                                  linnet_error *error);
linnet_status linnet_session_load(linnet_context *context, const char *path, linnet_session **out,
                                  linnet_error *error);

typedef enum linnet_want {
    LINNET_WANT_NONE = 0,
    LINNET_WANT_LAST = 1, /* logits after the last token */
    LINNET_WANT_ALL = 2,  /* logits after every token */
    LINNET_WANT_HIDDEN =
        4, /* the final hidden state of every token; by itself, or | one of the above */
} linnet_want;

/* Tokens to append to a session. */
typedef struct linnet_item {
    linnet_session *session;
    const int32_t *tokens; /* [n_tokens], 0 <= id < n_vocab */
    size_t n_tokens;
    linnet_want want; /* what is wanted of which tokens */
} linnet_item;

/*
 * Append tokens to sessions, each session at most once, and compute the wanted logits. What a
 * session's logits are does not depend, to the last bit, on the other items, on how its tokens are
 * cut into calls, on n_batch or on the number of threads. On failure no session has changed;
 * LINNET_CONTEXT_FULL says which item does not fit and by how much.
 */
linnet_status linnet_run(linnet_context *context, const linnet_item *items, size_t n_items,
                         linnet_error *error);

/* Logits [n_vocab] after token `token` of item `item` of the last run; NULL when not wanted. Valid
 * until the next run. With LINNET_WANT_LAST the one row is that of the last token. */
const float *linnet_logits(const linnet_context *context, size_t item, size_t token);
/* Hidden state [n_embd] of that token after the final norm, what the logits are made of;
 * likewise. */
const float *linnet_hidden(const linnet_context *context, size_t item, size_t token);

/*
 * Drafting: models with a NextN (multi-token prediction) head, opened with
 * linnet_model_options.draft. The head's row of position p takes token p and the hidden state of
 * token p - 1, sees the head's rows before it, and predicts token p + 1. Rows are appended as
 * tokens are to a session, and belong to it: they fork with it and are rolled back with it. Up to
 * the session's end (its next token included) rows take its tokens and linnet_hidden(); beyond,
 * they are guesses from the head's own hidden states, and linnet_run() forgets them.
 */
typedef struct linnet_draft_item {
    linnet_session *session;
    size_t first; /* position of the first row, at most linnet_draft_length(): later rows are
                     forgotten */
    const int32_t *tokens; /* [n_tokens]; where the session has tokens, these */
    const float *hidden; /* [n_tokens][n_embd] of the tokens before; not read for position 0, which
                            has none */
    size_t n_tokens;
    linnet_want want;
} linnet_draft_item;

/* As linnet_run(), for rows of the draft head. When it fails the rows from `first` on are
 * forgotten. */
linnet_status linnet_draft_run(linnet_context *context, const linnet_draft_item *items,
                               size_t n_items, linnet_error *error);
size_t linnet_draft_length(const linnet_session *session); /* rows; 0 without a head */
/* Of the last linnet_draft_run(). Hidden states may be given to the next one. */
const float *linnet_draft_logits(const linnet_context *context, size_t item, size_t token);
const float *linnet_draft_hidden(const linnet_context *context, size_t item, size_t token);

/*
 * Observing a run. Everything set here sees the same path and the same numbers as an ordinary run.
 */
typedef struct linnet_observer {
    size_t size; /* sizeof(linnet_observer), set by linnet_observer_defaults() */
    void *user;
    /* Before each layer: `hidden` [n_rows][n_embd] may be changed. Return true to skip the layer:
     * its keys, values and recurrent state are still computed from `hidden`, so that later tokens
     * find them, but it adds nothing. */
    bool (*before_layer)(void *user, uint32_t layer, float *hidden, size_t n_rows, size_t width);
    /* Layers from this one on are skipped as above and the head follows: an early exit. Default:
     * none. */
    uint32_t exit_layer;
    /* After each step that writes a register named `capture` ("attn_norm", "q", "attn_out", ... as
     * linnet_model_plan_line shows them): its values [n_rows][width]. */
    const char *capture;
    void (*captured)(void *user, int32_t layer, const float *values, size_t n_rows, size_t width);
} linnet_observer;

void linnet_observer_defaults(linnet_observer *observer);
/* Used by all later runs of the context until changed; NULL for none. Copied. */
void linnet_context_observe(linnet_context *context, const linnet_observer *observer);

/*
 * Text. A model without a vocabulary refuses these with LINNET_UNSUPPORTED.
 */
enum {
    LINNET_ADD_SPECIAL = 1, /* begin and end with the tokens the model expects, such as BOS */
    LINNET_PARSE_SPECIAL =
        2, /* the text is trusted: names of control tokens in it become those tokens */
};

/* Text (any bytes) to ids. Writes min(*n_out, cap) ids; *n_out is the number in full, and
 * LINNET_LIMIT is returned when that is above cap. n + 16 ids are nearly always enough. */
linnet_status linnet_tokenize(const linnet_model *model, const char *text, size_t n, unsigned flags,
                              int32_t *out, size_t cap, size_t *n_out, linnet_error *error);
/* Ids to bytes, likewise. Control tokens print nothing unless `special`. */
linnet_status linnet_detokenize(const linnet_model *model, const int32_t *ids, size_t n,
                                bool special, char *out, size_t cap, size_t *n_out,
                                linnet_error *error);
bool linnet_token_is_eog(const linnet_model *model, int32_t id); /* ends a text */
int32_t linnet_token_bos(const linnet_model *model);             /* -1: there is none */
bool linnet_adds_bos(const linnet_model *model); /* LINNET_ADD_SPECIAL begins with it */

/*
 * Samplers: choose a token from logits. The same seed and logits give the same tokens on every
 * machine.
 */
typedef struct linnet_sampler linnet_sampler;

typedef struct linnet_sampler_options {
    size_t size;   /* sizeof(linnet_sampler_options), set by linnet_sampler_defaults() */
    float temp;    /* 0: the likeliest token, always (of equals the lowest id). Default 0.8 */
    int32_t top_k; /* keep the k likeliest; 0: all. Default 40 */
    float top_p; /* keep the likeliest that together reach this probability; 1: all. Default 0.95 */
    float
        min_p; /* keep those at least this times as likely as the likeliest; 0: all. Default 0.05 */
    uint64_t seed; /* of the random numbers. Default 0 */
} linnet_sampler_options;

void linnet_sampler_defaults(linnet_sampler_options *options);
linnet_status linnet_sampler_create(const linnet_sampler_options *options, linnet_sampler **out,
                                    linnet_error *error);
void linnet_sampler_free(linnet_sampler *sampler); /* NULL is allowed */
/* LINNET_NUMERIC when logits [n_vocab] hold NaN or +infinity, or nothing above -infinity. */
linnet_status linnet_sampler_pick(linnet_sampler *sampler, const float *logits, size_t n_vocab,
                                  int32_t *token, linnet_error *error);

/*
 * Generating: run a prompt, then sample token after token until something ends it.
 */
typedef enum linnet_finish {
    LINNET_FINISH_LENGTH,    /* max_tokens were made */
    LINNET_FINISH_EOG,       /* the model ended its text */
    LINNET_FINISH_STOP,      /* a stop text appeared; it and what follows are not given out */
    LINNET_FINISH_CONTEXT,   /* the context is full */
    LINNET_FINISH_CANCELLED, /* the callback or linnet_context_cancel() asked for it */
} linnet_finish;

typedef struct linnet_generate_options {
    size_t size;       /* sizeof(linnet_generate_options), set by linnet_generate_defaults() */
    size_t max_tokens; /* default SIZE_MAX */
    bool ignore_eog;   /* go on after the model ended its text */
    const char *const *stop; /* [n_stop] texts that end it, none of them empty */
    size_t n_stop;
    /* Text as it is made: whole UTF-8 characters unless the model's bytes are none, never part of a
     * stop text. Return false to end. May be NULL. */
    bool (*text)(void *user, const char *bytes, size_t n);
    /* Every token as it is sampled, before its text. May be NULL. */
    void (*token)(void *user, int32_t id, const float *logits);
    void *user;
} linnet_generate_options;

typedef struct linnet_generated {
    linnet_finish finish;
    size_t n_prompt, n_tokens; /* tokens run as prompt, tokens sampled (an ending one included) */
    int32_t pending; /* the last token sampled, which has not been run: begin with it to go on. -1:
                        there is none */
    double prompt_seconds, decode_seconds;
} linnet_generated;

void linnet_generate_defaults(linnet_generate_options *options);
/* Append prompt [n_prompt], at least one token, to the session and generate. What was made when
 * something fails or is cancelled stays in the session. A prompt that does not fit is
 * LINNET_CONTEXT_FULL and changes nothing. */
linnet_status linnet_generate(linnet_session *session, linnet_sampler *sampler,
                              const int32_t *prompt, size_t n_prompt,
                              const linnet_generate_options *options, linnet_generated *out,
                              linnet_error *error);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif
#endif
