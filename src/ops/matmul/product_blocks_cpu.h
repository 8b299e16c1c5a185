/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Products of matrices on the CPU: offsets of rows and columns, blocks of a, and what is done to
 * sums before they are stored. What kernels for few rows and for many share. */
#ifndef RG_OPS_MATMUL_PRODUCT_BLOCKS_CPU_H
#define RG_OPS_MATMUL_PRODUCT_BLOCKS_CPU_H

#include "ops/contract/contract_pairs_cpu.h"
#include "ops/fused_neuron/any_neuron_cpu.h"
#include "ops/matmul/product.h"

#include <string.h>

enum {
    ROWS = RG_PRODUCT_ROWS,
    PANEL = RG_PRODUCT_PANEL,
    DEPTH = RG_PRODUCT_DEPTH,
};

/* ---- offsets ---- */

/* Some rows or columns of one tensor. */
typedef struct offsets {
    int64_t at[ROWS], count;
    int64_t step; /* between neighbours; 0 where that varies */
} offsets;

RG_OUTLINE void find_offsets(offsets *p, const rg_walk *walk, int t, int64_t begin, int64_t count)
{
    p->count = count;
    if (walk->rank <= 1) { /* most */
        const int64_t step = walk->rank == 1 ? walk->strides[t][0] : 1;
        p->step = count > 1 ? step : 1;
        for (int64_t i = 0; i < count; i++)
            p->at[i] = (begin + i) * step;
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        int64_t at[RG_WALK_TENSORS];
        rg_walk_offsets(walk, 2, begin + i, at);
        p->at[i] = at[t];
    }
    p->step = count > 1 ? p->at[1] - p->at[0] : 1;
    for (int64_t i = 1; i < count; i++)
        p->step = p->at[i] - p->at[i - 1] == p->step ? p->step : 0;
}

/* Elements of k that are evenly spaced in tensor t, from k on, at most to `end`. */
typedef struct segment {
    int64_t at, step, count;
} segment;

RG_INLINE segment segment_of(const rg_walk *walk, int t, int64_t k, int64_t end)
{
    int64_t at[RG_WALK_TENSORS];
    rg_walk_offsets(walk, 2, k, at);
    segment s = { .at = at[t], .count = end - k };
    const int32_t last = walk->rank - 1;
    if (last > 0)
        s.count = least(s.count, walk->dims[last] - k % walk->dims[last]);
    s.step = last >= 0 ? walk->strides[t][last] : 0;
    return s;
}

/* ---- blocks of a, panels of b ---- */

/* A piece of an operand: rows of a, or columns of b, by elements of k. */
typedef struct operand {
    const void *data;
    const offsets *lines; /* rows or columns */
    const rg_walk *k;     /* along each of them, */
    int t;                /* as tensor t of this walk */
} operand;

/* to[i][k], rows `to_step` apart, for k < end. */
RG_OUTLINE void copy_rows(real *to, int64_t to_step, const operand *a, int64_t k, int64_t end,
                          rg_dtype T)
{
    while (k < end) {
        const segment s = segment_of(a->k, a->t, k, end);
        for (int64_t i = 0; i < a->lines->count; i++)
            contract_load(to + i * to_step, 1, a->data, a->lines->at[i] + s.at, s.step, s.count, T);
        to += s.count;
        k += s.count;
    }
}

/* ---- results ---- */

/* How c is stored where a and b are stored as T. */
RG_INLINE rg_dtype dtype_of_c(const rg_product_args *k, rg_dtype T)
{
    return k->wide ? RG_REAL : T;
}

/* What is done to sums, and where they go. */
typedef struct finish {
    const rg_product_args *k;
    neuron_constants neuron;
    char *c;
    offsets rows, columns; /* of c */
    real row_bias[ROWS], column_bias[PANEL];
} finish;

RG_OUTLINE void load_bias(real *to, const rg_product_args *k, bool has, int64_t first,
                          int64_t count, rg_dtype T)
{
    if (has)
        contract_load(to, 1, k->bias, first * k->bias_step, k->bias_step, count, T);
    else
        memset(to, 0, (size_t)count * sizeof(real));
}

RG_OUTLINE void finish_rows(finish *f, const rg_product_args *k, char *c, int64_t row,
                            int64_t count, rg_dtype T)
{
    f->k = k;
    f->neuron = neuron_constants_of(&k->numbers);
    f->c = c;
    find_offsets(&f->rows, &k->m, 1, row, count);
    load_bias(f->row_bias, k, k->has_bias && k->bias_rows, row, count, T);
}

RG_OUTLINE void finish_columns(finish *f, int64_t column, int64_t count, rg_dtype T)
{
    const rg_product_args *k = f->k;
    find_offsets(&f->columns, &k->n, 1, column, count);
    load_bias(f->column_bias, k, k->has_bias && !k->bias_rows, column, count, T);
}

/* `count` sums, `step` apart, which go to f->c + start + offsets from `first` on. Each has a bias
 * of its own, or all have one. */
typedef struct line {
    const real *sums;
    int64_t step;
    const real *bias;
    bool one_bias;
    int64_t start;
    const offsets *to;
    int64_t first, count;
} line;

