/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Runs of ONNX's reductions that are more than one op: of no elements, and the last of equal ones.
 */
#include "core/memory.h"
#include "core/shape.h"
#include "operators/onnx_converters.h"
#include "operators/run.h"
#include "runtime/objects.h"

#include <retrograde/arithmetic.h>
#include <retrograde/reduce.h>

#include <math.h>

static rg_status combine(rg_run *run, const rg_arithmetic_desc *desc, rg_tensor *a, rg_tensor *b,
                         rg_tensor **y)
{
    return rg_run_forward(run, &rg_op_arithmetic, desc, (rg_tensor *[]){ a, b }, y, NULL);
}

/* The maximum of nothing is -infinity, the minimum infinity: a sum of nothing has their shape. */
static rg_status of_nothing(rg_run *run, rg_reduce_desc *d)
{
    const rg_arithmetic_desc add = rg_arithmetic_desc_default();
    const double value = d->kind == RG_REDUCE_MAX ? -(double)INFINITY : (double)INFINITY;
    rg_tensor *y, *number;
    d->kind = RG_REDUCE_SUM;
    RG_TRY(rg_run_unary(run, &rg_op_reduce, d, run->in[0], &y));
    RG_TRY(rg_run_numbers(run, run->shapes[0].dtype, 0, NULL, &value, &number));
    RG_TRY(combine(run, &add, y, number, &y));
    return rg_run_give(run, 0, y);
}

/* Without axes, noop_with_empty_axes makes a copy. */
rg_status rg_run_reduce(rg_run *run)
{
    int64_t axes[RG_ONNX_VALUES];
    rg_reduce_desc *d = (rg_reduce_desc *)run->call.desc;
    if (rg_onnx_ints(&run->node, "axes", axes) == 0 &&
        rg_onnx_int(&run->node, "noop_with_empty_axes") != 0)
        return rg_run_give(run, 0, run->in[0]);
    const bool extreme = d->kind == RG_REDUCE_MAX || d->kind == RG_REDUCE_MIN;
    if (!extreme || rg_shape_count(&run->shapes[0]) > 0)
        return rg_run_op(run, rg_onnx_reduce);
    RG_TRY(rg_onnx_finish(&run->node, &run->call, rg_onnx_reduce));
    return of_nothing(run, d);
}

/* ---- the last of equal elements ---- */

/* 1, 2, 3, … along one dimension of x. */
static rg_status ramp_along(rg_run *run, int64_t axis, rg_tensor **ramp)
{
    static const int64_t most[RG_I64 + 1] = {
        [RG_F32] = 1 << 24, [RG_F64] = (int64_t)1 << 53, [RG_F16] = 1 << 11, [RG_BF16] = 1 << 8
    };
    const rg_tensor_desc *x = &run->shapes[0];
    const int64_t n = x->dims[axis];
    RG_CHECK(n <= most[x->dtype], RG_UNSUPPORTED,
             "%s: select_last_index is supported for at most %lld elements of %s", run->node.type,
             (long long)most[x->dtype], rg_dtype_name(x->dtype));
    int64_t dims[RG_MAX_RANK];
    void *memory;
    for (int32_t i = 0; i < x->rank; i++)
        dims[i] = i == axis ? n : 1;
    RG_TRY(rg_allocate(&run->device->allocator, (size_t)n * sizeof(double) + 1, &memory));
    double *values = memory;
    for (int64_t i = 0; i < n; i++)
        values[i] = (double)(i + 1);
    const rg_status status = rg_run_numbers(run, x->dtype, x->rank, dims, values, ramp);
    rg_release(&run->device->allocator, memory, (size_t)n * sizeof(double) + 1);
    return status;
}

/* The number of the last element that is the extreme one. NaN wins over numbers, and equals
 * nothing: where x differs from itself. */
static rg_status last_index(rg_run *run, const rg_reduce_desc *arg, int64_t axis)
{
    rg_reduce_desc extreme = *arg, first = *arg;
    rg_arithmetic_desc equal = rg_arithmetic_desc_default(), differs, add, multiply;
    rg_tensor *x = run->in[0], *best, *ramp, *same, *nan, *y;
    differs = add = multiply = equal;
    equal.kind = differs.kind = RG_ARITHMETIC_COMPARE;
    equal.comparison = RG_COMPARE_EQUAL;
    differs.comparison = RG_COMPARE_NOT_EQUAL;
    multiply.kind = RG_ARITHMETIC_MULTIPLY;
    extreme.kind = arg->kind == RG_REDUCE_ARG_MAX ? RG_REDUCE_MAX : RG_REDUCE_MIN;
    extreme.keep_dims = true;
    first.kind = RG_REDUCE_ARG_MAX;
    RG_TRY(rg_run_unary(run, &rg_op_reduce, &extreme, x, &best));
    RG_TRY(ramp_along(run, axis, &ramp));
    RG_TRY(combine(run, &equal, x, best, &same));
    RG_TRY(combine(run, &differs, x, x, &nan));
    RG_TRY(combine(run, &add, same, nan, &same));
    RG_TRY(combine(run, &multiply, same, ramp, &same));
    RG_TRY(rg_run_unary(run, &rg_op_reduce, &first, same, &y));
    return rg_run_give(run, 0, y);
}

rg_status rg_run_arg_reduce(rg_run *run)
{
    int64_t axis;
    if (rg_onnx_int(&run->node, "select_last_index") == 0)
        return rg_run_op(run, rg_onnx_arg_reduce);
    RG_TRY(rg_onnx_finish(&run->node, &run->call, rg_onnx_arg_reduce_any));
    const rg_reduce_desc *d = (const rg_reduce_desc *)run->call.desc;
    RG_TRY(rg_onnx_axis(&run->node, "axis", d->dims[0], run->shapes[0].rank, &axis));
    return last_index(run, d, axis);
}
