/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Rows of results on the contraction engine: blocks of pixels, the taps that make them, and the
 * epilogue. Shared by kernels for real and for pairs of bf16. */
#ifndef RG_OPS_CONV_ROWS_CPU_H
#define RG_OPS_CONV_ROWS_CPU_H

#include "ops/contract/contract_pairs_cpu.h"
#include "ops/conv/cpu/conv_cpu.h"
#include "ops/conv/cpu/conv_epilogue_cpu.h"

_Static_assert((int)RG_CONV_MAX_RUNS <= (int)RG_MAX_RUNS, "runs of a tile");

/* ---- weights as panels ---- */

/* The offset in w of the weight of tap (p, q) for a phase, channels 0; false: there is none. */
RG_INLINE bool find_weight(const rg_conv_pack_args *k, int64_t group, int64_t phase, int64_t p,
                           int64_t q, int64_t *w)
{
    const int64_t row = k->row.w_first + phase / k->column.phases - p * k->row.w_step;
    const int64_t column = k->column.w_first + phase % k->column.phases - q * k->column.w_step;
    *w = k->w_offset + group * k->w_step[0] + row * k->w_step[2] + column * k->w_step[3];
    return row >= 0 && row < k->row.window && column >= 0 && column < k->column.window;
}

/* A unit: tap (p, q) of panel n of a group. */
typedef struct panel_tap {
    int64_t group, n, p, q;
    int64_t phases;
    int64_t width; /* channels of a phase in the panel */
} panel_tap;

RG_INLINE panel_tap panel_tap_of(const rg_conv_pack_args *k, int64_t unit)
{
    const int64_t taps = k->row.taps * k->column.taps, tap = unit % taps;
    panel_tap t = { .group = unit / taps / k->panel_count,
                    .n = unit / taps % k->panel_count,
                    .p = tap / k->column.taps,
                    .q = tap % k->column.taps,
                    .phases = k->row.phases * k->column.phases };
    t.width = t.phases > 1 ? k->width : least(RG_PANEL, k->width - t.n * RG_PANEL);
    return t;
}

/* ---- rows of results ---- */

