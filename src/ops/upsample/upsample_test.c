/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Upsample: the cases. Golden results were worked out by hand from the formulas of the grids. */
#include "ops/optest_draw.h"

#include <retrograde/upsample.h>

static double special(int64_t i)
{
    const double inf = __builtin_inf();
    const double values[] = { 1, 2, inf, 3, -inf, 4, 5, __builtin_nan(""), 6, 7, 8, 9, 10 };
    return values[i % 13];
}

static double counting(int64_t i)
{
    return (double)i;
}

/* Two pixels 0, 1 to four. */
static const double asymmetric[] = { 0, 0.5, 1, 1 };
static const double half_pixel[] = { 0, 0.25, 0.75, 1 };
static const double corners[] = { 0, 1.0 / 3, 2.0 / 3, 1 };
/* dy = 0, 1, 2, 3 back to two pixels. */
static const double half_pixel_back[] = { 0.75 + 0.5, 0.25 + 1.5 + 3 };
/* dy = 0 … 15 back to 2 by 2: every block of 2 by 2 is added up. */
static const double block_sums[] = { 10, 18, 42, 50 };

#define B "kind=bilinear "
#define H "grid=half_pixel "
#define A "grid=align_corners "

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
    { "nearest-16x56", "kind=nearest", "16,56,56,64", RG_CASE_BENCH },
    { "bilinear-16x56", B, "16,56,56,64", RG_CASE_BENCH },
    { "bilinear-half-16x56", B H, "16,56,56,64", RG_CASE_BENCH },
    { "bilinear-16x56-nchw", B, "16,56,56,64", RG_CASE_BENCH | RG_CASE_NCHW },
    { "bilinear-nchw", B, "2,5,7,19", RG_CASE_NCHW },
    { "bilinear-nchw-images", B, "3,32,36,33", RG_CASE_NCHW },

    /* timed on a GPU */
    { "nearest-64x56", "kind=nearest", "64,56,56,64", RG_CASE_BENCH_GPU },
    { "nearest-256x56", "kind=nearest", "256,56,56,64", RG_CASE_BENCH_GPU },
    { "bilinear-64x56", B, "64,56,56,64", RG_CASE_BENCH_GPU },
    { "bilinear-256x56", B, "256,56,56,64", RG_CASE_BENCH_GPU },
    { "bilinear-half-256x56", B H, "256,56,56,64", RG_CASE_BENCH_GPU },

    { "nearest", "kind=nearest", "2,5,7,19" },
    { "nearest-half", "kind=nearest " H, "2,3,5,16" },
    { "nearest-corners", "kind=nearest round=prefer_floor scale=3,2 " A, "2,3,5,17" },
    { "nearest-vectors", "kind=nearest scale=3,2", "2,3,5,64" },
    { "nearest-vectors-wide", "kind=nearest scale=1.5,2", "1,4,131,32" },
    { "bilinear-rows-down", "kind=bilinear scale=0.5,1 " H, "2,6,5,64" },
    { "nearest-3x1", "kind=nearest scale=3,1", "1,4,5,33" },
    { "nearest-fraction", "kind=nearest scale=1.7,2.3", "2,7,9,5" },
    { "nearest-down", "kind=nearest scale=0.4,0.5 round=ceil", "2,11,13,6" },
    { "nearest-down-floor", "kind=nearest scale=0.5,0.5 round=prefer_floor " H, "2,6,8,6" },
    { "nearest-down-ceil", "kind=nearest scale=0.5,0.5 round=prefer_ceil " H, "2,6,8,6" },
    { "nearest-size", "kind=nearest output=7,11", "2,5,3,9" },
    { "nearest-size-down", "kind=nearest output=2,3", "2,5,7,9" },
    { "bilinear", B, "2,5,7,19" },
    { "bilinear-half", B H, "2,5,7,19" },
    { "bilinear-corners", B A, "2,5,7,19" },
    { "bilinear-3x2", B "scale=3,2", "3,4,5,65" },
    { "bilinear-half-5x4", B H "scale=5,4", "1,3,4,131" },
    { "bilinear-fraction", B H "scale=1.7,2.3", "2,7,9,5" },
    { "bilinear-size", B H "output=13,10", "2,5,7,8" },
    { "bilinear-size-mixed", B "output=13,0 scale=9,3", "2,5,7,8" },
    { "bilinear-down", B H "scale=0.3,0.6", "2,13,11,12" },
    { "bilinear-size-down", B A "output=2,4", "2,7,11,12" },
    { "bilinear-to-one", B A "output=1,1", "2,4,3,6" },
    { "bilinear-from-one", B H "scale=3,5", "2,1,1,7" },
    { "bilinear-corners-from-one", B A "output=4,3", "2,1,1,7" },
    { "many-taps", B H "scale=40,70", "1,2,2,3" },
    { "many-taps-nearest", "kind=nearest output=90,83", "1,1,2,5" },
    { "tiles", "kind=nearest scale=1,2", "3,40,37,67" },
    { "no-batch", B, "5,4,3" },
    { "one-channel", B, "2,6,5,1" },
    { "one", B, "1,1,1,1" },
    { "copy", "scale=1,1", "2,3,4,5" },
    { "channels-4-vectors", B, "1,3,2,81" },
    { "empty-batch", B, "0,3,4,5", RG_CASE_ZERO },
    { "empty-rows", B, "2,0,4,5", RG_CASE_ZERO },
    { "empty-channels", "output=3,3", "2,2,4,0", RG_CASE_ZERO },
    { "special-nearest", "kind=nearest", "1,4,5,3", RG_CASE_SPECIAL,
      .x_fill = { { .at = special } }, .dy_fill = { .at = special } },
    { "special-bilinear", B, "1,4,5,3", RG_CASE_SPECIAL, .x_fill = { { .at = special } },
      .dy_fill = { .at = special } },
    { "special-corners", B A "output=7,9", "1,4,5,1", RG_CASE_SPECIAL,
      .x_fill = { { .at = special } }, .dy_fill = { .at = special } },
    { "golden-asymmetric", B "scale=1,2", "1,1,2,1", RG_CASE_FORWARD,
      .x_fill = { { .at = counting } }, .golden = asymmetric },
    { "golden-half-pixel", B H "scale=1,2", "1,1,2,1", RG_CASE_FORWARD,
      .x_fill = { { .at = counting } }, .golden = half_pixel },
    { "golden-corners", B A "scale=1,2", "1,1,2,1", RG_CASE_FORWARD,
      .x_fill = { { .at = counting } }, .golden = corners },
    { "golden-half-pixel-back", B H "scale=1,2", "1,1,2,1", .dy_fill = { .at = counting },
      .golden = half_pixel_back },
    { "golden-block-sums", "kind=nearest", "1,2,2,1", .dy_fill = { .at = counting },
      .golden = block_sums },

    /* long sums of what does not cancel */
    { "long-nearest-4096", "kind=nearest scale=64,64", "1,1,2,3", 0, ONLY_F32, LONG_SUM },
    { "long-nearest-row", "kind=nearest scale=1,4096", "1,1,2,19", 0, ONLY_F32, LONG_SUM },
    { "long-nearest-column", "kind=nearest scale=4096,1", "1,2,1,67", 0, ONLY_F32, LONG_SUM },
    { "long-bilinear-4096", B H "scale=64,64", "1,2,2,67", 0, ONLY_F32, LONG_SUM },
    { "long-bilinear-row", B H "scale=1,4096", "1,1,2,19", 0, ONLY_F32, LONG_SUM },
    { "long-nearest-524288", "kind=nearest scale=512,1024", "1,1,1,1", 0, ONLY_F32, LONG_SUM },
    { "long-bilinear-524288", B H "scale=512,512", "1,2,1,1", 0, ONLY_F32, LONG_SUM },
    { "long-nearest-67m", "kind=nearest scale=4096,8192", "1,1,1,2", RG_CASE_LONG, ONLY_F32,
      LONG_SUM },
    { "long-nearest-constant", "kind=nearest scale=1,67108864", "1,1,1,1", RG_CASE_LONG, ONLY_F32,
      .x_fill = { { .at = tenth } }, .dy_fill = { .at = tenth } },
    { "long-bilinear-67m", B H "scale=4096,8192", "1,1,2,1", RG_CASE_LONG, ONLY_F32, LONG_SUM },
    { .name = NULL },
};

/* ---- random trials ---- */

static void draw(rg_draw *d)
{
    static const double scales[] = { 1, 2, 2, 3, 0.5, 1.5, 0.3, 2.7, 4, 0.75 };
    rg_upsample_desc *desc = d->desc;
    d->x[0] = rg_draw_image(d, 1500);
    for (int a = 0; a < 2; a++) {
        desc->scale[a] = scales[rg_draw_below(d, 10)];
        desc->output[a] = rg_draw_chance(d, 0.8) ? 0 : rg_draw_between(d, 1, 40);
    }
}

RG_OP_TEST_DEFINE(upsample, .cases = cases, .draw = draw);
