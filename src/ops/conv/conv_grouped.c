/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Recording convolutions where groups have few channels. */
#include "core/integer.h"
#include "ops/conv/conv_record.h"

/* ---- how work is cut ---- */

static int64_t padded(int64_t channels)
{
    return rg_round_up(channels, RG_CONV_GROUPED_BLOCK);
}

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
    const double picks = (double)(data ? s->out : s->in);
    return RG_CONV_GROUPED_BYTES * (double)span(&s->row, data, rows) * sources * picks;
}

/* Bytes of a thread that makes dw: both sides, and sums. */
static double partials_scratch(const rg_conv_shape *s, int64_t rows)
{
    return scratch(s, false, rows) +
           RG_CONV_GROUPED_BYTES *
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

/* Whether groups have few channels, but more than one, a row fits the scratch in all directions,
 * and a result is a sum of at most two runs, each of which has an accumulator. */
static bool is_grouped(const rg_conv_shape *s)
{
    const double most = 0x1p22;
    const int64_t taps = s->row.window * s->column.window;
    return s->groups > 1 && s->in * s->out > 1 && s->in <= RG_CONV_GROUPED_MOST &&
           s->out <= RG_CONV_GROUPED_MOST && (s->in == 1 || s->out == 1 || s->in == s->out) &&
           taps <= RG_CONV_DEPTHWISE_TAPS && taps * rg_max(s->in, s->out) <= 2 * RG_SUM_RUN &&
           partials_scratch(s, 1) <= most && scratch(s, true, 1) <= most;
}

static bool accepts(const rg_call *call, const void *request)
{
    const rg_conv_pass *p = request;
    return is_grouped(&p->shape) && rg_call_finds(call, RG_CONV_GROUPED, rg_conv_dtype(p));
}

static int64_t aligned_bytes(double bytes)
{
    return rg_round_up((int64_t)bytes, RG_ALIGNMENT);
}

/* ---- forward and data ---- */

static rg_status record_transpose(rg_call *call, const rg_conv_pass *p, const rg_tensor *transposed)
{
    const rg_conv_grouped_transpose_args args = { .shape = p->shape,
                                                  .data = p->kernel == RG_CONV_DATA };
    const rg_launch launch = { .kernel = RG_CONV_GROUPED_TRANSPOSE,
                               .dtype = p->w->desc.dtype,
                               RG_ARGS(args),
                               .tensors = { RG_BIND(args, w, p->w),
                                            RG_BIND(args, transposed, transposed) },
                               .units = rg_shape_count(&transposed->desc) / RG_CONV_GROUPED_BLOCK,
                               .grain = 16,
                               .bytes = 4 * rg_move_bytes(p->w) };
    return rg_record(call, &launch);
}

static rg_status record_pass(rg_call *call, const rg_conv_pass *p, const rg_tensor *transposed)
{
    const rg_conv_shape *s = &p->shape;
    const bool data = p->kernel == RG_CONV_DATA;
    const int64_t channels = s->groups * (data ? s->in : s->out);
    rg_conv_grouped_args args = { .depthwise = rg_conv_depthwise_of(call, p),
                                  .picks = data ? s->out : s->in,
                                  .padded_channels = padded(channels) };
    args.depthwise.channels = channels;
    args.block = rows_of_block(s, data, false);
    args.blocks = rg_ceil_div(data ? s->row.size : s->row.count, args.block);
    args.scratch_bytes = aligned_bytes(scratch(s, data, args.block));
    rg_launch launch = rg_conv_launch(p, RG_CONV_GROUPED, transposed);
    launch.args = &args;
    launch.args_size = sizeof args;
    launch.thread_scratch = (size_t)args.scratch_bytes;
    launch.thread_scratch_at = RG_POINTER(args, scratch);
    rg_conv_set_pass_cost(&launch, p,
                          s->images * args.blocks * (args.padded_channels / RG_CONV_GROUPED_BLOCK),
                          rg_conv_products(s));
    return rg_record(call, &launch);
}

static rg_status record_between(rg_call *call, const rg_conv_pass *p)
{
    const rg_conv_shape *s = &p->shape;
    const bool data = p->kernel == RG_CONV_DATA;
    const int64_t channels = padded(s->groups * (data ? s->in : s->out));
    const int64_t weights = s->row.window * s->column.window * (data ? s->out : s->in);
    rg_tensor *transposed;
    RG_TRY(
        rg_conv_temporary(call, p->w->desc.dtype, (double)weights * (double)channels, &transposed));
    rg_status status = record_transpose(call, p, transposed);
    if (status == RG_OK)
        status = record_pass(call, p, transposed);
    rg_tensor_destroy(transposed);
    return status;
}

/* ---- weights ---- */

static rg_status record_partials(rg_call *call, const rg_conv_grouped_partials_args *args,
                                 const rg_conv_pass *p, const rg_tensor *partial)
{
    rg_launch launch = { .kernel = RG_CONV_GROUPED_PARTIALS,
                         .dtype = rg_conv_dtype(p),
                         RG_ARGS(*args),
                         .tensors = { RG_BIND(*args, x, p->x), RG_BIND(*args, dy, p->dy),
                                      RG_BIND(*args, partial, partial) },
                         .thread_scratch = (size_t)args->scratch_bytes,
                         .thread_scratch_at = RG_POINTER(*args, scratch) };
    rg_conv_set_cost(&launch, args->partials * (args->padded_channels / RG_CONV_GROUPED_BLOCK),
                     rg_move_bytes(p->x) + rg_move_bytes(p->dy), rg_conv_products(&p->shape));
    return rg_record(call, &launch);
}

static rg_status record_join(rg_call *call, const rg_conv_grouped_partials_args *partials,
                             const rg_conv_pass *p, const rg_tensor *partial)
{
    const rg_conv_shape *s = &p->shape;
    const rg_conv_grouped_join_args args = { .shape = *s,
                                             .partials = partials->partials,
                                             .padded_channels = partials->padded_channels,
                                             .add = p->add };
    const int64_t sums = s->row.window * s->column.window * s->in;
    const rg_launch launch = { .kernel = RG_CONV_GROUPED_JOIN,
                               .dtype = p->dw->desc.dtype,
                               RG_ARGS(args),
                               .tensors = { RG_BIND(args, partial, partial),
                                            RG_BIND(args, dw, p->dw) },
                               .units = sums * (args.padded_channels / RG_CONV_GROUPED_BLOCK),
                               .grain = 4,
                               .bytes = rg_move_bytes(partial) };
    return rg_record(call, &launch);
}

static rg_status record_weights(rg_call *call, const rg_conv_pass *p)
{
    const rg_conv_shape *s = &p->shape;
    rg_conv_grouped_partials_args args = { .shape = *s,
                                           .rows = rg_conv_rows_per_partial(s),
                                           .padded_channels = padded(s->groups * s->out),
                                           .block = rows_of_block(s, false, true) };
    args.partials = rg_ceil_div(s->images * s->row.count, args.rows);
    args.scratch_bytes = aligned_bytes(partials_scratch(s, args.block));
    const double sums = (double)(s->row.window * s->column.window * s->in);
    rg_tensor *partial;
    RG_TRY(rg_conv_temporary(call, rg_conv_dtype(p),
                             (double)args.partials * sums * (double)args.padded_channels,
                             &partial));
    rg_status status = record_partials(call, &args, p, partial);
    if (status == RG_OK)
        status = record_join(call, &args, p, partial);
    rg_tensor_destroy(partial);
    return status;
}

static rg_status record(rg_call *call, const void *request)
{
    const rg_conv_pass *p = request;
    return p->kernel == RG_CONV_WEIGHTS ? record_weights(call, p) : record_between(call, p);
}

const rg_strategy rg_conv_by_grouped = { "grouped", accepts, record };
