/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Inside the peer cuDNN: its functions, and how a row becomes calls of them. */
#ifndef RG_CLI_PEER_CUDNN_H
#define RG_CLI_PEER_CUDNN_H

#include "backend/cuda/cublaslt.h"
#include "backend/cuda/cudnn.h"
#include "cli/bench_row.h"
#include "ops/conv/conv.h"

#include <cudnn.h>

#define RG_CUDNN_PEER_FUNCTIONS(F)                          \
    F(Create);                                              \
    F(Destroy);                                             \
    F(SetStream);                                           \
    F(GetErrorString);                                      \
    F(CreateTensorDescriptor);                              \
    F(DestroyTensorDescriptor);                             \
    F(SetTensor4dDescriptor);                               \
    F(CreateActivationDescriptor);                          \
    F(DestroyActivationDescriptor);                         \
    F(SetActivationDescriptor);                             \
    F(CreatePoolingDescriptor);                             \
    F(DestroyPoolingDescriptor);                            \
    F(SetPooling2dDescriptor);                              \
    F(GetPooling2dForwardOutputDim);                        \
    F(CreateDropoutDescriptor);                             \
    F(DestroyDropoutDescriptor);                            \
    F(SetDropoutDescriptor);                                \
    F(DropoutGetStatesSize);                                \
    F(DropoutGetReserveSpaceSize);                          \
    F(SoftmaxForward);                                      \
    F(SoftmaxBackward);                                     \
    F(ActivationForward);                                   \
    F(ActivationBackward);                                  \
    F(PoolingForward);                                      \
    F(PoolingBackward);                                     \
    F(DropoutForward);                                      \
    F(DropoutBackward);                                     \
    F(GetBatchNormalizationForwardTrainingExWorkspaceSize); \
    F(GetBatchNormalizationBackwardExWorkspaceSize);        \
    F(GetBatchNormalizationTrainingExReserveSpaceSize);     \
    F(BatchNormalizationForwardTrainingEx);                 \
    F(BatchNormalizationBackwardEx);                        \
    F(CreateLRNDescriptor);                                 \
    F(DestroyLRNDescriptor);                                \
    F(SetLRNDescriptor);                                    \
    F(LRNCrossChannelForward);                              \
    F(LRNCrossChannelBackward)

typedef struct rg_cudnn_functions {
#define F(name) __typeof__(cudnn##name) *name
    RG_CUDNN_PEER_FUNCTIONS(F);
#undef F
} rg_cudnn_functions;
extern rg_cudnn_functions rg_cudnn; /* filled when the peer is opened */

/* Tensors that the row does not have: x and y of a gradient; states and reserve of dropout; those
 * of batch normalization. */
enum {
    RG_CUDNN_X = 0,
    RG_CUDNN_Y = 1,
    RG_CUDNN_STATES = 0,
    RG_CUDNN_RESERVE = 1,
    RG_CUDNN_WORKSPACE = 2,
    RG_CUDNN_GAMMA,
    RG_CUDNN_BETA,
    RG_CUDNN_MEAN,
    RG_CUDNN_S,
    RG_CUDNN_DGAMMA,
    RG_CUDNN_DBETA,
    RG_CUDNN_SPARES
};

typedef struct rg_cudnn_job rg_cudnn_job;
struct rg_cudnn_job {
    cudnnStatus_t (*run)(const rg_cudnn_job *j);
    cudnnHandle_t handle;
    const rg_bench_row *row;
    cudnnTensorDescriptor_t tensor, result; /* x and dx; y and dy, where these are not alike */
    cudnnActivationDescriptor_t activation; /* each of one op, and NULL for others */
    cudnnPoolingDescriptor_t pooling;
    cudnnDropoutDescriptor_t dropout;
    cudnnLRNDescriptor_t lrn;
    cudnnTensorDescriptor_t channels; /* gamma and the like, in f32 */
    double epsilon;
    cudnnSoftmaxAlgorithm_t algorithm;
    cudnnSoftmaxMode_t mode;
    const void *one, *zero; /* results are not scaled, and not added */
    rg_tensor *spare[RG_CUDNN_SPARES];
    size_t reserve, workspace; /* bytes of these */

    /* Contractions: up to two calls of a library, by our own way to it. */
    cudaStream_t stream;
    struct rg_cudnn *dnn;
    struct rg_cublaslt *blas;
    int calls;
    rg_cudnn_conv conv[2];
    rg_product product[2];
    const rg_tensor *factors[2][3]; /* a, b, c of a product */
};

/* Turns a failure into a status with a sentence. */
rg_status rg_cudnn_check(const rg_cudnn_job *j, cudnnStatus_t status);

/* Fills in `run` and what it needs, by the op's name. */
rg_status rg_peer_cudnn_prepare(rg_cudnn_job *j);
rg_status rg_peer_cudnn_prepare_conv(rg_cudnn_job *j);
rg_status rg_peer_cudnn_prepare_dense(rg_cudnn_job *j);
rg_status rg_peer_cudnn_prepare_gram(rg_cudnn_job *j);

#endif
