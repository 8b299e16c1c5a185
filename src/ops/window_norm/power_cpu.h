/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Division by a power of a mean square, for kernels that have the sum over a window: those of lrn
 * and of spatial_norm. local_contrast has the power alone. */
#ifndef RG_OPS_WINDOW_NORM_POWER_CPU_H
#define RG_OPS_WINDOW_NORM_POWER_CPU_H

#include "backend/cpu/math.h"
#include "ops/window_norm/power.h"

/* rg_power_numbers, cast once. */
typedef struct power_constants {
    real scale, factor, delta, beta;
    int32_t quarters;
} power_constants;

RG_INLINE power_constants power_constants_of(const rg_power_numbers *n)
{
    return (power_constants){ (real)n->scale, (real)n->factor, (real)n->delta, (real)n->beta,
                              n->quarters };
}

/* t^(quarters / 4) by roots and products. */
RG_INLINE vreal power_of_quarters(vreal t, int32_t quarters)
{
    vreal power = vset(1), square = t;
    for (int32_t rest = quarters / 4; rest > 0; rest >>= 1, square *= square)
        power = rest & 1 ? power * square : power;
    const vreal root = vsqrt(t);
    if (quarters & 2)
        power *= root;
    if (quarters & 1)
        power *= vsqrt(root);
    return power;
}

/* t^(-1/2) or t^(-3/4), and 1 / t, by roots that are quick and may be NaN for 0 and infinity;
 * where they are it takes the long way. */
RG_INLINE vreal power_of_roots(vreal t, const int32_t quarters, const bool brief, vreal *inverse)
{
    const vreal r = vrsqrt(t, brief);
    vreal power = quarters == 2 ? r : r * (r * vrsqrt(r, brief));
    *inverse = r * r;
    if (vany_nan(power)) {
        const vint lost = power != power;
        const vreal root = vsqrt(t);
        power = vselect(lost, 1 / (quarters == 2 ? root : root * vsqrt(root)), power);
        *inverse = vselect(lost, 1 / t, *inverse);
    }
    return power;
}

/* t^-beta, and 1 / t; by e^(-beta log t) to |beta log t| + 2 units of the last place. For results
 * of 16 bits 2^-12.5 of the value will do (`brief`). */
RG_INLINE vreal power_of(vreal t, const power_constants *k, const int32_t quarters,
                         const bool brief, vreal *inverse)
{
    if (quarters == 2 || quarters == 3)
        return power_of_roots(t, quarters, brief, inverse);
    *inverse = 1 / t;
    if (quarters == 4)
        return *inverse;
    if (quarters >= 0)
        return 1 / power_of_quarters(t, quarters);
    return vexp(vset(-k->beta) * vlog(t));
}

RG_INLINE vreal power_forward(const power_constants *k, vreal x, vreal sum, const int32_t quarters,
                              const bool brief)
{
    vreal inverse;
    return x * power_of(vfma(vset(k->scale), sum, vset(k->delta)), k, quarters, brief, &inverse);
}

/* dy t^-beta, and what goes into the sum of the gradient: dy x t^(-beta - 1). */
RG_INLINE vreal power_middle(const power_constants *k, vreal dy, vreal x, vreal sum, vreal *share,
                             const int32_t quarters, const bool brief)
{
    const vreal t = vfma(vset(k->scale), sum, vset(k->delta));
    vreal inverse;
    const vreal direct = dy * power_of(t, k, quarters, brief, &inverse);
    *share = direct * (x * inverse);
    return direct;
}

RG_INLINE vreal power_gradient(const power_constants *k, vreal x, vreal direct, vreal sum)
{
    return vfma(-(vset(k->factor) * x), sum, direct);
}

#endif
