/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Formulas on the CPU: what backend/formula.h lists, on vectors. */
#ifndef RG_CPU_FORMULA_CPU_H
#define RG_CPU_FORMULA_CPU_H

#include "backend/cpu/kernel.h"
#include "backend/cpu/math.h"

#define RG_FORMULA_INLINE RG_INLINE
#define RG_FORMULA_CAST   RG_INLINE
#define RG_FORMULA_STRUCT(name) \
    typedef struct name name;   \
    struct name
#define RG_OF(name)      name
#define RG_CAST_OF(name) name##_of

/* max(x, 0); NaN stays. */
RG_INLINE vreal positive(vreal x)
{
    return vmax(vset(0), x);
}

RG_INLINE vreal inverse_of(vreal x, const bool brief)
{
    (void)brief;
    return 1 / x;
}

RG_INLINE vreal quotient(vreal a, vreal b, const bool brief)
{
    (void)brief;
    return a / b;
}

RG_INLINE vreal exp_of(vreal x, const bool brief)
{
    (void)brief;
    return vexp(x);
}

RG_INLINE vreal log_of(vreal x, const bool brief)
{
    (void)brief;
    return vlog(x);
}

RG_INLINE vreal expm1_of(vreal x, const bool brief)
{
    (void)brief;
    return vexpm1(x);
}

RG_INLINE vreal log1p_of(vreal z, const bool brief)
{
    (void)brief;
    return vlog1p(z);
}

/* ---- for x <= 0 ---- */

RG_INLINE vreal exp_below(vreal x, const bool brief)
{
    return brief ? vexp_short(x) : vexp(x);
}

RG_INLINE vreal expm1_below(vreal x, const bool brief)
{
    return brief ? vexpm1_short(x) : vexpm1(x);
}

/* Where expm1_below is not for x. The short one is inexact at 0, too. */
RG_INLINE vint above_expm1(vreal x, const bool brief)
{
    return brief ? ~(x < 0) : x > 0;
}

/* ---- sigmoids and their derivatives ---- */

RG_INLINE vreal sigmoid_of(vreal x, const bool brief)
{
    return brief ? vsigmoid_short(x) : vsigmoid(x);
}

/* s = sigmoid x and s (1 - s), exact also where s is near 1. */
RG_INLINE vreal sigmoid_and_slope(vreal x, vreal *slope, const bool brief)
{
    (void)brief;
    const vreal z = vexp(-vabs(x)), r = 1 / (1 + z);
    *slope = z * r * r;
    return vselect(x < 0, z * r, r);
}

RG_INLINE vreal sigmoid_slope_of(vreal x, const bool brief)
{
    vreal slope;
    if (brief)
        return vsigmoid_slope_short(x, 1, 1);
    (void)sigmoid_and_slope(x, &slope, brief);
    return slope;
}

RG_INLINE vreal tanh_of(vreal x, const bool brief)
{
    return brief ? vtanh_short(x) : vtanh(x);
}

/* 1 - tanh^2 x = z (2 / (1 + z))^2 with z = e^(-2 |x|): exact also where tanh x is near 1. */
RG_INLINE vreal tanh_slope_of(vreal x, const bool brief)
{
    if (brief)
        return vsigmoid_slope_short(x, 2, (real)0.25);
    const vreal z = vexp(-2 * vabs(x)), r = 2 / (1 + z);
    return z * r * r;
}

/* (1 + erf(x / sqrt 2)) / 2 */
RG_INLINE vreal normal_of(vreal x, const bool brief)
{
    return brief ? vnormal_short(x) : vnormal(x);
}

/* The derivative of x normal_of(x). */
RG_INLINE vreal gelu_slope_of(vreal x, const bool brief)
{
    if (brief)
        return vnormal_slope_short(x);
    return vfma(x * vset((real)RG_SQRT_1_2PI), vbell(x), vnormal(x));
}

#endif
