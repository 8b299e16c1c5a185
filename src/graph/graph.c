/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Graphs: their values, results and assignments. */
#include "graph/graph.h"

#include "core/memory.h"
#include "core/shape.h"

#include <stdio.h>
#include <stdlib.h>

static const rg_allocator *const allocator = &rg_default_allocator;

/* ---- mistakes ---- */

rg_status rg_graph_mistake(rg_graph *graph, rg_status status)
{
    if (graph != NULL && graph->status == RG_OK) {
        graph->status = status;
        snprintf(graph->text, sizeof graph->text, "%s", rg_error_text());
    }
    return status;
}

rg_status rg_graph_status(const rg_graph *graph)
{
    RG_CHECK_NOT_NULL(graph);
    return graph->status != RG_OK ? rg_fail(graph->status, "%s", graph->text) : RG_OK;
}

/* ---- graphs ---- */

rg_status rg_graph_create(rg_graph **graph)
{
    RG_CHECK_NOT_NULL(graph);
    *graph = NULL;
    void *memory;
    RG_TRY(rg_allocate_zero(allocator, sizeof(rg_graph), &memory));
    *graph = memory;
    return RG_OK;
}

static void destroy_value(rg_value *value)
{
    free(value->name);
    rg_release(allocator, value, sizeof *value);
}

void rg_node_destroy(rg_node *node)
{
    rg_state_value_destroy(node->state_value);
    free(node->label);
    rg_release(allocator, node->desc, node->op->desc.size);
    rg_release(allocator, node, sizeof *node);
}

void rg_graph_destroy(rg_graph *graph)
{
    if (graph == NULL)
        return;
    for (size_t i = 0; i < graph->values_count; i++)
        destroy_value(graph->values[i]);
    for (size_t i = 0; i < graph->nodes_count; i++)
        rg_node_destroy(graph->nodes[i]);
    for (size_t i = 0; i < graph->results_count; i++)
        free(graph->results[i].name);
    for (size_t i = 0; i < graph->states_count; i++)
        free(graph->states[i].name);
    for (size_t i = 0; i < graph->given_count; i++)
        rg_state_value_destroy(graph->given[i]);
    rg_names_clear(&graph->given_by_name);
    rg_names_clear(&graph->values_by_name);
    rg_names_clear(&graph->nodes_by_label);
    rg_names_clear(&graph->results_by_name);
    rg_names_clear(&graph->states_by_name);
    rg_release(allocator, graph->values, graph->values_capacity * sizeof *graph->values);
    rg_release(allocator, graph->nodes, graph->nodes_capacity * sizeof *graph->nodes);
    rg_release(allocator, graph->results, graph->results_capacity * sizeof *graph->results);
    rg_release(allocator, graph->states, graph->states_capacity * sizeof *graph->states);
    rg_release(allocator, graph->given, graph->given_capacity * sizeof *graph->given);
    rg_release(allocator, graph->assignments,
               graph->assignments_capacity * sizeof *graph->assignments);
    rg_release(allocator, graph, sizeof *graph);
}

/* ---- values ---- */

rg_status rg_graph_add_value(rg_graph *graph, const rg_value *like, rg_value **value)
{
    void *memory;
    RG_CHECK(graph->values_count < INT32_MAX, RG_OUT_OF_MEMORY,
             "out of memory: a graph has at most 2147483647 values");
    RG_TRY(rg_grow(allocator, (void **)&graph->values, &graph->values_capacity, graph->values_count,
                   sizeof graph->values[0]));
    RG_TRY(rg_allocate_zero(allocator, sizeof(rg_value), &memory));
    *value = memory;
    **value = *like;
    (*value)->graph = graph;
    (*value)->id = (int32_t)graph->values_count;
    graph->values[graph->values_count++] = *value;
    return RG_OK;
}

static rg_status add_named(rg_graph *graph, rg_value_kind kind, const char *name,
                           const rg_tensor_desc *desc, rg_value **value)
{
    RG_CHECK(name != NULL && name[0] != 0, RG_INVALID_ARGUMENT, "a %s needs a name",
             kind == RG_VALUE_SOURCE ? "source" : "parameter");
    RG_CHECK(rg_names_find(&graph->values_by_name, name) == NULL, RG_INVALID_ARGUMENT,
             "the graph has two values with the name '%s'", name);
    rg_value made = { .kind = kind };
    if (desc != NULL) {
        RG_TRY(rg_shape_check(desc, name, NULL));
        made.desc = rg_tensor_desc_dense(desc->dtype, desc->rank, desc->dims);
    }
    RG_TRY(rg_copy_text(name, &made.name));
    const rg_status status = rg_graph_add_value(graph, &made, value);
    if (status != RG_OK) {
        free(made.name);
        return status;
    }
    return rg_names_add(&graph->values_by_name, made.name, *value);
}

rg_value *rg_graph_source(rg_graph *graph, const char *name)
{
    rg_value *value = NULL;
    if (graph == NULL)
        return NULL;
    const rg_status status = add_named(graph, RG_VALUE_SOURCE, name, NULL, &value);
    return rg_graph_mistake(graph, status) == RG_OK ? value : NULL;
}

rg_value *rg_graph_parameter(rg_graph *graph, const char *name, const rg_tensor_desc *desc)
{
    rg_value *value = NULL;
    if (graph == NULL)
        return NULL;
    const rg_status status = desc != NULL
                                 ? add_named(graph, RG_VALUE_PARAMETER, name, desc, &value)
                                 : rg_fail(RG_INVALID_ARGUMENT, "rg_graph_parameter: desc is NULL");
    return rg_graph_mistake(graph, status) == RG_OK ? value : NULL;
}

