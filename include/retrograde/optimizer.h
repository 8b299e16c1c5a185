/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  Common definitions of the optimizers sgd, rmsprop and adam.
 *
 *  An optimizer is a kernel whose forward pass is one step of training: it reads a parameter, its
 *  gradient and its moments and writes the new parameter and the new moments, in one pass over
 *  memory. Results may be the tensors that are read. Optimizers have no gradient.
 *
 *      parameter, gradient, moments…, rate[, step][, scale]
 *                          ->  new_parameter, new moments…[, copy]
 *
 *  **Processing of a gradient g** before the optimizer uses it, in this order:
 *
 *      g = g · scale                                       where `scaled`
 *      g = g held between clip_minimum and clip_maximum    NaN stays NaN
 *      g = g · rescale
 *      g = g + regularization_scale · sign(p)              l1; 0 where p is 0
 *      g = g + regularization_scale · p                    l2
 *
 *  **Dtypes.** Parameter and moments are f64 beside an f64 gradient, otherwise f32. A parameter
 *  that a network uses in f16 or bf16 keeps its f32 master here, as the parameter of the
 *  optimizer, and `copy` is a further result: the new parameter rounded to 16 bits. The gradient
 *  is f32, f16 or bf16 then. The parameter, its gradient, moments and copy have one shape, any.
 *
 *  **Numbers that change from step to step** are tensors of rank 0, so that work that was recorded
 *  once sees their new values when it runs again: `rate` and `scale`, f32 or f64, and `step`, i64.
 *
 *  **Steps that are skipped.** Where `scale` is infinite or NaN nothing changes: the results are
 *  what was read. grad_scale makes such a scale from gradients that have overflowed, together
 *  with clipping by the norm of all gradients and the scale of the loss; the host does not
 *  wait.
 *
 *  **Many parameters.** rg_kernel_forward_batch takes a step for many parameters at once; entries
 *  of rate, step and scale repeat one tensor. Up to 32 dense parameters take one launch. */
#ifndef RETROGRADE_OPTIMIZER_H
#define RETROGRADE_OPTIMIZER_H

#include <retrograde/kernel.h>
#include <retrograde/schedule.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Whose formula; each optimizer says where they differ. */
typedef enum rg_update_form { RG_UPDATE_MPS, RG_UPDATE_TORCH } rg_update_form;

typedef enum rg_regularization {
    RG_REGULARIZATION_NONE,
    RG_REGULARIZATION_L1,
    RG_REGULARIZATION_L2
} rg_regularization;

/** A 16-bit copy of the new parameter. */
typedef enum rg_parameter_copy {
    RG_PARAMETER_COPY_NONE,
    RG_PARAMETER_COPY_F16,
    RG_PARAMETER_COPY_BF16
} rg_parameter_copy;

/** Processing of a gradient before the step; see above. */
typedef struct rg_gradient_rules {
    double clip_minimum;              /**< default −infinity */
    double clip_maximum;              /**< not less than clip_minimum (default infinity) */
    double rescale;                   /**< default 1 */
    rg_regularization regularization; /**< default none */
    double regularization_scale;      /**< default 0 */
} rg_gradient_rules;

#ifdef __cplusplus
}
#endif

#endif
