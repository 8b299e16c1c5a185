/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Convolution by the contraction engine of the CPU: args, and how work is cut, by shape alone.
 *
 * Both directions between image and windows are sums over taps: an output takes the inputs
 *
 *      output * stride + first + t * step      of taps t
 *
 * on each axis. Forward these are the taps of a window. From windows to the image with stride s,
 * pixels fall into s phases, pixel % s, each of which meets its own taps: a launch each, or, where
 * channels are few, all phases side by side as channels of one output. */
#ifndef RG_OPS_CONV_PLAN_H
#define RG_OPS_CONV_PLAN_H

#include "core/integer.h"
#include "core/long_sum.h"
#include "ops/conv/conv.h"

enum {
    RG_CONV_LANES = 32,      /* channels of a panel of weights: RG_PANEL of the engine */
    RG_CONV_MOST_RUNS = 256, /* taps of a window, and rows of a block */
    RG_CONV_MOST_STRIDE = 16
};

/* One axis. Of tap t, phase r takes weight w_first + r - t w_step, if there is such a one. */
typedef struct rg_conv_window_axis {
    int64_t outputs, inputs;
    int64_t stride, first, step, taps;
    int64_t phases;            /* results that an output stands for: */
    int64_t to_first, to_step; /* to_first + output * to_step + phase, */
    int64_t to_size;           /* if it is less than this */
    int64_t w_first, w_step, window;
    int64_t block, blocks; /* outputs of a block, and how many blocks there are */
} rg_conv_window_axis;

/* Elements of k that a pixel, a tap, a row of taps have in a panel of pairs: for bf16 alone. */
typedef struct rg_conv_depth_pieces {
    int64_t pixel, tap, row;
} rg_conv_depth_pieces;

/* Weights as panels [group][panel][tap][depth][RG_CONV_LANES], then a word for each [group][panel]
 * [tap]: not 0 if a weight among them is infinite or NaN. A unit is one such tap. */
typedef struct rg_conv_pack_args {
    const void *w;
    void *panels;
    rg_conv_window_axis row, column;
    int64_t depth, width, panel_count, units;
    int64_t w_offset;
    int64_t w_step[5]; /* (group, channel of the result, row, column, channel summed over) */
    rg_conv_depth_pieces depths;
} rg_conv_pack_args;

/* A unit is a block of outputs of one image and group. */
typedef struct rg_conv_rows_args {
    const void *from, *panels, *b;
    void *to, *z;
    char *thread_scratch; /* scratch of all threads */
    rg_conv_window_axis row, column;
    int64_t images, groups;
    int64_t depth, width; /* channels of a group: summed over, and of the result */
    int64_t panel_count;
    int64_t from_step[4], to_step[4], z_step[4], b_step; /* (image, row, column, channel) */
    int64_t from_first;                                  /* element (0, 0, 0, 0) */
    int64_t pixel;                                       /* from pixel to pixel in scratch */
    int64_t scratch_bytes, in_bytes; /* bytes of a thread; those of a block of inputs come first */
    bool inside;                     /* no tap of a column lies outside the image */
    bool by_row;                     /* all panels for one row, not all rows for one panel */
    int64_t transposed; /* few results of a pixel: pixels side by side, so many of a row; or 0 */
    bool has_b, has_z, add, stream;
    rg_conv_neuron neuron;
    rg_conv_depth_pieces depths;
    int64_t flat; /* of pairs: rows of a block that are summed together */
} rg_conv_rows_args;

/* Sums over a slice of the images, as arrays of [slice][group]; a unit is a slice of a group and
 * some of its channels. In an array stand the weights of a channel of windows, taps side by side;
 * or, transposed, where channels of the image are few, the channels of windows of a weight. Where a
 * slice is longer than a block of core/long_sum.h, totals in double stand behind all arrays, in
 * the same order. */
typedef struct rg_conv_parts_args {
    const void *x, *dy;
    void *parts;
    char *thread_scratch;
    rg_conv_shape shape;
    int64_t slices;                                  /* of images */
    int64_t channels, splits;                        /* of windows in a unit; units of an array */
    int64_t rows;                                    /* of windows in a block */
    int64_t out_step, tap_step, in_step, group_step; /* in parts */
    int64_t columns;                                 /* of the image in scratch */
    int64_t scratch_bytes, y_bytes;                  /* bytes: in all, of dy */
    bool transposed;
    bool has_totals;
} rg_conv_parts_args;

