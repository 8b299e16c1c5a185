/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Pooling: the cases. */
#include "ops/optest_draw.h"

#include <retrograde/pool.h>

static double special(int64_t i)
{
    const double inf = __builtin_inf();
    const double values[] = {
        0, -0.0, inf, -inf, __builtin_nan(""), 1e-3, -1, 60, -60, -inf, -inf
    };
    return values[(i * 7 + i / 11) % 11];
}

/* Many equal maxima: the first one wins. */
static double steps(int64_t i)
{
    return (double)(i * 2654435761 >> 7 & 3) - 1;
}

static double negative(int64_t i)
{
    return -1 - (double)(i * 2654435761 >> 7 & 1023) / 512;
}

#define P1     " padding.top=1 padding.left=1 padding.bottom=1 padding.right=1"
#define W3X3   "window=3,3 stride=2,2" P1
#define ODD    "window=3,2 stride=2,1 padding.top=1 padding.left=0 padding.bottom=2 padding.right=1"
#define CLAMP  " edge=clamp"
#define COUNT  " edge=clamp count_include_pad=true"
#define MARGIN " edge=clamp zero_pad=1,2"

/* A number whose sums are rounded in one direction for long. */
static double tenth(int64_t i)
{
    (void)i;
    return 0.1;
}

#define AROUND   " padding.top=31 padding.left=31 padding.bottom=31 padding.right=31"
#define ONLY_F32 .only = 1 << RG_F32
#define LONG_SUM .x_fill = { { .at = tenth } }, .dy_fill = { .at = tenth }

