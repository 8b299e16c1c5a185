/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  Pad: images with more, or fewer, rows, columns, channels and images around them.
 *
 *  Along each axis of length `in`, output o is input i = o - before, and where that lies outside
 *
 *      zero         0
 *      constant     `value`, or the number of the output's channel in `fill`
 *      clamp        the nearest input: 0 or in - 1
 *      mirror       x0 x1 x2 goes on as x1 x0, before x0 as … x2 x1
 *      mirror_edge  x0 x1 x2 goes on as x2 x1 x0, before x0 as … x1 x0
 *
 *  each axis by itself; with zero and constant one axis outside is enough. Negative paddings cut
 *  off. The gradient adds every dy to the input that it was copied from, in the order of dy;
 *  dfill gets what no input did.
 *
 *  x, y, fill, dy, dx and dfill have the same dtype: f32, f64, f16 or bf16. None may overlap
 *  another. */
#ifndef RETROGRADE_PAD_H
#define RETROGRADE_PAD_H

#include <retrograde/kernel.h>

#ifdef __cplusplus
extern "C" {
#endif

/** MPSImageEdgeMode, in another order. */
typedef enum rg_pad_mode {
    RG_PAD_ZERO,
    RG_PAD_CONSTANT,
    RG_PAD_CLAMP,
    RG_PAD_MIRROR,
    RG_PAD_MIRROR_EDGE
} rg_pad_mode;

/** How much to pad. Initialize with rg_pad_desc_default(). */
typedef struct rg_pad_desc {
    uint32_t size;     /**< of this struct; set by rg_pad_desc_default() */
    rg_pad_mode mode;  /**< default RG_PAD_ZERO */
    int64_t before[4]; /**< images, rows, columns, channels in front; may be negative (default 0) */
    int64_t after[4];  /**< and after it (default 0) */
    double value;      /**< constant: what to fill with (default 0) */
    bool fill; /**< constant: filled from a second input, in place of value (default false) */
    /** Whether mirror and mirror_edge go on, to and fro, where a padding is longer than the image
     *  has pixels to mirror, as in MPS (default false: refused, as in ONNX and PyTorch). */
    bool repeat;
} rg_pad_desc;
RG_API rg_pad_desc rg_pad_desc_default(void);

/** Creates a padding kernel; *desc is copied. On failure *kernel is NULL.
 *
 *      x (n, h, w, c)[, fill (c of y)]  ->  y (n, h, w, c, each + before + after)
 *
 *  x and y may come without n, and then have no padding of it. The gradient reads none of them.
 *  Its state contains no tensors. */
RG_API rg_status rg_pad_create(rg_device *device, const rg_pad_desc *desc, rg_kernel **kernel);

#ifdef __cplusplus
}
#endif

#endif
