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
    RG_MATH_FUNCTIONS
};

typedef struct rg_math_sweep {
    const char *name;
    double bound;                                         /* ULP, as math.h states */
    void (*apply)(const void *x, void *y, int64_t count); /* NULL: not for this real */
} rg_math_sweep;

#endif
