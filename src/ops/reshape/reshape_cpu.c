/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Reshape on the CPU. */
#include "ops/reshape/reshape.h"
#include "ops/move/moves_cpu.h"

RG_KERNEL(move_units, rg_move_args)

RG_CPU_TABLE(reshape, RG_RESHAPE_KERNELS) = {
    [RG_RESHAPE_MOVE] = RG_ROW(move_units),
};
