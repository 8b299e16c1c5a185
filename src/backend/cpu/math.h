/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Vector mathematics for kernel files: exp, expm1, sigmoid, tanh, log, log1p, erf, the normal
 * distribution.
 *
 * Infinities, NaN, zeros and their signs, overflow and gradual underflow are those of C's libm.
 * Each function states its largest error in units of the last place (ULP), in float and double,
 * with a fused vfma and without; tests/math_test.c measures it. Polynomials are minimax fits:
 * coefficients were rounded from the lowest on, and the others fitted again after each.
 *
 * Functions called short are for results of 16 bits (is_short), whose rounding covers their error;
 * that is a share of the value, as far as values are normal numbers. For double they are the long
 * ones. */
#ifndef RG_CPU_MATH_H
#define RG_CPU_MATH_H

#include "backend/cpu/simd.h"

/* A real is a sign, an exponent plus BIAS, and MANTISSA bits. The upper part of ln 2 ends in so
 * many zeros that its product with any exponent is exact. */
#if RG_REAL_F64
enum { RG_MANTISSA = 52, RG_BIAS = 1023 };
#define RG_LOG2_E    0x1.71547652b82fep0
#define RG_LN2_HI    0x1.62e42fefa38p-1
#define RG_LN2_LO    0x1.ef35793c7673p-45
#define RG_SQRT_HALF 0x3fe6a09e667f3bcdu /* bits of sqrt(1/2) */
#else
enum { RG_MANTISSA = 23, RG_BIAS = 127 };
#define RG_LOG2_E    0x1.715476p0
#define RG_LN2_HI    0x1.62e4p-1
#define RG_LN2_LO    0x1.7f7d1cp-20
#define RG_SQRT_HALF 0x3f3504f3u
#endif
#define RG_COUNT(array) ((int)(sizeof(array) / sizeof(array)[0]))

/* c[0] + c[1] x + c[2] x^2 + ..., at most 20 terms. The loop has a fixed length because clang
 * may unroll it before it inlines the function. */
RG_INLINE vreal horner(vreal x, const real *c, const int count)
{
    vreal sum = vset(c[count - 1]);
#pragma GCC unroll 20
    for (int i = 18; i >= 0; i--)
        if (i < count - 1)
            sum = vfma(sum, x, vset(c[i]));
    return sum;
}

/* size >= 0 (or -0, or already of that sign) with the sign of x. */
RG_INLINE vreal vsigned(vreal size, vreal x)
{
    return (vreal)((vuint)size | ((vuint)x ^ (vuint)vabs(x)));
}

/* ---- exp ---- */

/* x = k ln 2 + r with |r| <= ln 2 / 2. Adding `big` rounds to an integer and leaves k + offset
 * in the lowest bits of the sum, a shift away from being an exponent. */
RG_INLINE vreal exp_big(const int offset)
{
    return vset((RG_REAL_F64 ? (real)0x1.8p52 : (real)0x1.8p23) + (real)offset);
}

RG_INLINE vreal exp_reduce(vreal x, const int offset, vuint *k_bits)
{
    const vreal big = exp_big(offset);
    const vreal sum = vfma(x, vset((real)RG_LOG2_E), big), k = sum - big;
    *k_bits = (vuint)sum;
    return vfma(k, vset(-(real)RG_LN2_LO), vfma(k, vset(-(real)RG_LN2_HI), x));
}

/* q in e^r = 1 + r + r^2 q(r), |r| <= ln 2 / 2. */
RG_INLINE vreal exp_series(vreal r)
{
#if RG_REAL_F64
    static const real c[] = {
        0x1.0000000000005p-1,  0x1.555555555554p-3,   0x1.555555555211ap-5,  0x1.111111111758dp-7,
        0x1.6c16c17f2aacp-10,  0x1.a01a017de8733p-13, 0x1.a019a6af279a1p-16, 0x1.71de745526054p-19,
        0x1.28a281df43eaep-22, 0x1.ae8aca90debc4p-26,
    };
#else
    static const real c[] = {
        0x1.fffffep-2, 0x1.5554bp-3, 0x1.55572ap-5, 0x1.122792p-7, 0x1.6b5c1ap-10,
    };
#endif
    return horner(r, c, RG_COUNT(c));
}

