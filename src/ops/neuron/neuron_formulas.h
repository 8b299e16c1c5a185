/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The formulas of neurons for CPU kernels: neuron_<kind>(k, x, unused) is y,
 * neuron_<kind>_slope(k, dy, x) is dx, neuron_<kind>_slope_y(k, dy, y) is dx from y, and those that
 * end in _short are for results of 16 bits. k points to neuron_constants. */
#ifndef RG_OPS_NEURON_FORMULAS_H
#define RG_OPS_NEURON_FORMULAS_H

#include "backend/cpu/kernel.h"
#include "backend/cpu/math.h"
#include "ops/neuron/neuron.h"

/* rg_neuron_numbers, cast once. */
typedef struct neuron_constants {
    real a, b, c, factor, low, high;
    int32_t power;
} neuron_constants;

RG_INLINE neuron_constants neuron_constants_of(const rg_neuron_numbers *n)
{
    return (neuron_constants){ (real)n->a,   (real)n->b,    (real)n->c, (real)n->factor,
                               (real)n->low, (real)n->high, n->power };
}

/* ---- none, relu, relun, absolute: pieces of straight lines ---- */

/* Of none, too, which is relu with a = 1. */
RG_FORMULA vreal neuron_relu(const void *k, vreal x, vreal unused)
{
    (void)unused;
    const real a = ((const neuron_constants *)k)->a;
    return a == 0 ? vmax(vset(0), x) : vselect(x > 0, x, x * vset(a)); /* 0, not 0 * infinity */
}

/* From x or from y: where y tells the slope, its sign is that of x. */
RG_FORMULA vreal neuron_relu_slope(const void *k, vreal dy, vreal from)
{
    const real a = ((const neuron_constants *)k)->a;
    return vselect(from > 0, dy, a == 0 ? vset(0) : dy * vset(a));
}

RG_FORMULA vreal neuron_relun(const void *k, vreal x, vreal unused)
{
    return vmin(vset(((const neuron_constants *)k)->b), neuron_relu(k, x, unused));
}

/* From x or from y, as relu. */
RG_FORMULA vreal neuron_relun_slope(const void *k, vreal dy, vreal from)
{
    const vint clipped = neuron_relu(k, from, from) >= vset(((const neuron_constants *)k)->b);
    return vselect(clipped, vset(0), neuron_relu_slope(k, dy, from));
}

RG_FORMULA vreal neuron_absolute(const void *k, vreal x, vreal unused)
{
    (void)k;
    (void)unused;
    return vabs(x);
}

RG_FORMULA vreal neuron_absolute_slope(const void *k, vreal dy, vreal x)
{
    (void)k;
    return vselect(x > 0, dy, vselect(x < 0, -dy, vset(0)));
}

/* ---- linear, hard_sigmoid ---- */

RG_FORMULA vreal neuron_linear(const void *k, vreal x, vreal unused)
{
    (void)unused;
    const neuron_constants *c = k;
    return vfma(vset(c->a), x, vset(c->b));
}

RG_FORMULA vreal neuron_linear_slope(const void *k, vreal dy, vreal unused)
{
    (void)unused;
    return dy * vset(((const neuron_constants *)k)->a);
}

RG_FORMULA vreal neuron_hard_sigmoid(const void *k, vreal x, vreal unused)
{
    return vmin(vset(1), vmax(vset(0), neuron_linear(k, x, unused))); /* NaN stays */
}

RG_FORMULA vreal neuron_hard_sigmoid_slope(const void *k, vreal dy, vreal x)
{
    const neuron_constants *c = k;
    const vint steep = (x >= vset(c->low)) & (x <= vset(c->high));
    return vselect(steep, dy * vset(c->a), vset(0));
}

/* ---- sigmoid, tanh, softplus, softsign, elu ---- */

RG_FORMULA vreal neuron_sigmoid(const void *k, vreal x, vreal unused)
{
    (void)k;
    (void)unused;
    return vsigmoid(x);
}

RG_FORMULA vreal neuron_sigmoid_slope(const void *k, vreal dy, vreal x)
{
    (void)k;
    const vreal z = vexp(-vabs(x)), s = 1 / (1 + z);
    return dy * (z * s * s); /* y (1 - y), exact also where y is near 1 */
}

RG_FORMULA vreal neuron_sigmoid_short(const void *k, vreal x, vreal unused)
{
    (void)k;
    (void)unused;
    return vsigmoid_short(x);
}

RG_FORMULA vreal neuron_sigmoid_slope_short(const void *k, vreal dy, vreal x)
{
    (void)k;
    return dy * vsigmoid_slope_short(x, 1, 1);
}

RG_FORMULA vreal neuron_sigmoid_slope_y(const void *k, vreal dy, vreal y)
{
    (void)k;
    return dy * (y * (1 - y));
}

RG_FORMULA vreal neuron_tanh(const void *k, vreal x, vreal unused)
{
    (void)unused;
    const neuron_constants *c = k;
    return vset(c->a) * vtanh(vset(c->b) * x);
}

