/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Convolution of bf16 in pairs, forward and backward data: kernels for processors that multiply
 * pairs, see conv_cpu.h. Where an infinity or NaN would be multiplied by a 0 of the padding, sums
 * are made one by one. */
#include "backend/cpu/thread_pool.h"
#include "ops/contract/contract_pairs_cpu.h"
#include "ops/conv/cpu/conv_rows_cpu.h"

#if RG_USES_PAIRS

/* ---- weights as panels ---- */

/* A tap of an odd number of elements, and zeros from there to `end`; elements from `first` on of a
 * row of taps, whose neighbours in a pair may belong to another unit. Returns whether one of them
 * is infinite or NaN. */
RG_OUTLINE bool pack_odd_tap(const rg_conv_pack_args *k, const panel_tap *t, uint16_t *row,
                             int64_t first, int64_t end)
{
    enum { EXPONENT = 0x7f80 };
    bool nonfinite = false;
    for (int64_t i = first; i < end; i++)
        for (int64_t n = 0; n < RG_PANEL; n++)
            row[i / 2 * 2 * RG_PANEL + 2 * n + i % 2] = 0;
    for (int64_t phase = 0; phase < t->phases; phase++) {
        const int64_t from = t->phases > 1 ? 0 : t->n * RG_PANEL, to = phase * t->width;
        int64_t at;
        const bool has = find_weight(k, t->group, phase, t->p, t->q, &at);
        const uint16_t *const w = (const uint16_t *)k->w + at;
        for (int64_t c = 0; c < k->depth && has; c++) {
            uint16_t *const pair = row + (first + c) / 2 * 2 * RG_PANEL + (first + c) % 2;
            for (int64_t n = 0; n < t->width; n++) {
                const uint16_t bits = w[(from + n) * k->w_step[1] + c * k->w_step[4]];
                pair[2 * (to + n)] = bits;
                nonfinite |= (bits & EXPONENT) == EXPONENT;
            }
        }
    }
    return nonfinite;
}

/* A tap, and the zeros up to the next one. */
RG_OUTLINE void pack_pair_tap(const rg_conv_pack_args *k, int64_t unit)
{
    const panel_tap t = panel_tap_of(k, unit);
    const int64_t panels = k->units / (k->row.taps * k->column.taps);
    const int64_t size = k->row.taps * k->pair_steps.row * RG_PANEL; /* of a panel */
    const int64_t first = t.q * k->pair_steps.tap;
    const int64_t end = t.q == k->column.taps - 1 ? k->pair_steps.row : first + k->pair_steps.tap;
    uint16_t *const row = (uint16_t *)k->panels + (t.group * k->panel_count + t.n) * size +
                          t.p * k->pair_steps.row * RG_PANEL;
    float *const flags = (float *)k->panels + panels * size / 2;
    if (k->pair_steps.pixel % 2 != 0) {
        flags[unit] = pack_odd_tap(k, &t, row, first, end);
        return;
    }
    uint16_t *const panel = row + first * RG_PANEL;
    memset(panel, 0, (size_t)((end - first) * RG_PANEL) * sizeof *panel);
    for (int64_t phase = 0; phase < t.phases; phase++) {
        int64_t at;
        const bool has = find_weight(k, t.group, phase, t.p, t.q, &at);
        const uint16_t *const w = (const uint16_t *)k->w + at;
        for (int64_t c = 0; has && t.phases > 1 && c < t.width; c++)
            pack_pairs(panel + 2 * (phase * t.width + c), w + c * k->w_step[1], 1, 1, k->w_step[4],
                       k->depth);
        if (t.phases == 1)
            pack_pairs(panel, w + t.n * RG_PANEL * k->w_step[1], k->w_step[1], t.width,
                       k->w_step[4], k->depth);
    }
    flags[unit] = has_nonfinite_bits(panel, k->pair_steps.pixel * RG_PANEL);
}

