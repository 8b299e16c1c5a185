/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Launches of pooling with square windows on a GPU, forward and backward, where tensors are
 * aligned. False, and nothing is launched, where the shape does not suit. */
#ifndef RG_OPS_POOL_SQUARE_CUH
#define RG_OPS_POOL_SQUARE_CUH

#include "ops/pool/pool_parts.cuh"

template <rg_dtype T, pooling KIND>
bool rg_pool_launch_square(const forward_args &k, const rg_cuda_place *place);
template <rg_dtype T, pooling KIND> /* max, average */
bool rg_pool_launch_cells(const rg_pool_gradient_args *k, const rg_cuda_place *place);

#endif
