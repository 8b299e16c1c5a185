/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The functions of cuDNN, opened at run time, and its descriptors. */
#ifndef RG_BACKEND_CUDA_CUDNN_LIBRARY_H
#define RG_BACKEND_CUDA_CUDNN_LIBRARY_H

#include <cudnn.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RG_CUDNN_FUNCTIONS(F)    \
    F(Create);                   \
    F(Destroy);                  \
    F(SetStream);                \
    F(BackendCreateDescriptor);  \
    F(BackendDestroyDescriptor); \
    F(BackendSetAttribute);      \
    F(BackendGetAttribute);      \
    F(BackendFinalize);          \
    F(BackendExecute)

typedef struct rg_cudnn_functions {
#define F(name) __typeof__(cudnn##name) *name
    RG_CUDNN_FUNCTIONS(F);
#undef F
} rg_cudnn_functions;

/* Filled by the first call of rg_cudnn_load, which says whether cuDNN is there. */
extern rg_cudnn_functions rg_cudnn_call;
bool rg_cudnn_load(void);

typedef cudnnBackendDescriptor_t rg_cudnn_descriptor;

/* NULL where it cannot be made, and NULL may be dropped. */
rg_cudnn_descriptor rg_cudnn_descriptor_make(cudnnBackendDescriptorType_t type);
void rg_cudnn_descriptor_drop(rg_cudnn_descriptor it);

/* False where cuDNN refuses, or where there is no descriptor. */
bool rg_cudnn_descriptor_set(rg_cudnn_descriptor it, cudnnBackendAttributeName_t name,
                             cudnnBackendAttributeType_t type, int64_t count, const void *values);
bool rg_cudnn_descriptor_finish(rg_cudnn_descriptor it);

#ifdef __cplusplus
}
#endif

#endif
