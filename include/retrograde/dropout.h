/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  Dropout: a random part of the elements is set to 0, the rest is scaled so that the mean stays.
 *
 *      y  = m ? x / keep : 0        m is true with probability keep
 *      dx = m ? dy / keep : 0       with the mask m of the forward pass
 *
 *  Where an element is dropped the result is 0, even if it was infinite or NaN. The factor 1 / keep
 *  is rounded once to the type that is computed in (double for f64, otherwise float).
 *
 *  **The mask** has the shape of x, with 1 in place of every dimension of `broadcast`, along which
 *  one value serves all elements. Its element number m, in row-major order, is kept if a random
 *  number of 32 bits is less than keep times 2^32, rounded to a whole number that is at least 1.
 *  The upper 16 bits of the number are half m % 8 of block m / 8 (lower halves of words first), the
 *  lower 16 bits the same half of block 2^63 + m / 8. A block is Philox4x32-10 with the counter
 *  (block, step) and the key `seed`, lower words first: the same bits on every device, for every
 *  dtype, layout and number of threads.
 *
 *  x, y, dy and dx have one shape and one dtype of f32, f64, f16, bf16. y may be x, dx may be dy.
 */
#ifndef RETROGRADE_DROPOUT_H
#define RETROGRADE_DROPOUT_H

#include <retrograde/kernel.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What to drop. Initialize with rg_dropout_desc_default(). */
typedef struct rg_dropout_desc {
    uint32_t size; /**< of this struct; set by rg_dropout_desc_default() */
    double keep;   /**< probability that an element stays; more than 0, at most 1 (default 0.5) */
    int64_t seed;  /**< key of the random numbers, any 64 bits (default 0) */
    int64_t step;  /**< counts forward passes: another step, another mask (default 0) */
    /** Whether there is a second input, a number that is added to `step` when the kernel runs, so
     *  that recorded work that runs again draws a new mask each time (default false). */
    bool step_input;
    int32_t broadcast_count; /**< used length of `broadcast` (default 0) */
    /** Dimensions along which the mask is the same; negative ones count from the last. (1, 2)
     *  drops whole channels of images (n, h, w, c). */
    int64_t broadcast[RG_MAX_RANK];
} rg_dropout_desc;
RG_API rg_dropout_desc rg_dropout_desc_default(void);

/** Creates a dropout kernel; *desc is copied. On failure *kernel is NULL.
 *
 *      x (any shape)[, step (rank 0, i64)]  ->  y (shape of x)
 *
 *  Forward works without a state. The gradient reads the state alone, which holds `mask`, u8 of one
 *  dimension: element m of the mask is bit m % 8 of byte m / 8; bits after the last one are 0. The
 *  step has no gradient. Image n of a batch of separate tensors has a mask of its own: its key is
 *  seed + n 0x9e3779b97f4a7c15. In a graph, each run of a plan draws a new mask: without
 *  `step_input` the number of the run, from 0, takes its place; see rg_plan_options.new_masks. */
RG_API rg_status rg_dropout_create(rg_device *device, const rg_dropout_desc *desc,
                                   rg_kernel **kernel);

#ifdef __cplusplus
}
#endif

#endif
