/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Adam on a GPU. */
#include "ops/adam/adam_formulas.h"
#include "ops/optimizer/update.cuh"

static const rg_cuda_row kernel_rows[] = {
    RG_UPDATE_FLAT_ROW(adam_rule, 3, 1),
    RG_UPDATE_STRIDED_ROW(adam_rule),
};
RG_CUDA_TABLE(adam, kernel_rows);
