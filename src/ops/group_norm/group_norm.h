/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Group normalization kernels and their args. Valid C and valid CUDA. */
#ifndef RG_OPS_GROUP_NORM_H
#define RG_OPS_GROUP_NORM_H

#include "ops/norm/norm.h"

#include <retrograde/group_norm.h>

/* Columns for any image; rows where each is one row. */
enum {
    RG_GROUP_NORM_COLUMNS,
    RG_GROUP_NORM_ROWS,
    RG_GROUP_NORM_COLUMNS_GRADIENT,
    RG_GROUP_NORM_ROWS_GRADIENT,
    RG_GROUP_NORM_JOIN, /* gradients of parameters, from those of images */
    RG_GROUP_NORM_KERNELS
};

/* Where an image is one row: up to RUN images are added up plainly; a unit of more images has at
 * most WIDE channels. */
enum { RG_GROUP_NORM_RUN = 256, RG_GROUP_NORM_WIDE = 2048 };

/* What both directions read. Unused pointers hold any valid address. A unit is as
 * many whole groups as shape.block has channels, of one image; or, of rows, as many images as
 * `part` says. */
typedef struct rg_group_norm_shape {
    rg_channels channels;
    int64_t groups, part;
    double epsilon;
    rg_norm_parameters parameters;
    rg_norm_neuron neuron;
    bool by_rows; /* an image is one row, and kernels of rows take it */
    bool stream;  /* the result uses streaming stores */
} rg_group_norm_shape;

typedef struct rg_group_norm_args {
    const void *x, *gamma, *beta;
    void *mean, *rest, *s; /* real, (images, groups) */
    void *partial;         /* scratch on a GPU, of columns: see norm.cu */
    void *moments;         /* the same */
    void *y;
    rg_group_norm_shape shape; /* tensors x, y */
} rg_group_norm_args;

typedef struct rg_group_norm_gradient_args {
    const void *dy, *x, *gamma, *beta;
    void *mean, *rest, *s;             /* real, (images, groups) */
    void *dgammas, *dbetas;            /* real, (images, channels); rows: (units, channels) */
    void *partial, *moments, *factors; /* scratch on a GPU, of columns */
    void *dx;
    rg_group_norm_shape shape; /* tensors dy, x, dx */
    bool has_statistics;       /* in mean, rest and s */
    bool wants_dx, wants_sums;
    bool add; /* into dx */
} rg_group_norm_gradient_args;

typedef struct rg_group_norm_join_args {
    const void *from; /* real, (count, channels) */
    void *to;
    int64_t count, channels, step;
    rg_dtype dtype; /* of `to` */
    bool add;
} rg_group_norm_join_args;

#endif
