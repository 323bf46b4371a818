/*
 * Everything of struct kernels but the matrix product, written once in 16-lane vector operations.
 * Each instruction set includes its vec_*.h and then this file, and names the functions in its
 * table with VECTOR_KERNELS; so all tables do the same operations in the same order.
 *
 * Orders that kernel.h leaves open are those of the code below. No function reads or writes past
 * its n elements, n may be 0, and outputs may be inputs.
 */
#ifndef LINNET_KERNEL_VECTOR_H
#define LINNET_KERNEL_VECTOR_H

#include "kernel/tile.h"
#include "kernel/vecmath.h"

enum { LANES = 16 };

/* for each vector of n elements from i: BODY with LOAD(p) and STORE(p, v) for whole vectors, then
 * once for the rest */
#define FOR_VECTORS(i, n, BODY)                                                                    \
    do {                                                                                           \
        size_t i = 0;                                                                              \
        for (; i + LANES <= (n); i += LANES) {                                                     \
            BODY(v_load, v_store)                                                                  \
        }                                                                                          \
        if (i < (n)) {                                                                             \
            const size_t rest_ = (n)-i;                                                            \
            BODY(LOAD_REST, STORE_REST)                                                            \
        }                                                                                          \
    } while (0)
#define LOAD_REST(p)     v_load_n(p, rest_)
#define STORE_REST(p, v) v_store_n(p, v, rest_)

/* Reductions. Missing lanes of the last vector are zeros, which change no sum. */

static float vec_dot(const float *a, const float *b, size_t n)
{
    vf s = v_set(0.0f);
#define BODY(LOAD, STORE) s = v_fma(LOAD(a + i), LOAD(b + i), s);
    FOR_VECTORS(i, n, BODY);
#undef BODY
    return v_fold_add(s);
}

static float vec_sum(const float *a, size_t n)
{
    vf s = v_set(0.0f);
#define BODY(LOAD, STORE) s = v_add(s, LOAD(a + i));
    FOR_VECTORS(i, n, BODY);
#undef BODY
    return v_fold_add(s);
}

/* A NaN is passed over. -inf for n == 0. */
static float vec_max(const float *a, size_t n)
{
    const vf lowest = v_set(-INFINITY);
    vf m = lowest;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        m = v_max(v_load(a + i), m);
    if (i < n)
        m = v_max(v_select(vm_first(n - i), v_load_n(a + i, n - i), lowest), m);
    return v_fold_max(m);
}

/* Norms and softmax. */

static void vec_rms_norm(float *y, const float *x, const float *w, size_t n, float eps)
{
    const vf r = v_set(1.0f / sqrtf(vec_dot(x, x, n) / (float)n + eps));
    if (w) {
#define BODY(LOAD, STORE) STORE(y + i, v_mul(v_mul(LOAD(x + i), r), LOAD(w + i)));
        FOR_VECTORS(i, n, BODY);
#undef BODY
    } else {
#define BODY(LOAD, STORE) STORE(y + i, v_mul(LOAD(x + i), r));
        FOR_VECTORS(i, n, BODY);
#undef BODY
    }
}

static void vec_layer_norm(float *y, const float *x, const float *w, const float *b, size_t n,
                           float eps)
{
    const vf mean = v_set(vec_sum(x, n) / (float)n);
    vf s = v_set(0.0f);
    size_t j = 0;
    for (; j + LANES <= n; j += LANES) {
        const vf c = v_sub(v_load(x + j), mean);
        s = v_fma(c, c, s);
    }
    if (j < n) {
        const vf c = v_select(vm_first(n - j), v_sub(v_load_n(x + j, n - j), mean), v_set(0.0f));
        s = v_fma(c, c, s);
    }
    const vf r = v_set(1.0f / sqrtf(v_fold_add(s) / (float)n + eps));
#define BODY(LOAD, STORE)                                                                          \
    vf v = v_mul(v_sub(LOAD(x + i), mean), r);                                                     \
    if (w)                                                                                         \
        v = v_mul(v, LOAD(w + i));                                                                 \
    if (b)                                                                                         \
        v = v_add(v, LOAD(b + i));                                                                 \
    STORE(y + i, v);
    FOR_VECTORS(i, n, BODY);
#undef BODY
}

