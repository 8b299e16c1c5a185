/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Convolution with few results of a pixel, as of a gradient for an image of three channels: weights
 * are what is broadcast, pixels stand side by side in vectors. The same sums in the same order. */
#ifndef RG_OPS_CONV_TRANSPOSED_CPU_H
#define RG_OPS_CONV_TRANSPOSED_CPU_H

#include "ops/conv/conv_contract.h"

/* One row of inputs, [depth][k->transposed]; those beyond the image are 0. */
RG_OUTLINE void transpose_inputs(const rg_conv_rows_args *k, const conv_block *b, int64_t row,
                                 real *to, rg_dtype T)
{
    const int64_t first = b->column + k->column.first, pitch = k->transposed;
    const int64_t count = rg_conv_span(&k->column, b->columns);
    const int64_t left = least(first < 0 ? -first : 0, count);
    int64_t end = least(k->column.inputs - first, count);
    end = end < left ? left : end;
    for (int64_t c = 0; c < k->depth; c++) {
        memset(to + c * pitch, 0, (size_t)left * sizeof(real));
        memset(to + c * pitch + end, 0, (size_t)(pitch - end) * sizeof(real));
    }
    const int64_t from = k->from_first + b->image * k->from_step[0] + row * k->from_step[1] +
                         (first + left) * k->from_step[2] + b->group * k->depth * k->from_step[3];
    contract_block(to + left, pitch, k->from, from, k->from_step[2], end - left, k->from_step[3],
                   k->depth, T);
}

/* All inputs of a block; false if care is needed, see take_inputs(). */
RG_OUTLINE bool transpose_block(const rg_conv_rows_args *k, conv_block *b, real *in, rg_dtype T)
{
    const rg_conv_window_axis *row = &k->row, *column = &k->column;
    const bool phases = row->phases * column->phases > 1;
    const int64_t taps = row->taps * column->taps, size = k->depth * k->transposed;
    const real *flags = (const real *)k->panels + k->groups * taps * k->depth * RG_PANEL;
    const int64_t first = b->row * row->stride + row->first;
    for (int64_t i = 0; i < taps; i++)
        if (flags[b->group * taps + i] != 0 && (phases || !k->inside))
            return false;
    for (int64_t i = 0; i < rg_conv_span(row, b->rows); i++) {
        if (first + i < 0 || first + i >= row->inputs)
            continue; /* left out of sums */
        transpose_inputs(k, b, first + i, in + i * size, T);
        if (phases && has_special(in + i * size, size))
            return false;
    }
    return true;
}

/* Row r of a block. */
RG_OUTLINE void sum_transposed(const rg_conv_rows_args *k, const conv_block *b, const rg_run *runs,
                               const real *in, int64_t r, real *flat, real *sums)
{
    const rg_conv_window_axis *row = &k->row, *column = &k->column;
    const int64_t lanes = row->phases * column->phases * k->width;
    const int64_t taps = row->taps * column->taps;
    int64_t p0, p1;
    taps_inside(row, b->row + r, &p0, &p1);
    rg_tile tile = { .a = (const real *)k->panels + b->group * taps * k->depth * RG_PANEL,
                     .b = in + r * row->stride * k->depth * k->transposed,
                     .c = flat,
                     .runs = runs + p0 * column->taps,
                     .run_count = (p1 - p0) * column->taps,
                     .a_step = RG_PANEL,
                     .b_step = k->transposed,
                     .c_step = k->transposed };
    if (b->ahead_bytes > 0)
        fetch_ahead(b, r, b->rows, &tile);
    RG_CONTRACT.columns(&tile, lanes, b->columns);
    contract_block(sums, RG_PANEL, flat, 0, k->transposed, (lanes + VLEN - 1) / VLEN * VLEN, 1,
                   b->columns, RG_REAL);
}

RG_OUTLINE bool transposed_block(const rg_conv_rows_args *k, int64_t unit, rg_dtype T)
{
    const rg_conv_window_axis *row = &k->row, *column = &k->column;
    conv_block b = block_of(k, unit);
    real *const in = (real *)(void *)(k->lanes + rg_thread_pool_index() * k->scratch_bytes);
    real *const flat = in + k->in_bytes / (int64_t)sizeof(real);
    real *const sums = flat + RG_LANES * k->transposed;
    rg_run runs[RG_CONV_MOST_RUNS];
    conv_end e = { .constants = neuron_constants_of(&k->neuron.numbers) };
    if (!transpose_block(k, &b, in, T))
        return false;
    look_ahead(k, &b, T);
    for (int64_t i = 0; i < row->taps * column->taps; i++) {
        const int64_t p = i / column->taps, q = i % column->taps;
        runs[i] = (rg_run){ i * k->depth * RG_PANEL,
                            p * row->step * k->depth * k->transposed + q * column->step, k->depth };
    }
    for (int64_t r = 0; r < b.rows; r++) {
        sum_transposed(k, &b, runs, in, r, flat, sums);
        end_sums(k, &e, &b, r, 0, sums, T);
    }
    return true;
}

RG_INLINE void sum_rows(const rg_conv_rows_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    for (int64_t unit = begin; unit < end; unit++)
        if (k->transposed == 0 || !transposed_block(k, unit, T))
            rows_block(k, unit, T);
}

#endif
