/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Batch calls: checked and recorded, image by image or joined. */
#include "runtime/batch.h"
#include "runtime/batch_overlap.h"

/* Must run before addresses are compared: a temporary of another submission, or one with no
 * reads left, has no address. */
static rg_status check_all_usable(rg_tensor *const tensors[], int64_t entries, const rg_call *call,
                                  const char *prefix, const char *const names[], int64_t count)
{
    for (int64_t i = 0; tensors != NULL && i < entries; i++) {
        const rg_status status = tensors[i] == NULL
                                     ? RG_OK
                                     : rg_tensor_usable(tensors[i], call->commands, call->op->name,
                                                        prefix, names[i / count]);
        if (status != RG_OK) {
            rg_error_prefix("image %lld: ", (long long)(i % count));
            return status;
        }
    }
    return RG_OK;
}

static size_t add_accesses(rg_tensor *const tensors[], int64_t entries, const rg_batch *b,
                           bool written, rg_access accesses[], size_t count)
{
    for (int64_t i = 0; tensors != NULL && i < entries; i++) {
        if (tensors[i] != NULL)
            accesses[count++] = (rg_access){ tensors[i], i % b->count, written };
    }
    return count;
}

/* The tensors of the states, once each; with `accesses` NULL only their number. */
static size_t add_states(const rg_batch *b, rg_access accesses[], size_t count)
{
    for (int64_t n = 0; b->states != NULL && n < b->count; n++) {
        const rg_state *state = b->states[n];
        bool first = true;
        for (int64_t k = 0; k < n && first; k++)
            first = b->states[k] != state;
        for (int32_t i = 0; i < rg_state_count(state) && first; i++, count++) {
            if (accesses != NULL)
                accesses[count] = (rg_access){ state->tensors[i], n, true };
        }
    }
    return count;
}

/* What one image writes no other may touch: images may run joined, or in any order. */
static rg_status check_images_overlap(const rg_batch *b, const rg_call *call)
{
    const int64_t inputs = call->inputs * b->count, outputs = call->outputs * b->count;
    const int64_t gradients = call->gradients * b->count;
    const rg_allocator *allocator = &b->commands->queue->device->allocator;
    const rg_op *op = call->op;
    size_t bytes, count = 0;
    void *memory;
    RG_TRY(check_all_usable(b->x, inputs, call, "", call->input_names, b->count));
    RG_TRY(check_all_usable(b->y, outputs, call, "", call->output_names, b->count));
    RG_TRY(check_all_usable(b->dy, gradients, call, "d", call->output_names, b->count));
    RG_TRY(check_all_usable(b->dx, inputs, call, "d", call->input_names, b->count));
    for (int64_t n = 0; b->states != NULL && n < b->count; n++) {
        if (b->states[n] != NULL)
            RG_TRY(rg_state_usable(b->states[n], b->commands, op->name));
    }
    const size_t most = (size_t)(2 * (inputs + outputs)) + add_states(b, NULL, 0);
    RG_CHECK(rg_multiply(most, sizeof(rg_access), &bytes), RG_OUT_OF_MEMORY,
             "out of memory: a batch of %lld images", (long long)b->count);
    RG_TRY(rg_allocate(allocator, bytes, &memory));
    rg_access *accesses = memory;
    count = add_accesses(b->x, inputs, b, false, accesses, count);
    count = add_accesses(b->dy, gradients, b, false, accesses, count);
    count = add_accesses(b->y, outputs, b, !b->gradient, accesses, count);
    count = add_accesses(b->dx, inputs, b, true, accesses, count);
    count = add_states(b, accesses, count);
    const rg_status status = rg_accesses_check_overlap(accesses, count, b->gradient, op->name);
    rg_release(allocator, memory, bytes);
    return status;
}

/* Refuses a state that several images share: the next image would overwrite what the one before
 * left, unless the op adds to it. */
