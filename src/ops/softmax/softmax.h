/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Softmax kernels and their args. Valid C and valid CUDA. */
#ifndef RG_OPS_SOFTMAX_H
#define RG_OPS_SOFTMAX_H

#include "core/walk.h"

/* A group is what is normalized together. By shape alone a tensor is taken as rows, where a
 * group is followed by nothing (the last axis, or the flattened form), or as columns, where
 * groups are adjacent. Planes are rows whose memory is that of columns, on a CPU. */
enum {
    RG_SOFTMAX_FORWARD_ROWS,
    RG_SOFTMAX_FORWARD_COLUMNS,
    RG_SOFTMAX_FORWARD_PLANES,
    RG_LOG_SOFTMAX_FORWARD_ROWS,
    RG_LOG_SOFTMAX_FORWARD_COLUMNS,
    RG_LOG_SOFTMAX_FORWARD_PLANES,
    RG_SOFTMAX_GRADIENT_ROWS,
    RG_SOFTMAX_GRADIENT_COLUMNS,
    RG_SOFTMAX_GRADIENT_PLANES,
    RG_LOG_SOFTMAX_GRADIENT_ROWS,
    RG_LOG_SOFTMAX_GRADIENT_COLUMNS,
    RG_LOG_SOFTMAX_GRADIENT_PLANES,
    RG_SOFTMAX_KERNELS
};

enum { RG_SOFTMAX_TENSORS = 3 };

typedef struct rg_softmax_shape {
    rg_walk outer;  /* rows: over groups; otherwise: over rows of adjacent groups */
    rg_walk group;  /* rows: over the elements of a group */
    int64_t length; /* elements of a group */
    /* columns and planes: a unit is a block of `block` of the `width` groups of one index of
     * `outer` */
    int64_t width, block, blocks;
    int64_t across[RG_SOFTMAX_TENSORS]; /* step from one group to the next */
    int64_t along[RG_SOFTMAX_TENSORS];  /* step from one element of a group to the next */
    bool dense;                         /* rows: along is 1; columns: across is 1; in all tensors */
    bool add;                           /* into the result */
    bool stream;                        /* the result is written by streaming stores */
} rg_softmax_shape;

typedef struct rg_softmax_args {
    const void *x;
    void *y;
    rg_softmax_shape shape; /* tensors x, y */
} rg_softmax_args;

typedef struct rg_softmax_gradient_args {
    const void *dy, *y;
    void *dx;
    rg_softmax_shape shape; /* tensors dy, y, dx */
} rg_softmax_gradient_args;

#endif
