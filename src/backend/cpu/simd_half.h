/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Elements of 16 bits: exact, rounded to nearest even, NaN kept. For float alone. */
#ifndef RG_CPU_SIMD_HALF_H
#define RG_CPU_SIMD_HALF_H

#include "backend/cpu/simd_lanes.h"

#if !RG_REAL_F64
typedef uint16_t vhalf __attribute__((vector_size(2 * RG_VLEN)));

RG_INLINE vuint vwiden(vhalf bits)
{
#if defined(__AVX512F__) /* gcc widens in two halves */
    return (vuint)_mm512_cvtepu16_epi32((__m256i)bits);
#else
    return __builtin_convertvector(bits, vuint);
#endif
}

RG_INLINE vreal vreal_of_bf16(vhalf bits)
{
    return (vreal)(vwiden(bits) << 16);
}

/* The upper 16 bits are those of the bf16; the lower bits are to be cut off. */
RG_INLINE vuint vround_bf16(vreal a)
{
    const vuint bits = (vuint)a, rounded = bits + 0x7fff + (bits >> 16 & 1);
#if defined(__AVX512F__)
    const __mmask16 nan = _mm512_cmp_ps_mask((__m512)a, (__m512)a, _CMP_UNORD_Q);
    return (vuint)_mm512_mask_or_epi32((__m512i)rounded, nan, (__m512i)bits,
                                       _mm512_set1_epi32(0x400000));
#else
    return (vuint)vselect(a == a, (vreal)rounded, (vreal)(bits | 0x400000));
#endif
}

RG_INLINE_LONG vhalf vbf16_of_real(vreal a)
{
    return __builtin_convertvector(vround_bf16(a) >> 16, vhalf);
}

RG_INLINE_LONG vreal vreal_of_f16(vhalf bits)
{
#if defined(__AVX512F__)
    return (vreal)_mm512_cvtph_ps((__m256i)bits);
#elif defined(__F16C__)
    return (vreal)_mm256_cvtph_ps((__m128i)bits);
#else /* as rg_float_of_f16, which explains it */
    const vuint wide = __builtin_convertvector(bits, vuint);
    const vuint sign = (wide & 0x8000) << 16, rest = (wide & 0x7fff) << 13;
    const vuint nan = (vuint)(rest > 0x0f800000) & 0x400000;
    const vuint number = (vuint)((vreal)rest * vset((real)0x1p112));
    const vint special = rest >= 0x0f800000;
    return (vreal)(sign | (vuint)vselect(special, (vreal)(rest | 0x7f800000 | nan), (vreal)number));
#endif
}

RG_INLINE_LONG vhalf vf16_of_real(vreal a)
{
#if defined(__AVX512F__)
    return (vhalf)_mm512_cvtps_ph((__m512)a, _MM_FROUND_TO_NEAREST_INT);
#elif defined(__F16C__)
    return (vhalf)_mm256_cvtps_ph((__m256)a, _MM_FROUND_TO_NEAREST_INT);
#else /* as rg_f16_of_float */
    const vuint bits = (vuint)a, sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    const vuint normal = ((size + 0xfff + (size >> 13 & 1)) >> 13) - (112 << 10);
    const vuint small = (vuint)((vreal)size + vset((real)0.5)) - 0x3f000000;
    const vuint nan = (size >> 13 & 0x3ff) | 0x7e00;
    vreal result = vselect(size < 0x38800000, (vreal)small, (vreal)normal);
    result = vselect(size >= 0x477ff000, (vreal)((vuint){ 0 } + 0x7c00), result);
    result = vselect(size > 0x7f800000, (vreal)nan, result);
    return __builtin_convertvector((vuint)result | sign, vhalf);
#endif
}
#endif

#endif
