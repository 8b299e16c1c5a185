/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Gradient descent on the CPU. */
#include "ops/optimizer/update_cpu.h"

RG_FORMULA void sgd_rule(const update_constants *k, update_point *x)
{
    vreal by = x->g;
    if (k->moments > 0) {
        x->moment[0] = vfma(vset(k->momentum), x->moment[0], vset(k->inner) * x->g);
        by = k->nesterov ? vfma(vset(k->momentum), x->moment[0], x->g) : x->moment[0];
    }
    x->p = vfma(vset(-k->factor), by, x->p);
}

RG_UPDATE_LOOPS(sgd)

/* ---- entry points and table ---- */

RG_KERNEL(sgd_flat, rg_update_flat_args)
RG_KERNEL(sgd_strided, rg_update_strided_args)

RG_CPU_TABLE(sgd, RG_UPDATE_KERNELS) = {
    [RG_UPDATE_FLAT] = RG_ROW(sgd_flat),
    [RG_UPDATE_STRIDED] = RG_ROW(sgd_strided),
};
