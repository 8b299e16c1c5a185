/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  Pooling: the maximum, the mean or the Euclidean norm of each window of an image, channel by
 *  channel.
 *
 *      max      y = max of the taps        dx = dy for the tap that won, 0 for others
 *      average  y = sum of the taps / N    dx = dy / N
 *      l2       y = sqrt(sum of squares)   dx = dy x / y, 0 where y is 0
 *
 *  and dx of a pixel is the sum over all windows that contain it, in row-major order. Tap (p, q) of
 *  window (i, j) is pixel (i stride - top + p dilation, j stride - left + q dilation), see
 *  padding.h. Taps outside of the image:
 *
 *      edge zero   they are 0: a virtual 0 can be the maximum, and then its dy is dropped;
 *                  N = all taps of the window
 *      edge clamp  they are left out, as ONNX and the nodes of MPS do; N = the taps that lie in the
 *                  image, or in the image and a margin that is counted with it (see below)
 *
 *  A window without any pixel gives 0, and has no gradient. The first of equal maxima in row-major
 *  order wins, and the first NaN before all numbers.
 *
 *  x (n, h, w, c), or (h, w, c) for one image, and all other tensors have the same dtype: f32, f64,
 *  f16 or bf16, but for the indices, which are i64. dx may be x. */
#ifndef RETROGRADE_POOL_H
#define RETROGRADE_POOL_H

#include <retrograde/kernel.h>
#include <retrograde/padding.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum rg_pool_kind { RG_POOL_MAX, RG_POOL_AVERAGE, RG_POOL_L2 } rg_pool_kind;
typedef enum rg_pool_edge { RG_POOL_ZERO, RG_POOL_CLAMP } rg_pool_edge;

/** Descriptor of the pooling. Initialize with rg_pool_desc_default(). */
typedef struct rg_pool_desc {
    uint32_t size;     /**< of this struct; set by rg_pool_desc_default() */
    rg_pool_kind kind; /**< default RG_POOL_MAX */
    int32_t window[2]; /**< rows, columns; at least 1 (default 2, 2). Max: at most 2^31 - 1 taps */
    int32_t stride[2]; /**< stride between windows; at least 1 (default 2, 2) */
    int32_t dilation[2]; /**< dilation of the window; at least 1 (default 1, 1) */
    rg_padding padding;  /**< explicit, all 0 by default */
    rg_pool_edge edge;   /**< default RG_POOL_ZERO */
    /** Average with edge clamp: rows at the top and at the bottom, and columns at either side, that
     *  N counts with the image; MPS's zeroPadSizeY, zeroPadSizeX. At least 0 (default 0, 0). */
    int32_t zero_pad[2];
    /** Average with edge clamp: N counts the padding with the image, but nothing beyond it, as in
     *  ONNX and as MPS's ExcludeEdges; zero_pad is then not used (default false). */
    bool count_include_pad;
    /** Explicit padding: include a last, partial window (default false). */
    bool ceil_mode;
    /** Rows and columns of y; 0: computed from the padding (default 0, 0). Windows may lie
     *  anywhere, as with a destination of MPS that is larger or smaller than needed. */
    int64_t output[2];
    /** Max: a second output, `indices`, as ONNX's MaxPool has it; see rg_pool_create (default
     *  false). */
    bool indices;
    /** Indices count pixels along rows (0), or along columns (1), as in ONNX (default 0). */
    int32_t storage_order;
} rg_pool_desc;
RG_API rg_pool_desc rg_pool_desc_default(void);

/** What MPSCNNPoolingNode and its subclasses make of a filterSize: windows of `size` by `size`
 *  pixels with a stride of `size`, edge clamp, and a padding of SAME, centered, with the remainder
 *  at the top and at the left. `dilated` is MPSCNNDilatedPoolingMaxNode, whose dilation is `size`,
 *  too. */
RG_API rg_pool_desc rg_pool_desc_mps_node(rg_pool_kind kind, int32_t size, bool dilated);

/** Creates a pooling kernel; *desc is copied. On failure *kernel is NULL.
 *
 *      x (n, h, w, c)  ->  y (n, oh, ow, c)
 *
 *  Max: forward fills the state's "winners" (n, oh, ow, c), and the gradient reads these alone;
 *  without a state it finds them again from x. A winner is the number of a tap in its window, p
 *  columns + q, and 255 if a virtual 0 won (u8); in windows of more than 255 taps -1 (i32). Any
 *  other value passes no gradient. Average: the gradient reads dy alone. L2: it reads x and y.
 *  Their states contain no tensors.
 *
 *  With `indices` there is a second output (n, oh, ow, c) of i64: the index of the maximum in x,
 *  counted as ONNX does in the order (n, c, h, w), or (n, c, w, h) for a storage_order of 1,
 *  whatever the strides of x; -1 where a virtual 0 won, or no pixel was there. The gradient then
 *  reads the indices alone, y[1], from any source; dy has one entry. An index that is no pixel
 *  of its window, in its image and channel, is reported when the work is waited for, and dx is
 *  undefined; -1 is accepted where a virtual 0 can win. */
RG_API rg_status rg_pool_create(rg_device *device, const rg_pool_desc *desc, rg_kernel **kernel);

#ifdef __cplusplus
}
#endif

#endif
