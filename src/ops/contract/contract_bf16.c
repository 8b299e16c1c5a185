/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* AVX512-BF16 for contract_pairs.h: tiles of sums in registers, as in contract_cpu.c. */
#include "ops/contract/contract_pairs.h"

#if RG_HAVE_BF16
#include <immintrin.h>
#include <string.h>

enum { TALL = 14, WIDE = 2, LANES = 16, LINE_PAIRS = 16 };

#define INLINE static inline __attribute__((always_inline))

INLINE void store_sums(const rg_pair_tile *t, float *c, __m512 sum[TALL][WIDE], const int M,
                       const int N)
{
#pragma GCC unroll 14
    for (int m = 0; m < M; m++, c += t->c_step) {
#pragma GCC unroll 2
        for (int v = 0; v < N; v++) {
            float *const to = c + v * LANES;
            if (t->add)
                sum[m][v] = _mm512_add_ps(_mm512_loadu_ps(to), sum[m][v]);
            _mm512_storeu_ps(to, sum[m][v]);
        }
    }
}

/* M rows of N vectors: M broadcast pairs of a times N vectors of pairs of b. Rows begin with those
 * of `first` and `to`, not with t->a and t->c: a copy of the tile would be read by vectors that are
 * wider than what was written to it, which waits for all stores before. */
INLINE void tile(const rg_pair_tile *t, const uint16_t *first, float *to, const int M, const int N,
                 const bool fetches)
{
    const int64_t step = t->a_step * (int64_t)sizeof *t->a;
    __m512 sum[TALL][WIDE];
#pragma GCC unroll 14
    for (int m = 0; m < M; m++) {
#pragma GCC unroll 2
        for (int v = 0; v < N; v++)
            sum[m][v] = _mm512_setzero_ps();
    }
    for (const rg_k_run *r = t->runs; r < t->runs + t->run_count; r++) {
        const char *a = (const char *)(first + r->a);
        const uint16_t *b = t->b + r->b;
        const char *next = a + M * step; /* a row of the next tile */
        int64_t rows = LINE_PAIRS;
        for (int64_t k = r->count; k > 0; k -= 2, a += 2 * sizeof *b, b += 2 * RG_PAIR_PANEL) {
            __m512bh right[WIDE];
            if (fetches) {
                __builtin_prefetch(next);
                next += step;
                if (--rows == 0) {
                    next = a + M * step + LINE_PAIRS * 2 * sizeof *b;
                    rows = LINE_PAIRS;
                }
            }
            __asm__("" : "+r"(a)); /* one register for all rows, not one each */
#pragma GCC unroll 2
            for (int v = 0; v < N; v++)
                right[v] = (__m512bh)_mm512_loadu_si512(b + 2 * v * LANES);
#pragma GCC unroll 14
            for (int m = 0; m < M; m++) {
                int32_t pair;
                memcpy(&pair, a + m * step, sizeof pair);
                const __m512bh left = (__m512bh)_mm512_set1_epi32(pair);
#pragma GCC unroll 2
                for (int v = 0; v < N; v++)
                    sum[m][v] = _mm512_dpbf16_ps(sum[m][v], left, right[v]);
            }
        }
    }
    store_sums(t, to, sum, M, N);
}

typedef void tile_function(const rg_pair_tile *t, const uint16_t *first, float *to);

#define TILE(M, N)                                                                      \
    static void rows_##M##_##N(const rg_pair_tile *t, const uint16_t *first, float *to) \
    {                                                                                   \
        tile(t, first, to, M, N, false);                                                \
    }

TILE(14, 2)
TILE(8, 2)
TILE(7, 2)
TILE(4, 2)
TILE(2, 2)
TILE(1, 2)
TILE(14, 1)
TILE(7, 1)
TILE(3, 1)
TILE(1, 1)

static void rows_14_2_fetching(const rg_pair_tile *t, const uint16_t *first, float *to)
{
    tile(t, first, to, 14, 2, true);
}

/* The highest first; ended by 1. */
typedef struct height {
    int64_t rows;
    tile_function *function;
} height;

static const height wide[] = { { 14, rows_14_2 }, { 8, rows_8_2 }, { 7, rows_7_2 },
                               { 4, rows_4_2 },   { 2, rows_2_2 }, { 1, rows_1_2 } };
static const height narrow[] = {
    { 14, rows_14_1 }, { 7, rows_7_1 }, { 3, rows_3_1 }, { 1, rows_1_1 }
};

void rg_bf16_rows(const rg_pair_tile *tile, int64_t rows, int64_t columns)
{
    const height *h = columns > LANES ? wide : narrow;
    const uint16_t *first = tile->a;
    float *to = tile->c;
    while (rows > 0) {
        while (h->rows > rows)
            h++;
        (h->function == rows_14_2 && tile->fetches ? rows_14_2_fetching : h->function)(tile, first,
                                                                                       to);
        first += h->rows * tile->a_step;
        to += h->rows * tile->c_step;
        rows -= h->rows;
    }
}

#else

void rg_bf16_rows(const rg_pair_tile *tile, int64_t rows, int64_t columns)
{
    (void)tile, (void)rows, (void)columns;
}

#endif
