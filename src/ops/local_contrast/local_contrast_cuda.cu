/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Local contrast normalisation on a GPU: what is summed, and what is done with the sums. */
#include "backend/cuda/boxes.cuh"
#include "ops/local_contrast/local_contrast.h"
#include "ops/lrn/lrn_formulas.cuh"

/* rg_contrast_numbers, cast once. */
template <rg_dtype T> struct contrast_constants {
    norm_constants<T> norm;
    real<T> mean, p0, rest, pm, ps, share; /* rest: 1 - p0; share: p0 / N */
};

template <rg_dtype T>
static contrast_constants<T> contrast_constants_of(const rg_contrast_numbers *n)
{
    return { norm_constants_of<T>(&n->norm), (real<T>)n->mean, (real<T>)n->p0,
             (real<T>)(1 - n->p0),           (real<T>)n->pm,   (real<T>)n->ps,
             (real<T>)(n->p0 * n->mean) };
}

template <rg_dtype T> struct contrast {
    enum { KINDS = 2 };
    typedef contrast_constants<T> CONSTANTS;

    static __device__ __forceinline__ void fill(real<T> x, real<T> to[2])
    {
        to[0] = x;
        to[1] = x * x;
    }

    /* T, and M - r, as on the CPU; NaN stays. */
    static __device__ __forceinline__ real<T> divisor(const CONSTANTS &k, const box_spot<T> &spot,
                                                      const real<T> sum[2], real<T> &mean)
    {
        const real<T> m = sum[0] * k.mean, beyond = spot.outside * spot.r;
        const real<T> within = fma(-m, m, sum[1] * k.mean);
        const real<T> variance = fma(beyond, fma(spot.inside, spot.r, m + m), within);
        mean = m - beyond;
        return fma(k.norm.scale, 0 > variance ? 0 : variance, k.norm.delta);
    }

    /* x - p0 M. */
    static __device__ __forceinline__ real<T> rest(const CONSTANTS &k, real<T> x,
                                                   const box_spot<T> &spot, real<T> mean)
    {
        return fma(k.rest, spot.r, fma(-k.p0, mean, x));
    }

    static __device__ __forceinline__ real<T> result(const CONSTANTS &k, real<T> x,
                                                     const box_spot<T> &spot, const real<T> sum[2])
    {
        real<T> mean, inverse;
        const real<T> t = divisor(k, spot, sum, mean);
        const real<T> power = norm_power<T>(t, k.norm, k.norm.quarters, inverse);
        return fma(k.ps, rest(k, x, spot, mean) * power, k.pm);
    }

    static __device__ __forceinline__ real<T> middle(const CONSTANTS &k, real<T> dy, real<T> x,
                                                     const box_spot<T> &spot, const real<T> sum[2],
                                                     real<T> to[2])
    {
        real<T> mean, inverse;
        const real<T> t = divisor(k, spot, sum, mean);
        const real<T> a = k.ps * dy * norm_power<T>(t, k.norm, k.norm.quarters, inverse);
        const real<T> q = k.norm.factor * a * (rest(k, x, spot, mean) * inverse);
        to[0] = fma(q, mean, -(k.share * a));
        to[1] = q;
        return a;
    }

    static __device__ __forceinline__ real<T> finish(const CONSTANTS &, real<T> x, real<T> direct,
                                                     const real<T> sum[2])
    {
        return direct + fma(-x, sum[1], sum[0]);
    }
};

template <rg_dtype T>
static void local_contrast_forward(const void *args, const rg_cuda_place *place)
{
    const rg_local_contrast_args *a = (const rg_local_contrast_args *)args;
    const rg_box_args tensors = { a->x, a->y, a->scratch };
    const box_data d = box_data_of(&tensors, &a->shape);
    launch_box<T, contrast<T>, false>(&a->shape, &d, contrast_constants_of<T>(&a->numbers), place);
}

template <rg_dtype T>
static void local_contrast_gradient(const void *args, const rg_cuda_place *place)
{
    const rg_local_contrast_gradient_args *a = (const rg_local_contrast_gradient_args *)args;
    const rg_box_gradient_args tensors = { a->dy, a->x, a->dx, a->scratch };
    const box_data d = box_data_of(&tensors, &a->shape);
    launch_box<T, contrast<T>, true>(&a->shape, &d, contrast_constants_of<T>(&a->numbers), place);
}

/* ---- table, in the order of the kernels' ids ---- */

RG_CUDA_TABLE(local_contrast, RG_LOCAL_CONTRAST_KERNELS) = {
    RG_CUDA_ROW(local_contrast_forward),  /* RG_LOCAL_CONTRAST_FORWARD */
    RG_CUDA_ROW(local_contrast_gradient), /* RG_LOCAL_CONTRAST_GRADIENT */
};
