/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Neurons of any kind but prelu for CUDA kernels that fuse one. */
#ifndef RG_OPS_NEURON_ANY_NEURON_CUH
#define RG_OPS_NEURON_ANY_NEURON_CUH

#include "ops/neuron/neuron_formulas.cuh"

/* rg_neuron_numbers, cast by a kernel. */
template <rg_dtype T>
static __device__ __forceinline__ neuron_constants<T>
neuron_constants_in(const rg_neuron_numbers &n)
{
    return { (real<T>)n.a,   (real<T>)n.b,    (real<T>)n.c, (real<T>)n.factor,
             (real<T>)n.low, (real<T>)n.high, n.power };
}

#define NEURON_CASE(kind, name) \
    case RG_NEURON_##kind:      \
        return neuron_##name

template <rg_dtype T>
static __device__ __noinline__ real<T> any_neuron(int32_t kind, const neuron_constants<T> &k,
                                                  real<T> z)
{
    switch (kind) {
        NEURON_CASE(RELU, relu<T>(k, z, z));
        NEURON_CASE(LINEAR, linear<T>(k, z, z));
        NEURON_CASE(SIGMOID, sigmoid<T>(k, z, z));
        NEURON_CASE(HARD_SIGMOID, hard_sigmoid<T>(k, z, z));
        NEURON_CASE(TANH, tanh<T>(k, z, z));
        NEURON_CASE(ABSOLUTE, absolute<T>(k, z, z));
        NEURON_CASE(SOFTPLUS, softplus<T>(k, z, z));
        NEURON_CASE(SOFTSIGN, softsign<T>(k, z, z));
        NEURON_CASE(ELU, elu<T>(k, z, z));
        NEURON_CASE(RELUN, relun<T>(k, z, z));
        NEURON_CASE(POWER, power<T>(k, z, z));
        NEURON_CASE(EXPONENTIAL, exponential<T>(k, z, z));
        NEURON_CASE(LOGARITHM, logarithm<T>(k, z, z));
        NEURON_CASE(GELU, gelu<T>(k, z, z));
        NEURON_CASE(GELU_TANH, gelu_tanh<T>(k, z, z));
        NEURON_CASE(SWISH, swish<T>(k, z, z));
    default:
        return z;
    }
}

template <rg_dtype T>
static __device__ __noinline__ real<T> any_neuron_slope(int32_t kind, const neuron_constants<T> &k,
                                                        real<T> dy, real<T> z)
{
    switch (kind) {
        NEURON_CASE(RELU, relu_slope<T>(k, dy, z));
        NEURON_CASE(LINEAR, linear_slope<T>(k, dy, z));
        NEURON_CASE(SIGMOID, sigmoid_slope<T>(k, dy, z));
        NEURON_CASE(HARD_SIGMOID, hard_sigmoid_slope<T>(k, dy, z));
        NEURON_CASE(TANH, tanh_slope<T>(k, dy, z));
        NEURON_CASE(ABSOLUTE, absolute_slope<T>(k, dy, z));
        NEURON_CASE(SOFTPLUS, softplus_slope<T>(k, dy, z));
        NEURON_CASE(SOFTSIGN, softsign_slope<T>(k, dy, z));
        NEURON_CASE(ELU, elu_slope<T>(k, dy, z));
        NEURON_CASE(RELUN, relun_slope<T>(k, dy, z));
        NEURON_CASE(POWER, power_slope<T>(k, dy, z));
        NEURON_CASE(EXPONENTIAL, exponential_slope<T>(k, dy, z));
        NEURON_CASE(LOGARITHM, logarithm_slope<T>(k, dy, z));
        NEURON_CASE(GELU, gelu_slope<T>(k, dy, z));
        NEURON_CASE(GELU_TANH, gelu_tanh_slope<T>(k, dy, z));
        NEURON_CASE(SWISH, swish_slope<T>(k, dy, z));
    default:
        return dy;
    }
}

#undef NEURON_CASE

#endif
