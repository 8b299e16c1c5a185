/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Plans of cuDNN: how one operation is computed. Where cuDNN is not installed, or does not support
 * an operation, the answer is no, and the op's own kernels run. In builds with cuDNN's headers;
 * valid C and valid CUDA.
 *
 * Only engines that give the same bits on every run are taken, that keep sums in f32 (f64 for f64),
 * that round f32 no further unless the device allows it, and that multiply what arithmetic says: no
 * transforms (Winograd, FFT), which spread an infinity or a NaN over their tile. */
#ifndef RG_BACKEND_CUDA_CUDNN_PLAN_H
#define RG_BACKEND_CUDA_CUDNN_PLAN_H

#include "backend/cuda/cudnn.h"
#include "backend/cuda/cudnn_library.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whatever a plan is made of, in the order it was made. */
enum { RG_CUDNN_MAX_DESCRIPTORS = 12 };
typedef struct rg_cudnn_plan {
    rg_cudnn_descriptor descriptors[RG_CUDNN_MAX_DESCRIPTORS];
    int32_t count;
    rg_cudnn_descriptor execution;
    size_t workspace;
} rg_cudnn_plan;

/* The numbers that distinguish an op's plans; those that are not used are 0. */
typedef struct rg_cudnn_key {
    int64_t numbers[18];
} rg_cudnn_key;

/* What an op asks for. */
typedef struct rg_cudnn_request {
    const rg_cudnn_key *key;
    /* Makes the operation, of descriptors that join the plan; NULL where cuDNN refuses. */
    rg_cudnn_descriptor (*add_operation)(rg_cudnn_plan *plan, const rg_cudnn_key *key);
    rg_dtype dtype;
    size_t max_workspace; /* bytes; a plan that needs less follows, if a slower one */
    int32_t mode_count;
    cudnnBackendHeurMode_t modes[2]; /* heuristics that name engines, in this order */
} rg_cudnn_request;

/* Whether cuDNN does it, and with how many bytes of workspace. Makes and keeps the plan: call it
 * when work is recorded. */
bool rg_cudnn_prepare(const rg_cuda_target *target, const rg_cudnn_request *request,
                      size_t *workspace);

/* Puts it into the target's stream. Pointers, in the order of `ids`, are aligned to
 * RG_CUDNN_ALIGN_BYTES; `bytes` are those of the workspace. False where cuDNN refuses or needs more
 * of them, and nothing is in the stream. */
enum { RG_CUDNN_ALIGN_BYTES = 16 };
bool rg_cudnn_execute(const rg_cuda_target *target, const rg_cudnn_request *request,
                      const int64_t ids[3], void *const pointers[3], void *workspace, size_t bytes);

/* A plan; NULL where cuDNN has none. */
rg_cudnn_plan *rg_cudnn_plan_make(const rg_cudnn_request *request, cudnnHandle_t handle, bool tf32,
                                  const rg_allocator *allocator);
void rg_cudnn_plan_release(rg_cudnn_plan *plan, const rg_allocator *allocator);

/* ---- for add_operation ---- */

/* A descriptor that the plan keeps; NULL where it cannot be made. */
rg_cudnn_descriptor rg_cudnn_plan_add(rg_cudnn_plan *plan, cudnnBackendDescriptorType_t type);

/* A dense image (n, h, w, c) in channels-last order. */
rg_cudnn_descriptor rg_cudnn_plan_add_image(rg_cudnn_plan *plan, rg_dtype dtype, int64_t id,
                                            int64_t images, int64_t channels,
                                            const int64_t size[2]);

bool rg_cudnn_set_numbers(rg_cudnn_descriptor it, cudnnBackendAttributeName_t name, int64_t count,
                          const int64_t *values);
bool rg_cudnn_set_descriptor(rg_cudnn_descriptor it, cudnnBackendAttributeName_t name,
                             rg_cudnn_descriptor value);

#ifdef __cplusplus
}
#endif

#endif
