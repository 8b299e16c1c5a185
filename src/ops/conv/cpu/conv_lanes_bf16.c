/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* AVX512-BF16 for conv_lanes.h. */
#include "ops/conv/cpu/conv_lanes.h"

#if RG_HAVE_BF16
#include <immintrin.h>

enum { LANES = RG_CONV_GROUPED_BLOCK, WORDS = LANES / 2, TALL = RG_CONV_LANES_HEIGHT, WIDE = 5 };

/* N results by windows of Q columns. */
static inline __attribute__((always_inline)) void tile(const rg_conv_lanes *t, const int N,
                                                       const int Q)
{
    __m512 sum[TALL];
#pragma GCC unroll 14
    for (int m = 0; m < N; m++)
        sum[m] = _mm512_setzero_ps();
    for (int64_t p = 0; p < t->rows; p++) {
        const int32_t *w = (const int32_t *)t->w + p * t->w_row;
        const int32_t *const x = (const int32_t *)t->x + t->first + p * t->x_row;
        for (int64_t i = 0; i < t->picks; i++, w += LANES) {
            const __m512i index = _mm512_loadu_si512((const int32_t *)t->index + i * LANES);
            __m512bh a[WIDE];
#pragma GCC unroll 5
            for (int q = 0; q < Q; q++)
                a[q] = (__m512bh)_mm512_loadu_si512(w + q * t->w_tap);
#pragma GCC unroll 18
            for (int j = 0; j < N + Q - 1; j++) {
                if ((j < Q - 1 && j < t->begin) || (j >= N && j >= t->end))
                    continue;
                const __m256i words = _mm256_loadu_si256((const void *)(x + j * WORDS));
                const __m512bh v =
                    (__m512bh)_mm512_permutexvar_epi32(index, _mm512_castsi256_si512(words));
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

#define TILES(Q)                                                 \
    static void lanes_##Q(const rg_conv_lanes *t, int64_t count) \
    {                                                            \
        switch (count) {                                         \
        case 14:                                                 \
            tile(t, 14, Q);                                      \
            break;                                               \
        case 7:                                                  \
            tile(t, 7, Q);                                       \
            break;                                               \
        case 4:                                                  \
            tile(t, 4, Q);                                       \
            break;                                               \
        case 2:                                                  \
            tile(t, 2, Q);                                       \
            break;                                               \
        default:                                                 \
            tile(t, 1, Q);                                       \
        }                                                        \
    }
TILES(3)
TILES(5)

void rg_bf16_lanes(const rg_conv_lanes *t, int64_t columns, int64_t count)
{
    if (columns == 3)
        lanes_3(t, count);
    else
        lanes_5(t, count);
}

#else

void rg_bf16_lanes(const rg_conv_lanes *t, int64_t columns, int64_t count)
{
    (void)t, (void)columns, (void)count;
}

#endif
