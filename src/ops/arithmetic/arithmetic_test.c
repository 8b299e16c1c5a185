/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Arithmetic: the cases. */
#include "ops/optest_draw.h"

#include <retrograde/arithmetic.h>

/* Few values, so that many are equal, and that bounds are met exactly. */
static double steps(int64_t i)
{
    return (double)(i * 7 % 9 - 4) / 4;
}

static double other_steps(int64_t i)
{
    return (double)(i * 5 % 11 - 5) / 4;
}

/* Steps and a little more: within a threshold of each other, and not. */
static double near_steps(int64_t i)
{
    return steps(i) + (double)(i % 5 - 2) / 16;
}

static double special(int64_t i)
{
    const double inf = __builtin_inf();
    const double values[] = { 0, 1, -2, inf, -inf, __builtin_nan(""), 0.5 };
    return values[i % 7];
}

static double special_b(int64_t i)
{
    return special(i / 7 + 3);
}

static double special_dy(int64_t i)
{
    return special(i % 11);
}

#define AWAY   \
    {          \
        0.5, 2 \
    } /* from 0, to divide by */

/* A number whose sums are rounded in one direction for long. */
static double tenth(int64_t i)
{
    (void)i;
    return 0.1;
}

/* The gradient of b is 0, and a step of b may be one across its jump. */
#define MASK     (RG_CASE_NO_DIFFERENCES | RG_CASE_ZERO)
#define ONLY_F32 .only = 1 << RG_F32
#define LONG_SUM .x_fill = { { 0.5, 1.5 }, { 0.5, 1.5 } }, .dy_fill = { .at = tenth }

