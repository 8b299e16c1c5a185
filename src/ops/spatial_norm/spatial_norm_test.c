/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Spatial normalization: the cases. */
#include "ops/optest_draw.h"

#include <retrograde/spatial_norm.h>

#include <string.h>

/* Images of 13 by 11 with 3 channels: a NaN, and infinities that windows miss. */
static double special(int64_t i)
{
    const int64_t k = i % 429;
    if (k == 4 * 33 + 2 * 3)
        return __builtin_nan("");
    if (k == 9 * 33 + 8 * 3 + 1)
        return __builtin_inf();
    return k == 2 ? -__builtin_inf() : (double)(i % 7) - 3;
}

static double special_dy(int64_t i)
{
    return i % 429 == 6 * 33 + 5 * 3 + 2 ? __builtin_inf() : (double)(i % 5) - 2;
}

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
    { "five-56", "beta=0.75", "32,56,56,64", RG_CASE_BENCH },

    /* timed on a GPU */
    { "five-56-256", "beta=0.75", "256,56,56,64", RG_CASE_BENCH_GPU },

    /* powers */
    { "default", "", "2,7,6,5" },
    { "half", "beta=0.5", "2,7,6,5" },
    { "one-power", "beta=1 delta=0.5", "2,7,6,5" },
    { "broken", "beta=0.6 alpha=2 delta=0.25", "2,7,6,5" },
    { "negative", "beta=-1.1", "2,7,6,5" },
    { "zero", "beta=0", "2,7,6,5" },
    { "alpha-0", "alpha=0 beta=0.5 delta=4", "2,7,6,5" },

    /* windows: odd and even, narrow and wide, wider than the image */
    { "window-1", "window=1,1 beta=0.75", "2,5,7,3" },
    { "window-2", "window=2,2 beta=0.75", "2,5,7,3" },
    { "window-3", "window=3,3 beta=0.75", "2,7,6,19" },
    { "window-4", "window=4,4 beta=0.75", "2,7,6,19" },
    { "window-rows", "window=4,1 beta=0.75", "1,9,5,4" },
    { "window-columns", "window=1,4 beta=0.75", "1,5,9,4" },
    { "window-8", "window=8,7 beta=0.75", "1,14,12,5" },
    { "window-9", "window=9,9 beta=0.75", "1,14,12,5" },
    { "window-10", "window=10,12 beta=0.75", "1,23,27,3" },
    { "window-wide-rows", "window=11,3 beta=0.75", "2,27,6,17" },
    { "window-wide-columns", "window=3,11 beta=0.75", "2,6,27,17" },
    { "window-beyond", "window=5,6 beta=0.75", "2,2,3,4" },
    { "window-far-beyond", "window=40,50 beta=0.75", "2,9,11,4" },
    { "window-most", "window=2147483647,2147483647 beta=0.75", "1,9,8,2" },

    /* shapes */
    { "one", "beta=0.75", "1,1,1,1" },
    { "image", "beta=0.75", "6,7,5" },
    { "one-channel", "beta=0.75", "3,11,13,1" },
    { "one-row", "beta=0.75", "2,1,31,2" },
    { "one-column", "beta=0.75", "2,31,1,2" },
    { "vectors", "beta=0.75", "2,9,7,32" },
    { "bands", "window=3,2 beta=0.75", "1,75,5,7" },
    { "bands-image", "window=2,3 beta=0.75", "67,6,3" },
    { "strips", "window=3,3 beta=0.75", "1,12,33,467" },
    { "strips-wide", "window=12,3 beta=0.75", "1,16,29,70" },
    { "tiles", "window=5,5 beta=0.75", "1,37,41,9" },
    { "five-columns", "beta=0.75", "2,30,56,16" },
    { "five-rows", "beta=0.75", "1,101,9,32" },
    { "five-tiles", "beta=0.75", "1,7,133,24" },
    { "no-images", "beta=0.75", "0,6,6,3", RG_CASE_ZERO },
    { "no-rows", "beta=0.75", "2,0,6,3", RG_CASE_ZERO },
    { "no-columns", "beta=0.75", "2,6,0,3", RG_CASE_ZERO },
    { "no-channels", "beta=0.75", "2,6,6,0", RG_CASE_ZERO },

    /* y is a part of the image, or lies beyond it */
    { "clip", "window=3,3 beta=0.75 offset=1,2 output=2,3", "2,6,7,5" },
    { "clip-even", "window=4,2 beta=0.75 offset=3,1 output=2,2", "1,7,6,3" },
    { "clip-five", "beta=0.75 offset=4,9 output=17,22", "1,30,56,16" },
    { "clip-wide", "window=9,11 beta=0.75 offset=3,4 output=5,4", "1,14,13,5" },
    { "clip-shifted", "window=3,3 beta=0.75 offset=2,-1", "2,6,7,3" },
    { "clip-around", "window=3,4 beta=0.75 offset=-2,-3 output=10,12", "1,6,7,3" },
    { "clip-beyond", "window=3,3 beta=0.75 offset=9,-9 output=2,3", "1,6,7,3", RG_CASE_ZERO },
    { "clip-image", "window=3,3 beta=0.75 offset=2,2 output=3,1", "6,7,4" },
    { "clip-one", "window=5,3 beta=0.75 offset=2,2 output=1,1", "1,6,7,1" },
    { "clip-most", "window=3,3 beta=0.75 offset=2147483647,-2147483648 output=1,1", "1,3,3,2",
      RG_CASE_ZERO },
    { "clip-far", "window=2147483647,2147483647 beta=0.75 offset=2147483647,-2147483648", "1,3,3,2",
      RG_CASE_ZERO },
    { "clip-no-rows", "window=3,3 beta=0.75 offset=1,1 output=2,2", "2,0,4,3", RG_CASE_ZERO },

    /* values */
    { "special", "window=3,4 beta=0.75", "2,13,11,3", RG_CASE_SPECIAL,
      .x_fill = { { .at = special } } },
    { "special-half", "window=3,4 beta=0.5", "2,13,11,3", RG_CASE_SPECIAL,
      .x_fill = { { .at = special } } },
    { "special-wide", "window=9,10 beta=0.75", "1,13,11,3", RG_CASE_SPECIAL,
      .x_fill = { { .at = special } } },
    { "special-dy", "window=3,4 beta=0.75", "2,13,11,3", RG_CASE_SPECIAL,
      .dy_fill = { .at = special_dy } },
    { "special-dy-wide", "window=9,10 beta=0.75", "1,13,11,3", RG_CASE_SPECIAL,
      .dy_fill = { .at = special_dy } },

    /* long sums of what does not cancel */
    { "long-window-4096", "window=64,64 alpha=1 beta=0.75", "1,66,66,3", 0, ONLY_F32, LONG_SUM },
    { "long-window-row", "window=1,4096 alpha=1 beta=0.75 delta=0.01", "1,1,4100,3", 0, ONLY_F32,
      LONG_SUM },
    { "long-window-32768", "window=1,32768 alpha=1 beta=0.75 delta=0.01", "1,1,32768,1",
      RG_CASE_LONG, ONLY_F32, LONG_SUM },
    { .name = NULL },
};

