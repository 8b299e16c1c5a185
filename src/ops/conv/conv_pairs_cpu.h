/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Entry points of kernels for pairs of bf16, see conv_pairs_plan.h. */
#ifndef RG_OPS_CONV_PAIRS_CPU_H
#define RG_OPS_CONV_PAIRS_CPU_H

#include "ops/contract/contract_pairs_cpu.h"
#include "ops/conv/conv_pairs_plan.h"

#define RG_PAIR_KERNEL(name, args) RG_ENTRY(name, args, _bf16, RG_BF16)
#define RG_PAIR_ROW(name)           \
    {                               \
        {                           \
            [RG_BF16] = name##_bf16 \
        }                           \
    }

#endif
