/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What a plan reports: its steps, its storage, shapes, states, and how often sources are read. */
#include "graph/plan.h"

/* ---- steps and values as the last layout has them ---- */

static const rg_step *step_at(const rg_plan *plan, int32_t step)
{
    return plan->current != NULL ? &plan->current->sequence.steps[step] : &plan->steps[step];
}

static const rg_plan_value *slot_at(const rg_plan *plan, int32_t value)
{
    return plan->current != NULL ? &plan->current->sequence.slots[value] : &plan->slots[value];
}

static rg_status check_layout(const rg_plan *plan, const char *who)
{
    RG_CHECK(plan != NULL, RG_INVALID_ARGUMENT, "%s: plan is NULL", who);
    RG_CHECK(plan->current != NULL, RG_INVALID_STATE,
             "%s: the plan has not been prepared or encoded yet", who);
    return RG_OK;
}

/* ---- steps ---- */

rg_status rg_plan_step_info(const rg_plan *plan, int32_t step, rg_step_info *info)
{
    RG_CHECK_NOT_NULL(plan);
    RG_CHECK_NOT_NULL(info);
    RG_CHECK(step >= 0 && step < rg_plan_steps(plan), RG_INVALID_ARGUMENT,
             "rg_plan_step_info: step %d is out of range; the plan has %d steps", step,
             rg_plan_steps(plan));
    const rg_step *s = step_at(plan, step);
    *info = (rg_step_info){ s->label, s->op->name, s->gradient, s->op->updates, s->forward };
    return RG_OK;
}

/* Whether a step reads a value, or what is that value in another shape. */
static bool step_reads(const rg_plan *plan, const rg_step *step, int32_t value)
{
    int32_t read;
    for (int32_t i = 0; rg_step_read(step, i, &read); i++) {
        if (read == value || (read >= 0 && plan->current != NULL &&
                              rg_sequence_root(&plan->current->sequence, read) == value))
            return true;
    }
    return false;
}

uint64_t rg_plan_source_reads(const rg_plan *plan, int32_t index)
{
    uint64_t reads = 0;
    if (plan == NULL || index < 0 || index >= plan->sources_count)
        return 0;
    for (int32_t s = 0; s < rg_plan_steps(plan); s++)
        reads += step_reads(plan, step_at(plan, s), plan->sources[index]);
    return reads;
}

uint64_t rg_plan_source_state_reads(const rg_plan *plan, int32_t index)
{
    uint64_t reads = 0;
    if (index < 0 || index >= rg_plan_source_states(plan))
        return 0;
    for (int32_t s = 0; s < rg_plan_steps(plan); s++)
        reads += step_at(plan, s)->given == index;
    return reads;
}

/* ---- shapes ---- */

rg_status rg_plan_shape(const rg_plan *plan, const char *label, int32_t output,
                        rg_tensor_desc *desc)
{
    RG_TRY(check_layout(plan, "rg_plan_shape"));
    RG_CHECK_NOT_NULL(label);
    RG_CHECK_NOT_NULL(desc);
    const rg_node *node = rg_graph_find_node(plan->graph, label);
    RG_CHECK(node != NULL, RG_INVALID_ARGUMENT, "rg_plan_shape: the plan has no node '%s'", label);
    const rg_value *value = rg_node_output(node, output);
    RG_CHECK(value != NULL, RG_INVALID_ARGUMENT, "rg_plan_shape: '%s' has no output %d", label,
             output);
    RG_CHECK(plan->slots[value->id].made >= 0, RG_INVALID_ARGUMENT,
             "rg_plan_shape: a run does not compute output %d of '%s'", output, label);
    *desc = plan->current->sequence.descs[value->id];
    return RG_OK;
}

/* ---- storage ---- */

static rg_memory_info info_of(const rg_tensor *tensor)
{
    size_t bytes = 0;
    (void)rg_shape_check(&tensor->desc, "a value", &bytes); /* it has passed already */
    return (rg_memory_info){
        .label = "", .desc = tensor->desc, .offset = tensor->offset, .bytes = bytes
    };
}

static rg_status add_entry(rg_layout_plan *layout, rg_memory_entry entry)
{
    RG_TRY(rg_grow(&rg_default_allocator, (void **)&layout->memory, &layout->memory_capacity,
                   layout->memory_count, sizeof layout->memory[0]));
    layout->memory[layout->memory_count++] = entry;
    return RG_OK;
}

/* Fills in, by value, the step and output that make it; by step, the last that reads its state. */
static void find_makers(const rg_sequence *s, int32_t step[], int32_t output[], int32_t last[])
{
    for (int32_t v = 0; v < s->slots_count; v++)
        step[v] = -1;
    for (int32_t i = 0; i < s->steps_count; i++)
        last[i] = i;
    for (int32_t i = 0; i < s->steps_count; i++) {
        for (int32_t k = s->steps[i].outputs - 1; k >= 0; k--) {
            const int32_t v = s->steps[i].out[k];
            if (v < 0)
                continue;
            step[v] = i;
            output[v] = k;
        }
        if (s->steps[i].forward >= 0)
            last[s->steps[i].forward] = i;
    }
}

