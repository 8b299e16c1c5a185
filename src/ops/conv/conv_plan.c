/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Convolution by the contraction engine of the CPU: axes, blocks, and which shapes it is for. */
#include "ops/conv/conv_plan.h"
#include "core/integer.h"
#include "core/long_sum.h"

/* ---- axes ---- */

static int64_t floor_div(int64_t a, int64_t b)
{
    return a >= 0 ? a / b : -((b - 1 - a) / b);
}

rg_conv_window_axis rg_conv_forward_axis(const rg_conv_axis *a)
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

rg_conv_window_axis rg_conv_phase_axis(const rg_conv_axis *a, int64_t r)
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

rg_conv_window_axis rg_conv_phases_axis(const rg_conv_axis *a)
{
    const int64_t s = a->stride;
    const int64_t low = -floor_div(a->window - 1 - a->before, s);
    const int64_t high = floor_div(s - 1 + a->before, s);
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

void rg_conv_fold_stride(rg_conv_window_axis *r, int64_t *from_first, int64_t *from_step)
{
    if (r->taps != 1 || r->stride == 1)
        return;
    const int64_t first = floor_div(r->first, r->stride);
    const int64_t rest = r->first - first * r->stride;
    *from_first += rest * *from_step;
    *from_step *= r->stride;
    r->inputs = r->inputs > rest ? rg_ceil_div(r->inputs - rest, r->stride) : 0;
    r->first = first;
    r->stride = 1;
}

/* Whether an output is the input of the same number. */
static bool is_plain(const rg_conv_window_axis *r)
{
    return r->taps == 1 && r->stride == 1 && r->first == 0 && r->inputs == r->outputs &&
           r->phases == 1 && r->to_step == 1 && r->to_first == 0;
}

void rg_conv_join_rows(rg_conv_rows_args *k)
{
    rg_conv_window_axis *row = &k->row, *column = &k->column;
    int64_t *const steps[3] = { k->from_step, k->to_step, k->z_step };
    if (!is_plain(row) || !is_plain(column))
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

/* Whether inputs are transposed, so that the columns of a tile are pixels: few results of a pixel
 * would leave most of a panel empty. Some taps are enough to pay for the transposition. */
static bool suits_transposed(const rg_conv_rows_args *k)
{
    enum { MAX_RESULTS = 14, MIN_TAPS = 4, MIN_COLUMNS = 16 };
    return k->row.phases * k->column.phases * k->width <= MAX_RESULTS && k->column.stride == 1 &&
           k->row.taps * k->column.taps >= MIN_TAPS && k->column.outputs >= MIN_COLUMNS;
}

void rg_conv_cut_rows(rg_conv_rows_args *k, int64_t element)
{
    enum { WANTED_UNITS = 32, WHOLE = 128, PART = 112, HALF_L2_BYTES = 512 << 10, VECTOR = 16 };
    rg_conv_window_axis *row = &k->row, *column = &k->column;
    const int64_t width = k->panel_count * RG_CONV_PANEL;
    const bool transposed = suits_transposed(k);
    k->by_row = row->taps * column->taps * k->depth * width * element <= HALF_L2_BYTES;
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
    k->transposed_pitch = transposed ? rg_round_up(span, VECTOR) + VECTOR : 0;
    const int64_t flat = k->transposed_pitch * k->depth * element;
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
    k->scratch_bytes = k->in_bytes + (column->block + 2) * RG_CONV_PANEL * element +
                       k->transposed_pitch * VECTOR * element;
}

bool rg_conv_is_long(const rg_conv_shape *s, int64_t slices, int64_t windows)
{
    return (double)rg_ceil_div(s->images, slices) * (double)windows > RG_SUM_BLOCK;
}

double rg_conv_parts_size(const rg_conv_shape *s, int64_t slices, int64_t group_step,
                          bool has_totals, int64_t element)
{
    const double own = has_totals ? 1 + sizeof(double) / (double)element : 1;
    return (double)slices * (double)s->groups * (double)group_step * own;
}

/* Where weights stand in parts; channels of a unit. */
static void cut_parts(rg_conv_parts_args *k, int64_t element)
{
    enum { SLICE = 256 << 10, VECTOR = 16 };
    const rg_conv_shape *s = &k->shape;
    const int64_t taps = s->row.window * s->column.window;
    k->weights_first = s->in % VECTOR != 0 && s->in < 3 * VECTOR;
    if (k->weights_first) {
        k->out_step = 1;
        k->in_step = rg_round_up(s->out, VECTOR);
        k->tap_step = s->in * k->in_step;
        k->group_step = taps * k->tap_step;
        k->channels = s->out;
        k->splits = 1;
        return;
    }
    k->in_step = 1;
    k->tap_step = rg_round_up(s->in, VECTOR);
    k->out_step = taps * k->tap_step;
    k->group_step = s->out * k->out_step;
    int64_t splits = rg_ceil_div(s->out * k->out_step * element, SLICE);
    splits = splits < rg_ceil_div(s->out, 14) ? splits : rg_ceil_div(s->out, 14);
    k->channels = rg_ceil_div(s->out, splits);
    k->splits = rg_ceil_div(s->out, k->channels);
}

void rg_conv_cut_weights(rg_conv_parts_args *k, int64_t element)
{
    enum { UNITS = 32, MOST_PARTS = 64 << 20, BLOCK = 320 << 10, VECTOR = 16 };
    const rg_conv_shape *s = &k->shape;
    const rg_conv_axis *row = &s->row, *column = &s->column;
    cut_parts(k, element);
    const int64_t whole = s->groups * k->group_step * element;
    int64_t slices = rg_ceil_div(UNITS, s->groups * k->splits);
    slices = slices * whole <= MOST_PARTS ? slices : rg_ceil_div(MOST_PARTS / 2, whole);
    k->slices = slices < s->images ? slices : s->images;
    k->has_totals = rg_conv_is_long(s, k->slices, row->count * column->count);
    k->columns = k->weights_first ? (column->count - 1) * column->stride +
                                        (column->window - 1) * column->dilation + 1
                                  : column->size;
    const int64_t pixels = k->columns * s->in + column->count * k->channels;
    int64_t rows = BLOCK / (pixels * element);
    rows = rows < 1 ? 1 : rows < RG_CONV_MOST_RUNS ? rows : RG_CONV_MOST_RUNS;
    k->rows = rows < row->count ? rows : row->count;
    const int64_t span = (k->rows - 1) * row->stride + (row->window - 1) * row->dilation + 1;
    const int64_t x_bytes = (span * k->columns * s->in + VECTOR) * element;
    k->y_bytes = (k->rows * column->count * k->channels + VECTOR) * element;
    k->y_bytes = rg_round_up(k->y_bytes, 64);
    k->scratch_bytes = k->y_bytes + rg_round_up(x_bytes, 64);
}

/* ---- what the engine is for ---- */

bool rg_conv_suits(const rg_conv_shape *s)
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

bool rg_conv_joins_phases(const rg_conv_shape *s)
{
    const int64_t phases = s->row.stride * s->column.stride;
    return phases > 1 && s->row.dilation == 1 && s->column.dilation == 1 && s->in <= 8 &&
           phases * s->in <= RG_CONV_PANEL;
}
