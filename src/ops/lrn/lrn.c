/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Local response normalization: description, shape rule, forward, gradient. */
#include "ops/lrn/lrn.h"
#include "core/integer.h"
#include "core/shape.h"
#include "ops/ops.h"
#include "runtime/objects.h"
#include "ops/transpose/channels_last.h"

#include <retrograde/lrn.h>

#include <float.h>

/* ---- description ---- */

static const rg_lrn_desc defaults = {
    .size = sizeof(rg_lrn_desc),
    .window = 5,
    .alpha = 1,
    .beta = 5,
    .delta = 1,
};

rg_lrn_desc rg_lrn_desc_default(void)
{
    return defaults;
}

static const rg_field fields[] = {
    RG_FIELD_IN(rg_lrn_desc, window, 1, INT32_MAX, "channels of a window"),
    RG_FIELD_IN(rg_lrn_desc, alpha, 0, DBL_MAX, "factor of the mean square"),
    RG_FIELD_IN(rg_lrn_desc, beta, -DBL_MAX, DBL_MAX, "exponent of the divisor"),
    RG_FIELD_IN(rg_lrn_desc, delta, 0, DBL_MAX, "added to the mean square"),
    RG_FIELD(rg_lrn_desc, even_after,
             "an even window covers one more channel after (ONNX) instead of before"),
    { .name = NULL },
};

#define IMAGE      "sourceImage=x destinationImage=y"
#define IMAGE_GRAD "sourceGradient=dy sourceImage=x destinationGradient=dx"

static const rg_op_name names[] = {
    { "MPSCNNCrossChannelNormalization", false, "", IMAGE, 3, 4 },
    { "MPSCNNCrossChannelNormalizationGradient", true, "", IMAGE_GRAD, 3, 4 },
    { .name = NULL },
};

/* ---- shape rule ---- */

static rg_status shapes(const void *desc, const rg_tensor_desc x[], rg_tensor_desc y[])
{
    (void)desc;
    RG_CHECK(rg_dtype_is_data(x->dtype), RG_INVALID_ARGUMENT,
             "lrn: x is %s; f32, f64, f16 and bf16 are supported", rg_dtype_name(x->dtype));
    RG_CHECK(x->rank > 0, RG_INVALID_ARGUMENT, "lrn: x has rank 0 and therefore no channels");
    y[0] = rg_tensor_desc_dense(x->dtype, x->rank, x->dims);
    return RG_OK;
}

static uint32_t reads(const void *desc)
{
    (void)desc;
    return RG_READS_X;
}

static bool joins(const void *desc, const rg_tensor_desc x[])
{
    (void)desc;
    return x->rank > 1;
}

/* ---- forward and gradient ---- */

/* How many pixels are taken at once, and the reals that a unit needs for them. A group of a narrow
 * window stays in the L1 cache. */
static int64_t choose_group(rg_lrn_shape *s, bool gradient)
{
    enum { L1_REALS = 1024 }; /* reals */
    const rg_span *span = &s->span;
    if (span->width > RG_SPAN_DIRECT) {
        const int64_t rings = (gradient ? 2 : 1) * (span->width + 2);
        s->group = RG_LRN_LANES;
        return RG_LRN_LANES * (rings + 1 + (gradient ? span->before + 1 : 0));
    }
    const int64_t inner = rg_lrn_round(span->size), pitch = inner + 2 * rg_lrn_lead(span);
    s->group = rg_clamp(L1_REALS / rg_clamp(pitch, 1, L1_REALS), 1, L1_REALS);
    return s->group * (gradient ? 2 * pitch + inner : pitch);
}

