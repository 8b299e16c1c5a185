/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Copies of tensors with channels last, before and after an op. */
#include "ops/transpose/channels_last.h"
#include "core/integer.h"
#include "ops/move/move_record.h"
#include "ops/ops.h"
#include "ops/transpose/transpose.h"

/* Whether a tensor has neighbours, but not along its last dimension, and is worth a copy. */
static bool needs_copy(const rg_tensor *tensor)
{
    enum { MIN_ELEMENTS = 1024, MIN_NEIGHBOURS = 3 };
    const rg_tensor_desc *d = &tensor->desc;
    const int32_t last = d->rank - 1;
    if (!rg_dtype_is_data(d->dtype) || d->rank < 2 || d->dims[last] < MIN_NEIGHBOURS ||
        d->strides[last] == 1 || rg_shape_count(d) < MIN_ELEMENTS)
        return false;
    bool has_neighbours = false;
    for (int32_t i = 0; i < last; i++)
        has_neighbours |= d->strides[i] == 1 && d->dims[i] >= MIN_NEIGHBOURS;
    return has_neighbours;
}

static bool any_needs_copy(const rg_tensor *const tensors[], int32_t count)
{
    bool any = false;
    for (int32_t i = 0; i < count && !any; i++)
        any = tensors[i] != NULL && needs_copy(tensors[i]);
    return any;
}

rg_status rg_channels_last_copy(const rg_call *call, const rg_tensor *given, bool read,
                                rg_tensor **copy)
{
    rg_call own = { .op = &rg_op_transpose, .desc = call->desc, .commands = call->commands };
    const rg_tensor_desc desc =
        rg_tensor_desc_dense(given->desc.dtype, given->desc.rank, given->desc.dims);
    RG_TRY(rg_tensor_create_temporary(call->commands, &desc, copy));
    if (!read)
        return RG_OK;
    const rg_move move = rg_move_make_same(&given->desc, &desc);
    const rg_status status = rg_record_move(&own, RG_TRANSPOSE_MOVE, given, *copy, &move);
    if (status == RG_OK)
        return RG_OK;
    rg_tensor_destroy(*copy);
    *copy = NULL;
    return status;
}

/* Replaces *tensor by a dense temporary if it needs one, with its elements if they are read. `copy`
 * is the temporary, or NULL. */
static rg_status copy_in(const rg_call *call, const rg_tensor **tensor, bool read, rg_tensor **copy)
{
    const rg_tensor *const given = *tensor;
    *copy = NULL;
    if (given == NULL || !needs_copy(given))
        return RG_OK;
    RG_TRY(rg_channels_last_copy(call, given, read, copy));
    *tensor = *copy;
    return RG_OK;
}

/* Of a result of which this is one of `parts`. */
static rg_status copy_back(const rg_call *call, const rg_tensor *dense, const rg_tensor *given,
                           int64_t parts)
{
    rg_call own = { .op = &rg_op_transpose, .desc = call->desc, .commands = call->commands };
    if (dense == NULL)
        return RG_OK;
    const rg_move move = rg_move_make_same(&dense->desc, &given->desc);
    return rg_record_move_part(&own, RG_TRANSPOSE_MOVE, dense, given, &move,
                               parts * rg_move_bytes(given));
}

rg_status rg_channels_last_copy_back(const rg_call *call, const rg_tensor *dense,
                                     const rg_tensor *given)
{
    return copy_back(call, dense, given, 1);
}

typedef rg_status run_function(rg_call *call);

static bool is_cpu(const rg_call *call)
{
    return call->commands->queue->device->backend == &rg_backend_cpu;
}

