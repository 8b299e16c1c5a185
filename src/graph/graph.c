/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Graphs: building them, asking them. */
#include "graph/graph.h"

#include "core/memory.h"
#include "core/shape.h"
#include "ops/ops.h"

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

static void destroy_node(rg_node *node)
{
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
        destroy_node(graph->nodes[i]);
    for (size_t i = 0; i < graph->results_count; i++)
        free(graph->results[i].name);
    for (size_t i = 0; i < graph->states_count; i++)
        free(graph->states[i].name);
    rg_names_clear(&graph->values_by_name);
    rg_names_clear(&graph->nodes_by_label);
    rg_names_clear(&graph->results_by_name);
    rg_names_clear(&graph->states_by_name);
    rg_release(allocator, graph->values, graph->values_capacity * sizeof *graph->values);
    rg_release(allocator, graph->nodes, graph->nodes_capacity * sizeof *graph->nodes);
    rg_release(allocator, graph->results, graph->results_capacity * sizeof *graph->results);
    rg_release(allocator, graph->states, graph->states_capacity * sizeof *graph->states);
    rg_release(allocator, graph->assignments,
               graph->assignments_capacity * sizeof *graph->assignments);
    rg_release(allocator, graph, sizeof *graph);
}

static rg_status copy_text(const char *text, char **copy)
{
    *copy = strdup(text);
    RG_CHECK(*copy != NULL, RG_OUT_OF_MEMORY, "out of memory for the name '%.40s'", text);
    return RG_OK;
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
        size_t reach;
        RG_TRY(rg_shape_check(desc, name, &reach));
        made.desc = rg_tensor_desc_dense(desc->dtype, desc->rank, desc->dims);
    }
    RG_TRY(copy_text(name, &made.name));
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
            : rg_fail(RG_INVALID_ARGUMENT, "rg_graph_constant: a value of another graph");
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
    RG_CHECK(value->graph == graph, RG_INVALID_ARGUMENT, "a result is a value of another graph");
    RG_CHECK(name != NULL && name[0] != 0, RG_INVALID_ARGUMENT, "a result needs a name");
    RG_CHECK(rg_names_find(&graph->results_by_name, name) == NULL, RG_INVALID_ARGUMENT,
             "the graph has two results with the name '%s'", name);
    RG_TRY(rg_grow(allocator, (void **)&graph->results, &graph->results_capacity,
                   graph->results_count, sizeof graph->results[0]));
    rg_result made = { .value = value };
    RG_TRY(copy_text(name, &made.name));
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
             "rg_graph_assign: a value of another graph");
    RG_CHECK(parameter->kind == RG_VALUE_PARAMETER, RG_INVALID_ARGUMENT,
             "rg_graph_assign: only parameters keep what is assigned");
    RG_CHECK(value->kind == RG_VALUE_OUTPUT && !value->node->gradient, RG_INVALID_ARGUMENT,
             "rg_graph_assign: '%s' is assigned what no forward node makes", parameter->name);
    RG_CHECK(parameter->assigned == NULL, RG_INVALID_ARGUMENT,
             "the parameter '%s' is assigned twice", parameter->name);
    RG_CHECK(value->takes == NULL, RG_INVALID_ARGUMENT,
             "rg_graph_assign: one value of %s is assigned to '%s' and to '%s'", value->node->label,
             value->takes->name, parameter->name);
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
    RG_CHECK(node != NULL, RG_INVALID_ARGUMENT, "the state '%s' is that of no node",
             name != NULL ? name : "");
    RG_CHECK(node->graph == graph, RG_INVALID_ARGUMENT, "%s is a node of another graph",
             node->label);
    RG_CHECK(!node->gradient, RG_INVALID_ARGUMENT, "%s is a gradient, which leaves no state",
             node->label);
    RG_CHECK(name != NULL && name[0] != 0, RG_INVALID_ARGUMENT, "the state of %s needs a name",
             node->label);
    RG_CHECK(rg_names_find(&graph->states_by_name, name) == NULL, RG_INVALID_ARGUMENT,
             "the graph has two states with the name '%s'", name);
    RG_TRY(rg_grow(allocator, (void **)&graph->states, &graph->states_capacity, graph->states_count,
                   sizeof graph->states[0]));
    rg_state_result made = { .node = node };
    RG_TRY(copy_text(name, &made.name));
    graph->states[graph->states_count++] = made;
    return rg_names_add(&graph->states_by_name, made.name, node);
}

rg_status rg_graph_state_result(rg_graph *graph, rg_node *node, const char *name)
{
    RG_CHECK_NOT_NULL(graph);
    RG_TRY(rg_graph_status(graph));
    return rg_graph_mistake(graph, add_state_result(graph, node, name));
}

