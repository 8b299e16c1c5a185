/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The formulas of neurons for CUDA kernels, in the order and by the names of neuron_formulas.h,
 * which explains them. */
#ifndef RG_OPS_NEURON_FORMULAS_CUH
#define RG_OPS_NEURON_FORMULAS_CUH

#include "backend/cuda/kernel.cuh"
#include "ops/neuron/neuron.h"

/* rg_neuron_numbers, cast once. */
template <rg_dtype T> struct neuron_constants {
    real<T> a, b, c, factor, low, high;
    int32_t power;
};

template <rg_dtype T>
static inline neuron_constants<T> neuron_constants_of(const rg_neuron_numbers *n)
{
    return { (real<T>)n->a,   (real<T>)n->b,    (real<T>)n->c, (real<T>)n->factor,
             (real<T>)n->low, (real<T>)n->high, n->power };
}

#define NEURON_FORMULA(name)                                                              \
    template <rg_dtype T>                                                                 \
    static __device__ __forceinline__ real<T> neuron_##name(const neuron_constants<T> &k, \
                                                            real<T> x, real<T>)

#define NEURON_SLOPE(name)                                                                \
    template <rg_dtype T>                                                                 \
    static __device__ __forceinline__ real<T> neuron_##name(const neuron_constants<T> &k, \
                                                            real<T> dy, real<T> from)

/* ---- functions; for 16-bit results shorter ones, off by 2^-15 of the value or by 2^-21 ---- */

template <rg_dtype T> constexpr bool IS_SHORT = T == RG_F16 || T == RG_BF16;

template <rg_dtype T> static __device__ __forceinline__ real<T> inverse(real<T> x)
{
    if constexpr (IS_SHORT<T>) {
        float r;
        asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
        return r;
    } else {
        return 1 / x;
    }
}

template <rg_dtype T> static __device__ __forceinline__ real<T> log_of(real<T> x)
{
    if constexpr (IS_SHORT<T>)
        return __logf(x);
    else
        return log(x);
}

/* e^x - 1; near 0 by its series, where the difference would lose all digits. */
template <rg_dtype T> static __device__ __forceinline__ real<T> expm1_of(real<T> x)
{
    if constexpr (IS_SHORT<T>)
        return fabs(x) < 0.0625f ? x * fma(x, fma(x, 1 / 6.f, 0.5f), 1.f) : exp_of<T>(x) - 1;
    else
        return expm1(x);
}

/* The same for x <= 0: 2^n (e^r - 1) + (2^n - 1) for x = n log 2 + r. */
template <rg_dtype T> static __device__ __forceinline__ real<T> expm1_below(real<T> x)
{
    if constexpr (T == RG_F32) {
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
    } else {
        return expm1_of<T>(x);
    }
}

/* log(1 + z) for 0 <= z <= 1 */
template <rg_dtype T> static __device__ __forceinline__ real<T> log1p_of(real<T> z)
{
    if constexpr (IS_SHORT<T>)
        return z < 0.03125f ? z * fma(z, fma(z, 1 / 3.f, -0.5f), 1.f) : __logf(1 + z);
    else
        return log1p(z);
}

template <rg_dtype T> static __device__ __forceinline__ real<T> tanh_of(real<T> x)
{
    if constexpr (IS_SHORT<T>) {
        const float size = fabs(x), z = exp_of<T>(-2 * size);
        const float near = x * fma(x * x, -1 / 3.f, 1.f);
        return size < 0.0625f ? near : copysign((1 - z) * inverse<T>(1 + z), x);
    } else {
        return tanh(x);
    }
}

/* 1 - tanh(x)^2 */
template <rg_dtype T> static __device__ __forceinline__ real<T> tanh_slope_of(real<T> x)
{
    if constexpr (IS_SHORT<T>) {
        const float z = exp_of<T>(-2 * fabs(x)), r = inverse<T>(1 + z);
        return 4 * z * r * r;
    } else {
        const real<T> t = tanh(x);
        return (1 - t) * (1 + t);
    }
}

/* 1 / (1 + e^-x) by e^-|x|, and y (1 - y) */
template <rg_dtype T>
static __device__ __forceinline__ real<T> logistic_and_slope(real<T> x, real<T> *slope)
{
    const real<T> z = exp_of<T>(-fabs(x)), r = inverse<T>(1 + z);
    *slope = z * r * r;
    return x < 0 ? z * r : r;
}

template <rg_dtype T> static __device__ __forceinline__ real<T> logistic(real<T> x)
{
    real<T> unused;
    return logistic_and_slope<T>(x, &unused);
}