static rg_status forward_of(rg_call *call, run_function *run, int64_t parts)
{
    rg_call dense = *call;
    rg_tensor *x[RG_MAX_INPUTS] = { NULL }, *y[RG_MAX_OUTPUTS] = { NULL };
    rg_status status = RG_OK;
    for (int32_t i = 0; i < call->inputs && status == RG_OK; i++)
        status = copy_in(call, &dense.x[i], true, &x[i]);
    for (int32_t i = 0; i < call->outputs && status == RG_OK; i++)
        status = copy_in(call, &dense.y[i], false, &y[i]);
    if (status == RG_OK)
        status = run(&dense);
    for (int32_t i = 0; i < call->outputs && status == RG_OK; i++)
        status = copy_back(call, y[i], call->y[i], parts);
    for (int32_t i = 0; i < call->inputs; i++)
        rg_tensor_destroy(x[i]);
    for (int32_t i = 0; i < call->outputs; i++)
        rg_tensor_destroy(y[i]);
    return status;
}

/* What a gradient may read: x, y and dy, in this order, and dx where it is added to. */
static rg_status copy_gradient_in(rg_call *dense, const rg_call *call, rg_tensor *copies[],
                                  rg_tensor *dx[])
{
    const uint32_t reads = rg_op_reads(call->op, call->desc, call->state != NULL);
    rg_status status = RG_OK;
    for (int32_t i = 0; i < call->inputs && status == RG_OK; i++)
        if (reads & (uint32_t)RG_READS_X << i)
            status = copy_in(call, &dense->x[i], true, copies++);
    for (int32_t i = 0; i < call->outputs && status == RG_OK; i++)
        if (reads & (uint32_t)RG_READS_Y << i)
            status = copy_in(call, &dense->y[i], true, copies++);
    for (int32_t i = 0; i < call->gradients && status == RG_OK; i++)
        status = copy_in(call, &dense->dy[i], true, copies++);
    for (int32_t i = 0; i < call->inputs && status == RG_OK; i++)
        status = copy_in(call, &dense->dx[i], call->add >> i & 1, &dx[i]);
    return status;
}

static rg_status gradient_of(rg_call *call, run_function *run, int64_t parts)
{
    enum { MOST = RG_MAX_INPUTS + 2 * RG_MAX_OUTPUTS };
    rg_call dense = *call;
    rg_tensor *copies[MOST] = { NULL }, *dx[RG_MAX_INPUTS] = { NULL };
    rg_status status = copy_gradient_in(&dense, call, copies, dx);
    if (status == RG_OK)
        status = run(&dense);
    for (int32_t i = 0; i < call->inputs && status == RG_OK; i++)
        status = copy_back(call, dx[i], call->dx[i], parts);
    for (int32_t i = 0; i < MOST; i++)
        rg_tensor_destroy(copies[i]);
    for (int32_t i = 0; i < call->inputs; i++)
        rg_tensor_destroy(dx[i]);
    return status;
}

/* ---- some images at a time, whose copies stay in the cache ---- */

/* A call for images of another one. */
typedef struct part {
    rg_call call;
    rg_tensor x[RG_MAX_INPUTS], y[RG_MAX_OUTPUTS], dy[RG_MAX_OUTPUTS], dx[RG_MAX_INPUTS];
    rg_tensor slots[RG_MAX_STATE];
    rg_state state;
} part;

/* Whether all tensors have as many images, -1: any number yet; adds up the bytes that are copied.
 */
static bool count_images(const rg_tensor *const tensors[], int32_t count, int64_t *images,
                         double *bytes)
{
    for (int32_t i = 0; i < count; i++) {
        const rg_tensor *const t = tensors[i];
        if (t == NULL)
            continue;
        if (t->desc.rank < 2 || (*images >= 0 && t->desc.dims[0] != *images))
            return false;
        *images = t->desc.dims[0];
        *bytes += needs_copy(t) ? (double)rg_move_bytes(t) : 0;
    }
    return true;
}

/* Whether images are independent of each other, as the op says where batches are joined. */
static bool has_images(const rg_call *call)
{
    rg_tensor_desc x[RG_MAX_INPUTS];
    for (int32_t i = 0; i < call->inputs; i++) {
        const rg_tensor *const known = call->x[i] != NULL ? call->x[i] : call->dx[i];
        if (known == NULL)
            return false;
        x[i] = known->desc;
    }
    return call->op->joins != NULL && call->op->joins(call->desc, x);
}

