/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  RMSProp: each element of a gradient is divided by the root of its mean square so far.
 *
 *      v = decay · v + (1 − decay) · g²
 *      a = decay · a + (1 − decay) · g                   centered
 *      d = g / (√v + epsilon)                            √(v − a²) where centered
 *
 *      without momentum    p −= rate · d
 *      form MPS            m = momentum · m + rate · d      p −= m
 *      form torch          m = momentum · m + d             p −= rate · m
 *
 *  MPS has neither momentum nor a centered form; without them the forms are one. Where rounding
 *  makes v − a² negative, 0 is taken. What g is, dtypes, scale and copy: see optimizer.h.
 *  new_parameter may be parameter, and each new moment may be the old one. Moments start with
 *  zeros, which are up to the caller.
 */
#ifndef RETROGRADE_RMSPROP_H
#define RETROGRADE_RMSPROP_H

#include <retrograde/optimizer.h>

#ifdef __cplusplus
extern "C" {
#endif

/** How to descend. Initialize with rg_rmsprop_desc_default(). */
typedef struct rg_rmsprop_desc {
    uint32_t size;              /**< of this struct; set by rg_rmsprop_desc_default() */
    rg_update_form form;        /**< default RG_UPDATE_MPS */
    double decay;               /**< 0 to 1 (default 0.9) */
    double epsilon;             /**< at least 0 (default 1e-8) */
    double momentum;            /**< 0 to 1; 0: there is no tensor of momentum (default 0) */
    bool centered;              /**< whether there is a tensor `mean` (default false) */
    rg_gradient_rules gradient; /**< what becomes of the gradient first */
    bool scaled;                /**< whether there is an input `scale` (default false) */
    rg_parameter_copy copy;     /**< a 16-bit copy of the parameter (default none) */
} rg_rmsprop_desc;
RG_API rg_rmsprop_desc rg_rmsprop_desc_default(void);

/** Creates an RMSProp kernel; *desc is copied. On failure *kernel is NULL.
 *
 *      parameter, gradient, velocity (v)[, mean (a)][, momentum], rate[, scale]
 *              ->  new_parameter, new_velocity[, new_mean][, new_momentum][, copy]
 */
RG_API rg_status rg_rmsprop_create(rg_device *device, const rg_rmsprop_desc *desc,
                                   rg_kernel **kernel);

#ifdef __cplusplus
}
#endif

#endif
