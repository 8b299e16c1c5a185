/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* AVX512-BF16 for contract_pairs.h: tiles of sums in registers, as in contract_cpu.c. */
#include "ops/contract/contract_pairs.h"

#if RG_HAVE_BF16
#include "ops/contract/contract_bf16_round.h"

#include <string.h>

enum { TALL = 14, WIDE = 2, LANES = 16, LINE_PAIRS = 16 };

/* ---- the end of a tile ---- */

INLINE void store_sums(float *c, int64_t step, __m512 sum[TALL][WIDE], const int M, const int N)
{
#pragma GCC unroll 14
    for (int m = 0; m < M; m++, c += step) {
#pragma GCC unroll 2
        for (int v = 0; v < N; v++)
            _mm512_storeu_ps(c + v * LANES, sum[m][v]);
    }
}

/* Columns of vector v that there are. */
INLINE __mmask16 lanes_of(const rg_bf16_results *r, int v)
{
    const int64_t left = r->columns - v * LANES;
    return left >= LANES ? 0xffff : (__mmask16)((1u << left) - 1);
}

INLINE void add_bias(const rg_bf16_results *r, __m512 sum[TALL][WIDE], const int M, const int N)
{
#pragma GCC unroll 2
    for (int v = 0; v < N; v++) {
        const __m512 bias = _mm512_maskz_loadu_ps(lanes_of(r, v), r->bias + v * LANES);
#pragma GCC unroll 14
        for (int m = 0; m < M; m++)
            sum[m][v] = _mm512_add_ps(sum[m][v], bias);
    }
}

INLINE bool has_subnormal(__m512 sum[TALL][WIDE], const int M, const int N)
{
    __mmask16 found = 0;
#pragma GCC unroll 14
    for (int m = 0; m < M; m++) {
#pragma GCC unroll 2
        for (int v = 0; v < N; v++)
            found |= subnormal(sum[m][v]);
    }
    return found != 0;
}

/* ReLU keeps NaN. */
INLINE void store_results(const rg_bf16_results *r, uint16_t *to, __m512 sum[TALL][WIDE],
                          const int M, const int N)
{
    const bool whole = r->columns == N * LANES;
    const bool stream =
        whole && r->stream && (uintptr_t)to % 64 == 0 && r->to_step % (2 * LANES) == 0;
    const __mmask32 mask = N == 2 ? (__mmask32)lanes_of(r, 1) << LANES | 0xffff : lanes_of(r, 0);
#pragma GCC unroll 14
    for (int m = 0; m < M; m++, to += r->to_step) {
        if (r->relu)
#pragma GCC unroll 2
            for (int v = 0; v < N; v++)
                sum[m][v] = _mm512_max_ps(_mm512_setzero_ps(), sum[m][v]);
        const __m512i bits = N == 2
                                 ? (__m512i)_mm512_cvtne2ps_pbh(sum[m][1], sum[m][0])
                                 : _mm512_castsi256_si512((__m256i)_mm512_cvtneps_pbh(sum[m][0]));
        if (N == 2 && stream)
            _mm512_stream_si512((void *)to, bits);
        else if (N == 2 && whole)
            _mm512_storeu_si512(to, bits);
        else if (whole)
            _mm256_storeu_si256((void *)to, _mm512_castsi512_si256(bits));
        else
            _mm512_mask_storeu_epi16(to, mask, bits);
    }
}

/* Rows of results of which some are subnormal. */
static __attribute__((noinline)) void end_subnormal(const rg_bf16_results *r, const float *sums,
                                                    uint16_t *to, int rows)
{
    rg_bf16_results rest = *r;
    rest.sums = sums;
    rest.sums_step = WIDE * LANES;
    rest.bias = NULL;
    rest.to = to;
    rest.rows = rows;
    rg_bf16_end(&rest);
}

/* Rows of results from `row` on. The multiplication flushes subnormal sums to 0, as the conversion
 * does: only what is added can leave one. */
INLINE void end_tile(const rg_pair_tile *t, int64_t row, __m512 sum[TALL][WIDE], const int M,
                     const int N)
{
    const rg_bf16_results *const r = t->results;
    float *const c = r == NULL || t->add ? t->c + row * t->c_step : NULL;
    if (t->add) {
        const float *from = c;
#pragma GCC unroll 14
        for (int m = 0; m < M; m++, from += t->c_step) {
#pragma GCC unroll 2
            for (int v = 0; v < N; v++)
                sum[m][v] = _mm512_add_ps(_mm512_loadu_ps(from + v * LANES), sum[m][v]);
        }
    }
    if (r == NULL) {
        store_sums(c, t->c_step, sum, M, N);
        return;
    }
    uint16_t *const to = r->to + row * r->to_step;
    if (r->bias != NULL)
        add_bias(r, sum, M, N);
    if (__builtin_expect((t->add || r->bias != NULL) && has_subnormal(sum, M, N), 0)) {
        float kept[TALL * WIDE * LANES];
        store_sums(kept, WIDE * LANES, sum, M, N);
        end_subnormal(r, kept, to, M);
        return;
    }
    store_results(r, to, sum, M, N);
}

/* ---- tiles ---- */

/* How a tile reads: what is there, or rows of a further on meanwhile, or b from its rows, which it
 * packs. */
typedef enum reading { READS, FETCHES, PACKS } reading;

