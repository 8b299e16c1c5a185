/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Upsample: description, validation, shape rule, forward, gradient. */
#include "ops/upsample/upsample.h"
#include "core/integer.h"
#include "ops/ops.h"
#include "runtime/objects.h"
#include "ops/transpose/channels_last.h"

#include <retrograde/upsample.h>

/* ---- description ---- */

static const rg_upsample_desc defaults = {
    .size = sizeof(rg_upsample_desc),
    .kind = RG_UPSAMPLE_NEAREST,
    .grid = RG_UPSAMPLE_ASYMMETRIC,
    .round = RG_UPSAMPLE_FLOOR,
    .scale = { 2, 2 },
    .output = { 0, 0 },
};

rg_upsample_desc rg_upsample_desc_default(void)
{
    return defaults;
}

static const char *const kinds[] = { "nearest", "bilinear", NULL };
static const char *const grids[] = { "asymmetric", "half_pixel", "align_corners", NULL };
static const char *const rounds[] = { "floor", "ceil", "prefer_floor", "prefer_ceil", NULL };

static const rg_field fields[] = {
    RG_FIELD_NAMED(rg_upsample_desc, kind, kinds, "nearest or bilinear interpolation"),
    RG_FIELD_NAMED(rg_upsample_desc, grid, grids,
                   "source position of output o: o / s, (o + 1/2) / s - 1/2, or aligned corners"),
    RG_FIELD_NAMED(rg_upsample_desc, round, rounds, "nearest: rounding of source positions"),
    RG_FIELD(rg_upsample_desc, scale, "factors of rows and columns"),
    RG_FIELD_IN(rg_upsample_desc, output, 0, INT32_MAX,
                "rows and columns of the output; 0: computed from the scale"),
    { .name = NULL },
};

#define IMAGE      "sourceImage=x destinationImage=y"
#define IMAGE_GRAD "sourceGradient=dy sourceImage=x destinationGradient=dx"

static const rg_op_name names[] = {
    { "MPSCNNUpsamplingGradient", true, "kind=nearest", IMAGE_GRAD, 3, 4 },
    { "MPSCNNUpsamplingNearest", false, "kind=nearest", IMAGE, 3, 4 },
    { "MPSCNNUpsamplingNearestGradient", true, "kind=nearest", IMAGE_GRAD, 3, 4 },
    { "MPSCNNUpsamplingBilinear", false, "kind=bilinear", IMAGE, 3, 4 },
    { "MPSCNNUpsamplingBilinearGradient", true, "kind=bilinear", IMAGE_GRAD, 3, 4 },
    { "MPSNNResizeBilinear", false, "kind=bilinear", IMAGE, 3, 4 },
    { .name = NULL },
};

/* ---- validation, shape rule ---- */

static const char *const axis_names[] = { "rows", "columns" };

static rg_status check(const void *desc)
{
    const rg_upsample_desc *d = desc;
    for (int a = 0; a < 2; a++) {
        RG_CHECK(d->scale[a] > 0 && d->scale[a] <= INT32_MAX, RG_INVALID_ARGUMENT,
                 "upsample: the scale of %s is %g; it must be greater than 0 and at most %d",
                 axis_names[a], d->scale[a], INT32_MAX);
    }
    return RG_OK;
}

/* Rows or columns of the output. Both sizes stay below 2^31, so that the grid is exact in double
 * far beyond any real image. */
static rg_status output_size(const rg_upsample_desc *d, int a, int64_t in, int64_t *out)
{
    RG_CHECK(in <= INT32_MAX, RG_UNSUPPORTED, "upsample: x has %lld %s; at most %d are supported",
             (long long)in, axis_names[a], INT32_MAX);
    if (d->output[a] > 0) {
        RG_CHECK(in > 0, RG_INVALID_ARGUMENT, "upsample: output has %lld %s, but x has none",
                 (long long)d->output[a], axis_names[a]);
        *out = d->output[a];
        return RG_OK;
    }
    const double size = (double)in * d->scale[a];
    RG_CHECK(size < (double)INT32_MAX + 1, RG_INVALID_ARGUMENT,
             "upsample: %lld %s with a scale of %g give more than %d", (long long)in, axis_names[a],
             d->scale[a], INT32_MAX);
    *out = (int64_t)size;
    RG_CHECK(in == 0 || *out > 0, RG_INVALID_ARGUMENT,
             "upsample: %lld %s with a scale of %g give an empty output", (long long)in,
             axis_names[a], d->scale[a]);
    return RG_OK;
}

static rg_status shapes(const void *desc, const rg_tensor_desc x[], rg_tensor_desc y[])
{
    const int32_t rank = x->rank;
    RG_CHECK(rg_dtype_is_data(x->dtype), RG_INVALID_ARGUMENT,
             "upsample: x is %s; f32, f64, f16 and bf16 are supported", rg_dtype_name(x->dtype));
    RG_CHECK(rank == 3 || rank == 4, RG_INVALID_ARGUMENT,
             "upsample: x has rank %d; it must be (n, h, w, c) or (h, w, c)", rank);
    int64_t dims[4];
    memcpy(dims, x->dims, (size_t)rank * sizeof dims[0]);
    for (int a = 0; a < 2; a++)
        RG_TRY(output_size(desc, a, x->dims[rank - 3 + a], &dims[rank - 3 + a]));
    y[0] = rg_tensor_desc_dense(x->dtype, rank, dims);
    return rg_shape_check(&y[0], "upsample: y", NULL);
}

