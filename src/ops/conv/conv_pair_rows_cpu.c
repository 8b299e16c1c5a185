/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Convolution of bf16 in pairs, forward and backward data: kernels for processors that multiply
 * pairs, see conv_panels.h. Where an infinity or NaN would be multiplied by a 0 of the padding,
 * sums are made one by one. */
#include "backend/cpu/thread_pool.h"
#include "ops/contract/contract_pairs_cpu.h"
#include "ops/conv/conv_rows_cpu.h"

#if RG_USES_PAIRS

/* ---- weights as panels ---- */

/* As pack_phases. */
RG_OUTLINE void pack_pair_phases(const rg_conv_pack_args *k, uint16_t *panel, int64_t group,
                                 int64_t p, int64_t q)
{
    for (int64_t phase = 0; phase < k->row.phases * k->column.phases; phase++) {
        const int64_t row = k->row.w_first + phase / k->column.phases - p * k->row.w_step;
        const int64_t column = k->column.w_first + phase % k->column.phases - q * k->column.w_step;
        if (row < 0 || row >= k->row.window || column < 0 || column >= k->column.window)
            continue;
        const uint16_t *w = (const uint16_t *)k->w + k->w_offset + group * k->w_step[0] +
                            row * k->w_step[2] + column * k->w_step[3];
        for (int64_t c = 0; c < k->width; c++)
            pack_pairs(panel + 2 * (phase * k->width + c), w + c * k->w_step[1], 1, 1, k->w_step[4],
                       k->depth);
    }
}

/* A tap, and the zeros up to the next one. */
RG_OUTLINE void pack_pair_tap(const rg_conv_pack_args *k, int64_t unit)
{
    const int64_t taps = k->row.taps * k->column.taps, tap = unit % taps;
    const int64_t n = unit / taps % k->panel_count, group = unit / taps / k->panel_count;
    const int64_t p = tap / k->column.taps, q = tap % k->column.taps;
    const int64_t size = k->row.taps * k->depths.row * RG_PANEL; /* of a panel */
    const int64_t first = q * k->depths.tap;
    const int64_t end = q == k->column.taps - 1 ? k->depths.row : first + k->depths.tap;
    uint16_t *const panel = (uint16_t *)k->panels + (group * k->panel_count + n) * size +
                            (p * k->depths.row + first) * RG_PANEL;
    memset(panel, 0, (size_t)((end - first) * RG_PANEL) * sizeof *panel);
    if (k->row.phases * k->column.phases > 1) {
        pack_pair_phases(k, panel, group, p, q);
    } else {
        const int64_t row = k->row.w_first - p * k->row.w_step;
        const int64_t column = k->column.w_first - q * k->column.w_step;
        const int64_t w = k->w_offset + group * k->w_step[0] + n * RG_PANEL * k->w_step[1] +
                          row * k->w_step[2] + column * k->w_step[3];
        pack_pairs(panel, (const uint16_t *)k->w + w, k->w_step[1],
                   least(RG_PANEL, k->width - n * RG_PANEL), k->w_step[4], k->depth);
    }
    float *const flags = (float *)k->panels + k->units / taps * size / 2;
    flags[unit] = has_nonfinite_bits(panel, k->depths.pixel * RG_PANEL);
}

RG_INLINE void pair_pack(const rg_conv_pack_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    for (int64_t unit = begin; unit < end; unit++)
        pack_pair_tap(k, unit);
    (void)T;
}

/* ---- rows of results ---- */

typedef struct pair_block {
    conv_block at; /* its inputs are not real, but these: */
    const uint16_t *in;
    int64_t flat; /* rows that are summed together */
} pair_block;

