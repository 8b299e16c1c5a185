/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* States: what a forward pass leaves for its gradient. */
#include "runtime/objects.h"

#include <stdatomic.h>
#include <stdio.h>

/* Of temporaries where `commands` is given; without tensors where `bare`. */
static rg_status fill_state(const rg_kernel *kernel, rg_commands *commands,
                            const rg_tensor_desc sources[], bool bare, rg_state **state)
{
    const rg_op *op = kernel->op;
    rg_device *device = kernel->device;
    void *memory;
    RG_TRY(rg_allocate_zero(&device->allocator, sizeof(rg_state), &memory));
    rg_state *made = memory;
    made->device = rg_device_retain(device);
    made->op = op;
    made->inputs = rg_op_inputs(op, kernel->desc);
    memcpy(made->sources, sources, (size_t)made->inputs * sizeof sources[0]);
    rg_status status = rg_allocate(&device->allocator, op->desc.size, &made->desc);
    if (status != RG_OK)
        goto fail;
    memcpy(made->desc, kernel->desc, op->desc.size);
    rg_state_slot slots[RG_MAX_STATE];
    const int32_t count = op->state != NULL ? op->state(kernel->desc, sources, slots) : 0;
    for (int32_t i = 0; i < count; i++) {
        made->names[i] = slots[i].name;
        if (bare)
            status = rg_tensor_make(device, &slots[i].desc, &made->tensors[i]);
        else if (commands != NULL)
            status = rg_tensor_create_temporary(commands, &slots[i].desc, &made->tensors[i]);
        else
            status = rg_tensor_create(device, &slots[i].desc, &made->tensors[i]);
        if (status != RG_OK)
            goto fail;
        made->count = i + 1;
    }
    if (commands != NULL && count > 0) {
        made->temporary = true;
        made->commands = commands->id;
        made->read_count = 1;
    }
    *state = made;
    return RG_OK;
fail:
    rg_state_destroy(made);
    return status;
}

rg_status rg_state_make(const rg_kernel *kernel, const rg_tensor_desc sources[], rg_state **state)
{
    return fill_state(kernel, NULL, sources, true, state);
}

static rg_status make_state(const rg_kernel *kernel, rg_commands *commands, rg_tensor *const x[],
                            const char *who, rg_state **state)
{
    RG_CHECK(state != NULL, RG_INVALID_ARGUMENT, "%s: state is NULL", who);
    *state = NULL;
    RG_CHECK(kernel != NULL, RG_INVALID_ARGUMENT, "%s: kernel is NULL", who);
    RG_CHECK(x != NULL, RG_INVALID_ARGUMENT, "%s: x is NULL", who);
    const rg_op *op = kernel->op;
    rg_device *device = kernel->device;
    rg_tensor_desc sources[RG_MAX_INPUTS], y[RG_MAX_OUTPUTS];
    const int32_t inputs = rg_op_inputs(op, kernel->desc);
    const char *const *names = rg_op_input_names(op, kernel->desc);
    for (int32_t i = 0; i < inputs; i++) {
        RG_CHECK(x[i] != NULL, RG_INVALID_ARGUMENT, "%s: %s is NULL", op->name, names[i]);
        RG_CHECK(x[i]->device == device, RG_INVALID_ARGUMENT,
                 "%s: %s and the kernel are on different devices (%s, %s)", op->name, names[i],
                 x[i]->device->name, device->name);
        sources[i] = x[i]->desc;
    }
    RG_TRY(op->shapes(kernel->desc, sources, y));
    return fill_state(kernel, commands, sources, false, state);
}

rg_status rg_state_create(const rg_kernel *kernel, rg_tensor *const x[], rg_state **state)
{
    return make_state(kernel, NULL, x, __func__, state);
}

rg_status rg_state_create_temporary(const rg_kernel *kernel, rg_commands *commands,
                                    rg_tensor *const x[], rg_state **state)
{
    RG_CHECK_NOT_NULL(state);
    *state = NULL;
    RG_TRY(rg_commands_recording(commands, __func__));
    RG_CHECK(kernel == NULL || kernel->device == commands->queue->device, RG_INVALID_ARGUMENT,
             "%s: the kernel and the commands are on different devices", __func__);
    return make_state(kernel, commands, x, __func__, state);
}

void rg_state_destroy(rg_state *state)
{
    if (state == NULL)
        return;
    rg_completion_release(&state->device->allocator, state->completion);
    rg_state_note_gradients(state, NULL, 0, 0, 0);
    for (int32_t i = 0; i < state->count; i++)
        rg_tensor_destroy(state->tensors[i]);
    rg_device *device = state->device;
    rg_label_clear(&device->allocator, &state->label);
    rg_release(&device->allocator, state->desc, state->op->desc.size);
    rg_release(&device->allocator, state, sizeof *state);
    rg_device_destroy(device);
}

