/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Devices of the CUDA backend: found at run time, opened, closed. */
#include "backend/cuda/cuda_device.h"
#include "backend/cuda/cublaslt.h"
#include "backend/cuda/cudnn.h"
#include "backend/cuda/strided_copy.h"

#include <stdio.h>

/* ---- errors ---- */

rg_status rg_cuda_status(cudaError_t error)
{
    switch (error) {
    case cudaSuccess:
        return RG_OK;
    case cudaErrorMemoryAllocation:
        return RG_OUT_OF_MEMORY;
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorInvalidDevice:
    case cudaErrorDevicesUnavailable:
    case cudaErrorSystemDriverMismatch:
        return RG_NO_DEVICE;
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorNotSupported:
    case cudaErrorCallRequiresNewerDriver:
        return RG_UNSUPPORTED;
    default:
        return RG_KERNEL_FAULT;
    }
}

rg_status rg_cuda_pass(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return RG_OK;
    rg_cuda_forget_error(); /* so that a later launch is not blamed for it */
    return rg_fail(rg_cuda_status(error), "cuda: %s: %s", what, cudaGetErrorString(error));
}

void rg_cuda_forget_error(void)
{
    (void)cudaGetLastError();
}

/* ---- devices ---- */

int32_t rg_cuda_count(const char **reason)
{
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess)
        rg_cuda_forget_error();
    if (error == cudaErrorInsufficientDriver)
        *reason = "this machine has no NVIDIA driver, or the driver is too old";
    else
        *reason = error != cudaSuccess ? cudaGetErrorString(error) : "this machine has no GPU";
    return error == cudaSuccess ? count : 0;
}

int rg_cuda_enter(const rg_cuda_device *device)
{
    int before = -1;
    if (cudaGetDevice(&before) != cudaSuccess)
        before = -1;
    if (before != device->index)
        (void)cudaSetDevice(device->index);
    return before;
}

void rg_cuda_leave(const rg_cuda_device *device, int before)
{
    if (before >= 0 && before != device->index)
        (void)cudaSetDevice(before);
}

/* Bytes of a block's shared memory that are left to what kernels declare for themselves. */
enum { STATIC_SHARED_BYTES = 1024 };

static rg_status read_properties(rg_cuda_device *device)
{
    struct cudaDeviceProp properties;
    int driver = 0, pools = 0;
    RG_TRY_CUDA(cudaGetDeviceProperties(&properties, device->index), "properties of the device");
    RG_TRY_CUDA(cudaDriverGetVersion(&driver), "version of the driver");
    RG_TRY_CUDA(cudaDeviceGetAttribute(&pools, cudaDevAttrMemoryPoolsSupported, device->index),
                "memory pools");
    RG_CHECK(pools, RG_UNSUPPORTED, "cuda: %s does not support memory pools", properties.name);
    device->target.multiprocessors = properties.multiProcessorCount;
    device->target.shared = (int32_t)properties.sharedMemPerBlockOptin - STATIC_SHARED_BYTES;
    snprintf(device->isa, sizeof device->isa, "sm_%d%d", properties.major, properties.minor);
    snprintf(device->text, sizeof device->text,
             "%.80s, %.1f GiB, %d multiprocessors, %s, driver for CUDA %d.%d", properties.name,
             (double)properties.totalGlobalMem / (1 << 30), properties.multiProcessorCount,
             device->isa, driver / 1000, driver % 1000 / 10);
    return RG_OK;
}

static rg_status set_up(rg_cuda_device *device)
{
    RG_TRY_CUDA(cudaSetDevice(device->index), "the device");
    RG_TRY(read_properties(device));
    RG_CHECK(rg_cuda_has_kernels(), RG_UNSUPPORTED,
             "cuda: this build has no kernels for %s; it was built for other GPUs", device->isa);
    const struct cudaMemPoolProps properties = {
        .allocType = cudaMemAllocationTypePinned,
        .location = { .type = cudaMemLocationTypeDevice, .id = device->index },
    };
    RG_TRY_CUDA(cudaMemPoolCreate(&device->pool, &properties), "a memory pool");
    uint64_t keep = UINT64_MAX; /* what is released serves the next allocation */
    RG_TRY_CUDA(cudaMemPoolSetAttribute(device->pool, cudaMemPoolAttrReleaseThreshold, &keep),
                "the memory pool");
    RG_TRY_CUDA(cudaStreamCreateWithFlags(&device->memory, cudaStreamNonBlocking), "a stream");
    RG_TRY_CUDA(cudaStreamCreateWithFlags(&device->copies, cudaStreamNonBlocking), "a stream");
    return RG_OK;
}

void rg_cuda_close(void *context)
{
    rg_cuda_device *device = context;
    if (--device->refs > 0)
        return;
    const int before = rg_cuda_enter(device);
    rg_cudnn_destroy(device->target.cudnn);
    rg_cublaslt_destroy(device->target.cublaslt);
    if (device->copies != NULL)
        (void)cudaStreamDestroy(device->copies);
    if (device->memory != NULL) {
        (void)cudaStreamSynchronize(device->memory);
        (void)cudaStreamDestroy(device->memory);
    }
    if (device->pool != NULL)
        (void)cudaMemPoolDestroy(device->pool);
    rg_cuda_forget_error();
    rg_cuda_leave(device, before);
    pthread_mutex_destroy(&device->copying);
    const rg_allocator allocator = device->allocator;
    rg_release(&allocator, device, sizeof *device);
}

rg_status rg_cuda_open(int32_t index, const rg_device_options *options,
                       const rg_allocator *allocator, rg_choices *choices, void **context)
{
    RG_CHECK(options->threads == 0, RG_INVALID_ARGUMENT,
             "rg_device_create: the option threads applies to the CPU only, not to a GPU");
    RG_CHECK(options->isa == NULL, RG_INVALID_ARGUMENT,
             "rg_device_create: an instruction set can be chosen for the CPU only, not for a GPU");
    void *memory;
    RG_TRY(rg_allocate_zero(allocator, sizeof(rg_cuda_device), &memory));
    rg_cuda_device *device = memory;
    *device = (rg_cuda_device){ .refs = 1, .allocator = *allocator, .index = index };
    device->target.tf32 = options->tf32;
    device->target.choices = choices;
    device->target.cudnn = rg_cudnn_create(&device->allocator, options->tf32);
    device->target.cublaslt = rg_cublaslt_create(&device->allocator, options->tf32);
    pthread_mutex_init(&device->copying, NULL);
    const int before = rg_cuda_enter(device);
    const rg_status status = set_up(device);
    rg_cuda_leave(device, before);
    if (status != RG_OK) {
        rg_cuda_close(device);
        return status;
    }
    *context = device;
    return RG_OK;
}
