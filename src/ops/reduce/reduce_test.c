/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Reductions: the cases. */
#include "ops/optest_draw.h"

#include <retrograde/reduce.h>

/* Groups of 7 with NaN, infinities of either sign, several equal extremes, and nothing else. */
static double special(int64_t i)
{
    const double inf = __builtin_inf(), nan = __builtin_nan("");
    const int64_t group = i / 7 % 6, j = i % 7;
    switch (group) {
    case 0:
        return j == 2 || j == 5 ? nan : (double)j;
    case 1:
        return j == 3 ? inf : (double)j;
    case 2:
        return j == 4 ? -inf : (double)-j;
    case 3:
        return -inf;
    case 4:
        return inf;
    default:
        return j % 3 == 1 ? nan : j == 0 ? inf : -inf;
    }
}

static double same(int64_t i)
{
    return (double)(i * 7 % 3); /* many equal ones: the first must win */
}

/* The extremes of a matrix of width 4 lie after its first part. */
static double late(int64_t i)
{
    return i / 4 >= 4098 ? 1 : 0;
}

/* All columns of a matrix of width 7 are as the rows above. */
static double special_columns(int64_t i)
{
    return special(i % 7 * 7 + i / 7);
}

/* A number whose sums are rounded in one direction for long. */
static double tenth(int64_t i)
{
    (void)i;
    return 0.1;
}

#define ONLY_F32 .only = 1 << RG_F32
#define LONG_SUM .x_fill = { { .at = tenth } }, .dy_fill = { .at = tenth }

