/*
 * The loader: keys and tensors of a model file for a family's builder, checked and accounted for.
 */
#include "model/load.h"

#include "base/checked.h"
#include "base/limits.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool load_fail(struct loader *l, linnet_status status, const char *fmt, ...)
{
    if (l->status != LINNET_OK)
        return false;
    char text[sizeof l->e->text];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    l->status = err_set(l->e, status, "%s", text);
    return false;
}

static bool full_key(struct loader *l, const char *key, char *buf, size_t size)
{
    int n = snprintf(buf, size, "%s.%s", l->arch, key);
    if (n < 0 || (size_t)n >= size)
        return load_fail(l, LINNET_LIMIT, "the architecture name '%.64s...' is too long", l->arch);
    return true;
}

/* Find and mark; NULL when absent. */
static const struct gguf_kv *find_key(struct loader *l, const char *key, char *buf, size_t size)
{
    if (l->status != LINNET_OK || !full_key(l, key, buf, size))
        return NULL;
    const struct gguf_kv *kv = gguf_find(l->g, buf);
    for (const struct key_alias *a = l->aliases; a && a->now && !kv; a++)
        if (strcmp(a->now, key) == 0 && full_key(l, a->before, buf, size))
            kv = gguf_find(l->g, buf);
    if (kv)
        l->seen_kv[kv - gguf_kv_at(l->g, 0)] = true;
    else
        full_key(l, key, buf, size);
    return kv;
}

enum { KEY_MAX = 256 };

static void absent_key(struct loader *l, const char *full)
{
    load_fail(l, LINNET_FORMAT, "metadata key '%s' is missing, and every %s file must have it",
              full, l->arch);
}

/* The getter's own text is the error's text. */
static bool got(struct loader *l, linnet_status status)
{
    if (status == LINNET_OK)
        return true;
    l->status = status == LINNET_NOT_FOUND ? LINNET_FORMAT : status;
    if (l->e)
        l->e->status = l->status;
    return false;
}

static bool in_range(struct loader *l, const char *full, uint32_t v, uint32_t min, uint32_t max)
{
    if (v >= min && v <= max)
        return true;
    return load_fail(l, LINNET_FORMAT,
                     "metadata key '%s' is %u; in this %s file it must be in %u..%u", full, v,
                     l->arch, min, max);
}

uint32_t key_u32_or(struct loader *l, const char *key, uint32_t min, uint32_t max, uint32_t absent)
{
    char full[KEY_MAX];
    uint32_t v = absent;
    if (!find_key(l, key, full, sizeof full))
        return absent;
    if (!got(l, gguf_get_u32(l->g, full, &v, l->e)) || !in_range(l, full, v, min, max))
        return absent;
    return v;
}

uint32_t key_u32(struct loader *l, const char *key, uint32_t min, uint32_t max)
{
    char full[KEY_MAX];
    if (!find_key(l, key, full, sizeof full)) {
        if (l->status == LINNET_OK)
            absent_key(l, full);
        return min;
    }
    return key_u32_or(l, key, min, max, min);
}

static bool f32_in_range(struct loader *l, const char *full, float v, float min, float max)
{
    if (v >= min && v <= max)
        return true;
    char least[32], most[32];
    snprintf(least, sizeof least, min == ABOVE_0 ? "above 0" : "at least %g", (double)min);
    snprintf(most, sizeof most, max == BELOW_0 ? "below 0" : "at most %g", (double)max);
    return load_fail(l, LINNET_FORMAT, "metadata key '%s' is %g; in a %s file it must be %s and %s",
                     full, (double)v, l->arch, least, most);
}

float key_f32_or(struct loader *l, const char *key, float min, float max, float absent)
{
    char full[KEY_MAX];
    float v = absent;
    if (!find_key(l, key, full, sizeof full))
        return absent;
    if (!got(l, gguf_get_f32(l->g, full, &v, l->e)) || !f32_in_range(l, full, v, min, max))
        return absent;
    return v;
}

