/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Sums of squares: the cases. */
#include "ops/optest.h"

static double with_nan(int64_t i)
{
    return i == 11 ? __builtin_nan("") : 1;
}

static double with_infinity(int64_t i)
{
    return i == 50 ? -__builtin_inf() : 0.5;
}

/* A number whose sums are rounded in one direction for long. */
static double tenth(int64_t i)
{
    (void)i;
    return 0.1;
}

static const rg_case cases[] = {
    { "25M", "", "25000000", RG_CASE_BENCH | RG_CASE_BENCH_GPU },

    { "one", "", "1" },
    { "scalar", "", "-" },
    { "small", "", "5,37" },
    { "vectors", "", "33,48" },
    { "piece", "", "8192" },
    { "above", "", "8193" },
    { "pieces", "", "7,3,2017" },
    { "far", "", "300007" },
    { "large", "", "5,37", .x_fill = { { 100, 200 } } },
    { "nan", "", "3,17", RG_CASE_SPECIAL, .x_fill = { { 0, 0, with_nan } } },
    { "infinity", "", "3,17", RG_CASE_SPECIAL, .x_fill = { { 0, 0, with_infinity } } },
    { "factor", "factor=-0.25", "5,37" },
    { "rank-8", "", "2,1,3,2,1,2,3,2" },
    { "empty", "", "3,0,5" },

    /* long sums of what does not cancel */
    { "long-67m", "", "67108864", 0, .only = 1 << RG_F32, .x_fill = { { 0.5, 1.5 } } },
    { "long-constant", "", "67108864", 0, .only = 1 << RG_F32, .x_fill = { { .at = tenth } } },
    { .name = NULL },
};

RG_OP_TEST_DEFINE_FORWARD(grad_norm, .cases = cases);
