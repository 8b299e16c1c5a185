/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Sums over sliding windows on a GPU, in the order of ops/window_norm/span.h. */
#ifndef RG_OPS_WINDOW_NORM_WINDOWS_CUH
#define RG_OPS_WINDOW_NORM_WINDOWS_CUH

#include "backend/cuda/long_sum.cuh"
#include "ops/window_norm/span.h"

/* The sum of `width` values that are `step` apart. */
template <class REAL>
static __device__ __forceinline__ REAL sum_taps(const REAL *from, int64_t step, int width)
{
    REAL sum = from[0];
    if (width > 1)
        sum += from[step];
    int k = 2;
    for (; k + 1 < width; k += 2)
        sum += from[k * step] + from[(k + 1) * step];
    return k < width ? sum + from[k * step] : sum;
}

/* The next running sum over a block; with compensation where there are `many`. */
template <class REAL>
static __device__ __forceinline__ REAL run_on(long_sum<REAL> &sum, REAL value, bool many)
{
    sum = many ? long_sum_add(sum, value) : long_sum<REAL>{ sum.high + value, 0 };
    return sum.high;
}

/* Lines of `length` values, `step` apart, by blocks of `width`: prefix sums into `prefix`, values
 * become suffix sums. A thread takes whole blocks; line l begins at l / inner * outer_step + l %
 * inner. Complete after a barrier. */
template <class REAL>
static __device__ __forceinline__ void sum_blocks(REAL *values, REAL *prefix, int64_t lines,
                                                  int64_t inner, int64_t outer_step, int64_t length,
                                                  int64_t step, int64_t width)
{
    const int64_t blocks = (length + width - 1) / width;
    for (int64_t i = threadIdx.x; i < lines * blocks; i += blockDim.x) {
        const int64_t block = i / lines, line = i - block * lines;
        const int64_t begin = block * width, all = length - begin;
        const int64_t count = all < width ? all : width;
        const int64_t at = line / inner * outer_step + line % inner + begin * step;
        const bool many = count > RG_SPAN_RUN;
        long_sum<REAL> sum = { values[at], 0 };
        prefix[at] = sum.high;
        for (int64_t k = 1; k < count; k++)
            prefix[at + k * step] = run_on(sum, values[at + k * step], many);
        sum = { values[at + (count - 1) * step], 0 };
        for (int64_t k = count - 2; k >= 0; k--)
            values[at + k * step] = run_on(sum, values[at + k * step], many);
    }
}

/* The sum of the window of position i of a line that begins at `line`; `blocks`: after
 * sum_blocks. */
template <class REAL>
static __device__ __forceinline__ REAL sum_window(const REAL *values, const REAL *prefix,
                                                  int64_t line, int64_t i, int64_t step,
                                                  int64_t width, bool blocks)
{
    const int64_t begin = line + i * step;
    if (!blocks)
        return sum_taps(values + begin, step, (int)width);
    const REAL end = prefix[begin + (width - 1) * step];
    return i % width == 0 ? end : values[begin] + end;
}

#endif
