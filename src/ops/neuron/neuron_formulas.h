/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The formulas of neurons. NEURON_VALUE(kind) is y from x, NEURON_SLOPE(kind) is dx from dy and x,
 * NEURON_SLOPE_Y(kind) is dx from dy and y. Valid C and valid CUDA. */
#ifndef RG_OPS_NEURON_FORMULAS_H
#define RG_OPS_NEURON_FORMULAS_H

#include "backend/formula.h"
#include "ops/neuron/neuron.h"

/* rg_neuron_numbers, cast once. */
RG_FORMULA_STRUCT(neuron_constants)
{
    real a, b, c, factor, low, high;
    int32_t power;
};

RG_FORMULA_CAST RG_OF(neuron_constants) neuron_constants_of(const rg_neuron_numbers *n)
{
    const RG_OF(neuron_constants) k = { (real)n->a,   (real)n->b,    (real)n->c, (real)n->factor,
                                        (real)n->low, (real)n->high, n->power };
    return k;
}

/* No formula needs all parameters. */
#define NEURON_UNUSED __attribute__((unused))
#define NEURON_VALUE(kind)                                                                         \
    RG_FORMULA_INLINE vreal neuron_##kind##_value(NEURON_UNUSED const RG_OF(neuron_constants) * k, \
                                                  vreal x, NEURON_UNUSED const bool brief)
#define NEURON_DERIVATIVE(name)                                                            \
    RG_FORMULA_INLINE vreal neuron_##name(NEURON_UNUSED const RG_OF(neuron_constants) * k, \
                                          vreal dy, NEURON_UNUSED vreal from,              \
                                          NEURON_UNUSED const bool brief)
#define NEURON_SLOPE(kind)   NEURON_DERIVATIVE(kind##_slope)
#define NEURON_SLOPE_Y(kind) NEURON_DERIVATIVE(kind##_slope_y)

/* ---- none, relu, relun, absolute: pieces of straight lines ---- */

/* Of none, too, which is relu with a = 1. */
NEURON_VALUE(relu)
{
    if (k->a == 0)
        return positive(x); /* 0, not 0 * infinity */
    return vselect(x > 0, x, x * vset(k->a));
}

/* From x or from y: where the slope follows from y, the sign of y is that of x. */
NEURON_SLOPE(relu)
{
    return vselect(from > 0, dy, k->a == 0 ? vset(0) : dy * vset(k->a));
}

NEURON_VALUE(relun)
{
    return vmin(vset(k->b), neuron_relu_value(k, x, brief)); /* NaN stays */
}

/* From x or from y, as relu. */
NEURON_SLOPE(relun)
{
    return vselect(neuron_relu_value(k, from, brief) >= vset(k->b), vset(0),
                   neuron_relu_slope(k, dy, from, brief));
}

NEURON_VALUE(absolute)
{
    return vabs(x);
}

NEURON_SLOPE(absolute)
{
    return vselect(from > 0, dy, vselect(from < 0, -dy, vset(0)));
}

/* ---- linear, hard_sigmoid ---- */

NEURON_VALUE(linear)
{
    return vfma(vset(k->a), x, vset(k->b));
}

NEURON_SLOPE(linear)
{
    return dy * vset(k->a);
}

NEURON_VALUE(hard_sigmoid)
{
    return vmin(vset(1), vmax(vset(0), neuron_linear_value(k, x, brief))); /* NaN stays */
}

NEURON_SLOPE(hard_sigmoid)
{
    return vselect((from >= vset(k->low)) & (from <= vset(k->high)), dy * vset(k->a), vset(0));
}

/* ---- sigmoid, tanh, softplus, softsign, elu ---- */

NEURON_VALUE(sigmoid)
{
    return sigmoid_of(x, brief);
}

NEURON_SLOPE(sigmoid)
{
    return dy * sigmoid_slope_of(from, brief);
}

NEURON_SLOPE_Y(sigmoid)
{
    return dy * (from * (1 - from));
}

NEURON_VALUE(tanh)
{
    return vset(k->a) * tanh_of(vset(k->b) * x, brief);
}

NEURON_SLOPE(tanh)
{
    return dy * (vset(k->factor) * tanh_slope_of(vset(k->b) * from, brief));
}

NEURON_SLOPE_Y(tanh)
{
    return dy * (vset(k->factor) * ((vset(k->a) - from) * (vset(k->a) + from)));
}

