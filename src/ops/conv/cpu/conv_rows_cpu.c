/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Convolution on the contraction engine, forward and backward data. Kernels know how elements are
 * stored only where they copy them into scratch and where they write results, so there is one of
 * each for all of T. */
#include "ops/conv/cpu/conv_rows_cpu.h"
#include "backend/cpu/thread_pool.h"

/* ---- weights as panels ---- */

/* A weight of several phases is copied to the lanes of each of them. */
RG_OUTLINE void pack_tap(const rg_conv_pack_args *k, int64_t unit, rg_dtype T)
{
    const panel_tap t = panel_tap_of(k, unit);
    const int64_t size = k->depth * RG_PANEL;
    real *const panel = (real *)k->panels + unit * size;
    if (t.phases > 1)
        memset(panel, 0, (size_t)size * sizeof(real));
    for (int64_t phase = 0; phase < t.phases; phase++) {
        int64_t w;
        const bool has = find_weight(k, t.group, phase, t.p, t.q, &w);
        for (int64_t c = 0; has && t.phases > 1 && c < t.width; c++)
            contract_load(panel + phase * t.width + c, RG_PANEL, k->w, w + c * k->w_step[1],
                          k->w_step[4], k->depth, T);
        if (t.phases == 1)
            contract_pack(panel, at(k->w, w + t.n * RG_PANEL * k->w_step[1], T), k->w_step[1],
                          t.width, k->w_step[4], k->depth, T);
    }
    ((real *)k->panels)[k->units * size + unit] = has_nonfinite_reals(panel, size);
}

RG_INLINE void pack_weights(const rg_conv_pack_args *k, int64_t begin, int64_t end,
                            const rg_dtype T)
{
    for (int64_t unit = begin; unit < end; unit++)
        pack_tap(k, unit, T);
}

/* ---- rows of results ---- */

/* One row of inputs; those beyond the image are 0. */
RG_OUTLINE void copy_inputs(const rg_conv_rows_args *k, const conv_block *b, int64_t row, real *to,
                            int64_t count, rg_dtype T)
{
    const int64_t first = b->column * k->column.stride + k->column.first;
    const int64_t depth = k->depth, pixel = k->pixel;
    int64_t left, end;
    inputs_inside(k, first, count, &left, &end);
    memset(to, 0, (size_t)(left * pixel) * sizeof(real));
    memset(to + end * pixel, 0, (size_t)((count - end) * pixel) * sizeof(real));
    int64_t from = input_offset(k, b, row, first + left);
    if (k->from_step[3] == 1 && k->from_step[2] == depth && pixel == depth) {
        contract_load(to + left * pixel, 1, k->conv.from, from, 1, (end - left) * depth, T);
        return;
    }
    for (int64_t i = left; i < end; i++, from += k->from_step[2])
        contract_load(to + i * pixel, 1, k->conv.from, from, k->from_step[3], depth, T);
}

/* Loads the inputs of a block, and finds out whether a non-finite weight or input would be
 * multiplied by padding, or by a weight that its phase does not have. */
