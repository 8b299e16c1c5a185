/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The pass of sgd, rmsprop and adam over memory, on a GPU. What an optimizer itself does is its
 * rule. */
#ifndef RG_OPS_OPTIMIZER_UPDATE_CUH
#define RG_OPS_OPTIMIZER_UPDATE_CUH

#include "ops/optimizer/update_formulas.h"

#include <retrograde/optimizer.h>

/* One thread does it; out of line, so that others need no registers for it. */
template <rg_dtype R>
static __device__ __noinline__ void update_constants_in(const rg_update_values &values,
                                                        const rg_update_numbers &n,
                                                        update_constants<R> &k)
{
    k = update_constants_of<real<R>>(&values, &n);
}

/* What an optimizer makes of it; g has been prepared. */
template <class REAL>
using update_rule = void (*)(const update_constants_reals<REAL> *k, update_point_reals<REAL> *x);

template <rg_dtype R, update_rule<real<R>> RULE>
static __device__ __forceinline__ void update_one(const update_constants<R> &k, update_point<R> &x)
{
    if (k.skip)
        return;
    x.g = update_prepare(&k, x.g, x.p);
    RULE(&k, &x);
}

/* ---- one element at a time ---- */

template <rg_dtype T, rg_dtype R>
static __device__ __forceinline__ void update_load(const rg_update_tensors &t, int moments,
                                                   const int64_t at[], update_point<R> &x)
{
    x.p = load<R>(t.parameter, at[0]);
    x.g = load<T>(t.gradient, at[1]);
#pragma unroll
    for (int m = 0; m < RG_UPDATE_MOMENTS; m++)
        x.moment[m] = m < moments ? load<R>(t.moment[m], at[2 + m]) : 0;
}

template <rg_dtype R>
static __device__ __forceinline__ void update_store(const rg_update_tensors &t, int moments,
                                                    int copy, const int64_t at[],
                                                    const update_point<R> &x)
{
    store<R>(t.new_parameter, at[5], x.p);
#pragma unroll
    for (int m = 0; m < RG_UPDATE_MOMENTS; m++) {
        if (m < moments)
            store<R>(t.new_moment[m], at[6 + m], x.moment[m]);
    }
    if (copy == RG_PARAMETER_COPY_F16)
        store<RG_F16>(t.copy, at[9], (float)x.p);
    if (copy == RG_PARAMETER_COPY_BF16)
        store<RG_BF16>(t.copy, at[9], (float)x.p);
}

template <rg_dtype T, rg_dtype R, update_rule<real<R>> RULE>
static __device__ __noinline__ void update_element(const update_constants<R> &k,
                                                   const rg_update_tensors &t, int64_t i)
{
    int64_t at[RG_UPDATE_TENSORS];
    for (int n = 0; n < RG_UPDATE_TENSORS; n++)
        at[n] = i;
    update_point<R> x;
    update_load<T, R>(t, k.moments, at, x);
    update_one<R, RULE>(k, x);
    update_store<R>(t, k.moments, k.copy, at, x);
}

/* ---- contiguous elements ---- */

enum { UPDATE_THREADS = 256 };

/* V neighbours of T: 16 aligned bytes, or 8 of 16-bit numbers. */
template <rg_dtype T, int V>
static __device__ __forceinline__ void update_load_block(const void *data, int64_t i, real<T> x[V])
{
    if constexpr (VLEN<T> == V) {
        unpack<T>(load_vector(at<T>(data, i)), x);
    } else {
        const uint2 words = *(const uint2 *)at<T>(data, i);
        x[0] = to_real<T>((uint16_t)words.x);
        x[1] = to_real<T>((uint16_t)(words.x >> 16));
        x[2] = to_real<T>((uint16_t)words.y);
        x[3] = to_real<T>((uint16_t)(words.y >> 16));
    }
}

template <rg_dtype T>
static __device__ __forceinline__ void update_store_copy(void *copy, int64_t i, const float p[4])
{
    *(uint2 *)at<T>(copy, i) = make_uint2(pack_two<T>(p[0], p[1]), pack_two<T>(p[2], p[3]));
}

/* V neighbours of all tensors, of which the optimizer has at most this many moments. */
template <class REAL, int V, int MOMENTS> struct update_line {
    REAL p[V], g[V], moment[MOMENTS][V];
};