/* ln(1 + e^z) = max(z, 0) + ln(1 + e^-|z|), which cannot overflow. */
NEURON_VALUE(softplus)
{
    const vreal z = vset(k->b) * x;
    return vset(k->a) * (positive(z) + log1p_of(exp_of(-vabs(z), brief), brief));
}

NEURON_SLOPE(softplus)
{
    return dy * (vset(k->factor) * sigmoid_of(vset(k->b) * from, brief));
}

/* 1 / (1 + e^-z) = 1 - e^(-y / a) */
NEURON_SLOPE_Y(softplus)
{
    return dy * (vset(-k->factor) * expm1_of(vset(k->c) * from, brief));
}

NEURON_VALUE(softsign)
{
    return quotient(x, 1 + vabs(x), brief);
}

NEURON_SLOPE(softsign)
{
    const vreal r = inverse_of(1 + vabs(from), brief);
    return dy * (r * r);
}

/* 1 / (1 + |x|) = 1 - |y| */
NEURON_SLOPE_Y(softsign)
{
    const vreal r = 1 - vabs(from);
    return dy * (r * r);
}

NEURON_VALUE(elu)
{
    return vselect(above_expm1(x, brief), x, vset(k->a) * expm1_below(x, brief));
}

NEURON_SLOPE(elu)
{
    return vselect(from > 0, dy, dy * (vset(k->a) * exp_below(from, brief)));
}

/* a e^x = y + a */
NEURON_SLOPE_Y(elu)
{
    return vselect(from > 0, dy, dy * (from + vset(k->a)));
}

/* ---- power, exponential, logarithm ---- */

/* u^n for a small whole n. */
RG_FORMULA_INLINE vreal whole_power(vreal u, int32_t n)
{
    vreal power = vset(1);
    for (uint32_t rest = (uint32_t)(n < 0 ? -n : n); rest > 0; rest >>= 1, u *= u)
        power = rest & 1 ? power * u : power;
    return n < 0 ? 1 / power : power;
}

/* u^c; by exp(c log u) to |c log u| + 2 units of the last place. */
RG_FORMULA_INLINE vreal neuron_power_of(const RG_OF(neuron_constants) * k, vreal u,
                                        const bool brief)
{
    if (k->power <= RG_POWER_MOST)
        return whole_power(u, k->power);
    if (k->power == RG_POWER_BROKEN)
        return exp_of(vset(k->c) * log_of(u, brief), brief);
    const vreal size = exp_of(vset(k->c) * log_of(vabs(u), brief), brief);
    return k->power == RG_POWER_ODD ? vsigned(size, u) : size;
}

NEURON_VALUE(power)
{
    return neuron_power_of(k, neuron_linear_value(k, x, brief), brief);
}

NEURON_SLOPE(power)
{
    if (k->factor == 0)
        return vset(0); /* not 0 * infinity */
    return dy * (vset(k->factor) * neuron_power_of(k, neuron_linear_value(k, from, brief), brief));
}

NEURON_VALUE(exponential)
{
    return exp_of(neuron_linear_value(k, x, brief), brief);
}

NEURON_SLOPE(exponential)
{
    return dy * (vset(k->factor) * neuron_exponential_value(k, from, brief));
}

NEURON_SLOPE_Y(exponential)
{
    return dy * (vset(k->factor) * from);
}

NEURON_VALUE(logarithm)
{
    return vset(k->c) * log_of(neuron_linear_value(k, x, brief), brief);
}

NEURON_SLOPE(logarithm)
{
    return dy * (vset(k->factor) / neuron_linear_value(k, from, brief));
}

/* ---- gelu, gelu_tanh, swish: x times a sigmoid of some kind ---- */

#define RG_GELU_LINEAR 1.59576912160573071175 /* 2 sqrt(2 / pi) */
#define RG_GELU_CUBIC  0.07135481627260024877 /* 0.044715 of that */
#define RG_GELU_LIMIT  30                     /* e^-u(x) is 0, or infinity */

NEURON_VALUE(gelu)
{
    return x * normal_of(x, brief);
}

NEURON_SLOPE(gelu)
{
    return dy * gelu_slope_of(from, brief);
}

