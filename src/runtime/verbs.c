/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The public forms of the two verbs: single, batch, and those that allocate their results. */
#include "runtime/batch.h"

static rg_status check_arrays(const rg_batch *b, const char *who)
{
    RG_CHECK(b->count >= 1, RG_INVALID_ARGUMENT, "%s: count must be at least 1, not %lld", who,
             (long long)b->count);
    RG_CHECK(b->gradient || b->x != NULL, RG_INVALID_ARGUMENT, "%s: x is NULL", who);
    const bool results = b->kernel == NULL || !rg_op_fills_state(b->kernel->op, b->kernel->desc);
    RG_CHECK(b->gradient || !results || b->y != NULL, RG_INVALID_ARGUMENT, "%s: y is NULL", who);
    RG_CHECK(!b->gradient || b->dy != NULL, RG_INVALID_ARGUMENT, "%s: dy is NULL", who);
    RG_CHECK(!b->gradient || !results || b->dx != NULL, RG_INVALID_ARGUMENT, "%s: dx is NULL", who);
    return rg_batch_record(b, who);
}

rg_status rg_kernel_forward_batch(const rg_kernel *kernel, rg_commands *commands, int64_t count,
                                  rg_tensor *const x[], rg_tensor *const y[],
                                  rg_state *const states[])
{
    const rg_batch b = {
        .kernel = kernel, .commands = commands, .count = count, .x = x, .y = y, .states = states
    };
    return check_arrays(&b, __func__);
}

rg_status rg_kernel_gradient_batch(const rg_kernel *kernel, rg_commands *commands, int64_t count,
                                   rg_tensor *const dy[], rg_tensor *const x[],
                                   rg_tensor *const y[], rg_state *const states[],
                                   rg_tensor *const dx[], uint64_t add)
{
    const rg_batch b = { .kernel = kernel,
                         .commands = commands,
                         .count = count,
                         .x = x,
                         .y = y,
                         .dy = dy,
                         .dx = dx,
                         .states = states,
                         .add = add,
                         .gradient = true };
    return check_arrays(&b, __func__);
}

rg_status rg_kernel_forward(const rg_kernel *kernel, rg_commands *commands, rg_tensor *const x[],
                            rg_tensor *const y[], rg_state *state)
{
    const rg_batch b = { .kernel = kernel,
                         .commands = commands,
                         .count = 1,
                         .x = x,
                         .y = y,
                         .states = state != NULL ? &state : NULL };
    return check_arrays(&b, __func__);
}

rg_status rg_kernel_gradient(const rg_kernel *kernel, rg_commands *commands, rg_tensor *const dy[],
                             rg_tensor *const x[], rg_tensor *const y[], rg_state *state,
                             rg_tensor *const dx[], uint64_t add)
{
    const rg_batch b = { .kernel = kernel,
                         .commands = commands,
                         .count = 1,
                         .x = x,
                         .y = y,
                         .dy = dy,
                         .dx = dx,
                         .states = state != NULL ? &state : NULL,
                         .add = add,
                         .gradient = true };
    return check_arrays(&b, __func__);
}

/* ---- forms that allocate ---- */

/* Takes back what a refused call has made, so that it leaves no trace. */
static void drop_results(rg_tensor *tensors[], int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        rg_tensor_destroy(tensors[i]);
        tensors[i] = NULL;
    }
}

static void drop_states(rg_state *states[], int64_t count)
{
    for (int64_t n = 0; states != NULL && n < count; n++) {
        rg_state_destroy(states[n]);
        states[n] = NULL;
    }
}

static rg_status make_result(rg_commands *commands, const rg_tensor_desc *like, bool temporary,
                             rg_tensor **tensor)
{
    const rg_tensor_desc desc = rg_tensor_desc_dense(like->dtype, like->rank, like->dims);
    return temporary ? rg_tensor_create_temporary(commands, &desc, tensor)
                     : rg_tensor_create(commands->queue->device, &desc, tensor);
}

static rg_status make_outputs(const rg_batch *b, const rg_call *call, bool temporary,
                              rg_tensor *y[], rg_state *states[])
{
    const rg_op *op = call->op;
    for (int64_t n = 0; n < b->count; n++) {
        rg_tensor_desc xd[RG_MAX_INPUTS], yd[RG_MAX_OUTPUTS];
        rg_tensor *x[RG_MAX_INPUTS];
        for (int32_t i = 0; i < call->inputs; i++) {
            x[i] = rg_batch_tensor(b->x, b->count, i, n);
            RG_CHECK(x[i] != NULL, RG_INVALID_ARGUMENT, "%s: %s is NULL", op->name,
                     call->input_names[i]);
            xd[i] = x[i]->desc;
        }
        RG_TRY(op->shapes(call->desc, xd, yd));
        for (int32_t i = 0; i < call->outputs && !rg_op_fills_state(op, call->desc); i++)
            RG_TRY(make_result(b->commands, &yd[i], temporary, &y[i * b->count + n]));
        if (states != NULL && temporary)
            RG_TRY(rg_state_create_temporary(b->kernel, b->commands, x, &states[n]));
        else if (states != NULL)
            RG_TRY(rg_state_create(b->kernel, x, &states[n]));
    }
    return RG_OK;
}

