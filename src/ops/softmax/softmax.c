/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Softmax: description, shape rule, forward, gradient. */
#include "ops/softmax/softmax.h"
#include "core/integer.h"
#include "ops/ops.h"
#include "runtime/objects.h"
#include "ops/transpose/channels_last.h"

#include <retrograde/softmax.h>

/* ---- description ---- */

static const rg_softmax_desc defaults = {
    .size = sizeof(rg_softmax_desc),
    .kind = RG_SOFTMAX_PLAIN,
    .axis = -1,
    .flatten = false,
};

rg_softmax_desc rg_softmax_desc_default(void)
{
    return defaults;
}

static const char *const kinds[] = { "plain", "log", NULL };

static const rg_field fields[] = {
    RG_FIELD_NAMED(rg_softmax_desc, kind, kinds, "softmax (plain) or log-softmax (log)"),
    RG_FIELD(rg_softmax_desc, axis, "dimension to normalize over; negative: from the last"),
    RG_FIELD(rg_softmax_desc, flatten,
             "normalize over all dimensions from axis on (ONNX before opset 13)"),
    { .name = NULL },
};

#define MATRIX      "inputMatrix=x resultMatrix=y"
#define MATRIX_GRAD "gradientMatrix=dy forwardOutputMatrix=y resultMatrix=dx"
#define IMAGE       "sourceImage=x destinationImage=y"
#define IMAGE_GRAD  "sourceGradient=dy sourceImage=y destinationGradient=dx"

static const rg_op_name names[] = {
    { "MPSMatrixSoftMax", false, "axis=-1", MATRIX, 2, 3 },
    { "MPSMatrixSoftMaxGradient", true, "axis=-1", MATRIX_GRAD, 2, 3 },
    { "MPSMatrixLogSoftMax", false, "kind=log axis=-1", MATRIX, 2, 3 },
    { "MPSMatrixLogSoftMaxGradient", true, "kind=log axis=-1", MATRIX_GRAD, 2, 3 },
    { "MPSCNNSoftMax", false, "axis=-1", IMAGE, 3, 4 },
    { "MPSCNNSoftMaxGradient", true, "axis=-1", IMAGE_GRAD, 3, 4 },
    { "MPSCNNLogSoftMax", false, "kind=log axis=-1", IMAGE, 3, 4 },
    { "MPSCNNLogSoftMaxGradient", true, "kind=log axis=-1", IMAGE_GRAD, 3, 4 },
    { .name = NULL },
};

/* ---- shape rule ---- */

static rg_status shapes(const void *desc, const rg_tensor_desc x[], rg_tensor_desc y[])
{
    const rg_softmax_desc *d = desc;
    const int32_t rank = x->rank;
    RG_CHECK(rg_dtype_is_data(x->dtype), RG_INVALID_ARGUMENT,
             "softmax: x is %s; f32, f64, f16 and bf16 are supported", rg_dtype_name(x->dtype));
    RG_CHECK(rank > 0, RG_INVALID_ARGUMENT, "softmax: x has rank 0 and therefore no axis");
    RG_CHECK(d->axis >= -rank && d->axis < rank, RG_INVALID_ARGUMENT,
             "softmax: axis is %lld; it must be between %d and %d", (long long)d->axis, -rank,
             rank - 1);
    y[0] = rg_tensor_desc_dense(x->dtype, rank, x->dims);
    return RG_OK;
}

static uint32_t reads(const void *desc)
{
    (void)desc;
    return RG_READS_Y;
}

static int32_t first_axis(const rg_softmax_desc *desc, int32_t rank)
{
    return (int32_t)(desc->axis < 0 ? desc->axis + rank : desc->axis);
}

static bool joins(const void *desc, const rg_tensor_desc x[])
{
    return first_axis(desc, x->rank) != 0;
}

/* ---- forward and gradient ---- */

/* From a kernel to the one of the same direction and layout for the logarithm; and to the gradient.
 */
enum { LOG_STEP = RG_LOG_SOFTMAX_FORWARD_ROWS - RG_SOFTMAX_FORWARD_ROWS };
enum { GRADIENT_STEP = RG_SOFTMAX_GRADIENT_ROWS - RG_SOFTMAX_FORWARD_ROWS };

/* How many groups a unit of columns takes: whole rows of memory if they are short, for long reads;
 * but no more than stay in the cache until the second pass, and not all of them where threads need
 * more units. A multiple of 64, which is whole cache lines. */
