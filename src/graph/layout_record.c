/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Recording the steps of a layout, once for all runs. */
#include "graph/plan.h"

#include <stdlib.h>

static const rg_allocator *const allocator = &rg_default_allocator;

rg_tensor *rg_layout_value(const rg_layout_plan *layout, int32_t value)
{
    if (value < 0)
        return NULL;
    const int32_t source = layout->sequence.slots[value].source;
    return source >= 0 ? layout->stand_ins[source] : layout->tensors[value];
}

static rg_status record_gradient(const rg_layout_plan *layout, const rg_step *step)
{
    rg_tensor *dy[RG_MAX_INPUTS], *dx[RG_MAX_INPUTS], *x[RG_MAX_INPUTS], *y[RG_MAX_OUTPUTS];
    bool any = false;
    for (int32_t i = 0; i < RG_MAX_INPUTS; i++) {
        dy[i] = rg_layout_value(layout, step->in[i]);
        dx[i] = step->views >> i & 1 ? NULL : rg_layout_value(layout, step->out[i]);
        x[i] = rg_layout_value(layout, step->x[i]);
        any |= dx[i] != NULL;
    }
    for (int32_t i = 0; i < RG_MAX_OUTPUTS; i++)
        y[i] = rg_layout_value(layout, step->y[i]);
    rg_state *state = step->forward >= 0 ? layout->states[step->forward] : NULL;
    if (!any && step->views != 0)
        return RG_OK;
    if (step->given >= 0 && layout->given[step->given].by_image)
        return rg_layout_record_images(layout, step);
    if (step->given >= 0)
        state = layout->given_states[layout->given[step->given].at];
    return rg_kernel_gradient(step->kernel, layout->recorded, dy, x, y, state, dx, step->add);
}

/* Steps of one kernel that run together: entry i * count + n of x is input i of step n. */
static rg_status record_batch(const rg_layout_plan *layout, const rg_step *steps, int32_t count)
{
    rg_tensor **x = NULL, **y = NULL;
    const size_t all = (size_t)count;
    rg_status status = rg_allocate_array(all * RG_MAX_INPUTS, sizeof *x, &x);
    if (status == RG_OK)
        status = rg_allocate_array(all * RG_MAX_OUTPUTS, sizeof *y, &y);
    for (int32_t n = 0; n < count && status == RG_OK; n++) {
        for (int32_t i = 0; i < steps[n].inputs; i++)
            x[i * count + n] = rg_layout_value(layout, steps[n].in[i]);
        for (int32_t i = 0; i < steps[n].outputs; i++)
            y[i * count + n] = rg_layout_value(layout, steps[n].out[i]);
    }
    if (status == RG_OK)
        status = rg_kernel_forward_batch(steps->kernel, layout->recorded, count, x, y, NULL);
    rg_release(allocator, x, all * RG_MAX_INPUTS * sizeof *x);
    rg_release(allocator, y, all * RG_MAX_OUTPUTS * sizeof *y);
    return status;
}

static rg_status record_step(const rg_layout_plan *layout, int32_t at)
{
    const rg_step *step = &layout->sequence.steps[at];
    rg_tensor *x[RG_MAX_INPUTS], *y[RG_MAX_INPUTS];
    if (step->gradient)
        return record_gradient(layout, step);
    if (step->views != 0 || at != step->begin) /* nothing to do, or done with those before */
        return RG_OK;
    if (step->end > step->begin)
        return record_batch(layout, step, step->end - step->begin + 1);
    for (int32_t i = 0; i < RG_MAX_INPUTS; i++) {
        x[i] = rg_layout_value(layout, step->in[i]);
        y[i] = rg_layout_value(layout, step->out[i]);
    }
    return rg_kernel_forward(step->kernel, layout->recorded, x, y, layout->states[at]);
}

/* Overwrites the storage of what step s was the last to use, for tests: a plan that still reads it
 * gives wrong numbers. */
static rg_status poison(const rg_plan *plan, const rg_layout_plan *layout, const rg_claims *c,
                        int32_t s)
{
    for (int32_t i = 0; i < c->count; i++) {
        const rg_claim *claim = &c->list[i];
        if (claim->last != s || claim->bytes == 0)
            continue;
        rg_tensor *tensor;
        const int64_t bytes = (int64_t)claim->bytes;
        const rg_tensor_desc desc = rg_tensor_desc_dense(RG_U8, 1, &bytes);
        RG_TRY(rg_layout_tensor(plan, layout, &desc, claim->offset, &tensor));
        const rg_status status = rg_commands_write(layout->recorded, tensor, layout->poison,
                                                   claim->bytes, RG_LAYOUT_SAME);
        rg_tensor_destroy(tensor);
        RG_TRY(status);
    }
    return RG_OK;
}

/* The bytes belong to the recorded commands, and so to all that repeat them. */
static rg_status prepare_poison(const rg_plan *plan, rg_layout_plan *layout, const rg_claims *c)
{
    rg_submission *submission = layout->recorded->submission;
    size_t bytes = 1;
    rg_storage *keeper;
    for (int32_t i = 0; i < c->count; i++)
        bytes = c->list[i].bytes > bytes ? c->list[i].bytes : bytes;
    RG_TRY(rg_grow(&plan->device->allocator, (void **)&submission->used, &submission->used_capacity,
                   submission->used_count, sizeof submission->used[0]));
    RG_TRY(rg_storage_create(plan->device, 0, &keeper));
    submission->used[submission->used_count++] = keeper;
    keeper->context = layout->poison = malloc(bytes);
    RG_CHECK(layout->poison != NULL, RG_OUT_OF_MEMORY, "out of memory: %zu bytes", bytes);
    keeper->release = free;
    memset(layout->poison, 0xff, bytes); /* NaN in every dtype */
    return RG_OK;
}

/* Entries of the recorded submission that launch kernels; others are copies. */
static int64_t count_launches(const rg_submission *submission)
{
    int64_t count = 0;
    for (size_t at = 0; at < submission->entries_size;) {
        const rg_entry *entry = (const rg_entry *)(const void *)(submission->entries + at);
        count += entry->function != NULL;
        at += entry->size;
    }
    return count;
}

rg_status rg_layout_record(rg_plan *plan, rg_layout_plan *layout, const rg_claims *c)
{
    const rg_sequence *s = &layout->sequence;
    if (plan->options.poison)
        RG_TRY(prepare_poison(plan, layout, c));
    RG_TRY(rg_allocate_array(s->steps_capacity, sizeof *layout->ends, &layout->ends));
    for (int32_t i = 0; i < s->steps_count; i++) {
        rg_status status = record_step(layout, i);
        layout->ends[i] = layout->recorded->submission->entries_size;
        if (status == RG_OK && plan->options.poison)
            status = poison(plan, layout, c, i);
        if (status != RG_OK) {
            rg_layout_name_inputs(plan, &plan->steps[s->steps[i].origin], s->descs);
            return status;
        }
    }
    for (int32_t i = 0; i < s->steps_count; i++) { /* their storage may serve others */
        if (layout->states[i] != NULL)
            rg_state_note_gradients(layout->states[i], NULL, 0, 0, 0);
    }
    layout->scratch = layout->recorded->submission->heap_size;
    layout->launches = count_launches(layout->recorded->submission);
    if (rg_plan_may_replay(plan)) /* a replay has memory of its own */
        return RG_OK;
    const rg_stand_ins stand_ins = { layout->stand_ins, layout->stand_ins, layout->inputs_count };
    return rg_commands_keep_heap(layout->recorded, &stand_ins);
}
