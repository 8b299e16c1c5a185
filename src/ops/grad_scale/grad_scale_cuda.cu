/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Factors of a step on a GPU. */
#include "backend/cuda/kernel.cuh"
#include "ops/grad_scale/grad_scale.h"

enum { THREADS = 256 };

template <rg_dtype T>
static __global__ void __launch_bounds__(THREADS)
    scale_gradients(const __grid_constant__ rg_grad_scale_args k)
{
    __shared__ double partial[32];
    double total = 0;
    for (int64_t i = threadIdx.x; i < k.walk.count; i += THREADS)
        total += (double)load<T>(k.squares, walk_offset(k.walk, 0, i));
    total = reduce(total, THREADS, partial, false);
    if (threadIdx.x != 0)
        return;
    const double scale = k.scale != NULL ? (double)load<T>(k.scale, 0) : 1;
    const double largest = T == RG_F32 ? 0x1.fffffep127 : 0x1.fffffffffffffp1023;
    const rg_grad_scale_values v = rg_grad_scale_of(&k, total, scale, largest);
    store<T>(k.factor, 0, (real<T>)v.factor);
    store<T>(k.norm, 0, (real<T>)v.norm);
    if (k.new_scale != NULL)
        store<T>(k.new_scale, 0, (real<T>)v.scale);
    if (k.new_good != NULL)
        *k.new_good = v.good;
    if (k.new_step != NULL)
        *k.new_step = v.step;
}

template <rg_dtype T> static void grad_scale_forward(const void *args, const rg_cuda_target *target)
{
    launch(scale_gradients<T>, 1, THREADS, 0, target, *(const rg_grad_scale_args *)args);
}

static const rg_cuda_row kernel_rows[] = {
    { RG_GRAD_SCALE_FORWARD,
      { grad_scale_forward<RG_F32>, grad_scale_forward<RG_F64>, NULL, NULL } },
};
RG_CUDA_TABLE(grad_scale, kernel_rows);
