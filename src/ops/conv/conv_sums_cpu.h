/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What kernels of convolution on the contraction engine share. */
#ifndef RG_OPS_CONV_SUMS_CPU_H
#define RG_OPS_CONV_SUMS_CPU_H

#include "ops/contract/contract.h"
#include "ops/conv/conv_plan.h"

_Static_assert((int)RG_CONV_MOST_RUNS <= (int)RG_MOST_RUNS, "runs of a tile");

/* Whether one of so many numbers is infinite or NaN. */
RG_OUTLINE bool has_nonfinite_reals(const real *a, int64_t count)
{
    vint nonfinite = { 0 };
    int64_t i = 0;
    for (; i + VLEN <= count; i += VLEN) {
        const vreal v = vload_full(a, i, RG_REAL);
        nonfinite |= v - v != 0;
    }
    for (; i < count; i++)
        nonfinite[0] |= a[i] - a[i] != 0 ? -1 : 0;
    return vany(nonfinite);
}

/* ---- weights: units ---- */

/* Where the totals of sums stand. */
RG_INLINE double *totals_of(void *parts, const real *sums, int64_t slices, int64_t groups,
                            int64_t group_step)
{
    real *const behind = (real *)parts + slices * groups * group_step;
    return (double *)(void *)behind + (sums - (const real *)parts);
}

#endif
