/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Recording depthwise convolutions, with one channel of either side in a group, and those whose
 * groups have few channels. */
#include "core/integer.h"
#include "ops/conv/conv_record.h"

static bool accepts_depthwise(const rg_call *call, const void *request)
{
    const rg_conv_pass *p = request;
    return rg_conv_is_depthwise(&p->shape) &&
           rg_call_finds(call, RG_CONV_DEPTHWISE, rg_conv_dtype(p));
}

/* ---- scratch of groups, and how work is cut ---- */

/* How many rows of the source `rows` rows of the result are computed from. */
static int64_t span(const rg_conv_axis *a, bool data, int64_t rows)
{
    const int64_t taps = (a->window - 1) * a->dilation, all = data ? a->count : a->size;
    const int64_t span =
        data ? (rows - 1 + taps) / a->stride + 2 : (rows - 1) * a->stride + taps + 1;
    return rg_min(span, all);
}

/* Bytes of a thread: the source spread out. */
static double scratch(const rg_conv_shape *s, bool data, int64_t rows)
{
    const double sources = (double)(data ? s->column.count : s->column.size);
    const double group_in = (double)(data ? s->out : s->in);
    return RG_CONV_VECTOR_BYTES * (double)span(&s->row, data, rows) * sources * group_in;
}

/* Bytes of a thread that makes dw: x and dy spread out, and sums. */
static double partials_scratch(const rg_conv_shape *s, int64_t rows)
{
    return scratch(s, false, rows) +
           RG_CONV_VECTOR_BYTES *
               ((double)rows * (double)s->column.count + (double)rg_conv_grouped_sums(s));
}

/* Rows of a block: so many that its scratch stays in L2. */
static int64_t rows_of_block(const rg_conv_shape *s, bool data, bool weights)
{
    enum { MAX_ROWS = RG_CONV_GROUPED_ROWS, L2_BYTES = 192 << 10 };
    const int64_t all = data ? s->row.size : s->row.count;
    int64_t rows = rg_max(rg_min(all, MAX_ROWS), 1);
    while (rows > 1 && (weights ? partials_scratch(s, rows) : scratch(s, data, rows)) > L2_BYTES)
        rows--;
    return rows;
}

static int64_t aligned_bytes(double bytes)
{
    return rg_round_up((int64_t)bytes, RG_ALIGNMENT);
}

/* Whether groups have few channels, a row fits the scratch in all directions, and a result is a sum
 * of at most two runs, each of which has an accumulator. */
static bool accepts_grouped(const rg_call *call, const void *request)
{
    const rg_conv_pass *p = request;
    const rg_conv_shape *s = &p->shape;
    const double max_bytes = 0x1p22;
    const int64_t taps = s->row.window * s->column.window, channels = rg_max(s->in, s->out);
    return channels <= RG_CONV_GROUPED_CHANNELS && taps <= RG_CONV_DEPTHWISE_TAPS &&
           taps * channels <= 2 * RG_SUM_RUN && partials_scratch(s, 1) <= max_bytes &&
           scratch(s, true, 1) <= max_bytes &&
           rg_call_finds(call, RG_CONV_GROUPED, rg_conv_dtype(p));
}

/* Other shapes are faster by the contraction engine. */
static bool prefers_grouped(const rg_call *call, const void *request)
{
    const rg_conv_shape *s = &((const rg_conv_pass *)request)->shape;
    (void)call;
    return s->groups > 1 && s->in * s->out > 1 && (s->in == 1 || s->out == 1 || s->in == s->out);
}

/* ---- forward and data ---- */

rg_conv_grouped_args rg_conv_grouped_args_of(const rg_call *call, const rg_conv_pass *p)
{
    const rg_conv_shape *s = &p->shape;
    rg_conv_grouped_args k = { .conv = rg_conv_args_of(call, p),
                               .data = p->kernel == RG_CONV_DATA };
    k.channels = s->groups * (k.data ? s->in : s->out);
    k.conv.b_step = k.conv.has_b ? k.conv.b_step : 1;
    k.plain =
        !k.conv.has_z && !k.conv.add && k.conv.neuron.kind <= RG_NEURON_RELU && k.conv.b_step == 1;
    return k;
}

