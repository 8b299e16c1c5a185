/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What the cases and random trials of sgd, rmsprop and adam share. */
#ifndef RG_OPS_OPTIMIZER_UPDATE_DRAW_H
#define RG_OPS_OPTIMIZER_UPDATE_DRAW_H

#include "ops/optest_draw.h"

#include <retrograde/optimizer.h>

enum { F32 = 1 << RG_F32, F16 = 1 << RG_F16, BF16 = 1 << RG_BF16 };

/* NaN and infinities of a gradient. */
static inline double special(int64_t i)
{
    const double values[] = { __builtin_nan(""), __builtin_inf(), -__builtin_inf(), 0, 1, -3, 0.5 };
    return values[i % 7];
}

static inline double infinite(int64_t i)
{
    (void)i;
    return __builtin_inf();
}

/* Parameters and moments in what kernels compute in, gradients in 16 bits too, and the learning
 * rate after them. Returns the number of the next input. */
static inline int32_t draw_update(rg_draw *d, int32_t moments, rg_dtype *real)
{
    *real = rg_draw_real_dtype(d);
    const rg_tensor_desc shape = rg_draw_shape(d, 0, RG_MAX_RANK);
    const int32_t rate = 2 + moments;
    for (int32_t i = 0; i < rate; i++)
        d->x[i] = rg_tensor_desc_dense(i == 1 ? d->dtype : *real, shape.rank, shape.dims);
    d->x_fill[rate] = (rg_fill){ .low = 0.01, .high = 0.2 };
    d->x[rate] = rg_draw_scalar(*real);
    return rate + 1;
}

/* The rules of the gradient, and its scale, input `scale`. */
static inline void draw_rules(rg_draw *d, int32_t scale, rg_dtype real, rg_gradient_rules *rules)
{
    d->x_fill[scale] = (rg_fill){ .low = 0.25, .high = 2 };
    d->x[scale] = rg_draw_scalar(real);
    if (rules->regularization == RG_REGULARIZATION_NONE)
        rules->regularization_scale = 0;
    if (rg_draw_chance(d, 0.6)) {
        rules->clip_minimum = -__builtin_inf();
        rules->clip_maximum = __builtin_inf();
    }
}

#endif