RG_OUTLINE void finish_line(const finish *f, const line *l, rg_dtype T)
{
    const vreal alpha = vset((real)f->k->alpha);
    const int64_t step = l->step;
    for (int64_t i = 0; i < l->count; i += VLEN) {
        const int n = vlanes_left(l->count - i);
        vreal value =
            step == 1 ? vload(l->sums, i, n, RG_REAL) : vgather(l->sums, i, step, n, RG_REAL);
        value = !f->k->has_bias ? value * alpha
                : l->one_bias   ? vfma(value, alpha, vset(*l->bias))
                                : vfma(value, alpha, vload(l->bias, i, n, RG_REAL));
        if (f->k->neuron == RG_NEURON_RELU)
            value = neuron_relu(&f->neuron, value, value);
        else if (f->k->neuron != RG_NEURON_NONE)
            value = any_neuron(f->k->neuron, &f->neuron, value);
        if (l->to->step == 1) {
            const int64_t at = l->start + l->to->at[l->first] + i;
            vstore(f->c, at, n, T, f->k->add ? value + vload(f->c, at, n, T) : value);
            continue;
        }
        for (int e = 0; e < n; e++) {
            const int64_t at = l->start + l->to->at[l->first + i + e];
            store_one(f->c, at, T, f->k->add ? value[e] + load_one(f->c, at, T) : value[e]);
        }
    }
}

/* Lines of sums that go to neighbours, `step` apart, with at most ReLU: the common case, whose loop
 * knows the type. */
RG_INLINE void finish_plain(const finish *f, const real *sums, int64_t step, const offsets *lines,
                            const offsets *to, const real *bias, bool one_bias, const rg_dtype T)
{
    const vreal alpha = vset((real)f->k->alpha);
    const bool has_bias = f->k->has_bias, relu = f->k->neuron == RG_NEURON_RELU;
    for (int64_t i = 0; i < to->count; i += VLEN) {
        const int n = vlanes_left(to->count - i);
        const vreal each = has_bias && !one_bias ? vload(bias, i, n, RG_REAL) : vset(0);
        for (int64_t l = 0; l < lines->count; l++) {
            vreal value = vload_partial(sums + l * step, i, n, RG_REAL);
            value = !has_bias ? value * alpha : vfma(value, alpha, one_bias ? vset(bias[l]) : each);
            value = relu ? neuron_relu(&f->neuron, value, value) : value;
            vstore_partial(f->c, lines->at[l] + to->at[0] + i, n, T, value);
        }
    }
}

/* The same in bf16 by a conversion of the processor's own, if it has one: lines of sums that are as
 * far apart as those of c, with a bias of each element at most. */
RG_OUTLINE bool finish_bf16(const finish *f, const real *sums, int64_t step, const offsets *lines,
                            const offsets *to, const real *bias, bool one_bias)
{
#if RG_USES_PAIRS
    const rg_product_args *k = f->k;
    const bool relu = k->neuron == RG_NEURON_RELU;
    if (k->alpha != 1 || (k->has_bias && one_bias) || (relu && f->neuron.a != 0) ||
        lines->step == 0)
        return false;
    bool done = true;
    for (int64_t i = 0; i < to->count && done; i += RG_PAIR_PANEL) {
        const rg_bf16_results results = {
            .sums = sums + i,
            .bias = k->has_bias ? bias + i : NULL,
            .to = (uint16_t *)(void *)f->c + lines->at[0] + to->at[0] + i,
            .sums_step = step,
            .to_step = lines->step,
            .rows = lines->count,
            .columns = least(RG_PAIR_PANEL, to->count - i),
            .relu = relu,
        };
        done = rg_bf16_end(&results);
    }
    return done;
#else
    (void)f, (void)sums, (void)step, (void)lines, (void)to, (void)bias, (void)one_bias;
    return false;
#endif
}

/* A tile of sums, `step` apart from row to row: along rows or columns of c, whichever has
 * neighbours. */
RG_OUTLINE void finish_tile(const finish *f, const real *sums, int64_t step, rg_dtype T)
{
    const offsets *rows = &f->rows, *columns = &f->columns;
    const bool down = columns->step != 1 && rows->step == 1, one = down != f->k->bias_rows;
    const offsets *lines = down ? columns : rows, *to = down ? rows : columns;
    const real *bias = f->k->bias_rows ? f->row_bias : f->column_bias;
    real transposed[PANEL * ROWS];
    if (down) {
        contract_block(transposed, ROWS, sums, step, rows->count, 1, columns->count, RG_REAL);
        sums = transposed;
        step = ROWS;
    }
    if (to->step == 1 && !f->k->add &&
        (f->k->neuron == RG_NEURON_NONE || f->k->neuron == RG_NEURON_RELU)) {
        if (T == RG_BF16 && finish_bf16(f, sums, step, lines, to, bias, one))
            return;
        RG_WITH_TYPE(T, U, finish_plain(f, sums, step, lines, to, bias, one, U));
        return;
    }
    for (int64_t i = 0; i < lines->count; i++)
        finish_line(f,
                    &(line){ .sums = sums + i * step,
                             .step = 1,
                             .bias = one ? bias + i : bias,
                             .one_bias = one,
                             .start = lines->at[i],
                             .to = to,
                             .count = to->count },
                    T);
}

#endif
