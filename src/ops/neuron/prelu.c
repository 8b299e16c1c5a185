/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* prelu, the neuron with a slope for each channel: forward, gradient. */
#include "ops/neuron/prelu.h"
#include "core/integer.h"
#include "ops/neuron/neuron.h"
#include "runtime/objects.h"

/* Cuts the tensors into units, by shape alone. A part has about ELEMENTS elements, and at least
 * ROWS rows, so that storing its sums costs little. There are at most PARTS parts, so that joining
 * them costs little, unless a part would exceed MOST_ROWS rows a sum. */
static void cut(rg_prelu_shape *s)
{
    enum { ELEMENTS = 16384, ROWS = 64, PARTS = 1024, MOST_ROWS = 1024 };
    const int64_t rows = s->rows.count, channels = rg_max(s->channels, 1);
    s->block = channels < RG_BLOCK_GROUPS ? channels : RG_BLOCK_GROUPS;
    s->blocks = rg_ceil_div(s->channels, s->block);
    s->rows_at_once = RG_BLOCK_GROUPS / s->block;
    s->part = rg_max(rg_max(ELEMENTS / channels, ROWS), rg_ceil_div(rows, PARTS));
    s->part = s->part < MOST_ROWS * s->rows_at_once ? s->part : MOST_ROWS * s->rows_at_once;
    s->parts = rg_ceil_div(rows, s->part);
}

static void lay_out(const rg_tensor *const tensors[], int count, const rg_tensor *slope,
                    rg_prelu_shape *s, rg_launch *launch)
{
    const rg_tensor_desc *descs[RG_PRELU_TENSORS];
    for (int t = 0; t < count; t++)
        descs[t] = &tensors[t]->desc;
    const int32_t last = descs[0]->rank - 1;
    s->rows = rg_walk_make(descs, count, 0, last);
    s->channels = descs[0]->dims[last];
    s->slope_step = slope->desc.strides[0];
    s->dense = true;
    s->joined = s->rows.rank <= 1;
    for (int t = 0; t < count; t++) {
        s->step[t] = s->channels > 1 ? descs[t]->strides[last] : 1;
        s->dense &= s->step[t] == 1;
        s->joined &= s->rows.rank == 0 || s->rows.strides[t][0] == s->channels;
    }
    s->joined &= s->dense;
    cut(s);
    launch->dtype = descs[0]->dtype;
    launch->units = s->parts * s->blocks;
    launch->bytes = rg_shape_count(descs[0]) * (int64_t)rg_dtype_size(launch->dtype) * count;
}

rg_status rg_prelu_forward(rg_call *call)
{
    rg_prelu_args args = { 0 };
    rg_launch launch = { .tensors = { RG_BIND(args, x, call->x[0]),
                                      RG_BIND(args, slope, call->x[1]),
                                      RG_BIND(args, y, call->y[0]) },
                         .kernel = RG_NEURON_FORWARD + RG_NEURON_PRELU,
                         RG_ARGS(args) };
    const rg_tensor *const walked[] = { call->x[0], call->y[0] };
    lay_out(walked, 2, call->x[1], &args.shape, &launch);
    args.shape.stream = args.shape.dense && rg_call_streams(call, launch.bytes / 2);
    return rg_record(call, &launch);
}

/* dx, and sums for dslope if there is a tensor for them. */
static rg_status record(rg_call *call, rg_prelu_gradient_args *args, rg_launch *launch,
                        const rg_tensor *sums)
{
    launch->tensors[RG_POINTER(*args, sums)] = sums != NULL ? sums : call->dy[0];
    args->wants_sums = sums != NULL;
    return rg_record(call, launch);
}

/* The sums of all parts make dslope. */
static rg_status record_join(rg_call *call, const rg_prelu_shape *shape, const rg_tensor *sums)
{
    const rg_tensor *dslope = call->dx[1];
    const rg_prelu_join_args args = { .parts = shape->parts,
                                      .channels = shape->channels,
                                      .step = dslope->desc.strides[0],
                                      .add = call->add >> 1 & 1 };
    const rg_launch launch = {
        .tensors = { RG_BIND(args, sums, sums), RG_BIND(args, dslope, dslope) },
        .kernel = RG_NEURON_PRELU_JOIN,
        .dtype = dslope->desc.dtype,
        RG_ARGS(args),
        .units = rg_ceil_div(shape->channels, RG_PRELU_JOIN_UNIT),
        .bytes = rg_shape_count(&sums->desc) * (int64_t)rg_dtype_size(sums->desc.dtype)
    };
    return rg_record(call, &launch);
}

rg_status rg_prelu_gradient(rg_call *call)
{
    rg_prelu_gradient_args args = { .wants_dx = call->dx[0] != NULL, .add = call->add & 1 };
    const rg_tensor *dx = call->dx[0] != NULL ? call->dx[0] : call->x[0];
    rg_launch launch = { .tensors = { RG_BIND(args, dy, call->dy[0]), RG_BIND(args, x, call->x[0]),
                                      RG_BIND(args, slope, call->x[1]), RG_BIND(args, dx, dx) },
                         .kernel = RG_NEURON_GRADIENT + RG_NEURON_PRELU,
                         RG_ARGS(args) };
    const rg_tensor *const walked[] = { call->dy[0], call->x[0], dx };
    lay_out(walked, 3, call->x[1], &args.shape, &launch);
    args.shape.stream =
        args.wants_dx && !args.add && args.shape.dense && rg_call_streams(call, launch.bytes / 3);
    if (call->dx[1] == NULL)
        return record(call, &args, &launch, NULL);

    rg_tensor *sums;
    const int64_t dims[] = { args.shape.parts, args.shape.channels };
    const rg_tensor_desc desc =
        rg_tensor_desc_dense(launch.dtype == RG_F64 ? RG_F64 : RG_F32, 2, dims);
    RG_TRY(rg_tensor_create_temporary(call->commands, &desc, &sums));
    rg_status status = record(call, &args, &launch, sums);
    if (status == RG_OK)
        status = record_join(call, &args.shape, sums);
    rg_tensor_destroy(sums);
    return status;
}
