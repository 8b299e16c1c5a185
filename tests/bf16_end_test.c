/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Sums that the processor converts to bf16 have the bits of any other conversion: subnormal and
 * non-finite numbers, ties, rows of any number of columns. */
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
    return rg_test_report();
}
