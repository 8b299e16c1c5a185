/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Group normalization on the CPU: the gradients of parameters, from those of images. What goes over
 * images is in group_norm_rows_forward_cpu.c, group_norm_rows_gradient_cpu.c and
 * group_norm_columns_cpu.c. */
#include "ops/group_norm/group_norm.h"
#include "ops/norm/norm_cpu.h"

RG_INLINE void join(const rg_group_norm_join_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    (void)T;
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t first = unit * RG_NORM_UNIT, width = least(RG_NORM_UNIT, k->channels - first);
        double sum[RG_NORM_UNIT];
        sum_of_pieces(sum, (const real *)k->from + first, k->channels, k->count, width);
        for (int64_t c = 0; c < width; c++) {
            const int64_t to = (first + c) * k->step;
            const double old = k->add ? rg_element_get(k->to, k->dtype, to) : 0;
            store_any(k->to, to, k->dtype, k->add ? old + sum[c] : sum[c]);
        }
    }
}

RG_KERNEL(join, rg_group_norm_join_args)

RG_CPU_TABLE(group_norm, RG_GROUP_NORM_KERNELS) = {
    [RG_GROUP_NORM_JOIN] = RG_ROW(join),
};