float key_f32(struct loader *l, const char *key, float min, float max)
{
    char full[KEY_MAX];
    if (!find_key(l, key, full, sizeof full)) {
        if (l->status == LINNET_OK)
            absent_key(l, full);
        return max;
    }
    return key_f32_or(l, key, min, max, max);
}

float key_eps(struct loader *l, const char *key)
{
    return key_f32(l, key, ABOVE_0, 0.5f);
}

float key_rope_base(struct loader *l, const char *key, float absent)
{
    return key_f32_or(l, key, ROPE_BASE_MIN, ROPE_BASE_MAX, absent);
}

float key_scale(struct loader *l, const char *key, float absent)
{
    return key_f32_or(l, key, SCALE_MIN, SCALE_MAX, absent);
}

float key_scale_or_0(struct loader *l, const char *key, float absent)
{
    char full[KEY_MAX];
    float v;
    bool none = find_key(l, key, full, sizeof full) &&
                gguf_get_f32(l->g, full, &v, NULL) == LINNET_OK && v == 0.0f;
    return none ? absent : key_scale(l, key, absent);
}

float key_cap(struct loader *l, const char *key, float absent)
{
    return key_f32_or(l, key, 0.0f, SCALE_MAX, absent);
}

bool key_bool_or(struct loader *l, const char *key, bool absent)
{
    char full[KEY_MAX];
    bool v = absent;
    if (find_key(l, key, full, sizeof full))
        got(l, gguf_get_bool(l->g, full, &v, l->e));
    return v;
}

bool key_u32_each(struct loader *l, const char *key, size_t n, uint32_t min, uint32_t max,
                  uint32_t *out)
{
    char full[KEY_MAX];
    if (!find_key(l, key, full, sizeof full))
        return false;
    if (!got(l, gguf_get_u32_each(l->g, full, n, out, l->e)))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!in_range(l, full, out[i], min, max))
            return false;
    return true;
}

bool key_f32_each(struct loader *l, const char *key, size_t n, float min, float max, float *out)
{
    char full[KEY_MAX];
    if (!find_key(l, key, full, sizeof full) ||
        !got(l, gguf_get_f32_each(l->g, full, n, out, l->e)))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!f32_in_range(l, full, out[i], min, max))
            return false;
    return true;
}

size_t key_list(struct loader *l, const char *key, uint32_t max, uint32_t *out, size_t cap)
{
    char full[KEY_MAX];
    const struct gguf_kv *kv;
    size_t n;
    if (!find_key(l, key, full, sizeof full) ||
        !got(l, gguf_get_array(l->g, full, GGUF_KIND_INT, &kv, &n, l->e)))
        return 0;
    if (n > cap) {
        load_fail(l, LINNET_FORMAT, "metadata key '%s' has %zu elements; a %s file has at most %zu",
                  full, n, l->arch, cap);
        return 0;
    }
    for (size_t i = 0; i < n; i++) {
        int64_t v = gguf_int_at(kv, i);
        out[i] = v < 0 || v > UINT32_MAX ? UINT32_MAX : (uint32_t)v;
        if (!in_range(l, full, out[i], 0, max))
            return 0;
    }
    return n;
}

bool key_present(struct loader *l, const char *key)
{
    char full[KEY_MAX];
    return find_key(l, key, full, sizeof full) != NULL;
}

bool key_is_array(struct loader *l, const char *key)
{
    char full[KEY_MAX];
    const struct gguf_kv *kv = find_key(l, key, full, sizeof full);
    return kv && kv->type == GGUF_ARRAY;
}

bool key_is_text(struct loader *l, const char *key)
{
    char full[KEY_MAX];
    const struct gguf_kv *kv = find_key(l, key, full, sizeof full);
    return kv && kv->type == GGUF_STRING;
}

struct gguf_str key_text(struct loader *l, const char *key)
{
    char full[KEY_MAX];
    struct gguf_str s = {"", 0};
    if (find_key(l, key, full, sizeof full))
        got(l, gguf_get_str(l->g, full, &s, l->e));
    return s;
}

