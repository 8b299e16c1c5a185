/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Convolutions by cuDNN: see backend/cuda/cudnn_plan.h. Valid C and valid CUDA. */
#ifndef RG_OPS_CONV_CUDNN_H
#define RG_OPS_CONV_CUDNN_H

#include "ops/conv/conv.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rg_cuda_target rg_cuda_target; /* backend/cuda/target.h */

/* One convolution. Tensors are dense: x (n, h, w, channels), y (n, oh, ow, outputs), weights
 * (outputs, kh, kw, channels / groups). All members are alike, so that it has no padding bytes. */
typedef struct rg_cudnn_conv {
    int64_t direction; /* RG_CONV_FORWARD, RG_CONV_DATA or RG_CONV_WEIGHTS */
    int64_t dtype;     /* rg_dtype, f32, f64, f16 or bf16 */
    int64_t images, channels, outputs, groups;
    int64_t size[2], result[2]; /* rows and columns of x and of y */
    int64_t window[2], stride[2], dilation[2], before[2];
} rg_cudnn_conv;

/* Whether cuDNN does it, and with how many bytes of workspace. Call it when work is recorded. */
bool rg_cudnn_conv_plan(const rg_cuda_target *target, const rg_cudnn_conv *conv, size_t *workspace);

/* Puts it into the target's stream. All pointers are aligned to 16 bytes; `bytes` are those of
 * the workspace. False where cuDNN refuses or needs more of them, and nothing is in the stream. */
bool rg_cudnn_conv_run(const rg_cuda_target *target, const rg_cudnn_conv *conv, void *x, void *w,
                       void *y, void *workspace, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
