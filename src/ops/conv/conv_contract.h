/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Convolution on the contraction engine. Kernels know how elements are stored only where they copy
 * them into scratch and where they write results, so there is one of each for all of T. */
#ifndef RG_OPS_CONV_CONTRACT_H
#define RG_OPS_CONV_CONTRACT_H

#include "backend/cpu/columns.h"
#include "backend/cpu/contract.h"
#include "backend/cpu/thread_pool.h"
#include "backend/cpu/long_sum_cpu.h"
#include "ops/conv/conv_plan.h"
#include "ops/neuron/any_neuron.h"

_Static_assert((int)RG_CONV_MOST_RUNS <= (int)RG_MOST_RUNS, "runs of a tile");

/* Whether one of so many numbers is infinite or NaN. */
RG_OUTLINE bool has_special(const real *a, int64_t count)
{
    vint special = { 0 };
    int64_t i = 0;
    for (; i + VLEN <= count; i += VLEN) {
        const vreal v = vload_full(a, i, RG_REAL);
        special |= v - v != 0;
    }
    for (; i < count; i++)
        special[0] |= a[i] - a[i] != 0 ? -1 : 0;
    return vany(special);
}

/* ---- weights as panels ---- */

/* Tap (p, q) of one panel; a weight of several phases stands in the lanes of each that has it. */
RG_OUTLINE void pack_phases(const rg_conv_pack_args *k, real *panel, int64_t group, int64_t p,
                            int64_t q, rg_dtype T)
{
    memset(panel, 0, (size_t)(k->depth * RG_PANEL) * sizeof(real));
    for (int64_t phase = 0; phase < k->row.phases * k->column.phases; phase++) {
        const int64_t row = k->row.w_first + phase / k->column.phases - p * k->row.w_step;
        const int64_t column = k->column.w_first + phase % k->column.phases - q * k->column.w_step;
        if (row < 0 || row >= k->row.window || column < 0 || column >= k->column.window)
            continue;
        const int64_t w =
            k->w_offset + group * k->w_step[0] + row * k->w_step[2] + column * k->w_step[3];
        for (int64_t c = 0; c < k->width; c++)
            contract_load(panel + phase * k->width + c, RG_PANEL, k->w, w + c * k->w_step[1],
                          k->w_step[4], k->depth, T);
    }
}

RG_OUTLINE void pack_tap(const rg_conv_pack_args *k, int64_t unit, rg_dtype T)
{
    const int64_t taps = k->row.taps * k->column.taps;
    const int64_t tap = unit % taps, n = unit / taps % k->panel_count;
    const int64_t group = unit / taps / k->panel_count, size = k->depth * RG_PANEL;
    const int64_t p = tap / k->column.taps, q = tap % k->column.taps;
    real *const panel = (real *)k->panels + unit * size;
    if (k->row.phases * k->column.phases > 1) {
        pack_phases(k, panel, group, p, q, T);
    } else {
        const int64_t row = k->row.w_first - p * k->row.w_step;
        const int64_t column = k->column.w_first - q * k->column.w_step;
        const int64_t w = k->w_offset + group * k->w_step[0] + n * RG_PANEL * k->w_step[1] +
                          row * k->w_step[2] + column * k->w_step[3];
        contract_pack(panel, k->w, w, k->w_step[1], least(RG_PANEL, k->width - n * RG_PANEL),
                      k->w_step[4], k->depth, T);
    }
    ((real *)k->panels)[k->units * size + unit] = has_special(panel, size);
}

RG_INLINE void pack_weights(const rg_conv_pack_args *k, int64_t begin, int64_t end,
                            const rg_dtype T)
{
    for (int64_t unit = begin; unit < end; unit++)
        pack_tap(k, unit, T);
}

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