bool key_is(struct loader *l, const char *key, const char *value, bool absent)
{
    if (!key_present(l, key))
        return absent;
    struct gguf_str s = key_text(l, key);
    return s.n == strlen(value) && memcmp(s.s, value, s.n) == 0;
}

void key_ignore(struct loader *l, const char *key)
{
    key_present(l, key);
}

static bool tensor_name(struct loader *l, const char *name, const char *suffix, char *buf,
                        size_t size)
{
    int n = l->il < 0 ? snprintf(buf, size, "%s%s", name, suffix)
                      : snprintf(buf, size, "blk.%d.%s%s", l->il, name, suffix);
    return n > 0 && (size_t)n < size;
}

static const struct gguf_tensor *find_tensor(struct loader *l, const char *name, const char *suffix)
{
    char full[KEY_MAX];
    if (l->status != LINNET_OK || !tensor_name(l, name, suffix, full, sizeof full))
        return NULL;
    const struct gguf_tensor *t = gguf_tensor_find(l->g, full);
    if (t)
        l->seen_tensor[t - gguf_tensor_at(l->g, 0)] = true;
    return t;
}

static void absent_tensor(struct loader *l, const char *name, const char *suffix)
{
    char full[KEY_MAX];
    if (tensor_name(l, name, suffix, full, sizeof full))
        load_fail(l, LINNET_FORMAT, "tensor '%s' is missing, and a %s file must have it", full,
                  l->arch);
}

bool has(struct loader *l, const char *name)
{
    return find_tensor(l, name, "") != NULL;
}

uint64_t tensor_dim(struct loader *l, const char *name, unsigned d)
{
    const struct gguf_tensor *t = find_tensor(l, name, "");
    return t && d < 4 ? t->dims[d] : 0;
}

void tensor_ignore(struct loader *l, const char *name)
{
    find_tensor(l, name, "");
}

/* The weight format of a tensor, or NULL and an error. */
static const struct quant_type *format_of(struct loader *l, const struct gguf_tensor *t)
{
    const struct quant_type *type = quant_type_of(t->type);
    if (type && type->weight && type->decode)
        return type;
    load_fail(l, LINNET_UNSUPPORTED,
              "tensor '%s' has type %s (id %u), which cannot hold weights of a %s file", t->name,
              type ? type->name : "unknown", t->type, l->arch);
    return NULL;
}

static void wrong_shape(struct loader *l, const struct gguf_tensor *t, const char *needs)
{
    char shape[96];
    size_t at = 0;
    for (uint32_t d = 0; d < t->n_dims && at < sizeof shape; d++)
        at += (size_t)snprintf(shape + at, sizeof shape - at, d ? ", %llu" : "%llu",
                               (unsigned long long)t->dims[d]);
    load_fail(l, LINNET_FORMAT, "tensor '%s' has shape {%s}; this %s file needs %s", t->name, shape,
              l->arch, needs);
}

/* Trailing dimensions of 1 do not count: {n, 1} is {n}. */
static bool shaped(struct loader *l, const struct gguf_tensor *t, uint64_t d0, uint64_t d1,
                   uint64_t d2)
{
    if (t->dims[0] == d0 && t->dims[1] == d1 && t->dims[2] == d2 && t->dims[3] == 1)
        return true;
    char needs[80];
    snprintf(needs, sizeof needs, d2 == 1 ? "{%llu, %llu}" : "{%llu, %llu, %llu}",
             (unsigned long long)d0, (unsigned long long)d1, (unsigned long long)d2);
    wrong_shape(l, t, needs);
    return false;
}

/* Is the tensor `n` rows of `width`, or all of them in one, dimensions of 1 apart? */
static bool has_rows(const struct gguf_tensor *t, size_t n, size_t width)
{
    uint64_t dims[4] = {1, 1, 1, 1};
    for (uint32_t d = 0, at = 0; d < 4; d++)
        if (t->dims[d] != 1)
            dims[at++] = t->dims[d];
    if (dims[2] != 1 || t->n_elems != n * width)
        return false;
    return dims[1] == 1 || (dims[0] == width && dims[1] == n);
}

