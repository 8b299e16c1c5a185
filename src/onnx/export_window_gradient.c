/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Gradient nodes of transposed convolutions, resizing, padding and local response normalization as
 * operators. */
#include "onnx/export.h"

#include <retrograde/nodes.h>

#include <string.h>

/* dw: that of the convolution which goes the other way, from y to x. */
static rg_status transposed_weights(rg_export *e, const rg_node *node, const rg_form *x,
                                    const rg_form *w, const rg_form *dy)
{
    rg_form made = *w;
    RG_TRY(rg_emit_runtime(e, "ConvGrad"));
    rg_emit_input(e, x->name);
    rg_emit_input(e, dy->name);
    rg_emit_input(e, w->name);
    RG_TRY(rg_emit_transposed_windows(e, node->desc, &x->shape[0], &w->shape[0], &dy->shape[0]));
    rg_emit_output(e, "");
    RG_TRY(rg_form_made(e, &made));
    return rg_export_define(e, node, 1, &made);
}

rg_status rg_export_conv_transpose_gradient(rg_export *e, const rg_node *node)
{
    static const bool but_channels[] = { true, true, true, false };
    const rg_conv_transpose_desc *d = node->desc;
    rg_form x, w, dy;
    RG_CHECK(d->layout == RG_CONV_TRANSPOSE_IN_OUT, RG_UNSUPPORTED, "weights of the layout out_in");
    RG_TRY(rg_export_image(e, node->x[0], &x));
    RG_TRY(rg_export_image(e, node->x[1], &w));
    RG_TRY(rg_export_image(e, node->in[0], &dy));
    RG_TRY(rg_form_before_neuron(e, node, &d->neuron, &dy));
    if (node->out[0] != NULL) {
        rg_form made = x;
        RG_TRY(rg_emit(e, "Conv"));
        rg_emit_input(e, dy.name);
        rg_emit_input(e, w.name);
        RG_TRY(rg_emit_transposed_windows(e, d, &x.shape[0], &w.shape[0], &dy.shape[0]));
        RG_TRY(rg_form_made(e, &made));
        RG_TRY(rg_export_define(e, node, 0, &made));
    }
    if (node->out[1] != NULL)
        RG_TRY(transposed_weights(e, node, &x, &w, &dy));
    if (!d->bias || node->out[2] == NULL)
        return RG_OK;
    RG_TRY(rg_form_sum(e, &dy, but_channels, false));
    return rg_export_define(e, node, 2, &dy);
}

/* What is cut off had been added, and the other way round. */
rg_status rg_export_pad_gradient(rg_export *e, const rg_node *node)
{
    const rg_pad_desc *d = node->desc;
    rg_form dy;
    int64_t pads[8];
    RG_CHECK(d->mode == RG_PAD_ZERO || (d->mode == RG_PAD_CONSTANT && !d->fill), RG_UNSUPPORTED,
             "padding with other pixels than constant ones");
    RG_TRY(rg_export_any(e, node->in[0], &dy));
    RG_CHECK(dy.shape[0].rank == 4, RG_UNSUPPORTED, "an image without a dimension for the batch");
    for (int32_t i = 0; i < 4; i++) {
        pads[dy.order[i]] = -d->before[i];
        pads[4 + dy.order[i]] = -d->after[i];
    }
    memcpy(dy.shape, e->values[node->x[0]->id].shape, sizeof dy.shape);
    RG_TRY(rg_form_pad(e, &dy, "constant", pads, 0));
    return rg_export_define_gradient(e, node, 0, &dy);
}

