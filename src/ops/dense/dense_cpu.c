/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Products of matrices on the CPU. A unit copies what it needs of b, a piece of k at a time, into
 * a block whose columns are vectors, and of a into small blocks of a few rows; there strides and
 * storage types end. The tiles of c stay in `real` until all pieces are added up. */
#include "backend/cpu/kernel.h"
#include "ops/dense/dense.h"

#include <string.h>

enum {
    ROWS = RG_PRODUCT_ROWS,
    COLUMNS = RG_PRODUCT_COLUMNS,
    DEPTH = RG_PRODUCT_DEPTH,
    STEP = 12, /* rows of a block of a */
#if defined(__AVX512F__)
    HIGH = 12, /* rows of a tile that stays in registers */
#elif defined(__AVX2__)
    HIGH = 6,
#else
    HIGH = 4,
#endif
    WIDE = 2 /* and vectors of a row of it */
};

/* ---- blocks ---- */

/* Where rows or columns of a unit stand, of one tensor. */
typedef struct offsets {
    int64_t at[ROWS];
    int64_t count;
    bool dense; /* neighbours */
} offsets;

RG_OUTLINE void find_offsets(offsets *o, const rg_walk *walk, int t, int64_t begin, int64_t count)
{
    o->count = count;
    o->dense = true;
    for (int64_t i = 0; i < count; i++) {
        int64_t at[RG_WALK_TENSORS];
        rg_walk_offsets(walk, 2, begin + i, at);
        o->at[i] = at[t];
        o->dense &= o->at[i] == o->at[0] + i;
    }
}

/* Elements of k that stand evenly spaced in both tensors: from `k` on, at most to `end`. */
typedef struct run {
    int64_t at[2], step[2], count;
} run;

RG_INLINE run run_of(const rg_walk *walk, int64_t k, int64_t end)
{
    run r = { .count = end - k };
    rg_walk_offsets(walk, 2, k, r.at);
    const int32_t last = walk->rank - 1;
    if (last > 0)
        r.count = least(r.count, walk->dims[last] - k % walk->dims[last]);
    for (int t = 0; t < 2; t++)
        r.step[t] = last >= 0 ? walk->strides[t][last] : 0;
    return r;
}

/* to[k][i] for rows or columns i, from element `from` of tensor t on. */
RG_OUTLINE void copy_run(real *to, int64_t width, const void *from, const offsets *o, int64_t first,
                         int64_t count, const run *r, int t, rg_dtype T)
{
    if (o->dense && count > 1) {
        for (int64_t k = 0; k < r->count; k++) {
            const int64_t at = o->at[first] + r->at[t] + k * r->step[t];
            for (int64_t i = 0; i < count; i += VLEN) {
                const int n = vlanes_left(count - i);
                vstore(to + k * width, i, n, RG_REAL, vload(from, at + i, n, T));
            }
        }
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        const int64_t at = o->at[first + i] + r->at[t];
        for (int64_t k = 0; k < r->count; k++)
            to[k * width + i] = load_one(from, at + k * r->step[t], T);
    }
}

/* Elements k to end - 1 of the sums, of `count` rows or columns; the rest of `width` is 0. */
RG_INLINE void copy_block(real *to, int64_t width, const void *from, const offsets *o,
                          int64_t first, int64_t count, const rg_walk *walk, int t, int64_t k,
                          int64_t end, const rg_dtype T)
{
    if (count < width)
        memset(to, 0, (size_t)((end - k) * width) * sizeof(real));
    while (k < end) {
        const run r = run_of(walk, k, end);
        copy_run(to, width, from, o, first, count, &r, t, T);
        to += r.count * width;
        k += r.count;
    }
}