/* e 2^k, for k + 2 BIAS in k_bits. */
RG_INLINE vreal exp_scale(vreal e, vuint k_bits)
{
#if RG_HAS_VSCALE
    return vscale(e, (vreal)k_bits - exp_big(2 * RG_BIAS));
#else
    const vuint half = k_bits << (RG_MANTISSA - 1) & ~(((uintr)1 << RG_MANTISSA) - 1);
    const vuint rest = (k_bits << RG_MANTISSA) - half;
    return e * (vreal)rest * (vreal)half;
#endif
}

/* e^x within 1 ULP, or 1.5 where vfma rounds twice.
 *
 *      e^x = e^r 2^(k-h) 2^h,   h = k/2 rounded down
 *
 * Each power of two is a normal number wherever the result is not 0 or infinity, and the second
 * product rounds to a subnormal once. With k + 2 BIAS in k_bits, one exponent is its half, the
 * other the rest. Where there is an instruction for e 2^k it does all of this. */
RG_INLINE_LONG vreal vexp(vreal x)
{
    const vreal least = vset(RG_REAL_F64 ? -746 : -104); /* e^x is 0 */
    const vreal most = vset(RG_REAL_F64 ? 710 : 89);     /* e^x is infinity */
    vuint k_bits;
    const vreal r = exp_reduce(vmax(least, vmin(most, x)), 2 * RG_BIAS, &k_bits); /* NaN stays */
    const vreal e = vfma(vfma(exp_series(r), r, vset(1)), r, vset(1));
    return exp_scale(e, k_bits);
}

#if !RG_REAL_F64
/* e^x for x <= 0 and results of 16 bits: within 2^-17 of the value (2^-16.5 where vfma rounds
 * twice), which f16 and bf16 round off. One step of reduction and three coefficients do. */
RG_INLINE_LONG vreal vexp_short(vreal x)
{
    const vreal big = exp_big(2 * RG_BIAS), least = vset(-104); /* e^x is 0 */
    const vreal z = vmax(least, x), sum = vfma(z, vset((real)RG_LOG2_E), big), k = sum - big;
    const vreal r = vfma(k, vset(-(real)0x1.62e43p-1), z);
    static const real c[] = { (real)0x1.0006b8p-1, (real)0x1.571d1ep-3, (real)0x1.5224e4p-5 };
    const vreal e = vfma(vfma(horner(r, c, RG_COUNT(c)), r, vset(1)), r, vset(1));
    return exp_scale(e, (vuint)sum);
}
#else
RG_INLINE_LONG vreal vexp_short(vreal x) /* double has no results of 16 bits */
{
    return vexp(x);
}
#endif

/* ---- 2^v, float alone ---- */

#if !RG_REAL_F64
/* v = k + r with |r| <= 1/2, exactly. As exp_reduce. */
RG_INLINE vreal exp2_reduce(vreal v, const int offset, vuint *k_bits)
{
    const vreal big = exp_big(offset), sum = v + big;
    *k_bits = (vuint)sum;
    return v - (sum - big);
}

/* 2^v for v <= 0, within 1.25 ULP where that is a normal number. */
RG_INLINE_LONG vreal vexp2(vreal v)
{
    static const real c[] = {
        1, 0x1.62e43p-1, 0x1.ebfbdcp-3, 0x1.c6af7cp-5, 0x1.3b2dep-7, 0x1.5f082ep-10, 0x1.416b52p-13
    };
    vuint k_bits;
    const vreal r = exp2_reduce(vmax(vset(-150), v), 2 * RG_BIAS, &k_bits);
    return exp_scale(horner(r, c, RG_COUNT(c)), k_bits);
}

