/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  Local contrast normalization: the mean of the pixels around every pixel is subtracted, and what
 *  is left is divided by a power of their variance, channel by channel.
 *
 *      Q(i, j) = rows i - floor(kh / 2) to i + floor((kh - 1) / 2) and
 *                columns j - floor(kw / 2) to j + floor((kw - 1) / 2)
 *      R(i, j) = its mirror: rows i - floor((kh - 1) / 2) to i + floor(kh / 2), same for columns
 *
 *      M  = 1 / N  sum of x over Q,   V = 1 / N  sum of x^2 over Q - M^2,   N = kh kw
 *      T  = delta + alpha V
 *      y  = pm + ps (x - p0 M) T^-beta
 *      dx = ps (dy T^-beta - sum over R of
 *                   dy T^-beta (p0 / N + 2 alpha beta / N (x(i, j) - M) (x - p0 M) / T))
 *
 *  Pixels outside of the image are 0, and N counts them. With an alpha of 0, the default, nothing
 *  but the mean is subtracted. Apple prints another gradient, with 1 in place of a mean and T of
 *  the pixel itself for all of its neighbours; that is no gradient of y, and not what is computed
 *  here.
 *
 *  An infinity in dy gives infinities or NaN in dx, within the windows that contain it.
 *
 *  V is joined from variances of parts of the window, and x - M is summed from differences between
 *  its pixels, so that no digits are lost to what they have in common: neither in an image with a
 *  large offset nor in a flat part of one of large contrast. The same holds for the gradient.
 *
 *  Pixel t of y belongs to pixel offset + t of x; dx counts the pixels of y alone. It is the
 *  gradient without a clip on the region of x that the windows of the clip see, with a dy of 0
 *  around the clip, and 0 outside of the region: so an x that is not finite, or a T of 0, in the
 *  region beside the clip makes dx NaN in the windows that contain it, as 0 times infinity does.
 *
 *  x (n, h, w, c), or (h, w, c) for one image, and y, dy and dx have one dtype of f32, f64, f16,
 *  bf16. No two of them may be the same. */
#ifndef RETROGRADE_LOCAL_CONTRAST_H
#define RETROGRADE_LOCAL_CONTRAST_H

#include <retrograde/kernel.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Initialize with rg_local_contrast_desc_default(). */
typedef struct rg_local_contrast_desc {
    uint32_t size;     /**< of this struct; set by rg_local_contrast_desc_default() */
    int32_t window[2]; /**< kh, kw: rows and columns; at least 1 (default 5, 5) */
    double alpha;      /**< at least 0 (default 0, as MPS's kernel; its node takes 1) */
    double beta;       /**< finite (default 0.5); multiples of 1/4 from 0 to 8 are the fastest */
    double delta;      /**< at least 0 (default 1/1024) */
    double p0;         /**< share of the mean that is subtracted (default 1) */
    double pm;         /**< added to the result (default 0) */
    double ps;         /**< factor of the result (default 1) */
    /** The pixel of x, row and column, whose window gives the first pixel of y: MPS's `offset`. It
     *  may be negative or beyond x, where pixels are 0 (default 0, 0). */
    int32_t offset[2];
    /** Rows and columns of y; 0: as many as x has (default 0, 0). Windows see all pixels of x, also
     *  those that y has no pixel for: with `offset` this is MPS's clipRect. */
    int64_t output[2];
} rg_local_contrast_desc;
RG_API rg_local_contrast_desc rg_local_contrast_desc_default(void);

/** Creates a kernel; *desc is copied. On failure *kernel is NULL.
 *
 *      x (n, h, w, c)  ->  y (n, oh, ow, c), by default of the shape of x
 *
 *  The gradient reads x; the state holds no tensors. */
RG_API rg_status rg_local_contrast_create(rg_device *device, const rg_local_contrast_desc *desc,
                                          rg_kernel **kernel);

#ifdef __cplusplus
}
#endif

#endif