/* ---- random trials ---- */

/* Divisors stay away from 0. */
static void draw(rg_draw *d)
{
    rg_spatial_norm_desc *desc = d->desc;
    d->x[0] = rg_draw_image(d, 3000);
    const int64_t *size = &d->x[0].dims[d->x[0].rank - 3];
    for (int a = 0; a < 2; a++)
        desc->window[a] = (int32_t)rg_draw_between(d, 1, rg_draw_chance(d, 0.2) ? size[a] + 3 : 9);
    d->cost = (double)rg_draw_count(&d->x[0]) * (double)size[0] * (double)size[1];
    memset(desc->offset, 0, sizeof desc->offset);
    memset(desc->output, 0, sizeof desc->output);
    for (int a = 0; a < 2 && rg_draw_chance(d, 0.3); a++) {
        desc->offset[a] = (int32_t)rg_draw_between(d, -3, size[a] + 2);
        desc->output[a] = rg_draw_below(d, size[a] + 4);
        d->x_fill[0].special = 0; /* the header leaves open what they do beside a clip */
    }
    desc->alpha = (double)rg_draw_below(d, 9) / 4;
    desc->beta = (double)rg_draw_between(d, -8, 16) / 8;
    desc->delta = (double)rg_draw_between(d, 1, 8) / 4;
    if (desc->beta < 0) /* infinite powers may cancel to NaN */
        d->x_fill[0].special = d->dy_fill.special = 0;
}

RG_OP_TEST_DEFINE(spatial_norm, .cases = cases, .draw = draw);
