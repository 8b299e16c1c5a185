/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Concat: the cases. */
#include "ops/optest_draw.h"

#include <retrograde/concat.h>

static double special(int64_t i)
{
    const double inf = __builtin_inf();
    const double values[] = { 0, -0.0, inf, -inf, __builtin_nan(""), 1e-7, -1e-7, 60, -60 };
    return values[(i + i / 9) % 9];
}

static const rg_case cases[] = {
    /* timed */
    { "channels-64-64", "", "32,56,56,64 32,56,56,64", RG_CASE_BENCH },
    { "channels-30-34", "", "32,56,56,30 32,56,56,34", RG_CASE_BENCH },
    { "channels-64-64-gpu", "", "256,56,56,64 256,56,56,64", RG_CASE_BENCH_GPU },
    { "channels-30-34-gpu", "", "256,56,56,30 256,56,56,34", RG_CASE_BENCH_GPU },

    { "channels", "", "2,3,5,7 2,3,5,11" },
    { "channels-16", "", "2,3,5,16 2,3,5,32" },
    { "channels-8", "", "2,3,5,8 2,3,5,24" },
    { "channels-2", "", "2,3,5,2 2,3,5,6" },
    { "rows", "axis=1", "2,3,5,7 2,4,5,7" },
    { "columns", "axis=2", "2,3,5,7 2,3,1,7" },
    { "batch", "axis=0", "2,3,5 4,3,5" },
    { "axis-last", "axis=1", "5,37 5,19" },
    { "axis-from-the-end", "axis=-2", "3,2,7 3,9,7" },
    { "one", "sources=1", "1" },
    { "one-source", "sources=1 axis=1", "5,37,3" },
    { "two-numbers", "", "1 1" },
    { "three", "sources=3 axis=1", "3,1,4 3,5,4 3,2,4" },
    { "eight", "sources=8", "3,1 3,2 3,3 3,4 3,5 3,6 3,7 3,8" },
    { "rank-8", "axis=4", "2,1,3,2,5,2,1,3 2,1,3,2,2,2,1,3" },
    { "multiple-4", "sources=3 multiple=4", "2,3,5,7 2,3,5,8 2,3,5,1" },
    { "multiple-4-mps", "multiple=4", "2,3,5,23 2,3,5,16" },
    { "multiple-16", "multiple=16", "2,3,5,24 2,3,5,8" },
    { "multiple-rows", "axis=1 multiple=8", "2,5,3 2,9,3" },
    { "multiple-batch", "axis=0 multiple=4", "5,3 3,3" },
    { "vector-tails", "", "3,129 3,67" },
    { "pieces", "axis=1", "3,20011 3,17001" },
    { "pieces-multiple", "axis=0 multiple=4", "201,101 3,101" },
    { "long-lines", "", "19,1024 19,1024" },
    { "empty", "axis=1", "3,0,2 3,0,2", RG_CASE_ZERO },
    { "empty-source", "sources=3 axis=1", "3,2,2 3,0,2 3,1,2", RG_CASE_ZERO },
    { "empty-multiple", "axis=1 multiple=4", "3,0,2 3,1,2", RG_CASE_ZERO },
    { "special", "multiple=4", "3,9 3,5", RG_CASE_SPECIAL,
      .x_fill = { { .at = special }, { .at = special } }, .dy_fill = { .at = special } },
    { .name = NULL },
};

/* ---- random trials ---- */

static void draw(rg_draw *d)
{
    rg_concat_desc *desc = d->desc;
    d->x[0] = rg_draw_shape(d, 1, RG_MAX_RANK);
    desc->sources = (int32_t)rg_draw_between(d, 1, RG_MAX_INPUTS);
    desc->axis = rg_draw_axis(d, d->x[0].rank);
    desc->multiple = rg_draw_chance(d, 0.7) ? 1 : rg_draw_between(d, 1, 9);
    const int64_t axis = desc->axis < 0 ? desc->axis + d->x[0].rank : desc->axis;
    for (int32_t i = 1; i < desc->sources; i++) {
        int64_t dims[RG_MAX_RANK];
        memcpy(dims, d->x[0].dims, sizeof dims);
        dims[axis] = rg_draw_size(d, 40);
        d->x[i] = rg_tensor_desc_dense(d->dtype, d->x[0].rank, dims);
    }
}

RG_OP_TEST_DEFINE(concat, .cases = cases, .draw = draw);