static const rg_case cases[] = {
    /* timed */
    { "add-16m", "", "4096,4096 4096,4096", RG_CASE_BENCH },
    { "multiply-16m", "kind=multiply", "4096,4096 4096,4096", RG_CASE_BENCH },
    { "bias-32x56x56x64", "", "32,56,56,64 64", RG_CASE_BENCH },
    { "add-256m", "", "16384,16384 16384,16384", RG_CASE_BENCH_GPU },
    { "multiply-256m", "kind=multiply", "16384,16384 16384,16384", RG_CASE_BENCH_GPU },
    { "bias-256x56x56x64", "", "256,56,56,64 64", RG_CASE_BENCH_GPU },

    /* kinds, each field */
    { "add", "", "7,37 7,37" },
    { "subtract", "kind=subtract", "7,37 7,37" },
    { "multiply", "kind=multiply", "7,37 7,37" },
    { "divide", "kind=divide", "7,37 7,37", .x_fill = { { -2, 2 }, AWAY } },
    { "add-scaled", "primary_scale=0.75 secondary_scale=-1.5 bias=0.25", "5,67 5,67" },
    { "subtract-scaled", "kind=subtract primary_scale=0.75 secondary_scale=1.5 bias=0.25",
      "5,67 5,67" },
    { "multiply-scaled", "kind=multiply primary_scale=0.75 secondary_scale=-1.5 bias=-0.5",
      "5,67 5,67" },
    { "divide-scaled", "kind=divide primary_scale=-0.75 secondary_scale=1.5 bias=-0.5", "5,67 5,67",
      .x_fill = { { -2, 2 }, AWAY } },
    { "add-bounded", "secondary_scale=0.5 minimum=-0.5 maximum=0.75", "7,65 7,65" },
    { "subtract-bounded", "kind=subtract primary_scale=0.5 minimum=-0.5 maximum=0.75",
      "7,65 7,65" },
    { "multiply-bounded", "kind=multiply minimum=-1 maximum=0.5", "7,65 7,65" },
    { "divide-bounded", "kind=divide minimum=-1 maximum=0.5 bias=0.25", "7,65 7,65",
      .x_fill = { { -2, 2 }, AWAY } },
    { "minimum-alone", "minimum=0.25", "3,129 3,129" },
    { "maximum-alone", "kind=multiply maximum=0.25", "3,129 3,129" },
    /* on a bound the gradient passes; a step to one side finds a kink there */
    { "on-bounds", "minimum=-0.5 maximum=0.5", "5,61 5,61", RG_CASE_FREE_Y,
      .x_fill = { { .at = steps }, { .at = other_steps } } },
    { "equal", "kind=compare", "7,67 7,67", RG_CASE_FORWARD,
      .x_fill = { { .at = steps }, { .at = other_steps } } },
    { "not-equal", "kind=compare comparison=not_equal", "7,67 7,67", RG_CASE_FORWARD,
      .x_fill = { { .at = steps }, { .at = other_steps } } },
    { "less", "kind=compare comparison=less", "7,67 7,67", RG_CASE_FORWARD,
      .x_fill = { { .at = steps }, { .at = other_steps } } },
    { "less-or-equal", "kind=compare comparison=less_or_equal", "7,67 7,67", RG_CASE_FORWARD,
      .x_fill = { { .at = steps }, { .at = other_steps } } },
    { "greater", "kind=compare comparison=greater", "7,67 7,67", RG_CASE_FORWARD,
      .x_fill = { { .at = steps }, { .at = other_steps } } },
    { "greater-or-equal", "kind=compare comparison=greater_or_equal", "7,67 7,67", RG_CASE_FORWARD,
      .x_fill = { { .at = steps }, { .at = other_steps } } },
    { "equal-threshold", "kind=compare threshold=0.0625", "7,67 7,67", RG_CASE_FORWARD,
      .x_fill = { { .at = steps }, { .at = near_steps } } },
    { "not-equal-threshold", "kind=compare comparison=not_equal threshold=0.0625", "7,67 7,67",
      RG_CASE_FORWARD, .x_fill = { { .at = steps }, { .at = near_steps } } },
    { "compare-ignores-scales", "kind=compare comparison=less primary_scale=3 bias=9 maximum=0.5",
      "3,5,7 7", RG_CASE_FORWARD, .x_fill = { { .at = steps }, { .at = other_steps } } },

    { "maximum", "kind=maximum", "7,67 7,67" },
    { "minimum", "kind=minimum", "7,67 7,67" },
    { "maximum-scaled", "kind=maximum primary_scale=0.75 secondary_scale=-1.5 bias=0.25",
      "5,67 5,67" },
    { "minimum-scaled", "kind=minimum primary_scale=0.75 secondary_scale=-1.5 bias=0.25",
      "5,67 5,67" },
    { "maximum-bounded", "kind=maximum minimum=-0.5 maximum=0.75", "7,65 7,65" },
    { "mask", "kind=mask primary_scale=0.5 bias=0.25", "5,61 5,61", MASK,
      .x_fill = { { -2, 2 }, { .at = steps } } },
    { "mask-columns", "kind=mask", "5,61 61", MASK, .x_fill = { { -2, 2 }, { .at = steps } } },
    { "mask-rows", "kind=mask", "5,1 5,61", MASK, .x_fill = { { -2, 2 }, { .at = steps } } },
    /* half of the gradient each where both are equal */
    { "maximum-ties", "kind=maximum", "5,61 5,61", RG_CASE_FREE_Y,
      .x_fill = { { .at = steps }, { .at = other_steps } } },
    { "minimum-ties", "kind=minimum", "5,61 61", RG_CASE_FREE_Y,
      .x_fill = { { .at = steps }, { .at = other_steps } } },

    /* broadcasting: columns */
    { "bias", "", "2,5,3,21 21" },
    { "bias-subtract", "kind=subtract secondary_scale=1.5", "3,7,64 64" },
    { "bias-64", "", "3,5,20,64 64" }, /* more rows than are summed in one go */
    { "bias-16", "kind=subtract secondary_scale=1.5", "150,16 16" },
    { "bias-bounded", "minimum=-0.5 maximum=1", "3,41,33 33" },
    { "scale-channels", "kind=multiply primary_scale=0.5", "2,5,3,21 21" },
    { "divide-channels", "kind=divide", "4,9,19 19", .x_fill = { { -2, 2 }, AWAY } },
    { "images", "kind=multiply", "3,5,7,19 3,1,1,19" },
    { "first", "kind=multiply secondary_scale=-1.5", "17,23 1,23" },
    { "first-of-a", "kind=multiply secondary_scale=-1.5", "23 17,23" },
    { "first-of-a-subtract", "kind=subtract", "1,23 17,23" },
    { "first-of-a-divide", "kind=divide", "1,23 17,23", .x_fill = { { -2, 2 }, AWAY } },
    { "maximum-columns", "kind=maximum", "3,7,64 64" },
    { "minimum-columns-of-a", "kind=minimum secondary_scale=0.5", "23 17,23" },
    { "many-rows", "kind=multiply", "1301,5 5" },
    { "very-many-rows", "", "40009,3 3" },
    { "wide", "kind=multiply", "3,2053 2053" },
    { "vectors", "kind=multiply", "300,64 64" },
    { "narrow", "kind=multiply", "70,1 1,3" },

    /* broadcasting: rows */
    { "last", "kind=multiply", "7,37 7,1" },
    { "last-of-a", "kind=multiply", "7,1 7,37" },
    { "last-of-a-subtract", "kind=subtract primary_scale=0.75", "7,1 7,64" },
    { "last-bounded", "minimum=-0.5 maximum=0.75", "5,131 5,1" },
    { "last-divide", "kind=divide", "5,131 5,1", .x_fill = { { -2, 2 }, AWAY } },
    { "last-of-a-divide", "kind=divide", "5,1 5,131", .x_fill = { { -2, 2 }, AWAY } },
    { "maximum-rows", "kind=maximum", "7,37 7,1" },
    { "minimum-rows-of-a", "kind=minimum", "7,1 7,37" },
    { "maximum-number", "kind=maximum", "13,29 -" },
    { "last-long", "kind=multiply", "3,5003 3,1" },
    { "last-short", "", "501,3 501,1" },
    { "last-short-around", "kind=multiply", "41,7,43,3 7,1,1" },
    { "one-number", "kind=multiply", "13,29 -" },
    { "number-and-many", "kind=subtract", "- 13,29" },
    { "one-of-each-dimension", "kind=multiply", "1,1,1 3,5,7" },
    { "pixels", "kind=multiply", "2,5,7,12 2,5,7,1" },

    /* both, and dimensions in turn */
    { "outer-product", "kind=multiply", "11,1 1,37" },
    { "outer-sum", "", "11,1 37" },
    { "outer-quotient", "kind=divide", "11,1 37", .x_fill = { { -2, 2 }, AWAY } },
    { "outer-bounded", "minimum=-0.5 maximum=0.75", "1,37 11,1" },
    { "in-turn", "kind=multiply", "4,1,5,1 4,3,5,7" },
    { "in-turn-columns", "kind=multiply", "3,4,5,7 3,1,5,7" },
    { "in-turn-other", "kind=divide", "4,3,5,7 1,3,1,7", .x_fill = { { -2, 2 }, AWAY } },
    { "both-in-turn", "kind=multiply", "1,3,1,7 4,1,5,1" },
    { "rank-8", "kind=multiply", "2,1,3,2,1,2,1,3 2,4,1,2,5,1,1,3" },
    { "rank-8-columns", "", "2,2,3,2,2,2,1,3 3,1,2,2,1,3" },

    /* sizes */
    { "one", "kind=multiply", "1 1" },
    { "number", "kind=multiply", "- -" },
    { "vector-and-one", "kind=multiply", "65 65" },
    { "long", "kind=multiply", "16411 16411" },
    { "empty", "", "0,3 0,3", RG_CASE_ZERO },
    { "empty-row", "kind=multiply", "3,0 3,1", RG_CASE_ZERO },
    { "empty-column", "kind=multiply", "0,5 5", RG_CASE_ZERO },
    { "empty-operand", "kind=multiply", "4,1 0", RG_CASE_ZERO },
    { "empty-both", "", "0,1 1,5", RG_CASE_ZERO },

    /* NaN and infinity go where arithmetic sends them */
    { "special-add", "", "7,7 7,7", RG_CASE_SPECIAL, .dy_fill = { .at = special_dy },
      .x_fill = { { .at = special }, { .at = special_b } } },
    { "special-multiply", "kind=multiply", "7,7 7,7", RG_CASE_SPECIAL,
      .dy_fill = { .at = special_dy }, .x_fill = { { .at = special }, { .at = special_b } } },
    { "special-divide", "kind=divide", "7,7 7,7", RG_CASE_SPECIAL,
      .x_fill = { { .at = special }, { .at = special_b } } },
    { "special-bounded", "minimum=-1.5 maximum=1.5", "7,7 7,7", RG_CASE_SPECIAL,
      .dy_fill = { .at = special_dy }, .x_fill = { { .at = special }, { .at = special_b } } },
    { "special-rows", "kind=multiply", "7,7 7,1", RG_CASE_SPECIAL, .dy_fill = { .at = special_dy },
      .x_fill = { { .at = special } } },
    { "special-columns", "", "7,7 7", RG_CASE_SPECIAL, .dy_fill = { .at = special_dy },
      .x_fill = { { .at = special } } },
    { "special-maximum", "kind=maximum", "7,7 7,7", RG_CASE_SPECIAL,
      .dy_fill = { .at = special_dy }, .x_fill = { { .at = special }, { .at = special_b } } },
    { "special-minimum", "kind=minimum", "7,7 7,7", RG_CASE_SPECIAL,
      .dy_fill = { .at = special_dy }, .x_fill = { { .at = special }, { .at = special_b } } },
    { "special-mask", "kind=mask", "7,7 7,7", RG_CASE_SPECIAL, .dy_fill = { .at = special_dy },
      .x_fill = { { .at = special }, { .at = special_b } } },
    { "special-equal", "kind=compare", "7,7 7,7", RG_CASE_SPECIAL | RG_CASE_FORWARD,
      .x_fill = { { .at = special }, { .at = special_b } } },
    { "special-not-equal", "kind=compare comparison=not_equal", "7,7 7,7",
      RG_CASE_SPECIAL | RG_CASE_FORWARD, .x_fill = { { .at = special }, { .at = special_b } } },
    { "special-less", "kind=compare comparison=less", "7,7 7,7", RG_CASE_SPECIAL | RG_CASE_FORWARD,
      .x_fill = { { .at = special }, { .at = special_b } } },

    /* long sums of what does not cancel */
    { "long-bias-4096", "", "4096,3 3", 0, ONLY_F32, LONG_SUM },
    { "long-bias-524288", "kind=multiply", "524288,2 2", 0, ONLY_F32, LONG_SUM },
    { "long-bias-vectors", "", "65536,32 32", 0, ONLY_F32, LONG_SUM },
    { "long-bias-67m", "", "33554432,2 2", 0, ONLY_F32, LONG_SUM },
    { "long-row-4096", "", "3,4096 3,1", 0, ONLY_F32, LONG_SUM },
    { "long-row-524288", "kind=multiply", "2,524288 2,1", 0, ONLY_F32, LONG_SUM },
    { "long-number-67m", "kind=multiply", "67108864 -", 0, ONLY_F32, LONG_SUM },
    { "long-number-constant", "", "67108864 -", 0, ONLY_F32, .x_fill = { { .at = tenth } },
      .dy_fill = { .at = tenth } },
    { "long-tensors-67m", "", "1,2 8388608,4,2", RG_CASE_LONG, ONLY_F32, LONG_SUM },
    { "long-short-rows", "", "32768,2,2 2,1", 0, ONLY_F32, LONG_SUM },
    { "long-in-turn", "", "262144,2,4,4 2,1,4", 0, ONLY_F32, LONG_SUM },
    { "long-in-turn-67m", "", "2097152,2,4,4 2,1,4", 0, ONLY_F32, LONG_SUM },
    { .name = NULL },
};

