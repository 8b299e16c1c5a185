/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Windows over images as operators of ONNX: convolution, pooling, resizing, padding. */
#include "onnx/export.h"

#include <retrograde/nodes.h>

#include <math.h>
#include <string.h>

static const int32_t image_order[] = { 0, 2, 3, 1 };

static rg_status check_image(const rg_form *form)
{
    RG_CHECK(form->shape[0].rank == 4, RG_UNSUPPORTED,
             "an image without a dimension for the batch");
    return RG_OK;
}

rg_status rg_form_pad(rg_export *e, rg_form *form, const char *mode, const int64_t pads[8],
                      double value)
{
    const char *numbers, *fill = "";
    RG_TRY(rg_export_ints(e, pads, 8, ".pads", &numbers));
    if (strcmp(mode, "constant") == 0)
        RG_TRY(rg_export_number(e, form->shape[0].dtype, value, &fill));
    RG_TRY(rg_emit(e, "Pad"));
    rg_emit_input(e, form->name);
    rg_emit_input(e, numbers);
    if (fill[0] != 0)
        rg_emit_input(e, fill);
    rg_emit_text(e, "mode", mode);
    return rg_form_made(e, form);
}

/* Zeros around the image, or pixels of it left out, so that windows need no padding. */
static rg_status pad_image(rg_export *e, rg_form *form, const int64_t before[2],
                           const int64_t after[2])
{
    const int64_t pads[] = { 0, 0, before[0], before[1], 0, 0, after[0], after[1] };
    return rg_form_pad(e, form, "constant", pads, 0);
}

/* Windows of an operator: pads are not negative, and a last window that would be too many is cut
 * off with the pixels it needs. */
typedef struct windows {
    int64_t kernel[2], stride[2], dilation[2], before[2], after[2];
} windows;

static void copy_pair(int64_t to[2], const int32_t from[2])
{
    to[0] = from[0];
    to[1] = from[1];
}

static rg_status place_windows(rg_export *e, rg_form *form, const rg_placement *at, windows *w)
{
    int64_t crop_before[2] = { 0 }, crop_after[2] = { 0 };
    bool crops = false;
    for (int i = 0; i < 2; i++) {
        w->before[i] = at->before[i];
        w->after[i] = at->after[i];
        if (w->after[i] < 0 && -w->after[i] < w->stride[i])
            w->after[i] = 0; /* too little for one more window */
        crop_before[i] = w->before[i] < 0 ? w->before[i] : 0;
        crop_after[i] = w->after[i] < 0 ? w->after[i] : 0;
        w->before[i] -= crop_before[i];
        w->after[i] -= crop_after[i];
        crops |= crop_before[i] != 0 || crop_after[i] != 0;
    }
    return crops ? pad_image(e, form, crop_before, crop_after) : RG_OK;
}

static void emit_windows(rg_export *e, const windows *w)
{
    const int64_t pads[] = { w->before[0], w->before[1], w->after[0], w->after[1] };
    rg_emit_ints(e, "kernel_shape", w->kernel, 2);
    rg_emit_ints(e, "strides", w->stride, 2);
    rg_emit_ints(e, "pads", pads, 4);
    if (w->dilation[0] != 1 || w->dilation[1] != 1)
        rg_emit_ints(e, "dilations", w->dilation, 2);
}

/* ---- convolution ---- */

static rg_status resolve_conv(const rg_conv_desc *d, const rg_tensor_desc *x,
                              const rg_tensor_desc *weights, rg_placement *at, windows *w)
{
    const rg_window window = { .source = { x->dims[1], x->dims[2] },
                               .window = { (int32_t)weights->dims[1], (int32_t)weights->dims[2] },
                               .stride = { d->stride[0], d->stride[1] },
                               .dilation = { d->dilation[0], d->dilation[1] },
                               .output = { d->output[0], d->output[1] } };
    *w = (windows){ 0 };
    copy_pair(w->kernel, window.window);
    copy_pair(w->stride, d->stride);
    copy_pair(w->dilation, d->dilation);
    return rg_padding_resolve(&d->padding, &window, at);
}

