/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Vectors as bits: whether a lane is set, which are, is one NaN, is at most some number; products
 * of integers. */
#ifndef RG_CPU_SIMD_BITS_H
#define RG_CPU_SIMD_BITS_H

#include "backend/cpu/simd_types.h"

/* Whether a lane of a mask is set. */
RG_INLINE bool vany(vint mask)
{
#if defined(__AVX512F__) && RG_REAL_F64
    return _mm512_movepi64_mask((__m512i)mask) != 0;
#elif defined(__AVX512F__)
    return _mm512_movepi32_mask((__m512i)mask) != 0;
#elif defined(__AVX2__)
    return _mm256_movemask_epi8((__m256i)mask) != 0;
#elif defined(__SSE2__)
    return _mm_movemask_epi8((__m128i)mask) != 0;
#else
    intr any = 0;
    for (int e = 0; e < VLEN; e++)
        any |= mask[e];
    return any != 0;
#endif
}

/* Which lanes of a mask are set, the first in bit 0. */
RG_INLINE uint32_t vmask_bits(vint mask)
{
#if defined(__AVX512F__) && RG_REAL_F64
    return _mm512_movepi64_mask((__m512i)mask);
#elif defined(__AVX512F__)
    return _mm512_movepi32_mask((__m512i)mask);
#elif defined(__AVX2__) && RG_REAL_F64
    return (uint32_t)_mm256_movemask_pd((__m256d)mask);
#elif defined(__AVX2__)
    return (uint32_t)_mm256_movemask_ps((__m256)mask);
#elif defined(__SSE2__) && RG_REAL_F64
    return (uint32_t)_mm_movemask_pd((__m128d)mask);
#elif defined(__SSE2__)
    return (uint32_t)_mm_movemask_ps((__m128)mask);
#else
    uint32_t bits = 0;
    for (int e = 0; e < VLEN; e++)
        bits |= (uint32_t)(mask[e] & 1) << e;
    return bits;
#endif
}

/* Whether a lane is NaN. */
RG_INLINE bool vany_nan(vreal a)
{
#if defined(__AVX512F__) && RG_REAL_F64
    return _mm512_cmp_pd_mask((__m512d)a, (__m512d)a, _CMP_UNORD_Q) != 0;
#elif defined(__AVX512F__)
    return _mm512_cmp_ps_mask((__m512)a, (__m512)a, _CMP_UNORD_Q) != 0;
#else
    return vany(a != a);
#endif
}

/* Integers of 64 bits, and the products of their lower halves. */
typedef uint64_t vwide __attribute__((vector_size(RG_VECTOR_BYTES)));
RG_INLINE vwide vmul_low(vwide a, vwide b)
{
#if defined(__AVX512F__)
    return (vwide)_mm512_mul_epu32((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return (vwide)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
    return (vwide)_mm_mul_epu32((__m128i)a, (__m128i)b);
#else
    return (a & 0xffffffff) * (b & 0xffffffff);
#endif
}

/* Which of the 16-bit parts of a vector, the lowest in bit 0, are at most `limit`, or equal to it.
 */
RG_INLINE uint32_t vbits_at_most(vwide a, uint16_t limit)
{
#if defined(__AVX512F__)
    return _mm512_cmple_epu16_mask((__m512i)a, _mm512_set1_epi16((short)limit));
#elif defined(__AVX2__)
    const __m256i over = _mm256_subs_epu16((__m256i)a, _mm256_set1_epi16((short)limit));
    const __m256i none = _mm256_setzero_si256(), bytes = _mm256_cmpeq_epi16(over, none);
    const uint32_t bits = (uint32_t)_mm256_movemask_epi8(_mm256_packs_epi16(bytes, none));
    return (bits & 0xff) | (bits >> 8 & 0xff00);
#elif defined(__SSE2__)
    const __m128i over = _mm_subs_epu16((__m128i)a, _mm_set1_epi16((short)limit));
    const __m128i none = _mm_setzero_si128(), bytes = _mm_cmpeq_epi16(over, none);
    return (uint32_t)_mm_movemask_epi8(_mm_packs_epi16(bytes, none));
#else
    uint32_t bits = 0;
    for (int i = 0; i < RG_VECTOR_BYTES / 2; i++)
        bits |= (uint32_t)((a[i / 4] >> i % 4 * 16 & 0xffff) <= limit) << i;
    return bits;
#endif
}

RG_INLINE uint32_t vbits_equal(vwide a, uint16_t limit)
{
#if defined(__AVX512F__)
    return _mm512_cmpeq_epi16_mask((__m512i)a, _mm512_set1_epi16((short)limit));
#else
    return vbits_at_most(a, limit) ^ (limit > 0 ? vbits_at_most(a, (uint16_t)(limit - 1)) : 0);
#endif
}

/* a where a bit of `each` is set in `all`, else 0. */
RG_INLINE vreal vkeep_bits(vreal a, vuint all, vuint each)
{
#if defined(__AVX512F__)
    __asm__("" : "+v"(a)); /* no masked loads: a Zen 4 does not fetch ahead of them */
#endif
#if defined(__AVX512F__) && RG_REAL_F64
    return (vreal)_mm512_maskz_mov_pd(_mm512_test_epi64_mask((__m512i)all, (__m512i)each),
                                      (__m512d)a);
#elif defined(__AVX512F__)
    return (vreal)_mm512_maskz_mov_ps(_mm512_test_epi32_mask((__m512i)all, (__m512i)each),
                                      (__m512)a);
#else
    return (vreal)(((all & each) == each) & (vint)a);
#endif
}

#endif
