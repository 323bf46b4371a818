/*
 * Elementary functions on 16 lanes, written in the vector operations of a vec_*.h that is included
 * before this file. The same operations in the same order for every instruction set, so the same
 * bits.
 *
 * Errors are against the exact value, over all finite arguments whose result is a normal number:
 *
 *     exp     < 1.0 ulp     0 for -inf, inf for inf and above 88.72
 *     tanh    < 2.5 ulp
 *     sigmoid < 2.5 ulp     1 / (1 + exp(-x))
 *     erf     < 1.5e-7 absolute, < 3 ulp near zero
 *     log1p   < 2.5 ulp     for x >= 0
 *
 * A NaN gives a NaN (which one is not said), and no argument traps. Coefficients are interpolations
 * at Chebyshev nodes of the ranges given, rounded to float.
 */
#ifndef LINNET_KERNEL_VECMATH_H
#define LINNET_KERNEL_VECMATH_H

static inline vf v_neg(vf a)
{
    return v_of_bits(vi_add(v_bits(a), vi_set(INT32_MIN)));
}

static inline vf v_abs(vf a)
{
    return v_of_bits(vi_and(v_bits(a), vi_set(INT32_MAX)));
}

/* |a| with the sign of s */
static inline vf v_copysign(vf a, vf s)
{
    return v_of_bits(
        vi_or(vi_and(v_bits(a), vi_set(INT32_MAX)), vi_and(v_bits(s), vi_set(INT32_MIN))));
}

/* 2^n for -126 <= n <= 127 */
static inline vf v_exp2_int(vi n)
{
    return v_of_bits(vi_shl(vi_add(n, vi_set(127)), 23));
}

/*
 * exp(x) = 2^n exp(r), n = round(x / ln 2), |r| <= ln 2 / 2; exp(r) = 1 + r + r^2 P(r). The power
 * is applied in two halves, so that results below the normal range round once and results above
 * become infinite. The argument is clamped where the result is 0 or infinite anyway; the order of
 * operands lets a NaN pass.
 */
static inline vf v_exp(vf x)
{
    x = v_min(v_set(100.0f), x);
    x = v_max(v_set(-150.0f), x);
    const vi n = v_to_int(v_mul(x, v_set(0x1.715476p+0f)));
    const vf nf = v_neg(v_of_int(n));
    vf r = v_fma(nf, v_set(0x1.62e430p-1f), x);
    r = v_fma(nf, v_set(-1.9046543e-9f), r);
    vf p = v_set(0.000198910799f);
    p = v_fma(p, r, v_set(0.00139337312f));
    p = v_fma(p, r, v_set(0.00833331048f));
    p = v_fma(p, r, v_set(0.041666463f));
    p = v_fma(p, r, v_set(0.166666672f));
    p = v_fma(p, r, v_set(0.5f));
    p = v_fma(v_mul(r, r), p, r);
    p = v_add(p, v_set(1.0f));
    const vi half = vi_sar(n, 1);
    return v_mul(v_mul(p, v_exp2_int(half)), v_exp2_int(vi_sub(n, half)));
}

static inline vf v_sigmoid(vf x)
{
    return v_div(v_set(1.0f), v_add(v_set(1.0f), v_exp(v_neg(x))));
}

/* |x| < 0.625: x + x^3 P(x^2). Above: 1 - 2 / (exp(2|x|) + 1), with the sign of x. */
static inline vf v_tanh(vf x)
{
    const vf a = v_abs(x), t = v_mul(x, x);
    vf p = v_set(-0.00609671418f);
    p = v_fma(p, t, v_set(0.0209971797f));
    p = v_fma(p, t, v_set(-0.0538509078f));
    p = v_fma(p, t, v_set(0.133327693f));
    p = v_fma(p, t, v_set(-0.333333284f));
    const vf small = v_fma(v_mul(x, t), p, x);
    const vf e = v_exp(v_add(a, a));
    const vf large = v_sub(v_set(1.0f), v_div(v_set(2.0f), v_add(e, v_set(1.0f))));
    return v_select(v_lt(a, v_set(0.625f)), small, v_copysign(large, x));
}

/* |x| < 0.95: x + x P(x^2). Above, to 4 where the result is 1: 1 - exp(Q(|x|)), with the sign of
 * x. */
static inline vf v_erf(vf x)
{
    const vf t = v_mul(x, x);
    vf p = v_set(8.20416972e-05f);
    p = v_fma(p, t, v_set(-0.00081029156f));
    p = v_fma(p, t, v_set(0.00519748731f));
    p = v_fma(p, t, v_set(-0.0268579591f));
    p = v_fma(p, t, v_set(0.112836696f));
    p = v_fma(p, t, v_set(-0.376126319f));
    p = v_fma(p, t, v_set(0.128379166f));
    const vf small = v_fma(x, p, x);
    const vf a = v_min(v_set(4.0f), v_abs(x));
    vf q = v_set(1.64267897e-06f);
    q = v_fma(q, a, v_set(-4.61647869e-05f));
    q = v_fma(q, a, v_set(0.000597677252f));
    q = v_fma(q, a, v_set(-0.00476350961f));
    q = v_fma(q, a, v_set(0.0264316425f));
    q = v_fma(q, a, v_set(-0.110097244f));
    q = v_fma(q, a, v_set(-0.631809533f));
    q = v_fma(q, a, v_set(-1.13024187f));
    q = v_fma(q, a, v_set(0.000321866246f));
    const vf large = v_sub(v_set(1.0f), v_exp(q));
    return v_select(v_lt(v_abs(x), v_set(0.95f)), small, v_copysign(large, x));
}

/*
 * log(1 + x) for x >= 0. With u = 1 + x rounded: log(u) + (x - (u - 1)) / u. log(u) = e ln 2 +
 * log(1 + f) with 1 + f = u / 2^e in [sqrt(1/2), sqrt(2)); log(1 + f) = f - f^2/2 + f^3 P(f).
 */
static inline vf v_log1p(vf x)
{
    const vf one = v_set(1.0f);
    const vf u = v_add(one, x);
    const vf lost = v_div(v_sub(x, v_sub(u, one)), u);
    const vi root_half = vi_set(0x3f3504f3); /* bits of sqrt(1/2) */
    const vi above = vi_sub(v_bits(u), root_half);
    const vf e = v_of_int(vi_sar(above, 23));
    const vf f = v_sub(v_of_bits(vi_add(vi_and(above, vi_set(0x007fffff)), root_half)), one);
    vf p = v_set(-0.0790274367f);
    p = v_fma(p, f, v_set(0.126223192f));
    p = v_fma(p, f, v_set(-0.129981831f));
    p = v_fma(p, f, v_set(0.142144963f));
    p = v_fma(p, f, v_set(-0.166412815f));
    p = v_fma(p, f, v_set(0.200010449f));
    p = v_fma(p, f, v_set(-0.25000307f));
    p = v_fma(p, f, v_set(0.333333313f));
    const vf ff = v_mul(f, f);
    vf y = v_fma(v_mul(ff, f), p, lost);
    y = v_fma(e, v_set(-1.9046543e-9f), y);
    y = v_fma(v_set(-0.5f), ff, y);
    y = v_add(f, y);
    y = v_fma(e, v_set(0x1.62e430p-1f), y);
    return v_select(v_lt(x, v_set(INFINITY)), y, x); /* infinity and NaN stay */
}

#endif
