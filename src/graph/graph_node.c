/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Nodes: an op, or its gradient, applied to values of a graph. */
#include "graph/graph.h"

#include "core/private_api.h"

#include "core/memory.h"
#include "ops/ops.h"

#include <stdio.h>
#include <stdlib.h>

static const rg_allocator *const allocator = &rg_default_allocator;

/* ---- making them ---- */

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
    return rg_copy_text(text, &node->label);
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
        rg_node_destroy(made);
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

rg_status rg_graph_find_op(const char *name, const rg_op **op)
{
    const rg_op_name *other;
    RG_CHECK(name != NULL, RG_INVALID_ARGUMENT, "a node needs the name of an op");
    RG_TRY(rg_op_find(name, op, &other));
    RG_CHECK(other == NULL, RG_INVALID_ARGUMENT,
             "'%s' is another name of the op %s; a node needs the op's own name", name,
             (*op)->name);
    return RG_OK;
}

rg_status rg_graph_check_desc(const rg_op *op, const void *desc, void *checked)
{
    RG_CHECK(desc != NULL, RG_INVALID_ARGUMENT, "%s: the descriptor is NULL", op->name);
    RG_TRY(rg_fields_copy(&op->desc, op->name, desc, checked));
    return op->check != NULL ? op->check(checked) : RG_OK;
}

/* Refuses an array of `given` values where the descriptor asks for `count`: "conv_3 takes 3 values
 * (x, w, b), and 2 were given". More are refused where `exact`. */
static rg_status check_count(const rg_node *node, const char *of, const char *prefix,
                             const char *const names[], int32_t count, size_t given, bool exact)
{
    char list[160];
    int used = 0;
    list[0] = 0;
    for (int32_t i = 0; i < count && used < (int)sizeof list; i++)
        used += snprintf(list + used, sizeof list - (size_t)used, "%s%s%s", i > 0 ? ", " : "",
                         prefix, names[i]);
    RG_CHECK(exact ? given == (size_t)count : given >= (size_t)count, RG_INVALID_ARGUMENT,
             "%s needs %d value%s%s (%s), but %zu %s given", node->label, count,
             count == 1 ? "" : "s", of, list, given, given == 1 ? "was" : "were");
    return RG_OK;
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
                 "%s: %s%s belongs to another graph", node->label, prefix, names[i]);
        to[i] = value;
    }
    return RG_OK;
}

/* Of `count` values; `exact`: there may be no more than the descriptor asks for. */
static rg_status add_forward(rg_graph *graph, const char *name, const void *desc,
                             rg_value *const x[], size_t count, bool exact, rg_node **node)
{
    const rg_op *op;
    rg_node *made;
    RG_TRY(rg_graph_find_op(name, &op));
    RG_CHECK(desc != NULL && x != NULL, RG_INVALID_ARGUMENT, "%s: %s is NULL", name,
             desc == NULL ? "the descriptor" : "x");
    RG_TRY(rg_graph_add_node(graph, op, desc, "_", &made));
    made->inputs = rg_op_inputs(op, made->desc);
    made->outputs = rg_op_outputs(op, made->desc);
    const char *const *names = rg_op_input_names(op, made->desc);
    RG_TRY(check_count(made, "", "", names, made->inputs, count, exact));
    RG_TRY(take_values(made, "", names, x, made->inputs, 0, made->in));
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
    const rg_status status =
        count >= 0
            ? add_forward(graph, op, desc, x, (size_t)count, true, &node)
            : rg_fail(RG_INVALID_ARGUMENT, "rg_graph_node: invalid number of inputs: %d", count);
    return rg_graph_mistake(graph, status) == RG_OK ? node : NULL;
}

RG_PRIVATE_API rg_node *rg_graph_apply(rg_graph *graph, const char *op, const void *desc,
                                       rg_value *const x[], size_t count)
{
    rg_node *node = NULL;
    if (graph == NULL || graph->status != RG_OK)
        return NULL;
    const rg_status status = add_forward(graph, op, desc, x, count, false, &node);
    return rg_graph_mistake(graph, status) == RG_OK ? node : NULL;
}

/* Whether a gradient of this descriptor reads what the node leaves: it is the same, or another
 * phase of it, whatever the shapes. */
