/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Copies of graphs: the same values and nodes with the same ids. */
#include "graph/graph.h"

#include <stdlib.h>

static rg_value *value_in(const rg_graph *copy, const rg_value *value)
{
    return value != NULL ? copy->values[value->id] : NULL;
}

static rg_node *node_in(const rg_graph *copy, const rg_node *node)
{
    return node != NULL ? copy->nodes[node->id] : NULL;
}

/* Values without what they point to. */
static rg_status copy_values(const rg_graph *graph, rg_graph *copy)
{
    for (size_t i = 0; i < graph->values_count; i++) {
        rg_value made = *graph->values[i], *value = NULL;
        made.name = NULL;
        if (graph->values[i]->name != NULL) {
            made.name = strdup(graph->values[i]->name);
            RG_CHECK(made.name != NULL, RG_OUT_OF_MEMORY, "out of memory for a name");
        }
        const rg_status status = rg_graph_add_value(copy, &made, &value);
        if (status != RG_OK) {
            free(made.name);
            return status;
        }
        if (value->name != NULL)
            RG_TRY(rg_names_add(&copy->values_by_name, value->name, value));
    }
    return RG_OK;
}

static rg_status copy_states(const rg_graph *graph, rg_graph *copy)
{
    for (size_t i = 0; i < graph->given_count; i++) {
        const rg_state_value *from = graph->given[i];
        rg_state_value *made = rg_graph_source_state(copy, from->name, from->op->name, from->desc);
        RG_TRY(rg_graph_status(copy));
        made->handle = from->handle;
    }
    return RG_OK;
}

static rg_status copy_node(const rg_node *node, rg_graph *copy)
{
    rg_node *made = NULL;
    RG_TRY(rg_graph_add_node(copy, node->op, node->desc, "_copy_", &made));
    made->gradient = node->gradient;
    made->forward = node_in(copy, node->forward);
    made->given = node->given != NULL ? copy->given[node->given->id] : NULL;
    if (node->state_value != NULL) {
        rg_state_value *state = rg_node_state(made);
        RG_CHECK(state != NULL, RG_OUT_OF_MEMORY, "out of memory for the state of a node");
        state->handle = node->state_value->handle;
    }
    made->rule = node->rule;
    made->rule_context = node->rule_context;
    made->inputs = node->inputs;
    made->outputs = node->outputs;
    made->ends = node->ends;
    for (int32_t i = 0; i < RG_MAX_INPUTS; i++) {
        made->in[i] = value_in(copy, node->in[i]);
        made->out[i] = value_in(copy, node->out[i]);
        made->x[i] = value_in(copy, node->x[i]);
    }
    for (int32_t i = 0; i < RG_MAX_OUTPUTS; i++)
        made->y[i] = value_in(copy, node->y[i]);
    return rg_node_set_label(made, node->label);
}

static rg_status copy_contents(const rg_graph *graph, rg_graph *copy)
{
    RG_TRY(copy_values(graph, copy));
    RG_TRY(copy_states(graph, copy));
    for (size_t n = 0; n < graph->nodes_count; n++)
        RG_TRY(copy_node(graph->nodes[n], copy));
    for (size_t i = 0; i < graph->values_count; i++) {
        const rg_value *from = graph->values[i];
        rg_value *value = copy->values[i];
        value->like = value_in(copy, from->like);
        value->node = node_in(copy, from->node);
        value->gradient = value_in(copy, from->gradient);
        value->assigned = value->takes = NULL;
    }
    for (size_t i = 0; i < graph->results_count; i++)
        RG_TRY(
            rg_graph_result(copy, value_in(copy, graph->results[i].value), graph->results[i].name));
    for (size_t i = 0; i < graph->states_count; i++)
        RG_TRY(rg_graph_state_result(copy, node_in(copy, graph->states[i].node),
                                     graph->states[i].name));
    for (size_t i = 0; i < graph->assignments_count; i++)
        RG_TRY(rg_graph_assign(copy, value_in(copy, graph->assignments[i].parameter),
                               value_in(copy, graph->assignments[i].value)));
    copy->backward = graph->backward;
    copy->backward_end = graph->backward_end;
    return RG_OK;
}

rg_status rg_graph_copy(const rg_graph *graph, rg_graph **copy)
{
    RG_CHECK_NOT_NULL(copy);
    *copy = NULL;
    RG_TRY(rg_graph_status(graph));
    rg_graph *made;
    RG_TRY(rg_graph_create(&made));
    const rg_status status = copy_contents(graph, made);
    if (status != RG_OK) {
        rg_graph_destroy(made);
        return status;
    }
    *copy = made;
    return RG_OK;
}
