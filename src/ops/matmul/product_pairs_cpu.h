/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Products of matrices on the CPU: operands as units for pairs of bf16 take them. Bits are moved,
 * not numbers. */
#ifndef RG_OPS_MATMUL_PRODUCT_PAIRS_CPU_H
#define RG_OPS_MATMUL_PRODUCT_PAIRS_CPU_H

#include "ops/contract/contract_pairs_cpu.h"
#include "ops/matmul/product_blocks_cpu.h"

#if RG_USES_PAIRS

RG_INLINE int64_t pair_depth(int64_t count)
{
    return (count + RG_PAIR_DEPTH - 1) / RG_PAIR_DEPTH * RG_PAIR_DEPTH;
}

/* Of k to end - 1, which begin with an even one; then 0 up to where a unit reads. */
RG_OUTLINE void pack_bits(real *panel, const operand *b, int64_t k, int64_t end)
{
    uint16_t *to = (uint16_t *)(void *)panel;
    const uint16_t *const from = b->data;
    const offsets *const columns = b->lines;
    const int64_t whole = columns->count < PANEL ? 0 : (end - k) / 2 * 2;
    memset(to + whole * PANEL, 0, (size_t)((pair_depth(end - k) - whole) * PANEL) * sizeof *to);
    for (int64_t i = 0; k < end;) {
        const segment s = segment_of(b->k, b->t, k, end);
        if (i % 2 == 0 && columns->step != 0) {
            pack_pairs(to + i * PANEL, from + columns->at[0] + s.at, columns->step, columns->count,
                       s.step, s.count);
        } else {
            for (int64_t e = 0; e < s.count; e++)
                for (int64_t j = 0; j < columns->count; j++)
                    to[((i + e) / 2 * PANEL + j) * 2 + (i + e) % 2] =
                        from[columns->at[j] + s.at + e * s.step];
        }
        i += s.count;
        k += s.count;
    }
}

/* Rows of a, each 0 up to where a unit reads. */
RG_OUTLINE void copy_rows_of_bits(real *buffer, int64_t step, const operand *a, int64_t k,
                                  int64_t end)
{
    uint16_t *to = (uint16_t *)(void *)buffer;
    const offsets *const rows = a->lines;
    const int64_t count = end - k;
    for (int64_t i = 0; i < rows->count && count % RG_PAIR_DEPTH != 0; i++)
        memset(to + i * step + count, 0, (size_t)(pair_depth(count) - count) * sizeof *to);
    while (k < end) {
        const segment s = segment_of(a->k, a->t, k, end);
        if (rows->step != 0)
            copy_bits(to, step, (const uint16_t *)a->data + rows->at[0] + s.at, rows->step,
                      rows->count, s.step, s.count);
        for (int64_t i = 0; i < rows->count && rows->step == 0; i++)
            copy_bits(to + i * step, step, (const uint16_t *)a->data + rows->at[i] + s.at, 1, 1,
                      s.step, s.count);
        to += s.count;
        k += s.count;
    }
}

#endif
#endif
