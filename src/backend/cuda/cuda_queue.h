/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Queues of the CUDA backend, which are streams. */
#ifndef RG_BACKEND_CUDA_CUDA_QUEUE_H
#define RG_BACKEND_CUDA_CUDA_QUEUE_H

#include "backend/cuda/cuda_device.h"

/* Functions of rg_backend. */
rg_status rg_cuda_queue_open(void *context, void **queue);
rg_status rg_cuda_queue_wrap(void *context, void *stream, void **queue);
void rg_cuda_queue_close(void *queue);
void rg_cuda_submit(void *queue, rg_backend_submission *submission);
void rg_cuda_wake(void *queue);
rg_status rg_cuda_wait(void *queue, rg_backend_submission *submission,
                       bool (*is_done)(rg_backend_submission *submission));

/* Puts the entries of a submission into a stream, up to the first that fails. */
cudaError_t rg_cuda_put_entries(const rg_cuda_device *device, cudaStream_t stream,
                                const rg_backend_submission *submission);

#endif