/* dw = the sum of parts, or of their totals, slice after slice. A unit is one channel of windows.
 */
typedef struct rg_conv_join_args {
    const void *parts;
    void *dw;
    rg_conv_shape shape;
    int64_t slices, out_step, tap_step, in_step, group_step;
    bool has_totals, add;
} rg_conv_join_args;

/* ---- axes ---- */

static inline int64_t rg_conv_floor(int64_t a, int64_t b)
{
    return a >= 0 ? a / b : -((b - 1 - a) / b);
}

static inline rg_conv_window_axis rg_conv_forward_axis(const rg_conv_axis *a)
{
    return (rg_conv_window_axis){ .outputs = a->count,
                                  .inputs = a->size,
                                  .stride = a->stride,
                                  .first = -a->before,
                                  .step = a->dilation,
                                  .taps = a->window,
                                  .phases = 1,
                                  .to_step = 1,
                                  .to_size = a->count,
                                  .w_step = -1,
                                  .window = a->window };
}

/* Pixels r, r + stride, … from windows. */
static inline rg_conv_window_axis rg_conv_phase_axis(const rg_conv_axis *a, int64_t r)
{
    const int64_t s = a->stride, d = a->dilation;
    int64_t common = s, rest = d % s;
    while (rest != 0) {
        const int64_t next = common % rest;
        common = rest;
        rest = next;
    }
    int64_t last = a->window - 1; /* the tap that meets the first window */
    while (last >= 0 && (r + a->before - last * d) % s != 0)
        last--;
    return (rg_conv_window_axis){ .outputs = r < a->size ? rg_ceil_div(a->size - r, s) : 0,
                                  .inputs = a->count,
                                  .stride = 1,
                                  .first = last < 0 ? 0 : (r + a->before - last * d) / s,
                                  .step = d / common,
                                  .taps = last < 0 ? 0 : last / (s / common) + 1,
                                  .phases = 1,
                                  .to_first = r,
                                  .to_step = s,
                                  .to_size = a->size,
                                  .w_first = last,
                                  .w_step = s / common,
                                  .window = a->window };
}

/* All phases at once: taps that meet some of them. The dilation is 1. */
static inline rg_conv_window_axis rg_conv_phases_axis(const rg_conv_axis *a)
{
    const int64_t s = a->stride;
    const int64_t low = -rg_conv_floor(a->window - 1 - a->before, s);
    const int64_t high = rg_conv_floor(s - 1 + a->before, s);
    return (rg_conv_window_axis){ .outputs = rg_ceil_div(a->size, s),
                                  .inputs = a->count,
                                  .stride = 1,
                                  .first = low,
                                  .step = 1,
                                  .taps = high - low + 1,
                                  .phases = s,
                                  .to_step = s,
                                  .to_size = a->size,
                                  .w_first = a->before - low * s,
                                  .w_step = s,
                                  .window = a->window };
}

/* Inputs that `outputs` reach over. */
static inline int64_t rg_conv_span(const rg_conv_window_axis *r, int64_t outputs)
{
    return r->taps == 0 ? 0 : (outputs - 1) * r->stride + (r->taps - 1) * r->step + 1;
}

/* Single taps some pixels apart are pixels of another step. */
static inline void rg_conv_fold_stride(rg_conv_window_axis *r, int64_t *from_first,
                                       int64_t *from_step)
{
    if (r->taps != 1 || r->stride == 1)
        return;
    const int64_t first = rg_conv_floor(r->first, r->stride);
    const int64_t rest = r->first - first * r->stride;
    *from_first += rest * *from_step;
    *from_step *= r->stride;
    r->inputs = r->inputs > rest ? rg_ceil_div(r->inputs - rest, r->stride) : 0;
    r->first = first;
    r->stride = 1;
}

static inline bool rg_conv_is_inside(const rg_conv_window_axis *r)
{
    return r->taps == 0 || (r->first >= 0 && r->first + rg_conv_span(r, r->outputs) <= r->inputs);
}

/* Whether an output is the input of the same number. */
static inline bool rg_conv_is_plain(const rg_conv_window_axis *r)
{
    return r->taps == 1 && r->stride == 1 && r->first == 0 && r->inputs == r->outputs &&
           r->phases == 1 && r->to_step == 1 && r->to_first == 0;
}

