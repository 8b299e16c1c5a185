/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Slice: the cases. */
#include "core/shape.h"
#include "ops/optest_draw.h"

#include <retrograde/slice.h>

static double special(int64_t i)
{
    const double inf = __builtin_inf();
    const double values[] = { 0, -0.0, inf, -inf, __builtin_nan(""), 1e-7, -1e-7, 60, -60 };
    return values[(i + i / 9) % 9];
}

static const rg_case cases[] = {
    /* timed */
    { "channels-16-48", "start=0,0,0,16 length=-1,-1,-1,32", "32,112,112,64", RG_CASE_BENCH },
    { "crop-56", "start=0,28,28 length=-1,56,56", "32,112,112,64", RG_CASE_BENCH },
    { "channels-16-48-gpu", "start=0,0,0,16 length=-1,-1,-1,32", "256,112,112,64",
      RG_CASE_BENCH_GPU },
    { "crop-56-gpu", "start=0,28,28 length=-1,56,56", "256,112,112,64", RG_CASE_BENCH_GPU },

    { "whole", "", "5,37" },
    { "channels", "start=0,3,16 length=-1,40,32", "3,50,64" }, /* more rows than are made at once */
    { "scalar", "", "-" },
    { "one", "start=0 length=1", "1" },
    { "one-channel", "start=1,2 length=3,4", "5,7,1" },
    { "single", "start=3 length=1", "7" },
    { "channels", "start=0,0,0,3 length=-1,-1,-1,5", "2,3,5,13" },
    { "channels-16", "start=0,0,0,16 length=-1,-1,-1,32", "2,3,5,64" },
    { "channels-8", "start=0,0,0,8 length=-1,-1,-1,16", "1,3,5,40" },
    { "channels-4", "start=0,0,0,4 length=-1,-1,-1,12", "1,3,5,20" },
    { "channels-2", "start=0,0,0,2 length=-1,-1,-1,6", "1,3,5,14" },
    { "rows", "start=0,2 length=-1,3", "2,7,5,3" },
    { "box", "start=1,2,1,3 length=2,3,4,5", "4,7,6,11" },
    { "batch", "start=2 length=1", "5,3,4" },
    { "tail", "start=-3,-1", "5,37" },
    { "steps", "start=1,0,2 step=2,3,5", "5,11,37" },
    { "step-last", "start=0,1 length=-1,7 step=1,3", "3,23" },
    { "step-long", "start=1 step=7", "17003" },
    { "step-outer", "start=1 step=2", "9,37" },
    { "step-beyond", "start=0,4 length=-1,1 step=1,4611686018427387904", "3,9" },
    { "rank-8", "start=1,0,1,0,2,1,0,1 length=1,1,2,1,-1,1", "2,1,3,2,5,2,1,3" },
    { "vector-tails", "start=0,1 length=-1,129", "3,131" },
    { "pieces", "start=0,17 length=-1,19000", "3,20011" },
    { "pieces-rows", "start=100 length=200", "401,97" },
    { "long-lines", "start=0,16 length=-1,1024", "19,1056" },
    { "nothing", "start=0,5 length=-1,0", "3,5", RG_CASE_ZERO },
    { "nothing-outside", "start=5 length=0", "5,4", RG_CASE_ZERO },
    { "empty", "start=0,0,1", "3,0,2", RG_CASE_ZERO },
    { "special", "start=1,2 length=2,6", "3,9", RG_CASE_SPECIAL, .x_fill = { { .at = special } },
      .dy_fill = { .at = special } },
    { .name = NULL },
};

static int64_t needs(const void *desc, const rg_tensor_desc x[], const rg_tensor_desc y[],
                     bool gradient)
{
    (void)desc, (void)x, (void)gradient;
    return rg_shape_count(y);
}

/* ---- random trials ---- */

static void draw(rg_draw *d)
{
    rg_slice_desc *desc = d->desc;
    d->x[0] = rg_draw_shape(d, 0, RG_MAX_RANK);
    const int32_t rank = d->x[0].rank;
    desc->start_count = (int32_t)rg_draw_between(d, 0, rank);
    desc->length_count = (int32_t)rg_draw_between(d, 0, rank);
    desc->step_count = (int32_t)rg_draw_between(d, 0, rank);
    for (int32_t k = 0; k < rank; k++) {
        const int64_t dim = d->x[0].dims[k], start = rg_draw_between(d, 0, dim);
        const int64_t step = rg_draw_chance(d, 0.5) ? 1 : rg_draw_between(d, 1, 5);
        const int64_t left = dim - (k < desc->start_count ? start : 0);
        const int64_t used = k < desc->step_count ? step : 1;
        const int64_t most = left > 0 ? (left - 1) / used + 1 : 0;
        desc->start[k] = rg_draw_chance(d, 0.3) && start < dim ? start - dim : start;
        desc->step[k] = step;
        desc->length[k] = rg_draw_chance(d, 0.3) ? -1 : rg_draw_between(d, 0, most);
    }
}

RG_OP_TEST_DEFINE(slice, .cases = cases, .needs = needs, .draw = draw);
