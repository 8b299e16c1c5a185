/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Batch normalization: the cases. */
#include "ops/optest_draw.h"

#include <retrograde/batch_norm.h>

/* ---- values ---- */

/* A deviation of about 1 around an offset that f32 holds with three decimals. */
static double far_away(int64_t i)
{
    return 8192 + (double)(i * 37 % 101) / 32;
}

/* Channels of 3: NaN, an infinity, numbers. */
static double special(int64_t i)
{
    return i == 3 ? __builtin_nan("") : i == 7 ? (double)__builtin_inf() : (double)(i * 7 % 11) - 4;
}

static double constant(int64_t i)
{
    return i % 3 == 0 ? 0.1 : -3;
}

/* An outlier where every part begins. */
static double outlier(int64_t i)
{
    return i < 5 ? 500 : (double)(i * 29 % 64) / 32 - 1;
}

#define HUGE_VALUES    \
    {                  \
        .at = far_away \
    }
#define POSITIVE               \
    {                          \
        .low = 0.25, .high = 3 \
    }
#define ALL_FREE                             \
    {                                        \
        { 0 }, { 0 }, { 0 }, { 0 }, POSITIVE \
    }

/* Statistics of a few elements make gradients that cancel: epsilon keeps them apart from rounding.
 */
/* Numbers whose sums are rounded in one direction for long, and that are not all the same. */
static double uneven(int64_t i)
{
    return i / 8 % 3 == 0 ? 0.1 : 0.3;
}

#define LONG_SUM .only = 1 << RG_F32, .x_fill = { { 0.5, 1.5 } }, .dy_fill = { .at = uneven }

