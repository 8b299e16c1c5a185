/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Pooling: the launches of forward and gradient, and the strategies of the latter on a CPU. */
#include "ops/pool/pool_record.h"
#include "core/integer.h"
#include "core/shape.h"
#include "runtime/objects.h"

/* ---- geometry ---- */

static void take_steps(const rg_tensor_desc *desc, rg_pool_shape *shape, int64_t steps[4])
{
    const int32_t row = rg_pool_row_dim(desc);
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
    (void)rg_pool_place(d, x, &at); /* the shape rule has checked it */
    const int32_t row = rg_pool_row_dim(x);
    rg_pool_shape shape = { .row = axis_of(d, &at, x->dims[row], 0),
                            .column = axis_of(d, &at, x->dims[row + 1], 1),
                            .images = row > 0 ? x->dims[0] : 1,
                            .channels = x->dims[row + 2],
                            .zero = d->edge == RG_POOL_ZERO,
                            .dense = true };
    take_steps(x, &shape, shape.x);
    take_steps(y, &shape, shape.y);
    const rg_tensor_desc winners = rg_pool_winners_desc(d, y);
    shape.wide = winners.dtype == RG_I32;
    for (int i = 0; i < 3; i++)
        shape.winners[i] = row > 0 ? winners.strides[i] : i > 0 ? winners.strides[i - 1] : 0;
    return shape;
}

