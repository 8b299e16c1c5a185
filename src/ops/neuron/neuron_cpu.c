/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Neurons on the CPU. */
#include "backend/cpu/kernel.h"
#include "backend/cpu/math.h"
#include "ops/neuron/neuron.h"

/* What a formula reads: a, b, and a b or b / a, cast once. */
typedef struct constants {
    real a, b, ab;
} constants;

/* ---- forward: y from x ---- */

RG_FORMULA vreal relu(const void *k, vreal x, vreal unused)
{
    (void)unused;
    const real a = ((const constants *)k)->a;
    return a == 0 ? vmax(vset(0), x) : vselect(x > 0, x, x * vset(a)); /* 0, not 0 * infinity */
}

RG_FORMULA vreal sigmoid(const void *k, vreal x, vreal unused)
{
    (void)k;
    (void)unused;
    return vsigmoid(x);
}

RG_FORMULA vreal tanh_scaled(const void *k, vreal x, vreal unused)
{
    (void)unused;
    const constants *c = k;
    return vset(c->a) * vtanh(vset(c->b) * x);
}

RG_INLINE void forward(rg_formula *formula, const rg_neuron_args *k, int64_t begin, int64_t end,
                       const rg_dtype T)
{
    const constants c = { (real)k->a, (real)k->b, 0 };
    const void *const data[] = { k->x, k->y };
    sweep_units(formula, &c, &k->sweep, data, 2, begin, end, T, false, k->stream);
}

RG_INLINE void relu_forward(const rg_neuron_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    forward(relu, k, begin, end, T);
}

RG_INLINE void sigmoid_forward(const rg_neuron_args *k, int64_t begin, int64_t end,
                               const rg_dtype T)
{
    forward(sigmoid, k, begin, end, T);
}

RG_INLINE void tanh_forward(const rg_neuron_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    forward(tanh_scaled, k, begin, end, T);
}

/* ---- gradient: dx from dy and x, or from dy and y ---- */

RG_FORMULA vreal relu_slope(const void *k, vreal dy, vreal from)
{
    const real a = ((const constants *)k)->a;
    return vselect(from > 0, dy, a == 0 ? vset(0) : dy * vset(a));
}

RG_FORMULA vreal sigmoid_slope(const void *k, vreal dy, vreal x)
{
    (void)k;
    const vreal z = vexp(-vabs(x)), s = 1 / (1 + z);
    return dy * (z * s * s); /* y (1 - y), exact also where y is near 1 */
}

RG_FORMULA vreal tanh_slope(const void *k, vreal dy, vreal x)
{
    const constants *c = k;
    const vreal t = vtanh(vset(c->b) * x);
    return dy * (vset(c->ab) * ((1 - t) * (1 + t)));
}

RG_FORMULA vreal sigmoid_slope_y(const void *k, vreal dy, vreal y)
{
    (void)k;
    return dy * (y * (1 - y));
}

RG_FORMULA vreal tanh_slope_y(const void *k, vreal dy, vreal y)
{
    const constants *c = k;
    return dy * (vset(c->ab) * ((vset(c->a) - y) * (vset(c->a) + y)));
}

RG_INLINE void gradient(rg_formula *formula, const rg_neuron_gradient_args *k, double ab,
                        int64_t begin, int64_t end, const rg_dtype T)
{
    const constants c = { (real)k->a, (real)k->b, (real)ab };
    const void *const data[] = { k->dy, k->from, k->dx };
    sweep_units(formula, &c, &k->sweep, data, 3, begin, end, T, k->add, k->stream);
}

RG_INLINE void relu_gradient(const rg_neuron_gradient_args *k, int64_t begin, int64_t end,
                             const rg_dtype T)
{
    gradient(relu_slope, k, 0, begin, end, T);
}

RG_INLINE void sigmoid_gradient(const rg_neuron_gradient_args *k, int64_t begin, int64_t end,
                                const rg_dtype T)
{
    gradient(sigmoid_slope, k, 0, begin, end, T);
}

RG_INLINE void tanh_gradient(const rg_neuron_gradient_args *k, int64_t begin, int64_t end,
                             const rg_dtype T)
{
    gradient(tanh_slope, k, k->a * k->b, begin, end, T);
}

RG_INLINE void sigmoid_gradient_y(const rg_neuron_gradient_args *k, int64_t begin, int64_t end,
                                  const rg_dtype T)
{
    gradient(sigmoid_slope_y, k, 0, begin, end, T);
}

RG_INLINE void tanh_gradient_y(const rg_neuron_gradient_args *k, int64_t begin, int64_t end,
                               const rg_dtype T)
{
    gradient(tanh_slope_y, k, k->b / k->a, begin, end, T);
}

/* ---- entry points and table ---- */

RG_KERNEL(relu_forward, rg_neuron_args)
RG_KERNEL(sigmoid_forward, rg_neuron_args)
RG_KERNEL(tanh_forward, rg_neuron_args)
RG_KERNEL(relu_gradient, rg_neuron_gradient_args)
RG_KERNEL(sigmoid_gradient, rg_neuron_gradient_args)
RG_KERNEL(tanh_gradient, rg_neuron_gradient_args)
RG_KERNEL(sigmoid_gradient_y, rg_neuron_gradient_args)
RG_KERNEL(tanh_gradient_y, rg_neuron_gradient_args)

const rg_cpu_row RG_TABLE(neuron)[RG_NEURON_KERNELS] = {
    [RG_RELU_FORWARD] = RG_ROW(relu_forward),
    [RG_SIGMOID_FORWARD] = RG_ROW(sigmoid_forward),
    [RG_TANH_FORWARD] = RG_ROW(tanh_forward),
    [RG_RELU_GRADIENT] = RG_ROW(relu_gradient),
    [RG_SIGMOID_GRADIENT] = RG_ROW(sigmoid_gradient),
    [RG_TANH_GRADIENT] = RG_ROW(tanh_gradient),
    [RG_SIGMOID_GRADIENT_Y] = RG_ROW(sigmoid_gradient_y),
    [RG_TANH_GRADIENT_Y] = RG_ROW(tanh_gradient_y),
};
