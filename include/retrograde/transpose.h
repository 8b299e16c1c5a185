/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  Transpose: the same elements with their dimensions in another order, copied. With p for `order`:
 *
 *      y(i[p(0)], i[p(1)], …) = x(i[0], i[1], …)        dx(i[0], i[1], …) = dy(i[p(0)], i[p(1)], …)
 *
 *  rg_tensor_permute gives a view that costs nothing; this is for results that must be dense.
 *
 *  x and y have the same dtype: f32, f64, f16 or bf16. Every bit is kept. No result may share
 *  memory with what is read. */
#ifndef RETROGRADE_TRANSPOSE_H
#define RETROGRADE_TRANSPOSE_H

#include <retrograde/kernel.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The order. Initialize with rg_transpose_desc_default(). */
typedef struct rg_transpose_desc {
    uint32_t size;       /**< of this struct; set by rg_transpose_desc_default() */
    int32_t order_count; /**< the rank of x, or 0: dimensions are reversed (default 0) */
    /** order[d] is the dimension of x that becomes dimension d of y, each once; negative ones count
     *  from the last. */
    int64_t order[RG_MAX_RANK];
} rg_transpose_desc;

RG_API rg_transpose_desc rg_transpose_desc_default(void);

/** Creates a transpose kernel; *desc is copied. On failure *kernel is NULL.
 *
 *      x (any shape)  ->  y (dimensions of x in that order)
 *
 *  The gradient reads nothing but dy. Its state holds no tensors. */
RG_API rg_status rg_transpose_create(rg_device *device, const rg_transpose_desc *desc,
                                     rg_kernel **kernel);

#ifdef __cplusplus
}
#endif

#endif
