/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Products of matrices on the CPU where a has few rows: sums as vectors along k, without panels. */
#include "backend/cpu/long_sum_cpu.h"
#include "backend/cpu/thread_pool.h"
#include "ops/matmul/product_blocks_cpu.h"

#include <string.h>

/* Sums of products of up to 4 rows and 2 others, stored as T, as vectors along k. */
RG_INLINE void dot_tile(const char *const b[4], const char *const a[2], int64_t count, real *sums,
                        int64_t step, const int B, const int A, const rg_dtype T)
{
    vreal sum[4][2];
#pragma GCC unroll 4
    for (int j = 0; j < B; j++) {
#pragma GCC unroll 2
        for (int i = 0; i < A; i++)
            sum[j][i] = vset(0);
    }
    for (int64_t k = 0; k < count; k += VLEN) {
        const int n = vlanes_left(count - k);
        vreal left[2];
#pragma GCC unroll 2
        for (int i = 0; i < A; i++)
            left[i] = vload(a[i], k, n, T);
#pragma GCC unroll 4
        for (int j = 0; j < B; j++) {
            const vreal right = vload(b[j], k, n, T);
#pragma GCC unroll 2
            for (int i = 0; i < A; i++)
                sum[j][i] = vfma(left[i], right, sum[j][i]);
        }
    }
#pragma GCC unroll 4
    for (int j = 0; j < B; j++) {
#pragma GCC unroll 2
        for (int i = 0; i < A; i++)
            sums[i * step + j] += vsum(sum[j][i]);
    }
}

/* All rows and columns of a unit over a piece of k. */
RG_INLINE void dot_piece(const char *const a[], int64_t rows, const char *const b[],
                         int64_t columns, int64_t count, real *sums, const rg_dtype T)
{
    for (int64_t i = 0; i < rows; i += 2) {
        int64_t j = 0;
        for (; j + 4 <= columns && i + 1 < rows; j += 4)
            dot_tile(b + j, a + i, count, sums + i * PANEL + j, PANEL, 4, 2, T);
        for (; j + 4 <= columns; j += 4)
            dot_tile(b + j, a + i, count, sums + i * PANEL + j, PANEL, 4, 1, T);
        for (; j < columns; j++)
            for (int64_t one = i; one < least(i + 2, rows); one++)
                dot_tile(b + j, a + one, count, sums + one * PANEL + j, PANEL, 1, 1, T);
    }
}

RG_OUTLINE void dot_reals(const char *const a[], int64_t rows, const char *const b[],
                          int64_t columns, int64_t count, real *sums)
{
    dot_piece(a, rows, b, columns, count, sums, RG_REAL);
}

/* Pointers to rows of a, or columns of b, from element `begin` of k on; copied if they must. */
RG_INLINE void point_at(const char *to[], const operand *from, bool direct, real *buffer,
                        int64_t begin, int64_t end, const rg_dtype T)
{
    if (!direct)
        copy_rows(buffer, DEPTH, from, begin, end, T);
    for (int64_t i = 0; i < from->lines->count; i++)
        to[i] = direct ? at(from->data, from->lines->at[i] + begin, T)
                       : (const char *)(buffer + i * DEPTH);
}

RG_INLINE void dot(const rg_product_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    real *buffer_a = NULL, *buffer_b = NULL; /* of what is not read in place */
    if (k->thread_bytes > 0) {
        buffer_a = (real *)(void *)((char *)k->scratch + rg_thread_pool_index() * k->thread_bytes);
        buffer_b = buffer_a + (k->direct_a ? 0 : RG_DOT_ROWS * DEPTH);
    }
    offsets rows, columns;
    const operand left = { k->a, &rows, &k->k, 0 }, right = { k->b, &columns, &k->k, 1 };
    finish f;
    find_offsets(&rows, &k->m, 0, 0, k->m.count);
    finish_rows(&f, k, k->c, 0, rows.count, T);
    for (int64_t unit = begin; unit < end; unit++) {
        const char *a[RG_DOT_ROWS], *b[RG_DOT_COLUMNS];
        const int64_t column = unit * RG_DOT_COLUMNS;
        const int64_t width = least(RG_DOT_COLUMNS, k->n.count - column);
        real sums[RG_DOT_ROWS * PANEL] = { 0 };
        double totals[RG_DOT_ROWS * PANEL];
        find_offsets(&columns, &k->n, 0, column, width);
        for (int64_t piece = 0; piece < k->k.count; piece += DEPTH) {
            const int64_t last = least(piece + DEPTH, k->k.count);
            point_at(a, &left, k->direct_a, buffer_a, piece, last, T);
            point_at(b, &right, k->direct_b, buffer_b, piece, last, T);
            if (T != RG_REAL && k->direct_a)
                dot_piece(a, rows.count, b, width, last - piece, sums, T);
            else
                dot_reals(a, rows.count, b, width, last - piece, sums);
            if (k->k.count > RG_SUM_BLOCK && (last % RG_SUM_BLOCK == 0 || last == k->k.count)) {
                add_to_totals(totals, sums, RG_DOT_ROWS * PANEL, last <= RG_SUM_BLOCK);
                memset(sums, 0, sizeof sums);
            }
        }
        for (int i = 0; k->k.count > RG_SUM_BLOCK && i < RG_DOT_ROWS * PANEL; i++)
            sums[i] = (real)totals[i];
        finish_columns(&f, column, width, T);
        finish_tile(&f, sums, PANEL, dtype_of_c(k, T));
    }
}

RG_KERNEL(dot, rg_product_args)

RG_CPU_TABLE(product_dot, RG_MATMUL_KERNELS) = {
    [RG_MATMUL_DOT] = RG_ROW(dot),
};
