/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Launches of pooling with square windows on a GPU where tensors are aligned, by kind and dtype.
 * They return false, and launch nothing, where the shape does not suit. */
#ifndef RG_OPS_POOL_SQUARE_CUH
#define RG_OPS_POOL_SQUARE_CUH

#include "ops/pool/pool_parts.cuh"

typedef bool rg_pool_square_function(const forward_args &k, const rg_cuda_target *target);
typedef bool rg_pool_cells_function(const rg_pool_gradient_args *k, const rg_cuda_target *target);
extern "C" {
extern rg_pool_square_function *const rg_pool_square[L2 + 1][RG_CUDA_DTYPES];

/* The gradient of max and average. */
extern rg_pool_cells_function *const rg_pool_cells[AVERAGE + 1][RG_CUDA_DTYPES];
}

#endif
