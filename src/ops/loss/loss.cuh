/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What the loss kernels on a GPU share.
 *
 * The order of every sum is fixed by the shape: which elements a thread has follows from the number
 * of elements alone, and sums of threads form a tree. */
#ifndef RG_OPS_LOSS_CUH
#define RG_OPS_LOSS_CUH

#include "backend/cuda/kernel.cuh"
#include "ops/loss/loss.h"

#include <retrograde/loss.h>

enum { LOSS_THREADS = 256 };

/* ---- elements of a tensor by their number ---- */

static __device__ __noinline__ int64_t strided_offset(const rg_loss_view &v, int64_t i)
{
    int64_t offset = 0;
    for (int32_t d = v.rank - 1; d > 0; d--) {
        const int64_t next = i / v.dims[d];
        offset += (i - next * v.dims[d]) * v.strides[d];
        i = next;
    }
    return offset + i * v.strides[0];
}

static __device__ __forceinline__ int64_t view_offset(const rg_loss_view &v, int64_t i)
{
    return v.rank <= 1 ? i * v.strides[0] : strided_offset(v, i);
}

static __device__ __forceinline__ int64_t divide(int64_t a, int64_t b)
{
    return a <= INT32_MAX && b <= INT32_MAX ? (uint32_t)a / (uint32_t)b : a / b;
}

/* What derivatives in a group are multiplied by. */
template <rg_dtype T>
static __device__ __forceinline__ real<T> group_scale(const rg_loss_args &k, int64_t group)
{
    double scale = k.numbers.scale;
    if (k.has_dy && !k.dy_of_labels)
        scale *= load<T>(k.dy, view_offset(k.views[RG_LOSS_DY], group));
    if (k.has_counts)
        scale = k.counts[group] > 0 ? scale / k.counts[group] : 0;
    return (real<T>)scale;
}

/* A part of a group, which is a block's. */
typedef struct loss_part {
    int64_t group, first;
    int count;
} loss_part;

static __device__ __forceinline__ loss_part find_part(const rg_loss_args &k)
{
    loss_part p;
    const int64_t unit = blockIdx.x;
    p.group = divide(unit, k.parts);
    const int64_t begin = (unit - p.group * k.parts) * RG_LOSS_PART;
    p.first = p.group * k.group + begin;
    p.count = (int)min((int64_t)RG_LOSS_PART, k.group - begin);
    return p;
}

/* A class label. */
static __device__ __forceinline__ int64_t label_at(const rg_loss_args &k, int64_t row)
{
    const int64_t i = view_offset(k.views[RG_LOSS_T], row);
    return k.wide_labels ? ((const int64_t *)k.labels)[i] : ((const int32_t *)k.labels)[i];
}

#endif
