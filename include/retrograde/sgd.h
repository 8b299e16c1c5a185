/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  Stochastic gradient descent, with momentum or without.
 *
 *      without momentum    p −= rate · g
 *      form MPS            m = momentum · m + rate · g      p −= m
 *      form torch          m = momentum · m + g             p −= rate · m
 *      nesterov, both      m = momentum · m + g             p −= rate · (g + momentum · m)
 *
 *  As long as the rate is the same the two forms move p alike, but their m differ by the rate. What
 *  g is, dtypes, scale and copy: see optimizer.h. new_parameter may be parameter, new_momentum may
 *  be momentum. Momentum starts with zeros, which are up to the caller.
 */
#ifndef RETROGRADE_SGD_H
#define RETROGRADE_SGD_H

#include <retrograde/optimizer.h>

#ifdef __cplusplus
extern "C" {
#endif

/** How to descend. Initialize with rg_sgd_desc_default(). */
typedef struct rg_sgd_desc {
    uint32_t size;              /**< of this struct; set by rg_sgd_desc_default() */
    rg_update_form form;        /**< default RG_UPDATE_MPS */
    double momentum;            /**< 0 to 1; 0: there is no tensor of momentum (default 0) */
    bool nesterov;              /**< needs momentum (default false) */
    rg_gradient_rules gradient; /**< what becomes of the gradient first */
    bool scaled;                /**< whether there is an input `scale` (default false) */
    rg_parameter_copy copy;     /**< a 16-bit copy of the parameter (default none) */
} rg_sgd_desc;
RG_API rg_sgd_desc rg_sgd_desc_default(void);

/** Creates a kernel of gradient descent; *desc is copied. On failure *kernel is NULL.
 *
 *      parameter, gradient[, momentum], rate[, scale]  ->  new_parameter[, new_momentum][, copy]
 */
RG_API rg_status rg_sgd_create(rg_device *device, const rg_sgd_desc *desc, rg_kernel **kernel);

#ifdef __cplusplus
}
#endif

#endif
