/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Copies of strided tensors on a GPU, for the kernel tables of ops. */
#ifndef RG_BACKEND_CUDA_MOVE_CUH
#define RG_BACKEND_CUDA_MOVE_CUH

#include "backend/cuda/kernel.cuh"
#include "core/move.h"

template <rg_dtype T> void rg_cuda_move(const void *args, const rg_cuda_place *place);
template <rg_dtype T> void rg_cuda_spread(const void *args, const rg_cuda_place *place);

#endif
