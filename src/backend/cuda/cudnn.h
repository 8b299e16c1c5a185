/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Convolutions by cuDNN, which is opened when the first one is recorded. Where it is not installed,
 * or has nothing fit for a shape, the answer is no, and the op's own kernels run. Valid C and valid
 * CUDA.
 *
 * Only engines that give the same bits on every run are taken, that keep sums in f32 (f64 for f64),
 * that round f32 no further unless the device allows it, and that multiply what arithmetic says: no
 * transforms (Winograd, FFT), which spread an infinity or a NaN over their tile. */
#ifndef RG_BACKEND_CUDA_CUDNN_H
#define RG_BACKEND_CUDA_CUDNN_H

#include "backend/cuda/place.h"

#include <retrograde/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum rg_cudnn_direction {
    RG_CUDNN_FORWARD, /* y from x and w */
    RG_CUDNN_DATA,    /* dx from dy and w */
    RG_CUDNN_WEIGHTS  /* dw from x and dy */
} rg_cudnn_direction;

/* One convolution. Tensors are dense: x (n, h, w, channels), y (n, oh, ow, outputs), weights
 * (outputs, kh, kw, channels / groups). All members are alike, so that it has no padding bytes. */
typedef struct rg_cudnn_conv {
    int64_t direction; /* rg_cudnn_direction */
    int64_t dtype;     /* rg_dtype, f32, f64, f16 or bf16 */
    int64_t images, channels, outputs, groups;
    int64_t size[2], result[2]; /* rows and columns of x and of y */
    int64_t window[2], stride[2], dilation[2], before[2];
} rg_cudnn_conv;

/* The library on one device; made empty, opened when first needed. NULL: no memory, or none in
 * this build. */
struct rg_cudnn *rg_cudnn_create(const rg_allocator *allocator, bool tf32);
void rg_cudnn_destroy(struct rg_cudnn *cudnn); /* nothing is running; NULL allowed */

/* Whether cuDNN does it, and with how many bytes of workspace. Makes and keeps the plan: call it
 * when work is recorded. */
bool rg_cudnn_conv_plan(const rg_cuda_place *place, const rg_cudnn_conv *conv, size_t *workspace);

/* Puts it into the place's stream. All pointers are aligned to RG_CUDNN_ALIGNMENT bytes; `bytes`
 * are those of the workspace. False where cuDNN refuses or needs more of them, and nothing is in
 * the stream. */
enum { RG_CUDNN_ALIGNMENT = 16 };
bool rg_cudnn_conv_run(const rg_cuda_place *place, const rg_cudnn_conv *conv, void *x, void *w,
                       void *y, void *workspace, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
