/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  Softmax and log-softmax.
 *
 *  Over a group of elements j that are normalized together:
 *
 *      softmax      y_i  = e^(x_i - m) / sum_j e^(x_j - m),  m = max_j x_j
 *                   dx_i = y_i (dy_i - sum_j dy_j y_j)
 *      log-softmax  y_i  = x_i - m - log(sum_j e^(x_j - m))
 *                   dx_i = dy_i - e^(y_i) sum_j dy_j
 *
 *  x, y, dy and dx have one shape and one dtype of f32, f64, f16, bf16. The gradient reads y
 *  alone, which need not be a result of softmax: the formula holds for any y. y may be x, and dx
 *  may be dy or y. */
#ifndef RETROGRADE_SOFTMAX_H
#define RETROGRADE_SOFTMAX_H

#include <retrograde/kernel.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum rg_softmax_kind { RG_SOFTMAX_PLAIN, RG_SOFTMAX_LOG } rg_softmax_kind;

/** What to normalize. Initialize with rg_softmax_desc_default(). */
typedef struct rg_softmax_desc {
    uint32_t size;        /**< of this struct; set by rg_softmax_desc_default() */
    rg_softmax_kind kind; /**< default RG_SOFTMAX_PLAIN */
    /** The dimension of a group, from -rank to rank - 1 (default -1, the last). */
    int64_t axis;
    /** Whether a group spans `axis` and all dimensions after it, as in ONNX before opset 13
     *  (default false). */
    bool flatten;
} rg_softmax_desc;
RG_API rg_softmax_desc rg_softmax_desc_default(void);

/** Creates a softmax kernel; *desc is copied. On failure *kernel is NULL.
 *
 *      x (any shape of rank 1 to 8)  ->  y (the same)
 *
 *  Its state contains no tensors. */
RG_API rg_status rg_softmax_create(rg_device *device, const rg_softmax_desc *desc,
                                   rg_kernel **kernel);

#ifdef __cplusplus
}
#endif

#endif
