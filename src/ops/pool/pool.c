/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Pooling: description, validation, shape rule, state. */
#include "ops/pool/pool_record.h"
#include "core/shape.h"
#include "ops/ops.h"
#include "ops/padding/padding_fields.h"
#include "runtime/objects.h"
#include "ops/transpose/channels_last.h"

#include <retrograde/pool.h>

/* ---- description ---- */

static const rg_pool_desc defaults = {
    .size = sizeof(rg_pool_desc),
    .kind = RG_POOL_MAX,
    .window = { 2, 2 },
    .stride = { 2, 2 },
    .dilation = { 1, 1 },
};

rg_pool_desc rg_pool_desc_default(void)
{
    return defaults;
}

rg_pool_desc rg_pool_desc_mps_node(rg_pool_kind kind, int32_t size, bool dilated)
{
    rg_pool_desc desc = defaults;
    desc.kind = kind;
    desc.edge = RG_POOL_CLAMP;
    desc.padding.policy = RG_PADDING_SAME;
    for (int i = 0; i < 2; i++) {
        desc.window[i] = desc.stride[i] = size;
        desc.dilation[i] = dilated ? size : 1;
    }
    return desc;
}

static const char *const kinds[] = { "max", "average", "l2", NULL };
static const char *const edges[] = { "zero", "clamp", NULL };

static const rg_field fields[] = {
    RG_FIELD_NAMED(rg_pool_desc, kind, kinds, "maximum, mean or L2 norm"),
    RG_FIELD_IN(rg_pool_desc, window, 1, INT32_MAX, "rows and columns of a window"),
    RG_FIELD_IN(rg_pool_desc, stride, 1, INT32_MAX, "stride between windows"),
    RG_FIELD_IN(rg_pool_desc, dilation, 1, INT32_MAX, "dilation of the window"),
    RG_FIELD_STRUCT(rg_pool_desc, padding, rg_padding_fields,
                    "padding around the image, see rg_padding"),
    RG_FIELD_NAMED(rg_pool_desc, edge, edges,
                   "positions outside the image: zeros (zero) or excluded (clamp)"),
    RG_FIELD_IN(
        rg_pool_desc, zero_pad, 0, INT32_MAX,
        "average, edge clamp: rows and columns of zeros around the image, included in the mean"),
    RG_FIELD(rg_pool_desc, count_include_pad,
             "average, edge clamp: include the padding in the mean"),
    RG_FIELD(rg_pool_desc, ceil_mode, "explicit padding: include a last, partial window"),
    RG_FIELD_IN(rg_pool_desc, output, 0, 0x1p48,
                "rows and columns of y; 0: computed from the padding"),
    RG_FIELD(rg_pool_desc, indices, "max: second output with the positions of the maxima in x"),
    RG_FIELD_IN(rg_pool_desc, storage_order, 0, 1,
                "order of the indices: row-major (0) or column-major (1)"),
    { .name = NULL },
};

/* MPS's constructors without a stride take 1. */
#define IMAGE      "sourceImage=x destinationImage=y"
#define IMAGE_GRAD "sourceGradient=dy sourceImage=x destinationGradient=dx"

#define NODE(name, gradient, kind, tensors, follows)                                   \
    {                                                                                  \
        name, gradient, kind " edge=clamp padding.policy=same", tensors, 3, 4, follows \
    }

