/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  Slice: part of a tensor, copied.
 *
 *      y[i, j, …] = x[start0 + i step0, start1 + j step1, …]
 *      dx         = dy at the elements of the slice, 0 at all others
 *
 *  A view by rg_tensor_slice costs nothing and serves wherever strides are taken; this is for
 *  results that must stand by themselves, and for the gradient. Where it is added into dx the
 *  elements outside of the slice are left alone; otherwise every element of dx is written once.
 *
 *  x and y have one rank and one dtype of f32, f64, f16, bf16. Forward keeps every bit. No result
 *  may share memory with what is read. */
#ifndef RETROGRADE_SLICE_H
#define RETROGRADE_SLICE_H

#include <retrograde/kernel.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Which part. Initialize with rg_slice_desc_default(). Entry d of each
 *  list is for dimension d; dimensions after the end of a list take the default, and so does x as a
 *  whole where all lists are empty. A list that is longer than the rank of x is refused. */
typedef struct rg_slice_desc {
    uint32_t size;        /**< of this struct; set by rg_slice_desc_default() */
    int32_t start_count;  /**< entries of start, 0 to RG_MAX_RANK (default 0) */
    int32_t length_count; /**< entries of length (default 0) */
    int32_t step_count;   /**< entries of step (default 0) */
    /** The first element: 0 (default) to the length of the dimension; negative ones count from
     *  its end. */
    int64_t start[RG_MAX_RANK];
    int64_t length[RG_MAX_RANK]; /**< elements; -1 (default): as many as there are */
    int64_t step[RG_MAX_RANK];   /**< from one element to the next, at least 1 (default 1) */
} rg_slice_desc;
RG_API rg_slice_desc rg_slice_desc_default(void);

/** Creates a slice kernel; *desc is copied. On failure *kernel is NULL.
 *
 *      x (any shape)  ->  y (length0, length1, …)
 *
 *  An element outside of x is refused. The gradient reads nothing but dy, and its state holds no
 *  tensors; x, dx or the state give the shape of the source. */
RG_API rg_status rg_slice_create(rg_device *device, const rg_slice_desc *desc, rg_kernel **kernel);

#ifdef __cplusplus
}
#endif

#endif
