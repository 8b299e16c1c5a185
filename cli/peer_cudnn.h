/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Inside the peer cuDNN: its functions, and how a row becomes calls of them. */
#ifndef RG_CLI_PEER_CUDNN_H
#define RG_CLI_PEER_CUDNN_H

#include "cli/bench_row.h"

#include <cudnn.h>

#define RG_CUDNN_FUNCTIONS(F)        \
    F(Create);                       \
    F(Destroy);                      \
    F(SetStream);                    \
    F(GetErrorString);               \
    F(CreateTensorDescriptor);       \
    F(DestroyTensorDescriptor);      \
    F(SetTensor4dDescriptor);        \
    F(CreateActivationDescriptor);   \
    F(DestroyActivationDescriptor);  \
    F(SetActivationDescriptor);      \
    F(CreatePoolingDescriptor);      \
    F(DestroyPoolingDescriptor);     \
    F(SetPooling2dDescriptor);       \
    F(GetPooling2dForwardOutputDim); \
    F(CreateDropoutDescriptor);      \
    F(DestroyDropoutDescriptor);     \
    F(SetDropoutDescriptor);         \
    F(DropoutGetStatesSize);         \
    F(DropoutGetReserveSpaceSize);   \
    F(SoftmaxForward);               \
    F(SoftmaxBackward);              \
    F(ActivationForward);            \
    F(ActivationBackward);           \
    F(PoolingForward);               \
    F(PoolingBackward);              \
    F(DropoutForward);               \
    F(DropoutBackward)

typedef struct rg_cudnn_functions {
#define F(name) __typeof__(cudnn##name) *name
    RG_CUDNN_FUNCTIONS(F);
#undef F
} rg_cudnn_functions;
extern rg_cudnn_functions rg_cudnn; /* filled when the peer is opened */

typedef struct rg_cudnn_job rg_cudnn_job;
struct rg_cudnn_job {
    cudnnStatus_t (*run)(const rg_cudnn_job *j);
    cudnnHandle_t handle;
    const rg_bench_row *row;
    cudnnTensorDescriptor_t tensor, result; /* x and dx; y and dy, where these are not alike */
    cudnnActivationDescriptor_t activation; /* each of one op, and NULL for others */
    cudnnPoolingDescriptor_t pooling;
    cudnnDropoutDescriptor_t dropout;
    cudnnSoftmaxAlgorithm_t algorithm;
    cudnnSoftmaxMode_t mode;
    const void *one, *zero; /* results are not scaled, and not added */
    rg_tensor *spare[2];    /* x and y of a gradient that the row has not; or states and reserve */
    size_t reserve;         /* bytes of the latter */
};

/* Passes a failure on, with a sentence. */
rg_status rg_cudnn_check(const rg_cudnn_job *j, cudnnStatus_t status);

/* Fills in `run` and what it needs, by the op's name. */
rg_status rg_cudnn_prepare(rg_cudnn_job *j);

#endif