/* One row of inputs; those beyond the image are 0. */
RG_OUTLINE void copy_pair_inputs(const rg_conv_rows_args *k, const conv_block *b, int64_t row,
                                 uint16_t *to, int64_t count)
{
    const int64_t first = b->column * k->column.stride + k->column.first;
    const int64_t left = least(first < 0 ? -first : 0, count), depth = k->depth, pixel = k->pixel;
    int64_t end = row < 0 || row >= k->row.inputs ? 0 : least(k->column.inputs - first, count);
    end = end < left ? left : end;
    memset(to, 0, (size_t)(left * pixel) * sizeof *to);
    memset(to + end * pixel, 0, (size_t)((count - end) * pixel) * sizeof *to);
    if (end == left)
        return;
    const uint16_t *from = (const uint16_t *)k->from + k->from_offset + b->image * k->from_step[0] +
                           row * k->from_step[1] + (first + left) * k->from_step[2] +
                           b->group * depth * k->from_step[3];
    if (k->from_step[3] == 1 && k->from_step[2] == depth && pixel == depth) {
        memcpy(to + left * pixel, from, (size_t)((end - left) * depth) * sizeof *to);
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

/* As take_inputs; non-finite inputs also count where they are read beyond the end of a run. */
RG_OUTLINE void take_pair_inputs(const rg_conv_rows_args *k, pair_block *block, char *scratch)
{
    conv_block *const b = &block->at;
    const rg_conv_window_axis *row = &k->row, *column = &k->column;
    const bool phases = row->phases * column->phases > 1;
    const int64_t taps = row->taps * column->taps * k->panel_count;
    const int64_t size = row->taps * k->depths.row * RG_PANEL;
    const float *flags = (const float *)k->panels + k->groups * k->panel_count * size / 2;
    const bool borders = !k->inside || (block->flat > 1 && !rg_conv_is_inside(row));
    for (int64_t i = 0; i < taps; i++)
        b->has_nonfinite |= flags[b->group * taps + i] != 0 && (phases || borders);
    const int64_t first = b->row * row->stride + row->first;
    if (k->from_step[3] == 1 && k->inside && !phases && k->depth % RG_PAIR_DEPTH == 0) {
        b->in_row = k->from_step[1];
        b->in_pixel = k->from_step[2];
        block->flat = 1;
        block->in = (const uint16_t *)k->from + k->from_offset + b->image * k->from_step[0] +
                    first * b->in_row + (b->column * column->stride + column->first) * b->in_pixel +
                    b->group * k->depth;
        return;
    }
    uint16_t *in = (uint16_t *)(void *)scratch;
    const int64_t count = rg_conv_span(column, b->columns), rows = rg_conv_span(row, b->rows);
    const bool beyond = rg_conv_is_joined(k) && column->taps * k->depths.pixel != k->depths.row;
    b->in_pixel = k->pixel;
    b->in_row = count * k->pixel;
    block->in = in;
    for (int64_t i = 0; i < rows; i++, in += b->in_row) {
        copy_pair_inputs(k, b, first + i, in, count);
        b->has_nonfinite |= (phases || beyond) && has_nonfinite_bits(in, b->in_row);
    }
    memset(in, 0, RG_PAIR_DEPTH * sizeof *in);
}

RG_INLINE void find_pair_runs(const rg_conv_rows_args *k, const conv_block *b, conv_runs *runs)
{
    const rg_conv_window_axis *row = &k->row, *column = &k->column;
    const int64_t pixel = k->depths.pixel;
    const bool joined = k->depths.tap == pixel && column->step * b->in_pixel == pixel;
    int64_t n = 0;
    runs->columns = joined ? 1 : column->taps;
    for (int64_t p = 0; p < row->taps; p++)
        for (int64_t q = 0; q < runs->columns; q++)
            runs->run[n++] = (rg_k_run){ p * row->step * b->in_row + q * column->step * b->in_pixel,
                                         (p * k->depths.row + q * k->depths.tap) * RG_PANEL,
                                         (joined ? column->taps : 1) * pixel };
}

/* A tap of one pixel: pairs of weights are taken apart. */
RG_INLINE void add_pair_tap(const uint16_t *a, const uint16_t *b, int64_t depth, vreal sums[2])
{
    for (int64_t i = 0; i < depth; i++) {
        const vreal left = vset(rg_float_of_bf16(a[i]));
        for (int v = 0; v < 2; v++) {
            vuint words;
            memcpy(&words, b + i / 2 * 2 * RG_PANEL + v * 2 * VLEN, sizeof words);
            const vuint right = i % 2 == 0 ? words << 16 : words >> 16 << 16;
            sums[v] = vfma(left, (vreal)right, sums[v]);
        }
    }
}

/* One output of a phase, from those taps alone that it has. */
RG_OUTLINE void sum_pair_pixel(const rg_conv_rows_args *k, const pair_block *block,
                               const uint16_t *panel, int64_t r, int64_t j, int64_t phase, real *to)
{
    const conv_block *const b = &block->at;
    const rg_conv_window_axis *row = &k->row, *column = &k->column;
    const uint16_t *in = block->in + r * row->stride * b->in_row + j * column->stride * b->in_pixel;
    vreal sums[2] = { vset(0), vset(0) };
    int64_t p0, p1, q0, q1;
    taps_of(row, b->row + r, phase / column->phases, &p0, &p1);
    taps_of(column, b->column + j, phase % column->phases, &q0, &q1);
    for (int64_t p = p0; p < p1; p++)
        for (int64_t q = q0; q < q1; q++)
            add_pair_tap(in + p * row->step * b->in_row + q * column->step * b->in_pixel,
                         panel + (p * k->depths.row + q * k->depths.tap) * RG_PANEL, k->depth,
                         sums);
    memcpy(to, sums, sizeof sums);
}

RG_OUTLINE void sum_own_taps(const rg_conv_rows_args *k, const pair_block *b, const uint16_t *panel,
                             int64_t r, real *sums)
{
    real one[RG_PANEL];
    const int64_t phases = k->row.phases * k->column.phases;
    const int64_t width = phases > 1 ? k->width : RG_PANEL;
    for (int64_t j = 0; j < b->at.columns; j++) {
        for (int64_t phase = 0; phase < phases; phase++) {
            sum_pair_pixel(k, b, panel, r, j, phase, one);
            memcpy(sums + j * RG_PANEL + phase * width, one + phase * width,
                   (size_t)width * sizeof(real));
        }
    }
}

/* Panel n for `rows` rows of a block from r on. All taps of several rows: those beyond the image
 * are 0. */
RG_OUTLINE void sum_pair_rows(const rg_conv_rows_args *k, const pair_block *block,
                              const conv_runs *runs, conv_end *e, real *sums, int64_t r,
                              int64_t rows, int64_t n)
{
    const conv_block *const b = &block->at;
    const rg_conv_window_axis *row = &k->row, *column = &k->column;
    const int64_t results = least(RG_PANEL, row->phases * column->phases * k->width - n * RG_PANEL);
    const int64_t size = row->taps * k->depths.row * RG_PANEL;
    const int64_t pitch = block->flat > 1 ? b->in_row / b->in_pixel : b->columns;
    const uint16_t *panel = (const uint16_t *)k->panels + (b->group * k->panel_count + n) * size;
    int64_t p0 = 0, p1 = row->taps;
    if (block->flat == 1)
        taps_inside(row, b->row + r, &p0, &p1);
    const rg_pair_tile tile = { .a = block->in + r * row->stride * b->in_row,
                                .b = panel,
                                .c = sums,
                                .runs = runs->run + p0 * runs->columns,
                                .run_count = (p1 - p0) * runs->columns,
                                .a_step = column->stride * b->in_pixel,
                                .c_step = RG_PANEL };
    if (!b->has_nonfinite) /* blocks are runs enough for results in bf16 */
        rg_pair_rows(rg_pair_unit_best(), &tile, (rows - 1) * pitch + b->columns, results,
                     RG_SUM_BLOCK);
    for (int64_t i = 0; i < rows; i++, sums += pitch * RG_PANEL) {
        if (b->has_nonfinite)
            sum_own_taps(k, block, panel, r + i, sums);
        end_sums(k, e, b, r + i, n, sums, RG_BF16);
    }
}

RG_OUTLINE void pair_rows_block(const rg_conv_rows_args *k, int64_t unit)
{
    pair_block b = { .at = block_of(k, unit), .flat = k->flat };
    char *const scratch = k->thread_scratch + rg_thread_pool_index() * k->scratch_bytes;
    real *const sums = (real *)(void *)(scratch + k->in_bytes);
    conv_runs runs;
    conv_end e = { .constants = neuron_constants_of(&k->neuron.numbers) };
    take_pair_inputs(k, &b, scratch);
    find_pair_runs(k, &b.at, &runs);
    const int64_t groups = (b.at.rows + b.flat - 1) / b.flat;
    const int64_t outer = k->by_row ? groups : k->panel_count;
    const int64_t inner = k->by_row ? k->panel_count : groups;
    for (int64_t i = 0; i < outer; i++) {
        for (int64_t j = 0; j < inner; j++) {
            const int64_t r = (k->by_row ? i : j) * b.flat;
            sum_pair_rows(k, &b, &runs, &e, sums, r, least(b.flat, b.at.rows - r),
                          k->by_row ? j : i);
        }
    }
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
