/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Local contrast normalization on the CPU: what is done with means and variances, see
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

RG_BOX_KERNELS_OF(contrast, MOMENT_KINDS, contrast_constants, numbers)

RG_CPU_TABLE(local_contrast, RG_BOX_KERNELS) = RG_BOX_TABLE(contrast);
