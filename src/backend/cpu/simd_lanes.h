/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Vectors lane by lane: what operators do not say. */
#ifndef RG_CPU_SIMD_LANES_H
#define RG_CPU_SIMD_LANES_H

#include "backend/cpu/simd_types.h"

RG_INLINE vreal vset(real a)
{
    return a - (vreal){ 0 }; /* not +: -0 stays -0 */
}

RG_INLINE vint vlanes(void) /* 0, 1, 2, … */
{
#if RG_VLEN == 16
    return (vint){ 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };
#elif RG_VLEN == 8
    return (vint){ 0, 1, 2, 3, 4, 5, 6, 7 };
#elif RG_VLEN == 4
    return (vint){ 0, 1, 2, 3 };
#else
    return (vint){ 0, 1 };
#endif
}

/* Lanes of a vector that starts `left` elements before the end. */
RG_INLINE int vlanes_left(int64_t left)
{
    return left < VLEN ? (int)left : VLEN;
}

RG_INLINE vreal vselect(vint mask, vreal yes, vreal no)
{
#if defined(__AVX512F__) && RG_REAL_F64
    return (vreal)_mm512_mask_blend_pd(_mm512_movepi64_mask((__m512i)mask), (__m512d)no,
                                       (__m512d)yes);
#elif defined(__AVX512F__)
    return (vreal)_mm512_mask_blend_ps(_mm512_movepi32_mask((__m512i)mask), (__m512)no,
                                       (__m512)yes);
#elif defined(__AVX2__) && RG_REAL_F64
    return (vreal)_mm256_blendv_pd((__m256d)no, (__m256d)yes, (__m256d)mask);
#elif defined(__AVX2__)
    return (vreal)_mm256_blendv_ps((__m256)no, (__m256)yes, (__m256)mask);
#else
    return (vreal)((mask & (vint)yes) | (~mask & (vint)no));
#endif
}

RG_INLINE vreal vabs(vreal a)
{
    return (vreal)((vuint)a << 1 >> 1);
}

/* a > b ? a : b, so b where either is NaN */
RG_INLINE vreal vmax(vreal a, vreal b)
{
#if defined(__AVX512F__) && RG_REAL_F64
    return (vreal)_mm512_max_pd((__m512d)a, (__m512d)b);
#elif defined(__AVX512F__)
    return (vreal)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__) && RG_REAL_F64
    return (vreal)_mm256_max_pd((__m256d)a, (__m256d)b);
#elif defined(__AVX2__)
    return (vreal)_mm256_max_ps((__m256)a, (__m256)b);
#elif defined(__SSE2__) && RG_REAL_F64
    return (vreal)_mm_max_pd((__m128d)a, (__m128d)b);
#elif defined(__SSE2__)
    return (vreal)_mm_max_ps((__m128)a, (__m128)b);
#else
    return vselect(a > b, a, b);
#endif
}

RG_INLINE vreal vmin(vreal a, vreal b) /* a < b ? a : b */
{
#if defined(__AVX512F__) && RG_REAL_F64
    return (vreal)_mm512_min_pd((__m512d)a, (__m512d)b);
#elif defined(__AVX512F__)
    return (vreal)_mm512_min_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__) && RG_REAL_F64
    return (vreal)_mm256_min_pd((__m256d)a, (__m256d)b);
#elif defined(__AVX2__)
    return (vreal)_mm256_min_ps((__m256)a, (__m256)b);
#elif defined(__SSE2__) && RG_REAL_F64
    return (vreal)_mm_min_pd((__m128d)a, (__m128d)b);
#elif defined(__SSE2__)
    return (vreal)_mm_min_ps((__m128)a, (__m128)b);
#else
    return vselect(a < b, a, b);
#endif
}

/* a * b + c, rounded once where the instruction set can. Kernel files are compiled without
 * contraction, so that the main loop and the tail round alike. */
RG_INLINE vreal vfma(vreal a, vreal b, vreal c)
{
#if defined(__AVX512F__) && RG_REAL_F64
    return (vreal)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
#elif defined(__AVX512F__)
    return (vreal)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__) && RG_REAL_F64
    return (vreal)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
#elif defined(__AVX2__)
    return (vreal)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    return a * b + c;
#endif
}

/* Half a vector, where that is as many lanes as a whole one of the instruction set below. */
#if RG_VLEN == 16
#define RG_HAS_SLIM 1
typedef real vslim __attribute__((vector_size(RG_VECTOR_BYTES / 2)));

RG_INLINE vslim vslim_fma(real a, vslim b, vslim c)
{
    return (vslim)_mm256_fmadd_ps(_mm256_set1_ps(a), (__m256)b, (__m256)c);
}
#else
#define RG_HAS_SLIM 0
#endif

RG_INLINE vreal vsqrt(vreal a)
{
#if defined(__AVX512F__) && RG_REAL_F64
    return (vreal)_mm512_sqrt_pd((__m512d)a);
#elif defined(__AVX512F__)
    return (vreal)_mm512_sqrt_ps((__m512)a);
#elif defined(__AVX2__) && RG_REAL_F64
    return (vreal)_mm256_sqrt_pd((__m256d)a);
#elif defined(__AVX2__)
    return (vreal)_mm256_sqrt_ps((__m256)a);
#elif defined(__SSE2__) && RG_REAL_F64
    return (vreal)_mm_sqrt_pd((__m128d)a);
#elif defined(__SSE2__)
    return (vreal)_mm_sqrt_ps((__m128)a);
#else
    for (int e = 0; e < VLEN; e++)
        a[e] = sizeof(real) == 4 ? (real)__builtin_sqrtf((float)a[e]) : (real)__builtin_sqrt(a[e]);
    return a;
#endif
}

/* 1 / sqrt(a) within 2 units of the last place, or, where `brief`, within 2^-14 of the value.
 * For 0 and infinity the result may be NaN, unless `brief`. */
RG_INLINE vreal vrsqrt(vreal a, const bool brief)
{
#if defined(__AVX512F__) && !RG_REAL_F64
    const vreal r = (vreal)_mm512_rsqrt14_ps((__m512)a);
    return brief ? r : vfma(r * vset((real)0.5), vfma(-a * r, r, vset(1)), r);
#else
    (void)brief;
    return 1 / vsqrt(a);
#endif
}

/* a * 2^k for a whole number k, rounded once, where there is an instruction for it. */
#if defined(__AVX512F__)
#define RG_HAS_VSCALE 1
RG_INLINE vreal vscale(vreal a, vreal k)
{
#if RG_REAL_F64
    return (vreal)_mm512_scalef_pd((__m512d)a, (__m512d)k);
#else
    return (vreal)_mm512_scalef_ps((__m512)a, (__m512)k);
#endif
}
#endif

/* 1 / a within 2^-14 of the value, for results of 16 bits; 1 / infinity is 0. */
RG_INLINE vreal vrecip_short(vreal a)
{
#if defined(__AVX512F__) && !RG_REAL_F64
    return (vreal)_mm512_rcp14_ps((__m512)a);
#else
    return 1 / a;
#endif
}

/* Lanes from `n` on become `fill`. */
RG_INLINE vreal vkeep(vreal a, const int n, real fill)
{
    return n == VLEN ? a : vselect(vlanes() < (intr)n, a, vset(fill));
}

#endif
