/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Recording convolutions of any shape: the strategy for what no other accepts, and on a GPU for
 * all, where conv_cuda.cu chooses further. */
#include "ops/conv/conv_record.h"

static bool accepts(const rg_call *call, const void *request)
{
    (void)call, (void)request;
    return true;
}

static rg_status record_weights(rg_call *call, const rg_conv_pass *p)
{
    const rg_conv_shape *s = &p->shape;
    const rg_dtype dtype = rg_conv_dtype(p);
    const rg_conv_weights_args args = { .shape = *s,
                                        .add = p->add,
                                        .wide = p->dw->desc.dtype != dtype };
    rg_launch launch = { .kernel = RG_CONV_WEIGHTS,
                         .dtype = dtype,
                         RG_ARGS(args),
                         .scratch_at = RG_POINTER(args, scratch),
                         .tensors = { RG_BIND(args, x, p->x), RG_BIND(args, dy, p->dy),
                                      RG_BIND(args, dw, p->dw) } };
    rg_conv_set_cost(&launch, s->groups * s->out * s->row.window * s->column.window,
                     rg_move_bytes(p->x) + rg_move_bytes(p->dy), rg_conv_products(s));
    return rg_record(call, &launch);
}

static rg_status record(rg_call *call, const void *request)
{
    const rg_conv_pass *p = request;
    if (p->kernel == RG_CONV_WEIGHTS)
        return record_weights(call, p);
    const rg_conv_args args = rg_conv_args_of(call, p);
    const rg_conv_axis *row = &p->shape.row;
    rg_launch launch = rg_conv_launch(p, p->kernel, p->w);
    launch.args = &args;
    launch.args_size = sizeof args;
    launch.scratch_at = RG_POINTER(args, scratch);
    rg_conv_set_pass_cost(&launch, p,
                          p->shape.images * (p->kernel == RG_CONV_FORWARD ? row->count : row->size),
                          rg_conv_products(&p->shape));
    return rg_record(call, &launch);
}

const rg_strategy rg_conv_by_any = { "any", accepts, record };
