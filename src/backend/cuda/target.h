/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Where a kernel is launched. Valid C and valid CUDA. */
#ifndef RG_BACKEND_CUDA_TARGET_H
#define RG_BACKEND_CUDA_TARGET_H

#include "backend/choices.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct rg_cuda_target {
    cudaStream_t stream;
    int32_t multiprocessors;
    int32_t shared;               /* bytes of dynamic shared memory that any kernel can have */
    bool tf32;                    /* f32 may be rounded to TF32 where it is multiplied */
    struct rg_cudnn *cudnn;       /* backend/cuda/cudnn.h; NULL: there is none */
    struct rg_cublaslt *cublaslt; /* backend/cuda/cublaslt.h; NULL: there is none */
    rg_choices *choices;          /* forced and noted strategies; NULL: none */
    size_t scratch; /* bytes that the launch has got: what was asked for when it was recorded */
} rg_cuda_target;

#endif
