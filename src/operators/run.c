/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What runs of operators have in common: kernels, views, layouts, and the op alone. */
#include "operators/run.h"
#include "core/dtype.h"
#include "core/memory.h"
#include "core/shape.h"
#include "runtime/objects.h"

#include <retrograde/reshape.h>

/* ---- what a run holds ---- */

rg_status rg_run_keep(rg_run *run, rg_tensor *tensor)
{
    if (run->kept_count == RG_RUN_KEPT) {
        rg_tensor_destroy(tensor);
        return rg_fail(RG_UNSUPPORTED, "%s takes too many steps", run->node.type);
    }
    run->kept[run->kept_count++] = tensor;
    return RG_OK;
}

void rg_run_end(rg_run *run)
{
    for (int32_t i = 0; i < run->kept_count; i++)
        rg_tensor_destroy(run->kept[i]);
    run->kept_count = 0;
}

bool rg_run_wants(const rg_run *run, int32_t output)
{
    return run->wanted >> output & 1;
}

static rg_status copy(rg_run *run, rg_tensor *x, rg_tensor **y)
{
    rg_reshape_desc desc = rg_reshape_desc_default();
    desc.dims_count = x->desc.rank;
    memcpy(desc.dims, x->desc.dims, sizeof desc.dims);
    return rg_run_unary(run, &rg_op_reshape, &desc, x, y);
}

/* Straight into the caller's memory. */
static rg_status give_placed(rg_run *run, int32_t output, rg_tensor *tensor)
{
    rg_tensor *to = NULL;
    const rg_tensor_desc desc =
        rg_tensor_desc_dense(tensor->desc.dtype, tensor->desc.rank, tensor->desc.dims);
    RG_TRY(run->results->give(run->results->context, output, &desc, &to));
    if (to == NULL)
        return RG_OK;
    rg_reshape_desc same = rg_reshape_desc_default();
    rg_kernel *kernel;
    same.dims_count = desc.rank;
    memcpy(same.dims, desc.dims, sizeof same.dims);
    RG_TRY(rg_reshape_create(run->device, &same, &kernel));
    const rg_status status = rg_kernel_forward(kernel, run->commands, &tensor, &to, NULL);
    rg_kernel_destroy(kernel);
    return status;
}

rg_status rg_run_give(rg_run *run, int32_t output, rg_tensor *tensor)
{
    if (!rg_run_wants(run, output))
        return RG_OK;
    if (run->results != NULL)
        return give_placed(run, output, tensor);
    int32_t at = 0;
    while (at < run->kept_count && run->kept[at] != tensor)
        at++;
    const bool is_data = rg_dtype_is_data(tensor->desc.dtype);
    if (at == run->kept_count || (is_data && !rg_shape_is_dense(&tensor->desc))) {
        RG_TRY(copy(run, tensor, &tensor));
        at = run->kept_count - 1;
    }
    run->kept[at] = NULL;
    run->out[output] = tensor;
    return RG_OK;
}

/* ---- kernels ---- */

static rg_status named(const rg_run *run, rg_status status)
{
    if (status == RG_INVALID_ARGUMENT || status == RG_UNSUPPORTED)
        rg_error_prefix("%s, run by ", run->node.type);
    return status;
}

rg_status rg_run_forward(rg_run *run, const rg_op *op, const void *desc, rg_tensor *const x[],
                         rg_tensor *y[], rg_state **state)
{
    rg_kernel *kernel;
    RG_TRY(named(run, rg_kernel_create(run->device, op, desc, &kernel)));
    const int32_t outputs = rg_kernel_outputs(kernel);
    rg_status status =
        named(run, rg_kernel_forward_alloc(kernel, run->commands, 1, x, false, y, state));
    rg_kernel_destroy(kernel);
    rg_status kept = RG_OK;
    for (int32_t i = 0; i < outputs && status == RG_OK; i++) {
        const rg_status one = rg_run_keep(run, y[i]);
        kept = one != RG_OK ? one : kept;
    }
    if (kept != RG_OK && state != NULL) {
        rg_state_destroy(*state);
        *state = NULL;
    }
    return status != RG_OK ? status : kept;
}

