/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Local contrast normalisation: kernels and their args. Valid C and valid CUDA. */
#ifndef RG_OPS_LOCAL_CONTRAST_H
#define RG_OPS_LOCAL_CONTRAST_H

#include "ops/window_norm/box.h"
#include "ops/window_norm/power.h"

enum { RG_LOCAL_CONTRAST_FORWARD, RG_LOCAL_CONTRAST_GRADIENT, RG_LOCAL_CONTRAST_KERNELS };

typedef struct rg_contrast_numbers {
    rg_power_numbers norm; /* scale is alpha */
    double mean;           /* 1 / N */
    double inside;         /* of the window's pixels, those that the shape has; the others are 0 */
    double outside;        /* 1 - inside */
    double p0, pm, ps;
} rg_contrast_numbers;

typedef struct rg_local_contrast_args {
    const void *x;
    void *y, *scratch;
    rg_box_shape shape; /* tensors x, y */
    rg_contrast_numbers numbers;
} rg_local_contrast_args;

typedef struct rg_local_contrast_gradient_args {
    const void *dy, *x;
    void *dx, *scratch;
    rg_box_shape shape; /* tensors dy, x, dx */
    rg_contrast_numbers numbers;
} rg_local_contrast_gradient_args;

#endif