rg_status rg_export_conv(rg_export *e, const rg_node *node)
{
    const rg_conv_desc *d = node->desc;
    rg_form form;
    rg_placement at;
    rg_weighted weighted;
    windows w;
    RG_TRY(rg_export_image(e, node->in[0], &form));
    RG_TRY(check_image(&form));
    const rg_tensor_desc x = form.shape[0];
    RG_TRY(resolve_conv(d, &x, &e->values[node->in[1]->id].shape[0], &at, &w));
    RG_TRY(place_windows(e, &form, &at, &w));
    RG_TRY(rg_export_weights(e, node, d->bias, d->neuron.kind == RG_NEURON_NONE ? 0 : -1,
                             image_order, &weighted));
    RG_TRY(rg_emit(e, "Conv"));
    rg_emit_input(e, form.name);
    rg_emit_input(e, weighted.weights);
    if (weighted.bias != NULL)
        rg_emit_input(e, weighted.bias);
    emit_windows(e, &w);
    rg_emit_int(e, "group", d->groups == 0 ? x.dims[3] : d->groups);
    RG_TRY(rg_form_made(e, &form));
    weighted.neuron = &d->neuron;
    return rg_export_weighted(e, &weighted, &form);
}

/* Padding as attributes alone. */
static rg_status plain_windows(const rg_placement *at, windows *w)
{
    for (int i = 0; i < 2; i++) {
        w->before[i] = at->before[i];
        w->after[i] = at->after[i] < 0 && -at->after[i] < w->stride[i] ? 0 : at->after[i];
        RG_CHECK(w->before[i] >= 0 && w->after[i] >= 0, RG_UNSUPPORTED,
                 "windows that leave out pixels");
    }
    return RG_OK;
}

rg_status rg_emit_conv_windows(rg_export *e, const rg_conv_desc *d, const rg_tensor_desc *x,
                               const rg_tensor_desc *weights)
{
    rg_placement at;
    windows w;
    RG_TRY(resolve_conv(d, x, weights, &at, &w));
    RG_TRY(plain_windows(&at, &w));
    emit_windows(e, &w);
    rg_emit_int(e, "group", d->groups == 0 ? x->dims[3] : d->groups);
    return RG_OK;
}

/* Weights of MPS, (out, kh, kw, in / groups) with rotated windows, as (in, out / groups, kh, kw).
 */
static rg_status turn_weights(rg_export *e, const rg_value *value, int64_t groups,
                              const char **name)
{
    const int64_t *dims = value->desc.dims;
    const int64_t out = dims[0] / groups, in = dims[3];
    const int64_t to_dims[] = { in * groups, out, dims[1], dims[2] };
    const rg_tensor_desc desc = rg_tensor_desc_dense(RG_F64, 4, to_dims);
    double *from, *to = NULL;
    int64_t count;
    RG_CHECK(value->kind == RG_VALUE_PARAMETER, RG_UNSUPPORTED,
             "weights of the layout out_in that are no parameter");
    RG_TRY(rg_export_doubles(e, value, &from, &count));
    RG_TRY(rg_arena_take(&e->arena, (size_t)count, sizeof *to, &to));
    for (int64_t i = 0; i < count; i++) {
        const int64_t c = i % in, q = i / in % dims[2], p = i / in / dims[2] % dims[1];
        const int64_t o = i / in / dims[2] / dims[1], group = o / out;
        const int64_t row = (group * in + c) * out + o % out;
        to[(row * dims[1] + dims[1] - 1 - p) * dims[2] + dims[2] - 1 - q] = from[i];
    }
    return rg_export_changed(e, value, to, &desc, rg_plain_order, name);
}

