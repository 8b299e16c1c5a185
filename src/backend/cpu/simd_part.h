/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Loads and stores of less than a vector, 0 < n <= VLEN elements, and of elements that are apart.
 */
#ifndef RG_CPU_SIMD_PART_H
#define RG_CPU_SIMD_PART_H

#include "backend/cpu/simd_memory.h"

/* In line, with masks, where the instruction set has them. */
#if defined(__AVX512F__)
RG_INLINE vreal vload_masked(const void *data, int64_t i, int n, const rg_dtype T)
{
#if RG_REAL_F64
    (void)T;
    return (vreal)_mm512_maskz_loadu_pd((__mmask8)((1u << n) - 1), (const double *)data + i);
#else
    const __mmask16 lanes = (__mmask16)((1u << n) - 1);
    if (T == RG_F32)
        return (vreal)_mm512_maskz_loadu_ps(lanes, (const float *)data + i);
    const vhalf half = (vhalf)_mm256_maskz_loadu_epi16(lanes, (const uint16_t *)data + i);
    return T == RG_F16 ? vreal_of_f16(half) : vreal_of_bf16(half);
#endif
}

RG_INLINE void vstore_masked(void *data, int64_t i, int n, const rg_dtype T, vreal a)
{
#if RG_REAL_F64
    (void)T;
    _mm512_mask_storeu_pd((double *)data + i, (__mmask8)((1u << n) - 1), (__m512d)a);
#else
    const __mmask16 lanes = (__mmask16)((1u << n) - 1);
    if (T == RG_F32) {
        _mm512_mask_storeu_ps((float *)data + i, lanes, (__m512)a);
    } else {
        const vhalf half = T == RG_F16 ? vf16_of_real(a) : vbf16_of_real(a);
        _mm256_mask_storeu_epi16((uint16_t *)data + i, lanes, (__m256i)half);
    }
#endif
}
#endif

/* Rare, so one copy for all storage types, called. */
RG_OUTLINE vreal vload_part(const void *data, int64_t i, int n, rg_dtype T)
{
#if defined(__AVX512F__)
    return vload_masked(data, i, n, T);
#else
    real lanes[VLEN] = { 0 };
    for (int k = 0; k < n; k++)
        lanes[k] = load_one(data, i + k, T);
    return vload_full(lanes, 0, RG_REAL);
#endif
}

RG_OUTLINE void vstore_part(void *data, int64_t i, int n, rg_dtype T, vreal a)
{
#if defined(__AVX512F__)
    vstore_masked(data, i, n, T, a);
#else
    real lanes[VLEN];
    vstore_full(lanes, 0, RG_REAL, a);
    for (int k = 0; k < n; k++)
        store_one(data, i + k, T, lanes[k]);
#endif
}

/* Lanes from n on are 0. */
RG_INLINE vreal vload(const void *data, int64_t i, const int n, const rg_dtype T)
{
    return n == VLEN ? vload_full(data, i, T) : vload_part(data, i, n, T);
}

RG_INLINE void vstore(void *data, int64_t i, const int n, const rg_dtype T, vreal a)
{
    if (n == VLEN)
        vstore_full(data, i, T, a);
    else
        vstore_part(data, i, n, T, a);
}

/* The same for loops in which n < VLEN is common, such as those over images of few channels. */
RG_INLINE vreal vload_partial(const void *data, int64_t i, int n, const rg_dtype T)
{
#if defined(__AVX512F__)
    return vload_masked(data, i, n, T);
#else
    return vload(data, i, n, T);
#endif
}

RG_INLINE void vstore_partial(void *data, int64_t i, int n, const rg_dtype T, vreal a)
{
#if defined(__AVX512F__)
    vstore_masked(data, i, n, T, a);
#else
    vstore(data, i, n, T, a);
#endif
}

/* VLEN elements, or n, that are `step` apart. */
RG_OUTLINE vreal vgather(const void *data, int64_t i, int64_t step, int n, rg_dtype T)
{
    real lanes[VLEN] = { 0 };
    for (int k = 0; k < n; k++)
        lanes[k] = load_one(data, (i + k) * step, T);
    return vload_full(lanes, 0, RG_REAL);
}

RG_OUTLINE void vscatter(void *data, int64_t i, int64_t step, int n, rg_dtype T, vreal a)
{
    real lanes[VLEN];
    vstore_full(lanes, 0, RG_REAL, a);
    for (int k = 0; k < n; k++)
        store_one(data, (i + k) * step, T, lanes[k]);
}

/* n elements from element i on, neighbours where `dense`, or `step` apart. */
RG_INLINE vreal vload_strided(const void *data, int64_t i, int64_t step, const int n,
                              const rg_dtype T, bool dense)
{
    return dense ? vload(data, i, n, T) : vgather(data, i, step, n, T);
}

RG_INLINE void vstore_strided(void *data, int64_t i, int64_t step, const int n, const rg_dtype T,
                              bool dense, vreal a)
{
    if (dense)
        vstore(data, i, n, T, a);
    else
        vscatter(data, i, step, n, T, a);
}

#endif
