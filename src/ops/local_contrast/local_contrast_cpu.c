/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Local contrast normalisation on the CPU: what is done with means and variances, see
 * moments_cpu.h and local_contrast_formulas.h. */
#include "ops/local_contrast/local_contrast_formulas.h"
#include "ops/window_norm/boxes_cpu.h"

RG_FORMULA vreal contrast_fill(vreal x)
{
    return x;
}

RG_FORMULA vreal contrast_result(const void *k, vreal x, const vreal sum[])
{
    return contrast_value(k, x, sum, 0);
}

RG_FORMULA vreal contrast_middle(const void *k, vreal dy, vreal x, const vreal sum[], vreal to[])
{
    return contrast_slope(k, dy, x, sum, to, 0);
}

RG_FORMULA vreal contrast_finish(const void *k, vreal x, vreal direct, const vreal sum[])
{
    (void)k;
    return direct + vfma(sum[2], sum[0] - x, sum[1]);
}

RG_BOX_ROWS(contrast, MOMENT_KINDS)

RG_INLINE void local_contrast_forward(const rg_local_contrast_args *a, int64_t begin, int64_t end,
                                      const rg_dtype T)
{
    const contrast_constants k = contrast_constants_of(&a->numbers);
    const void *const in[2] = { a->x, a->x };
    box_units(&a->shape, &k, in, a->y, a->scratch, &contrast_rows[T], MOMENT_KINDS, false, begin,
              end, T);
}

RG_INLINE void local_contrast_gradient(const rg_local_contrast_gradient_args *a, int64_t begin,
                                       int64_t end, const rg_dtype T)
{
    const contrast_constants k = contrast_constants_of(&a->numbers);
    const void *const in[2] = { a->dy, a->x };
    box_units(&a->shape, &k, in, a->dx, a->scratch, &contrast_rows[T], MOMENT_KINDS, true, begin,
              end, T);
}

/* ---- entry points and table ---- */

RG_KERNEL(local_contrast_forward, rg_local_contrast_args)
RG_KERNEL(local_contrast_gradient, rg_local_contrast_gradient_args)

RG_CPU_TABLE(local_contrast, RG_LOCAL_CONTRAST_KERNELS) = {
    [RG_LOCAL_CONTRAST_FORWARD] = RG_ROW(local_contrast_forward),
    [RG_LOCAL_CONTRAST_GRADIENT] = RG_ROW(local_contrast_gradient),
};
