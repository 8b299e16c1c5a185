/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Formulas on a GPU: what backend/formula.h lists, on single numbers; `brief` functions are off by
 * 2^-15 of the value or by 2^-21. */
#ifndef RG_CUDA_FORMULA_CUH
#define RG_CUDA_FORMULA_CUH

#include "backend/cuda/kernel.cuh"

template <rg_dtype T> constexpr bool IS_SHORT = T == RG_F16 || T == RG_BF16;

#define RG_FORMULA        template <class vreal, class real = vreal> static __device__ __forceinline__
#define RG_FORMULA_INLINE RG_FORMULA
#define RG_FORMULA_CAST   template <class real, class vreal = real> static __host__ __device__ inline

/* A kernel names the struct by its dtype, name<T>, a formula by its real, RG_OF(name). */
#define RG_FORMULA_STRUCT(name)                                    \
    template <class real, class vreal = real> struct name##_reals; \
    template <rg_dtype T> using name = name##_reals<::real<T>>;    \
    template <class real, class vreal> struct name##_reals
#define RG_OF(name)      name##_reals<real>
#define RG_CAST_OF(name) name##_of<real>

/* ---- what vectors have ---- */

/* Evaluates one of the two. */
#define vselect(mask, yes, no) ((mask) ? (yes) : (no))

template <class A> static __device__ __forceinline__ A vset(A a)
{
    return a;
}

template <class A> static __device__ __forceinline__ A vabs(A a)
{
    return fabs(a);
}

/* NaN of b stays. */
template <class A, class B> static __device__ __forceinline__ auto vmax(A a, B b)
{
    return a > b ? a : b;
}

template <class A, class B> static __device__ __forceinline__ auto vmin(A a, B b)
{
    return a < b ? a : b;
}

template <class A> static __device__ __forceinline__ A vfma(A a, A b, A c)
{
    return fma(a, b, c);
}

template <class A> static __device__ __forceinline__ A vsqrt(A a)
{
    return sqrt(a);
}

template <class A> static __device__ __forceinline__ A vsigned(A size, A x)
{
    return copysign(size, x);
}

/* ---- functions ---- */

RG_FORMULA vreal positive(vreal x)
{
    return x > 0 || x != x ? x : 0;
}

RG_FORMULA vreal inverse_of(vreal x, const bool brief)
{
    if (!brief)
        return 1 / x;
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"((float)x));
    return r;
}

RG_FORMULA vreal quotient(vreal a, vreal b, const bool brief)
{
    return brief ? a * inverse_of(b, brief) : a / b;
}

RG_FORMULA vreal exp_of(vreal x, const bool brief)
{
    if constexpr (sizeof(vreal) == 8)
        return exp_of<RG_F64>(x);
    else
        return brief ? exp_of<RG_F16>(x) : exp_of<RG_F32>(x);
}

RG_FORMULA vreal exp_below(vreal x, const bool brief)
{
    return exp_of(x, brief);
}

RG_FORMULA vreal log_of(vreal x, const bool brief)
{
    return brief ? (vreal)__logf((float)x) : log(x);
}

/* e^x - 1; near 0 by its series, where the difference would lose all digits. */
RG_FORMULA vreal expm1_of(vreal x, const bool brief)
{
    if (!brief)
        return expm1(x);
    return fabs(x) < 0.0625f ? x * fma(x, fma(x, (real)(1 / 6.f), (real)0.5f), (real)1)
                             : exp_of(x, brief) - 1;
}

