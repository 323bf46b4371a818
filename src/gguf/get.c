/*
 * Typed getters: metadata as C values.
 *
 * An absent key is LINNET_NOT_FOUND and leaves the output as it was; a key of the wrong type, or a
 * value that the output cannot hold, is LINNET_FORMAT with a text that names the key, what it is
 * and what is needed. Values are read from the file's bytes by the type written there, never by the
 * type expected. Integers of every width, and bool, stand for one another as long as the value
 * fits.
 */
#include "gguf/part.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static bool is_int(enum gguf_type t)
{
    return t != GGUF_F32 && t != GGUF_F64 && t != GGUF_STRING && t != GGUF_ARRAY;
}

static bool is_number(enum gguf_type t)
{
    return t != GGUF_BOOL && t != GGUF_STRING && t != GGUF_ARRAY;
}

static bool is_string(enum gguf_type t)
{
    return t == GGUF_STRING;
}

/* ---- elements ---- */

/* Integer number i; false when it is above INT64_MAX, then *out is INT64_MAX. */
static bool int_at(const struct gguf_kv *kv, size_t i, int64_t *out)
{
    const uint8_t *v = kv->value + i * gguf_type_size(kv->elem);
    switch (kv->elem) {
    case GGUF_U8:
    case GGUF_BOOL: *out = v[0]; return true;
    case GGUF_I8: *out = (int8_t)v[0]; return true;
    case GGUF_U16: *out = v[0] | v[1] << 8; return true;
    case GGUF_I16: *out = (int16_t)(v[0] | v[1] << 8); return true;
    case GGUF_U32: *out = gguf_load_u32(v); return true;
    case GGUF_I32: *out = (int32_t)gguf_load_u32(v); return true;
    case GGUF_I64: *out = (int64_t)gguf_load_u64(v); return true;
    case GGUF_U64: break;
    default: *out = 0; return false;
    }
    uint64_t u = gguf_load_u64(v);
    *out = u > INT64_MAX ? INT64_MAX : (int64_t)u;
    return u <= INT64_MAX;
}

int64_t gguf_int_at(const struct gguf_kv *kv, size_t i)
{
    int64_t v;
    int_at(kv, i, &v);
    return v;
}

double gguf_float_at(const struct gguf_kv *kv, size_t i)
{
    const uint8_t *v = kv->value + i * gguf_type_size(kv->elem);
    if (kv->elem == GGUF_F32) {
        uint32_t bits = gguf_load_u32(v);
        float f;
        memcpy(&f, &bits, sizeof f);
        return (double)f;
    }
    if (kv->elem == GGUF_F64 || kv->elem == GGUF_U64) {
        uint64_t bits = gguf_load_u64(v);
        double d;
        memcpy(&d, &bits, sizeof d);
        return kv->elem == GGUF_F64 ? d : (double)bits;
    }
    return (double)gguf_int_at(kv, i);
}

struct gguf_str gguf_str_at(const struct gguf_kv *kv, size_t i)
{
    return kv->strings[i];
}

/* ---- finding ---- */

typedef bool accepts_fn(enum gguf_type type);

static linnet_status wrong_type(const struct gguf_part *part, const struct gguf_kv *kv,
                                const char *needed, linnet_error *e)
{
    return err_set(e, LINNET_FORMAT, "'%s': key '%.*s' has type %s%s; it must be %s",
                   gguf_shown_path(part->path), gguf_shown(kv->key), kv->key,
                   kv->type == GGUF_ARRAY ? "array of " : "", gguf_type_name(kv->elem), needed);
}

static linnet_status wrong_value(const struct gguf_part *part, const struct gguf_kv *kv, size_t i,
                                 const char *needed, linnet_error *e)
{
    char value[40], element[40] = "";
    int64_t v;
    if (!is_int(kv->elem))
        snprintf(value, sizeof value, "%g", gguf_float_at(kv, i));
    else if (int_at(kv, i, &v))
        snprintf(value, sizeof value, "%" PRId64, v);
    else
        snprintf(value, sizeof value, "above %" PRId64, INT64_MAX);
    if (kv->type == GGUF_ARRAY)
        snprintf(element, sizeof element, ", element %zu,", i);
    return err_set(e, LINNET_FORMAT, "'%s': key '%.*s'%s is %s; it must be %s",
                   gguf_shown_path(part->path), gguf_shown(kv->key), kv->key, element, value,
                   needed);
}

