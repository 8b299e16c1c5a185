/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Runs of ONNX's operators on shapes that are more than one op: Slice, Split, Concat. */
#include "operators/onnx_converters.h"
#include "operators/run.h"
#include "runtime/objects.h"

#include <retrograde/reshape.h>
#include <retrograde/slice.h>

#include <math.h>

rg_status rg_run_gradient_of(rg_run *run, rg_tensor *dy, int32_t rank, const int64_t source[],
                             rg_tensor **dx)
{
    rg_tensor *x;
    const rg_tensor_desc desc = rg_tensor_desc_dense(dy->desc.dtype, rank, source);
    RG_TRY(rg_tensor_create(run->device, &desc, &x));
    RG_TRY(rg_run_keep(run, x));
    const rg_run_reads reads = { .dy = &dy, .x = &x, .wanted = 1 };
    return rg_run_gradient(run, run->call.op, run->call.desc, &reads, dx);
}

static rg_status convert_slice(const rg_onnx_node *node, rg_onnx_call *call)
{
    uint32_t backwards = 0;
    return rg_onnx_slice_any(node, call, &backwards);
}

/* One index of x along `axis` into index `to` of y. */
static rg_status copy_index(rg_run *run, rg_kernel *copy, rg_tensor *x, rg_tensor *y, int32_t axis,
                            int64_t from, int64_t to)
{
    int64_t start[RG_MAX_RANK] = { 0 }, length[RG_MAX_RANK];
    rg_tensor *source = NULL, *target = NULL;
    memcpy(length, x->desc.dims, sizeof length);
    length[axis] = 1;
    start[axis] = from;
    rg_status status = rg_tensor_slice(x, start, length, NULL, &source);
    start[axis] = to;
    if (status == RG_OK)
        status = rg_tensor_slice(y, start, length, NULL, &target);
    if (status == RG_OK)
        status = rg_kernel_forward(copy, run->commands, &source, &target, NULL);
    rg_tensor_destroy(source);
    rg_tensor_destroy(target);
    return status;
}

/* Copies indices 0 to count - 1 of x along `axis` to y, the last one first. */
static rg_status copy_reversed(rg_run *run, rg_tensor *x, rg_tensor *y, int32_t axis, int64_t first,
                               int64_t count)
{
    rg_reshape_desc same = rg_reshape_desc_default();
    rg_kernel *copy;
    same.dims_count = x->desc.rank; /* all of them 0 */
    same.zero_keeps = true;
    RG_TRY(rg_reshape_create(run->device, &same, &copy));
    rg_status status = RG_OK;
    for (int64_t i = 0; i < count && status == RG_OK; i++)
        status = copy_index(run, copy, x, y, axis, first + count - 1 - i, i);
    rg_kernel_destroy(copy);
    return status;
}

/* A part of a dense x (outer, n, inner) along n, as (outer, blocks, length, inner). */
static rg_status view_blocks(rg_run *run, rg_tensor *x, int64_t start, int64_t blocks,
                             int64_t length, rg_tensor **view)
{
    const int64_t from[] = { 0, start, 0 };
    const int64_t part[] = { x->desc.dims[0], blocks * length, x->desc.dims[2] };
    const int64_t dims[] = { part[0], blocks, length, part[2] };
    rg_tensor *slice;
    RG_TRY(rg_tensor_slice(x, from, part, NULL, &slice));
    RG_TRY(rg_run_keep(run, slice));
    RG_TRY(rg_tensor_reshape(slice, 4, dims, view));
    return rg_run_keep(run, *view);
}

/* The order along the second dimension of x (outer, n, inner), reversed. n = blocks * length +
 * rest: the elements of all blocks are reversed at once, then the blocks, so that there are about
 * 3 sqrt(n) copies. */
static rg_status reverse_middle(rg_run *run, rg_tensor *x, rg_tensor *y)
{
    enum { MAX_COPIES = 64 }; /* one by one, where they are no more */
    const int64_t n = x->desc.dims[1], length = n <= MAX_COPIES ? 1 : (int64_t)sqrt((double)n);
    const int64_t blocks = n / length, rest = n - blocks * length;
    rg_tensor *from, *to;
    RG_TRY(view_blocks(run, x, 0, blocks, length, &from));
    RG_TRY(view_blocks(run, y, rest, blocks, length, &to));
    RG_TRY(copy_reversed(run, x, y, 1, n - rest, rest));
    if (length > 1) {
        const rg_tensor_desc dense = rg_tensor_desc_dense(x->desc.dtype, 4, from->desc.dims);
        rg_tensor *between;
        RG_TRY(rg_tensor_create(run->device, &dense, &between));
        RG_TRY(rg_run_keep(run, between));
        RG_TRY(copy_reversed(run, from, between, 2, 0, length));
        from = between;
    }
    return copy_reversed(run, from, to, 1, 0, blocks);
}

/* The order of a dense x along `axis`, reversed. */
static rg_status reverse(rg_run *run, rg_tensor *x, int32_t axis, rg_tensor **y)
{
    const rg_tensor_desc dense = rg_tensor_desc_dense(x->desc.dtype, x->desc.rank, x->desc.dims);
    int64_t dims[3] = { 1, x->desc.dims[axis], 1 };
    rg_tensor *from, *to;
    if (rg_shape_count(&dense) == 0) {
        *y = x;
        return RG_OK;
    }
    for (int32_t d = 0; d < x->desc.rank; d++)
        dims[d < axis ? 0 : 2] *= d != axis ? x->desc.dims[d] : 1;
    RG_TRY(rg_tensor_create(run->device, &dense, y));
    RG_TRY(rg_run_keep(run, *y));
    const int32_t kept = run->kept_count;
    RG_TRY(rg_run_reshape(run, x, 3, dims, &from));
    RG_TRY(rg_run_reshape(run, *y, 3, dims, &to));
    RG_TRY(reverse_middle(run, from, to));
    while (run->kept_count > kept) /* the commands keep what they use */
        rg_tensor_destroy(run->kept[--run->kept_count]);
    return RG_OK;
}

