/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Sums that the processor converts to bf16 have the bits of any other conversion: subnormal and
 * non-finite numbers, ties, rows of any number of columns. Tiles that pack what they read and round
 * what they sum up do what these steps do one by one. */
#include "core/dtype.h"
#include "ops/contract/contract_pairs.h"

#include "api.h"

enum { SKIPPED = 77, ROWS = 5, COLUMNS = RG_PAIR_PANEL, STEP = COLUMNS + 3, GUARD = 0x7a5a };

static float number(uint32_t bits)
{
    float a;
    memcpy(&a, &bits, sizeof a);
    return a;
}

static uint16_t expected(float sum, const float *bias, bool relu)
{
    if (bias != NULL)
        sum += *bias;
    return rg_bf16_of_float(relu && sum <= 0 ? 0 : sum);
}

/* All of them, and nothing beside them. */
static bool is_right(const rg_bf16_results *r, const uint16_t *to)
{
    bool right = true;
    for (int64_t i = 0; i < ROWS * STEP; i++) {
        const int64_t row = i / STEP, column = i % STEP;
        const bool inside = column < r->columns && row < r->rows;
        const float sum = inside ? r->sums[row * COLUMNS + column] : 0;
        const uint16_t want =
            inside ? expected(sum, r->bias != NULL ? r->bias + column : NULL, r->relu) : GUARD;
        right &= to[i] == want || (inside && (want & 0x7fff) == 0 && (to[i] & 0x7fff) == 0);
    }
    return right;
}

static void test_rows(const float *sums, const float *bias)
{
    for (int32_t columns = 1; columns <= COLUMNS; columns++) {
        for (int32_t kind = 0; kind < 4; kind++) {
            uint16_t to[ROWS * STEP];
            for (int32_t i = 0; i < ROWS * STEP; i++)
                to[i] = GUARD;
            const rg_bf16_results r = { .sums = sums,
                                        .bias = kind % 2 != 0 ? bias : NULL,
                                        .to = to,
                                        .sums_step = COLUMNS,
                                        .to_step = STEP,
                                        .rows = ROWS,
                                        .columns = columns,
                                        .relu = kind > 1 };
            EXPECT(rg_bf16_end(&r) && is_right(&r, to));
        }
    }
}

/* Every upper half, with lower halves around a tie. */
static void test_all(void)
{
    static const uint32_t lower[] = { 0, 1, 0x7fff, 0x8000, 0x8001, 0xffff };
    float sums[COLUMNS];
    uint16_t to[COLUMNS];
    const rg_bf16_results r = {
        .sums = sums, .to = to, .sums_step = COLUMNS, .to_step = COLUMNS, .rows = 1, .columns = 32
    };
    for (uint32_t i = 0; i < 6; i++) {
        for (uint32_t upper = 0; upper < 0x10000; upper += COLUMNS) {
            bool same = true;
            for (uint32_t k = 0; k < COLUMNS; k++)
                sums[k] = number((upper + k) << 16 | lower[i]);
            EXPECT(rg_bf16_end(&r));
            for (uint32_t k = 0; k < COLUMNS; k++)
                same &= to[k] == rg_bf16_of_float(sums[k]);
            EXPECT(same);
        }
    }
}

/* ---- tiles ---- */

enum { MOST_ROWS = 64, DEPTH = 38, PLAIN_STEP = COLUMNS + 5, A_STEP = DEPTH + 2 };

static uint16_t a[MOST_ROWS * A_STEP], plain[DEPTH * PLAIN_STEP], packed[DEPTH * COLUMNS];
static uint16_t panel[DEPTH * COLUMNS], steps[MOST_ROWS * STEP], at_once[MOST_ROWS * STEP];
static float sums_before[MOST_ROWS * COLUMNS], sums_after[MOST_ROWS * COLUMNS];

