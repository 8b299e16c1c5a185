/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The contraction engine: sums of products that stay in registers. Convolution, transposed
 * convolution, dense layers, Gram matrices and their gradients are loops around it.
 *
 * A tile is a few rows of a result, 8, 16 or 32 columns wide:
 *
 *      c[m][n]  =  sum over runs r, over k < r.count  of  A(r, m, k) * b[r.b + k * b_step + n]
 *
 *      in rows       A(r, m, k) = a[r.a + m * a_step + k]
 *                    m: pixels of an image, or rows of a matrix; k: channels, contiguous. b is
 *                    a panel of weights, packed before.
 *      in columns    A(r, m, k) = a[r.a + m + k * a_step]
 *                    m: channels, contiguous; k: pixels, or rows of a matrix. b is the other
 *                    image in place, or rows of the other matrix. The form of gradients of
 *                    weights.
 *
 * All numbers are `real`: callers convert 16-bit elements. Products are added in the
 * order of runs and of k, one fused multiply-add each (plain ones where the instruction set has no
 * other), so a result does not depend on how rows and columns are cut into tiles. Long sums follow
 * the rule of core/long_sum.h. A caller that makes a sum by several calls, with `add`, keeps to its
 * blocks.
 *
 * A plain product C (M, N) = A (M, K) B (K, N) of dense matrices: B is packed into panels of
 * RG_PANEL columns, [N / RG_PANEL][K][RG_PANEL], columns beyond N zero, for the rows form; then for
 * some rows of A that stay in the cache, and for each panel, one call with a_step = K, b_step =
 * RG_PANEL and one run { 0, 0, K }. C = A^T B, with A (K, M), needs no packing: the columns form
 * with a_step = M, b_step = N and one run. Both read whole vectors of b: at least contract_width(n)
 * columns of b and c can be touched. */
#ifndef RG_OPS_CONTRACT_H
#define RG_OPS_CONTRACT_H

#include "backend/cpu/kernel.h"
#include "ops/contract/contract_pairs.h"

/* Columns of a panel, on every instruction set; results in `c` come in multiples of RG_COLUMN_STEP
 * columns, or in RG_NARROW_PANEL if that is enough. */
enum { RG_PANEL = 32, RG_NARROW_PANEL = 8, RG_MAX_RUNS = 256 };
#define RG_COLUMN_STEP 16

typedef struct rg_tile {
    const real *a, *b;
    real *c;
    const rg_k_run *runs;
    int64_t run_count;              /* at most RG_MAX_RUNS */
    int64_t a_step, b_step, c_step; /* in elements, see above; c_step between rows of c */
    bool add;                       /* c += the sum */
    bool stream; /* c is written by streaming stores: its rows are aligned to RG_VECTOR_BYTES, and
                    no `add` */
    const char *ahead, *ahead_end; /* memory to fetch meanwhile, which need not exist; or NULL */
    const real *waiting;           /* the engine's own: sums of earlier runs, or NULL */
} rg_tile;

/* Any number of rows (height) and columns (width); of b and c, columns up to contract_width(width)
 * are read and written. */
typedef void rg_contract_function(const rg_tile *tile, int64_t height, int64_t width);
typedef struct rg_contract {
    rg_contract_function *rows, *columns; /* the two forms */
} rg_contract;

#define RG_CONTRACT RG_TABLE(contract)
extern const rg_contract RG_CONTRACT;

RG_INLINE int64_t contract_width(int64_t width)
{
    return width <= RG_NARROW_PANEL
               ? RG_NARROW_PANEL
               : (width + RG_COLUMN_STEP - 1) / RG_COLUMN_STEP * RG_COLUMN_STEP;
}

/* ---- into real ---- */

RG_INLINE void load_reals(real *to, const char *from, int64_t step, int64_t count, int64_t to_step,
                          const rg_dtype T)
{
    int64_t i = 0;
    for (; step == 1 && to_step == 1 && i + VLEN <= count; i += VLEN)
        vstore_full(to, i, RG_REAL, vload_full(from, i, T));
    for (; i < count; i++)
        to[i * to_step] = load_one(from, i * step, T);
}

/* `count` elements of T, `step` apart, from element `first` of `from` on; they become `to_step`
 * apart. */