/* 1 - tanh^2 u = z (2 / (1 + z))^2 with z = e^(-2 |u|): exact also where tanh u is near 1. */
RG_FORMULA vreal neuron_tanh_slope(const void *k, vreal dy, vreal x)
{
    const neuron_constants *c = k;
    const vreal z = vexp(-2 * vabs(vset(c->b) * x)), r = 2 / (1 + z);
    return dy * (vset(c->factor) * (z * r * r));
}

RG_FORMULA vreal neuron_tanh_short(const void *k, vreal x, vreal unused)
{
    (void)unused;
    const neuron_constants *c = k;
    return vset(c->a) * vtanh_short(vset(c->b) * x);
}

RG_FORMULA vreal neuron_tanh_slope_short(const void *k, vreal dy, vreal x)
{
    const neuron_constants *c = k;
    return dy * (vset(c->factor) * vsigmoid_slope_short(vset(c->b) * x, 2, (real)0.25));
}

RG_FORMULA vreal neuron_tanh_slope_y(const void *k, vreal dy, vreal y)
{
    const neuron_constants *c = k;
    return dy * (vset(c->factor) * ((vset(c->a) - y) * (vset(c->a) + y)));
}

/* ln(1 + e^z) = max(z, 0) + ln(1 + e^-|z|), which cannot overflow. */
RG_FORMULA vreal neuron_softplus(const void *k, vreal x, vreal unused)
{
    (void)unused;
    const neuron_constants *c = k;
    const vreal z = vset(c->b) * x;
    return vset(c->a) * (vmax(vset(0), z) + vlog1p(vexp(-vabs(z))));
}

RG_FORMULA vreal neuron_softplus_slope(const void *k, vreal dy, vreal x)
{
    const neuron_constants *c = k;
    return dy * (vset(c->factor) * vsigmoid(vset(c->b) * x));
}

/* 1 / (1 + e^-z) = 1 - e^(-y / a) */
RG_FORMULA vreal neuron_softplus_slope_y(const void *k, vreal dy, vreal y)
{
    const neuron_constants *c = k;
    return dy * (vset(-c->factor) * vexpm1(vset(c->c) * y));
}

RG_FORMULA vreal neuron_softsign(const void *k, vreal x, vreal unused)
{
    (void)k;
    (void)unused;
    return x / (1 + vabs(x));
}

RG_FORMULA vreal neuron_softsign_slope(const void *k, vreal dy, vreal x)
{
    (void)k;
    const vreal r = 1 / (1 + vabs(x));
    return dy * (r * r);
}

/* 1 / (1 + |x|) = 1 - |y| */
RG_FORMULA vreal neuron_softsign_slope_y(const void *k, vreal dy, vreal y)
{
    (void)k;
    const vreal r = 1 - vabs(y);
    return dy * (r * r);
}

RG_FORMULA vreal neuron_elu(const void *k, vreal x, vreal unused)
{
    (void)unused;
    return vselect(x > 0, x, vset(((const neuron_constants *)k)->a) * vexpm1(x));
}

RG_FORMULA vreal neuron_elu_slope(const void *k, vreal dy, vreal x)
{
    return vselect(x > 0, dy, dy * (vset(((const neuron_constants *)k)->a) * vexp(x)));
}

RG_FORMULA vreal neuron_elu_short(const void *k, vreal x, vreal unused)
{
    (void)unused;
    return vselect(x < 0, vset(((const neuron_constants *)k)->a) * vexpm1_short(x), x);
}

RG_FORMULA vreal neuron_elu_slope_short(const void *k, vreal dy, vreal x)
{
    return vselect(x > 0, dy, dy * (vset(((const neuron_constants *)k)->a) * vexp_short(x)));
}

/* a e^x = y + a */
RG_FORMULA vreal neuron_elu_slope_y(const void *k, vreal dy, vreal y)
{
    return vselect(y > 0, dy, dy * (y + vset(((const neuron_constants *)k)->a)));
}

/* ---- power, exponential, logarithm ---- */

/* u^n for a small whole n. */
RG_INLINE vreal whole_power(vreal u, int32_t n)
{
    vreal power = vset(1);
    for (uint32_t rest = (uint32_t)(n < 0 ? -n : n); rest > 0; rest >>= 1, u *= u)
        power = rest & 1 ? power * u : power;
    return n < 0 ? 1 / power : power;
}

/* u^c; by exp(c log u) to |c log u| + 2 units of the last place. */
RG_INLINE vreal neuron_power_of(const neuron_constants *k, vreal u)
{
    if (k->power <= RG_POWER_MOST)
        return whole_power(u, k->power);
    if (k->power == RG_POWER_BROKEN)
        return vexp(vset(k->c) * vlog(u));
    const vreal size = vexp(vset(k->c) * vlog(vabs(u)));
    return k->power == RG_POWER_ODD ? vsigned(size, u) : size;
}

