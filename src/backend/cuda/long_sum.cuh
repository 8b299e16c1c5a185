/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The long-sum rule of core/long_sum.h in a thread of a GPU: runs in the type that is computed in,
 * and their sum in double. */
#ifndef RG_CUDA_LONG_SUM_CUH
#define RG_CUDA_LONG_SUM_CUH

#include "core/long_sum.h"

/* V sums side by side. */
template <class REAL, int V> struct long_sum {
    REAL run[V] = {};
    double total[V] = {};
    int count = 0;
    bool has_total = false;

    __device__ __forceinline__ void end_run()
    {
#pragma unroll
        for (int e = 0; e < V; e++) {
            total[e] += (double)run[e];
            run[e] = 0;
        }
        count = 0;
        has_total = true;
    }

    /* To call behind every addition to `run`. */
    __device__ __forceinline__ void added()
    {
        if (++count == RG_SUM_RUN)
            end_run();
    }

    __device__ __forceinline__ double in_double(int e) const
    {
        return has_total ? total[e] + (double)run[e] : (double)run[e];
    }

    __device__ __forceinline__ REAL value(int e) const
    {
        return has_total ? (REAL)(total[e] + (double)run[e]) : run[e];
    }
};

#endif
