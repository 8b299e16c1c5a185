/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Transpose on the CPU. */
#include "ops/transpose/transpose.h"
#include "ops/move/moves_cpu.h"

RG_KERNEL(move_units, rg_move_args)

RG_CPU_TABLE(transpose, RG_TRANSPOSE_KERNELS) = {
    [RG_TRANSPOSE_MOVE] = RG_ROW(move_units),
};