RG_INLINE void pair_pack(const rg_conv_pack_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    for (int64_t unit = begin; unit < end; unit++)
        pack_pair_tap(k, unit);
    (void)T;
}

/* ---- rows of results ---- */

/* Adjacent pixels, VLEN or more: the last ones may be copied twice. */
RG_OUTLINE void copy_transposed(const rg_conv_rows_args *k, uint16_t *to, const uint16_t *from,
                                int64_t count)
{
    const int64_t pixel = k->pixel, step = k->from_step[3];
    for (int64_t i = 0; i < count; i += VLEN) {
        const int64_t first = least(i, count - VLEN);
        copy_bits(to + first * pixel, pixel, from + first, 1, VLEN, step, k->depth);
    }
    for (int64_t i = 0; i < count; i++)
        for (int64_t c = k->depth; c < pixel; c++)
            to[i * pixel + c] = 0;
}

/* One row of inputs; those beyond the image are 0. */
RG_OUTLINE void copy_pair_inputs(const rg_conv_rows_args *k, const conv_block *b, int64_t row,
                                 uint16_t *to, int64_t count)
{
    const int64_t first = b->column * k->column.stride + k->column.first;
    const int64_t depth = k->depth, pixel = k->pixel;
    int64_t left, end;
    inputs_inside(k, first, count, &left, &end);
    end = row < 0 || row >= k->row.inputs ? left : end;
    memset(to, 0, (size_t)(left * pixel) * sizeof *to);
    memset(to + end * pixel, 0, (size_t)((count - end) * pixel) * sizeof *to);
    if (end == left)
        return;
    const uint16_t *from = (const uint16_t *)k->conv.from + input_offset(k, b, row, first + left);
    if (k->from_step[3] == 1 && k->from_step[2] == depth && pixel == depth) {
        memcpy(to + left * pixel, from, (size_t)((end - left) * depth) * sizeof *to);
        return;
    }
    if (k->from_step[2] == 1 && k->from_step[3] != 1 && end - left >= VLEN) {
        copy_transposed(k, to + left * pixel, from, end - left);
        return;
    }
    for (int64_t i = left; i < end; i++, from += k->from_step[2]) {
        uint16_t *const one = to + i * pixel;
        for (int64_t c = 0; c < depth && (depth < 8 || k->from_step[3] != 1); c++)
            one[c] = from[c * k->from_step[3]];
        if (depth >= 8 && k->from_step[3] == 1)
            memcpy(one, from, (size_t)depth * sizeof *to);
        for (int64_t c = depth; c < pixel; c++)
            one[c] = 0;
    }
}

/* Whether a unit can read pixels of the image that are followed by those of others. */
RG_INLINE bool fits_in_place(const rg_conv_rows_args *k)
{
    return k->depth % RG_PAIR_DEPTH == 0 ||
           (k->column.taps == 1 && k->depth % rg_pair_unit_best()->step == 0);
}

/* As take_inputs; non-finite inputs also count where they are read beyond the end of a run. Returns
 * how many rows are summed together. */
RG_OUTLINE int64_t take_pair_inputs(const rg_conv_rows_args *k, conv_block *b, char *scratch)
{
    const rg_conv_window_axis *row = &k->row, *column = &k->column;
    const bool phases = row->phases * column->phases > 1;
    const bool borders = !k->inside || (k->rows_per_pass > 1 && !rg_conv_is_inside(row));
    const int64_t first = b->row * row->stride + row->first;
    b->has_nonfinite = (phases || borders) &&
                       has_nonfinite_weights(k, b, row->taps * k->pair_steps.row * RG_PANEL / 2);
    if (k->from_step[3] == 1 && k->inside && !phases && fits_in_place(k)) {
        b->in_place = true;
        b->in_row = k->from_step[1];
        b->in_pixel = k->from_step[2];
        b->in = (const uint16_t *)k->conv.from +
                input_offset(k, b, first, b->column * column->stride + column->first);
        return 1;
    }
    uint16_t *in = (uint16_t *)(void *)scratch;
    const int64_t count = rg_conv_span(column, b->columns), rows = rg_conv_span(row, b->rows);
    const bool beyond =
        rg_conv_is_joined(k) && column->taps * k->pair_steps.pixel != k->pair_steps.row;
    b->in_pixel = k->pixel;
    b->in_row = count * k->pixel;
    b->in = in;
    for (int64_t i = 0; i < rows; i++, in += b->in_row) {
        copy_pair_inputs(k, b, first + i, in, count);
        b->has_nonfinite |= (phases || beyond) && has_nonfinite_bits(in, b->in_row);
    }
    memset(in, 0, RG_PAIR_DEPTH * sizeof *in);
    return k->rows_per_pass;
}