RG_OUTLINE void take_inputs(const rg_conv_rows_args *k, conv_block *b, char *scratch, rg_dtype T)
{
    const rg_conv_window_axis *row = &k->row, *column = &k->column;
    const bool phases = row->phases * column->phases > 1;
    const int64_t first = b->row * row->stride + row->first;
    b->has_nonfinite = (phases || !k->inside) &&
                       has_nonfinite_weights(k, b, row->taps * column->taps * k->depth * RG_PANEL);
    if (T == RG_REAL && k->from_step[3] == 1 && k->inside && !phases) {
        b->in_row = k->from_step[1];
        b->in_pixel = k->from_step[2];
        b->in = (const real *)k->conv.from +
                input_offset(k, b, first, b->column * column->stride + column->first);
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
        b->has_nonfinite |= phases && has_nonfinite_reals(in + i * b->in_row, b->in_row);
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
    const int64_t from = k->from_offset + b->image * k->from_step[0] + i * k->from_step[1];
    b->ahead = at(k->conv.from, from + j * pixel, T);
    b->ahead_bytes = element * (across ? b->columns * column->stride * pixel
                                       : b->rows * row->stride * k->from_step[1]);
}

RG_INLINE void find_runs(const rg_conv_rows_args *k, const conv_block *b, conv_runs *runs)
{
    const rg_conv_window_axis *row = &k->row, *column = &k->column;
    const bool joined = column->step * b->in_pixel == k->depth;
    int64_t n = 0;
    runs->columns = joined ? 1 : column->taps;
    for (int64_t p = 0; p < row->taps; p++)
        for (int64_t q = 0; q < runs->columns; q++)
            runs->run[n++] = (rg_k_run){ p * row->step * b->in_row + q * column->step * b->in_pixel,
                                         (p * column->taps + q) * k->depth * RG_PANEL,
                                         joined ? column->taps * k->depth : k->depth };
}

RG_OUTLINE void sum_one_output(const rg_conv_rows_args *k, const conv_block *b, const void *panel,
                               int64_t r, int64_t j, int64_t phase, real *to)
{
    const rg_conv_window_axis *row = &k->row, *column = &k->column;
    rg_k_run runs[RG_CONV_MAX_RUNS];
    int64_t p0, p1, q0, q1, n = 0;
    taps_of(row, b->row + r, phase / column->phases, &p0, &p1);
    taps_of(column, b->column + j, phase % column->phases, &q0, &q1);
    for (int64_t p = p0; p < p1; p++)
        for (int64_t q = q0; q < q1; q++)
            runs[n++] = (rg_k_run){ p * row->step * b->in_row + q * column->step * b->in_pixel,
                                    (p * column->taps + q) * k->depth * RG_PANEL, k->depth };
    const rg_tile tile = { .a = (const real *)b->in + r * row->stride * b->in_row +
                                j * column->stride * b->in_pixel,
                           .b = panel,
                           .c = to,
                           .runs = runs,
                           .run_count = n,
                           .b_step = RG_PANEL,
                           .c_step = RG_PANEL };
    RG_CONTRACT.rows(&tile, 1, RG_PANEL);
}

/* ---- blocks ---- */

/* While a tile is summed up, it prefetches a part of what the next block reads. */
RG_INLINE void prefetch_part(const conv_block *b, int64_t part, int64_t parts, rg_tile *tile)
{
    tile->ahead = b->ahead + b->ahead_bytes * part / parts;
    tile->ahead_end = b->ahead + b->ahead_bytes * (part + 1) / parts;
}

/* Panel n for row r of a block. */
RG_OUTLINE void sum_row(const rg_conv_rows_args *k, const conv_block *b, const conv_runs *runs,
                        rows_epilogue *e, real *sums, int64_t r, int64_t n, rg_dtype T)
{
    const rg_conv_window_axis *row = &k->row, *column = &k->column;
    const int64_t phases = row->phases * column->phases, c = b->group * k->width + n * RG_PANEL;
    const int64_t results = least(RG_PANEL, phases * k->width - n * RG_PANEL);
    const int64_t size = row->taps * column->taps * k->depth * RG_PANEL;
    const real *panel = (const real *)k->conv.w + (b->group * k->panel_count + n) * size;
    const bool plain = T == RG_REAL && phases == 1 && k->to_step[3] == 1 && !k->conv.has_b &&
                       !k->conv.has_z && k->conv.neuron.kind == RG_NEURON_NONE &&
                       contract_width(results) == results;
    int64_t p0, p1;
    taps_inside(row, b->row + r, &p0, &p1);
    rg_tile tile = { .a = (const real *)b->in + r * row->stride * b->in_row,
                     .b = panel,
                     .c = sums,
                     .runs = runs->run + p0 * runs->columns,
                     .run_count = (p1 - p0) * runs->columns,
                     .a_step = column->stride * b->in_pixel,
                     .b_step = RG_PANEL,
                     .c_step = RG_PANEL };
    if (b->ahead_bytes > 0 && (k->by_row || n == k->panel_count - 1))
        prefetch_part(b, k->by_row ? r * k->panel_count + n : r,
                      b->rows * (k->by_row ? k->panel_count : 1), &tile);
    if (plain && !b->has_nonfinite) {
        const int64_t i = row->to_first + (b->row + r) * row->to_step;
        const int64_t j = column->to_first + b->column * column->to_step;
        tile.c = (real *)k->conv.to + pixel_offset(k->to_step, b->image, i, j) + c;
        tile.c_step = column->to_step * k->to_step[2];
        tile.add = k->conv.add;
        tile.stream = k->conv.stream &&
                      ((uintptr_t)tile.c | (uintptr_t)(tile.c_step * (int64_t)sizeof(real))) %
                              RG_VECTOR_BYTES ==
                          0;
        RG_CONTRACT.rows(&tile, b->columns, results);
        return;
    }
    if (b->has_nonfinite)
        sum_own_taps(sum_one_output, k, b, panel, r, sums);
    else
        RG_CONTRACT.rows(&tile, b->columns, results);
    end_sums(k, e, b, r, n, sums, T);
}

RG_OUTLINE void rows_block(const rg_conv_rows_args *k, int64_t unit, rg_dtype T)
{
    conv_block b = block_of(k, unit);
    char *const scratch = (char *)k->conv.scratch + rg_thread_pool_index() * k->scratch_bytes;
    real *const sums = (real *)(void *)(scratch + k->in_bytes);
    conv_runs runs;
    rows_epilogue e = { .all = epilogue_of(&k->conv) };
    take_inputs(k, &b, scratch, T);
    look_ahead(k, &b, T);
    find_runs(k, &b, &runs);
    const int64_t outer = k->by_row ? b.rows : k->panel_count;
    const int64_t inner = k->by_row ? k->panel_count : b.rows;
    for (int64_t i = 0; i < outer; i++)
        for (int64_t j = 0; j < inner; j++)
            sum_row(k, &b, &runs, &e, sums, k->by_row ? i : j, k->by_row ? j : i, T);
}

/* ---- pixels with few results, as dx of an image of three channels: weights are broadcast, vectors
 * hold adjacent pixels; the same sums in the same order ---- */

/* One row of inputs, [depth][k->transposed_pitch]; those beyond the image are 0. */
RG_OUTLINE void transpose_inputs(const rg_conv_rows_args *k, const conv_block *b, int64_t row,
                                 real *to, rg_dtype T)
{
    const int64_t first = b->column + k->column.first, pitch = k->transposed_pitch;
    int64_t left, end;
    inputs_inside(k, first, rg_conv_span(&k->column, b->columns), &left, &end);
    for (int64_t c = 0; c < k->depth; c++) {
        memset(to + c * pitch, 0, (size_t)left * sizeof(real));
        memset(to + c * pitch + end, 0, (size_t)(pitch - end) * sizeof(real));
    }
    contract_block(to + left, pitch, at(k->conv.from, input_offset(k, b, row, first + left), T),
                   k->from_step[2], end - left, k->from_step[3], k->depth, T);
}

/* All inputs of a block; false where sums are made output by output, see take_inputs(). */
RG_OUTLINE bool transpose_block(const rg_conv_rows_args *k, conv_block *b, real *in, rg_dtype T)
{
    const rg_conv_window_axis *row = &k->row, *column = &k->column;
    const bool phases = row->phases * column->phases > 1;
    const int64_t size = k->depth * k->transposed_pitch;
    const int64_t first = b->row * row->stride + row->first;
    if ((phases || !k->inside) &&
        has_nonfinite_weights(k, b, row->taps * column->taps * k->depth * RG_PANEL))
        return false;
    for (int64_t i = 0; i < rg_conv_span(row, b->rows); i++) {
        if (first + i < 0 || first + i >= row->inputs)
            continue; /* left out of sums */
        transpose_inputs(k, b, first + i, in + i * size, T);
        if (phases && has_nonfinite_reals(in + i * size, size))
            return false;
    }
    return true;
}

/* Row r of a block. */
RG_OUTLINE void sum_transposed(const rg_conv_rows_args *k, const conv_block *b,
                               const rg_k_run *runs, const real *in, int64_t r, real *flat,
                               real *sums)
{
    const rg_conv_window_axis *row = &k->row, *column = &k->column;
    const int64_t results = row->phases * column->phases * k->width;
    const int64_t taps = row->taps * column->taps;
    int64_t p0, p1;
    taps_inside(row, b->row + r, &p0, &p1);
    rg_tile tile = { .a = (const real *)k->conv.w + b->group * taps * k->depth * RG_PANEL,
                     .b = in + r * row->stride * k->depth * k->transposed_pitch,
                     .c = flat,
                     .runs = runs + p0 * column->taps,
                     .run_count = (p1 - p0) * column->taps,
                     .a_step = RG_PANEL,
                     .b_step = k->transposed_pitch,
                     .c_step = k->transposed_pitch };
    if (b->ahead_bytes > 0)
        prefetch_part(b, r, b->rows, &tile);
    RG_CONTRACT.columns(&tile, results, b->columns);
    contract_block(sums, RG_PANEL, flat, k->transposed_pitch, (results + VLEN - 1) / VLEN * VLEN, 1,
                   b->columns, RG_REAL);
}

RG_OUTLINE bool transposed_block(const rg_conv_rows_args *k, int64_t unit, rg_dtype T)
{
    const rg_conv_window_axis *row = &k->row, *column = &k->column;
    conv_block b = block_of(k, unit);
    real *const in =
        (real *)(void *)((char *)k->conv.scratch + rg_thread_pool_index() * k->scratch_bytes);
    real *const flat = in + k->in_bytes / (int64_t)sizeof(real);
    real *const sums = flat + RG_COLUMN_STEP * k->transposed_pitch;
    rg_k_run runs[RG_CONV_MAX_RUNS];
    rows_epilogue e = { .all = epilogue_of(&k->conv) };
    if (!transpose_block(k, &b, in, T))
        return false;
    look_ahead(k, &b, T);
    for (int64_t i = 0; i < row->taps * column->taps; i++) {
        const int64_t p = i / column->taps, q = i % column->taps;
        runs[i] = (rg_k_run){ i * k->depth * RG_PANEL,
                              p * row->step * k->depth * k->transposed_pitch + q * column->step,
                              k->depth };
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
        if (k->transposed_pitch == 0 || !transposed_block(k, unit, T))
            rows_block(k, unit, T);
}

RG_KERNEL(pack_weights, rg_conv_pack_args)
RG_KERNEL(sum_rows, rg_conv_rows_args)

RG_CPU_TABLE(conv_rows, RG_CONV_KERNELS) = {
    [RG_CONV_PACK] = RG_ROW(pack_weights),
    [RG_CONV_ROWS] = RG_ROW(sum_rows),
};
