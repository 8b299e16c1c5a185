/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Recording depthwise convolutions. */
#include "ops/conv/conv_depthwise_record.h"
#include "core/integer.h"

bool rg_conv_depthwise_takes(const rg_call *call, const rg_conv_shape *s, rg_dtype dtype)
{
    return rg_conv_is_depthwise(s) && rg_call_finds(call, RG_CONV_DEPTHWISE, dtype);
}

rg_dtype rg_conv_real(rg_dtype dtype)
{
    return dtype == RG_F64 ? RG_F64 : RG_F32;
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

rg_conv_depthwise_args rg_conv_depthwise_of(const rg_call *call, bool data, const rg_conv_pass *p)
{
    const rg_conv_shape *s = &p->shape;
    const rg_dtype dtype = p->to->desc.dtype;
    rg_conv_depthwise_args args = { .shape = *s,
                                    .channels = s->groups,
                                    .data = data,
                                    .has_b = p->b != NULL,
                                    .has_z = p->z != NULL,
                                    .b_step = p->b != NULL ? p->b->desc.strides[0] : 1,
                                    .add = p->add };
    args.stream = !p->add && rg_call_streams(call, rg_move_bytes(p->to));
    if (p->z != NULL)
        (void)rg_conv_steps(&p->z->desc, args.z_step);
    if (p->neuron != NULL)
        args.neuron = (rg_conv_neuron){ (int32_t)p->neuron->kind,
                                        rg_neuron_numbers_of(p->neuron, dtype, false) };
    args.plain = !args.has_z && !args.add && args.neuron.kind <= RG_NEURON_RELU && args.b_step == 1;
    return args;
}

/* `w` is transposed. */
static rg_status record_pass(rg_call *call, bool data, const rg_conv_pass *p, const rg_tensor *w)
{
    const rg_conv_shape *s = &p->shape;
    const rg_conv_depthwise_args args = rg_conv_depthwise_of(call, data, p);
    rg_launch launch = { .kernel = RG_CONV_DEPTHWISE,
                         .dtype = p->to->desc.dtype,
                         RG_ARGS(args),
                         .tensors = { RG_BIND(args, from, p->from), RG_BIND(args, w, w),
                                      RG_BIND(args, b, p->b != NULL ? p->b : p->from),
                                      RG_BIND(args, to, p->to),
                                      RG_BIND(args, z, p->z != NULL ? p->z : p->to) } };
    rg_conv_set_cost(&launch, s->images * (data ? s->row.size : s->row.count),
                     rg_move_bytes(p->from) + rg_move_bytes(p->to), 0);
    return rg_record(call, &launch);
}

rg_status rg_conv_record_depthwise(rg_call *call, bool data, const rg_conv_pass *p)
{
    const rg_conv_shape *s = &p->shape;
    const int64_t dims[] = { s->row.window * s->column.window, s->groups };
    const rg_tensor_desc desc = rg_tensor_desc_dense(rg_conv_real(p->w->desc.dtype), 2, dims);
    rg_tensor *transposed;
    RG_TRY(rg_tensor_create_temporary(call->commands, &desc, &transposed));
    rg_status status = record_transpose(call, s, p->w, transposed);
    if (status == RG_OK)
        status = record_pass(call, data, p, transposed);
    rg_tensor_destroy(transposed);
    return status;
}

static rg_status record_parts(rg_call *call, const rg_conv_depthwise_parts_args *args,
                              const rg_tensor *x, const rg_tensor *dy, const rg_tensor *partial)
{
    const rg_launch launch = { .kernel = RG_CONV_DEPTHWISE_PARTS,
                               .dtype = x->desc.dtype,
                               RG_ARGS(*args),
                               .tensors = { RG_BIND(*args, x, x), RG_BIND(*args, dy, dy),
                                            RG_BIND(*args, partial, partial) },
                               .units = args->parts * args->blocks,
                               .bytes = rg_move_bytes(x) + rg_move_bytes(dy) };
    return rg_record(call, &launch);
}

static rg_status record_join(rg_call *call, const rg_conv_depthwise_parts_args *parts,
                             const rg_tensor *partial, const rg_tensor *dw, bool add)
{
    const rg_conv_shape *s = &parts->shape;
    const rg_conv_depthwise_join_args args = { .shape = *s, .parts = parts->parts, .add = add };
    const int64_t blocks = rg_ceil_div(s->groups, RG_CONV_DEPTHWISE_UNIT);
    const rg_launch launch = { .kernel = RG_CONV_DEPTHWISE_JOIN,
                               .dtype = dw->desc.dtype,
                               RG_ARGS(args),
                               .tensors = { RG_BIND(args, partial, partial),
                                            RG_BIND(args, dw, dw) },
                               .units = s->row.window * s->column.window * blocks,
                               .bytes = rg_move_bytes(partial) };
    return rg_record(call, &launch);
}

int64_t rg_conv_depthwise_part(const rg_conv_shape *s)
{
    return rg_max(RG_CONV_DEPTHWISE_MOST / rg_max(s->column.count, 1), 1);
}

rg_status rg_conv_record_depthwise_weights(rg_call *call, const rg_conv_shape *s,
                                           const rg_tensor *x, const rg_tensor *dy,
                                           const rg_tensor *dw, bool add)
{
    enum { L1_REALS = 2048, VECTOR = 16 };
    const int64_t taps = s->row.window * s->column.window, rows = s->images * s->row.count;
    rg_conv_depthwise_parts_args args = { .shape = *s, .part = rg_conv_depthwise_part(s) };
    args.parts = rg_ceil_div(rows, args.part);
    args.block = rg_max(L1_REALS / taps / VECTOR, 2) * VECTOR;
    args.blocks = rg_ceil_div(s->groups, args.block);
    const int64_t dims[] = { args.parts, taps, s->groups };
    const rg_tensor_desc desc = rg_tensor_desc_dense(rg_conv_real(x->desc.dtype), 3, dims);
    rg_tensor *partial;
    RG_TRY(rg_tensor_create_temporary(call->commands, &desc, &partial));
    rg_status status = record_parts(call, &args, x, dy, partial);
    if (status == RG_OK)
        status = record_join(call, &args, partial, dw, add);
    rg_tensor_destroy(partial);
    return status;
}
