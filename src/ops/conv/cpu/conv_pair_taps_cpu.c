/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Gradients of weights for bf16 of images of few channels, see conv_cpu.h. */
#include "backend/cpu/long_sum_cpu.h"
#include "backend/cpu/thread_pool.h"
#include "ops/contract/contract.h"
#include "ops/conv/cpu/conv_pair_operands_cpu.h"

#if RG_USES_PAIRS

/* A slice of a group, and the block of it that is in scratch. */
typedef struct taps_unit {
    int64_t group, image, row, rows;
    uint16_t *x, *y, *bits; /* words of x, panels of dy, a row of x */
    real *sums;
    bool add, add_totals;   /* to old values */
    int64_t count;          /* elements of k since a block of core/long_sum.h began */
    rg_pair_ahead ahead[2]; /* x and dy of the next block */
} taps_unit;

/* ---- operands ---- */

/* Row r of the image, from the first pixel of a window on, with zeros around. */
RG_OUTLINE void take_bits(const rg_conv_pair_taps_args *k, const taps_unit *u, int64_t r)
{
    const rg_conv_shape *s = &k->shape;
    const int64_t count = (k->columns - 1) * s->column.stride + s->column.window;
    const int64_t begin = s->column.before > 0 ? least(s->column.before, count) : 0;
    const int64_t end = least(count, s->column.size + s->column.before);
    const uint16_t *const x = (const uint16_t *)k->x + u->image * s->x[0] + r * s->x[1] +
                              u->group * s->in * s->x[3] - s->column.before * s->x[2];
    memset(u->bits, 0, (size_t)(k->x_row + s->column.stride * s->in) * sizeof *x);
    if (s->x[2] == s->in && s->x[3] == 1 && begin < end)
        memcpy(u->bits + begin * s->in, x + begin * s->x[2],
               (size_t)((end - begin) * s->in) * sizeof *x);
    for (int64_t i = begin; (s->x[2] != s->in || s->x[3] != 1) && i < end; i++)
        for (int64_t c = 0; c < s->in; c++)
            u->bits[i * s->in + c] = x[i * s->x[2] + c * s->x[3]];
}

/* Words of the rows of x that a block reads. Returns whether a number is not finite. */
RG_OUTLINE bool take_x(const rg_conv_pair_taps_args *k, const taps_unit *u)
{
    const rg_conv_shape *s = &k->shape;
    const rg_conv_axis *row = &s->row;
    const int64_t first = u->row * row->stride - row->before, step = s->column.stride * s->in;
    const int64_t last = first + (u->rows - 1) * row->stride + (row->window - 1) * row->dilation;
    bool nonfinite = false;
    for (int64_t r = first > 0 ? first : 0; r <= least(last, row->size - 1); r++) {
        uint16_t *const to = u->x + 2 * (r - first) * k->x_row;
        take_bits(k, u, r);
        nonfinite |= has_nonfinite_bits(u->bits, k->x_row + step);
        for (int64_t i = 0; i < k->x_row; i += VLEN)
            vstore_full(to, i, RG_REAL, pair_words(u->bits + i, u->bits + i + step, 0));
    }
    return nonfinite;
}

/* Panels of dy, rows without a gap; of an odd number of columns, a zero follows. */
RG_OUTLINE bool take_y(const rg_conv_pair_taps_args *k, const taps_unit *u)
{
    const rg_conv_shape *s = &k->shape;
    const int64_t step = s->y[3], panel = k->rows * k->columns * RG_PANEL;
    const uint16_t *y =
        (const uint16_t *)k->dy + u->image * s->y[0] + u->row * s->y[1] + u->group * s->out * step;
    for (int64_t i = 0; i < u->rows; i++, y += s->y[1]) {
        for (int64_t j = 0; j < k->columns; j += 2) {
            const uint16_t *const low = y + j * s->y[2];
            const bool has_high = j + 1 < s->column.count;
            uint16_t *to = u->y + (i * k->columns + j) * RG_PANEL;
            for (int64_t c = 0; c < s->out; c += RG_PANEL, to += panel)
                put_pair(to, low + c * step, has_high ? low + s->y[2] + c * step : no_pixel, step,
                         has_high ? step : 0, least(RG_PANEL, s->out - c), step == 1);
        }
    }
    bool nonfinite = false;
    for (int64_t n = 0; n < k->panels; n++)
        nonfinite |= has_nonfinite_bits(u->y + n * panel, u->rows * k->columns * RG_PANEL);
    return nonfinite;
}

/* ---- sums ---- */

enum { MOST_RUNS = RG_SUM_RUN / 2 };

/* Pieces of rows of windows: at most one run of a sum. */
typedef struct taps_runs {
    int64_t row[MOST_RUNS], first[MOST_RUNS], size[MOST_RUNS]; /* row: of the block */
    int64_t count, sum;
} taps_runs;

