/*
 * The loader a family's builder works with: metadata by key, tensors by name, both checked.
 *
 * Errors stick: after the first one every call returns something harmless (0, NULL), so that a
 * family file reads like its equations and the error is looked at once. Every key and tensor that
 * is asked for is marked; what is left over at the end is refused, because it may change the maths
 * (load_finish).
 */
#ifndef LINNET_MODEL_LOAD_H
#define LINNET_MODEL_LOAD_H

#include "model/model.h"

#include <float.h>

/* A key and the name it had before. */
struct key_alias {
    const char *now, *before;
};

struct loader {
    struct linnet_model *m;
    const struct gguf *g;
    struct arena *arena;
    struct plan *p;
    const char *arch;
    int32_t il; /* layer whose tensors are meant; -1: global names */
    bool *seen_kv, *seen_tensor;
    const struct matrix *
        *mats; /* [tensor] as matrices, once read: two users share what is packed */
    const struct key_alias *aliases; /* older names of keys, up to a NULL; or NULL: none */
    bool draft;                      /* p is the plan of the NextN block */
    int moe_bias; /* mixtures so far: 1 had a selection bias, -1 had none, 0 there were none */
    linnet_status status;
    linnet_error *e;
};

/* Record an error unless there is one. Always returns false. */
bool load_fail(struct loader *l, linnet_status status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/*
 * Keys of the architecture: "attention.head_count" means <arch>.attention.head_count. Without `_or`
 * the key is required. A wrong type or a value out of [min, max] is an error that names key and
 * range.
 */
uint32_t key_u32(struct loader *l, const char *key, uint32_t min, uint32_t max);
uint32_t key_u32_or(struct loader *l, const char *key, uint32_t min, uint32_t max, uint32_t absent);
float key_f32(struct loader *l, const char *key, float min, float max);
float key_f32_or(struct loader *l, const char *key, float min, float max, float absent);
bool key_bool_or(struct loader *l, const char *key, bool absent);
/* Scalar or per-layer array into out[n]; false (and untouched) when absent. */
bool key_u32_each(struct loader *l, const char *key, size_t n, uint32_t min, uint32_t max,
                  uint32_t *out);
bool key_f32_each(struct loader *l, const char *key, size_t n, float min, float max, float *out);
/* An array of integers 0..max into out[cap]: how many; 0 when absent. */
size_t key_list(struct loader *l, const char *key, uint32_t max, uint32_t *out, size_t cap);
/* Is the key there? Marks it. */
bool key_present(struct loader *l, const char *key);
/* Is it there, as an array, or as a text? */
bool key_is_array(struct loader *l, const char *key);
bool key_is_text(struct loader *l, const char *key);
/* Is the string key equal to `value`? `absent` when there is none. */
bool key_is(struct loader *l, const char *key, const char *value, bool absent);
/* The string's bytes; n == 0 when absent. */
struct gguf_str key_text(struct loader *l, const char *key);
/* A key that is known and means nothing to this family. */
void key_ignore(struct loader *l, const char *key);

/* Ends of the ranges of f32 keys. NaN is in none. */
#define ABOVE_0 FLT_MIN /* as a minimum: zero is refused */
#define BELOW_0 (-FLT_MIN)
/* Bases of rotation: published ones are 10,000 to 1e11; at 1 all pairs would turn alike. */
#define ROPE_BASE_MIN 2.0f
#define ROPE_BASE_MAX 1e30f
/* Multipliers: published ones are within 0.01 to 100, and a product of several must stay far from
 * the ends of f32. */
#define SCALE_MIN 1e-6f
#define SCALE_MAX 1e6f

/* Keys with the same range in all families. */
float key_eps(struct loader *l, const char *key); /* a norm's: required, above 0, up to 0.5 */
float key_rope_base(struct loader *l, const char *key, float absent);
float key_scale(struct loader *l, const char *key, float absent); /* a multiplier */
/* The same where 0 means that there is none, as the key's absence does. */
float key_scale_or_0(struct loader *l, const char *key, float absent);
/* Soft cap of logits; 0: none. */
float key_cap(struct loader *l, const char *key, float absent);

/*
 * Tensors of the current layer (il >= 0: blk.<il>.<name>) or global ones. Shapes are checked;
 * `_opt` gives NULL when the tensor is absent. Vectors are copied to f32. Dimensions of 1 do not
 * count in the shape of a vector.
 */
bool has(struct loader *l, const char *name);
const float *vec(struct loader *l, const char *name, size_t n);
const float *vec_opt(struct loader *l, const char *name, size_t n);
/* n rows of `width` floats, the file's contiguous dimension: {width, n}, or {width * n}. */
const float *vec_rows(struct loader *l, const char *name, size_t n, size_t width);
const float *vec_rows_opt(struct loader *l, const char *name, size_t n, size_t width);
/* {n_cols, n_rows} in file order; `name` without ".weight". A tensor <name>.scale becomes
 * matrix.scale. */
const struct matrix *mat(struct loader *l, const char *name, size_t n_rows, size_t n_cols);
/* The same where <name>.scale means something else. */
const struct matrix *mat_unscaled(struct loader *l, const char *name, size_t n_rows, size_t n_cols);
const struct matrix *mat_opt(struct loader *l, const char *name, size_t n_rows, size_t n_cols);
/* {n_cols, n_rows, n} -> [n] matrices. */
const struct matrix *mat_stack(struct loader *l, const char *name, size_t n, size_t n_rows,
                               size_t n_cols);
const struct matrix *mat_stack_opt(struct loader *l, const char *name, size_t n, size_t n_rows,
                                   size_t n_cols);
/* Size of dimension `d` (0 = contiguous) of <name>, 0 when absent: where a family's widths are in
 * its tensors. */
uint64_t tensor_dim(struct loader *l, const char *name, unsigned d);
/* <name>.bias [n], optional in every family (spec F0.2). */
const float *bias_opt(struct loader *l, const char *name, size_t n);
/* The same of a stack of n matrices: [n][width]. */
const float *bias_rows_opt(struct loader *l, const char *name, size_t n, size_t width);
/* Rows [row0, row0 + n_rows) of an unpacked matrix as one of its own. */
const struct matrix *mat_rows(struct loader *l, const struct matrix *m, size_t row0, size_t n_rows);
/* The same of n matrices: rows [row0, row0 + n_rows) of every `each` rows of m, [n]. */
const struct matrix *mat_stack_rows(struct loader *l, const struct matrix *m, size_t n, size_t each,
                                    size_t row0, size_t n_rows);
/* Their transposes. Blocks of quantised weights run along rows, so these become f16, whose rounding
 * is far below their step; f32 and bf16 stay what they are. The copies live until the weights are
 * packed. */
const struct matrix *mat_stack_transposed(struct loader *l, const struct matrix *m, size_t n,
                                          size_t each, size_t row0, size_t n_rows);
/* A tensor that is known and not used. */
void tensor_ignore(struct loader *l, const char *name);

/* a * b as a width; 0 and an error above LIMIT_WIDTH. */
uint32_t width_mul(struct loader *l, const char *what, uint32_t a, uint32_t b);

/* Refuse keys of the architecture and tensors that nobody asked for. */
void load_finish(struct loader *l);

#endif
