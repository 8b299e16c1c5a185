/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Losses of single elements, and their derivatives by y and by t. Where dl/dt is missing it is
 * minus dl/dy. Valid C and valid CUDA. */
#ifndef RG_OPS_LOSS_FORMULAS_H
#define RG_OPS_LOSS_FORMULAS_H

#include "backend/formula.h"
#include "ops/loss/loss.h"

#include <retrograde/loss.h>

/* Kinds that have formulas, X(KIND, name, OWN or MINUS): whether dl/dt has one, too. */
#define RG_LOSS_FORMULAS(X)                        \
    X(MEAN_ABSOLUTE, absolute, MINUS)              \
    X(MEAN_SQUARED, squared, MINUS)                \
    X(SIGMOID_CROSS_ENTROPY, sigmoid, OWN)         \
    X(CATEGORICAL_CROSS_ENTROPY, categorical, OWN) \
    X(HINGE, hinge, OWN)                           \
    X(HUBER, huber, MINUS)                         \
    X(COSINE_DISTANCE, cosine, OWN)                \
    X(LOG, log, OWN)                               \
    X(KULLBACK_LEIBLER, kullback, OWN)

/* rg_loss_numbers, cast once. */
RG_FORMULA_STRUCT(loss_numbers)
{
    real keep, share, epsilon, delta;
};

RG_FORMULA_CAST RG_OF(loss_numbers) numbers_of(const rg_loss_numbers *n)
{
    const RG_OF(loss_numbers)
        k = { (real)n->keep, (real)n->share, (real)n->epsilon, (real)n->delta };
    return k;
}

/* No formula needs all parameters. */
#define LOSS_UNUSED __attribute__((unused))
#define LOSS_FORMULA(name)                                                         \
    RG_FORMULA_INLINE vreal loss_##name(LOSS_UNUSED const RG_OF(loss_numbers) * k, \
                                        LOSS_UNUSED vreal y, LOSS_UNUSED vreal t)

LOSS_FORMULA(absolute_value)
{
    return vabs(y - t);
}

LOSS_FORMULA(absolute_slope)
{
    const vreal e = y - t; /* 0 and NaN stay what they are */
    return vselect(e > 0, vset(1), vselect(e < 0, vset(-1), e));
}

LOSS_FORMULA(squared_value)
{
    return (y - t) * (y - t);
}

LOSS_FORMULA(squared_slope)
{
    return 2 * (y - t);
}

LOSS_FORMULA(sigmoid_value)
{
    t = t * vset(k->keep) + vset(k->share);
    return vmax(y, vset(0)) - y * t + log1p_of(exp_of(-vabs(y), false), false);
}

LOSS_FORMULA(sigmoid_slope)
{
    const vreal z = exp_of(-vabs(y), false);
    return vselect(y < 0, z, vset(1)) / (1 + z) - (t * vset(k->keep) + vset(k->share));
}

LOSS_FORMULA(sigmoid_label_slope)
{
    return y * vset(-k->keep);
}

LOSS_FORMULA(categorical_value)
{
    return -t * log_of(y, false);
}

LOSS_FORMULA(categorical_slope)
{
    return -t / y;
}

LOSS_FORMULA(categorical_label_slope)
{
    return -log_of(y, false);
}

LOSS_FORMULA(hinge_value)
{
    return vmax(vset(0), 1 - (2 * t - 1) * y);
}

LOSS_FORMULA(hinge_slope)
{
    return vselect(1 - (2 * t - 1) * y > 0, 1 - 2 * t, vset(0));
}

LOSS_FORMULA(hinge_label_slope)
{
    return vselect(1 - (2 * t - 1) * y > 0, -2 * y, vset(0));
}

LOSS_FORMULA(huber_value)
{
    const vreal delta = vset(k->delta), e = y - t, half = vset((real)0.5);
    return vselect(vabs(e) <= delta, half * e * e, delta * (vabs(e) - half * delta));
}

LOSS_FORMULA(huber_slope)
{
    const vreal delta = vset(k->delta);
    return vmax(-delta, vmin(delta, y - t));
}

LOSS_FORMULA(cosine_value)
{
    return -y * t;
}

LOSS_FORMULA(cosine_slope)
{
    return -t;
}

LOSS_FORMULA(cosine_label_slope)
{
    return -y;
}

LOSS_FORMULA(log_value)
{
    const vreal epsilon = vset(k->epsilon);
    return -t * log_of(y + epsilon, false) - (1 - t) * log_of((1 - y) + epsilon, false);
}

LOSS_FORMULA(log_slope)
{
    const vreal epsilon = vset(k->epsilon);
    return (1 - t) / ((1 - y) + epsilon) - t / (y + epsilon);
}

LOSS_FORMULA(log_label_slope)
{
    const vreal epsilon = vset(k->epsilon);
    return log_of((1 - y) + epsilon, false) - log_of(y + epsilon, false);
}

LOSS_FORMULA(kullback_value)
{
    return vselect(t == 0, t, t * log_of(t, false)) - t * y;
}

LOSS_FORMULA(kullback_slope)
{
    return -t;
}

LOSS_FORMULA(kullback_label_slope)
{
    return log_of(t, false) + 1 - y;
}

#endif
