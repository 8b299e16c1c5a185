/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Recording convolutions of groups of few channels with stride 1, see conv_cpu.h. */
#include "ops/conv/cpu/conv_cpu.h"
#include "backend/cpu/bf16_unit.h"
#include "core/integer.h"
#include "ops/conv/conv_record.h"

/* Stride 1, and no result whose taps all lie outside of the image. */
static bool suits_axis(const rg_conv_axis *a, bool data)
{
    const int64_t shift = data ? a->window - 1 - a->before : a->before;
    const int64_t inputs = data ? a->count : a->size, results = data ? a->size : a->count;
    return a->stride == 1 && (a->dilation == 1 || a->window == 1) && inputs > 0 &&
           shift < a->window && results <= inputs + shift;
}

/* Bytes of a row of inputs in scratch. */
static double row_bytes(const rg_conv_shape *s, bool data)
{
    return RG_CONV_GROUPED_BLOCK * sizeof(float) *
           (double)(data ? s->column.count : s->column.size);
}

/* Whether the processor multiplies bf16 in pairs by `kernel`. */
static bool has_pairs(const rg_call *call, const rg_conv_pass *p, int32_t kernel)
{
    return rg_conv_dtype(p) == RG_BF16 && rg_call_finds(call, kernel, RG_BF16) &&
           rg_bf16_unit() == RG_BF16_UNIT_AVX512;
}

/* Whole groups in every block of channels. */
static bool accepts(const rg_call *call, const void *request)
{
    const rg_conv_pass *p = request;
    const rg_conv_shape *s = &p->shape;
    const bool data = p->kernel == RG_CONV_DATA;
    const double max_bytes = 0x1p20;
    return s->in == s->out && s->in > 1 && RG_CONV_GROUPED_BLOCK % s->in == 0 &&
           s->groups * s->in % RG_CONV_GROUPED_BLOCK == 0 &&
           rg_conv_permute_has(s->column.window) && suits_axis(&s->row, data) &&
           suits_axis(&s->column, data) && s->images * s->row.count * s->column.count > 0 &&
           s->row.window * s->column.window * s->in <= RG_SUM_RUN &&
           row_bytes(s, data) * (double)s->row.window <= max_bytes &&
           rg_call_finds(call, RG_CONV_PERMUTE, rg_conv_dtype(p));
}

/* Without groups the contraction engine is as fast. */
static bool prefers(const rg_call *call, const void *request)
{
    (void)call;
    return ((const rg_conv_pass *)request)->shape.groups > 1;
}

/* ---- forward and data ---- */

/* Rows of a block: so many that its inputs stay in L1. */
static int64_t rows_of_block(const rg_conv_shape *s, bool data)
{
    const double l1_bytes = 24 << 10;
    const int64_t all = data ? s->row.size : s->row.count;
    const double most = l1_bytes / row_bytes(s, data);
    int64_t rows = rg_min(all, 2 * RG_CONV_GROUPED_ROWS);
    while (rows > 2 && (double)(rows + s->row.window - 1) > most)
        rows--;
    return rg_max(rows, 1);
}

static rg_status record_results(rg_call *call, const rg_conv_pass *p)
{
    const rg_conv_shape *s = &p->shape;
    const bool pairs = has_pairs(call, p, RG_CONV_PAIR_PERMUTE);
    rg_conv_grouped_args args = rg_conv_grouped_args_of(call, p);
    args.group_in = s->in;
    args.padded_channels = args.channels;
    args.block = rows_of_block(s, args.data);
    args.blocks = rg_ceil_div(args.data ? s->row.size : s->row.count, args.block);
    args.scratch_bytes = rg_round_up(
        (int64_t)row_bytes(s, args.data) * (args.block + s->row.window - 1), RG_ALIGNMENT);
    rg_launch launch =
        rg_conv_launch(p, pairs ? RG_CONV_PAIR_PERMUTE : RG_CONV_PERMUTE, NULL, &args, sizeof args);
    launch.thread_scratch = (size_t)args.scratch_bytes;
    launch.thread_scratch_at = RG_POINTER(args, conv.scratch);
    rg_conv_set_pass_cost(&launch, p,
                          s->images * args.blocks * (args.channels / RG_CONV_GROUPED_BLOCK),
                          rg_conv_products(s));
    return rg_conv_record_between(
        call, p, pairs ? RG_CONV_PAIR_TRANSPOSE_WEIGHTS : RG_CONV_TRANSPOSE_WEIGHTS,
        RG_CONV_GROUPED_BLOCK, &launch);
}

