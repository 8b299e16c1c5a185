/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Pad: description, validation, shape rule, forward, gradient. */
#include "ops/pad/pad.h"
#include "core/integer.h"
#include "ops/ops.h"
#include "runtime/objects.h"

#include <retrograde/pad.h>

/* ---- description ---- */

static const rg_pad_desc defaults = {
    .size = sizeof(rg_pad_desc),
    .mode = RG_PAD_ZERO,
};

rg_pad_desc rg_pad_desc_default(void)
{
    return defaults;
}

static const char *const modes[] = { "zero", "constant", "clamp", "mirror", "mirror_edge", NULL };

/* Paddings are at most 2^56, so that a length and two paddings add up without overflow. */
static const rg_field fields[] = {
    RG_FIELD_NAMED(rg_pad_desc, mode, modes, "values of the padding"),
    RG_FIELD_IN(rg_pad_desc, before, -0x1p56, 0x1p56,
                "images, rows, columns, channels added before; negative: crop"),
    RG_FIELD_IN(rg_pad_desc, after, -0x1p56, 0x1p56,
                "images, rows, columns, channels added after; negative: crop"),
    RG_FIELD(rg_pad_desc, value, "constant: fill value"),
    RG_FIELD(rg_pad_desc, fill, "constant: a second input has a fill value for each channel of y"),
    RG_FIELD(rg_pad_desc, repeat, "mirror repeatedly if the padding is longer than the image"),
    { .name = NULL },
};

#define IMAGE      "sourceImage=x destinationImage=y fillValueArray=fill"
#define IMAGE_GRAD "sourceGradient=dy sourceImage=x destinationGradient=dx"

static const rg_op_name names[] = {
    { "MPSNNPad", false, "repeat=true", IMAGE, 3, 4 },
    { "MPSNNPadGradient", true, "repeat=true", IMAGE_GRAD, 3, 4 },
    { .name = NULL },
};

/* ---- validation, shape rule ---- */

static rg_status check(const void *desc)
{
    const rg_pad_desc *d = desc;
    RG_CHECK(!d->fill || d->mode == RG_PAD_CONSTANT, RG_INVALID_ARGUMENT,
             "pad: fill requires mode constant, not %s", modes[d->mode]);
    return RG_OK;
}

static const char *const axis_names[] = { "images", "rows", "columns", "channels" };

static rg_status check_mirror(const rg_pad_desc *d, int a, int64_t in)
{
    const int64_t longest = d->mode == RG_PAD_MIRROR ? in - 1 : in;
    RG_CHECK(
        d->repeat || (d->before[a] <= longest && d->after[a] <= longest), RG_INVALID_ARGUMENT,
        "pad: %lld and %lld %s cannot be added around %lld; %s without repeat can add at most %lld",
        (long long)d->before[a], (long long)d->after[a], axis_names[a], (long long)in,
        modes[d->mode], (long long)longest);
    return RG_OK;
}

static rg_status output_size(const rg_pad_desc *d, int a, int64_t in, int64_t *out)
{
    const int64_t before = d->before[a], after = d->after[a];
    *out = in + before + after;
    RG_CHECK(*out >= 0, RG_INVALID_ARGUMENT,
             "pad: %lld %s with %lld before and %lld after give %lld", (long long)in, axis_names[a],
             (long long)before, (long long)after, (long long)*out);
    const bool fills = d->mode == RG_PAD_ZERO || d->mode == RG_PAD_CONSTANT;
    RG_CHECK(in > 0 || *out == 0 || fills, RG_INVALID_ARGUMENT,
             "pad: x has no %s for mode %s to repeat", axis_names[a], modes[d->mode]);
    if ((d->mode == RG_PAD_MIRROR || d->mode == RG_PAD_MIRROR_EDGE) && in > 0)
        RG_TRY(check_mirror(d, a, in));
    return RG_OK;
}

