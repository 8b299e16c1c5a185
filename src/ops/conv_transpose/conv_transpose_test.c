/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Transposed convolution: the cases. */
#include "ops/contract/contract_cases.h"

#include <retrograde/conv_transpose.h>

#define P1   " padding.top=1 padding.left=1 padding.bottom=1 padding.right=1"
#define LEAN "bias=false"
#define ONNX "layout=in_out"

static const rg_case cases[] = {
    /* timed */
    { "4x4-64-28", LEAN " stride=2,2" P1, "32,28,28,64 64,4,4,64", RG_CASE_BENCH },
    { "4x4-64-28-128", LEAN " stride=2,2" P1, "128,28,28,64 64,4,4,64", RG_CASE_BENCH_GPU },

    /* both layouts */
    { "one", "groups=1", "1,1,1,1 1,1,1,1 1" },
    { "one-channel", "stride=2,2", "2,4,5,1 7,3,3,1 7" },
    { "to-one-channel", "stride=2,2", "2,4,5,6 1,3,3,6 1" },
    { "one-onnx", ONNX, "1,1,1,1 1,1,1,1 1" },
    { "one-image", "groups=1", "4,5,3 6,3,3,3 6" },
    { "3x3", "groups=1" P1, "2,5,6,7 19,3,3,7 19" },
    { "3x3-onnx", ONNX P1, "2,5,6,7 7,3,3,19 19" },
    { "no-bias", LEAN, "2,5,6,7 9,2,3,7" },
    { "vectors", "stride=2,2" P1, "1,5,6,32 32,3,3,32 32" },
    { "vectors-onnx", ONNX " stride=2,2" P1, "1,5,6,32 32,3,3,32 32" },
    { "stride", "stride=2,3", "2,4,5,6 7,3,3,6 7" },
    { "stride-onnx", ONNX " stride=2,3", "2,4,5,6 6,3,3,7 7" },
    { "stride-beyond", "stride=4,3", "1,3,4,5 6,2,2,5 6" },
    { "stride-beyond-onnx", ONNX " stride=4,3", "1,3,4,5 5,2,2,6 6" },
    { "even", "stride=2,2" P1, "2,4,5,6 7,4,2,6 7" },
    { "even-onnx", ONNX " stride=2,2" P1, "2,4,5,6 6,4,2,7 7" },
    { "dilation", "dilation=2,3 stride=2,1", "1,4,5,6 7,3,2,6 7" },
    { "dilation-onnx", ONNX " dilation=2,3 stride=2,1", "1,4,5,6 6,3,2,7 7" },
    { "1-d", "stride=1,2", "2,1,9,5 7,1,4,5 7" },

    /* sizes */
    { "output", "stride=2,2 output=9,11" P1, "1,4,5,6 7,3,3,6 7" },
    { "output-onnx", ONNX " stride=2,2 output=9,11" P1, "1,4,5,6 6,3,3,7 7" },
    { "smaller", "stride=2,2 output=5,6", "1,4,5,6 7,3,3,6 7" },
    { "output-padding", ONNX " stride=2,3 padding.top=1 padding.left=1 padding.right=-1",
      "1,4,5,6 6,3,3,7 7" },
    { "same", "stride=2,2 padding.policy=same", "1,4,5,6 7,3,3,6 7" },
    { "valid", "stride=2,2 padding.policy=valid", "1,4,5,6 7,3,3,6 7" },
    { "full", "stride=2,2 padding.policy=full", "1,4,5,6 7,3,4,6 7" },
    { "same-upper", ONNX " stride=2,3 padding.policy=same_upper", "1,4,5,6 6,3,4,7 7" },
    { "same-lower", ONNX " stride=2,2 padding.policy=same_lower", "1,4,5,6 6,3,4,7 7" },
    { "negative", "padding.top=-2 padding.left=-1 padding.right=1", "1,4,5,6 7,3,3,6 7" },
    { "offset", "stride=2,2 by_offset=true kernel_offset=0,1 output=8,10", "1,4,5,6 7,3,3,6 7" },
    { "offset-back", "stride=2,2 by_offset=true kernel_offset=-1,-3 output=9,9",
      "1,4,5,6 7,4,3,6 7" },

    /* groups */
    { "groups", "groups=3 stride=2,2" P1, "2,4,5,12 15,3,3,4 15" },
    { "groups-onnx", ONNX " groups=3 stride=2,2" P1, "2,4,5,12 12,3,3,5 15" },
    { "groups-same", "groups=6 stride=1,3 padding.policy=same_upper padding.align=top_left",
      "3,1,3,36 12,1,4,6 12" },
    { "depthwise", "groups=0 stride=2,2" P1, "2,5,6,19 19,3,3,1 19" },
    { "depthwise-onnx", ONNX " groups=0 stride=2,2" P1, "2,5,6,19 19,3,3,1 19" },
    { "depthwise-3x3", "groups=0" P1, "2,5,12,35 35,3,3,1 35" },
    { "depthwise-3x3-onnx", ONNX " groups=0" P1, "2,5,12,35 35,3,3,1 35" },
    { "multiplier", ONNX " groups=0", "1,5,6,7 7,3,3,2 14" },
    { "multiplier-mps", "groups=0", "1,5,6,7 14,3,3,1 14" },
    { "few", "groups=5 stride=2,2" P1, "2,4,5,20 20,3,3,4 20" },
    { "few-onnx", ONNX " groups=5 stride=2,2" P1, "2,4,5,20 20,3,3,4 20" },

    /* neurons */
    { "relu", "neuron.kind=relu stride=2,2", "1,4,5,6 7,3,3,6 7" },
    { "gelu", "neuron.kind=gelu stride=2,2", "1,4,5,6 7,3,3,6 7" },
    { "gelu-depthwise", "neuron.kind=gelu groups=0", "1,4,5,19 19,3,3,1 19" },
    { "tanh-onnx", ONNX " neuron.kind=tanh", "1,4,5,6 6,3,3,7 7",
      .x_fill = { { 0 }, { -0.3, 0.3 } } },

    /* dw and db in f32 beside f16 and bf16 */
    { "wide", "stride=2,2", "2,4,5,6 7,3,3,6 7", RG_CASE_WIDE },
    { "wide-onnx", ONNX " stride=2,2" P1, "1,4,5,6 6,3,3,17 17", RG_CASE_WIDE },
    { "wide-depthwise", "groups=0 stride=2,2" P1, "2,5,6,19 19,3,3,1 19", RG_CASE_WIDE },

    /* sums that one accumulator in f32 would miss, see conv */
    { "sum-4k", "groups=1" P1, "1,64,64,1 1,3,3,1 1", RG_CASE_WIDE, TWO, EQUAL },
    { "sum-512k", "groups=1" P1, "1,512,1024,1 1,3,3,1 1", RG_CASE_WIDE, TWO, EQUAL },
    { "sum-512k-above", "groups=1" P1, "1,512,1024,1 1,3,3,1 1", RG_CASE_WIDE, TWO, ABOVE },
    { "sum-512k-depthwise", "groups=0" P1, "1,512,1024,2 2,3,3,1 2", RG_CASE_WIDE, TWO, EQUAL },
    { "sum-channels", LEAN, "1,2,2,20000 2,2,1,20000", 0, TWO, EQUAL },
    { "sum-67m", "groups=1" P1, "1,8192,8192,1 1,3,3,1 1", RG_CASE_WIDE, TWO, EQUAL },

    { "empty", "stride=2,2", "0,4,5,6 7,3,3,6 7", RG_CASE_ZERO },
    { .name = NULL },
};

