/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Channels of a pixel and their winners on the CPU: loads and stores of vectors and of blocks. */
#ifndef RG_OPS_POOL_CHANNELS_CPU_H
#define RG_OPS_POOL_CHANNELS_CPU_H

#include "backend/cpu/kernel.h"
#include "backend/cpu/long_sum_cpu.h"
#include "ops/pool/pool.h"

/* Alone: no winners. Long: of more taps than a plain chain of additions may have. */
typedef enum pooling { MAX, MAX_WIDE, MAX_ALONE, AVERAGE, L2, AVERAGE_LONG, L2_LONG } pooling;

/* Vectors of a block. */
enum { BLOCK = 4 };

/* Channels c to c + n - 1 (n = VLEN in a block) of the pixel that is `offset` elements after
 * `data`. `dense`: channels are neighbours; `step` apart otherwise. */
RG_INLINE vreal load_channels(const void *data, int64_t offset, int64_t c, int64_t step, int n,
                              const rg_dtype T, const bool dense)
{
    return vload_strided(at(data, offset, T), c, step, n, T, dense);
}

RG_INLINE void store_channels(void *data, int64_t offset, int64_t c, int64_t step, int n,
                              const rg_dtype T, const bool dense, vreal value)
{
    vstore_strided(at_out(data, offset, T), c, step, n, T, dense, value);
}

/* Vector b of a block from channel c on. Where there are several they come in pairs, in the order
 * of vload_pair. */
RG_INLINE vreal load_block(const char *pixel, int64_t c, int b, int64_t step, int n,
                           const int blocks, const rg_dtype T, const bool dense)
{
    if (blocks == 1)
        return load_channels(pixel, 0, c, step, n, T, dense);
    const vpair pair = vload_pair(pixel, c + b / 2 * 2 * VLEN, T, true);
    return b % 2 == 0 ? pair.a : pair.b;
}

/* Whether every pixel of a row can be written by streaming stores of whole vectors. */
RG_INLINE bool may_stream(const rg_pool_shape *k, const void *data, int64_t offset,
                          int64_t column_step, const rg_dtype T)
{
    const int64_t element = vbytes(T) / VLEN;
    return k->stream && k->dense && k->channels % VLEN == 0 &&
           (uintptr_t)at(data, offset, T) % RG_VECTOR_BYTES == 0 &&
           column_step * element % RG_VECTOR_BYTES == 0;
}

/* ---- winners: tap numbers in bytes, or in 32 bits ---- */

/* The first value that is larger, or the first NaN, wins. */
RG_INLINE void compete(vreal *best, vint *winner, vreal x, intr tap)
{
#if defined(__AVX512F__) && !RG_REAL_F64 /* gcc makes vectors of masks and masks of them again */
    const __mmask16 more = _mm512_cmp_ps_mask((__m512)x, (__m512)*best, _CMP_NLE_UQ);
    const __mmask16 wins = _mm512_mask_cmp_ps_mask(more, (__m512)*best, (__m512)*best, _CMP_ORD_Q);
    *best = (vreal)_mm512_mask_mov_ps((__m512)*best, wins, (__m512)x);
    *winner = (vint)_mm512_mask_set1_epi32((__m512i)*winner, wins, tap);
#else
    const vint wins = ~(x <= *best) & (*best == *best);
    *best = vselect(wins, x, *best);
    *winner = (vint)vselect(wins, (vreal)((vint){ 0 } + tap), (vreal)*winner);
#endif
}

typedef int32_t vword __attribute__((vector_size(4 * VLEN)));

RG_INLINE vint load_winners(const void *winners, int64_t i, int n, const bool wide)
{
    if (n == VLEN && !wide)
        return vload_bytes((const uint8_t *)winners + i);
    if (n == VLEN) {
        vword words;
        memcpy(&words, (const int32_t *)winners + i, sizeof words);
        return __builtin_convertvector(words, vint);
    }
    vint lanes = { 0 };
    for (int e = 0; e < n; e++)
        lanes[e] = wide ? ((const int32_t *)winners)[i + e] : ((const uint8_t *)winners)[i + e];
    return lanes;
}

RG_INLINE void store_winners(void *winners, int64_t i, int n, const bool wide, vint lanes)
{
    if (n == VLEN && !wide) {
        vstore_bytes((uint8_t *)winners + i, lanes);
        return;
    }
    for (int e = 0; e < n; e++) {
        if (wide)
            ((int32_t *)winners)[i + e] = (int32_t)lanes[e];
        else
            ((uint8_t *)winners)[i + e] = (uint8_t)lanes[e];
    }
}

#endif