static int64_t choose_block(const rg_softmax_shape *shape, int64_t element, int tensors)
{
    enum { L2_BYTES = 8 << 20, MIN_GROUPS = 64, UNITS = 8 };
    const int64_t fits =
        L2_BYTES / (rg_clamp(shape->length, 1, L2_BYTES) * element * (tensors - 1));
    const int64_t units = rg_clamp(shape->outer.count, 1, UNITS);
    const int64_t share = shape->width * units / UNITS; /* `units` of them make UNITS blocks */
    int64_t block = rg_clamp(fits, MIN_GROUPS, RG_BLOCK_GROUPS);
    block = rg_clamp(block, MIN_GROUPS, rg_clamp(share, MIN_GROUPS, RG_BLOCK_GROUPS));
    block = block / MIN_GROUPS * MIN_GROUPS;
    if (block + MIN_GROUPS > shape->width && shape->width <= RG_BLOCK_GROUPS)
        block = shape->width;
    return rg_clamp(block, 1, RG_BLOCK_GROUPS);
}

/* How many rows make a tile: few enough to share them evenly, but not too few, because the first
 * row of a tile is not prefetched. */
static int64_t choose_rows(int64_t row, int64_t all)
{
    enum {
        MIN_TILE_BYTES = 64 << 10,
        MAX_TILE_BYTES = 1 << 20,
        TILES = 32,
        MIN_ROWS = 4
    }; /* bytes, bytes, tiles, rows */
    const int64_t rows =
        rg_clamp(all / TILES, MIN_TILE_BYTES, MAX_TILE_BYTES) / rg_clamp(row, 1, MAX_TILE_BYTES);
    const bool many = all / rg_clamp(row, 1, all > 0 ? all : 1) >= MIN_ROWS * TILES;
    return rg_clamp(rows, many ? MIN_ROWS : 1, INT64_MAX);
}

/* Whether the rows of all tensors are planes: groups are adjacent and their elements are not. */
static bool are_planes(const rg_softmax_desc *desc, const rg_tensor *const tensors[], int count)
{
    enum { MIN_WIDTH = 16 };
    const rg_tensor_desc *descs[RG_SOFTMAX_TENSORS];
    for (int t = 0; t < count; t++)
        descs[t] = &tensors[t]->desc;
    const int32_t rank = descs[0]->rank, axis = first_axis(desc, rank);
    const rg_walk outer = rg_walk_make(descs, count, 0, axis);
    const rg_walk group = rg_walk_make(descs, count, axis, desc->flatten ? rank : axis + 1);
    bool planes = tensors[0]->device->backend == &rg_backend_cpu &&
                  (axis == rank - 1 || desc->flatten) && outer.rank > 0 &&
                  outer.dims[outer.rank - 1] >= MIN_WIDTH && group.rank == 1;
    for (int t = 0; t < count && planes; t++)
        planes = outer.strides[t][outer.rank - 1] == 1 && group.strides[t][0] != 1;
    return planes;
}

/* So many groups that memory is read in long runs. */
static void lay_out_planes(rg_softmax_shape *shape, int count, rg_launch *launch)
{
    shape->width = rg_walk_take_inner(&shape->outer, count, shape->across);
    for (int t = 0; t < count; t++)
        shape->along[t] = shape->group.strides[t][0];
    shape->block = rg_min(shape->width, RG_BLOCK_GROUPS / 2);
    shape->blocks = rg_ceil_div(shape->width, shape->block);
    launch->units = shape->outer.count * shape->blocks;
    launch->grain = 1;
}

/* How the tensors are cut into units; returns the kernel, as one of softmax forward. The order of
 * every sum follows from the shape; how groups make up units may follow from strides too. */
