/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Memory of a GPU, from a pool, and copies between it and the host. */
#ifndef RG_BACKEND_CUDA_CUDA_MEMORY_H
#define RG_BACKEND_CUDA_CUDA_MEMORY_H

#include "backend/cuda/cuda_device.h"

/* Functions of rg_backend; a context is an rg_cuda_device. */
rg_status rg_cuda_allocate(void *context, size_t size, void **pointer);
void rg_cuda_release(void *context, void *pointer, size_t size);
rg_status rg_cuda_host_allocate(void *context, size_t size, void **pointer);
void rg_cuda_host_release(void *context, void *pointer);
rg_status rg_cuda_check_pointer(void *context, const void *pointer);
rg_status rg_cuda_copy(void *context, const rg_copy_args *args);

/* Puts a copy into the stream. Memory of the host that is not pinned is read or written before
 * this returns, in the order of the stream. */
cudaError_t rg_cuda_put_copy(const rg_copy_args *args, cudaStream_t stream);

#endif
