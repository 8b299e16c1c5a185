/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Neurons of any kind but prelu for CUDA kernels that fuse one. */
#ifndef RG_OPS_FUSED_NEURON_ANY_NEURON_CUH
#define RG_OPS_FUSED_NEURON_ANY_NEURON_CUH

#include "ops/neuron/neuron_formulas.h"

/* rg_neuron_numbers, cast by a kernel. */
template <rg_dtype T>
static __device__ __forceinline__ neuron_constants<T>
neuron_constants_in(const rg_neuron_numbers &n)
{
    return neuron_constants_of<real<T>>(&n);
}

template <rg_dtype T>
static __device__ __noinline__ real<T> any_neuron(int32_t kind, const neuron_constants<T> &k,
                                                  real<T> z)
{
    return neuron_value(kind, &k, z, IS_SHORT<T>);
}

template <rg_dtype T>
static __device__ __noinline__ real<T> any_neuron_slope(int32_t kind, const neuron_constants<T> &k,
                                                        real<T> dy, real<T> z)
{
    return neuron_slope(kind, &k, dy, z, IS_SHORT<T>);
}

/* The most common kind, inlined. */
template <rg_dtype T>
static __device__ __forceinline__ real<T> neuron_relu(const neuron_constants<T> &k, real<T> z,
                                                      real<T>)
{
    return neuron_relu_value(&k, z, IS_SHORT<T>);
}

template <rg_dtype T>
static __device__ __forceinline__ real<T> neuron_relu_slope(const neuron_constants<T> &k,
                                                            real<T> dy, real<T> z)
{
    return neuron_relu_slope(&k, dy, z, IS_SHORT<T>);
}

#endif
