/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Gradient descent on the CPU. */
#include "ops/sgd/update_cpu.h"

RG_FORMULA void sgd_rule(const update_constants *k, update_point *x)
{
    vreal by = x->g;
    if (k->moments > 0) {
        x->moment[0] = vfma(vset(k->momentum), x->moment[0], vset(k->inner) * x->g);
        by = k->nesterov ? vfma(vset(k->momentum), x->moment[0], x->g) : x->moment[0];
    }
    x->p = vfma(vset(-k->factor), by, x->p);
}

RG_OUTLINE void sgd_row(const update_constants *k, const rg_update_tensors *t, int64_t count,
                        rg_dtype T)
{
    update_row_any(sgd_rule, k, t, count, T);
}

RG_INLINE void sgd_flat(const rg_update_flat_args *a, int64_t begin, int64_t end, const rg_dtype T)
{
    update_flat(sgd_row, a, begin, end, T);
}

RG_INLINE void sgd_strided(const rg_update_strided_args *a, int64_t begin, int64_t end,
                           const rg_dtype T)
{
    update_strided(sgd_row, a, begin, end, T);
}

/* ---- entry points and table ---- */

RG_KERNEL(sgd_flat, rg_update_flat_args)
RG_KERNEL(sgd_strided, rg_update_strided_args)

const rg_cpu_row RG_TABLE(sgd)[RG_UPDATE_KERNELS] = {
    [RG_UPDATE_FLAT] = RG_ROW(sgd_flat),
    [RG_UPDATE_STRIDED] = RG_ROW(sgd_strided),
};
