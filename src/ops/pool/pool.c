/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Pooling: description, validation, shape rule, state, forward, gradient. */
#include "ops/pool/pool.h"
#include "core/shape.h"
#include "ops/ops.h"
#include "ops/padding/padding_fields.h"
#include "runtime/objects.h"

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

/* MPS's constructors without a stride take 1; the nodes set their own. */
#define IMAGE      "sourceImage=x destinationImage=y"
#define IMAGE_GRAD "sourceGradient=dy sourceImage=x destinationGradient=dx"

static const rg_op_name names[] = {
    { "MPSCNNPoolingMax", false, "kind=max stride=1,1", IMAGE, 3, 4 },
    { "MPSCNNPoolingAverage", false, "kind=average stride=1,1", IMAGE, 3, 4 },
    { "MPSCNNPoolingL2Norm", false, "kind=l2 stride=1,1", IMAGE, 3, 4 },
    { "MPSCNNDilatedPoolingMax", false, "kind=max stride=1,1", IMAGE, 3, 4 },
    { "MPSCNNPoolingMaxGradient", true, "kind=max stride=1,1", IMAGE_GRAD, 3, 4 },
    { "MPSCNNPoolingAverageGradient", true, "kind=average stride=1,1", IMAGE_GRAD, 3, 4 },
    { "MPSCNNPoolingL2NormGradient", true, "kind=l2 stride=1,1", IMAGE_GRAD, 3, 4 },
    { "MPSCNNDilatedPoolingMaxGradient", true, "kind=max stride=1,1", IMAGE_GRAD, 3, 4 },
    { "MaxPool", false, "kind=max edge=clamp stride=1,1", "X=x Y=y Indices=indices", 4, 4 },
    { "AveragePool", false, "kind=average edge=clamp stride=1,1", "X=x Y=y", 4, 4 },
    { "MaxPoolGrad", true, "kind=max edge=clamp stride=1,1 indices=true",
      "dY=dy X=x Indices=indices dX=dx", 4, 4 },
    { "AveragePoolGrad", true, "kind=average edge=clamp stride=1,1", "dY=dy X=x dX=dx", 4, 4 },
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

/* Where rows stand in (n, h, w, c) or (h, w, c). */
static int32_t row_dim(const rg_tensor_desc *x)
{
    return x->rank - 3;
}

static rg_status place(const rg_pool_desc *d, const rg_tensor_desc *x, rg_placement *placement)
{
    const int64_t most = INT64_C(1) << 30; /* so that kernels can count in 32 bits */
    const int32_t row = row_dim(x);
    const rg_window window = { .source = { x->dims[row], x->dims[row + 1] },
                               .window = { d->window[0], d->window[1] },
                               .stride = { d->stride[0], d->stride[1] },
                               .dilation = { d->dilation[0], d->dilation[1] },
                               .output = { d->output[0], d->output[1] },
                               .ceil_mode = d->ceil_mode };
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

static rg_status shapes(const void *desc, const rg_tensor_desc x[], rg_tensor_desc y[])
{
    RG_CHECK(rg_dtype_is_data(x->dtype), RG_INVALID_ARGUMENT,
             "pool: x is %s; f32, f64, f16 and bf16 are supported", rg_dtype_name(x->dtype));
    RG_CHECK(x->rank == 3 || x->rank == 4, RG_INVALID_ARGUMENT,
             "pool: x has rank %d; it must be an image (h, w, c) or a batch (n, h, w, c)", x->rank);
    rg_placement placement;
    RG_TRY(place(desc, x, &placement));
    int64_t dims[4];
    memcpy(dims, x->dims, sizeof dims);
    dims[row_dim(x)] = placement.output[0];
    dims[row_dim(x) + 1] = placement.output[1];
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

static rg_tensor_desc winners_desc(const rg_pool_desc *d, const rg_tensor_desc *y)
{
    return rg_tensor_desc_dense(taps_of(d) <= RG_POOL_VIRTUAL ? RG_U8 : RG_I32, y->rank, y->dims);
}

static int32_t make_slots(const void *desc, const rg_tensor_desc x[], rg_state_slot slots[])
{
    const rg_pool_desc *d = desc;
    rg_tensor_desc y[RG_MAX_OUTPUTS];
    if (d->kind != RG_POOL_MAX || d->indices || shapes(desc, x, y) != RG_OK)
        return 0;
    slots[0] = (rg_state_slot){ "winners", winners_desc(d, &y[0]) };
    return 1;
}

/* ---- forward and gradient ---- */

static void take_steps(const rg_tensor_desc *desc, rg_pool_shape *shape, int64_t steps[4])
{
    const int32_t row = row_dim(desc);
    steps[0] = row > 0 ? desc->strides[0] : 0;
    for (int i = 0; i < 3; i++)
        steps[1 + i] = desc->strides[row + i];
    shape->dense &= steps[3] == 1 || desc->dims[row + 2] == 1;
}

static rg_pool_axis axis_of(const rg_pool_desc *d, const rg_placement *at, int64_t size, int i)
{
    rg_pool_axis a = { .size = size,
                       .count = at->output[i],
                       .window = d->window[i],
                       .stride = d->stride[i],
                       .dilation = d->dilation[i],
                       .before = at->before[i],
                       .low = -(INT64_C(1) << 40),
                       .high = INT64_C(1) << 40 };
    if (d->edge == RG_POOL_CLAMP) {
        /* after: as far as windows reach, which is beyond what the caller has given */
        const int32_t given[2] = { d->padding.bottom, d->padding.right };
        const int64_t after = d->padding.policy == RG_PADDING_EXPLICIT ? given[i] : at->after[i];
        const int64_t top = d->count_include_pad ? at->before[i] : d->zero_pad[i];
        const int64_t bottom = d->count_include_pad ? after : d->zero_pad[i];
        a.low = top > 0 ? -top : 0;
        a.high = bottom > 0 ? size + bottom : size;
    }
    return a;
}

/* The geometry, from the shapes of x (or dx) and y (or dy). */
static rg_pool_shape shape_of(const rg_pool_desc *d, const rg_tensor_desc *x,
                              const rg_tensor_desc *y)
{
    rg_placement at = { .output = { 0 } };
    (void)place(d, x, &at); /* the shape rule has checked it */
    const int32_t row = row_dim(x);
    rg_pool_shape shape = { .row = axis_of(d, &at, x->dims[row], 0),
                            .column = axis_of(d, &at, x->dims[row + 1], 1),
                            .images = row > 0 ? x->dims[0] : 1,
                            .channels = x->dims[row + 2],
                            .zero = d->edge == RG_POOL_ZERO,
                            .dense = true };
    take_steps(x, &shape, shape.x);
    take_steps(y, &shape, shape.y);
    const rg_tensor_desc winners = winners_desc(d, y);
    shape.wide = winners.dtype == RG_I32;
    for (int i = 0; i < 3; i++)
        shape.winners[i] = row > 0 ? winners.strides[i] : i > 0 ? winners.strides[i - 1] : 0;
    return shape;
}

/* A unit is a row of the result; some make a tile of about 64 KiB. */
static void lay_out(rg_launch *launch, const rg_tensor_desc *x, int64_t rows, int64_t row_bytes,
                    int64_t bytes)
{
    const int64_t tile = 1 << 16;
    launch->dtype = x->dtype;
    launch->units = rg_shape_count(x) > 0 ? rows : 0;
    launch->grain = row_bytes < tile && row_bytes > 0 ? tile / row_bytes : 1;
    launch->bytes = bytes;
}

static int64_t bytes_of(const rg_tensor_desc *desc)
{
    return rg_shape_count(desc) * (int64_t)rg_dtype_size(desc->dtype);
}

/* What is read for a row of y. */
static int64_t read_bytes(const rg_pool_shape *shape, const rg_tensor_desc *x)
{
    const rg_pool_axis *row = &shape->row;
    const int64_t rows = row->window < row->size ? row->window : row->size;
    return rows * shape->column.size * shape->channels * (int64_t)rg_dtype_size(x->dtype);
}

static rg_status record_forward(rg_call *call, int32_t kernel)
{
    const rg_tensor_desc *x = &call->x[0]->desc, *y = &call->y[0]->desc;
    const rg_pool_args args = { .shape = shape_of(call->desc, x, y) };
    rg_launch launch = { .tensors = { RG_BIND(args, x, call->x[0]), RG_BIND(args, y, call->y[0]) },
                         .kernel = kernel,
                         RG_ARGS(args) };
    lay_out(&launch, x, args.shape.images * args.shape.row.count, read_bytes(&args.shape, x),
            bytes_of(x) + bytes_of(y));
    return rg_record(call, &launch);
}

/* The winners, and y unless NULL. */
static rg_status record_winners(rg_call *call, const rg_tensor *winners, const rg_tensor *y)
{
    const rg_tensor_desc *x = &call->x[0]->desc;
    rg_pool_winners_args args = { .shape = shape_of(call->desc, x,
                                                    y != NULL ? &y->desc : &winners->desc) };
    rg_launch launch = { .tensors = { RG_BIND(args, x, call->x[0]), RG_BIND(args, winners, winners),
                                      RG_BIND(args, y, y) },
                         .kernel = RG_POOL_MAX_WINNERS,
                         RG_ARGS(args) };
    lay_out(&launch, x, args.shape.images * args.shape.row.count, read_bytes(&args.shape, x),
            bytes_of(x) + bytes_of(&winners->desc) + (y != NULL ? bytes_of(&y->desc) : 0));
    return rg_record(call, &launch);
}

/* The geometry of a launch between winners and indices. */
static rg_pool_shape indices_shape(rg_call *call, const rg_tensor_desc *x, const rg_tensor *winners,
                                   rg_launch *launch)
{
    const rg_tensor_desc *indices = &call->y[1]->desc;
    const rg_pool_shape shape = shape_of(call->desc, x, indices);
    const int64_t row = shape.column.count * shape.channels * (int64_t)sizeof(int64_t);
    lay_out(launch, x, shape.images * shape.row.count, row,
            bytes_of(indices) + bytes_of(&winners->desc));
    return shape;
}

static rg_status record_indices(rg_call *call, const rg_tensor *winners)
{
    const rg_pool_desc *desc = call->desc;
    rg_pool_indices_args args = { .by_columns = desc->storage_order == 1 };
    rg_launch launch = { .tensors = { RG_BIND(args, winners, winners),
                                      RG_BIND(args, indices, call->y[1]) },
                         .kernel = RG_POOL_MAX_INDICES,
                         RG_ARGS(args) };
    args.shape = indices_shape(call, &call->x[0]->desc, winners, &launch);
    return rg_record(call, &launch);
}

static rg_status record_taps(rg_call *call, const rg_tensor *winners)
{
    const rg_pool_desc *desc = call->desc;
    rg_pool_taps_args args = { .by_columns = desc->storage_order == 1 };
    rg_launch launch = {
        .tensors = { RG_BIND(args, indices, call->y[1]), RG_BIND(args, winners, winners) },
        .kernel = RG_POOL_MAX_TAPS,
        RG_ARGS(args),
        .fault_at = RG_POINTER(args, fault),
        .fault_text = "pool: an element of indices is out of range: it is not a pixel of its window"
    };
    args.shape = indices_shape(call, &call->dx[0]->desc, winners, &launch);
    return rg_record(call, &launch);
}

/* y, the winners as a temporary, and indices from these. */
static rg_status forward_indices(rg_call *call)
{
    const rg_tensor_desc wanted = winners_desc(call->desc, &call->y[0]->desc);
    rg_tensor *winners;
    RG_TRY(rg_tensor_create_temporary(call->commands, &wanted, &winners));
    rg_status status = record_winners(call, winners, call->y[0]);
    if (status == RG_OK)
        status = record_indices(call, winners);
    rg_tensor_destroy(winners); /* its storage serves later work */
    return status;
}

static rg_status forward(rg_call *call)
{
    if (((const rg_pool_desc *)call->desc)->indices)
        return forward_indices(call);
    switch (((const rg_pool_desc *)call->desc)->kind) {
    case RG_POOL_AVERAGE:
        return record_forward(call, RG_POOL_AVERAGE_FORWARD);
    case RG_POOL_L2:
        return record_forward(call, RG_POOL_L2_FORWARD);
    default:
        return call->state == NULL
                   ? record_forward(call, RG_POOL_MAX_FORWARD)
                   : record_winners(call, rg_state_slot_tensor(call->state, 0), call->y[0]);
    }
}

static rg_status record_gradient(rg_call *call, const rg_tensor *winners)
{
    const rg_pool_desc *desc = call->desc;
    const rg_tensor_desc *dx = &call->dx[0]->desc, *dy = &call->dy[0]->desc;
    rg_pool_gradient_args args = { .shape = shape_of(desc, dx, dy) };
    rg_launch launch = { .tensors = { RG_BIND(args, dy, call->dy[0]),
                                      RG_BIND(args, dx, call->dx[0]),
                                      RG_BIND(args, from, winners) },
                         .kernel = RG_POOL_MAX_GRADIENT,
                         RG_ARGS(args) };
    int64_t bytes = bytes_of(dx) + bytes_of(dy);
    if (desc->kind == RG_POOL_MAX) {
        bytes += bytes_of(&winners->desc);
    } else if (desc->kind == RG_POOL_AVERAGE) {
        launch.kernel = RG_POOL_AVERAGE_GRADIENT;
    } else {
        launch.kernel = RG_POOL_L2_GRADIENT;
        launch.tensors[RG_POINTER(args, from)] = call->x[0];
        launch.tensors[RG_POINTER(args, y)] = call->y[0];
        take_steps(&call->x[0]->desc, &args.shape, args.shape.z);
        take_steps(&call->y[0]->desc, &args.shape, args.shape.w);
        bytes *= 2;
    }
    args.shape.add = call->add & 1;
    args.shape.stream = !args.shape.add && rg_call_streams(call, bytes_of(dx));
    const int64_t row = args.shape.column.size * args.shape.channels;
    lay_out(&launch, dx, args.shape.images * args.shape.row.size,
            row * (int64_t)rg_dtype_size(dx->dtype), bytes);
    return rg_record(call, &launch);
}

/* Max without a state: the winners are found once more, or from indices, into a temporary. */
static rg_status gradient(rg_call *call)
{
    const rg_pool_desc *desc = call->desc;
    if (desc->kind != RG_POOL_MAX)
        return record_gradient(call, NULL);
    if (call->state != NULL && !desc->indices)
        return record_gradient(call, rg_state_slot_tensor(call->state, 0));
    const rg_tensor_desc wanted = winners_desc(desc, &call->dy[0]->desc);
    rg_tensor *winners;
    RG_TRY(rg_tensor_create_temporary(call->commands, &wanted, &winners));
    rg_status status =
        desc->indices ? record_taps(call, winners) : record_winners(call, winners, NULL);
    if (status == RG_OK)
        status = record_gradient(call, winners);
    rg_tensor_destroy(winners);
    return status;
}

RG_OP_DEFINE(pool, .text = "max, average and L2 pooling",
             .desc = { fields, &defaults, sizeof defaults },
             .inputs = (const char *const[]){ "x", NULL },
             .outputs = (const char *const[]){ "y", "indices", NULL }, .names = names,
             .aliases = (const rg_alias[]){ RG_X_AS_DX(0, 0), 0 }, .count_outputs = count_outputs,
             .count_gradients = count_gradients, .check = check, .shapes = shapes,
             .state = make_slots, .reads = reads, .joins = joins, .forward = forward,
             .gradient = gradient);

rg_status rg_pool_create(rg_device *device, const rg_pool_desc *desc, rg_kernel **kernel)
{
    return rg_kernel_create(device, &rg_op_pool, desc, kernel);
}
