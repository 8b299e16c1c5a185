/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Vectors of f32 become bf16 by the conversion of AVX512-BF16, which takes subnormal numbers for 0:
 * these are rounded as whole numbers are. For files that are compiled for it. */
#ifndef RG_OPS_CONTRACT_BF16_ROUND_H
#define RG_OPS_CONTRACT_BF16_ROUND_H

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

/* Lanes that the conversion takes for 0. */
INLINE __mmask16 subnormal(__m512 a)
{
    enum { SUBNORMAL = 0x20 };
    return _mm512_fpclass_ps_mask(a, SUBNORMAL);
}

/* Those lanes of `bits`, rounded as whole numbers are. */
static __attribute__((noinline)) __m256i round_subnormal(__m256i bits, __m512 from, __mmask16 lanes)
{
    const __m512i a = (__m512i)from;
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(a, 16), _mm512_set1_epi32(1));
    const __m512i sum = _mm512_add_epi32(_mm512_add_epi32(a, _mm512_set1_epi32(0x7fff)), odd);
    return _mm256_mask_mov_epi16(bits, lanes, _mm512_cvtepi32_epi16(_mm512_srli_epi32(sum, 16)));
}

INLINE __m256i round_one(__m512 a)
{
    const __m256i bits = (__m256i)_mm512_cvtneps_pbh(a);
    const __mmask16 lanes = subnormal(a);
    return __builtin_expect(lanes != 0, 0) ? round_subnormal(bits, a, lanes) : bits;
}

INLINE __m512i round_two(__m512 low, __m512 high)
{
    if (__builtin_expect((subnormal(low) | subnormal(high)) != 0, 0))
        return _mm512_inserti64x4(_mm512_castsi256_si512(round_one(low)), round_one(high), 1);
    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

#endif
