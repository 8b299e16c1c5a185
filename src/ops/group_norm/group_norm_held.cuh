/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Group normalisation on a GPU where what is normalised together is held in shared memory between
 * its sums and its results: memory sees one pass. Whether a shape is held follows from its size, on
 * any GPU with enough shared memory. All return false, and launch nothing, where it is not. */
#ifndef RG_OPS_GROUP_NORM_HELD_CUH
#define RG_OPS_GROUP_NORM_HELD_CUH

#include "backend/cuda/kernel.cuh"
#include "ops/group_norm/group_norm.h"

template <rg_dtype T>
bool rg_group_norm_held_rows(const rg_group_norm_args *k, const rg_cuda_place *place);
template <rg_dtype T>
bool rg_group_norm_held_rows_gradient(const rg_group_norm_gradient_args *k,
                                      const rg_cuda_place *place);

template <rg_dtype T>
bool rg_group_norm_held_columns(const rg_group_norm_args *k, const rg_cuda_place *place);
template <rg_dtype T>
bool rg_group_norm_held_columns_gradient(const rg_group_norm_gradient_args *k,
                                         const rg_cuda_place *place);

/* Statistics of x by the kernel that forward uses, so that a gradient without a state has the bits
 * of one with it; x is the first tensor of x_shape. */
template <rg_dtype T>
bool rg_group_norm_held_moments(const rg_group_norm_gradient_args *k, const rg_channels *x_shape,
                                const rg_cuda_place *place);

#endif