static rg_status list_entries(rg_layout_plan *layout, const int32_t step[], const int32_t output[],
                              const int32_t last[])
{
    const rg_sequence *s = &layout->sequence;
    for (int32_t v = 0; v < s->slots_count; v++) {
        const rg_tensor *tensor = layout->tensors[v];
        if (tensor != NULL && tensor->storage == layout->storage && s->slots[v].view < 0)
            RG_TRY(add_entry(layout, (rg_memory_entry){ v, step[v], output[v], 0 }));
    }
    for (int32_t i = 0; i < s->steps_count; i++) {
        const rg_state *state = layout->states[i];
        for (int32_t k = 0; state != NULL && k < state->count; k++)
            RG_TRY(add_entry(layout, (rg_memory_entry){ -1, i, k, last[i] }));
    }
    return RG_OK;
}

rg_status rg_layout_list_memory(rg_layout_plan *layout)
{
    const size_t values = (size_t)layout->sequence.slots_count;
    const size_t steps = (size_t)layout->sequence.steps_count, all = 2 * values + steps;
    int32_t *capacity = NULL;
    RG_TRY(rg_allocate_array(all, sizeof *capacity, &capacity));
    int32_t *step = capacity, *output = capacity + values, *last = output + values;
    find_makers(&layout->sequence, step, output, last);
    const rg_status status = list_entries(layout, step, output, last);
    rg_release(&rg_default_allocator, capacity, all * sizeof *capacity);
    return status;
}

static rg_memory_info value_info(const rg_plan *plan, const rg_memory_entry *entry)
{
    const rg_plan_value *slot = slot_at(plan, entry->value);
    rg_memory_info info = info_of(plan->current->tensors[entry->value]);
    const bool stays = slot->result || slot->kind == RG_VALUE_CONSTANT;
    info.first = slot->made;
    info.last = stays ? rg_plan_steps(plan) : slot->last;
    if (entry->step >= 0) {
        info.label = step_at(plan, entry->step)->label;
        info.output = entry->index;
    }
    return info;
}

static rg_memory_info state_info(const rg_plan *plan, const rg_memory_entry *entry)
{
    const rg_state *state = plan->current->states[entry->step];
    const rg_step *step = step_at(plan, entry->step);
    rg_memory_info info = info_of(state->tensors[entry->index]);
    info.label = step->label;
    info.output = entry->index;
    info.state = state->names[entry->index];
    info.first = entry->step;
    info.last = step->shown ? rg_plan_steps(plan) : entry->last;
    return info;
}

int32_t rg_plan_memory_count(const rg_plan *plan)
{
    return plan != NULL && plan->current != NULL ? (int32_t)plan->current->memory_count : 0;
}

rg_status rg_plan_memory(const rg_plan *plan, int32_t index, rg_memory_info *info)
{
    RG_TRY(check_layout(plan, "rg_plan_memory"));
    RG_CHECK_NOT_NULL(info);
    const int32_t count = rg_plan_memory_count(plan);
    RG_CHECK(index >= 0 && index < count, RG_INVALID_ARGUMENT,
             "rg_plan_memory: entry %d is out of range; there are %d", index, count);
    const rg_memory_entry *entry = &plan->current->memory[index];
    *info = entry->value >= 0 ? value_info(plan, entry) : state_info(plan, entry);
    return RG_OK;
}

/* ---- states ---- */

rg_status rg_plan_note_states(rg_plan *plan, const int32_t step_of[])
{
    const rg_graph *graph = plan->graph;
    RG_TRY(rg_allocate_array(graph->states_count, sizeof *plan->state_steps, &plan->state_steps));
    for (size_t i = 0; i < graph->states_count; i++) {
        plan->state_steps[i] = step_of[graph->states[i].node->id];
        plan->steps[plan->state_steps[i]].keeps = true;
        plan->steps[plan->state_steps[i]].shown = true;
    }
    return RG_OK;
}

/* The state that the step `origin` of the plan leaves in the last layout. */
static rg_state *state_of(const rg_plan *plan, int32_t origin)
{
    for (int32_t s = 0; s < rg_plan_steps(plan); s++) {
        if (step_at(plan, s)->shown && step_at(plan, s)->origin == origin)
            return plan->current->states[s];
    }
    return NULL; /* not so: no pass takes it away */
}

rg_status rg_plan_state(rg_plan *plan, const char *name, rg_state **state)
{
    RG_CHECK_NOT_NULL(state);
    *state = NULL;
    RG_TRY(check_layout(plan, "rg_plan_state"));
    RG_CHECK_NOT_NULL(name);
    for (size_t i = 0; i < plan->graph->states_count; i++) {
        if (strcmp(plan->graph->states[i].name, name) != 0)
            continue;
        *state = state_of(plan, plan->state_steps[i]);
        RG_CHECK(*state != NULL, RG_INVALID_STATE, "the state '%s' is not kept", name);
        /* Kernels of the caller may read it, too: it is filled by each run, not by the commands
         * that were recorded for all of them. */
        rg_completion_release(&plan->device->allocator, (*state)->completion);
        (*state)->completion = NULL;
        return RG_OK;
    }
    return rg_fail(RG_INVALID_ARGUMENT, "the plan has no state '%s'", name);
}