template <rg_dtype T, rg_dtype R, int MOMENTS>
static __device__ __forceinline__ void update_load_line(const rg_update_tensors &t, int moments,
                                                        int64_t i,
                                                        update_line<real<R>, VLEN<R>, MOMENTS> &x)
{
    update_load_block<R, VLEN<R>>(t.parameter, i, x.p);
    update_load_block<T, VLEN<R>>(t.gradient, i, x.g);
#pragma unroll
    for (int m = 0; m < MOMENTS; m++) {
        if (m < moments)
            update_load_block<R, VLEN<R>>(t.moment[m], i, x.moment[m]);
    }
}

template <rg_dtype R, update_rule<real<R>> RULE, int MOMENTS>
static __device__ __forceinline__ void
update_finish_line(const update_constants<R> &k, const rg_update_tensors &t, int moments, int64_t i,
                   update_line<real<R>, VLEN<R>, MOMENTS> &x)
{
#pragma unroll
    for (int e = 0; e < VLEN<R>; e++) {
        update_point<R> one = { x.p[e], x.g[e] };
#pragma unroll
        for (int m = 0; m < MOMENTS; m++)
            one.moment[m] = x.moment[m][e];
        update_one<R, RULE>(k, one);
        x.p[e] = one.p;
#pragma unroll
        for (int m = 0; m < MOMENTS; m++)
            x.moment[m][e] = one.moment[m];
    }
    store_vector(at<R>(t.new_parameter, i), pack<R>(x.p), false);
#pragma unroll
    for (int m = 0; m < MOMENTS; m++) {
        if (m < moments)
            store_vector(at<R>(t.new_moment[m], i), pack<R>(x.moment[m]), false);
    }
    if constexpr (R == RG_F32) {
        if (k.copy == RG_PARAMETER_COPY_F16)
            update_store_copy<RG_F16>(t.copy, i, x.p);
        if (k.copy == RG_PARAMETER_COPY_BF16)
            update_store_copy<RG_BF16>(t.copy, i, x.p);
    }
}

/* A thread takes LINES times 16 bytes of each tensor, which are being copied while one thread of
 * the block works out the constants. */
template <rg_dtype T, rg_dtype R, update_rule<real<R>> RULE, int MOMENTS, int LINES>
static __global__ void __launch_bounds__(UPDATE_THREADS)
    update_vectors(const __grid_constant__ rg_update_flat_args a, uint32_t aligned)
{
    enum { V = VLEN<R>, SPAN = UPDATE_THREADS * V };
    __shared__ update_constants<R> shared;
    int r = 0;
    while (blockIdx.x >= a.first[r + 1])
        r++;
    const rg_update_tensors &t = a.row[r];
    const int moments = a.numbers.moments;
    const bool wide = aligned >> r & 1;
    const int64_t count = a.count[r];
    const int64_t first = (blockIdx.x - a.first[r]) * (int64_t)(SPAN * LINES) + threadIdx.x * V;
    update_line<real<R>, V, MOMENTS> x[LINES] = {};
#pragma unroll
    for (int n = 0; n < LINES; n++) {
        if (wide && first + n * SPAN + V <= count)
            update_load_line<T, R, MOMENTS>(t, moments, first + n * SPAN, x[n]);
    }
    if (threadIdx.x == 0)
        update_constants_in<R>(a.values, a.numbers, shared);
    __syncthreads();
#pragma unroll
    for (int n = 0; n < LINES; n++) {
        const int64_t i = first + n * SPAN;
        if (wide && i + V <= count) {
            update_finish_line<R, RULE, MOMENTS>(shared, t, moments, i, x[n]);
        } else {
            for (int64_t j = i; j < i + V && j < count; j++)
                update_element<T, R, RULE>(shared, t, j);
        }
    }
}

/* ---- any strides ---- */

