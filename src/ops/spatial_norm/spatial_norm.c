/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Spatial normalisation: description, shape rule, forward, gradient. */
#include "ops/spatial_norm/spatial_norm.h"
#include "ops/ops.h"
#include "ops/window_norm/clip_record.h"

#include <retrograde/spatial_norm.h>

#include <float.h>

/* ---- description ---- */

static const rg_spatial_norm_desc defaults = {
    .size = sizeof(rg_spatial_norm_desc),
    .window = { 5, 5 },
    .alpha = 1,
    .beta = 5,
    .delta = 1,
};

rg_spatial_norm_desc rg_spatial_norm_desc_default(void)
{
    return defaults;
}

static const rg_field fields[] = {
    RG_FIELD_IN(rg_spatial_norm_desc, window, 1, INT32_MAX, "rows and columns of a window"),
    RG_FIELD_IN(rg_spatial_norm_desc, alpha, 0, DBL_MAX, "factor of the mean square"),
    RG_FIELD_IN(rg_spatial_norm_desc, beta, -DBL_MAX, DBL_MAX, "exponent of the divisor"),
    RG_FIELD_IN(rg_spatial_norm_desc, delta, 0, DBL_MAX, "added to the mean square"),
    RG_FIELD(rg_spatial_norm_desc, offset, "pixel of x under the first pixel of y; rows, columns"),
    RG_FIELD_IN(rg_spatial_norm_desc, output, 0, 0x1p56, "rows and columns of y; 0: those of x"),
    { .name = NULL },
};

#define IMAGE      "sourceImage=x destinationImage=y"
#define IMAGE_GRAD "sourceGradient=dy sourceImage=x destinationGradient=dx"

static const rg_op_name names[] = {
    { "MPSCNNSpatialNormalization", false, "", IMAGE, 3, 4 },
    { "MPSCNNSpatialNormalizationGradient", true, "", IMAGE_GRAD, 3, 4 },
    { .name = NULL },
};

/* ---- shape rule ---- */

static rg_box_clip clip_of(const rg_spatial_norm_desc *d)
{
    return (rg_box_clip){ d->window, d->offset, d->output };
}

static rg_status shapes(const void *desc, const rg_tensor_desc x[], rg_tensor_desc y[])
{
    const rg_box_clip clip = clip_of(desc);
    return rg_box_clip_shapes("spatial_norm", &clip, x, y);
}

static uint32_t reads(const void *desc)
{
    (void)desc;
    return RG_READS_X;
}

static bool joins(const void *desc, const rg_tensor_desc x[])
{
    (void)desc;
    return x->rank == 4;
}

/* ---- forward and gradient ---- */

static rg_power_numbers numbers_of(const rg_spatial_norm_desc *d)
{
    const double count = (double)d->window[0] * d->window[1];
    return rg_power_numbers_make(d->alpha, d->beta, d->delta, count);
}

static rg_status whole_forward(rg_call *call)
{
    const rg_spatial_norm_desc *d = call->desc;
    rg_spatial_norm_args args = { .numbers = numbers_of(d) };
    rg_launch launch = { .tensors = { RG_BIND(args, x, call->x[0]), RG_BIND(args, y, call->y[0]) },
                         .kernel = RG_SPATIAL_NORM_FORWARD,
                         RG_ARGS(args),
                         .scratch_at = RG_POINTER(args, scratch) };
    const int64_t bytes = rg_box_lay_out(launch.tensors, 2, d->window, 1, &args.shape, &launch);
    args.shape.stream = rg_call_streams(call, bytes);
    return rg_record(call, &launch);
}

static rg_status whole_gradient(rg_call *call)
{
    const rg_spatial_norm_desc *d = call->desc;
    rg_spatial_norm_gradient_args args = { .numbers = numbers_of(d) };
    rg_launch launch = { .tensors = { RG_BIND(args, dy, call->dy[0]), RG_BIND(args, x, call->x[0]),
                                      RG_BIND(args, dx, call->dx[0]) },
                         .kernel = RG_SPATIAL_NORM_GRADIENT,
                         RG_ARGS(args),
                         .scratch_at = RG_POINTER(args, scratch) };
    const int64_t bytes = rg_box_lay_out(launch.tensors, 3, d->window, 1, &args.shape, &launch);
    args.shape.add = call->add & 1;
    args.shape.stream = !args.shape.add && rg_call_streams(call, bytes);
    return rg_record(call, &launch);
}

static rg_status forward(rg_call *call)
{
    const rg_box_clip clip = clip_of(call->desc);
    return rg_box_clip_forward(call, &clip, whole_forward);
}

static rg_status gradient(rg_call *call)
{
    const rg_box_clip clip = clip_of(call->desc);
    return rg_box_clip_gradient(call, &clip, whole_gradient);
}

RG_OP_DEFINE(spatial_norm, .text = "spatial normalization over a window of pixels",
             .desc = { fields, &defaults, sizeof defaults },
             .inputs = (const char *const[]){ "x", NULL },
             .outputs = (const char *const[]){ "y", NULL }, .names = names, .shapes = shapes,
             .reads = reads, .joins = joins, .forward = forward, .gradient = gradient);

rg_status rg_spatial_norm_create(rg_device *device, const rg_spatial_norm_desc *desc,
                                 rg_kernel **kernel)
{
    return rg_kernel_create(device, &rg_op_spatial_norm, desc, kernel);
}
