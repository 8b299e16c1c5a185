/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Where a kernel is launched. Valid C and valid CUDA. */
#ifndef RG_BACKEND_CUDA_PLACE_H
#define RG_BACKEND_CUDA_PLACE_H

#include <cuda_runtime_api.h>
#include <stdint.h>

typedef struct rg_cuda_place {
    cudaStream_t stream;
    int32_t multiprocessors;
    int32_t shared; /* bytes of dynamic shared memory that any kernel can have */
} rg_cuda_place;

#endif