/* A window of one pixel: rows, and images, join to one long row where memory allows. */
static inline void rg_conv_join_rows(rg_conv_rows_args *k)
{
    rg_conv_window_axis *row = &k->row, *column = &k->column;
    int64_t *const steps[3] = { k->from_step, k->to_step, k->z_step };
    if (!rg_conv_is_plain(row) || !rg_conv_is_plain(column))
        return;
    bool rows = true, images = true;
    for (int i = 0; i < 2 + k->has_z; i++)
        rows &= steps[i][1] == column->outputs * steps[i][2];
    if (!rows)
        return;
    column->outputs = column->inputs = column->to_size = row->outputs * column->outputs;
    row->outputs = row->inputs = row->to_size = 1;
    for (int i = 0; i < 2 + k->has_z; i++)
        images &= steps[i][0] == column->outputs * steps[i][2];
    if (!images)
        return;
    column->outputs = column->inputs = column->to_size = k->images * column->outputs;
    k->images = 1;
}

/* ---- blocks ---- */

/* Few results of a pixel would leave lanes of a panel empty. Its taps then meet pixels side by
 * side, a channel after the other; that they have to be transposed is soon paid by some taps. */
static inline bool rg_conv_suits_transposed(const rg_conv_rows_args *k)
{
    enum { MAX_RESULTS = 14, MIN_TAPS = 4, MIN_COLUMNS = 16 };
    return k->row.phases * k->column.phases * k->width <= MAX_RESULTS && k->column.stride == 1 &&
           k->row.taps * k->column.taps >= MIN_TAPS && k->column.outputs >= MIN_COLUMNS;
}

/* Blocks of outputs whose inputs stay in the second cache, and enough of them to share. */
static inline void rg_conv_cut_rows(rg_conv_rows_args *k, int64_t element)
{
    enum { WANTED_UNITS = 32, WHOLE = 128, PART = 112, HALF_L2_BYTES = 512 << 10, LANES = 16 };
    rg_conv_window_axis *row = &k->row, *column = &k->column;
    const int64_t lanes = k->panel_count * RG_CONV_LANES;
    const bool transposed = rg_conv_suits_transposed(k);
    k->by_row = row->taps * column->taps * k->depth * lanes * element <= HALF_L2_BYTES;
    const int64_t target = transposed  ? HALF_L2_BYTES
                           : k->by_row ? HALF_L2_BYTES / 4
                                       : HALF_L2_BYTES / 2;
    k->pixel = k->depth * element % 2048 == 0 ? k->depth + 16 : k->depth;
    column->block = column->outputs <= WHOLE ? column->outputs : PART;
    const int64_t pixel = k->pixel * element;
    while (column->block > 14 &&
           rg_conv_span(row, 1) * rg_conv_span(column, column->block) * pixel > 2 * target)
        column->block = rg_ceil_div(column->block / 2, 14) * 14;
    column->blocks = rg_ceil_div(column->outputs, column->block);
    const int64_t span = rg_conv_span(column, column->block);
    k->transposed = transposed ? rg_round_up(span, LANES) + LANES : 0;
    const int64_t flat = k->transposed * k->depth * element;
    const int64_t bytes = flat > span * pixel ? flat : span * pixel;
    int64_t rows = bytes == 0 ? row->outputs : target / bytes;
    rows = rows <= rg_conv_span(row, 1) ? 1 : (rows - rg_conv_span(row, 1)) / row->stride + 1;
    const int64_t most =
        rg_ceil_div(row->outputs * column->blocks * k->images * k->groups, WANTED_UNITS);
    rows = rows < most ? rows : most;
    row->block = rows < row->outputs ? rows : row->outputs;
    row->blocks = rg_ceil_div(row->outputs, row->block);
    k->in_bytes = rg_conv_span(row, row->block) * bytes;
    k->in_bytes = rg_round_up(k->in_bytes, 64);
    k->scratch_bytes = k->in_bytes + (column->block + 2) * RG_CONV_LANES * element +
                       k->transposed * LANES * element;
}

/* Whether `windows` windows of a slice, which has some images, make more than a block. */
static inline bool rg_conv_is_long(const rg_conv_shape *s, int64_t slices, int64_t windows)
{
    return (double)rg_ceil_div(s->images, slices) * (double)windows > RG_SUM_BLOCK;
}

/* Numbers in all parts, with their totals. */
static inline double rg_conv_parts_size(const rg_conv_shape *s, int64_t slices, int64_t group_step,
                                        bool has_totals, int64_t element)
{
    const double own = has_totals ? 1 + sizeof(double) / (double)element : 1;
    return (double)slices * (double)s->groups * (double)group_step * own;
}