/* How many images are worth taking at a time; 0: all of them, because an image is no call of its
 * own or nothing is copied. */
static int64_t images_at_once(const rg_call *call)
{
    enum { CACHE_BYTES = 2 << 20 }; /* of a thread */
    const double cache = (double)CACHE_BYTES * rg_device_threads(call->commands->queue->device);
    int64_t images = -1;
    double bytes = 0, others = 0;
    if (!has_images(call) || !count_images(call->x, call->inputs, &images, &bytes) ||
        !count_images(call->y, call->outputs, &images, &bytes) ||
        !count_images(call->dy, call->gradients, &images, &bytes) ||
        !count_images(call->dx, call->inputs, &images, &bytes))
        return 0;
    for (int32_t i = 0; i < rg_state_count(call->state); i++) {
        const rg_tensor *const slot = rg_state_slot_tensor(call->state, i);
        if (!count_images(&slot, 1, &images, &others))
            return 0;
    }
    if (bytes <= cache || images < 2)
        return 0;
    return rg_max((int64_t)(cache / bytes * (double)images), 1);
}

/* Images from `first` on, without a reference. */
static const rg_tensor *take_images(const rg_tensor *from, int64_t first, int64_t count,
                                    rg_tensor *to)
{
    if (from == NULL)
        return NULL;
    to->device = from->device;
    to->storage = from->storage;
    to->desc = from->desc;
    to->desc.dims[0] = count;
    to->offset =
        from->offset + (size_t)(first * from->desc.strides[0]) * rg_dtype_size(from->desc.dtype);
    to->is_view = true;
    to->commands = from->commands;
    to->read_count = from->read_count;
    to->parent = from->parent;
    return to;
}

static void take_part(const rg_call *call, int64_t first, int64_t count, part *p)
{
    p->call = *call;
    for (int32_t i = 0; i < call->inputs; i++) {
        p->call.x[i] = take_images(call->x[i], first, count, &p->x[i]);
        p->call.dx[i] = take_images(call->dx[i], first, count, &p->dx[i]);
    }
    for (int32_t i = 0; i < call->outputs; i++)
        p->call.y[i] = take_images(call->y[i], first, count, &p->y[i]);
    for (int32_t i = 0; i < call->gradients; i++)
        p->call.dy[i] = take_images(call->dy[i], first, count, &p->dy[i]);
    if (call->state == NULL)
        return;
    p->state = *call->state;
    p->call.state = &p->state;
    for (int32_t i = 0; i < p->state.count; i++) {
        take_images(call->state->tensors[i], first, count, &p->slots[i]);
        p->state.tensors[i] = &p->slots[i];
    }
}

static rg_status run_parts(rg_call *call, run_function *run,
                           rg_status (*run_part)(rg_call *call, run_function *run, int64_t parts))
{
    if (!is_cpu(call) ||
        !(any_needs_copy(call->x, call->inputs) || any_needs_copy(call->y, call->outputs) ||
          any_needs_copy(call->dy, call->gradients) || any_needs_copy(call->dx, call->inputs)))
        return run(call);
    const int64_t step = images_at_once(call);
    if (step == 0)
        return run_part(call, run, 1);
    const rg_tensor *const any = call->x[0] != NULL ? call->x[0] : call->dx[0];
    const int64_t images = any->desc.dims[0];
    for (int64_t first = 0; first < images; first += step) {
        part p;
        take_part(call, first, rg_min(step, images - first), &p);
        RG_TRY(run_part(&p.call, run, rg_ceil_div(images, step)));
    }
    return RG_OK;
}

rg_status rg_channels_last_forward(rg_call *call, rg_status (*run)(rg_call *call))
{
    return run_parts(call, run, forward_of);
}

rg_status rg_channels_last_gradient(rg_call *call, rg_status (*run)(rg_call *call))
{
    return run_parts(call, run, gradient_of);
}
