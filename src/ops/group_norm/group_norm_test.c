/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Group normalization: the cases. */
#include "ops/optest_draw.h"

#include <retrograde/group_norm.h>

static double far_away(int64_t i)
{
    return 8192 + (double)(i * 37 % 101) / 32;
}

/* Images of 12: a NaN, an infinity, numbers. */
static double special(int64_t i)
{
    return i == 3    ? __builtin_nan("")
           : i == 17 ? (double)__builtin_inf()
                     : (double)(i * 7 % 11) - 4;
}

static double constant(int64_t i)
{
    return i % 3 == 0 ? 0.1 : 0.1;
}

#define ROWS "axis=-1 epsilon=1e-5"

/* Numbers whose sums are rounded in one direction for long, and that are not all the same. */
static double uneven(int64_t i)
{
    return i / 8 % 2 == 0 ? 0.1 : 0.3;
}

#define LONG_SUM .only = 1 << RG_F32, .x_fill = { { 0.5, 1.5 } }, .dy_fill = { .at = uneven }

static const rg_case cases[] = {
    { .name = "one", .fields = "epsilon=1e-3", .x = "1,1 1 1", .flags = RG_CASE_ZERO },
    { .name = "one-channel", .fields = "epsilon=1e-3", .x = "3,5,7,1 1 1" },
    { .name = "one-element", .fields = "groups=0", .x = "3,5 5 5", .flags = RG_CASE_ZERO },
    { .name = "one-pixel", .fields = "groups=0", .x = "3,1,1,5 5 5", .flags = RG_CASE_ZERO },
    { .name = "zero-variance",
      .fields = "groups=2 epsilon=1e-3",
      .x = "2,3,6 6 6",
      .x_fill = { { .at = constant } },
      .flags = RG_CASE_ZERO },
    { .name = "groups", .fields = "groups=4 epsilon=1e-5", .x = "3,5,7,20 20 20" },
    { .name = "two", .fields = "groups=2 epsilon=1e-5", .x = "2,3,3,34 34 34" },
    { .name = "instance", .fields = "groups=0 epsilon=1e-5", .x = "3,5,7,19 19 19" },
    { .name = "instance-wide", .fields = "groups=0 epsilon=1e-5", .x = "2,3,2,530 530 530" },
    { .name = "one-group", .fields = "groups=1 epsilon=1e-5", .x = "3,5,7,19 19 19" },
    { .name = "wide-group", .fields = "groups=2 epsilon=1e-5", .x = "2,3,2062 2062 2062" },
    { .name = "mps-epsilon", .fields = "groups=2", .x = "2,6,5,8 8 8" },
    { .name = "many-groups", .fields = "groups=190 epsilon=1e-5", .x = "2,5,1140 1140 1140" },
    { .name = "pieces", .fields = "groups=3 epsilon=1e-5", .x = "2,41,17,3 3 3" },
    { .name = "parts", .fields = "groups=2 epsilon=1e-5", .x = "1,33001,2 2 2" },
    { .name = "many-rows", .fields = "groups=7 epsilon=1e-5", .x = "1,1031,259 259 259" },
    { .name = "vectors", .fields = "groups=8 epsilon=1e-5", .x = "3,9,11,64 64 64" },
    { .name = "vectors-wide", .fields = "groups=2 epsilon=1e-5", .x = "2,13,7,128 128 128" },
    { .name = "vectors-one", .fields = "groups=1 epsilon=1e-5", .x = "1,9,11,512 512 512" },
    { .name = "vectors-plain",
      .fields = "groups=0 gamma=false beta=false epsilon=1e-5",
      .x = "2,5,31,48" },
    { .name = "vectors-relu",
      .fields = "groups=4 neuron.kind=relu epsilon=1e-5",
      .x = "2,9,7,32 32 32" },
    { .name = "axis-0", .fields = "axis=0 groups=3 epsilon=1e-5", .x = "4,5,9 9 9" },
    { .name = "axis-2", .fields = "axis=2 groups=3 epsilon=1e-5", .x = "4,2,5,9 9 9" },
    { .name = "rank-8", .fields = "axis=3 groups=5 epsilon=1e-5", .x = "2,1,3,2,1,2,2,10 10 10" },
    { .name = "no-gamma", .fields = "gamma=false groups=2 epsilon=1e-5", .x = "5,9,12 12" },
    { .name = "no-beta", .fields = "beta=false groups=2 epsilon=1e-5", .x = "5,9,12 12" },
    { .name = "no-parameters",
      .fields = "gamma=false beta=false groups=3 epsilon=1e-5",
      .x = "5,9,12" },
    { .name = "image-gradients",
      .fields = "image_gradients=true groups=3 epsilon=1e-5",
      .x = "5,9,12 12 12" },
    { .name = "far",
      .fields = "groups=2 epsilon=1e-5",
      .x = "3,13,8 8 8",
      .only = 1 << RG_F32 | 1 << RG_F64,
      .x_fill = { { .at = far_away } } },
    { .name = "special",
      .fields = "groups=2 epsilon=1e-5",
      .x = "3,3,4 4 4",
      .x_fill = { { .at = special } },
      .flags = RG_CASE_SPECIAL },
    { .name = "empty", .fields = "epsilon=1e-5", .x = "0,4,4,3 3 3", .flags = RG_CASE_ZERO },
    { .name = "no-pixels", .fields = "epsilon=1e-5", .x = "2,0,4,3 3 3", .flags = RG_CASE_ZERO },
    { .name = "relu", .fields = "groups=2 neuron.kind=relu epsilon=1e-5", .x = "5,3,7,18 18 18" },
    { .name = "sigmoid",
      .fields = "groups=2 neuron.kind=sigmoid epsilon=1e-5",
      .x = "5,3,7,18 18 18" },
    { .name = "layer", .fields = ROWS, .x = "37,17 17 17" },
    { .name = "layer-vector", .fields = ROWS, .x = "5,64 64 64" },
    { .name = "layer-long", .fields = ROWS, .x = "67,1031 1031 1031" },
    { .name = "layer-256", .fields = ROWS, .x = "300,256 256 256" },
    { .name = "layer-1024", .fields = ROWS, .x = "37,1024 1024 1024" },
    { .name = "layer-2048", .fields = ROWS, .x = "5,2048 2048 2048" },
    { .name = "layer-4096", .fields = ROWS, .x = "3,4096 4096 4096" },
    { .name = "layer-8192", .fields = ROWS, .x = "3,8192 8192 8192" },
    { .name = "layer-vector-relu", .fields = ROWS " neuron.kind=relu", .x = "9,64 64 64" },
    { .name = "layer-runs", .fields = ROWS, .x = "600,13 13 13" },
    { .name = "layer-parts", .fields = ROWS, .x = "4099,13 13 13" },
    { .name = "layer-rank-4", .fields = ROWS, .x = "3,2,5,33 33 33" },
    { .name = "layer-rank-1", .fields = ROWS, .x = "29 29 29" },
    { .name = "layer-groups", .fields = ROWS " groups=3", .x = "7,51 51 51" },
    { .name = "layer-plain", .fields = ROWS " gamma=false beta=false", .x = "9,40" },
    { .name = "layer-images", .fields = ROWS " image_gradients=true", .x = "9,40 40 40" },
    { .name = "layer-gelu", .fields = ROWS " neuron.kind=gelu", .x = "9,40 40 40" },
    { .name = "layer-relu", .fields = ROWS " neuron.kind=relu", .x = "9,77 77 77" },
    { .name = "layer-far",
      .fields = ROWS,
      .x = "9,77 77 77",
      .only = 1 << RG_F32 | 1 << RG_F64,
      .x_fill = { { .at = far_away } } },
    { .name = "layer-special",
      .fields = ROWS,
      .x = "3,12 12 12",
      .x_fill = { { .at = special } },
      .flags = RG_CASE_SPECIAL },
    { .name = "layer-empty", .fields = ROWS, .x = "0,12 12 12", .flags = RG_CASE_ZERO },
    { .name = "bench-group",
      .fields = "groups=32 epsilon=1e-5",
      .x = "32,28,28,256 256 256",
      .flags = RG_CASE_BENCH },
    { .name = "bench-group-nchw",
      .fields = "groups=32 epsilon=1e-5",
      .x = "32,28,28,256 256 256",
      .flags = RG_CASE_BENCH | RG_CASE_NCHW },
    { .name = "nchw",
      .fields = "groups=3 epsilon=1e-5",
      .x = "2,7,9,21 21 21",
      .flags = RG_CASE_NCHW },
    { .name = "nchw-wide",
      .fields = "groups=3 epsilon=1e-5",
      .x = "1,6,7,264 264 264",
      .flags = RG_CASE_NCHW },
    { .name = "nchw-rows",
      .fields = "groups=3 epsilon=1e-5",
      .x = "1,33,35,264 264 264",
      .flags = RG_CASE_NCHW },
    { .name = "nchw-relu",
      .fields = "groups=33 epsilon=1e-5 neuron.kind=relu",
      .x = "1,6,7,264 264 264",
      .flags = RG_CASE_NCHW },
    { .name = "nchw-instance-gelu",
      .fields = "groups=0 epsilon=1e-5 image_gradients=true neuron.kind=gelu",
      .x = "2,7,9,21 21 21",
      .flags = RG_CASE_NCHW },
    { .name = "bench-instance",
      .fields = "groups=0 epsilon=1e-5",
      .x = "32,28,28,256 256 256",
      .flags = RG_CASE_BENCH },
    { .name = "bench-layer-1024",
      .fields = ROWS,
      .x = "8192,1024 1024 1024",
      .flags = RG_CASE_BENCH },
    { .name = "bench-layer-256", .fields = ROWS, .x = "65536,256 256 256", .flags = RG_CASE_BENCH },
    { .name = "bench-gpu",
      .fields = "groups=32 epsilon=1e-5",
      .x = "256,28,28,256 256 256",
      .flags = RG_CASE_BENCH_GPU },
    { .name = "bench-gpu-layer",
      .fields = ROWS,
      .x = "65536,1024 1024 1024",
      .flags = RG_CASE_BENCH_GPU },

    /* long sums of what does not cancel */
    { .name = "long-4096", .fields = "groups=2 epsilon=1e-5", .x = "1,4096,4 4 4", LONG_SUM },
    { .name = "long-524288", .fields = "groups=2 epsilon=1e-5", .x = "1,262144,4 4 4", LONG_SUM },
    { .name = "long-67m", .fields = "groups=1 epsilon=1e-5", .x = "1,16777216,4 4 4", LONG_SUM },
    { .name = "long-images", .fields = "groups=2 epsilon=1e-5", .x = "65536,2,4 4 4", LONG_SUM },
    { .name = "long-images-67m",
      .fields = "groups=2 epsilon=1e-5",
      .x = "8388608,2,4 4 4",
      LONG_SUM },
    { .name = "layer-long-4096", .fields = ROWS, .x = "4096,70 70 70", LONG_SUM },
    { .name = "layer-long-524288", .fields = ROWS, .x = "524288,5 5 5", LONG_SUM },
    { .name = "layer-long-67m", .fields = ROWS, .x = "16777216,4 4 4", LONG_SUM },
    { .name = "layer-long-row", .fields = ROWS, .x = "2,524288 524288 524288", LONG_SUM },
    { .name = "layer-long-row-67m", .fields = ROWS, .x = "1,16777216 16777216 16777216", LONG_SUM },
    { .name = NULL },
};

/* ---- random trials ---- */

static void draw(rg_draw *d)
{
    static const double epsilons[] = { 1e-3, 1e-5, 0.1 };
    rg_group_norm_desc *desc = d->desc;
    d->x[0] = rg_draw_shape(d, 1, RG_MAX_RANK);
    const int32_t last = d->x[0].rank - 1;
    const bool wide = rg_draw_chance(d, 0.4);
    desc->groups = rg_draw_below(d, 9);
    if (desc->groups > 1 && rg_draw_chance(d, 0.8)) { /* so many that they divide */
        d->x[0].dims[last] += desc->groups - d->x[0].dims[last] % desc->groups;
        d->x[0] = rg_tensor_desc_dense(d->dtype, last + 1, d->x[0].dims);
    }
    for (int32_t i = 1; i < 3; i++)
        d->x[i] = rg_draw_vector(wide ? rg_draw_real_dtype(d) : d->dtype, d->x[0].dims[last]);
    desc->axis = rg_draw_axis(d, last + 1);
    desc->epsilon = epsilons[rg_draw_below(d, 3)];
    rg_draw_neuron(d, &desc->neuron, false);
}

RG_OP_TEST_DEFINE(group_norm, .cases = cases, .draw = draw);
