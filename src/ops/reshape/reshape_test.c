/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Reshape: the cases. */
#include "ops/optest_draw.h"

#include <retrograde/reshape.h>

static double special(int64_t i)
{
    const double inf = __builtin_inf();
    const double values[] = { 0, -0.0, inf, -inf, __builtin_nan(""), 1e-7, -1e-7, 60, -60 };
    return values[(i + i / 9) % 9];
}

static const rg_case cases[] = {
    /* timed */
    { "flatten-images", "dims=32,-1", "32,56,56,64", RG_CASE_BENCH },
    { "flatten-images-gpu", "dims=256,-1", "256,56,56,64", RG_CASE_BENCH_GPU },

    { "flat", "", "5,37" },
    { "scalar", "", "-" },
    { "to-scalar", "dims=", "1,1" },
    { "one", "dims=1,1,1", "1" },
    { "same", "dims=3,7,5", "3,7,5" },
    { "split", "dims=3,7,5", "105" },
    { "other", "dims=6,35", "10,21" },
    { "open", "dims=4,-1,9", "6,3,8" },
    { "images", "dims=-1,8,8,4", "2,16,4,4" },
    { "vectors", "dims=12,-1", "3,8,64" },
    { "zero-keeps", "dims=0,-1,0 zero_keeps=true", "3,8,5,2" },
    { "rank-8", "dims=-1", "2,1,3,2,5,2,1,3" },
    { "to-rank-8", "dims=2,1,3,2,-1,2,1,3", "36,10" },
    { "vector-tails", "dims=-1,3", "3,131" },
    { "pieces", "dims=-1,3", "3,20011" },
    { "pieces-strided", "dims=7,2,-1", "14,1299" },
    { "long-lines", "dims=2,-1", "19,2048" },
    { "empty", "dims=5,0", "3,0,2", RG_CASE_ZERO },
    { "empty-open", "dims=-1,4", "3,0,2", RG_CASE_ZERO },
    { "special", "dims=9,-1", "3,9", RG_CASE_SPECIAL, .x_fill = { { .at = special } },
      .dy_fill = { .at = special } },
    { .name = NULL },
};

/* ---- random trials ---- */

/* Neighbours are joined, dimensions of 1 put in; one may be left open, or kept by a 0. */
static void draw(rg_draw *d)
{
    rg_reshape_desc *desc = d->desc;
    d->x[0] = rg_draw_shape(d, 0, RG_MAX_RANK);
    desc->dims_count = 0;
    for (int32_t k = 0; k < d->x[0].rank; k++) {
        const bool joins = desc->dims_count > 0 && rg_draw_chance(d, 0.4);
        if (joins)
            desc->dims[desc->dims_count - 1] *= d->x[0].dims[k];
        else
            desc->dims[desc->dims_count++] = d->x[0].dims[k];
        if (desc->dims_count < RG_MAX_RANK && k + 1 < d->x[0].rank && rg_draw_chance(d, 0.1))
            desc->dims[desc->dims_count++] = 1;
        desc->dims_count = desc->dims_count < RG_MAX_RANK ? desc->dims_count : RG_MAX_RANK;
    }
    if (desc->dims_count > 0 && rg_draw_chance(d, 0.4))
        desc->dims[rg_draw_below(d, desc->dims_count)] = -1;
}

RG_OP_TEST_DEFINE(reshape, .cases = cases, .draw = draw);
