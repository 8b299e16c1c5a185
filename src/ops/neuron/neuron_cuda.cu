/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Neurons on a GPU. */
#include "backend/cuda/sweep.cuh"
#include "ops/neuron/neuron.h"

/* What a formula reads: a, b, and a b or b / a, cast once. */
template <rg_dtype T> struct constants {
    real<T> a, b, ab;
};

/* ---- forward: y from x ---- */

template <rg_dtype T> static __device__ real<T> relu(const constants<T> &k, real<T> x, real<T>)
{
    if (k.a == 0)
        return x > 0 || x != x ? x : 0; /* 0, not 0 * infinity */
    return x > 0 ? x : x * k.a;
}

template <rg_dtype T> static __device__ real<T> sigmoid(const constants<T> &, real<T> x, real<T>)
{
    const real<T> z = exp_of<T>(-fabs(x)), s = 1 / (1 + z);
    return x < 0 ? z * s : s;
}

template <rg_dtype T>
static __device__ real<T> tanh_scaled(const constants<T> &k, real<T> x, real<T>)
{
    return k.a * tanh(k.b * x);
}

template <rg_dtype T, formula_of<T, constants<T>> FORMULA>
static void forward(const void *args, const rg_cuda_place *place)
{
    const rg_neuron_args *k = (const rg_neuron_args *)args;
    const constants<T> c = { (real<T>)k->a, (real<T>)k->b, 0 };
    const void *const data[] = { k->x, k->y };
    launch_sweep<T, constants<T>, FORMULA, 2>(c, &k->sweep, data, false, k->stream, place);
}

template <rg_dtype T> static void relu_forward(const void *args, const rg_cuda_place *place)
{
    forward<T, relu<T>>(args, place);
}

template <rg_dtype T> static void sigmoid_forward(const void *args, const rg_cuda_place *place)
{
    forward<T, sigmoid<T>>(args, place);
}

template <rg_dtype T> static void tanh_forward(const void *args, const rg_cuda_place *place)
{
    forward<T, tanh_scaled<T>>(args, place);
}

/* ---- gradient: dx from dy and x, or from dy and y ---- */

template <rg_dtype T>
static __device__ real<T> relu_slope(const constants<T> &k, real<T> dy, real<T> from)
{
    return from > 0 ? dy : k.a == 0 ? 0 : dy * k.a;
}

template <rg_dtype T>
static __device__ real<T> sigmoid_slope(const constants<T> &, real<T> dy, real<T> x)
{
    const real<T> z = exp_of<T>(-fabs(x)), s = 1 / (1 + z);
    return dy * (z * s * s); /* y (1 - y), exact also where y is near 1 */
}

template <rg_dtype T>
static __device__ real<T> tanh_slope(const constants<T> &k, real<T> dy, real<T> x)
{
    const real<T> t = tanh(k.b * x);
    return dy * (k.ab * ((1 - t) * (1 + t)));
}

template <rg_dtype T>
static __device__ real<T> sigmoid_slope_y(const constants<T> &, real<T> dy, real<T> y)
{
    return dy * (y * (1 - y));
}

template <rg_dtype T>
static __device__ real<T> tanh_slope_y(const constants<T> &k, real<T> dy, real<T> y)
{
    return dy * (k.ab * ((k.a - y) * (k.a + y)));
}

template <rg_dtype T, formula_of<T, constants<T>> FORMULA>
static void gradient(const void *args, double ab, const rg_cuda_place *place)
{
    const rg_neuron_gradient_args *k = (const rg_neuron_gradient_args *)args;
    const constants<T> c = { (real<T>)k->a, (real<T>)k->b, (real<T>)ab };
    const void *const data[] = { k->dy, k->from, k->dx };
    launch_sweep<T, constants<T>, FORMULA, 3>(c, &k->sweep, data, k->add, k->stream, place);
}

template <rg_dtype T> static void relu_gradient(const void *args, const rg_cuda_place *place)
{
    gradient<T, relu_slope<T>>(args, 0, place);
}

template <rg_dtype T> static void sigmoid_gradient(const void *args, const rg_cuda_place *place)
{
    gradient<T, sigmoid_slope<T>>(args, 0, place);
}

template <rg_dtype T> static void tanh_gradient(const void *args, const rg_cuda_place *place)
{
    const rg_neuron_gradient_args *k = (const rg_neuron_gradient_args *)args;
    gradient<T, tanh_slope<T>>(args, k->a * k->b, place);
}

template <rg_dtype T> static void sigmoid_gradient_y(const void *args, const rg_cuda_place *place)
{
    gradient<T, sigmoid_slope_y<T>>(args, 0, place);
}

template <rg_dtype T> static void tanh_gradient_y(const void *args, const rg_cuda_place *place)
{
    const rg_neuron_gradient_args *k = (const rg_neuron_gradient_args *)args;
    gradient<T, tanh_slope_y<T>>(args, k->b / k->a, place);
}

/* ---- table, in the order of the kernels' ids ---- */

RG_CUDA_TABLE(neuron, RG_NEURON_KERNELS) = {
    RG_CUDA_ROW(relu_forward),       /* RG_RELU_FORWARD */
    RG_CUDA_ROW(sigmoid_forward),    /* RG_SIGMOID_FORWARD */
    RG_CUDA_ROW(tanh_forward),       /* RG_TANH_FORWARD */
    RG_CUDA_ROW(relu_gradient),      /* RG_RELU_GRADIENT */
    RG_CUDA_ROW(sigmoid_gradient),   /* RG_SIGMOID_GRADIENT */
    RG_CUDA_ROW(tanh_gradient),      /* RG_TANH_GRADIENT */
    RG_CUDA_ROW(sigmoid_gradient_y), /* RG_SIGMOID_GRADIENT_Y */
    RG_CUDA_ROW(tanh_gradient_y),    /* RG_TANH_GRADIENT_Y */
};
