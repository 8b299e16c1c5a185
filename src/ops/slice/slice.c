/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Slice: description, shape rule, forward, gradient. */
#include "ops/slice/slice.h"
#include "ops/move/move_record.h"
#include "ops/ops.h"

#include <retrograde/slice.h>

/* ---- description ---- */

static const rg_slice_desc defaults = { .size = sizeof(rg_slice_desc) };

rg_slice_desc rg_slice_desc_default(void)
{
    return defaults;
}

static const rg_field fields[] = {
    RG_FIELD_COUNTED(rg_slice_desc, start, 0, 0,
                     "start index in each dimension; negative: from the end"),
    RG_FIELD_COUNTED(rg_slice_desc, length, -1, 0x1p62,
                     "number of elements in each dimension; -1: all"),
    RG_FIELD_COUNTED(rg_slice_desc, step, 1, 0x1p62, "step between elements in each dimension"),
    { .name = NULL },
};

static const rg_op_name names[] = {
    { "MPSNNSlice", false, "", "sourceImage=x destinationImage=y", 3, 4 },
    { .name = NULL },
};

/* ---- shape rule ---- */

/* The slice in numbers: what the lists mean for the shape of x. */
typedef struct part {
    int64_t start[RG_MAX_RANK], length[RG_MAX_RANK], step[RG_MAX_RANK];
} part;

static rg_status resolve_dim(const rg_slice_desc *desc, int32_t d, int64_t dim, part *p)
{
    const int64_t asked = d < desc->start_count ? desc->start[d] : 0;
    const int64_t start = asked < 0 ? asked + dim : asked;
    const int64_t step = d < desc->step_count ? desc->step[d] : 1;
    int64_t length = d < desc->length_count ? desc->length[d] : -1;
    RG_CHECK(start >= 0 && start <= dim, RG_INVALID_ARGUMENT,
             "slice: start %lld is out of range for dimension %d of length %lld", (long long)asked,
             d, (long long)dim);
    if (length == -1)
        length = start < dim ? (dim - start - 1) / step + 1 : 0;
    int64_t extent = 0; /* from the first element to the last */
    const bool fits =
        length == 0 || (!__builtin_mul_overflow(length - 1, step, &extent) && extent < dim - start);
    RG_CHECK(fits, RG_INVALID_ARGUMENT,
             "slice: %lld elements from %lld with step %lld exceed dimension %d of length %lld",
             (long long)length, (long long)start, (long long)step, d, (long long)dim);
    p->start[d] = start;
    p->length[d] = length;
    p->step[d] = length > 1 ? step : 1;
    return RG_OK;
}

static rg_status check_list(const char *name, int32_t count, int32_t rank)
{
    RG_CHECK(count <= rank, RG_INVALID_ARGUMENT, "slice: %s has %d values, but x has rank %d", name,
             count, rank);
    return RG_OK;
}

static rg_status resolve(const rg_slice_desc *desc, const rg_tensor_desc *x, part *p)
{
    RG_TRY(check_list("start", desc->start_count, x->rank));
    RG_TRY(check_list("length", desc->length_count, x->rank));
    RG_TRY(check_list("step", desc->step_count, x->rank));
    for (int32_t d = 0; d < x->rank; d++)
        RG_TRY(resolve_dim(desc, d, x->dims[d], p));
    return RG_OK;
}

static rg_status shapes(const void *desc, const rg_tensor_desc x[], rg_tensor_desc y[])
{
    RG_CHECK(rg_dtype_is_data(x->dtype), RG_INVALID_ARGUMENT,
             "slice: x is %s; f32, f64, f16 and bf16 are supported", rg_dtype_name(x->dtype));
    part p;
    RG_TRY(resolve(desc, x, &p));
    y[0] = rg_tensor_desc_dense(x->dtype, x->rank, p.length);
    return RG_OK;
}

static uint32_t reads(const void *desc)
{
    (void)desc;
    return 0;
}

/* Where all of dimension 0 is taken, however long it is. */
static bool joins(const void *desc, const rg_tensor_desc x[])
{
    const rg_slice_desc *d = desc;
    (void)x;
    return (d->start_count == 0 || d->start[0] == 0) &&
           (d->length_count == 0 || d->length[0] == -1) && (d->step_count == 0 || d->step[0] == 1);
}

/* ---- forward and gradient ---- */

/* The slice of a tensor as a view of it; returns how many elements come before its first. */
static int64_t view_of(const rg_tensor_desc *desc, const part *p, rg_tensor_desc *view)
{
    int64_t first = 0;
    *view = *desc;
    for (int32_t d = 0; d < desc->rank; d++) {
        first += p->length[d] > 0 ? p->start[d] * desc->strides[d] : 0;
        view->dims[d] = p->length[d];
        view->strides[d] = p->step[d] * desc->strides[d];
    }
    return first;
}

static rg_status forward(rg_call *call)
{
    const rg_tensor *x = call->x[0], *y = call->y[0];
    rg_tensor_desc view;
    part p;
    RG_TRY(resolve(call->desc, &x->desc, &p));
    const int64_t first = view_of(&x->desc, &p, &view);
    rg_move move = rg_move_make_same(&view, &y->desc);
    move.from_offset = first;
    return rg_record_move(call, RG_SLICE_MOVE, x, y, &move);
}

static rg_status gradient(rg_call *call)
{
    const rg_tensor *dy = call->dy[0], *dx = call->dx[0];
    rg_tensor_desc view;
    part p;
    RG_TRY(resolve(call->desc, &dx->desc, &p));
    if (call->add & 1) {
        const int64_t first = view_of(&dx->desc, &p, &view);
        rg_move move = rg_move_make_same(&dy->desc, &view);
        move.to_offset = first;
        move.add = true;
        return rg_record_move(call, RG_SLICE_MOVE, dy, dx, &move);
    }
    const rg_scatter scatter = rg_scatter_make(&dy->desc, &dx->desc, p.start, p.step);
    return rg_record_scatter(call, RG_SLICE_SCATTER, dy, dx, &scatter);
}

RG_OP_DEFINE(slice, .text = "slice of a tensor: start, length and step of each dimension",
             .desc = { fields, &defaults, sizeof defaults },
             .inputs = (const char *const[]){ "x", NULL },
             .outputs = (const char *const[]){ "y", NULL }, .names = names, .shapes = shapes,
             .reads = reads, .joins = joins, .forward = forward, .gradient = gradient,
             .fusion = { .is_cheap = true });

rg_status rg_slice_create(rg_device *device, const rg_slice_desc *desc, rg_kernel **kernel)
{
    return rg_kernel_create(device, &rg_op_slice, desc, kernel);
}