static void vec_l2_norm(float *y, const float *x, size_t n, float eps)
{
    const vf r = v_set(1.0f / sqrtf(vec_dot(x, x, n) + eps));
#define BODY(LOAD, STORE) STORE(y + i, v_mul(LOAD(x + i), r));
    FOR_VECTORS(i, n, BODY);
#undef BODY
}

static void vec_softmax(float *x, size_t n)
{
    const vf m = v_set(vec_max(x, n));
    vf s = v_set(0.0f);
    size_t j = 0;
    for (; j + LANES <= n; j += LANES) {
        const vf e = v_exp(v_sub(v_load(x + j), m));
        s = v_add(s, e);
        v_store(x + j, e);
    }
    if (j < n) {
        const vf e = v_exp(v_sub(v_load_n(x + j, n - j), m));
        s = v_add(s, v_select(vm_first(n - j), e, v_set(0.0f)));
        v_store_n(x + j, e, n - j);
    }
    const vf r = v_set(1.0f / v_fold_add(s));
#define BODY(LOAD, STORE) STORE(x + i, v_mul(LOAD(x + i), r));
    FOR_VECTORS(i, n, BODY);
#undef BODY
}

/* Elementwise. */

static inline vf v_silu(vf x)
{
    return v_div(x, v_add(v_set(1.0f), v_exp(v_neg(x))));
}

/* x/2 (1 + tanh(u)) = x / (1 + exp(-2u)), u = sqrt(2 / pi) (x + 0.044715 x^3) */
static inline vf v_gelu(vf x)
{
    const vf cube = v_mul(v_mul(x, x), x);
    const vf u = v_fma(v_set(0.044715f), cube, x);
    const vf e = v_exp(v_mul(u, v_set(-1.59576912f)));
    return v_div(x, v_add(v_set(1.0f), e));
}

static inline vf v_gelu_erf(vf x)
{
    const vf e = v_erf(v_mul(x, v_set(0.707106781f)));
    return v_mul(v_mul(v_set(0.5f), x), v_add(v_set(1.0f), e));
}

static inline vf v_relu2(vf x)
{
    const vf r = v_select(v_lt(x, v_set(0.0f)), v_set(0.0f), x);
    return v_mul(r, r);
}

static inline vf v_softplus(vf x)
{
    return v_select(v_lt(v_set(20.0f), x), x, v_log1p(v_exp(x)));
}

