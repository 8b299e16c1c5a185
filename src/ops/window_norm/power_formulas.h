/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Division by a power of a mean square, for kernels that have the sum over a window: those of lrn
 * and of spatial_norm. local_contrast has the power alone. Valid C and valid CUDA. */
#ifndef RG_OPS_WINDOW_NORM_POWER_FORMULAS_H
#define RG_OPS_WINDOW_NORM_POWER_FORMULAS_H

#include "backend/formula.h"
#include "ops/window_norm/power.h"
#ifdef __CUDACC__
#include "ops/window_norm/power_roots.cuh"
#else
#include "ops/window_norm/power_roots_cpu.h"
#endif

/* Exponents that are rare are called on the CPU, where loops exist once for each storage type. */
#ifdef __CUDACC__
#define POWER_RARE RG_FORMULA_INLINE
#else
#define POWER_RARE RG_OUTLINE
#endif

/* rg_power_numbers, cast once. */
RG_FORMULA_STRUCT(power_constants)
{
    real scale, factor, delta, beta;
    int32_t quarters;
};

RG_FORMULA_CAST RG_OF(power_constants) power_constants_of(const rg_power_numbers *n)
{
    const RG_OF(power_constants)
        k = { (real)n->scale, (real)n->factor, (real)n->delta, (real)n->beta, n->quarters };
    return k;
}

/* t^(quarters / 4) by roots and products. */
POWER_RARE vreal power_of_quarters(vreal t, int32_t quarters, const int how)
{
    vreal power = vset(1), square = t;
    for (int32_t rest = quarters / 4; rest > 0; rest >>= 1, square *= square)
        power = rest & 1 ? power * square : power;
    const vreal root = power_root(t, how);
    if (quarters & 2)
        power *= root;
    if (quarters & 1)
        power *= power_root(root, how);
    return power;
}

/* t^-beta, and 1 / t; `how`: a sum of POWER_BRIEF, POWER_NORMAL and POWER_CANCELS, or 0. */
RG_FORMULA_INLINE vreal power_of(vreal t, const RG_OF(power_constants) * k, const int32_t quarters,
                                 const int how, vreal *inverse)
{
    if (quarters == 2 || quarters == 3)
        return power_of_roots(t, quarters, how, inverse);
    *inverse = power_inverse(t, how);
    if (quarters == 4)
        return *inverse;
    if (quarters >= 0)
        return 1 / power_of_quarters(t, quarters, how);
    return power_by_log(t, vset(-k->beta), how);
}

RG_FORMULA_INLINE vreal power_forward(const RG_OF(power_constants) * k, vreal x, vreal sum,
                                      const int32_t quarters, const int how)
{
    vreal inverse;
    return x * power_of(vfma(vset(k->scale), sum, vset(k->delta)), k, quarters, how, &inverse);
}

/* dy t^-beta, and what goes into the sum of the gradient: dy x t^(-beta - 1). */
RG_FORMULA_INLINE vreal power_middle(const RG_OF(power_constants) * k, vreal dy, vreal x, vreal sum,
                                     vreal *share, const int32_t quarters, const int how)
{
    const vreal t = vfma(vset(k->scale), sum, vset(k->delta));
    vreal inverse;
    const vreal direct = dy * power_of(t, k, quarters, how | POWER_CANCELS, &inverse);
    *share = direct * (x * inverse);
    return direct;
}

RG_FORMULA_INLINE vreal power_gradient(const RG_OF(power_constants) * k, vreal x, vreal direct,
                                       vreal sum)
{
    return vfma(-(vset(k->factor) * x), sum, direct);
}

#endif
