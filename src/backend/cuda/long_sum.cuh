/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The second level of sums that may be long, as on the CPU: see backend/cpu/long_sum_cpu.h. */
#ifndef RG_BACKEND_CUDA_LONG_SUM_CUH
#define RG_BACKEND_CUDA_LONG_SUM_CUH

#include "backend/cuda/kernel.cuh"
#include "core/long_sum.h"

/* A sum as two numbers: `low` is what rounding took from `high`. Where the sum is not finite,
 * `high` says so, and `low` has no meaning. */
template <class REAL> struct long_sum {
    REAL high, low;
};

template <class REAL>
static __device__ __forceinline__ long_sum<REAL> long_sum_add(const long_sum<REAL> &s, REAL run)
{
    const REAL sum = s.high + run, back = sum - s.high;
    const REAL lost = ((s.high - (sum - back)) + (run - back)) + s.low;
    const REAL rest = lost - lost == 0 ? lost : (REAL)0;
    const REAL high = sum + rest;
    return { high, rest - (high - sum) };
}

/* V parallel chains of additions, cut into runs. The caller adds to `run`, calls count() after
 * each addition, and end() at last: chains of less than RG_CHAIN_RUN addends have the bits of
 * plain ones. */
template <class REAL, int V> struct long_chain {
    REAL run[V];
    long_sum<REAL> total[V];
    int left; /* additions until the run ends */

    __device__ __forceinline__ long_chain() : left(RG_CHAIN_RUN)
    {
#pragma unroll
        for (int e = 0; e < V; e++) {
            run[e] = 0;
            total[e] = { 0, 0 };
        }
    }

    __device__ __forceinline__ void end_run()
    {
        left = RG_CHAIN_RUN;
#pragma unroll
        for (int e = 0; e < V; e++) {
            total[e] = long_sum_add(total[e], run[e]);
            run[e] = 0;
        }
    }

    __device__ __forceinline__ void count()
    {
        if (--left == 0)
            end_run();
    }

    /* The sum of chain e so far. */
    __device__ __forceinline__ REAL value(int e) const
    {
        return long_sum_add(total[e], run[e]).high;
    }

    __device__ __forceinline__ double in_double(int e) const
    {
        return (double)total[e].high + ((double)total[e].low + (double)run[e]);
    }

    /* MANY false: count() was never called, and a plain chain is left. */
    template <bool MANY = true> __device__ __forceinline__ void end(REAL sum[V])
    {
        if constexpr (MANY)
            end_run();
#pragma unroll
        for (int e = 0; e < V; e++)
            sum[e] = MANY ? total[e].high : run[e];
    }
};

/* ---- split-K: partial sums of one result, joined in double in a fixed order ---- */

enum { SPLIT_K_THREADS = 256, SPLIT_K_SHARES = 16 };

/* SHARES threads of a block share the partials of each of SPLIT_K_THREADS / SHARES results: thread
 * s of them adds partials s, s + SHARES, and so on, and the first one adds what these have. For
 * many partials of few results, or SHARES = 1 for few of many. `from` is the thread's own result in
 * the first partial, `step` leads to the next one; the sum is whole in threads of share 0. */
template <int SHARES, class REAL>
static __device__ __forceinline__ double split_k_sum(const REAL *from, int64_t step, int64_t count)
{
    enum { RESULTS = SPLIT_K_THREADS / SHARES, AHEAD = 32 };
    const int own = (int)threadIdx.x % RESULTS, share = (int)threadIdx.x / RESULTS;
    double sum = 0;
    for (int64_t first = share; first < count; first += SHARES * AHEAD) {
        REAL partial[AHEAD]; /* all are loaded at the same time */
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            const int64_t n = first + i * SHARES;
            partial[i] = n < count ? from[n * step] : 0;
        }
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            sum += (double)partial[i];
    }
    if constexpr (SHARES > 1) {
        __shared__ double shared[SHARES][RESULTS];
        shared[share][own] = sum;
        __syncthreads();
#pragma unroll
        for (int i = 1; i < SHARES && share == 0; i++)
            sum += shared[i][own];
    }
    return sum;
}

#endif
