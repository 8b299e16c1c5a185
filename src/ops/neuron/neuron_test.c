/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Neurons: the cases. */
#include "ops/optest.h"

static double special(int64_t i)
{
    const double inf = __builtin_inf();
    const double values[] = { 0, -0.0, inf, -inf, __builtin_nan(""), 1e-7, -1e-7, 60, -60 };
    return values[(i + i / 9) % 9]; /* each row starts with another one */
}

static const rg_case cases[] = {
    /* timed */
    { "relu-16M", "kind=relu", "16777216", RG_CASE_BENCH },
    { "sigmoid-16M", "kind=sigmoid", "16777216", RG_CASE_BENCH },
    { "sigmoid-16M-from-y", "kind=sigmoid from_y=true", "16777216", RG_CASE_BENCH },
    { "tanh-16M", "kind=tanh a=1", "16777216", RG_CASE_BENCH },
    { "tanh-16M-from-y", "kind=tanh a=1 from_y=true", "16777216", RG_CASE_BENCH },

    /* timed on a GPU */
    { "relu-256M", "kind=relu", "268435456", RG_CASE_BENCH_GPU },
    { "sigmoid-256M", "kind=sigmoid", "268435456", RG_CASE_BENCH_GPU },
    { "sigmoid-256M-from-y", "kind=sigmoid from_y=true", "268435456", RG_CASE_BENCH_GPU },
    { "tanh-256M", "kind=tanh a=1", "268435456", RG_CASE_BENCH_GPU },
    { "tanh-256M-from-y", "kind=tanh a=1 from_y=true", "268435456", RG_CASE_BENCH_GPU },

    { "relu", "kind=relu", "5,37" },
    { "relu-leaky", "kind=relu a=0.25", "3,7,5,21" },
    { "relu-negative-slope", "kind=relu a=-0.5", "1000" },
    { "relu-from-y", "kind=relu a=0.125 from_y=true", "5,37" },
    { "sigmoid", "kind=sigmoid", "5,37", .x_fill = { { -12, 12 } } },
    { "sigmoid-from-y", "kind=sigmoid from_y=true", "5,37" },
    { "tanh", "kind=tanh a=1", "5,37", .x_fill = { { -6, 6 } } },
    { "tanh-scaled", "kind=tanh a=1.75 b=0.625", "7,3,11" },
    { "tanh-scaled-from-y", "kind=tanh a=-1.75 b=0.625 from_y=true", "7,3,11" },
    { "overflow", "kind=tanh a=70000", "5,37", RG_CASE_FORWARD, .only = 1 << RG_F16 },
    { "scalar", "kind=tanh a=1", "-" },
    { "rows", "kind=sigmoid", "5,64" },
    { "one", "kind=sigmoid", "1" },
    { "rank-8", "kind=sigmoid", "2,1,3,2,5,2,1,3" },
    { "pieces", "kind=relu a=0.5", "3,20011" },
    { "pieces-strided", "kind=relu a=0.5", "1,17001" },
    { "empty", "kind=relu", "3,0,2", RG_CASE_ZERO },
    { "special-relu", "kind=relu a=0.5", "3,9", RG_CASE_SPECIAL, .x_fill = { { .at = special } } },
    { "special-relu-flat", "kind=relu", "3,9", RG_CASE_SPECIAL, .x_fill = { { .at = special } },
      .dy_fill = { .at = special } },
    { "special-sigmoid", "kind=sigmoid", "3,9", RG_CASE_SPECIAL, .x_fill = { { .at = special } } },
    { "special-sigmoid-from-y", "kind=sigmoid from_y=true", "3,9", RG_CASE_SPECIAL,
      .x_fill = { { .at = special } } },
    { "special-tanh", "kind=tanh a=1", "3,9", RG_CASE_SPECIAL, .x_fill = { { .at = special } } },
    { .name = NULL },
};

RG_OP_TEST_DEFINE(neuron, .cases = cases);
