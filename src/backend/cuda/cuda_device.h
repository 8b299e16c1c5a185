/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* A GPU of the CUDA backend, and errors of CUDA as statuses. */
#ifndef RG_BACKEND_CUDA_CUDA_DEVICE_H
#define RG_BACKEND_CUDA_CUDA_DEVICE_H

#include "backend/backend.h"
#include "backend/cuda/target.h"

#include <pthread.h>

typedef struct rg_cuda_device {
    _Atomic int32_t refs; /* the opening, and every queue */
    rg_allocator allocator;
    int32_t index;
    rg_cuda_target target; /* without a stream */
    char isa[16], text[160];
    cudaMemPool_t pool;
    cudaStream_t memory; /* orders allocations; nothing else is put there */
    cudaStream_t copies; /* of the host's own */
    pthread_mutex_t copying;
} rg_cuda_device;

/* An error of CUDA as a status, and with a sentence about `what`; success is RG_OK. */
rg_status rg_cuda_status(cudaError_t error);
rg_status rg_cuda_pass(cudaError_t error, const char *what);
#define RG_TRY_CUDA(call, what) RG_TRY(rg_cuda_pass(call, what))

/* Launches report a failure through CUDA's last error: clears what the caller has left unread. */
void rg_cuda_forget_error(void);

/* Makes the device the thread's current one; leave with what is returned. */
int rg_cuda_enter(const rg_cuda_device *device);
void rg_cuda_leave(const rg_cuda_device *device, int before);

/* Functions of rg_backend; a context is an rg_cuda_device. */
int32_t rg_cuda_count(const char **reason);
rg_status rg_cuda_open(int32_t index, const rg_device_options *options,
                       const rg_allocator *allocator, rg_choices *choices, void **context);
void rg_cuda_close(void *context);

#endif