static rg_status shapes(const void *desc, const rg_tensor_desc x[], rg_tensor_desc y[])
{
    const rg_pad_desc *d = desc;
    const int32_t rank = x->rank, skipped = 4 - rank;
    RG_CHECK(rg_dtype_is_data(x->dtype), RG_INVALID_ARGUMENT,
             "pad: x is %s; f32, f64, f16 and bf16 are supported", rg_dtype_name(x->dtype));
    RG_CHECK(rank == 3 || rank == 4, RG_INVALID_ARGUMENT,
             "pad: x has rank %d; it must be (n, h, w, c) or (h, w, c)", rank);
    RG_CHECK(rank == 4 || (d->before[0] == 0 && d->after[0] == 0), RG_INVALID_ARGUMENT,
             "pad: x has rank 3 and cannot be padded by %lld and %lld images",
             (long long)d->before[0], (long long)d->after[0]);
    int64_t dims[4];
    for (int32_t i = 0; i < rank; i++)
        RG_TRY(output_size(d, skipped + i, x->dims[i], &dims[i]));
    y[0] = rg_tensor_desc_dense(x->dtype, rank, dims);
    RG_TRY(rg_shape_check(&y[0], "pad: y", NULL));
    if (d->fill) {
        const rg_tensor_desc wanted = rg_tensor_desc_dense(x->dtype, 1, &dims[rank - 1]);
        char have[RG_SHAPE_TEXT], want[RG_SHAPE_TEXT];
        RG_CHECK(x[1].dtype == x->dtype && rg_shape_same_dims(&x[1], &wanted), RG_INVALID_ARGUMENT,
                 "pad: fill is %s, but must be %s: one element per channel of y",
                 rg_shape_text(&x[1], have), rg_shape_text(&wanted, want));
    }
    return RG_OK;
}

static int32_t count_inputs(const void *desc)
{
    return ((const rg_pad_desc *)desc)->fill ? 2 : 1;
}

static uint32_t reads(const void *desc)
{
    (void)desc;
    return 0;
}

static bool joins(const void *desc, const rg_tensor_desc x[])
{
    const rg_pad_desc *d = desc;
    return x->rank == 4 && d->before[0] == 0 && d->after[0] == 0 && !d->fill;
}

/* ---- forward and gradient ---- */

static int32_t edge_of(rg_pad_mode mode, int64_t in)
{
    if (mode == RG_PAD_ZERO || mode == RG_PAD_CONSTANT)
        return RG_EDGE_FILL;
    if (mode == RG_PAD_CLAMP || in == 1) /* nothing else to mirror */
        return RG_EDGE_CLAMP;
    return mode == RG_PAD_MIRROR ? RG_EDGE_MIRROR : RG_EDGE_MIRROR_EDGE;
}

static rg_pad_axis axis_of(const rg_pad_desc *d, int a, int64_t in, int64_t out, bool gradient)
{
    const int64_t before = d->before[a], after = d->after[a];
    rg_pad_axis axis = { .in = in, .out = out, .before = before, .edge = edge_of(d->mode, in) };
    if (!gradient) {
        axis.begin = rg_clamp(before, 0, out);
        axis.end = rg_clamp(before + in, axis.begin, out);
        return axis;
    }
    /* A border copies only inputs within padding + 1 of it. */
    const bool copies = axis.edge != RG_EDGE_FILL;
    axis.begin = rg_clamp(before <= 0 ? -before : copies ? before + 1 : 0, 0, in);
    axis.end = rg_clamp(after <= 0 ? in + after : copies ? in - after - 1 : in, axis.begin, in);
    return axis;
}

/* Rows of a result that make a tile: enough bytes to be worth taking. */
static int64_t choose_rows(int64_t row)
{
    enum { TILE = 128 << 10 };
    return row >= TILE ? 1 : TILE / (row > 0 ? row : 1);
}

/* Whether the inner pixels of a row are one run of neighbours in both tensors. */
static bool is_run(const rg_pad_args *args)
{
    const rg_pad_axis *channels = &args->axes[3];
    bool run = args->dense && channels->in == channels->out && channels->before == 0;
    for (int t = 0; t < 2; t++)
        run &= args->strides[t][2] == channels->in;
    return run;
}

static rg_pad_args make_args(const rg_call *call, const rg_tensor_desc *x, const rg_tensor_desc *y,
                             bool gradient)
{
    const rg_pad_desc *d = call->desc;
    const rg_tensor_desc *sides[] = { gradient ? y : x, gradient ? x : y };
    const int32_t skipped = 4 - x->rank;
    rg_pad_args args = { .value = d->mode == RG_PAD_CONSTANT ? d->value : 0, .dense = true };
    if (skipped > 0)
        args.axes[0] = axis_of(d, 0, 1, 1, gradient);
    for (int32_t i = 0; i < x->rank; i++) {
        args.axes[skipped + i] = axis_of(d, skipped + i, x->dims[i], y->dims[i], gradient);
        for (int t = 0; t < 2; t++)
            args.strides[t][skipped + i] = sides[t]->strides[i];
    }
    for (int t = 0; t < 2; t++)
        args.dense &= args.strides[t][3] == 1 || sides[t]->dims[x->rank - 1] == 1;
    return args;
}

