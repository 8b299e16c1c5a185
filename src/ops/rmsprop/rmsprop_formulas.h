/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The rule of RMSProp. Valid C and valid CUDA. */
#ifndef RG_OPS_RMSPROP_FORMULAS_H
#define RG_OPS_RMSPROP_FORMULAS_H

#include "ops/optimizer/update_formulas.h"

/* The moments are velocity, then mean if centered, then momentum if there is one. */
RG_FORMULA void rmsprop_rule(const RG_OF(update_constants) * k, RG_OF(update_point) * x)
{
    const vreal g = x->g, beta = vset(k->beta2), rest = vset(k->rest2);
    vreal square = x->moment[0] = vfma(beta, x->moment[0], rest * g * g);
    if (k->centered) {
        const vreal mean = x->moment[1] = vfma(beta, x->moment[1], rest * g);
        square = vmax(vset(0), square - mean * mean); /* NaN stays */
    }
    vreal by = g / (vsqrt(square) + vset(k->epsilon));
    if (k->moments > 1 + k->centered) { /* not by momentum, which may be 0 as a float */
        const vreal old = k->centered ? x->moment[2] : x->moment[1];
        by = vfma(vset(k->momentum), old, vset(k->inner) * by);
        if (k->centered)
            x->moment[2] = by;
        else
            x->moment[1] = by;
    }
    x->p = vfma(vset(-k->factor), by, x->p);
}

#endif