static uint32_t reads(const void *desc)
{
    (void)desc;
    return 0;
}

static bool joins(const void *desc, const rg_tensor_desc x[])
{
    (void)desc;
    return x->rank == 4;
}

/* ---- forward and gradient ---- */

static rg_upsample_axis axis_of(const rg_upsample_desc *d, int a, int64_t in, int64_t out)
{
    rg_upsample_axis axis = { .in = in, .out = out, .num = (double)in, .den = (double)out };
    if (d->output[a] == 0) {
        axis.num = 1;
        axis.den = d->scale[a];
    }
    if (d->grid == RG_UPSAMPLE_ALIGN_CORNERS) {
        axis.num = out > 1 ? (double)(in - 1) : 0;
        axis.den = out > 1 ? (double)(out - 1) : 1;
    }
    axis.half = d->grid == RG_UPSAMPLE_HALF_PIXEL ? 0.5 : 0;
    axis.tap = d->kind == RG_UPSAMPLE_BILINEAR ? RG_TAP_LINEAR : RG_TAP_FLOOR + (int32_t)d->round;
    return axis;
}

/* Rows of a result that make a tile: enough bytes to be worth taking, and few tiles, whose first
 * rows mix what the tile before has mixed. */
static int64_t choose_rows(int64_t row, int64_t all)
{
    enum { TILES = 64, LEAST = 128 << 10, MOST = 512 << 10 };
    const int64_t tile = rg_clamp(all / TILES, LEAST, MOST);
    return row >= tile ? 1 : tile / (row > 0 ? row : 1);
}

/* Arithmetic hides streaming stores, copies of pixels do not. */
static bool streams(const rg_call *call, int64_t result, int64_t all)
{
    const rg_upsample_desc *d = call->desc;
    return d->kind == RG_UPSAMPLE_NEAREST ? rg_call_copy_streams(call, result, all)
                                          : rg_call_streams(call, result);
}

/* Fills in the args from the smaller-indexed side `x` and the side `y`, of which `to` is written,
 * and records. */
static rg_status record(rg_call *call, const rg_tensor *x, const rg_tensor *y, bool gradient)
{
    const rg_tensor *from = gradient ? y : x, *to = gradient ? x : y;
    const rg_tensor_desc *in = &x->desc, *out = &y->desc;
    const int32_t h = in->rank - 3;
    rg_upsample_args args = { .images = h > 0 ? in->dims[0] : 1, .channels = in->dims[h + 2] };
    for (int a = 0; a < 2; a++)
        args.axes[a] = axis_of(call->desc, a, in->dims[h + a], out->dims[h + a]);
    const rg_tensor_desc *sides[] = { &from->desc, &to->desc };
    args.dense = true;
    for (int t = 0; t < 2; t++) {
        for (int32_t d = 0; d < in->rank; d++)
            args.strides[t][4 - in->rank + d] = sides[t]->strides[d];
        args.dense &= sides[t]->strides[h + 2] == 1 || args.channels == 1;
    }
    const int64_t size = (int64_t)rg_dtype_size(in->dtype), count = rg_shape_count(&to->desc);
    const int64_t moved = (rg_shape_count(in) + rg_shape_count(out)) * size;
    args.add = gradient && call->add & 1;
    args.stream = !args.add && streams(call, count * size, moved);
    const rg_launch launch = {
        .kernel = gradient ? RG_UPSAMPLE_GRADIENT : RG_UPSAMPLE_FORWARD,
        .dtype = in->dtype,
        RG_ARGS(args),
        .tensors = { RG_BIND(args, from, from), RG_BIND(args, to, to) },
        .units = count > 0 ? args.images * to->desc.dims[h] : 0,
        .grain = choose_rows(to->desc.dims[h + 1] * args.channels * size, count * size),
        .bytes = moved,
    };
    return rg_record(call, &launch);
}

static rg_status forward(rg_call *call)
{
    return record(call, call->x[0], call->y[0], false);
}

static rg_status gradient(rg_call *call)
{
    return record(call, call->dx[0], call->dy[0], true);
}

static rg_status forward_by_channels(rg_call *call)
{
    return rg_channels_last_forward(call, forward);
}

static rg_status gradient_by_channels(rg_call *call)
{
    return rg_channels_last_gradient(call, gradient);
}

RG_OP_DEFINE(upsample, .text = "resizing of images by nearest or bilinear interpolation",
             .desc = { fields, &defaults, sizeof defaults },
             .inputs = (const char *const[]){ "x", NULL },
             .outputs = (const char *const[]){ "y", NULL }, .names = names, .check = check,
             .shapes = shapes, .reads = reads, .joins = joins, .forward = forward_by_channels,
             .gradient = gradient_by_channels, .fusion = { .is_cheap = true });

rg_status rg_upsample_create(rg_device *device, const rg_upsample_desc *desc, rg_kernel **kernel)
{
    return rg_kernel_create(device, &rg_op_upsample, desc, kernel);
}
