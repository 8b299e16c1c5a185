/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Slice on a GPU. */
#include "backend/cuda/move.cuh"
#include "ops/slice/slice.h"

/* ---- table, in the order of the kernels' ids ---- */

RG_CUDA_TABLE(slice, RG_SLICE_KERNELS) = {
    RG_CUDA_ROW(move_units),   /* RG_SLICE_MOVE */
    RG_CUDA_ROW(spread_units), /* RG_SLICE_SPREAD */
};