rg_status rg_run_gradient(rg_run *run, const rg_op *op, const void *desc, const rg_run_reads *reads,
                          rg_tensor *dx[])
{
    rg_kernel *kernel;
    rg_tensor *made[RG_MAX_INPUTS];
    RG_TRY(named(run, rg_kernel_create(run->device, op, desc, &kernel)));
    const int32_t inputs = rg_kernel_inputs(kernel);
    rg_status status = rg_kernel_gradient_alloc(
        kernel, run->commands, 1, reads->dy, reads->x, reads->y,
        reads->state != NULL ? &reads->state : NULL, reads->wanted, false, made);
    status = named(run, status);
    rg_kernel_destroy(kernel);
    rg_status kept = RG_OK;
    for (int32_t i = 0; i < inputs && status == RG_OK; i++) {
        dx[i] = made[i];
        const rg_status one = made[i] != NULL ? rg_run_keep(run, made[i]) : RG_OK;
        kept = one != RG_OK ? one : kept;
    }
    return status != RG_OK ? status : kept;
}

rg_status rg_run_unary(rg_run *run, const rg_op *op, const void *desc, rg_tensor *x, rg_tensor **y)
{
    return rg_run_forward(run, op, desc, &x, y, NULL);
}

/* ---- views and copies ---- */

rg_status rg_run_reshape(rg_run *run, rg_tensor *x, int32_t rank, const int64_t dims[],
                         rg_tensor **y)
{
    if (rg_tensor_reshape(x, rank, dims, y) == RG_OK)
        return rg_run_keep(run, *y);
    rg_reshape_desc desc = rg_reshape_desc_default();
    desc.dims_count = rank;
    memcpy(desc.dims, dims, (size_t)rank * sizeof dims[0]);
    return rg_run_unary(run, &rg_op_reshape, &desc, x, y);
}

rg_status rg_run_permute(rg_run *run, rg_tensor *x, const int32_t order[], rg_tensor **y)
{
    RG_TRY(rg_tensor_permute(x, order, y));
    return rg_run_keep(run, *y);
}

/* Data is made dense, since kernels are faster then; integers stay a view. */
static rg_status make_dense(rg_run *run, rg_tensor *x, rg_tensor **y)
{
    *y = x;
    if (!rg_dtype_is_data(x->desc.dtype) || rg_shape_is_dense(&x->desc))
        return RG_OK;
    return copy(run, x, y);
}

rg_status rg_run_arrange(rg_run *run, rg_tensor *x, rg_onnx_layout layout, rg_tensor **y)
{
    *y = x;
    const int32_t rank = x->desc.rank;
    const bool image = layout == RG_ONNX_IMAGE || layout == RG_ONNX_LAST;
    rg_tensor_desc to;
    if (layout == RG_ONNX_SAME || layout == RG_ONNX_NUMBERS ||
        (image && (rank < 3 || (run->node.nhwc && (rank > 3 || layout == RG_ONNX_LAST)))))
        return RG_OK;
    if (run->node.nhwc && image) {
        const int64_t dims[] = { x->desc.dims[0], 1, x->desc.dims[1], x->desc.dims[2] };
        return rg_run_reshape(run, x, 4, dims, y);
    }
    RG_TRY(rg_onnx_shape(&x->desc, layout, run->call.axis, &to));
    if (layout == RG_ONNX_ROWS || layout == RG_ONNX_FLAT)
        return rg_run_reshape(run, x, to.rank, to.dims, y);
    int32_t order[RG_MAX_RANK] = { 1, 0 };
    if (image) {
        order[0] = 0;
        order[rank - 1] = 1;
        for (int32_t d = 1; d < rank - 1; d++)
            order[d] = d + 1;
    }
    RG_TRY(rg_run_permute(run, x, order, y));
    RG_TRY(make_dense(run, *y, y));
    return to.rank == rank ? RG_OK : rg_run_reshape(run, *y, to.rank, to.dims, y);
}

