/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Losses of single elements, and their derivatives by y and by t, on a GPU. */
#ifndef RG_OPS_LOSS_FORMULAS_CUH
#define RG_OPS_LOSS_FORMULAS_CUH

#include "backend/cuda/kernel.cuh"
#include "ops/loss/loss.h"

#include <retrograde/loss.h>

template <rg_dtype T> struct loss_numbers {
    real<T> keep, share, epsilon, delta;
};

template <rg_dtype T>
static __device__ __forceinline__ loss_numbers<T> numbers_of(const rg_loss_numbers &n)
{
    return { (real<T>)n.keep, (real<T>)n.share, (real<T>)n.epsilon, (real<T>)n.delta };
}

template <rg_dtype T, int KIND>
static __device__ __forceinline__ real<T> loss_of(const loss_numbers<T> &k, real<T> y, real<T> t)
{
    const real<T> e = y - t, half = (real<T>)0.5;
    if constexpr (KIND == RG_LOSS_MEAN_ABSOLUTE)
        return fabs(e);
    if constexpr (KIND == RG_LOSS_MEAN_SQUARED)
        return e * e;
    if constexpr (KIND == RG_LOSS_SIGMOID_CROSS_ENTROPY)
        return (y > 0 ? y : 0) - y * (t * k.keep + k.share) + log1p(exp(-fabs(y)));
    if constexpr (KIND == RG_LOSS_CATEGORICAL_CROSS_ENTROPY)
        return -t * log(y);
    if constexpr (KIND == RG_LOSS_HINGE) {
        const real<T> margin = 1 - (2 * t - 1) * y;
        return margin < 0 ? 0 : margin;
    }
    if constexpr (KIND == RG_LOSS_HUBER)
        return fabs(e) <= k.delta ? half * e * e : k.delta * (fabs(e) - half * k.delta);
    if constexpr (KIND == RG_LOSS_COSINE_DISTANCE)
        return -y * t;
    if constexpr (KIND == RG_LOSS_LOG)
        return -t * log(y + k.epsilon) - (1 - t) * log((1 - y) + k.epsilon);
    return (t == 0 ? 0 : t * log(t)) - t * y; /* Kullback-Leibler */
}

template <rg_dtype T, int KIND>
static __device__ __forceinline__ real<T> slope_of(const loss_numbers<T> &k, real<T> y, real<T> t)
{
    const real<T> e = y - t;
    if constexpr (KIND == RG_LOSS_MEAN_ABSOLUTE)
        return e > 0 ? 1 : e < 0 ? -1 : e;
    if constexpr (KIND == RG_LOSS_MEAN_SQUARED)
        return 2 * e;
    if constexpr (KIND == RG_LOSS_SIGMOID_CROSS_ENTROPY) {
        const real<T> z = exp(-fabs(y));
        return (y < 0 ? z : 1) / (1 + z) - (t * k.keep + k.share);
    }
    if constexpr (KIND == RG_LOSS_CATEGORICAL_CROSS_ENTROPY)
        return -t / y;
    if constexpr (KIND == RG_LOSS_HINGE)
        return 1 - (2 * t - 1) * y > 0 ? 1 - 2 * t : 0;
    if constexpr (KIND == RG_LOSS_HUBER)
        return e > k.delta ? k.delta : e < -k.delta ? -k.delta : e;
    if constexpr (KIND == RG_LOSS_LOG)
        return (1 - t) / ((1 - y) + k.epsilon) - t / (y + k.epsilon);
    return -t; /* cosine distance, Kullback-Leibler */
}

template <rg_dtype T, int KIND>
static __device__ __forceinline__ real<T> label_slope_of(const loss_numbers<T> &k, real<T> y,
                                                         real<T> t)
{
    if constexpr (KIND == RG_LOSS_SIGMOID_CROSS_ENTROPY)
        return -y * k.keep;
    if constexpr (KIND == RG_LOSS_CATEGORICAL_CROSS_ENTROPY)
        return -log(y);
    if constexpr (KIND == RG_LOSS_HINGE)
        return 1 - (2 * t - 1) * y > 0 ? -2 * y : 0;
    if constexpr (KIND == RG_LOSS_COSINE_DISTANCE)
        return -y;
    if constexpr (KIND == RG_LOSS_LOG)
        return log((1 - y) + k.epsilon) - log(y + k.epsilon);
    if constexpr (KIND == RG_LOSS_KULLBACK_LEIBLER)
        return log(t) + 1 - y;
    return -slope_of<T, KIND>(k, y, t);
}

/* What is computed of a vector of elements. */
enum { RG_LOSS_VALUE, RG_LOSS_SLOPE, RG_LOSS_LABEL_SLOPE };

template <rg_dtype T, int WHAT, int KIND>
static __device__ __forceinline__ void map_kind(const loss_numbers<T> &k, const real<T> y[],
                                                const real<T> t[], real<T> out[])
{
#pragma unroll
    for (int e = 0; e < VLEN<T>; e++)
        out[e] = WHAT == RG_LOSS_VALUE   ? loss_of<T, KIND>(k, y[e], t[e])
                 : WHAT == RG_LOSS_SLOPE ? slope_of<T, KIND>(k, y[e], t[e])
                                         : label_slope_of<T, KIND>(k, y[e], t[e]);
}

/* The kind is the same for all threads. */
template <rg_dtype T, int WHAT>
static __device__ __forceinline__ void map_elements(int kind, const loss_numbers<T> &k,
                                                    const real<T> y[], const real<T> t[],
                                                    real<T> out[])
{
    if (kind == RG_LOSS_MEAN_ABSOLUTE)
        map_kind<T, WHAT, RG_LOSS_MEAN_ABSOLUTE>(k, y, t, out);
    else if (kind == RG_LOSS_MEAN_SQUARED)
        map_kind<T, WHAT, RG_LOSS_MEAN_SQUARED>(k, y, t, out);
    else if (kind == RG_LOSS_SIGMOID_CROSS_ENTROPY)
        map_kind<T, WHAT, RG_LOSS_SIGMOID_CROSS_ENTROPY>(k, y, t, out);
    else if (kind == RG_LOSS_CATEGORICAL_CROSS_ENTROPY)
        map_kind<T, WHAT, RG_LOSS_CATEGORICAL_CROSS_ENTROPY>(k, y, t, out);
    else if (kind == RG_LOSS_HINGE)
        map_kind<T, WHAT, RG_LOSS_HINGE>(k, y, t, out);
    else if (kind == RG_LOSS_HUBER)
        map_kind<T, WHAT, RG_LOSS_HUBER>(k, y, t, out);
    else if (kind == RG_LOSS_COSINE_DISTANCE)
        map_kind<T, WHAT, RG_LOSS_COSINE_DISTANCE>(k, y, t, out);
    else if (kind == RG_LOSS_LOG)
        map_kind<T, WHAT, RG_LOSS_LOG>(k, y, t, out);
    else
        map_kind<T, WHAT, RG_LOSS_KULLBACK_LEIBLER>(k, y, t, out);
}

#endif
