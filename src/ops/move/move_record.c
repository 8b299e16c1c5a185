/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Recording moves and spreads. */
#include "ops/move/move_record.h"
#include "core/integer.h"

static rg_launch launch_of(int32_t kernel, const rg_tensor *from, const rg_tensor *to,
                           int64_t count)
{
    return (rg_launch){ .kernel = kernel,
                        .dtype = to->desc.dtype,
                        .tensors = { from, to },
                        .units = rg_ceil_div(count, RG_MOVE_PIECE),
                        .grain = 1 };
}

int64_t rg_move_bytes(const rg_tensor *tensor)
{
    return rg_shape_count(&tensor->desc) * (int64_t)rg_dtype_size(tensor->desc.dtype);
}

rg_status rg_record_move(rg_call *call, int32_t kernel, const rg_tensor *from, const rg_tensor *to,
                         const rg_move *move)
{
    rg_move_args args = { .move = *move };
    rg_launch launch = launch_of(kernel, from, to, move->to.count);
    args.move.stream = !move->add && rg_call_streams(call, rg_move_bytes(to));
    launch.args = &args;
    launch.args_size = sizeof args;
    launch.bytes = move->to.count * (int64_t)rg_dtype_size(launch.dtype) * (move->add ? 3 : 2);
    return rg_record(call, &launch);
}

rg_status rg_record_spread(rg_call *call, int32_t kernel, const rg_tensor *from,
                           const rg_tensor *to, const rg_spread *spread)
{
    rg_spread_args args = { .spread = *spread };
    rg_launch launch = launch_of(kernel, from, to, spread->count);
    args.spread.stream = rg_call_streams(call, rg_move_bytes(to));
    launch.args = &args;
    launch.args_size = sizeof args;
    launch.bytes = spread->count * (int64_t)rg_dtype_size(launch.dtype) * 2;
    return rg_record(call, &launch);
}
