/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Kernels for sums of squares, and their args. Valid C and valid CUDA. */
#ifndef RG_OPS_GRAD_NORM_H
#define RG_OPS_GRAD_NORM_H

#include "core/walk.h"

enum {
    RG_GRAD_NORM_FLAT,    /* sums of the pieces of dense gradients */
    RG_GRAD_NORM_STRIDED, /* of one gradient with any strides, in the same order */
    RG_GRAD_NORM_TOTAL,   /* the sums of these */
    RG_GRAD_NORM_KERNELS
};

/* Elements of a piece; gradients of a launch. */
enum { RG_GRAD_NORM_PIECE = 8192, RG_GRAD_NORM_ROWS = 32 };

typedef struct rg_grad_norm_flat_args {
    double *partial; /* a sum for each unit */
    const void *gradient[RG_GRAD_NORM_ROWS];
    int64_t count[RG_GRAD_NORM_ROWS];
    int64_t first[RG_GRAD_NORM_ROWS + 1]; /* units before those of a gradient; then all */
    int64_t rows;
} rg_grad_norm_flat_args;

typedef struct rg_grad_norm_strided_args {
    double *partial;
    const void *gradient;
    rg_walk walk; /* rows: all but the innermost dimension */
    int64_t length, step, count;
} rg_grad_norm_strided_args;

/* A unit is a gradient. */
typedef struct rg_grad_norm_total_args {
    const double *partial;
    void *squares[RG_GRAD_NORM_ROWS];
    int64_t first[RG_GRAD_NORM_ROWS + 1];
    int64_t rows;
    double factor;
} rg_grad_norm_total_args;

#endif
