/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What follows and precedes the losses on a GPU: sums of their parts, counts of weights, the
 * initial gradient. */
#include "ops/loss/loss.cuh"

/* ---- weights that are not 0 ---- */

template <rg_dtype T>
static __global__ void __launch_bounds__(LOSS_THREADS)
    count_weights(const __grid_constant__ rg_loss_args k)
{
    __shared__ double partial[32];
    const loss_part p = find_part(k);
    int count = 0;
    for (int j = (int)threadIdx.x; j < p.count; j += LOSS_THREADS) {
        const int64_t i = p.first + j;
        bool counts = k.numbers.weight != 0;
        if (k.has_weights)
            counts &= load<T>(k.weights, view_offset(k.views[RG_LOSS_W], i)) != 0;
        if (k.has_ignored)
            counts &= label_at(k, i) != k.ignored;
        count += counts;
    }
    const double total = reduce((double)count, LOSS_THREADS, partial, false);
    if (threadIdx.x == 0)
        k.partial[blockIdx.x] = total;
}

template <rg_dtype T> static void loss_count(const void *args, const rg_cuda_target *target)
{
    const rg_loss_args k = *(const rg_loss_args *)args;
    launch(count_weights<T>, k.groups * k.parts, LOSS_THREADS, 0, target, k);
}

/* ---- sums of parts ---- */

template <rg_dtype T>
static __global__ void __launch_bounds__(1024) finish(const __grid_constant__ rg_loss_finish_args k)
{
    __shared__ double partial[32];
    const int64_t group = blockIdx.x;
    const double *from = k.partial + group * k.parts;
    double sum = 0;
#pragma unroll 16
    for (int64_t i = threadIdx.x; i < k.parts; i += blockDim.x)
        sum += from[i];
    sum = reduce(sum, (int)blockDim.x, partial, false);
    if (threadIdx.x != 0)
        return;
    const int64_t to = view_offset(k.view, group);
    sum = (sum + k.bias) / k.divisor;
    if (k.has_counts)
        sum = k.counts[group] > 0 ? sum / k.counts[group] : 0;
    if (k.makes_counts)
        ((double *)k.loss)[to] = sum;
    else
        store<T>(k.loss, to, (real<T>)sum);
}

template <rg_dtype T> static void loss_finish(const void *args, const rg_cuda_target *target)
{
    const rg_loss_finish_args k = *(const rg_loss_finish_args *)args;
    if (k.gpu_is_done)
        return;
    launch(finish<T>, k.groups, power_of_two(k.parts, 32, 1024), 0, target, k);
}

/* ---- the initial gradient ---- */

template <rg_dtype T>
static __global__ void __launch_bounds__(LOSS_THREADS)
    ones(const __grid_constant__ rg_loss_ones_args k)
{
    const int64_t count = k.sweep.outer.count * k.sweep.length;
    const int64_t step = (int64_t)gridDim.x * LOSS_THREADS;
    for (int64_t i = (int64_t)blockIdx.x * LOSS_THREADS + threadIdx.x; i < count; i += step) {
        const int64_t row = divide(i, k.sweep.length), j = i - row * k.sweep.length;
        store<T>(k.y, walk_offset(k.sweep.outer, 0, row) + j * k.sweep.step[0], 1);
    }
}

template <rg_dtype T> static void loss_ones(const void *args, const rg_cuda_target *target)
{
    const rg_loss_ones_args k = *(const rg_loss_ones_args *)args;
    const int64_t blocks = ceil_div(k.sweep.outer.count * k.sweep.length, LOSS_THREADS);
    const int64_t most = 16 * target->multiprocessors;
    launch(ones<T>, blocks < most ? blocks : most, LOSS_THREADS, 0, target, k);
}

/* ---- table ---- */

static const rg_cuda_row kernel_rows[] = {
    RG_CUDA_ROW(RG_LOSS_COUNT, loss_count),
    RG_CUDA_ROW(RG_LOSS_FINISH, loss_finish),
    RG_CUDA_ROW(RG_LOSS_ONES, loss_ones),
};
RG_CUDA_TABLE(loss, kernel_rows);
