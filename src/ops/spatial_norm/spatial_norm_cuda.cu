/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Spatial normalization on a GPU: what is summed, and what is done with the sums. */
#include "ops/window_norm/boxes.cuh"
#include "ops/window_norm/power_formulas.h"

template <rg_dtype T> struct spatial {
    enum { KINDS = 1 };
    typedef power_constants<T> CONSTANTS;

    static __device__ __forceinline__ real<T> fill(real<T> x)
    {
        return x * x;
    }

    static __device__ __forceinline__ real<T> result(const CONSTANTS &k, real<T> x,
                                                     const real<T> sum[1])
    {
        return power_forward(&k, x, sum[0], k.quarters, IS_SHORT<T>);
    }

    static __device__ __forceinline__ real<T> middle(const CONSTANTS &k, real<T> dy, real<T> x,
                                                     const real<T> sum[1], real<T> to[1])
    {
        return power_middle(&k, dy, x, sum[0], &to[0], k.quarters, IS_SHORT<T>);
    }

    static __device__ __forceinline__ real<T> finish(const CONSTANTS &k, real<T> x, real<T> direct,
                                                     const real<T> sum[1])
    {
        return power_gradient(&k, x, direct, sum[0]);
    }
};

RG_BOX_CUDA_TABLE(spatial_norm, spatial, power_constants_of<real<T>>(&a->numbers.norm));
