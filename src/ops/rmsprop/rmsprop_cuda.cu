/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* RMSProp on a GPU. */
#include "ops/rmsprop/rmsprop_formulas.h"
#include "ops/optimizer/update.cuh"

static const rg_cuda_row kernel_rows[] = {
    RG_UPDATE_FLAT_ROW(rmsprop_rule, 3, 1),
    RG_UPDATE_STRIDED_ROW(rmsprop_rule),
};
RG_CUDA_TABLE(rmsprop, kernel_rows);
