/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What rules of optimizers are written in, and what happens to gradients before them. Valid C and
 * valid CUDA. */
#ifndef RG_OPS_OPTIMIZER_UPDATE_FORMULAS_H
#define RG_OPS_OPTIMIZER_UPDATE_FORMULAS_H

#include "backend/formula.h"
#include "ops/optimizer/update.h"

/* All numbers of a launch, as real. */
RG_FORMULA_STRUCT(update_constants)
{
    real scale, clip_minimum, clip_maximum, rescale, l1, l2;
    real factor, spread, inner, keep;
    real momentum, epsilon, beta1, beta2, rest1, rest2; /* rest: 1 - beta */
    int moments, copy;
    bool skip, nesterov, centered, amsgrad, stream;
};

RG_FORMULA_CAST RG_OF(update_constants)
    update_constants_of(const rg_update_values *values, const rg_update_numbers *n)
{
    const rg_update_scalars s = rg_update_scalars_of(values, n);
    RG_OF(update_constants) k;
    k.scale = (real)s.scale;
    k.clip_minimum = (real)n->clip_minimum;
    k.clip_maximum = (real)n->clip_maximum;
    k.rescale = (real)n->rescale;
    k.l1 = (real)n->l1;
    k.l2 = (real)n->l2;
    k.factor = (real)s.factor;
    k.spread = (real)s.spread;
    k.inner = (real)s.inner;
    k.keep = (real)s.keep;
    k.momentum = (real)n->momentum;
    k.epsilon = (real)n->epsilon;
    k.beta1 = (real)n->beta1;
    k.beta2 = (real)n->beta2;
    k.rest1 = (real)(1 - n->beta1);
    k.rest2 = (real)(1 - n->beta2);
    k.moments = n->moments;
    k.copy = n->copy;
    k.skip = s.skip;
    k.nesterov = n->nesterov;
    k.centered = n->centered;
    k.amsgrad = n->amsgrad;
    k.stream = n->stream;
    return k;
}

/* Elements of a parameter p, of its gradient g and of its moments. */
RG_FORMULA_STRUCT(update_point)
{
    vreal p, g, moment[RG_UPDATE_MOMENTS];
};

/* The gradient that a rule sees. */
RG_FORMULA_INLINE vreal update_prepare(const RG_OF(update_constants) * k, vreal g, vreal p)
{
    g = vmin(vset(k->clip_maximum), vmax(vset(k->clip_minimum), g * vset(k->scale)));
    g = g * vset(k->rescale);
    if (k->l1 != 0)
        g += vselect(p > 0, vset(k->l1), vselect(p < 0, vset(-k->l1), vset(0)));
    if (k->l2 != 0)
        g = vfma(p, vset(k->l2), g);
    return g;
}

#endif
