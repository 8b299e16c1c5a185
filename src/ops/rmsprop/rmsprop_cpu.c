/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* RMSProp on the CPU. */
#include "ops/rmsprop/rmsprop_formulas.h"
#include "ops/optimizer/update_cpu.h"

RG_UPDATE_LOOPS(rmsprop)

/* ---- entry points and table ---- */

RG_KERNEL(rmsprop_flat, rg_update_flat_args)
RG_KERNEL(rmsprop_strided, rg_update_strided_args)

RG_CPU_TABLE(rmsprop, RG_UPDATE_KERNELS) = {
    [RG_UPDATE_FLAT] = RG_ROW(rmsprop_flat),
    [RG_UPDATE_STRIDED] = RG_ROW(rmsprop_strided),
};