int32_t rg_state_count(const rg_state *state)
{
    return state != NULL ? state->count : 0;
}

const char *rg_state_name(const rg_state *state, int32_t index)
{
    return state != NULL && index >= 0 && index < state->count ? state->names[index] : NULL;
}

rg_status rg_state_tensor(rg_state *state, const char *name, rg_tensor **tensor)
{
    RG_CHECK_NOT_NULL(tensor);
    *tensor = NULL;
    RG_CHECK_NOT_NULL(state);
    RG_CHECK_NOT_NULL(name);
    for (int32_t i = 0; i < state->count; i++) {
        if (strcmp(state->names[i], name) == 0) {
            *tensor = state->tensors[i];
            return RG_OK;
        }
    }
    const char *const *inputs = rg_op_input_names(state->op, state->desc);
    for (int32_t i = 1; i < state->inputs && name[0] == 'd'; i++) {
        if (strcmp(inputs[i], name + 1) == 0 && state->gradients[i] != NULL) {
            *tensor = state->gradients[i];
            return RG_OK;
        }
    }
    return rg_fail(RG_INVALID_ARGUMENT, "the state of %s has no tensor '%s'", state->op->name,
                   name);
}

void rg_state_note_gradients(rg_state *state, rg_tensor *const dx[], int32_t inputs, int64_t count,
                             int64_t n)
{
    for (int32_t i = 1; i < RG_MAX_INPUTS; i++) {
        rg_tensor *tensor = dx != NULL && i < inputs ? dx[i * count + n] : NULL;
        if (dx != NULL && (tensor == NULL || tensor->commands != 0))
            continue; /* what was not computed stays; a temporary is gone too soon */
        if (tensor != NULL)
            tensor->refs++;
        rg_tensor_destroy(state->gradients[i]);
        state->gradients[i] = tensor;
    }
}

const rg_tensor *rg_state_slot_tensor(const rg_state *state, int32_t index)
{
    return state->tensors[index];
}

size_t rg_state_bytes(const rg_state *state)
{
    size_t bytes = 0;
    for (int32_t i = 0; i < rg_state_count(state); i++)
        bytes += rg_tensor_bytes(state->tensors[i]);
    return bytes;
}

rg_status rg_state_source(const rg_state *state, int32_t input, rg_tensor_desc *desc)
{
    RG_CHECK_NOT_NULL(state);
    RG_CHECK_NOT_NULL(desc);
    RG_CHECK(input >= 0 && input < state->inputs, RG_INVALID_ARGUMENT,
             "the state of %s has %d sources; index %d is out of range", state->op->name,
             state->inputs, input);
    *desc = state->sources[input];
    return RG_OK;
}

rg_status rg_state_reset(rg_state *state)
{
    RG_CHECK_NOT_NULL(state);
    state->filled = false;
    rg_state_note_gradients(state, NULL, 0, 0, 0);
    memset(state->progress, 0, sizeof state->progress);
    memset(state->recorded, 0, sizeof state->recorded);
    rg_completion_release(&state->device->allocator, state->completion);
    state->completion = NULL;
    return RG_OK;
}

rg_status rg_state_discard_failed(rg_state *state, const rg_commands *commands, bool reads,
                                  const char *who)
{
    const rg_completion *completion = state->completion;
    if (completion == NULL || completion == commands->submission->completion)
        return RG_OK;
    const int outcome = atomic_load(&completion->state);
    if (outcome == RG_COMMANDS_FAILED)
        return rg_state_reset(state);
    for (int32_t i = 0; i < RG_STATE_PROGRESS; i++)
        reads |= state->progress[i] != 0;
    RG_CHECK(!reads || outcome != RG_COMMANDS_RECORDING, RG_INVALID_STATE,
             "%s: the state is written by other commands that are not committed yet", who);
    return RG_OK;
}

void rg_state_note(rg_state *state, const rg_submission *submission, bool filled)
{
    const bool changed = memcmp(state->recorded, state->progress, sizeof state->progress) != 0;
    state->filled |= filled;
    memcpy(state->recorded, state->progress, sizeof state->progress);
    if ((!filled && !changed) || state->completion == submission->completion)
        return;
    rg_completion_release(&state->device->allocator, state->completion);
    state->completion = submission->completion;
    state->completion->refs++;
}

