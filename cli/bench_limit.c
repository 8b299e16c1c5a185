/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Recording the loops of the limit. They are recorded like kernels of an op, but belong to none. */
#include "cli/bench_limit.h"
#include "ops/contract/contract_pairs.h"
#include "backend/kernel_lists.h"
#include "core/shape.h"
#include "runtime/objects.h"

#include <assert.h>

#define RG_CPU_TABLES_limit(TABLE, real, isa) TABLE(limit, real, isa)
#define RG_CPU_WIDE_F64_limit                 RG_CPU_TABLES_limit
#define RG_CUDA_TABLES_limit(TABLE)           TABLE(limit)
RG_KERNELS_DEFINE(limit)

static const rg_op limit = { .name = "limit", .kernels = &rg_kernels_limit };

static rg_status record(rg_commands *commands, rg_limit_args *args, rg_launch *launch)
{
    RG_TRY(rg_commands_recording(commands, "limit"));
    launch->units = launch->units > 0 ? launch->units : 1;
    launch->grain = 1;
    args->units = launch->units;
    launch->args = args;
    launch->args_size = sizeof *args;
    rg_call call = { .op = &limit, .commands = commands };
    const rg_mark mark = rg_commands_mark(commands);
    const rg_status status = rg_record(&call, launch);
    if (status != RG_OK)
        rg_commands_rewind(commands, mark);
    return status;
}

rg_status rg_limit_record(rg_commands *commands, rg_tensor *const inputs[], int32_t input_count,
                          rg_tensor *const outputs[], int32_t output_count, bool bypass)
{
    enum { TILE = 128 << 10 }; /* bytes, as the tiles of kernels */
    assert(input_count + output_count < RG_MAX_POINTERS);
    rg_limit_args args = { .inputs = input_count, .outputs = output_count };
    rg_launch launch = { .kernel = bypass ? RG_LIMIT_BYPASS : RG_LIMIT_ORDINARY, .dtype = RG_F32 };
    for (int32_t t = 0; t < input_count + output_count; t++) {
        const rg_tensor *tensor = t < input_count ? inputs[t] : outputs[t - input_count];
        args.bytes[t] = rg_shape_count(&tensor->desc) * (int64_t)rg_dtype_size(tensor->desc.dtype);
        launch.tensors[t] = tensor;
        launch.bytes += args.bytes[t];
    }
    launch.units = launch.bytes / TILE;
    return record(commands, &args, &launch);
}

rg_status rg_limit_record_peak(rg_commands *commands, rg_tensor *done, rg_dtype dtype)
{
    rg_limit_args args = { .outputs = 1 };
    const rg_call call = { .op = &limit, .commands = commands };
    const bool pairs = dtype == RG_BF16 && rg_pair_unit_best() != NULL &&
                       rg_call_finds(&call, RG_LIMIT_PAIR_PEAK, RG_F32);
    rg_launch launch = { .kernel = pairs ? RG_LIMIT_PAIR_PEAK : RG_LIMIT_PEAK,
                         .dtype = dtype == RG_F64 ? RG_F64 : RG_F32,
                         .tensors = { done },
                         .units = rg_shape_count(&done->desc),
                         .bytes = INT64_MAX / 2 }; /* always worth all threads */
    return record(commands, &args, &launch);
}
