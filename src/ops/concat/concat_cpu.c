/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Concat on the CPU. */
#include "ops/concat/concat.h"
#include "ops/move/moves_cpu.h"

RG_KERNEL(move_units, rg_move_args)
RG_KERNEL(spread_units, rg_spread_args)

RG_CPU_TABLE(concat, RG_CONCAT_KERNELS) = {
    [RG_CONCAT_MOVE] = RG_ROW(move_units),
    [RG_CONCAT_SPREAD] = RG_ROW(spread_units),
};
