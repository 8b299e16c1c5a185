/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Local contrast normalization: what is done with means and variances. Valid C and valid CUDA.
 *
 * Of the pixels of a window a share f is met in the image and the zeros around it, the rest g are
 * zeros further out. With d, the mean of the former less x, and their variance v
 *
 *      M - x = f d - g x
 *      V     = f (v + g (x + d)^2)
 *
 * With a = ps dy T^-beta and q = 2 alpha beta / N a (x - p0 M) / T the gradient at pixel i is
 *
 *      dx = a + sum over the mirrored window of (q (M - x) - p0 / N a + q (x - x of i)) */
#ifndef RG_OPS_LOCAL_CONTRAST_FORMULAS_H
#define RG_OPS_LOCAL_CONTRAST_FORMULAS_H

#include "ops/window_norm/box.h"
#include "ops/window_norm/power_formulas.h"

/* rg_box_numbers, cast once. */
RG_FORMULA_STRUCT(contrast_constants)
{
    RG_OF(power_constants) norm;
    real inside, outside, p0, rest, pm, ps, share; /* rest: 1 - p0; share: p0 / N */
};

RG_FORMULA_CAST RG_OF(contrast_constants) contrast_constants_of(const rg_box_numbers *n)
{
    RG_OF(contrast_constants) k;
    k.norm = RG_CAST_OF(power_constants)(&n->norm);
    k.inside = (real)n->inside;
    k.outside = (real)n->outside;
    k.p0 = (real)n->p0;
    k.rest = (real)(1 - n->p0);
    k.pm = (real)n->pm;
    k.ps = (real)n->ps;
    k.share = (real)(n->p0 * n->mean);
    return k;
}

/* T, and M - x. */
RG_FORMULA_INLINE vreal contrast_divisor(const RG_OF(contrast_constants) * k, vreal x,
                                         const vreal sum[], vreal *mean)
{
    const vreal inside = vset(k->inside), outside = vset(k->outside), all = x + sum[1];
    const vreal variance = inside * vfma(outside * all, all, sum[2]);
    *mean = vfma(inside, sum[1], -(outside * x));
    return vfma(vset(k->norm.scale), variance, vset(k->norm.delta));
}

/* x - p0 M. */
RG_FORMULA_INLINE vreal contrast_rest(const RG_OF(contrast_constants) * k, vreal x, vreal mean)
{
    return vfma(vset(-k->p0), mean, vset(k->rest) * x);
}

RG_FORMULA_INLINE vreal contrast_value(const RG_OF(contrast_constants) * k, vreal x,
                                       const vreal sum[], const int how)
{
    vreal mean, inverse;
    const vreal t = contrast_divisor(k, x, sum, &mean);
    const vreal power = power_of(t, &k->norm, k->norm.quarters, how, &inverse);
    return vfma(vset(k->ps), contrast_rest(k, x, mean) * power, vset(k->pm));
}

RG_FORMULA_INLINE vreal contrast_slope(const RG_OF(contrast_constants) * k, vreal dy, vreal x,
                                       const vreal sum[], vreal to[], const int how)
{
    vreal mean, inverse;
    const vreal t = contrast_divisor(k, x, sum, &mean);
    const vreal power = power_of(t, &k->norm, k->norm.quarters, how, &inverse);
    const vreal a = vset(k->ps) * dy * power;
    const vreal q = vset(k->norm.factor) * a * (contrast_rest(k, x, mean) * inverse);
    to[1] = vfma(q, mean, -(vset(k->share) * a));
    to[2] = q;
    return a;
}

#endif