/* p in 2^r = 1 + r p(r) within 2^-16, |r| <= 1/2. */
RG_INLINE vreal exp2_series_short(vreal r)
{
    static const real c[] = { 0x1.62e2d6p-1, 0x1.ebff08p-3, 0x1.c96b22p-5, 0x1.3b2a4cp-7 };
    return horner(r, c, RG_COUNT(c));
}

/* 2^v within 2^-17, from -150, where it is 0, to 128, where it is infinity. */
RG_INLINE_LONG vreal exp2_short(vreal v)
{
    vuint k_bits;
    const vreal r = exp2_reduce(v, 2 * RG_BIAS, &k_bits);
    return exp_scale(vfma(exp2_series_short(r), r, vset(1)), k_bits);
}
#endif

/* (e^x - 1) / 2, halved to reach the largest numbers.
 *
 *      (e^x - 1) / 2 = 2^(k-1) (e^r - 1) + (2^(k-1) - 1/2) */
RG_INLINE vreal expm1_half(vreal x)
{
    const vreal least = vset(RG_REAL_F64 ? -38 : -18); /* e^x - 1 is -1 */
    const vreal most = vset(RG_REAL_F64 ? 710 : 89);   /* e^x - 1 is infinity */
    vuint k_bits;
    const vreal r = exp_reduce(vmax(least, vmin(most, x)), RG_BIAS - 1, &k_bits);
    const vreal e = vfma(r * r, exp_series(r), r);
    const vreal power = (vreal)(k_bits << RG_MANTISSA);
    return vfma(power, e, power - vset((real)0.5));
}

/* e^x - 1 within 2.5 ULP. */
RG_INLINE_LONG vreal vexpm1(vreal x)
{
    const vreal tiny = vset(RG_REAL_F64 ? (real)0x1p-54 : (real)0x1p-25); /* e^x - 1 rounds to x */
    return vselect(vabs(x) < tiny, x, 2 * expm1_half(x));
}

/* 1 / (1 + e^-x) within 2.75 ULP, by e^-|x|, which cannot overflow. */
RG_INLINE_LONG vreal vsigmoid(vreal x)
{
    const vreal z = vexp(-vabs(x));
    return vselect(x < 0, z, vset(1)) / (1 + z);
}

/* tanh x within 3 ULP.
 *
 *      tanh |x| = |h| / (1 + h),   h = (e^(-2|x|) - 1) / 2 */
RG_INLINE_LONG vreal vtanh(vreal x)
{
    const vreal h = expm1_half(-2 * vabs(x));
    return vsigned(vabs(h) / (1 + h), x);
}

#if !RG_REAL_F64
/* e^x - 1 for x <= 0 within 2^-15; anything above. As expm1_half, in powers of two. */
RG_INLINE_LONG vreal vexpm1_short(vreal x)
{
    vuint k_bits;
    const vreal v = vmax(vset(-26), x * vset((real)RG_LOG2_E)); /* e^x - 1 is -1 */
    const vreal r = exp2_reduce(v, RG_BIAS, &k_bits);
    const vreal power = (vreal)(k_bits << RG_MANTISSA);
    return vfma(power, r * exp2_series_short(r), power - 1);
}

/* 1 / (1 + e^-x) within 2^-13.5; 0 where e^-x is infinity. */
RG_INLINE_LONG vreal vsigmoid_short(vreal x)
{
    const vreal v = x * vset(-(real)RG_LOG2_E);
    return vrecip_short(1 + exp2_short(vmax(vset(-150), vmin(vset(128), v))));
}

/* z / (q (1 + z)^2) with z = e^(-n |x|) within 2^-13.5: the derivative of the sigmoid for n = 1 and
 * q = 1, that of tanh for n = 2 and q = 1/4. */