static int32_t lay_out(const rg_softmax_desc *desc, const rg_tensor *const tensors[], int count,
                       rg_softmax_shape *shape, rg_launch *launch)
{
    const rg_tensor_desc *descs[RG_SOFTMAX_TENSORS];
    for (int t = 0; t < count; t++)
        descs[t] = &tensors[t]->desc;
    const rg_tensor_desc *first = descs[0];
    const int32_t rank = first->rank, axis = first_axis(desc, rank);
    const int32_t end = desc->flatten ? rank : axis + 1;
    const int64_t element = (int64_t)rg_dtype_size(first->dtype);
    int64_t after = 1;
    for (int32_t d = end; d < rank; d++)
        after *= first->dims[d];

    shape->group = rg_walk_make(descs, count, axis, end);
    shape->length = shape->group.count;
    launch->dtype = first->dtype;
    launch->bytes = rg_shape_count(first) * element * count;
    const bool rows = after == 1, planes = rows && are_planes(desc, tensors, count);
    if (rows)
        shape->outer = rg_walk_make(descs, count, 0, axis);
    if (planes) {
        lay_out_planes(shape, count, launch);
    } else if (rows) {
        shape->dense = shape->group.rank <= 1;
        for (int t = 0; t < count && shape->group.rank == 1; t++)
            shape->dense &= shape->group.strides[t][0] == 1;
        launch->units = shape->outer.count;
        const int64_t row = shape->length * element * count;
        launch->grain = choose_rows(row, launch->bytes);
    } else {
        rg_walk inner = rg_walk_make(descs, count, end, rank);
        shape->width = rg_walk_take_inner(&inner, count, shape->across);
        shape->dense = true;
        for (int t = 0; t < count; t++) {
            shape->along[t] = descs[t]->strides[axis];
            shape->dense &= shape->across[t] == 1 || shape->width == 1;
        }
        shape->outer = rg_walk_around(descs, count, axis, &inner);
        shape->block = choose_block(shape, element, count);
        shape->blocks = rg_ceil_div(shape->width, shape->block);
        launch->units = shape->outer.count * shape->blocks;
        launch->grain = 1;
    }
    if (shape->length == 0)
        launch->units = 0;
    return planes ? RG_SOFTMAX_FORWARD_PLANES
           : rows ? RG_SOFTMAX_FORWARD_ROWS
                  : RG_SOFTMAX_FORWARD_COLUMNS;
}

static rg_status forward(rg_call *call)
{
    const rg_softmax_desc *desc = call->desc;
    rg_softmax_args args = { 0 };
    rg_launch launch = { RG_ARGS(args), .tensors = { RG_BIND(args, x, call->x[0]),
                                                     RG_BIND(args, y, call->y[0]) } };
    launch.kernel = lay_out(desc, launch.tensors, 2, &args.shape, &launch);
    args.shape.stream = rg_call_streams(call, launch.bytes / 2);
    launch.kernel += desc->kind == RG_SOFTMAX_LOG ? LOG_STEP : 0;
    return rg_record(call, &launch);
}

static rg_status gradient(rg_call *call)
{
    const rg_softmax_desc *desc = call->desc;
    rg_softmax_gradient_args args = { 0 };
    rg_launch launch = { RG_ARGS(args),
                         .tensors = { RG_BIND(args, dy, call->dy[0]), RG_BIND(args, y, call->y[0]),
                                      RG_BIND(args, dx, call->dx[0]) } };
    launch.kernel = lay_out(desc, launch.tensors, 3, &args.shape, &launch) + GRADIENT_STEP;
    args.shape.add = call->add & 1;
    args.shape.stream = !args.shape.add && rg_call_streams(call, launch.bytes / 3);
    launch.kernel += desc->kind == RG_SOFTMAX_LOG ? LOG_STEP : 0;
    return rg_record(call, &launch);
}

static rg_status forward_by_channels(rg_call *call)
{
    const rg_tensor *const tensors[] = { call->x[0], call->y[0] };
    return are_planes(call->desc, tensors, 2) ? forward(call)
                                              : rg_channels_last_forward(call, forward);
}

static rg_status gradient_by_channels(rg_call *call)
{
    const rg_tensor *const tensors[] = { call->dy[0], call->y[0], call->dx[0] };
    return are_planes(call->desc, tensors, 3) ? gradient(call)
                                              : rg_channels_last_gradient(call, gradient);
}

RG_OP_DEFINE(
    softmax, .text = "softmax and log-softmax over one axis, or over all dimensions from it on",
    .desc = { fields, &defaults, sizeof defaults }, .inputs = (const char *const[]){ "x", NULL },
    .outputs = (const char *const[]){ "y", NULL }, .names = names,
    .aliases = (const rg_alias[]){ RG_X_AS_Y(0, 0), RG_DY_AS_DX(0, 0), RG_Y_AS_DX(0, 0), 0 },
    .shapes = shapes, .reads = reads, .joins = joins, .forward = forward_by_channels,
    .gradient = gradient_by_channels);

rg_status rg_softmax_create(rg_device *device, const rg_softmax_desc *desc, rg_kernel **kernel)
{
    return rg_kernel_create(device, &rg_op_softmax, desc, kernel);
}