/* One row of inputs; those beyond the image are 0. */
RG_OUTLINE void copy_inputs(const rg_conv_rows_args *k, const conv_block *b, int64_t row, real *to,
                            int64_t count, rg_dtype T)
{
    const int64_t first = b->column * k->column.stride + k->column.first;
    const int64_t left = least(first < 0 ? -first : 0, count), depth = k->depth, pixel = k->pixel;
    int64_t end = least(k->column.inputs - first, count);
    end = end < left ? left : end;
    memset(to, 0, (size_t)(left * pixel) * sizeof(real));
    memset(to + end * pixel, 0, (size_t)((count - end) * pixel) * sizeof(real));
    int64_t from = k->from_first + b->image * k->from_step[0] + row * k->from_step[1] +
                   (first + left) * k->from_step[2] + b->group * depth * k->from_step[3];
    if (k->from_step[3] == 1 && k->from_step[2] == depth && pixel == depth) {
        contract_load(to + left * pixel, 1, k->from, from, 1, (end - left) * depth, T);
        return;
    }
    for (int64_t i = left; i < end; i++, from += k->from_step[2])
        contract_load(to + i * pixel, 1, k->from, from, k->from_step[3], depth, T);
}

/* Inputs of a block, and whether care is needed: infinities of weights beyond the border, or of
 * inputs that some phases do not take. */
RG_OUTLINE void take_inputs(const rg_conv_rows_args *k, conv_block *b, char *scratch, rg_dtype T)
{
    const rg_conv_window_axis *row = &k->row, *column = &k->column;
    const bool phases = row->phases * column->phases > 1;
    const int64_t taps = row->taps * column->taps * k->panel_count;
    const real *flags = (const real *)k->panels + k->groups * taps * k->depth * RG_PANEL;
    for (int64_t i = 0; i < taps; i++)
        b->has_nonfinite |= flags[b->group * taps + i] != 0 && (phases || !k->inside);
    const int64_t first = b->row * row->stride + row->first;
    if (T == RG_REAL && k->from_step[3] == 1 && k->inside && !phases) {
        b->in_row = k->from_step[1];
        b->in_pixel = k->from_step[2];
        b->in = (const real *)k->from + k->from_first + b->image * k->from_step[0] +
                first * b->in_row + (b->column * column->stride + column->first) * b->in_pixel +
                b->group * k->depth;
        return;
    }
    real *const in = (real *)(void *)scratch;
    const int64_t count = rg_conv_span(column, b->columns);
    b->in = in;
    b->in_pixel = k->pixel;
    b->in_row = count * k->pixel;
    for (int64_t i = 0; i < rg_conv_span(row, b->rows); i++) {
        if (first + i < 0 || first + i >= row->inputs)
            continue; /* left out of sums */
        copy_inputs(k, b, first + i, in + i * b->in_row, count, T);
        b->has_nonfinite |= phases && has_special(in + i * b->in_row, b->in_row);
    }
}

/* What the next block will read first, where it lies in one piece: further columns or rows. */
RG_INLINE void look_ahead(const rg_conv_rows_args *k, conv_block *b, rg_dtype T)
{
    const rg_conv_window_axis *row = &k->row, *column = &k->column;
    const int64_t pixel = k->from_step[2], element = vbytes(T) / VLEN;
    if (k->from_step[3] != 1 || pixel != k->depth * k->groups || b->group + 1 < k->groups)
        return;
    const bool across = row->blocks == 1 && column->blocks > 1;
    if (!across && (column->blocks > 1 || k->from_step[1] != pixel * column->inputs))
        return;
    const int64_t i = b->row * row->stride + row->first + (across ? 0 : rg_conv_span(row, b->rows));
    const int64_t j = across ? (b->column + b->columns) * column->stride + column->first : 0;
    const int64_t from = k->from_first + b->image * k->from_step[0] + i * k->from_step[1];
    b->ahead = at(k->from, from + j * pixel, T);
    b->ahead_bytes = element * (across ? b->columns * column->stride * pixel
                                       : b->rows * row->stride * k->from_step[1]);
}

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
    rg_run run[RG_CONV_MOST_RUNS];
    int64_t columns;
} conv_runs;