static rg_status check_states(const rg_batch *b, const rg_call *call)
{
    const rg_op *op = call->op;
    if (b->states == NULL || (op->shares_state != NULL && op->shares_state(call->desc)))
        return RG_OK;
    for (int64_t n = 1; n < b->count; n++) {
        for (int64_t k = 0; k < n && rg_state_count(b->states[n]) > 0; k++)
            RG_CHECK(b->states[k] != b->states[n], RG_INVALID_ARGUMENT,
                     "%s: images %lld and %lld share a state that stores tensors of a single image",
                     op->name, (long long)k, (long long)n);
    }
    return RG_OK;
}

/* Records up to RG_MAX_CALLS images in one launch, for ops that can. */
static rg_status record_calls(const rg_batch *b, const rg_call *call)
{
    rg_call calls[RG_MAX_CALLS];
    for (int64_t n = 0; n < b->count;) {
        int32_t count = 0;
        for (; count < RG_MAX_CALLS && n < b->count; count++, n++) {
            rg_call *c = &calls[count];
            *c = *call;
            for (int32_t i = 0; i < call->inputs; i++)
                c->x[i] = rg_batch_tensor(b->x, b->count, i, n);
            for (int32_t i = 0; i < call->outputs; i++)
                c->y[i] = rg_batch_tensor(b->y, b->count, i, n);
            c->state = b->states != NULL ? b->states[n] : NULL;
            c->image = n;
            const rg_status status = rg_call_check(c);
            if (status != RG_OK) {
                rg_error_prefix("image %lld: ", (long long)n);
                return status;
            }
        }
        RG_TRY(call->op->forward_calls(calls, count));
    }
    return RG_OK;
}

static rg_status record_images(const rg_batch *b, rg_call *call)
{
    RG_TRY(check_states(b, call));
    if (b->count > 1)
        RG_TRY(check_images_overlap(b, call));
    if (b->count > 1 && !b->gradient && call->op->forward_calls != NULL)
        return record_calls(b, call);
    for (int64_t n = 0; n < b->count;) {
        rg_batch_run r;
        const int64_t next = rg_batch_join(b, n, &r, call);
        call->state = b->states != NULL ? b->states[n] : NULL;
        call->image = n;
        call->add = rg_batch_add(b, call->inputs, n);
        const rg_status status = b->gradient ? rg_call_gradient(call) : rg_call_forward(call);
        if (status != RG_OK) {
            if (b->count > 1)
                rg_error_prefix("image %lld: ", (long long)n);
            return status;
        }
        n = next;
    }
    return RG_OK;
}

static void count_reads(rg_tensor *const tensors[], int64_t entries, uint64_t serial)
{
    for (int64_t i = 0; tensors != NULL && i < entries; i++)
        rg_tensor_count_read(tensors[i], serial);
}

/* Undoes what the op has noted in the states of a refused call. */
static void take_back_progress(const rg_batch *b)
{
    for (int64_t n = 0; b->states != NULL && n < b->count; n++) {
        rg_state *state = b->states[n];
        if (state != NULL)
            memcpy(state->progress, state->recorded, sizeof state->progress);
    }
}

rg_status rg_batch_record(const rg_batch *b, const char *who)
{
    rg_call call;
    RG_TRY(rg_call_begin(b->kernel, b->commands, who, &call));
    if (b->states != NULL)
        RG_TRY(rg_submission_need_completion(b->commands->submission));
    const rg_mark mark = rg_commands_mark(b->commands);
    const rg_status status = record_images(b, &call);
    if (status != RG_OK) {
        take_back_progress(b);
        rg_commands_rewind(b->commands, mark);
        return status;
    }
    const uint64_t serial = ++b->commands->serial;
    for (int64_t n = 0; b->states != NULL && n < b->count; n++) {
        if (b->states[n] == NULL)
            continue;
        if (b->gradient || b->states[n]->filled) /* filling a new one only writes */
            rg_state_count_read(b->states[n], serial);
        else
            b->states[n]->seen = serial;
        rg_state_note(b->states[n], b->commands->submission, !b->gradient);
        if (b->gradient && b->dx != NULL)
            rg_state_note_gradients(b->states[n], b->dx, call.inputs, b->count, n);
    }
    count_reads(b->x, call.inputs * b->count, serial);
    count_reads(b->gradient ? b->y : NULL, call.outputs * b->count, serial);
    count_reads(b->dy, call.gradients * b->count, serial);
    return RG_OK;
}