RG_INLINE vreal vsigmoid_slope_short(vreal x, const real n, const real q)
{
    const vreal z = exp2_short(vmax(vset(-150), vabs(x) * vset(-n * (real)RG_LOG2_E)));
    return z * vrecip_short(vfma(z, vfma(z, vset(q), vset(2 * q)), vset(q)));
}

/* tanh x within 2^-12.5, as x p(x^2) / q(x^2) to where f16 rounds it to 1. */
RG_INLINE_LONG vreal vtanh_short(vreal x)
{
    static const real p[] = { 0x1.fffb84p-1, 0x1.a7d76ap-4, 0x1.716ee0p-11 };
    static const real q[] = { 1, 0x1.bf10cep-2, 0x1.aee7cap-7 };
    const vreal most = vset((real)4.65), s = vmax(-most, vmin(most, x)), u = s * s;
    return s * horner(u, p, RG_COUNT(p)) * vrecip_short(horner(u, q, RG_COUNT(q)));
}
#else
RG_INLINE_LONG vreal vexpm1_short(vreal x)
{
    return vexpm1(x);
}

RG_INLINE_LONG vreal vsigmoid_short(vreal x)
{
    return vsigmoid(x);
}

RG_INLINE vreal vsigmoid_slope_short(vreal x, const real n, const real q)
{
    const vreal z = vexp(-n * vabs(x)), r = 1 / (1 + z);
    return z * r * r / q;
}

RG_INLINE_LONG vreal vtanh_short(vreal x)
{
    return vtanh(x);
}
#endif

/* ---- log ---- */

/* x = 2^e m with sqrt(1/2) <= m < sqrt(2), for a normal x > 0. Returns m. */
RG_INLINE vreal log_split(vreal x, vreal *e)
{
    const real big = RG_REAL_F64 ? (real)0x1p52 : (real)0x1p23; /* plus an integer: its mantissa */
    const uintr one = (uintr)RG_BIAS << RG_MANTISSA;
    const vuint bits = (vuint)x + (one - RG_SQRT_HALF);
    *e = (vreal)(bits >> RG_MANTISSA | (vuint)vset(big)) - vset(big + RG_BIAS);
    return (vreal)((bits & (((uintr)1 << RG_MANTISSA) - 1)) + RG_SQRT_HALF);
}

/* e ln 2 + log(1 + f), the smaller terms added first. The series is that of atanh.
 *
 *      log(1 + f) = 2 atanh s = 2 s + s z q(z) = f - s (f - z q(z)),   s = f / (2 + f), z = s^2 */
RG_INLINE vreal log_join(vreal f, vreal e)
{
#if RG_REAL_F64
    static const real c[] = {
        0x1.5555555555592p-1, 0x1.999999997ff57p-2, 0x1.24924941dc6f3p-2, 0x1.c71c5218d822p-3,
        0x1.74663bf3d504cp-3, 0x1.39a20230a96fbp-3, 0x1.2f02bd49a4599p-3,
    };
#else
    static const real c[] = { 0x1.55557ap-1, 0x1.995edap-2, 0x1.31dff2p-2 };
#endif
    const vreal s = f / (2 + f), z = s * s;
    const vreal rest = vfma(-z, horner(z, c, RG_COUNT(c)), f);
    return vfma(e, vset((real)RG_LN2_HI), f + vfma(-s, rest, e * vset((real)RG_LN2_LO)));
}

/* y, or what log gives for an x that is 0, negative, infinite or NaN. */
RG_INLINE vreal log_edges(vreal x, vreal y)
{
    y = vselect(x < vset((real)__builtin_inf()), y, x);
    y = vselect(x == 0, vset(-(real)__builtin_inf()), y);
    return (vreal)((vint)y | (x < 0)); /* all bits set: a NaN */
}