static rg_status place_transposed(const rg_conv_transpose_desc *d, const rg_tensor_desc *x,
                                  const rg_tensor_desc *y, windows *w, int64_t extra[2])
{
    const rg_window window = { .source = { x->dims[1], x->dims[2] },
                               .window = { (int32_t)w->kernel[0], (int32_t)w->kernel[1] },
                               .stride = { d->stride[0], d->stride[1] },
                               .dilation = { d->dilation[0], d->dilation[1] },
                               .output = { d->output[0], d->output[1] },
                               .transposed = true };
    rg_placement at;
    RG_TRY(rg_padding_resolve(&d->padding, &window, &at));
    for (int i = 0; i < 2; i++) {
        const int64_t span = (w->kernel[i] - 1) * w->dilation[i] + 1;
        w->before[i] = d->by_offset ? d->kernel_offset[i] + span - 1 - span / 2 : at.before[i];
        w->after[i] = (x->dims[1 + i] - 1) * w->stride[i] + span - w->before[i] - y->dims[1 + i];
        extra[i] = w->after[i] < 0 ? -w->after[i] : 0;
        w->after[i] += extra[i];
        RG_CHECK(w->before[i] >= 0 && extra[i] < w->stride[i], RG_UNSUPPORTED,
                 "the result is larger than the windows cover");
    }
    return RG_OK;
}

rg_status rg_emit_transposed_windows(rg_export *e, const rg_conv_transpose_desc *d,
                                     const rg_tensor_desc *x, const rg_tensor_desc *weights,
                                     const rg_tensor_desc *y)
{
    windows w = { .kernel = { weights->dims[1], weights->dims[2] } };
    int64_t extra[2];
    copy_pair(w.stride, d->stride);
    copy_pair(w.dilation, d->dilation);
    RG_TRY(place_transposed(d, x, y, &w, extra));
    emit_windows(e, &w);
    rg_emit_int(e, "group", d->groups == 0 ? x->dims[3] : d->groups);
    return RG_OK;
}

rg_status rg_export_conv_transpose(rg_export *e, const rg_node *node)
{
    const rg_conv_transpose_desc *d = node->desc;
    const bool in_out = d->layout == RG_CONV_TRANSPOSE_IN_OUT;
    rg_form form;
    rg_weighted weighted = { .node = node };
    windows w = { 0 };
    int64_t extra[2];
    const rg_tensor_desc *weights = &e->values[node->in[1]->id].shape[0];
    RG_TRY(rg_export_image(e, node->in[0], &form));
    RG_TRY(check_image(&form));
    const rg_tensor_desc x = form.shape[0];
    const int64_t groups = d->groups == 0 ? x.dims[3] : d->groups;
    w.kernel[0] = weights->dims[1];
    w.kernel[1] = weights->dims[2];
    copy_pair(w.stride, d->stride);
    copy_pair(w.dilation, d->dilation);
    RG_TRY(place_transposed(d, &x, &e->values[node->out[0]->id].shape[0], &w, extra));
    const bool folds = groups == 1 && d->neuron.kind == RG_NEURON_NONE;
    if (in_out)
        RG_TRY(rg_export_weights(e, node, d->bias, folds ? 3 : -1, image_order, &weighted));
    else
        RG_TRY(turn_weights(e, node->in[1], groups, &weighted.weights));
    rg_form bias;
    if (!in_out && d->bias) {
        RG_TRY(rg_export_plain(e, node->in[2], &bias));
        weighted.bias = bias.name;
    }
    RG_TRY(rg_emit(e, "ConvTranspose"));
    rg_emit_input(e, form.name);
    rg_emit_input(e, weighted.weights);
    if (weighted.bias != NULL)
        rg_emit_input(e, weighted.bias);
    emit_windows(e, &w);
    if (extra[0] != 0 || extra[1] != 0)
        rg_emit_ints(e, "output_padding", extra, 2);
    rg_emit_int(e, "group", groups);
    RG_TRY(rg_form_made(e, &form));
    weighted.neuron = &d->neuron;
    return rg_export_weighted(e, &weighted, &form);
}