static const rg_case cases[] = {
    /* timed */
    { "sum-32x112x112x64-space", "dims=1,2", "32,112,112,64", RG_CASE_BENCH },
    { "sum-8192x1024-last", "dims=-1", "8192,1024", RG_CASE_BENCH },
    { "max-8192x1024-last", "kind=max dims=-1", "8192,1024", RG_CASE_BENCH },
    { "max-8192x1024-last-from-x", "kind=max dims=-1", "8192,1024",
      RG_CASE_BENCH | RG_CASE_STATELESS },
    { "max-32x12544x64-middle", "kind=max dims=1", "32,12544,64", RG_CASE_BENCH },

    /* timed on a GPU */
    { "sum-256x112x112x64-space", "dims=1,2", "256,112,112,64", RG_CASE_BENCH_GPU },
    { "sum-262144x1024-last", "dims=-1", "262144,1024", RG_CASE_BENCH_GPU },
    { "sum-256M-all", "", "268435456", RG_CASE_BENCH_GPU },
    { "max-262144x1024-last", "kind=max dims=-1", "262144,1024", RG_CASE_BENCH_GPU },
    { "max-262144x1024-last-from-x", "kind=max dims=-1", "262144,1024",
      RG_CASE_BENCH_GPU | RG_CASE_STATELESS },
    { "max-256x12544x64-middle", "kind=max dims=1", "256,12544,64", RG_CASE_BENCH_GPU },

    { "sum-rows", "dims=-1", "5,37" },
    { "sum-columns", "dims=0", "37,5" },
    { "sum-columns-wide", "dims=0", "5,1031" },
    { "sum-vectors-rows", "dims=-1", "33,48" },
    { "sum-vectors-columns", "dims=0", "33,48" },
    { "max-vectors-rows", "kind=max dims=-1", "33,48" },
    { "max-vectors-columns", "kind=max dims=0", "33,48" },
    { "arg-vectors-columns", "kind=arg_max dims=0", "33,48", RG_CASE_FORWARD },
    { "sum-all", "", "3,7,5,21", .x_fill = { { -1, 2 } } },
    { "sum-middle", "dims=1", "3,7,5" },
    { "sum-ends", "dims=0,-1", "5,7,11" },
    { "sum-every-second", "dims=0,2", "3,5,7,11" },
    { "sum-drop", "dims=1,2 keep_dims=false", "3,4,5,21" },
    { "sum-drop-rows", "dims=-1 keep_dims=false weight=-2.5", "3,4,5,21" },
    { "sum-drop-all", "keep_dims=false", "3,67", .x_fill = { { -1, 2 } } },
    { "sum-piece", "dims=1", "2,1025" },
    {
        "sum-pieces",
        "dims=1",
        "3,5003",
    },
    { "sum-column-pieces", "dims=0", "263,17" },
    { "sum-parts", "dims=1", "2,131101", .x_fill = { { 0, 0.25 } } },
    { "sum-parts-columns", "dims=0", "66003,3", .x_fill = { { 0, 1 } } },
    { "sum-parts-image", "dims=1,2", "2,23,29,301" },
    { "sum-parts-wide", "dims=0", "131,1201" },
    { "sum-parts-short", "dims=1", "1,17001", .x_fill = { { -1, 2 } } },
    { "sum-parts-few", "dims=0", "4100,4" },
    { "sum-parts-ends", "dims=0,2 keep_dims=false", "97,1,181", .x_fill = { { -1, 2 } } },
    { "max-parts-short", "kind=max keep_dims=false", "1,17001" },
    { "max-parts-few", "kind=max dims=0", "4100,4" },
    { "arg-min-parts-few", "kind=arg_min dims=0 keep_dims=false", "4100,4", RG_CASE_FORWARD },
    { "arg-max-parts-late", "kind=arg_max dims=0", "4100,4", RG_CASE_FORWARD,
      .x_fill = { { .at = late } } },
    { "arg-max-parts-ends", "kind=arg_max dims=0,2", "97,1,181", RG_CASE_FORWARD },
    { "mean-rows", "kind=mean dims=-1", "7,33" },
    { "mean-columns", "kind=mean dims=-2", "7,33,18" },
    { "mean-space", "kind=mean dims=-3,-2", "3,5,7,19" },
    { "mean-weight", "kind=mean dims=-3,-2 weight=3", "2,5,7,5" },
    { "mean-parts", "kind=mean weight=4096", "70001", .x_fill = { { -1, 2 } } },
    { "min-rows", "kind=min dims=-1", "7,133" },
    { "min-columns", "kind=min dims=0", "33,37" },
    { "min-space", "kind=min dims=1,2 keep_dims=false", "3,5,7,19" },
    { "min-all", "kind=min", "5,7,3" },
    { "max-rows", "kind=max dims=-1", "7,133" },
    { "max-columns", "kind=max dims=-3", "2,17,3,21" },
    { "max-space", "kind=max dims=1,2", "3,5,7,19" },
    { "max-ends", "kind=max dims=0,-1", "5,7,11" },
    { "max-pieces", "kind=max dims=1 keep_dims=false", "3,3001" },
    { "max-parts", "kind=max", "70001" },
    { "max-parts-columns", "kind=max dims=0", "17001,5" },
    { "max-ties", "kind=max dims=-1", "5,67", .x_fill = { { .at = same } } },
    { "max-ties-columns", "kind=max dims=0", "67,5", .x_fill = { { .at = same } } },
    { "min-ties", "kind=min", "5,67", .x_fill = { { .at = same } } },
    { "max-ties-pieces", "kind=max dims=1", "2,3001", .x_fill = { { .at = same } } },
    { "min-ties-parts", "kind=min", "70001", .x_fill = { { .at = same } } },
    { "arg-max-rows", "kind=arg_max dims=-1", "7,67", RG_CASE_FORWARD },
    { "arg-max-columns", "kind=arg_max dims=1 keep_dims=false", "3,67,19", RG_CASE_FORWARD },
    { "arg-max-space", "kind=arg_max dims=1,2", "3,5,7,19", RG_CASE_FORWARD },
    { "arg-max-every-second", "kind=arg_max dims=0,2", "3,5,7,11", RG_CASE_FORWARD },
    { "arg-min-rows", "kind=arg_min dims=-1", "7,67", RG_CASE_FORWARD },
    { "arg-min-columns", "kind=arg_min dims=0", "67,9", RG_CASE_FORWARD },
    { "arg-min-ties", "kind=arg_min dims=-1", "7,67", RG_CASE_FORWARD,
      .x_fill = { { .at = same } } },
    { "arg-max-ties-parts", "kind=arg_max", "70001", RG_CASE_FORWARD,
      .x_fill = { { .at = same } } },
    { "arg-max-parts", "kind=arg_max", "70001", RG_CASE_FORWARD },
    { "arg-max-parts-columns", "kind=arg_max dims=0", "17001,5", RG_CASE_FORWARD },
    { "scalar", "", "-" },
    { "scalar-max", "kind=max", "-" },
    { "one", "kind=mean", "1" },
    { "nothing-reduced", "dims=1", "5,1,37" },
    { "nothing-reduced-max", "kind=max dims=-1 keep_dims=false", "5,37,1" },
    { "rank-8", "dims=1,3,4,7", "2,1,3,2,5,2,1,3" },
    { "rank-8-max", "kind=max dims=0,2,5 keep_dims=false", "2,1,3,2,5,2,1,3" },
    { "empty", "dims=0", "3,0,2", RG_CASE_ZERO },
    { "empty-groups", "dims=1", "3,0,2", RG_CASE_ZERO },
    { "empty-groups-rows", "dims=1", "3,0", RG_CASE_ZERO },
    { "empty-mean", "kind=mean dims=1", "3,0,2", RG_CASE_SPECIAL },
    { "overflow", "dims=1", "5,137", RG_CASE_FORWARD, .only = 1 << RG_F16,
      .x_fill = { { 900, 1000 } } },
    { "special-sum", "dims=-1", "6,7", RG_CASE_SPECIAL, .x_fill = { { .at = special } } },
    { "special-max", "kind=max dims=-1", "6,7", RG_CASE_SPECIAL, .x_fill = { { .at = special } } },
    { "special-min", "kind=min dims=-1", "6,7", RG_CASE_SPECIAL, .x_fill = { { .at = special } } },
    { "special-max-long", "kind=max dims=-1", "6,128", RG_CASE_SPECIAL,
      .x_fill = { { .at = special } } },
    { "special-max-columns", "kind=max dims=0", "7,6", RG_CASE_SPECIAL,
      .x_fill = { { .at = special_columns } } },
    { "special-min-columns", "kind=min dims=0", "7,7", RG_CASE_SPECIAL,
      .x_fill = { { .at = special_columns } } },
    { "special-arg-max", "kind=arg_max dims=-1", "6,7", RG_CASE_SPECIAL | RG_CASE_FORWARD,
      .x_fill = { { .at = special } } },
    { "special-arg-min", "kind=arg_min dims=-1", "6,7", RG_CASE_SPECIAL | RG_CASE_FORWARD,
      .x_fill = { { .at = special } } },
    { "special-arg-min-columns", "kind=arg_min dims=0", "7,7", RG_CASE_SPECIAL | RG_CASE_FORWARD,
      .x_fill = { { .at = special_columns } } },

    /* long sums of what does not cancel */
    { "long-rows-4096", "dims=-1", "3,4096", 0, ONLY_F32, LONG_SUM },
    { "long-columns-4096", "dims=0", "4096,3", 0, ONLY_F32, LONG_SUM },
    { "long-rows-524288", "kind=mean dims=-1", "2,524288", 0, ONLY_F32, LONG_SUM },
    { "long-columns-524288", "kind=mean dims=0", "524288,2", 0, ONLY_F32, LONG_SUM },
    { "long-rows-67m", "", "67108864", 0, ONLY_F32, .x_fill = { { 0.5, 1.5 } } },
    { "long-columns-67m", "dims=0", "33554432,2", 0, ONLY_F32, LONG_SUM },
    { "long-wide-67m", "dims=0", "262144,256", 0, ONLY_F32, .x_fill = { { 0.5, 1.5 } } },
    { "long-constant", "", "67108864", 0, ONLY_F32, .x_fill = { { .at = tenth } },
      .dy_fill = { .at = tenth } },
    { .name = NULL },
};

