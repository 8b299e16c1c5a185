/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  Reshape: the same elements in row-major order under other dimensions, copied.
 *
 *      y  = elements of x in order        dx = elements of dy in order
 *
 *  Where the strides of a tensor allow it, rg_tensor_reshape gives a view that costs nothing; this
 *  is for all others, and for results that must stand by themselves.
 *
 *  x and y have the same dtype: f32, f64, f16 or bf16 and as many elements. Every bit is kept. No
 *  result may share memory with what is read. */
#ifndef RETROGRADE_RESHAPE_H
#define RETROGRADE_RESHAPE_H

#include <retrograde/kernel.h>

#ifdef __cplusplus
extern "C" {
#endif

/** To what. Initialize with rg_reshape_desc_default(). */
typedef struct rg_reshape_desc {
    uint32_t size;      /**< of this struct; set by rg_reshape_desc_default() */
    int32_t dims_count; /**< the rank of y, 0 to RG_MAX_RANK (default 1) */
    /** The dimensions of y, outermost first; one of them may be -1, which stands for what is left
     *  (default -1: x becomes flat). */
    int64_t dims[RG_MAX_RANK];
    /** A 0 in `dims` stands for the dimension of x at the same place, as in ONNX, and not for an
     *  empty one (default false). */
    bool zero_keeps;
} rg_reshape_desc;
RG_API rg_reshape_desc rg_reshape_desc_default(void);

/** Creates a reshape kernel; *desc is copied. On failure *kernel is NULL.
 *
 *      x (any shape)  ->  y (dims)
 *
 *  The gradient reads nothing but dy, and its state holds no tensors; x, dx or the state give
 *  the shape of the source. */
RG_API rg_status rg_reshape_create(rg_device *device, const rg_reshape_desc *desc,
                                   rg_kernel **kernel);

#ifdef __cplusplus
}
#endif

#endif