rg_status rg_run_restore(rg_run *run, rg_tensor *x, rg_onnx_layout layout,
                         const rg_tensor_desc *like, rg_tensor **y)
{
    *y = x;
    if (layout == RG_ONNX_ROWS || layout == RG_ONNX_FLAT)
        return rg_run_reshape(run, x, like->rank, like->dims, y);
    if ((layout != RG_ONNX_IMAGE && layout != RG_ONNX_LAST) || like->rank < 3)
        return RG_OK;
    if (like->rank == 3 && x->desc.rank == 4) { /* (n, 1, d, c) */
        const int64_t dims[] = { x->desc.dims[0], x->desc.dims[2], x->desc.dims[3] };
        RG_TRY(rg_run_reshape(run, x, 3, dims, &x));
        *y = x;
    }
    if (run->node.nhwc)
        return RG_OK;
    const int32_t rank = x->desc.rank;
    int32_t order[RG_MAX_RANK] = { 0, rank - 1 };
    for (int32_t d = 2; d < rank; d++)
        order[d] = d - 1;
    RG_TRY(rg_run_permute(run, x, order, y));
    return run->results != NULL ? RG_OK : make_dense(run, *y, y);
}

rg_status rg_run_numbers(rg_run *run, rg_dtype dtype, int32_t rank, const int64_t dims[],
                         const double values[], rg_tensor **y)
{
    const rg_tensor_desc desc = rg_tensor_desc_dense(dtype, rank, dims);
    const size_t count = (size_t)rg_shape_count(&desc), bytes = count * rg_dtype_size(dtype);
    void *memory;
    RG_TRY(rg_tensor_create(run->device, &desc, y));
    RG_TRY(rg_run_keep(run, *y));
    RG_TRY(rg_allocate(&run->device->allocator, bytes + 1, &memory));
    rg_status status = rg_convert(memory, dtype, values, RG_F64, count);
    if (status == RG_OK)
        status = rg_tensor_write(*y, memory, bytes, RG_LAYOUT_SAME);
    rg_release(&run->device->allocator, memory, bytes + 1);
    return status;
}

rg_status rg_run_read(rg_run *run, const rg_tensor *x, double **values, int64_t *count)
{
    const rg_allocator *allocator = &run->device->allocator;
    *count = rg_shape_count(&x->desc);
    const size_t bytes = (size_t)*count * rg_dtype_size(x->desc.dtype);
    void *raw, *made;
    *values = NULL;
    RG_TRY(rg_allocate(allocator, bytes + 1, &raw));
    rg_status status = rg_allocate(allocator, (size_t)*count * sizeof **values + 1, &made);
    if (status == RG_OK) {
        *values = made;
        status = rg_tensor_read(x, raw, bytes, RG_LAYOUT_SAME);
        for (int64_t i = 0; i < *count && status == RG_OK; i++)
            (*values)[i] = rg_element_get(raw, x->desc.dtype, i);
        if (status != RG_OK) {
            rg_run_release(run, *values, *count);
            *values = NULL;
        }
    }
    rg_release(allocator, raw, bytes + 1);
    return status;
}

void rg_run_release(rg_run *run, double *values, int64_t count)
{
    rg_release(&run->device->allocator, values, (size_t)count * sizeof *values + 1);
}

/* ---- the op alone ---- */

typedef struct operands {
    rg_tensor *x[RG_MAX_INPUTS], *y[RG_MAX_OUTPUTS], *dy[RG_MAX_OUTPUTS], *dx[RG_MAX_INPUTS];
} operands;

static rg_status arrange_all(rg_run *run, operands *o)
{
    for (int32_t i = 0; i < run->call.input_count; i++) {
        const rg_onnx_tensor *t = &run->call.inputs[i];
        rg_tensor *arranged;
        if (run->in[i] == NULL || t->index < 0)
            continue;
        RG_TRY(rg_run_arrange(run, run->in[i], t->layout, &arranged));
        (t->role == RG_ROLE_X ? o->x : t->role == RG_ROLE_DY ? o->dy : o->y)[t->index] = arranged;
    }
    return RG_OK;
}

