/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* AVX512-BF16 for conv_cpu.h: depthwise convolution by pairs of rows. */
#include "ops/conv/cpu/conv_cpu.h"

#if RG_HAVE_BF16
#include <immintrin.h>

enum { LANES = RG_CONV_GROUPED_BLOCK, TAPS = RG_CONV_PAIR_WINDOW, WIDE = 7, LINE_BYTES = 64 };

#define INLINE static inline __attribute__((always_inline))

/* A channel of two rows is a word. */
INLINE __m512bh words(const uint16_t *low, const uint16_t *high)
{
    const __m256i l = _mm256_loadu_si256((const void *)low);
    const __m256i h = _mm256_loadu_si256((const void *)high);
    return (__m512bh)_mm512_or_si512(_mm512_cvtepu16_epi32(l),
                                     _mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

/* Lanes with a NaN. */
INLINE __mmask16 store_sums(const rg_conv_pair_depthwise *t, __m512 sum[2][WIDE], int64_t j,
                            const int N)
{
    float *const to = t->sums + j * LANES, *const next = to + t->count * LANES;
    __mmask16 nan = 0;
#pragma GCC unroll 7
    for (int n = 0; n < N; n++) {
        _mm512_storeu_ps(to + n * LANES, sum[0][n]);
        _mm512_storeu_ps(next + n * LANES, sum[1][n]);
        nan |= _mm512_cmp_ps_mask(sum[0][n], sum[1][n], _CMP_UNORD_Q);
    }
    return nan;
}

/* Lanes with a NaN, or with a subnormal number, which the conversion takes for 0. */
INLINE __mmask16 store_results(const rg_conv_pair_depthwise *t, __m512 sum[2][WIDE], int64_t j,
                               const int N)
{
    enum { NAN_OR_SUBNORMAL = 0x01 | 0x20 | 0x80 };
    __mmask16 other = 0;
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        uint16_t *const to = t->to[i] + j * t->to_step;
#pragma GCC unroll 7
        for (int n = 0; n < N; n++) {
            _mm256_storeu_si256((void *)(to + n * t->to_step),
                                (__m256i)_mm512_cvtneps_pbh(sum[i][n]));
            other |= _mm512_fpclass_ps_mask(sum[i][n], NAN_OR_SUBNORMAL);
        }
    }
    return other;
}

/* N columns of both rows from column j on, of which all taps lie in the image unless it is a
 * `border`: sums, or where it `rounds` results; lanes that need another way. */
INLINE __mmask16 block(const rg_conv_pair_depthwise *t, const __m512bh w[TAPS][4], int64_t j,
                       const int N, const bool border, const bool rounds)
{
    static const uint16_t zero[LANES] = { 0 };
    const int64_t first = j - t->shift;
    const uint16_t *const a = t->row[0] + first * t->step[0];
    const uint16_t *const b = t->row[1] + first * t->step[1];
    const uint16_t *const c = t->row[2] + first * t->step[2];
    const uint16_t *const d = t->row[3] + first * t->step[3];
    __m512 sum[2][WIDE];
#pragma GCC unroll 7
    for (int n = 0; n < N; n++)
        sum[0][n] = sum[1][n] = _mm512_setzero_ps();
#pragma GCC unroll 9
    for (int i = 0; i < N + TAPS - 1; i++) {
        const bool out = border && (first + i < 0 || first + i >= t->inputs);
        const __m512bh above =
            words(out ? zero : a + i * t->step[0], out ? zero : b + i * t->step[1]);
        const __m512bh below =
            words(out ? zero : c + i * t->step[2], out ? zero : d + i * t->step[3]);
#pragma GCC unroll 3
        for (int q = 0; q < TAPS; q++) {
            const int n = i - q;
            if (n < 0 || n >= N)
                continue;
            sum[0][n] = _mm512_dpbf16_ps(sum[0][n], above, w[q][0]);
            sum[1][n] = _mm512_dpbf16_ps(sum[1][n], above, w[q][2]);
            sum[0][n] = _mm512_dpbf16_ps(sum[0][n], below, w[q][1]);
            sum[1][n] = _mm512_dpbf16_ps(sum[1][n], below, w[q][3]);
        }
    }
    return rounds ? store_results(t, sum, j, N) : store_sums(t, sum, j, N);
}

INLINE bool columns(const rg_conv_pair_depthwise *t, const bool rounds)
{
    const int64_t low = t->low, high = t->high;
    const char *ahead = t->ahead;
    __m512bh w[TAPS][4];
    __mmask16 other = 0;
#pragma GCC unroll 3
    for (int q = 0; q < TAPS; q++)
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            w[q][i] = (__m512bh)_mm512_loadu_si512((const int32_t *)t->w + (4 * q + i) * LANES);
    for (int64_t j = 0; j < low; j++)
        other |= block(t, w, j, 1, true, rounds);
    for (int64_t j = low; j < high && high - low >= WIDE; j += WIDE) {
        for (; ahead < t->ahead_end && ahead < t->ahead + (j - low + WIDE) * t->pace;
             ahead += LINE_BYTES)
            __builtin_prefetch(ahead, 0, 2);
        other |= block(t, w, j + WIDE <= high ? j : high - WIDE, WIDE, false, rounds);
    }
    for (int64_t j = low; j < high && high - low < WIDE; j++)
        other |= block(t, w, j, 1, false, rounds);
    for (int64_t j = high; j < t->count; j++)
        other |= block(t, w, j, 1, true, rounds);
    return other == 0;
}

bool rg_bf16_depthwise(const rg_conv_pair_depthwise *t)
{
    return columns(t, false);
}

bool rg_bf16_depthwise_results(const rg_conv_pair_depthwise *t)
{
    return columns(t, true);
}

#else

bool rg_bf16_depthwise_results(const rg_conv_pair_depthwise *t)
{
    (void)t;
    return true;
}

bool rg_bf16_depthwise(const rg_conv_pair_depthwise *t)
{
    (void)t;
    return true;
}

#endif
