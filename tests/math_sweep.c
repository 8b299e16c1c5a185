/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The functions of math.h over arrays, for math_test.c. Compiled once for each instruction set and
 * each real. */
#include "math_sweep.h"

#include "backend/cpu/math.h"

#define RG_JOIN(a, b)  RG_JOIN_(a, b)
#define RG_JOIN_(a, b) a##b
#if RG_REAL_F64
#define RG_MATH_TABLE RG_JOIN(rg_math_sweep_f64_, RG_RUNG)
#else
#define RG_MATH_TABLE RG_JOIN(rg_math_sweep_f32_, RG_RUNG)
#endif

#if defined(__FMA__)
#define RG_FUSED 1
#else
#define RG_FUSED 0
#endif

#define RG_APPLY(function)                                               \
    static void function##_apply(const void *x, void *y, int64_t count)  \
    {                                                                    \
        for (int64_t i = 0; i < count; i += VLEN) {                      \
            const int n = count - i < VLEN ? (int)(count - i) : VLEN;    \
            vstore(y, i, n, RG_REAL, function(vload(x, i, n, RG_REAL))); \
        }                                                                \
    }
RG_APPLY(vexp)
#if !RG_REAL_F64 /* for results of 16 bits */
RG_APPLY(vexp_short)
#else
#define vexp_short_apply NULL
#endif
RG_APPLY(vexpm1)
RG_APPLY(vlog)
RG_APPLY(vlog1p)
RG_APPLY(vtanh)
RG_APPLY(verf)
RG_APPLY(vsigmoid)

extern const rg_math_sweep RG_MATH_TABLE[RG_MATH_FUNCTIONS];
const rg_math_sweep RG_MATH_TABLE[RG_MATH_FUNCTIONS] = {
    [RG_MATH_EXP] = { "exp", RG_FUSED ? 1 : 1.5, vexp_apply },
    [RG_MATH_EXP_SHORT] = { "exp_short", RG_FUSED ? 72 : 120, vexp_short_apply },
    [RG_MATH_EXPM1] = { "expm1", 2.5, vexpm1_apply },
    [RG_MATH_LOG] = { "log", 1.25, vlog_apply },
    [RG_MATH_LOG1P] = { "log1p", 2, vlog1p_apply },
    [RG_MATH_TANH] = { "tanh", 3, vtanh_apply },
    [RG_MATH_ERF] = { "erf", 1.75, verf_apply },
    [RG_MATH_SIGMOID] = { "sigmoid", 2.75, vsigmoid_apply },
};
