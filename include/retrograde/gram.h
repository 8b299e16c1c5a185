/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  Gram matrices: the products of all pairs of channels, summed over an image. With pixels p and
 *  channels f, c:
 *
 *      y(f, c)  = alpha sum over p of x(p, f) x(p, c)
 *      dx(p, c) = alpha sum over f of (dy(f, c) + dy(c, f)) x(p, f)
 *
 *  y is symmetric; dy need not be.
 *
 *  x (n, h, w, channels), or without n for one image, or with more dimensions before h; y (n,
 *  channels, channels). All tensors have the same dtype: f32, f64, f16 or bf16; sums of f16 and
 *  bf16 are kept in f32. */
#ifndef RETROGRADE_GRAM_H
#define RETROGRADE_GRAM_H

#include <retrograde/kernel.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Which multiple. Initialize with rg_gram_desc_default(). */
typedef struct rg_gram_desc {
    uint32_t size; /**< of this struct; set by rg_gram_desc_default() */
    double alpha;  /**< factor of the sums; finite (default 1) */
} rg_gram_desc;
RG_API rg_gram_desc rg_gram_desc_default(void);

/** Creates a Gram matrix kernel; *desc is copied. On failure *kernel is NULL.
 *
 *      x (…, h, w, channels)  ->  y (…, channels, channels)
 *
 *  The gradient reads x. Its state contains no tensors. */
RG_API rg_status rg_gram_create(rg_device *device, const rg_gram_desc *desc, rg_kernel **kernel);

#ifdef __cplusplus
}
#endif

#endif
