/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Gradients of the parameters of group normalization on a GPU, from those of images. */
#include "ops/group_norm/group_norm.h"
#include "ops/norm/norm.cuh"

enum { CHANNELS = 4, JOIN_THREADS = 512 };

/* A block has a few channels, and many threads for each, which share the sums. */
template <rg_dtype T>
static __global__ void __launch_bounds__(JOIN_THREADS)
    join_images(const __grid_constant__ rg_group_norm_join_args k)
{
    __shared__ double shared[JOIN_THREADS / 32 * CHANNELS];
    const int64_t c = (int64_t)blockIdx.x * CHANNELS + threadIdx.x % CHANNELS;
    const bool inside = c < k.channels;
    const int64_t count = inside ? k.count : 0;
    double sum[1] = { 0 };
#pragma unroll 8
    for (int64_t i = threadIdx.x / CHANNELS; i < count; i += JOIN_THREADS / CHANNELS)
        sum[0] += (double)((const real<T> *)k.from)[i * k.channels + c];
    reduce_down<1>(sum, CHANNELS, shared, false);
    if (!inside || threadIdx.x >= CHANNELS)
        return;
    const double old = k.add ? load_any(k.to, c * k.step, k.dtype) : 0;
    store_any(k.to, c * k.step, k.dtype, k.add ? old + sum[0] : sum[0]);
}

template <rg_dtype T> static void join(const void *args, const rg_cuda_target *target)
{
    const rg_group_norm_join_args *k = (const rg_group_norm_join_args *)args;
    launch(join_images<T>, ceil_div(k->channels, CHANNELS), JOIN_THREADS, 0, target, *k);
}

/* ---- table ---- */

static const rg_cuda_row kernel_rows[] = {
    RG_CUDA_ROW(RG_GROUP_NORM_JOIN, join),
};
RG_CUDA_TABLE(group_norm, kernel_rows);
