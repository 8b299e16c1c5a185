/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Recording gradients of weights for bf16 of images of few channels, see conv_cpu.h. */
#include "backend/cpu/bf16_unit.h"
#include "core/integer.h"
#include "ops/conv/conv_record.h"

/* Blocks of rows of windows, with what a thread packs of them. `rows` are at most a few runs. */
static void cut_blocks(rg_conv_pair_taps_args *k)
{
    enum { BLOCK_BYTES = 256 << 10, MOST_RUNS = 4 };
    const rg_conv_shape *s = &k->shape;
    const rg_conv_axis *row = &s->row, *column = &s->column;
    const int64_t element = sizeof(uint16_t), word = 2 * element;
    k->columns = rg_round_up(column->count, 2);
    k->x_row = rg_round_up((k->columns - 2) * column->stride * s->in + column->window * s->in,
                           RG_CONV_VECTOR);
    k->panels = rg_ceil_div(s->out, RG_CONV_PANEL);
    const int64_t y_row = k->panels * k->columns * RG_CONV_PANEL * element;
    const int64_t of_run = rg_max(RG_SUM_RUN / k->columns, 1);
    const int64_t fit = BLOCK_BYTES / (y_row + row->stride * k->x_row * word);
    const int64_t runs = rg_max(rg_min(fit / of_run, MOST_RUNS), 1);
    k->rows = rg_min(runs * of_run, row->count);
    k->rows = rg_ceil_div(row->count, rg_ceil_div(row->count, k->rows));
    k->blocks = rg_ceil_div(row->count, k->rows);
    const int64_t x_rows = (k->rows - 1) * row->stride + (row->window - 1) * row->dilation + 1;
    const int64_t bits = k->x_row + column->stride * s->in + RG_CONV_VECTOR; /* of one row */
    k->x_bytes = rg_round_up(x_rows * k->x_row * word, RG_ALIGNMENT);
    k->y_bytes = rg_round_up(k->rows * y_row, RG_ALIGNMENT);
    k->scratch_bytes = k->x_bytes + k->y_bytes + rg_round_up(bits * element, RG_ALIGNMENT);
}

/* Slices of blocks, which are counted through all images. */
static void cut_slices(rg_conv_pair_taps_args *k)
{
    enum { UNITS = 32 };
    const rg_conv_shape *s = &k->shape;
    const int64_t all = s->images * k->blocks;
    k->sums =
        (rg_conv_partial_sums){ .out_step = 1, .in_step = rg_round_up(s->out, RG_CONV_VECTOR) };
    k->sums.tap_step = s->in * k->sums.in_step;
    k->sums.group_step = s->row.window * s->column.window * k->sums.tap_step;
    rg_conv_cut_slices(&k->sums, s, rg_ceil_div(UNITS, s->groups), all, sizeof(float));
    k->slice_blocks = rg_ceil_div(all, k->sums.slices);
    k->sums.slices = rg_ceil_div(all, k->slice_blocks);
    const int64_t each = rg_max(k->rows * k->columns, RG_CONV_MIN_WINDOWS);
    k->sums.has_totals = (double)k->slice_blocks * (double)each > RG_SUM_BLOCK;
}

static bool accepts(const rg_call *call, const void *request)
{
    const rg_conv_pass *p = request;
    const rg_conv_shape *s = &p->shape;
    const double max_elements = 0x1p20;
    return p->kernel == RG_CONV_WEIGHTS && rg_conv_dtype(p) == RG_BF16 &&
           rg_conv_panels_accept(call, p) && s->column.dilation == 1 &&
           (double)s->column.stride * (double)(s->in * s->column.count) *
                   (double)(s->row.window * s->row.dilation + s->row.stride) <
               max_elements &&
           (double)s->out * (double)s->column.count < max_elements &&
           rg_call_finds(call, RG_CONV_PAIR_TAPS, RG_BF16) && rg_bf16_unit() == RG_BF16_UNIT_AVX512;
}

/* A row of taps gives a tile enough rows, and channels of windows fill its columns. */
static bool prefers(const rg_call *call, const void *request)
{
    enum { MAX_CHANNELS = 8, MIN_TAPS = 4, MIN_RESULTS = 8 };
    const rg_conv_shape *s = &((const rg_conv_pass *)request)->shape;
    return rg_conv_panels_prefer(call, request) && s->in < MAX_CHANNELS &&
           s->column.window * s->in >= MIN_TAPS && s->out >= MIN_RESULTS;
}

static rg_status record(rg_call *call, const void *request)
{
    const rg_conv_pass *p = request;
    rg_conv_pair_taps_args k = { .shape = p->shape };
    cut_blocks(&k);
    cut_slices(&k);
    rg_tensor *partials;
    RG_TRY(rg_conv_partials(call, p, &k.sums, &partials));
    rg_launch launch = { .kernel = RG_CONV_PAIR_TAPS,
                         .dtype = RG_BF16,
                         RG_ARGS(k),
                         .tensors = { RG_BIND(k, x, p->x), RG_BIND(k, dy, p->dy),
                                      RG_BIND(k, partials, partials) },
                         .thread_scratch = (size_t)k.scratch_bytes,
                         .thread_scratch_at = RG_POINTER(k, scratch) };
    rg_conv_set_cost(&launch, k.sums.slices * p->shape.groups,
                     rg_move_bytes(p->x) + rg_move_bytes(p->dy), rg_conv_products(&p->shape));
    rg_status status = rg_record(call, &launch);
    if (status == RG_OK)
        status = rg_conv_record_join(call, p, &k.sums, partials);
    rg_tensor_destroy(partials);
    return status;
}

const rg_strategy rg_conv_by_pair_taps = { "pair_taps", accepts, record, prefers };
