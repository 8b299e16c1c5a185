/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Adam on the CPU. */
#include "ops/adam/adam_formulas.h"
#include "ops/optimizer/update_cpu.h"

RG_UPDATE_LOOPS(adam)

/* ---- entry points and table ---- */

RG_KERNEL(adam_flat, rg_update_flat_args)
RG_KERNEL(adam_strided, rg_update_strided_args)

RG_CPU_TABLE(adam, RG_UPDATE_KERNELS) = {
    [RG_UPDATE_FLAT] = RG_ROW(adam_flat),
    [RG_UPDATE_STRIDED] = RG_ROW(adam_strided),
};