/* ---- nodes ---- */

/* "conv_7", or, where somebody has taken that, "conv_7'". */
static rg_status make_label(rg_node *node, const char *suffix)
{
    char text[96];
    int length = snprintf(text, sizeof text, "%s%s%d", node->op->name, suffix, node->id);
    while (rg_names_find(&node->graph->nodes_by_label, text) != NULL &&
           length < (int)sizeof text - 1) {
        text[length++] = '\'';
        text[length] = 0;
    }
    return copy_text(text, &node->label);
}

rg_status rg_graph_add_node(rg_graph *graph, const rg_op *op, const void *desc, const char *suffix,
                            rg_node **node)
{
    void *memory;
    RG_CHECK(graph->nodes_count < INT32_MAX, RG_OUT_OF_MEMORY,
             "out of memory: a graph has at most 2147483647 nodes");
    RG_TRY(rg_grow(allocator, (void **)&graph->nodes, &graph->nodes_capacity, graph->nodes_count,
                   sizeof graph->nodes[0]));
    RG_TRY(rg_allocate_zero(allocator, sizeof(rg_node), &memory));
    rg_node *made = memory;
    *made = (rg_node){ .graph = graph, .id = (int32_t)graph->nodes_count, .op = op };
    rg_status status = rg_allocate(allocator, op->desc.size, &made->desc);
    if (status == RG_OK)
        status = rg_fields_copy(&op->desc, op->name, desc, made->desc);
    if (status == RG_OK && op->check != NULL)
        status = op->check(made->desc);
    if (status == RG_OK)
        status = make_label(made, suffix);
    if (status == RG_OK)
        status = rg_names_add(&graph->nodes_by_label, made->label, made);
    if (status != RG_OK) {
        destroy_node(made);
        return status;
    }
    graph->nodes[graph->nodes_count++] = made;
    *node = made;
    return RG_OK;
}

static rg_status add_output(rg_node *node, int32_t index)
{
    const rg_value made = { .kind = RG_VALUE_OUTPUT, .node = node, .index = index };
    return rg_graph_add_value(node->graph, &made, &node->out[index]);
}

static rg_status find_op(const char *name, const rg_op **op)
{
    const rg_op_name *other;
    RG_CHECK(name != NULL, RG_INVALID_ARGUMENT, "a node needs the name of an op");
    RG_TRY(rg_op_find(name, op, &other));
    RG_CHECK(other == NULL, RG_INVALID_ARGUMENT, "'%s' is the op %s; a node has an op's own name",
             name, (*op)->name);
    return RG_OK;
}

rg_status rg_graph_check_desc(const rg_op *op, const void *desc, void *checked)
{
    RG_CHECK(desc != NULL, RG_INVALID_ARGUMENT, "%s: the descriptor is NULL", op->name);
    RG_TRY(rg_fields_copy(&op->desc, op->name, desc, checked));
    return op->check != NULL ? op->check(checked) : RG_OK;
}

/* Copies `count` values of this graph; those whose bit is set in `optional` may be NULL. */
static rg_status take_values(const rg_node *node, const char *prefix, const char *const names[],
                             rg_value *const from[], int32_t count, uint32_t optional,
                             rg_value *to[])
{
    for (int32_t i = 0; i < count; i++) {
        rg_value *value = from != NULL ? from[i] : NULL;
        RG_CHECK(value != NULL || optional >> i & 1, RG_INVALID_ARGUMENT, "%s: %s%s is NULL",
                 node->label, prefix, names[i]);
        RG_CHECK(value == NULL || value->graph == node->graph, RG_INVALID_ARGUMENT,
                 "%s: %s%s is a value of another graph", node->label, prefix, names[i]);
        to[i] = value;
    }
    return RG_OK;
}

static rg_status add_forward(rg_graph *graph, const char *name, const void *desc,
                             rg_value *const x[], int32_t count, rg_node **node)
{
    const rg_op *op;
    rg_node *made;
    RG_TRY(find_op(name, &op));
    RG_CHECK(desc != NULL && x != NULL, RG_INVALID_ARGUMENT, "%s: %s is NULL", name,
             desc == NULL ? "the descriptor" : "x");
    RG_TRY(rg_graph_add_node(graph, op, desc, "_", &made));
    made->inputs = rg_op_inputs(op, made->desc);
    made->outputs = rg_op_outputs(op, made->desc);
    RG_CHECK(count < 0 || count == made->inputs, RG_INVALID_ARGUMENT, "%s: %d inputs, not %d",
             made->label, made->inputs, count);
    RG_TRY(take_values(made, "", rg_op_input_names(op, made->desc), x, made->inputs, 0, made->in));
    for (int32_t i = 0; i < made->outputs; i++)
        RG_TRY(add_output(made, i));
    *node = made;
    return RG_OK;
}

