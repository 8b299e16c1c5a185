/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Transposed convolution: description, validation, shape rule, state, forward, gradient. The image
 * side of conv's kernels is y, the window side is x. */
#include "ops/conv/conv_record.h"

#include <retrograde/conv_transpose.h>

/* ---- description ---- */

static const rg_conv_transpose_desc defaults = {
    .size = sizeof(rg_conv_transpose_desc),
    RG_CONV_DEFAULTS,
};

rg_conv_transpose_desc rg_conv_transpose_desc_default(void)
{
    return defaults;
}

static const char *const layouts[] = { "out_in", "in_out", NULL };

static const rg_field fields[] = {
    RG_FIELD_NAMED(rg_conv_transpose_desc, layout, layouts,
                   "layout of w: (out, kh, kw, in) as in MPS, or (in, kh, kw, out) as in ONNX"),
    RG_CONV_FIELDS(rg_conv_transpose_desc, "padding, cropped from the result, see rg_padding"),
    RG_FIELD(rg_conv_transpose_desc, by_offset, "use kernel_offset instead of the padding"),
    RG_FIELD_IN(rg_conv_transpose_desc, kernel_offset, INT32_MIN, INT32_MAX,
                "by_offset: kernelOffset of MPS, rows and columns"),
    RG_CONV_LAST_FIELDS(rg_conv_transpose_desc),
    { .name = NULL },
};

static const rg_op_name names[] = {
    { "MPSCNNConvolutionTranspose", false, "", RG_CONV_MPS_NAMES, 3, 4 },
    { "MPSCNNConvolutionTransposeGradient", true, "", RG_CONV_MPS_GRADIENT_NAMES, 3, 4 },
    { .name = NULL },
};

/* ---- validation, shape rule ---- */

static rg_status check(const void *desc)
{
    const rg_conv_transpose_desc *d = desc;
    RG_CHECK(d->by_offset || (d->kernel_offset[0] == 0 && d->kernel_offset[1] == 0),
             RG_INVALID_ARGUMENT, "conv_transpose: kernel_offset is %d, %d, but by_offset is false",
             d->kernel_offset[0], d->kernel_offset[1]);
    return rg_fused_check(&d->neuron, "conv_transpose");
}

static int32_t count_inputs(const void *desc)
{
    return ((const rg_conv_transpose_desc *)desc)->bias ? 3 : 2;
}

static rg_status place(const rg_conv_transpose_desc *d, const rg_tensor_desc *x,
                       const rg_tensor_desc *w, rg_window *window, rg_placement *at)
{
    const int32_t row = rg_conv_row(x);
    *window = (rg_window){ .source = { x->dims[row], x->dims[row + 1] },
                           .window = { (int32_t)w->dims[1], (int32_t)w->dims[2] },
                           .stride = { d->stride[0], d->stride[1] },
                           .dilation = { d->dilation[0], d->dilation[1] },
                           .output = { d->output[0], d->output[1] },
                           .transposed = true };
    RG_TRY(rg_conv_place(&d->padding, window, "conv_transpose", at));
    for (int i = 0; i < 2 && d->by_offset; i++) {
        const int64_t span = (int64_t)(window->window[i] - 1) * d->dilation[i] + 1;
        at->before[i] = d->kernel_offset[i] + span - 1 - span / 2;
        RG_CHECK(at->before[i] > -(1 << 30) && at->before[i] < 1 << 30, RG_UNSUPPORTED,
                 "conv_transpose: kernel_offset is %d; its magnitude must be at most 2^30",
                 d->kernel_offset[i]);
    }
    return RG_OK;
}

static rg_status place_windows(const void *desc, const rg_tensor_desc x[], rg_window *window,
                               rg_placement *placement)
{
    const rg_conv_transpose_desc *d = desc;
    RG_TRY(rg_conv_check_inputs(x, d->bias, "conv_transpose"));
    return place(d, &x[0], &x[1], window, placement);
}

static void set_placement(void *desc, const rg_padding *padding, const int64_t output[2])
{
    rg_conv_transpose_desc *d = desc;
    d->padding = *padding;
    memcpy(d->output, output, sizeof d->output);
    d->by_offset = false;
    d->kernel_offset[0] = d->kernel_offset[1] = 0;
}

static const rg_window_hooks windows = { place_windows, set_placement };

