/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Runs of ONNX's normalizations with saved statistics, and of its optimizers. */
#include "core/memory.h"
#include "core/shape.h"
#include "operators/onnx_converters.h"
#include "operators/run.h"
#include "runtime/objects.h"

#include <retrograde/batch_norm.h>
#include <retrograde/group_norm.h>
#include <retrograde/neuron.h>

/* ---- states ---- */

/* Fills a tensor of a state from the host; NULL: zeros. */
static rg_status fill_slot(rg_run *run, rg_state *state, const char *name, const double values[],
                           int64_t count)
{
    rg_tensor *tensor;
    RG_TRY(rg_state_tensor(state, name, &tensor));
    const rg_dtype dtype = tensor->desc.dtype;
    const size_t bytes = (size_t)rg_shape_count(&tensor->desc) * rg_dtype_size(dtype);
    RG_CHECK(rg_shape_count(&tensor->desc) == count, RG_INVALID_ARGUMENT,
             "%s: %lld saved statistics are given where there are %lld", run->node.type,
             (long long)count, (long long)rg_shape_count(&tensor->desc));
    void *memory;
    RG_TRY(rg_allocate_zero(&run->device->allocator, bytes + 1, &memory));
    rg_status status =
        values != NULL ? rg_convert(memory, dtype, values, RG_F64, (size_t)count) : RG_OK;
    if (status == RG_OK)
        status = rg_tensor_write(tensor, memory, bytes, RG_LAYOUT_SAME);
    rg_release(&run->device->allocator, memory, bytes + 1);
    return status;
}

typedef rg_status fill_state(rg_run *run, rg_state *state, const double mean[],
                             const double deviation[], int64_t count);

/* 1 / deviation is what ONNX Runtime saves; the variance is read by nobody but people. */
static rg_status fill_batch(rg_run *run, rg_state *state, const double mean[],
                            const double deviation[], int64_t count)
{
    double *moments;
    void *memory;
    const size_t bytes = (size_t)count * 4 * sizeof *moments + 1;
    const double epsilon = rg_onnx_float(&run->node, "epsilon");
    RG_TRY(rg_allocate(&run->device->allocator, bytes, &memory));
    moments = memory;
    rg_tensor *slot;
    rg_status status = rg_state_tensor(state, "moments", &slot);
    const bool is_double = status == RG_OK && slot->desc.dtype == RG_F64;
    for (int64_t c = 0; c < count; c++) {
        const double high = is_double ? mean[c] : (double)(float)mean[c];
        moments[c] = high;
        moments[count + c] = mean[c] - high;
        moments[2 * count + c] = 1 / (deviation[c] * deviation[c]) - epsilon;
        moments[3 * count + c] = deviation[c];
    }
    if (status == RG_OK)
        status = fill_slot(run, state, "moments", moments, 4 * count);
    if (status == RG_OK)
        status = fill_slot(run, state, "mean", mean, count);
    if (status == RG_OK)
        status = fill_slot(run, state, "variance", moments + 2 * count, count);
    if (status == RG_OK)
        status = fill_slot(run, state, "inverse_sigma", deviation, count);
    rg_release(&run->device->allocator, memory, bytes);
    return status;
}

static rg_status fill_rows(rg_run *run, rg_state *state, const double mean[],
                           const double deviation[], int64_t count)
{
    RG_TRY(fill_slot(run, state, "mean", mean, count));
    RG_TRY(fill_slot(run, state, "mean_rest", NULL, count));
    return fill_slot(run, state, "inverse_sigma", deviation, count);
}