rg_node *rg_graph_node(rg_graph *graph, const char *op, const void *desc, rg_value *const x[],
                       int32_t count)
{
    rg_node *node = NULL;
    if (graph == NULL || graph->status != RG_OK)
        return NULL;
    const rg_status status = count >= 0
                                 ? add_forward(graph, op, desc, x, count, &node)
                                 : rg_fail(RG_INVALID_ARGUMENT, "rg_graph_node: %d inputs", count);
    return rg_graph_mistake(graph, status) == RG_OK ? node : NULL;
}

rg_node *rg_graph_apply(rg_graph *graph, const char *op, const void *desc, rg_value *const x[])
{
    rg_node *node = NULL;
    if (graph == NULL || graph->status != RG_OK)
        return NULL;
    const rg_status status = add_forward(graph, op, desc, x, -1, &node);
    return rg_graph_mistake(graph, status) == RG_OK ? node : NULL;
}

/* What a gradient node is made of; `of` and entries of y may be NULL. */
typedef struct gradient_parts {
    const rg_op *op;
    const void *desc;
    rg_node *of;
    rg_value *const *dy, *const *x, *const *y;
    uint64_t wanted;
} gradient_parts;

static rg_status check_gradient(const rg_graph *graph, const gradient_parts *parts)
{
    const rg_node *of = parts->of;
    const char *name = of != NULL ? of->label : parts->op->name;
    RG_CHECK(of == NULL || of->graph == graph, RG_INVALID_ARGUMENT, "%s is a node of another graph",
             name);
    RG_CHECK(of == NULL || !of->gradient, RG_UNSUPPORTED, "%s: a gradient has no gradient", name);
    RG_CHECK(of == NULL || of->op == parts->op, RG_INVALID_ARGUMENT,
             "%s: a gradient of %s cannot read the state of %s", name, parts->op->name,
             of->op->name);
    RG_CHECK(parts->op->gradient != NULL, RG_UNSUPPORTED, "%s: %s has no gradient", name,
             parts->op->name);
    return RG_OK;
}

static rg_status add_gradient(rg_graph *graph, const gradient_parts *parts, rg_node **node)
{
    const rg_op *op = parts->op;
    rg_node *made;
    RG_TRY(check_gradient(graph, parts));
    RG_TRY(rg_graph_add_node(graph, op, parts->desc, "_gradient_", &made));
    const char *const *inputs = rg_op_input_names(op, made->desc);
    const char *const *outputs = rg_op_output_names(op, made->desc);
    made->gradient = true;
    made->forward = parts->of;
    made->inputs = rg_op_gradients(op, made->desc);
    made->outputs = rg_op_inputs(op, made->desc);
    RG_CHECK(parts->wanted != 0 && parts->wanted >> made->outputs == 0, RG_INVALID_ARGUMENT,
             "%s: gradients are wanted of none of its %d inputs, or of more", made->label,
             made->outputs);
    RG_TRY(take_values(made, "d", outputs, parts->dy, made->inputs, op->optional_dy, made->in));
    RG_TRY(take_values(made, "", inputs, parts->x, made->outputs, 0, made->x));
    RG_TRY(take_values(made, "", outputs, parts->y, rg_op_outputs(op, made->desc), ~0u, made->y));
    for (int32_t i = 0; i < made->outputs; i++) {
        if (!(parts->wanted >> i & 1))
            continue;
        RG_CHECK(rg_op_differentiates(op, made->desc, i), RG_UNSUPPORTED, "%s: %s has no gradient",
                 made->label, inputs[i]);
        RG_TRY(add_output(made, i));
    }
    *node = made;
    return RG_OK;
}

rg_node *rg_graph_gradient(rg_graph *graph, rg_node *of, rg_value *const dy[], uint64_t wanted)
{
    rg_node *node = NULL;
    if (graph == NULL || graph->status != RG_OK || of == NULL)
        return NULL;
    const gradient_parts parts = { of->op, of->desc, of, dy, of->in, of->out, wanted };
    const rg_status status = add_gradient(graph, &parts, &node);
    return rg_graph_mistake(graph, status) == RG_OK ? node : NULL;
}

