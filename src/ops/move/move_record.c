/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Recording moves and scatters. */
#include "ops/move/move_record.h"
#include "core/integer.h"

int64_t rg_move_bytes(const rg_tensor *tensor)
{
    return rg_shape_count(&tensor->desc) * (int64_t)rg_dtype_size(tensor->desc.dtype);
}

rg_status rg_record_move(rg_call *call, int32_t kernel, const rg_tensor *from, const rg_tensor *to,
                         const rg_move *move)
{
    return rg_record_move_part(call, kernel, from, to, move, rg_move_bytes(to));
}

rg_status rg_record_move_part(rg_call *call, int32_t kernel, const rg_tensor *from,
                              const rg_tensor *to, const rg_move *move, int64_t result_bytes)
{
    rg_move_args args = { .move = *move };
    const int64_t all = rg_move_bytes(from) + result_bytes;
    const bool transposes = move->tiles.rows > 0; /* writes few lines of many rows at a time */
    args.move.stream = !move->add && (transposes ? rg_call_streams(call, result_bytes)
                                                 : rg_call_copy_streams(call, result_bytes, all));
    const int64_t bytes = move->to.count * (int64_t)rg_dtype_size(to->desc.dtype);
    const rg_launch launch = { .kernel = kernel,
                               .dtype = to->desc.dtype,
                               RG_ARGS(args),
                               .tensors = { RG_BIND(args, from, from), RG_BIND(args, to, to) },
                               .units = rg_ceil_div(move->to.count, RG_MOVE_PIECE),
                               .bytes = bytes * (move->add ? 3 : 2) };
    return rg_record(call, &launch);
}

rg_status rg_record_scatter(rg_call *call, int32_t kernel, const rg_tensor *from,
                            const rg_tensor *to, const rg_scatter *scatter)
{
    rg_scatter_args args = { .scatter = *scatter };
    args.scatter.stream = rg_call_streams(call, rg_move_bytes(to));
    const rg_launch launch = { .kernel = kernel,
                               .dtype = to->desc.dtype,
                               RG_ARGS(args),
                               .tensors = { RG_BIND(args, from, from), RG_BIND(args, to, to) },
                               .units = rg_ceil_div(scatter->count, RG_MOVE_PIECE),
                               .bytes =
                                   2 * scatter->count * (int64_t)rg_dtype_size(to->desc.dtype) };
    return rg_record(call, &launch);
}