/* ---- pooling ---- */

static bool is_global(const windows *w, const rg_tensor_desc *x)
{
    bool global = true;
    for (int i = 0; i < 2; i++)
        global &= w->kernel[i] == x->dims[1 + i] && w->before[i] == 0 && w->after[i] == 0 &&
                  w->dilation[i] == 1;
    return global;
}

/* Padding of zeros that a maximum sees, or that is as long as a window, becomes a node. */
static rg_status settle_padding(rg_export *e, const rg_pool_desc *d, rg_form *form, windows *w)
{
    bool any = false, wide = false;
    for (int i = 0; i < 2; i++) {
        any |= w->before[i] > 0 || w->after[i] > 0;
        wide |= w->before[i] >= w->kernel[i] || w->after[i] >= w->kernel[i];
    }
    const bool zero = d->edge == RG_POOL_ZERO || d->kind == RG_POOL_L2;
    RG_CHECK(zero || !wide, RG_UNSUPPORTED, "a window contains no pixel");
    if (!zero || !any || (d->kind != RG_POOL_MAX && !wide))
        return RG_OK;
    RG_TRY(pad_image(e, form, w->before, w->after));
    /* ONNX Runtime joins Pad and MaxPool, and the zeros are lost, unless a node is between them. */
    if (d->kind == RG_POOL_MAX)
        RG_TRY(rg_form_clip(e, form, e->dtype == RG_F16 ? -65504 : -3e38, INFINITY));
    memset(w->before, 0, sizeof w->before);
    memset(w->after, 0, sizeof w->after);
    return RG_OK;
}

static rg_status check_pool(const rg_export *e, const rg_pool_desc *d, const windows *w)
{
    const bool dilated = w->dilation[0] != 1 || w->dilation[1] != 1;
    RG_CHECK(d->zero_pad[0] == 0 && d->zero_pad[1] == 0, RG_UNSUPPORTED, "zero_pad");
    RG_CHECK(!dilated || d->kind == RG_POOL_MAX ||
                 e->desc.opset >= (d->kind == RG_POOL_AVERAGE ? 19 : 18),
             RG_UNSUPPORTED, "dilation, which operator set %d does not have", e->desc.opset);
    return RG_OK;
}

/* Padding that is counted, with a last window that reaches beyond it, which is not. */
static bool counts_partly(const rg_pool_desc *d, const rg_placement *at)
{
    const bool beyond = at->after[0] > d->padding.bottom || at->after[1] > d->padding.right;
    return beyond && d->kind == RG_POOL_AVERAGE && d->edge == RG_POOL_CLAMP &&
           d->count_include_pad && d->ceil_mode && d->padding.policy == RG_PADDING_EXPLICIT;
}

static rg_status resolve_pool(const rg_pool_desc *d, const rg_tensor_desc *x, rg_placement *at,
                              windows *w)
{
    const rg_window window = { .source = { x->dims[1], x->dims[2] },
                               .window = { d->window[0], d->window[1] },
                               .stride = { d->stride[0], d->stride[1] },
                               .dilation = { d->dilation[0], d->dilation[1] },
                               .output = { d->output[0], d->output[1] },
                               .ceil_mode = d->ceil_mode };
    *w = (windows){ 0 };
    copy_pair(w->kernel, d->window);
    copy_pair(w->stride, d->stride);
    copy_pair(w->dilation, d->dilation);
    return rg_padding_resolve(&d->padding, &window, at);
}

static void emit_pool(rg_export *e, const rg_pool_desc *d, const rg_placement *at, windows *w)
{
    if (counts_partly(d, at)) {
        w->after[0] = d->padding.bottom;
        w->after[1] = d->padding.right;
        rg_emit_int(e, "ceil_mode", 1);
    }
    emit_windows(e, w);
    if (d->kind == RG_POOL_AVERAGE)
        rg_emit_int(e, "count_include_pad", d->edge == RG_POOL_ZERO || d->count_include_pad);
    if (d->indices)
        rg_emit_int(e, "storage_order", d->storage_order);
}

