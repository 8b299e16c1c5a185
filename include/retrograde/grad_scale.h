/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  The factor that a step of training multiplies its gradients by: clipping by the norm of all
 *  gradients, and the scale of the loss, which keeps small gradients of 16 bits from becoming 0.
 *
 *      total  = Σ squares                    the sums that grad_norm has made of all gradients
 *      norm   = √total / scale               of the gradients of the loss itself
 *      factor = min(1, max_norm / (norm + epsilon)) / scale
 *
 *  Without a scale of the loss, `scale` is 1 in these. Where total is infinite or NaN a gradient
 *  has overflowed: factor is NaN, and optimizers that are given it as their `scale` take no step.
 *  Nothing of that waits for the host.
 *
 *  **The scale of the loss.** The caller multiplies the loss, or its gradient, by the tensor
 *  `scale` before the backward pass. It is static, or dynamic:
 *
 *      overflowed                      new_scale = scale · backoff      new_good = 0
 *      good + 1 steps were good        new_scale = scale · growth       new_good = 0
 *        (that is `interval`)
 *      otherwise                       new_scale = scale                new_good = good + 1
 *
 *  A new scale that would be 0 or not finite, or whose inverse would, is left out: the scale stays.
 *
 *  **The step.** With `stepped`, new_step is step + 1, or step where a gradient has overflowed: the
 *  number that adam reads, on the device.
 *
 *  Each result may be the tensor of the same name that is read. Neither has a gradient. */
#ifndef RETROGRADE_GRAD_SCALE_H
#define RETROGRADE_GRAD_SCALE_H

#include <retrograde/kernel.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum rg_loss_scaling {
    RG_LOSS_SCALING_NONE,   /**< there is no scale */
    RG_LOSS_SCALING_STATIC, /**< an input */
    RG_LOSS_SCALING_DYNAMIC /**< an input and an output, and so is the count of good steps */
} rg_loss_scaling;

/** How to scale. Initialize with rg_grad_scale_desc_default(). */
typedef struct rg_grad_scale_desc {
    uint32_t size;           /**< of this struct; set by rg_grad_scale_desc_default() */
    double max_norm;         /**< at least 0; infinite: no clipping (default infinity) */
    double epsilon;          /**< at least 0 (default 1e-6) */
    rg_loss_scaling scaling; /**< default none */
    double growth;           /**< at least 1 (default 2) */
    double backoff;          /**< 0 to 1 (default 0.5) */
    int64_t interval;        /**< good steps until the scale grows, at least 1 (default 2000) */
    bool stepped;            /**< whether there is a step (default false) */
} rg_grad_scale_desc;
RG_API rg_grad_scale_desc rg_grad_scale_desc_default(void);

/** Creates such a kernel; *desc is copied. On failure *kernel is NULL.
 *
 *      squares (any shape)[, scale[, good (i64)]][, step (i64)]
 *              ->  factor, norm[, new_scale, new_good][, new_step]
 *
 *  All but squares are of rank 0. squares, scale, factor and norm are all f32 or all f64. */
RG_API rg_status rg_grad_scale_create(rg_device *device, const rg_grad_scale_desc *desc,
                                      rg_kernel **kernel);

#ifdef __cplusplus
}
#endif

#endif
