/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Blocks of bf16 as contract_pairs.h takes them: their bits are moved, not their values. Two
 * neighbours in k make a word, which takes the place of a `real`. */
#ifndef RG_OPS_CONTRACT_PAIRS_CPU_H
#define RG_OPS_CONTRACT_PAIRS_CPU_H

#include "ops/contract/contract.h"

/* Only this instruction set knows of such units: it is there wherever they are. */
#define RG_USES_PAIRS (RG_VECTOR_BYTES == 64 && !RG_REAL_F64)

#if RG_USES_PAIRS

/* Whether one of `count` numbers is infinite or NaN. */
RG_OUTLINE bool has_nonfinite_bits(const uint16_t *a, int64_t count)
{
    enum { EACH = RG_VECTOR_BYTES / 2, EXPONENT = 0x7f80 };
    const uint64_t exponents = 0x7f807f807f807f80;
    uint32_t nonfinite = 0;
    int64_t i = 0;
    for (; i + EACH <= count; i += EACH) {
        vwide bits;
        memcpy(&bits, a + i, sizeof bits);
        nonfinite |= vbits_equal(bits & exponents, EXPONENT);
    }
    for (; i < count; i++)
        nonfinite |= (a[i] & EXPONENT) == EXPONENT;
    return nonfinite != 0;
}

/* Lanes i to i + VLEN - 1 of two lines of bf16, as words. */
RG_INLINE vreal pair_words(const uint16_t *low, const uint16_t *high, int64_t i)
{
    vhalf l, h;
    memcpy(&l, low + i, sizeof l);
    memcpy(&h, high + i, sizeof h);
    return (vreal)(vwiden(l) | vwiden(h) << 16);
}

/* Elements k < count of `width` columns go to to[k / 2][column][k % 2], from an even k on;
 * further columns are left alone. */
RG_OUTLINE void pack_pairs(uint16_t *to, const uint16_t *b, int64_t column_step, int64_t width,
                           int64_t k_step, int64_t count)
{
    int64_t k = 0, done;
    for (; column_step == 1 && k + 2 <= count; k += 2) {
        const uint16_t *const low = b + k * k_step, *const high = low + k_step;
        for (done = 0; done + VLEN <= width; done += VLEN)
            vstore_full(to + k * RG_PANEL, done, RG_REAL, pair_words(low, high, done));
        for (; done < width; done++) {
            to[k * RG_PANEL + 2 * done] = low[done];
            to[k * RG_PANEL + 2 * done + 1] = high[done];
        }
    }
    if (k_step == 1 && column_step % 2 == 0 && (uintptr_t)b % sizeof(real) == 0) { /* whole words */
        contract_block((real *)(void *)to, RG_PANEL, b, column_step / 2, width, 1, count / 2,
                       RG_REAL);
        k = count / 2 * 2;
    }
    for (; k < count; k++)
        for (int64_t column = 0; column < width; column++)
            to[k / 2 * 2 * RG_PANEL + 2 * column + k % 2] = b[column * column_step + k * k_step];
}

/* Elements k < count of some rows go to to[row][k], rows to_step apart. */
RG_OUTLINE void copy_bits(uint16_t *to, int64_t to_step, const uint16_t *a, int64_t row_step,
                          int64_t rows, int64_t k_step, int64_t count)
{
    enum { SQUARE = 2 * VLEN }; /* elements of k that VLEN words have */
    int64_t k = 0;
    for (; row_step == 1 && rows % VLEN == 0 && k + SQUARE <= count; k += SQUARE) {
        for (int64_t row = 0; row < rows; row += VLEN) {
            vreal words[VLEN];
#pragma GCC unroll 16
            for (int i = 0; i < VLEN; i++)
                words[i] = pair_words(a + (k + 2 * i) * k_step, a + (k + 2 * i + 1) * k_step, row);
            vtranspose(words);
#pragma GCC unroll 16
            for (int i = 0; i < VLEN; i++)
                memcpy(to + (row + i) * to_step + k, &words[i], sizeof words[i]);
        }
    }
    for (int64_t row = 0; row < rows; row++) {
        if (k_step == 1)
            memcpy(to + row * to_step + k, a + row * row_step + k, (size_t)(count - k) * sizeof *a);
        for (int64_t i = k; i < count && k_step != 1; i++)
            to[row * to_step + i] = a[row * row_step + i * k_step];
    }
}

/* A kernel of bf16 alone: its entry point, and its row of a table. */
#define RG_PAIR_KERNEL(name, args) RG_ENTRY(name, args, _bf16, RG_BF16)
#define RG_PAIR_ROW(name)           \
    {                               \
        {                           \
            [RG_BF16] = name##_bf16 \
        }                           \
    }

#endif
#endif
