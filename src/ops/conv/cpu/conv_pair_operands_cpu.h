/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* x and dy as pairs, for gradients of weights for bf16, see conv_cpu.h. */
#ifndef RG_OPS_CONV_PAIR_OPERANDS_CPU_H
#define RG_OPS_CONV_PAIR_OPERANDS_CPU_H

#include "ops/contract/contract_pairs_cpu.h"
#include "ops/conv/cpu/conv_cpu.h"

#if RG_USES_PAIRS

static const uint16_t no_pixel[2 * RG_PANEL] = { 0 };

enum { PIXELS_AHEAD = 16 }; /* that are fetched */

/* Two pixels of `width` channels as pairs, neighbours where they are `dense`; further channels are
 * 0.
 */
RG_INLINE void put_pair(uint16_t *to, const uint16_t *low, const uint16_t *high, int64_t low_step,
                        int64_t high_step, int64_t width, bool dense)
{
    if (width % VLEN == 0 && dense) {
        for (int v = 0; v < RG_PANEL; v += VLEN)
            vstore_full(to, v, RG_REAL, v < width ? pair_words(low, high, v) : vset(0));
        return;
    }
    for (int64_t c = 0; c < RG_PANEL; c++) {
        to[2 * c] = c < width ? low[c * low_step] : 0;
        to[2 * c + 1] = c < width ? high[c * high_step] : 0;
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

/* Rows of windows, of one image and group, whose operands are made together. */
typedef struct pair_rows {
    const uint16_t *x, *y; /* channel 0 of pixel 0 of the image */
    int64_t first, count;
} pair_rows;

RG_INLINE void begin_row(const rg_conv_pair_partials_args *k, plane_walk *at, int64_t row)
{
    at->row = row;
    at->column = at->first;
    at->from = row * k->shape.x[1] + at->first * k->shape.x[2];
    at->left = k->at.columns;
}

RG_INLINE const uint16_t *next_pixel(const rg_conv_pair_partials_args *k, plane_walk *at)
{
    const rg_conv_shape *s = &k->shape;
    const bool there =
        at->row >= 0 && at->row < s->row.size && at->column >= 0 && at->column < s->column.size;
    const uint16_t *const pixel = there ? at->x + at->from : no_pixel;
    if (there) /* channels of a panel are as far apart as pixels: not foreseen by the hardware */
        __builtin_prefetch(pixel + PIXELS_AHEAD * s->column.stride * s->x[2]);
    at->column += s->column.stride;
    at->from += s->column.stride * s->x[2];
    if (--at->left == 0)
        begin_row(k, at, at->row + s->row.stride);
    return pixel;
}

/* A plane of panels that are panel_step apart in pairs, from its first pixel on, and, where asked
 * for, from its second one on. */
RG_OUTLINE void put_pair_plane(const rg_conv_pair_partials_args *k, uint16_t *to, plane_walk at,
                               int64_t channels, int64_t panel_step)
{
    const int64_t step = k->shape.x[3], end = k->at.x_plane;
    uint16_t *const second = to + end * RG_PANEL;
    const uint16_t *low = next_pixel(k, &at);
    for (int64_t i = 0; i < end; i++) {
        const uint16_t *const high = i + 1 < end ? next_pixel(k, &at) : no_pixel;
        if (i % 2 == 0 || k->at.starts == 2) {
            const int64_t low_step = low != no_pixel ? step : 0;
            const int64_t high_step = high != no_pixel ? step : 0;
            uint16_t *pair = (i % 2 == 0 ? to : second) + i / 2 * 2 * RG_PANEL;
            for (int64_t c = 0; c < channels; c += RG_PANEL, pair += panel_step)
                put_pair(pair, low + (low_step != 0 ? c * step : 0),
                         high + (high_step != 0 ? c * step : 0), low_step, high_step,
                         least(RG_PANEL, channels - c), step == 1);
        }
        low = high;
    }
}

/* All planes of the panels of some channels of x. Returns whether a number is not finite. */
RG_OUTLINE bool put_pair_panels(const rg_conv_pair_partials_args *k, uint16_t *to,
                                const pair_rows *rows, int64_t channels)
{
    const rg_conv_shape *s = &k->shape;
    const rg_conv_pair_layout *at = &k->at;
    const int64_t size = at->x_plane * RG_PANEL, panel = at->x_group / at->panels;
    bool nonfinite = false;
    for (int64_t plane = 0; plane < at->down * at->across; plane++) {
        const int64_t row = plane / at->across * s->row.dilation % s->row.stride - s->row.before;
        const int64_t column =
            plane % at->across * s->column.dilation % s->column.stride - s->column.before;
        plane_walk walk = { .x = rows->x, .first = column };
        begin_row(k, &walk, row + rows->first * s->row.stride);
        put_pair_plane(k, to + plane * at->starts * size, walk, channels, panel);
    }
    for (int64_t c = 0; c < channels; c += RG_PANEL) /* a second start has the same numbers */
        for (int64_t plane = 0; plane < at->down * at->across; plane++)
            nonfinite |=
                has_nonfinite_bits(to + c / RG_PANEL * panel + plane * at->starts * size, size);
    return nonfinite;
}

/* RG_PAIR_DEPTH pixels of `width` channels, transposed. */
RG_INLINE void transpose_pixels(uint16_t *to, int64_t to_step, const uint16_t *const from[],
                                const int64_t step[], int64_t width, bool dense)
{
    int64_t c = 0;
    for (; dense && c + VLEN <= width; c += VLEN) {
        vreal words[VLEN];
#pragma GCC unroll 16
        for (int i = 0; i < VLEN; i++)
            words[i] = pair_words(from[2 * i], from[2 * i + 1], c);
        vtranspose(words);
#pragma GCC unroll 16
        for (int i = 0; i < VLEN; i++)
            memcpy(to + (c + i) * to_step, &words[i], sizeof words[i]);
    }
    for (; c < width; c++)
        for (int i = 0; i < RG_PAIR_DEPTH; i++)
            to[c * to_step + i] = from[i][c * step[i]];
}

/* Lines of dy whose columns are adjacent in memory. */
RG_OUTLINE void copy_pair_lines(const rg_conv_pair_partials_args *k, uint16_t *to,
                                const pair_rows *rows, int64_t width)
{
    const rg_conv_shape *s = &k->shape;
    const int64_t columns = k->at.columns, count = s->column.count, line = k->at.y_line;
    for (int64_t c = 0; c < width; c++, to += line) {
        const uint16_t *from = rows->y + c * s->y[3] + rows->first * s->y[1];
        for (int64_t i = 0; i < rows->count; i++, from += s->y[1]) {
            memcpy(to + i * columns, from, (size_t)count * sizeof *to);
            for (int64_t j = count; j < columns; j++)
                to[i * columns + j] = 0;
        }
        memset(to + rows->count * columns, 0, (size_t)(line - rows->count * columns) * sizeof *to);
    }
}

/* Lines of dy. Returns whether a number is not finite. */
RG_OUTLINE bool put_pair_lines(const rg_conv_pair_partials_args *k, uint16_t *to,
                               const pair_rows *rows, int64_t width)
{
    const rg_conv_shape *s = &k->shape;
    const rg_conv_pair_layout *at = &k->at;
    int64_t i = 0, j = 0;
    const bool copies = s->y[2] == 1 && s->y[3] != 1;
    if (copies)
        copy_pair_lines(k, to, rows, width);
    for (int64_t first = 0; !copies && first < at->y_line; first += RG_PAIR_DEPTH) {
        const uint16_t *from[RG_PAIR_DEPTH];
        int64_t step[RG_PAIR_DEPTH];
        for (int e = 0; e < RG_PAIR_DEPTH; e++) {
            const bool there = i < rows->count && j < s->column.count;
            from[e] = there ? rows->y + (rows->first + i) * s->y[1] + j * s->y[2] : no_pixel;
            step[e] = there ? s->y[3] : 0;
            if (there)
                __builtin_prefetch(from[e] + RG_PAIR_DEPTH * s->y[2]);
            if (++j == at->columns) {
                j = 0;
                i++;
            }
        }
        transpose_pixels(to + first, at->y_line, from, step, width, s->y[3] == 1);
    }
    return has_nonfinite_bits(to, width * at->y_line);
}

#endif
#endif
