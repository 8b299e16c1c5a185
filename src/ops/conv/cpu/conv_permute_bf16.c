/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* AVX512-BF16 for conv_cpu.h. */
#include "ops/conv/cpu/conv_cpu.h"

#if RG_HAVE_BF16
#include <immintrin.h>

enum {
    LANES = RG_CONV_GROUPED_BLOCK,
    WORDS = LANES / 2,
    TALL = RG_CONV_PERMUTE_HEIGHT,
    WIDE = 5,
    MOST_PICKS = 8
};

#define INLINE static inline __attribute__((always_inline))

/* The same word in all lanes. */
INLINE __m512bh broadcast(const int32_t *word)
{
    return (__m512bh)_mm512_set1_epi32(*word);
}

/* Lanes pick some of WORDS words. */
INLINE __m512bh pick(const int32_t *words, __m512i index)
{
    const __m256i all = _mm256_loadu_si256((const void *)words);
    return (__m512bh)_mm512_permutexvar_epi32(index, _mm512_broadcast_i64x4(all));
}

/* N results by windows of Q columns. With `one`, all lanes pick the same word. */
INLINE void tile(const rg_conv_permute *t, const int N, const int Q, const bool one)
{
    __m512 sum[TALL];
#pragma GCC unroll 14
    for (int m = 0; m < N; m++)
        sum[m] = _mm512_setzero_ps();
    for (int64_t p = 0; p < t->rows; p++) {
        const int32_t *w = (const int32_t *)t->w + p * t->w_row;
        const int32_t *const x = (const int32_t *)t->x + t->first + p * t->x_row;
        for (int64_t i = 0; i < t->picks; i++, w += LANES) {
            const __m512i index = one ? _mm512_setzero_si512()
                                      : _mm512_loadu_si512((const int32_t *)t->index + i * LANES);
            __m512bh a[WIDE];
#pragma GCC unroll 5
            for (int q = 0; q < Q; q++)
                a[q] = (__m512bh)_mm512_loadu_si512(w + q * t->w_tap);
#pragma GCC unroll 18
            for (int j = 0; j < N + Q - 1; j++) {
                if ((j < Q - 1 && j < t->begin) || (j >= N && j >= t->end))
                    continue;
                const __m512bh v = one ? broadcast(x + j * WORDS + i) : pick(x + j * WORDS, index);
#pragma GCC unroll 5
                for (int q = 0; q < Q; q++)
                    if (j - q >= 0 && j - q < N)
                        sum[j - q] = _mm512_dpbf16_ps(sum[j - q], v, a[q]);
            }
        }
    }
#pragma GCC unroll 14
    for (int m = 0; m < N; m++)
        _mm512_storeu_ps((float *)t->sums + m * LANES, sum[m]);
}

#define TILES(Q, SUFFIX, ONE)                                                \
    static void permute_##Q##SUFFIX(const rg_conv_permute *t, int64_t count) \
    {                                                                        \
        switch (count) {                                                     \
        case 14:                                                             \
            tile(t, 14, Q, ONE);                                             \
            break;                                                           \
        case 7:                                                              \
            tile(t, 7, Q, ONE);                                              \
            break;                                                           \
        case 4:                                                              \
            tile(t, 4, Q, ONE);                                              \
            break;                                                           \
        case 2:                                                              \
            tile(t, 2, Q, ONE);                                              \
            break;                                                           \
        default:                                                             \
            tile(t, 1, Q, ONE);                                              \
        }                                                                    \
    }
TILES(3, _any, false)
TILES(5, _any, false)
TILES(3, _one, true)
TILES(5, _one, true)

void rg_bf16_permute(const rg_conv_permute *t, int64_t columns, int64_t count)
{
    if (t->picks_one)
        (columns == 3 ? permute_3_one : permute_5_one)(t, count);
    else
        (columns == 3 ? permute_3_any : permute_5_any)(t, count);
}

/* ---- backward weights ---- */

/* N picks, windows of Q columns. With `one`, all lanes pick the same words. */
INLINE void windows(const rg_conv_permute_windows *t, const int N, const int Q, const bool one)
{
    const int halo = (Q - 1) / 2;
    const int64_t odd = t->columns * LANES;
    __m512 sum[WIDE][MOST_PICKS];
    __m512i index[MOST_PICKS];
#pragma GCC unroll 8
    for (int n = 0; n < N; n++) {
        index[n] = one ? _mm512_setzero_si512()
                       : _mm512_loadu_si512((const int32_t *)t->index + n * LANES);
#pragma GCC unroll 5
        for (int q = 0; q < Q; q++)
            sum[q][n] = _mm512_setzero_ps();
    }
    for (int64_t r = 0; r < t->rows; r++) {
        const int32_t *x = (const int32_t *)t->x + (one ? t->offset : 0) + r * t->x_row;
        const int32_t *y = (const int32_t *)t->y + r * t->y_row + halo * LANES;
        for (int64_t i = 0; i < t->columns; i++, x += LANES, y += LANES) {
            const __m512i even = one ? _mm512_setzero_si512() : _mm512_loadu_si512(x);
            const __m512i next = one ? _mm512_setzero_si512() : _mm512_loadu_si512(x + odd);
            __m512bh dy[WIDE / 2 + 1];
#pragma GCC unroll 3
            for (int q = 0; q <= halo; q++)
                dy[q] = (__m512bh)_mm512_loadu_si512(y - q * LANES);
#pragma GCC unroll 8
            for (int n = 0; n < N; n++) {
                const __m512bh v[2] = { one ? broadcast(x + n)
                                            : (__m512bh)_mm512_permutexvar_epi32(index[n], even),
                                        one ? broadcast(x + odd + n)
                                            : (__m512bh)_mm512_permutexvar_epi32(index[n], next) };
#pragma GCC unroll 5
                for (int q = 0; q < Q; q++)
                    sum[q][n] = _mm512_dpbf16_ps(sum[q][n], v[q % 2], dy[q / 2]);
            }
        }
    }
#pragma GCC unroll 5
    for (int q = 0; q < Q; q++)
#pragma GCC unroll 8
        for (int n = 0; n < N; n++)
            _mm512_storeu_ps((float *)t->sums + (q * N + n) * LANES, sum[q][n]);
}

void rg_bf16_permute_windows(const rg_conv_permute_windows *t, int64_t columns, int64_t picks)
{
    if (columns == 3 && picks == 8)
        windows(t, 8, 3, true);
    else if (columns == 3 && picks == 4)
        windows(t, 4, 3, false);
    else if (columns == 3)
        windows(t, 2, 3, false);
    else if (t->picks_one)
        windows(t, 4, 5, true);
    else if (picks == 4)
        windows(t, 4, 5, false);
    else
        windows(t, 2, 5, false);
}

#else

void rg_bf16_permute_windows(const rg_conv_permute_windows *t, int64_t columns, int64_t picks)
{
    (void)t, (void)columns, (void)picks;
}

void rg_bf16_permute(const rg_conv_permute *t, int64_t columns, int64_t count)
{
    (void)t, (void)columns, (void)count;
}

#endif