/* The key, whose element type `accepts` takes. NULL: absent or of a wrong type, as *status says. */
static const struct gguf_kv *find(const struct gguf_part *part, const char *key,
                                  accepts_fn *accepts, const char *needed, linnet_status *status,
                                  linnet_error *e)
{
    const struct gguf_kv *kv = gguf_part_find(part, key);
    if (kv && accepts(kv->elem))
        return kv;
    *status = kv ? wrong_type(part, kv, needed, e)
                 : err_set(e, LINNET_NOT_FOUND, "'%s': key '%s' is missing",
                           gguf_shown_path(part->path), key);
    return NULL;
}

/* As find, but arrays are of a wrong type. */
static const struct gguf_kv *find_scalar(const struct gguf_part *part, const char *key,
                                         accepts_fn *accepts, const char *needed,
                                         linnet_status *status, linnet_error *e)
{
    const struct gguf_kv *kv = find(part, key, accepts, needed, status, e);
    if (!kv || kv->type != GGUF_ARRAY)
        return kv;
    *status = wrong_type(part, kv, needed, e);
    return NULL;
}

/* As find, but arrays of fewer than n elements are refused. */
static const struct gguf_kv *find_each(const struct gguf_part *part, const char *key, size_t n,
                                       accepts_fn *accepts, const char *needed,
                                       linnet_status *status, linnet_error *e)
{
    const struct gguf_kv *kv = find(part, key, accepts, needed, status, e);
    if (!kv || kv->type != GGUF_ARRAY || kv->count >= n)
        return kv;
    *status = err_set(e, LINNET_FORMAT,
                      "'%s': key '%s' has %" PRIu64 " elements; at least %zu are needed",
                      gguf_shown_path(part->path), key, kv->count, n);
    return NULL;
}

/* ---- scalars ---- */

static linnet_status get_i64(const struct gguf_part *part, const char *key, int64_t *out,
                             linnet_error *e)
{
    linnet_status status;
    const struct gguf_kv *kv = find_scalar(part, key, is_int, "an integer", &status, e);
    if (!kv)
        return status;
    int64_t v;
    if (!int_at(kv, 0, &v))
        return wrong_value(part, kv, 0, "at most 2^63 - 1", e);
    *out = v;
    return LINNET_OK;
}

linnet_status gguf_get_i64(const struct gguf *g, const char *key, int64_t *out, linnet_error *e)
{
    return get_i64(&g->parts[0], key, out, e);
}

linnet_status gguf_part_i64_or(const struct gguf_part *part, const char *key, int64_t absent,
                               int64_t *out, linnet_error *e)
{
    *out = absent;
    return gguf_part_find(part, key) ? get_i64(part, key, out, e) : LINNET_OK;
}

/* Integer i as uint32. */
static linnet_status u32_at(const struct gguf_part *part, const struct gguf_kv *kv, size_t i,
                            uint32_t *out, linnet_error *e)
{
    int64_t v;
    if (!int_at(kv, i, &v) || v < 0 || v > UINT32_MAX)
        return wrong_value(part, kv, i, "from 0 to 2^32 - 1", e);
    *out = (uint32_t)v;
    return LINNET_OK;
}

/* Number i as float: infinities and NaN pass, a finite double beyond the range does not. */
static linnet_status f32_at(const struct gguf_part *part, const struct gguf_kv *kv, size_t i,
                            float *out, linnet_error *e)
{
    double v = gguf_float_at(kv, i);
    if (isfinite(v) && fabs(v) > (double)FLT_MAX)
        return wrong_value(part, kv, i, "in the range of float32", e);
    *out = (float)v;
    return LINNET_OK;
}

linnet_status gguf_get_u32(const struct gguf *g, const char *key, uint32_t *out, linnet_error *e)
{
    linnet_status status;
    const struct gguf_part *part = &g->parts[0];
    const struct gguf_kv *kv = find_scalar(part, key, is_int, "an integer", &status, e);
    return kv ? u32_at(part, kv, 0, out, e) : status;
}

