/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Convolution of bf16 in pairs: kernels for processors that multiply them, see conv_pairs_plan.h.
 * Where an infinity or NaN would meet a 0 that stands for nothing, sums are made one by one. */
#ifndef RG_OPS_CONV_PAIRS_CPU_H
#define RG_OPS_CONV_PAIRS_CPU_H

#include "backend/cpu/pairs.h"
#include "ops/conv/conv_contract.h"
#include "ops/conv/conv_pairs_plan.h"

#if RG_USES_PAIRS

#define RG_PAIR_KERNEL(name, args) RG_ENTRY(name, args, _bf16, RG_BF16)
#define RG_PAIR_ROW(name)           \
    {                               \
        {                           \
            [RG_BF16] = name##_bf16 \
        }                           \
    }

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
    flags[unit] = has_special_bits(panel, k->depths.pixel * RG_PANEL);
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
    const uint16_t *from = (const uint16_t *)k->from + k->from_first + b->image * k->from_step[0] +
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

/* As take_inputs. Care is also needed for inputs that are read beyond the end of a run. */
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
        block->in = (const uint16_t *)k->from + k->from_first + b->image * k->from_step[0] +
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
        b->has_nonfinite |= (phases || beyond) && has_special_bits(in, b->in_row);
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
            runs->run[n++] = (rg_run){ p * row->step * b->in_row + q * column->step * b->in_pixel,
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

RG_OUTLINE void sum_pairs_nonfinite(const rg_conv_rows_args *k, const pair_block *b,
                                    const uint16_t *panel, int64_t r, real *sums)
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
    const int64_t lanes = least(RG_PANEL, row->phases * column->phases * k->width - n * RG_PANEL);
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
        rg_pair_rows(rg_pair_unit_best(), &tile, (rows - 1) * pitch + b->columns, lanes,
                     RG_SUM_BLOCK);
    for (int64_t i = 0; i < rows; i++, sums += pitch * RG_PANEL) {
        if (b->has_nonfinite)
            sum_pairs_nonfinite(k, block, panel, r + i, sums);
        end_sums(k, e, b, r + i, n, sums, RG_BF16);
    }
}

