/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* States in a graph: what nodes leave, what runs are given, and gradient nodes that read them. */
#include "graph/graph.h"

#include "core/memory.h"
#include "core/private_api.h"

#include <stdlib.h>

static const rg_allocator *const allocator = &rg_default_allocator;

/* ---- states of nodes ---- */

rg_state_value *rg_node_state(rg_node *node)
{
    void *memory;
    if (node == NULL || node->gradient || node->op->gradient == NULL)
        return NULL;
    if (node->state_value != NULL)
        return node->state_value;
    const rg_status status = rg_allocate_zero(allocator, sizeof(rg_state_value), &memory);
    if (rg_graph_mistake(node->graph, status) != RG_OK)
        return NULL;
    node->state_value = memory;
    *node->state_value = (rg_state_value){
        .graph = node->graph, .node = node, .id = -1, .op = node->op, .desc = node->desc
    };
    return node->state_value;
}

void rg_state_value_destroy(rg_state_value *state)
{
    if (state == NULL)
        return;
    if (state->node == NULL)
        rg_release(allocator, state->desc, state->op->desc.size);
    free(state->name);
    rg_release(allocator, state, sizeof *state);
}

/* ---- states that runs are given ---- */

static rg_status check_source_state(const rg_graph *graph, const char *name, const rg_op *op,
                                    const void *desc)
{
    RG_CHECK(rg_names_find(&graph->given_by_name, name) == NULL, RG_INVALID_ARGUMENT,
             "the graph is given two states with the name '%s'", name);
    RG_CHECK(op->gradient != NULL, RG_UNSUPPORTED,
             "the state '%s' cannot be used: %s has no gradient", name, op->name);
    RG_CHECK(op->shares_state == NULL || !op->shares_state(desc), RG_UNSUPPORTED,
             "the state '%s' cannot be given to runs: calls of %s with this descriptor add to it",
             name, op->name);
    return RG_OK;
}

static rg_status add_source_state(rg_graph *graph, const char *name, const char *op_name,
                                  const void *desc, rg_state_value **state)
{
    _Alignas(16) char checked[RG_MAX_DESC];
    rg_state_value made = { .graph = graph, .id = (int32_t)graph->given_count };
    void *memory;
    RG_CHECK(name != NULL && name[0] != 0, RG_INVALID_ARGUMENT,
             "a state that runs are given needs a name");
    RG_CHECK(graph->given_count < RG_PLAN_SOURCE_STATES, RG_UNSUPPORTED,
             "the graph is given more than %d states", RG_PLAN_SOURCE_STATES);
    RG_TRY(rg_graph_find_op(op_name, &made.op));
    RG_TRY(rg_graph_check_desc(made.op, desc, checked));
    RG_TRY(check_source_state(graph, name, made.op, checked));
    RG_TRY(rg_grow(allocator, (void **)&graph->given, &graph->given_capacity, graph->given_count,
                   sizeof graph->given[0]));
    RG_TRY(rg_allocate_zero(allocator, sizeof made, &memory));
    rg_status status = rg_allocate(allocator, made.op->desc.size, &made.desc);
    if (status == RG_OK)
        status = rg_copy_text(name, &made.name);
    if (status == RG_OK)
        status = rg_names_add(&graph->given_by_name, made.name, memory);
    if (status != RG_OK) {
        rg_release(allocator, made.desc, made.op->desc.size);
        free(made.name);
        rg_release(allocator, memory, sizeof made);
        return status;
    }
    memcpy(made.desc, checked, made.op->desc.size);
    *state = memory;
    **state = made;
    graph->given[graph->given_count++] = *state;
    return RG_OK;
}

rg_state_value *rg_graph_source_state(rg_graph *graph, const char *name, const char *op,
                                      const void *desc)
{
    rg_state_value *state = NULL;
    if (graph == NULL || graph->status != RG_OK)
        return NULL;
    const rg_status status = add_source_state(graph, name, op, desc, &state);
    return rg_graph_mistake(graph, status) == RG_OK ? state : NULL;
}

/* ---- gradient nodes ---- */

static rg_status add_from_state(rg_graph *graph, rg_state_value *state,
                                const rg_gradient_values *values, uint64_t wanted, rg_node **node)
{
    RG_CHECK(values != NULL, RG_INVALID_ARGUMENT, "rg_graph_gradient_from_state: values is NULL");
    RG_CHECK(state->graph == graph, RG_INVALID_ARGUMENT,
             "rg_graph_gradient_from_state: the state belongs to another graph");
    RG_CHECK((values->dy != NULL || values->dy_count == 0) &&
                 (values->x != NULL || values->x_count == 0) &&
                 (values->y != NULL || values->y_count == 0),
             RG_INVALID_ARGUMENT,
             "rg_graph_gradient_from_state: an array is NULL, but its length is not 0");
    rg_gradient_parts parts = { .op = state->op,
                                .desc = state->desc,
                                .of = state->node,
                                .given = state->node == NULL ? state : NULL,
                                .dy = values->dy,
                                .x = values->x_count > 0 ? values->x : NULL,
                                .y = values->y_count > 0 ? values->y : NULL,
                                .dy_count = values->dy_count,
                                .x_count = values->x_count,
                                .y_count = values->y_count,
                                .wanted = wanted };
    if (state->node != NULL && parts.x == NULL) {
        parts.x = state->node->in;
        parts.x_count = RG_MAX_INPUTS;
    }
    if (state->node != NULL && parts.y == NULL) {
        parts.y = state->node->out;
        parts.y_count = RG_MAX_OUTPUTS;
    }
    if (wanted == 0)
        parts.wanted = rg_op_all_gradients(state->op, state->desc);
    return rg_graph_add_gradient(graph, &parts, node);
}

rg_node *rg_graph_gradient_from_state(rg_graph *graph, rg_state_value *state,
                                      const rg_gradient_values *values, uint64_t wanted)
{
    rg_node *node = NULL;
    if (graph == NULL || graph->status != RG_OK || state == NULL)
        return NULL;
    const rg_status status = add_from_state(graph, state, values, wanted, &node);
    return rg_graph_mistake(graph, status) == RG_OK ? node : NULL;
}

/* ---- queries ---- */

rg_node *rg_state_value_node(const rg_state_value *state)
{
    return state != NULL ? state->node : NULL;
}

const char *rg_state_value_name(const rg_state_value *state)
{
    return state != NULL && state->name != NULL ? state->name : "";
}

rg_status rg_state_value_set_handle(rg_state_value *state, void *handle)
{
    RG_CHECK_NOT_NULL(state);
    state->handle = handle;
    return RG_OK;
}

void *rg_state_value_handle(const rg_state_value *state)
{
    return state != NULL ? state->handle : NULL;
}

rg_state_value *rg_node_source_state(const rg_node *node)
{
    if (node == NULL || !node->gradient)
        return NULL;
    return node->given != NULL ? node->given : rg_node_state(node->forward);
}

int32_t rg_graph_source_states(const rg_graph *graph)
{
    return graph != NULL ? (int32_t)graph->given_count : 0;
}

rg_state_value *rg_graph_source_state_at(const rg_graph *graph, int32_t index)
{
    return index >= 0 && index < rg_graph_source_states(graph) ? graph->given[index] : NULL;
}

rg_state_value *rg_graph_find_source_state(const rg_graph *graph, const char *name)
{
    return graph != NULL && name != NULL ? rg_names_find(&graph->given_by_name, name) : NULL;
}
