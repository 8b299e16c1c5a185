/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What a plan tells: its steps, its storage, shapes, states, and how often sources are read. */
#include "graph/plan.h"

/* ---- steps and values as the last layout has them ---- */

static const rg_step *step_at(const rg_plan *plan, int32_t step)
{
    return plan->current != NULL ? &plan->current->schedule.steps[step] : &plan->steps[step];
}

static const rg_slot *slot_at(const rg_plan *plan, int32_t value)
{
    return plan->current != NULL ? &plan->current->schedule.slots[value] : &plan->slots[value];
}

static rg_status check_layout(const rg_plan *plan, const char *who)
{
    RG_CHECK(plan != NULL, RG_INVALID_ARGUMENT, "%s: plan is NULL", who);
    RG_CHECK(plan->current != NULL, RG_INVALID_STATE, "%s: nothing was prepared or encoded yet",
             who);
    return RG_OK;
}

/* ---- steps ---- */

rg_status rg_plan_step_info(const rg_plan *plan, int32_t step, rg_step_info *info)
{
    RG_CHECK_NOT_NULL(plan);
    RG_CHECK_NOT_NULL(info);
    RG_CHECK(step >= 0 && step < rg_plan_steps(plan), RG_INVALID_ARGUMENT,
             "rg_plan_step_info: step %d of %d", step, rg_plan_steps(plan));
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
                              rg_schedule_root(&plan->current->schedule, read) == value))
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

/* ---- shapes ---- */

rg_status rg_plan_shape(const rg_plan *plan, const char *label, int32_t output,
                        rg_tensor_desc *desc)
{
    RG_TRY(check_layout(plan, "rg_plan_shape"));
    RG_CHECK_NOT_NULL(label);
    RG_CHECK_NOT_NULL(desc);
    const rg_node *node = rg_graph_find_node(plan->graph, label);
    RG_CHECK(node != NULL, RG_INVALID_ARGUMENT, "rg_plan_shape: there is no node '%s'", label);
    const rg_value *value = rg_node_output(node, output);
    RG_CHECK(value != NULL, RG_INVALID_ARGUMENT, "rg_plan_shape: '%s' has no output %d", label,
             output);
    RG_CHECK(plan->slots[value->id].made >= 0, RG_INVALID_ARGUMENT,
             "rg_plan_shape: a run does not make output %d of '%s'", output, label);
    *desc = plan->current->schedule.descs[value->id];
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

static rg_memory_info value_info(const rg_plan *plan, int32_t value)
{
    const rg_slot *slot = slot_at(plan, value);
    const int32_t steps = rg_plan_steps(plan);
    rg_memory_info info = info_of(plan->current->tensors[value]);
    const bool stays = slot->result || slot->kind == RG_VALUE_CONSTANT;
    info.first = slot->made;
    info.last = stays ? steps : slot->last;
    for (int32_t s = slot->made >= 0 ? slot->made : steps; s < steps; s++) {
        const rg_step *step = step_at(plan, s);
        for (int32_t i = 0; i < step->outputs; i++) {
            if (step->out[i] != value)
                continue;
            info.label = step->label;
            info.output = i;
            return info;
        }
    }
    return info;
}

static rg_memory_info state_info(const rg_plan *plan, int32_t s, int32_t tensor)
{
    const rg_state *state = plan->current->states[s];
    const rg_step *step = step_at(plan, s);
    rg_memory_info info = info_of(state->tensors[tensor]);
    info.label = step->label;
    info.output = tensor;
    info.state = state->names[tensor];
    info.first = info.last = s;
    for (int32_t g = s + 1; g < rg_plan_steps(plan); g++)
        info.last = step_at(plan, g)->forward == s ? g : info.last;
    if (step->shown)
        info.last = rg_plan_steps(plan);
    return info;
}

/* Goes over all that has a place; returns how many there are. `info`, unless NULL, gets the one
 * with this index. */
static int32_t walk_memory(const rg_plan *plan, int32_t index, rg_memory_info *info)
{
    const rg_layout_plan *layout = plan->current;
    int32_t count = 0;
    for (int32_t v = 0; v < layout->schedule.slots_count; v++) {
        const rg_tensor *tensor = layout->tensors[v];
        if (tensor == NULL || tensor->storage != layout->storage || slot_at(plan, v)->view >= 0)
            continue;
        if (count++ == index && info != NULL)
            *info = value_info(plan, v);
    }
    for (int32_t s = 0; s < rg_plan_steps(plan); s++) {
        const rg_state *state = layout->states[s];
        for (int32_t i = 0; state != NULL && i < state->count; i++) {
            if (count++ == index && info != NULL)
                *info = state_info(plan, s, i);
        }
    }
    return count;
}

int32_t rg_plan_memory_count(const rg_plan *plan)
{
    return plan != NULL && plan->current != NULL ? walk_memory(plan, -1, NULL) : 0;
}

rg_status rg_plan_memory(const rg_plan *plan, int32_t index, rg_memory_info *info)
{
    RG_TRY(check_layout(plan, "rg_plan_memory"));
    RG_CHECK_NOT_NULL(info);
    const int32_t count = walk_memory(plan, index, info);
    RG_CHECK(index >= 0 && index < count, RG_INVALID_ARGUMENT, "rg_plan_memory: entry %d of %d",
             index, count);
    return RG_OK;
}

/* ---- states ---- */

rg_status rg_plan_note_states(rg_plan *plan, const int32_t place[])
{
    const rg_graph *graph = plan->graph;
    RG_TRY(rg_room(graph->states_count, sizeof *plan->state_steps, &plan->state_steps));
    for (size_t i = 0; i < graph->states_count; i++) {
        plan->state_steps[i] = place[graph->states[i].node->id];
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
        rg_fate_release(&plan->device->allocator, (*state)->fate);
        (*state)->fate = NULL;
        return RG_OK;
    }
    return rg_fail(RG_INVALID_ARGUMENT, "the plan has no state '%s'", name);
}
