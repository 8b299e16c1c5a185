/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The formulas of power_cpu.h for CUDA kernels. */
#ifndef RG_OPS_WINDOW_NORM_POWER_CUH
#define RG_OPS_WINDOW_NORM_POWER_CUH

#include "backend/cuda/kernel.cuh"
#include "ops/window_norm/power.h"

/* rg_power_numbers, cast once. */
template <rg_dtype T> struct power_constants {
    real<T> scale, factor, delta, beta;
    int32_t quarters;
};

template <rg_dtype T> static inline power_constants<T> power_constants_of(const rg_power_numbers *n)
{
    return { (real<T>)n->scale, (real<T>)n->factor, (real<T>)n->delta, (real<T>)n->beta,
             n->quarters };
}

/* ---- roots; for 16-bit results by the unit that has them, off by 2^-22 of the value ---- */

template <rg_dtype T> constexpr bool IS_SHORT = T == RG_F16 || T == RG_BF16;

template <rg_dtype T> static __device__ __forceinline__ real<T> inverse_root(real<T> t)
{
    if constexpr (IS_SHORT<T>) {
        float r;
        asm("rsqrt.approx.f32 %0, %1;" : "=f"(r) : "f"(t));
        return r;
    } else {
        return rsqrt(t);
    }
}

template <rg_dtype T> static __device__ __forceinline__ real<T> root(real<T> t)
{
    if constexpr (IS_SHORT<T>) {
        float r;
        asm("sqrt.approx.f32 %0, %1;" : "=f"(r) : "f"(t));
        return r;
    } else {
        return sqrt(t);
    }
}

/* Of an inverse root, which is never a subnormal number; off by 2^-23 in f32, too. */
template <rg_dtype T> static __device__ __forceinline__ real<T> root_of_root(real<T> t)
{
    if constexpr (T != RG_F64) {
        float r;
        asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(t));
        return r;
    } else {
        return sqrt(t);
    }
}

template <rg_dtype T> static __device__ __forceinline__ real<T> inverse_of(real<T> t)
{
    if constexpr (IS_SHORT<T>) {
        float r;
        asm("rcp.approx.f32 %0, %1;" : "=f"(r) : "f"(t));
        return r;
    } else {
        return 1 / t;
    }
}

/* Of a number that is not subnormal. */
template <rg_dtype T> static __device__ __forceinline__ real<T> inverse_root_normal(real<T> t)
{
    if constexpr (T != RG_F64) {
        float r;
        asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(t));
        return r;
    } else {
        return rsqrt(t);
    }
}

/* ---- powers ---- */

/* t^-beta, and 1 / t; quarters is 4 beta. NORMAL: t is not subnormal. */
template <rg_dtype T, bool NORMAL = false>
static __device__ __forceinline__ real<T> power_of(real<T> t, const power_constants<T> &k,
                                                   int32_t quarters, real<T> &inverse)
{
    if (quarters == 2 || quarters == 3) {
        const real<T> r = NORMAL ? inverse_root_normal<T>(t) : inverse_root<T>(t);
        inverse = r * r;
        return quarters == 2 ? r : r * root_of_root<T>(r);
    }
    inverse = inverse_of<T>(t);
    if (quarters == 4)
        return inverse;
    if (quarters < 0) {
        if constexpr (IS_SHORT<T>)
            return exp_of<T>(-k.beta * __logf(t));
        else
            return pow(t, -k.beta);
    }
    real<T> power = 1, square = t;
    for (int32_t rest = quarters / 4; rest > 0; rest >>= 1, square *= square)
        power = rest & 1 ? power * square : power;
    const real<T> half = root<T>(t);
    if (quarters & 2)
        power *= half;
    if (quarters & 1)
        power *= root<T>(half);
    return 1 / power;
}

template <rg_dtype T, bool NORMAL = false>
static __device__ __forceinline__ real<T> power_forward(const power_constants<T> &k, real<T> x,
                                                        real<T> sum, int32_t quarters)
{
    real<T> inverse;
    return x * power_of<T, NORMAL>(fma(k.scale, sum, k.delta), k, quarters, inverse);
}

template <rg_dtype T, bool NORMAL = false>
static __device__ __forceinline__ real<T> power_middle(const power_constants<T> &k, real<T> dy,
                                                       real<T> x, real<T> sum, real<T> &share,
                                                       int32_t quarters)
{
    real<T> inverse;
    const real<T> direct =
        dy * power_of<T, NORMAL>(fma(k.scale, sum, k.delta), k, quarters, inverse);
    share = direct * (x * inverse);
    return direct;
}

template <rg_dtype T>
static __device__ __forceinline__ real<T> power_gradient(const power_constants<T> &k, real<T> x,
                                                         real<T> direct, real<T> sum)
{
    return fma(-(k.factor * x), sum, direct);
}

#endif
