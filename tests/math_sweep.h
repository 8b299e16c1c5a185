/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The functions of backend/cpu/math.h over arrays, as each compilation of math_sweep.c offers them.
 */
#ifndef RG_MATH_SWEEP_H
#define RG_MATH_SWEEP_H

#include <stdint.h>

enum {
    RG_MATH_EXP,
    RG_MATH_EXP_SHORT, /* x <= 0, float alone */
    RG_MATH_EXPM1,
    RG_MATH_LOG,
    RG_MATH_LOG1P,
    RG_MATH_TANH,
    RG_MATH_ERF,
    RG_MATH_SIGMOID,
    RG_MATH_NORMAL,
    RG_MATH_BELL,
    RG_MATH_EXP2,        /* x <= 0; from here on float alone */
    RG_MATH_EXPM1_SHORT, /* x < 0 */
    RG_MATH_SIGMOID_SHORT,
    RG_MATH_TANH_SLOPE_SHORT,
    RG_MATH_TANH_SHORT,
    RG_MATH_NORMAL_SHORT,
    RG_MATH_NORMAL_SLOPE_SHORT,
    RG_MATH_FUNCTIONS
};

typedef struct rg_math_sweep {
    const char *name;
    double bound;                                         /* ULP, as math.h states */
    void (*apply)(const void *x, void *y, int64_t count); /* NULL: not for this real */
    double floor; /* results below are measured in the ULP of this one, their sign is not */
} rg_math_sweep;

#endif