/* ---- weights ---- */

/* Blocks of at most RG_SUM_RUN windows, and slices of at most RG_SUM_RUNS blocks. */
static rg_conv_permute_partials_args cut_partials(const rg_conv_shape *s)
{
    enum { UNITS = 32 }; /* enough for many threads, while partial sums stay small */
    const rg_conv_axis *row = &s->row, *column = &s->column;
    rg_conv_permute_partials_args k = { .shape = *s };
    k.block_columns = rg_ceil_div(column->count, RG_SUM_RUN);
    k.columns = rg_ceil_div(column->count, k.block_columns);
    k.block_rows = rg_ceil_div(row->count, rg_max(RG_SUM_RUN / k.columns, 1));
    k.rows = rg_ceil_div(row->count, k.block_rows);
    const int64_t all = s->images * k.block_rows * k.block_columns;
    const int64_t channels = s->groups * s->out;
    k.units = rg_ceil_div(channels, RG_CONV_PERMUTE_CHANNELS);
    const int64_t wanted = rg_max(rg_ceil_div(UNITS, k.units), rg_ceil_div(all, RG_SUM_RUNS));
    k.blocks = rg_ceil_div(all, rg_min(wanted, all));
    k.sums = (rg_conv_partial_sums){
        .slices = rg_ceil_div(all, k.blocks),
        .slice_step = row->window * column->window * s->in * channels,
        .group_step = s->out,
        .out_step = 1,
        .tap_step = s->in * channels,
        .in_step = channels,
    };
    const int64_t pixel = RG_CONV_GROUPED_BLOCK * sizeof(float), window = column->window;
    const int64_t x_row = (k.columns + 2 * window) * pixel; /* and the bits of one in pairs */
    k.y_bytes = rg_round_up(k.rows * (k.columns + 2 * window) * pixel, RG_ALIGNMENT);
    k.scratch_bytes = k.y_bytes + rg_round_up((k.rows + row->window) * x_row, RG_ALIGNMENT);
    return k;
}

static rg_status record_weights(rg_call *call, const rg_conv_pass *p)
{
    const rg_conv_shape *s = &p->shape;
    const bool pairs = has_pairs(call, p, RG_CONV_PAIR_PERMUTE_PARTIALS);
    rg_conv_permute_partials_args args = cut_partials(s);
    rg_tensor *partials;
    RG_TRY(rg_conv_partials(call, p, &args.sums, &partials));
    rg_launch launch = { .kernel = pairs ? RG_CONV_PAIR_PERMUTE_PARTIALS : RG_CONV_PERMUTE_PARTIALS,
                         .dtype = rg_conv_dtype(p),
                         RG_ARGS(args),
                         .tensors = { RG_BIND(args, x, p->x), RG_BIND(args, dy, p->dy),
                                      RG_BIND(args, partials, partials) },
                         .thread_scratch = (size_t)args.scratch_bytes,
                         .thread_scratch_at = RG_POINTER(args, scratch) };
    rg_conv_set_cost(&launch, args.sums.slices * args.units,
                     rg_move_bytes(p->x) + rg_move_bytes(p->dy), rg_conv_products(s));
    rg_status status = rg_record(call, &launch);
    if (status == RG_OK)
        status = rg_conv_record_join(call, p, &args.sums, partials);
    rg_tensor_destroy(partials);
    return status;
}

static rg_status record(rg_call *call, const void *request)
{
    const rg_conv_pass *p = request;
    return p->kernel == RG_CONV_WEIGHTS ? record_weights(call, p) : record_results(call, p);
}

const rg_strategy rg_conv_by_permute = { "permute", accepts, record, prefers };
