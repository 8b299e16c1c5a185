/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What batch and group normalization have in common. Valid C and valid CUDA. */
#ifndef RG_OPS_NORM_H
#define RG_OPS_NORM_H

#include "ops/neuron/neuron.h"
#include "ops/norm/channels.h"

/* gamma and beta: how they are stored, and where. */
typedef struct rg_norm_parameters {
    rg_dtype dtype;
    int64_t gamma_step, beta_step;
    bool has_gamma, has_beta;
} rg_norm_parameters;

typedef struct rg_norm_neuron {
    int32_t kind;
    rg_neuron_numbers numbers;
} rg_norm_neuron;

/* Channels of a unit, in launches over channels alone. */
enum { RG_NORM_UNIT = 64 };

/* Statistics, in real: the mean is the sum of two numbers; s is 1 / sqrt(variance + epsilon). */
enum { RG_NORM_MEAN, RG_NORM_MEAN_REST, RG_NORM_VARIANCE, RG_NORM_S, RG_NORM_MOMENTS };

/* Statistics of a part, in real: a pivot, which is an element close to the mean; the mean minus the
 * pivot; the sum of squared deviations from the mean. */
enum { RG_NORM_PIVOT, RG_NORM_REST, RG_NORM_SQUARES, RG_NORM_PARTIAL };

/* What dx is made of, in real, with t = x less the first number of the mean:
 *
 *      dx = s (gamma g - offset - t weight) [+ t slope + plus] */
enum { RG_NORM_OFFSET, RG_NORM_WEIGHT, RG_NORM_SLOPE, RG_NORM_PLUS, RG_NORM_FACTORS };

/* Elements of one channel or group: n of them have this mean, less a number common to all, and this
 * sum of squares around it. */
typedef struct rg_norm_moments {
    double n, mean, squares;
} rg_norm_moments;

/* a and b together. */
static inline RG_HOST_DEVICE rg_norm_moments rg_norm_join(rg_norm_moments a, rg_norm_moments b)
{
    const double n = a.n + b.n, share = n > 0 ? b.n / n : 0, away = b.mean - a.mean;
    const rg_norm_moments both = { n, a.mean + away * share,
                                   a.squares + b.squares + away * away * (a.n * share) };
    return both;
}

#endif
