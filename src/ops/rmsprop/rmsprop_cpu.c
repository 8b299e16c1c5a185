/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* RMSProp on the CPU. */
#include "ops/optimizer/update_cpu.h"

/* The moments are velocity, then mean if centered, then momentum if there is one. */
RG_FORMULA void rmsprop_rule(const update_constants *k, update_point *x)
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

RG_UPDATE_LOOPS(rmsprop)

/* ---- entry points and table ---- */

RG_KERNEL(rmsprop_flat, rg_update_flat_args)
RG_KERNEL(rmsprop_strided, rg_update_strided_args)

RG_CPU_TABLE(rmsprop, RG_UPDATE_KERNELS) = {
    [RG_UPDATE_FLAT] = RG_ROW(rmsprop_flat),
    [RG_UPDATE_STRIDED] = RG_ROW(rmsprop_strided),
};
