/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What the arithmetic kernels on a GPU share: formulas, and the elements of a row in memory. */
#ifndef RG_OPS_ARITHMETIC_CUH
#define RG_OPS_ARITHMETIC_CUH

#include "backend/cuda/kernel.cuh"
#include "ops/arithmetic/arithmetic.h"

enum { THREADS = 256 };

/* ---- formulas ---- */

typedef enum kind { ADD, ADD_BOUNDED, MULTIPLY, DIVIDE, COMPARE, MAXIMUM } kind;

/* The numbers, cast once. */
template <rg_dtype T> struct constants {
    real<T> p, s, bias, low, high, threshold, sign;
    int comparison;
    bool bounded, mask;
};

template <rg_dtype T> static constants<T> constants_of(const rg_arithmetic_numbers &n)
{
    return { (real<T>)n.primary, (real<T>)n.secondary,
             (real<T>)n.bias,    (real<T>)n.minimum,
             (real<T>)n.maximum, (real<T>)n.threshold,
             (real<T>)n.sign,    (int)n.comparison,
             n.bounded,          n.mask };
}

/* y before the bounds */
template <rg_dtype T, kind K>
static __device__ __forceinline__ real<T> free_value(const constants<T> &k, real<T> a, real<T> b)
{
    if (K == MULTIPLY)
        return k.p * a * (k.s * b) + k.bias;
    if (K == DIVIDE)
        return k.p * a / (k.s * b) + k.bias;
    if (K == MAXIMUM) {
        const real<T> pa = k.p * a, sb = k.s * b;
        if (k.mask)
            return (b == 0 ? 0 : pa) + k.bias;
        return k.sign * (pa > sb || pa != pa ? pa : sb) + k.bias;
    }
    return fma(k.p, a, k.s * b) + k.bias;
}

/* The gradient of a, or of b if `second`. */
template <rg_dtype T, kind K>
static __device__ __forceinline__ real<T> slope_of(bool second, const constants<T> &k, real<T> dy,
                                                   real<T> a, real<T> b)
{
    if (K == MULTIPLY)
        return second ? k.s * dy * (k.p * a) : k.p * dy * (k.s * b);
    if (K == DIVIDE) {
        const real<T> da = k.p * dy / (k.s * b);
        return second ? -da * (a / b) : da;
    }
    if (K == MAXIMUM) {
        const real<T> pa = k.p * a, sb = k.s * b;
        const real<T> all = k.sign * (second ? k.s : k.p) * dy;
        if (k.mask)
            return second || b == 0 ? 0 : all;
        const real<T> some = pa == sb ? (real<T>)0.5 * all : all;
        return (second ? pa > sb : pa < sb) ? 0 : some;
    }
    return (second ? k.s : k.p) * dy;
}

/* dy, or 0 where a bound holds y. */
template <rg_dtype T, kind K>
static __device__ __forceinline__ real<T> passed(const constants<T> &k, real<T> dy, real<T> a,
                                                 real<T> b)
{
    if (K == ADD || !k.bounded)
        return dy;
    const real<T> r = free_value<T, K>(k, a, b);
    return r >= k.low && r <= k.high ? dy : 0;
}

/* ---- elements of a row, wherever they are ---- */

/* `lanes` of N elements, as one vector if N is that and they are neighbours; then they are
 * aligned. */
template <rg_dtype T, int N>
static __device__ __forceinline__ void take(const void *data, int64_t offset, int64_t step,
                                            int lanes, real<T> x[N])
{
    const char *from = at<T>(data, offset);
    if constexpr (N > 1) {
        if (step == 1 && lanes == N) {
            unpack<T>(load_vector(from), x);
            return;
        }
        if (step == 0 && lanes > 0) {
            const real<T> all = load<T>(from, 0);
#pragma unroll
            for (int e = 0; e < N; e++)
                x[e] = all;
            return;
        }
    }
#pragma unroll
    for (int e = 0; e < N; e++)
        x[e] = e < lanes ? load<T>(from, e * step) : 0;
}

template <rg_dtype T, int N>
static __device__ __forceinline__ void put(void *data, int64_t offset, int64_t step, int lanes,
                                           bool add, bool stream, real<T> y[N])
{
    char *to = at<T>(data, offset);
    if (add) {
        real<T> old[N];
        take<T, N>(data, offset, step, lanes, old);
#pragma unroll
        for (int e = 0; e < N; e++)
            y[e] += old[e];
    }
    if constexpr (N > 1) {
        if (step == 1 && lanes == N) {
            store_vector(to, pack<T>(y), stream);
            return;
        }
    }
#pragma unroll
    for (int e = 0; e < N; e++) {
        if (e < lanes)
            store<T>(to, e * step, y[e]);
    }
}

/* Whether tensor t, `step` apart within rows, is read in aligned vectors or not at all but for one
 * element of a row. */
template <rg_dtype T>
static bool is_wide(const void *data, int64_t step, const rg_walk *walk, int t)
{
    return step == 0 || (step == 1 && is_aligned<T>(data, walk, t));
}

#endif