#define DEFINE_MAP(name, v_name)                                                                   \
    static void name(float *y, const float *x, size_t n)                                           \
    {                                                                                              \
        FOR_VECTORS(i, n, MAP_##v_name);                                                           \
    }
#define MAP_v_silu(LOAD, STORE)     STORE(y + i, v_silu(LOAD(x + i)));
#define MAP_v_gelu(LOAD, STORE)     STORE(y + i, v_gelu(LOAD(x + i)));
#define MAP_v_gelu_erf(LOAD, STORE) STORE(y + i, v_gelu_erf(LOAD(x + i)));
#define MAP_v_relu2(LOAD, STORE)    STORE(y + i, v_relu2(LOAD(x + i)));
#define MAP_v_sigmoid(LOAD, STORE)  STORE(y + i, v_sigmoid(LOAD(x + i)));
#define MAP_v_softplus(LOAD, STORE) STORE(y + i, v_softplus(LOAD(x + i)));
#define MAP_v_exp(LOAD, STORE)      STORE(y + i, v_exp(LOAD(x + i)));
#define MAP_v_tanh(LOAD, STORE)     STORE(y + i, v_tanh(LOAD(x + i)));

DEFINE_MAP(vec_silu, v_silu)
DEFINE_MAP(vec_gelu, v_gelu)
DEFINE_MAP(vec_gelu_erf, v_gelu_erf)
DEFINE_MAP(vec_relu2, v_relu2)
DEFINE_MAP(vec_sigmoid, v_sigmoid)
DEFINE_MAP(vec_softplus, v_softplus)
DEFINE_MAP(vec_exp, v_exp)
DEFINE_MAP(vec_tanh, v_tanh)

static void vec_add(float *y, const float *a, const float *b, size_t n)
{
#define BODY(LOAD, STORE) STORE(y + i, v_add(LOAD(a + i), LOAD(b + i)));
    FOR_VECTORS(i, n, BODY);
#undef BODY
}

static void vec_mul(float *y, const float *a, const float *b, size_t n)
{
#define BODY(LOAD, STORE) STORE(y + i, v_mul(LOAD(a + i), LOAD(b + i)));
    FOR_VECTORS(i, n, BODY);
#undef BODY
}

static void vec_scale(float *y, const float *a, float s, size_t n)
{
    const vf f = v_set(s);
#define BODY(LOAD, STORE) STORE(y + i, v_mul(LOAD(a + i), f));
    FOR_VECTORS(i, n, BODY);
#undef BODY
}

static void vec_axpy(float *y, float s, const float *x, size_t n)
{
    const vf f = v_set(s);
#define BODY(LOAD, STORE) STORE(y + i, v_fma(f, LOAD(x + i), LOAD(y + i)));
    FOR_VECTORS(i, n, BODY);
#undef BODY
}

static void vec_lerp(float *y, const float *a, const float *b, const float *w, size_t n)
{
#define BODY(LOAD, STORE)                                                                          \
    const vf va = LOAD(a + i);                                                                     \
    STORE(y + i, v_fma(v_sub(LOAD(b + i), va), LOAD(w + i), va));
    FOR_VECTORS(i, n, BODY);
#undef BODY
}

static void vec_softcap(float *y, const float *x, float cap, size_t n)
{
    const vf c = v_set(cap);
#define BODY(LOAD, STORE) STORE(y + i, v_mul(c, v_tanh(v_div(LOAD(x + i), c))));
    FOR_VECTORS(i, n, BODY);
#undef BODY
}

static void vec_silu_mul(float *y, const float *gate, const float *up, size_t n)
{
#define BODY(LOAD, STORE) STORE(y + i, v_mul(v_silu(LOAD(gate + i)), LOAD(up + i)));
    FOR_VECTORS(i, n, BODY);
#undef BODY
}

static void vec_gelu_mul(float *y, const float *gate, const float *up, size_t n)
{
#define BODY(LOAD, STORE) STORE(y + i, v_mul(v_gelu(LOAD(gate + i)), LOAD(up + i)));
    FOR_VECTORS(i, n, BODY);
#undef BODY
}

/* Rotation. */

static void rope_halves(float *x, const float *c, const float *s, size_t half)
{
    float *x2 = x + half;
#define BODY(LOAD, STORE)                                                                          \
    const vf a = LOAD(x + i), b = LOAD(x2 + i), vc = LOAD(c + i), vs = LOAD(s + i);                \
    STORE(x + i, v_fma(a, vc, v_neg(v_mul(b, vs))));                                               \
    STORE(x2 + i, v_fma(a, vs, v_mul(b, vc)));
    FOR_VECTORS(i, half, BODY);
#undef BODY
}

/* 16 elements, 8 pairs: element 2i needs (a, c, b, -s), element 2i + 1 (a, s, b, c). */
static inline vf rope_pairs(vf x, vf c, vf s, vf minus_s)
{
    return v_fma(v_dup_even(x), v_zip_low(c, s), v_mul(v_dup_odd(x), v_zip_low(minus_s, c)));
}

static void vec_rope(float *x, const float *cos, const float *sin, size_t n_rot, bool neox)
{
    const size_t half = n_rot / 2;
    if (neox) {
        rope_halves(x, cos, sin, half);
        return;
    }
    for (size_t i = 0; i < half; i += 8) {
        const size_t n = half - i < 8 ? half - i : 8;
        const vf c = v_load_n(cos + i, n), s = v_load_n(sin + i, n);
        const vf minus_s = v_neg(s);
        float *p = x + 2 * i;
        if (n == 8)
            v_store(p, rope_pairs(v_load(p), c, s, minus_s));
        else
            v_store_n(p, rope_pairs(v_load_n(p, 2 * n), c, s, minus_s), 2 * n);
    }
}

/* Quantised activations. */

/* The largest |x| of 32 values as bits: 0x7f800000 or more when one is not finite. */
static inline int32_t largest_bits(vf a, vf b)
{
    const vi mask = vi_set(INT32_MAX);
    return vi_fold_max(vi_max(vi_and(v_bits(a), mask), vi_and(v_bits(b), mask)));
}

/* d and 1/d for values up to `bits`: NaN and 0 for values that are not finite, 0 and 0 for values
 * so small that 1/d would be infinite. */
static inline float scale_of(int32_t bits, float *inverse)
{
    *inverse = 0.0f;
    if (bits >= 0x7f800000)
        return NAN;
    const float d = f32_of_bits((uint32_t)bits) / 127.0f;
    const float inv = 1.0f / d;
    if (inv > 3.40282347e38f)
        return 0.0f;
    *inverse = inv;
    return d;
}

/* int8 of x * inverse; all 0 when inverse is 0, also where x is not finite */
static inline vi quantised(vf x, float inverse)
{
    return inverse == 0.0f ? vi_set(0) : v_to_int(v_mul(x, v_set(inverse)));
}

/* Values [32 g, 32 g + 32) of a row */
static void quantise_group(vf a, vf b, struct act_span *row, size_t g)
{
    struct act_span *span = row + g / (SPAN / ACT_GROUP);
    g %= SPAN / ACT_GROUP;
    float inverse;
    span->d[g] = scale_of(largest_bits(a, b), &inverse);
    const vi qa = quantised(a, inverse), qb = quantised(b, inverse);
    vi_store_i8(span->q + 32 * g, qa);
    vi_store_i8(span->q + 32 * g + 16, qb);
    span->sum16[2 * g] = (int16_t)vi_fold_add(qa);
    span->sum16[2 * g + 1] = (int16_t)vi_fold_add(qb);
}

static void vec_quantise(const struct act *act, size_t row0, size_t row1)
{
    const size_t width = act->width, n_groups = act_spans(width) * (SPAN / ACT_GROUP);
    for (size_t r = row0; r < row1; r++) {
        const float *x = act->x + r * act->x_stride;
        struct act_span *row = act_row(act, r);
        size_t g = 0;
        for (; (g + 1) * 32 <= width; g++)
            quantise_group(v_load(x + 32 * g), v_load(x + 32 * g + 16), row, g);
        for (; g < n_groups; g++) {
            float rest[32] = {0};
            if (32 * g < width)
                memcpy(rest, x + 32 * g, (width - 32 * g) * sizeof *x);
            quantise_group(v_load(rest), v_load(rest + 16), row, g);
        }
    }
}

/* Keys and values. q8_0 rows are blocks as in files: f16 d, 32 int8, d = max|x| / 127 and q = x / d
 * rounded to nearest even before d is rounded to f16; a block with a value that is not finite has d
 * = NaN. */

static inline vf bf16_wide(const uint16_t *p)
{
    return v_of_bits(vi_shl(vi_load_u16(p), 16));
}

/* Round to nearest even; a NaN is made quiet, so that it does not become infinity. */
static inline void bf16_narrow(uint16_t *p, vf x)
{
    const vi u = v_bits(x);
    const vi odd = vi_and(vi_shr(u, 16), vi_set(1));
    const vi rounded = vi_add(u, vi_add(odd, vi_set(0x7fff)));
    const vi quiet = vi_or(u, vi_set(0x400000));
    vi_store_u16(p,
                 vi_shr(v_bits(v_select(v_is_nan(x), v_of_bits(quiet), v_of_bits(rounded))), 16));
}

static void q8_0_store(const float *x, uint8_t *dst, size_t n)
{
    for (size_t i = 0; i + 32 <= n; i += 32, dst += 34) {
        const vf a = v_load(x + i), b = v_load(x + i + 16);
        float inverse;
        const float d = scale_of(largest_bits(a, b), &inverse);
        const uint16_t half = half_of_f32(d);
        memcpy(dst, &half, 2);
        vi_store_i8((int8_t *)dst + 2, quantised(a, inverse));
        vi_store_i8((int8_t *)dst + 18, quantised(b, inverse));
    }
}

static void vec_kv_store(enum kv_type type, const float *x, uint8_t *dst, size_t n)
{
    if (type == KV_F32) {
        memcpy(dst, x, n * sizeof *x);
        return;
    }
    if (type == KV_Q8_0) {
        q8_0_store(x, dst, n);
        return;
    }
    for (size_t i = 0; i < n; i += LANES) {
        const size_t len = n - i < LANES ? n - i : LANES;
        const vf v = len == LANES ? v_load(x + i) : v_load_n(x + i, len);
        uint16_t half[LANES];
        if (type == KV_F16)
            v_store_f16(half, v);
        else
            bf16_narrow(half, v);
        memcpy(dst + 2 * i, half, 2 * len);
    }
}

static inline vf q8_0_wide(const uint8_t *block, size_t at)
{
    uint16_t half;
    memcpy(&half, block, 2);
    return v_mul(v_of_int(vi_load_i8((const int8_t *)block + 2 + at)), v_set(half_to_f32(half)));
}

/* 16 elements of a row from element i, which is a multiple of 16; all 16 must exist. */
static inline vf kv_load16(enum kv_type type, const uint8_t *src, size_t i)
{
    switch (type) {
    case KV_F32: return v_load((const float *)(const void *)src + i);
    case KV_F16: return v_load_f16((const uint16_t *)(const void *)src + i);
    case KV_BF16: return bf16_wide((const uint16_t *)(const void *)src + i);
    default: return q8_0_wide(src + i / 32 * 34, i % 32);
    }
}

/* n elements; up to LANES - 1 zeros are added when `pad` is true. */
static inline void kv_load_row(enum kv_type type, const uint8_t *src, float *x, size_t n, bool pad)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        v_store(x + i, kv_load16(type, src, i));
    if (i == n)
        return;
    const size_t size = type == KV_F32 ? 4 : 2; /* q8_0 has no rest */
    _Alignas(64) uint8_t rest[LANES * 4] = {0};
    memcpy(rest, src + i * size, (n - i) * size);
    const vf v = kv_load16(type, rest, 0);
    if (pad)
        v_store(x + i, v);
    else
        v_store_n(x + i, v, n - i);
}

