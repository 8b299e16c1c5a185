/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What the reduction kernels on a GPU share.
 *
 * The order of every sum is fixed by the shape: which thread takes which elements, whether it loads
 * them as vectors or one by one, follows from their numbers. A thread adds few of them, in `real`;
 * threads and parts are joined in double, by a tree. */
#ifndef RG_OPS_REDUCE_CUH
#define RG_OPS_REDUCE_CUH

#include "backend/cuda/kernel.cuh"
#include "ops/reduce/reduce.h"

#include <limits.h>

enum { THREADS = 256 };

static __host__ __device__ __forceinline__ int64_t at_most(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* a / b, in 32 bits where that is enough. */
static __device__ __forceinline__ int64_t quotient(int64_t a, int64_t b)
{
    return a <= UINT32_MAX && b <= UINT32_MAX ? (uint32_t)a / (uint32_t)b : a / b;
}

/* ---- the best of some elements ---- */

/* What is known of some elements of a group: their sum, or the best one and its number. */
template <class REAL> struct found {
    REAL value;
    int64_t number;
};

/* The larger one, a NaN if there is one, and the first among equals. */
template <class REAL>
static __device__ __forceinline__ found<REAL> better(const found<REAL> &a, const found<REAL> &b)
{
    const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
    const bool equal = a.value == b.value || (a_nan && b_nan);
    const bool b_wins = b.value > a.value || (b_nan && !a_nan);
    return b_wins || (equal && b.number < a.number) ? b : a;
}

/* An extreme and the number of the first element of its part that is equal to it. The extreme is
 * that of the first thread that has one, as it is where no number is wanted: +0 and -0 are equal.
 */
template <class REAL> struct winner {
    REAL value;
    int thread, number;
};

template <class REAL>
static __device__ __forceinline__ winner<REAL> winner_of(const found<REAL> &f, int thread,
                                                         int64_t first)
{
    const bool any = f.number != INT64_MAX;
    return { f.value, any ? thread : INT_MAX, any ? (int)(f.number - first) : INT_MAX };
}

template <class REAL>
static __device__ __forceinline__ winner<REAL> better(const winner<REAL> &a, const winner<REAL> &b)
{
    const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
    const bool equal = a.value == b.value || (a_nan && b_nan);
    const bool b_beats = b.value > a.value || (b_nan && !a_nan);
    const bool takes_b = b_beats || (equal && b.thread < a.thread);
    const int least = a.number < b.number ? a.number : b.number;
    return { takes_b ? b.value : a.value, takes_b ? b.thread : a.thread,
             equal     ? least
             : b_beats ? b.number
                       : a.number };
}

/* The larger one, or NaN: where indices are not needed, and so neither is the first of two
 * zeros. */
static __device__ __forceinline__ double larger(double a, double b)
{
    return !(b <= a) && a == a ? b : a;
}

static __device__ __forceinline__ float larger(float a, float b)
{
#if __CUDA_ARCH__ >= 800
    float c;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
    return c;
#else
    return !(b <= a) && a == a ? b : a;
#endif
}

/* A thread that meets elements in their order begins with the first number, and a later element
 * wins only if it is larger. */
template <rg_reduce_what WHAT, class REAL, class NUMBER>
static __device__ __forceinline__ void improve(REAL &best, NUMBER &best_number, REAL value,
                                               NUMBER number)
{
    const bool wins = WHAT >= RG_REDUCE_NUMBER && !(value <= best) && best == best;
    if (wins)
        best_number = number;
    if (WHAT != RG_REDUCE_NUMBER)
        best = larger(best, value);
    else if (wins)
        best = value;
}

template <class REAL> static __device__ __forceinline__ found<REAL> start_at(int64_t j, int64_t end)
{
    return { -(REAL)INFINITY, j < end ? j : INT64_MAX };
}

template <class REAL>
static __device__ __forceinline__ found<REAL> from_lane(const found<REAL> &f, int m)
{
    return { __shfl_xor_sync(~0u, f.value, m), __shfl_xor_sync(~0u, f.number, m) };
}

template <class REAL>
static __device__ __forceinline__ winner<REAL> from_lane(const winner<REAL> &f, int m)
{
    return { __shfl_xor_sync(~0u, f.value, m), __shfl_xor_sync(~0u, f.thread, m),
             __shfl_xor_sync(~0u, f.number, m) };
}

/* Joins what the threads of a group know, found or winner; `shared` holds one of each warp. */
template <class FOUND>
static __device__ __forceinline__ FOUND reduce_better(FOUND f, int threads, FOUND *shared)
{
    for (int m = 1; m < 32 && m < threads; m *= 2)
        f = better(f, from_lane(f, m));
    if (threads <= 32)
        return f;
    if (threadIdx.x % 32 == 0)
        shared[threadIdx.x / 32] = f;
    __syncthreads();
    for (int warp = 0; warp < threads / 32; warp++)
        f = better(f, shared[warp]);
    return f;
}

/* ---- vectors of a row ---- */

/* Loads of a thread that are under way at once. */
enum { AHEAD = 8 };

/* What a thread knows of its vectors: their sum, or the best element and its number in the row. */
template <class REAL> struct scanned {
    REAL sum, best;
    int number;
};

/* Thread `thread` of `threads` takes every `threads`-th of `vectors` vectors. */
template <rg_dtype T, rg_reduce_what WHAT>
static __device__ __forceinline__ scanned<real<T>>
scan_vectors(const char *row, int vectors, int thread, int threads, real<T> sign)
{
    enum { V = VLEN<T> };
    scanned<real<T>> s = { 0, -(real<T>)INFINITY, thread * V };
    for (int first = thread; first < vectors; first += AHEAD * threads) {
        uint4 held[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            if (first + i * threads < vectors)
                held[i] = load_vector(row + 16 * (int64_t)(first + i * threads));
        }
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            if (first + i * threads >= vectors)
                break;
            real<T> v[V];
            unpack<T>(held[i], v);
#pragma unroll
            for (int e = 0; e < V; e++) {
                if (WHAT == RG_REDUCE_TOTAL)
                    s.sum += v[e];
                else
                    improve<WHAT>(s.best, s.number, v[e] * sign, (first + i * threads) * V + e);
            }
        }
    }
    return s;
}

/* ---- results ---- */

template <rg_dtype T>
static __device__ void store_found(const rg_reduce_result &r, void *y, int64_t at, double value,
                                   int64_t number)
{
    if (r.what == RG_REDUCE_NUMBER)
        ((int64_t *)y)[at] = number;
    else if (r.what == RG_REDUCE_TOTAL)
        store<T>(y, at, (real<T>)(value * r.weight / r.divisor));
    else
        store<T>(y, at, (real<T>)(value * r.sign));
}

/* The result of part p of output o: in y if it is the only one. */
template <rg_dtype T>
static __device__ void keep_found(const rg_reduce_args &k, int64_t y, int64_t o, int64_t p,
                                  double value, int64_t number)
{
    const rg_reduce_result &r = k.result;
    if (r.parts == 1 && !r.apart) {
        store_found<T>(r, k.y, y, value, number);
        if (r.what == RG_REDUCE_WINNER)
            k.winners[o] = number;
        return;
    }
    k.partial[p * r.outputs + o] = value;
    if (r.what >= RG_REDUCE_NUMBER)
        k.partial[(r.parts + p) * r.outputs + o] = (double)number;
}

#endif
