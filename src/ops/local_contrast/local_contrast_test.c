/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Local contrast normalization: the cases. */
#include "ops/optest_draw.h"

#include <retrograde/local_contrast.h>

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
    return i % 429 == 6 * 33 + 5 * 3 + 2 ? __builtin_nan("") : (double)(i % 5) - 2;
}

/* Images whose pixels have much in common: 3 channels, each near another number. */
static double channels(int64_t i)
{
    const double near[] = { 1000, -128, 0 };
    return near[i % 3] + (double)(i * 7 % 31) / 8;
}

/* Images of 19 by 17 with 2 channels near 1000, in which a large number, an infinity and a NaN
 * are where a number to be subtracted might be looked for. */
static double spoilt(int64_t i)
{
    const int64_t pixel = i / 2 % 323;
    if (pixel == 0 || pixel == 4 * 17 + 4)
        return i % 2 ? __builtin_inf() : 1e15;
    return pixel == 9 * 17 + 8 && i % 2 ? __builtin_nan("") : 1000 + (double)(i * 7 % 31) / 8;
}

/* Images of 24 columns, the left half near one number and the right half near another, with little
 * between neighbours: windows within a half are flat, and far from the other. 3 channels, or 16. */
static double halves(int64_t i)
{
    return (i / 3 % 24 < 12 ? 30 : 200) + (double)(i * 11 % 17) / 64;
}

static double halves_16(int64_t i)
{
    return (i / 16 % 24 < 12 ? 30 : 200) + (double)(i * 11 % 17) / 64;
}

/* A number whose sums are rounded in one direction for long. */
static double tenth(int64_t i)
{
    (void)i;
    return 0.1;
}

#define ONLY_F32 .only = 1 << RG_F32
#define LONG_SUM .x_fill = { { 0.5, 1.5 } }, .dy_fill = { .at = tenth }