rg_status rg_run_slice(rg_run *run)
{
    rg_onnx_call call = run->call;
    uint32_t backwards = 0;
    rg_tensor *y;
    RG_TRY(rg_onnx_slice_any(&run->node, &call, &backwards));
    if (backwards == 0)
        return rg_run_op(run, rg_onnx_slice);
    RG_TRY(rg_onnx_finish(&run->node, &run->call, convert_slice));
    RG_TRY(rg_run_unary(run, &rg_op_slice, run->call.desc, run->in[0], &y));
    for (int32_t d = 0; d < run->shapes[0].rank; d++) {
        if (backwards >> d & 1)
            RG_TRY(reverse(run, y, d, &y));
    }
    return rg_run_give(run, 0, y);
}

rg_status rg_run_slice_gradient(rg_run *run)
{
    int64_t shape[RG_ONNX_VALUES];
    rg_tensor *dx;
    RG_TRY(rg_onnx_finish(&run->node, &run->call, rg_onnx_slice));
    const int32_t rank = rg_onnx_ints(&run->node, "shape", shape);
    RG_TRY(rg_run_gradient_of(run, run->in[0], rank, shape, &dx));
    return rg_run_give(run, 0, dx);
}

/* The lengths of the parts: `split`, or num_outputs equal ones, the last one shorter. */
static rg_status read_parts(const rg_run *run, int64_t whole, int64_t parts[RG_ONNX_VALUES],
                            int32_t *count)
{
    const rg_onnx_node *node = &run->node;
    int64_t sum = 0;
    *count = rg_onnx_ints(node, "split", parts);
    if (*count == 0) {
        int32_t outputs = (int32_t)rg_onnx_int(node, "num_outputs");
        for (int32_t i = 0; i < RG_ONNX_TENSORS && !rg_onnx_given(node, "num_outputs"); i++)
            outputs = rg_run_wants(run, i) ? i + 1 : outputs;
        RG_CHECK(outputs >= 1 && outputs <= RG_ONNX_TENSORS, RG_INVALID_ARGUMENT,
                 "%s: num_outputs must be 1 to %d, not %d", node->type, RG_ONNX_TENSORS, outputs);
        const int64_t each = (whole + outputs - 1) / outputs;
        *count = outputs;
        for (int32_t i = 0; i < outputs; i++) {
            const int64_t left = whole - (int64_t)i * each;
            parts[i] = left < each ? left : each;
        }
    }
    for (int32_t i = 0; i < *count; i++) {
        RG_CHECK(parts[i] >= 0 && parts[i] <= whole, RG_INVALID_ARGUMENT,
                 "%s: a part would have %lld elements", node->type, (long long)parts[i]);
        sum += parts[i];
    }
    RG_CHECK(sum == whole, RG_INVALID_ARGUMENT,
             "%s: the parts have %lld elements together, but the axis has %lld", node->type,
             (long long)sum, (long long)whole);
    return RG_OK;
}

rg_status rg_run_split(rg_run *run)
{
    const rg_tensor_desc *x = &run->shapes[0];
    int64_t axis, parts[RG_ONNX_VALUES], start = 0;
    int32_t count;
    RG_TRY(rg_onnx_axis(&run->node, "axis", rg_onnx_int(&run->node, "axis"), x->rank, &axis));
    RG_TRY(read_parts(run, x->dims[axis], parts, &count));
    RG_CHECK(run->wanted >> count == 0, RG_INVALID_ARGUMENT, "%s: there are only %d results",
             run->node.type, count);
    for (int32_t i = 0; i < count; i++) {
        rg_slice_desc slice = rg_slice_desc_default();
        rg_tensor *y;
        slice.start_count = slice.length_count = x->rank;
        for (int32_t d = 0; d < x->rank; d++)
            slice.length[d] = d == axis ? parts[i] : x->dims[d];
        slice.start[axis] = start;
        start += parts[i];
        if (!rg_run_wants(run, i))
            continue;
        RG_TRY(rg_run_unary(run, &rg_op_slice, &slice, run->in[0], &y));
        RG_TRY(rg_run_give(run, i, y));
    }
    return RG_OK;
}

/* ConcatTraining also says how long each input is along the axis. */
rg_status rg_run_concat(rg_run *run)
{
    const uint64_t wanted = run->wanted;
    double lengths[RG_ONNX_TENSORS];
    int64_t axis, count = 0;
    rg_tensor *made;
    RG_TRY(rg_onnx_axis(&run->node, "axis", rg_onnx_int(&run->node, "axis"), run->shapes[0].rank,
                        &axis));
    for (; count < run->call.input_count && run->in[count] != NULL; count++)
        lengths[count] = (double)run->shapes[count].dims[axis];
    run->wanted = wanted & 1;
    const rg_status status = rg_run_op(run, rg_onnx_concat);
    run->wanted = wanted;
    RG_TRY(status);
    if (!rg_run_wants(run, 1))
        return RG_OK;
    RG_TRY(rg_run_numbers(run, RG_I64, 1, &count, lengths, &made));
    return rg_run_give(run, 1, made);
}
