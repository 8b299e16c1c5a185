/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Convolution: the cases. */
#include "ops/contract/contract_cases.h"

#include <retrograde/conv.h>

static double special(int64_t i)
{
    return i == 30   ? __builtin_nan("")
           : i == 81 ? (double)__builtin_inf()
                     : (double)(i * 7 % 11) - 4;
}

/* In rows of 9 pixels of 32 channels that are one above or below those of a pair of results. */
static double special_rows(int64_t i)
{
    return i == 300    ? (double)__builtin_inf()
           : i == 1202 ? __builtin_nan("")
                       : (double)(i * 7 % 11) - 4;
}

#define P1   " padding.top=1 padding.left=1 padding.bottom=1 padding.right=1"
#define P2   " padding.top=2 padding.left=2 padding.bottom=2 padding.right=2"
#define P3   " padding.top=3 padding.left=3 padding.bottom=3 padding.right=3"
#define LEAN "bias=false"
#define NAME "neuron.kind="

static const rg_case cases[] = {
    /* timed */
    { "3x3-64-56", LEAN P1, "32,56,56,64 64,3,3,64", RG_CASE_BENCH | RG_CASE_BENCH_GPU },
    { "3x3-64-56-nchw", LEAN P1, "32,56,56,64 64,3,3,64", RG_CASE_BENCH | RG_CASE_NCHW },
    { "3x3-256-14", LEAN P1, "32,14,14,256 256,3,3,256", RG_CASE_BENCH | RG_CASE_BENCH_GPU },
    { "1x1-256-64-56", LEAN, "32,56,56,256 64,1,1,256", RG_CASE_BENCH | RG_CASE_BENCH_GPU },
    { "7x7-3-64-224", LEAN " stride=2,2" P3, "32,224,224,3 64,7,7,3",
      RG_CASE_BENCH | RG_CASE_BENCH_GPU },
    { "depthwise-144-56", LEAN " groups=0" P1, "32,56,56,144 144,3,3,1",
      RG_CASE_BENCH | RG_CASE_BENCH_GPU },
    { "multiplier-2-72-56", LEAN " groups=72" P1, "32,56,56,72 144,3,3,1", RG_CASE_BENCH },
    { "multiplier-4-32-56", LEAN " groups=32" P1, "32,56,56,32 128,3,3,1", RG_CASE_BENCH },
    { "groups-of-4-128-56", LEAN " groups=32" P1, "32,56,56,128 128,3,3,4", RG_CASE_BENCH },
    { "groups-of-8-256-28", LEAN " groups=32" P1, "32,28,28,256 256,3,3,8", RG_CASE_BENCH },
    { "groups-of-16-512-14", LEAN " groups=32" P1, "32,14,14,512 512,3,3,16", RG_CASE_BENCH },
    { "patches-16-768-224", LEAN " stride=16,16", "8,224,224,3 768,16,16,3", RG_CASE_BENCH },
    { "groups-1x1-3-of-80-28", LEAN " groups=3", "32,28,28,240 240,1,1,80", RG_CASE_BENCH },

    /* timed on a GPU */
    { "3x3-64-56-128", LEAN P1, "128,56,56,64 64,3,3,64", RG_CASE_BENCH_GPU },
    { "3x3-256-14-128", LEAN P1, "128,14,14,256 256,3,3,256", RG_CASE_BENCH_GPU },
    { "1x1-256-64-56-128", LEAN, "128,56,56,256 64,1,1,256", RG_CASE_BENCH_GPU },
    { "7x7-3-64-224-128", LEAN " stride=2,2" P3, "128,224,224,3 64,7,7,3", RG_CASE_BENCH_GPU },
    { "depthwise-144-56-128", LEAN " groups=0" P1, "128,56,56,144 144,3,3,1", RG_CASE_BENCH_GPU },

    /* sizes */
    { "one", "", "1,1,1,1 1,1,1,1 1" },
    { "one-pixel", "", "2,1,1,5 7,1,1,5 7" },
    { "one-channel", "groups=1" P1, "2,6,7,1 1,3,3,1 1" },
    { "one-image", "groups=1" P1, "6,7,3 5,3,3,3 5" },
    { "no-bias", LEAN P1, "2,6,7,3 5,3,3,3" },
    { "1x1", "", "2,5,6,19 23,1,1,19 23" },
    { "3x3", "groups=1" P1, "2,7,9,17 19,3,3,17 19" },
    { "3x3-wide", "groups=1" P1, "1,5,15,33 37,3,3,33 37" },
    { "3x3-64", "groups=1" P1, "1,6,15,64 64,3,3,64 64" },
    { "3x3-132", "groups=1" P1, "1,5,6,64 132,3,3,64 132" },
    { "5x5", "padding.policy=same", "2,8,7,6 9,5,5,6 9" },
    { "7x7-3", "stride=2,2" P3, "1,19,18,3 20,7,7,3 20" },
    { "1-d", "padding.left=2", "3,1,23,5 7,1,3,5 7" },
    { "patches", "stride=16,16", "2,32,48,3 120,16,16,3 120" },
    { "nchw-relu", NAME "relu" P1, "2,5,19,35 37,3,3,35 37", RG_CASE_NCHW },
    { "nchw-strides", "stride=2,2 groups=2", "2,9,45,34 70,3,3,17 70", RG_CASE_NCHW },
    { "nchw-blocks", LEAN P1, "16,25,30,9 37,3,3,9", RG_CASE_NCHW },
    { "patches-nchw", LEAN " stride=16,16", "2,32,32,3 120,16,16,3", RG_CASE_NCHW },
    { "patches-rest", LEAN " stride=16,16", "1,35,48,1 130,16,16,1" },
    { "patches-neuron", "neuron.kind=gelu stride=2,4", "2,6,8,5 7,2,4,5 7" },
    { "many-in", "", "1,3,4,300 5,1,2,300 5" },
    { "many-out", "", "1,3,4,5 300,2,1,5 300" },
    { "tall", "groups=1" P1, "1,67,3,4 5,3,3,4 5" },
    { "images", "groups=1" P1, "9,4,5,3 4,3,3,3 4" },

    /* steps */
    { "stride", "stride=2,2" P1, "2,9,11,6 5,3,3,6 5" },
    { "stride-drops", "stride=2,3", "2,8,9,6 5,3,3,6 5" },
    { "stride-1x1", "stride=2,2", "2,7,8,6 5,1,1,6 5" },
    { "stride-rows", "stride=2,2" P1, "9,9,11,6 40,3,3,6 40" }, /* blocks of several rows */
    { "stride-wide", "stride=3,2" P1, "1,13,37,18 21,3,3,18 21" },
    { "stride-beyond", "stride=4,5", "1,11,12,5 6,2,3,5 6" },
    { "dilation", "dilation=2,3 padding.top=2 padding.left=3 padding.bottom=2 padding.right=3",
      "2,9,11,6 5,3,3,6 5" },
    { "dilation-stride", "dilation=3,2 stride=2,3 padding.top=4", "1,14,13,6 5,3,3,6 5" },
    { "even", "", "2,7,8,6 5,2,4,6 5" },
    { "even-same", "padding.policy=same", "2,7,8,6 5,4,2,6 5" },
    { "even-stride", "stride=2,2 padding.policy=same", "2,7,8,6 5,4,2,6 5" },

    /* padding */
    { "asymmetric", "padding.top=2 padding.left=0 padding.bottom=1 padding.right=3",
      "2,6,7,5 4,3,3,5 4" },
    { "negative", "padding.top=-1 padding.left=-2 padding.bottom=1 padding.right=-1",
      "2,8,9,5 4,3,3,5 4" },
    { "crop-stride", "stride=2,2 padding.top=-2 padding.left=-1", "2,9,9,5 4,3,3,5 4" },
    { "valid", "padding.policy=valid stride=2,2", "1,9,8,5 4,3,3,5 4" },
    { "full", "padding.policy=full", "1,5,4,5 4,3,2,5 4" },
    { "same-upper", "padding.policy=same_upper stride=2,2", "1,8,7,5 4,3,4,5 4" },
    { "same-lower", "padding.policy=same_lower stride=2,2", "1,8,7,5 4,3,4,5 4" },
    { "same-tensorflow", "padding.policy=same padding.remainder=bottom_right stride=2,2",
      "1,8,7,5 4,3,3,5 4" },
    { "aligned", "padding.policy=same padding.align=top_left stride=3,3", "1,8,10,5 4,3,3,5 4" },
    { "larger-window", "padding.policy=same", "1,3,2,5 4,7,5,5 4" },
    { "groups-after", "groups=6 stride=1,3 padding.right=1", "3,1,9,12 36,1,4,2 36" },
    { "groups-same", "groups=2 padding.policy=same_upper", "3,4,5,4 12,2,4,2 12" },
    /* taps that are one run in the memory of some layouts, and more than 64 runs in others */
    { "many-taps", LEAN, "2,16,17,2 40,15,9,2" },
    { "many-taps-groups", LEAN " groups=2", "1,16,14,6 10,15,10,3" },
    { "far", "padding.top=9 padding.left=8 padding.bottom=7 padding.right=6", "1,3,4,5 4,3,3,5 4" },
    { "smaller", "output=2,3" P1, "1,7,8,5 4,3,3,5 4" },
    { "larger", "output=9,8 padding.left=5", "1,5,6,5 4,3,3,5 4" },

    /* groups */
    { "groups", "groups=3" P1, "2,6,7,12 15,3,3,4 15" },
    { "groups-wide", "groups=2 stride=2,1", "1,6,9,38 70,3,2,19 70" },
    { "depthwise", "groups=0" P1, "2,7,9,21 21,3,3,1 21" },
    { "depthwise-stride", "groups=0 stride=2,2" P1, "2,9,11,21 21,3,3,1 21" },
    { "depthwise-stride-2-1", "groups=0 stride=2,1 padding.policy=same", "1,9,8,37 37,3,3,1 37" },
    { "depthwise-even", "groups=0 padding.policy=same", "1,7,9,35 35,2,4,1 35" },
    { "depthwise-5x5", "groups=0 padding.policy=same", "1,9,9,19 19,5,5,1 19" },
    { "depthwise-7x7", "groups=0 padding.policy=same stride=2,2", "1,15,13,19 19,7,7,1 19" },
    { "depthwise-dilation", "groups=0 dilation=2,2 padding.policy=same", "1,9,9,19 19,3,3,1 19" },
    { "depthwise-valid", "groups=0", "2,5,8,64 64,3,3,1 64" },
    { "depthwise-negative", "groups=0 padding.top=-1 padding.left=-2 padding.right=1",
      "1,8,9,19 19,3,3,1 19" },
    { "depthwise-small", "groups=0 padding.policy=same", "1,2,1,19 19,3,3,1 19" },
    { "depthwise-1-d", "groups=0 padding.left=1 padding.right=1", "2,1,33,19 19,1,3,1 19" },
    { "depthwise-wide", "groups=0" P1, "1,4,6,1037 1037,3,3,1 1037" },
    { "depthwise-drops", "groups=0 stride=2,2", "1,8,10,40 40,3,3,1 40" },
    { "depthwise-larger", "groups=0 output=6,9 padding.left=4" P1, "1,4,5,19 19,3,3,1 19" },
    { "depthwise-pairs", "groups=0" P1, "2,6,17,32 32,3,3,1 32" }, /* by pairs of rows in bf16 */
    { "depthwise-pairs-odd", "groups=0" P2, "3,37,9,35 35,3,3,1 35" },
    { "depthwise-pairs-units", "groups=0" P1, "1,5,40,1040 1040,3,3,1 1040" },
    { "depthwise-pairs-valid", "groups=0", "1,9,16,16 16,3,3,1 16" },
    { "depthwise-pairs-crop", "groups=0 padding.top=-1 padding.left=-2 padding.right=2",
      "2,8,12,48 48,3,3,1 48" },
    { "depthwise-pairs-row", "groups=0 padding.top=2 padding.left=2", "1,1,11,16 16,3,3,1 16" },
    { "multiplier", "groups=0" P1, "2,5,6,7 21,3,3,1 21" },
    { "multiplier-1", "groups=1" P1, "2,5,6,1 18,3,3,1 18" },
    { "multiplier-2", "groups=17 stride=2,2" P1, "1,7,6,17 34,3,3,1 34" },
    { "multiplier-8", "groups=0" P1, "1,5,12,5 40,3,3,1 40" },
    { "multiplier-9", "groups=0" P1, "1,5,6,3 27,3,3,1 27" },
    { "few-4", "groups=5" P1, "2,21,11,20 20,3,3,4 20" },
    { "few-4-stride", "groups=9 stride=2,2" P1, "1,9,12,36 36,3,3,4 36" },
    { "few-2-dilation", "groups=10 dilation=2,2 padding.policy=same", "1,11,13,20 20,3,3,2 20" },
    { "few-3", "groups=7", "1,6,9,21 21,3,3,3 21" },
    { "few-5-1x1", "groups=4", "2,5,19,20 20,1,1,5 20" },
    { "few-8-5x7", "groups=3 stride=1,3 padding.policy=same", "1,8,17,24 24,5,7,8 24" },
    { "few-to-1", "groups=9" P1, "1,6,11,36 9,3,3,4 9" },
    { "few-negative", "groups=4 padding.top=-1 padding.left=-2 padding.right=1",
      "1,8,9,16 16,3,3,4 16" },
    { "few-larger", "groups=5 output=6,9 padding.left=4" P1, "1,4,5,20 20,3,3,4 20" },
    { "few-small", "groups=2 padding.policy=same", "1,2,1,4 4,3,3,2 4" },
    { "lanes-2", "groups=16" P1, "2,11,15,32 32,3,3,2 32" },
    { "lanes-4", "groups=4" P1, "1,5,5,16 16,3,3,4 16" },
    { "lanes-8", "groups=4" P1, "2,7,31,32 32,3,3,8 32" },
    { "lanes-16", "groups=2" P1, "1,6,15,32 32,3,3,16 32" },
    { "lanes-16-images", "groups=3" P1, "3,5,14,48 48,3,3,16 48" },
    { "lanes-16-5x5", "groups=2" P2, "1,7,9,32 32,5,5,16 32" },
    { "lanes-4-valid", "groups=8", "1,6,17,32 32,3,3,4 32" },
    { "lanes-8-full", "groups=2" P2, "1,4,5,16 16,3,3,8 16" },
    { "lanes-2-5x5", "groups=8" P2, "1,9,15,16 16,5,5,2 16" },
    { "lanes-8-5x5", "groups=4" P1, "1,6,13,32 32,5,5,8 32" },
    { "lanes-4-3x5", "groups=4" P2, "1,4,7,16 16,3,5,4 16" },
    { "lanes-16-one-column", "groups=2" P1, "1,3,1,32 32,3,3,16 32" },
    { "lanes-4-two-columns", "groups=4" P2, "1,2,2,16 16,5,5,4 16" },
    { "lanes-2-wide", "groups=8" P1, "1,3,300,16 16,3,3,2 16" },
    { "lanes-4-images", "groups=4" P1, "70,3,5,16 16,3,3,4 16" },
    { "lanes-8-left", "groups=2 padding.left=2 padding.bottom=1", "1,5,8,16 16,3,3,8 16" },
    { "lanes-2-crop", "groups=8 padding.top=-1 padding.right=-2", "1,7,9,16 16,3,3,2 16" },

    /* neurons: whose slope y determines, and others */
    { "relu", NAME "relu" P1, "2,5,6,7 9,3,3,7 9" },
    { "leaky", NAME "relu neuron.a=0.1" P1, "1,5,6,7 19,3,3,7 19" },
    { "leaky-down", NAME "relu neuron.a=-0.5" P1, "1,5,6,7 9,3,3,7 9" },
    { "linear", NAME "linear neuron.a=1.5 neuron.b=-2", "1,5,6,7 9,3,3,7 9" },
    { "sigmoid", NAME "sigmoid", "1,5,6,3 9,3,3,3 9", .x_fill = { { 0 }, { -0.5, 0.5 } } },
    { "tanh", NAME "tanh neuron.a=1.5 neuron.b=0.25", "1,5,6,3 9,3,3,3 9",
      .x_fill = { { 0 }, { -0.5, 0.5 } } },
    { "elu", NAME "elu", "1,5,6,3 9,2,2,3 9" },
    { "softplus", NAME "softplus", "1,5,6,3 9,2,2,3 9" },
    { "relun", NAME "relun neuron.a=0 neuron.b=6", "1,5,6,3 9,3,3,3 9" },
    { "hard-sigmoid", NAME "hard_sigmoid", "1,5,6,2 9,2,2,2 9" },
    { "absolute", NAME "absolute", "1,5,6,3 9,3,3,3 9" },
    { "gelu", NAME "gelu" P1, "2,5,6,3 19,3,3,3 19" },
    { "gelu-no-bias", NAME "gelu " LEAN, "2,5,6,3 19,3,3,3" },
    { "swish", NAME "swish", "1,5,6,3 9,2,2,3 9" },
    { "power", NAME "power neuron.a=0.5 neuron.b=1 neuron.c=2", "1,5,6,2 3,2,2,2 3" },
    { "depthwise-relu", "groups=0 " NAME "relu" P1, "2,5,6,19 19,3,3,1 19" },
    { "depthwise-pairs-relu", "groups=0 " NAME "relu" P1, "1,5,9,32 32,3,3,1 32" },
    { "depthwise-pairs-leaky", "groups=0 " NAME "relu neuron.a=0.1" P1, "1,5,9,16 16,3,3,1 16" },
    { "depthwise-gelu", "groups=0 " NAME "gelu" P1, "2,5,6,19 19,3,3,1 19" },
    { "few-relu", "groups=5 " NAME "relu" P1, "2,5,6,20 20,3,3,4 20" },
    { "few-gelu", "groups=5 " NAME "gelu" P1, "2,5,6,20 20,3,3,4 20" },
    { "lanes-relu", "groups=8 " NAME "relu neuron.a=0.1" P1, "1,5,15,32 32,3,3,4 32" },
    { "lanes-gelu", "groups=2 " NAME "gelu" P2, "1,5,6,16 16,5,5,8 16" },
    { "groups-swish", "groups=2 stride=2,2 " NAME "swish" P1, "2,5,6,6 8,3,3,3 8" },

    /* dw and db in f32 beside f16 and bf16: by the engine, transposed, depthwise, by few, by plain
     * loops */
    { "wide", "groups=1" P1, "2,7,9,17 19,3,3,17 19", RG_CASE_WIDE },
    { "wide-few", "stride=2,2" P3, "1,19,18,3 20,7,7,3 20", RG_CASE_WIDE },
    { "wide-relu", NAME "relu", "40,5,6,19 23,1,1,19 23", RG_CASE_WIDE },
    { "wide-depthwise", "groups=0" P1, "2,7,9,19 19,3,3,1 19", RG_CASE_WIDE },
    { "wide-multiplier", "groups=0" P1, "2,5,6,7 21,3,3,1 21", RG_CASE_WIDE },
    { "wide-multiplier-9", "groups=0" P1, "2,5,6,3 27,3,3,1 27", RG_CASE_WIDE },
    { "wide-empty", "groups=1" P1, "0,5,6,7 9,3,3,7 9", RG_CASE_ZERO | RG_CASE_WIDE },

    /* long sums */
    { "long", LEAN, "3,61,67,2 3,1,1,2" },
    { "long-depthwise", LEAN " groups=0" P1, "5,37,61,17 17,3,3,1" },
    { "long-few", LEAN " groups=2" P1, "5,37,61,8 8,3,3,4" },
    { "long-depthwise-vectors", LEAN " groups=0" P1, "7,37,31,20 20,3,3,1" },

    /* Sums that one accumulator in f32 would miss: dw was off by 3e-5 at 262,144 addends above 0,
     * by 4e-3 at half a million equal ones and by 69 % at 67 million. dw and db; last, long sums
     * over channels. Those of 67 million addends are run by name. */
    { "sum-4k-3x3", "groups=1" P1, "1,64,64,1 1,3,3,1 1", RG_CASE_WIDE, TWO, EQUAL },
    { "sum-4k-1x1", "", "2,32,64,16 16,1,1,16 16", RG_CASE_WIDE, TWO, EQUAL },
    { "sum-4k-depthwise", "groups=0" P1, "1,64,64,2 2,3,3,1 2", RG_CASE_WIDE, TWO, EQUAL },
    { "sum-4k-grouped", "groups=2" P1, "1,64,64,4 4,3,3,2 4", RG_CASE_WIDE, TWO, EQUAL },
    { "sum-4k-lanes", "groups=8" P1, "1,64,64,16 16,3,3,2 16", RG_CASE_WIDE, TWO, EQUAL },
    { "sum-40k-1x1", "", "5,128,64,16 16,1,1,16 16", RG_CASE_WIDE, TWO, EQUAL },
    { "sum-64k-images", "", "65536,1,1,16 16,1,1,16 16", RG_CASE_WIDE, TWO, EQUAL },
    { "sum-20k-images-few", "groups=2", "20000,2,1,32 32,2,1,16 32", RG_CASE_WIDE, TWO, EQUAL },
    { "sum-64k-images-lanes", "groups=8" P1, "65536,1,1,16 16,3,3,2 16", RG_CASE_WIDE, TWO, EQUAL },
    { "sum-40k-pairs", "", "40,32,32,8 9,1,1,8 9", RG_CASE_WIDE, TWO, ABOVE },
    { "sum-512k-3x3", "groups=1" P1, "1,512,1024,1 1,3,3,1 1", RG_CASE_WIDE, TWO, EQUAL },
    { "sum-512k-3x3-above", "groups=1" P1, "1,512,1024,1 1,3,3,1 1", RG_CASE_WIDE, TWO, ABOVE },
    { "sum-512k-1x1", "", "2,512,512,2 1,1,1,2 1", RG_CASE_WIDE, TWO, EQUAL },
    { "sum-512k-row", "", "1,1,524288,1 1,1,2,1 1", RG_CASE_WIDE, TWO, EQUAL },
    { "sum-512k-row-above", "", "1,1,524288,1 1,1,2,1 1", RG_CASE_WIDE, TWO, ABOVE },
    { "sum-512k-stem", "stride=2,2" P1, "1,1024,1024,3 2,3,3,3 2", RG_CASE_WIDE, TWO, EQUAL },
    { "sum-512k-depthwise", "groups=0" P1, "1,512,1024,2 2,3,3,1 2", RG_CASE_WIDE | RG_CASE_LONG,
      TWO, EQUAL },
    { "sum-512k-depthwise-row", "groups=0", "1,1,524288,2 2,1,2,1 2", RG_CASE_WIDE, TWO, EQUAL },
    { "sum-512k-grouped", "groups=2", "1,512,1024,4 4,1,1,2 4", RG_CASE_WIDE, TWO, EQUAL },
    { "sum-32k-grouped-row", "groups=2", "1,1,32768,4 4,1,1,2 4", RG_CASE_WIDE, TWO, EQUAL },
    { "sum-512k-lanes", "groups=8" P1, "1,512,1024,16 16,3,3,2 16", RG_CASE_WIDE | RG_CASE_LONG,
      TWO, EQUAL },
    { "sum-512k-lanes-above", "groups=8" P1, "1,512,1024,16 16,3,3,2 16",
      RG_CASE_WIDE | RG_CASE_LONG, TWO, ABOVE },
    { "sum-512k-multiplier", "groups=0", "1,512,1024,2 18,1,1,1 18", RG_CASE_WIDE | RG_CASE_LONG,
      TWO, EQUAL },
    { "sum-512k-f64", LEAN, "2,512,512,1 1,1,1,1", 0, 1u << RG_F64, EQUAL },
    { "sum-channels", LEAN, "1,2,2,20000 2,2,1,20000", 0, TWO, EQUAL },
    { "sum-channels-above", LEAN, "1,2,2,20000 2,2,1,20000", 0, TWO, ABOVE },
    { "sum-channels-back", LEAN, "1,3,2,2 20000,2,1,2", 0, TWO, EQUAL },
    { "sum-channels-far", LEAN, "1,1,2,524288 1,1,1,524288", 0, TWO, EQUAL },
    { "sum-channels-far-back", LEAN, "1,1,2,1 524288,1,1,1", 0, TWO, EQUAL },
    { "sum-67m-3x3", "groups=1" P1, "1,8192,8192,1 1,3,3,1 1", RG_CASE_WIDE, TWO, EQUAL },
    { "sum-67m-3x3-above", "groups=1" P1, "1,8192,8192,1 1,3,3,1 1", RG_CASE_WIDE, SINGLE, ABOVE },
    { "sum-67m-1x1", "", "4,4096,4096,1 1,1,1,1 1", RG_CASE_WIDE, TWO, EQUAL },
    { "sum-67m-row", "", "1,1,67108864,1 1,1,1,1 1", RG_CASE_WIDE, SINGLE, EQUAL },
    { "sum-67m-depthwise", "groups=0", "1,8192,8192,2 2,1,1,1 2", RG_CASE_WIDE, SINGLE, EQUAL },
    { "sum-67m-depthwise-row", "groups=0", "1,1,33554432,2 2,1,1,1 2", RG_CASE_WIDE, SINGLE,
      EQUAL },
    { "sum-67m-grouped", "groups=2", "1,4096,8192,4 4,1,1,2 4", RG_CASE_WIDE, SINGLE, EQUAL },

    /* blocks of columns, panels one after the other, pixels 2048 bytes apart, few channels */
    { "blocks", LEAN P1, "1,3,150,5 7,3,3,5" },
    { "blocks-stride", LEAN " stride=1,2" P1, "1,3,271,3 18,3,3,3" },
    { "panels", LEAN P1, "1,3,4,130 140,3,3,130" },
    { "pages", LEAN P1, "1,2,5,512 17,2,2,512" },
    { "transposed", "stride=2,2" P3, "2,9,42,3 20,7,7,3 20" },
    { "transposed-groups", "groups=2 dilation=2,1" P1, "1,7,41,18 14,3,2,9 14" },
    { "phases", "stride=2,2 padding.top=1 padding.left=2", "2,9,10,3 17,5,4,3 17" },
    { "phases-3", "stride=3,2 padding.top=-1 padding.right=2", "1,11,10,4 5,4,5,4 5" },
    { "few-vectors", NAME "relu stride=2,2" P3, "1,9,262,3 72,7,7,3 72" },
    { "few-taps", LEAN " stride=2,2", "1,17,19,3 24,9,9,3" },
    { "groups-few", "groups=5 stride=2,2" P1, "1,7,9,10 35,3,3,2 35" },

    /* for pairs of bf16: odd depths, taps apart, planes of pixels, pixels in place, long sums */
    { "pairs-odd", "groups=1" P1, "2,6,9,35 37,3,3,35 37" },
    { "pairs-odd-runs", "stride=1,2" P2, "2,9,11,5 35,5,5,5 35" },
    { "pairs-odd-data", "groups=1" P2, "2,8,9,34 7,5,5,34 7" },
    { "pairs-apart", "dilation=2,3 padding.policy=same", "1,9,11,18 34,3,3,18 34" },
    { "pairs-planes", "stride=2,3 dilation=1,2" P1, "2,9,14,33 20,3,4,33 20" },
    { "pairs-planes-1x1", "stride=2,2", "2,9,8,64 40,1,1,64 40" },
    { "pairs-inside", "", "2,6,7,64 33,3,2,64 33" },
    { "pairs-groups", "groups=3" P1, "2,7,6,48 60,3,3,16 60" },
    { "pairs-one-pixel", "", "40,1,1,48 40,1,1,48 40" },
    { "pairs-long", LEAN, "5,47,61,16 9,1,1,16" },
    { "pairs-launches", LEAN, "17,12,12,8 9,1,1,8" }, /* dw in two, the last one shorter */
    { "pairs-slices", LEAN, "70,5,6,8 9,1,1,8" },     /* in two, of 32 slices */
    { "pairs-rows", LEAN P1, "1,37,5,96 32,3,3,96" },
    { "pairs-launches-wide", LEAN, "30,6,6,264 256,1,1,264" },
    /* dw by slices: blocks of rows, of images, of groups, and long sums of them */
    { "pairs-blocks", "groups=1" P1, "16,25,30,9 37,3,3,9 37" },
    { "pairs-blocks-images", "groups=1" P1, "17,5,3,35 37,3,3,35 37" },
    { "pairs-blocks-planes", LEAN " stride=2,3 dilation=1,2" P1, "16,39,40,9 10,3,3,9" },
    { "pairs-blocks-groups", LEAN " groups=8", "2,20,19,384 640,1,1,48" },
    { "pairs-blocks-long", LEAN " groups=16", "1,131,127,128 128,1,1,8" },

    /* dw of images of few channels: blocks of rows, a second panel, groups, long sums and rows */
    { "taps-7x7", "stride=2,2 padding.policy=same", "3,37,41,3 40,7,7,3 40" },
    { "taps-apart", "stride=1,3 dilation=2,1 padding.top=3 padding.left=-1",
      "2,19,30,5 33,4,2,5 33" },
    { "taps-groups", "groups=3" P1, "2,9,10,12 60,3,3,4 60" },
    { "taps-long", LEAN " groups=32", "1,131,127,128 256,1,1,4" },
    { "taps-long-rows", LEAN P1, "1,3,701,3 17,3,3,3" },

    /* special values, and nothing at all */
    { "special-w-pairs", "groups=1" P1, "1,5,6,32 33,3,3,32 33", RG_CASE_SPECIAL,
      .x_fill = { { 0 }, { .at = special } } },
    { "special-w-wide", "groups=1" P1, "1,5,6,40 35,3,3,40 35", RG_CASE_SPECIAL,
      .x_fill = { { 0 }, { .at = special } } },
    { "special-w-deep", "groups=1" P1, "1,3,3,352 2,3,3,352 2", RG_CASE_SPECIAL,
      .x_fill = { { 0 }, { .at = special } } },
    { "special-x-odd-runs", "groups=1" P2, "2,7,9,5 35,5,5,5 35", RG_CASE_SPECIAL,
      .x_fill = { { .at = special } } },
    { "special-w-odd-runs", "groups=1" P2, "2,7,9,5 35,5,5,5 35", RG_CASE_SPECIAL,
      .x_fill = { { 0 }, { .at = special } } },
    { "special-x-pairs", "stride=2,2" P1, "2,5,6,17 33,3,3,17 33", RG_CASE_SPECIAL,
      .x_fill = { { .at = special } } },
    { "special-x-edge", "groups=1" P1, "1,5,6,34 33,3,3,34 33", RG_CASE_SPECIAL,
      .x_fill = { { .at = special } } },
    { "special-x-taps", "groups=1 stride=2,2" P2, "2,9,10,3 17,5,5,3 17", RG_CASE_SPECIAL,
      .x_fill = { { .at = special } } },
    { "special-dy-taps", "groups=1 stride=2,2" P2, "2,9,10,3 35,5,5,3 35", RG_CASE_SPECIAL,
      .dy_fill = { .at = special } },
    { "special-x-blocks", "groups=1" P1, "17,5,6,17 33,3,3,17 33", RG_CASE_SPECIAL,
      .x_fill = { { .at = special } } },
    { "special-dy-blocks", "groups=1" P1, "17,5,6,17 33,3,3,17 33", RG_CASE_SPECIAL,
      .dy_fill = { .at = special } },
    { "special-dy-pairs", "groups=1" P1, "3,5,6,34 33,3,3,34 33", RG_CASE_SPECIAL,
      .dy_fill = { .at = special } },
    { "special-w", "groups=1" P1, "1,5,6,7 9,3,3,7 9", RG_CASE_SPECIAL,
      .x_fill = { { 0 }, { .at = special } } },
    { "special-w-phases", "stride=2,2" P1, "1,8,9,3 5,3,3,3 5", RG_CASE_SPECIAL,
      .x_fill = { { 0 }, { .at = special } } },
    { "special-w-transposed", "stride=2,2" P1, "1,6,40,3 5,3,3,3 5", RG_CASE_SPECIAL,
      .x_fill = { { 0 }, { .at = special } } },
    { "special-dy-transposed", "stride=2,2" P1, "1,6,40,3 5,3,3,3 5", RG_CASE_SPECIAL,
      .dy_fill = { .at = special } },
    { "special-dy-few", "stride=2,2" P3, "1,13,12,3 6,7,7,3 6", RG_CASE_SPECIAL,
      .dy_fill = { .at = special } },
    { "special-dy-padded", "groups=1" P1, "1,7,6,17 9,3,3,17 9", RG_CASE_SPECIAL,
      .dy_fill = { .at = special } },
    { "special-x", "groups=1" P1, "1,5,6,7 9,3,3,7 9", RG_CASE_SPECIAL,
      .x_fill = { { .at = special } } },
    { "special-x-few", "stride=2,2" P3, "1,13,12,3 8,7,7,3 8", RG_CASE_SPECIAL,
      .x_fill = { { .at = special } } },
    { "special-dy", "", "1,7,6,7 9,3,3,7 9", RG_CASE_SPECIAL, .dy_fill = { .at = special } },
    { "special-w-depthwise", "groups=0" P1, "1,5,6,19 19,3,3,1 19", RG_CASE_SPECIAL,
      .x_fill = { { 0 }, { .at = special } } },
    { "special-w-vectors", "groups=0" P1, "1,5,7,24 24,3,3,1 24", RG_CASE_SPECIAL,
      .x_fill = { { 0 }, { .at = special } } },
    { "special-w-few", "groups=3" P1, "1,5,6,12 12,3,3,4 12", RG_CASE_SPECIAL,
      .x_fill = { { 0 }, { .at = special } } },
    { "special-few", "groups=3" P1, "1,5,6,12 12,3,3,4 12", RG_CASE_SPECIAL,
      .x_fill = { { .at = special } } },
    { "special-w-lanes", "groups=4" P1, "1,5,15,16 16,3,3,4 16", RG_CASE_SPECIAL,
      .x_fill = { { 0 }, { .at = special } } },
    { "special-w-lanes-5x5", "groups=4" P2, "1,2,2,32 32,5,5,8 32", RG_CASE_SPECIAL,
      .x_fill = { { 0 }, { .at = special } } },
    { "special-lanes", "groups=2" P1, "1,5,6,16 16,3,3,8 16", RG_CASE_SPECIAL,
      .x_fill = { { .at = special } } },
    { "special-dy-lanes", "groups=1" P1, "1,5,6,16 16,3,3,16 16", RG_CASE_SPECIAL,
      .dy_fill = { .at = special } },
    { "special-dy-depthwise", "groups=0" P1, "1,5,7,24 24,3,3,1 24", RG_CASE_SPECIAL,
      .dy_fill = { .at = special } },
    { "special-depthwise-pairs", "groups=0" P1, "1,6,9,32 32,3,3,1 32", RG_CASE_SPECIAL,
      .x_fill = { { .at = special_rows } } },
    { "special-w-depthwise-pairs", "groups=0" P1, "1,5,9,32 32,3,3,1 32", RG_CASE_SPECIAL,
      .x_fill = { { 0 }, { .at = special } } },
    { "special-dy-depthwise-pairs", "groups=0" P1, "1,5,9,32 32,3,3,1 32", RG_CASE_SPECIAL,
      .dy_fill = { .at = special_rows } },
    { "special-lanes-16", "groups=2" P1, "1,5,6,32 32,3,3,16 32", RG_CASE_SPECIAL,
      .x_fill = { { .at = special } } },
    { "special-depthwise", "groups=0" P1, "1,5,6,19 19,3,3,1 19", RG_CASE_SPECIAL,
      .x_fill = { { .at = special } } },
    { "empty", "groups=1" P1, "0,5,6,7 9,3,3,7 9", RG_CASE_ZERO },
    { "empty-depthwise", "groups=0" P1, "0,5,6,7 7,3,3,1 7", RG_CASE_ZERO },
    { "empty-few", "groups=0" P1, "0,5,6,7 14,3,3,1 14", RG_CASE_ZERO },
    { "nowhere", "output=2,3 padding.top=9", "1,2,3,5 4,2,2,5 4", RG_CASE_ZERO },
    { .name = NULL },
};

