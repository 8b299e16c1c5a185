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

/* ---- walks whose indices are found without a division ---- */

/* A walk of at most two dimensions and fewer than 2^31 indices, over TENSORS tensors. */
template <int TENSORS> struct quick_walk {
    small_divider by; /* the inner dimension */
    int32_t inner;
    int64_t outer_step[TENSORS], inner_step[TENSORS];
};

/* An index of it. */
struct quick_index {
    int32_t outer, inner;
};

template <int TENSORS> static bool quick_walk_of(const rg_walk &walk, quick_walk<TENSORS> *quick)
{
    const int32_t last = walk.rank - 1;
    *quick = {};
    if (walk.rank > 2 || walk.count > INT32_MAX || walk.count == 0)
        return false;
    quick->inner = walk.rank == 0 ? 1 : (int32_t)walk.dims[last];
    quick->by = small_divider_of(quick->inner);
    for (int t = 0; t < TENSORS; t++) {
        quick->inner_step[t] = walk.rank == 0 ? 0 : walk.strides[t][last];
        quick->outer_step[t] = walk.rank < 2 ? 0 : walk.strides[t][0];
    }
    return true;
}

template <int TENSORS>
static __device__ __forceinline__ quick_index find_index(const quick_walk<TENSORS> &walk, int32_t i)
{
    const int32_t outer = divide(i, walk.by);
    return { outer, i - outer * walk.inner };
}

template <int TENSORS>
static __device__ __forceinline__ int64_t quick_offset(const quick_walk<TENSORS> &walk, int t,
                                                       const quick_index &at)
{
    return at.outer * walk.outer_step[t] + at.inner * walk.inner_step[t];
}

#endif