/* A state of saved statistics, inputs 3 and 4 of the node. */
static rg_status make_state(rg_run *run, rg_tensor *const x[], fill_state *fill, rg_state **state)
{
    rg_kernel *kernel;
    double *mean = NULL, *deviation = NULL;
    int64_t means = 0, deviations = 0;
    RG_TRY(rg_kernel_create(run->device, run->call.op, run->call.desc, &kernel));
    rg_status status = rg_state_create(kernel, x, state);
    rg_kernel_destroy(kernel);
    RG_TRY(status);
    status = rg_run_read(run, run->in[3], &mean, &means);
    if (status == RG_OK)
        status = rg_run_read(run, run->in[4], &deviation, &deviations);
    if (status == RG_OK && means != deviations)
        status = rg_fail(RG_INVALID_ARGUMENT, "%s: the saved statistics have %lld and %lld numbers",
                         run->node.type, (long long)means, (long long)deviations);
    if (status == RG_OK)
        status = fill(run, *state, mean, deviation, means);
    if (mean != NULL)
        rg_run_release(run, mean, means);
    if (deviation != NULL)
        rg_run_release(run, deviation, deviations);
    (*state)->filled = status == RG_OK;
    if (status != RG_OK)
        rg_state_destroy(*state);
    return status;
}

/* dY, X, scale and saved statistics, in any layout that the call has. */
static rg_status run_saved(rg_run *run, fill_state *fill)
{
    rg_onnx_call *call = &run->call;
    rg_tensor *dy, *x[3], *dx[3];
    rg_state *state;
    uint64_t wanted = 0;
    RG_CHECK(run->in[3] != NULL && run->in[4] != NULL, RG_INVALID_ARGUMENT,
             "%s: %s and %s must be given together, or neither", run->node.type,
             call->inputs[3].name, call->inputs[4].name);
    RG_TRY(rg_run_arrange(run, run->in[0], call->inputs[0].layout, &dy));
    RG_TRY(rg_run_arrange(run, run->in[1], call->inputs[1].layout, &x[0]));
    RG_TRY(rg_run_arrange(run, run->in[2], call->inputs[2].layout, &x[1]));
    RG_TRY(rg_tensor_create(run->device, &x[1]->desc, &x[2])); /* its shape alone counts */
    RG_TRY(rg_run_keep(run, x[2]));
    for (int32_t i = 0; i < 3; i++)
        wanted |= (uint64_t)rg_run_wants(run, i) << i;
    RG_TRY(make_state(run, x, fill, &state));
    const rg_run_reads reads = { .dy = &dy, .x = x, .state = state, .wanted = wanted };
    rg_status status = rg_run_gradient(run, call->op, call->desc, &reads, dx);
    rg_state_destroy(state);
    RG_TRY(status);
    for (int32_t i = 0; i < 3; i++) {
        if (!rg_run_wants(run, i))
            continue;
        RG_TRY(rg_run_restore(run, dx[i], call->outputs[i].layout, &run->shapes[i == 0 ? 1 : 2],
                              &dx[i]));
        RG_TRY(rg_run_give(run, i, dx[i]));
    }
    return RG_OK;
}

static rg_status without_saved(const rg_onnx_node *node, rg_onnx_call *call)
{
    rg_batch_norm_desc *d = (rg_batch_norm_desc *)call->desc;
    d->epsilon = rg_onnx_float(node, "epsilon");
    const int32_t rank = rg_onnx_rank(node, 0);
    RG_CHECK(rank >= 2, RG_INVALID_ARGUMENT, "%s: dY has rank %d, but must be (n, c) or (n, c, d…)",
             node->type, rank);
    return RG_OK;
}

rg_status rg_run_batch_norm_gradient(rg_run *run)
{
    if (run->in[3] == NULL && run->in[4] == NULL)
        return rg_run_op(run, rg_onnx_batch_norm_gradient);
    RG_TRY(rg_onnx_finish(&run->node, &run->call, without_saved));
    return run_saved(run, fill_batch);
}

rg_status rg_run_layer_norm_gradient(rg_run *run)
{
    if (run->in[3] == NULL && run->in[4] == NULL)
        return rg_run_op(run, rg_onnx_layer_norm);
    RG_TRY(rg_onnx_finish(&run->node, &run->call, rg_onnx_layer_norm));
    return run_saved(run, fill_rows);
}