/* Where weights stand in parts; channels of a unit. */
static inline void rg_conv_cut_parts(rg_conv_parts_args *k, int64_t element)
{
    enum { SLICE = 256 << 10, LANES = 16 };
    const rg_conv_shape *s = &k->shape;
    const int64_t taps = s->row.window * s->column.window;
    k->transposed = s->in % LANES != 0 && s->in < 3 * LANES;
    if (k->transposed) {
        k->out_step = 1;
        k->in_step = rg_round_up(s->out, LANES);
        k->tap_step = s->in * k->in_step;
        k->group_step = taps * k->tap_step;
        k->channels = s->out;
        k->splits = 1;
        return;
    }
    k->in_step = 1;
    k->tap_step = rg_round_up(s->in, LANES);
    k->out_step = taps * k->tap_step;
    k->group_step = s->out * k->out_step;
    int64_t splits = rg_ceil_div(s->out * k->out_step * element, SLICE);
    splits = splits < rg_ceil_div(s->out, 14) ? splits : rg_ceil_div(s->out, 14);
    k->channels = rg_ceil_div(s->out, splits);
    k->splits = rg_ceil_div(s->out, k->channels);
}

/* Slices of images, rows of a block. */
static inline void rg_conv_cut_weights(rg_conv_parts_args *k, int64_t element)
{
    enum { UNITS = 32, MOST_PARTS = 64 << 20, BLOCK = 320 << 10, LANES = 16 };
    const rg_conv_shape *s = &k->shape;
    const rg_conv_axis *row = &s->row, *column = &s->column;
    rg_conv_cut_parts(k, element);
    const int64_t whole = s->groups * k->group_step * element;
    int64_t slices = rg_ceil_div(UNITS, s->groups * k->splits);
    slices = slices * whole <= MOST_PARTS ? slices : rg_ceil_div(MOST_PARTS / 2, whole);
    k->slices = slices < s->images ? slices : s->images;
    k->has_totals = rg_conv_is_long(s, k->slices, row->count * column->count);
    k->columns = k->transposed ? (column->count - 1) * column->stride +
                                     (column->window - 1) * column->dilation + 1
                               : column->size;
    const int64_t pixels = k->columns * s->in + column->count * k->channels;
    int64_t rows = BLOCK / (pixels * element);
    rows = rows < 1 ? 1 : rows < RG_CONV_MOST_RUNS ? rows : RG_CONV_MOST_RUNS;
    k->rows = rows < row->count ? rows : row->count;
    const int64_t span = (k->rows - 1) * row->stride + (row->window - 1) * row->dilation + 1;
    const int64_t x_bytes = (span * k->columns * s->in + LANES) * element;
    k->y_bytes = (k->rows * column->count * k->channels + LANES) * element;
    k->y_bytes = rg_round_up(k->y_bytes, 64);
    k->scratch_bytes = k->y_bytes + rg_round_up(x_bytes, 64);
}

/* ---- what the engine is for ---- */

/* Not for single channels; and the numbers above must be of a reasonable size. */
static inline bool rg_conv_suits(const rg_conv_shape *s)
{
    const rg_conv_axis *const axes[2] = { &s->row, &s->column };
    bool fits = s->groups == 1 || s->in > 1;
    double scratch_elements = 8.0 * (double)(s->in > s->out ? s->in : s->out);
    for (int i = 0; i < 2; i++) {
        const rg_conv_axis *a = axes[i];
        fits &= a->size > 0 && a->count > 0 && a->window <= RG_CONV_MOST_RUNS;
        fits &= a->stride <= RG_CONV_MOST_STRIDE && a->dilation <= 1 << 20;
        scratch_elements *= (double)((a->window - 1) * a->dilation + 16 * a->stride);
    }
    const double wide = 16.0 * (double)(s->column.size + s->column.count) *
                        (double)((s->row.window - 1) * s->row.dilation + 1) *
                        (double)(s->in + s->out + s->column.window * s->in);
    return fits && s->images > 0 && s->row.window * s->column.window <= RG_CONV_MOST_RUNS &&
           scratch_elements <= 0x1p26 && wide <= 0x1p28;
}

/* Whether all phases go together: few channels, and as many lanes of a panel as they are. */
static inline bool rg_conv_joins_phases(const rg_conv_shape *s)
{
    const int64_t phases = s->row.stride * s->column.stride;
    return phases > 1 && s->row.dilation == 1 && s->column.dilation == 1 && s->in <= 8 &&
           phases * s->in <= RG_CONV_LANES;
}

#endif
