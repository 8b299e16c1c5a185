/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Asking plans: sources, parameters, results, and how much there is of everything. */
#include "graph/plan.h"

int32_t rg_plan_sources(const rg_plan *plan)
{
    return plan != NULL ? plan->sources_count : 0;
}

const char *rg_plan_source_name(const rg_plan *plan, int32_t index)
{
    return plan != NULL && index >= 0 && index < plan->sources_count
               ? plan->slots[plan->sources[index]].name
               : NULL;
}

int32_t rg_plan_source_states(const rg_plan *plan)
{
    return plan != NULL ? plan->given_count : 0;
}

const char *rg_plan_source_state_name(const rg_plan *plan, int32_t index)
{
    return index >= 0 && index < rg_plan_source_states(plan)
               ? plan->graph->given[plan->given[index]]->name
               : NULL;
}

int32_t rg_plan_steps(const rg_plan *plan)
{
    return plan == NULL            ? 0
           : plan->current == NULL ? plan->steps_count
                                   : plan->current->sequence.steps_count;
}

int64_t rg_plan_launches(const rg_plan *plan)
{
    return plan != NULL && plan->current != NULL ? plan->current->launches : 0;
}

bool rg_plan_replays(const rg_plan *plan)
{
    return plan != NULL && plan->current != NULL && plan->current->replay != NULL;
}

int32_t rg_plan_parameters(const rg_plan *plan)
{
    return plan != NULL ? plan->listed_count : 0;
}

const char *rg_plan_parameter_name(const rg_plan *plan, int32_t index)
{
    return index >= 0 && index < rg_plan_parameters(plan) ? plan->slots[plan->listed[index]].name
                                                          : NULL;
}

rg_tensor *rg_plan_find_parameter(const rg_plan *plan, const char *name)
{
    const rg_value *value = rg_graph_find_value(plan->graph, name);
    return value != NULL ? plan->parameters[value->id] : NULL;
}

rg_status rg_plan_parameter(rg_plan *plan, const char *name, rg_tensor **tensor)
{
    RG_CHECK_NOT_NULL(tensor);
    *tensor = NULL;
    RG_CHECK_NOT_NULL(plan);
    RG_CHECK_NOT_NULL(name);
    *tensor = rg_plan_find_parameter(plan, name);
    RG_CHECK(*tensor != NULL, RG_INVALID_ARGUMENT, "the plan has no parameter '%s'", name);
    return RG_OK;
}

int32_t rg_plan_results(const rg_plan *plan)
{
    return plan != NULL ? plan->results_count : 0;
}

const char *rg_plan_result_name(const rg_plan *plan, int32_t index)
{
    return index >= 0 && index < rg_plan_results(plan) ? plan->result_names[index] : NULL;
}

rg_status rg_plan_result(rg_plan *plan, const char *name, rg_tensor **tensor)
{
    RG_CHECK_NOT_NULL(tensor);
    *tensor = NULL;
    RG_CHECK_NOT_NULL(plan);
    RG_CHECK_NOT_NULL(name);
    RG_CHECK(plan->current != NULL, RG_INVALID_STATE,
             "rg_plan_result: the plan has not been prepared or encoded yet");
    const rg_value *value = rg_names_find(&plan->graph->results_by_name, name);
    RG_CHECK(value != NULL, RG_INVALID_ARGUMENT, "the plan has no result '%s'", name);
    *tensor = plan->current->tensors[value->id];
    RG_CHECK(*tensor != NULL, RG_UNSUPPORTED, "the result '%s' is a source", name);
    return RG_OK;
}

size_t rg_plan_bytes(const rg_plan *plan)
{
    return plan != NULL && plan->current != NULL ? plan->current->bytes : 0;
}

size_t rg_plan_bytes_apart(const rg_plan *plan)
{
    return plan != NULL && plan->current != NULL ? plan->current->apart : 0;
}

size_t rg_plan_scratch(const rg_plan *plan)
{
    return plan != NULL && plan->current != NULL ? plan->current->scratch : 0;
}
