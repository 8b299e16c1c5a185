/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Slice on the CPU. */
#include "ops/move/moves_cpu.h"
#include "ops/slice/slice.h"

RG_KERNEL(move_units, rg_move_args)
RG_KERNEL(spread_units, rg_spread_args)

RG_CPU_TABLE(slice, RG_SLICE_KERNELS) = {
    [RG_SLICE_MOVE] = RG_ROW(move_units),
    [RG_SLICE_SPREAD] = RG_ROW(spread_units),
};
