/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Softmax: the cases. Those named ort- are ONNX Runtime's own tests and results of its training
 * build. */
#include "ops/optest_draw.h"

#include <retrograde/softmax.h>

/* Values that the golden rows were made from, and ORT's other special inputs. */
static double golden_dy(int64_t i)
{
    return (double)(i % 5) * 0.25 - 0.5;
}

static double golden_y(int64_t i)
{
    return (double)(7 * i % 11 + 1) / 64;
}

static double golden_log_y(int64_t i)
{
    return -(double)(7 * i % 11 + 1) / 4;
}

static double counting(int64_t i)
{
    return (double)i;
}

static double lowest(int64_t i)
{
    (void)i;
    return -65504;
}

/* A number whose sums are rounded in one direction for long. */
static double tenth(int64_t i)
{
    (void)i;
    return 0.1;
}

/* Of cases whose sums are long: nothing cancels, and errors of one sign add up. */
#define ONLY_F32 .only = 1 << RG_F32
#define LONG_SUM .x_fill = { { 0.5, 1.5 } }, .dy_fill = { .at = tenth }

/* Rows of 8: NaN, one infinity, minus infinity among numbers, and nothing but minus infinity. */
static double special(int64_t i)
{
    const double inf = __builtin_inf();
    const int64_t row = i / 8, j = i % 8;
    if (row == 0)
        return j == 3 ? __builtin_nan("") : (double)j;
    if (row == 1)
        return j == 5 ? inf : (double)j;
    if (row == 2)
        return j % 2 ? -inf : (double)j;
    return row == 3 ? -inf : (double)(j * row);
}

static double special_dy(int64_t i)
{
    return i == 33 ? __builtin_inf() : i == 45 ? __builtin_nan("") : (double)(i % 7) - 3;
}

static double special_log_y(int64_t i)
{
    return i % 5 == 0 ? -__builtin_inf() : -(double)(i % 7) / 2;
}

static double huge_x(int64_t i)
{
    return (double)(i % 3 - 1) * 3e4; /* e^x alone would overflow every dtype */
}