/* Weights in blocks of `block` channels of the result. */
static rg_status record_transpose(rg_call *call, const rg_conv_pass *p, int32_t kernel,
                                  int64_t block, int64_t units, const rg_tensor *transposed)
{
    const rg_conv_transpose_weights_args args = { .shape = p->shape,
                                                  .block = block,
                                                  .data = p->kernel == RG_CONV_DATA };
    const rg_launch launch = { .kernel = kernel,
                               .dtype = p->w->desc.dtype,
                               RG_ARGS(args),
                               .tensors = { RG_BIND(args, w, p->w),
                                            RG_BIND(args, transposed, transposed) },
                               .units = units,
                               .grain = rg_ceil_div(256, block),
                               .bytes = 4 * rg_move_bytes(p->w) };
    return rg_record(call, &launch);
}

rg_status rg_conv_record_between(rg_call *call, const rg_conv_pass *p, int32_t kernel,
                                 int64_t block, rg_launch *launch)
{
    const rg_conv_shape *s = &p->shape;
    const bool data = p->kernel == RG_CONV_DATA, pairs = kernel == RG_CONV_PAIR_TRANSPOSE_WEIGHTS;
    const int64_t group_in = data ? s->out : s->in, channels = s->groups * (data ? s->in : s->out);
    const int64_t words = pairs ? group_in / 2 : group_in;
    const int64_t units = s->row.window * s->column.window * words * rg_ceil_div(channels, block);
    return rg_conv_record_weights_before(call, p, kernel, block, units, units, launch);
}

rg_status rg_conv_record_weights_before(rg_call *call, const rg_conv_pass *p, int32_t kernel,
                                        int64_t block, int64_t units, int64_t vectors,
                                        rg_launch *launch)
{
    rg_tensor *transposed;
    RG_TRY(rg_conv_temporary(call, p->w->desc.dtype, (double)vectors * (double)block, &transposed));
    rg_status status = record_transpose(call, p, kernel, block, units, transposed);
    launch->tensors[RG_POINTER_OF(rg_conv_args, w)] = transposed;
    if (status == RG_OK)
        status = rg_record(call, launch);
    rg_tensor_destroy(transposed);
    return status;
}

static rg_status between_depthwise(rg_call *call, const rg_conv_pass *p)
{
    const rg_conv_axis *row = &p->shape.row;
    const rg_conv_grouped_args args = rg_conv_grouped_args_of(call, p);
    rg_launch launch = rg_conv_launch(p, RG_CONV_DEPTHWISE, NULL, &args, sizeof args);
    rg_conv_set_pass_cost(&launch, p, p->shape.images * (args.data ? row->size : row->count), 0);
    return rg_conv_record_between(call, p, RG_CONV_TRANSPOSE_WEIGHTS, args.channels, &launch);
}

static rg_status between_grouped(rg_call *call, const rg_conv_pass *p)
{
    const rg_conv_shape *s = &p->shape;
    rg_conv_grouped_args args = rg_conv_grouped_args_of(call, p);
    args.group_in = args.data ? s->out : s->in;
    args.padded_channels = rg_round_up(args.channels, RG_CONV_GROUPED_BLOCK);
    args.block = rows_of_block(s, args.data, false);
    args.blocks = rg_ceil_div(args.data ? s->row.size : s->row.count, args.block);
    args.scratch_bytes = aligned_bytes(scratch(s, args.data, args.block));
    rg_launch launch = rg_conv_launch(p, RG_CONV_GROUPED, NULL, &args, sizeof args);
    launch.thread_scratch = (size_t)args.scratch_bytes;
    launch.thread_scratch_at = RG_POINTER(args, conv.scratch);
    rg_conv_set_pass_cost(&launch, p,
                          s->images * args.blocks * (args.padded_channels / RG_CONV_GROUPED_BLOCK),
                          rg_conv_products(s));
    return rg_conv_record_between(call, p, RG_CONV_TRANSPOSE_WEIGHTS, RG_CONV_GROUPED_BLOCK,
                                  &launch);
}

