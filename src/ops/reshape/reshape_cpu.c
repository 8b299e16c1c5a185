/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Reshape on the CPU. */
#include "backend/cpu/runs.h"
#include "ops/reshape/reshape.h"

RG_KERNEL(move_units, rg_move_args)

RG_CPU_TABLE(reshape, RG_RESHAPE_KERNELS) = {
    [RG_RESHAPE_MOVE] = RG_ROW(move_units),
};
