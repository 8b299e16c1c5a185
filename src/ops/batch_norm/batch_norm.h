/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Batch normalization kernels and their args. Valid C and valid CUDA. */
#ifndef RG_OPS_BATCH_NORM_H
#define RG_OPS_BATCH_NORM_H

#include "ops/norm/norm.h"

#include <retrograde/batch_norm.h>

enum {
    RG_BATCH_NORM_PARTS,    /* statistics of parts of x */
    RG_BATCH_NORM_MERGE,    /* of the whole, from those of the parts, or given */
    RG_BATCH_NORM_FORWARD,  /* y */
    RG_BATCH_NORM_SUMS,     /* sums of parts of dy and x */
    RG_BATCH_NORM_JOIN,     /* gradients of channels, and what dx is made of */
    RG_BATCH_NORM_GRADIENT, /* dx */
    RG_BATCH_NORM_KERNELS
};

typedef struct rg_batch_norm_parts_args {
    const void *x;
    void *partial;     /* real, (parts, RG_NORM_PARTIAL, channels) */
    rg_channels shape; /* tensor x */
} rg_batch_norm_parts_args;

/* A pointer that is not needed is replaced by a valid one. Tensors of channels have a step. */
typedef struct rg_batch_norm_merge_args {
    const void *partial;
    void *moments;                     /* real, (RG_NORM_MOMENTS, channels) */
    const void *mean_in, *variance_in; /* running: averages so far; given: the statistics */
    void *mean_out, *variance_out;     /* returned, running */
    void *mean, *variance, *s;         /* of the state, real */
    int64_t channels, rows, part, parts;
    int64_t before; /* rows that `moments` has counted already */
    int64_t mean_in_step, variance_in_step, mean_out_step, variance_out_step;
    rg_dtype dtype; /* of those four */
    rg_batch_norm_statistics statistics;
    double epsilon, momentum;
    bool unbiased, has_state;
} rg_batch_norm_merge_args;

typedef struct rg_batch_norm_args {
    const void *x, *gamma, *beta;
    const void *moments;
    void *y;
    rg_channels shape; /* tensors x, y */
    rg_norm_parameters parameters;
    rg_norm_neuron neuron;
    bool stream; /* y is written by streaming stores */
} rg_batch_norm_args;

typedef struct rg_batch_norm_sums_args {
    const void *dy, *x, *gamma, *beta;
    const void *moments;
    void *partial;     /* real, (parts, 2, channels): sums of g, and of g t */
    rg_channels shape; /* tensors dy, x */
    rg_norm_parameters parameters;
    rg_norm_neuron neuron;
} rg_batch_norm_sums_args;

/* A result of channels: whether it is wanted, its step, and whether it is added to. */
typedef struct rg_batch_norm_result {
    bool wanted, add;
    int64_t step;
} rg_batch_norm_result;

typedef struct rg_batch_norm_join_args {
    const void *partial, *gamma;
    const void *moments;
    double *sums;                          /* (2, channels): dbeta, dgamma */
    const void *dmean_out, *dvariance_out; /* dy of outputs mean and variance */
    void *state_dgamma, *state_dbeta;      /* real */
    void *dgamma, *dbeta, *dmean, *dvariance;
    void *factors; /* real, (RG_NORM_FACTORS, channels) */
    int64_t channels, parts;
    double before; /* 0: `sums` starts anew, else 1 */
    double count;  /* elements of a channel: m */
    int64_t dmean_out_step, dvariance_out_step;
    rg_norm_parameters parameters;
    rg_batch_norm_statistics statistics;
    double momentum;
    rg_batch_norm_result gamma_result, beta_result, mean_result, variance_result;
    bool unbiased, has_state, has_dmean_out, has_dvariance_out;
} rg_batch_norm_join_args;

typedef struct rg_batch_norm_gradient_args {
    const void *dy, *x, *gamma, *beta;
    const void *moments;
    const void *factors;
    void *dx;
    rg_channels shape; /* tensors dy, x, dx */
    rg_norm_parameters parameters;
    rg_norm_neuron neuron;
    bool given;  /* statistics: dx is gamma s g */
    bool extra;  /* slope and plus are not 0 */
    bool add;    /* into dx */
    bool stream; /* dx is written by streaming stores */
} rg_batch_norm_gradient_args;

#endif