rg_status rg_emit_pool_windows(rg_export *e, const rg_pool_desc *d, const rg_tensor_desc *x)
{
    rg_placement at;
    windows w;
    RG_TRY(resolve_pool(d, x, &at, &w));
    RG_TRY(plain_windows(&at, &w));
    const bool padded = w.before[0] > 0 || w.before[1] > 0 || w.after[0] > 0 || w.after[1] > 0;
    RG_CHECK(d->kind != RG_POOL_MAX || d->edge == RG_POOL_CLAMP || !padded, RG_UNSUPPORTED,
             "the maximum over zero padding has no ONNX form here");
    emit_pool(e, d, &at, &w);
    return RG_OK;
}

/* Positions of maxima: an output of the graph, or what a gradient reads. */
static rg_status define_indices(rg_export *e, const rg_node *node, rg_form *form)
{
    const rg_pool_desc *d = node->desc;
    RG_TRY(rg_form_made(e, form));
    e->values[node->out[0]->id].extra[0] = form->name;
    return d->indices ? rg_export_define(e, node, 1, form) : RG_OK;
}

rg_status rg_export_pool(rg_export *e, const rg_node *node)
{
    static const char *const types[] = { "MaxPool", "AveragePool", "LpPool" };
    static const char *const global[] = { "GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool" };
    const rg_pool_desc *d = node->desc;
    const bool indices = d->indices || (d->kind == RG_POOL_MAX && rg_export_has_gradient(e, node));
    rg_form form;
    rg_placement at;
    windows w;
    RG_TRY(rg_export_image(e, node->in[0], &form));
    RG_TRY(check_image(&form));
    const rg_tensor_desc x = form.shape[0];
    RG_TRY(resolve_pool(d, &x, &at, &w));
    RG_TRY(check_pool(e, d, &w));
    RG_TRY(place_windows(e, &form, &at, &w));
    RG_TRY(settle_padding(e, d, &form, &w));
    const bool whole = is_global(&w, &x) && !indices;
    RG_TRY(rg_emit(e, whole ? global[d->kind] : types[d->kind]));
    rg_emit_input(e, form.name);
    if (!whole)
        emit_pool(e, d, &at, &w);
    rg_form positions = form;
    RG_TRY(rg_form_made(e, &form));
    RG_TRY(rg_export_define(e, node, 0, &form));
    return indices ? define_indices(e, node, &positions) : RG_OK;
}

/* ---- resizing and padding ---- */

/* Whether a factor of f32 gives exactly `to` pixels, in the arithmetic of f32 and in that of f64:
 * readers of models round down either product. */
static bool scale_fits(int64_t from, double scale, int64_t to)
{
    const float rounded = (float)scale;
    return floorf((float)from * rounded) == (float)to &&
           floor((double)from * (double)rounded) == (double)to;
}

/* The sizes of the result as an input of Resize: those of rows and columns, before operator set 18
 * after the first two dimensions of the image. */
static rg_status resized_sizes(rg_export *e, const rg_form *image, const int64_t pixels[2],
                               const char **name)
{
    static const int64_t first = 0, spatial = 2;
    const char *begin, *end;
    rg_form shape = *image;
    RG_TRY(rg_export_ints(e, pixels, 2, ".sizes", name));
    if (e->desc.opset >= 18)
        return RG_OK;
    RG_TRY(rg_export_ints(e, &first, 1, ".begin", &begin));
    RG_TRY(rg_export_ints(e, &spatial, 1, ".end", &end));
    RG_TRY(rg_form_unary(e, "Shape", &shape));
    RG_TRY(rg_emit(e, "Slice"));
    rg_emit_input(e, shape.name);
    rg_emit_input(e, begin);
    rg_emit_input(e, end);
    RG_TRY(rg_form_made(e, &shape));
    RG_TRY(rg_form_binary(e, "Concat", &shape, *name));
    rg_emit_int(e, "axis", 0);
    *name = shape.name;
    return RG_OK;
}

