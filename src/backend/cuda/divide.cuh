/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Division by numbers that are known before the launch, of numbers below 2^31: by a product and a
 * shift. */
#ifndef RG_BACKEND_CUDA_DIVIDE_CUH
#define RG_BACKEND_CUDA_DIVIDE_CUH

#include "backend/cuda/kernel.cuh"

struct small_divider {
    uint32_t magic, shift;
};

static inline small_divider small_divider_of(int64_t by)
{
    small_divider d = { 0, 0 };
    while ((INT64_C(1) << d.shift) < by)
        d.shift++;
    d.magic = (uint32_t)((((INT64_C(1) << d.shift) - by) << 32) / by + 1);
    return d;
}

static __device__ __forceinline__ int32_t divide(int32_t n, const small_divider &d)
{
    return (int32_t)((__umulhi((uint32_t)n, d.magic) + (uint32_t)n) >> d.shift);
}

#endif
