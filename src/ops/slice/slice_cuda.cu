/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Slice on a GPU. */
#include "backend/cuda/move.cuh"
#include "ops/slice/slice.h"

/* ---- table, in the order of the kernels' ids ---- */

static const rg_cuda_row kernel_rows[RG_SLICE_KERNELS] = {
    RG_CUDA_ROW(move_units),   /* RG_SLICE_MOVE */
    RG_CUDA_ROW(spread_units), /* RG_SLICE_SPREAD */
};
RG_CUDA_TABLE(slice, kernel_rows);