static const double golden_softmaxgrad_axis0[] = {
    -0.008544922, -0.03710938,  -0.002929688, 0.03491211,  0.04956055,    -0.02563477,
    -0.04638672,  -0.004394531, 0.006347656,  0.0637207,   -0.04272461,   -0.004638672,
    -0.005859375, 0.01269531,   0.07788086,   -0.05981445, -0.01391602,   -0.007324219,
    0.01904297,   0.01416016,   -0.0769043,   -0.02319336, -0.0007324219, 0.02539062
};
static const double golden_softmaxgrad_axis1[] = {
    -0.008300781, -0.03515625,  -0.001953125, 0.03759766,  0.05126953,    -0.02490234,
    -0.04394531,  -0.002929688, 0.006835938,  0.06591797,  -0.04150391,   -0.004394531,
    -0.001953125, 0.01464844,   0.08325195,   -0.05639648, -0.01245117,   -0.002441406,
    0.02197266,   0.01513672,   -0.07250977,  -0.02075195, -0.0002441406, 0.02929688
};
static const double golden_softmaxgrad_axis2[] = {
    -0.007873535, -0.03173828,  -0.0002441406, 0.04229736,  0.05554199,   -0.02307129,
    -0.0378418,   0.0007324219, 0.006713867,   0.06536865,  -0.04180908,  -0.004455566,
    -0.005859375, 0.01269531,   0.07788086,    -0.05981445, -0.01300049,  -0.004272461,
    0.02087402,   0.01477051,   -0.06207275,   -0.01495361, 0.0009155273, 0.03857422
};
static const double golden_softmaxgrad_13_axis0[] = {
    -0.00769043,  -0.02929688,  -0.005371094, 0.04498291,  0.04998779,   -0.02233887,
    -0.03662109,  -0.001464844, 0.009765625,  0.06317139,  -0.03601074,  -0.004333496,
    0.0009765625, 0.01660156,   0.07116699,   -0.05340576, -0.01373291,  0.003662109,
    0.02490234,   0.01513672,   -0.06152344,  -0.02349854, 0.0006103516, 0.02783203
};
static const double golden_softmaxgrad_13_axis1[] = {
    -0.008666992, -0.03320312,  0.004882812, 0.03625488,  0.04870605,   -0.02416992,
    -0.02685547,  -0.003662109, 0.006103516, 0.06811523,  -0.03295898,  -0.004516602,
    0.01025391,   0.01586914,   0.06713867,  -0.05383301, -0.007873535, 0.0006103516,
    0.01318359,   0.01586914,   -0.05877686, -0.01922607, -0.001708984, 0.03222656
};
static const double golden_logsoftmaxgrad_axis0[] = {
    -0.1105996,  -0.1823324, 0.1839397,  0.2819639, 0.586887,   -0.2638167, -0.2089575, 0.1115651,
    0.5532653,   0.5526996,  -0.3567476, 0.1394004, 0.06766764, 0.4339397,  0.5319639,  -0.413113,
    -0.01381673, 0.0410425,  0.3615651,  0.8032653, -0.4473004, -0.1067476, 0.3894004,  0.3176676
};
static const double golden_logsoftmaxgrad_axis1[] = {
    0.0841006,  -0.1484985,  0.2759096,  0.2979459, 0.6303304,   -0.1457251, -0.1884363, 0.1673476,
    0.704898,   0.5790494,   -0.2851214, 0.3341006, -0.03383382, 0.1580301,  0.484018,   -0.5434435,
    -0.3680916, -0.02052125, 0.1942175,  0.3483673, -0.5263498,  -0.3216262, -0.1947002, 0.2161662
};
static const double golden_logsoftmaxgrad_axis2[] = {
    -0.1105996, -0.1823324, 0.1839397, 0.2819639, 0.5434435,   -0.3819084, -0.2294787, 0.05578254,
    0.25,       0.5,        -0.5,      -0.25,     -0.03383382, 0.1580301,  0.484018,   -0.5434435,
    -0.4861833, -0.0410425, 0.1384349, 0.1967347, -0.4473004,  -0.1067476, 0.3894004,  0.3176676
};
static const double golden_logsoftmaxgrad_13_axis0[] = {
    -0.1105996, -0.25,     -0.1839397, 0.265982,  0.4565565,  -0.2638167, -0.25,     -0.1115651,
    0.4016327,  0.4736502, -0.3567476, -0.25,     0.06766764, 0.25,       0.4680361, -0.4565565,
    -0.3680916, 0.0410425, 0.25,       0.1967347, -0.4736502, -0.3216262, 0.3894004, 0.25
};
static const double golden_logsoftmaxgrad_13_axis1[] = {
    -0.6947002, -0.2161662, 0.2759096,  0.25,      0.4565565,  -0.3819084, -0.1884363, 0,
    0.09836733, 0.5263498,  -0.2851214, -0.25,     0.1015015,  0.25,       0.4520541,  -0.5434435,
    0.1042749,  0,          0.08265238, 0.3483673, -0.4209506, -0.25,      -0.5841006, 0.2161662
};

static double far_below(int64_t i)
{
    return -3e4 - (double)(i % 5) * 64; /* e^x alone is 0 in every dtype */
}