static bool fits_node(const rg_op *op, const void *made, const void *desc)
{
    static const int64_t one = 1;
    rg_tensor_desc any[RG_MAX_INPUTS];
    for (int32_t i = 0; i < RG_MAX_INPUTS; i++)
        any[i] = rg_tensor_desc_dense(RG_F32, 1, &one);
    return rg_fields_equal(&op->desc, made, desc) ||
           (op->fits != NULL && op->fits(made, any, desc, any));
}

static rg_status check_gradient(const rg_graph *graph, const rg_gradient_parts *parts)
{
    const rg_node *of = parts->of;
    const char *name = of != NULL ? of->label : parts->op->name;
    RG_CHECK(of == NULL || of->graph == graph, RG_INVALID_ARGUMENT, "%s belongs to another graph",
             name);
    RG_CHECK(of == NULL || !of->gradient, RG_UNSUPPORTED, "%s: a gradient node has no gradient",
             name);
    RG_CHECK(of == NULL || of->op == parts->op, RG_INVALID_ARGUMENT,
             "%s: a gradient of %s cannot use the state of %s", name, parts->op->name,
             of->op->name);
    RG_CHECK(parts->op->gradient != NULL, RG_UNSUPPORTED, "%s: %s has no gradient", name,
             parts->op->name);
    if (of == NULL || of->desc == parts->desc || fits_node(parts->op, of->desc, parts->desc))
        return RG_OK;
    char have[256], want[256];
    rg_fields_text(&parts->op->desc, parts->desc, have, sizeof have);
    rg_fields_text(&parts->op->desc, of->desc, want, sizeof want);
    return rg_fail(RG_INVALID_ARGUMENT,
                   "%s: its gradient has another descriptor (%s) than the node itself (%s)", name,
                   have, want);
}

/* The inputs of the forward pass that a gradient may be without: those that it does not read,
 * where a state that runs are given defines their shapes. */
static uint32_t optional_inputs(const rg_gradient_parts *parts)
{
    if (parts->given == NULL)
        return 0;
    const uint32_t reads = rg_op_reads(parts->op, parts->desc, true);
    return ~(reads / RG_READS_X) & ((1u << RG_MAX_INPUTS) - 1);
}

