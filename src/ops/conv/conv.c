/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Convolution: description, validation, shape rule, state, forward, gradient. */
#include "ops/conv/conv_passes.h"
#include "ops/neuron/neuron_fields.h"
#include "ops/padding/padding_fields.h"

#include <retrograde/conv.h>

/* ---- description ---- */

static const rg_conv_desc defaults = {
    .size = sizeof(rg_conv_desc),
    .groups = 1,
    .stride = { 1, 1 },
    .dilation = { 1, 1 },
    .bias = true,
    .neuron = { .size = sizeof(rg_neuron_desc), .kind = RG_NEURON_NONE },
};

rg_conv_desc rg_conv_desc_default(void)
{
    return defaults;
}

static const rg_field fields[] = {
    RG_FIELD_IN(rg_conv_desc, groups, 0, INT32_MAX,
                "number of channel groups; 0: one group per channel (depthwise)"),
    RG_FIELD_IN(rg_conv_desc, stride, 1, INT32_MAX, "stride between windows"),
    RG_FIELD_IN(rg_conv_desc, dilation, 1, INT32_MAX, "dilation of the window"),
    RG_FIELD_STRUCT(rg_conv_desc, padding, rg_padding_fields,
                    "padding around the image, see rg_padding"),
    RG_FIELD_IN(rg_conv_desc, output, 0, 0x1p48,
                "rows and columns of y; 0: computed from the padding"),
    RG_FIELD(rg_conv_desc, bias, "whether the bias b is an input"),
    RG_FIELD_STRUCT(rg_conv_desc, neuron, rg_neuron_fields, "activation applied to the result"),
    { .name = NULL },
};

#define IMAGE "sourceImage=x weights=w biasTerms=b destinationImage=y"
#define IMAGE_GRAD                                                              \
    "sourceGradient=dy sourceImage=x weights=w biasTerms=b destinationImage=y " \
    "destinationGradient=dx gradientForWeights=dw gradientForBiases=db"

static const rg_op_name names[] = {
    { "MPSCNNConvolution", false, "", IMAGE, 3, 4 },
    { "MPSCNNConvolutionGradient", true, "", IMAGE_GRAD, 3, 4 },
    { "Conv", false, "", "X=x W=w B=b Y=y", 4, 4 },
    { "ConvGrad", true, "", "dY=dy X=x W=w dX=dx dW=dw dB=db", 4, 4 },
    { .name = NULL },
};

/* ---- validation, shape rule ---- */

static rg_status check(const void *desc)
{
    return rg_fused_check(&((const rg_conv_desc *)desc)->neuron, "conv");
}

static int32_t count_inputs(const void *desc)
{
    return ((const rg_conv_desc *)desc)->bias ? 3 : 2;
}

static int64_t channels_of(const rg_tensor_desc *x)
{
    return x->dims[x->rank - 1];
}

static int64_t groups_of(const rg_conv_desc *d, const rg_tensor_desc *x)
{
    return d->groups > 0 ? d->groups : channels_of(x);
}

static rg_status place(const rg_conv_desc *d, const rg_tensor_desc *x, const rg_tensor_desc *w,
                       rg_window *window, rg_placement *at)
{
    const int32_t row = rg_conv_row(x);
    *window = (rg_window){ .source = { x->dims[row], x->dims[row + 1] },
                           .window = { (int32_t)w->dims[1], (int32_t)w->dims[2] },
                           .stride = { d->stride[0], d->stride[1] },
                           .dilation = { d->dilation[0], d->dilation[1] },
                           .output = { d->output[0], d->output[1] } };
    return rg_conv_place(&d->padding, window, "conv", at);
}

