/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Transpose on a GPU. */
#include "ops/move/move.cuh"
#include "ops/transpose/transpose.h"

/* ---- table ---- */

static const rg_cuda_row kernel_rows[] = {
    RG_CUDA_ROW(RG_TRANSPOSE_MOVE, move_units),
};
RG_CUDA_TABLE(transpose, kernel_rows);
