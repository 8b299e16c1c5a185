/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Plans of cuDNN: how one convolution is computed. */
#ifndef RG_BACKEND_CUDA_CUDNN_PLAN_H
#define RG_BACKEND_CUDA_CUDNN_PLAN_H

#include "backend/cuda/cudnn.h"
#include "backend/cuda/cudnn_library.h"

/* Whatever a plan is made of, in the order it was made. */
enum { RG_CUDNN_MOST_DESCRIPTORS = 12 };
typedef struct rg_cudnn_plan {
    rg_cudnn_descriptor descriptors[RG_CUDNN_MOST_DESCRIPTORS];
    int32_t count;
    rg_cudnn_descriptor execution;
    size_t workspace;
} rg_cudnn_plan;

/* Tensors by number, when a plan is executed. */
enum { RG_CUDNN_ID_X = 1, RG_CUDNN_ID_W, RG_CUDNN_ID_Y };

/* A plan for the convolution; NULL where cuDNN has none. */
rg_cudnn_plan *rg_cudnn_plan_make(const rg_cudnn_conv *conv, cudnnHandle_t handle, bool tf32,
                                  const rg_allocator *allocator);
void rg_cudnn_plan_release(rg_cudnn_plan *plan, const rg_allocator *allocator);

#endif
