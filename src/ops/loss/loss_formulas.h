/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Losses of single elements, and their derivatives by y and by t, on vectors. Where dl/dt is
 * missing it is minus dl/dy. */
#ifndef RG_OPS_LOSS_FORMULAS_H
#define RG_OPS_LOSS_FORMULAS_H

#include "backend/cpu/kernel.h"
#include "backend/cpu/math.h"
#include "ops/loss/loss.h"

typedef struct loss_numbers {
    real keep, share, epsilon, delta;
} loss_numbers;

RG_INLINE loss_numbers numbers_of(const rg_loss_numbers *n)
{
    return (loss_numbers){ (real)n->keep, (real)n->share, (real)n->epsilon, (real)n->delta };
}

#define NUMBERS(k) ((const loss_numbers *)(k))
#define UNUSED(a)  ((void)(a))

RG_FORMULA vreal absolute_loss(const void *k, vreal y, vreal t)
{
    UNUSED(k);
    return vabs(y - t);
}

RG_FORMULA vreal absolute_slope(const void *k, vreal y, vreal t)
{
    UNUSED(k);
    const vreal e = y - t; /* 0 and NaN stay what they are */
    return vselect(e > 0, vset(1), vselect(e < 0, vset(-1), e));
}

RG_FORMULA vreal squared_loss(const void *k, vreal y, vreal t)
{
    UNUSED(k);
    return (y - t) * (y - t);
}

RG_FORMULA vreal squared_slope(const void *k, vreal y, vreal t)
{
    UNUSED(k);
    return 2 * (y - t);
}

RG_FORMULA vreal sigmoid_loss(const void *k, vreal y, vreal t)
{
    t = t * vset(NUMBERS(k)->keep) + vset(NUMBERS(k)->share);
    return vmax(y, vset(0)) - y * t + vlog1p(vexp(-vabs(y)));
}

RG_FORMULA vreal sigmoid_slope(const void *k, vreal y, vreal t)
{
    return vsigmoid(y) - (t * vset(NUMBERS(k)->keep) + vset(NUMBERS(k)->share));
}

RG_FORMULA vreal sigmoid_label_slope(const void *k, vreal y, vreal t)
{
    UNUSED(t);
    return y * vset(-NUMBERS(k)->keep);
}

RG_FORMULA vreal categorical_loss(const void *k, vreal y, vreal t)
{
    UNUSED(k);
    return -t * vlog(y);
}

RG_FORMULA vreal categorical_slope(const void *k, vreal y, vreal t)
{
    UNUSED(k);
    return -t / y;
}

RG_FORMULA vreal categorical_label_slope(const void *k, vreal y, vreal t)
{
    UNUSED(k);
    UNUSED(t);
    return -vlog(y);
}

RG_FORMULA vreal hinge_loss(const void *k, vreal y, vreal t)
{
    UNUSED(k);
    return vmax(vset(0), 1 - (2 * t - 1) * y);
}

RG_FORMULA vreal hinge_slope(const void *k, vreal y, vreal t)
{
    UNUSED(k);
    return vselect(1 - (2 * t - 1) * y > 0, 1 - 2 * t, vset(0));
}

RG_FORMULA vreal hinge_label_slope(const void *k, vreal y, vreal t)
{
    UNUSED(k);
    return vselect(1 - (2 * t - 1) * y > 0, -2 * y, vset(0));
}

RG_FORMULA vreal huber_loss(const void *k, vreal y, vreal t)
{
    const vreal delta = vset(NUMBERS(k)->delta), e = y - t, half = vset((real)0.5);
    return vselect(vabs(e) <= delta, half * e * e, delta * (vabs(e) - half * delta));
}

RG_FORMULA vreal huber_slope(const void *k, vreal y, vreal t)
{
    const vreal delta = vset(NUMBERS(k)->delta);
    return vmax(-delta, vmin(delta, y - t));
}

RG_FORMULA vreal cosine_loss(const void *k, vreal y, vreal t)
{
    UNUSED(k);
    return -y * t;
}

RG_FORMULA vreal minus_label(const void *k, vreal y, vreal t) /* cosine, Kullback-Leibler */
{
    UNUSED(k);
    UNUSED(y);
    return -t;
}

RG_FORMULA vreal cosine_label_slope(const void *k, vreal y, vreal t)
{
    UNUSED(k);
    UNUSED(t);
    return -y;
}

RG_FORMULA vreal log_loss(const void *k, vreal y, vreal t)
{
    const vreal epsilon = vset(NUMBERS(k)->epsilon);
    return -t * vlog(y + epsilon) - (1 - t) * vlog((1 - y) + epsilon);
}

RG_FORMULA vreal log_slope(const void *k, vreal y, vreal t)
{
    const vreal epsilon = vset(NUMBERS(k)->epsilon);
    return (1 - t) / ((1 - y) + epsilon) - t / (y + epsilon);
}

RG_FORMULA vreal log_label_slope(const void *k, vreal y, vreal t)
{
    UNUSED(t);
    const vreal epsilon = vset(NUMBERS(k)->epsilon);
    return vlog((1 - y) + epsilon) - vlog(y + epsilon);
}

RG_FORMULA vreal kullback_loss(const void *k, vreal y, vreal t)
{
    UNUSED(k);
    return vselect(t == 0, t, t * vlog(t)) - t * y;
}

RG_FORMULA vreal kullback_label_slope(const void *k, vreal y, vreal t)
{
    UNUSED(k);
    return vlog(t) + 1 - y;
}

#endif
