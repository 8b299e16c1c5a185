/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What the definitions of sgd, rmsprop and adam begin and end with. */
#ifndef RG_OPS_OPTIMIZER_UPDATE_REF_H
#define RG_OPS_OPTIMIZER_UPDATE_REF_H

#include "ops/optest.h"

#include <retrograde/optimizer.h>

#include <math.h>

/* A gradient as the optimizer uses it; p is its parameter. */
static inline double ref_gradient(const rg_gradient_rules *rules, double g, double scale, double p)
{
    g *= scale;
    if (g < rules->clip_minimum)
        g = rules->clip_minimum;
    if (g > rules->clip_maximum)
        g = rules->clip_maximum;
    g *= rules->rescale;
    if (rules->regularization == RG_REGULARIZATION_L1 && p != 0)
        g += rules->regularization_scale * (p > 0 ? 1 : p < 0 ? -1 : 0);
    if (rules->regularization == RG_REGULARIZATION_L2 && rules->regularization_scale != 0)
        g += rules->regularization_scale * p;
    return g;
}

static inline int64_t ref_count(const rg_ref_tensor *x)
{
    int64_t count = 1;
    for (int32_t d = 0; d < x->rank; d++)
        count *= x->dims[d];
    return count;
}

#endif