/* A block of outputs, and the inputs it takes: in memory, or in scratch with zeros around. */
typedef struct conv_block {
    int64_t image, group;
    int64_t row, rows, column, columns; /* of outputs */
    const void *in;                     /* the first tap of the first output: real, or bits */
    int64_t in_row, in_pixel;           /* from input to input */
    bool in_place;                      /* not in scratch */
    bool has_nonfinite;                 /* 0 times something may not be 0 */
    const char *ahead;                  /* inputs of the next block, in memory */
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

/* The taps in inputs and in a panel: `columns` runs in each row of taps. */
typedef struct conv_runs {
    rg_k_run run[RG_CONV_MAX_RUNS];
    int64_t columns;
} conv_runs;

/* One output of a phase, from those taps alone that it has, where a non-finite number would be
 * multiplied by a 0 of the padding or of another phase. `panel` and `to` are as the caller has
 * them: [RG_PANEL] sums. */
typedef void sum_output(const rg_conv_rows_args *k, const conv_block *b, const void *panel,
                        int64_t r, int64_t j, int64_t phase, real *to);

/* Row r of a block, output by output. */
RG_INLINE void sum_own_taps(sum_output *sum, const rg_conv_rows_args *k, const conv_block *b,
                            const void *panel, int64_t r, real *sums)
{
    real one[RG_PANEL];
    const int64_t phases = k->row.phases * k->column.phases;
    const int64_t width = phases > 1 ? k->width : RG_PANEL;
    for (int64_t j = 0; j < b->columns; j++) {
        for (int64_t phase = 0; phase < phases; phase++) {
            sum(k, b, panel, r, j, phase, one);
            memcpy(sums + j * RG_PANEL + phase * width, one + phase * width,
                   (size_t)width * sizeof(real));
        }
    }
}

/* ---- epilogue ---- */

typedef struct rows_epilogue {
    conv_epilogue all;
    real bias[RG_PANEL + VLEN];
    int64_t channels; /* of a pixel */
} rows_epilogue;

/* Results of `count` pixels from pixel 0 on, whose sums are RG_PANEL apart. */
typedef struct rows_run {
    int64_t to, z;   /* of channel 0 of pixel 0 */
    int64_t channel; /* the first */
    int64_t count;
    const real *sums, *bias;
} rows_run;

#if RG_USES_PAIRS

/* Results of bf16 as a conversion of the processor's own takes them. */
RG_INLINE rg_bf16_results bf16_results_of(const rg_conv_rows_args *k, const rows_epilogue *e,
                                          const rows_run *r)
{
    return (rg_bf16_results){
        .sums = r->sums,
        .bias = k->conv.has_b ? r->bias : NULL,
        .to = (uint16_t *)k->conv.to + r->to + r->channel,
        .sums_step = RG_PANEL,
        .to_step = k->to_step[2] * k->column.to_step,
        .rows = r->count,
        .columns = e->channels,
        .relu = k->conv.neuron.kind == RG_NEURON_RELU,
        .stream = k->conv.stream,
    };
}

#endif

/* Whether at most a bias and ReLU follow, and channels are adjacent. */
RG_INLINE bool is_plain_end(const rg_conv_rows_args *k)
{
    return k->to_step[3] == 1 && !k->conv.has_z && !k->conv.add &&
           k->conv.neuron.kind <= RG_NEURON_RELU;
}

/* The same with adjacent pixels. */
RG_INLINE bool is_transposed_end(const rg_conv_rows_args *k)
{
    return k->to_step[3] != 1 && k->to_step[2] * k->column.to_step == 1 && !k->conv.has_z &&
           !k->conv.add && k->conv.neuron.kind <= RG_NEURON_RELU;
}

/* Whether rg_bf16_end knows it: ReLU without a slope. */
RG_INLINE bool is_bf16_end(const rg_conv_rows_args *k, const rows_epilogue *e)
{
    return is_plain_end(k) && (k->conv.neuron.kind != RG_NEURON_RELU || e->all.neuron.a == 0);
}

RG_INLINE bool end_bf16_run(const rg_conv_rows_args *k, const rows_epilogue *e, const rows_run *r)
{
#if RG_USES_PAIRS
    const rg_bf16_results results = bf16_results_of(k, e, r);
    return is_bf16_end(k, e) && rg_bf16_end(&results);
#else
    (void)k, (void)e, (void)r;
    return false;
#endif
}

/* At most a bias and relu, channels adjacent. */
RG_INLINE void end_plain_run(const rg_conv_rows_args *k, const rows_epilogue *e, const rows_run *r,
                             const rg_dtype T)
{
    const int64_t pixel = k->to_step[2] * k->column.to_step;
    const bool has_b = k->conv.has_b, relu = k->conv.neuron.kind == RG_NEURON_RELU;
    char *const to = at_out(k->conv.to, r->to + r->channel, T);
    for (int64_t i = 0; i < e->channels; i += VLEN) {
        const int n = vlanes_left(e->channels - i);
        const vreal b = vload_full(r->bias, i, RG_REAL);
        for (int64_t j = 0; j < r->count; j++) {
            vreal value = vload_full(r->sums, j * RG_PANEL + i, RG_REAL);
            if (has_b)
                value += b;
            if (relu)
                value = neuron_relu(&e->all.neuron, value, value);
            if (n == VLEN)
                vstore_full(to, j * pixel + i, T, value);
            else
                vstore_partial(to, j * pixel + i, n, T, value);
        }
    }
}

/* At most a bias and relu, pixels adjacent: squares of VLEN pixels and channels are transposed. The
 * last ones of a row may be those of the square before, too. */
RG_INLINE void end_transposed_run(const rg_conv_rows_args *k, const rows_epilogue *e,
                                  const rows_run *r, const rg_dtype T)
{
    const bool relu = k->conv.neuron.kind == RG_NEURON_RELU;
    const int n = vlanes_left(r->count);
    for (int64_t i = 0; i < e->channels; i += VLEN) {
        const int64_t channels = least(VLEN, e->channels - i);
        char *const to = at_out(k->conv.to, r->to + (r->channel + i) * k->to_step[3], T);
        for (int64_t j = 0; j < r->count; j += VLEN) {
            const int64_t first = n == VLEN ? least(j, r->count - VLEN) : 0;
            vreal square[VLEN];
#pragma GCC unroll 16
            for (int m = 0; m < VLEN; m++)
                square[m] =
                    m < n ? vload_full(r->sums, (first + m) * RG_PANEL + i, RG_REAL) : vset(0);
            vtranspose(square);
            for (int64_t c = 0; c < channels; c++) {
                vreal value = square[c];
                if (k->conv.has_b)
                    value += vset(r->bias[i + c]);
                if (relu)
                    value = neuron_relu(&e->all.neuron, value, value);
                if (n == VLEN)
                    vstore_full(to, c * k->to_step[3] + first, T, value);
                else
                    vstore_partial(to, c * k->to_step[3], n, T, value);
            }
        }
    }
}

RG_INLINE void end_run(const rg_conv_rows_args *k, const rows_epilogue *e, const rows_run *r,
                       const rg_dtype T)
{
    const int64_t pixel = k->column.to_step;
    if (is_transposed_end(k)) {
        end_transposed_run(k, e, r, T);
        return;
    }
    if (is_plain_end(k)) {
        if (T != RG_BF16 || !end_bf16_run(k, e, r))
            end_plain_run(k, e, r, T);
        return;
    }
    for (int64_t j = 0; j < r->count; j++)
        for (int64_t i = 0; i < e->channels; i += VLEN)
            finish_vector(&e->all, r->to + j * pixel * k->to_step[2],
                          r->z + j * pixel * k->conv.z_step[2], k->to_step[3], r->channel + i,
                          vlanes_left(e->channels - i), T,
                          vload_full(r->sums, j * RG_PANEL + i, RG_REAL));
}

/* The first channel of panel n, its bias and number of channels. */
RG_INLINE int64_t begin_panel(const rg_conv_rows_args *k, rows_epilogue *e, const conv_block *b,
                              int64_t n, const rg_dtype T)
{
    const bool phases = k->row.phases * k->column.phases > 1;
    const int64_t c = b->group * k->width + n * RG_PANEL;
    e->channels = phases ? k->width : least(RG_PANEL, k->width - n * RG_PANEL);
    if (k->conv.has_b)
        contract_load(e->bias, 1, k->conv.b, c * k->conv.b_step, k->conv.b_step, e->channels, T);
    return c;
}

/* A phase of row r of a block, channels c and on; of no pixels where it lies beyond the results. */
RG_INLINE rows_run phase_run(const rg_conv_rows_args *k, const rows_epilogue *e,
                             const conv_block *b, int64_t r, int64_t c, int64_t phase,
                             const real *sums)
{
    const rg_conv_window_axis *row = &k->row, *column = &k->column;
    const int64_t i = row->to_first + (b->row + r) * row->to_step + phase / column->phases;
    const int64_t j = column->to_first + b->column * column->to_step + phase % column->phases;
    const int64_t last = j + (b->columns - 1) * column->to_step;
    const bool exists = i < row->to_size && j < column->to_size;
    return (rows_run){ .to = pixel_offset(k->to_step, b->image, i, j),
                       .z = pixel_offset(k->conv.z_step, b->image, i, j),
                       .channel = c,
                       .count = exists ? b->columns - (last >= column->to_size) : 0,
                       .sums = sums + phase * k->width,
                       .bias = e->bias };
}

/* Panel n for row r of a block: all phases of its outputs. */
RG_OUTLINE void end_sums(const rg_conv_rows_args *k, rows_epilogue *e, const conv_block *b,
                         int64_t r, int64_t n, const real *sums, rg_dtype T)
{
    const int64_t c = begin_panel(k, e, b, n, T);
    for (int64_t phase = 0; phase < k->row.phases * k->column.phases; phase++) {
        const rows_run run = phase_run(k, e, b, r, c, phase, sums);
        if (run.count > 0)
            RG_WITH_TYPE(T, U, end_run(k, e, &run, U));
    }
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

/* Input (row, column) of a block's image and group, its first channel, in `from`. */
RG_INLINE int64_t input_offset(const rg_conv_rows_args *k, const conv_block *b, int64_t row,
                               int64_t column)
{
    return k->from_offset + pixel_offset(k->from_step, b->image, row, column) +
           b->group * k->depth * k->from_step[3];
}

/* Of `count` inputs of a row from column `first` on, those from *left to *end - 1 exist. */
RG_INLINE void inputs_inside(const rg_conv_rows_args *k, int64_t first, int64_t count,
                             int64_t *left, int64_t *end)
{
    *left = least(first < 0 ? -first : 0, count);
    *end = least(k->column.inputs - first, count);
    *end = *end < *left ? *left : *end;
}

/* Whether a weight of the block's group is not finite, by the words after all panels. */
RG_INLINE bool has_nonfinite_weights(const rg_conv_rows_args *k, const conv_block *b,
                                     int64_t panel_reals)
{
    const int64_t taps = k->row.taps * k->column.taps * k->panel_count;
    const real *flags = (const real *)k->conv.w + k->groups * k->panel_count * panel_reals;
    bool found = false;
    for (int64_t i = 0; i < taps; i++)
        found |= flags[b->group * taps + i] != 0;
    return found;
}

#endif