/* A multiplication and an addition for every product. */
static double operations(const void *desc, const rg_tensor_desc x[])
{
    const rg_conv_desc *d = desc;
    rg_tensor_desc y[RG_MAX_OUTPUTS];
    if (rg_op_conv.shapes(d, x, y) != RG_OK)
        return 0;
    double products = 2;
    for (int32_t i = 0; i < y->rank; i++)
        products *= (double)y->dims[i];
    for (int32_t i = 1; i < 4; i++)
        products *= (double)x[1].dims[i];
    return products;
}

/* ---- random trials ---- */

static void resize_x(rg_draw *d, int32_t axis, int64_t size)
{
    d->x[0].dims[axis] = size;
    d->x[0] = rg_tensor_desc_dense(d->dtype, d->x[0].rank, d->x[0].dims);
}

/* Groups of as many channels in as out, which fill vectors together, and windows of 3 or 5 columns
 * without steps; returns how many groups. */
static int64_t draw_even_groups(rg_draw *d, rg_conv_desc *desc, int32_t window[2])
{
    enum { BLOCK = 16 }; /* channels that one vector may have */
    const int64_t each = INT64_C(1) << rg_draw_between(d, 1, 4);
    const int64_t groups = BLOCK / each * rg_draw_between(d, 1, 4);
    resize_x(d, d->x[0].rank - 1, groups * each);
    window[0] = (int32_t)rg_draw_between(d, 1, 5);
    window[1] = rg_draw_chance(d, 0.5) ? 3 : 5;
    for (int a = 0; a < 2; a++)
        desc->stride[a] = desc->dilation[a] = 1;
    return groups;
}