linnet_status gguf_get_f32(const struct gguf *g, const char *key, float *out, linnet_error *e)
{
    linnet_status status;
    const struct gguf_part *part = &g->parts[0];
    const struct gguf_kv *kv = find_scalar(part, key, is_number, "a number", &status, e);
    return kv ? f32_at(part, kv, 0, out, e) : status;
}

linnet_status gguf_get_bool(const struct gguf *g, const char *key, bool *out, linnet_error *e)
{
    linnet_status status;
    const struct gguf_part *part = &g->parts[0];
    const struct gguf_kv *kv = find_scalar(part, key, is_int, "a bool", &status, e);
    if (!kv)
        return status;
    int64_t v;
    if (!int_at(kv, 0, &v) || v < 0 || v > 1)
        return wrong_value(part, kv, 0, "0 or 1", e);
    *out = v == 1;
    return LINNET_OK;
}

linnet_status gguf_get_str(const struct gguf *g, const char *key, struct gguf_str *out,
                           linnet_error *e)
{
    linnet_status status;
    const struct gguf_kv *kv = find_scalar(&g->parts[0], key, is_string, "a string", &status, e);
    if (!kv)
        return status;
    *out = kv->strings[0];
    return LINNET_OK;
}

/* ---- scalar or array ---- */

/* Index of the element that entry i of a broadcast takes. */
static size_t each(const struct gguf_kv *kv, size_t i)
{
    return kv->type == GGUF_ARRAY ? i : 0;
}

/* Both check all entries before they write any. */
linnet_status gguf_get_u32_each(const struct gguf *g, const char *key, size_t n, uint32_t *out,
                                linnet_error *e)
{
    linnet_status status;
    const struct gguf_part *part = &g->parts[0];
    const struct gguf_kv *kv =
        find_each(part, key, n, is_int, "an integer or an array of integers", &status, e);
    if (!kv)
        return status;
    for (size_t i = 0; i < n; i++) {
        uint32_t v;
        status = u32_at(part, kv, each(kv, i), &v, e);
        if (status != LINNET_OK)
            return status;
    }
    for (size_t i = 0; i < n; i++)
        out[i] = (uint32_t)gguf_int_at(kv, each(kv, i));
    return LINNET_OK;
}

linnet_status gguf_get_f32_each(const struct gguf *g, const char *key, size_t n, float *out,
                                linnet_error *e)
{
    linnet_status status;
    const struct gguf_part *part = &g->parts[0];
    const struct gguf_kv *kv =
        find_each(part, key, n, is_number, "a number or an array of numbers", &status, e);
    if (!kv)
        return status;
    for (size_t i = 0; i < n; i++) {
        float v;
        status = f32_at(part, kv, each(kv, i), &v, e);
        if (status != LINNET_OK)
            return status;
    }
    for (size_t i = 0; i < n; i++)
        out[i] = (float)gguf_float_at(kv, each(kv, i));
    return LINNET_OK;
}

/* ---- arrays ---- */

linnet_status gguf_get_array(const struct gguf *g, const char *key, enum gguf_kind kind,
                             const struct gguf_kv **out, size_t *n, linnet_error *e)
{
    static const struct {
        const char *needed;
        accepts_fn *accepts;
    } kinds[] = {
        [GGUF_KIND_INT] = {"an array of integers", is_int},
        [GGUF_KIND_FLOAT] = {"an array of numbers", is_number},
        [GGUF_KIND_BOOL] = {"an array of bools", is_int},
        [GGUF_KIND_STR] = {"an array of strings", is_string},
    };
    linnet_status status;
    const struct gguf_part *part = &g->parts[0];
    const struct gguf_kv *kv = find(part, key, kinds[kind].accepts, kinds[kind].needed, &status, e);
    if (!kv)
        return status;
    if (kv->type != GGUF_ARRAY)
        return wrong_type(part, kv, kinds[kind].needed, e);
    int64_t v;
    for (size_t i = 0; kind == GGUF_KIND_BOOL && i < kv->count; i++)
        if (!int_at(kv, i, &v) || v < 0 || v > 1)
            return wrong_value(part, kv, i, "0 or 1", e);
    *out = kv;
    *n = (size_t)kv->count;
    return LINNET_OK;
}
