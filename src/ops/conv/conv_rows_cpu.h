/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Rows of results on the contraction engine: blocks of pixels, the taps that make them, and the end
 * of sums. Shared by kernels for real and for pairs of bf16. */
#ifndef RG_OPS_CONV_ROWS_CPU_H
#define RG_OPS_CONV_ROWS_CPU_H

#include "backend/cpu/columns.h"
#include "ops/contract/contract.h"
#include "ops/conv/conv_panels.h"
#include "ops/fused_neuron/any_neuron_cpu.h"

_Static_assert((int)RG_CONV_MOST_RUNS <= (int)RG_MOST_RUNS, "runs of a tile");

/* ---- rows of results ---- */

/* A block of outputs, and the inputs it takes: in memory, or in scratch with zeros around. */
typedef struct conv_block {
    int64_t image, group;
    int64_t row, rows, column, columns; /* of outputs */
    const real *in;                     /* the first tap of the first output */
    int64_t in_row, in_pixel;           /* from input to input */
    bool has_nonfinite;                 /* 0 times something may not be 0 */
    const char *ahead;                  /* inputs of the next block, as they stand in memory */
    int64_t ahead_bytes;                /* 0: not known */
} conv_block;

/* Taps begin <= t < end of an output lie in the image. */
RG_INLINE void taps_inside(const rg_conv_window_axis *r, int64_t output, int64_t *begin,
                           int64_t *end)
{
    const int64_t first = output * r->stride + r->first;
    *begin = 0;
    *end = r->taps;
    while (*begin < *end && first + *begin * r->step < 0)
        ++*begin;
    while (*begin < *end && first + (*end - 1) * r->step >= r->inputs)
        --*end;
}

/* Those among them that have a weight for the phase. */
RG_INLINE void taps_of(const rg_conv_window_axis *r, int64_t output, int64_t phase, int64_t *begin,
                       int64_t *end)
{
    const int64_t w = r->w_first + phase;
    taps_inside(r, output, begin, end);
    while (r->phases > 1 && *begin < *end && w - *begin * r->w_step >= r->window)
        ++*begin;
    while (r->phases > 1 && *begin < *end && w - (*end - 1) * r->w_step < 0)
        --*end;
}

/* Where taps stand in inputs and in a panel: in each row of taps `runs->columns` runs. */
typedef struct conv_runs {
    rg_k_run run[RG_CONV_MOST_RUNS];
    int64_t columns;
} conv_runs;

/* ---- the end of sums: bias, neuron, conversion ---- */

typedef struct conv_end {
    neuron_constants constants;
    real bias[RG_PANEL + VLEN];
    int64_t channels; /* of a pixel */
} conv_end;

/* Bias and relu, or none of them, for `count` pixels of adjacent channels. */
RG_INLINE void end_without_epilogue(const rg_conv_rows_args *k, const conv_end *e, const real *sums,
                                    const real *bias, char *to, int64_t count, const rg_dtype T)
{
    const int64_t channels = e->channels, pixel = k->to_step[2] * k->column.to_step;
    const bool has_b = k->has_b, relu = k->neuron.kind == RG_NEURON_RELU;
    for (int64_t i = 0; i < channels; i += VLEN) {
        const int n = vlanes_left(channels - i);
        const vreal b = vload_full(bias, i, RG_REAL);
        for (int64_t j = 0; j < count; j++) {
            vreal value = vload_full(sums, j * RG_PANEL + i, RG_REAL);
            if (has_b)
                value += b;
            if (relu)
                value = neuron_relu(&e->constants, value, value);
            if (n == VLEN)
                vstore_full(to, j * pixel + i, T, value);
            else
                vstore_partial(to, j * pixel + i, n, T, value);
        }
    }
}