static const rg_op_name names[] = {
    { "MPSCNNPoolingMax", false, "kind=max stride=1,1", IMAGE, 3, 4 },
    { "MPSCNNPoolingAverage", false, "kind=average stride=1,1", IMAGE, 3, 4 },
    { "MPSCNNPoolingL2Norm", false, "kind=l2 stride=1,1", IMAGE, 3, 4 },
    { "MPSCNNDilatedPoolingMax", false, "kind=max stride=1,1", IMAGE, 3, 4 },
    { "MPSCNNPoolingMaxGradient", true, "kind=max stride=1,1", IMAGE_GRAD, 3, 4 },
    { "MPSCNNPoolingAverageGradient", true, "kind=average stride=1,1", IMAGE_GRAD, 3, 4 },
    { "MPSCNNPoolingL2NormGradient", true, "kind=l2 stride=1,1", IMAGE_GRAD, 3, 4 },
    { "MPSCNNDilatedPoolingMaxGradient", true, "kind=max stride=1,1", IMAGE_GRAD, 3, 4 },
    { "MPSCNNPoolingGradient", true, "kind=max stride=1,1", IMAGE_GRAD, 3, 4 },
    /* nodes have a clamped edge, MPS's default policy, and windows side by side; those of dilated
     * ones have as much dilation */
    NODE("MPSCNNPoolingMaxNode", false, "kind=max", IMAGE, "stride=window"),
    NODE("MPSCNNPoolingAverageNode", false, "kind=average", IMAGE, "stride=window"),
    NODE("MPSCNNPoolingL2NormNode", false, "kind=l2", IMAGE, "stride=window"),
    NODE("MPSCNNDilatedPoolingMaxNode", false, "kind=max", IMAGE, "stride=window dilation=window"),
    NODE("MPSCNNPoolingGradientNode", true, "kind=max", IMAGE_GRAD, "stride=window"),
    NODE("MPSCNNPoolingMaxGradientNode", true, "kind=max", IMAGE_GRAD, "stride=window"),
    NODE("MPSCNNPoolingAverageGradientNode", true, "kind=average", IMAGE_GRAD, "stride=window"),
    NODE("MPSCNNPoolingL2NormGradientNode", true, "kind=l2", IMAGE_GRAD, "stride=window"),
    NODE("MPSCNNDilatedPoolingMaxGradientNode", true, "kind=max", IMAGE_GRAD,
         "stride=window dilation=window"),
    { .name = NULL },
};

/* ---- validation, shape rule ---- */

static int64_t taps_of(const rg_pool_desc *d)
{
    return (int64_t)d->window[0] * d->window[1];
}

static rg_status check(const void *desc)
{
    const rg_pool_desc *d = desc;
    RG_CHECK(d->kind != RG_POOL_MAX || taps_of(d) <= INT32_MAX, RG_INVALID_ARGUMENT,
             "pool: a window of %d by %d has more than 2^31 - 1 elements", d->window[0],
             d->window[1]);
    RG_CHECK(!d->ceil_mode || d->padding.policy == RG_PADDING_EXPLICIT, RG_INVALID_ARGUMENT,
             "pool: ceil_mode requires explicit padding");
    RG_CHECK(!d->indices || d->kind == RG_POOL_MAX, RG_INVALID_ARGUMENT,
             "pool: indices require kind max, not %s", kinds[d->kind]);
    return RG_OK;
}

/* The dimension of rows in (n, h, w, c) or (h, w, c). */
int32_t rg_pool_row_dim(const rg_tensor_desc *x)
{
    return x->rank - 3;
}

static rg_window window_of(const rg_pool_desc *d, const rg_tensor_desc *x)
{
    const int32_t row = rg_pool_row_dim(x);
    return (rg_window){ .source = { x->dims[row], x->dims[row + 1] },
                        .window = { d->window[0], d->window[1] },
                        .stride = { d->stride[0], d->stride[1] },
                        .dilation = { d->dilation[0], d->dilation[1] },
                        .output = { d->output[0], d->output[1] },
                        .ceil_mode = d->ceil_mode };
}

rg_status rg_pool_place(const rg_pool_desc *d, const rg_tensor_desc *x, rg_placement *placement)
{
    const int64_t most = INT64_C(1) << 30; /* so that kernels can count in 32 bits */
    const rg_window window = window_of(d, x);
    const rg_status status = rg_padding_resolve(&d->padding, &window, placement);
    if (status != RG_OK) {
        rg_error_prefix("pool: ");
        return status;
    }
    for (int i = 0; i < 2; i++) {
        const int64_t before = placement->before[i], after = placement->after[i];
        RG_CHECK(window.source[i] >= 1, RG_INVALID_ARGUMENT, "pool: x has %lld %s",
                 (long long)window.source[i], i == 0 ? "rows" : "columns");
        RG_CHECK(before >= -most && before <= most && after >= -most && after <= most &&
                     window.source[i] <= most && before + window.source[i] + after <= most &&
                     d->stride[i] <= most && d->zero_pad[i] <= most,
                 RG_UNSUPPORTED,
                 "pool: %lld %s with a window of %d, a stride of %d, a dilation of %d and paddings "
                 "of %lld and %lld cover more than 2^30",
                 (long long)window.source[i], i == 0 ? "rows" : "columns", d->window[i],
                 d->stride[i], d->dilation[i], (long long)before, (long long)after);
    }
    return RG_OK;
}

