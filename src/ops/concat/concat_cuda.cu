/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Concat on a GPU. */
#include "ops/move/move.cuh"
#include "ops/concat/concat.h"

/* ---- table ---- */

static const rg_cuda_row kernel_rows[] = {
    RG_CUDA_ROW(RG_CONCAT_MOVE, move_units),
    RG_CUDA_ROW(RG_CONCAT_SCATTER, scatter_units),
};
RG_CUDA_TABLE(concat, kernel_rows);
