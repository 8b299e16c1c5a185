/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Sums of squares on a GPU. Element i of a piece belongs to vector i / VLEN; vector j goes to
 * thread j % THREADS, whichever way it is loaded. */
#include "backend/cuda/kernel.cuh"
#include "ops/grad_norm/grad_norm.h"

enum { THREADS = 256 };

/* Sums of the block's squares, in every thread. */
template <rg_dtype T> static __device__ double sum_of(const real<T> lanes[VLEN<T>])
{
    __shared__ real<T> partial[32];
    real<T> sum = 0;
#pragma unroll
    for (int e = 0; e < VLEN<T>; e++)
        sum += lanes[e];
    return (double)reduce(sum, THREADS, partial, false);
}

/* Vector j of `count` elements from `at` on, whose offsets `where` gives. */
template <rg_dtype T, class WHERE>
static __device__ __forceinline__ void add_elements(const void *gradient, int count, int j,
                                                    WHERE where, real<T> lanes[VLEN<T>])
{
#pragma unroll
    for (int e = 0; e < VLEN<T>; e++) {
        const int i = j * VLEN<T> + e;
        if (i < count) {
            const real<T> x = load<T>(gradient, where(i));
            lanes[e] = fma(x, x, lanes[e]);
        }
    }
}

template <rg_dtype T>
static __global__ void __launch_bounds__(THREADS)
    flat_pieces(const __grid_constant__ rg_grad_norm_flat_args k)
{
    enum { V = VLEN<T>, STEPS = RG_GRAD_NORM_PIECE / (V * THREADS) };
    int r = 0;
    while (blockIdx.x >= k.first[r + 1])
        r++;
    const int64_t first = (blockIdx.x - k.first[r]) * (int64_t)RG_GRAD_NORM_PIECE;
    const int64_t left = k.count[r] - first;
    const char *const from = at<T>(k.gradient[r], first);
    real<T> lanes[V] = {};
    if (left >= RG_GRAD_NORM_PIECE && (uintptr_t)from % 16 == 0) {
        uint4 vectors[STEPS];
#pragma unroll
        for (int s = 0; s < STEPS; s++)
            vectors[s] = load_vector(from + 16 * (s * THREADS + (int)threadIdx.x));
#pragma unroll
        for (int s = 0; s < STEPS; s++) {
            real<T> x[V];
            unpack<T>(vectors[s], x);
#pragma unroll
            for (int e = 0; e < V; e++)
                lanes[e] = fma(x[e], x[e], lanes[e]);
        }
    } else {
        const int count = left < RG_GRAD_NORM_PIECE ? (int)left : RG_GRAD_NORM_PIECE;
        for (int j = (int)threadIdx.x; j * V < count; j += THREADS)
            add_elements<T>(
                from, count, j, [](int i) { return (int64_t)i; }, lanes);
    }
    const double sum = sum_of<T>(lanes);
    if (threadIdx.x == 0)
        k.partial[blockIdx.x] = sum;
}

template <rg_dtype T> static void grad_norm_flat(const void *args, const rg_cuda_target *target)
{
    const rg_grad_norm_flat_args &k = *(const rg_grad_norm_flat_args *)args;
    launch(flat_pieces<T>, k.first[k.rows], THREADS, 0, target, k);
}

template <rg_dtype T>
static __global__ void __launch_bounds__(THREADS)
    strided_pieces(const __grid_constant__ rg_grad_norm_strided_args k)
{
    enum { V = VLEN<T> };
    const int64_t first = (int64_t)blockIdx.x * RG_GRAD_NORM_PIECE, left = k.count - first;
    const int count = left < RG_GRAD_NORM_PIECE ? (int)left : RG_GRAD_NORM_PIECE;
    const auto where = [&](int i) {
        const int64_t index = first + i, row = index / k.length;
        return walk_offset(k.walk, 0, row) + (index - row * k.length) * k.step;
    };
    real<T> lanes[V] = {};
    for (int j = (int)threadIdx.x; j * V < count; j += THREADS)
        add_elements<T>(k.gradient, count, j, where, lanes);
    const double sum = sum_of<T>(lanes);
    if (threadIdx.x == 0)
        k.partial[blockIdx.x] = sum;
}

template <rg_dtype T> static void grad_norm_strided(const void *args, const rg_cuda_target *target)
{
    const rg_grad_norm_strided_args &k = *(const rg_grad_norm_strided_args *)args;
    launch(strided_pieces<T>, ceil_div(k.count, RG_GRAD_NORM_PIECE), THREADS, 0, target, k);
}

/* A block adds up one gradient. */
template <rg_dtype T>
static __global__ void __launch_bounds__(THREADS)
    total_pieces(const __grid_constant__ rg_grad_norm_total_args k)
{
    __shared__ double partial[32];
    double sum = 0;
    for (int64_t i = k.first[blockIdx.x] + threadIdx.x; i < k.first[blockIdx.x + 1]; i += THREADS)
        sum += k.partial[i];
    sum = reduce(sum, THREADS, partial, false);
    if (threadIdx.x == 0)
        *(real<T> *)k.squares[blockIdx.x] = (real<T>)(sum * k.factor);
}

template <rg_dtype T> static void grad_norm_total(const void *args, const rg_cuda_target *target)
{
    const rg_grad_norm_total_args &k = *(const rg_grad_norm_total_args *)args;
    launch(total_pieces<T>, k.rows, THREADS, 0, target, k);
}

static const rg_cuda_row kernel_rows[] = {
    RG_CUDA_ROW(RG_GRAD_NORM_FLAT, grad_norm_flat),
    RG_CUDA_ROW(RG_GRAD_NORM_STRIDED, grad_norm_strided),
    RG_CUDA_ROW(RG_GRAD_NORM_TOTAL, grad_norm_total),
};
RG_CUDA_TABLE(grad_norm, kernel_rows);