static const rg_case cases[] = {
    /* timed */
    { "max-112-3x3", "kind=max edge=clamp " W3X3, "32,112,112,64", RG_CASE_BENCH },
    { "max-56-2x2", "kind=max", "64,56,56,128", RG_CASE_BENCH },
    { "average-112-3x3", "kind=average edge=clamp " W3X3, "32,112,112,64", RG_CASE_BENCH },
    { "average-56-2x2", "kind=average", "64,56,56,128", RG_CASE_BENCH },
    { "max-112-3x3-nchw", "kind=max edge=clamp " W3X3, "32,112,112,64",
      RG_CASE_BENCH | RG_CASE_NCHW },
    { "average-56-2x2-nchw", "kind=average", "64,56,56,128", RG_CASE_BENCH | RG_CASE_NCHW },
    { "max-nchw-images", "kind=max edge=clamp " W3X3, "5,72,64,48", RG_CASE_NCHW },
    { "max-nchw", "kind=max edge=clamp " W3X3, "2,9,11,13", RG_CASE_NCHW },
    { "l2-nchw", "kind=l2", "2,8,10,17", RG_CASE_NCHW },
    { "average-nchw", "kind=average", "10,12,33", RG_CASE_NCHW },

    /* timed on a GPU */
    { "max-112-3x3-256", "kind=max edge=clamp " W3X3, "256,112,112,64", RG_CASE_BENCH_GPU },
    { "max-56-2x2-256", "kind=max", "256,56,56,128", RG_CASE_BENCH_GPU },
    { "average-112-3x3-256", "kind=average edge=clamp " W3X3, "256,112,112,64", RG_CASE_BENCH_GPU },
    { "average-56-2x2-256", "kind=average", "256,56,56,128", RG_CASE_BENCH_GPU },

    /* kinds and edges */
    { "max", "kind=max", "2,6,8,5" },
    { "max-3x3", "kind=max " W3X3, "2,9,7,19" },
    { "max-3x3-clamp", "kind=max " W3X3 CLAMP, "2,9,7,19" },
    { "max-overlap", "kind=max window=3,3 stride=1,1" P1 CLAMP, "1,7,5,67" },
    { "max-odd", "kind=max " ODD, "1,11,7,33" },
    { "max-odd-clamp", "kind=max " ODD CLAMP, "1,11,7,33" },
    { "max-negative", "kind=max " ODD, "1,11,7,3", .x_fill = { { .at = negative } } },
    { "max-negative-clamp", "kind=max " ODD CLAMP, "1,11,7,3", .x_fill = { { .at = negative } } },
    { "max-dilated", "kind=max window=3,2 stride=2,3 dilation=2,3 padding.top=2 padding.left=3",
      "1,11,13,17" },
    { "max-dilated-clamp",
      "kind=max window=2,2 stride=1,1 dilation=3,2 padding.policy=same edge=clamp", "1,9,6,4" },
    { "max-sparse", "kind=max window=1,2 stride=3,4", "2,10,11,5" },
    { "average", "kind=average", "2,6,8,5" },
    { "average-3x3", "kind=average " W3X3, "2,9,7,19" },
    { "average-3x3-clamp", "kind=average " W3X3 CLAMP, "2,9,7,67" },
    { "average-overlap", "kind=average window=3,3 stride=1,1" P1, "1,7,5,70" },
    { "average-odd", "kind=average " ODD, "1,11,7,33" },
    { "average-odd-clamp", "kind=average " ODD CLAMP, "1,11,7,33" },
    { "average-odd-count", "kind=average " ODD COUNT, "1,11,7,33" },
    { "average-margin", "kind=average " ODD MARGIN, "1,11,7,33" },
    { "average-dilated", "kind=average window=3,2 stride=2,3 dilation=2,3 padding.top=2" COUNT,
      "1,11,13,17" },
    { "average-dilated-clamp",
      "kind=average window=4,3 stride=1,2 dilation=2,3 padding.top=3 padding.left=2 "
      "padding.bottom=3 padding.right=5" CLAMP,
      "1,6,8,17" },
    { "average-dilated-margin",
      "kind=average window=4,3 stride=1,2 dilation=2,3 padding.top=4 padding.left=4 "
      "padding.bottom=4 padding.right=5" MARGIN,
      "1,6,8,3" },
    { "average-sparse", "kind=average window=1,2 stride=3,4", "2,10,11,5" },
    { "average-global", "kind=average window=7,7 stride=1,1", "2,7,7,130" },
    { "l2", "kind=l2", "2,6,8,5" },
    { "l2-3x3", "kind=l2 " W3X3, "2,9,7,19" },
    { "l2-odd-clamp", "kind=l2 " ODD CLAMP, "1,11,7,67" },
    { "l2-dilated", "kind=l2 window=2,3 stride=2,1 dilation=3,2 padding.left=3", "1,9,9,16" },

    /* geometry */
    { "ceil", "kind=average window=3,3 stride=2,2 ceil_mode=true" COUNT, "1,8,10,4" },
    { "ceil-max", "kind=max window=2,2 stride=3,3 ceil_mode=true" P1 CLAMP, "1,8,9,4" },
    { "ceil-zero", "kind=average window=3,3 stride=2,2 ceil_mode=true", "1,8,10,4" },
    { "crop", "kind=max window=2,3 stride=2,2 padding.top=-1 padding.left=-2 padding.right=-1",
      "1,8,11,6" },
    { "crop-count", "kind=average window=2,2 stride=2,2 padding.top=-1 padding.bottom=1" COUNT,
      "1,8,6,6" },
    { "smaller", "kind=average window=3,3 stride=2,2 output=2,3", "1,9,9,4" },
    { "larger", "kind=average window=3,3 stride=2,2 output=7,8 padding.left=5" CLAMP, "1,9,9,4" },
    { "larger-max", "kind=max window=3,3 stride=2,2 output=7,8 padding.left=5" CLAMP, "1,9,9,4" },
    { "larger-zero", "kind=max window=3,3 stride=2,2 output=7,8 padding.left=5", "1,9,9,4" },
    { "between", "kind=max window=2,1 stride=1,1 dilation=4,1 padding.top=2 output=3,2" CLAMP,
      "1,1,2,3" },
    { "same", "kind=average window=3,3 stride=2,2 padding.policy=same" CLAMP, "1,8,7,4" },
    { "same-tensorflow",
      "kind=average window=3,3 stride=2,2 padding.policy=same padding.remainder=bottom_right" CLAMP,
      "1,8,7,4" },
    { "same-upper", "kind=average window=2,3 stride=1,2 padding.policy=same_upper" COUNT,
      "1,7,8,4" },
    { "same-lower", "kind=average window=2,3 stride=1,2 padding.policy=same_lower" COUNT,
      "1,7,8,4" },
    { "full", "kind=average window=3,2 stride=2,1 padding.policy=full" COUNT, "1,5,6,4" },
    { "valid", "kind=max window=2,2 stride=3,3 padding.policy=valid", "1,9,10,4" },
    { "valid-tensorflow", "kind=average window=3,2 stride=2,2 padding.policy=valid" CLAMP,
      "1,8,7,4" },
    { "aligned", "kind=max window=3,3 stride=3,3 padding.policy=same padding.align=top_left" CLAMP,
      "1,8,10,4" },
    { "wider", "kind=average window=9,8 stride=3,3 padding.policy=same" CLAMP, "1,5,4,6" },

    /* winners of more than a byte, and the last that fits into one */
    { "taps-255", "kind=max window=15,17 stride=4,3", "1,22,23,5" },
    { "taps-256", "kind=max window=16,16 stride=4,3", "1,22,23,5" },
    { "taps-289-zero", "kind=max window=17,17 stride=4,3 padding.policy=same", "1,22,23,18",
      .x_fill = { { .at = negative } } },

    { "taps-289-vectors", "kind=max window=17,17 stride=7,7 padding.policy=same", "1,20,20,24" },

    /* whole vectors of 16 bytes */
    { "vectors", "kind=max " W3X3, "2,9,7,32" },
    { "vectors-clamp", "kind=max " ODD CLAMP, "2,11,9,24" },
    { "vectors-average", "kind=average " ODD COUNT, "2,11,9,24" },
    { "vectors-l2", "kind=l2 " ODD, "2,11,9,24" },
    { "vectors-stride-1", "kind=max window=3,3 stride=1,1" P1 CLAMP, "1,7,6,24" },
    { "vectors-stride-1-2x2", "kind=max window=2,2 stride=1,1 padding.left=1", "1,7,6,24" },
    { "vectors-2x2", "kind=max", "2,7,6,24" },
    { "vectors-4x4", "kind=max window=4,4 stride=2,2" P1, "1,9,8,24" },
    { "few", "kind=max window=2,3 stride=2,3" P1, "2,7,8,8" },
    { "few-average", "kind=average window=2,2 stride=3,2" P1 COUNT, "2,8,7,20" },
    { "few-special", "kind=max", "1,7,8,8", RG_CASE_SPECIAL, .x_fill = { { .at = special } },
      .dy_fill = { .at = special } },
    { "vectors-1x1", "kind=max window=1,1 stride=2,2", "1,7,6,24" },
    { "vectors-3x2", "kind=max window=3,2 stride=2,2 padding.top=1 padding.right=1" CLAMP,
      "1,9,8,24" },
    { "vectors-crop", "kind=max window=3,3 stride=2,2 padding.top=-1 padding.left=-2", "1,8,11,8" },
    { "vectors-larger", "kind=max window=3,3 stride=2,2 output=7,8 padding.left=5" CLAMP,
      "1,9,9,8" },
    { "vectors-special", "kind=max " W3X3 CLAMP, "1,9,9,8", RG_CASE_SPECIAL,
      .x_fill = { { .at = special } }, .dy_fill = { .at = special } },
    { "vectors-average-stride-1", "kind=average window=3,3 stride=1,1" P1 CLAMP, "1,7,6,24" },
    { "vectors-average-2x2-stride-1", "kind=average window=2,2 stride=1,1 padding.left=1",
      "1,7,6,24" },
    { "vectors-average-2x2", "kind=average", "2,7,6,24" },
    { "vectors-average-3x3", "kind=average " W3X3 CLAMP, "2,9,8,24" },
    { "vectors-average-4x4", "kind=average window=4,4 stride=2,2" P1 CLAMP, "1,9,8,24" },
    { "vectors-average-1x1", "kind=average window=1,1 stride=2,2", "1,7,6,24" },
    { "vectors-average-3x2", "kind=average window=3,2 stride=2,2 padding.top=1" COUNT, "1,9,8,24" },
    { "vectors-average-margin", "kind=average " W3X3 MARGIN, "1,9,8,24" },
    { "vectors-average-crop", "kind=average window=3,3 stride=2,2 padding.top=-1 padding.left=-2",
      "1,8,11,8" },
    { "vectors-average-larger",
      "kind=average window=3,3 stride=2,2 output=7,8 padding.left=5" CLAMP, "1,9,9,8" },
    { "vectors-l2-3x3", "kind=l2 " W3X3, "1,9,8,24" },
    /* many columns or rows without a window: their count of windows was a negative number in a byte
     */
    { "left-out-average", "kind=average window=1,1 stride=1,1 padding.right=-28" CLAMP,
      "1,3,128,64" },
    { "left-out-max", "kind=max window=2,2 stride=1,1 padding.right=-28 padding.bottom=-9",
      "1,14,128,64" },
    { "left-out-before", "kind=average window=2,3 stride=2,2 padding.left=-90 padding.top=-5",
      "1,9,130,64" },
    { "left-out-wide", "kind=average window=1,1 stride=1,1 padding.right=-300" COUNT,
      "1,2,330,64" },
    { "left-out-wide-max", "kind=max window=2,1 stride=1,1 padding.right=-300", "1,3,330,64" },
    { "left-out-l2", "kind=l2 window=2,1 stride=1,1 padding.right=-40", "1,3,50,64" },
    { "left-out-apart", "kind=max window=1,2 stride=2,2 padding.right=-40 padding.bottom=-4",
      "1,9,50,9" },
    { "left-out-output", "kind=average window=3,3 stride=2,2 output=2,1" CLAMP, "1,20,140,64" },
    { "left-out-output-max", "kind=max window=1,1 stride=1,1 output=1,2", "1,20,140,64" },
    { "vectors-image", "kind=max window=2,2 stride=3,3 dilation=2,2", "11,9,128" },

    /* indices */
    { "indices", "kind=max indices=true " W3X3 CLAMP, "2,9,7,5" },
    { "indices-zero", "kind=max indices=true " ODD, "2,11,7,33", .x_fill = { { .at = steps } },
      .flags = RG_CASE_SPECIAL },
    { "indices-columns", "kind=max indices=true storage_order=1 " ODD CLAMP, "3,11,7,33" },
    { "indices-dilated",
      "kind=max indices=true window=3,2 stride=2,3 dilation=2,3 padding.top=2 padding.left=3" CLAMP,
      "1,11,13,17" },
    { "indices-image", "kind=max indices=true window=2,3 stride=1,2", "7,9,5" },
    { "indices-larger",
      "kind=max indices=true window=3,3 stride=2,2 output=7,8 padding.left=5" CLAMP, "2,9,9,4" },
    { "indices-wide", "kind=max indices=true window=16,17 stride=4,3 padding.policy=same",
      "2,22,23,5" },
    { "indices-tiles", "kind=max indices=true window=2,2 stride=1,1", "2,23,61,67" },
    { "indices-none", "kind=max indices=true", "0,6,6,3", RG_CASE_ZERO },

    /* shapes */
    { "one", "kind=max window=1,1 stride=1,1", "1,1,1,1" },
    { "one-average", "kind=average window=1,1 stride=1,1", "1,1,1,1" },
    { "image", "kind=max " W3X3, "7,9,5" },
    { "image-average", "kind=average " W3X3, "7,9,5" },
    { "one-channel", "kind=max " W3X3 CLAMP, "3,13,11,1" },
    { "one-row", "kind=average window=1,3 stride=1,2 padding.right=2", "2,1,31,2" },
    { "tiles", "kind=max " W3X3 CLAMP, "2,23,61,67" },
    { "tiles-average", "kind=average " W3X3 CLAMP, "3,29,57,64" },
    { "no-images", "kind=max", "0,6,6,3", RG_CASE_ZERO },
    { "no-images-average", "kind=average", "0,6,6,3", RG_CASE_ZERO },
    { "no-channels", "kind=l2", "2,6,6,0", RG_CASE_ZERO },

    /* values */
    { "ties", "kind=max " W3X3, "1,9,9,5", RG_CASE_SPECIAL, .x_fill = { { .at = steps } } },
    { "ties-clamp", "kind=max window=3,3 stride=1,1" P1 CLAMP, "1,9,9,5", RG_CASE_SPECIAL,
      .x_fill = { { .at = steps } } },
    { "special", "kind=max " W3X3, "1,9,9,5", RG_CASE_SPECIAL, .x_fill = { { .at = special } } },
    { "special-clamp", "kind=max " W3X3 CLAMP, "1,9,9,5", RG_CASE_SPECIAL,
      .x_fill = { { .at = special } }, .dy_fill = { .at = special } },
    { "special-average", "kind=average " W3X3, "1,9,9,5", RG_CASE_SPECIAL,
      .x_fill = { { .at = special } }, .dy_fill = { .at = special } },
    { "special-l2", "kind=l2 window=2,2", "1,9,9,5", RG_CASE_SPECIAL,
      .x_fill = { { .at = special } } },
    { "zeros-l2", "kind=l2 window=2,2", "1,4,4,3", RG_CASE_ZERO | RG_CASE_SPECIAL,
      .x_fill = { { 0, 1e-300 } } },

    /* long sums of what does not cancel: taps of a window, and windows around a pixel */
    { "long-average-64x64", "kind=average window=64,64 stride=1,1 edge=clamp", "1,66,66,3", 0,
      ONLY_F32, LONG_SUM },
    { "long-average-40x40", "kind=average window=40,40 stride=2,1" P1, "1,42,42,70", 0, ONLY_F32,
      LONG_SUM },
    { "long-average-32x32", "kind=average window=32,32 stride=1,1" AROUND, "1,1,2,19", 0, ONLY_F32,
      LONG_SUM },
    { "long-average-row",
      "kind=average window=1,4096 stride=1,1 padding.left=4095 padding.right=4095", "1,1,2,1", 0,
      ONLY_F32, LONG_SUM },
    { "long-max-32x32", "kind=max window=32,32 stride=1,1" AROUND, "1,1,2,19", 0, ONLY_F32,
      LONG_SUM },
    { "long-max-row", "kind=max window=1,4096 stride=1,1 padding.left=4095 padding.right=4095",
      "1,1,1,1", 0, ONLY_F32, LONG_SUM },
    { "long-max-bytes", "kind=max window=1,255 stride=1,1 padding.left=254 padding.right=254",
      "1,1,2,19", 0, ONLY_F32, LONG_SUM },
    { "long-l2-64x64", "kind=l2 window=64,64 stride=1,1", "1,65,66,3", 0, ONLY_F32, LONG_SUM },
    { "long-l2-40x40", "kind=l2 window=40,40 stride=2,1", "1,42,42,70", 0, ONLY_F32, LONG_SUM },
    { "long-l2-row", "kind=l2 window=1,4096 stride=1,1 padding.left=4095 padding.right=4095",
      "1,1,1,1", 0, ONLY_F32, LONG_SUM },
    { "long-l2-32x32", "kind=l2 window=32,32 stride=1,1" AROUND, "1,1,1,67", 0, ONLY_F32,
      LONG_SUM },
    { "long-average-524288", "kind=average window=512,1024 stride=1,1", "1,512,1024,3", 0, ONLY_F32,
      LONG_SUM },
    { "long-l2-524288", "kind=l2 window=512,1024 stride=1,1", "1,512,1024,3", 0, ONLY_F32,
      LONG_SUM },
    { "long-average-67m", "kind=average window=4096,8192 stride=1,1", "1,4096,8192,2",
      RG_CASE_FORWARD, ONLY_F32, .x_fill = { { 0.5, 1.5 } } },
    { "long-l2-67m", "kind=l2 window=4096,16384 stride=1,1", "1,4096,16384,1", 0, ONLY_F32,
      LONG_SUM },
    { .name = NULL },
};

/* ---- random trials ---- */

static void draw(rg_draw *d)
{
    rg_pool_desc *desc = d->desc;
    d->x[0] = rg_draw_image(d, 4000);
    const int64_t *size = &d->x[0].dims[d->x[0].rank - 3];
    for (int a = 0; a < 2; a++)
        rg_draw_window(d, size[a], &desc->window[a], &desc->stride[a], &desc->dilation[a]);
    rg_draw_padding(d, desc->window, &desc->padding);
    rg_draw_output(d, size[0], size[1], desc->output);
    desc->ceil_mode &= desc->padding.policy == RG_PADDING_EXPLICIT;
    desc->indices &= desc->kind == RG_POOL_MAX;
    for (int a = 0; a < 2; a++)
        desc->zero_pad[a] = (int32_t)rg_draw_between(d, 0, 3);
    d->cost = 2 * (double)size[0] * (double)size[1] * (double)size[2] * desc->window[0] *
              desc->window[1] * (d->x[0].rank == 4 ? (double)d->x[0].dims[0] : 1);
}

RG_OP_TEST_DEFINE(pool, .cases = cases, .draw = draw);
