/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Reshape: description, validation, shape rule, forward, gradient. */
#include "ops/reshape/reshape.h"
#include "core/shape.h"
#include "ops/move/move_record.h"
#include "ops/ops.h"

#include <retrograde/reshape.h>

/* ---- description ---- */

static const rg_reshape_desc defaults = {
    .size = sizeof(rg_reshape_desc),
    .dims_count = 1,
    .dims = { -1 },
    .zero_keeps = false,
};

rg_reshape_desc rg_reshape_desc_default(void)
{
    return defaults;
}

static const rg_field fields[] = {
    RG_FIELD_COUNTED(rg_reshape_desc, dims, -1, 0x1p62,
                     "dimensions of y; one may be -1 and is then computed"),
    RG_FIELD(rg_reshape_desc, zero_keeps,
             "a 0 in dims copies the dimension of x at the same index (ONNX)"),
    { .name = NULL },
};

static const rg_op_name names[] = {
    { "MPSNNReshape", false, "", "sourceImage=x destinationImage=y", 3, 4 },
    { "MPSNNReshapeGradient", true, "", "sourceGradient=dy sourceImage=x destinationGradient=dx", 0,
      0 }, /* dy has any rank */
    { .name = NULL },
};

/* ---- validation, shape rule ---- */

static rg_status check(const void *desc)
{
    const rg_reshape_desc *d = desc;
    int32_t open = 0;
    for (int32_t k = 0; k < d->dims_count; k++)
        open += d->dims[k] == -1;
    RG_CHECK(open <= 1, RG_INVALID_ARGUMENT,
             "reshape: dims has -1 %d times; at most one -1 is allowed", open);
    return RG_OK;
}

static rg_status refuse_count(const rg_tensor_desc *x, const int64_t dims[], int32_t rank)
{
    char have[RG_SHAPE_TEXT], want[RG_SHAPE_TEXT];
    const rg_tensor_desc y = rg_tensor_desc_dense(x->dtype, rank, dims);
    return rg_fail(RG_INVALID_ARGUMENT,
                   "reshape: x is %s, which has a different number of elements than %s",
                   rg_shape_text(x, have), rg_shape_text(&y, want));
}

/* The dimensions of y for the shape of x. */
static rg_status resolve(const rg_reshape_desc *desc, const rg_tensor_desc *x, int64_t dims[])
{
    const int64_t count = rg_shape_count(x);
    int64_t known = 1;
    int32_t open = -1;
    bool fits = true;
    for (int32_t d = 0; d < desc->dims_count; d++) {
        const bool keeps = desc->zero_keeps && desc->dims[d] == 0;
        RG_CHECK(!keeps || d < x->rank, RG_INVALID_ARGUMENT,
                 "reshape: a 0 copies dimension %d, but x has rank %d", d, x->rank);
        dims[d] = keeps ? x->dims[d] : desc->dims[d];
        if (dims[d] == -1)
            open = d;
        else
            fits = fits && !__builtin_mul_overflow(known, dims[d], &known);
    }
    RG_CHECK(open < 0 || !fits || known != 0, RG_INVALID_ARGUMENT,
             "reshape: dimension %d is -1 and another is 0, so it cannot be computed", open);
    if (open >= 0 && fits && count % known == 0)
        dims[open] = count / known;
    else if (open >= 0 || !fits || known != count)
        return refuse_count(x, dims, desc->dims_count);
    return RG_OK;
}

static rg_status shapes(const void *desc, const rg_tensor_desc x[], rg_tensor_desc y[])
{
    const rg_reshape_desc *d = desc;
    int64_t dims[RG_MAX_RANK];
    RG_CHECK(rg_dtype_is_data(x->dtype), RG_INVALID_ARGUMENT,
             "reshape: x is %s; f32, f64, f16 and bf16 are supported", rg_dtype_name(x->dtype));
    RG_TRY(resolve(d, x, dims));
    y[0] = rg_tensor_desc_dense(x->dtype, d->dims_count, dims);
    return rg_shape_check(&y[0], "reshape", NULL);
}

static uint32_t reads(const void *desc)
{
    (void)desc;
    return 0;
}

/* Where dimension 0 of y follows from that of x, and all others do not. */
static bool joins(const void *desc, const rg_tensor_desc x[])
{
    const rg_reshape_desc *d = desc;
    (void)x;
    return d->dims_count > 0 && (d->dims[0] == -1 || (d->zero_keeps && d->dims[0] == 0));
}

/* ---- forward and gradient ---- */

/* A copy of a view of the same dimensions may go by tiles. */
static rg_move move_of(const rg_tensor_desc *from, const rg_tensor_desc *to)
{
    return rg_shape_same_dims(from, to) ? rg_move_make_same(from, to) : rg_move_make(from, to);
}

static rg_status forward(rg_call *call)
{
    const rg_move move = move_of(&call->x[0]->desc, &call->y[0]->desc);
    return rg_record_move(call, RG_RESHAPE_MOVE, call->x[0], call->y[0], &move);
}

static rg_status gradient(rg_call *call)
{
    rg_move move = move_of(&call->dy[0]->desc, &call->dx[0]->desc);
    move.add = call->add & 1;
    return rg_record_move(call, RG_RESHAPE_MOVE, call->dy[0], call->dx[0], &move);
}

static uint32_t views(const void *desc, bool is_gradient)
{
    (void)desc;
    (void)is_gradient;
    return 1;
}

RG_OP_DEFINE(reshape, .text = "the same elements in row-major order with other dimensions",
             .desc = { fields, &defaults, sizeof defaults },
             .inputs = (const char *const[]){ "x", NULL },
             .outputs = (const char *const[]){ "y", NULL }, .names = names, .check = check,
             .shapes = shapes, .reads = reads, .joins = joins, .forward = forward,
             .gradient = gradient, .fusion = { .views = views, .is_cheap = true });

rg_status rg_reshape_create(rg_device *device, const rg_reshape_desc *desc, rg_kernel **kernel)
{
    return rg_kernel_create(device, &rg_op_reshape, desc, kernel);
}