static rg_status forward(rg_call *call)
{
    const rg_tensor_desc *x = &call->x[0]->desc, *y = &call->y[0]->desc;
    const rg_tensor *fill = call->inputs > 1 ? call->x[1] : NULL;
    const int64_t size = (int64_t)rg_dtype_size(x->dtype), count = rg_shape_count(y);
    rg_pad_args args = make_args(call, x, y, false);
    args.fill_stride = fill != NULL ? fill->desc.strides[0] : 0;
    args.dense &= fill == NULL || args.fill_stride == 1 || fill->desc.dims[0] == 1;
    args.run = is_run(&args);
    args.stream = rg_call_streams(call, count * size);
    const rg_launch launch = {
        .kernel = RG_PAD_FORWARD,
        .dtype = x->dtype,
        RG_ARGS(args),
        .tensors = { RG_BIND(args, from, call->x[0]), RG_BIND(args, to, call->y[0]),
                     RG_BIND(args, fill, fill) },
        .units = count > 0 ? args.axes[0].out * args.axes[1].out : 0,
        .grain = choose_rows(args.axes[2].out * args.axes[3].out * size),
        .bytes = (rg_shape_count(x) + count) * size,
    };
    return rg_record(call, &launch);
}

static rg_status gradient_x(rg_call *call)
{
    const rg_tensor_desc *dx = &call->dx[0]->desc, *dy = &call->dy[0]->desc;
    const int64_t size = (int64_t)rg_dtype_size(dx->dtype), count = rg_shape_count(dx);
    rg_pad_args args = make_args(call, dx, dy, true);
    args.run = is_run(&args);
    args.add = call->add & 1;
    args.stream = !args.add && rg_call_streams(call, count * size);
    const rg_launch launch = {
        .kernel = RG_PAD_GRADIENT,
        .dtype = dx->dtype,
        RG_ARGS(args),
        .tensors = { RG_BIND(args, from, call->dy[0]), RG_BIND(args, to, call->dx[0]) },
        .units = count > 0 ? args.axes[0].in * args.axes[1].in : 0,
        .grain = choose_rows(args.axes[2].in * args.axes[3].in * size),
        .bytes = (rg_shape_count(dy) + count) * size,
    };
    return rg_record(call, &launch);
}

/* The shape of x follows from that of dy, for the axes of the forward pass. */
static rg_status gradient_fill(rg_call *call)
{
    enum { CHANNELS = 64 }; /* of a unit */
    const rg_pad_desc *d = call->desc;
    const rg_tensor_desc *dy = &call->dy[0]->desc, *dfill = &call->dx[1]->desc;
    rg_tensor_desc x = *dy;
    for (int32_t i = 0; i < x.rank; i++)
        x.dims[i] -= d->before[4 - x.rank + i] + d->after[4 - x.rank + i];
    rg_pad_args args = make_args(call, &x, dy, false);
    for (int t = 0; t < 4; t++) {
        args.strides[0][t] = t < 4 - dy->rank ? 0 : dy->strides[t - (4 - dy->rank)];
        args.strides[1][t] = 0;
    }
    args.strides[1][3] = dfill->strides[0];
    args.dense = dfill->dims[0] == 1 || (args.strides[0][3] == 1 && args.strides[1][3] == 1);
    args.add = call->add >> 1 & 1;
    if (rg_shape_count(dy) == 0)
        args.axes[0].out = 0; /* nothing was filled, the sums are 0 */
    const rg_launch launch = {
        .kernel = RG_PAD_GRADIENT_FILL,
        .dtype = dy->dtype,
        RG_ARGS(args),
        .tensors = { RG_BIND(args, from, call->dy[0]), RG_BIND(args, to, call->dx[1]) },
        .units = rg_ceil_div(dfill->dims[0], CHANNELS),
        .bytes = rg_shape_count(dy) * (int64_t)rg_dtype_size(dy->dtype),
    };
    return rg_record(call, &launch);
}

static rg_status gradient(rg_call *call)
{
    if (call->dx[0] != NULL)
        RG_TRY(gradient_x(call));
    if (call->inputs > 1 && call->dx[1] != NULL)
        RG_TRY(gradient_fill(call));
    return RG_OK;
}

RG_OP_DEFINE(pad, .text = "padding and cropping of images in all four dimensions",
             .desc = { fields, &defaults, sizeof defaults },
             .inputs = (const char *const[]){ "x", "fill", NULL },
             .outputs = (const char *const[]){ "y", NULL }, .names = names,
             .count_inputs = count_inputs, .check = check, .shapes = shapes, .reads = reads,
             .joins = joins, .forward = forward, .gradient = gradient,
             .fusion = { .is_cheap = true });

rg_status rg_pad_create(rg_device *device, const rg_pad_desc *desc, rg_kernel **kernel)
{
    return rg_kernel_create(device, &rg_op_pad, desc, kernel);
}