RG_OUTLINE void pair_rows_block(const rg_conv_rows_args *k, int64_t unit)
{
    pair_block b = { .at = block_of(k, unit), .flat = k->flat };
    char *const scratch = k->lanes + rg_thread_pool_index() * k->scratch_bytes;
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

/* ---- weights: both sides ---- */

static const uint16_t no_pixel[2 * RG_PANEL] = { 0 };

/* Two pixels of `lanes` channels as pairs, neighbours where they are `dense`; further lanes are 0.
 */
RG_INLINE void put_pair(uint16_t *to, const uint16_t *low, const uint16_t *high, int64_t low_step,
                        int64_t high_step, int64_t lanes, bool dense)
{
    if (lanes == RG_PANEL && dense) {
        for (int v = 0; v < RG_PANEL; v += VLEN)
            vstore_full(to, v, RG_REAL, pair_words(low, high, v));
        return;
    }
    for (int64_t lane = 0; lane < RG_PANEL; lane++) {
        to[2 * lane] = lane < lanes ? low[lane * low_step] : 0;
        to[2 * lane + 1] = lane < lanes ? high[lane * high_step] : 0;
    }
}

/* Where the pixels of a plane are, row by row: `no_pixel` beyond the image. */
typedef struct plane_walk {
    const uint16_t *x;
    int64_t first;       /* column of the image where rows of the plane begin */
    int64_t row, column; /* of the image, of the next pixel */
    int64_t from;        /* x on, where there is such a row and column */
    int64_t left;        /* pixels of the row of the plane */
} plane_walk;

RG_INLINE void begin_row(const rg_conv_sides_args *k, plane_walk *at, int64_t row)
{
    at->row = row;
    at->column = at->first;
    at->from = row * k->shape.x[1] + at->first * k->shape.x[2];
    at->left = k->at.columns;
}

RG_INLINE const uint16_t *next_pixel(const rg_conv_sides_args *k, plane_walk *at)
{
    const rg_conv_shape *s = &k->shape;
    const bool there =
        at->row >= 0 && at->row < s->row.size && at->column >= 0 && at->column < s->column.size;
    const uint16_t *const pixel = there ? at->x + at->from : no_pixel;
    at->column += s->column.stride;
    at->from += s->column.stride * s->x[2];
    if (--at->left == 0)
        begin_row(k, at, at->row + s->row.stride);
    return pixel;
}

/* A plane in pairs, from its first pixel on, and, where asked for, from its second one on. */
RG_OUTLINE void put_pair_plane(const rg_conv_sides_args *k, uint16_t *to, plane_walk at,
                               int64_t lanes)
{
    const int64_t step = k->shape.x[3], end = k->at.x_plane;
    uint16_t *const second = to + end * RG_PANEL;
    const uint16_t *low = next_pixel(k, &at);
    for (int64_t i = 0; i < end; i++) {
        const uint16_t *const high = i + 1 < end ? next_pixel(k, &at) : no_pixel;
        if (i % 2 == 0 || k->at.starts == 2)
            put_pair((i % 2 == 0 ? to : second) + i / 2 * 2 * RG_PANEL, low, high,
                     low != no_pixel ? step : 0, high != no_pixel ? step : 0, lanes, step == 1);
        low = high;
    }
}

/* All planes of a panel of x. */
RG_OUTLINE bool put_pair_panel(const rg_conv_sides_args *k, uint16_t *to, const uint16_t *x,
                               int64_t lanes)
{
    const rg_conv_shape *s = &k->shape;
    const rg_conv_sides *at = &k->at;
    const int64_t size = at->x_plane * RG_PANEL;
    bool special = false;
    for (int64_t plane = 0; plane < at->down * at->across; plane++) {
        const int64_t row = plane / at->across * s->row.dilation % s->row.stride - s->row.before;
        const int64_t column =
            plane % at->across * s->column.dilation % s->column.stride - s->column.before;
        plane_walk walk = { .x = x, .first = column };
        begin_row(k, &walk, row);
        put_pair_plane(k, to, walk, lanes);
        special |= has_special_bits(to, size);
        to += at->starts * size;
    }
    return special;
}

/* RG_PAIR_DEPTH pixels of `lanes` channels, transposed. */
RG_INLINE void transpose_pixels(uint16_t *to, int64_t to_step, const uint16_t *const from[],
                                const int64_t step[], int64_t lanes, bool dense)
{
    int64_t lane = 0;
    for (; dense && lane + VLEN <= lanes; lane += VLEN) {
        vreal words[VLEN];
#pragma GCC unroll 16
        for (int i = 0; i < VLEN; i++)
            words[i] = pair_words(from[2 * i], from[2 * i + 1], lane);
        vturn(words);
#pragma GCC unroll 16
        for (int i = 0; i < VLEN; i++)
            memcpy(to + (lane + i) * to_step, &words[i], sizeof words[i]);
    }
    for (; lane < lanes; lane++)
        for (int i = 0; i < RG_PAIR_DEPTH; i++)
            to[lane * to_step + i] = from[i][lane * step[i]];
}

/* Lines of dy. */
RG_OUTLINE bool put_pair_lines(const rg_conv_sides_args *k, uint16_t *to, const uint16_t *dy,
                               int64_t lanes)
{
    const rg_conv_shape *s = &k->shape;
    const rg_conv_sides *at = &k->at;
    int64_t i = 0, j = 0;
    for (int64_t first = 0; first < at->y_line; first += RG_PAIR_DEPTH) {
        const uint16_t *from[RG_PAIR_DEPTH];
        int64_t step[RG_PAIR_DEPTH];
        for (int e = 0; e < RG_PAIR_DEPTH; e++) {
            const bool there = i < s->row.count && j < s->column.count;
            from[e] = there ? dy + i * s->y[1] + j * s->y[2] : no_pixel;
            step[e] = there ? s->y[3] : 0;
            if (++j == at->columns) {
                j = 0;
                i++;
            }
        }
        transpose_pixels(to + first, at->y_line, from, step, lanes, s->y[3] == 1);
    }
    return has_special_bits(to, lanes * at->y_line);
}

RG_OUTLINE void sides_unit(const rg_conv_sides_args *k, int64_t unit)
{
    const rg_conv_shape *s = &k->shape;
    const rg_conv_sides *at = &k->at;
    const int64_t parts = at->panels + at->lines, part = unit % parts;
    const int64_t which = unit / parts, group = which % s->groups; /* of all images */
    const int64_t image = k->image + which / s->groups, all = k->images * s->groups;
    uint16_t *const y = (uint16_t *)k->sides, *const x = y + all * at->y_group;
    float *const flags = (float *)k->sides + all * (at->y_group + at->x_group) / 2;
    if (part < at->panels) {
        const int64_t first = part * RG_PANEL;
        flags[unit] = put_pair_panel(k, x + which * at->x_group + part * (at->x_group / at->panels),
                                     (const uint16_t *)k->x + image * s->x[0] +
                                         (group * s->in + first) * s->x[3],
                                     least(RG_PANEL, s->in - first));
        return;
    }
    const int64_t first = (part - at->panels) * RG_PANEL;
    flags[unit] = put_pair_lines(k, y + which * at->y_group + first * at->y_line,
                                 (const uint16_t *)k->dy + image * s->y[0] +
                                     (group * s->out + first) * s->y[3],
                                 least(RG_PANEL, s->out - first));
}

RG_INLINE void pair_sides(const rg_conv_sides_args *k, int64_t begin, int64_t end, const rg_dtype T)
{
    for (int64_t unit = begin; unit < end; unit++)
        sides_unit(k, unit);
    (void)T;
}

/* ---- weights: units ---- */

/* Channels of windows by a panel of those of the image. */
typedef struct pair_unit {
    int64_t group, channel, channels, panel, lanes;
    const uint16_t *y, *x; /* of the first image */
    real *sums;            /* in parts, of the first tap and channel */
    bool add;              /* to what is there */
    bool add_totals;
    int64_t count; /* elements of k since a block began */
} pair_unit;

/* All taps, over some runs. */
RG_OUTLINE void add_pair_runs(const rg_conv_pair_parts_args *k, pair_unit *u, const rg_run *runs,
                              int64_t count)
{
    const rg_conv_shape *s = &k->shape;
    const rg_conv_sides *at = &k->at;
    for (int64_t tap = 0; tap < s->row.window * s->column.window; tap++) {
        const int64_t p = tap / s->column.window, q = tap % s->column.window;
        const int64_t shift = rg_conv_tap_step(&s->column, q), start = shift % 2;
        const int64_t plane = p % at->down * at->across + q % at->across;
        const int64_t first = rg_conv_tap_step(&s->row, p) * at->columns + shift - start;
        const rg_pair_tile tile = {
            .a = u->y,
            .b = u->x + ((plane * at->starts + start) * at->x_plane + first) * RG_PANEL,
            .c = u->sums + tap * k->tap_step,
            .runs = runs,
            .run_count = count,
            .a_step = at->y_line,
            .c_step = k->out_step,
            .add = u->add
        };
        rg_pair_unit_best()->rows(&tile, u->channels, u->lanes);
    }
    u->add = true;
}

/* A run of products of windows begin <= j < end, pixel by pixel. */
RG_OUTLINE void add_pair_pixels(const rg_conv_pair_parts_args *k, const pair_unit *u, int64_t y,
                                int64_t x, int64_t begin, int64_t end, real *sums)
{
    const rg_conv_shape *s = &k->shape;
    real left[RG_CONV_PAIR_CHANNELS], right[RG_PANEL] = { 0 };
    real run[RG_CONV_PAIR_CHANNELS * RG_PANEL] = { 0 };
    for (int64_t j = begin; j < end; j++) {
        contract_load(left, 1, k->dy, y + j * s->y[2], s->y[3], u->channels, RG_BF16);
        contract_load(right, 1, k->x, x + j * s->column.stride * s->x[2], s->x[3], u->lanes,
                      RG_BF16);
        for (int64_t o = 0; o < u->channels; o++)
            for (int64_t c = 0; c < u->lanes; c++)
                run[o * RG_PANEL + c] += left[o] * right[c];
    }
    for (int64_t o = 0; o < u->channels; o++)
        for (int64_t c = 0; c < u->lanes; c++)
            sums[o * k->out_step + c] += run[o * RG_PANEL + c];
}

/* All taps of an image in which a number is infinite or NaN. */
RG_OUTLINE void add_pair_image(const rg_conv_pair_parts_args *k, pair_unit *u, int64_t image)
{
    const rg_conv_shape *s = &k->shape;
    if (!u->add)
        add_pair_runs(k, u, &(const rg_run){ 0 }, 0);
    const int64_t y = image * s->y[0] + (u->group * s->out + u->channel) * s->y[3];
    const int64_t x = image * s->x[0] + (u->group * s->in + u->panel * RG_PANEL) * s->x[3];
    for (int64_t tap = 0; tap < s->row.window * s->column.window; tap++) {
        const int64_t p = tap / s->column.window, q = tap % s->column.window;
        int64_t i0, i1, j0, j1;
        rg_conv_windows(&s->row, p, &i0, &i1);
        rg_conv_windows(&s->column, q, &j0, &j1);
        for (int64_t i = i0; i < i1; i++) {
            const int64_t row = i * s->row.stride - s->row.before + p * s->row.dilation;
            const int64_t column = q * s->column.dilation - s->column.before;
            for (int64_t j = j0; j < j1; j += RG_SUM_RUN)
                add_pair_pixels(k, u, y + i * s->y[1], x + row * s->x[1] + column * s->x[2], j,
                                least(j + RG_SUM_RUN, j1), u->sums + tap * k->tap_step);
        }
    }
}

/* Whether an image of the launch has an infinity or NaN that the unit meets. */
RG_INLINE bool is_special(const rg_conv_pair_parts_args *k, const pair_unit *u, int64_t image)
{
    const rg_conv_sides *at = &k->at;
    const int64_t all = k->images * k->shape.groups, parts = at->panels + at->lines;
    const float *flags = (const float *)k->sides + all * (at->y_group + at->x_group) / 2 +
                         (image * k->shape.groups + u->group) * parts;
    bool special = flags[u->panel] != 0;
    for (int64_t c = u->channel; c < u->channel + u->channels; c += RG_PANEL)
        special |= flags[at->panels + c / RG_PANEL] != 0;
    return special;
}

/* The sums of a unit, which end a block, go to its totals. */
RG_OUTLINE void end_pair_block(const rg_conv_pair_parts_args *k, pair_unit *u)
{
    const rg_conv_shape *s = &k->shape;
    double *const totals = totals_of(k->parts, u->sums, k->slices, s->groups, k->group_step);
    for (int64_t o = 0; o < u->channels; o++) {
        for (int64_t tap = 0; tap < s->row.window * s->column.window; tap++) {
            const int64_t at = o * k->out_step + tap * k->tap_step;
            add_to_totals(totals + at, u->sums + at, u->lanes, !u->add_totals);
            memset(u->sums + at, 0, (size_t)u->lanes * sizeof(real));
        }
    }
    u->add_totals = true;
    u->count = 0;
}

/* Runs of the launch, and the end of a block where it is long. */
RG_INLINE void end_pair_runs(const rg_conv_pair_parts_args *k, pair_unit *u, const rg_run *runs,
                             int64_t n)
{
    add_pair_runs(k, u, runs, n);
    u->count += rg_run_sum(runs, n);
    if (k->has_totals && u->count >= RG_SUM_BLOCK)
        end_pair_block(k, u);
}

/* Images of the launch from `begin` to `end` - 1, some at a time. */
RG_OUTLINE void sum_pair_images(const rg_conv_pair_parts_args *k, pair_unit *u, int64_t begin,
                                int64_t end)
{
    enum { CHUNK = 2048, MOST_RUNS = CHUNK / RG_PAIR_DEPTH };
    const rg_conv_sides *at = &k->at;
    const int64_t groups = k->shape.groups, most = least(CHUNK, rg_pair_unit_best()->run);
    rg_run runs[MOST_RUNS];
    int64_t n = 0, sum = 0;
    for (int64_t image = begin; image < end; image++) {
        if (is_special(k, u, image)) {
            add_pair_image(k, u, k->image + image);
            continue;
        }
        for (int64_t first = 0; first < at->count; first += most) {
            const int64_t count = least(most, at->count - first);
            if (sum + count > most) {
                end_pair_runs(k, u, runs, n);
                n = sum = 0;
            }
            runs[n++] = (rg_run){ image * groups * at->y_group + first,
                                  image * groups * at->x_group + first * RG_PANEL, count };
            sum += count;
        }
    }
    if (n > 0 || !u->add)
        end_pair_runs(k, u, runs, n);
    if (k->ends_block)
        end_pair_block(k, u);
}

RG_OUTLINE void pair_parts_unit(const rg_conv_pair_parts_args *k, int64_t unit)
{
    const rg_conv_shape *s = &k->shape;
    const rg_conv_sides *at = &k->at;
    const int64_t slice = unit / k->splits / at->panels / s->groups;
    pair_unit u = { .group = unit / k->splits / at->panels % s->groups,
                    .panel = unit / k->splits % at->panels,
                    .channel = unit % k->splits * k->channels,
                    .add = k->add,
                    .add_totals = k->add_totals };
    u.channels = least(k->channels, s->out - u.channel);
    u.lanes = least(RG_PANEL, s->in - u.panel * RG_PANEL);
    u.y = (const uint16_t *)k->sides;
    u.x = u.y + k->images * s->groups * at->y_group + u.group * at->x_group +
          u.panel * (at->x_group / at->panels);
    u.y += u.group * at->y_group + u.channel * at->y_line;
    u.sums = (real *)k->parts + (slice * s->groups + u.group) * k->group_step +
             u.channel * k->out_step + u.panel * RG_PANEL;
    const int64_t images = least(k->images, s->images - k->image);
    sum_pair_images(k, &u, images * slice / k->slices, images * (slice + 1) / k->slices);
}

RG_INLINE void pair_parts(const rg_conv_pair_parts_args *k, int64_t begin, int64_t end,
                          const rg_dtype T)
{
    for (int64_t unit = begin; unit < end; unit++)
        pair_parts_unit(k, unit);
    (void)T;
}

RG_PAIR_KERNEL(pair_pack, rg_conv_pack_args)
RG_PAIR_KERNEL(pair_rows, rg_conv_rows_args)
RG_PAIR_KERNEL(pair_sides, rg_conv_sides_args)
RG_PAIR_KERNEL(pair_parts, rg_conv_pair_parts_args)

#endif
#endif
