/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Copies of strided tensors on a GPU, for the kernel tables of ops. */
#ifndef RG_OPS_MOVE_MOVE_CUH
#define RG_OPS_MOVE_MOVE_CUH

#include "backend/cuda/kernel.cuh"
#include "ops/move/move.h"

extern "C" {
extern const rg_cuda_function rg_cuda_move[RG_CUDA_DTYPES], rg_cuda_scatter[RG_CUDA_DTYPES];
}

template <rg_dtype T> static void move_units(const void *args, const rg_cuda_target *target)
{
    rg_cuda_move[T](args, target);
}

template <rg_dtype T> static void scatter_units(const void *args, const rg_cuda_target *target)
{
    rg_cuda_scatter[T](args, target);
}

#endif