/* ---- weights ---- */

/* Rows of a slice: as many as one accumulator may add up, or one. */
static int64_t rows_per_slice(const rg_conv_shape *s)
{
    return rg_max(RG_CONV_ROW_RUN / rg_max(s->column.count, 1), 1);
}

/* Partial sums of `channels` channels, by a launch of `args`, and their join. */
static rg_status record_weights(rg_call *call, const rg_conv_pass *p, int32_t kernel,
                                rg_conv_grouped_partials_args *args, int64_t channels)
{
    const rg_conv_shape *s = &p->shape;
    args->shape = *s;
    args->rows = rows_per_slice(s);
    args->blocks = rg_ceil_div(channels, args->block);
    args->sums = (rg_conv_partial_sums){
        .slices = rg_ceil_div(s->images * s->row.count, args->rows),
        .slice_step = s->row.window * s->column.window * s->in * channels,
        .group_step = s->out,
        .out_step = 1,
        .tap_step = s->in * channels,
        .in_step = channels,
    };
    rg_tensor *partials;
    RG_TRY(rg_conv_partials(call, p, &args->sums, &partials));
    rg_launch launch = { .kernel = kernel,
                         .dtype = rg_conv_dtype(p),
                         RG_ARGS(*args),
                         .tensors = { RG_BIND(*args, x, p->x), RG_BIND(*args, dy, p->dy),
                                      RG_BIND(*args, partials, partials) },
                         .thread_scratch = (size_t)args->scratch_bytes,
                         .thread_scratch_at = RG_POINTER(*args, scratch) };
    rg_conv_set_cost(&launch, args->sums.slices * args->blocks,
                     rg_move_bytes(p->x) + rg_move_bytes(p->dy), rg_conv_products(s));
    rg_status status = rg_record(call, &launch);
    if (status == RG_OK)
        status = rg_conv_record_join(call, p, &args->sums, partials);
    rg_tensor_destroy(partials);
    return status;
}

/* ---- strategies ---- */

/* Weights in units whose sums stay in L1. */
static rg_status record_depthwise(rg_call *call, const void *request)
{
    enum { L1_REALS = 2048 };
    const rg_conv_pass *p = request;
    const int64_t taps = p->shape.row.window * p->shape.column.window;
    rg_conv_grouped_partials_args args = {
        .block = rg_max(L1_REALS / taps / RG_CONV_VECTOR, 2) * RG_CONV_VECTOR,
    };
    return p->kernel != RG_CONV_WEIGHTS
               ? between_depthwise(call, p)
               : record_weights(call, p, RG_CONV_DEPTHWISE_PARTIALS, &args, p->shape.groups);
}

static rg_status record_grouped(rg_call *call, const void *request)
{
    const rg_conv_pass *p = request;
    const rg_conv_shape *s = &p->shape;
    if (p->kernel != RG_CONV_WEIGHTS)
        return between_grouped(call, p);
    rg_conv_grouped_partials_args args = { .block = RG_CONV_GROUPED_BLOCK,
                                           .spread_rows = rows_of_block(s, false, true) };
    args.scratch_bytes = aligned_bytes(partials_scratch(s, args.spread_rows));
    return record_weights(call, p, RG_CONV_GROUPED_PARTIALS, &args,
                          rg_round_up(s->groups * s->out, RG_CONV_GROUPED_BLOCK));
}

const rg_strategy rg_conv_by_depthwise = { "depthwise", accepts_depthwise, record_depthwise };
const rg_strategy rg_conv_by_grouped = { "grouped", accepts_grouped, record_grouped,
                                         prefers_grouped };