/* ---- forward with statistics ---- */

/* Gives a tensor of the state in ONNX's shape, and dtype of the run's output. */
static rg_status give_slot(rg_run *run, rg_state *state, const char *name, int32_t output,
                           int32_t rank, const int64_t dims[])
{
    rg_tensor *slot, *view;
    if (!rg_run_wants(run, output))
        return RG_OK;
    RG_TRY(rg_state_tensor(state, name, &slot));
    RG_TRY(rg_tensor_reshape(slot, rank, dims, &view));
    RG_TRY(rg_run_keep(run, view));
    return rg_run_give(run, output, view);
}

rg_status rg_run_batch_norm(rg_run *run)
{
    rg_onnx_call *call = &run->call;
    rg_tensor *x[5], *y[3], *restored;
    rg_state *state = NULL;
    RG_TRY(rg_onnx_finish(&run->node, call, rg_onnx_batch_norm));
    const bool own = ((rg_batch_norm_desc *)call->desc)->statistics == RG_BATCH_NORM_RUNNING;
    RG_TRY(rg_run_arrange(run, run->in[0], RG_ONNX_LAST, &x[0]));
    memcpy(x + 1, run->in + 1, 4 * sizeof x[0]);
    RG_TRY(rg_run_forward(run, call->op, call->desc, x, y, &state));
    rg_status status = rg_run_restore(run, y[0], RG_ONNX_LAST, &run->shapes[0], &restored);
    if (status == RG_OK)
        status = rg_run_give(run, 0, restored);
    for (int32_t i = 1; i < 3 && own && status == RG_OK; i++)
        status = rg_run_give(run, i, y[i]);
    const int64_t channels = run->shapes[1].dims[0];
    if (status == RG_OK)
        status = give_slot(run, state, "mean", 3, 1, &channels);
    if (status == RG_OK)
        status = give_slot(run, state, "inverse_sigma", 4, 1, &channels);
    rg_state_destroy(state);
    return status;
}

/* Scale and B are broadcast to the dimensions of X from the axis on. */
static rg_status widen(rg_run *run, int32_t input)
{
    const rg_tensor_desc *x = &run->shapes[0], *have = &run->shapes[input];
    const int32_t rank = x->rank - (int32_t)run->call.axis;
    rg_tensor *wide, *dense;
    if (run->in[input] == NULL ||
        (have->rank == rank &&
         memcmp(have->dims, x->dims + run->call.axis, (size_t)rank * sizeof have->dims[0]) == 0))
        return RG_OK;
    rg_tensor *from = run->in[input];
    if (have->rank > rank) /* ones in front */
        RG_TRY(rg_run_reshape(run, from, rank, have->dims + have->rank - rank, &from));
    if (rg_tensor_expand(from, rank, x->dims + run->call.axis, &wide) != RG_OK)
        return rg_fail(RG_INVALID_ARGUMENT, "%s: %s cannot be broadcast to the dimensions of X",
                       run->node.type, run->call.inputs[input].name);
    RG_TRY(rg_run_keep(run, wide));
    RG_TRY(rg_run_reshape(run, wide, rank, x->dims + run->call.axis, &dense));
    run->in[input] = dense;
    run->shapes[input] = dense->desc;
    return RG_OK;
}

static rg_status layer_norm_of_one(const rg_onnx_node *node, rg_onnx_call *call)
{
    rg_onnx_node alone = *node;
    alone.outputs = 1;
    return rg_onnx_layer_norm(&alone, call);
}

