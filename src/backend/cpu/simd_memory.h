/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Loads and stores of one element and of whole vectors, elements i to i + VLEN - 1 of an array of
 * T. */
#ifndef RG_CPU_SIMD_MEMORY_H
#define RG_CPU_SIMD_MEMORY_H

#include "backend/cpu/simd_half.h"

RG_INLINE real load_one(const void *data, int64_t i, const rg_dtype T)
{
#if RG_REAL_F64
    (void)T;
    return ((const double *)data)[i];
#else
    if (T == RG_F16)
        return rg_float_of_f16(((const uint16_t *)data)[i]);
    if (T == RG_BF16)
        return rg_float_of_bf16(((const uint16_t *)data)[i]);
    return ((const float *)data)[i];
#endif
}

RG_INLINE void store_one(void *data, int64_t i, const rg_dtype T, real a)
{
#if RG_REAL_F64
    (void)T;
    ((double *)data)[i] = a;
#else
    if (T == RG_F16)
        ((uint16_t *)data)[i] = rg_f16_of_float(a);
    else if (T == RG_BF16)
        ((uint16_t *)data)[i] = rg_bf16_of_float(a);
    else
        ((float *)data)[i] = a;
#endif
}

RG_INLINE vreal vload_full(const void *data, int64_t i, const rg_dtype T)
{
#if !RG_REAL_F64
    if (T != RG_F32) {
        vhalf half;
        memcpy(&half, (const uint16_t *)data + i, sizeof half);
        return T == RG_F16 ? vreal_of_f16(half) : vreal_of_bf16(half);
    }
#endif
    (void)T;
    vreal a;
    memcpy(&a, (const real *)data + i, sizeof a);
    return a;
}

RG_INLINE void vstore_full(void *data, int64_t i, const rg_dtype T, vreal a)
{
#if !RG_REAL_F64
    if (T != RG_F32) {
        const vhalf half = T == RG_F16 ? vf16_of_real(a) : vbf16_of_real(a);
        memcpy((uint16_t *)data + i, &half, sizeof half);
        return;
    }
#endif
    (void)T;
    memcpy((real *)data + i, &a, sizeof a);
}

/* Whether results have 16 bits, for which short functions do. */
RG_INLINE bool is_short(const rg_dtype T)
{
    return T == RG_F16 || T == RG_BF16;
}

/* Bytes that VLEN elements of T take, and the alignment that vstream asks for. */
RG_INLINE int vbytes(const rg_dtype T)
{
    return T == RG_F16 || T == RG_BF16 ? 2 * VLEN : RG_VECTOR_BYTES;
}

/* Elements to the next address that is aligned to RG_VECTOR_BYTES. */
RG_INLINE int vhead(const void *data, const rg_dtype T)
{
    return (int)(-(uintptr_t)data & (RG_VECTOR_BYTES - 1)) / (vbytes(T) / VLEN);
}

/* Streaming stores, aligned to what they write. */
#if !RG_REAL_F64
RG_INLINE void vstream_half(uint16_t *to, vhalf half)
{
#if !defined(__x86_64__)
    memcpy(to, &half, sizeof half);
#elif RG_VLEN == 16
    _mm256_stream_si256((__m256i *)(void *)to, (__m256i)half);
#elif RG_VLEN == 8
    _mm_stream_si128((__m128i *)(void *)to, (__m128i)half);
#else
    long long bits;
    memcpy(&bits, &half, sizeof bits);
    _mm_stream_si64((long long *)(void *)to, bits);
#endif
}
#endif

RG_INLINE void vstream(void *data, int64_t i, const rg_dtype T, vreal a)
{
#if !RG_REAL_F64
    if (T != RG_F32) {
        vstream_half((uint16_t *)data + i, T == RG_F16 ? vf16_of_real(a) : vbf16_of_real(a));
        return;
    }
#endif
    (void)T;
    real *to = (real *)data + i;
#if !defined(__x86_64__)
    memcpy(to, &a, sizeof a);
#elif RG_VECTOR_BYTES == 64
    _mm512_stream_si512((void *)to, (__m512i)a);
#elif RG_VECTOR_BYTES == 32
    _mm256_stream_si256((__m256i *)(void *)to, (__m256i)a);
#else
    _mm_stream_si128((__m128i *)(void *)to, (__m128i)a);
#endif
}

#endif
