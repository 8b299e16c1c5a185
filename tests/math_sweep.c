/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The functions of math.h over arrays, for math_test.c. Compiled once for each instruction set and
 * each real. */
#include "math_sweep.h"

#include "backend/cpu/math.h"

#define RG_JOIN(a, b)  RG_JOIN_(a, b)
#define RG_JOIN_(a, b) a##b
#if RG_REAL_F64
#define RG_MATH_TABLE RG_JOIN(rg_math_sweep_f64_, RG_ISA)
#else
#define RG_MATH_TABLE RG_JOIN(rg_math_sweep_f32_, RG_ISA)
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
RG_APPLY(vexp2)
RG_APPLY(vexpm1_short)
RG_APPLY(vsigmoid_short)
RG_INLINE vreal vtanh_slope_short(vreal x)
{
    return vsigmoid_slope_short(x, 2, (real)0.25);
}
RG_APPLY(vtanh_slope_short)
RG_APPLY(vtanh_short)
RG_APPLY(vnormal_short)
RG_APPLY(vnormal_slope_short)
#else
#define vexp_short_apply          NULL
#define vexp2_apply               NULL
#define vexpm1_short_apply        NULL
#define vsigmoid_short_apply      NULL
#define vtanh_slope_short_apply   NULL
#define vtanh_short_apply         NULL
#define vnormal_short_apply       NULL
#define vnormal_slope_short_apply NULL
#endif
RG_APPLY(vexpm1)
RG_APPLY(vlog)
RG_APPLY(vlog1p)
RG_APPLY(vtanh)
RG_APPLY(verf)
RG_APPLY(vsigmoid)
RG_APPLY(vnormal)
RG_APPLY(vbell)

/* Short functions are good to the least normal number; the sigmoid is 0 already where e^-x is
 * infinity, which may be off by 2^-128. Their bounds are 2^-14 (1024), 2^-13.5 and so on of the
 * value. */
#define RG_LEAST 0x1p-126

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
    [RG_MATH_NORMAL] = { "normal", 1.5, vnormal_apply, 0.5 },
    [RG_MATH_BELL] = { "bell", 2, vbell_apply, 0.5 },
    [RG_MATH_EXP2] = { "exp2", 1.25, vexp2_apply, RG_LEAST },
    [RG_MATH_EXPM1_SHORT] = { "expm1_short", 512, vexpm1_short_apply, RG_LEAST },
    [RG_MATH_SIGMOID_SHORT] = { "sigmoid_short", 1450, vsigmoid_short_apply, 0x1p-115 },
    [RG_MATH_TANH_SLOPE_SHORT] = { "tanh_slope", 1450, vtanh_slope_short_apply, RG_LEAST },
    [RG_MATH_TANH_SHORT] = { "tanh_short", 2896, vtanh_short_apply, RG_LEAST },
    [RG_MATH_NORMAL_SHORT] = { "normal_short", 1024, vnormal_short_apply, 0x1p-12 },
    [RG_MATH_NORMAL_SLOPE_SHORT] = { "gelu_slope", 1724, vnormal_slope_short_apply, 0x1p-9 },
};