rg_node *rg_graph_gradient_node(rg_graph *graph, const char *name, const void *desc,
                                rg_value *const dy[], rg_value *const x[], rg_value *const y[],
                                rg_node *state_of, uint64_t wanted)
{
    rg_node *node = NULL;
    gradient_parts parts = { NULL, desc, state_of, dy, x, y, wanted };
    if (graph == NULL || graph->status != RG_OK)
        return NULL;
    _Alignas(16) char checked[RG_MAX_DESC];
    rg_status status = find_op(name, &parts.op);
    if (status == RG_OK)
        status = rg_graph_check_desc(parts.op, desc, checked);
    for (int32_t i = 0; status == RG_OK && wanted == 0 && i < rg_op_inputs(parts.op, checked); i++)
        parts.wanted |= (uint64_t)rg_op_differentiates(parts.op, checked, i) << i;
    parts.desc = checked;
    if (status == RG_OK)
        status = add_gradient(graph, &parts, &node);
    return rg_graph_mistake(graph, status) == RG_OK ? node : NULL;
}

rg_value *rg_node_output(const rg_node *node, int32_t index)
{
    return node != NULL && index >= 0 && index < node->outputs ? node->out[index] : NULL;
}

rg_value *rg_node_input(const rg_node *node, int32_t index)
{
    return node != NULL && index >= 0 && index < node->inputs ? node->in[index] : NULL;
}

const char *rg_node_op(const rg_node *node)
{
    return node != NULL ? node->op->name : "";
}

bool rg_node_is_gradient(const rg_node *node)
{
    return node != NULL && node->gradient;
}

rg_node *rg_node_forward(const rg_node *node)
{
    return node != NULL ? node->forward : NULL;
}

rg_status rg_node_desc(const rg_node *node, void *desc)
{
    RG_CHECK_NOT_NULL(node);
    RG_CHECK_NOT_NULL(desc);
    memcpy(desc, node->desc, node->op->desc.size);
    return RG_OK;
}

rg_status rg_node_set_label(rg_node *node, const char *label)
{
    RG_CHECK_NOT_NULL(node);
    RG_CHECK_NOT_NULL(label);
    const rg_node *other = rg_names_find(&node->graph->nodes_by_label, label);
    RG_CHECK(label[0] != 0, RG_INVALID_ARGUMENT, "rg_node_set_label: the label of %s is empty",
             node->label);
    RG_CHECK(other == NULL || other == node, RG_INVALID_ARGUMENT,
             "rg_node_set_label: the graph has another node with the label '%s'", label);
    if (other == node)
        return RG_OK;
    char *copy;
    RG_TRY(copy_text(label, &copy));
    const rg_status status = rg_names_add(&node->graph->nodes_by_label, copy, node);
    if (status != RG_OK) {
        free(copy);
        return status;
    }
    rg_names_remove(&node->graph->nodes_by_label, node->label);
    free(node->label);
    node->label = copy;
    return RG_OK;
}

const char *rg_node_label(const rg_node *node)
{
    return node != NULL ? node->label : "";
}

size_t rg_node_describe(const rg_node *node, char *text, size_t capacity)
{
    if (node == NULL)
        return (size_t)snprintf(text, capacity, "no node");
    const int begin = snprintf(text, capacity, "%s: %s%s ", node->label,
                               node->gradient ? "gradient of " : "", node->op->name);
    const size_t at = (size_t)begin < capacity ? (size_t)begin : capacity;
    return (size_t)begin + rg_fields_text(&node->op->desc, node->desc,
                                          text != NULL ? text + at : NULL, capacity - at);
}

/* ---- what a node reads ---- */

uint32_t rg_node_reads(const rg_node *node)
{
    const uint32_t reads = node->op->reads(node->desc);
    return reads & RG_READS_OR_STATE && node->forward != NULL ? RG_READS_STATE : reads;
}

void rg_node_each_read(const rg_node *node, rg_value_visit *visit, void *context)
{
    const uint32_t reads = node->gradient ? rg_node_reads(node) : 0;
    for (int32_t i = 0; i < node->inputs; i++) {
        if (node->in[i] != NULL)
            visit(context, node->in[i]);
    }
    for (int32_t i = 0; i < RG_MAX_INPUTS; i++) {
        const bool for_shape = node->forward == NULL; /* which a state would tell */
        if ((for_shape || reads & (uint32_t)RG_READS_X << i) && node->x[i] != NULL)
            visit(context, node->x[i]);
    }
    for (int32_t i = 0; i < RG_MAX_OUTPUTS; i++) {
        if (reads & (uint32_t)RG_READS_Y << i && node->y[i] != NULL)
            visit(context, node->y[i]);
    }
}