/* log x within 1.25 ULP. Subnormal numbers are scaled up first. */
RG_INLINE_LONG vreal vlog(vreal x)
{
    const vint tiny = x < vset(RG_REAL_F64 ? (real)0x1p-1022 : (real)0x1p-126);
    const vreal scale = vset(RG_REAL_F64 ? (real)0x1p54 : (real)0x1p25);
    vreal e;
    const vreal m = log_split(vselect(tiny, x * scale, x), &e);
    e -= vselect(tiny, vset(RG_MANTISSA + 2), vset(0));
    return log_edges(x, log_join(m - 1, e));
}

/* log(1 + x) within 2 ULP.
 *
 *      1 + x = u + c,   u = 2^e m,   log(1 + x) = e ln 2 + log(1 + f),   f = m - 1 + 2^-e c
 *
 * c is what the sum u lost to rounding, found exactly. Where e = 0, f is x itself. */
RG_INLINE_LONG vreal vlog1p(vreal x)
{
    const vreal u = 1 + x, v = u - 1;
    const vreal c = (1 - (u - v)) + (x - v);
    vreal e;
    const vreal m = log_split(u, &e);
    const uintr four = (uintr)(RG_BIAS + 2) << RG_MANTISSA; /* 2^-e alone may be subnormal */
    const vreal power = (vreal)((vuint)m - (vuint)u + four);
    const vreal f = (m - 1) + c * power * vset((real)0.25);
    return vsigned(log_edges(u, log_join(f, e)), x);
}

/* ---- erf ---- */

/* erf x within 1.75 ULP.
 *
 *      erf x = x + x p(x^2)          |x| < 1
 *      erf |x| = 1 - e^q(|x| - 2)    elsewhere; q(a - 2) fits log(1 - erf a) to where erf a is 1 */
RG_INLINE_LONG vreal verf(vreal x)
{
#if RG_REAL_F64
    static const real p[] = {
        0x1.06eba8214db69p-3,   -0x1.812746b037a2p-2,   0x1.ce2f21a04537ep-4,
        -0x1.b82ce313385bfp-6,  0x1.565bcd27d06edp-8,   -0x1.c02db85b6d5ffp-11,
        0x1.f9a3a0874dedfp-14,  -0x1.f4db15a33affdp-17, 0x1.ba517505bf815p-20,
        -0x1.62cb5c5454d39p-23, 0x1.0f0e3e72b26bdp-26,  -0x1.ac17a73cbf1e8p-30,
        0x1.1b19ccb32eb22p-33,
    };
    static const real q[] = {
        -0x1.575b329b1f514p2,   -0x1.1ac3258a8dc2bp2,   -0x1.d8f5dece929a9p-1,
        -0x1.0dc3b5fb3043cp-6,  0x1.d406b3790ecf6p-9,   -0x1.7ffcfb021ce2cp-11,
        0x1.1bc3a4b4ca03p-13,   -0x1.5b659d8866ce4p-16, 0x1.0604b48c97781p-19,
        0x1.b580cb0d14eb7p-23,  -0x1.73e3d7d3c1baap-23, 0x1.ef986c7ab7793p-25,
        -0x1.e09b3dcf789ep-27,  0x1.66be3738b41a8p-29,  -0x1.1bb634ac330dap-32,
        -0x1.3ab8a99aa5c5bp-34, 0x1.4436f7f592f87p-35,  -0x1.59ed6b735875bp-38,
    };
    const vreal most = vset(6);
#else
    static const real p[] = {
        0x1.06eba8p-3, -0x1.81273ep-2, 0x1.ce2ceep-4,  -0x1.b7f824p-6,
        0x1.53fdb6p-8, -0x1.a3bafp-11, 0x1.48c588p-14,
    };
    static const real q[] = {
        -0x1.575b32p2, -0x1.1ac322p2,   -0x1.d8f65ap-1, -0x1.0e20dp-6,
        0x1.d0fd82p-9, -0x1.731ffcp-11, 0x1.88f7dap-13,
    };
    const vreal most = vset(4);
#endif
    const vreal size = vabs(x);
    const vreal near = vfma(x, horner(x * x, p, RG_COUNT(p)), x);
    const vreal far = 1 - vexp(horner(vmin(most, size) - 2, q, RG_COUNT(q)));
    return vselect(size < 1, near, vsigned(far, x));
}