RG_INLINE void find_pair_runs(const rg_conv_rows_args *k, const conv_block *b, conv_runs *runs)
{
    const rg_conv_window_axis *row = &k->row, *column = &k->column;
    const int64_t pixel = k->pair_steps.pixel;
    const bool joined = k->pair_steps.tap == pixel && column->step * b->in_pixel == pixel;
    int64_t n = 0;
    runs->columns = joined ? 1 : column->taps;
    for (int64_t p = 0; p < row->taps; p++)
        for (int64_t q = 0; q < runs->columns; q++)
            runs->run[n++] = (rg_k_run){ p * row->step * b->in_row + q * column->step * b->in_pixel,
                                         (p * k->pair_steps.row + q * k->pair_steps.tap) * RG_PANEL,
                                         ((joined ? column->taps : 1) * pixel + 1) / 2 * 2 };
}

/* A tap of one pixel, whose weights begin with element `first` of a panel: pairs are taken apart.
 */
RG_INLINE void add_pair_tap(const uint16_t *a, const uint16_t *panel, int64_t first, int64_t depth,
                            vreal sums[2])
{
    for (int64_t i = 0; i < depth; i++) {
        const vreal left = vset(rg_float_of_bf16(a[i]));
        const int64_t at = first + i;
        for (int v = 0; v < 2; v++) {
            vuint words;
            memcpy(&words, panel + at / 2 * 2 * RG_PANEL + v * 2 * VLEN, sizeof words);
            const vuint right = at % 2 == 0 ? words << 16 : words >> 16 << 16;
            sums[v] = vfma(left, (vreal)right, sums[v]);
        }
    }
}

RG_OUTLINE void sum_one_output(const rg_conv_rows_args *k, const conv_block *b, const void *panel,
                               int64_t r, int64_t j, int64_t phase, real *to)
{
    const rg_conv_window_axis *row = &k->row, *column = &k->column;
    const uint16_t *in =
        (const uint16_t *)b->in + r * row->stride * b->in_row + j * column->stride * b->in_pixel;
    vreal sums[2] = { vset(0), vset(0) };
    int64_t p0, p1, q0, q1;
    taps_of(row, b->row + r, phase / column->phases, &p0, &p1);
    taps_of(column, b->column + j, phase % column->phases, &q0, &q1);
    for (int64_t p = p0; p < p1; p++)
        for (int64_t q = q0; q < q1; q++)
            add_pair_tap(in + p * row->step * b->in_row + q * column->step * b->in_pixel, panel,
                         p * k->pair_steps.row + q * k->pair_steps.tap, k->depth, sums);
    memcpy(to, sums, sizeof sums);
}

/* Whether the unit itself makes results of a row of a block. */
RG_INLINE bool ends_in_unit(const rg_conv_rows_args *k, const conv_block *b, const rows_epilogue *e,
                            const rg_pair_tile *tile)
{
    return rg_pair_unit_best()->ends && !b->has_nonfinite && is_bf16_end(k, e) &&
           k->row.phases * k->column.phases == 1 &&
           rg_run_sum(tile->runs, tile->run_count) <= RG_SUM_BLOCK;
}

/* Panel n for `flat` rows of a block from r on, or for those that are left. All taps of several
 * rows: those beyond the image are 0. */