RG_FORMULA vreal neuron_power(const void *k, vreal x, vreal unused)
{
    return neuron_power_of(k, neuron_linear(k, x, unused));
}

RG_FORMULA vreal neuron_power_slope(const void *k, vreal dy, vreal x)
{
    const real factor = ((const neuron_constants *)k)->factor;
    if (factor == 0)
        return vset(0); /* not 0 * infinity */
    return dy * (vset(factor) * neuron_power_of(k, neuron_linear(k, x, x)));
}

RG_FORMULA vreal neuron_exponential(const void *k, vreal x, vreal unused)
{
    return vexp(neuron_linear(k, x, unused));
}

RG_FORMULA vreal neuron_exponential_slope(const void *k, vreal dy, vreal x)
{
    return dy * (vset(((const neuron_constants *)k)->factor) * neuron_exponential(k, x, x));
}

RG_FORMULA vreal neuron_exponential_slope_y(const void *k, vreal dy, vreal y)
{
    return dy * (vset(((const neuron_constants *)k)->factor) * y);
}

RG_FORMULA vreal neuron_logarithm(const void *k, vreal x, vreal unused)
{
    return vset(((const neuron_constants *)k)->c) * vlog(neuron_linear(k, x, unused));
}

RG_FORMULA vreal neuron_logarithm_slope(const void *k, vreal dy, vreal x)
{
    return dy * (vset(((const neuron_constants *)k)->factor) / neuron_linear(k, x, x));
}

/* ---- gelu, gelu_tanh, swish: x times a sigmoid of some kind ---- */

#define RG_GELU_LINEAR 1.59576912160573071175 /* 2 sqrt(2 / pi) */
#define RG_GELU_CUBIC  0.07135481627260024877 /* 0.044715 of that */
#define RG_GELU_FAR    30                     /* e^-u(x) is 0, or infinity */

RG_FORMULA vreal neuron_gelu(const void *k, vreal x, vreal unused)
{
    (void)k;
    (void)unused;
    return x * vnormal(x);
}

RG_FORMULA vreal neuron_gelu_slope(const void *k, vreal dy, vreal x)
{
    (void)k;
    return dy * vfma(x * vset((real)RG_SQRT_1_2PI), vbell(x), vnormal(x));
}

RG_FORMULA vreal neuron_gelu_short(const void *k, vreal x, vreal unused)
{
    (void)k;
    (void)unused;
    return x * vnormal_short(x);
}

RG_FORMULA vreal neuron_gelu_slope_short(const void *k, vreal dy, vreal x)
{
    (void)k;
    return dy * vnormal_slope_short(x);
}

RG_FORMULA vreal neuron_gelu_tanh(const void *k, vreal x, vreal unused)
{
    (void)k;
    (void)unused;
    const vreal cubic = vset((real)RG_GELU_CUBIC), linear = vset((real)RG_GELU_LINEAR);
    return x * vsigmoid(x * vfma(cubic, x * x, linear));
}

/* s + x s (1 - s) u'(x); far out, where u' may overflow, s (1 - s) is 0. */
RG_FORMULA vreal neuron_gelu_tanh_slope(const void *k, vreal dy, vreal x)
{
    (void)k;
    const vreal cubic = vset((real)RG_GELU_CUBIC), linear = vset((real)RG_GELU_LINEAR);
    const vreal t = vmax(vset(-RG_GELU_FAR), vmin(vset(RG_GELU_FAR), x)), tt = t * t;
    const vreal u = t * vfma(cubic, tt, linear), du = vfma(3 * cubic, tt, linear);
    const vreal z = vexp(-vabs(u)), r = 1 / (1 + z);
    const vreal s = vselect(u < 0, z * r, r);
    return dy * vfma(x, z * r * r * du, s);
}

RG_FORMULA vreal neuron_swish(const void *k, vreal x, vreal unused)
{
    (void)unused;
    return x * vsigmoid(vset(((const neuron_constants *)k)->a) * x);
}

RG_FORMULA vreal neuron_swish_slope(const void *k, vreal dy, vreal x)
{
    const vreal u = vset(((const neuron_constants *)k)->a) * x;
    const vreal z = vexp(-vabs(u)), r = 1 / (1 + z);
    const vreal s = vselect(u < 0, z * r, r);
    return dy * vfma(u, z * r * r, s);
}

/* ---- prelu ---- */

RG_INLINE vreal neuron_prelu(vreal x, vreal slope)
{
    return vselect(x > 0, x, x * slope);
}

RG_INLINE vreal neuron_prelu_slope(vreal dy, vreal x, vreal slope)
{
    return vselect(x > 0, dy, dy * slope);
}

/* What an element adds to the gradient of its slope. */
RG_INLINE vreal neuron_prelu_share(vreal dy, vreal x)
{
    return vselect(x > 0, vset(0), dy * x);
}

#endif
