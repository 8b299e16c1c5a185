/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The functions of each unit for pairs of bf16. */
#include "ops/contract/contract_pairs.h"
#include "backend/cpu/bf16_unit.h"
#include "core/long_sum.h"

static const rg_pair_unit units[] = {
    [RG_BF16_UNIT_AVX512] = { rg_bf16_rows, false, RG_SUM_RUN, 2, true },
    [RG_BF16_UNIT_AMX] = { rg_amx_rows, true, RG_SUM_RUN *RG_PAIR_DEPTH, RG_PAIR_DEPTH, false },
};

const rg_pair_unit *rg_pair_unit_best(void)
{
    const int32_t unit = rg_bf16_unit();
    return unit == RG_BF16_UNIT_NONE ? NULL : &units[unit];
}
