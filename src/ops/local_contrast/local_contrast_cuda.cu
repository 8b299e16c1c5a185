/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Local contrast normalisation on a GPU: what is done with means and variances, see
 * local_contrast_cpu.c. */
#include "ops/window_norm/boxes.cuh"
#include "ops/local_contrast/local_contrast.h"
#include "ops/window_norm/power.cuh"

/* rg_contrast_numbers, cast once. */
template <rg_dtype T> struct contrast_constants {
    power_constants<T> norm;
    real<T> inside, outside, p0, rest, pm, ps, share; /* rest: 1 - p0; share: p0 / N */
};

template <rg_dtype T>
static contrast_constants<T> contrast_constants_of(const rg_contrast_numbers *n)
{
    return { power_constants_of<T>(&n->norm),
             (real<T>)n->inside,
             (real<T>)n->outside,
             (real<T>)n->p0,
             (real<T>)(1 - n->p0),
             (real<T>)n->pm,
             (real<T>)n->ps,
             (real<T>)(n->p0 * n->mean) };
}

template <rg_dtype T> struct contrast {
    enum { KINDS = MOMENT_KINDS };
    typedef contrast_constants<T> CONSTANTS;

    static __device__ __forceinline__ real<T> fill(real<T> x)
    {
        return x;
    }

    /* T, and M - x. */
    static __device__ __forceinline__ real<T> divisor(const CONSTANTS &k, real<T> x,
                                                      const real<T> sum[3], real<T> &mean)
    {
        const real<T> all = x + sum[1];
        const real<T> variance = k.inside * fma(k.outside * all, all, sum[2]);
        mean = fma(k.inside, sum[1], -(k.outside * x));
        return fma(k.norm.scale, variance, k.norm.delta);
    }

    /* x - p0 M. */
    static __device__ __forceinline__ real<T> rest(const CONSTANTS &k, real<T> x, real<T> mean)
    {
        return fma(-k.p0, mean, k.rest * x);
    }

    static __device__ __forceinline__ real<T> result(const CONSTANTS &k, real<T> x,
                                                     const real<T> sum[3])
    {
        real<T> mean, inverse;
        const real<T> t = divisor(k, x, sum, mean);
        const real<T> power = power_of<T>(t, k.norm, k.norm.quarters, inverse);
        return fma(k.ps, rest(k, x, mean) * power, k.pm);
    }

    static __device__ __forceinline__ real<T> middle(const CONSTANTS &k, real<T> dy, real<T> x,
                                                     const real<T> sum[3], real<T> to[3])
    {
        real<T> mean, inverse;
        const real<T> t = divisor(k, x, sum, mean);
        const real<T> a = k.ps * dy * power_of<T>(t, k.norm, k.norm.quarters, inverse);
        const real<T> q = k.norm.factor * a * (rest(k, x, mean) * inverse);
        to[1] = fma(q, mean, -(k.share * a));
        to[2] = q;
        return a;
    }

    /* Here sums are always about x. */
    static __device__ __forceinline__ real<T> finish(const CONSTANTS &, real<T>, real<T> direct,
                                                     const real<T> sum[3])
    {
        return direct + sum[1];
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

/* ---- table ---- */

static const rg_cuda_row kernel_rows[] = {
    RG_CUDA_ROW(RG_LOCAL_CONTRAST_FORWARD, local_contrast_forward),
    RG_CUDA_ROW(RG_LOCAL_CONTRAST_GRADIENT, local_contrast_gradient),
};
RG_CUDA_TABLE(local_contrast, kernel_rows);
