/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Graphs as JSON: writing them. */
#include "files/graph_json.h"

#include "core/number.h"
#include "core/shape.h"
#include "files/kernel_json.h"
#include "files/whole_file.h"
#include "graph/graph.h"

#include <retrograde/files.h>

#include <math.h>
#include <stdio.h>

static const rg_allocator *const allocator = &rg_default_allocator;

static void write_number(rg_text *to, double number)
{
    char text[64];
    rg_number_text(number, text, sizeof text);
    if (isfinite(number))
        rg_text_add(to, text);
    else
        rg_text_add_string(to, isnan(number) ? "nan" : text);
}

static void write_int(rg_text *to, int64_t number)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)number);
    rg_text_add(to, text);
}

/* "name", ["label", output], {"constant": 1, "like": …}, or null */
static void write_value(rg_text *to, const rg_value *value)
{
    if (value == NULL) {
        rg_text_add(to, "null");
    } else if (value->kind == RG_VALUE_OUTPUT) {
        rg_text_add(to, "[");
        rg_text_add_string(to, value->node->label);
        rg_text_add(to, ", ");
        write_int(to, value->index);
        rg_text_add(to, "]");
    } else if (value->kind == RG_VALUE_CONSTANT) {
        rg_text_add(to, "{\"constant\": ");
        write_number(to, value->number);
        rg_text_add(to, ", \"like\": ");
        write_value(to, value->like); /* not a constant */
        rg_text_add(to, "}");
    } else {
        rg_text_add_string(to, value->name);
    }
}

static void write_values(rg_text *to, const char *key, rg_value *const values[], int32_t count)
{
    rg_text_add(to, ", ");
    rg_text_add_string(to, key);
    rg_text_add(to, ": [");
    for (int32_t i = 0; i < count; i++) {
        rg_text_add(to, i > 0 ? ", " : "");
        write_value(to, values[i]);
    }
    rg_text_add(to, "]");
}

/* A list begins with its key, and each entry on a line of its own. */
static void begin_list(rg_text *to, const char *key)
{
    rg_text_add(to, ",\n \"");
    rg_text_add(to, key);
    rg_text_add(to, "\": [");
}

static void begin_entry(rg_text *to, bool *first)
{
    rg_text_add(to, *first ? "\n  " : ",\n  ");
    *first = false;
}

static void write_sources(rg_text *to, const rg_graph *graph)
{
    bool first = true;
    begin_list(to, "sources");
    for (size_t i = 0; i < graph->values_count; i++) {
        if (graph->values[i]->kind != RG_VALUE_SOURCE)
            continue;
        begin_entry(to, &first);
        rg_text_add_string(to, graph->values[i]->name);
    }
    rg_text_add(to, "]");
}

static void write_parameters(rg_text *to, const rg_graph *graph)
{
    bool first = true;
    begin_list(to, "parameters");
    for (size_t i = 0; i < graph->values_count; i++) {
        const rg_value *value = graph->values[i];
        if (value->kind != RG_VALUE_PARAMETER)
            continue;
        begin_entry(to, &first);
        rg_text_add(to, "{\"name\": ");
        rg_text_add_string(to, value->name);
        rg_text_add(to, ", \"dtype\": ");
        rg_text_add_string(to, rg_dtype_name(value->desc.dtype));
        rg_text_add(to, ", \"dims\": [");
        for (int32_t d = 0; d < value->desc.rank; d++) {
            rg_text_add(to, d > 0 ? ", " : "");
            write_int(to, value->desc.dims[d]);
        }
        rg_text_add(to, "]}");
    }
    rg_text_add(to, "]");
}

/* Left out where there are none. */
static void write_source_states(rg_text *to, const rg_graph *graph)
{
    bool first = true;
    if (graph->given_count == 0)
        return;
    begin_list(to, "source_states");
    for (size_t i = 0; i < graph->given_count; i++) {
        const rg_state_value *state = graph->given[i];
        begin_entry(to, &first);
        rg_text_add(to, "{\"name\": ");
        rg_text_add_string(to, state->name);
        rg_text_add(to, ", \"op\": ");
        rg_text_add_string(to, state->op->name);
        rg_text_add(to, ", \"desc\": ");
        rg_fields_to_json(&state->op->desc, state->desc, to);
        rg_text_add(to, "}");
    }
    rg_text_add(to, "]");
}

static bool same_pointers(rg_value *const a[], rg_value *const b[], int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        if (a[i] != b[i])
            return false;
    }
    return true;
}

/* What a gradient node has from its forward node is left out. */
static void write_gradient(rg_text *to, const rg_node *node)
{
    const rg_node *of = node->forward;
    const int32_t outputs = rg_op_outputs(node->op, node->desc);
    rg_text_add(to, ", \"gradient_of\": ");
    if (of != NULL)
        rg_text_add_string(to, of->label);
    else
        rg_text_add(to, "null");
    if (node->given != NULL) {
        rg_text_add(to, ", \"state\": ");
        rg_text_add_string(to, node->given->name);
    }
    write_values(to, "dy", node->in, node->inputs);
    if (of == NULL || !same_pointers(node->x, of->in, node->outputs))
        write_values(to, "x", node->x, node->outputs);
    if (of == NULL || !same_pointers(node->y, of->out, outputs))
        write_values(to, "y", node->y, outputs);
    rg_text_add(to, ", \"wanted\": [");
    bool first = true;
    for (int32_t i = 0; i < node->outputs; i++) {
        if (node->out[i] == NULL)
            continue;
        rg_text_add(to, first ? "" : ", ");
        write_int(to, i);
        first = false;
    }
    rg_text_add(to, "]");
}

