/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  Local response normalization across channels: every channel is divided by a power of the mean
 *  square of the channels around it.
 *
 *      Q(k) = channels k - floor(N / 2) to k + floor((N - 1) / 2), as far as they exist
 *      R(k) = channels k - floor((N - 1) / 2) to k + floor(N / 2), as far as they exist
 *
 *      L(k)  = delta + alpha / N  sum of x(q)^2 over q in Q(k)
 *      y(k)  = x(k) L(k)^-beta
 *      dx(k) = dy(k) L(k)^-beta - 2 alpha beta / N  x(k)  sum of dy(r) x(r) L(r)^(-beta - 1)
 *                                                         over r in R(k)
 *
 *  N is the window, also where it is cut. R are the channels whose windows contain k; it is the
 *  mirror of Q, which matters where N is even. An L of 0 or less gives what C's pow says.
 *
 *  x (…, channels), y, dy and dx have one shape and one dtype of f32, f64, f16, bf16. y may be x;
 *  dx may be dy or x. */
#ifndef RETROGRADE_LRN_H
#define RETROGRADE_LRN_H

#include <retrograde/kernel.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Initialize with rg_lrn_desc_default(). The defaults are those of MPS.
 */
typedef struct rg_lrn_desc {
    uint32_t size;  /**< of this struct; set by rg_lrn_desc_default() */
    int32_t window; /**< N, channels; at least 1 (default 5) */
    double alpha;   /**< at least 0 (default 1) */
    double beta;    /**< finite (default 5); multiples of 1/4 from 0 to 8 are the fastest */
    double delta;   /**< at least 0 (default 1) */
    /** An even window reaches one channel further after k, as in ONNX, instead of before it, as in
     *  MPS and PyTorch (default false). */
    bool even_after;
} rg_lrn_desc;
RG_API rg_lrn_desc rg_lrn_desc_default(void);

/** Creates a kernel; *desc is copied. On failure *kernel is NULL.
 *
 *      x (…, channels)  ->  y (the same)
 *
 *  The gradient reads x; the state holds no tensors. */
RG_API rg_status rg_lrn_create(rg_device *device, const rg_lrn_desc *desc, rg_kernel **kernel);

#ifdef __cplusplus
}
#endif

#endif
