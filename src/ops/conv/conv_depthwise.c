/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Recording depthwise convolutions: one channel of either side in a group. */
#include "core/integer.h"
#include "ops/conv/conv_record.h"

static bool accepts(const rg_call *call, const void *request)
{
    const rg_conv_pass *p = request;
    return rg_conv_is_depthwise(&p->shape) &&
           rg_call_finds(call, RG_CONV_DEPTHWISE, rg_conv_dtype(p));
}

/* ---- forward and data ---- */

rg_conv_depthwise_args rg_conv_depthwise_of(const rg_call *call, const rg_conv_pass *p)
{
    const rg_conv_args end = rg_conv_args_of(call, p);
    rg_conv_depthwise_args args = { .shape = end.shape,
                                    .channels = end.shape.groups,
                                    .data = p->kernel == RG_CONV_DATA,
                                    .has_b = end.has_b,
                                    .has_z = end.has_z,
                                    .b_step = end.has_b ? end.b_step : 1,
                                    .neuron = end.neuron,
                                    .add = end.add,
                                    .stream = end.stream };
    memcpy(args.z_step, end.z_step, sizeof args.z_step);
    args.plain = !args.has_z && !args.add && args.neuron.kind <= RG_NEURON_RELU && args.b_step == 1;
    return args;
}

static rg_status record_transpose(rg_call *call, const rg_conv_shape *s, const rg_tensor *w,
                                  const rg_tensor *transposed)
{
    rg_conv_transpose_weights_args args = { .shape = *s };
    const rg_launch launch = { .kernel = RG_CONV_TRANSPOSE_WEIGHTS,
                               .dtype = w->desc.dtype,
                               RG_ARGS(args),
                               .tensors = { RG_BIND(args, w, w),
                                            RG_BIND(args, transposed, transposed) },
                               .units = s->row.window * s->column.window,
                               .bytes = 4 * rg_move_bytes(w) };
    return rg_record(call, &launch);
}

static rg_status record_pass(rg_call *call, const rg_conv_pass *p, const rg_tensor *transposed)
{
    const rg_conv_axis *row = &p->shape.row;
    const rg_conv_depthwise_args args = rg_conv_depthwise_of(call, p);
    rg_launch launch = rg_conv_launch(p, RG_CONV_DEPTHWISE, transposed);
    launch.args = &args;
    launch.args_size = sizeof args;
    rg_conv_set_pass_cost(&launch, p, p->shape.images * (args.data ? row->size : row->count), 0);
    return rg_record(call, &launch);
}

static rg_status record_between(rg_call *call, const rg_conv_pass *p)
{
    const rg_conv_shape *s = &p->shape;
    const double taps = (double)(s->row.window * s->column.window);
    rg_tensor *transposed;
    RG_TRY(rg_conv_temporary(call, p->w->desc.dtype, taps * (double)s->groups, &transposed));
    rg_status status = record_transpose(call, s, p->w, transposed);
    if (status == RG_OK)
        status = record_pass(call, p, transposed);
    rg_tensor_destroy(transposed);
    return status;
}

/* ---- weights ---- */

static rg_status record_partials(rg_call *call, const rg_conv_depthwise_parts_args *args,
                                 const rg_conv_pass *p, const rg_tensor *partial)
{
    const rg_launch launch = { .kernel = RG_CONV_DEPTHWISE_PARTS,
                               .dtype = rg_conv_dtype(p),
                               RG_ARGS(*args),
                               .tensors = { RG_BIND(*args, x, p->x), RG_BIND(*args, dy, p->dy),
                                            RG_BIND(*args, partial, partial) },
                               .units = args->parts * args->blocks,
                               .bytes = rg_move_bytes(p->x) + rg_move_bytes(p->dy) };
    return rg_record(call, &launch);
}

static rg_status record_join(rg_call *call, int64_t parts, const rg_conv_pass *p,
                             const rg_tensor *partial)
{
    const rg_conv_shape *s = &p->shape;
    const rg_conv_depthwise_join_args args = { .shape = *s, .parts = parts, .add = p->add };
    const int64_t blocks = rg_ceil_div(s->groups, RG_CONV_DEPTHWISE_UNIT);
    const rg_launch launch = { .kernel = RG_CONV_DEPTHWISE_JOIN,
                               .dtype = p->dw->desc.dtype,
                               RG_ARGS(args),
                               .tensors = { RG_BIND(args, partial, partial),
                                            RG_BIND(args, dw, p->dw) },
                               .units = s->row.window * s->column.window * blocks,
                               .bytes = rg_move_bytes(partial) };
    return rg_record(call, &launch);
}

int64_t rg_conv_rows_per_partial(const rg_conv_shape *s)
{
    return rg_max(RG_CONV_DEPTHWISE_MOST / rg_max(s->column.count, 1), 1);
}

/* In units whose sums stay in L1. */
static rg_status record_weights(rg_call *call, const rg_conv_pass *p)
{
    enum { L1_REALS = 2048 };
    const rg_conv_shape *s = &p->shape;
    const rg_dtype dtype = rg_conv_dtype(p);
    const int64_t taps = s->row.window * s->column.window, rows = s->images * s->row.count;
    rg_conv_depthwise_parts_args args = { .shape = *s, .part = rg_conv_rows_per_partial(s) };
    args.parts = rg_ceil_div(rows, args.part);
    args.block = rg_max(L1_REALS / taps / RG_CONV_VECTOR, 2) * RG_CONV_VECTOR;
    args.blocks = rg_ceil_div(s->groups, args.block);
    const double count = (double)args.parts * (double)taps * (double)s->groups;
    rg_tensor *partial;
    RG_TRY(rg_conv_temporary(call, dtype, count, &partial));
    rg_status status = record_partials(call, &args, p, partial);
    if (status == RG_OK)
        status = record_join(call, args.parts, p, partial);
    rg_tensor_destroy(partial);
    return status;
}

static rg_status record(rg_call *call, const void *request)
{
    const rg_conv_pass *p = request;
    return p->kernel == RG_CONV_WEIGHTS ? record_weights(call, p) : record_between(call, p);
}

const rg_strategy rg_conv_by_depthwise = { "depthwise", accepts, record };
