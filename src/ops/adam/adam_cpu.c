/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Adam on the CPU. */
#include "ops/optimizer/update_cpu.h"

/* The moments are momentum, velocity and, for AMSGrad, the largest velocity so far. */
RG_FORMULA void adam_rule(const update_constants *k, update_point *x)
{
    const vreal g = x->g;
    const vreal mean = x->moment[0] = vfma(vset(k->beta1), x->moment[0], vset(k->rest1) * g);
    vreal square = x->moment[1] = vfma(vset(k->beta2), x->moment[1], vset(k->rest2) * g * g);
    if (k->amsgrad)
        square = x->moment[2] = vmax(x->moment[2], square);
    const vreal root = vfma(vsqrt(square), vset(k->spread), vset(k->epsilon));
    x->p = vfma(vset(-k->factor), mean / root, x->p * vset(k->keep));
}

RG_UPDATE_LOOPS(adam)

/* ---- entry points and table ---- */

RG_KERNEL(adam_flat, rg_update_flat_args)
RG_KERNEL(adam_strided, rg_update_strided_args)

RG_CPU_TABLE(adam, RG_UPDATE_KERNELS) = {
    [RG_UPDATE_FLAT] = RG_ROW(adam_flat),
    [RG_UPDATE_STRIDED] = RG_ROW(adam_strided),
};
