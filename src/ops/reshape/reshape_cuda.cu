/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Reshape on a GPU. */
#include "backend/cuda/move.cuh"
#include "ops/reshape/reshape.h"

/* ---- table, in the order of the kernels' ids ---- */

static const rg_cuda_row kernel_rows[RG_RESHAPE_KERNELS] = {
    RG_CUDA_ROW(move_units), /* RG_RESHAPE_MOVE */
};
RG_CUDA_TABLE(reshape, kernel_rows);