/* As f32: [n][width]. */
static const float *read_rows(struct loader *l, const struct gguf_tensor *t, size_t n, size_t width)
{
    if (!has_rows(t, n, width)) {
        char needs[48];
        if (n == 1)
            snprintf(needs, sizeof needs, "{%zu}", width);
        else
            snprintf(needs, sizeof needs, "{%zu, %zu}", width, n);
        wrong_shape(l, t, needs);
        return NULL;
    }
    const struct quant_type *type = format_of(l, t);
    float *v = type ? ARENA_ARRAY(l->arena, n * width, float) : NULL;
    if (type && !v)
        l->status = err_memory(l->e, t->name, n * width * sizeof *v);
    if (v)
        type->decode(t->data, v, n * width);
    return v;
}

const float *vec_rows_opt(struct loader *l, const char *name, size_t n, size_t width)
{
    const struct gguf_tensor *t = find_tensor(l, name, "");
    return t ? read_rows(l, t, n, width) : NULL;
}

const float *vec_rows(struct loader *l, const char *name, size_t n, size_t width)
{
    const struct gguf_tensor *t = find_tensor(l, name, "");
    if (!t && l->status == LINNET_OK)
        absent_tensor(l, name, "");
    return t ? read_rows(l, t, n, width) : NULL;
}

const float *vec_opt(struct loader *l, const char *name, size_t n)
{
    return vec_rows_opt(l, name, 1, n);
}

const float *vec(struct loader *l, const char *name, size_t n)
{
    return vec_rows(l, name, 1, n);
}

const float *bias_rows_opt(struct loader *l, const char *name, size_t n, size_t width)
{
    const struct gguf_tensor *t = find_tensor(l, name, ".bias");
    return t ? read_rows(l, t, n, width) : NULL;
}

const float *bias_opt(struct loader *l, const char *name, size_t n)
{
    return bias_rows_opt(l, name, 1, n);
}

/* n matrices of a {n_cols, n_rows, n} tensor, their products multiplied by `scales`: [n], or `one`
 * for all, or NULL. */
static const struct matrix *read_matrices(struct loader *l, const struct gguf_tensor *t, size_t n,
                                          size_t n_rows, size_t n_cols, const float *scales,
                                          bool one)
{
    const struct quant_type *type = format_of(l, t);
    size_t row_bytes;
    if (!type || !shaped(l, t, n_cols, n_rows, n))
        return NULL;
    if (!quant_row_bytes(type, n_cols, &row_bytes)) {
        load_fail(l, LINNET_FORMAT, "tensor '%s': rows of %zu are not whole %s blocks of %u",
                  t->name, n_cols, type->name, type->block);
        return NULL;
    }
    const struct matrix **known = &l->mats[t - gguf_tensor_at(l->g, 0)];
    if (*known)
        return *known;
    struct matrix *m = ARENA_ARRAY(l->arena, n, struct matrix);
    if (!m) {
        l->status = err_memory(l->e, t->name, n * sizeof *m);
        return NULL;
    }
    for (size_t i = 0; i < n; i++)
        m[i] = (struct matrix){.type = type,
                               .n_rows = n_rows,
                               .n_cols = n_cols,
                               .data = t->data + i * n_rows * row_bytes,
                               .row_bytes = row_bytes,
                               .scale = scales ? scales[one ? 0 : i] : 1.0f};
    *known = m;
    return m;
}

/* The same with the tensor <name>.scale, of one number or n, where there is one. */
static const struct matrix *read_stack(struct loader *l, const struct gguf_tensor *t,
                                       const char *name, size_t n, size_t n_rows, size_t n_cols)
{
    const struct gguf_tensor *s = find_tensor(l, name, ".scale");
    const bool one = s && s->n_elems == 1;
    const float *scales = s ? read_rows(l, s, 1, one ? 1 : n) : NULL;
    find_tensor(l, name, ".input_scale");
    return read_matrices(l, t, n, n_rows, n_cols, scales, one);
}

