/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The two verbs: every check that does not depend on the op, then the op's own recording. */
#include "runtime/call.h"

#include <stdio.h>

/* ---- one tensor, two tensors ---- */

static rg_status check_shape(const rg_call *call, const char *prefix, const char *name,
                             const rg_tensor *tensor, const rg_tensor_desc *wanted)
{
    char have[RG_SHAPE_TEXT], want[RG_SHAPE_TEXT];
    RG_CHECK(tensor->desc.dtype == wanted->dtype && rg_shape_same_dims(&tensor->desc, wanted),
             RG_INVALID_ARGUMENT, "%s: %s%s is %s, but must be %s", call->op->name, prefix, name,
             rg_shape_text(&tensor->desc, have), rg_shape_text(wanted, want));
    return RG_OK;
}

/* Temporaries of one submission have addresses in its heap; all others have real ones. */
static bool same_space(const rg_storage *a, const rg_storage *b, int64_t *base)
{
    *base = 0;
    if (a == b)
        return true;
    if (a->submission != NULL || b->submission != NULL)
        return false; /* ranges of the heap never overlap while both are in use */
    *base = (int64_t)((uintptr_t)b->data - (uintptr_t)a->data);
    return true;
}

static bool overlap(const rg_tensor *a, const rg_tensor *b, bool *identical)
{
    int64_t base;
    if (!same_space(a->storage, b->storage, &base))
        return false;
    const int64_t distance = base + (int64_t)b->offset - (int64_t)a->offset;
    *identical = distance == 0 && rg_shape_same(&a->desc, &b->desc);
    return rg_shape_overlaps(&a->desc, &b->desc, distance);
}

/* Whether `pairs` lists this one, e.g. "dy0=dx0". */
static bool lists(const char *pairs, const char *read, int32_t i, const char *written, int32_t k)
{
    char pair[16];
    const int length = snprintf(pair, sizeof pair, "%s%d=%s%d", read, i, written, k);
    for (const char *at = pairs; at != NULL && *at != 0; at += strspn(at, " ")) {
        const size_t size = strcspn(at, " ");
        if (size == (size_t)length && memcmp(at, pair, size) == 0)
            return true;
        at += size;
    }
    return false;
}

bool rg_op_may_alias(const rg_op *op, const void *desc, const char *read, int32_t i,
                     const char *written, int32_t k)
{
    return lists(op->alias, read, i, written, k) ||
           (op->alias_of != NULL && lists(op->alias_of(desc), read, i, written, k));
}

/* A tensor that is written must not meet one that is read, unless both are the same and the op
 * allows that. */
static rg_status check_apart(const rg_call *call, const char *read, const char *const read_names[],
                             const rg_tensor *const reads[], int32_t read_count,
                             const char *written, const char *const written_names[],
                             const rg_tensor *const writes[], int32_t written_count)
{
    for (int32_t k = 0; k < written_count; k++) {
        for (int32_t i = 0; i < read_count; i++) {
            bool identical = false;
            if (writes[k] == NULL || reads[i] == NULL || !overlap(reads[i], writes[k], &identical))
                continue;
            const bool is_gradient = written[0] == 'd';
            RG_CHECK(identical && rg_op_may_alias(call->op, call->desc, read, i, written, k),
                     RG_INVALID_ARGUMENT, "%s: %s%s overlaps %s%s", call->op->name,
                     is_gradient ? "d" : "", written_names[k], read[0] == 'd' ? "d" : "",
                     read_names[i]);
        }
    }
    return RG_OK;
}

static rg_status check_written(const rg_call *call, const char *prefix, const char *const names[],
                               const rg_tensor *const tensors[], int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        if (tensors[i] == NULL)
            continue;
        RG_CHECK(!rg_shape_overlaps_itself(&tensors[i]->desc), RG_INVALID_ARGUMENT,
                 "%s: %s%s is expanded or overlaps itself and cannot be an output", call->op->name,
                 prefix, names[i]);
        for (int32_t k = 0; k < i; k++) {
            bool identical;
            RG_CHECK(tensors[k] == NULL || !overlap(tensors[i], tensors[k], &identical),
                     RG_INVALID_ARGUMENT, "%s: %s%s overlaps %s%s", call->op->name, prefix,
                     names[i], prefix, names[k]);
        }
    }
    return RG_OK;
}