/* ---- random trials ---- */

static double count_groups(const rg_reduce_desc *desc, const rg_tensor_desc *x)
{
    double groups = (double)rg_draw_count(x);
    for (int32_t i = 0; i < desc->dims_count; i++) {
        const int64_t axis = desc->dims[i] < 0 ? desc->dims[i] + x->rank : desc->dims[i];
        groups /= x->dims[axis] > 0 ? (double)x->dims[axis] : 1;
    }
    return desc->dims_count == 0 ? 1 : groups;
}

static void draw(rg_draw *d)
{
    rg_reduce_desc *desc = d->desc;
    d->x[0] = rg_draw_shape(d, 0, RG_MAX_RANK);
    desc->dims_count = rg_draw_axes(d, d->x[0].rank, desc->dims);
    if (desc->kind != RG_REDUCE_SUM && desc->kind != RG_REDUCE_MEAN) {
        desc->weight = 1; /* and the definition looks at all elements for each winner */
        d->cost = 20 * (double)rg_draw_count(&d->x[0]) * count_groups(desc, &d->x[0]);
    }
    if (desc->kind == RG_REDUCE_ARG_MIN || desc->kind == RG_REDUCE_ARG_MAX)
        d->flags = RG_CASE_FORWARD;
}

RG_OP_TEST_DEFINE(reduce, .cases = cases, .draw = draw);
