/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Recording convolutions where groups have few channels. */
#include "ops/conv/conv_grouped_record.h"
#include "core/integer.h"

bool rg_conv_grouped_takes(const rg_call *call, const rg_conv_shape *s, rg_dtype dtype)
{
    return rg_conv_is_grouped(s) && rg_call_finds(call, RG_CONV_GROUPED, dtype);
}

static size_t aligned_bytes(double bytes)
{
    return ((size_t)bytes + RG_ALIGNMENT - 1) / RG_ALIGNMENT * RG_ALIGNMENT;
}

static rg_status rg_conv_record_grouped_transpose(rg_call *call, const rg_conv_shape *s, bool data,
                                                  const rg_tensor *w, const rg_tensor *transposed)
{
    const rg_conv_grouped_transpose_args args = { .shape = *s, .data = data };
    const rg_launch launch = { .kernel = RG_CONV_GROUPED_TRANSPOSE,
                               .dtype = w->desc.dtype,
                               .args = &args,
                               .args_size = sizeof args,
                               .tensors = { w, transposed },
                               .units = rg_shape_count(&transposed->desc) / RG_CONV_GROUPED_LANES,
                               .grain = 16,
                               .bytes = 4 * rg_move_bytes(w) };
    return rg_record(call, &launch);
}

static rg_status rg_conv_grouped_pass(rg_call *call, bool data, const rg_conv_pass *p,
                                      const rg_tensor *transposed)
{
    const rg_conv_shape *s = &p->shape;
    const int64_t rows = data ? s->row.size : s->row.count;
    const int64_t lanes = s->groups * (data ? s->in : s->out);
    rg_conv_grouped_args args = { .depth = rg_conv_depthwise_of(call, data, p),
                                  .picks = data ? s->out : s->in,
                                  .lanes = rg_conv_grouped_padded(lanes) };
    args.depth.channels = lanes;
    args.block = rg_conv_grouped_block(s, data, false);
    args.blocks = rg_ceil_div(rows, args.block);
    args.scratch_bytes = (int64_t)aligned_bytes(rg_conv_grouped_scratch(s, data, args.block));
    rg_launch launch = { .kernel = RG_CONV_GROUPED,
                         .dtype = p->to->desc.dtype,
                         .args = &args,
                         .args_size = sizeof args,
                         .tensors = { p->from, transposed, p->b != NULL ? p->b : p->from, p->to,
                                      p->z != NULL ? p->z : p->to },
                         .thread_scratch = (size_t)args.scratch_bytes };
    rg_conv_set_cost(&launch, s->images * args.blocks * (args.lanes / RG_CONV_GROUPED_LANES),
                     rg_move_bytes(p->from) + rg_move_bytes(p->to), rg_conv_products(s));
    return rg_record(call, &launch);
}

rg_status rg_conv_record_grouped(rg_call *call, bool data, const rg_conv_pass *p)
{
    const rg_conv_shape *s = &p->shape;
    const int64_t lanes = rg_conv_grouped_padded(s->groups * (data ? s->in : s->out));
    const int64_t dims[] = { s->row.window * s->column.window, data ? s->out : s->in, lanes };
    const rg_tensor_desc desc = rg_tensor_desc_dense(rg_conv_real(p->w->desc.dtype), 3, dims);
    rg_tensor *transposed;
    RG_TRY(rg_tensor_create_temporary(call->commands, &desc, &transposed));
    rg_status status = rg_conv_record_grouped_transpose(call, s, data, p->w, transposed);
    if (status == RG_OK)
        status = rg_conv_grouped_pass(call, data, p, transposed);
    rg_tensor_destroy(transposed);
    return status;
}

static rg_status rg_conv_grouped_parts(rg_call *call, const rg_conv_grouped_parts_args *args,
                                       const rg_tensor *x, const rg_tensor *dy,
                                       const rg_tensor *partial)
{
    rg_launch launch = { .kernel = RG_CONV_GROUPED_PARTS,
                         .dtype = x->desc.dtype,
                         .args = args,
                         .args_size = sizeof *args,
                         .tensors = { x, dy, partial },
                         .thread_scratch = (size_t)args->scratch_bytes };
    rg_conv_set_cost(&launch, args->parts * (args->lanes / RG_CONV_GROUPED_LANES),
                     rg_move_bytes(x) + rg_move_bytes(dy), rg_conv_products(&args->shape));
    return rg_record(call, &launch);
}

static rg_status rg_conv_grouped_join(rg_call *call, const rg_conv_grouped_parts_args *parts,
                                      const rg_tensor *partial, const rg_tensor *dw, bool add)
{
    const rg_conv_shape *s = &parts->shape;
    const rg_conv_grouped_join_args args = {
        .shape = *s, .parts = parts->parts, .lanes = parts->lanes, .add = add
    };
    const int64_t sums = s->row.window * s->column.window * s->in;
    const rg_launch launch = { .kernel = RG_CONV_GROUPED_JOIN,
                               .dtype = dw->desc.dtype,
                               .args = &args,
                               .args_size = sizeof args,
                               .tensors = { partial, dw },
                               .units = sums * (args.lanes / RG_CONV_GROUPED_LANES),
                               .grain = 4,
                               .bytes = rg_move_bytes(partial) };
    return rg_record(call, &launch);
}

rg_status rg_conv_record_grouped_weights(rg_call *call, const rg_conv_shape *s, const rg_tensor *x,
                                         const rg_tensor *dy, const rg_tensor *dw, bool add)
{
    rg_conv_grouped_parts_args args = { .shape = *s,
                                        .part = rg_conv_depthwise_part(s, false),
                                        .lanes = rg_conv_grouped_padded(s->groups * s->out),
                                        .block = rg_conv_grouped_block(s, false, true) };
    const int64_t rows = s->images * s->row.count;
    args.parts = rg_ceil_div(rows, args.part);
    args.scratch_bytes = (int64_t)aligned_bytes(rg_conv_grouped_parts_scratch(s, args.block));
    const int64_t dims[] = { args.parts, s->row.window * s->column.window, s->in, args.lanes };
    const rg_tensor_desc desc = rg_tensor_desc_dense(rg_conv_real(x->desc.dtype), 4, dims);
    rg_tensor *partial;
    RG_TRY(rg_tensor_create_temporary(call->commands, &desc, &partial));
    rg_status status = rg_conv_grouped_parts(call, &args, x, dy, partial);
    if (status == RG_OK)
        status = rg_conv_grouped_join(call, &args, partial, dw, add);
    rg_tensor_destroy(partial);
    return status;
}
