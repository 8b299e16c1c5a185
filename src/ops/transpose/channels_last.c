/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Copies of tensors with channels last, before and after an op. */
#include "ops/transpose/channels_last.h"
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
static rg_status copy_in(rg_call *call, const rg_tensor **tensor, bool read, rg_tensor **copy)
{
    const rg_tensor *const given = *tensor;
    *copy = NULL;
    if (given == NULL || !needs_copy(given))
        return RG_OK;
    RG_TRY(rg_channels_last_copy(call, given, read, copy));
    *tensor = *copy;
    return RG_OK;
}

rg_status rg_channels_last_copy_back(const rg_call *call, const rg_tensor *dense,
                                     const rg_tensor *given)
{
    rg_call own = { .op = &rg_op_transpose, .desc = call->desc, .commands = call->commands };
    if (dense == NULL)
        return RG_OK;
    const rg_move move = rg_move_make_same(&dense->desc, &given->desc);
    return rg_record_move(&own, RG_TRANSPOSE_MOVE, dense, given, &move);
}

static bool is_cpu(const rg_call *call)
{
    return call->commands->queue->device->backend == &rg_backend_cpu;
}

rg_status rg_channels_last_forward(rg_call *call, rg_status (*run)(rg_call *call))
{
    rg_call dense = *call;
    rg_tensor *x[RG_MAX_INPUTS] = { NULL }, *y[RG_MAX_OUTPUTS] = { NULL };
    rg_status status = RG_OK;
    if (!is_cpu(call))
        return run(call);
    for (int32_t i = 0; i < call->inputs && status == RG_OK; i++)
        status = copy_in(call, &dense.x[i], true, &x[i]);
    for (int32_t i = 0; i < call->outputs && status == RG_OK; i++)
        status = copy_in(call, &dense.y[i], false, &y[i]);
    if (status == RG_OK)
        status = run(&dense);
    for (int32_t i = 0; i < call->outputs && status == RG_OK; i++)
        status = rg_channels_last_copy_back(call, y[i], call->y[i]);
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
    rg_call own = *call;
    rg_status status = RG_OK;
    for (int32_t i = 0; i < call->inputs && status == RG_OK; i++)
        if (reads & (uint32_t)RG_READS_X << i)
            status = copy_in(&own, &dense->x[i], true, copies++);
    for (int32_t i = 0; i < call->outputs && status == RG_OK; i++)
        if (reads & (uint32_t)RG_READS_Y << i)
            status = copy_in(&own, &dense->y[i], true, copies++);
    for (int32_t i = 0; i < call->gradients && status == RG_OK; i++)
        status = copy_in(&own, &dense->dy[i], true, copies++);
    for (int32_t i = 0; i < call->inputs && status == RG_OK; i++)
        status = copy_in(&own, &dense->dx[i], call->add >> i & 1, &dx[i]);
    return status;
}

rg_status rg_channels_last_gradient(rg_call *call, rg_status (*run)(rg_call *call))
{
    enum { MOST = RG_MAX_INPUTS + 2 * RG_MAX_OUTPUTS };
    rg_call dense = *call;
    rg_tensor *copies[MOST] = { NULL }, *dx[RG_MAX_INPUTS] = { NULL };
    if (!is_cpu(call))
        return run(call);
    rg_status status = copy_gradient_in(&dense, call, copies, dx);
    if (status == RG_OK)
        status = run(&dense);
    for (int32_t i = 0; i < call->inputs && status == RG_OK; i++)
        status = rg_channels_last_copy_back(call, dx[i], call->dx[i]);
    for (int32_t i = 0; i < MOST; i++)
        rg_tensor_destroy(copies[i]);
    for (int32_t i = 0; i < call->inputs; i++)
        rg_tensor_destroy(dx[i]);
    return status;
}