rg_status rg_kernel_forward_alloc(const rg_kernel *kernel, rg_commands *commands, int64_t count,
                                  rg_tensor *const x[], bool temporary, rg_tensor *y[],
                                  rg_state *states[])
{
    RG_CHECK_NOT_NULL(y);
    for (int64_t i = 0; i < rg_kernel_outputs(kernel) * count; i++)
        y[i] = NULL;
    for (int64_t n = 0; states != NULL && n < count; n++)
        states[n] = NULL;
    RG_CHECK_NOT_NULL(x);
    RG_CHECK(count >= 1, RG_INVALID_ARGUMENT, "%s: count must be at least 1, not %lld", __func__,
             (long long)count);
    rg_call call;
    RG_TRY(rg_call_begin(kernel, commands, __func__, &call));
    const rg_batch b = {
        .kernel = kernel, .commands = commands, .count = count, .x = x, .y = y, .states = states
    };
    const rg_mark mark = rg_commands_mark(commands);
    rg_status status = make_outputs(&b, &call, temporary, y, states);
    if (status == RG_OK)
        status = rg_batch_record(&b, __func__);
    if (status == RG_OK)
        return RG_OK;
    drop_results(y, call.outputs * count);
    drop_states(states, count);
    rg_commands_rewind(commands, mark);
    return status;
}

/* The shape of dx[i]: that of x[i] in the forward pass. Without x and state it is that of y, if the
 * op has one input and an output of the same shape. */
static rg_status gradient_shape(const rg_batch *b, const rg_call *call, int32_t i, int64_t n,
                                const rg_tensor_desc **like)
{
    const rg_tensor *x = rg_batch_tensor(b->x, b->count, i, n),
                    *y = rg_batch_tensor(b->y, b->count, 0, n);
    const rg_state *state = b->states != NULL ? b->states[n] : NULL;
    *like = x != NULL ? &x->desc : NULL;
    if (*like == NULL && state != NULL && i < state->inputs)
        *like = &state->sources[i];
    if (*like == NULL && y != NULL && call->inputs == 1) {
        rg_tensor_desc made[RG_MAX_OUTPUTS];
        RG_TRY(call->op->shapes(call->desc, &y->desc, made));
        if (made[0].dtype == y->desc.dtype && rg_shape_same_dims(&made[0], &y->desc))
            *like = &y->desc;
    }
    RG_CHECK(*like != NULL, RG_INVALID_ARGUMENT,
             "%s: pass %s or a state: the shape of d%s is unknown", call->op->name,
             call->input_names[i], call->input_names[i]);
    return RG_OK;
}

static rg_status make_gradients(const rg_batch *b, const rg_call *call, uint64_t wanted,
                                bool temporary, rg_tensor *dx[])
{
    for (int64_t n = 0; n < b->count; n++) {
        for (int32_t i = 0; i < call->inputs; i++) {
            const rg_tensor_desc *like;
            if (!(wanted >> i & 1))
                continue;
            RG_TRY(gradient_shape(b, call, i, n, &like));
            RG_TRY(make_result(b->commands, like, temporary, &dx[i * b->count + n]));
        }
    }
    return RG_OK;
}

rg_status rg_kernel_gradient_alloc(const rg_kernel *kernel, rg_commands *commands, int64_t count,
                                   rg_tensor *const dy[], rg_tensor *const x[],
                                   rg_tensor *const y[], rg_state *const states[], uint64_t wanted,
                                   bool temporary, rg_tensor *dx[])
{
    RG_CHECK_NOT_NULL(dx);
    for (int64_t i = 0; i < rg_kernel_inputs(kernel) * count; i++)
        dx[i] = NULL;
    RG_CHECK_NOT_NULL(dy);
    RG_CHECK(count >= 1, RG_INVALID_ARGUMENT, "%s: count must be at least 1, not %lld", __func__,
             (long long)count);
    rg_call call;
    RG_TRY(rg_call_begin(kernel, commands, __func__, &call));
    RG_CHECK(wanted >> call.inputs == 0, RG_INVALID_ARGUMENT,
             "%s: `wanted` has bits set beyond its %d inputs", call.op->name, call.inputs);
    const rg_batch b = { .kernel = kernel,
                         .commands = commands,
                         .count = count,
                         .x = x,
                         .y = y,
                         .dy = dy,
                         .dx = dx,
                         .states = states,
                         .gradient = true };
    const rg_mark mark = rg_commands_mark(commands);
    rg_status status = make_gradients(&b, &call, wanted, temporary, dx);
    if (status == RG_OK)
        status = rg_batch_record(&b, __func__);
    if (status == RG_OK)
        return RG_OK;
    drop_results(dx, call.inputs * count);
    rg_commands_rewind(commands, mark);
    return status;
}