RG_OUTLINE void contract_load(real *to, int64_t to_step, const void *from, int64_t first,
                              int64_t step, int64_t count, rg_dtype T)
{
    RG_WITH_TYPE(T, U, load_reals(to, at(from, first, U), step, count, to_step, U));
}

/* Whether one of `count` numbers is infinite or NaN. */
RG_OUTLINE bool has_nonfinite_reals(const real *a, int64_t count)
{
    vint nonfinite = { 0 };
    int64_t i = 0;
    for (; i + VLEN <= count; i += VLEN) {
        const vreal v = vload_full(a, i, RG_REAL);
        nonfinite |= v - v != 0;
    }
    for (; i < count; i++)
        nonfinite[0] |= a[i] - a[i] != 0 ? -1 : 0;
    return vany(nonfinite);
}

/* Where the totals of partial sums are: in double, after all `count` partial sums. */
RG_INLINE double *totals_of(void *partials, const real *sums, int64_t count)
{
    real *const end = (real *)partials + count;
    return (double *)(void *)end + (sums - (const real *)partials);
}

/* One k after the other: `width` neighbours each. */
RG_INLINE void load_lines(real *to, int64_t to_step, const char *from, int64_t width,
                          int64_t k_step, int64_t count, const rg_dtype T)
{
    for (int64_t k = 0; k < count; k++, to += to_step) {
        int64_t column = 0;
        for (; column + VLEN <= width; column += VLEN)
            vstore_full(to, column, RG_REAL, vload_full(from, k * k_step + column, T));
        for (; column < width; column++)
            to[column] = load_one(from, k * k_step + column, T);
    }
}

/* Neighbours go along k: squares of VLEN elements are transposed. */
RG_INLINE void load_transposed(real *to, int64_t to_step, const char *from, int64_t column_step,
                               int64_t width, int64_t count, const rg_dtype T)
{
    int64_t k = 0;
    for (; k + VLEN <= count; k += VLEN, to += VLEN * to_step) {
        int64_t column = 0;
        for (; column + VLEN <= width; column += VLEN) {
            vreal square[VLEN];
#pragma GCC unroll 16
            for (int i = 0; i < VLEN; i++)
                square[i] = vload_full(from, (column + i) * column_step + k, T);
            vtranspose(square);
#pragma GCC unroll 16
            for (int i = 0; i < VLEN; i++)
                vstore_full(to + i * to_step, column, RG_REAL, square[i]);
        }
        for (; column < width; column++)
            for (int64_t i = 0; i < VLEN; i++)
                to[i * to_step + column] = load_one(from, column * column_step + k + i, T);
    }
    for (int64_t column = 0; column < width; column++)
        for (int64_t i = 0; i < count - k; i++)
            to[i * to_step + column] = load_one(from, column * column_step + k + i, T);
}

RG_INLINE void load_block(real *to, int64_t to_step, const char *from, int64_t column_step,
                          int64_t width, int64_t k_step, int64_t count, const rg_dtype T)
{
    if (column_step == 1)
        load_lines(to, to_step, from, width, k_step, count, T);
    else
        load_transposed(to, to_step, from, column_step, width, count, T);
}

/* to[k][column] = w[column * column_step + k * k_step] for k < count, column < width; rows of `to`
 * are to_step apart. */
RG_OUTLINE void contract_block(real *to, int64_t to_step, const void *w, int64_t column_step,
                               int64_t width, int64_t k_step, int64_t count, rg_dtype T)
{
    if (column_step != 1 && k_step != 1) { /* no neighbours at all */
        for (int64_t column = 0; column < width; column++)
            contract_load(to + column, to_step, w, column * column_step, k_step, count, T);
        return;
    }
    RG_WITH_TYPE(T, U, load_block(to, to_step, w, column_step, width, k_step, count, U));
}

/* The same as a panel: zero in further columns. */
RG_INLINE void contract_pack(real *panel, const void *w, int64_t column_step, int64_t width,
                             int64_t k_step, int64_t count, rg_dtype T)
{
    for (int64_t k = 0; k < count && width < RG_PANEL; k++)
        memset(panel + k * RG_PANEL + width, 0, (size_t)(RG_PANEL - width) * sizeof(real));
    contract_block(panel, RG_PANEL, w, column_step, width, k_step, count, T);
}

#endif
