/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Streams of a backend for libraries of the vendor that are called elsewhere, such as NCCL. */
#ifndef RG_BACKEND_STREAMS_H
#define RG_BACKEND_STREAMS_H

#include "backend/backend.h"

enum { RG_DEVICE_IDENTITY = 16 };

/* `context` is that of the device. */
typedef struct rg_backend_streams {
    /* Bytes that no other device of any machine has. */
    rg_status (*identify)(void *context, char identity[RG_DEVICE_IDENTITY]);
    rg_status (*open)(void *context, void **stream);
    void (*close)(void *context, void *stream);
    /* Makes the device the thread's current one; leave with what is returned. */
    int (*enter)(void *context);
    void (*leave)(void *context, int before);
    /* Whether all that was put into the stream has run. */
    rg_status (*test)(void *context, void *stream, bool *done);
} rg_backend_streams;

extern const rg_backend_streams rg_cuda_streams; /* where RG_HAVE_CUDA */

#endif