NEURON_VALUE(gelu_tanh)
{
    const vreal cubic = vset((real)RG_GELU_CUBIC), linear = vset((real)RG_GELU_LINEAR);
    return x * sigmoid_of(x * vfma(cubic, x * x, linear), brief);
}

/* s + x s (1 - s) u'(x); far out, where u' may overflow, s (1 - s) is 0. */
NEURON_SLOPE(gelu_tanh)
{
    const vreal cubic = vset((real)RG_GELU_CUBIC), linear = vset((real)RG_GELU_LINEAR);
    const vreal t = vmax(vset(-RG_GELU_LIMIT), vmin(vset(RG_GELU_LIMIT), from)), tt = t * t;
    const vreal u = t * vfma(cubic, tt, linear), du = vfma(3 * cubic, tt, linear);
    vreal slope;
    const vreal s = sigmoid_and_slope(u, &slope, brief);
    return dy * vfma(from, slope * du, s);
}

NEURON_VALUE(swish)
{
    return x * sigmoid_of(vset(k->a) * x, brief);
}

NEURON_SLOPE(swish)
{
    vreal slope;
    const vreal u = vset(k->a) * from, s = sigmoid_and_slope(u, &slope, brief);
    return dy * vfma(u, slope, s);
}

/* ---- prelu ---- */

RG_FORMULA_INLINE vreal where_positive(vreal x, vreal yes, vreal no)
{
#if defined(__AVX512F__) && !RG_REAL_F64 /* gcc makes vectors of masks and masks of them again */
    const __mmask16 is = _mm512_cmp_ps_mask((__m512)x, _mm512_setzero_ps(), _CMP_GT_OQ);
    return (vreal)_mm512_mask_blend_ps(is, (__m512)no, (__m512)yes);
#else
    return vselect(x > 0, yes, no);
#endif
}

RG_FORMULA_INLINE vreal neuron_prelu(vreal x, vreal slope)
{
    return where_positive(x, x, x * slope);
}

RG_FORMULA_INLINE vreal neuron_prelu_slope(vreal dy, vreal x, vreal slope)
{
    return where_positive(x, dy, dy * slope);
}

/* What an element adds to the gradient of its slope. */
RG_FORMULA_INLINE vreal neuron_prelu_share(vreal dy, vreal x)
{
    const vreal zero = vset(0);
    return where_positive(x, zero, dy * x);
}

/* ---- any kind but prelu, whose slopes differ from channel to channel ---- */

/* The compiler names a kind that has no case. A kernel is not created with another one. */
RG_FORMULA_INLINE vreal neuron_value(int32_t kind, const RG_OF(neuron_constants) * k, vreal x,
                                     const bool brief)
{
    switch ((rg_neuron_kind)kind) {
#define NEURON_CASE(KIND, name, how) \
    case RG_NEURON_##KIND:           \
        return neuron_##name##_value(k, x, brief);
        RG_NEURON_FORMULAS(NEURON_CASE)
#undef NEURON_CASE
    case RG_NEURON_NONE:
        return x;
    case RG_NEURON_PRELU:
        break;
    }
    return x * vset((real)__builtin_nan(""));
}

RG_FORMULA_INLINE vreal neuron_slope(int32_t kind, const RG_OF(neuron_constants) * k, vreal dy,
                                     vreal from, const bool brief)
{
    switch ((rg_neuron_kind)kind) {
#define NEURON_CASE(KIND, name, how) \
    case RG_NEURON_##KIND:           \
        return neuron_##name##_slope(k, dy, from, brief);
        RG_NEURON_FORMULAS(NEURON_CASE)
#undef NEURON_CASE
    case RG_NEURON_NONE:
        return dy;
    case RG_NEURON_PRELU:
        break;
    }
    return dy * vset((real)__builtin_nan(""));
}

/* From y, of a kind of RG_NEURON_Y_FORMULAS. */
RG_FORMULA_INLINE vreal neuron_slope_y(int32_t kind, const RG_OF(neuron_constants) * k, vreal dy,
                                       vreal y, const bool brief)
{
#define NEURON_CASE(KIND, name, how) \
    if (kind == RG_NEURON_##KIND)    \
        return neuron_##name##_slope_y(k, dy, y, brief);
    RG_NEURON_Y_FORMULAS(NEURON_CASE)
#undef NEURON_CASE
    return dy * vset((real)__builtin_nan(""));
}

#endif
