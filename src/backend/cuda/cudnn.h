/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* cuDNN on one device, which is opened when the first plan is asked for (cudnn_plan.h). Valid C and
 * valid CUDA. */
#ifndef RG_BACKEND_CUDA_CUDNN_H
#define RG_BACKEND_CUDA_CUDNN_H

#include "backend/cuda/target.h"

#include <retrograde/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* NULL: no memory, or no cuDNN in this build. */
struct rg_cudnn *rg_cudnn_create(const rg_allocator *allocator, bool tf32);
void rg_cudnn_destroy(struct rg_cudnn *cudnn); /* nothing is running; NULL allowed */

#ifdef __cplusplus
}
#endif

#endif
