/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Lanes of a vector in any order. */
#ifndef RG_CPU_PICK_H
#define RG_CPU_PICK_H

#include "backend/cpu/kernel.h"

/* Lane l of the result is lane index[l] % VLEN of a. */
RG_INLINE vreal vpick(vreal a, vint index)
{
#if defined(__AVX512F__) && RG_REAL_F64
    return (vreal)_mm512_permutexvar_pd((__m512i)index, (__m512d)a);
#elif defined(__AVX512F__)
    return (vreal)_mm512_permutexvar_ps((__m512i)index, (__m512)a);
#elif defined(__AVX2__) && !RG_REAL_F64
    return (vreal)_mm256_permutevar8x32_ps((__m256)a, (__m256i)index);
#else
    vreal picked;
    for (int lane = 0; lane < VLEN; lane++)
        picked[lane] = a[index[lane] % VLEN];
    return picked;
#endif
}

#endif