/* Those of tap row p that lie in the image. */
RG_INLINE int64_t runs_of_taps(const rg_conv_pair_taps_args *k, const taps_unit *u,
                               const taps_runs *runs, int64_t p, rg_k_run to[MOST_RUNS])
{
    const rg_conv_shape *s = &k->shape;
    int64_t begin, end, n = 0;
    rg_conv_windows(&s->row, p, &begin, &end);
    for (int64_t i = 0; i < runs->count; i++) {
        const int64_t row = runs->row[i], first = runs->first[i];
        const int64_t x_row = row * s->row.stride + p * s->row.dilation;
        if (u->row + row >= begin && u->row + row < end)
            to[n++] = (rg_k_run){ 2 * (x_row * k->x_row + first * s->column.stride * s->in),
                                  (row * k->columns + first) * RG_PANEL, runs->size[i] };
    }
    return n;
}

/* The sums go to the totals. */
RG_OUTLINE void end_taps(const rg_conv_pair_taps_args *k, taps_unit *u)
{
    double *const totals = totals_of(k->partials, u->sums, k->sums.slices * k->sums.slice_step);
    add_to_totals(totals, u->sums, k->sums.group_step, !u->add_totals);
    memset(u->sums, 0, (size_t)k->sums.group_step * sizeof(real));
    u->add_totals = true;
    u->count = 0;
}

/* Additions of so many elements of k. */
RG_INLINE void count_elements(const rg_conv_pair_taps_args *k, taps_unit *u, int64_t count)
{
    u->count += count > RG_CONV_MIN_WINDOWS ? count : RG_CONV_MIN_WINDOWS;
    if (k->sums.has_totals && u->count >= RG_SUM_BLOCK)
        end_taps(k, u);
}

/* All taps over some runs: a row of taps is the rows of a tile. */
RG_OUTLINE void add_taps(const rg_conv_pair_taps_args *k, taps_unit *u, taps_runs *runs)
{
    const rg_conv_shape *s = &k->shape;
    const int64_t panel = k->rows * k->columns * RG_PANEL;
    rg_k_run run[MOST_RUNS];
    for (int64_t p = 0; p < s->row.window; p++) {
        const int64_t count = runs_of_taps(k, u, runs, p, run);
        for (int64_t n = 0; n < k->panels; n++) {
            const bool has_x = u->ahead[0].next >= u->ahead[0].end;
            const rg_pair_tile tile = { .a = u->x,
                                        .b = u->y + n * panel,
                                        .c = u->sums + p * s->column.window * k->sums.tap_step +
                                             n * RG_PANEL,
                                        .runs = run,
                                        .run_count = count,
                                        .a_step = 2,
                                        .a_gap = 4 * s->column.stride * s->in - 2,
                                        .c_step = k->sums.in_step,
                                        .add = u->add,
                                        .ahead = &u->ahead[has_x] };
            rg_pair_unit_best()->rows(&tile, s->column.window * s->in,
                                      least(RG_PANEL, s->out - n * RG_PANEL));
        }
    }
    u->add = true;
    runs->count = 0;
    count_elements(k, u, runs->sum);
    runs->sum = 0;
}

RG_OUTLINE void sum_taps(const rg_conv_pair_taps_args *k, taps_unit *u)
{
    taps_runs runs = { .count = 0, .sum = 0 };
    for (int64_t i = 0; i < u->rows; i++) {
        for (int64_t first = 0; first < k->columns; first += RG_SUM_RUN) {
            const int64_t size = least(RG_SUM_RUN, k->columns - first);
            if (runs.sum + size > RG_SUM_RUN)
                add_taps(k, u, &runs);
            runs.row[runs.count] = i;
            runs.first[runs.count] = first;
            runs.size[runs.count++] = size;
            runs.sum += size;
        }
    }
    add_taps(k, u, &runs);
}

/* A channel of x by a panel of channels of windows begin <= j < end of a row. */
RG_OUTLINE void add_tap_pixels(const rg_conv_pair_taps_args *k, const uint16_t *x,
                               const uint16_t *dy, int64_t begin, int64_t end, int64_t width,
                               real *sums)
{
    const rg_conv_shape *s = &k->shape;
    real right[RG_PANEL + VLEN] = { 0 }, run[RG_PANEL] = { 0 };
    for (int64_t j = begin; j < end; j++) {
        const real left = rg_float_of_bf16(x[j * s->column.stride * s->x[2]]);
        contract_load(right, 1, dy, j * s->y[2], s->y[3], width, RG_BF16);
        for (int64_t o = 0; o < width; o++)
            run[o] += left * right[o];
    }
    for (int64_t o = 0; o < width; o++)
        sums[o] += run[o];
}