/* (1 + erf(x / sqrt 2)) / 2, and its derivative. The short form is 7.1.26 of Abramowitz and
 * Stegun. */
template <rg_dtype T>
static __device__ __forceinline__ real<T> normal_share(real<T> x, real<T> *bell)
{
    const real<T> half = (real<T>)0.5, z = exp_of<T>(-half * x * x);
    *bell = (real<T>)0.39894228040143267794 * z; /* 1 / sqrt(2 pi) */
    if constexpr (IS_SHORT<T>) {
        const float t = inverse<T>(fma(0.231641888f, (float)fabs(x), 1.f));
        float p = fma(t, 1.061405429f, -1.453152027f);
        p = fma(t, fma(t, fma(t, p, 1.421413741f), -0.284496736f), 0.254829592f);
        const float beyond = 0.5f * z * t * p;
        return x < 0 ? beyond : 1 - beyond;
    } else {
        return fma(half, (real<T>)erf(x * (real<T>)0.70710678118654752440), half);
    }
}

/* ---- none, relu, relun, absolute: pieces of straight lines ---- */

NEURON_FORMULA(relu)
{
    if (k.a == 0)
        return x > 0 || x != x ? x : 0; /* 0, not 0 * infinity */
    return x > 0 ? x : x * k.a;
}

NEURON_SLOPE(relu_slope)
{
    return from > 0 ? dy : k.a == 0 ? 0 : dy * k.a;
}

NEURON_FORMULA(relun)
{
    const real<T> y = neuron_relu<T>(k, x, x);
    return k.b < y ? k.b : y; /* NaN stays */
}

NEURON_SLOPE(relun_slope)
{
    return neuron_relu<T>(k, from, from) >= k.b ? 0 : neuron_relu_slope<T>(k, dy, from);
}

NEURON_FORMULA(absolute)
{
    (void)k;
    return fabs(x);
}

NEURON_SLOPE(absolute_slope)
{
    (void)k;
    return from > 0 ? dy : from < 0 ? -dy : 0;
}

/* ---- linear, hard_sigmoid ---- */

NEURON_FORMULA(linear)
{
    return fma(k.a, x, k.b);
}

NEURON_SLOPE(linear_slope)
{
    (void)from;
    return dy * k.a;
}

NEURON_FORMULA(hard_sigmoid)
{
    const real<T> u = neuron_linear<T>(k, x, x);
    return u < 0 ? 0 : u > 1 ? 1 : u;
}

NEURON_SLOPE(hard_sigmoid_slope)
{
    return from >= k.low && from <= k.high ? dy * k.a : 0;
}

/* ---- sigmoid, tanh, softplus, softsign, elu ---- */

NEURON_FORMULA(sigmoid)
{
    (void)k;
    return logistic<T>(x);
}

NEURON_SLOPE(sigmoid_slope)
{
    (void)k;
    real<T> slope;
    (void)logistic_and_slope<T>(from, &slope);
    return dy * slope;
}

NEURON_SLOPE(sigmoid_slope_y)
{
    (void)k;
    return dy * (from * (1 - from));
}

NEURON_FORMULA(tanh)
{
    return k.a * tanh_of<T>(k.b * x);
}

NEURON_SLOPE(tanh_slope)
{
    return dy * (k.factor * tanh_slope_of<T>(k.b * from));
}

NEURON_SLOPE(tanh_slope_y)
{
    return dy * (k.factor * ((k.a - from) * (k.a + from)));
}

NEURON_FORMULA(softplus)
{
    const real<T> z = k.b * x;
    return k.a * ((z > 0 || z != z ? z : 0) + log1p_of<T>(exp_of<T>(-fabs(z))));
}

NEURON_SLOPE(softplus_slope)
{
    return dy * (k.factor * logistic<T>(k.b * from));
}

NEURON_SLOPE(softplus_slope_y)
{
    return dy * (-k.factor * expm1_of<T>(k.c * from));
}

NEURON_FORMULA(softsign)
{
    (void)k;
    return IS_SHORT<T> ? x * inverse<T>(1 + fabs(x)) : x / (1 + fabs(x));
}

NEURON_SLOPE(softsign_slope)
{
    (void)k;
    const real<T> r = inverse<T>(1 + fabs(from));
    return dy * (r * r);
}

NEURON_SLOPE(softsign_slope_y)
{
    (void)k;
    const real<T> r = 1 - fabs(from);
    return dy * (r * r);
}

NEURON_FORMULA(elu)
{
    return x > 0 ? x : k.a * expm1_below<T>(x);
}

