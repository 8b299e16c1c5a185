/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Local response normalisation on a GPU where channels are whole vectors and windows narrow. */
#ifndef RG_OPS_LRN_VECTORS_CUH
#define RG_OPS_LRN_VECTORS_CUH

#include "backend/cuda/kernel.cuh"
#include "ops/lrn/lrn.h"

/* Launch nothing and return false where the shape does not suit. */
template <rg_dtype T> bool rg_lrn_forward_vectors(const rg_lrn_args *a, const rg_cuda_place *place);
template <rg_dtype T>
bool rg_lrn_gradient_vectors(const rg_lrn_gradient_args *a, const rg_cuda_place *place);

#endif
