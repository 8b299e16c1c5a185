/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What the arithmetic kernels on a GPU share: the elements of a row in memory. */
#ifndef RG_OPS_ARITHMETIC_CUH
#define RG_OPS_ARITHMETIC_CUH

#include "backend/cuda/kernel.cuh"
#include "ops/arithmetic/arithmetic_formulas.h"

enum { THREADS = 256 };

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
