/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Convolutions that cut an image into patches, as vision transformers do: columns of a window are
 * channels of an image with fewer columns, another view of the same elements. Tensors whose
 * channels are no neighbours are copied. Large windows have too many taps for panels otherwise. */
#include "ops/conv/conv_record.h"
#include "ops/transpose/channels_last.h"

/* Adjacent windows that cover every column once. */
static bool cuts_columns(const rg_conv_shape *s)
{
    const rg_conv_axis *c = &s->column;
    return s->groups == 1 && c->window > 1 && c->window == c->stride && c->dilation == 1 &&
           c->before == 0 && c->count > 0 && c->size == c->count * c->window;
}

/* Steps of dense tensors. */
static void make_dense_image(rg_conv_shape *s)
{
    s->x[3] = 1;
    s->x[2] = s->in;
    s->x[1] = s->column.size * s->in;
    s->x[0] = s->row.size * s->x[1];
}

static void make_dense_weights(rg_conv_shape *s)
{
    s->w[4] = 1;
    s->w[3] = s->in;
    s->w[2] = s->column.window * s->in;
    s->w[1] = s->row.window * s->w[2];
    s->w[0] = s->out * s->w[1];
    s->w_first = 0;
}

/* Makes columns of a window channels, where neighbours are adjacent. */
static void fold(rg_conv_shape *s)
{
    const int64_t window = s->column.window;
    s->in *= window;
    s->x[2] *= window;
    s->w[3] *= window;
    s->x[3] = s->w[4] = 1;
    s->x_dense = true;
    s->column.size = s->column.count;
    s->column.window = s->column.stride = 1;
}

static bool accepts(const rg_call *call, const void *request)
{
    rg_conv_pass folded = *(const rg_conv_pass *)request;
    if (folded.is_transpose || !cuts_columns(&folded.shape))
        return false;
    make_dense_image(&folded.shape);
    make_dense_weights(&folded.shape);
    fold(&folded.shape);
    return rg_conv_panels_accept(call, &folded);
}

/* Smaller windows are as fast without. */
static bool prefers(const rg_call *call, const void *request)
{
    return !rg_conv_panels_accept(call, request);
}

static rg_status record_folded(rg_call *call, const rg_conv_pass *folded)
{
    const bool pairs =
        rg_conv_by_pairs.accepts(call, folded) && rg_conv_by_pairs.prefers(call, folded);
    return pairs ? rg_conv_by_pairs.record(call, folded) : rg_conv_by_panels.record(call, folded);
}

static bool are_neighbours(const int64_t steps[2], int64_t channels)
{
    return steps[0] == channels && (channels == 1 || steps[1] == 1);
}

static rg_status record(rg_call *call, const void *request)
{
    const rg_conv_pass *p = request;
    const bool data = p->kernel == RG_CONV_DATA, weights = p->kernel == RG_CONV_WEIGHTS;
    rg_conv_pass folded = *p;
    rg_conv_shape *s = &folded.shape;
    const rg_tensor **image = data ? &folded.to : weights ? &folded.x : &folded.from;
    const rg_tensor **w = weights ? &folded.dw : &folded.w;
    rg_tensor *image_copy = NULL, *w_copy = NULL;
    rg_status status = RG_OK;
    if (!are_neighbours(&s->x[2], s->in)) {
        RG_TRY(rg_channels_last_copy(call, *image, !data || p->add, &image_copy));
        *image = image_copy;
        make_dense_image(s);
    }
    if (!are_neighbours(&s->w[3], s->in)) {
        status = rg_channels_last_copy(call, *w, !weights || p->add, &w_copy);
        *w = w_copy;
        make_dense_weights(s);
    }
    fold(s);
    if (status == RG_OK)
        status = record_folded(call, &folded);
    if (status == RG_OK && data)
        status = rg_channels_last_copy_back(call, image_copy, p->to);
    if (status == RG_OK && weights)
        status = rg_channels_last_copy_back(call, w_copy, p->dw);
    rg_tensor_destroy(image_copy);
    rg_tensor_destroy(w_copy);
    return status;
}

const rg_strategy rg_conv_by_patches = { "patches", accepts, record, prefers };
