/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Local response normalization: the cases. */
#include "ops/optest_draw.h"

#include <retrograde/lrn.h>

/* One NaN, one infinity of each sign, far enough apart for windows without any of them. */
static double special(int64_t i)
{
    const int64_t k = i % 64;
    if (k == 5)
        return __builtin_nan("");
    return k == 21 ? __builtin_inf() : k == 40 ? -__builtin_inf() : (double)(i % 7) - 3;
}

static double special_dy(int64_t i)
{
    return i % 64 == 52 ? __builtin_inf() : (double)(i % 5) - 2;
}

#define ALEX "window=5 alpha=1e-4 beta=0.75 delta=2"

/* A number whose squares are rounded in one direction for long when they are summed. */
static double same(int64_t i)
{
    (void)i;
    return 1.1;
}

#define ONLY_F32 .only = 1 << RG_F32
#define LONG_SUM .x_fill = { { .at = same } }, .dy_fill = { .at = same }

static const rg_case cases[] = {
    /* timed */
    { "alex-55", ALEX, "32,55,55,96", RG_CASE_BENCH },
    { "alex-27-half", "window=5 alpha=1e-4 beta=0.5 delta=1", "32,27,27,256", RG_CASE_BENCH },
    { "alex-27-half-nchw", "window=5 alpha=1e-4 beta=0.5 delta=1", "32,27,27,256",
      RG_CASE_BENCH | RG_CASE_NCHW },
    { "alex-nchw", ALEX, "2,7,9,21", RG_CASE_NCHW },
    { "alex-nchw-images", ALEX, "3,40,44,65", RG_CASE_NCHW },

    /* timed on a GPU */
    { "alex-55-256", ALEX, "256,55,55,96", RG_CASE_BENCH_GPU },

    /* powers */
    { "default", "", "2,3,5,19" },
    { "half", "beta=0.5", "2,3,5,19" },
    { "three-quarters", "beta=0.75", "2,3,5,19" },
    { "one", "beta=1", "2,3,5,19" },
    { "five-quarters", "beta=1.25 delta=0.5", "2,3,5,19" },
    { "eight", "beta=8 alpha=0.1", "2,3,5,19" },
    { "broken", "beta=0.6 alpha=2 delta=0.25", "2,3,5,19" },
    { "large", "beta=9.5 alpha=0.1", "2,3,5,19" },
    { "negative", "beta=-0.75", "2,3,5,19" },
    { "negative-broken", "beta=-1.1", "2,3,5,19" },
    { "zero", "beta=0", "2,3,5,19" },
    { "alpha-0", "alpha=0 beta=0.5 delta=4", "2,3,5,19" },

    /* both terms of the gradient are about a hundred times the result, too much for f32 */
    { "cancels-half", "window=5 alpha=5 beta=0.5 delta=0.25", "11,13,1",
      .only = 1 << RG_F64 | 1 << RG_F16 | 1 << RG_BF16, .x_fill = { { .low = 5, .high = 7 } },
      .dy_fill = { .low = 4, .high = 16 } },

    /* windows: odd and even, narrow and wide, wider than all channels */
    { "window-1", "window=1 beta=0.75", "3,5,17" },
    { "window-2", "window=2 beta=0.75", "3,5,17" },
    { "window-3", "window=3 beta=0.75", "3,5,33" },
    { "window-4", "window=4 beta=0.75", "3,5,33" },
    { "window-4-after", "window=4 beta=0.75 even_after=true", "3,5,33" },
    { "window-5-after", "window=5 beta=0.75 even_after=true", "3,5,33" },
    { "window-8", "window=8 beta=0.75", "2,7,67" },
    { "window-9", "window=9 beta=0.75", "2,7,67" },
    { "window-10", "window=10 beta=0.75", "2,7,67" },
    { "window-10-after", "window=10 beta=0.75 even_after=true", "2,7,67" },
    { "window-13", "window=13 beta=0.6", "2,17,39" },
    { "window-31", "window=31 beta=0.5", "19,95" },
    { "window-64", "window=64 beta=0.75", "3,64" },
    { "window-65", "window=65 beta=0.75", "5,64" },
    { "window-all", "window=127 beta=0.75", "5,64" },
    { "window-beyond", "window=1000 alpha=9 beta=0.75", "5,64" },
    { "window-most", "window=2147483647 alpha=1e9 beta=0.75", "35,30" },
    { "window-beyond-few", "window=7 alpha=3 beta=1", "5,9,3" },

    /* shapes */
    { "one-element", "", "1" },
    { "one-channel", "beta=0.75", "4,7,1" },
    { "one-channel-wide", "window=21 beta=0.75", "4,7,1" },
    { "vector", "beta=0.75", "100" },
    { "vectors", "beta=0.75", "3,4,96" },
    { "vectors-64", "beta=0.75", "7,9,64" },
    { "vectors-192", "beta=0.75", "5,7,192" },
    { "vectors-512", "beta=0.75", "3,5,512" },
    { "vectors-80", "beta=0.75", "3,5,80" },
    { "vectors-even", "window=6 beta=0.75", "3,4,32" },
    { "many-channels", "beta=0.75", "3,2500" },
    { "many-channels-wide", "window=99 beta=0.75", "17,2500" },
    { "many-pixels", "beta=0.75", "3,29,37,24" },
    { "rank-8", "beta=0.75", "1,2,1,3,1,2,2,5" },
    { "no-pixels", "", "0,3,8", RG_CASE_ZERO },
    { "no-channels", "", "2,3,0", RG_CASE_ZERO },

    /* values */
    { "special", "beta=0.75", "3,64", RG_CASE_SPECIAL, .x_fill = { { .at = special } } },
    { "special-wide", "window=12 beta=0.75", "3,64", RG_CASE_SPECIAL,
      .x_fill = { { .at = special } } },
    { "special-half", "beta=0.5", "3,64", RG_CASE_SPECIAL, .x_fill = { { .at = special } } },
    { "special-half-narrow", "window=3 beta=0.5", "3,64", RG_CASE_SPECIAL,
      .x_fill = { { .at = special } } },
    { "special-broken", "beta=0.3", "3,64", RG_CASE_SPECIAL, .x_fill = { { .at = special } } },
    { "special-dy", "beta=0.5", "3,64", RG_CASE_SPECIAL, .dy_fill = { .at = special_dy } },
    { "special-dy-wide", "window=11 beta=2", "3,64", RG_CASE_SPECIAL,
      .dy_fill = { .at = special_dy } },

    /* long sums of what does not cancel */
    { "long-window-4096", "window=4096 alpha=1 beta=0.75 delta=0.01", "2,4100", 0, ONLY_F32,
      LONG_SUM },
    { "long-window-32768", "window=32768 alpha=1 beta=0.75 delta=0.01", "1,32768", RG_CASE_LONG,
      ONLY_F32, LONG_SUM },
    { .name = NULL },
};

/* ---- random trials ---- */

/* Divisors stay away from 0. */
static void draw(rg_draw *d)
{
    rg_lrn_desc *desc = d->desc;
    d->x[0] = rg_draw_shape(d, 1, RG_MAX_RANK);
    const int64_t channels = d->x[0].dims[d->x[0].rank - 1];
    desc->window = (int32_t)rg_draw_between(d, 1, rg_draw_chance(d, 0.2) ? channels + 3 : 9);
    d->cost = (double)rg_draw_count(&d->x[0]) * (double)channels * 4;
    desc->alpha = (double)rg_draw_below(d, 9) / 4;
    desc->beta = (double)rg_draw_between(d, -8, 16) / 8;
    desc->delta = (double)rg_draw_between(d, 1, 8) / 4;
    if (desc->beta < 0) /* infinite powers may cancel to NaN */
        d->x_fill[0].special = d->dy_fill.special = 0;
}

RG_OP_TEST_DEFINE(lrn, .cases = cases, .draw = draw);
