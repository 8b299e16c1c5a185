/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Pad: the cases. Golden rows are the examples that MPS documents. */
#include "core/shape.h"
#include "ops/optest_draw.h"

#include <retrograde/pad.h>

static double special(int64_t i)
{
    const double inf = __builtin_inf();
    const double values[] = { 1, 2, inf, 3, -inf, 4, -0.0, __builtin_nan(""), 6, 7, 8, 9, 10 };
    return values[i % 13];
}

static double counting(int64_t i)
{
    return (double)i;
}

static const double mirror_row[] = { 0, 1, 2, 1, 0, 1, 2, 1 };
static const double mirror_channels[] = { 1, 0, 0, 1, 2, 2, 1, 0 };
static const double clamp_back[] = { 0 + 1 + 2, 3, 4 + 5 + 6 + 7 };

#define ONE    "before=0,1,1,0 after=0,1,1,0 "
#define UNEVEN "before=0,2,1,0 after=0,1,3,0 "
#define ALL    "before=1,2,1,3 after=2,1,3,2 "
#define CUT    "before=-1,2,-2,-1 after=1,-3,-1,0 "

/* A number whose sums are rounded in one direction for long. */
static double tenth(int64_t i)
{
    (void)i;
    return 0.1;
}

#define ONLY_F32 .only = 1 << RG_F32
#define LONG_SUM .x_fill = { { 0.5, 1.5 }, { 0.5, 1.5 } }, .dy_fill = { .at = tenth }

static const rg_case cases[] = {
    /* timed */
    { "zero-32x112", ONE, "32,112,112,64", RG_CASE_BENCH },
    { "mirror-32x112", "mode=mirror " ONE, "32,112,112,64", RG_CASE_BENCH },

    /* timed on a GPU */
    { "zero-256x112", ONE, "256,112,112,64", RG_CASE_BENCH_GPU },
    { "mirror-256x112", "mode=mirror " ONE, "256,112,112,64", RG_CASE_BENCH_GPU },

    { "zero", "mode=zero " UNEVEN, "2,5,7,19" },
    { "constant", "mode=constant value=-1.5 " UNEVEN, "2,5,7,16" },
    { "clamp", "mode=clamp " UNEVEN, "2,5,7,33" },
    { "mirror", "mode=mirror " UNEVEN, "2,5,7,67" },
    { "mirror-edge", "mode=mirror_edge " UNEVEN, "2,5,7,8" },
    { "zero-all", "mode=zero " ALL, "2,5,7,19" },
    { "constant-all", "mode=constant value=3 " ALL, "2,3,4,5" },
    { "clamp-all", "mode=clamp " ALL, "2,5,7,19" },
    { "mirror-all", "mode=mirror " ALL, "3,5,7,21" },
    { "mirror-edge-all", "mode=mirror_edge " ALL, "2,5,7,40" },
    { "clamp-corners", "mode=clamp before=0,1,1,1", "2,4,3,21" }, /* few copies */
    { "zero-channels-8", "mode=zero before=0,1,0,8 after=0,0,1,16", "2,3,4,24" },
    { "zero-channels-cut-8", "mode=zero before=0,1,0,-8 after=0,0,1,-8", "2,3,4,32" },
    { "mirror-channels-8", "mode=mirror before=0,1,0,8 after=0,0,1,8", "2,3,4,24" },
    { "fill", "mode=constant fill=true " UNEVEN, "2,5,7,19 19" },
    { "fill-all", "mode=constant fill=true " ALL, "2,5,7,19 24" },
    { "fill-channels-8", "mode=constant fill=true before=0,0,1,8 after=0,0,0,0", "2,3,4,16 24" },
    { "fill-70", "mode=constant fill=true " ONE, "2,3,4,131 131" },
    { "zero-cut", "mode=zero " CUT, "3,8,9,7" },
    { "clamp-cut", "mode=clamp " CUT, "3,8,9,7" },
    { "mirror-cut", "mode=mirror " CUT, "3,8,9,7" },
    { "mirror-edge-cut", "mode=mirror_edge " CUT, "3,8,9,7" },
    { "fill-cut", "mode=constant fill=true " CUT, "3,8,9,7 6" },
    { "crop", "before=0,-1,-2,0 after=0,-2,-1,0", "2,8,9,16" },
    { "clamp-past", "mode=clamp before=0,6,-7,0 after=0,-8,9,0", "2,3,5,6" },
    { "mirror-past", "mode=mirror repeat=true before=0,6,-7,0 after=0,-8,9,0", "2,3,5,6" },
    { "zero-past", "mode=constant fill=true before=0,1,-7,0 after=0,0,9,0", "2,3,5,6 6",
      RG_CASE_ZERO },
    { "mirror-most", "mode=mirror before=0,4,6,0 after=0,4,6,0", "1,5,7,9" },
    { "mirror-edge-most", "mode=mirror_edge before=0,5,7,0 after=0,5,7,0", "1,5,7,9" },
    { "mirror-repeat", "mode=mirror repeat=true before=0,9,5,4 after=0,12,6,7", "1,4,3,2" },
    { "mirror-edge-repeat", "mode=mirror_edge repeat=true before=2,9,5,4 after=1,12,6,7",
      "1,4,3,2" },
    { "mirror-of-one", "mode=mirror repeat=true before=0,2,1,3 after=0,1,2,2", "2,1,1,1" },
    { "mirror-edge-of-one", "mode=mirror_edge repeat=true before=0,2,1,3 after=0,1,2,2",
      "2,1,1,1" },
    { "clamp-far", "mode=clamp before=0,40,30,0 after=0,20,50,0", "1,3,2,17" },
    { "tiles", "mode=mirror " ONE, "3,40,37,67" },
    { "no-batch", "mode=mirror " UNEVEN, "5,4,3" },
    { "nothing", "", "2,3,4,5" },
    { "one", ONE, "1,1,1,1" },
    { "one-channel", "mode=clamp " UNEVEN, "2,6,5,1" },
    { "empty-batch", ONE, "0,3,4,5", RG_CASE_ZERO },
    { "from-nothing", "mode=constant value=2 " ONE, "2,0,0,5", RG_CASE_ZERO },
    { "fill-from-nothing", "mode=constant fill=true " ONE, "2,0,4,5 5", RG_CASE_ZERO },
    { "to-nothing", "before=0,-3,0,0", "2,3,4,5", RG_CASE_ZERO },
    { "special-zero", "mode=zero " ALL, "2,4,5,3", RG_CASE_SPECIAL, .x_fill = { { .at = special } },
      .dy_fill = { .at = special } },
    { "special-fill", "mode=constant fill=true " ONE, "1,4,5,3 3", RG_CASE_SPECIAL,
      .x_fill = { { .at = special }, { .at = special } }, .dy_fill = { .at = special } },
    { "special-clamp", "mode=clamp " UNEVEN, "2,4,5,17", RG_CASE_SPECIAL,
      .x_fill = { { .at = special } }, .dy_fill = { .at = special } },
    { "golden-mirror", "mode=mirror repeat=true before=0,0,4,0 after=0,0,1,0", "1,1,3,1",
      RG_CASE_FORWARD, .x_fill = { { .at = counting } }, .golden = mirror_row },
    { "golden-mirror-edge", "mode=mirror_edge before=0,0,0,2 after=0,0,0,3", "1,1,1,3",
      RG_CASE_FORWARD, .x_fill = { { .at = counting } }, .golden = mirror_channels },
    { "golden-clamp-back", "mode=clamp before=0,0,2,0 after=0,0,3,0", "1,1,3,1",
      .dy_fill = { .at = counting }, .golden = clamp_back },

    /* long sums of what does not cancel */
    { "long-clamp-4096", "mode=clamp before=0,32,32,0 after=0,31,31,0", "1,1,1,3", 0, ONLY_F32,
      LONG_SUM },
    { "long-clamp-row", "mode=clamp before=0,0,4096,0", "1,1,2,19", 0, ONLY_F32, LONG_SUM },
    { "long-clamp-channels", "mode=clamp before=0,0,0,4096", "1,1,2,3", 0, ONLY_F32, LONG_SUM },
    { "long-clamp-images", "mode=clamp before=4096,0,0,0", "2,1,1,5", 0, ONLY_F32, LONG_SUM },
    { "long-mirror", "mode=mirror repeat=true before=0,600,0,0 after=0,600,90,0", "1,4,3,5", 0,
      ONLY_F32, LONG_SUM },
    { "long-fill-4096", "mode=constant fill=true before=0,32,32,0 after=0,31,31,0", "1,1,1,3 3", 0,
      ONLY_F32, LONG_SUM },
    { "long-fill-524288", "mode=constant fill=true before=0,0,524288,0", "1,1,1,2 2", 0, ONLY_F32,
      LONG_SUM },
    { "long-fill-67m", "mode=constant fill=true before=0,4095,8191,0", "1,1,1,2 2", RG_CASE_LONG,
      ONLY_F32, LONG_SUM },
    { "long-clamp-524288", "mode=clamp before=0,511,1023,0", "1,1,1,1", 0, ONLY_F32, LONG_SUM },
    { "long-clamp-67m", "mode=clamp before=0,4095,8191,0", "1,1,1,2", RG_CASE_LONG, ONLY_F32,
      LONG_SUM },
    { "long-clamp-constant", "mode=clamp before=0,0,67108863,0", "1,1,1,1", RG_CASE_LONG, ONLY_F32,
      .x_fill = { { .at = tenth } }, .dy_fill = { .at = tenth } },
    { "long-channels-67m", "mode=clamp before=0,0,0,67108863", "1,1,1,1", RG_CASE_LONG, ONLY_F32,
      LONG_SUM },
    { .name = NULL },
};

