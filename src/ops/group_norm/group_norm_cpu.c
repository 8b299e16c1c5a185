/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Group normalisation on the CPU. A unit reads its part of an image twice; the second time it is in
 * a cache. */
#include "ops/group_norm/group_norm_columns_cpu.h"
#include "ops/group_norm/group_norm_rows_cpu.h"

/* ---- gradients of parameters ---- */

RG_INLINE void join(const rg_group_norm_join_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    (void)T;
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t first = unit * RG_NORM_UNIT, width = least(RG_NORM_UNIT, k->channels - first);
        double sum[RG_NORM_UNIT];
        sum_of_pieces(sum, (const real *)k->from + first, k->channels, k->count, width);
        for (int64_t c = 0; c < width; c++) {
            const int64_t to = (first + c) * k->step;
            const double old = k->add ? load_any(k->to, to, k->dtype) : 0;
            store_any(k->to, to, k->dtype, k->add ? old + sum[c] : sum[c]);
        }
    }
}

RG_KERNEL(columns_forward, rg_group_norm_args)
RG_KERNEL(rows_forward, rg_group_norm_args)
RG_KERNEL(columns_gradient, rg_group_norm_gradient_args)
RG_KERNEL(rows_gradient, rg_group_norm_gradient_args)
RG_KERNEL(join, rg_group_norm_join_args)

/* ---- table ---- */

RG_CPU_TABLE(group_norm, RG_GROUP_NORM_KERNELS) = {
    [RG_GROUP_NORM_COLUMNS] = RG_ROW(columns_forward),
    [RG_GROUP_NORM_ROWS] = RG_ROW(rows_forward),
    [RG_GROUP_NORM_COLUMNS_GRADIENT] = RG_ROW(columns_gradient),
    [RG_GROUP_NORM_ROWS_GRADIENT] = RG_ROW(rows_gradient),
    [RG_GROUP_NORM_JOIN] = RG_ROW(join),
};