/* Whole factors of nearest pixels: sums of blocks, which are their means times their sizes. */
rg_status rg_export_upsample_gradient(rg_export *e, const rg_node *node)
{
    const rg_upsample_desc *d = node->desc;
    const rg_tensor_desc *x = e->values[node->x[0]->id].shape;
    rg_form dy;
    int64_t factor[2];
    RG_TRY(rg_export_image(e, node->in[0], &dy));
    RG_CHECK(dy.shape[0].rank == 4, RG_UNSUPPORTED, "an image without a dimension for the batch");
    const bool blocks =
        d->kind == RG_UPSAMPLE_NEAREST &&
        ((d->grid == RG_UPSAMPLE_ASYMMETRIC && d->round == RG_UPSAMPLE_FLOOR) ||
         (d->grid == RG_UPSAMPLE_HALF_PIXEL &&
          (d->round == RG_UPSAMPLE_PREFER_FLOOR || d->round == RG_UPSAMPLE_PREFER_CEIL)));
    for (int i = 0; i < 2; i++) {
        const int64_t from = x->dims[1 + i], to = dy.shape[0].dims[1 + i];
        factor[i] = from > 0 ? to / from : 0;
        const bool whole = d->output[i] > 0 || d->scale[i] == (double)factor[i];
        RG_CHECK(blocks && whole && factor[i] > 0 && from * factor[i] == to, RG_UNSUPPORTED,
                 "resizing other than by repeating each pixel");
    }
    RG_TRY(rg_emit(e, "AveragePool"));
    rg_emit_input(e, dy.name);
    rg_emit_ints(e, "kernel_shape", factor, 2);
    rg_emit_ints(e, "strides", factor, 2);
    memcpy(dy.shape, e->values[node->x[0]->id].shape, sizeof dy.shape);
    RG_TRY(rg_form_made(e, &dy));
    RG_TRY(rg_form_times(e, &dy, (double)(factor[0] * factor[1])));
    return rg_export_define_gradient(e, node, 0, &dy);
}

/* ---- local response normalization ---- */

/* The mean over `window` channels, the last dimension of the file, less than whole ones at its ends
 * as if 0 were there. */
static rg_status channel_means(rg_export *e, rg_form *form, int64_t window)
{
    const int64_t kernel[] = { 1, window }, half = window / 2, pads[] = { 0, half, 0, half };
    RG_TRY(rg_emit(e, "AveragePool"));
    rg_emit_input(e, form->name);
    rg_emit_ints(e, "kernel_shape", kernel, 2);
    rg_emit_ints(e, "pads", pads, 4);
    rg_emit_int(e, "count_include_pad", 1);
    return rg_form_made(e, form);
}

static rg_status power(rg_export *e, rg_form *form, double exponent)
{
    const char *number;
    RG_TRY(rg_export_number(e, form->shape[0].dtype, exponent, &number));
    return rg_form_binary(e, "Pow", form, number);
}

/* dx = dy L^-beta - 2 alpha beta x mean(dy x L^(-beta - 1)), L = delta + alpha mean(x^2) */
rg_status rg_export_lrn_gradient(rg_export *e, const rg_node *node)
{
    const rg_lrn_desc *d = node->desc;
    rg_form x, dy, l, g;
    RG_CHECK(d->window % 2 == 1, RG_UNSUPPORTED, "an even window");
    RG_TRY(rg_export_plain(e, node->x[0], &x));
    RG_TRY(rg_export_plain(e, node->in[0], &dy));
    RG_CHECK(x.shape[0].rank == 4, RG_UNSUPPORTED, "rank %d", x.shape[0].rank);
    l = x;
    RG_TRY(rg_form_binary(e, "Mul", &l, x.name));
    RG_TRY(channel_means(e, &l, d->window));
    RG_TRY(rg_form_times(e, &l, d->alpha));
    RG_TRY(rg_form_plus(e, &l, d->delta));
    g = l;
    RG_TRY(power(e, &l, -d->beta));
    RG_TRY(power(e, &g, -d->beta - 1));
    RG_TRY(rg_form_binary(e, "Mul", &g, x.name));
    RG_TRY(rg_form_binary(e, "Mul", &g, dy.name));
    RG_TRY(channel_means(e, &g, d->window));
    RG_TRY(rg_form_binary(e, "Mul", &g, x.name));
    RG_TRY(rg_form_times(e, &g, 2 * d->alpha * d->beta));
    RG_TRY(rg_form_binary(e, "Mul", &dy, l.name));
    RG_TRY(rg_form_binary(e, "Sub", &dy, g.name));
    return rg_export_define_gradient(e, node, 0, &dy);
}
