/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Slice on a GPU. */
#include "ops/move/move.cuh"
#include "ops/slice/slice.h"

/* ---- table ---- */

static const rg_cuda_row kernel_rows[] = {
    RG_CUDA_ROW(RG_SLICE_MOVE, move_units),
    RG_CUDA_ROW(RG_SLICE_SCATTER, scatter_units),
};
RG_CUDA_TABLE(slice, kernel_rows);
