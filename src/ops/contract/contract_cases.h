/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Values and dtypes for cases of long sums, which all contractions have. */
#ifndef RG_OPS_CONTRACT_CASES_H
#define RG_OPS_CONTRACT_CASES_H

#include "ops/optest_draw.h"

/* Equal numbers are the worst case of a long sum: every addition rounds the same way. */
static inline double rg_case_equal(int64_t i)
{
    (void)i;
    return 0.7;
}

#define SINGLE 1u << RG_F32
#define TWO    1u << RG_F32 | 1u << RG_BF16
#define EQUAL                                                                                \
    .x_fill = { { .at = rg_case_equal }, { .at = rg_case_equal }, { .at = rg_case_equal } }, \
    .dy_fill = { .at = rg_case_equal }
#define ABOVE .x_fill = { { 0.5, 1.5 }, { 0.5, 1.5 }, { 0.5, 1.5 } }, .dy_fill = { 0.5, 1.5 }

#endif