static const rg_case cases[] = {
    /* timed */
    { "8192x1024", "axis=1", "8192,1024", RG_CASE_BENCH },
    { "1024x1000", "axis=1", "1024,1000", RG_CASE_BENCH },
    { "65536x64", "axis=1", "65536,64", RG_CASE_BENCH },
    { "512x32000", "axis=1", "512,32000", RG_CASE_BENCH },
    { "64x1000x28x28-axis1", "axis=1", "64,1000,28,28", RG_CASE_BENCH },
    { "131072x1024", "axis=1", "131072,1024", RG_CASE_BENCH },
    { "64x128", "axis=1", "64,128", RG_CASE_BENCH | RG_CASE_BENCH_GPU },
    { "32x56x56x64-nchw", "axis=3", "32,56,56,64", RG_CASE_BENCH | RG_CASE_NCHW },
    { "nchw-images", "axis=3", "5,47,51,65", RG_CASE_NCHW },
    { "nchw", "axis=3", "2,7,9,21", RG_CASE_NCHW },
    { "nchw-axis1", "axis=1", "2,7,9,21", RG_CASE_NCHW },
    { "nchw-wide", "axis=3", "1,4,8,600", RG_CASE_NCHW },
    { "nchw-pieces", "axis=3", "1,3,6,1100", RG_CASE_NCHW },
    { "log-nchw", "kind=log axis=3", "2,7,9,21", RG_CASE_NCHW },
    { "log-nchw-wide", "kind=log axis=3", "1,4,8,600", RG_CASE_NCHW },
    { "log-nchw-pieces", "kind=log axis=3", "1,3,6,1100", RG_CASE_NCHW },
    { "log-8192x1024", "kind=log axis=1", "8192,1024", RG_CASE_BENCH },
    { "log-1024x1000", "kind=log axis=1", "1024,1000", RG_CASE_BENCH },
    { "log-65536x64", "kind=log axis=1", "65536,64", RG_CASE_BENCH },
    { "log-512x32000", "kind=log axis=1", "512,32000", RG_CASE_BENCH },
    { "log-64x1000x28x28-axis1", "kind=log axis=1", "64,1000,28,28", RG_CASE_BENCH },

    /* timed on a GPU: far beyond its cache */
    { "65536x1024", "axis=1", "65536,1024", RG_CASE_BENCH_GPU },
    { "8192x32000", "axis=1", "8192,32000", RG_CASE_BENCH_GPU },
    { "1048576x64", "axis=1", "1048576,64", RG_CASE_BENCH_GPU },
    { "262144x257", "axis=1", "262144,257", RG_CASE_BENCH_GPU },
    { "256x1000x28x28-axis1", "axis=1", "256,1000,28,28", RG_CASE_BENCH_GPU },
    { "64x21x512x512-axis1", "axis=1", "64,21,512,512", RG_CASE_BENCH_GPU },
    { "log-65536x1024", "kind=log axis=1", "65536,1024", RG_CASE_BENCH_GPU },
    { "log-8192x32000", "kind=log axis=1", "8192,32000", RG_CASE_BENCH_GPU },
    { "log-1048576x64", "kind=log axis=1", "1048576,64", RG_CASE_BENCH_GPU },
    { "log-262144x257", "kind=log axis=1", "262144,257", RG_CASE_BENCH_GPU },
    { "log-256x1000x28x28-axis1", "kind=log axis=1", "256,1000,28,28", RG_CASE_BENCH_GPU },
    { "log-64x21x512x512-axis1", "kind=log axis=1", "64,21,512,512", RG_CASE_BENCH_GPU },

    /* shapes: primes, one element, just above a vector, every axis, empty */
    { "last", "axis=-1", "7,37" },
    { "last-log", "kind=log axis=-1", "7,37" },
    { "first", "axis=0", "37,19" },
    { "first-log", "kind=log axis=0", "37,19" },
    { "middle", "axis=1", "3,23,67" },
    { "middle-log", "kind=log axis=1", "3,23,67" },
    { "middle-wide", "axis=1", "2,11,515" },
    { "middle-wide-log", "kind=log axis=1", "2,11,515" },
    { "middle-narrow", "axis=1", "5,31,3" },
    { "vector", "axis=-1", "3,128" },
    { "vector-and-one", "axis=-1", "5,65" },
    { "vector-less-one", "kind=log axis=-1", "5,63" },
    { "one-dimension", "axis=0", "1000" },
    { "long-row", "axis=-1", "3,5003" },
    { "long-row-log", "kind=log axis=-1", "3,5003" },
    { "row-of-two-pieces", "axis=-1", "3,1531" },
    { "row-of-two-pieces-log", "kind=log axis=-1", "3,1531" },
    { "longer-row", "axis=-1", "3,20001" },
    { "longer-row-log", "kind=log axis=-1", "3,20001" },
    { "odd-vocabulary", "axis=-1", "2,65537" },
    { "odd-vocabulary-log", "kind=log axis=-1", "2,100003" },
    { "vocabulary", "axis=-1", "2,128256" },
    { "long-wide-columns", "axis=0", "300,64" },
    { "longer-wide-columns", "axis=0", "2000,64" },
    { "longest-wide-columns-log", "kind=log axis=0", "5000,32" },
    { "long-columns", "axis=0", "300,21" },
    { "long-columns-log", "kind=log axis=0", "300,21" },
    { "flat-long", "axis=1 flatten=true", "2,37,61" },
    { "rank-8", "axis=4", "2,1,3,2,5,2,1,3" },
    { "rank-8-flat", "axis=-4 flatten=true", "2,1,3,2,5,2,1,3" },
    { "rank-8-flat-log", "kind=log axis=2 flatten=true", "2,1,3,2,5,2,1,3" },
    { "flat-all", "axis=0 flatten=true", "5,7,11" },
    { "inner-of-one", "axis=1", "3,17,1,1" },
    { "images", "axis=-1", "2,5,3,21" },
    { "images-log", "kind=log axis=-1", "2,5,3,21" },
    { "many-rows", "axis=-1", "9000,10" },
    { "many-columns", "axis=0", "10,9000" },
    { "one-element", "axis=-1", "13,1", RG_CASE_ZERO },
    { "one-element-log", "kind=log axis=1", "13,1,5", RG_CASE_ZERO },
    { "empty-rows", "axis=-1", "0,5", RG_CASE_ZERO },
    { "empty-axis", "axis=0", "0,3", RG_CASE_ZERO },
    { "empty-inner", "axis=0", "3,0", RG_CASE_ZERO },
    { "empty-middle", "axis=1", "2,0,4", RG_CASE_ZERO },
    { "empty-flat", "axis=1 flatten=true", "2,0,4", RG_CASE_ZERO },

    /* values: nothing overflows, NaN and infinity go where arithmetic sends them */
    { "far-below", "axis=-1", "5,37", RG_CASE_FORWARD, .x_fill = { { .at = far_below } } },
    { "huge", "axis=-1", "5,64", RG_CASE_FORWARD, .x_fill = { { .at = huge_x } } },
    { "huge-log", "kind=log axis=-1", "5,64", RG_CASE_FORWARD, .x_fill = { { .at = huge_x } } },
    { "huge-columns", "axis=0", "64,5", RG_CASE_FORWARD, .x_fill = { { .at = huge_x } } },
    { "special", "axis=-1", "6,8", RG_CASE_SPECIAL | RG_CASE_FORWARD,
      .x_fill = { { .at = special } } },
    { "special-log", "kind=log axis=-1", "6,8", RG_CASE_SPECIAL | RG_CASE_FORWARD,
      .x_fill = { { .at = special } } },
    { "special-columns", "axis=0", "6,8", RG_CASE_SPECIAL | RG_CASE_FORWARD,
      .x_fill = { { .at = special } } },
    { "special-gradient", "axis=-1", "6,8", RG_CASE_SPECIAL | RG_CASE_FREE_Y,
      .dy_fill = { .at = special_dy }, .y_fill = { .at = golden_y } },
    { "special-gradient-log", "kind=log axis=-1", "6,8", RG_CASE_SPECIAL | RG_CASE_FREE_Y,
      .dy_fill = { .at = special_dy }, .y_fill = { .at = special_log_y } },
    { "special-gradient-columns", "kind=log axis=0", "6,8", RG_CASE_SPECIAL | RG_CASE_FREE_Y,
      .dy_fill = { .at = special_dy }, .y_fill = { .at = special_log_y } },

    /* ONNX Runtime */
    { "ort-golden-softmaxgrad-axis0", "axis=0 flatten=true", "2,3,4", RG_CASE_FREE_Y,
      .dy_fill = { .at = golden_dy }, .y_fill = { .at = golden_y },
      .golden = golden_softmaxgrad_axis0 },
    { "ort-golden-softmaxgrad-axis1", "axis=1 flatten=true", "2,3,4", RG_CASE_FREE_Y,
      .dy_fill = { .at = golden_dy }, .y_fill = { .at = golden_y },
      .golden = golden_softmaxgrad_axis1 },
    { "ort-golden-softmaxgrad-axis2", "axis=2 flatten=true", "2,3,4", RG_CASE_FREE_Y,
      .dy_fill = { .at = golden_dy }, .y_fill = { .at = golden_y },
      .golden = golden_softmaxgrad_axis2 },
    { "ort-golden-softmaxgrad-13-axis2", "axis=2", "2,3,4", RG_CASE_FREE_Y,
      .dy_fill = { .at = golden_dy }, .y_fill = { .at = golden_y },
      .golden = golden_softmaxgrad_axis2 },
    { "ort-golden-softmaxgrad-13-axis0", "axis=0", "2,3,4", RG_CASE_FREE_Y,
      .dy_fill = { .at = golden_dy }, .y_fill = { .at = golden_y },
      .golden = golden_softmaxgrad_13_axis0 },
    { "ort-golden-softmaxgrad-13-axis1", "axis=1", "2,3,4", RG_CASE_FREE_Y,
      .dy_fill = { .at = golden_dy }, .y_fill = { .at = golden_y },
      .golden = golden_softmaxgrad_13_axis1 },
    { "ort-golden-logsoftmaxgrad-axis0", "axis=0 flatten=true kind=log", "2,3,4", RG_CASE_FREE_Y,
      .dy_fill = { .at = golden_dy }, .y_fill = { .at = golden_log_y },
      .golden = golden_logsoftmaxgrad_axis0 },
    { "ort-golden-logsoftmaxgrad-axis1", "axis=1 flatten=true kind=log", "2,3,4", RG_CASE_FREE_Y,
      .dy_fill = { .at = golden_dy }, .y_fill = { .at = golden_log_y },
      .golden = golden_logsoftmaxgrad_axis1 },
    { "ort-golden-logsoftmaxgrad-axis2", "axis=2 flatten=true kind=log", "2,3,4", RG_CASE_FREE_Y,
      .dy_fill = { .at = golden_dy }, .y_fill = { .at = golden_log_y },
      .golden = golden_logsoftmaxgrad_axis2 },
    { "ort-golden-logsoftmaxgrad-13-axis2", "axis=2 kind=log", "2,3,4", RG_CASE_FREE_Y,
      .dy_fill = { .at = golden_dy }, .y_fill = { .at = golden_log_y },
      .golden = golden_logsoftmaxgrad_axis2 },
    { "ort-golden-logsoftmaxgrad-13-axis0", "axis=0 kind=log", "2,3,4", RG_CASE_FREE_Y,
      .dy_fill = { .at = golden_dy }, .y_fill = { .at = golden_log_y },
      .golden = golden_logsoftmaxgrad_13_axis0 },
    { "ort-golden-logsoftmaxgrad-13-axis1", "axis=1 kind=log", "2,3,4", RG_CASE_FREE_Y,
      .dy_fill = { .at = golden_dy }, .y_fill = { .at = golden_log_y },
      .golden = golden_logsoftmaxgrad_13_axis1 },
    { "ort-softmaxgrad-small-last-axis2", "axis=2 flatten=true", "4,2,128", RG_CASE_FREE_Y,
      .dy_fill = { -1, 1 }, .y_fill = { -1.02, 1.02 } },
    { "ort-softmaxgrad-small-all-axis0", "axis=0 flatten=true", "4,2,128", RG_CASE_FREE_Y,
      .dy_fill = { -1, 1 }, .y_fill = { -1.02, 1.02 } },
    { "ort-softmaxgrad-small-all-axis1", "axis=1 flatten=true", "4,2,128", RG_CASE_FREE_Y,
      .dy_fill = { -1, 1 }, .y_fill = { -1.02, 1.02 } },
    { "ort-softmaxgrad-large-last-axis2", "axis=2 flatten=true", "8,16,2048", RG_CASE_FREE_Y,
      .dy_fill = { -1, 1 }, .y_fill = { -1.02, 1.02 } },
    { "ort-softmaxgrad-large-last-1500-axis2", "axis=2 flatten=true", "8,16,1500", RG_CASE_FREE_Y,
      .dy_fill = { -1, 1 }, .y_fill = { -1.02, 1.02 } },
    { "ort-softmaxgrad-large-all-axis0", "axis=0 flatten=true", "8,16,512", RG_CASE_FREE_Y,
      .dy_fill = { -1, 1 }, .y_fill = { -1.02, 1.02 } },
    { "ort-softmaxgrad-large-all-axis1", "axis=1 flatten=true", "8,16,512", RG_CASE_FREE_Y,
      .dy_fill = { -1, 1 }, .y_fill = { -1.02, 1.02 } },
    { "ort-softmaxgrad-large-all-1500-axis0", "axis=0 flatten=true", "8,16,1500", RG_CASE_FREE_Y,
      .dy_fill = { -1, 1 }, .y_fill = { -1.02, 1.02 } },
    { "ort-softmaxgrad-large-all-1500-axis1", "axis=1 flatten=true", "8,16,1500", RG_CASE_FREE_Y,
      .dy_fill = { -1, 1 }, .y_fill = { -1.02, 1.02 } },
    { "ort-softmaxgrad13-small-last-axis2", "axis=2", "4,2,128", RG_CASE_FREE_Y,
      .dy_fill = { 0, 1 }, .y_fill = { 0.02, 1.02 } },
    { "ort-softmaxgrad13-small-all-axis0", "axis=0", "4,2,128", RG_CASE_FREE_Y, .dy_fill = { 0, 1 },
      .y_fill = { 0.02, 1.02 } },
    { "ort-softmaxgrad13-small-all-axis1", "axis=1", "4,2,128", RG_CASE_FREE_Y, .dy_fill = { 0, 1 },
      .y_fill = { 0.02, 1.02 } },
    { "ort-softmaxgrad13-large-last-axis2", "axis=2", "8,16,2048", RG_CASE_FREE_Y,
      .dy_fill = { 0, 1 }, .y_fill = { 0.02, 1.02 } },
    { "ort-softmaxgrad13-large-all-axis0", "axis=0", "8,16,512", RG_CASE_FREE_Y,
      .dy_fill = { 0, 1 }, .y_fill = { 0.02, 1.02 } },
    { "ort-softmaxgrad13-large-all-axis1", "axis=1", "8,16,512", RG_CASE_FREE_Y,
      .dy_fill = { 0, 1 }, .y_fill = { 0.02, 1.02 } },
    { "ort-softmax-small-last-axis2", "axis=2 flatten=true", "4,2,128", RG_CASE_FORWARD,
      .x_fill = { { -10, 10 } } },
    { "ort-softmax-small-all-axis0", "axis=0 flatten=true", "4,2,128", RG_CASE_FORWARD,
      .x_fill = { { -10, 10 } } },
    { "ort-softmax-small-all-axis1", "axis=1 flatten=true", "4,2,128", RG_CASE_FORWARD,
      .x_fill = { { -10, 10 } } },
    { "ort-softmax-large-last-axis2", "axis=2 flatten=true", "8,16,2048", RG_CASE_FORWARD,
      .x_fill = { { -10, 10 } } },
    { "ort-softmax-large-last-1500-axis2", "axis=2 flatten=true", "8,16,1500", RG_CASE_FORWARD,
      .x_fill = { { -10, 10 } } },
    { "ort-softmax-large-all-axis0", "axis=0 flatten=true", "8,16,512", RG_CASE_FORWARD,
      .x_fill = { { -10, 10 } } },
    { "ort-softmax-large-all-axis1", "axis=1 flatten=true", "8,16,512", RG_CASE_FORWARD,
      .x_fill = { { -10, 10 } } },
    { "ort-softmax-large-all-1500-axis0", "axis=0 flatten=true", "8,16,1500", RG_CASE_FORWARD,
      .x_fill = { { -10, 10 } } },
    { "ort-softmax-large-all-1500-axis1", "axis=1 flatten=true", "8,16,1500", RG_CASE_FORWARD,
      .x_fill = { { -10, 10 } } },
    { "ort-numeric-softmax-axism1", "axis=-1", "2,3,4", 0, .x_fill = { { -8, 8 } } },
    { "ort-numeric-softmax-axis0", "axis=0", "2,3,4", 0, .x_fill = { { -8, 8 } } },
    { "ort-numeric-softmax-axis1", "axis=1", "2,3,4", 0, .x_fill = { { -8, 8 } } },
    { "ort-numeric-softmax-axis2", "axis=2", "2,3,4", 0, .x_fill = { { -8, 8 } } },
    { "ort-numeric-softmax-flat-axism1", "axis=-1 flatten=true", "2,3,4", 0,
      .x_fill = { { -8, 8 } } },
    { "ort-numeric-softmax-flat-axis0", "axis=0 flatten=true", "2,3,4", 0,
      .x_fill = { { -8, 8 } } },
    { "ort-numeric-softmax-flat-axis1", "axis=1 flatten=true", "2,3,4", 0,
      .x_fill = { { -8, 8 } } },
    { "ort-numeric-softmax-flat-axis2", "axis=2 flatten=true", "2,3,4", 0,
      .x_fill = { { -8, 8 } } },
    { "ort-logsoftmaxgrad-small-last-axis2", "axis=2 flatten=true kind=log", "4,2,128",
      RG_CASE_FREE_Y, .dy_fill = { -1, 1 }, .y_fill = { -1.02, 1.02 } },
    { "ort-logsoftmaxgrad-small-all-axis0", "axis=0 flatten=true kind=log", "4,2,128",
      RG_CASE_FREE_Y, .dy_fill = { -1, 1 }, .y_fill = { -1.02, 1.02 } },
    { "ort-logsoftmaxgrad-small-all-axis1", "axis=1 flatten=true kind=log", "4,2,128",
      RG_CASE_FREE_Y, .dy_fill = { -1, 1 }, .y_fill = { -1.02, 1.02 } },
    { "ort-logsoftmaxgrad-large-last-axis2", "axis=2 flatten=true kind=log", "8,16,2048",
      RG_CASE_FREE_Y, .dy_fill = { -1, 1 }, .y_fill = { -1.02, 1.02 } },
    { "ort-logsoftmaxgrad-large-last-1500-axis2", "axis=2 flatten=true kind=log", "8,16,1500",
      RG_CASE_FREE_Y, .dy_fill = { -1, 1 }, .y_fill = { -1.02, 1.02 } },
    { "ort-logsoftmaxgrad-large-all-axis0", "axis=0 flatten=true kind=log", "8,16,512",
      RG_CASE_FREE_Y, .dy_fill = { -1, 1 }, .y_fill = { -1.02, 1.02 } },
    { "ort-logsoftmaxgrad-large-all-axis1", "axis=1 flatten=true kind=log", "8,16,512",
      RG_CASE_FREE_Y, .dy_fill = { -1, 1 }, .y_fill = { -1.02, 1.02 } },
    { "ort-logsoftmaxgrad-large-all-1500-axis0", "axis=0 flatten=true kind=log", "8,16,1500",
      RG_CASE_FREE_Y, .dy_fill = { -1, 1 }, .y_fill = { -1.02, 1.02 } },
    { "ort-logsoftmaxgrad-large-all-1500-axis1", "axis=1 flatten=true kind=log", "8,16,1500",
      RG_CASE_FREE_Y, .dy_fill = { -1, 1 }, .y_fill = { -1.02, 1.02 } },
    { "ort-logsoftmaxgrad13-small-last-axis2", "axis=2 kind=log", "4,2,128", RG_CASE_FREE_Y,
      .dy_fill = { 0, 1 }, .y_fill = { 0.02, 1.02 } },
    { "ort-logsoftmaxgrad13-small-all-axis0", "axis=0 kind=log", "4,2,128", RG_CASE_FREE_Y,
      .dy_fill = { 0, 1 }, .y_fill = { 0.02, 1.02 } },
    { "ort-logsoftmaxgrad13-small-all-axis1", "axis=1 kind=log", "4,2,128", RG_CASE_FREE_Y,
      .dy_fill = { 0, 1 }, .y_fill = { 0.02, 1.02 } },
    { "ort-logsoftmaxgrad13-large-last-axis2", "axis=2 kind=log", "8,16,2048", RG_CASE_FREE_Y,
      .dy_fill = { 0, 1 }, .y_fill = { 0.02, 1.02 } },
    { "ort-logsoftmaxgrad13-large-all-axis0", "axis=0 kind=log", "8,16,512", RG_CASE_FREE_Y,
      .dy_fill = { 0, 1 }, .y_fill = { 0.02, 1.02 } },
    { "ort-logsoftmaxgrad13-large-all-axis1", "axis=1 kind=log", "8,16,512", RG_CASE_FREE_Y,
      .dy_fill = { 0, 1 }, .y_fill = { 0.02, 1.02 } },
    { "ort-logsoftmax-small-last-axis2", "axis=2 flatten=true kind=log", "4,2,128", RG_CASE_FORWARD,
      .x_fill = { { -10, 10 } } },
    { "ort-logsoftmax-small-all-axis0", "axis=0 flatten=true kind=log", "4,2,128", RG_CASE_FORWARD,
      .x_fill = { { -10, 10 } } },
    { "ort-logsoftmax-small-all-axis1", "axis=1 flatten=true kind=log", "4,2,128", RG_CASE_FORWARD,
      .x_fill = { { -10, 10 } } },
    { "ort-logsoftmax-large-last-axis2", "axis=2 flatten=true kind=log", "8,16,2048",
      RG_CASE_FORWARD, .x_fill = { { -10, 10 } } },
    { "ort-logsoftmax-large-last-1500-axis2", "axis=2 flatten=true kind=log", "8,16,1500",
      RG_CASE_FORWARD, .x_fill = { { -10, 10 } } },
    { "ort-logsoftmax-large-all-axis0", "axis=0 flatten=true kind=log", "8,16,512", RG_CASE_FORWARD,
      .x_fill = { { -10, 10 } } },
    { "ort-logsoftmax-large-all-axis1", "axis=1 flatten=true kind=log", "8,16,512", RG_CASE_FORWARD,
      .x_fill = { { -10, 10 } } },
    { "ort-logsoftmax-large-all-1500-axis0", "axis=0 flatten=true kind=log", "8,16,1500",
      RG_CASE_FORWARD, .x_fill = { { -10, 10 } } },
    { "ort-logsoftmax-large-all-1500-axis1", "axis=1 flatten=true kind=log", "8,16,1500",
      RG_CASE_FORWARD, .x_fill = { { -10, 10 } } },
    { "ort-numeric-logsoftmax-axism1", "axis=-1 kind=log", "2,3,4", 0, .x_fill = { { -8, 8 } } },
    { "ort-numeric-logsoftmax-axis0", "axis=0 kind=log", "2,3,4", 0, .x_fill = { { -8, 8 } } },
    { "ort-numeric-logsoftmax-axis1", "axis=1 kind=log", "2,3,4", 0, .x_fill = { { -8, 8 } } },
    { "ort-numeric-logsoftmax-axis2", "axis=2 kind=log", "2,3,4", 0, .x_fill = { { -8, 8 } } },
    { "ort-numeric-logsoftmax-flat-axism1", "axis=-1 flatten=true kind=log", "2,3,4", 0,
      .x_fill = { { -8, 8 } } },
    { "ort-numeric-logsoftmax-flat-axis0", "axis=0 flatten=true kind=log", "2,3,4", 0,
      .x_fill = { { -8, 8 } } },
    { "ort-numeric-logsoftmax-flat-axis1", "axis=1 flatten=true kind=log", "2,3,4", 0,
      .x_fill = { { -8, 8 } } },
    { "ort-numeric-logsoftmax-flat-axis2", "axis=2 flatten=true kind=log", "2,3,4", 0,
      .x_fill = { { -8, 8 } } },
    { "ort-softmax-8192", "axis=2 flatten=true", "8192,1,1050", RG_CASE_FORWARD,
      .only = 1 << RG_F16, .x_fill = { { -10, 10 } } },
    { "ort-softmax-lowest", "axis=1 flatten=true", "8192,1,1050", RG_CASE_FORWARD,
      .only = 1 << RG_F16, .x_fill = { { .at = lowest } } },
    { "ort-function-3x2", "axis=1 flatten=true", "3,2", RG_CASE_FREE_Y, .dy_fill = { -1, 1 },
      .y_fill = { -1, 1 } },
    { "ort-function-3x2-last", "axis=-1 flatten=true", "3,2", RG_CASE_FREE_Y, .dy_fill = { -1, 1 },
      .y_fill = { -1, 1 } },
    { "ort-function-3x2x2", "axis=1 flatten=true", "3,2,2", RG_CASE_FREE_Y,
      .dy_fill = { .at = counting }, .y_fill = { .at = counting } },
    { "ort-function-3x2x2-12", "axis=1 flatten=true", "3,2,2", RG_CASE_FREE_Y, .dy_fill = { -1, 1 },
      .y_fill = { -1, 1 } },

    /* long sums, in rows and in columns */
    { "long-sum-4096", "axis=0 kind=log", "4096,3", 0, ONLY_F32, LONG_SUM },
    { "long-sum-524288", "axis=0 kind=log", "524288,2", 0, ONLY_F32, LONG_SUM },
    { "long-row-524288", "kind=log", "2,524288", 0, ONLY_F32, LONG_SUM },
    { "long-row-67m", "kind=log", "67108864", 0, ONLY_F32, LONG_SUM },
    { "long-sum-67m", "axis=0 kind=log", "33554432,2", 0, ONLY_F32, LONG_SUM },
    { .name = NULL },
};

/* ---- random trials ---- */

static void draw(rg_draw *d)
{
    rg_softmax_desc *desc = d->desc;
    d->x[0] = rg_draw_shape(d, 1, RG_MAX_RANK);
    desc->axis = rg_draw_axis(d, d->x[0].rank);
}

RG_OP_TEST_DEFINE(softmax, .cases = cases, .draw = draw);
