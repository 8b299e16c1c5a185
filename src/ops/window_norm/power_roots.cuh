/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Roots and powers for power_formulas.h on a GPU; POWER_BRIEF ones by the unit that has them, off
 * by 2^-22 of the value. */
#ifndef RG_OPS_WINDOW_NORM_POWER_ROOTS_CUH
#define RG_OPS_WINDOW_NORM_POWER_ROOTS_CUH

#include "backend/cuda/formula.cuh"
#include "ops/window_norm/power.h"

#define APPROXIMATION(name, instruction)                    \
    static __device__ __forceinline__ float name(float t)   \
    {                                                       \
        float r;                                            \
        asm(instruction ".f32 %0, %1;" : "=f"(r) : "f"(t)); \
        return r;                                           \
    }

APPROXIMATION(approximate_inverse, "rcp.approx")
APPROXIMATION(approximate_root, "sqrt.approx")
APPROXIMATION(approximate_root_normal, "sqrt.approx.ftz")
APPROXIMATION(approximate_inverse_root, "rsqrt.approx")
APPROXIMATION(approximate_inverse_root_normal, "rsqrt.approx.ftz")

RG_FORMULA vreal power_root(vreal t, const int how)
{
    return how & POWER_BRIEF ? (vreal)approximate_root((float)t) : sqrt(t);
}

RG_FORMULA vreal power_inverse(vreal t, const int how)
{
    return how & POWER_BRIEF ? (vreal)approximate_inverse((float)t) : 1 / t;
}

/* t^exponent */
RG_FORMULA vreal power_by_log(vreal t, vreal exponent, const int how)
{
    return how & POWER_BRIEF ? exp_of(exponent * log_of(t, true), true) : pow(t, exponent);
}

/* t^(-1/2) or t^(-3/4), and 1 / t. The root of an inverse root, which is never subnormal, is
 * approximate in f32, too. */
RG_FORMULA vreal power_of_roots(vreal t, const int32_t quarters, const int how, vreal *inverse)
{
    if constexpr (sizeof(vreal) == 8) {
        const vreal r = rsqrt(t);
        *inverse = r * r;
        return quarters == 2 ? r : r * sqrt(r);
    } else {
        const float r = how & POWER_NORMAL  ? approximate_inverse_root_normal(t)
                        : how & POWER_BRIEF ? approximate_inverse_root(t)
                                            : rsqrt(t);
        *inverse = r * r;
        return quarters == 2 ? r : r * approximate_root_normal(r);
    }
}

#endif
