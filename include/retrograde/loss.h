/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  Losses: how far predictions y are from labels t, as one number, and its gradient.
 *
 *      kind                       l(y, t)                               dl/dy            dl/dt
 *      mean_absolute              |y - t|                               sign(y - t)      -dl/dy
 *      mean_squared               (y - t)^2                             2 (y - t)        -dl/dy
 *      softmax_cross_entropy      -t s,  s = log-softmax(y)             see below        -s
 *      sigmoid_cross_entropy      max(y, 0) - y t + log(1 + e^-|y|)     sigmoid(y) - t   -y
 *      categorical_cross_entropy  -t log y                              -t / y           -log y
 *      hinge, t in {0, 1}         max(0, 1 - (2t - 1) y)                1 - 2t, or 0     -2y, or 0
 *      huber, e = y - t           e^2 / 2;  delta (|e| - delta / 2)     e;  delta or     -dl/dy
 *                                 where |e| > delta                     -delta there
 *      cosine_distance            -y t;  1 plus the sum of them         -t               -y
 *      log, p = y + epsilon,      -t log p - (1 - t) log q              (1-t)/q - t/p    log q
 *           q = 1 - y + epsilon                                                          - log p
 *      kullback_leibler           t (log t - y)                         -t               log t
 *                                                                                        + 1 - y
 *
 *  At y = t the derivative of |y - t| is 0. In kullback_leibler y are logarithms of probabilities,
 *  and t log t is 0 where t is 0. Arithmetic decides what becomes of numbers that a logarithm does
 *  not take: infinity or NaN.
 *
 *  **Softmax cross-entropy** normalizes over the last dimension, and is exact for huge logits too.
 *  With g the weight of an element (times dy), over the elements j of a row
 *
 *      dl/dy_i = softmax(y)_i sum_j g_j t_j - g_i t_i
 *
 *  which is softmax(y) - t where weights are 1 and labels sum to 1.
 *
 *  **Label smoothing** changes labels before all else: t becomes t (1 - label_smoothing) +
 *  label_smoothing / classes for softmax, and t (1 - label_smoothing) + label_smoothing / 2 for
 *  sigmoid_cross_entropy.
 *
 *  **Weights.** Every l is multiplied by `weight`, and by its element of the input `weights` where
 *  there is one. The 1 of cosine_distance is added for each image, multiplied by `weight` alone.
 *
 *  **Reduction** of weighted losses, over each image (all but dimension 0), or over all of them:
 *
 *      none                        one loss for each label
 *      sum                         their sum
 *      mean                        divided by the number of predictions; for softmax_cross_entropy
 *                                  and for class labels by the number of rows
 *      sum_by_non_zero_weights     the sum divided by the number of labels whose weight is not 0;
 *                                  0 if there is none
 *
 *  **Class labels** are integers, one for each row of the last dimension: the number of the element
 *  whose t is 1, while all others are 0 and do not count. softmax_cross_entropy, kullback_leibler
 *  (then known as negative log-likelihood) and categorical_cross_entropy take them. A label
 *  `ignored` has weight 0. Any other label that is not the number of an element makes the commands
 *  fail with RG_KERNEL_FAULT; what they have written by then is not specified.
 *
 *  y, dense labels, weights, the loss and gradients have the same dtype: f32, f64, f16 or bf16;
 *  class labels are i32 or i64. The gradient of y, also as the output `gradient`, may take its
 *  place.
 */
#ifndef RETROGRADE_LOSS_H
#define RETROGRADE_LOSS_H

#include <retrograde/kernel.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum rg_loss_kind {
    RG_LOSS_MEAN_ABSOLUTE,
    RG_LOSS_MEAN_SQUARED,
    RG_LOSS_SOFTMAX_CROSS_ENTROPY,
    RG_LOSS_SIGMOID_CROSS_ENTROPY,
    RG_LOSS_CATEGORICAL_CROSS_ENTROPY,
    RG_LOSS_HINGE,
    RG_LOSS_HUBER,
    RG_LOSS_COSINE_DISTANCE,
    RG_LOSS_LOG,
    RG_LOSS_KULLBACK_LEIBLER,
    /** No loss: the gradient to begin with, 1 for every element of y. */
    RG_LOSS_INITIAL_GRADIENT
} rg_loss_kind;

typedef enum rg_loss_reduction {
    RG_LOSS_NONE,
    RG_LOSS_SUM,
    RG_LOSS_MEAN,
    RG_LOSS_SUM_BY_NON_ZERO_WEIGHTS
} rg_loss_reduction;

typedef enum rg_loss_labels { RG_LOSS_DENSE_LABELS, RG_LOSS_CLASS_LABELS } rg_loss_labels;

/** Which loss. Initialize with rg_loss_desc_default(). */
typedef struct rg_loss_desc {
    uint32_t size;               /**< of this struct; set by rg_loss_desc_default() */
    rg_loss_kind kind;           /**< default RG_LOSS_SOFTMAX_CROSS_ENTROPY */
    rg_loss_reduction reduction; /**< default RG_LOSS_MEAN; cosine_distance has RG_LOSS_SUM alone */
    /** Whether the loss is one number for the batch (true, the default) or one per image.
     *  Ignored without a reduction. */
    bool across_batch;
    rg_loss_labels labels;  /**< default RG_LOSS_DENSE_LABELS */
    bool weights;           /**< whether there is an input `weights` (default false) */
    double weight;          /**< factor of all losses; finite (default 1) */
    double label_smoothing; /**< 0 to 1, of softmax and sigmoid; 0 elsewhere (default 0) */
    int64_t classes;        /**< of label smoothing; 0: elements of the last dimension (default) */
    double epsilon;         /**< of log; 0 or more (default 1e-7) */
    double delta;           /**< of huber; more than 0 (default 1) */
    bool has_ignored;       /**< whether `ignored` is given (default false) */
    int64_t ignored;        /**< a class label that does not count (default 0) */
    /** Whether there is a second output, the gradient of y for dy = 1, made in the same pass
     *  (default false). */
    bool gradient_output;
    /** Whether gradients are those of a sum, without the divisor of mean and of
     *  sum_by_non_zero_weights, as in MPS (default false: exact). */
    bool undivided_gradient;
} rg_loss_desc;
RG_API rg_loss_desc rg_loss_desc_default(void);

/** Creates a loss kernel; *desc is copied. On failure *kernel is NULL.
 *
 *      y (n, ..., c), labels (the same; or classes (n, ...))[, weights (shape of labels)]
 *      ->  loss (shape of labels; (n); or of rank 0)[, gradient (shape of y)]
 *      y (any shape)  ->  loss (the same), for RG_LOSS_INITIAL_GRADIENT
 *
 *  The gradient reads all inputs and takes dy of the loss alone, where NULL stands for 1. It gives
 *  dx of y and, where labels are dense, of labels; weights have none, nor has the initial gradient.
 *  The state holds no tensors. */
RG_API rg_status rg_loss_create(rg_device *device, const rg_loss_desc *desc, rg_kernel **kernel);

#ifdef __cplusplus
}
#endif

#endif