/* A multiplication and an addition for every product. */
static double operations(const void *desc, const rg_tensor_desc x[])
{
    const rg_conv_transpose_desc *d = desc;
    double products = 2;
    for (int32_t i = 0; i < x->rank; i++)
        products *= (double)x->dims[i];
    for (int32_t i = 1; i < 3; i++)
        products *= (double)x[1].dims[i];
    const double out = (double)x[1].dims[d->layout == RG_CONV_TRANSPOSE_OUT_IN ? 0 : 3];
    return d->layout == RG_CONV_TRANSPOSE_IN_OUT || d->groups == 1 ? products * out
           : d->groups > 1                                         ? products * out / d->groups
                           : products * out / (double)x->dims[x->rank - 1];
}

/* ---- random trials ---- */

static void draw(rg_draw *d)
{
    rg_conv_transpose_desc *desc = d->desc;
    d->x[0] = rg_draw_image(d, 800);
    const int32_t last = d->x[0].rank - 1;
    int32_t window[2];
    const double kind = rg_draw_real(d, 0, 1);
    const int64_t groups = kind < 0.6 ? 1 : kind < 0.85 ? rg_draw_between(d, 1, 6) : 0;
    if (groups > 1) {
        d->x[0].dims[last] = groups * rg_draw_between(d, 1, 9);
        d->x[0] = rg_tensor_desc_dense(d->dtype, last + 1, d->x[0].dims);
    }
    const int64_t in = d->x[0].dims[last], used = groups > 0 ? groups : in;
    const int64_t each = groups == 1 ? rg_draw_channels(d, 70) : rg_draw_between(d, 1, 4);
    for (int a = 0; a < 2; a++)
        rg_draw_window(d, 4, &window[a], &desc->stride[a], &desc->dilation[a]);
    rg_draw_padding(d, window, &desc->padding);
    rg_draw_output(d, d->x[0].dims[last - 2] * 2, d->x[0].dims[last - 1] * 2, desc->output);
    desc->by_offset &= rg_draw_chance(d, 0.3);
    for (int a = 0; a < 2; a++)
        desc->kernel_offset[a] = desc->by_offset ? (int32_t)rg_draw_between(d, -3, 3) : 0;
    const int64_t out_in[] = { used * each, window[0], window[1], used > 0 ? in / used : 0 };
    const int64_t in_out[] = { in, window[0], window[1], each };
    desc->groups = (int32_t)groups;
    d->cost = 4.0 * (double)(used * each) * window[0] * window[1] * (double)out_in[3];
    d->cost *= last == 3 ? (double)d->x[0].dims[0] : 1;
    for (int a = 0; a < 2; a++) { /* the definition looks at all taps of all pixels of y */
        const int64_t full =
            d->x[0].dims[last - 2 + a] * desc->stride[a] + (int64_t)window[a] * desc->dilation[a];
        d->cost *= (double)(desc->output[a] > 0 ? desc->output[a] : full);
    }
    d->x[1] = rg_tensor_desc_dense(d->dtype, 4,
                                   desc->layout == RG_CONV_TRANSPOSE_IN_OUT ? in_out : out_in);
    d->x[2] = rg_draw_vector(d->dtype, used * each);
    rg_draw_neuron(d, &desc->neuron, true);
}

RG_OP_TEST_DEFINE(conv_transpose, .cases = cases, .operations = operations, .draw = draw);
