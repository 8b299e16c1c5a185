/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  Concat: tensors joined along an axis.
 *
 *      y   = x0, then x1, … along the axis
 *      dxi = the slice of dy that xi occupies
 *
 *  With `multiple` above 1 every source takes up a multiple of `multiple` indices of the axis, and
 *  zeros fill what is missing. MPS concatenates channels in this way, with a multiple of 4.
 *
 *  All tensors have the same dtype: f32, f64, f16 or bf16 and, but for the axis, one shape. Every
 *  bit is kept. No result may share memory with what is read; sources may share it with each other.
 *  A producer that writes into a slice of y in the first place needs no concat at all. */
#ifndef RETROGRADE_CONCAT_H
#define RETROGRADE_CONCAT_H

#include <retrograde/kernel.h>

#ifdef __cplusplus
extern "C" {
#endif

/** How many and where. Initialize with rg_concat_desc_default(). */
typedef struct rg_concat_desc {
    uint32_t size;   /**< of this struct; set by rg_concat_desc_default() */
    int32_t sources; /**< how many inputs there are, 1 to 8 (default 2) */
    int64_t axis;    /**< negative ones count from the last (default -1: channels) */
    int64_t
        multiple; /**< every source is rounded up to it along the axis, at least 1 (default 1) */
} rg_concat_desc;
RG_API rg_concat_desc rg_concat_desc_default(void);

/** Creates a concat kernel; *desc is copied. On failure *kernel is NULL.
 *
 *      x0 (…, a0, …), x1 (…, a1, …), …  ->  y (…, a0 + a1 + …, …)
 *
 *  The gradient reads nothing but dy, and a dxi that is NULL is not computed; its shape comes from
 *  xi or the state. The state holds no tensors. */
RG_API rg_status rg_concat_create(rg_device *device, const rg_concat_desc *desc,
                                  rg_kernel **kernel);

#ifdef __cplusplus
}
#endif

#endif