/* A gradient's shape is that of its input, which ONNX does not give: a bias has one number for each
 * channel of dy, beta has the shape of gamma. Its elements are not read. */
static rg_status make_shape(rg_run *run, operands *o, int32_t input)
{
    const rg_tensor *last = o->dy[0];
    int64_t channels = last->desc.dims[last->desc.rank > 0 ? last->desc.rank - 1 : 0];
    rg_dtype dtype = last->desc.dtype;
    if (input > 0 && o->x[input - 1] != NULL && o->x[input - 1]->desc.rank == 1) {
        channels = o->x[input - 1]->desc.dims[0];
        dtype = o->x[input - 1]->desc.dtype;
    }
    const rg_tensor_desc desc = rg_tensor_desc_dense(dtype, 1, &channels);
    RG_TRY(rg_tensor_create(run->device, &desc, &o->x[input]));
    return rg_run_keep(run, o->x[input]);
}

/* ONNX's shape for a tensor of a layout: the image, or the parameter with the same index. */
static const rg_tensor_desc *shape_like(const rg_run *run, const rg_onnx_tensor *t)
{
    for (int32_t i = 0; i < run->call.input_count; i++) {
        const rg_onnx_tensor *x = &run->call.inputs[i];
        const bool same = t->role == RG_ROLE_DX && x->role == RG_ROLE_X && x->index == t->index;
        if (run->in[i] != NULL && same)
            return &run->shapes[i];
    }
    if (t->layout == RG_ONNX_FLAT) { /* beta, as gamma */
        for (int32_t i = 0; i < run->call.input_count; i++) {
            if (run->in[i] != NULL && run->call.inputs[i].layout == RG_ONNX_FLAT)
                return &run->shapes[i];
        }
    }
    return &run->shapes[0];
}

static rg_status give_all(rg_run *run, const operands *o)
{
    for (int32_t i = 0; i < run->call.output_count; i++) {
        const rg_onnx_tensor *t = &run->call.outputs[i];
        rg_tensor *restored;
        if (!rg_run_wants(run, i))
            continue;
        RG_CHECK(t->index >= 0, RG_INVALID_ARGUMENT,
                 "%s: with these attributes there is no result %s", run->node.type, t->name);
        rg_tensor *made = (t->role == RG_ROLE_DX ? o->dx : o->y)[t->index];
        RG_TRY(rg_run_restore(run, made, t->layout, shape_like(run, t), &restored));
        RG_TRY(rg_run_give(run, i, restored));
    }
    return RG_OK;
}

rg_status rg_run_op(rg_run *run, rg_status (*convert)(const rg_onnx_node *node, rg_onnx_call *call))
{
    operands o = { .x = { NULL } };
    rg_onnx_call *call = &run->call;
    RG_TRY(rg_onnx_finish(&run->node, call, convert));
    RG_TRY(arrange_all(run, &o));
    if (!call->gradient) {
        RG_TRY(rg_run_forward(run, call->op, call->desc, o.x, o.y, NULL));
        return give_all(run, &o);
    }
    uint64_t wanted = 0;
    for (int32_t i = 0; i < call->output_count; i++) {
        const int32_t index = call->outputs[i].index;
        if (!rg_run_wants(run, i) || index < 0)
            continue;
        wanted |= (uint64_t)1 << index;
    }
    for (int32_t i = 1; i < rg_op_inputs(call->op, call->desc); i++) {
        if (o.x[i] == NULL)
            RG_TRY(make_shape(run, &o, i));
    }
    const rg_run_reads reads = { .dy = o.dy, .x = o.x, .y = o.y, .wanted = wanted };
    RG_TRY(rg_run_gradient(run, call->op, call->desc, &reads, o.dx));
    return give_all(run, &o);
}
