/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* ConvGrad of a few thousand products: attributes, shapes, the launch. */
#include "core/shape.h"
#include "ort/ort_launch.h"

/* Reads `count` numbers; keeps the defaults if there are none. False if
 * their number, or one of them, is out of range. */
static bool read_numbers(const rg_onnx_node *node, const char *name, int32_t count, int64_t least,
                         int64_t to[])
{
    int64_t values[RG_ONNX_VALUES];
    const int32_t given = rg_onnx_ints(node, name, values);
    bool fits = given == count || given == 0;
    for (int32_t i = 0; i < given && fits; i++) {
        fits = values[i] >= least && values[i] < 1 << 20;
        to[i] = values[i];
    }
    return fits;
}

void rg_ort_prepare_small_conv(rg_ort_node *node, const rg_onnx_node *attributes, bool is_explicit)
{
    rg_ort_conv_args k = { .stride = { 1, 1 }, .dilation = { 1, 1 } };
    int64_t pads[4] = { 0 }, window[2] = { 0 };
    k.groups = rg_onnx_int(attributes, "group");
    node->is_small_conv = is_explicit && k.groups >= 1 &&
                          read_numbers(attributes, "kernel_shape", 2, 1, window) &&
                          read_numbers(attributes, "strides", 2, 1, k.stride) &&
                          read_numbers(attributes, "dilations", 2, 1, k.dilation) &&
                          read_numbers(attributes, "pads", 4, 0, pads);
    for (int32_t i = 0; i < 2; i++) {
        k.before[i] = pads[i];
        node->after[i] = pads[i + 2];
        k.window[i] = window[i]; /* 0: that of W */
    }
    node->conv = k;
}

/* dY (n, o, h, w), X (n, i, h, w), W (o, i / groups, kh, kw) that belong together; false: too many
 * products, or the ops say what is wrong. */
static bool fits(const rg_ort_computation *c, rg_ort_conv_args *k)
{
    enum { MOST_PRODUCTS = 24 << 10 };
    const rg_tensor_desc *dy = &c->shapes[0], *x = &c->shapes[1], *w = &c->shapes[2];
    if (!c->k->is_small_conv || (x->dtype != RG_F32 && x->dtype != RG_F64) || dy->rank != 4 ||
        x->rank != 4 || w->rank != 4 || rg_shape_count(x) == 0 || rg_shape_count(w) == 0 ||
        rg_shape_count(dy) > MOST_PRODUCTS || rg_shape_count(x) > MOST_PRODUCTS)
        return false;
    k->images = x->dims[0];
    k->channels = x->dims[1];
    k->outputs = w->dims[0];
    if (dy->dims[0] != k->images || dy->dims[1] != k->outputs || k->outputs % k->groups != 0 ||
        w->dims[1] * k->groups != k->channels)
        return false;
    for (int32_t i = 0; i < 2; i++) {
        const int64_t window = w->dims[2 + i], given = k->window[i];
        k->in[i] = x->dims[2 + i];
        k->out[i] = dy->dims[2 + i];
        k->window[i] = window;
        const int64_t span =
            k->in[i] + k->before[i] + c->k->after[i] - (window - 1) * k->dilation[i] - 1;
        if ((given != 0 && given != window) || span < 0 || span / k->stride[i] + 1 != k->out[i])
            return false;
    }
    return rg_shape_count(dy) * rg_ort_product(w, 1, 4) <= MOST_PRODUCTS;
}

rg_status rg_ort_run_small_conv(rg_ort_computation *c, bool *done)
{
    rg_ort_conv_args k = c->k->conv;
    if (!fits(c, &k))
        return RG_OK;
    const rg_tensor_desc *x = &c->shapes[1], *w = &c->shapes[2];
    const rg_tensor_desc bias = rg_tensor_desc_dense(x->dtype, 1, w->dims);
    k.dy = c->data[0];
    k.x = c->data[1];
    k.w = c->data[2];
    RG_TRY(rg_ort_output(c, 0, x, &k.dx));
    RG_TRY(rg_ort_output(c, 1, w, &k.dw));
    RG_TRY(rg_ort_output(c, 2, &bias, &k.db));
    *done = true;
    const rg_ort_launch launch = {
        .kernel = RG_ORT_SMALL_CONV, .args = &k, .size = sizeof k, .units = 1
    };
    return rg_ort_run(c, &launch);
}
