/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The rule of Adam. Valid C and valid CUDA. */
#ifndef RG_OPS_ADAM_FORMULAS_H
#define RG_OPS_ADAM_FORMULAS_H

#include "ops/optimizer/update_formulas.h"

/* The moments are momentum, velocity and, for AMSGrad, the largest velocity so far. */
RG_FORMULA void adam_rule(const RG_OF(update_constants) * k, RG_OF(update_point) * x)
{
    const vreal g = x->g;
    const vreal mean = x->moment[0] = vfma(vset(k->beta1), x->moment[0], vset(k->rest1) * g);
    vreal square = x->moment[1] = vfma(vset(k->beta2), x->moment[1], vset(k->rest2) * g * g);
    if (k->amsgrad)
        square = x->moment[2] = vmax(x->moment[2], square);
    const vreal root = vfma(vsqrt(square), vset(k->spread), vset(k->epsilon));
    x->p = vfma(vset(-k->factor), mean / root, x->p * vset(k->keep));
}

#endif
