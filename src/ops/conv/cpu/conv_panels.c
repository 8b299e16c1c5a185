/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Recording convolutions on the contraction engine of a CPU, with weights packed as panels. */
#include "core/integer.h"
#include "core/long_sum.h"
#include "ops/conv/conv_record.h"

/* ---- axes ---- */

static int64_t floor_div(int64_t a, int64_t b)
{
    return a >= 0 ? a / b : -((b - 1 - a) / b);
}

/* The axis of a forward pass. */
static rg_conv_window_axis forward_axis(const rg_conv_axis *a)
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

/* From windows to pixels r, r + stride, …: one phase. */
static rg_conv_window_axis phase_axis(const rg_conv_axis *a, int64_t r)
{
    const int64_t s = a->stride, d = a->dilation;
    int64_t common = s, rest = d % s;
    while (rest != 0) {
        const int64_t next = common % rest;
        common = rest;
        rest = next;
    }
    int64_t last = a->window - 1; /* the tap of the first window */
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

/* From windows to all pixels, the phases adjacent. The dilation is 1. */
static rg_conv_window_axis phases_axis(const rg_conv_axis *a)
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

/* Windows of a single tap: makes the stride a step from pixel to pixel, so that it is 1. */
static void fold_stride(rg_conv_window_axis *r, int64_t *from_offset, int64_t *from_step)
{
    if (r->taps != 1 || r->stride == 1)
        return;
    const int64_t first = floor_div(r->first, r->stride);
    const int64_t rest = r->first - first * r->stride;
    *from_offset += rest * *from_step;
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

/* Windows of one pixel: joins rows, and images, to one long row where they are so in memory. */
static void join_rows(rg_conv_rows_args *k)
{
    rg_conv_window_axis *row = &k->row, *column = &k->column;
    const int64_t *const steps[3] = { k->from_step, k->to_step, k->conv.z_step };
    if (!is_plain(row) || !is_plain(column))
        return;
    bool rows = true, images = true;
    for (int i = 0; i < 2 + k->conv.has_z; i++)
        rows &= steps[i][1] == column->outputs * steps[i][2];
    if (!rows)
        return;
    column->outputs = column->inputs = column->to_size = row->outputs * column->outputs;
    row->outputs = row->inputs = row->to_size = 1;
    for (int i = 0; i < 2 + k->conv.has_z; i++)
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
    enum { MAX_RESULTS = RG_CONV_TILE_ROWS, MIN_TAPS = 4, MIN_COLUMNS = 16 };
    return k->row.phases * k->column.phases * k->width <= MAX_RESULTS && k->column.stride == 1 &&
           k->row.taps * k->column.taps >= MIN_TAPS && k->column.outputs >= MIN_COLUMNS;
}

void rg_conv_cut_rows(rg_conv_rows_args *k, int64_t element)
{
    enum {
        WANTED_UNITS = 32,
        MAX_COLUMNS = 128,
        COLUMNS_PER_BLOCK = 112,
        HALF_L2_BYTES = 512 << 10
    };
    rg_conv_window_axis *row = &k->row, *column = &k->column;
    const int64_t width = k->panel_count * RG_CONV_PANEL;
    const bool transposed = suits_transposed(k);
    k->by_row = row->taps * column->taps * k->depth * width * element <= HALF_L2_BYTES;
    const int64_t target = transposed  ? HALF_L2_BYTES
                           : k->by_row ? HALF_L2_BYTES / 4
                                       : HALF_L2_BYTES / 2;
    k->pixel = k->depth * element % 2048 == 0 ? k->depth + 16 : k->depth;
    column->block = column->outputs <= MAX_COLUMNS ? column->outputs : COLUMNS_PER_BLOCK;
    const int64_t pixel = k->pixel * element;
    while (column->block > RG_CONV_TILE_ROWS &&
           rg_conv_span(row, 1) * rg_conv_span(column, column->block) * pixel > 2 * target)
        column->block = rg_round_up(column->block / 2, RG_CONV_TILE_ROWS);
    column->blocks = rg_ceil_div(column->outputs, column->block);
    const int64_t span = rg_conv_span(column, column->block);
    k->transposed_pitch = transposed ? rg_round_up(span, RG_CONV_VECTOR) + RG_CONV_VECTOR : 0;
    const int64_t flat = k->transposed_pitch * k->depth * element;
    const int64_t bytes = rg_max(flat, span * pixel);
    int64_t rows = bytes == 0 ? row->outputs : target / bytes;
    rows = rows <= rg_conv_span(row, 1) ? 1 : (rows - rg_conv_span(row, 1)) / row->stride + 1;
    const int64_t most =
        rg_ceil_div(row->outputs * column->blocks * k->images * k->groups, WANTED_UNITS);
    row->block = rg_min(rg_min(rows, most), row->outputs);
    row->blocks = rg_ceil_div(row->outputs, row->block);
    k->in_bytes = rg_round_up(rg_conv_span(row, row->block) * bytes, RG_ALIGNMENT);
    k->scratch_bytes = k->in_bytes + (column->block + 2) * RG_CONV_PANEL * element +
                       k->transposed_pitch * RG_CONV_VECTOR * element;
}

bool rg_conv_is_long(const rg_conv_shape *s, int64_t slices, int64_t windows)
{
    return (double)rg_ceil_div(s->images, slices) * (double)windows > RG_SUM_BLOCK;
}

void rg_conv_cut_slices(rg_conv_partial_sums *sums, const rg_conv_shape *s, int64_t wanted,
                        int64_t images, int64_t element)
{
    enum { PARTIALS_BYTES = 64 << 20 };
    sums->slice_step = s->groups * sums->group_step;
    const int64_t bytes = sums->slice_step * element;
    const int64_t slices =
        wanted * bytes <= PARTIALS_BYTES ? wanted : rg_ceil_div(PARTIALS_BYTES / 2, bytes);
    sums->slices = rg_min(slices, images);
}

/* The layout of partial sums; channels of a unit. */
static void cut_partials(rg_conv_partials_args *k, int64_t element)
{
    enum { SLICE_BYTES = 256 << 10 };
    const rg_conv_shape *s = &k->shape;
    rg_conv_partial_sums *sums = &k->sums;
    const int64_t taps = s->row.window * s->column.window;
    k->out_last = s->in % RG_CONV_VECTOR != 0 && s->in < 3 * RG_CONV_VECTOR;
    if (k->out_last) {
        sums->out_step = 1;
        sums->in_step = rg_round_up(s->out, RG_CONV_VECTOR);
        sums->tap_step = s->in * sums->in_step;
        sums->group_step = taps * sums->tap_step;
        k->channels = s->out;
        k->splits = 1;
        return;
    }
    sums->in_step = 1;
    sums->tap_step = rg_round_up(s->in, RG_CONV_VECTOR);
    sums->out_step = taps * sums->tap_step;
    sums->group_step = s->out * sums->out_step;
    const int64_t splits = rg_ceil_div(sums->group_step * element, SLICE_BYTES);
    k->channels = rg_ceil_div(s->out, rg_min(splits, rg_ceil_div(s->out, RG_CONV_TILE_ROWS)));
    k->splits = rg_ceil_div(s->out, k->channels);
}

/* Cuts images into slices, and rows of windows into blocks. */
static void cut_weights(rg_conv_partials_args *k, int64_t element)
{
    enum { UNITS = 32, BLOCK_BYTES = 320 << 10 };
    const rg_conv_shape *s = &k->shape;
    const rg_conv_axis *row = &s->row, *column = &s->column;
    cut_partials(k, element);
    rg_conv_cut_slices(&k->sums, s, rg_ceil_div(UNITS, s->groups * k->splits), s->images, element);
    k->columns = k->out_last ? (column->count - 1) * column->stride +
                                   (column->window - 1) * column->dilation + 1
                             : column->size;
    const int64_t pixels = k->columns * s->in + column->count * k->channels;
    const int64_t rows = rg_min(BLOCK_BYTES / (pixels * element), RG_CONV_MAX_RUNS);
    k->rows = rg_min(rg_max(rows, 1), row->count);
    const bool is_small = k->rows * column->count < RG_CONV_MIN_WINDOWS;
    k->sums.has_totals =
        rg_conv_is_long(s, k->sums.slices,
                        is_small ? rg_ceil_div(row->count, k->rows) * RG_CONV_MIN_WINDOWS
                                 : row->count * column->count);
    const int64_t span = (k->rows - 1) * row->stride + (row->window - 1) * row->dilation + 1;
    const int64_t x_bytes = (span * k->columns * s->in + RG_CONV_VECTOR) * element;
    k->y_bytes = rg_round_up((k->rows * column->count * k->channels + RG_CONV_VECTOR) * element,
                             RG_ALIGNMENT);
    k->scratch_bytes = k->y_bytes + rg_round_up(x_bytes, RG_ALIGNMENT);
}

/* ---- which calls ---- */

/* Whether the engine takes this shape: scratch of a moderate size. */
bool rg_conv_panels_accept(const rg_call *call, const void *request)
{
    const rg_conv_pass *p = request;
    const rg_conv_shape *s = &p->shape;
    const rg_conv_axis *const axes[2] = { &s->row, &s->column };
    bool fits = rg_call_finds(call, RG_CONV_ROWS, rg_conv_dtype(p));
    double scratch_elements = 8.0 * (double)rg_max(s->in, s->out);
    for (int i = 0; i < 2; i++) {
        const rg_conv_axis *a = axes[i];
        fits &= a->size > 0 && a->count > 0 && a->window <= RG_CONV_MAX_RUNS;
        fits &= a->stride <= RG_CONV_MAX_STRIDE && a->dilation <= 1 << 20;
        scratch_elements *= (double)((a->window - 1) * a->dilation + 16 * a->stride);
    }
    const double wide = 16.0 * (double)(s->column.size + s->column.count) *
                        (double)((s->row.window - 1) * s->row.dilation + 1) *
                        (double)(s->in + s->out + s->column.window * s->in);
    return fits && s->images > 0 && s->row.window * s->column.window <= RG_CONV_MAX_RUNS &&
           scratch_elements <= 0x1p26 && wide <= 0x1p28;
}

/* Groups of one channel have too little work for a tile. */
bool rg_conv_panels_prefer(const rg_call *call, const void *request)
{
    const rg_conv_shape *s = &((const rg_conv_pass *)request)->shape;
    (void)call;
    return s->groups == 1 || s->in > 1;
}

/* Whether all phases are one launch: few channels, so that all fit one panel. */
static bool joins_phases(const rg_conv_shape *s)
{
    const int64_t phases = s->row.stride * s->column.stride;
    return phases > 1 && s->row.dilation == 1 && s->column.dilation == 1 && s->in <= 8 &&
           phases * s->in <= RG_CONV_PANEL;
}

/* ---- forward and data: a launch for each phase ---- */

int64_t rg_conv_phases(const rg_conv_pass *p)
{
    const rg_conv_shape *s = &p->shape;
    return p->kernel == RG_CONV_FORWARD || joins_phases(s) ? 1 : s->row.stride * s->column.stride;
}

rg_conv_rows_args rg_conv_phase(const rg_conv_pass *p, int64_t r)
{
    const rg_conv_shape *s = &p->shape;
    const bool forward = p->kernel == RG_CONV_FORWARD, joins = joins_phases(s);
    const rg_conv_axis *row = &s->row, *column = &s->column;
    rg_conv_rows_args k = { .images = s->images,
                            .groups = s->groups,
                            .depth = forward ? s->in : s->out,
                            .width = forward ? s->out : s->in };
    memcpy(k.from_step, forward ? s->x : s->y, sizeof k.from_step);
    memcpy(k.to_step, forward ? s->y : s->x, sizeof k.to_step);
    k.row = forward ? forward_axis(row)
            : joins ? phases_axis(row)
                    : phase_axis(row, r / column->stride);
    k.column = forward ? forward_axis(column)
               : joins ? phases_axis(column)
                       : phase_axis(column, r % column->stride);
    return k;
}

static rg_status record_pack(rg_call *call, const rg_conv_pass *p, const rg_conv_rows_args *k,
                             const rg_tensor *panels)
{
    const rg_conv_shape *s = &p->shape;
    const int64_t taps = k->row.taps * k->column.taps;
    rg_conv_pack_args args = { .row = k->row,
                               .column = k->column,
                               .depth = k->depth,
                               .width = k->width,
                               .panel_count = k->panel_count,
                               .units = k->groups * k->panel_count * taps,
                               .w_offset = s->w_first,
                               .pair_steps = k->pair_steps };
    memcpy(args.w_step, s->w, sizeof args.w_step);
    if (p->kernel == RG_CONV_DATA) {
        args.w_step[1] = s->w[4];
        args.w_step[4] = s->w[1];
    }
    rg_launch launch = { .kernel = k->pair_steps.pixel > 0 ? RG_CONV_PAIR_PACK : RG_CONV_PACK,
                         .dtype = p->w->desc.dtype,
                         RG_ARGS(args),
                         .tensors = { RG_BIND(args, w, p->w), RG_BIND(args, panels, panels) } };
    rg_conv_set_cost(&launch, args.units, args.units * k->depth * RG_CONV_PANEL * 8, 0);
    return args.units > 0 ? rg_record(call, &launch) : RG_OK;
}

/* Elements of the panels of a phase, with a flag for each tap. */
static double panel_elements(const rg_conv_rows_args *k)
{
    const double taps = (double)(k->row.taps * k->column.taps);
    const double depth = k->pair_steps.pixel > 0 ? (double)(k->row.taps * k->pair_steps.row) / 2
                                                 : taps * (double)k->depth;
    return (double)(k->groups * k->panel_count) * (depth * RG_CONV_PANEL + taps);
}

rg_status rg_conv_record_rows(rg_call *call, const rg_conv_pass *p, rg_conv_rows_args *k,
                              const rg_pair_unit *pairs)
{
    if (k->row.outputs == 0 || k->column.outputs == 0)
        return RG_OK;
    const rg_dtype dtype = rg_conv_dtype(p);
    if (pairs != NULL)
        k->pair_steps = rg_conv_pair_steps_of(&k->column, k->depth);
    k->conv = rg_conv_args_of(call, p);
    k->panel_count = rg_ceil_div(k->row.phases * k->column.phases * k->width, RG_CONV_PANEL);
    rg_tensor *panels;
    RG_TRY(rg_conv_temporary(call, dtype, panel_elements(k) + 1, &panels));
    rg_status status = record_pack(call, p, k, panels);
    fold_stride(&k->row, &k->from_offset, &k->from_step[1]);
    fold_stride(&k->column, &k->from_offset, &k->from_step[2]);
    k->inside = rg_conv_is_inside(&k->column);
    join_rows(k);
    if (pairs != NULL)
        rg_conv_cut_pairs(k, pairs->tall);
    else
        rg_conv_cut_rows(k, dtype == RG_F64 ? 8 : 4);
    rg_launch launch =
        rg_conv_launch(p, pairs != NULL ? RG_CONV_PAIR_ROWS : RG_CONV_ROWS, panels, k, sizeof *k);
    launch.thread_scratch = (size_t)k->scratch_bytes;
    launch.thread_scratch_at = RG_POINTER(*k, conv.scratch);
    rg_conv_set_pass_cost(&launch, p, k->images * k->groups * k->row.blocks * k->column.blocks,
                          rg_conv_products(&p->shape) / (double)rg_conv_phases(p));
    if (status == RG_OK)
        status = rg_record(call, &launch);
    rg_tensor_destroy(panels);
    return status;
}

/* ---- weights ---- */

static rg_status record_weights(rg_call *call, const rg_conv_pass *p)
{
    const rg_conv_shape *s = &p->shape;
    const rg_dtype dtype = rg_conv_dtype(p);
    rg_conv_partials_args k = { .shape = *s };
    cut_weights(&k, dtype == RG_F64 ? 8 : 4);
    rg_tensor *partials;
    RG_TRY(rg_conv_partials(call, p, &k.sums, &partials));
    rg_launch launch = { .kernel = RG_CONV_PARTIALS,
                         .dtype = dtype,
                         RG_ARGS(k),
                         .tensors = { RG_BIND(k, x, p->x), RG_BIND(k, dy, p->dy),
                                      RG_BIND(k, partials, partials) },
                         .thread_scratch = (size_t)k.scratch_bytes,
                         .thread_scratch_at = RG_POINTER(k, scratch) };
    rg_conv_set_cost(&launch, k.sums.slices * s->groups * k.splits,
                     rg_move_bytes(p->x) + rg_move_bytes(p->dy), rg_conv_products(s));
    rg_status status = rg_record(call, &launch);
    if (status == RG_OK)
        status = rg_conv_record_join(call, p, &k.sums, partials);
    rg_tensor_destroy(partials);
    return status;
}

static rg_status record(rg_call *call, const void *request)
{
    const rg_conv_pass *p = request;
    if (p->kernel == RG_CONV_WEIGHTS)
        return record_weights(call, p);
    for (int64_t r = 0; r < rg_conv_phases(p); r++) {
        rg_conv_rows_args k = rg_conv_phase(p, r);
        RG_TRY(rg_conv_record_rows(call, p, &k, NULL));
    }
    return RG_OK;
}

const rg_strategy rg_conv_by_panels = { "panels", rg_conv_panels_accept, record,
                                        rg_conv_panels_prefer };
