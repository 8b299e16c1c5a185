/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  Group normalization: groups of neighbouring channels of an image get mean 0 and variance 1, then
 *  every channel a scale and a shift of its own. Channels are the last dimension; images are all
 *  indices of the dimensions before `axis`; m is the number of elements of a group of an image.
 *
 *      mean = sum x / m,   variance = sum (x - mean)^2 / m          over one group of one image
 *      s = 1 / sqrt(variance + epsilon),   xh = (x - mean) s,   z = gamma xh + beta
 *      y = neuron(z)
 *
 *      g = dy neuron'(z),   h = gamma g,   dbeta = sum g,   dgamma = sum g xh
 *      dx = s (h - sum h / m - xh sum (h xh) / m)                   over one group of one image
 *
 *  Its ends have constructors of their own: with as many groups as channels it is instance
 *  normalization, with one group of the last dimension alone layer normalization.
 *
 *  x (…, channels), y, dy and dx have the same dtype: f32, f64, f16 or bf16. gamma and beta
 *  (channels) have the same dtype, or both f32 beside f16 and bf16. y may be x; dx may be dy or x.
 */
#ifndef RETROGRADE_GROUP_NORM_H
#define RETROGRADE_GROUP_NORM_H

#include <retrograde/neuron.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Descriptor of the normalization. Initialize with rg_group_norm_desc_default(). */
typedef struct rg_group_norm_desc {
    uint32_t size;  /**< of this struct; set by rg_group_norm_desc_default() */
    int64_t groups; /**< 0 (one for each channel) or a divisor of the channels (default 1) */
    int64_t axis;   /**< first dimension that statistics go over, at most the last one; negative
                         ones count from the last (default 1) */
    bool gamma;     /**< whether `gamma` is an input (default true); otherwise 1 */
    bool beta;      /**< whether `beta` is an input (default true); otherwise 0 */
    double epsilon; /**< added to the variance; 0 or more (default FLT_MIN, as in MPS) */
    /** Whether the state keeps dgamma and dbeta of each image, as those of MPS do (default false).
     */
    bool image_gradients;
    /** Of kind none by default. Not prelu, and from_y must be false. */
    rg_neuron_desc neuron;
} rg_group_norm_desc;
RG_API rg_group_norm_desc rg_group_norm_desc_default(void);

/** Creates a group normalization kernel; *desc is copied. On failure *kernel is NULL.
 *
 *      x (…, channels)[, gamma (channels)][, beta (channels)]  ->  y (…, channels)
 *
 *  The gradient reads x, gamma, and beta if there is a neuron; statistics come from the state, or
 *  without one are computed again. dgamma and dbeta are sums over all images. The bits of a
 *  requested gradient do not depend on the other requests. The state holds, in f32, or f64 for f64,
 *  "mean" and "inverse_sigma" (s) (images, groups), "mean_rest", which `mean` lost to rounding, and
 *  on request "dgamma" and "dbeta" (images, channels). */
RG_API rg_status rg_group_norm_create(rg_device *device, const rg_group_norm_desc *desc,
                                      rg_kernel **kernel);

/** The same with groups = 0 and axis = 1, whatever *desc says; NULL stands for the default. */
RG_API rg_status rg_instance_norm_create(rg_device *device, const rg_group_norm_desc *desc,
                                         rg_kernel **kernel);

/** The same with groups = 1 and axis = -1, whatever *desc says; NULL stands for the default. */
RG_API rg_status rg_layer_norm_create(rg_device *device, const rg_group_norm_desc *desc,
                                      rg_kernel **kernel);

#ifdef __cplusplus
}
#endif

#endif
