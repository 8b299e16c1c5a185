/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Concat on a GPU. */
#include "backend/cuda/move.cuh"
#include "ops/concat/concat.h"

/* ---- table, in the order of the kernels' ids ---- */

static const rg_cuda_row kernel_rows[RG_CONCAT_KERNELS] = {
    RG_CUDA_ROW(move_units),   /* RG_CONCAT_MOVE */
    RG_CUDA_ROW(spread_units), /* RG_CONCAT_SPREAD */
};
RG_CUDA_TABLE(concat, kernel_rows);
