/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Concat on the CPU. */
#include "ops/concat/concat.h"
#include "ops/move/moves_cpu.h"

RG_KERNEL(move_units, rg_move_args)
RG_KERNEL(scatter_units, rg_scatter_args)

RG_CPU_TABLE(concat, RG_CONCAT_KERNELS) = {
    [RG_CONCAT_MOVE] = RG_ROW(move_units),
    [RG_CONCAT_SCATTER] = RG_ROW(scatter_units),
};