static void fill_tiles(void)
{
    for (int32_t i = 0; i < MOST_ROWS * A_STEP; i++)
        a[i] = rg_bf16_of_float(i / A_STEP % 3 == 0 ? 0 : (float)(i * 37 % 101) * 0.25f - 12);
    for (int32_t k = 0; k < DEPTH; k++)
        for (int32_t j = 0; j < COLUMNS; j++)
            packed[(k / 2 * COLUMNS + j) * 2 + k % 2] = plain[k * PLAIN_STEP + j] =
                rg_bf16_of_float((float)((k * 31 + j * 17) % 89) * 0.125f - 5);
    for (uint32_t i = 0; i < MOST_ROWS * COLUMNS; i++)
        sums_before[i] = i % 11 == 0 ? number(i * 0x4321) : (float)(i * 2654435761u % 2001) - 900;
}

/* A third of the rows of a are 0: what is added stays, subnormal numbers among it. */
static void test_tile(int64_t rows, const float *bias, bool relu, bool add)
{
    const rg_k_run runs[] = { { 0, 0, DEPTH - 6 }, { DEPTH - 6, (DEPTH - 6) * COLUMNS, 6 } };
    rg_pair_tile tile = { .a = a,
                          .b = packed,
                          .c = sums_after,
                          .runs = runs,
                          .run_count = 2,
                          .a_step = A_STEP,
                          .c_step = COLUMNS,
                          .add = add };
    memcpy(sums_after, sums_before, sizeof sums_after);
    for (int32_t i = 0; i < MOST_ROWS * STEP; i++)
        steps[i] = at_once[i] = GUARD;
    rg_bf16_rows(&tile, rows, COLUMNS);
    const rg_bf16_results end = { .sums = sums_after,
                                  .bias = bias,
                                  .to = steps,
                                  .sums_step = COLUMNS,
                                  .to_step = STEP,
                                  .rows = rows,
                                  .columns = COLUMNS,
                                  .relu = relu };
    EXPECT(rg_bf16_end(&end));
    memcpy(sums_after, sums_before, sizeof sums_after);
    memset(panel, 0, sizeof panel);
    rg_bf16_results results = end;
    results.to = at_once;
    tile.results = &results;
    if (rows >= RG_PAIR_PACK_ROWS) {
        tile.b = panel;
        tile.from = plain;
        tile.from_step = PLAIN_STEP;
    }
    rg_bf16_rows(&tile, rows, COLUMNS);
    EXPECT(memcmp(at_once, steps, sizeof steps) == 0);
    EXPECT(memcmp(sums_after, sums_before, sizeof sums_after) == 0);
    EXPECT(tile.from == NULL || memcmp(panel, packed, sizeof panel) == 0);
}

static void test_tiles(const float *bias)
{
    fill_tiles();
    for (int64_t rows = 1; rows <= MOST_ROWS; rows++)
        for (int32_t kind = 0; kind < 8; kind++)
            test_tile(rows, kind % 2 != 0 ? bias : NULL, kind / 2 % 2 != 0, kind / 4 != 0);
}

int main(void)
{
    float sums[ROWS * COLUMNS], bias[COLUMNS];
    const rg_bf16_results none = { .rows = 0, .columns = 1 };
    if (!rg_bf16_end(&none)) {
        printf("bf16_end: the processor has no such conversion\n");
        return SKIPPED;
    }
    for (uint32_t i = 0; i < ROWS * COLUMNS; i++)
        sums[i] = i % 7 == 0 ? number(i * 0x4321) : (float)(i * 2654435761u % 2001) * 0.37f - 300;
    for (uint32_t i = 0; i < COLUMNS; i++)
        bias[i] = i % 5 == 0 ? number(i * 0x1234) : (float)i - 16;
    sums[3] = number(0x7f800000);
    sums[4] = number(0xffc00000);
    test_rows(sums, bias);
    test_all();
    test_tiles(bias);
    return rg_test_report();
}
