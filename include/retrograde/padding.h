/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  Padding: where the windows of a pooling or a convolution lie on an image, and how many there
 *  are.
 *
 *  Along one axis, with n pixels, a window of k taps that are d apart, and a step s from one window
 *  to the next:
 *
 *      K = (k - 1) d + 1                   the pixels that a window spans
 *      tap p of window i is at             i s - before + p d,  0 <= p < k
 *      before + n + after = (windows - 1) s + K,  plus what a floor leaves over
 *
 *  `before` and `after` are the padding: pixels that lie outside of the image. Negative ones leave
 *  pixels of the image out. A transposed op goes the other way: n windows make an image of
 *  (n - 1) s + K - before - after pixels. */
#ifndef RETROGRADE_PADDING_H
#define RETROGRADE_PADDING_H

#include <retrograde/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/** How padding and size of the result are found. `extra` = (windows - 1) s + K - n: pixels
 *  missing from the image; negative if pixels are left over. */
typedef enum rg_padding_policy {
    RG_PADDING_EXPLICIT,   /**< the four numbers; windows = floor((before + n + after - K) / s) + 1.
                                With numbers of 0 this is ONNX's auto_pad VALID */
    RG_PADDING_VALID,      /**< MPS: windows = ceil((n - (K - 1)) / s) */
    RG_PADDING_SAME,       /**< MPS: windows = ceil(n / s) */
    RG_PADDING_FULL,       /**< MPS: windows = ceil((n + K - 1) / s) */
    RG_PADDING_SAME_UPPER, /**< ONNX: windows = ceil(n / s), before = max(extra, 0) / 2 */
    RG_PADDING_SAME_LOWER  /**< ONNX: windows = ceil(n / s), before = (max(extra, 0) + 1) / 2 */
} rg_padding_policy;

/** MPS: which side `extra` goes to. */
typedef enum rg_padding_align {
    RG_PADDING_CENTERED,    /**< both; before = (extra + r) / 2, r = 1 if the remainder goes here */
    RG_PADDING_TOP_LEFT,    /**< before = extra */
    RG_PADDING_BOTTOM_RIGHT /**< before = 0 */
} rg_padding_align;

/** MPS: which sides get the odd pixel where `extra` is centered. */
typedef enum rg_padding_remainder {
    RG_REMAINDER_TOP_LEFT,
    RG_REMAINDER_TOP_RIGHT,
    RG_REMAINDER_BOTTOM_LEFT,
    RG_REMAINDER_BOTTOM_RIGHT /**< TensorFlow's choice */
} rg_padding_remainder;

/** All 0 is explicit, without padding. */
typedef struct rg_padding {
    rg_padding_policy policy;         /**< default RG_PADDING_EXPLICIT */
    rg_padding_align align;           /**< of MPS's policies; default RG_PADDING_CENTERED */
    rg_padding_remainder remainder;   /**< of MPS's policies; default RG_REMAINDER_TOP_LEFT */
    int32_t top, left, bottom, right; /**< if explicit; may be negative (default 0) */
} rg_padding;

/** What windows are laid on. Entry 0 is about rows, entry 1 about columns. */
typedef struct rg_window {
    int64_t source[2];   /**< n: pixels of the source, at least 0 */
    int32_t window[2];   /**< k: taps, at least 1 */
    int32_t stride[2];   /**< s: at least 1 */
    int32_t dilation[2]; /**< d: at least 1 */
    int64_t output[2];   /**< pixels of the result as the caller wants them; 0: by the policy */
    bool ceil_mode;      /**< if explicit: include a last, partial window, where it begins before
                              the padding after the image */
    bool transposed;     /**< source and result change places */
} rg_window;

/** Where they lie. */
typedef struct rg_placement {
    int64_t output[2]; /**< pixels of the result */
    int64_t before[2]; /**< padding at the top and at the left */
    int64_t after[2];  /**< padding at the bottom and at the right, as far as windows reach */
    /** MPS's `offset`: the source pixel under the centre of the first window, floor(K / 2) -
     *  before. Transposed: its `kernelOffset`. */
    int64_t offset[2];
} rg_placement;

/** A padding policy of the caller's own, MPS's custom MPSNNPadding: places the windows of an op
 *  (pool, conv, conv_transpose). `window` is what they are laid on, and *placement what the padding
 *  of the descriptor suggests. The rule may change `output` and `before` of the placement; `after`
 *  and `offset` follow from them. `desc` is a copy of the op's descriptor, such as an rg_pool_desc:
 *  the rule may change it, too, as a hook of MPS may change properties of its kernel, but neither
 *  its size nor the number of its inputs and outputs. It must give the same for the same sizes. A
 *  status other than RG_OK becomes that of the caller. See rg_kernel_place() and
 *  rg_node_set_padding_rule(). */
typedef rg_status rg_padding_rule(void *context, const char *op, void *desc,
                                  const rg_window *window, rg_placement *placement);

/** Resolves a padding. Refuses sizes out of range or so large that positions overflow, and
 *  windows of which not one fits: RG_INVALID_ARGUMENT, *placement stays as it was. */
RG_API rg_status rg_padding_resolve(const rg_padding *padding, const rg_window *window,
                                    rg_placement *placement);

/** The policy that undoes another: VALID and FULL change places, the others stay. */
RG_API rg_padding rg_padding_inverse(rg_padding padding);

/** A policy from the bits of an MPSNNPaddingMethod. The bits for custom policies are the caller's
 *  to obey, ExcludeEdges is `count_include_pad` of a pooling; both are ignored. Reserved
 *  values and unknown bits are refused. */
RG_API rg_status rg_padding_from_mps(uint64_t method, rg_padding *padding);

#ifdef __cplusplus
}
#endif

#endif
