/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Division by a power of a sum over a window, for lrn, spatial_norm and local_contrast. Valid C and
 * valid CUDA. */
#ifndef RG_OPS_WINDOW_NORM_POWER_H
#define RG_OPS_WINDOW_NORM_POWER_H

#include <stdbool.h>
#include <stdint.h>

/* The numbers of a division by (delta + scale sum)^beta. */
typedef struct rg_power_numbers {
    double scale;  /* alpha / N */
    double factor; /* 2 alpha beta / N */
    double delta, beta;
    int32_t quarters; /* 4 beta where that is a whole number from 0 to RG_POWER_QUARTERS, or -1 */
} rg_power_numbers;

enum { RG_POWER_QUARTERS = 32 };

/* How a power is computed: for a result of 16 bits; of a number that is not subnormal; for terms of
 * a gradient, which may cancel, so that 1 / t needs all its digits. */
enum { POWER_BRIEF = 1, POWER_NORMAL = 2, POWER_CANCELS = 4 };

static inline rg_power_numbers rg_power_numbers_make(double alpha, double beta, double delta,
                                                     double count)
{
    const bool whole =
        beta >= 0 && 4 * beta <= RG_POWER_QUARTERS && (double)(int32_t)(4 * beta) == 4 * beta;
    const rg_power_numbers numbers = { alpha / count, 2 * alpha * beta / count, delta, beta,
                                       whole ? (int32_t)(4 * beta) : -1 };
    return numbers;
}

#endif
