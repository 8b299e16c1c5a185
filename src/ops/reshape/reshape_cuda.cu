/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Reshape on a GPU. */
#include "ops/move/move.cuh"
#include "ops/reshape/reshape.h"

/* ---- table ---- */

static const rg_cuda_row kernel_rows[] = {
    RG_CUDA_ROW(RG_RESHAPE_MOVE, move_units),
};
RG_CUDA_TABLE(reshape, kernel_rows);