const struct matrix *mat_stack_opt(struct loader *l, const char *name, size_t n, size_t n_rows,
                                   size_t n_cols)
{
    const struct gguf_tensor *t = find_tensor(l, name, ".weight");
    return t ? read_stack(l, t, name, n, n_rows, n_cols) : NULL;
}

const struct matrix *mat_stack(struct loader *l, const char *name, size_t n, size_t n_rows,
                               size_t n_cols)
{
    const struct matrix *m = mat_stack_opt(l, name, n, n_rows, n_cols);
    if (!m && l->status == LINNET_OK)
        absent_tensor(l, name, ".weight");
    return m;
}

const struct matrix *mat_opt(struct loader *l, const char *name, size_t n_rows, size_t n_cols)
{
    return mat_stack_opt(l, name, 1, n_rows, n_cols);
}

const struct matrix *mat(struct loader *l, const char *name, size_t n_rows, size_t n_cols)
{
    return mat_stack(l, name, 1, n_rows, n_cols);
}

const struct matrix *mat_unscaled(struct loader *l, const char *name, size_t n_rows, size_t n_cols)
{
    const struct gguf_tensor *t = find_tensor(l, name, ".weight");
    if (!t && l->status == LINNET_OK)
        absent_tensor(l, name, ".weight");
    return t ? read_matrices(l, t, 1, n_rows, n_cols, NULL, false) : NULL;
}

const struct matrix *mat_rows(struct loader *l, const struct matrix *m, size_t row0, size_t n_rows)
{
    if (!m || row0 > m->n_rows || n_rows > m->n_rows - row0)
        return NULL;
    struct matrix *part = ARENA_NEW(l->arena, struct matrix);
    if (!part) {
        l->status = err_memory(l->e, "rows of a matrix", sizeof *part);
        return NULL;
    }
    *part = *m;
    part->data += row0 * m->row_bytes;
    part->n_rows = n_rows;
    return part;
}

static bool rows_fit(const struct matrix *m, size_t n, size_t each, size_t row0, size_t n_rows)
{
    return m && n > 0 && each <= m->n_rows / n && row0 <= each && n_rows <= each - row0;
}

const struct matrix *mat_stack_rows(struct loader *l, const struct matrix *m, size_t n, size_t each,
                                    size_t row0, size_t n_rows)
{
    if (!rows_fit(m, n, each, row0, n_rows))
        return NULL;
    struct matrix *list = ARENA_ARRAY(l->arena, n, struct matrix);
    if (!list) {
        l->status = err_memory(l->e, "rows of a matrix", n * sizeof *list);
        return NULL;
    }
    for (size_t i = 0; i < n; i++) {
        list[i] = *m;
        list[i].data += (i * each + row0) * m->row_bytes;
        list[i].n_rows = n_rows;
    }
    return list;
}

/* dst [m->n_cols][m->n_rows] = transpose of m, of type `to`. `rows` has room for m and a column of
 * it. */
static void transpose(const struct matrix *m, const struct quant_type *to, uint8_t *dst,
                      float *rows)
{
    float *column = rows + m->n_rows * m->n_cols;
    for (size_t r = 0; r < m->n_rows; r++)
        m->type->decode(m->data + r * m->row_bytes, rows + r * m->n_cols, m->n_cols);
    for (size_t c = 0; c < m->n_cols; c++) {
        for (size_t r = 0; r < m->n_rows; r++)
            column[r] = rows[r * m->n_cols + c];
        to->encode(column, dst + c * m->n_rows * to->block_bytes, m->n_rows);
    }
}