static const rg_case cases[] = {
    { .name = "one", .fields = "epsilon=1e-3", .x = "1,1 1 1", .flags = RG_CASE_ZERO },
    { .name = "one-channel", .fields = "epsilon=1e-3", .x = "3,5,7,1 1 1" },
    { .name = "one-element", .fields = "", .x = "1,5 5 5", .flags = RG_CASE_ZERO },
    { .name = "zero-variance",
      .fields = "epsilon=1e-3",
      .x = "7,3 3 3",
      .x_fill = { { .at = constant } },
      .flags = RG_CASE_ZERO },
    { .name = "two", .fields = "epsilon=1e-3", .x = "2,3 3 3" },
    { .name = "matrix", .fields = "epsilon=1e-5", .x = "37,17 17 17" },
    { .name = "image", .fields = "epsilon=1e-5", .x = "3,5,7,19 19 19" },
    { .name = "vector", .fields = "epsilon=1e-5", .x = "3,2,4,16 16 16" },
    { .name = "mps-epsilon", .fields = "", .x = "2,6,5,8 8 8" },
    { .name = "pieces", .fields = "epsilon=1e-5", .x = "41,17,3 3 3" },
    { .name = "parts", .fields = "epsilon=1e-5", .x = "131,1021 1021 1021" },
    { .name = "vectors", .fields = "epsilon=1e-5", .x = "40,23,256 256 256" },
    { .name = "vectors-returned",
      .fields = "statistics=returned epsilon=1e-5",
      .x = "41,32 32 32" },
    { .name = "vectors-given",
      .fields = "statistics=given epsilon=1e-5",
      .x = "41,32 32 32 32 32",
      .x_fill = ALL_FREE },
    { .name = "vectors-relu", .fields = "neuron.kind=relu epsilon=1e-5", .x = "41,16 16 16" },
    { .name = "long", .fields = "epsilon=1e-5", .x = "70001,2 2 2" },
    { .name = "rank-1", .fields = "epsilon=1e-3", .x = "6 6 6", .flags = RG_CASE_ZERO },
    { .name = "rank-8", .fields = "epsilon=1e-5", .x = "2,1,3,2,1,2,2,5 5 5" },
    { .name = "no-gamma", .fields = "gamma=false epsilon=1e-5", .x = "5,9,11 11" },
    { .name = "no-beta", .fields = "beta=false epsilon=1e-5", .x = "5,9,11 11" },
    { .name = "no-parameters", .fields = "gamma=false beta=false epsilon=1e-5", .x = "5,9,11" },
    { .name = "far",
      .fields = "epsilon=1e-5",
      .x = "11,13,7 7 7",
      .only = 1 << RG_F32 | 1 << RG_F64,
      .x_fill = { HUGE_VALUES } },
    { .name = "outlier",
      .fields = "epsilon=1e-5",
      .x = "41,19,5 5 5",
      .x_fill = { { .at = outlier } },
      .only = 1 << RG_F32 | 1 << RG_F64 },
    { .name = "special",
      .fields = "epsilon=1e-5",
      .x = "4,3 3 3",
      .x_fill = { { .at = special } },
      .flags = RG_CASE_SPECIAL },
    { .name = "empty", .fields = "epsilon=1e-5", .x = "0,4,4,3 3 3", .flags = RG_CASE_ZERO },
    { .name = "returned", .fields = "statistics=returned epsilon=1e-5", .x = "7,3,5,9 9 9" },
    { .name = "returned-plain",
      .fields = "statistics=returned gamma=false beta=false epsilon=1e-5",
      .x = "7,3,5,9" },
    { .name = "running",
      .fields = "statistics=running epsilon=1e-5",
      .x = "3,5,7,19 19 19 19 19",
      .x_fill = ALL_FREE },
    { .name = "running-unbiased",
      .fields = "statistics=running epsilon=1e-5 momentum=0.75 unbiased=true gamma=false",
      .x = "3,5,18 18 18 18",
      .x_fill = { { 0 }, { 0 }, { 0 }, POSITIVE } },
    { .name = "running-one",
      .fields = "statistics=running epsilon=1e-3 unbiased=true gamma=false beta=false",
      .x = "1,9 9 9",
      .x_fill = { { 0 }, { 0 }, POSITIVE } },
    { .name = "given",
      .fields = "statistics=given epsilon=1e-5",
      .x = "3,5,7,19 19 19 19 19",
      .x_fill = ALL_FREE },
    { .name = "given-plain",
      .fields = "statistics=given gamma=false beta=false epsilon=1e-5",
      .x = "31,33 33 33",
      .x_fill = { { 0 }, { 0 }, POSITIVE } },
    { .name = "given-relu",
      .fields = "statistics=given neuron.kind=relu epsilon=1e-5",
      .x = "3,5,7,19 19 19 19 19",
      .x_fill = ALL_FREE },
    { .name = "given-empty",
      .fields = "statistics=given epsilon=1e-5",
      .x = "0,3 3 3 3 3",
      .x_fill = ALL_FREE,
      .flags = RG_CASE_ZERO },
    { .name = "relu", .fields = "neuron.kind=relu epsilon=1e-5", .x = "5,3,7,17 17 17" },
    { .name = "leaky", .fields = "neuron.kind=relu neuron.a=0.25 epsilon=1e-5", .x = "9,7,5 5 5" },
    { .name = "linear",
      .fields = "neuron.kind=linear neuron.a=2 neuron.b=1 epsilon=1e-5",
      .x = "9,7,5 5 5" },
    { .name = "sigmoid", .fields = "neuron.kind=sigmoid epsilon=1e-5", .x = "9,7,33 33 33" },
    { .name = "hard-sigmoid", .fields = "neuron.kind=hard_sigmoid epsilon=1e-5", .x = "9,7,5 5 5" },
    { .name = "tanh",
      .fields = "neuron.kind=tanh epsilon=1e-5 statistics=returned",
      .x = "9,7,5 5 5" },
    { .name = "absolute", .fields = "neuron.kind=absolute epsilon=1e-5", .x = "9,7,5 5 5" },
    { .name = "softplus", .fields = "neuron.kind=softplus epsilon=1e-5", .x = "9,7,5 5 5" },
    { .name = "softsign", .fields = "neuron.kind=softsign epsilon=1e-5", .x = "9,7,5 5 5" },
    { .name = "elu", .fields = "neuron.kind=elu epsilon=1e-5", .x = "9,7,5 5 5" },
    { .name = "relun",
      .fields = "neuron.kind=relun neuron.a=0.5 neuron.b=1 epsilon=1e-5",
      .x = "9,7,5 5 5" },
    { .name = "power", .fields = "neuron.kind=power neuron.c=3 epsilon=1e-5", .x = "9,7,5 5 5" },
    { .name = "exponential", .fields = "neuron.kind=exponential epsilon=1e-5", .x = "9,7,5 5 5" },
    { .name = "logarithm",
      .fields = "neuron.kind=logarithm neuron.b=16 epsilon=1e-5",
      .x = "9,7,5 5 5" },
    { .name = "gelu", .fields = "neuron.kind=gelu epsilon=1e-5", .x = "9,7,21 21 21" },
    { .name = "gelu-tanh", .fields = "neuron.kind=gelu_tanh epsilon=1e-5", .x = "9,7,5 5 5" },
    { .name = "swish", .fields = "neuron.kind=swish epsilon=1e-5", .x = "9,7,5 5 5" },
    { .name = "resnet",
      .fields = "epsilon=1e-5",
      .x = "32,28,28,256 256 256",
      .flags = RG_CASE_BENCH },
    { .name = "resnet-nchw",
      .fields = "epsilon=1e-5",
      .x = "32,28,28,256 256 256",
      .flags = RG_CASE_BENCH | RG_CASE_NCHW },
    { .name = "nchw", .fields = "epsilon=1e-5", .x = "2,7,9,21 21 21", .flags = RG_CASE_NCHW },
    { .name = "nchw-wide",
      .fields = "epsilon=1e-5",
      .x = "2,5,7,141 141 141",
      .flags = RG_CASE_NCHW },
    { .name = "nchw-chains",
      .fields = "epsilon=1e-5",
      .x = "3,25,27,4 4 4",
      .flags = RG_CASE_NCHW },
    { .name = "nchw-parts",
      .fields = "epsilon=1e-5",
      .x = "3,25,27,141 141 141",
      .flags = RG_CASE_NCHW },
    { .name = "nchw-relu",
      .fields = "epsilon=1e-5 neuron.kind=relu",
      .x = "3,5,7,141 141 141",
      .flags = RG_CASE_NCHW },
    { .name = "nchw-running-gelu",
      .fields = "statistics=running momentum=0.9 epsilon=1e-5 neuron.kind=gelu",
      .x = "2,7,9,21 21 21 21 21",
      .x_fill = ALL_FREE,
      .flags = RG_CASE_NCHW },
    { .name = "resnet-relu",
      .fields = "epsilon=1e-5 neuron.kind=relu",
      .x = "32,28,28,256 256 256",
      .flags = RG_CASE_BENCH },
    { .name = "resnet-gpu",
      .fields = "epsilon=1e-5",
      .x = "256,28,28,256 256 256",
      .flags = RG_CASE_BENCH_GPU },

    /* long sums of what does not cancel */
    { .name = "long-4096", .fields = "gamma=false epsilon=1e-5", .x = "4096,3 3", LONG_SUM },
    { .name = "long-524288", .fields = "gamma=false epsilon=1e-5", .x = "524288,2 2", LONG_SUM },
    { .name = "long-67m", .fields = "gamma=false epsilon=1e-5", .x = "33554432,2 2", LONG_SUM },
    { .name = "long-wide-67m",
      .fields = "gamma=false epsilon=1e-5",
      .x = "131072,512 512",
      LONG_SUM },
    { .name = NULL },
};