static const rg_case cases[] = {
    /* timed */
    { "five-56", "alpha=1 delta=0.25", "32,56,56,64", RG_CASE_BENCH },

    /* timed on a GPU */
    { "five-56-256", "alpha=1 delta=0.25", "256,56,56,64", RG_CASE_BENCH_GPU },

    /* powers and the other numbers */
    { "default", "", "2,7,6,5" },
    { "node", "alpha=1", "2,7,6,5" },
    { "one-power", "alpha=1 beta=1 delta=0.5", "2,7,6,5" },
    { "broken", "alpha=2 beta=0.6 delta=0.25", "2,7,6,5" },
    { "negative", "alpha=1 beta=-1.1 delta=1", "2,7,6,5" },
    { "zero", "alpha=1 beta=0", "2,7,6,5" },
    { "p0", "alpha=1 delta=0.5 p0=0.25", "2,7,6,5" },
    { "p0-none", "alpha=1 delta=0.5 p0=0", "2,7,6,5" },
    { "pm-ps", "alpha=1 delta=0.5 p0=-2 pm=3 ps=-1.5", "2,7,6,5" },
    { "pm-0", "alpha=0 pm=1 ps=0.5 delta=2", "2,7,6,5" },

    /* windows: odd and even, narrow and wide, wider than the image */
    { "window-1", "window=1,1 alpha=1 delta=0.25 p0=0.5", "2,5,7,3" },
    { "window-2", "window=2,2 alpha=1 delta=0.25", "2,5,7,3" },
    { "window-3", "window=3,3 alpha=1 delta=0.25", "2,7,6,19" },
    { "window-4", "window=4,4 alpha=1 delta=0.25", "2,7,6,19" },
    { "window-rows", "window=4,1 alpha=1 delta=0.25", "1,9,5,4" },
    { "window-columns", "window=1,4 alpha=1 delta=0.25", "1,5,9,4" },
    { "window-8", "window=8,7 alpha=1 delta=0.25", "1,14,12,5" },
    { "window-9", "window=9,9 alpha=1 delta=0.25", "1,14,12,5" },
    { "window-10", "window=10,12 alpha=1 delta=0.25", "1,23,27,3" },
    { "window-wide-rows", "window=11,3 alpha=1 delta=0.25", "2,27,6,17" },
    { "window-wide-columns", "window=3,11 alpha=1 delta=0.25", "2,6,27,17" },
    { "window-beyond", "window=5,6 alpha=1 delta=0.25", "2,2,3,4" },
    { "window-far-beyond", "window=40,50 alpha=1 delta=0.25", "2,9,11,4" },
    { "window-most", "window=2147483647,2147483647 alpha=1 delta=0.25", "1,9,8,2" },

    /* shapes */
    { "one", "alpha=1 delta=0.25", "1,1,1,1" },
    { "image", "alpha=1 delta=0.25", "6,7,5" },
    { "one-channel", "alpha=1 delta=0.25", "3,11,13,1" },
    { "one-row", "alpha=1 delta=0.25", "2,1,31,2" },
    { "one-column", "alpha=1 delta=0.25", "2,31,1,2" },
    { "vectors", "alpha=1 delta=0.25", "2,9,7,32" },
    { "bands", "window=3,2 alpha=1 delta=0.25", "1,75,5,7" },
    { "bands-image", "window=2,3 alpha=1 delta=0.25", "67,6,3" },
    { "strips", "window=3,3 alpha=1 delta=0.25", "1,12,33,467" },
    { "strips-wide", "window=12,3 alpha=1 delta=0.25", "1,16,29,70" },
    { "tiles", "window=5,5 alpha=1 delta=0.25", "1,37,41,9" },
    { "five-columns", "alpha=1 delta=0.25", "2,30,56,16" },
    { "five-rows", "alpha=1 delta=0.25", "1,101,9,32" },
    { "five-tiles", "alpha=1 delta=0.25", "1,7,133,24" },
    { "no-images", "alpha=1 delta=0.25", "0,6,6,3", RG_CASE_ZERO },
    { "no-rows", "alpha=1 delta=0.25", "2,0,6,3", RG_CASE_ZERO },
    { "no-columns", "alpha=1 delta=0.25", "2,6,0,3", RG_CASE_ZERO },
    { "no-channels", "alpha=1 delta=0.25", "2,6,6,0", RG_CASE_ZERO },

    /* pixels that have much in common */
    { "offset-128", "alpha=1", "2,19,13,5", .x_fill = { { 126, 130 } } },
    { "offset-1000", "alpha=1", "2,19,13,5", .x_fill = { { 998, 1002 } } },
    { "offset-negative", "alpha=1 delta=0.01", "1,19,13,3", .x_fill = { { -1002, -998 } } },
    { "offset-p0", "alpha=1 p0=0.25 beta=0.6", "1,14,13,16", .x_fill = { { 126, 130 } } },
    { "offset-mean", "window=4,3", "1,14,13,16", .x_fill = { { 998, 1002 } } },
    { "offset-even", "window=4,6 alpha=1", "1,75,13,2", .x_fill = { { 998, 1002 } } },
    { "offset-wide", "window=10,12 alpha=1", "1,33,37,3", .x_fill = { { 998, 1002 } } },
    { "offset-wide-rows", "window=11,2 alpha=1", "1,33,9,3", .x_fill = { { 998, 1002 } } },
    { "offset-wide-columns", "window=2,11 alpha=1", "1,9,33,3", .x_fill = { { 998, 1002 } } },
    { "offset-far-beyond", "window=40,50 alpha=1", "1,9,11,4", .x_fill = { { 998, 1002 } } },
    { "offset-most", "window=2147483647,2147483647 alpha=1 delta=0.25", "1,9,8,2",
      .x_fill = { { 998, 1002 } } },
    { "offset-channels", "alpha=1 delta=1", "1,23,21,3", .x_fill = { { .at = channels } } },

    /* flat parts far from one another */
    { "flat", "alpha=1 delta=0.0001", "1,17,24,3", .x_fill = { { .at = halves } } },
    { "flat-vectors", "alpha=1 delta=0.0001", "1,9,24,16", .x_fill = { { .at = halves_16 } } },
    { "flat-3", "window=3,3 alpha=1 delta=0.0001", "2,9,24,3", .x_fill = { { .at = halves } } },
    { "flat-even", "window=4,6 alpha=1 delta=0.0001", "1,9,24,3", .x_fill = { { .at = halves } } },
    { "flat-wide", "window=9,10 alpha=1 delta=0.0001", "1,31,24,3",
      .x_fill = { { .at = halves } } },
    { "flat-p0", "alpha=1 p0=0.5 delta=0.0001", "1,13,24,3", .x_fill = { { .at = halves } } },
    { "flat-tiny", "alpha=1 delta=0.00001", "1,19,13,4", .x_fill = { { 200, 200.01 } } },
    { "flat-tiny-wide", "window=11,9 alpha=1 delta=0.00001", "1,29,23,4",
      .x_fill = { { 200, 200.01 } } },

    /* y is a part of the image, or lies beyond it */
    { "clip", "window=3,3 alpha=1 delta=0.25 offset=1,2 output=2,3", "2,6,7,5" },
    { "clip-even", "window=4,2 alpha=1 delta=0.25 offset=3,1 output=2,2", "1,7,6,3" },
    { "clip-five", "alpha=1 delta=0.25 offset=4,9 output=17,22", "1,30,56,16" },
    { "clip-wide", "window=9,11 alpha=1 delta=0.25 offset=3,4 output=5,4", "1,14,13,5" },
    { "clip-shifted", "window=3,3 alpha=1 delta=0.25 offset=2,-1", "2,6,7,3" },
    { "clip-around", "window=3,4 alpha=1 delta=0.25 offset=-2,-3 output=10,12", "1,6,7,3" },
    { "clip-beyond", "window=3,3 alpha=1 delta=0.25 offset=9,-9 output=2,3", "1,6,7,3",
      RG_CASE_ZERO },
    { "clip-image", "window=3,3 alpha=1 delta=0.25 offset=2,2 output=3,1", "6,7,4" },
    { "clip-one", "window=5,3 alpha=1 delta=0.25 offset=2,2 output=1,1", "1,6,7,1" },
    { "clip-most", "window=3,3 alpha=1 delta=0.25 offset=2147483647,-2147483648 output=1,1",
      "1,3,3,2", RG_CASE_ZERO },
    { "clip-far", "window=2147483647,2147483647 alpha=1 delta=0.25 offset=2147483647,-2147483648",
      "1,3,3,2", RG_CASE_ZERO },
    { "clip-no-rows", "window=3,3 alpha=1 delta=0.25 offset=1,1 output=2,2", "2,0,4,3",
      RG_CASE_ZERO },

    /* values */
    { "special-offset", "window=3,2 alpha=1 delta=0.25", "1,19,17,2", RG_CASE_SPECIAL,
      .x_fill = { { .at = spoilt } } },
    { "special", "window=3,4 alpha=1 delta=0.25", "2,13,11,3", RG_CASE_SPECIAL,
      .x_fill = { { .at = special } } },
    { "special-wide", "window=9,10 alpha=1 delta=0.25", "1,13,11,3", RG_CASE_SPECIAL,
      .x_fill = { { .at = special } } },
    { "special-dy", "window=3,4 alpha=1 delta=0.25", "2,13,11,3", RG_CASE_SPECIAL,
      .dy_fill = { .at = special_dy } },
    { "special-dy-wide", "window=9,10 alpha=1 delta=0.25", "1,13,11,3", RG_CASE_SPECIAL,
      .dy_fill = { .at = special_dy } },

    /* long sums of what does not cancel */
    { "long-window-4096", "window=64,64 alpha=1 delta=0.25", "1,66,66,3", 0, ONLY_F32, LONG_SUM },
    { "long-window-row", "window=1,4096 alpha=1 delta=0.25", "1,1,4100,3", 0, ONLY_F32, LONG_SUM },
    { "long-window-32768", "window=1,32768 alpha=1 delta=0.25", "1,1,32768,1", RG_CASE_LONG,
      ONLY_F32, LONG_SUM },
    { .name = NULL },
};