const struct matrix *mat_stack_transposed(struct loader *l, const struct matrix *m, size_t n,
                                          size_t each, size_t row0, size_t n_rows)
{
    if (!rows_fit(m, n, each, row0, n_rows))
        return NULL;
    struct matrix *list = (struct matrix *)mat_stack_rows(l, m, n, each, row0, n_rows);
    bool keeps = m->type->id == QUANT_F32 || m->type->id == QUANT_BF16;
    const struct quant_type *to = keeps ? m->type : quant_type_of(QUANT_F16);
    size_t size = m->n_cols * n_rows * to->block_bytes; /* at most 16 times that of the tensor */
    bool copy = !l->m->plan_only;
    uint8_t *data = arena_alloc(&l->m->until_packed, copy ? n : 0, size);
    float *rows = ARENA_ARRAY(&l->m->until_packed, copy ? (m->n_cols + 1) * n_rows : 0, float);
    if (!list || !data || !rows) {
        l->status = err_memory(l->e, "transposed matrices", n * size);
        return NULL;
    }
    for (size_t i = 0; i < n; i++) {
        if (copy)
            transpose(&list[i], to, data + i * size, rows);
        list[i] = (struct matrix){.type = to,
                                  .n_rows = m->n_cols,
                                  .n_cols = n_rows,
                                  .data = copy ? data + i * size : NULL,
                                  .row_bytes = n_rows * to->block_bytes,
                                  .scale = m->scale};
    }
    return list;
}

uint32_t width_mul(struct loader *l, const char *what, uint32_t a, uint32_t b)
{
    uint64_t w = (uint64_t)a * b;
    if (w == 0 || w > LIMIT_WIDTH) {
        load_fail(l, LINNET_LIMIT, "%s: a width of %u x %u is outside 1..%d", what, a, b,
                  LIMIT_WIDTH);
        return 1;
    }
    return (uint32_t)w;
}

/* Keys that describe, and never change what is computed; of the two epsilons converters write, the
 * one of a norm that the family does not have; and what is 0 where that says that there is none. */
static bool harmless_key(const struct gguf_kv *kv, const char *suffix)
{
    static const char *const names[] = {
        "context_length",
        "vocab_size",
        "pooling_type",
        "tensor_data_layout",
        "quantization_version",
        "block_count",
        "embedding_length",
        "attention.layer_norm_epsilon",
        "attention.layer_norm_rms_epsilon",
    };
    static const char *const none_if_0[] = {
        "expert_count",           "expert_used_count",       "expert_shared_count",
        "expert_group_count",     "expert_group_used_count", "expert_weights_scale",
        "attn_logit_softcapping", "final_logit_softcapping",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(suffix, names[i]) == 0)
            return true;
    if (kv->type == GGUF_ARRAY || kv->type == GGUF_STRING || gguf_float_at(kv, 0) != 0.0)
        return false;
    for (size_t i = 0; i < sizeof none_if_0 / sizeof *none_if_0; i++)
        if (strcmp(suffix, none_if_0[i]) == 0)
            return true;
    return false;
}

/* Is it a tensor of a NextN block that no plan has? */
static bool beyond_plans(const struct loader *l, const char *name)
{
    unsigned il;
    return sscanf(name, "blk.%u.", &il) == 1 && il >= l->m->facts.n_layer + l->m->has_draft &&
           il < l->m->facts.n_layer_all;
}

void load_finish(struct loader *l)
{
    size_t n_arch = strlen(l->arch);
    for (size_t i = 0; i < gguf_n_kv(l->g) && l->status == LINNET_OK; i++) {
        const struct gguf_kv *kv = gguf_kv_at(l->g, i);
        const char *key = kv->key;
        bool ours = strncmp(key, l->arch, n_arch) == 0 && key[n_arch] == '.';
        if (ours && !l->seen_kv[i] && !harmless_key(kv, key + n_arch + 1))
            load_fail(l, LINNET_UNSUPPORTED,
                      "metadata key '%s' is not known for %s and may change the maths, so the file "
                      "is refused",
                      key, l->arch);
    }
    for (size_t i = 0; i < gguf_n_tensors(l->g) && l->status == LINNET_OK; i++)
        if (!l->seen_tensor[i] && !beyond_plans(l, gguf_tensor_at(l->g, i)->name))
            load_fail(l, LINNET_UNSUPPORTED,
                      "tensor '%s' is not known for %s, so the file is refused",
                      gguf_tensor_at(l->g, i)->name, l->arch);
}