/* `count` pixels whose sums stand RG_PANEL apart; `to` and `z` are offsets. */
RG_INLINE void end_pixels(const rg_conv_rows_args *k, const conv_end *e, const real *sums,
                          const real *bias, int64_t to, int64_t z, int64_t count, const rg_dtype T)
{
    const int64_t step = k->to_step[3], to_pixel = k->to_step[2] * k->column.to_step;
    const int64_t z_pixel = k->z_step[2] * k->column.to_step;
    const bool simple = k->neuron.kind == RG_NEURON_RELU || k->neuron.kind == RG_NEURON_NONE;
    if (step == 1 && !k->has_z && !k->add && simple) {
        end_without_epilogue(k, e, sums, bias, at_out(k->to, to, T), count, T);
        return;
    }
    for (int64_t j = 0; j < count; j++, sums += RG_PANEL, to += to_pixel, z += z_pixel) {
        for (int64_t i = 0; i < e->channels; i += VLEN) {
            const int n = vlanes_left(e->channels - i);
            char *const out = at_out(k->to, to + i * step, T);
            vreal value = vload_full(sums, i, RG_REAL);
            if (k->has_b)
                value += vload_full(bias, i, RG_REAL);
            if (k->has_z)
                store_groups(at_out(k->z, z + i * k->z_step[3], T), k->z_step[3], n, T,
                             k->z_step[3] == 1, value);
            if (k->neuron.kind != RG_NEURON_NONE)
                value = any_neuron(k->neuron.kind, &e->constants, value);
            if (k->add)
                value += load_groups(out, step, n, T, step == 1);
            store_groups(out, step, n, T, step == 1, value);
        }
    }
}

RG_OUTLINE void end_run(const rg_conv_rows_args *k, const conv_end *e, const real *sums,
                        const real *bias, int64_t to, int64_t z, int64_t count, rg_dtype T)
{
#if !RG_REAL_F64
    if (T == RG_F16)
        end_pixels(k, e, sums, bias, to, z, count, RG_F16);
    else if (T == RG_BF16)
        end_pixels(k, e, sums, bias, to, z, count, RG_BF16);
    else
#endif
        end_pixels(k, e, sums, bias, to, z, count, RG_REAL);
    (void)T;
}

/* Where channel `c` of result (row, column) stands. */
RG_INLINE int64_t result_at(const int64_t step[4], const conv_block *b, int64_t row, int64_t column,
                            int64_t c)
{
    return b->image * step[0] + row * step[1] + column * step[2] + c * step[3];
}

/* All phases of a row of outputs. */
RG_OUTLINE void end_row(const rg_conv_rows_args *k, const conv_end *e, const conv_block *b,
                        int64_t r, int64_t c, const real *sums, rg_dtype T)
{
    const rg_conv_window_axis *row = &k->row, *column = &k->column;
    for (int64_t phase = 0; phase < row->phases * column->phases; phase++) {
        const int64_t i = row->to_first + (b->row + r) * row->to_step + phase / column->phases;
        const int64_t j = column->to_first + b->column * column->to_step + phase % column->phases;
        if (i >= row->to_size || j >= column->to_size)
            continue;
        const int64_t last = j + (b->columns - 1) * column->to_step;
        end_run(k, e, sums + phase * k->width, e->bias + phase * k->width,
                result_at(k->to_step, b, i, j, c), result_at(k->z_step, b, i, j, c),
                b->columns - (last >= column->to_size), T);
    }
}

/* Bias, neuron and conversion of panel n for row r of a block. */
RG_OUTLINE void end_sums(const rg_conv_rows_args *k, conv_end *e, const conv_block *b, int64_t r,
                         int64_t n, const real *sums, rg_dtype T)
{
    const int64_t phases = k->row.phases * k->column.phases;
    const int64_t c = b->group * k->width + n * RG_PANEL;
    e->channels = phases > 1 ? k->width : least(RG_PANEL, k->width - n * RG_PANEL);
    for (int64_t i = 0; k->has_b && i < phases; i++)
        contract_load(e->bias + i * k->width, 1, k->b, c * k->b_step, k->b_step, e->channels, T);
    end_row(k, e, b, r, c, sums, T);
}

/* ---- blocks ---- */

RG_INLINE conv_block block_of(const rg_conv_rows_args *k, int64_t unit)
{
    const rg_conv_window_axis *row = &k->row, *column = &k->column;
    const int64_t across = unit % column->blocks, down = unit / column->blocks % row->blocks;
    const int64_t rest = unit / column->blocks / row->blocks;
    conv_block b = { .image = rest / k->groups,
                     .group = rest % k->groups,
                     .row = down * row->block,
                     .column = across * column->block };
    b.rows = least(row->block, row->outputs - b.row);
    b.columns = least(column->block, column->outputs - b.column);
    return b;
}

#endif