rg_status rg_run_layer_norm(rg_run *run)
{
    rg_onnx_call *call = &run->call;
    rg_tensor *x[3] = { NULL }, *y;
    rg_state *state = NULL;
    RG_TRY(rg_onnx_finish(&run->node, call, layer_norm_of_one));
    for (int32_t i = 0; i < 3; i++) {
        RG_TRY(i > 0 ? widen(run, i) : RG_OK);
        if (run->in[i] != NULL)
            RG_TRY(rg_run_arrange(run, run->in[i], call->inputs[i].layout, &x[i]));
    }
    RG_TRY(rg_run_forward(run, call->op, call->desc, x, &y, &state));
    const rg_tensor_desc *shape = &run->shapes[0];
    int64_t dims[RG_MAX_RANK];
    for (int32_t d = 0; d < shape->rank; d++)
        dims[d] = d < call->axis ? shape->dims[d] : 1;
    rg_status status = rg_run_restore(run, y, call->outputs[0].layout, shape, &y);
    if (status == RG_OK)
        status = rg_run_give(run, 0, y);
    if (status == RG_OK)
        status = give_slot(run, state, "mean", 1, shape->rank, dims);
    if (status == RG_OK)
        status = give_slot(run, state, "inverse_sigma", 2, shape->rank, dims);
    rg_state_destroy(state);
    return status;
}

/* Before opset 21 there was one scale and one bias for each group. */
rg_status rg_run_group_norm(rg_run *run)
{
    const rg_tensor_desc *x = &run->shapes[0];
    const int64_t groups = rg_onnx_int(&run->node, "num_groups");
    RG_CHECK(x->rank >= 2, RG_INVALID_ARGUMENT,
             "%s: X has rank %d, but must be (n, c) or (n, c, d…)", run->node.type, x->rank);
    const int64_t channels = x->dims[run->node.nhwc ? x->rank - 1 : 1];
    for (int32_t i = 1; i < 3 && groups > 0 && channels % groups == 0; i++) {
        rg_tensor *each, *wide;
        if (run->shapes[i].rank != 1 || run->shapes[i].dims[0] != groups || groups == channels)
            continue;
        RG_TRY(rg_run_reshape(run, run->in[i], 2, (int64_t[]){ groups, 1 }, &each));
        RG_TRY(rg_tensor_expand(each, 2, (int64_t[]){ groups, channels / groups }, &wide));
        RG_TRY(rg_run_keep(run, wide));
        RG_TRY(rg_run_reshape(run, wide, 1, &channels, &run->in[i]));
        run->shapes[i] = run->in[i]->desc;
    }
    return rg_run_op(run, rg_onnx_group_norm);
}

/* ---- optimizers ---- */

/* R and T are tensors of rank 0, or of one element. */
static rg_status flatten_scalar(rg_run *run, int32_t input)
{
    if (run->in[input] == NULL || run->shapes[input].rank == 0)
        return RG_OK;
    RG_CHECK(rg_shape_count(&run->shapes[input]) == 1, RG_INVALID_ARGUMENT,
             "%s: %s must be one number", run->node.type, run->call.inputs[input].name);
    RG_TRY(rg_run_reshape(run, run->in[input], 0, run->shapes[input].dims, &run->in[input]));
    run->shapes[input] = run->in[input]->desc;
    return RG_OK;
}

rg_status rg_run_adam(rg_run *run)
{
    const double post = rg_onnx_float(&run->node, "norm_coefficient_post");
    RG_TRY(flatten_scalar(run, 0));
    RG_TRY(flatten_scalar(run, 1));
    RG_TRY(rg_run_op(run, rg_onnx_adam));
    if (post == 0 || !rg_run_wants(run, 0))
        return RG_OK;
    rg_neuron_desc desc = rg_neuron_desc_default();
    rg_tensor *y;
    desc.kind = RG_NEURON_LINEAR;
    desc.a = 1 - post;
    desc.has_a = true;
    RG_TRY(rg_run_keep(run, run->out[0]));
    rg_tensor *made = run->out[0];
    run->out[0] = NULL;
    RG_TRY(rg_run_unary(run, &rg_op_neuron, &desc, made, &y));
    return rg_run_give(run, 0, y);
}

rg_status rg_run_momentum(rg_run *run)
{
    RG_TRY(flatten_scalar(run, 0));
    return rg_run_op(run, rg_onnx_momentum);
}
