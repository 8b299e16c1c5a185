/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  Adam: a mean of gradients over the root of a mean of their squares, both corrected for their
 *  start at 0.
 *
 *      p = p · (1 − rate · decay)                       decay other than 0: decoupled, as AdamW
 *      m = beta1 · m + (1 − beta1) · g
 *      v = beta2 · v + (1 − beta2) · g²
 *      u = v, or amsgrad: u = maximum = max(maximum, v)
 *
 *      form MPS      p −= rate · √(1 − beta2^t) / (1 − beta1^t) · m / (√u + epsilon)
 *      form torch    p −= rate / (1 − beta1^t) · m / (√u / √(1 − beta2^t) + epsilon)
 *
 *  So epsilon counts for less in MPS's form while t is small. t is `step`, the number of this step,
 *  from 1 on; with 0 or less nothing is corrected, as in the first step of ONNX's Adam. What g is,
 *  dtypes, scale and copy: see optimizer.h. new_parameter may be parameter, and each new moment may
 *  be the old one. Moments start with zeros, which are up to the caller.
 */
#ifndef RETROGRADE_ADAM_H
#define RETROGRADE_ADAM_H

#include <retrograde/optimizer.h>

#ifdef __cplusplus
extern "C" {
#endif

/** How to descend. Initialize with rg_adam_desc_default(). */
typedef struct rg_adam_desc {
    uint32_t size;              /**< of this struct; set by rg_adam_desc_default() */
    rg_update_form form;        /**< default RG_UPDATE_MPS */
    double beta1;               /**< at least 0, less than 1 (default 0.9) */
    double beta2;               /**< at least 0, less than 1 (default 0.999) */
    double epsilon;             /**< at least 0 (default 1e-8) */
    double decay;               /**< of the parameter itself, times the rate (default 0) */
    bool amsgrad;               /**< whether there is a tensor `maximum` (default false) */
    rg_gradient_rules gradient; /**< what becomes of the gradient first */
    bool scaled;                /**< whether there is an input `scale` (default false) */
    rg_parameter_copy copy;     /**< a 16-bit copy of the parameter (default none) */
} rg_adam_desc;
RG_API rg_adam_desc rg_adam_desc_default(void);

/** Creates an Adam kernel; *desc is copied. On failure *kernel is NULL.
 *
 *      parameter, gradient, momentum (m), velocity (v)[, maximum], rate, step[, scale]
 *              ->  new_parameter, new_momentum, new_velocity[, new_maximum][, copy]
 */
RG_API rg_status rg_adam_create(rg_device *device, const rg_adam_desc *desc, rg_kernel **kernel);

#ifdef __cplusplus
}
#endif

#endif