static rg_status check_usable(const rg_call *call, const char *prefix, const char *const names[],
                              const rg_tensor *const tensors[], int32_t count, bool needed,
                              uint32_t optional)
{
    for (int32_t i = 0; i < count; i++) {
        if (tensors[i] != NULL || (needed && !(optional >> i & 1)))
            RG_TRY(rg_tensor_usable(tensors[i], call->commands, call->op->name, prefix, names[i]));
    }
    return RG_OK;
}

/* ---- the state ---- */

static rg_status check_state(const rg_call *call, const rg_tensor_desc x[], bool reads)
{
    rg_state *state = call->state;
    RG_TRY(rg_state_usable(state, call->commands, call->op->name));
    RG_TRY(rg_state_settle(state, call->commands, reads, call->op->name));
    RG_CHECK(state->op == call->op, RG_INVALID_ARGUMENT, "%s: the state belongs to the op %s",
             call->op->name, state->op->name);
    if (call->op->fits != NULL && call->op->fits(state->desc, state->sources, call->desc, x))
        return RG_OK;
    RG_CHECK(rg_fields_equal(&call->op->desc, state->desc, call->desc), RG_INVALID_ARGUMENT,
             "%s: the state was created for a kernel with a different descriptor", call->op->name);
    for (int32_t i = 0; i < call->inputs; i++) {
        char have[RG_SHAPE_TEXT], want[RG_SHAPE_TEXT];
        const rg_tensor_desc *source = &state->sources[i];
        RG_CHECK(source->dtype == x[i].dtype && rg_shape_same_dims(source, &x[i]),
                 RG_INVALID_ARGUMENT, "%s: the state was created for %s of shape %s, not %s",
                 call->op->name, call->input_names[i], rg_shape_text(source, have),
                 rg_shape_text(&x[i], want));
    }
    return RG_OK;
}

/* Refuses tensors of the state among the call's own: any call may write to its state. */
static rg_status check_state_apart(const rg_call *call, const char *prefix,
                                   const char *const names[], const rg_tensor *const tensors[],
                                   int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        for (int32_t k = 0; k < rg_state_count(call->state) && tensors[i] != NULL; k++) {
            bool identical;
            RG_CHECK(!overlap(tensors[i], call->state->tensors[k], &identical), RG_INVALID_ARGUMENT,
                     "%s: %s%s overlaps %s of the state", call->op->name, prefix, names[i],
                     call->state->names[k]);
        }
    }
    return RG_OK;
}

/* ---- the calls ---- */

rg_status rg_call_begin(const rg_kernel *kernel, rg_commands *commands, const char *who,
                        rg_call *call)
{
    RG_CHECK(kernel != NULL, RG_INVALID_ARGUMENT, "%s: kernel is NULL", who);
    RG_TRY(rg_commands_recording(commands, who));
    RG_CHECK(kernel->device == commands->queue->device, RG_INVALID_ARGUMENT,
             "%s: the kernel and the commands are on different devices (%s, %s)", kernel->op->name,
             kernel->device->name, commands->queue->device->name);
    *call = (rg_call){ .op = kernel->op,
                       .desc = kernel->desc,
                       .commands = commands,
                       .input_names = rg_op_input_names(kernel->op, kernel->desc),
                       .output_names = rg_op_output_names(kernel->op, kernel->desc),
                       .inputs = rg_op_inputs(kernel->op, kernel->desc),
                       .outputs = rg_op_outputs(kernel->op, kernel->desc),
                       .gradients = rg_op_gradients(kernel->op, kernel->desc) };
    return RG_OK;
}