/* Adjacent windows that cover every column once. */
static void draw_patches(rg_draw *d, rg_conv_desc *desc, int32_t window[2])
{
    const bool large = rg_draw_chance(d, 0.5); /* windows of too many taps for panels */
    window[0] = (int32_t)rg_draw_between(d, large ? 8 : 1, 16);
    window[1] = desc->stride[1] = (int32_t)rg_draw_between(d, large ? 8 : 2, 16);
    desc->stride[0] = rg_draw_chance(d, 0.7) ? window[0] : desc->stride[0];
    desc->dilation[0] = desc->dilation[1] = 1;
    resize_x(d, d->x[0].rank - 2, window[1] * rg_draw_between(d, 1, 4));
}

/* Channels in groups: all of them, some, or one for each channel. */
static void draw(rg_draw *d)
{
    rg_conv_desc *desc = d->desc;
    d->x[0] = rg_draw_image(d, rg_draw_chance(d, 0.1) ? 12000 : 3000);
    const int32_t last = d->x[0].rank - 1;
    int32_t window[2];
    const double kind = rg_draw_real(d, 0, 1);
    const bool patches = kind < 0.05, even = kind >= 0.72 && kind < 0.8;
    const bool plain_depthwise = kind >= 0.92; /* windows of 3 x 3 without steps */
    int64_t groups = kind < 0.5 ? 1 : kind < 0.8 ? rg_draw_between(d, 1, 8) : 0;
    const int64_t each =
        rg_draw_chance(d, 0.7) ? rg_draw_between(d, 1, 6) : rg_draw_channels(d, 64);
    if (groups > 1)
        resize_x(d, last, groups * rg_draw_between(d, 1, 9));
    for (int a = 0; a < 2; a++)
        rg_draw_window(d, d->x[0].dims[last - 2 + a], &window[a], &desc->stride[a],
                       &desc->dilation[a]);
    if (rg_draw_chance(d, 0.2))
        window[0] = window[1] = 1;
    for (int a = 0; a < 2 && plain_depthwise; a++)
        window[a] = 3, desc->stride[a] = desc->dilation[a] = 1;
    if (even)
        groups = draw_even_groups(d, desc, window);
    if (patches)
        draw_patches(d, desc, window);
    const int64_t in = d->x[0].dims[last], used = groups > 0 ? groups : in;
    const int64_t out = groups == 1  ? rg_draw_channels(d, 130)
                        : even       ? in
                        : groups > 0 ? groups * each
                                     : in * (plain_depthwise ? 1 : rg_draw_between(d, 1, 3));
    rg_draw_padding(d, window, &desc->padding);
    rg_draw_output(d, d->x[0].dims[last - 2], d->x[0].dims[last - 1], desc->output);
    if (patches) {
        desc->padding.policy = RG_PADDING_EXPLICIT;
        desc->padding.left = desc->padding.right = 0;
        desc->output[1] = 0;
    }
    const int64_t w[] = { out, window[0], window[1], used > 0 ? in / used : 0 };
    desc->groups = (int32_t)groups;
    d->x[1] = rg_tensor_desc_dense(d->dtype, 4, w);
    d->x[2] = rg_draw_vector(d->dtype, out);
    rg_draw_neuron(d, &desc->neuron, true);
}

RG_OP_TEST_DEFINE(conv, .cases = cases, .operations = operations, .draw = draw);