/* Adds b(n, k) to a block of b(k, n): both indices go over the same numbers. */
RG_OUTLINE void add_mirrored(real *to, const void *b, const rg_walk *rows, const rg_walk *columns,
                             int64_t first, int64_t count, int64_t k, int64_t end, rg_dtype T)
{
    for (; k < end; k++, to += COLUMNS) {
        int64_t row[RG_WALK_TENSORS], column[RG_WALK_TENSORS];
        rg_walk_offsets(columns, 2, k, column);
        for (int64_t i = 0; i < count; i++) {
            rg_walk_offsets(rows, 2, first + i, row);
            to[i] += load_one(b, row[1] + column[0], T);
        }
    }
}

/* ---- tiles ---- */

/* c[i][j] += sum over k of a[k][i] b[k][j], for `high` rows i and `wide` vectors j. */
RG_INLINE void add_tile(real *c, const real *a, const real *b, int64_t count, const int high,
                        const int wide)
{
    vreal sum[12][2];
#pragma GCC unroll 12
    for (int i = 0; i < high; i++) {
#pragma GCC unroll 2
        for (int j = 0; j < wide; j++)
            sum[i][j] = vset(0);
    }
    for (int64_t k = 0; k < count; k++, a += STEP, b += COLUMNS) {
        vreal column[2];
#pragma GCC unroll 2
        for (int j = 0; j < wide; j++)
            column[j] = vload_full(b, j * VLEN, RG_REAL);
#pragma GCC unroll 12
        for (int i = 0; i < high; i++) {
            const vreal row = vset(a[i]);
#pragma GCC unroll 2
            for (int j = 0; j < wide; j++)
                sum[i][j] = vfma(row, column[j], sum[i][j]);
        }
    }
#pragma GCC unroll 12
    for (int i = 0; i < high; i++) {
#pragma GCC unroll 2
        for (int j = 0; j < wide; j++) {
            real *to = c + i * COLUMNS + j * VLEN;
            vstore_full(to, 0, RG_REAL, vload_full(to, 0, RG_REAL) + sum[i][j]);
        }
    }
}

RG_OUTLINE void add_high(real *c, const real *a, const real *b, int64_t count)
{
    add_tile(c, a, b, count, HIGH, WIDE);
}

RG_OUTLINE void add_low(real *c, const real *a, const real *b, int64_t count)
{
    add_tile(c, a, b, count, 2, WIDE);
}

/* The product of a block of `rows` rows and one of `columns` columns. */
RG_OUTLINE void add_blocks(real *c, const real *a, const real *b, int64_t count, int64_t rows,
                           int64_t columns)
{
    for (int64_t j = 0; j < columns; j += WIDE * VLEN) {
        int64_t i = 0;
        for (; i + HIGH <= STEP && i + HIGH / 2 < rows; i += HIGH)
            add_high(c + i * COLUMNS + j, a + i, b + j, count);
        for (; i < rows; i += 2)
            add_low(c + i * COLUMNS + j, a + i, b + j, count);
    }
}

/* ---- results ---- */

RG_OUTLINE void finish_row(const rg_product_args *k, const real *row, const real *bias, char *c,
                           const offsets *columns, int64_t width, rg_dtype T)
{
    const vreal alpha = vset((real)k->alpha);
    for (int64_t j = 0; j < width; j += VLEN) {
        const int n = vlanes_left(width - j);
        vreal value = vload_full(row, j, RG_REAL);
        value = vfma(value, alpha, vload_full(bias, j, RG_REAL));
        if (columns->dense) {
            const int64_t to = columns->at[0] + j;
            vstore(c, to, n, T, k->add ? value + vload(c, to, n, T) : value);
            continue;
        }
        for (int e = 0; e < n; e++) {
            const int64_t to = columns->at[j + e];
            store_one(c, to, T, k->add ? value[e] + load_one(c, to, T) : value[e]);
        }
    }
}