rg_value *rg_graph_constant(rg_graph *graph, rg_value *like, double number)
{
    rg_value *value = NULL;
    if (graph == NULL || like == NULL)
        return NULL;
    rg_value *root = like->kind == RG_VALUE_CONSTANT ? like->like : like;
    const rg_value made = { .kind = RG_VALUE_CONSTANT, .like = root, .number = number };
    const rg_status status =
        like->graph == graph
            ? rg_graph_add_value(graph, &made, &value)
            : rg_fail(RG_INVALID_ARGUMENT, "rg_graph_constant: the value belongs to another graph");
    return rg_graph_mistake(graph, status) == RG_OK ? value : NULL;
}

rg_status rg_value_stop_gradient(rg_value *value)
{
    RG_CHECK_NOT_NULL(value);
    value->stops = true;
    return RG_OK;
}

rg_value *rg_value_gradient(const rg_value *value)
{
    return value != NULL ? value->gradient : NULL;
}

rg_node *rg_value_node(const rg_value *value)
{
    return value != NULL ? value->node : NULL;
}

const char *rg_value_name(const rg_value *value)
{
    return value != NULL && value->name != NULL ? value->name : "";
}

/* ---- results and assignments ---- */

static rg_status add_result(rg_graph *graph, rg_value *value, const char *name)
{
    RG_CHECK(value != NULL, RG_INVALID_ARGUMENT, "result '%s' is NULL", name != NULL ? name : "");
    RG_CHECK(value->graph == graph, RG_INVALID_ARGUMENT, "a result belongs to another graph");
    RG_CHECK(name != NULL && name[0] != 0, RG_INVALID_ARGUMENT, "a result needs a name");
    RG_CHECK(rg_names_find(&graph->results_by_name, name) == NULL, RG_INVALID_ARGUMENT,
             "the graph has two results with the name '%s'", name);
    RG_TRY(rg_grow(allocator, (void **)&graph->results, &graph->results_capacity,
                   graph->results_count, sizeof graph->results[0]));
    rg_result made = { .value = value };
    RG_TRY(rg_copy_text(name, &made.name));
    graph->results[graph->results_count++] = made;
    return rg_names_add(&graph->results_by_name, made.name, value);
}

rg_status rg_graph_result(rg_graph *graph, rg_value *value, const char *name)
{
    RG_CHECK_NOT_NULL(graph);
    RG_TRY(rg_graph_status(graph));
    return rg_graph_mistake(graph, add_result(graph, value, name));
}

static rg_status add_assignment(rg_graph *graph, rg_value *parameter, rg_value *value)
{
    RG_CHECK(parameter != NULL && value != NULL, RG_INVALID_ARGUMENT,
             "rg_graph_assign: a value is NULL");
    RG_CHECK(parameter->graph == graph && value->graph == graph, RG_INVALID_ARGUMENT,
             "rg_graph_assign: a value belongs to another graph");
    RG_CHECK(parameter->kind == RG_VALUE_PARAMETER, RG_INVALID_ARGUMENT,
             "rg_graph_assign: only a parameter can be assigned to");
    RG_CHECK(value->kind == RG_VALUE_OUTPUT && !value->node->gradient, RG_INVALID_ARGUMENT,
             "rg_graph_assign: '%s' must be assigned an output of a forward node", parameter->name);
    RG_CHECK(parameter->assigned == NULL, RG_INVALID_ARGUMENT,
             "the parameter '%s' is assigned twice", parameter->name);
    RG_CHECK(value->takes == NULL, RG_INVALID_ARGUMENT,
             "rg_graph_assign: one output of %s is assigned to both '%s' and '%s'",
             value->node->label, value->takes->name, parameter->name);
    RG_TRY(rg_grow(allocator, (void **)&graph->assignments, &graph->assignments_capacity,
                   graph->assignments_count, sizeof graph->assignments[0]));
    graph->assignments[graph->assignments_count++] = (rg_assignment){ parameter, value };
    parameter->assigned = value;
    value->takes = parameter;
    return RG_OK;
}

rg_status rg_graph_assign(rg_graph *graph, rg_value *parameter, rg_value *value)
{
    RG_CHECK_NOT_NULL(graph);
    RG_TRY(rg_graph_status(graph));
    return rg_graph_mistake(graph, add_assignment(graph, parameter, value));
}

static rg_status add_state_result(rg_graph *graph, rg_node *node, const char *name)
{
    RG_CHECK(node != NULL, RG_INVALID_ARGUMENT, "the node of the state '%s' is NULL",
             name != NULL ? name : "");
    RG_CHECK(node->graph == graph, RG_INVALID_ARGUMENT, "%s belongs to another graph", node->label);
    RG_CHECK(!node->gradient, RG_INVALID_ARGUMENT, "%s is a gradient, which has no state",
             node->label);
    RG_CHECK(name != NULL && name[0] != 0, RG_INVALID_ARGUMENT, "the state of %s needs a name",
             node->label);
    RG_CHECK(rg_names_find(&graph->states_by_name, name) == NULL, RG_INVALID_ARGUMENT,
             "the graph has two states with the name '%s'", name);
    RG_TRY(rg_grow(allocator, (void **)&graph->states, &graph->states_capacity, graph->states_count,
                   sizeof graph->states[0]));
    rg_state_result made = { .node = node };
    RG_TRY(rg_copy_text(name, &made.name));
    graph->states[graph->states_count++] = made;
    return rg_names_add(&graph->states_by_name, made.name, node);
}

rg_status rg_graph_state_result(rg_graph *graph, rg_node *node, const char *name)
{
    RG_CHECK_NOT_NULL(graph);
    RG_TRY(rg_graph_status(graph));
    return rg_graph_mistake(graph, add_state_result(graph, node, name));
}