rg_status rg_call_check(rg_call *call)
{
    const rg_op *op = call->op;
    const bool fills_state = rg_op_fills_state(op, call->desc);
    const uint32_t no_y = fills_state ? ~0u : 0;
    RG_CHECK(!fills_state || call->state != NULL, RG_INVALID_ARGUMENT,
             "%s: the state is NULL, but it is the only output of forward", op->name);
    RG_TRY(check_usable(call, "", call->input_names, call->x, call->inputs, true, 0));
    RG_TRY(check_usable(call, "", call->output_names, call->y, call->outputs, true, no_y));
    rg_tensor_desc x[RG_MAX_INPUTS], y[RG_MAX_OUTPUTS];
    for (int32_t i = 0; i < call->inputs; i++)
        x[i] = call->x[i]->desc;
    RG_TRY(op->shapes(call->desc, x, y));
    for (int32_t i = 0; i < call->outputs; i++) {
        RG_CHECK(!fills_state || call->y[i] == NULL, RG_INVALID_ARGUMENT,
                 "%s: forward writes only its state; %s must be NULL", op->name,
                 call->output_names[i]);
        if (call->y[i] != NULL)
            RG_TRY(check_shape(call, "", call->output_names[i], call->y[i], &y[i]));
    }
    RG_TRY(check_written(call, "", call->output_names, call->y, call->outputs));
    RG_TRY(check_apart(call, "x", call->input_names, call->x, call->inputs, "y", call->output_names,
                       call->y, call->outputs));
    if (call->state != NULL)
        RG_TRY(check_state(call, x, false));
    RG_TRY(check_state_apart(call, "", call->input_names, call->x, call->inputs));
    return check_state_apart(call, "", call->output_names, call->y, call->outputs);
}

rg_status rg_call_forward(rg_call *call)
{
    RG_TRY(rg_call_check(call));
    return call->op->forward(call);
}

/* Whether dx[i] may have, and has, more bits than an x[i] of this dtype. */
static bool is_wide(const rg_call *call, int32_t i, rg_dtype dtype)
{
    return call->op->wide_gradients >> i & 1 && call->dx[i]->desc.dtype == RG_F32 &&
           (dtype == RG_F16 || dtype == RG_BF16);
}

static rg_status check_gradient(const rg_call *call, int32_t i, const rg_tensor_desc *x)
{
    rg_tensor_desc wanted = *x;
    wanted.dtype = is_wide(call, i, x->dtype) ? RG_F32 : x->dtype;
    return check_shape(call, "d", call->input_names[i], call->dx[i], &wanted);
}

/* The shape of an input of the forward pass: from the input, the state, or the gradient asked for.
 * A gradient may have more bits than its input; such inputs have the dtype of x[0]. */
static rg_status source_shape(const rg_call *call, int32_t i, rg_tensor_desc *desc)
{
    if (call->x[i] != NULL)
        *desc = call->x[i]->desc;
    else if (call->state != NULL && i < call->state->inputs)
        *desc = call->state->sources[i];
    else if (call->dx[i] != NULL)
        *desc = call->dx[i]->desc;
    else
        return rg_fail(RG_INVALID_ARGUMENT,
                       "%s: the shape of %s is unknown: pass it, d%s or a state", call->op->name,
                       call->input_names[i], call->input_names[i]);
    if (call->x[i] == NULL && call->x[0] != NULL && call->dx[i] != NULL &&
        is_wide(call, i, call->x[0]->desc.dtype))
        desc->dtype = call->x[0]->desc.dtype;
    return RG_OK;
}