static void vec_kv_load(enum kv_type type, const uint8_t *src, float *x, size_t n)
{
    switch (type) {
    case KV_F32: memcpy(x, src, n * sizeof *x); break;
    case KV_F16: kv_load_row(KV_F16, src, x, n, false); break;
    case KV_BF16: kv_load_row(KV_BF16, src, x, n, false); break;
    default: kv_load_row(KV_Q8_0, src, x, n, false); break;
    }
}

/* Limits of the machine. The results are used, so that nothing is optimised away. */

enum { CHAINS = 12 }; /* enough independent multiply-adds to hide their latency */

static uint64_t vec_spin_f32(uint64_t rounds)
{
    vf a[CHAINS];
    const vf x = v_set(0.999f), y = v_set(0.001f);
    for (int i = 0; i < CHAINS; i++)
        a[i] = v_set((float)i);
    for (uint64_t r = 0; r < rounds; r++)
        for (int i = 0; i < CHAINS; i++)
            a[i] = v_fma(a[i], x, y);
    float s = 0;
    for (int i = 0; i < CHAINS; i++)
        s += v_fold_add(a[i]);
    return rounds * CHAINS * LANES * 2 + (s < 0);
}

static uint64_t vec_spin_read(const void *p, size_t size)
{
    const float *x = p;
    vi a = vi_set(0), b = a, c = a, d = a;
    for (size_t i = 0; i < size / sizeof *x; i += 4 * LANES) {
        a = vi_or(a, v_bits(v_load(x + i)));
        b = vi_or(b, v_bits(v_load(x + i + LANES)));
        c = vi_or(c, v_bits(v_load(x + i + 2 * LANES)));
        d = vi_or(d, v_bits(v_load(x + i + 3 * LANES)));
    }
    return size + (vi_fold_max(vi_or(vi_or(a, b), vi_or(c, d))) == 12345);
}

