/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The two verbs: every check that does not depend on the op, then the op's own recording. */
#include "runtime/call.h"

/* ---- one tensor, two tensors ---- */

/* The tensors of a call that have one role, and their names. */
typedef struct operands {
    const rg_tensor *const *tensors;
    const char *const *names;
    const char *prefix; /* of the names */
    int32_t count;
} operands;

static operands operands_of(const rg_call *call, rg_role role)
{
    switch (role) {
    case RG_ROLE_X:
        return (operands){ call->x, call->input_names, "", call->inputs };
    case RG_ROLE_Y:
        return (operands){ call->y, call->output_names, "", call->outputs };
    case RG_ROLE_DY:
        return (operands){ call->dy, call->output_names, "d", call->gradients };
    default:
        return (operands){ call->dx, call->input_names, "d", call->inputs };
    }
}

static rg_status check_shape(const rg_call *call, rg_role role, int32_t i,
                             const rg_tensor_desc *wanted)
{
    char have[RG_SHAPE_TEXT], want[RG_SHAPE_TEXT];
    const operands o = operands_of(call, role);
    const rg_tensor_desc *desc = &o.tensors[i]->desc;
    RG_CHECK(desc->dtype == wanted->dtype && rg_shape_same_dims(desc, wanted), RG_INVALID_ARGUMENT,
             "%s: %s%s is %s, but must be %s", call->op->name, o.prefix, o.names[i],
             rg_shape_text(desc, have), rg_shape_text(wanted, want));
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

static bool lists(const rg_alias *aliases, rg_alias pair)
{
    while (aliases != NULL && *aliases != 0 && *aliases != pair)
        aliases++;
    return aliases != NULL && *aliases == pair;
}

bool rg_op_may_alias(const rg_op *op, const void *desc, rg_alias pair)
{
    return lists(op->aliases, pair) ||
           (op->aliases_of != NULL && lists(op->aliases_of(desc), pair));
}

/* A tensor that is written must not overlap one that is read, unless both are the same and the op
 * allows that. */
static rg_status check_overlap(const rg_call *call, rg_role read, rg_role written)
{
    const operands r = operands_of(call, read), w = operands_of(call, written);
    for (int32_t k = 0; k < w.count; k++) {
        for (int32_t i = 0; i < r.count; i++) {
            bool same = false;
            if (w.tensors[k] == NULL || r.tensors[i] == NULL ||
                !overlap(r.tensors[i], w.tensors[k], &same))
                continue;
            same = same && rg_op_may_alias(call->op, call->desc, RG_ALIAS(read, i, written, k));
            RG_CHECK(same, RG_INVALID_ARGUMENT, "%s: %s%s overlaps %s%s", call->op->name, w.prefix,
                     w.names[k], r.prefix, r.names[i]);
        }
    }
    return RG_OK;
}

static rg_status check_written(const rg_call *call, rg_role role)
{
    const operands o = operands_of(call, role);
    for (int32_t i = 0; i < o.count; i++) {
        if (o.tensors[i] == NULL)
            continue;
        RG_CHECK(!rg_shape_overlaps_itself(&o.tensors[i]->desc), RG_INVALID_ARGUMENT,
                 "%s: %s%s is expanded or overlaps itself and cannot be an output", call->op->name,
                 o.prefix, o.names[i]);
        for (int32_t k = 0; k < i; k++) {
            bool same;
            RG_CHECK(o.tensors[k] == NULL || !overlap(o.tensors[i], o.tensors[k], &same),
                     RG_INVALID_ARGUMENT, "%s: %s%s overlaps %s%s", call->op->name, o.prefix,
                     o.names[i], o.prefix, o.names[k]);
        }
    }
    return RG_OK;
}

/* Bit i of `optional`: tensor i may be NULL. */
static rg_status check_usable(const rg_call *call, rg_role role, uint32_t optional)
{
    const operands o = operands_of(call, role);
    for (int32_t i = 0; i < o.count; i++) {
        if (o.tensors[i] != NULL || !(optional >> i & 1))
            RG_TRY(rg_tensor_usable(o.tensors[i], call->commands, call->op->name, o.prefix,
                                    o.names[i]));
    }
    return RG_OK;
}

/* ---- the state ---- */

static rg_status check_state(const rg_call *call, const rg_tensor_desc x[], bool reads)
{
    rg_state *state = call->state;
    RG_TRY(rg_state_usable(state, call->commands, call->op->name));
    RG_TRY(rg_state_discard_failed(state, call->commands, reads, call->op->name));
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
static rg_status check_state_overlap(const rg_call *call, rg_role role)
{
    const operands o = operands_of(call, role);
    for (int32_t i = 0; i < o.count; i++) {
        for (int32_t k = 0; k < rg_state_count(call->state) && o.tensors[i] != NULL; k++) {
            bool same;
            RG_CHECK(!overlap(o.tensors[i], call->state->tensors[k], &same), RG_INVALID_ARGUMENT,
                     "%s: %s%s overlaps %s of the state", call->op->name, o.prefix, o.names[i],
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
    RG_CHECK(!fills_state || call->state != NULL, RG_INVALID_ARGUMENT,
             "%s: the state is NULL, but it is the only output of forward", op->name);
    RG_TRY(check_usable(call, RG_ROLE_X, 0));
    RG_TRY(check_usable(call, RG_ROLE_Y, fills_state ? ~0u : 0));
    rg_tensor_desc x[RG_MAX_INPUTS], y[RG_MAX_OUTPUTS];
    for (int32_t i = 0; i < call->inputs; i++)
        x[i] = call->x[i]->desc;
    RG_TRY(op->shapes(call->desc, x, y));
    for (int32_t i = 0; i < call->outputs; i++) {
        RG_CHECK(!fills_state || call->y[i] == NULL, RG_INVALID_ARGUMENT,
                 "%s: forward writes only its state; %s must be NULL", op->name,
                 call->output_names[i]);
        if (call->y[i] != NULL)
            RG_TRY(check_shape(call, RG_ROLE_Y, i, &y[i]));
    }
    RG_TRY(check_written(call, RG_ROLE_Y));
    RG_TRY(check_overlap(call, RG_ROLE_X, RG_ROLE_Y));
    if (call->state != NULL)
        RG_TRY(check_state(call, x, false));
    RG_TRY(check_state_overlap(call, RG_ROLE_X));
    return check_state_overlap(call, RG_ROLE_Y);
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
    return check_shape(call, RG_ROLE_DX, i, &wanted);
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

/* The tensors that are given, one by one; fills in the shapes of x and y. */
static rg_status check_gradient_shapes(const rg_call *call, rg_tensor_desc x[], rg_tensor_desc y[])
{
    const rg_op *op = call->op;
    bool wanted = rg_op_fills_state(op, call->desc);
    RG_TRY(check_usable(call, RG_ROLE_DY, op->optional_dy));
    RG_TRY(check_usable(call, RG_ROLE_X, ~0u));
    RG_TRY(check_usable(call, RG_ROLE_Y, ~0u));
    RG_TRY(check_usable(call, RG_ROLE_DX, ~0u));
    for (int32_t i = 0; i < call->inputs; i++) {
        RG_TRY(source_shape(call, i, &x[i]));
        if (call->dx[i] == NULL)
            continue;
        RG_CHECK(rg_op_differentiates(op, call->desc, i), RG_UNSUPPORTED, "%s: %s has no gradient",
                 op->name, call->input_names[i]);
        RG_TRY(check_gradient(call, i, &x[i]));
        wanted = true;
    }
    RG_CHECK(wanted, RG_INVALID_ARGUMENT, "%s: no gradient is requested: every entry of dx is NULL",
             op->name);
    RG_CHECK(call->add >> call->inputs == 0, RG_INVALID_ARGUMENT,
             "%s: `add` has bits set beyond its %d inputs", op->name, call->inputs);
    return op->shapes(call->desc, x, y);
}

/* What the gradient reads is there, and fits; x and y that it does not read become NULL. */
static rg_status check_gradient_reads(rg_call *call, const rg_tensor_desc x[],
                                      const rg_tensor_desc y[])
{
    const char *name = call->op->name;
    const uint32_t reads = rg_op_reads(call->op, call->desc, call->state != NULL);
    for (int32_t i = 0; i < call->inputs; i++) {
        const bool is_read = reads & (uint32_t)RG_READS_X << i;
        RG_CHECK(call->x[i] != NULL || !is_read, RG_INVALID_ARGUMENT,
                 "%s: the gradient reads %s, which is NULL", name, call->input_names[i]);
        call->x[i] = is_read ? call->x[i] : NULL;
    }
    for (int32_t i = 0; i < call->outputs; i++) {
        const bool is_read = reads & (uint32_t)RG_READS_Y << i;
        if (i < call->gradients && call->dy[i] != NULL)
            RG_TRY(check_shape(call, RG_ROLE_DY, i, &y[i]));
        if (call->y[i] != NULL)
            RG_TRY(check_shape(call, RG_ROLE_Y, i, &y[i]));
        RG_CHECK(call->y[i] != NULL || !is_read, RG_INVALID_ARGUMENT,
                 "%s: the gradient reads %s, which is NULL", name, call->output_names[i]);
        call->y[i] = is_read ? call->y[i] : NULL;
    }
    if (call->state != NULL)
        RG_TRY(check_state(call, x, reads & (RG_READS_STATE | RG_READS_WITH_STATE)));
    if (!(reads & RG_READS_STATE))
        return RG_OK;
    RG_CHECK(call->state != NULL, RG_INVALID_ARGUMENT,
             "%s: the gradient reads the state, which is NULL", name);
    RG_CHECK(call->state->filled, RG_INVALID_STATE,
             "%s: the state is empty: no forward pass has written it", name);
    return RG_OK;
}

rg_status rg_call_gradient(rg_call *call)
{
    rg_tensor_desc x[RG_MAX_INPUTS], y[RG_MAX_OUTPUTS];
    rg_call read = *call; /* with what the gradient reads alone */
    RG_CHECK(call->op->gradient != NULL, RG_UNSUPPORTED, "%s has no gradient", call->op->name);
    RG_TRY(check_gradient_shapes(call, x, y));
    RG_TRY(check_gradient_reads(&read, x, y));
    RG_TRY(check_written(call, RG_ROLE_DX));
    RG_TRY(check_overlap(&read, RG_ROLE_DY, RG_ROLE_DX));
    RG_TRY(check_overlap(&read, RG_ROLE_X, RG_ROLE_DX));
    RG_TRY(check_overlap(&read, RG_ROLE_Y, RG_ROLE_DX));
    RG_TRY(check_state_overlap(&read, RG_ROLE_DY));
    RG_TRY(check_state_overlap(&read, RG_ROLE_X));
    RG_TRY(check_state_overlap(&read, RG_ROLE_Y));
    RG_TRY(check_state_overlap(&read, RG_ROLE_DX));
    return call->op->gradient(call);
}