size_t rg_state_describe(const rg_state *state, char *text, size_t capacity)
{
    char all[2048];
    size_t used = 0;
    all[0] = 0;
    if (state != NULL) {
        char shape[RG_SHAPE_TEXT], fields[1024];
        rg_fields_text(&state->op->desc, state->desc, fields, sizeof fields);
        used = (size_t)snprintf(all, sizeof all, "state of %s %s", state->op->name, fields);
        for (int32_t i = 0; i < state->inputs && used < sizeof all; i++)
            used += (size_t)snprintf(all + used, sizeof all - used, ", %s %s",
                                     rg_op_input_names(state->op, state->desc)[i],
                                     rg_shape_text(&state->sources[i], shape));
        for (int32_t i = 0; i < state->count && used < sizeof all; i++)
            used +=
                (size_t)snprintf(all + used, sizeof all - used, ", holds %s %s", state->names[i],
                                 rg_shape_text(&state->tensors[i]->desc, shape));
    }
    return (size_t)snprintf(text, text != NULL ? capacity : 0, "%s", all);
}

bool rg_state_equal(const rg_state *a, const rg_state *b)
{
    if (a == NULL || b == NULL)
        return a == b;
    bool equal = a->op == b->op && rg_fields_equal(&a->op->desc, a->desc, b->desc);
    for (int32_t i = 0; equal && i < a->inputs; i++)
        equal = a->sources[i].dtype == b->sources[i].dtype &&
                rg_shape_same_dims(&a->sources[i], &b->sources[i]);
    return equal;
}

uint64_t rg_state_hash(const rg_state *state)
{
    if (state == NULL)
        return 0;
    const rg_kernel kernel = { .op = state->op, .desc = state->desc };
    uint64_t hash = rg_kernel_hash(&kernel);
    for (int32_t i = 0; i < state->inputs; i++) {
        const rg_tensor_desc *d = &state->sources[i];
        hash = (hash ^ (uint64_t)d->dtype) * UINT64_C(0x100000001b3); /* FNV-1a */
        for (int32_t k = 0; k < d->rank; k++)
            hash = (hash ^ (uint64_t)d->dims[k]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

rg_status rg_state_set_label(rg_state *state, const char *label)
{
    RG_CHECK_NOT_NULL(state);
    RG_CHECK_NOT_NULL(label);
    return rg_label_set(&state->device->allocator, &state->label, label);
}

const char *rg_state_label(const rg_state *state)
{
    return state != NULL && state->label != NULL ? state->label : "";
}

/* ---- temporaries ---- */

bool rg_state_is_temporary(const rg_state *state)
{
    return state != NULL && state->temporary;
}

uint64_t rg_state_read_count(const rg_state *state)
{
    return state != NULL ? state->read_count : 0;
}

/* Its tensors go when the state is used up. */
static void set_count(rg_state *state, uint64_t count)
{
    state->read_count = count;
    for (int32_t i = 0; count == 0 && i < state->count; i++) {
        if (state->tensors[i]->read_count > 0)
            rg_tensor_set_read_count(state->tensors[i], 0);
    }
}

rg_status rg_state_set_read_count(rg_state *state, uint64_t count)
{
    RG_CHECK_NOT_NULL(state);
    RG_CHECK(state->temporary, RG_INVALID_ARGUMENT,
             "rg_state_set_read_count: the state is not temporary");
    RG_CHECK(state->read_count > 0, RG_INVALID_STATE,
             "rg_state_set_read_count: the state is already released: its read count is 0");
    set_count(state, count);
    return RG_OK;
}

size_t rg_state_add_read_count(rg_state *const states[], size_t count, int64_t amount)
{
    size_t distinct = 0;
    for (size_t i = 0; states != NULL && i < count; i++) {
        bool first = states[i] != NULL;
        for (size_t k = 0; k < i && first; k++)
            first = states[k] != states[i];
        if (!first)
            continue;
        distinct++;
        if (states[i]->temporary && states[i]->read_count > 0)
            set_count(states[i], rg_count_plus(states[i]->read_count, amount));
    }
    return distinct;
}

rg_status rg_state_usable(const rg_state *state, const rg_commands *commands, const char *who)
{
    RG_CHECK(state->device == commands->queue->device, RG_INVALID_ARGUMENT,
             "%s: the state and the commands are on different devices", who);
    RG_CHECK(!state->temporary || state->commands == commands->id, RG_INVALID_ARGUMENT,
             "%s: the state is a temporary that belongs to other commands", who);
    RG_CHECK(!state->temporary || state->read_count > 0, RG_INVALID_STATE,
             "%s: the state is a temporary that is already released: its read count is 0", who);
    for (int32_t i = 0; i < state->count && state->temporary; i++)
        RG_CHECK(state->tensors[i]->read_count > 0, RG_INVALID_STATE,
                 "%s: %s of the state is a temporary that is already released: its read count is 0",
                 who, state->names[i]);
    return RG_OK;
}

void rg_state_count_read(rg_state *state, uint64_t serial)
{
    if (!state->temporary || state->seen == serial)
        return;
    state->seen = serial;
    if (state->read_count > 0)
        set_count(state, state->read_count - 1);
}