/* A tap over a row of windows. */
RG_OUTLINE void add_tap_row(const rg_conv_pair_taps_args *k, const taps_unit *u, int64_t i,
                            int64_t p, int64_t q)
{
    const rg_conv_shape *s = &k->shape;
    const int64_t row = i * s->row.stride - s->row.before + p * s->row.dilation;
    const uint16_t *const x = (const uint16_t *)k->x + u->image * s->x[0] + row * s->x[1] +
                              (q - s->column.before) * s->x[2] + u->group * s->in * s->x[3];
    const uint16_t *const y =
        (const uint16_t *)k->dy + u->image * s->y[0] + i * s->y[1] + u->group * s->out * s->y[3];
    real *const sums = u->sums + (p * s->column.window + q) * k->sums.tap_step;
    int64_t begin, end;
    rg_conv_windows(&s->column, q, &begin, &end);
    for (int64_t c = 0; c < s->in; c++)
        for (int64_t o = 0; o < s->out; o += RG_PANEL)
            for (int64_t j = begin; j < end; j += RG_SUM_RUN)
                add_tap_pixels(k, x + c * s->x[3], y + o * s->y[3], j, least(j + RG_SUM_RUN, end),
                               least(RG_PANEL, s->out - o), sums + c * k->sums.in_step + o);
}

/* A block in which a number is infinite or NaN: taps in the image alone. */
RG_OUTLINE void sum_own_pixels(const rg_conv_pair_taps_args *k, taps_unit *u)
{
    const rg_conv_shape *s = &k->shape;
    taps_runs none = { .count = 0, .sum = 0 };
    if (!u->add)
        add_taps(k, u, &none);
    for (int64_t p = 0; p < s->row.window; p++) {
        int64_t begin, end;
        rg_conv_windows(&s->row, p, &begin, &end);
        for (int64_t i = begin > u->row ? begin : u->row; i < least(end, u->row + u->rows); i++)
            for (int64_t q = 0; q < s->column.window; q++)
                add_tap_row(k, u, i, p, q);
    }
    count_elements(k, u, u->rows * k->columns);
}

/* What follows a block of an image in memory, as much as it has. */
RG_INLINE void look_ahead(const rg_conv_pair_taps_args *k, taps_unit *u)
{
    const rg_conv_shape *s = &k->shape;
    const int64_t row = (u->row + u->rows - 1) * s->row.stride - s->row.before +
                        (s->row.window - 1) * s->row.dilation + 1;
    const uint16_t *const x = (const uint16_t *)k->x + u->image * s->x[0] + row * s->x[1];
    const uint16_t *const y =
        (const uint16_t *)k->dy + u->image * s->y[0] + (u->row + u->rows) * s->y[1];
    const int64_t x_count = s->groups == 1 && s->x[3] == 1 ? k->rows * s->row.stride * s->x[1] : 0;
    const int64_t y_count = s->groups == 1 && s->y[3] == 1 ? k->rows * s->y[1] : 0;
    u->ahead[0] = (rg_pair_ahead){ (const char *)x, (const char *)(x + x_count) };
    u->ahead[1] = (rg_pair_ahead){ (const char *)y, (const char *)(y + y_count) };
}

RG_OUTLINE void sum_taps_block(const rg_conv_pair_taps_args *k, taps_unit *u, int64_t block)
{
    const rg_conv_shape *s = &k->shape;
    u->image = block / k->blocks;
    u->row = block % k->blocks * k->rows;
    u->rows = least(k->rows, s->row.count - u->row);
    look_ahead(k, u);
    const bool x_nonfinite = take_x(k, u), y_nonfinite = take_y(k, u);
    if (x_nonfinite || y_nonfinite)
        sum_own_pixels(k, u);
    else
        sum_taps(k, u);
}

RG_INLINE void pair_taps(const rg_conv_pair_taps_args *k, int64_t begin, int64_t end,
                         const rg_dtype T)
{
    const rg_conv_shape *s = &k->shape;
    char *const scratch = k->scratch + rg_thread_pool_index() * k->scratch_bytes;
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t slice = unit / s->groups;
        taps_unit u = { .group = unit % s->groups,
                        .x = (uint16_t *)(void *)scratch,
                        .y = (uint16_t *)(void *)(scratch + k->x_bytes),
                        .bits = (uint16_t *)(void *)(scratch + k->x_bytes + k->y_bytes) };
        u.sums = (real *)k->partials + slice * k->sums.slice_step + u.group * k->sums.group_step;
        const int64_t first = slice * k->slice_blocks;
        const int64_t last = least(first + k->slice_blocks, s->images * k->blocks);
        for (int64_t block = first; block < last; block++)
            sum_taps_block(k, &u, block);
        if (k->sums.has_totals)
            end_taps(k, &u);
    }
    (void)T;
}

RG_PAIR_KERNEL(pair_taps, rg_conv_pair_taps_args)

#endif

RG_CPU_TABLE(conv_pair_taps, RG_CONV_KERNELS) = {
#if RG_USES_PAIRS
    [RG_CONV_PAIR_TAPS] = RG_PAIR_ROW(pair_taps),
#endif
};