template <rg_dtype T, rg_dtype R, update_rule<real<R>> RULE>
static __global__ void __launch_bounds__(UPDATE_THREADS)
    update_elements(const __grid_constant__ rg_update_strided_args a)
{
    __shared__ update_constants<R> shared;
    if (threadIdx.x == 0)
        update_constants_in<R>(a.values, a.numbers, shared);
    __syncthreads();
    const update_constants<R> &k = shared;
    const int64_t count = a.read.count * a.length, step = (int64_t)gridDim.x * UPDATE_THREADS;
    for (int64_t i = (int64_t)blockIdx.x * UPDATE_THREADS + threadIdx.x; i < count; i += step) {
        const int64_t row = i / a.length, j = i - row * a.length;
        int64_t at[RG_UPDATE_TENSORS];
#pragma unroll
        for (int n = 0; n < RG_UPDATE_INPUTS; n++) {
            const int w = RG_UPDATE_INPUTS + n;
            at[n] = walk_offset(a.read, n, row) + j * a.step[n];
            at[w] = walk_offset(a.written, n, row) + j * a.step[w];
        }
        update_point<R> x;
        update_load<T, R>(a.tensors, k.moments, at, x);
        update_one<R, RULE>(k, x);
        update_store<R>(a.tensors, k.moments, k.copy, at, x);
    }
}

/* ---- host side ---- */

/* Whether a thread can take 16 bytes of every tensor of f32 or f64, and 8 of those of 16 bits. */
template <rg_dtype T> static bool update_is_aligned(const rg_update_tensors &t, int moments)
{
    uintptr_t wide = (uintptr_t)t.parameter | (uintptr_t)t.new_parameter;
    for (int m = 0; m < moments; m++)
        wide |= (uintptr_t)t.moment[m] | (uintptr_t)t.new_moment[m];
    const bool is_narrow = T == RG_F16 || T == RG_BF16;
    wide |= is_narrow ? 0 : (uintptr_t)t.gradient;
    const uintptr_t narrow = (uintptr_t)t.copy | (is_narrow ? (uintptr_t)t.gradient : 0);
    return wide % 16 == 0 && narrow % 8 == 0;
}

template <rg_dtype T, rg_dtype R, update_rule<real<R>> RULE, int MOMENTS, int LINES>
static void launch_update_flat(const void *args, const rg_cuda_target *target)
{
    rg_update_flat_args a = *(const rg_update_flat_args *)args;
    uint32_t aligned = 0;
    int64_t blocks = 0;
    for (int r = 0; r < a.rows; r++) {
        a.first[r] = blocks;
        blocks += ceil_div(a.count[r], LINES * UPDATE_THREADS * VLEN<R>);
        aligned |= (uint32_t)update_is_aligned<T>(a.row[r], a.numbers.moments) << r;
    }
    a.first[a.rows] = blocks;
    launch(update_vectors<T, R, RULE, MOMENTS, LINES>, blocks, UPDATE_THREADS, 0, target, a,
           aligned);
}

template <rg_dtype T, rg_dtype R, update_rule<real<R>> RULE>
static void launch_update_strided(const void *args, const rg_cuda_target *target)
{
    const rg_update_strided_args &a = *(const rg_update_strided_args *)args;
    const int64_t most_blocks = 1 << 24;
    const int64_t blocks = ceil_div(a.read.count * a.length, UPDATE_THREADS);
    launch(update_elements<T, R, RULE>, blocks < most_blocks ? blocks : most_blocks, UPDATE_THREADS,
           0, target, a);
}

/* The rows of an optimizer's table; `moments` is the most it has, `lines` how much a thread takes,
 * more where few tensors are read. */
#define RG_UPDATE_FLAT_ROW(rule, moments, lines)                                  \
    {                                                                             \
        RG_UPDATE_FLAT,                                                           \
        {                                                                         \
            launch_update_flat<RG_F32, RG_F32, rule<float>, moments, lines>,      \
                launch_update_flat<RG_F64, RG_F64, rule<double>, moments, lines>, \
                launch_update_flat<RG_F16, RG_F32, rule<float>, moments, lines>,  \
                launch_update_flat<RG_BF16, RG_F32, rule<float>, moments, lines>  \
        }                                                                         \
    }
#define RG_UPDATE_STRIDED_ROW(rule)                                  \
    {                                                                \
        RG_UPDATE_STRIDED,                                           \
        {                                                            \
            launch_update_strided<RG_F32, RG_F32, rule<float>>,      \
                launch_update_strided<RG_F64, RG_F64, rule<double>>, \
                launch_update_strided<RG_F16, RG_F32, rule<float>>,  \
                launch_update_strided<RG_BF16, RG_F32, rule<float>>  \
        }                                                            \
    }

#endif