static void lay_out(const rg_lrn_desc *d, const rg_tensor *const tensors[], int count,
                    rg_lrn_shape *s, rg_launch *launch)
{
    enum { UNITS = 256, SCRATCH_BYTES = 64 << 20 }; /* unless one unit needs more */
    const rg_tensor_desc *descs[RG_LRN_TENSORS];
    for (int t = 0; t < count; t++)
        descs[t] = &tensors[t]->desc;
    const rg_tensor_desc *first = descs[0];
    const int32_t last = first->rank - 1;
    const int64_t channels = first->dims[last];
    s->outer = rg_walk_make(descs, count, 0, last);
    s->span = rg_span_make(channels, d->window, d->even_after);
    s->numbers = rg_power_numbers_make(d->alpha, d->beta, d->delta, d->window);
    s->dense = true;
    for (int t = 0; t < count; t++) {
        s->step[t] = descs[t]->strides[last];
        s->dense &= s->step[t] == 1 || channels == 1;
    }
    const bool gradient = count == RG_LRN_TENSORS;
    const int64_t real = first->dtype == RG_F64 ? 8 : 4,
                  bytes = rg_lrn_shared_values(&s->span) * real;
    s->scratch_bytes = choose_group(s, gradient) * real;
    if (bytes > RG_LRN_SHARED_BYTES && s->scratch_bytes < bytes)
        s->scratch_bytes = rg_round_up(bytes, RG_ALIGNMENT);
    const int64_t groups = rg_ceil_div(s->outer.count, s->group);
    s->units =
        rg_clamp(groups, 0,
                 rg_clamp(SCRATCH_BYTES / rg_clamp(s->scratch_bytes, 1, SCRATCH_BYTES), 1, UNITS));
    launch->dtype = first->dtype;
    launch->bytes = rg_shape_count(first) * (int64_t)rg_dtype_size(first->dtype) * count;
    launch->units = launch->bytes > 0 ? s->units : 0;
    launch->scratch = (size_t)(s->units * s->scratch_bytes);
}

static rg_status forward(rg_call *call)
{
    rg_lrn_args args = { 0 };
    rg_launch launch = { .tensors = { RG_BIND(args, x, call->x[0]), RG_BIND(args, y, call->y[0]) },
                         .kernel = RG_LRN_FORWARD,
                         RG_ARGS(args),
                         .scratch_at = RG_POINTER(args, scratch) };
    lay_out(call->desc, launch.tensors, 2, &args.shape, &launch);
    args.shape.stream = rg_call_streams(call, launch.bytes / 2);
    return rg_record(call, &launch);
}

static rg_status gradient(rg_call *call)
{
    rg_lrn_gradient_args args = { 0 };
    rg_launch launch = { .tensors = { RG_BIND(args, dy, call->dy[0]), RG_BIND(args, x, call->x[0]),
                                      RG_BIND(args, dx, call->dx[0]) },
                         .kernel = RG_LRN_GRADIENT,
                         RG_ARGS(args),
                         .scratch_at = RG_POINTER(args, scratch) };
    lay_out(call->desc, launch.tensors, 3, &args.shape, &launch);
    args.shape.add = call->add & 1;
    args.shape.stream = !args.shape.add && rg_call_streams(call, launch.bytes / 3);
    return rg_record(call, &launch);
}

static rg_status forward_by_channels(rg_call *call)
{
    return rg_channels_last_forward(call, forward);
}

static rg_status gradient_by_channels(rg_call *call)
{
    return rg_channels_last_gradient(call, gradient);
}

RG_OP_DEFINE(lrn, .text = "local response normalization across channels",
             .desc = { fields, &defaults, sizeof defaults },
             .inputs = (const char *const[]){ "x", NULL },
             .outputs = (const char *const[]){ "y", NULL }, .names = names,
             .aliases = (const rg_alias[]){ RG_X_AS_Y(0, 0), RG_DY_AS_DX(0, 0), RG_X_AS_DX(0, 0),
                                            0 },
             .shapes = shapes, .reads = reads, .joins = joins, .forward = forward_by_channels,
             .gradient = gradient_by_channels);

rg_status rg_lrn_create(rg_device *device, const rg_lrn_desc *desc, rg_kernel **kernel)
{
    return rg_kernel_create(device, &rg_op_lrn, desc, kernel);
}
