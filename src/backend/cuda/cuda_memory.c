/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Memory of a GPU and copies. */
#include "backend/cuda/cuda_memory.h"
#include "backend/cuda/strided_copy.h"

/* ---- memory ---- */

/* Allocates in the order of the stream `memory`. Nothing runs there, so the memory can be used at
 * once, on any stream. */
static cudaError_t take(const rg_cuda_device *device, size_t size, void **pointer)
{
    cudaError_t error = cudaMallocFromPoolAsync(pointer, size, device->pool, device->memory);
    if (error != cudaSuccess)
        return error;
    error = cudaStreamSynchronize(device->memory);
    if (error != cudaSuccess)
        (void)cudaFreeAsync(*pointer, device->memory);
    return error;
}

rg_status rg_cuda_allocate(void *context, size_t size, void **pointer)
{
    const rg_cuda_device *device = context;
    const int before = rg_cuda_enter(device);
    cudaError_t error = take(device, size, pointer);
    if (error == cudaErrorMemoryAllocation) { /* memory that the pool keeps may be the reason */
        rg_cuda_forget_error();
        (void)cudaMemPoolTrimTo(device->pool, 0);
        error = take(device, size, pointer);
    }
    rg_cuda_leave(device, before);
    if (error != cudaErrorMemoryAllocation)
        return rg_cuda_pass(error, "allocation");
    rg_cuda_forget_error();
    return rg_fail(RG_OUT_OF_MEMORY, "out of memory: cuda:%d cannot allocate %zu bytes",
                   device->index, size);
}

/* Nothing that uses the memory is running any more. */
void rg_cuda_release(void *context, void *pointer, size_t size)
{
    (void)size;
    const rg_cuda_device *device = context;
    const int before = rg_cuda_enter(device);
    if (cudaFreeAsync(pointer, device->memory) != cudaSuccess)
        rg_cuda_forget_error(); /* only after a fault that ended the device */
    rg_cuda_leave(device, before);
}

rg_status rg_cuda_host_allocate(void *context, size_t size, void **pointer)
{
    const rg_cuda_device *device = context;
    const int before = rg_cuda_enter(device);
    const cudaError_t error = cudaHostAlloc(pointer, size, cudaHostAllocPortable);
    rg_cuda_leave(device, before);
    return rg_cuda_pass(error, "allocation of host memory");
}

void rg_cuda_host_release(void *context, void *pointer)
{
    const rg_cuda_device *device = context;
    const int before = rg_cuda_enter(device);
    (void)cudaFreeHost(pointer);
    rg_cuda_forget_error();
    rg_cuda_leave(device, before);
}

rg_status rg_cuda_check_pointer(void *context, const void *pointer)
{
    const rg_cuda_device *device = context;
    struct cudaPointerAttributes attributes;
    RG_TRY_CUDA(cudaPointerGetAttributes(&attributes, pointer), "kind of the memory");
    RG_CHECK(attributes.type != cudaMemoryTypeUnregistered, RG_INVALID_ARGUMENT,
             "rg_tensor_wrap: data is host memory that cuda:%d cannot access", device->index);
    RG_CHECK(attributes.type != cudaMemoryTypeDevice || attributes.device == device->index,
             RG_INVALID_ARGUMENT, "rg_tensor_wrap: data is memory of cuda:%d, not of cuda:%d",
             attributes.device, device->index);
    return RG_OK;
}

/* ---- copies ---- */

static size_t copy_bytes(const rg_copy_args *args)
{
    size_t bytes = (size_t)args->element;
    for (int32_t d = 0; d < args->rank; d++)
        bytes *= (size_t)args->dims[d];
    return bytes;
}

cudaError_t rg_cuda_put_copy(const rg_copy_args *args, cudaStream_t stream)
{
    const bool staged = args->staging != NULL;
    void *dense = staged ? args->staging : args->device;
    const bool beyond = args->host != dense;
    const size_t bytes = copy_bytes(args);
    cudaError_t error = cudaSuccess;
    if (staged && args->to_host)
        rg_cuda_strided_copy(args, stream);
    if (args->to_host && beyond)
        error = cudaMemcpyAsync(args->host, dense, bytes, cudaMemcpyDefault, stream);
    else if (beyond)
        error = cudaMemcpyAsync(dense, args->host, bytes, cudaMemcpyDefault, stream);
    if (staged && !args->to_host && error == cudaSuccess)
        rg_cuda_strided_copy(args, stream);
    return error == cudaSuccess ? cudaPeekAtLastError() : error;
}

static rg_status copy_now(rg_cuda_device *device, rg_copy_args *args)
{
    const size_t bytes = copy_bytes(args);
    if (!rg_copy_is_dense(args))
        RG_TRY(rg_cuda_allocate(device, bytes, &args->staging));
    pthread_mutex_lock(&device->copying); /* the stream is shared */
    rg_cuda_forget_error();
    cudaError_t error = rg_cuda_put_copy(args, device->copies);
    const cudaError_t end =
        cudaStreamSynchronize(device->copies); /* also after an error: part of the copy may run */
    error = error == cudaSuccess ? end : error;
    pthread_mutex_unlock(&device->copying);
    if (args->staging != NULL)
        rg_cuda_release(device, args->staging, bytes);
    return rg_cuda_pass(error, "copy");
}

rg_status rg_cuda_copy(void *context, const rg_copy_args *args)
{
    rg_cuda_device *device = context;
    rg_copy_args own = *args;
    if (copy_bytes(args) == 0)
        return RG_OK;
    const int before = rg_cuda_enter(device);
    const rg_status status = copy_now(device, &own);
    rg_cuda_leave(device, before);
    return status;
}