static rg_status shapes(const void *desc, const rg_tensor_desc x[], rg_tensor_desc y[])
{
    const rg_conv_transpose_desc *d = desc;
    char have[RG_SHAPE_TEXT], weights[RG_SHAPE_TEXT];
    RG_TRY(rg_conv_check_inputs(x, d->bias, "conv_transpose"));
    const bool in_out = d->layout == RG_CONV_TRANSPOSE_IN_OUT;
    const int64_t in = x->dims[x->rank - 1], groups = rg_conv_groups(d->groups, x);
    RG_CHECK(in % groups == 0 && (in_out || x[1].dims[0] % groups == 0), RG_INVALID_ARGUMENT,
             "conv_transpose: %lld groups do not divide the channels of x, %s, or of w, %s",
             (long long)groups, rg_shape_text(&x[0], have), rg_shape_text(&x[1], weights));
    RG_CHECK(x[1].dims[in_out ? 0 : 3] == (in_out ? in : in / groups), RG_INVALID_ARGUMENT,
             "conv_transpose: w is %s but x is %s with %lld groups; w must be %s",
             rg_shape_text(&x[1], weights), rg_shape_text(&x[0], have), (long long)groups,
             in_out ? "(in, kh, kw, out / groups)" : "(out, kh, kw, in / groups)");
    const int64_t out = in_out ? x[1].dims[3] * groups : x[1].dims[0];
    if (d->bias)
        RG_TRY(rg_conv_check_bias(&x[2], out, "conv_transpose"));
    rg_window window;
    rg_placement at;
    RG_TRY(place(d, &x[0], &x[1], &window, &at));
    return rg_conv_result(x, &at, out, "conv_transpose", &y[0]);
}

static uint32_t reads(const void *desc)
{
    const rg_conv_transpose_desc *d = desc;
    return rg_conv_reads(&d->neuron, d->bias);
}

/* ---- state ---- */

static int32_t make_slots(const void *desc, const rg_tensor_desc x[], rg_state_slot slots[])
{
    const rg_conv_transpose_desc *d = desc;
    rg_tensor_desc y[RG_MAX_OUTPUTS];
    return shapes(desc, x, y) == RG_OK ? rg_fused_slots(&d->neuron, &y[0], slots) : 0;
}

static bool writes_state(const void *desc, bool is_gradient)
{
    return !is_gradient && rg_fused_needs_z(&((const rg_conv_transpose_desc *)desc)->neuron);
}

/* ---- forward and gradient ---- */

/* The geometry, from the shapes of x (or dx), y (or dy) and w (or dw). Layout
 * out_in is rotated here: its steps are negative, from the last tap on. */
static rg_conv_shape shape_of(const void *desc, const rg_tensor_desc *x, const rg_tensor_desc *y,
                              const rg_tensor_desc *w)
{
    const rg_conv_transpose_desc *d = desc;
    rg_window window;
    rg_placement at = { .output = { 0 } };
    (void)place(d, x, w, &window, &at); /* the shape rule has checked it */
    rg_conv_shape s = rg_conv_shape_of(&window, &at, y, x, rg_conv_groups(d->groups, x));
    const int64_t *step = w->strides;
    if (d->layout == RG_CONV_TRANSPOSE_IN_OUT) {
        s.w[0] = s.out * step[0];
        for (int i = 0; i < 4; i++)
            s.w[1 + i] = step[i];
        return s;
    }
    s.w_first = (w->dims[1] - 1) * step[1] + (w->dims[2] - 1) * step[2];
    s.w[0] = s.in * step[0];
    s.w[1] = step[3];
    s.w[2] = -step[1];
    s.w[3] = -step[2];
    s.w[4] = step[0];
    return s;
}

static const rg_conv_kind kind = { shape_of, offsetof(rg_conv_transpose_desc, neuron),
                                   offsetof(rg_conv_transpose_desc, bias), true };

static bool take_bias(void *desc)
{
    rg_conv_transpose_desc *d = desc;
    return rg_fused_take_bias(&d->neuron, &d->bias);
}

RG_OP_DEFINE(conv_transpose, .text = "transposed convolution",
             .desc = { fields, &defaults, sizeof defaults },
             .inputs = (const char *const[]){ "x", "w", "b", NULL },
             .outputs = (const char *const[]){ "y", NULL }, .names = names,
             .count_inputs = count_inputs, .windows = &windows, .check = check, .shapes = shapes,
             .state = make_slots, .writes_state = writes_state, .reads = reads, .wide_gradients = 6,
             .weights = 2, .forward = rg_conv_forward, .gradient = rg_conv_gradient,
             .fusion = { .take_bias = take_bias }, .own = &kind, .launches = &rg_kernels_conv,
             .strategies = rg_conv_strategies);

rg_status rg_conv_transpose_create(rg_device *device, const rg_conv_transpose_desc *desc,
                                   rg_kernel **kernel)
{
    return rg_kernel_create(device, &rg_op_conv_transpose, desc, kernel);
}