/* Factors of f32, whatever the dtype of values is. */
static rg_status resized_scales(rg_export *e, const double scale[2], const char **name)
{
    const int64_t dims[] = { 4 };
    const double scales[] = { 1, 1, scale[0], scale[1] };
    const rg_dtype kept = e->dtype;
    e->dtype = RG_F32;
    const rg_status status = rg_export_numbers(e, RG_F32, scales, 4, 1, dims, ".scales", name);
    e->dtype = kept;
    return status;
}

static void emit_upsample(rg_export *e, const rg_upsample_desc *d, bool sized)
{
    static const char *const grids[] = { "asymmetric", "half_pixel", "align_corners" };
    static const char *const rounds[] = { "floor", "ceil", "round_prefer_floor",
                                          "round_prefer_ceil" };
    static const int64_t axes[] = { 2, 3 };
    rg_emit_text(e, "mode", d->kind == RG_UPSAMPLE_NEAREST ? "nearest" : "linear");
    rg_emit_text(e, "coordinate_transformation_mode", grids[d->grid]);
    if (d->kind == RG_UPSAMPLE_NEAREST)
        rg_emit_text(e, "nearest_mode", rounds[d->round]);
    if (sized && e->desc.opset >= 18)
        rg_emit_ints(e, "axes", axes, 2);
}

rg_status rg_export_upsample(rg_export *e, const rg_node *node)
{
    const rg_upsample_desc *d = node->desc;
    const rg_tensor_desc *y = &e->values[node->out[0]->id].shape[0];
    const char *numbers;
    double scale[2];
    bool fits = true, whole = true;
    rg_form form;
    RG_TRY(rg_export_image(e, node->in[0], &form));
    RG_TRY(check_image(&form));
    for (int i = 0; i < 2; i++) {
        const int64_t from = form.shape[0].dims[1 + i], to = y->dims[1 + i];
        scale[i] = d->output[i] > 0 ? (double)to / (double)from : d->scale[i];
        fits &= scale_fits(from, scale[i], to);
        whole &=
            fabs((double)from * scale[i] - (double)to) < 1e-6; /* no part of a pixel is cut off */
    }
    const bool sized = !fits && whole;
    RG_TRY(sized ? resized_sizes(e, &form, y->dims + 1, &numbers)
                 : resized_scales(e, scale, &numbers));
    RG_TRY(rg_emit(e, "Resize"));
    rg_emit_input(e, form.name);
    rg_emit_input(e, "");
    if (sized)
        rg_emit_input(e, "");
    rg_emit_input(e, numbers);
    emit_upsample(e, d, sized);
    RG_TRY(rg_form_made(e, &form));
    return rg_export_define(e, node, 0, &form);
}

rg_status rg_export_pad(rg_export *e, const rg_node *node)
{
    static const char *const modes[] = { "constant", "constant", "edge", "reflect", NULL };
    const rg_pad_desc *d = node->desc;
    rg_form form;
    int64_t pads[8];
    RG_CHECK(modes[d->mode] != NULL, RG_UNSUPPORTED, "mode mirror_edge");
    RG_CHECK(!d->fill && !d->repeat, RG_UNSUPPORTED, "%s", d->fill ? "fill" : "repeat");
    RG_TRY(rg_export_any(e, node->in[0], &form));
    RG_TRY(check_image(&form));
    for (int32_t i = 0; i < 4; i++) {
        pads[form.order[i]] = d->before[i];
        pads[4 + form.order[i]] = d->after[i];
    }
    RG_TRY(rg_form_pad(e, &form, modes[d->mode], pads, d->mode == RG_PAD_CONSTANT ? d->value : 0));
    return rg_export_define(e, node, 0, &form);
}
