/*
 * Rotary embedding as data: the metadata keys that scale it, resolved to one table of frequencies.
 *
 * Frequencies are computed in double precision; the executor multiplies by the position in double
 * too, so that no error grows with the position.
 */
#include "base/limits.h"
#include "model/block.h"

#include <math.h>

struct rope_scaling rope_scaling_read(struct loader *l, bool yarn_keys)
{
    struct rope_scaling s = {.kind = SCALING_LINEAR};
    if (key_is(l, "rope.scaling.type", "none", false))
        s.kind = SCALING_NONE;
    else if (key_is(l, "rope.scaling.type", "yarn", false))
        s.kind = SCALING_YARN;
    else if (key_is(l, "rope.scaling.type", "longrope", false))
        s.kind = SCALING_LONGROPE;
    else if (!key_is(l, "rope.scaling.type", "linear", true)) {
        struct gguf_str t = key_text(l, "rope.scaling.type");
        load_fail(
            l, LINNET_UNSUPPORTED,
            "metadata key '%s.rope.scaling.type' is '%.*s'; known: none, linear, yarn, longrope",
            l->arch, (int)(t.n < 64 ? t.n : 64), t.s);
    }
    float old = key_scale_or_0(l, "rope.scale_linear", 1.0f);
    s.factor = key_scale_or_0(l, "rope.scaling.factor", old);
    s.attn_factor = key_scale(l, "rope.scaling.attn_factor", 1.0f);
    uint32_t n_ctx = key_u32(l, "context_length", 1, INT32_MAX);
    s.n_ctx_orig = key_u32_or(l, "rope.scaling.original_context_length", 1, INT32_MAX, n_ctx);
    float fast = key_scale(l, "rope.scaling.yarn_beta_fast", 32.0f);
    float slow = key_scale(l, "rope.scaling.yarn_beta_slow", 1.0f);
    s.beta_fast = yarn_keys ? fast : 32.0f;
    s.beta_slow = yarn_keys ? slow : 1.0f;
    /* ten times it, times the factor's logarithm, is squared twice: 10 is a hundred times what is
     * published */
    s.log_mul = key_f32_or(l, "rope.scaling.yarn_log_multiplier", 0.0f, 10.0f, 0.0f);
    key_ignore(l, "rope.scaling.finetuned");
    key_ignore(l, "rope.scaling.yarn_ext_factor");
    key_ignore(l, "rope.scaling.yarn_attn_factor");
    return s;
}

/* YaRN: how far pair i is slowed down, 0 (turns often, keeps its frequency) to 1 (divided by the
 * factor). */
static double yarn_ramp(const struct rope_scaling *s, uint32_t n_rot, float base, uint32_t i)
{
    const double pi = 3.14159265358979323846;
    double per = n_rot / (2.0 * log((double)base));
    double low = fmax(0.0, floor(per * log(s->n_ctx_orig / (2.0 * pi * (double)s->beta_fast))));
    double high =
        fmin(n_rot - 1.0, ceil(per * log(s->n_ctx_orig / (2.0 * pi * (double)s->beta_slow))));
    double r = ((double)i - low) / fmax(0.001, high - low);
    return fmin(1.0, fmax(0.0, r));
}

static double *frequencies(struct loader *l, uint32_t n_rot, float base,
                           const struct rope_scaling *s, const float *factors)
{
    double *freq = ARENA_ARRAY(l->arena, n_rot / 2, double);
    if (!freq) {
        l->status = err_memory(l->e, "rotary frequencies", n_rot * sizeof *freq);
        return NULL;
    }
    for (uint32_t i = 0; i < n_rot / 2; i++) {
        freq[i] = pow((double)base, -2.0 * i / n_rot);
        if (factors)
            freq[i] /= (double)factors[i];
        if (!s)
            continue;
        if (s->kind == SCALING_LINEAR || s->kind == SCALING_LONGROPE) {
            freq[i] /= (double)s->factor;
        } else if (s->kind == SCALING_YARN) {
            double r = yarn_ramp(s, n_rot, base, i);
            freq[i] *= (1.0 - r) + r / (double)s->factor;
        }
    }
    return freq;
}

const struct rope_table *rope_resolve(struct loader *l, uint32_t n_rot, float base,
                                      const struct rope_scaling *s, const float *factors,
                                      const float *factors_long, float m_all)
{
    if (l->status != LINNET_OK)
        return NULL;
    if (n_rot == 0 || n_rot % 2) {
        load_fail(l, LINNET_FORMAT,
                  "metadata key '%s.rope.dimension_count' (or a head's width, where it is missing) "
                  "is %u; a %s file needs an even number above 0",
                  l->arch, n_rot, l->arch);
        return NULL;
    }
    struct rope_table *t = ARENA_NEW(l->arena, struct rope_table);
    double *freq = frequencies(l, n_rot, base, s, factors);
    double *freq_long = factors_long ? frequencies(l, n_rot, base, s, factors_long) : freq;
    if (!t || !freq || !freq_long)
        return NULL;
    double mag = s ? (double)s->attn_factor : 1.0;
    if (s && s->kind == SCALING_YARN) {
        double ln = log(fmax((double)s->factor, 1.0));
        mag *= (1.0 + 0.1 * ln) / (1.0 + 0.1 * (double)m_all * ln);
    }
    *t = (struct rope_table){.n_rot = n_rot,
                             .mag = (float)mag,
                             .freq = freq,
                             .freq_long = freq_long,
                             .long_above = s && factors_long ? s->n_ctx_orig : UINT32_MAX};
    return t;
}

const struct rope_table *rope_read(struct loader *l, uint32_t d_k)
{
    uint32_t n_rot = key_u32_or(l, "rope.dimension_count", 1, LIMIT_WIDTH, d_k);
    float base = key_rope_base(l, "rope.freq_base", 10000.0f);
    struct rope_scaling scaling = rope_scaling_read(l, false);
    if (n_rot > d_k)
        load_fail(l, LINNET_FORMAT,
                  "metadata key '%s.rope.dimension_count' is %u, more than a head's %u", l->arch,
                  n_rot, d_k);
    return rope_resolve(l, n_rot, base, &scaling, rope_factors(l, "rope_freqs.weight", n_rot / 2),
                        NULL, 0.0f);
}

const float *rope_factors(struct loader *l, const char *name, uint32_t n)
{
    const float *v = vec_opt(l, name, n);
    for (uint32_t i = 0; v && i < n; i++)
        if (!(v[i] > 0.0f) || !isfinite(v[i])) {
            load_fail(l, LINNET_FORMAT,
                      "tensor '%s' holds %g; divisors of a %s file's frequencies are above 0", name,
                      (double)v[i], l->arch);
            return NULL;
        }
    return v;
}

void rope_ignore(struct loader *l)
{
    static const char *const keys[] = {
        "rope.freq_base",        "rope.scale_linear",        "rope.scaling.type",
        "rope.scaling.factor",   "rope.scaling.attn_factor", "rope.scaling.original_context_length",
        "rope.scaling.finetuned"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        key_ignore(l, keys[i]);
    key_u32_or(l, "rope.dimension_count", 0, LIMIT_WIDTH, 0);
}
