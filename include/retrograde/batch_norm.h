/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  Batch normalization: every channel gets mean 0 and variance 1, then a scale and a shift of its
 *  own. A channel is an index of the last dimension; m is the number of its elements, over all
 *  other dimensions.
 *
 *      mean = sum x / m,   variance = sum (x - mean)^2 / m
 *      s = 1 / sqrt(variance + epsilon),   xh = (x - mean) s,   z = gamma xh + beta
 *      y = neuron(z)
 *
 *      g = dy neuron'(z),   dbeta = sum g,   dgamma = sum g xh
 *      dx = gamma s (g - dbeta / m - xh dgamma / m)                statistics of x
 *      dx = gamma s g,   dmean = -gamma s dbeta,                   statistics that are given
 *      dvariance = -gamma s^2 dgamma / 2
 *
 *  The statistics are exact to rounding also where the mean is far larger than the deviation.
 *
 *  x (…, channels) of rank 1 or more, y, dy and dx have the same dtype: f32, f64, f16 or bf16.
 *  gamma, beta, mean and variance (channels) have the same dtype, or all of them f32 beside f16 and
 *  bf16. y may be x; dx may be dy or x; a running average may be updated in place. */
#ifndef RETROGRADE_BATCH_NORM_H
#define RETROGRADE_BATCH_NORM_H

#include <retrograde/neuron.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Source of mean and variance, and whether they are returned. */
typedef enum rg_batch_norm_statistics {
    RG_BATCH_NORM_OWN,      /**< of x; the state has them */
    RG_BATCH_NORM_RETURNED, /**< of x; outputs `new_mean` and `new_variance` receive them */
    RG_BATCH_NORM_RUNNING,  /**< of x; these outputs receive inputs `mean` and `variance`, which are
                                 averages over batches, brought forward: see `momentum` */
    RG_BATCH_NORM_GIVEN     /**< inputs `mean` and `variance` */
} rg_batch_norm_statistics;

/** All in one call, or in two kernels that share a state, as in MPS. Either may be called
 *  several times, for parts of a batch, of any number of images:
 *
 *      forward of `statistics`    adds to the statistics in the state
 *      forward of `normalize`     makes y from these
 *      gradient of `statistics`   adds to dgamma and dbeta in the state
 *      gradient of `normalize`    makes dx, dgamma, dbeta from these
 *
 *  The statistics call after a y restarts the statistics, and the sums restart after a dx;
 *  rg_state_reset() restarts all of them. A gradient before the y of its statistics, and a dx
 *  before the sums of the whole batch, are refused with RG_INVALID_STATE. dgamma and dbeta are
 *  those of the whole batch: of several calls that add to them only the first one does. */
typedef enum rg_batch_norm_phase {
    RG_BATCH_NORM_WHOLE,
    RG_BATCH_NORM_STATISTICS, /**< fills the state alone: y and dx are NULL */
    RG_BATCH_NORM_NORMALIZE
} rg_batch_norm_phase;

/** Descriptor of the normalization. Initialize with rg_batch_norm_desc_default(). */
typedef struct rg_batch_norm_desc {
    uint32_t size;                       /**< of this struct; set by rg_batch_norm_desc_default() */
    rg_batch_norm_statistics statistics; /**< default RG_BATCH_NORM_OWN */
    rg_batch_norm_phase phase;           /**< default RG_BATCH_NORM_WHOLE; others: own statistics */
    bool gamma;     /**< whether `gamma` is an input (default true); otherwise 1 */
    bool beta;      /**< whether `beta` is an input (default true); otherwise 0 */
    double epsilon; /**< added to the variance; 0 or more (default FLT_MIN, as in MPS) */
    /** Running averages become momentum times the old one plus 1 - momentum times that of x; 0 to 1
     *  (default 0.9). */
    double momentum;
    /** Whether sum (x - mean)^2 is divided by m - 1 (m, if that is 1) for a running average, as
     *  PyTorch does (default false). */
    bool unbiased;
    /** Of kind none by default. Not prelu, and from_y must be false. */
    rg_neuron_desc neuron;
} rg_batch_norm_desc;
RG_API rg_batch_norm_desc rg_batch_norm_desc_default(void);

/** Creates a batch normalization kernel; *desc is copied. On failure *kernel is NULL.
 *
 *      x[, gamma][, beta]                  ->  y                              own
 *      x[, gamma][, beta]                  ->  y, new_mean, new_variance      returned
 *      x[, gamma][, beta], mean, variance  ->  y, new_mean, new_variance      running
 *      x[, gamma][, beta], mean, variance  ->  y                              given
 *
 *  new_mean and new_variance have the dtype of the parameters, or without any f32, f64 for f64; dy
 *  of them may be NULL. Statistics of no elements are 0, and leave a running average alone.
 *
 *  The gradient reads x, gamma, beta if there is a neuron, and given statistics; statistics of x
 *  come from the state, or without one are computed again. The bits of a requested gradient do not
 *  depend on the other requests. The state holds, one for each channel, in f32, or f64 for f64,
 *  "mean", "variance", "inverse_sigma" (s), "dgamma", "dbeta"; and "moments" (4, channels): the
 *  mean as a sum of two numbers, variance, s; and in f64 "sums" (2, channels): dbeta, dgamma. */
RG_API rg_status rg_batch_norm_create(rg_device *device, const rg_batch_norm_desc *desc,
                                      rg_kernel **kernel);

#ifdef __cplusplus
}
#endif

#endif