static void write_nodes(rg_text *to, const rg_graph *graph)
{
    bool first = true;
    begin_list(to, "nodes");
    for (size_t n = 0; n < graph->nodes_count; n++) {
        const rg_node *node = graph->nodes[n], *of = node->forward;
        begin_entry(to, &first);
        rg_text_add(to, "{\"label\": ");
        rg_text_add_string(to, node->label);
        rg_text_add(to, ", \"op\": ");
        rg_text_add_string(to, node->op->name);
        const void *known = of != NULL ? of->desc : node->given != NULL ? node->given->desc : NULL;
        if (known == NULL || !rg_fields_equal(&node->op->desc, node->desc, known)) {
            rg_text_add(to, ", \"desc\": ");
            rg_fields_to_json(&node->op->desc, node->desc, to);
        }
        if (node->gradient)
            write_gradient(to, node);
        else
            write_values(to, "x", node->in, node->inputs);
        rg_text_add(to, "}");
    }
    rg_text_add(to, "]");
}

static void write_results(rg_text *to, const rg_graph *graph)
{
    bool first = true;
    begin_list(to, "results");
    for (size_t i = 0; i < graph->results_count; i++) {
        begin_entry(to, &first);
        rg_text_add(to, "{\"name\": ");
        rg_text_add_string(to, graph->results[i].name);
        rg_text_add(to, ", \"value\": ");
        write_value(to, graph->results[i].value);
        rg_text_add(to, "}");
    }
    rg_text_add(to, "]");
    first = true;
    begin_list(to, "states");
    for (size_t i = 0; i < graph->states_count; i++) {
        begin_entry(to, &first);
        rg_text_add(to, "{\"name\": ");
        rg_text_add_string(to, graph->states[i].name);
        rg_text_add(to, ", \"node\": ");
        rg_text_add_string(to, graph->states[i].node->label);
        rg_text_add(to, "}");
    }
    rg_text_add(to, "]");
}

static void write_pair(rg_text *to, const rg_value *a, const rg_value *b)
{
    rg_text_add(to, "[");
    write_value(to, a);
    rg_text_add(to, ", ");
    write_value(to, b);
    rg_text_add(to, "]");
}

static void write_marks(rg_text *to, const rg_graph *graph)
{
    bool first = true;
    begin_list(to, "assignments");
    for (size_t i = 0; i < graph->assignments_count; i++) {
        begin_entry(to, &first);
        write_pair(to, graph->assignments[i].parameter, graph->assignments[i].value);
    }
    rg_text_add(to, "]");
    first = true;
    begin_list(to, "stops"); /* outputs of nodes last, as a graph that is read has them */
    for (size_t i = 0; i < 2 * graph->values_count; i++) {
        const rg_value *value = graph->values[i % graph->values_count];
        const bool is_output = value->kind == RG_VALUE_OUTPUT;
        if (!value->stops || value->kind == RG_VALUE_CONSTANT ||
            is_output != (i >= graph->values_count))
            continue;
        begin_entry(to, &first);
        write_value(to, value);
    }
    rg_text_add(to, "]");
    first = true;
    begin_list(to, "gradients");
    for (size_t i = 0; i < graph->values_count; i++) {
        if (graph->values[i]->gradient == NULL || graph->values[i]->kind == RG_VALUE_CONSTANT)
            continue;
        begin_entry(to, &first);
        write_pair(to, graph->values[i], graph->values[i]->gradient);
    }
    rg_text_add(to, "]");
}

size_t rg_graph_to_json(const rg_graph *graph, char *text, size_t capacity)
{
    rg_text to;
    rg_text_begin(&to, text, capacity);
    if (graph == NULL || graph->status != RG_OK)
        return 0;
    rg_text_add(&to, "{\"retrograde\": 1");
    write_sources(&to, graph);
    write_parameters(&to, graph);
    write_source_states(&to, graph);
    write_nodes(&to, graph);
    write_results(&to, graph);
    write_marks(&to, graph);
    rg_text_add(&to, "}");
    return to.length;
}

rg_status rg_graph_save(const rg_graph *graph, const char *path)
{
    RG_TRY(rg_graph_status(graph));
    RG_CHECK_NOT_NULL(path);
    const size_t length = rg_graph_to_json(graph, NULL, 0);
    RG_CHECK(length < RG_GRAPH_TEXT_LIMIT, RG_INVALID_ARGUMENT,
             "rg_graph_save: the graph has %zu bytes, more than can be loaded", length);
    void *memory;
    RG_TRY(rg_allocate(allocator, length + 1, &memory));
    char *text = memory;
    rg_graph_to_json(graph, text, length + 1);
    text[length] = '\n'; /* in place of the 0 byte */
    const rg_status status = rg_file_write(path, text, length + 1);
    rg_release(allocator, memory, length + 1);
    return status;
}
