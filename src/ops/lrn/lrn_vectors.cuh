/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Local response normalization on a GPU where channels are whole vectors and windows narrow. */
#ifndef RG_OPS_LRN_VECTORS_CUH
#define RG_OPS_LRN_VECTORS_CUH

#include "backend/cuda/kernel.cuh"
#include "ops/lrn/lrn.h"

/* Launches by dtype; they return false, and launch nothing, where the shape does not suit. */
typedef bool rg_lrn_forward_vectors_function(const rg_lrn_args *a, const rg_cuda_target *target);
typedef bool rg_lrn_gradient_vectors_function(const rg_lrn_gradient_args *a,
                                              const rg_cuda_target *target);
extern "C" {
extern rg_lrn_forward_vectors_function *const rg_lrn_forward_vectors[RG_CUDA_DTYPES];
extern rg_lrn_gradient_vectors_function *const rg_lrn_gradient_vectors[RG_CUDA_DTYPES];
}

#endif
