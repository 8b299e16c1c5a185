/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Spatial normalization on the CPU: what is summed, and what is done with the sums. */
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

RG_BOX_KERNELS_OF(spatial, 1, power_constants, numbers.norm)

RG_CPU_TABLE(spatial_norm, RG_BOX_KERNELS) = RG_BOX_TABLE(spatial);
