/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Convolution: description, validation, shape rule, state, forward, gradient. */
#include "ops/conv/conv_record.h"

#include <retrograde/conv.h>

/* ---- description ---- */

static const rg_conv_desc defaults = {
    .size = sizeof(rg_conv_desc),
    RG_CONV_DEFAULTS,
};

rg_conv_desc rg_conv_desc_default(void)
{
    return defaults;
}

static const rg_field fields[] = {
    RG_CONV_FIELDS(rg_conv_desc, "padding around the image, see rg_padding"),
    RG_CONV_LAST_FIELDS(rg_conv_desc),
    { .name = NULL },
};

static const rg_op_name names[] = {
    { "MPSCNNConvolution", false, "", RG_CONV_MPS_NAMES, 3, 4 },
    { "MPSCNNConvolutionGradient", true, "", RG_CONV_MPS_GRADIENT_NAMES, 3, 4 },
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

static rg_status place_windows(const void *desc, const rg_tensor_desc x[], rg_window *window,
                               rg_placement *placement)
{
    const rg_conv_desc *d = desc;
    RG_TRY(rg_conv_check_inputs(x, d->bias, "conv"));
    return place(d, &x[0], &x[1], window, placement);
}

static void set_placement(void *desc, const rg_padding *padding, const int64_t output[2])
{
    rg_conv_desc *d = desc;
    d->padding = *padding;
    memcpy(d->output, output, sizeof d->output);
}

static const rg_window_hooks windows = { place_windows, set_placement };

static rg_status shapes(const void *desc, const rg_tensor_desc x[], rg_tensor_desc y[])
{
    const rg_conv_desc *d = desc;
    char have[RG_SHAPE_TEXT], weights[RG_SHAPE_TEXT];
    RG_TRY(rg_conv_check_inputs(x, d->bias, "conv"));
    const int64_t in = x->dims[x->rank - 1], out = x[1].dims[0],
                  groups = rg_conv_groups(d->groups, x);
    RG_CHECK(in % groups == 0 && out % groups == 0, RG_INVALID_ARGUMENT,
             "conv: %lld groups do not divide the channels of x, %s, or of w, %s",
             (long long)groups, rg_shape_text(&x[0], have), rg_shape_text(&x[1], weights));
    RG_CHECK(x[1].dims[3] == in / groups, RG_INVALID_ARGUMENT,
             "conv: w is %s but x is %s with %lld groups; w must be (out, kh, kw, in / groups)",
             rg_shape_text(&x[1], weights), rg_shape_text(&x[0], have), (long long)groups);
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

static bool writes_state(const void *desc, bool is_gradient)
{
    return !is_gradient && rg_fused_needs_z(&((const rg_conv_desc *)desc)->neuron);
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
    rg_conv_shape s = rg_conv_shape_of(&window, &at, x, y, rg_conv_groups(d->groups, x));
    s.w[0] = s.out * w->strides[0];
    for (int i = 0; i < 4; i++)
        s.w[1 + i] = w->strides[i];
    return s;
}

static const rg_conv_kind kind = { shape_of, offsetof(rg_conv_desc, neuron),
                                   offsetof(rg_conv_desc, bias), false };

static bool take_bias(void *desc)
{
    rg_conv_desc *d = desc;
    return rg_fused_take_bias(&d->neuron, &d->bias);
}

RG_OP_DEFINE(conv, .text = "convolution", .desc = { fields, &defaults, sizeof defaults },
             .inputs = (const char *const[]){ "x", "w", "b", NULL },
             .outputs = (const char *const[]){ "y", NULL }, .names = names,
             .count_inputs = count_inputs, .windows = &windows, .check = check, .shapes = shapes,
             .state = make_slots, .writes_state = writes_state, .reads = reads, .wide_gradients = 6,
             .weights = 2, .forward = rg_conv_forward, .gradient = rg_conv_gradient,
             .fusion = { .take_bias = take_bias }, .own = &kind, .strategies = rg_conv_strategies);

rg_status rg_conv_create(rg_device *device, const rg_conv_desc *desc, rg_kernel **kernel)
{
    return rg_kernel_create(device, &rg_op_conv, desc, kernel);
}
