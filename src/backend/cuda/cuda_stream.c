/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Streams for libraries that are called from outside the backend: nothing else is put there, and
 * the calling thread's current device is left as it was. */
#include "backend/streams.h"
#include "backend/cuda/cuda_device.h"

#include <string.h>

static int enter(void *context)
{
    return rg_cuda_enter(context);
}

static void leave(void *context, int before)
{
    rg_cuda_leave(context, before);
}

static rg_status identify(void *context, char identity[RG_DEVICE_IDENTITY])
{
    const rg_cuda_device *device = context;
    struct cudaDeviceProp properties;
    RG_TRY_CUDA(cudaGetDeviceProperties(&properties, device->index), "the device");
    _Static_assert(sizeof properties.uuid == RG_DEVICE_IDENTITY, "a UUID fits");
    memcpy(identity, &properties.uuid, sizeof properties.uuid);
    return RG_OK;
}

static rg_status stream_open(void *context, void **stream)
{
    cudaStream_t made = NULL;
    const int before = enter(context);
    const cudaError_t error = cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking);
    leave(context, before);
    *stream = made;
    return rg_cuda_pass(error, "a stream");
}

static void stream_close(void *context, void *stream)
{
    const int before = enter(context);
    (void)cudaStreamDestroy(stream);
    rg_cuda_forget_error();
    leave(context, before);
}

static rg_status stream_test(void *context, void *stream, bool *done)
{
    (void)context;
    const cudaError_t error = cudaStreamQuery(stream);
    *done = error != cudaErrorNotReady;
    if (!*done) {
        rg_cuda_forget_error();
        return RG_OK;
    }
    return rg_cuda_pass(error, "a stream");
}

const rg_backend_streams rg_cuda_streams = { identify, stream_open, stream_close,
                                             enter,    leave,       stream_test };
