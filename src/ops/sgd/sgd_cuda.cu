/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Gradient descent on a GPU. */
#include "ops/sgd/sgd_formulas.h"
#include "ops/optimizer/update.cuh"

static const rg_cuda_row kernel_rows[] = {
    RG_UPDATE_FLAT_ROW(sgd_rule, 1, 2),
    RG_UPDATE_STRIDED_ROW(sgd_rule),
};
RG_CUDA_TABLE(sgd, kernel_rows);