#include "kernel/attention.h"
#include "kernel/conv.h"
#include "kernel/delta.h"
#include "kernel/recurrence.h"

#define VECTOR_KERNELS                                                                             \
    .quantise = vec_quantise, .rms_norm = vec_rms_norm, .layer_norm = vec_layer_norm,              \
    .l2_norm = vec_l2_norm, .softmax = vec_softmax, .dot = vec_dot, .sum = vec_sum,                \
    .max = vec_max, .add = vec_add, .mul = vec_mul, .scale = vec_scale, .axpy = vec_axpy,          \
    .softcap = vec_softcap, .silu = vec_silu, .gelu = vec_gelu, .gelu_erf = vec_gelu_erf,          \
    .relu2 = vec_relu2, .sigmoid = vec_sigmoid, .softplus = vec_softplus, .exp = vec_exp,          \
    .tanh = vec_tanh, .silu_mul = vec_silu_mul, .gelu_mul = vec_gelu_mul, .rope = vec_rope,        \
    .kv_store = vec_kv_store, .kv_load = vec_kv_load, .attention = vec_attention,                  \
    .attn_merge = vec_attn_merge, .delta = vec_delta, .conv = vec_conv, .scan = vec_scan,          \
    .scan_each = vec_scan_each, .wkv = vec_wkv, .lerp = vec_lerp, .spin_f32 = vec_spin_f32,        \
    .spin_read = vec_spin_read

#endif
