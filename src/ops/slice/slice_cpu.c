/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Slice on the CPU. */
#include "ops/move/moves_cpu.h"
#include "ops/slice/slice.h"

RG_KERNEL(move_units, rg_move_args)
RG_KERNEL(scatter_units, rg_scatter_args)

RG_CPU_TABLE(slice, RG_SLICE_KERNELS) = {
    [RG_SLICE_MOVE] = RG_ROW(move_units),
    [RG_SLICE_SCATTER] = RG_ROW(scatter_units),
};
