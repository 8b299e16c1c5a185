/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  Reductions: one number from all elements along some dimensions.
 *
 *      sum      y = weight sum x          dx = weight dy
 *      mean     y = weight sum x / n      dx = weight dy / n
 *      min      y = the least x           dx = dy at the winner, 0 elsewhere
 *      max      y = the largest x         dx = dy at the winner, 0 elsewhere
 *      arg_min  y = number of the winner  no gradient
 *      arg_max  y = number of the winner  no gradient
 *
 *  A group is what becomes one number: n elements, counted in row-major order of the dimensions
 *  that are reduced. The winner is the first of equal elements. A NaN is less than all numbers for
 *  min and larger for max, so the first NaN wins. The sum of no elements is 0, their mean NaN; the
 *  others refuse an empty group.
 *
 *  x, dy and dx have the same dtype: f32, f64, f16 or bf16; so has y, except for arg_min and
 *  arg_max, where it is i64. Sums of f16 and bf16 are kept in f32 and, over long distances, in f64.
 */
#ifndef RETROGRADE_REDUCE_H
#define RETROGRADE_REDUCE_H

#include <retrograde/kernel.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum rg_reduce_kind {
    RG_REDUCE_SUM,
    RG_REDUCE_MEAN,
    RG_REDUCE_MIN,
    RG_REDUCE_MAX,
    RG_REDUCE_ARG_MIN,
    RG_REDUCE_ARG_MAX
} rg_reduce_kind;

/** What to reduce. Initialize with rg_reduce_desc_default(). */
typedef struct rg_reduce_desc {
    uint32_t size;       /**< of this struct; set by rg_reduce_desc_default() */
    rg_reduce_kind kind; /**< default RG_REDUCE_SUM */
    /** Whether y has the rank of x, with 1 in place of what is reduced (default true); otherwise
     *  these dimensions are left out. */
    bool keep_dims;
    int32_t dims_count; /**< used length of `dims`; 0: all dimensions (default 0) */
    /** Dimensions to reduce; negative ones count from the last. Of images (n, h, w, c): rows are
     * -2, columns -3, channels -1, whole images -3, -2. */
    int64_t dims[RG_MAX_RANK];
    double weight; /**< sum and mean: factor; 1 for the others (default 1) */
} rg_reduce_desc;
RG_API rg_reduce_desc rg_reduce_desc_default(void);

/** Creates a reduction kernel; *desc is copied. On failure *kernel is NULL.
 *
 *      x (any shape)  ->  y (x without `dims`, or with 1 in their place)
 *
 *  Min and max: forward fills the state's "winners", of i64 and the shape of y, with what arg_min
 *  and arg_max give, and the gradient reads these alone; without a state it finds them again from
 *  x. A winner that is no number of its group passes no gradient. Sum and mean: the gradient reads
 *  dy alone. All but min and max have a state without tensors. */
RG_API rg_status rg_reduce_create(rg_device *device, const rg_reduce_desc *desc,
                                  rg_kernel **kernel);

#ifdef __cplusplus
}
#endif

#endif
