/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Transpose: the cases. */
#include "ops/optest_draw.h"

#include <retrograde/transpose.h>

static double special(int64_t i)
{
    const double inf = __builtin_inf();
    const double values[] = { 0, -0.0, inf, -inf, __builtin_nan(""), 1e-7, -1e-7, 60, -60 };
    return values[(i + i / 9) % 9];
}

static const rg_case cases[] = {
    /* timed */
    { "matrix-4096", "", "4096,4096", RG_CASE_BENCH | RG_CASE_BENCH_GPU },
    { "to-channels-last", "order=0,2,3,1", "32,64,56,56", RG_CASE_BENCH },
    { "to-channels-first", "order=0,3,1,2", "32,56,56,64", RG_CASE_BENCH },
    { "to-channels-last-gpu", "order=0,2,3,1", "256,64,56,56", RG_CASE_BENCH_GPU },
    { "heads", "order=0,2,1,3", "8,128,12,64", RG_CASE_BENCH },

    { "matrix", "", "5,37" },
    { "matrix-named", "order=1,0", "33,17" },
    { "scalar", "", "-" },
    { "vector", "", "131" },
    { "one", "order=2,0,1", "1,1,1" },
    { "same", "order=0,1,2", "3,7,5" },
    { "same-negative", "order=-3,-2,-1", "3,7,5" },
    { "reversed", "", "3,7,5" },
    { "last-first", "order=2,0,1", "3,7,5" },
    { "negative", "order=-1,0,1", "3,7,5" },
    { "channels-last", "order=0,2,3,1", "2,3,9,11" },
    { "channels-first", "order=0,3,1,2", "2,9,11,3" },
    { "heads-small", "order=0,2,1,3", "2,5,3,17" },
    { "rank-8", "order=7,3,1,0,2,6,5,4", "2,1,3,2,5,2,1,3" },
    { "rank-8-reversed", "", "2,1,3,2,5,2,1,3" },
    { "vector-tails", "", "131,67" },
    { "pieces", "", "3,20011" },
    { "pieces-tall", "order=1,0", "20011,3" },
    { "empty", "order=2,0,1", "3,0,2", RG_CASE_ZERO },
    { "special", "", "3,9", RG_CASE_SPECIAL, .x_fill = { { .at = special } },
      .dy_fill = { .at = special } },
    { .name = NULL },
};

/* ---- random trials ---- */

/* A random order, written with and without signs, or none. */
static void draw(rg_draw *d)
{
    rg_transpose_desc *desc = d->desc;
    d->x[0] = rg_draw_shape(d, 0, RG_MAX_RANK);
    const int32_t rank = d->x[0].rank;
    desc->order_count = rg_draw_chance(d, 0.2) ? 0 : rank;
    for (int32_t k = 0; k < rank; k++)
        desc->order[k] = k;
    for (int32_t k = rank - 1; k > 0; k--) {
        const int64_t other = rg_draw_below(d, k + 1), kept = desc->order[k];
        desc->order[k] = desc->order[other];
        desc->order[other] = kept;
    }
    for (int32_t k = 0; k < rank; k++)
        desc->order[k] -= rg_draw_chance(d, 0.2) ? rank : 0;
}

RG_OP_TEST_DEFINE(transpose, .cases = cases, .draw = draw);
