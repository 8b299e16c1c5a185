/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Slice on a GPU. */
#include "backend/cuda/move.cuh"
#include "ops/slice/slice.h"

/* ---- table ---- */

static const rg_cuda_row kernel_rows[] = {
    RG_CUDA_ROW(RG_SLICE_MOVE, rg_cuda_move),
    RG_CUDA_ROW(RG_SLICE_SPREAD, rg_cuda_spread),
};
RG_CUDA_TABLE(slice, kernel_rows);