RG_OUTLINE void sum_pair_rows(const rg_conv_rows_args *k, const conv_block *b,
                              const conv_runs *runs, rows_epilogue *e, real *sums, int64_t r,
                              int64_t flat, int64_t n)
{
    const rg_conv_window_axis *row = &k->row, *column = &k->column;
    const int64_t results = least(RG_PANEL, row->phases * column->phases * k->width - n * RG_PANEL);
    const int64_t size = row->taps * k->pair_steps.row * RG_PANEL, rows = least(flat, b->rows - r);
    const int64_t pitch = flat > 1 ? b->in_row / b->in_pixel : b->columns;
    const uint16_t *panel = (const uint16_t *)k->conv.w + (b->group * k->panel_count + n) * size;
    int64_t p0 = 0, p1 = row->taps;
    if (flat == 1)
        taps_inside(row, b->row + r, &p0, &p1);
    rg_pair_tile tile = { .a = (const uint16_t *)b->in + r * row->stride * b->in_row,
                          .b = panel,
                          .c = sums,
                          .runs = runs->run + p0 * runs->columns,
                          .run_count = (p1 - p0) * runs->columns,
                          .a_step = column->stride * b->in_pixel,
                          .c_step = RG_PANEL,
                          .fetches = b->in_place };
    if (flat == 1 && ends_in_unit(k, b, e, &tile)) {
        const rows_run run = phase_run(k, e, b, r, begin_panel(k, e, b, n, RG_BF16), 0, sums);
        const rg_bf16_results ends = bf16_results_of(k, e, &run);
        tile.results = &ends;
        rg_pair_unit_best()->rows(&tile, run.count, results);
        return;
    }
    if (!b->has_nonfinite) /* blocks are runs enough for results in bf16 */
        rg_pair_rows(rg_pair_unit_best(), &tile, (rows - 1) * pitch + b->columns, results,
                     RG_SUM_BLOCK);
    for (int64_t i = 0; i < rows; i++, sums += pitch * RG_PANEL) {
        if (b->has_nonfinite)
            sum_own_taps(sum_one_output, k, b, panel, r + i, sums);
        end_sums(k, e, b, r + i, n, sums, RG_BF16);
    }
}

RG_OUTLINE void pair_rows_block(const rg_conv_rows_args *k, int64_t unit)
{
    conv_block b = block_of(k, unit);
    char *const scratch = (char *)k->conv.scratch + rg_thread_pool_index() * k->scratch_bytes;
    real *const sums = (real *)(void *)(scratch + k->in_bytes);
    conv_runs runs;
    rows_epilogue e = { .all = epilogue_of(&k->conv) };
    const int64_t flat = take_pair_inputs(k, &b, scratch);
    find_pair_runs(k, &b, &runs);
    const int64_t groups = (b.rows + flat - 1) / flat;
    const int64_t outer = k->by_row ? groups : k->panel_count;
    const int64_t inner = k->by_row ? k->panel_count : groups;
    for (int64_t i = 0; i < outer; i++)
        for (int64_t j = 0; j < inner; j++)
            sum_pair_rows(k, &b, &runs, &e, sums, (k->by_row ? i : j) * flat, flat,
                          k->by_row ? j : i);
}

RG_INLINE void pair_rows(const rg_conv_rows_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    for (int64_t unit = begin; unit < end; unit++)
        pair_rows_block(k, unit);
    (void)T;
}

RG_PAIR_KERNEL(pair_pack, rg_conv_pack_args)
RG_PAIR_KERNEL(pair_rows, rg_conv_rows_args)

#endif

RG_CPU_TABLE(conv_pair_rows, RG_CONV_KERNELS) = {
#if RG_USES_PAIRS
    [RG_CONV_PAIR_PACK] = RG_PAIR_ROW(pair_pack),
    [RG_CONV_PAIR_ROWS] = RG_PAIR_ROW(pair_rows),
#endif
};