/* Of x what is not cut off; of dy that, too, where the padding comes from nowhere in x. */
static int64_t needs(const void *desc, const rg_tensor_desc x[], const rg_tensor_desc y[],
                     bool gradient)
{
    const rg_pad_desc *d = desc;
    if (gradient && d->mode != RG_PAD_ZERO && d->mode != RG_PAD_CONSTANT)
        return rg_shape_count(y);
    int64_t count = 1;
    for (int32_t i = 0; i < x->rank; i++) {
        const int64_t before = d->before[4 - x->rank + i], after = d->after[4 - x->rank + i];
        const int64_t left = x->dims[i] + (before < 0 ? before : 0) + (after < 0 ? after : 0);
        count *= left > 0 ? left : 0;
    }
    return count;
}

/* ---- random trials ---- */

static void draw(rg_draw *d)
{
    rg_pad_desc *desc = d->desc;
    d->x[0] = rg_draw_image(d, 1500);
    const int32_t skipped = 4 - d->x[0].rank;
    for (int a = 0; a < 4; a++) {
        const bool padded = a >= skipped && rg_draw_chance(d, a == 0 ? 0.2 : 0.6);
        desc->before[a] = padded ? rg_draw_between(d, -2, 6) : 0;
        desc->after[a] = padded ? rg_draw_between(d, -2, 6) : 0;
    }
    const int64_t channels = d->x[0].dims[d->x[0].rank - 1] + desc->before[3] + desc->after[3];
    d->x[1] = rg_draw_vector(d->dtype, channels);
    desc->value = rg_draw_factor(d);
}

RG_OP_TEST_DEFINE(pad, .cases = cases, .needs = needs, .draw = draw);
