/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Copies between a strided tensor and dense memory, both on the GPU. */
#ifndef RG_BACKEND_CUDA_STRIDED_COPY_H
#define RG_BACKEND_CUDA_STRIDED_COPY_H

#include "backend/backend.h"
#include "backend/cuda/target.h"

#ifdef __cplusplus
extern "C" {
#endif

/* args->device to args->staging, or back where !args->to_host; launches on the stream. */
void rg_cuda_strided_copy(const rg_copy_args *args, cudaStream_t stream);

/* Whether this build has code for the current device. */
bool rg_cuda_has_kernels(void);

#ifdef __cplusplus
}
#endif

#endif
