/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  The sum of the squares of all elements, of which the norm of many gradients is made.
 *
 *      squares = factor · Σ gradient²
 *
 *  The sum is taken in pieces of 8192 elements in row-major order, in float (double for f64), and
 *  pieces are added up in double: the same bits for any strides and any number of threads. It is
 *  infinite or NaN where a gradient has overflowed. grad_scale makes the factor of a step of it.
 *  Of a parameter, with half the regularization_scale as factor, it is the l2 term of a loss.
 *
 *  rg_kernel_forward_batch takes many gradients at once: up to 32 dense ones take two launches.
 *  Their results may be neighbours in one tensor, views of rank 0, as grad_scale reads them. */
#ifndef RETROGRADE_GRAD_NORM_H
#define RETROGRADE_GRAD_NORM_H

#include <retrograde/kernel.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What to add up. Initialize with rg_grad_norm_desc_default(). */
typedef struct rg_grad_norm_desc {
    uint32_t size; /**< of this struct; set by rg_grad_norm_desc_default() */
    double factor; /**< of the sum (default 1) */
} rg_grad_norm_desc;
RG_API rg_grad_norm_desc rg_grad_norm_desc_default(void);

/** Creates a kernel for sums of squares; *desc is copied. On failure *kernel is NULL.
 *
 *      gradient (any shape; f32, f64, f16, bf16)  ->  squares (rank 0; f64 for f64, otherwise f32)
 *
 *  It has no gradient. */
RG_API rg_status rg_grad_norm_create(rg_device *device, const rg_grad_norm_desc *desc,
                                     rg_kernel **kernel);

#ifdef __cplusplus
}
#endif

#endif
