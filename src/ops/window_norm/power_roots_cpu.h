/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Roots and powers for power_formulas.h on the CPU. For results of 16 bits 2^-12.5 of the value
 * suffice (POWER_BRIEF). */
#ifndef RG_OPS_WINDOW_NORM_POWER_ROOTS_CPU_H
#define RG_OPS_WINDOW_NORM_POWER_ROOTS_CPU_H

#include "backend/cpu/math.h"
#include "ops/window_norm/power.h"

RG_INLINE vreal power_root(vreal t, const int how)
{
    (void)how;
    return vsqrt(t);
}

RG_INLINE vreal power_inverse(vreal t, const int how)
{
    (void)how;
    return 1 / t;
}

/* t^exponent, to |exponent log t| + 2 units of the last place. */
RG_OUTLINE vreal power_by_log(vreal t, vreal exponent, const int how)
{
    (void)how;
    return vexp(exponent * vlog(t));
}

/* t^(-1/2) or t^(-3/4), and 1 / t, by roots that are quick and may be NaN for 0 and infinity;
 * where they are it takes the long way. An error of the power scales the whole result, but one of
 * 1 / t grows where the terms of a gradient cancel. */
RG_INLINE vreal power_of_roots(vreal t, const int32_t quarters, const int how, vreal *inverse)
{
    const bool brief = (how & POWER_BRIEF) != 0, refines = brief && how & POWER_CANCELS;
    const vreal r = vrsqrt(t, brief);
    vreal power = quarters == 2 ? r : r * (r * vrsqrt(r, brief));
    *inverse = r * r;
    if (refines) /* a step of Newton's method, which makes NaN of an infinite t */
        *inverse *= vfma(-t, *inverse, vset(2));
    const vreal tested = refines ? power + *inverse : power;
    if (vany_nan(tested)) {
        const vint lost = tested != tested;
        const vreal root = vsqrt(t);
        power = vselect(lost, 1 / (quarters == 2 ? root : root * vsqrt(root)), power);
        *inverse = vselect(lost, 1 / t, *inverse);
    }
    return power;
}

#endif