/* ---- the normal distribution ---- */

#define RG_SQRT_1_2   0.70710678118654752440 /* sqrt(1/2) */
#define RG_SQRT_1_2PI 0.39894228040143267794 /* 1 / sqrt(2 pi) */

#if RG_REAL_F64
/* (1 + erf(x / sqrt 2)) / 2 within 1.5 ULP of 1/2, whatever its value. */
RG_INLINE_LONG vreal vnormal(vreal x)
{
    const vreal half = vset((real)0.5);
    return vfma(half, verf(x * vset((real)RG_SQRT_1_2)), half);
}

/* e^(-x^2 / 2) within 2 ULP of 1/2. */
RG_INLINE_LONG vreal vbell(vreal x)
{
    return vexp(vset((real)-0.5) * x * x);
}

RG_INLINE_LONG vreal vnormal_short(vreal x)
{
    return vnormal(x);
}

RG_INLINE_LONG vreal vnormal_slope_short(vreal x)
{
    return vfma(x * vset((real)RG_SQRT_1_2PI), vbell(x), vnormal(x));
}
#else
/* (1 + erf(x / sqrt 2)) / 2 within 1.5 ULP of 1/2, whatever its value.
 *
 *      1 - erf(t / sqrt 2) = 2^(t q(t)),   t = |x| */
RG_INLINE_LONG vreal vnormal(vreal x)
{
    static const real q[] = { -0x1.26aeeap0,   -0x1.d63764p-2,  -0x1.ae61a8p-5, 0x1.d2e68ap-8,
                              -0x1.832d14p-13, -0x1.5c734ep-13, 0x1.269f58p-15, -0x1.4c7afcp-19 };
    const vreal t = vabs(x), e = vexp2(t * horner(t, q, RG_COUNT(q)));
    return vset((real)0.5) * vselect(x > 0, 2 - e, e);
}

/* e^(-x^2 / 2) within 2 ULP of 1/2. */
RG_INLINE_LONG vreal vbell(vreal x)
{
    return vexp2(x * x * vset((real)(-0.5 * RG_LOG2_E)));
}

/* As vnormal, within 2^-14 of values above 2^-12, and of 2^-12 below. */
RG_INLINE_LONG vreal vnormal_short(vreal x)
{
    static const real q[] = {
        -1, -0x1.268212p0, -0x1.d89b24p-2, -0x1.9b1012p-5, 0x1.a4e676p-8, -0x1.92d0f8p-12
    };
    const vreal t = vabs(x), e = exp2_short(vmax(vset(-150), horner(t, q, RG_COUNT(q))));
    return vselect(x > 0, 1 - e, e);
}

/* The derivative of x vnormal(x), by one exponential, within 2^-13.25 of values above 2^-9, and
 * of 2^-9 below.
 *
 *      (0 or 1) + sign(x) e^(-t^2 / 2) h(t),   t = |x|
 *
 * h is a polynomial up to where the exponential is 0. As the definition it is NaN at infinity. */
RG_INLINE_LONG vreal vnormal_slope_short(vreal x)
{
    static const real h[] = { -0x1.fff4aep-2, 0x1.97e7a8p-1, -0x1.f26fe2p-3,  0x1.df5fcp-4,
                              -0x1.552954p-5, 0x1.44407cp-7, -0x1.646986p-10, 0x1.50c0a4p-14 };
    const vreal t = vmin(vset(16), vabs(x));
    const vreal e = exp2_short(vmax(vset(-150), x * x * vset((real)(-0.5 * RG_LOG2_E))));
    const vreal step = vselect((vint)x < 0, vset(0), vset(1)); /* by the sign of 0, too */
    return vfma(vsigned(e, x), horner(t, h, RG_COUNT(h)), vfma(x, vset(0), step));
}
#endif

#endif