/* A unit is a row of the result; some make a tile of about 256 KiB, of small tensors 64 KiB. */
static void lay_out(rg_launch *launch, const rg_tensor_desc *x, int64_t rows, int64_t row_bytes,
                    int64_t bytes)
{
    enum { TILE_LEAST = 1 << 16, TILE_MOST = 1 << 18, TILES = 64 };
    const int64_t tile = rg_clamp(bytes / TILES, TILE_LEAST, TILE_MOST);
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

/* ---- forward ---- */

/* Where results have 16 bits, streaming stores gain nothing. */
static bool streams(const rg_call *call, const rg_tensor_desc *y)
{
    return rg_dtype_size(y->dtype) >= sizeof(float) && rg_call_streams(call, bytes_of(y));
}

static rg_status record_forward(rg_call *call, int32_t kernel)
{
    const rg_tensor_desc *x = &call->x[0]->desc, *y = &call->y[0]->desc;
    rg_pool_args args = { .shape = shape_of(call->desc, x, y) };
    args.shape.stream = streams(call, y);
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
    args.shape.stream = y != NULL && streams(call, &y->desc);
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
    const rg_tensor_desc wanted = rg_pool_winners_desc(call->desc, &call->y[0]->desc);
    rg_tensor *winners;
    RG_TRY(rg_tensor_create_temporary(call->commands, &wanted, &winners));
    rg_status status = record_winners(call, winners, call->y[0]);
    if (status == RG_OK)
        status = record_indices(call, winners);
    rg_tensor_destroy(winners); /* its storage serves later work */
    return status;
}

rg_status rg_pool_forward(rg_call *call)
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

/* ---- gradient ---- */

/* The geometry, and what the strategies record. */
static rg_pool_gradient_args gradient_args(rg_call *call)
{
    const rg_pool_desc *desc = call->desc;
    const rg_tensor_desc *dx = &call->dx[0]->desc;
    rg_pool_gradient_args args = { .shape = shape_of(desc, dx, &call->dy[0]->desc) };
    if (desc->kind == RG_POOL_L2) {
        take_steps(&call->x[0]->desc, &args.shape, args.shape.z);
        take_steps(&call->y[0]->desc, &args.shape, args.shape.w);
    }
    args.shape.add = call->add & 1;
    args.shape.stream = !args.shape.add && rg_call_streams(call, bytes_of(dx));
    return args;
}

static rg_status record_gradient(rg_call *call, const rg_pool_request *r, bool by_lists)
{
    const rg_pool_desc *desc = call->desc;
    const rg_tensor_desc *dx = &call->dx[0]->desc, *dy = &call->dy[0]->desc;
    rg_pool_gradient_args args = r->args;
    args.by_lists = by_lists;
    rg_launch launch = { .tensors = { RG_BIND(args, dy, call->dy[0]),
                                      RG_BIND(args, dx, call->dx[0]),
                                      RG_BIND(args, from, r->winners) },
                         .kernel = RG_POOL_MAX_GRADIENT,
                         RG_ARGS(args) };
    int64_t bytes = bytes_of(dx) + bytes_of(dy);
    if (desc->kind == RG_POOL_MAX) {
        bytes += bytes_of(&r->winners->desc);
    } else if (desc->kind == RG_POOL_AVERAGE) {
        launch.kernel = RG_POOL_AVERAGE_GRADIENT;
    } else {
        launch.kernel = RG_POOL_L2_GRADIENT;
        launch.tensors[RG_POINTER(args, from)] = call->x[0];
        launch.tensors[RG_POINTER(args, y)] = call->y[0];
        bytes *= 2;
    }
    const int64_t row = args.shape.column.size * args.shape.channels;
    lay_out(&launch, dx, args.shape.images * args.shape.row.size,
            row * (int64_t)rg_dtype_size(dx->dtype), bytes);
    return rg_record(call, &launch);
}

/* Whether a CPU finds max or average from channels that are neighbours, with winners in bytes. */
static bool is_plain(const rg_call *call, const rg_pool_shape *k)
{
    const rg_pool_kind kind = ((const rg_pool_desc *)call->desc)->kind;
    return call->dx[0]->device->backend == &rg_backend_cpu && k->dense &&
           (kind == RG_POOL_AVERAGE || (kind == RG_POOL_MAX && !k->wide));
}

/* Whether all windows around any pixel fit into a list. */
static bool accepts_lists(const rg_call *call, const void *request)
{
    const rg_pool_shape *k = &((const rg_pool_request *)request)->args.shape;
    const int64_t rows = rg_pool_most_windows(&k->row);
    return is_plain(call, k) && rows <= RG_POOL_LISTED &&
           rg_pool_most_windows(&k->column) * rows <= RG_POOL_LISTED;
}

static bool accepts_pixels(const rg_call *call, const void *request)
{
    (void)call, (void)request;
    return true;
}

static rg_status record_lists(rg_call *call, const void *request)
{
    return record_gradient(call, request, true);
}

static rg_status record_pixels(rg_call *call, const void *request)
{
    return record_gradient(call, request, false);
}

static const rg_strategy lists = { "lists", accepts_lists, record_lists };
static const rg_strategy pixels = { "pixels", accepts_pixels, record_pixels };

static const rg_strategy *const list[] = { &lists, &pixels, NULL };
const rg_strategy *const *const rg_pool_strategies[] = { list, NULL };

static rg_status run_gradient(rg_call *call, const rg_tensor *winners)
{
    const rg_pool_request request = { gradient_args(call), winners };
    if (call->dx[0]->device->backend != &rg_backend_cpu) /* a GPU chooses at launch */
        return record_pixels(call, &request);
    return rg_strategy_run(call, list, &request);
}

/* Max without a state: the winners are found once more, or from indices, into a temporary. */
rg_status rg_pool_gradient(rg_call *call)
{
    const rg_pool_desc *desc = call->desc;
    if (desc->kind != RG_POOL_MAX)
        return run_gradient(call, NULL);
    if (call->state != NULL && !desc->indices)
        return run_gradient(call, rg_state_slot_tensor(call->state, 0));
    const rg_tensor_desc wanted = rg_pool_winners_desc(desc, &call->dy[0]->desc);
    rg_tensor *winners;
    RG_TRY(rg_tensor_create_temporary(call->commands, &wanted, &winners));
    rg_status status =
        desc->indices ? record_taps(call, winners) : record_winners(call, winners, NULL);
    if (status == RG_OK)
        status = run_gradient(call, winners);
    rg_tensor_destroy(winners);
    return status;
}