rg_status rg_call_gradient(rg_call *call)
{
    const rg_op *op = call->op;
    RG_CHECK(op->gradient != NULL, RG_UNSUPPORTED, "%s has no gradient", op->name);
    RG_TRY(check_usable(call, "d", call->output_names, call->dy, call->gradients, true,
                        op->optional_dy));
    RG_TRY(check_usable(call, "", call->input_names, call->x, call->inputs, false, 0));
    RG_TRY(check_usable(call, "", call->output_names, call->y, call->outputs, false, 0));
    RG_TRY(check_usable(call, "d", call->input_names, call->dx, call->inputs, false, 0));

    rg_tensor_desc x[RG_MAX_INPUTS], y[RG_MAX_OUTPUTS];
    bool wanted = false;
    for (int32_t i = 0; i < call->inputs; i++) {
        RG_TRY(source_shape(call, i, &x[i]));
        wanted |= call->dx[i] != NULL;
        RG_CHECK(call->dx[i] == NULL || rg_op_differentiates(op, call->desc, i), RG_UNSUPPORTED,
                 "%s: %s has no gradient", op->name, call->input_names[i]);
        if (call->dx[i] != NULL)
            RG_TRY(check_gradient(call, i, &x[i]));
    }
    const bool fills_state = rg_op_fills_state(op, call->desc);
    RG_CHECK(wanted || fills_state, RG_INVALID_ARGUMENT,
             "%s: no gradient is requested: every entry of dx is NULL", op->name);
    RG_CHECK(call->add >> call->inputs == 0, RG_INVALID_ARGUMENT,
             "%s: `add` has bits set beyond its %d inputs", op->name, call->inputs);
    RG_TRY(op->shapes(call->desc, x, y));

    const uint32_t reads = rg_op_reads(call->op, call->desc, call->state != NULL);
    const rg_tensor *read_x[RG_MAX_INPUTS] = { 0 }, *read_y[RG_MAX_OUTPUTS] = { 0 };
    for (int32_t i = 0; i < call->inputs; i++) {
        read_x[i] = reads & (uint32_t)RG_READS_X << i ? call->x[i] : NULL;
        RG_CHECK(read_x[i] != NULL || !(reads & (uint32_t)RG_READS_X << i), RG_INVALID_ARGUMENT,
                 "%s: the gradient reads %s, which is NULL", op->name, call->input_names[i]);
    }
    for (int32_t i = 0; i < call->outputs; i++) {
        if (i < call->gradients && call->dy[i] != NULL)
            RG_TRY(check_shape(call, "d", call->output_names[i], call->dy[i], &y[i]));
        if (call->y[i] != NULL)
            RG_TRY(check_shape(call, "", call->output_names[i], call->y[i], &y[i]));
        read_y[i] = reads & (uint32_t)RG_READS_Y << i ? call->y[i] : NULL;
        RG_CHECK(read_y[i] != NULL || !(reads & (uint32_t)RG_READS_Y << i), RG_INVALID_ARGUMENT,
                 "%s: the gradient reads %s, which is NULL", op->name, call->output_names[i]);
    }
    if (call->state != NULL)
        RG_TRY(check_state(call, x, reads & (RG_READS_STATE | RG_READS_WITH_STATE)));
    if (reads & RG_READS_STATE) {
        RG_CHECK(call->state != NULL, RG_INVALID_ARGUMENT,
                 "%s: the gradient reads the state, which is NULL", op->name);
        RG_CHECK(call->state->filled, RG_INVALID_STATE,
                 "%s: the state is empty: no forward pass has written it", op->name);
    }

    RG_TRY(check_written(call, "d", call->input_names, call->dx, call->inputs));
    RG_TRY(check_apart(call, "dy", call->output_names, call->dy, call->gradients, "dx",
                       call->input_names, call->dx, call->inputs));
    RG_TRY(check_apart(call, "x", call->input_names, read_x, call->inputs, "dx", call->input_names,
                       call->dx, call->inputs));
    RG_TRY(check_apart(call, "y", call->output_names, read_y, call->outputs, "dx",
                       call->input_names, call->dx, call->inputs));
    RG_TRY(check_state_apart(call, "d", call->output_names, call->dy, call->gradients));
    RG_TRY(check_state_apart(call, "", call->input_names, read_x, call->inputs));
    RG_TRY(check_state_apart(call, "", call->output_names, read_y, call->outputs));
    RG_TRY(check_state_apart(call, "d", call->input_names, call->dx, call->inputs));
    return op->gradient(call);
}