rg_status rg_graph_add_gradient(rg_graph *graph, const rg_gradient_parts *parts, rg_node **node)
{
    const rg_op *op = parts->op;
    rg_node *made;
    RG_TRY(check_gradient(graph, parts));
    RG_TRY(rg_graph_add_node(graph, op, parts->desc, "_gradient_", &made));
    const char *const *inputs = rg_op_input_names(op, made->desc);
    const char *const *outputs = rg_op_output_names(op, made->desc);
    made->gradient = true;
    made->forward = parts->of;
    made->given = parts->given;
    made->inputs = rg_op_gradients(op, made->desc);
    made->outputs = rg_op_inputs(op, made->desc);
    RG_CHECK(parts->wanted != 0 && parts->wanted >> made->outputs == 0, RG_INVALID_ARGUMENT,
             "%s: gradients must be requested for at least one of its %d inputs and for no others",
             made->label, made->outputs);
    const int32_t results = rg_op_outputs(op, made->desc);
    RG_TRY(check_count(made, " of dy", "d", outputs, made->inputs, parts->dy_count, false));
    if (parts->given == NULL || parts->x != NULL)
        RG_TRY(check_count(made, " of x", "", inputs, made->outputs, parts->x_count, false));
    if (parts->y != NULL)
        RG_TRY(check_count(made, " of y", "", outputs, results, parts->y_count, false));
    RG_TRY(take_values(made, "d", outputs, parts->dy, made->inputs, op->optional_dy, made->in));
    RG_TRY(take_values(made, "", inputs, parts->x, made->outputs, optional_inputs(parts), made->x));
    RG_TRY(take_values(made, "", outputs, parts->y, results, ~0u, made->y));
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

uint64_t rg_op_all_gradients(const rg_op *op, const void *desc)
{
    uint64_t all = 0;
    for (int32_t i = 0; i < rg_op_inputs(op, desc); i++)
        all |= (uint64_t)rg_op_differentiates(op, desc, i) << i;
    return all;
}

rg_node *rg_graph_gradient(rg_graph *graph, rg_node *of, rg_value *const dy[], uint64_t wanted)
{
    rg_node *node = NULL;
    if (graph == NULL || graph->status != RG_OK || of == NULL)
        return NULL;
    const rg_gradient_parts parts = { of->op,  of->desc, of,       NULL,     dy,    of->in,
                                      of->out, SIZE_MAX, SIZE_MAX, SIZE_MAX, wanted };
    const rg_status status = rg_graph_add_gradient(graph, &parts, &node);
    return rg_graph_mistake(graph, status) == RG_OK ? node : NULL;
}

rg_node *rg_graph_gradient_node(rg_graph *graph, const char *op, const void *desc,
                                rg_value *const dy[], rg_value *const x[], rg_value *const y[],
                                rg_node *state_of, uint64_t wanted)
{
    return rg_graph_gradient_node_counted(graph, op, desc, dy, SIZE_MAX, x, SIZE_MAX, y, SIZE_MAX,
                                          state_of, wanted);
}

rg_node *rg_graph_gradient_node_counted(rg_graph *graph, const char *name, const void *desc,
                                        rg_value *const dy[], size_t dy_count, rg_value *const x[],
                                        size_t x_count, rg_value *const y[], size_t y_count,
                                        rg_node *state_of, uint64_t wanted)
{
    rg_node *node = NULL;
    rg_gradient_parts parts = { NULL, desc,     state_of, NULL,    dy,    x,
                                y,    dy_count, x_count,  y_count, wanted };
    if (graph == NULL || graph->status != RG_OK)
        return NULL;
    _Alignas(16) char checked[RG_MAX_DESC];
    rg_status status = rg_graph_find_op(name, &parts.op);
    if (status == RG_OK)
        status = rg_graph_check_desc(parts.op, desc, checked);
    if (status == RG_OK && wanted == 0)
        parts.wanted = rg_op_all_gradients(parts.op, checked);
    parts.desc = checked;
    if (status == RG_OK)
        status = rg_graph_add_gradient(graph, &parts, &node);
    return rg_graph_mistake(graph, status) == RG_OK ? node : NULL;
}

/* ---- asking them ---- */

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
             "rg_node_set_label: another node of the graph has the label '%s'", label);
    if (other == node)
        return RG_OK;
    char *copy;
    RG_TRY(rg_copy_text(label, &copy));
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

rg_status rg_node_set_padding_rule(rg_node *node, rg_padding_rule *rule, void *context)
{
    RG_CHECK_NOT_NULL(node);
    RG_CHECK(node->op->windows != NULL, RG_UNSUPPORTED,
             "%s: %s has no windows that a padding rule places", node->label, node->op->name);
    RG_CHECK(node->given == NULL, RG_UNSUPPORTED,
             "%s: the state that runs are given places its windows", node->label);
    node->rule = rule;
    node->rule_context = rule != NULL ? context : NULL;
    return RG_OK;
}

const char *rg_node_label(const rg_node *node)
{
    return node != NULL ? node->label : "";
}

size_t rg_node_describe(const rg_node *node, char *text, size_t capacity)
{
    capacity = text != NULL ? capacity : 0;
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
    return rg_op_reads(node->op, node->desc, node->forward != NULL || node->given != NULL);
}

RG_PRIVATE_API void rg_node_each_read(const rg_node *node, rg_value_visit *visit, void *context)
{
    const uint32_t reads = node->gradient ? rg_node_reads(node) : 0;
    for (int32_t i = 0; i < node->inputs; i++) {
        if (node->in[i] != NULL)
            visit(context, node->in[i]);
    }
    for (int32_t i = 0; i < RG_MAX_INPUTS; i++) {
        const bool for_shape = node->forward == NULL && node->given == NULL; /* see the state */
        if ((for_shape || reads & (uint32_t)RG_READS_X << i) && node->x[i] != NULL)
            visit(context, node->x[i]);
    }
    for (int32_t i = 0; i < RG_MAX_OUTPUTS; i++) {
        if (reads & (uint32_t)RG_READS_Y << i && node->y[i] != NULL)
            visit(context, node->y[i]);
    }
}