/* ---- random trials ---- */

/* Divisors stay away from 0; what becomes of an infinity, itself or NaN, is left open. */
static void draw(rg_draw *d)
{
    rg_local_contrast_desc *desc = d->desc;
    d->x[0] = rg_draw_image(d, 2000);
    const int64_t *size = &d->x[0].dims[d->x[0].rank - 3];
    for (int a = 0; a < 2; a++)
        desc->window[a] = (int32_t)rg_draw_between(d, 1, rg_draw_chance(d, 0.2) ? size[a] + 3 : 9);
    d->cost = (double)rg_draw_count(&d->x[0]) * (double)size[0] * (double)size[1];
    d->cost *= 3;
    memset(desc->offset, 0, sizeof desc->offset);
    memset(desc->output, 0, sizeof desc->output);
    for (int a = 0; a < 2 && rg_draw_chance(d, 0.3); a++) {
        desc->offset[a] = (int32_t)rg_draw_between(d, -3, size[a] + 2);
        desc->output[a] = rg_draw_below(d, size[a] + 4);
    }
    desc->alpha = (double)rg_draw_below(d, 9) / 4;
    desc->beta = (double)rg_draw_between(d, -8, 16) / 8;
    desc->delta = (double)rg_draw_between(d, 1, 8) / 4;
    d->x_fill[0].special = d->dy_fill.special = 0;
}

RG_OP_TEST_DEFINE(local_contrast, .cases = cases, .draw = draw);
