/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Which images of a batch are neighbours in memory and can be one call. */
#include "runtime/batch.h"

/* Bytes from the first element to the end of the last one, of dimensions 1 and later. */
static int64_t extent(const rg_tensor_desc *desc)
{
    int64_t last = 0;
    for (int32_t d = 1; d < desc->rank; d++)
        last += (desc->dims[d] - 1) * desc->strides[d];
    return (last + 1) * (int64_t)rg_dtype_size(desc->dtype);
}

/* Whether `next` follows `tensor`, which holds `images` joined images, in memory: then dimension 0
 * grows. A dimension of one index has no stride yet; the distance to the first neighbour gives it.
 */
static bool continues(const rg_tensor *tensor, const rg_tensor *next, int64_t images)
{
    if (tensor == NULL || next == NULL)
        return tensor == next;
    if (tensor->commands != 0 || next->commands != 0 || tensor->desc.rank == 0)
        return false; /* temporaries are counted one by one */
    if (tensor->storage != next->storage || tensor->desc.dtype != next->desc.dtype ||
        tensor->desc.rank != next->desc.rank || next->offset <= tensor->offset)
        return false;
    const int64_t rows = next->desc.dims[0];
    for (int32_t d = 0; d < next->desc.rank; d++) {
        const bool same = tensor->desc.strides[d] == next->desc.strides[d];
        if ((!same && (d > 0 || rows != 1)) ||
            (d > 0 && tensor->desc.dims[d] != next->desc.dims[d]))
            return false;
    }
    if (rows * images != tensor->desc.dims[0])
        return false;
    const int64_t distance = (int64_t)(next->offset - tensor->offset);
    const int64_t element = (int64_t)rg_dtype_size(tensor->desc.dtype);
    if (tensor->desc.dims[0] == 1)
        return distance % element == 0 && distance >= extent(&tensor->desc);
    return distance == tensor->desc.dims[0] * tensor->desc.strides[0] * element;
}

static void start_run(rg_tensor *const tensors[], int64_t count, int32_t entries, int64_t n,
                      rg_tensor joined[], const rg_tensor *view[])
{
    for (int32_t i = 0; i < entries; i++) {
        const rg_tensor *tensor = rg_batch_tensor(tensors, count, i, n);
        view[i] = tensor != NULL ? &joined[i] : NULL;
        if (tensor != NULL) { /* a copy on the stack: no reference is taken or given */
            joined[i].device = tensor->device;
            joined[i].storage = tensor->storage;
            joined[i].offset = tensor->offset;
            joined[i].desc = tensor->desc;
            joined[i].is_view = tensor->is_view;
            joined[i].commands = tensor->commands;
            joined[i].read_count = tensor->read_count;
            joined[i].parent = tensor->parent;
        }
    }
}

static bool run_continues(rg_tensor *const tensors[], int64_t count, int32_t entries, int64_t n,
                          const rg_tensor *const view[], int64_t images)
{
    for (int32_t i = 0; i < entries; i++) {
        if (!continues(view[i], rg_batch_tensor(tensors, count, i, n), images))
            return false;
    }
    return true;
}

/* Appends image n of the batch to the `images` that are joined. */
static void extend_run(rg_tensor *const tensors[], int64_t count, int32_t entries, int64_t n,
                       rg_tensor joined[], int64_t images)
{
    for (int32_t i = 0; i < entries; i++) {
        const rg_tensor *next = rg_batch_tensor(tensors, count, i, n);
        if (next == NULL)
            continue;
        rg_tensor_desc *desc = &joined[i].desc;
        const size_t distance = next->offset - joined[i].offset;
        if (desc->dims[0] == 1)
            desc->strides[0] = (int64_t)(distance / rg_dtype_size(desc->dtype));
        desc->dims[0] += desc->dims[0] / images;
    }
}

uint64_t rg_batch_add(const rg_batch *b, int32_t inputs, int64_t n)
{
    uint64_t add = b->add;
    for (int32_t i = 0; i < inputs && b->gradient; i++) {
        const rg_tensor *dx = rg_batch_tensor(b->dx, b->count, i, n);
        for (int64_t k = 0; k < n && dx != NULL; k++)
            add |= rg_batch_tensor(b->dx, b->count, i, k) == dx ? UINT64_C(1) << i : 0;
    }
    return add;
}

int64_t rg_batch_join(const rg_batch *b, int64_t n, rg_batch_run *r, rg_call *call)
{
    const rg_op *op = call->op;
    start_run(b->x, b->count, call->inputs, n, r->x, call->x);
    start_run(b->y, b->count, call->outputs, n, r->y, call->y);
    start_run(b->dy, b->count, call->gradients, n, r->dy, call->dy);
    start_run(b->dx, b->count, call->inputs, n, r->dx, call->dx);
    int64_t images = 1;
    rg_tensor_desc x[RG_MAX_INPUTS];
    for (int32_t i = 0; i < call->inputs; i++) {
        const rg_tensor *known = call->x[i] != NULL ? call->x[i] : call->dx[i];
        if (known == NULL)
            return n + 1;
        x[i] = known->desc;
    }
    if (b->states != NULL || op->joins == NULL || !op->joins(call->desc, x))
        return n + 1;
    const uint64_t add = rg_batch_add(b, call->inputs, n);
    while (n + images < b->count && rg_batch_add(b, call->inputs, n + images) == add &&
           run_continues(b->x, b->count, call->inputs, n + images, call->x, images) &&
           run_continues(b->y, b->count, call->outputs, n + images, call->y, images) &&
           run_continues(b->dy, b->count, call->gradients, n + images, call->dy, images) &&
           run_continues(b->dx, b->count, call->inputs, n + images, call->dx, images)) {
        const int64_t next = n + images;
        extend_run(b->x, b->count, call->inputs, next, r->x, images);
        extend_run(b->y, b->count, call->outputs, next, r->y, images);
        extend_run(b->dy, b->count, call->gradients, next, r->dy, images);
        extend_run(b->dx, b->count, call->inputs, next, r->dx, images);
        images++;
    }
    return n + images;
}