/* ---- phases ---- */

static bool phase(void *desc, int32_t n)
{
    rg_batch_norm_desc *d = desc;
    d->phase = n == 0 ? RG_BATCH_NORM_STATISTICS : RG_BATCH_NORM_NORMALIZE;
    return n < 2 && d->statistics == RG_BATCH_NORM_OWN;
}

/* ---- random trials ---- */

static void draw(rg_draw *d)
{
    static const double epsilons[] = { 1e-3, 1e-5, 0.1 };
    rg_batch_norm_desc *desc = d->desc;
    d->x[0] = rg_draw_shape(d, 1, RG_MAX_RANK);
    const bool wide = rg_draw_chance(d, 0.4);
    const int32_t inputs = 1 + desc->gamma + desc->beta;
    for (int32_t i = 1; i < inputs + 2; i++)
        d->x[i] =
            rg_draw_vector(wide ? rg_draw_real_dtype(d) : d->dtype, d->x[0].dims[d->x[0].rank - 1]);
    d->x_fill[inputs + 1] = (rg_fill){ .low = 0.25, .high = 3 }; /* a variance */
    desc->phase = RG_BATCH_NORM_WHOLE;
    if (desc->statistics == RG_BATCH_NORM_RUNNING || desc->statistics == RG_BATCH_NORM_RETURNED)
        d->x_fill[0].special = 0; /* the mean of an infinity may be NaN */
    desc->epsilon = epsilons[rg_draw_below(d, 3)];
    rg_draw_neuron(d, &desc->neuron, false);
}

RG_OP_TEST_DEFINE(batch_norm, .cases = cases, .draw = draw, .phase = phase);
