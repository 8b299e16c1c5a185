/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Spatial normalisation: kernels and their args. Valid C and valid CUDA. */
#ifndef RG_OPS_SPATIAL_NORM_H
#define RG_OPS_SPATIAL_NORM_H

#include "ops/window_norm/box.h"
#include "ops/window_norm/power.h"

enum { RG_SPATIAL_NORM_FORWARD, RG_SPATIAL_NORM_GRADIENT, RG_SPATIAL_NORM_KERNELS };

typedef struct rg_spatial_norm_args {
    const void *x;
    void *y, *scratch;
    rg_box_shape shape; /* tensors x, y */
    rg_power_numbers numbers;
} rg_spatial_norm_args;

typedef struct rg_spatial_norm_gradient_args {
    const void *dy, *x;
    void *dx, *scratch;
    rg_box_shape shape; /* tensors dy, x, dx */
    rg_power_numbers numbers;
} rg_spatial_norm_gradient_args;

#endif
