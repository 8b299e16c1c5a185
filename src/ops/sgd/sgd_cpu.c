/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Gradient descent on the CPU. */
#include "ops/sgd/sgd_formulas.h"
#include "ops/optimizer/update_cpu.h"

RG_UPDATE_LOOPS(sgd)

/* ---- entry points and table ---- */

RG_KERNEL(sgd_flat, rg_update_flat_args)
RG_KERNEL(sgd_strided, rg_update_strided_args)

RG_CPU_TABLE(sgd, RG_UPDATE_KERNELS) = {
    [RG_UPDATE_FLAT] = RG_ROW(sgd_flat),
    [RG_UPDATE_STRIDED] = RG_ROW(sgd_strided),
};
