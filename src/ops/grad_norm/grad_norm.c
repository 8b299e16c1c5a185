/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Sums of squares: description, shape rule, forward. */
#include "ops/grad_norm/grad_norm.h"
#include "core/integer.h"
#include "ops/ops.h"
#include "runtime/objects.h"

#include <retrograde/grad_norm.h>

/* ---- description, shape rule ---- */

static const rg_grad_norm_desc defaults = { .size = sizeof(rg_grad_norm_desc), .factor = 1 };

rg_grad_norm_desc rg_grad_norm_desc_default(void)
{
    return defaults;
}

static const rg_field fields[] = {
    RG_FIELD(rg_grad_norm_desc, factor, "of the sum"),
    { .name = NULL },
};

static const rg_op_name names[] = { { .name = NULL } };

static rg_status shapes(const void *desc, const rg_tensor_desc x[], rg_tensor_desc y[])
{
    (void)desc;
    RG_CHECK(rg_dtype_is_data(x->dtype), RG_INVALID_ARGUMENT,
             "grad_norm: gradient is %s; f32, f64, f16 and bf16 are supported",
             rg_dtype_name(x->dtype));
    y[0] = rg_tensor_desc_dense(x->dtype == RG_F64 ? RG_F64 : RG_F32, 0, NULL);
    return RG_OK;
}

/* ---- forward ---- */

static int64_t pieces_of(int64_t count)
{
    return rg_ceil_div(count, RG_GRAD_NORM_PIECE);
}

static rg_status record_flat(rg_call calls[], int32_t count, const rg_tensor *partial,
                             const int64_t first[])
{
    const rg_tensor *list[RG_GRAD_NORM_ROWS];
    rg_grad_norm_flat_args args;
    memset(&args, 0, sizeof args);
    args.rows = count;
    rg_launch launch = { .kernel = RG_GRAD_NORM_FLAT,
                         .dtype = calls->x[0]->desc.dtype,
                         RG_ARGS(args),
                         .tensors = { RG_BIND(args, partial, partial) },
                         .list = list,
                         .length = count,
                         .list_at = RG_POINTER(args, gradient[0]),
                         .units = first[count] };
    for (int32_t r = 0; r < count; r++) {
        list[r] = calls[r].x[0];
        args.count[r] = rg_shape_count(&calls[r].x[0]->desc);
        launch.bytes += args.count[r] * (int64_t)rg_dtype_size(launch.dtype);
    }
    memcpy(args.first, first, (size_t)(count + 1) * sizeof first[0]);
    return rg_record(calls, &launch);
}

static rg_status record_strided(rg_call *call, const rg_tensor *partial)
{
    const rg_tensor_desc *x = &call->x[0]->desc;
    rg_grad_norm_strided_args args = { .walk = rg_walk_make(&x, 1, 0, x->rank),
                                       .count = rg_shape_count(x) };
    args.length = rg_walk_take_inner(&args.walk, 1, &args.step);
    const rg_launch launch = { .kernel = RG_GRAD_NORM_STRIDED,
                               .dtype = x->dtype,
                               RG_ARGS(args),
                               .tensors = { RG_BIND(args, partial, partial),
                                            RG_BIND(args, gradient, call->x[0]) },
                               .units = pieces_of(args.count),
                               .bytes = args.count * (int64_t)rg_dtype_size(x->dtype) };
    return rg_record(call, &launch);
}

static rg_status record_total(rg_call calls[], int32_t count, const rg_tensor *partial,
                              const int64_t first[])
{
    const rg_tensor *list[RG_GRAD_NORM_ROWS];
    rg_grad_norm_total_args args;
    memset(&args, 0, sizeof args);
    args.rows = count;
    args.factor = ((const rg_grad_norm_desc *)calls->desc)->factor;
    for (int32_t r = 0; r < count; r++)
        list[r] = calls[r].y[0];
    memcpy(args.first, first, (size_t)(count + 1) * sizeof first[0]);
    const rg_launch launch = { .kernel = RG_GRAD_NORM_TOTAL,
                               .dtype = calls->x[0]->desc.dtype,
                               RG_ARGS(args),
                               .tensors = { RG_BIND(args, partial, partial) },
                               .list = list,
                               .length = count,
                               .list_at = RG_POINTER(args, squares[0]),
                               .units = count,
                               .grain = RG_GRAD_NORM_ROWS,
                               .bytes = first[count] * (int64_t)sizeof(double) };
    return rg_record(calls, &launch);
}

/* Gradients of one dtype: dense ones, or a single one with any strides. */
static rg_status record_some(rg_call calls[], int32_t count)
{
    int64_t first[RG_GRAD_NORM_ROWS + 1] = { 0 };
    for (int32_t r = 0; r < count; r++)
        first[r + 1] = first[r] + pieces_of(rg_shape_count(&calls[r].x[0]->desc));
    const rg_tensor_desc desc = rg_tensor_desc_dense(RG_F64, 1, &first[count]);
    rg_tensor *partial;
    RG_TRY(rg_tensor_create_temporary(calls->commands, &desc, &partial));
    rg_status status = rg_shape_is_dense(&calls->x[0]->desc)
                           ? record_flat(calls, count, partial, first)
                           : record_strided(calls, partial);
    if (status == RG_OK)
        status = record_total(calls, count, partial, first);
    rg_tensor_destroy(partial);
    return status;
}

static rg_status forward_calls(rg_call *calls, int32_t count)
{
    for (int32_t n = 0, next; n < count; n = next) {
        const rg_tensor_desc *x = &calls[n].x[0]->desc;
        next = n + 1;
        while (next < count && next - n < RG_GRAD_NORM_ROWS && rg_shape_is_dense(x) &&
               rg_shape_is_dense(&calls[next].x[0]->desc) &&
               calls[next].x[0]->desc.dtype == x->dtype)
            next++;
        RG_TRY(record_some(&calls[n], next - n));
    }
    return RG_OK;
}

static rg_status forward(rg_call *call)
{
    return forward_calls(call, 1);
}

RG_OP_DEFINE(grad_norm, .text = "sum of squares of a gradient",
             .desc = { fields, &defaults, sizeof defaults },
             .inputs = (const char *const[]){ "gradient", NULL },
             .outputs = (const char *const[]){ "squares", NULL }, .names = names, .shapes = shapes,
             .forward = forward, .forward_calls = forward_calls);

rg_status rg_grad_norm_create(rg_device *device, const rg_grad_norm_desc *desc, rg_kernel **kernel)
{
    return rg_kernel_create(device, &rg_op_grad_norm, desc, kernel);
}