/* ---- random trials ---- */

/* b as a, but for dimensions of 1 and those in front; now and then the other way round. */
static void draw(rg_draw *d)
{
    rg_arithmetic_desc *desc = d->desc;
    const rg_tensor_desc a = rg_draw_shape(d, 0, RG_MAX_RANK);
    int64_t dims[RG_MAX_RANK];
    const int32_t front = rg_draw_chance(d, 0.3) ? (int32_t)rg_draw_below(d, a.rank + 1) : 0;
    for (int32_t k = front; k < a.rank; k++)
        dims[k - front] = rg_draw_chance(d, 0.2) ? 1 : a.dims[k];
    const rg_tensor_desc b = rg_tensor_desc_dense(d->dtype, a.rank - front, dims);
    const bool swapped = rg_draw_chance(d, 0.3);
    d->x[0] = swapped ? b : a;
    d->x[1] = swapped ? a : b;
    for (int32_t k = 0; k < b.rank && rg_draw_chance(d, 0.1); k++)
        d->x[swapped].dims[front + k] = rg_draw_chance(d, 0.5) ? 1 : a.dims[front + k];
    d->x[swapped] = rg_tensor_desc_dense(d->dtype, a.rank, d->x[swapped].dims);
    d->flags = desc->kind == RG_ARITHMETIC_COMPARE ? RG_CASE_FORWARD
               : desc->kind == RG_ARITHMETIC_MASK  ? MASK
                                                   : 0;
    if (desc->kind == RG_ARITHMETIC_DIVIDE)
        d->x_fill[1] = (rg_fill){ .low = 0.5, .high = 2 };
    if (rg_draw_chance(d, 0.6)) {
        desc->minimum = -__builtin_inf();
        desc->maximum = __builtin_inf();
    }
}

RG_OP_TEST_DEFINE(arithmetic, .cases = cases, .draw = draw);
