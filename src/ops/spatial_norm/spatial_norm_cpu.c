/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Spatial normalisation on the CPU: what is summed, and what is done with the sums. */
#include "ops/spatial_norm/spatial_norm.h"
#include "ops/window_norm/boxes_cpu.h"
#include "ops/window_norm/power_formulas.h"

RG_FORMULA vreal spatial_fill(vreal x)
{
    return x * x;
}

RG_FORMULA vreal spatial_result(const void *k, vreal x, const vreal sum[])
{
    const power_constants *c = k;
    return power_forward(c, x, sum[0], c->quarters, false);
}

RG_FORMULA vreal spatial_middle(const void *k, vreal dy, vreal x, const vreal sum[], vreal to[])
{
    const power_constants *c = k;
    return power_middle(c, dy, x, sum[0], &to[0], c->quarters, false);
}

RG_FORMULA vreal spatial_finish(const void *k, vreal x, vreal direct, const vreal sum[])
{
    return power_gradient(k, x, direct, sum[0]);
}

RG_BOX_ROWS(spatial, 1)

RG_INLINE void spatial_norm_forward(const rg_spatial_norm_args *a, int64_t begin, int64_t end,
                                    const rg_dtype T)
{
    const power_constants k = power_constants_of(&a->numbers);
    const void *const in[2] = { a->x, a->x };
    box_units(&a->shape, &k, in, a->y, a->scratch, &spatial_rows[T], 1, false, begin, end, T);
}

RG_INLINE void spatial_norm_gradient(const rg_spatial_norm_gradient_args *a, int64_t begin,
                                     int64_t end, const rg_dtype T)
{
    const power_constants k = power_constants_of(&a->numbers);
    const void *const in[2] = { a->dy, a->x };
    box_units(&a->shape, &k, in, a->dx, a->scratch, &spatial_rows[T], 1, true, begin, end, T);
}

/* ---- entry points and table ---- */

RG_KERNEL(spatial_norm_forward, rg_spatial_norm_args)
RG_KERNEL(spatial_norm_gradient, rg_spatial_norm_gradient_args)

RG_CPU_TABLE(spatial_norm, RG_SPATIAL_NORM_KERNELS) = {
    [RG_SPATIAL_NORM_FORWARD] = RG_ROW(spatial_norm_forward),
    [RG_SPATIAL_NORM_GRADIENT] = RG_ROW(spatial_norm_gradient),
};