static rg_status place(const void *desc, const rg_tensor_desc x[], rg_window *window,
                       rg_placement *placement)
{
    RG_CHECK(rg_dtype_is_data(x->dtype), RG_INVALID_ARGUMENT,
             "pool: x is %s; f32, f64, f16 and bf16 are supported", rg_dtype_name(x->dtype));
    RG_CHECK(x->rank == 3 || x->rank == 4, RG_INVALID_ARGUMENT,
             "pool: x has rank %d; it must be an image (h, w, c) or a batch (n, h, w, c)", x->rank);
    *window = window_of(desc, x);
    return rg_pool_place(desc, x, placement);
}

static void set_placement(void *desc, const rg_padding *padding, const int64_t output[2])
{
    rg_pool_desc *d = desc;
    d->padding = *padding;
    memcpy(d->output, output, sizeof d->output);
}

static const rg_window_hooks windows = { place, set_placement };

static rg_status shapes(const void *desc, const rg_tensor_desc x[], rg_tensor_desc y[])
{
    rg_window window;
    rg_placement placement;
    RG_TRY(place(desc, x, &window, &placement));
    int64_t dims[4];
    memcpy(dims, x->dims, sizeof dims);
    dims[rg_pool_row_dim(x)] = placement.output[0];
    dims[rg_pool_row_dim(x) + 1] = placement.output[1];
    y[0] = rg_tensor_desc_dense(x->dtype, x->rank, dims);
    RG_TRY(rg_shape_check(&y[0], "pool: y", NULL));
    if (!((const rg_pool_desc *)desc)->indices)
        return RG_OK;
    y[1] = rg_tensor_desc_dense(RG_I64, x->rank, dims);
    return rg_shape_check(&y[1], "pool: indices", NULL);
}

static int32_t count_outputs(const void *desc)
{
    return ((const rg_pool_desc *)desc)->indices ? 2 : 1;
}

static int32_t count_gradients(const void *desc)
{
    (void)desc;
    return 1;
}

static uint32_t reads(const void *desc)
{
    const rg_pool_desc *d = desc;
    switch (d->kind) {
    case RG_POOL_MAX:
        return d->indices ? RG_READS_Y << 1 : RG_READS_X | RG_READS_OR_STATE;
    case RG_POOL_L2:
        return RG_READS_X | RG_READS_Y;
    default:
        return 0;
    }
}

/* Indices count from the first image of a call on. */
static bool joins(const void *desc, const rg_tensor_desc x[])
{
    return x->rank == 4 && !((const rg_pool_desc *)desc)->indices;
}

/* ---- state ---- */

rg_tensor_desc rg_pool_winners_desc(const rg_pool_desc *d, const rg_tensor_desc *y)
{
    return rg_tensor_desc_dense(taps_of(d) <= RG_POOL_VIRTUAL ? RG_U8 : RG_I32, y->rank, y->dims);
}

static int32_t make_slots(const void *desc, const rg_tensor_desc x[], rg_state_slot slots[])
{
    const rg_pool_desc *d = desc;
    rg_tensor_desc y[RG_MAX_OUTPUTS];
    if (d->kind != RG_POOL_MAX || d->indices || shapes(desc, x, y) != RG_OK)
        return 0;
    slots[0] = (rg_state_slot){ "winners", rg_pool_winners_desc(d, &y[0]) };
    return 1;
}

static bool writes_state(const void *desc, bool is_gradient)
{
    const rg_pool_desc *d = desc;
    return !is_gradient && d->kind == RG_POOL_MAX && !d->indices;
}

static rg_status forward_by_channels(rg_call *call)
{
    return rg_channels_last_forward(call, rg_pool_forward);
}

static rg_status gradient_by_channels(rg_call *call)
{
    return rg_channels_last_gradient(call, rg_pool_gradient);
}

RG_OP_DEFINE(pool, .text = "max, average and L2 pooling",
             .desc = { fields, &defaults, sizeof defaults },
             .inputs = (const char *const[]){ "x", NULL },
             .outputs = (const char *const[]){ "y", "indices", NULL }, .names = names,
             .aliases = (const rg_alias[]){ RG_X_AS_DX(0, 0), 0 }, .count_outputs = count_outputs,
             .count_gradients = count_gradients, .check = check, .shapes = shapes,
             .state = make_slots, .writes_state = writes_state, .reads = reads, .windows = &windows,
             .joins = joins, .forward = forward_by_channels, .gradient = gradient_by_channels,
             .strategies = rg_pool_strategies);

rg_status rg_pool_create(rg_device *device, const rg_pool_desc *desc, rg_kernel **kernel)
{
    return rg_kernel_create(device, &rg_op_pool, desc, kernel);
}
