/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  Spatial normalization: every pixel is divided by a power of the mean square of the pixels around
 *  it, channel by channel.
 *
 *      Q(i, j) = rows i - floor(kh / 2) to i + floor((kh - 1) / 2) and
 *                columns j - floor(kw / 2) to j + floor((kw - 1) / 2)
 *      R(i, j) = its mirror: rows i - floor((kh - 1) / 2) to i + floor(kh / 2), same for columns
 *
 *      T  = delta + alpha / N  sum of x^2 over Q,   N = kh kw
 *      y  = x T^-beta
 *      dx = dy T^-beta - 2 alpha beta / N  x  sum of dy x T^(-beta - 1) over R
 *
 *  Pixels outside of the image are 0, and N counts them. Where Apple prints the gradient, T is that
 *  of the pixel itself for all of its neighbours and 1 / N is missing; that is no gradient of y,
 *  and not what is computed here. A T of 0 or less gives what C's pow says.
 *
 *  Pixel t of y belongs to pixel offset + t of x; dx counts the pixels of y alone. It is the
 *  gradient without a clip on the region of x that the windows of the clip see, with a dy of 0
 *  around the clip, and 0 outside of the region: so an x that is not finite, or a T of 0, in the
 *  region beside the clip makes dx NaN in the windows that contain it, as 0 times infinity does.
 *
 *  x (n, h, w, c), or (h, w, c) for one image, and y, dy and dx have one dtype of f32, f64, f16,
 *  bf16. No two of them may be the same. */
#ifndef RETROGRADE_SPATIAL_NORM_H
#define RETROGRADE_SPATIAL_NORM_H

#include <retrograde/kernel.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Initialize with rg_spatial_norm_desc_default(). */
typedef struct rg_spatial_norm_desc {
    uint32_t size;     /**< of this struct; set by rg_spatial_norm_desc_default() */
    int32_t window[2]; /**< kh, kw: rows and columns; at least 1 (default 5, 5) */
    double alpha;      /**< at least 0 (default 1) */
    double beta;       /**< finite (default 5); multiples of 1/4 from 0 to 8 are the fastest */
    double delta;      /**< at least 0 (default 1) */
    /** The pixel of x, row and column, whose window gives the first pixel of y: MPS's `offset`. It
     *  may be negative or beyond x, where pixels are 0 (default 0, 0). */
    int32_t offset[2];
    /** Rows and columns of y; 0: as many as x has (default 0, 0). Windows see all pixels of x, also
     *  those that y has no pixel for: with `offset` this is MPS's clipRect. */
    int64_t output[2];
} rg_spatial_norm_desc;
RG_API rg_spatial_norm_desc rg_spatial_norm_desc_default(void);

/** Creates a kernel; *desc is copied. On failure *kernel is NULL.
 *
 *      x (n, h, w, c)  ->  y (n, oh, ow, c), by default of the shape of x
 *
 *  The gradient reads x; the state holds no tensors. */
RG_API rg_status rg_spatial_norm_create(rg_device *device, const rg_spatial_norm_desc *desc,
                                        rg_kernel **kernel);

#ifdef __cplusplus
}
#endif

#endif