RG_INLINE void find_runs(const rg_conv_rows_args *k, const conv_block *b, conv_runs *runs)
{
    const rg_conv_window_axis *row = &k->row, *column = &k->column;
    const bool joined = column->step * b->in_pixel == k->depth;
    int64_t n = 0;
    runs->columns = joined ? 1 : column->taps;
    for (int64_t p = 0; p < row->taps; p++)
        for (int64_t q = 0; q < runs->columns; q++)
            runs->run[n++] = (rg_run){ p * row->step * b->in_row + q * column->step * b->in_pixel,
                                       (p * column->taps + q) * k->depth * RG_PANEL,
                                       joined ? column->taps * k->depth : k->depth };
}

/* One output of a phase, from those taps alone that it has. */
RG_OUTLINE void add_nonfinite(const rg_conv_rows_args *k, const conv_block *b, const real *panel,
                              int64_t r, int64_t j, int64_t phase, real *c)
{
    const rg_conv_window_axis *row = &k->row, *column = &k->column;
    rg_run runs[RG_CONV_MOST_RUNS];
    int64_t p0, p1, q0, q1, n = 0;
    taps_of(row, b->row + r, phase / column->phases, &p0, &p1);
    taps_of(column, b->column + j, phase % column->phases, &q0, &q1);
    for (int64_t p = p0; p < p1; p++)
        for (int64_t q = q0; q < q1; q++)
            runs[n++] = (rg_run){ p * row->step * b->in_row + q * column->step * b->in_pixel,
                                  (p * column->taps + q) * k->depth * RG_PANEL, k->depth };
    const rg_tile tile = { .a = b->in + r * row->stride * b->in_row +
                                j * column->stride * b->in_pixel,
                           .b = panel,
                           .c = c,
                           .runs = runs,
                           .run_count = n,
                           .b_step = RG_PANEL,
                           .c_step = RG_PANEL };
    RG_CONTRACT.rows(&tile, 1, RG_PANEL);
}

RG_OUTLINE void sum_nonfinite(const rg_conv_rows_args *k, const conv_block *b, const real *panel,
                              int64_t r, real *sums)
{
    real one[RG_PANEL];
    const int64_t phases = k->row.phases * k->column.phases;
    const int64_t width = phases > 1 ? k->width : RG_PANEL;
    for (int64_t j = 0; j < b->columns; j++) {
        for (int64_t phase = 0; phase < phases; phase++) {
            add_nonfinite(k, b, panel, r, j, phase, one);
            memcpy(sums + j * RG_PANEL + phase * width, one + phase * width,
                   (size_t)width * sizeof(real));
        }
    }
}

/* ---- the end of sums: bias, neuron, conversion ---- */

typedef struct conv_end {
    neuron_constants constants;
    real bias[RG_PANEL + VLEN];
    int64_t lanes; /* of a pixel */
} conv_end;

/* Bias and relu, or none of them, for `count` pixels of `lanes` channels side by side, `pixel`
 * elements apart. */
RG_INLINE void end_without_epilogue(const conv_end *e, const real *sums, const real *bias, char *to,
                                    int64_t pixel, int64_t count, bool has_b, bool relu,
                                    const rg_dtype T)
{
    const int64_t lanes = e->lanes;
    for (int64_t i = 0; i < lanes; i += VLEN) {
        const int n = vlanes_left(lanes - i);
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
                vstore_short(to, j * pixel + i, n, T, value);
        }
    }
}

