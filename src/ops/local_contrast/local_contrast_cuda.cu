/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Local contrast normalization on a GPU: what is done with means and variances, see
 * local_contrast_formulas.h. */
#include "ops/window_norm/boxes.cuh"
#include "ops/local_contrast/local_contrast_formulas.h"

template <rg_dtype T> struct contrast {
    enum { KINDS = MOMENT_KINDS };
    typedef contrast_constants<T> CONSTANTS;

    static __device__ __forceinline__ real<T> fill(real<T> x)
    {
        return x;
    }

    static __device__ __forceinline__ real<T> result(const CONSTANTS &k, real<T> x,
                                                     const real<T> sum[3])
    {
        return contrast_value(&k, x, sum, IS_SHORT<T>);
    }

    static __device__ __forceinline__ real<T> middle(const CONSTANTS &k, real<T> dy, real<T> x,
                                                     const real<T> sum[3], real<T> to[3])
    {
        return contrast_slope(&k, dy, x, sum, to, IS_SHORT<T>);
    }

    /* Here sums are always about x. */
    static __device__ __forceinline__ real<T> finish(const CONSTANTS &, real<T>, real<T> direct,
                                                     const real<T> sum[3])
    {
        return direct + sum[1];
    }
};

RG_BOX_CUDA_TABLE(local_contrast, contrast, contrast_constants_of<real<T>>(&a->numbers));