NEURON_SLOPE(elu_slope)
{
    return from > 0 ? dy : dy * (k.a * exp_of<T>(from));
}

NEURON_SLOPE(elu_slope_y)
{
    return from > 0 ? dy : dy * (from + k.a);
}

/* ---- power, exponential, logarithm ---- */

template <class REAL> static __device__ __forceinline__ REAL whole_power(REAL u, int32_t n)
{
    REAL power = 1;
    for (uint32_t rest = (uint32_t)(n < 0 ? -n : n); rest > 0; rest >>= 1, u *= u)
        power = rest & 1 ? power * u : power;
    return n < 0 ? 1 / power : power;
}

template <rg_dtype T>
static __device__ __forceinline__ real<T> neuron_power_of(const neuron_constants<T> &k, real<T> u)
{
    if (k.power <= RG_POWER_MOST)
        return whole_power(u, k.power);
    if (k.power == RG_POWER_BROKEN)
        return exp_of<T>(k.c * log_of<T>(u));
    const real<T> size = exp_of<T>(k.c * log_of<T>(fabs(u)));
    return k.power == RG_POWER_ODD ? copysign(size, u) : size;
}

NEURON_FORMULA(power)
{
    return neuron_power_of<T>(k, neuron_linear<T>(k, x, x));
}

NEURON_SLOPE(power_slope)
{
    if (k.factor == 0)
        return 0; /* not 0 * infinity */
    return dy * (k.factor * neuron_power_of<T>(k, neuron_linear<T>(k, from, from)));
}

NEURON_FORMULA(exponential)
{
    return exp_of<T>(neuron_linear<T>(k, x, x));
}

NEURON_SLOPE(exponential_slope)
{
    return dy * (k.factor * neuron_exponential<T>(k, from, from));
}

NEURON_SLOPE(exponential_slope_y)
{
    return dy * (k.factor * from);
}

NEURON_FORMULA(logarithm)
{
    return k.c * log_of<T>(neuron_linear<T>(k, x, x));
}

NEURON_SLOPE(logarithm_slope)
{
    return dy * (k.factor / neuron_linear<T>(k, from, from));
}

/* ---- gelu, gelu_tanh, swish: x times a sigmoid of some kind ---- */

#define GELU_LINEAR 1.59576912160573071175 /* 2 sqrt(2 / pi) */
#define GELU_CUBIC  0.07135481627260024877 /* 0.044715 of that */
#define GELU_FAR    30                     /* e^-u(x) is 0, or infinity */

NEURON_FORMULA(gelu)
{
    (void)k;
    real<T> bell;
    return x * normal_share<T>(x, &bell);
}

NEURON_SLOPE(gelu_slope)
{
    (void)k;
    real<T> bell;
    const real<T> share = normal_share<T>(from, &bell);
    return dy * fma(from, bell, share);
}

NEURON_FORMULA(gelu_tanh)
{
    (void)k;
    return x * logistic<T>(x * fma((real<T>)GELU_CUBIC, x * x, (real<T>)GELU_LINEAR));
}

NEURON_SLOPE(gelu_tanh_slope)
{
    (void)k;
    const real<T> x = from, cubic = (real<T>)GELU_CUBIC, linear = (real<T>)GELU_LINEAR;
    const real<T> t = x > GELU_FAR ? GELU_FAR : x < -GELU_FAR ? -GELU_FAR : x, tt = t * t;
    const real<T> u = t * fma(cubic, tt, linear), du = fma(3 * cubic, tt, linear);
    real<T> slope;
    const real<T> s = logistic_and_slope<T>(u, &slope);
    return dy * fma(x, slope * du, s);
}

NEURON_FORMULA(swish)
{
    return x * logistic<T>(k.a * x);
}

NEURON_SLOPE(swish_slope)
{
    real<T> slope;
    const real<T> u = k.a * from, s = logistic_and_slope<T>(u, &slope);
    return dy * fma(u, slope, s);
}

/* ---- prelu ---- */

template <class REAL> static __device__ __forceinline__ REAL neuron_prelu(REAL x, REAL slope)
{
    return x > 0 ? x : x * slope;
}

template <class REAL>
static __device__ __forceinline__ REAL neuron_prelu_slope(REAL dy, REAL x, REAL slope)
{
    return x > 0 ? dy : dy * slope;
}

template <class REAL> static __device__ __forceinline__ REAL neuron_prelu_share(REAL dy, REAL x)
{
    return x > 0 ? 0 : dy * x;
}

#endif
