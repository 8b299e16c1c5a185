/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Transpose: description, validation, shape rule, forward, gradient. */
#include "ops/transpose/transpose.h"
#include "ops/move/move_record.h"
#include "ops/ops.h"

#include <retrograde/transpose.h>

/* ---- description ---- */

static const rg_transpose_desc defaults = { .size = sizeof(rg_transpose_desc) };

rg_transpose_desc rg_transpose_desc_default(void)
{
    return defaults;
}

static const rg_field fields[] = {
    RG_FIELD_COUNTED(rg_transpose_desc, order, -RG_MAX_RANK, RG_MAX_RANK - 1,
                     "dimension of x that each dimension of y is; empty: reversed"),
    { .name = NULL },
};

static const rg_op_name names[] = {
    { .name = NULL },
};

/* ---- validation, shape rule ---- */

/* The dimension of x that dimension d of y is. */
static int32_t source_of(const rg_transpose_desc *desc, int32_t d, int32_t rank)
{
    if (desc->order_count == 0)
        return rank - 1 - d;
    return (int32_t)(desc->order[d] < 0 ? desc->order[d] + rank : desc->order[d]);
}

/* That the order names each dimension once; without an order there is nothing to check. */
static rg_status check(const void *desc)
{
    const rg_transpose_desc *d = desc;
    uint32_t named = 0;
    for (int32_t k = 0; k < d->order_count; k++) {
        const int32_t from = source_of(d, k, d->order_count);
        RG_CHECK(from >= 0 && from < d->order_count, RG_INVALID_ARGUMENT,
                 "transpose: order names dimension %lld of %d", (long long)d->order[k],
                 d->order_count);
        RG_CHECK(!(named >> from & 1), RG_INVALID_ARGUMENT,
                 "transpose: order names dimension %d twice; each dimension must occur once", from);
        named |= 1u << from;
    }
    return RG_OK;
}

/* The tensor with its dimensions in the order of y. */
static rg_tensor_desc permuted(const rg_transpose_desc *desc, const rg_tensor_desc *x)
{
    rg_tensor_desc view = *x;
    for (int32_t d = 0; d < x->rank; d++) {
        const int32_t from = source_of(desc, d, x->rank);
        view.dims[d] = x->dims[from];
        view.strides[d] = x->strides[from];
    }
    return view;
}

static rg_status shapes(const void *desc, const rg_tensor_desc x[], rg_tensor_desc y[])
{
    const rg_transpose_desc *d = desc;
    RG_CHECK(rg_dtype_is_data(x->dtype), RG_INVALID_ARGUMENT,
             "transpose: x is %s; f32, f64, f16 and bf16 are supported", rg_dtype_name(x->dtype));
    RG_CHECK(d->order_count == 0 || d->order_count == x->rank, RG_INVALID_ARGUMENT,
             "transpose: order has %d dimensions, but x has rank %d", d->order_count, x->rank);
    const rg_tensor_desc view = permuted(d, x);
    y[0] = rg_tensor_desc_dense(x->dtype, view.rank, view.dims);
    return RG_OK;
}

static uint32_t reads(const void *desc)
{
    (void)desc;
    return 0;
}

/* Where dimension 0 stays the outermost. */
static bool joins(const void *desc, const rg_tensor_desc x[])
{
    return source_of(desc, 0, x->rank) == 0;
}

/* ---- forward and gradient ---- */

static rg_status forward(rg_call *call)
{
    const rg_tensor_desc view = permuted(call->desc, &call->x[0]->desc);
    const rg_move move = rg_move_make_same(&view, &call->y[0]->desc);
    return rg_record_move(call, RG_TRANSPOSE_MOVE, call->x[0], call->y[0], &move);
}

static rg_status gradient(rg_call *call)
{
    const rg_tensor_desc view = permuted(call->desc, &call->dx[0]->desc);
    rg_move move = rg_move_make_same(&call->dy[0]->desc, &view);
    move.add = call->add & 1;
    return rg_record_move(call, RG_TRANSPOSE_MOVE, call->dy[0], call->dx[0], &move);
}

RG_OP_DEFINE(transpose, .text = "the same elements with their dimensions in another order",
             .desc = { fields, &defaults, sizeof defaults },
             .inputs = (const char *const[]){ "x", NULL },
             .outputs = (const char *const[]){ "y", NULL }, .names = names, .check = check,
             .shapes = shapes, .reads = reads, .joins = joins, .forward = forward,
             .gradient = gradient, .fusion = { .is_cheap = true });

rg_status rg_transpose_create(rg_device *device, const rg_transpose_desc *desc, rg_kernel **kernel)
{
    return rg_kernel_create(device, &rg_op_transpose, desc, kernel);
}