static rg_status shapes(const void *desc, const rg_tensor_desc x[], rg_tensor_desc y[])
{
    const rg_conv_desc *d = desc;
    char have[RG_SHAPE_TEXT], weights[RG_SHAPE_TEXT];
    RG_TRY(rg_conv_check_inputs(x, d->bias, "conv"));
    rg_shape_text(&x[0], have);
    rg_shape_text(&x[1], weights);
    const int64_t in = channels_of(x), out = x[1].dims[0], groups = groups_of(d, x);
    RG_CHECK(in % groups == 0 && out % groups == 0, RG_INVALID_ARGUMENT,
             "conv: %lld groups do not divide the channels of x, %s, or of w, %s",
             (long long)groups, have, weights);
    RG_CHECK(x[1].dims[3] == in / groups, RG_INVALID_ARGUMENT,
             "conv: w is %s but x is %s with %lld groups; w must be (out, kh, kw, in / groups)",
             weights, have, (long long)groups);
    if (d->bias)
        RG_TRY(rg_conv_check_bias(&x[2], out, "conv"));
    rg_window window;
    rg_placement at;
    RG_TRY(place(d, &x[0], &x[1], &window, &at));
    return rg_conv_result(x, &at, out, "conv", &y[0]);
}

static uint32_t reads(const void *desc)
{
    const rg_conv_desc *d = desc;
    return rg_conv_reads(&d->neuron, d->bias);
}

/* ---- state ---- */

static int32_t make_slots(const void *desc, const rg_tensor_desc x[], rg_state_slot slots[])
{
    const rg_conv_desc *d = desc;
    rg_tensor_desc y[RG_MAX_OUTPUTS];
    return shapes(desc, x, y) == RG_OK ? rg_fused_slots(&d->neuron, &y[0], slots) : 0;
}

/* ---- forward and gradient ---- */

/* The geometry, from the shapes of x (or dx), y (or dy) and w (or dw). */
static rg_conv_shape shape_of(const void *desc, const rg_tensor_desc *x, const rg_tensor_desc *y,
                              const rg_tensor_desc *w)
{
    const rg_conv_desc *d = desc;
    rg_window window;
    rg_placement at = { .output = { 0 } };
    (void)place(d, x, w, &window, &at); /* the shape rule has checked it */
    rg_conv_shape s = rg_conv_shape_of(&window, &at, x, y, groups_of(d, x));
    s.w[0] = s.out * w->strides[0];
    for (int i = 0; i < 4; i++)
        s.w[1 + i] = w->strides[i];
    return s;
}

static rg_conv_passes passes_of(const rg_call *call)
{
    const rg_conv_desc *d = call->desc;
    return (rg_conv_passes){ shape_of, &d->neuron, d->bias, .is_transpose = false };
}

static rg_status forward(rg_call *call)
{
    const rg_conv_passes p = passes_of(call);
    return rg_conv_record_forward(call, &p, call->y[0], rg_fused_z(call, p.neuron), p.neuron);
}

static rg_status make_z(rg_call *call, const rg_tensor *z)
{
    const rg_conv_passes p = passes_of(call);
    return rg_conv_record_forward(call, &p, z, NULL, NULL);
}

static rg_status record_gradients(rg_call *call, const rg_tensor *g)
{
    const rg_conv_passes p = passes_of(call);
    return rg_conv_record_gradients(call, &p, g);
}

static rg_status gradient(rg_call *call)
{
    const rg_conv_desc *d = call->desc;
    return rg_fused_backward(call, &d->neuron, make_z, record_gradients);
}

static bool take_bias(void *desc)
{
    rg_conv_desc *d = desc;
    return rg_fused_take_bias(&d->neuron, &d->bias);
}

RG_OP_DEFINE(conv, .text = "convolution", .desc = { fields, &defaults, sizeof defaults },
             .inputs = (const char *const[]){ "x", "w", "b", NULL },
             .outputs = (const char *const[]){ "y", NULL }, .names = names,
             .count_inputs = count_inputs, .check = check, .shapes = shapes, .state = make_slots,
             .reads = reads, .wide_gradients = 6, .forward = forward, .gradient = gradient,
             .fusion = { .take_bias = take_bias }, .strategies = rg_conv_strategies);

rg_status rg_conv_create(rg_device *device, const rg_conv_desc *desc, rg_kernel **kernel)
{
    return rg_kernel_create(device, &rg_op_conv, desc, kernel);
}