/* Two rows of b to `to`: neighbours in k become pairs. */
INLINE void pack_two(__m512bh right[WIDE], uint16_t *to, const uint16_t *from, int64_t step)
{
    const __m512i low = _mm512_loadu_si512(from), high = _mm512_loadu_si512(from + step);
    const __m512i first =
        _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6,
                         37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i last = _mm512_add_epi16(first, _mm512_set1_epi16(LANES));
    right[0] = (__m512bh)_mm512_permutex2var_epi16(low, first, high);
    right[1] = (__m512bh)_mm512_permutex2var_epi16(low, last, high);
    _mm512_storeu_si512(to, (__m512i)right[0]);
    _mm512_storeu_si512(to + 2 * LANES, (__m512i)right[1]);
}

/* M rows of N vectors: M broadcast pairs of a times N vectors of pairs of b. Rows begin with `row`,
 * not with t->a and t->c: a copy of the tile would be read by vectors that are wider than what was
 * written to it, which waits for all stores before. */
INLINE void tile(const rg_pair_tile *t, int64_t row, const int M, const int N, const reading how)
{
    enum { LINE = 64 };
    const char *ahead = t->ahead != NULL ? t->ahead->next : NULL;
    const char *const ahead_end = t->ahead != NULL ? t->ahead->end : NULL;
    const uint16_t *const first = t->a + row * t->a_step;
    const int64_t step = t->a_step * (int64_t)sizeof *t->a;
    const int64_t pair_step = (2 + t->a_gap) * (int64_t)sizeof *t->a;
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
        const uint16_t *from = how == PACKS ? t->from + r->b / RG_PAIR_PANEL * t->from_step : NULL;
        const char *next = a + M * step; /* a row of the next tile */
        int64_t rows = LINE_PAIRS;
        for (int64_t k = r->count; k > 0; k -= 2, a += pair_step, b += 2 * RG_PAIR_PANEL) {
            __m512bh right[WIDE];
            if (how == FETCHES) {
                __builtin_prefetch(next);
                next += step;
                if (--rows == 0) {
                    next = a + M * step + LINE_PAIRS * 2 * sizeof *b;
                    rows = LINE_PAIRS;
                }
            }
            if (ahead < ahead_end) {
                __builtin_prefetch(ahead, 0, 2);
                ahead += LINE;
            }
            __asm__("" : "+r"(a)); /* one register for all rows, not one each */
            if (how == PACKS) {
                pack_two(right, (uint16_t *)b, from, t->from_step);
                from += 2 * t->from_step;
            }
#pragma GCC unroll 2
            for (int v = 0; v < N && how != PACKS; v++)
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
    if (ahead != NULL)
        t->ahead->next = ahead;
    end_tile(t, row, sum, M, N);
}

typedef void tile_function(const rg_pair_tile *t, int64_t row);

#define TILE(M, N)                                                 \
    static void rows_##M##_##N(const rg_pair_tile *t, int64_t row) \
    {                                                              \
        tile(t, row, M, N, READS);                                 \
    }

TILE(14, 2)
TILE(14, 1)
TILE(13, 2)
TILE(13, 1)
TILE(12, 2)
TILE(12, 1)
TILE(11, 2)
TILE(11, 1)
TILE(10, 2)
TILE(10, 1)
TILE(9, 2)
TILE(9, 1)
TILE(8, 2)
TILE(8, 1)
TILE(7, 2)
TILE(7, 1)
TILE(6, 2)
TILE(6, 1)
TILE(5, 2)
TILE(5, 1)
TILE(4, 2)
TILE(4, 1)
TILE(3, 2)
TILE(3, 1)
TILE(2, 2)
TILE(2, 1)
TILE(1, 2)
TILE(1, 1)

static void rows_14_2_fetching(const rg_pair_tile *t, int64_t row)
{
    tile(t, row, 14, 2, FETCHES);
}

static void rows_11_2_packing(const rg_pair_tile *t, int64_t row)
{
    tile(t, row, 11, 2, PACKS);
}

static void rows_8_2_packing(const rg_pair_tile *t, int64_t row)
{
    tile(t, row, RG_PAIR_PACK_ROWS, 2, PACKS);
}

/* Of one vector, of two, by height. */
static tile_function *const functions[WIDE][TALL + 1] = {
    { NULL, rows_1_1, rows_2_1, rows_3_1, rows_4_1, rows_5_1, rows_6_1, rows_7_1, rows_8_1,
      rows_9_1, rows_10_1, rows_11_1, rows_12_1, rows_13_1, rows_14_1 },
    { NULL, rows_1_2, rows_2_2, rows_3_2, rows_4_2, rows_5_2, rows_6_2, rows_7_2, rows_8_2,
      rows_9_2, rows_10_2, rows_11_2, rows_12_2, rows_13_2, rows_14_2 },
};

/* Tiles are nearly equally high: a low one has too few sums to wait for each other. */
void rg_bf16_rows(const rg_pair_tile *tile, int64_t rows, int64_t columns)
{
    tile_function *const *const wide = functions[columns > LANES];
    int64_t row = 0;
    if (tile->from != NULL) { /* one of these tiles packs for all */
        const bool many = rows > 2 * RG_PAIR_PACK_ROWS;
        (many ? rows_11_2_packing : rows_8_2_packing)(tile, 0);
        row = many ? 11 : RG_PAIR_PACK_ROWS;
    }
    while (row < rows) {
        const int64_t left = rows - row, tiles = (left + TALL - 1) / TALL;
        const int64_t height = left >= 3 * TALL ? TALL : (left + tiles - 1) / tiles;
        tile_function *const function = wide[height];
        (function == rows_14_2 && tile->fetches ? rows_14_2_fetching : function)(tile, row);
        row += height;
    }
}

#else

void rg_bf16_rows(const rg_pair_tile *tile, int64_t rows, int64_t columns)
{
    (void)tile, (void)rows, (void)columns;
}

#endif