/* `count` pixels whose sums stand RG_PANEL apart; `to` and `z` are offsets. */
RG_INLINE void end_pixels(const rg_conv_rows_args *k, const conv_end *e, const real *sums,
                          const real *bias, int64_t to, int64_t z, int64_t count, const rg_dtype T)
{
    const int64_t step = k->to_step[3], to_pixel = k->to_step[2] * k->column.to_step;
    const int64_t z_pixel = k->z_step[2] * k->column.to_step;
    const bool relu = k->neuron.kind == RG_NEURON_RELU;
    if (step == 1 && !k->has_z && !k->add && (relu || k->neuron.kind == RG_NEURON_NONE)) {
        end_without_epilogue(e, sums, bias, at_out(k->to, to, T), to_pixel, count, k->has_b, relu,
                             T);
        return;
    }
    for (int64_t j = 0; j < count; j++, sums += RG_PANEL, to += to_pixel, z += z_pixel) {
        for (int64_t i = 0; i < e->lanes; i += VLEN) {
            const int n = vlanes_left(e->lanes - i);
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
    e->lanes = phases > 1 ? k->width : least(RG_PANEL, k->width - n * RG_PANEL);
    for (int64_t i = 0; k->has_b && i < phases; i++)
        contract_load(e->bias + i * k->width, 1, k->b, c * k->b_step, k->b_step, e->lanes, T);
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

/* While a tile is summed up, a part of what the next block reads is fetched. */
RG_INLINE void fetch_ahead(const conv_block *b, int64_t part, int64_t parts, rg_tile *tile)
{
    tile->ahead = b->ahead + b->ahead_bytes * part / parts;
    tile->ahead_end = b->ahead + b->ahead_bytes * (part + 1) / parts;
}

/* Panel n for row r of a block. */
RG_OUTLINE void sum_row(const rg_conv_rows_args *k, const conv_block *b, const conv_runs *runs,
                        conv_end *e, real *sums, int64_t r, int64_t n, rg_dtype T)
{
    const rg_conv_window_axis *row = &k->row, *column = &k->column;
    const int64_t phases = row->phases * column->phases, c = b->group * k->width + n * RG_PANEL;
    const int64_t lanes = least(RG_PANEL, phases * k->width - n * RG_PANEL);
    const int64_t size = row->taps * column->taps * k->depth * RG_PANEL;
    const real *panel = (const real *)k->panels + (b->group * k->panel_count + n) * size;
    const bool plain = T == RG_REAL && phases == 1 && k->to_step[3] == 1 && !k->has_b &&
                       !k->has_z && k->neuron.kind == RG_NEURON_NONE &&
                       contract_lanes(lanes) == lanes;
    int64_t p0, p1;
    taps_inside(row, b->row + r, &p0, &p1);
    rg_tile tile = { .a = b->in + r * row->stride * b->in_row,
                     .b = panel,
                     .c = sums,
                     .runs = runs->run + p0 * runs->columns,
                     .run_count = (p1 - p0) * runs->columns,
                     .a_step = column->stride * b->in_pixel,
                     .b_step = RG_PANEL,
                     .c_step = RG_PANEL };
    if (b->ahead_bytes > 0 && (k->by_row || n == k->panel_count - 1))
        fetch_ahead(b, k->by_row ? r * k->panel_count + n : r,
                    b->rows * (k->by_row ? k->panel_count : 1), &tile);
    if (plain && !b->has_nonfinite) {
        const int64_t i = row->to_first + (b->row + r) * row->to_step;
        const int64_t j = column->to_first + b->column * column->to_step;
        tile.c = (real *)k->to + result_at(k->to_step, b, i, j, c);
        tile.c_step = column->to_step * k->to_step[2];
        tile.add = k->add;
        tile.stream =
            k->stream && ((uintptr_t)tile.c | (uintptr_t)(tile.c_step * (int64_t)sizeof(real))) %
                                 RG_VECTOR_BYTES ==
                             0;
        RG_CONTRACT.rows(&tile, b->columns, lanes);
        return;
    }
    if (b->has_nonfinite)
        sum_nonfinite(k, b, panel, r, sums);
    else
        RG_CONTRACT.rows(&tile, b->columns, lanes);
    end_sums(k, e, b, r, n, sums, T);
}

RG_OUTLINE void rows_block(const rg_conv_rows_args *k, int64_t unit, rg_dtype T)
{
    conv_block b = block_of(k, unit);
    char *const scratch = k->lanes + rg_thread_pool_index() * k->scratch_bytes;
    real *const sums = (real *)(void *)(scratch + k->in_bytes);
    conv_runs runs;
    conv_end e = { .constants = neuron_constants_of(&k->neuron.numbers) };
    take_inputs(k, &b, scratch, T);
    look_ahead(k, &b, T);
    find_runs(k, &b, &runs);
    const int64_t outer = k->by_row ? b.rows : k->panel_count;
    const int64_t inner = k->by_row ? k->panel_count : b.rows;
    for (int64_t i = 0; i < outer; i++)
        for (int64_t j = 0; j < inner; j++)
            sum_row(k, &b, &runs, &e, sums, k->by_row ? i : j, k->by_row ? j : i, T);
}

/* ---- weights ---- */

/* Rows of windows and of the image that meet, as real. Row i of windows stands at (i - y_first)
 * y_row, and so on. */
typedef struct conv_overlap {
    const real *x, *y;
    int64_t x_first, x_row, x_pixel, y_first, y_row, y_pixel;
    int64_t begin, end;   /* rows of windows */
    const char *ahead[2]; /* what follows in the image, and behind these windows */
    int64_t ahead_bytes[2];
} conv_overlap;

/* Rows of one side into scratch; `first` is where row 0 of the image and group stands. Pixels from
 * `left` on, some of which may be beyond the image of so many columns. */
RG_OUTLINE void copy_rows(real *to, const void *from, int64_t first, const int64_t step[4],
                          int64_t begin, int64_t end, int64_t left, int64_t pixels,
                          int64_t columns_in, int64_t channels, rg_dtype T)
{
    const int64_t zeros = least(left < 0 ? -left : 0, pixels);
    int64_t inside = least(columns_in - left, pixels) - zeros;
    inside = inside < 0 ? 0 : inside;
    for (int64_t r = begin; r < end; r++, to += pixels * channels) {
        const int64_t row = first + r * step[1] + (left + zeros) * step[2];
        real *const start = to + zeros * channels, *const behind = start + inside * channels;
        memset(to, 0, (size_t)(zeros * channels) * sizeof(real));
        memset(behind, 0, (size_t)((pixels - zeros - inside) * channels) * sizeof(real));
        if (step[3] == 1 && step[2] == channels) {
            contract_load(start, 1, from, row, 1, inside * channels, T);
            continue;
        }
        for (int64_t j = 0; j < inside; j++)
            contract_load(start + j * channels, 1, from, row + j * step[2], step[3], channels, T);
    }
}

RG_OUTLINE void take_sides(const rg_conv_parts_args *k, conv_overlap *m, int64_t image,
                           int64_t group, int64_t channel, int64_t channels, char *scratch,
                           rg_dtype T)
{
    const rg_conv_shape *s = &k->shape;
    const bool x_stays = T == RG_REAL && s->x[3] == 1 && s->in % RG_LANES == 0 && !k->transposed;
    const bool y_stays =
        T == RG_REAL && s->y[3] == 1 && (!k->transposed || contract_lanes(channels) == channels);
    const int64_t x = image * s->x[0] + group * s->in * s->x[3];
    const int64_t y = image * s->y[0] + (group * s->out + channel) * s->y[3];
    const int64_t next = (m->end - m->begin) * (vbytes(T) / VLEN);
    m->ahead[0] = at(k->x, x + (m->end * s->row.stride - s->row.before) * s->x[1], T);
    m->ahead[1] = at(k->dy, y + m->end * s->y[1], T);
    m->ahead_bytes[0] = s->x[2] == s->in ? next * s->row.stride * s->x[1] : 0;
    m->ahead_bytes[1] = s->y[2] == channels ? next * s->y[1] : 0;
    m->x = (const real *)k->x + x;
    m->x_first = 0;
    m->x_row = s->x[1];
    m->x_pixel = s->x[2];
    m->y = (const real *)k->dy + y;
    m->y_first = 0;
    m->y_row = s->y[1];
    m->y_pixel = s->y[2];
    if (!y_stays) {
        real *const to = (real *)(void *)scratch;
        const int64_t count = s->column.count;
        copy_rows(to, k->dy, y, s->y, m->begin, m->end, 0, count, count, channels, T);
        m->y = to;
        m->y_first = m->begin;
        m->y_pixel = channels;
        m->y_row = s->column.count * channels;
    }
    if (!x_stays) {
        real *const to = (real *)(void *)(scratch + k->y_bytes);
        const int64_t before = s->row.before, reach = (s->row.window - 1) * s->row.dilation;
        const int64_t first = m->begin * s->row.stride - before;
        m->x_first = first < 0 ? 0 : least(first, s->row.size);
        const int64_t end = least((m->end - 1) * s->row.stride - before + reach + 1, s->row.size);
        copy_rows(to, k->x, x, s->x, m->x_first, end, k->transposed ? -s->column.before : 0,
                  k->columns, s->column.size, s->in, T);
        m->x = to;
        m->x_pixel = s->in;
        m->x_row = k->columns * s->in;
    }
}

/* Tap (p, q) of all weights of a unit, from pixels that it meets. */
RG_OUTLINE void add_tap(const rg_conv_parts_args *k, const conv_overlap *m, int64_t p, int64_t q,
                        int64_t channels, real *sums)
{
    const rg_conv_shape *s = &k->shape;
    rg_run runs[RG_CONV_MOST_RUNS];
    int64_t i0, i1, j0, j1, n = 0;
    rg_conv_windows(&s->row, p, &i0, &i1);
    rg_conv_windows(&s->column, q, &j0, &j1);
    i0 = i0 > m->begin ? i0 : m->begin;
    i1 = least(i1, m->end);
    const int64_t taps = s->row.window * s->column.window, tap = p * s->column.window + q;
    const int64_t parts = (taps + 1) / 2, part = tap % parts, which = tap / parts;
    const int64_t bytes = m->ahead_bytes[which];
    const int64_t column = j0 * s->column.stride - s->column.before + q * s->column.dilation;
    for (int64_t i = i0; i < i1 && j0 < j1; i++) {
        const int64_t row = i * s->row.stride - s->row.before + p * s->row.dilation;
        runs[n++] = (rg_run){ (i - m->y_first) * m->y_row + j0 * m->y_pixel,
                              (row - m->x_first) * m->x_row + column * m->x_pixel, j1 - j0 };
    }
    const rg_tile tile = { .a = m->y,
                           .b = m->x,
                           .c = sums + tap * k->tap_step,
                           .runs = runs,
                           .run_count = n,
                           .a_step = m->y_pixel,
                           .b_step = s->column.stride * m->x_pixel,
                           .c_step = k->out_step,
                           .add = true,
                           .ahead = m->ahead[which] + bytes * part / parts,
                           .ahead_end = m->ahead[which] + bytes * (part + 1) / parts };
    if (n > 0)
        RG_CONTRACT.columns(&tile, channels, s->in);
}

/* ---- weights, where channels of the image are few ---- */

/* Row p of taps: weights that meet one pixel after the other are rows of the result, channels of
 * windows its columns. */
RG_OUTLINE void add_transposed(const rg_conv_parts_args *k, const conv_overlap *m, int64_t p,
                               real *sums)
{
    const rg_conv_shape *s = &k->shape;
    rg_run runs[RG_CONV_MOST_RUNS];
    int64_t i0, i1, n = 0;
    rg_conv_windows(&s->row, p, &i0, &i1);
    i0 = i0 > m->begin ? i0 : m->begin;
    for (int64_t i = i0; i < least(i1, m->end); i++) {
        const int64_t row = i * s->row.stride - s->row.before + p * s->row.dilation;
        runs[n++] =
            (rg_run){ (row - m->x_first) * m->x_row, (i - m->y_first) * m->y_row, s->column.count };
    }
    const bool joined = s->column.dilation == 1;
    for (int64_t q = 0; n > 0 && q < (joined ? 1 : s->column.window); q++) {
        const char *ahead = m->ahead[1] + m->ahead_bytes[1] * p / s->row.window;
        const rg_tile tile = { .a = m->x + q * s->column.dilation * s->in,
                               .b = m->y,
                               .c = sums + (p * s->column.window + q) * k->tap_step,
                               .runs = runs,
                               .run_count = n,
                               .a_step = s->column.stride * s->in,
                               .b_step = m->y_pixel,
                               .c_step = k->in_step,
                               .add = true,
                               .ahead = ahead,
                               .ahead_end = ahead + m->ahead_bytes[1] / s->row.window };
        RG_CONTRACT.columns(&tile, (joined ? s->column.window : 1) * s->in, s->out);
    }
}

/* One weight, where 0 beyond the image times dy is not 0. */
RG_OUTLINE real sum_one(const rg_conv_shape *s, const conv_overlap *m, int64_t p, int64_t q,
                        int64_t c, int64_t o)
{
    int64_t i0, i1, j0, j1;
    double sum = 0;
    rg_conv_windows(&s->row, p, &i0, &i1);
    rg_conv_windows(&s->column, q, &j0, &j1);
    for (int64_t i = i0 > m->begin ? i0 : m->begin; i < least(i1, m->end); i++) {
        const int64_t row = i * s->row.stride - s->row.before + p * s->row.dilation;
        const real *x = m->x + (row - m->x_first) * m->x_row + q * s->column.dilation * m->x_pixel;
        const real *y = m->y + (i - m->y_first) * m->y_row;
        for (int64_t j = j0; j < j1; j++)
            sum += (double)y[j * m->y_pixel + o] * (double)x[j * s->column.stride * m->x_pixel + c];
    }
    return (real)sum;
}

RG_OUTLINE void add_one_by_one(const rg_conv_parts_args *k, const conv_overlap *m, real *sums)
{
    const rg_conv_shape *s = &k->shape;
    for (int64_t tap = 0; tap < s->row.window * s->column.window; tap++) {
        const int64_t p = tap / s->column.window, q = tap % s->column.window;
        for (int64_t c = 0; c < s->in; c++)
            for (int64_t o = 0; o < s->out; o++)
                sums[tap * k->tap_step + c * k->in_step + o] += sum_one(s, m, p, q, c, o);
    }
}

RG_OUTLINE void add_narrow(const rg_conv_parts_args *k, const conv_overlap *m, real *sums)
{
    const rg_conv_shape *s = &k->shape;
    bool special = false;
    for (int64_t i = m->begin; i < m->end; i++) {
        const real *row = m->y + (i - m->y_first) * m->y_row;
        if (m->y_pixel == s->out)
            special |= has_special(row, s->column.count * s->out);
        for (int64_t j = 0; j < s->column.count && m->y_pixel != s->out; j++)
            special |= has_special(row + j * m->y_pixel, s->out);
    }
    for (int64_t p = 0; p < s->row.window && !special; p++)
        add_transposed(k, m, p, sums);
    if (special)
        add_one_by_one(k, m, sums);
}

/* ---- weights: units ---- */

/* Rows of windows of a unit that meet, into its sums. */
RG_INLINE void add_overlap(const rg_conv_parts_args *k, const conv_overlap *m, int64_t channels,
                           real *sums)
{
    const rg_conv_shape *s = &k->shape;
    if (k->transposed) {
        add_narrow(k, m, sums);
        return;
    }
    for (int64_t p = 0; p < s->row.window; p++)
        for (int64_t q = 0; q < s->column.window; q++)
            add_tap(k, m, p, q, channels, sums);
}

/* Where the totals of sums stand. */
RG_INLINE double *totals_of(void *parts, const real *sums, int64_t slices, int64_t groups,
                            int64_t group_step)
{
    real *const behind = (real *)parts + slices * groups * group_step;
    return (double *)(void *)behind + (sums - (const real *)parts);
}

RG_OUTLINE void parts_unit(const rg_conv_parts_args *k, int64_t unit, rg_dtype T)
{
    const rg_conv_shape *s = &k->shape;
    const int64_t split = unit % k->splits, group = unit / k->splits % s->groups;
    const int64_t slice = unit / k->splits / s->groups, channel = split * k->channels;
    const int64_t channels = least(k->channels, s->out - channel);
    const int64_t size = k->transposed ? k->group_step : channels * k->out_step;
    real *const sums =
        (real *)k->parts + (slice * s->groups + group) * k->group_step + channel * k->out_step;
    double *const totals = totals_of(k->parts, sums, k->slices, s->groups, k->group_step);
    char *const scratch = k->lanes + rg_thread_pool_index() * k->scratch_bytes;
    int64_t windows = 0; /* of the block */
    bool first = true;
    memset(sums, 0, (size_t)size * sizeof(real));
    for (int64_t image = s->images * slice / k->slices; image < s->images * (slice + 1) / k->slices;
         image++) {
        for (int64_t i = 0; i < s->row.count; i += k->rows) {
            conv_overlap m = { .begin = i, .end = least(i + k->rows, s->row.count) };
            take_sides(k, &m, image, group, channel, channels, scratch, T);
            add_overlap(k, &m, channels, sums);
            windows += (m.end - m.begin) * s->column.count;
            if (!k->has_totals || windows < RG_SUM_BLOCK)
                continue;
            add_to_totals(totals, sums, size, first);
            memset(sums, 0, (size_t)size * sizeof(real));
            first = false;
            windows = 0;
        }
    }
    if (k->has_totals)
        add_to_totals(totals, sums, size, first);
}

RG_INLINE void sum_parts(const rg_conv_parts_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    for (int64_t unit = begin; unit < end; unit++)
        parts_unit(k, unit, T);
}

/* n weights of a tap, from `at` in the first part on. */
RG_OUTLINE vreal join_totals(const rg_conv_join_args *k, int64_t from, int n)
{
    const int64_t slice = k->shape.groups * k->group_step;
    const double *total = totals_of((void *)k->parts, (const real *)k->parts + from, k->slices,
                                    k->shape.groups, k->group_step);
    vreal value = vset(0);
    for (int e = 0; e < n; e++) {
        double sum = 0;
        for (int64_t i = 0; i < k->slices; i++)
            sum += total[i * slice + e * k->in_step];
        value[e] = (real)sum;
    }
    return value;
}

RG_INLINE vreal join_slices(const rg_conv_join_args *k, int64_t from, int n)
{
    const real *part = (const real *)k->parts + from;
    const int64_t slice = k->shape.groups * k->group_step;
    vreal sum = vset(0);
    if (k->has_totals)
        return join_totals(k, from, n);
    for (int64_t i = 0; i < k->slices; i++, part += slice)
        sum += k->in_step == 1 ? vload_full(part, 0, RG_REAL)
                               : vgather(part, 0, k->in_step, n, RG_REAL);
    return sum;
}

RG_INLINE void join_parts(const rg_conv_join_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    const rg_conv_shape *s = &k->shape;
    const int64_t step = s->w[4];
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t group = unit / s->out, o = unit % s->out;
        for (int64_t tap = 0; tap < s->row.window * s->column.window; tap++) {
            const int64_t from = group * k->group_step + o * k->out_step + tap * k->tap_step;
            const int64_t w = s->w_first + group * s->w[0] + o * s->w[1] +
                              tap / s->column.window * s->w[2] + tap % s->column.window * s->w[3];
            for (int64_t c = 0; c < s->in; c += VLEN) {
                const int n = vlanes_left(s->in - c);
                vreal sum = join_slices(k, from + c * k->in_step, n);
                char *const to = at_out(k->dw, w + c * step, T);
                if (k->add)
                    sum += load_groups(to, step, n, T, step == 1);
                store_groups(to, step, n, T, step == 1, sum);
            }
        }
    }
}

#endif