/* The same for x <= 0: 2^n (e^r - 1) + (2^n - 1) for x = n log 2 + r. */
RG_FORMULA vreal expm1_below(vreal x, const bool brief)
{
    if constexpr (sizeof(vreal) == 4) {
        if (!brief) {
            const float near = x < -87 ? -87 : x; /* NaN stays */
            const float n = rintf(near * 1.44269504f);
            float r = fma(n, -0.693147182f, near), p = 1 / 5040.f;
            r = fma(n, 1.90465421e-9f, r);
            p = fma(p, r, 1 / 720.f);
            p = fma(p, r, 1 / 120.f);
            p = fma(p, r, 1 / 24.f);
            p = fma(p, r, 1 / 6.f);
            p = fma(p, r, 0.5f);
            p = fma(p * r, r, r);
            const float scale = __int_as_float(((int)n + 127) << 23);
            return fma(p, scale, scale - 1);
        }
    }
    return expm1_of(x, brief);
}

RG_FORMULA bool above_expm1(vreal x, const bool)
{
    return x > 0;
}

/* log(1 + z) for 0 <= z <= 1 */
RG_FORMULA vreal log1p_of(vreal z, const bool brief)
{
    if (!brief)
        return log1p(z);
    return z < 0.03125f ? z * fma(z, fma(z, (real)(1 / 3.f), (real)-0.5f), (real)1)
                        : (vreal)__logf((float)(1 + z));
}

/* ---- sigmoids and their derivatives ---- */

/* s = 1 / (1 + e^-x) by e^-|x|, and s (1 - s) */
RG_FORMULA vreal sigmoid_and_slope(vreal x, vreal *slope, const bool brief)
{
    const vreal z = exp_of(-fabs(x), brief), r = inverse_of(1 + z, brief);
    *slope = z * r * r;
    return x < 0 ? z * r : r;
}

RG_FORMULA vreal sigmoid_of(vreal x, const bool brief)
{
    vreal slope;
    return sigmoid_and_slope(x, &slope, brief);
}

RG_FORMULA vreal sigmoid_slope_of(vreal x, const bool brief)
{
    vreal slope;
    (void)sigmoid_and_slope(x, &slope, brief);
    return slope;
}

RG_FORMULA vreal tanh_of(vreal x, const bool brief)
{
    if (!brief)
        return tanh(x);
    const vreal size = fabs(x), z = exp_of(-2 * size, brief);
    const vreal near = x * fma(x * x, (real)(-1 / 3.f), (real)1);
    return size < 0.0625f ? near : copysign((1 - z) * inverse_of(1 + z, brief), x);
}

/* 1 - tanh(x)^2 */
RG_FORMULA vreal tanh_slope_of(vreal x, const bool brief)
{
    if (brief) {
        const vreal z = exp_of(-2 * fabs(x), brief), r = inverse_of(1 + z, brief);
        return 4 * z * r * r;
    }
    const vreal t = tanh(x);
    return (1 - t) * (1 + t);
}

/* (1 + erf(x / sqrt 2)) / 2, and its derivative. The short form is 7.1.26 of Abramowitz and
 * Stegun. */
RG_FORMULA vreal normal_and_bell(vreal x, vreal *bell, const bool brief)
{
    const vreal half = (real)0.5, z = exp_of(-half * x * x, brief);
    *bell = (real)0.39894228040143267794 * z; /* 1 / sqrt(2 pi) */
    if (!brief)
        return fma(half, (vreal)erf(x * (real)0.70710678118654752440), half);
    const float t = inverse_of(fma(0.231641888f, (float)fabs(x), 1.f), brief);
    float p = fma(t, 1.061405429f, -1.453152027f);
    p = fma(t, fma(t, fma(t, p, 1.421413741f), -0.284496736f), 0.254829592f);
    const float beyond = 0.5f * (float)z * t * p;
    return x < 0 ? beyond : 1 - beyond;
}

RG_FORMULA vreal normal_of(vreal x, const bool brief)
{
    vreal bell;
    return normal_and_bell(x, &bell, brief);
}

/* The derivative of x normal_of(x). */
RG_FORMULA vreal gelu_slope_of(vreal x, const bool brief)
{
    vreal bell;
    const vreal normal = normal_and_bell(x, &bell, brief);
    return fma(x, bell, normal);
}

#endif
