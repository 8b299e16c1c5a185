/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  Convolution: every pixel of the result is a weighted sum over a window of the image, for each
 *  output channel with weights of its own.
 *
 *      z(i, j, o) = b(o) + sum over p, q, c of w(o, p, q, c) x(tap (p, q) of window (i, j), c)
 *      y = neuron(z)
 *
 *      g = dy neuron'(z)
 *      dx(r, s, c)    = sum of w(o, p, q, c) g(i, j, o) over all taps (p, q) that are pixel (r, s)
 *      dw(o, p, q, c) = sum over images, i, j of g(i, j, o) x(tap (p, q) of window (i, j), c)
 *      db(o)          = sum over images, i, j of g(i, j, o)
 *
 *  Tap (p, q) of window (i, j) is pixel (i stride - top + p dilation, j stride - left + q
 *  dilation), see padding.h; outside of the image it is 0, and so is its product with any weight,
 * also with one that is infinite or NaN. Weights are not rotated.
 *
 *  With groups, channels are divided into as many groups of equal size; output channels of group k
 *  read only the input channels of group k, and c counts these. As many groups as input channels
 *  is a depthwise convolution: with m times as many outputs, channel k of x produces channels
 *  k m to k m + m - 1 of y.
 *
 *  x (n, h, w, in) or (h, w, in) for one image; w (out, kh, kw, in / groups); b (out). An image of
 *  one row is a 1-D convolution. All tensors have the same dtype: f32, f64, f16 or bf16, except
 *  that dw and db may each be f32 beside f16 and bf16; on a GPU such a dw may have been rounded to
 *  the 16 bits before. Sums of f16 and bf16 are kept in f32, and f32 stays within 1e-5 of the
 *  largest element however long a sum is. */
#ifndef RETROGRADE_CONV_H
#define RETROGRADE_CONV_H

#include <retrograde/neuron.h>
#include <retrograde/padding.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Descriptor of the convolution; the window is that of w. Initialize with rg_conv_desc_default().
 */
typedef struct rg_conv_desc {
    uint32_t size;       /**< of this struct; set by rg_conv_desc_default() */
    int32_t groups;      /**< at least 1 (default 1); or 0: as many as x has channels */
    int32_t stride[2];   /**< stride between windows, rows and columns; at least 1 (default 1, 1) */
    int32_t dilation[2]; /**< dilation of the window; at least 1 (default 1, 1) */
    rg_padding padding;  /**< explicit, all 0 by default */
    /** Rows and columns of y; 0: computed from the padding (default 0, 0). Windows may lie
     *  anywhere, as with a destination of MPS that is larger or smaller than needed. */
    int64_t output[2];
    bool bias; /**< whether `b` is an input (default true); otherwise 0 */
    /** Of kind none by default. Not prelu, and from_y must be false: the op itself decides whether
     *  the gradient reads y. */
    rg_neuron_desc neuron;
} rg_conv_desc;
RG_API rg_conv_desc rg_conv_desc_default(void);

/** Creates a convolution kernel; *desc is copied. On failure *kernel is NULL.
 *
 *      x (n, h, w, in), w (out, kh, kw, in / groups)[, b (out)]  ->  y (n, oh, ow, out)
 *
 *  The gradient reads x and w, even if only dx or dw is requested. With a neuron whose slope
 *  follows from y (relu, relun, elu with a of 0 or more, linear, sigmoid, tanh, softplus, softsign,
 *  exponential) it reads y, too. Other neurons (hard_sigmoid, absolute, power, logarithm, gelu,
 *  gelu_tanh, swish, and those with a below 0) need z: the state holds it as "z", shaped as y, and
 *  without a state z is computed once more, which reads b. The bits of a requested gradient do not
 *  depend on the other requests. Images of a batch that share dw and db add to them. */
RG_API rg_status rg_conv_create(rg_device *device, const rg_conv_desc *desc, rg_kernel **kernel);

#ifdef __cplusplus
}
#endif

#endif