/* Row i of a symmetric c from its diagonal on, and the same as a column. */
RG_OUTLINE void finish_symmetric(const rg_product_args *k, const real *row, char *c, int64_t i,
                                 int64_t first, int64_t width, rg_dtype T)
{
    for (int64_t j = i > first ? i - first : 0; j < width; j++) {
        const real value = (real)k->alpha * row[j];
        int64_t here[2][RG_WALK_TENSORS], there[2][RG_WALK_TENSORS];
        rg_walk_offsets(&k->m, 2, i, here[0]);
        rg_walk_offsets(&k->n, 2, first + j, here[1]);
        rg_walk_offsets(&k->m, 2, first + j, there[0]);
        rg_walk_offsets(&k->n, 2, i, there[1]);
        store_one(c, here[0][1] + here[1][1], T, value);
        store_one(c, there[0][1] + there[1][1], T, value);
    }
}

RG_OUTLINE void load_bias(real *to, const rg_product_args *k, int64_t first, int64_t width,
                          rg_dtype T)
{
    memset(to, 0, COLUMNS * sizeof(real));
    for (int64_t j = 0; j < width && k->has_bias; j++)
        to[j] = load_one(k->bias, (first + j) * k->bias_step, T);
}

/* ---- a unit ---- */

typedef struct block {
    real a[STEP * DEPTH], b[COLUMNS * DEPTH], c[ROWS * COLUMNS];
} block;

RG_INLINE void sum_block(block *t, const rg_product_args *k, const void *a, const void *b,
                         const offsets *rows, const offsets *columns, int64_t first,
                         const rg_dtype T)
{
    for (int64_t at = 0; at < k->k.count; at += DEPTH) {
        const int64_t end = least(at + DEPTH, k->k.count);
        copy_block(t->b, COLUMNS, b, columns, 0, columns->count, &k->k, 1, at, end, T);
        if (k->mirrored)
            add_mirrored(t->b, b, &k->k, &k->n, first, columns->count, at, end, T);
        for (int64_t i = 0; i < rows->count; i += STEP) {
            const int64_t high = least(STEP, rows->count - i);
            copy_block(t->a, STEP, a, rows, i, high, &k->k, 0, at, end, T);
            add_blocks(t->c + i * COLUMNS, t->a, t->b, end - at, high, columns->count);
        }
    }
}

RG_INLINE void product_block(const rg_product_args *k, const void *a, const void *b, char *c,
                             int64_t row, int64_t column, const rg_dtype T)
{
    const int64_t width = least(COLUMNS, k->n.count - column);
    int64_t height = least(ROWS, k->m.count - row);
    if (k->symmetric)
        height = least(height, column + width - row);
    if (height <= 0)
        return;
    block t;
    offsets rows, columns;
    real bias[COLUMNS];
    find_offsets(&rows, &k->m, 0, row, height);
    find_offsets(&columns, &k->n, 0, column, width);
    memset(t.c, 0, (size_t)(height + STEP - 1) / STEP * STEP * COLUMNS * sizeof(real));
    sum_block(&t, k, a, b, &rows, &columns, column, T);
    load_bias(bias, k, column, width, T);
    find_offsets(&rows, &k->m, 1, row, height);
    find_offsets(&columns, &k->n, 1, column, width);
    for (int64_t i = 0; i < height; i++) {
        const real *from = t.c + i * COLUMNS;
        if (k->symmetric)
            finish_symmetric(k, from, c, row + i, column, width, T);
        else
            finish_row(k, from, bias, at_out(c, rows.at[i], T), &columns, width, T);
    }
}

RG_INLINE void product(const rg_product_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    const int64_t down = (k->m.count + ROWS - 1) / ROWS;
    const int64_t across = (k->n.count + COLUMNS - 1) / COLUMNS;
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t column = unit % across * COLUMNS, row = unit / across % down * ROWS;
        int64_t at_[RG_WALK_TENSORS];
        rg_walk_offsets(&k->batch, 3, unit / across / down, at_);
        product_block(k, at(k->a, at_[0], T), at(k->b, at_[1], T), at_out(k->c, at_[2], T), row,
                      column, T);
    }
}

RG_KERNEL(product, rg_product_args)

/* ---- table ---- */

const rg_cpu_row RG_TABLE(dense)[RG_DENSE_KERNELS] = {
    [RG_DENSE_PRODUCT] = RG_ROW(product),
};
