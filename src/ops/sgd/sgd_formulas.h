/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The rule of gradient descent. Valid C and valid CUDA. */
#ifndef RG_OPS_SGD_FORMULAS_H
#define RG_OPS_SGD_FORMULAS_H

#include "ops/optimizer/update_formulas.h"

RG_FORMULA void sgd_rule(const RG_OF(update_constants) * k, RG_OF(update_point) * x)
{
    vreal by = x->g;
    if (k->moments > 0) {
        x->moment[0] = vfma(vset(k->momentum), x->moment[0], vset(k->inner) * x->g);
        by = k->nesterov ? vfma(vset(k->momentum), x->moment[0], x->g) : x->moment[0];
    }
    x->p = vfma(vset(-k->factor), by, x->p);
}

#endif
