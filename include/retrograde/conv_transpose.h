/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  Transposed convolution: every pixel of x spreads a window of weights over the result, and
 *  windows that overlap are added. It goes the way that the gradient of a convolution goes.
 *
 *  Along one axis, with a stride s, a dilation d and a padding `before` (see padding.h,
 *  `transposed`):
 *
 *      z(u, o) = b(o) + sum of W(p, o, c) x(i, c) over all i, p, c with i s - before + p d = u
 *      y = neuron(z)
 *
 *      g = dy neuron'(z)
 *      dx(i, c)    = sum of W(p, o, c) g(i s - before + p d, o) over p, o
 *      dW(p, o, c) = sum of g(i s - before + p d, o) x(i, c) over images and i
 *      db(o)       = sum of g(u, o) over images and u
 *
 *  with w in one of two layouts, k being the taps of a window:
 *
 *      out_in  W(p, o, c) = w(o, k - 1 - p, c)   MPS: zeros are put between the pixels of x, then
 *  an ordinary convolution goes over it, whose weights are not rotated; w (out, kh, kw, in /
 *  groups)
 *      in_out  W(p, o, c) = w(c, p, o)           ONNX, PyTorch: the weights of the convolution that
 *                                                goes the other way; w (in, kh, kw, out / groups)
 *
 *  With groups, channels are divided into as many independent groups of equal size; o or c, the
 *  last dimension of w, counts within a part. x (n, h, w, in) or (h, w, in) for one image; b (out).
 *  All tensors have the same dtype: f32, f64, f16 or bf16, except that dw and db may each be f32
 *  beside f16 and bf16, as with conv. */
#ifndef RETROGRADE_CONV_TRANSPOSE_H
#define RETROGRADE_CONV_TRANSPOSE_H

#include <retrograde/neuron.h>
#include <retrograde/padding.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum rg_conv_transpose_layout {
    RG_CONV_TRANSPOSE_OUT_IN, /**< as in MPS */
    RG_CONV_TRANSPOSE_IN_OUT  /**< as in ONNX and PyTorch */
} rg_conv_transpose_layout;

/** Descriptor of the convolution; the window is that of w. Initialize with
 *  rg_conv_transpose_desc_default(). */
typedef struct rg_conv_transpose_desc {
    uint32_t size;                   /**< of this struct; set by rg_conv_transpose_desc_default() */
    rg_conv_transpose_layout layout; /**< default RG_CONV_TRANSPOSE_OUT_IN */
    int32_t groups;                  /**< at least 1 (default 1); or 0: as many as x has channels */
    int32_t stride[2];   /**< stride between windows, rows and columns; at least 1 (default 1, 1) */
    int32_t dilation[2]; /**< dilation of the window; at least 1 (default 1, 1) */
    /** Explicit, all 0 by default: y has (n - 1) s + K - before - after pixels. What ONNX and
     *  PyTorch call output_padding is taken off `bottom` and `right`. */
    rg_padding padding;
    /** Rows and columns of y; 0: computed from the padding (default 0, 0). */
    int64_t output[2];
    /** Where windows lie follows from kernel_offset, not from the padding (default false). */
    bool by_offset;
    /** MPS's kernelOffsetY, kernelOffsetX, plus its offset times the stride: before = offset + K -
     * 1
     *  - floor(K / 2) (default 0, 0). */
    int32_t kernel_offset[2];
    bool bias; /**< whether `b` is an input (default true); otherwise 0 */
    /** Of kind none by default. Not prelu, and from_y must be false, as for a convolution. */
    rg_neuron_desc neuron;
} rg_conv_transpose_desc;
RG_API rg_conv_transpose_desc rg_conv_transpose_desc_default(void);

/** Creates a transposed convolution kernel; *desc is copied. On failure *kernel is NULL.
 *
 *      x (n, h, w, in), w[, b (out)]  ->  y (n, oh, ow, out)
 *
 *  The gradient reads x and w, and y, or z of the state, as that of a convolution does; see
 *  rg_conv_create. */
RG_API rg_status rg_conv_transpose_create(rg_device *device, const rg_conv_transpose_desc *desc,
                                          rg_kernel **kernel);

#ifdef __cplusplus
}
#endif

#endif
