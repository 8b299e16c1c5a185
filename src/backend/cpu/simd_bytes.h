/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Bytes: small integers that go with elements, VLEN of them or fewer, and elements that they
 * choose. */
#ifndef RG_CPU_SIMD_BYTES_H
#define RG_CPU_SIMD_BYTES_H

#include "backend/cpu/simd_pairs.h"

RG_INLINE vint vload_bytes(const uint8_t *data)
{
#if defined(__AVX512F__) && RG_REAL_F64
    return (vint)_mm512_cvtepu8_epi64(_mm_loadl_epi64((const __m128i *)(const void *)data));
#elif defined(__AVX512F__)
    return (vint)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)data));
#elif defined(__AVX2__) && RG_REAL_F64
    int32_t bytes;
    memcpy(&bytes, data, sizeof bytes);
    return (vint)_mm256_cvtepu8_epi64(_mm_cvtsi32_si128(bytes));
#elif defined(__AVX2__)
    return (vint)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)data));
#elif defined(__SSE2__) && !RG_REAL_F64
    int32_t bytes;
    memcpy(&bytes, data, sizeof bytes);
    const __m128i none = _mm_setzero_si128();
    const __m128i words = _mm_unpacklo_epi8(_mm_cvtsi32_si128(bytes), none);
    return (vint)_mm_unpacklo_epi16(words, none);
#else
    vint lanes = { 0 };
    for (int k = 0; k < VLEN; k++)
        lanes[k] = data[k];
    return lanes;
#endif
}

RG_INLINE void vstore_bytes(uint8_t *data, vint a) /* 0 <= a < 256 */
{
#if defined(__AVX512F__) && RG_REAL_F64
    _mm_storel_epi64((__m128i *)(void *)data, _mm512_cvtepi64_epi8((__m512i)a));
#elif defined(__AVX512F__)
    _mm_storeu_si128((__m128i *)(void *)data, _mm512_cvtepi32_epi8((__m512i)a));
#elif defined(__AVX2__) && !RG_REAL_F64
    const __m128i low = _mm256_castsi256_si128((__m256i)a);
    const __m128i words = _mm_packs_epi32(low, _mm256_extracti128_si256((__m256i)a, 1));
    _mm_storel_epi64((__m128i *)(void *)data, _mm_packus_epi16(words, words));
#elif defined(__SSE2__) && !RG_REAL_F64
    const __m128i words = _mm_packs_epi32((__m128i)a, (__m128i)a);
    const int32_t bytes = _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
    memcpy(data, &bytes, sizeof bytes);
#else
    for (int k = 0; k < VLEN; k++)
        data[k] = (uint8_t)a[k];
#endif
}

/* Bytes that go with a pair of T in any order, put in the order of the elements. */
RG_INLINE void vstore_pair_bytes(uint8_t *data, vint a, vint b, const rg_dtype T)
{
#if !RG_REAL_F64
    if (T == RG_BF16) {
        const vhalf both = __builtin_convertvector((vuint)a | (vuint)b << 8, vhalf);
        memcpy(data, &both, sizeof both);
        return;
    }
#endif
    (void)T;
    vstore_bytes(data, a);
    vstore_bytes(data + VLEN, b);
}

/* Elements of a pair in storage, for what needs no arithmetic: 0 where the byte that goes with an
 * element is not `value`. */
#if !RG_REAL_F64
typedef uint16_t vhalves __attribute__((vector_size(RG_VECTOR_BYTES)));

RG_INLINE vhalves vload_halves_where(const uint16_t *data, const uint8_t *bytes, uint8_t value)
{
#if defined(__AVX512F__)
    const __m256i flags = _mm256_loadu_si256((const __m256i *)(const void *)bytes);
    const __mmask32 keep = _mm256_cmpeq_epi8_mask(flags, _mm256_set1_epi8((char)value));
    return (vhalves)_mm512_maskz_loadu_epi16(keep, data);
#else
    vhalves a;
    memcpy(&a, data, sizeof a);
#if defined(__AVX2__)
    const __m128i flags = _mm_loadu_si128((const __m128i *)(const void *)bytes);
    const __m128i keep = _mm_cmpeq_epi8(flags, _mm_set1_epi8((char)value));
    return a & (vhalves)_mm256_cvtepi8_epi16(keep);
#elif defined(__SSE2__)
    const __m128i flags = _mm_loadl_epi64((const __m128i *)(const void *)bytes);
    const __m128i keep = _mm_cmpeq_epi8(flags, _mm_set1_epi8((char)value));
    return a & (vhalves)_mm_unpacklo_epi8(keep, keep);
#else
    for (int k = 0; k < 2 * VLEN; k++)
        a[k] = bytes[k] == value ? a[k] : 0;
    return a;
#endif
#endif
}
#endif

RG_INLINE vpair vload_pair_where(const void *data, int64_t i, const uint8_t *bytes, uint8_t value,
                                 const rg_dtype T)
{
#if !RG_REAL_F64
    if (T != RG_F32) {
        const vhalves kept = vload_halves_where((const uint16_t *)data + i, bytes, value);
        return vload_pair(&kept, 0, T, true);
    }
#endif
    const vpair p = vload_pair(data, i, T, true);
    const vint first = vload_bytes(bytes) == value, second = vload_bytes(bytes + VLEN) == value;
    return (vpair){ (vreal)(first & (vint)p.a), (vreal)(second & (vint)p.b) };
}

RG_INLINE vint vload_bytes_partial(const uint8_t *data, int n) /* lanes from n on: anything */
{
#if defined(__AVX512F__) && RG_REAL_F64
    return (vint)_mm512_cvtepu8_epi64(_mm_maskz_loadu_epi8((__mmask16)((1u << n) - 1), data));
#elif defined(__AVX512F__)
    return (vint)_mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8((__mmask16)((1u << n) - 1), data));
#else
    if (n == VLEN)
        return vload_bytes(data);
    uint8_t bytes[VLEN] = { 0 };
    for (int k = 0; k < n; k++)
        bytes[k] = data[k];
    return vload_bytes(bytes);
#endif
}

RG_INLINE void vstore_bytes_partial(uint8_t *data, int n, vint a) /* 0 <= a < 256 */
{
#if defined(__AVX512F__) && RG_REAL_F64
    _mm_mask_storeu_epi8(data, (__mmask16)((1u << n) - 1), _mm512_cvtepi64_epi8((__m512i)a));
#elif defined(__AVX512F__)
    _mm_mask_storeu_epi8(data, (__mmask16)((1u << n) - 1), _mm512_cvtepi32_epi8((__m512i)a));
#else
    if (n == VLEN) {
        vstore_bytes(data, a);
        return;
    }
    uint8_t bytes[VLEN];
    vstore_bytes(bytes, a);
    for (int k = 0; k < n; k++)
        data[k] = bytes[k];
#endif
}

#endif
