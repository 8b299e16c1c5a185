/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Asking graphs: what they hold, what it is called, whether two are equal. */
#include "graph/graph.h"

#include "core/shape.h"

#include <stdarg.h>
#include <stdio.h>

/* ---- values ---- */

rg_status rg_value_set_handle(rg_value *value, void *handle)
{
    RG_CHECK_NOT_NULL(value);
    value->handle = handle;
    return RG_OK;
}

void *rg_value_handle(const rg_value *value)
{
    return value != NULL ? value->handle : NULL;
}

rg_value_kind rg_value_get_kind(const rg_value *value)
{
    return value != NULL ? value->kind : RG_VALUE_SOURCE;
}

int32_t rg_value_index(const rg_value *value)
{
    return value != NULL ? value->index : 0;
}

/* ---- in order, and by name ---- */

int32_t rg_graph_nodes(const rg_graph *graph)
{
    return graph != NULL ? (int32_t)graph->nodes_count : 0;
}

rg_node *rg_graph_node_at(const rg_graph *graph, int32_t index)
{
    return index >= 0 && index < rg_graph_nodes(graph) ? graph->nodes[index] : NULL;
}

int32_t rg_graph_values(const rg_graph *graph)
{
    return graph != NULL ? (int32_t)graph->values_count : 0;
}

rg_value *rg_graph_value_at(const rg_graph *graph, int32_t index)
{
    return index >= 0 && index < rg_graph_values(graph) ? graph->values[index] : NULL;
}

int32_t rg_graph_results(const rg_graph *graph)
{
    return graph != NULL ? (int32_t)graph->results_count : 0;
}

rg_value *rg_graph_result_at(const rg_graph *graph, int32_t index, const char **name)
{
    const bool there = index >= 0 && index < rg_graph_results(graph);
    if (name != NULL)
        *name = there ? graph->results[index].name : NULL;
    return there ? graph->results[index].value : NULL;
}

rg_value *rg_graph_assigned(const rg_graph *graph, const rg_value *parameter)
{
    return graph != NULL && parameter != NULL && parameter->graph == graph ? parameter->assigned
                                                                           : NULL;
}

rg_value *rg_graph_find_value(const rg_graph *graph, const char *name)
{
    return graph != NULL && name != NULL ? rg_names_find(&graph->values_by_name, name) : NULL;
}

rg_node *rg_graph_find_node(const rg_graph *graph, const char *label)
{
    return graph != NULL && label != NULL ? rg_names_find(&graph->nodes_by_label, label) : NULL;
}

int32_t rg_node_outputs(const rg_node *node)
{
    return node != NULL ? node->outputs : 0;
}

int32_t rg_node_inputs(const rg_node *node)
{
    return node != NULL ? node->inputs : 0;
}

/* ---- termini ---- */

int32_t rg_graph_termini(const rg_graph *graph, rg_node *nodes[], int32_t capacity)
{
    int32_t count = 0;
    for (size_t n = graph != NULL ? graph->backward : 0; graph != NULL && n < graph->backward_end;
         n++) {
        const bool last = graph->nodes[n]->ends;
        if (last && count < capacity && nodes != NULL)
            nodes[count] = graph->nodes[n];
        count += last;
    }
    return count;
}

/* ---- description ---- */

typedef struct writer {
    char *text;
    size_t capacity, length;
} writer;

__attribute__((format(printf, 2, 3))) static void write_text(writer *w, const char *format, ...)
{
    const size_t at = w->length < w->capacity ? w->length : w->capacity;
    va_list arguments;
    va_start(arguments, format);
    const int length =
        vsnprintf(w->text != NULL ? w->text + at : NULL, w->capacity - at, format, arguments);
    va_end(arguments);
    w->length += length > 0 ? (size_t)length : 0;
}

static void write_value(writer *w, const rg_value *value)
{
    if (value == NULL)
        write_text(w, "-");
    else if (value->kind == RG_VALUE_OUTPUT && value->index > 0)
        write_text(w, "%s.%d", value->node->label, value->index);
    else if (value->kind == RG_VALUE_OUTPUT)
        write_text(w, "%s", value->node->label);
    else if (value->kind == RG_VALUE_CONSTANT)
        write_text(w, "%g", value->number);
    else
        write_text(w, "%s", value->name);
    if (value != NULL && value->stops)
        write_text(w, "|");
}

static void write_node(writer *w, const rg_node *node)
{
    const size_t at = w->length < w->capacity ? w->length : w->capacity;
    w->length += rg_node_describe(node, w->text != NULL ? w->text + at : NULL, w->capacity - at);
    write_text(w, " (");
    for (int32_t i = 0; i < node->inputs; i++) {
        write_text(w, "%s", i > 0 ? ", " : "");
        write_value(w, node->in[i]);
    }
    write_text(w, node->given != NULL ? ") from state %s\n" : ")\n",
               node->given != NULL ? node->given->name : "");
}

size_t rg_graph_describe(const rg_graph *graph, char *text, size_t capacity)
{
    writer w = { text, text != NULL ? capacity : 0, 0 };
    if (graph == NULL) {
        write_text(&w, "no graph");
        return w.length;
    }
    write_text(&w, "%s", "");
    for (size_t i = 0; i < graph->values_count; i++) {
        const rg_value *value = graph->values[i];
        char shape[RG_SHAPE_TEXT];
        if (value->kind == RG_VALUE_SOURCE)
            write_text(&w, "source %s\n", value->name);
        else if (value->kind == RG_VALUE_PARAMETER)
            write_text(&w, "parameter %s %s%s\n", value->name, rg_shape_text(&value->desc, shape),
                       value->stops ? " frozen" : "");
    }
    for (size_t i = 0; i < graph->given_count; i++)
        write_text(&w, "source state %s of %s\n", graph->given[i]->name, graph->given[i]->op->name);
    for (size_t n = 0; n < graph->nodes_count; n++)
        write_node(&w, graph->nodes[n]);
    for (size_t i = 0; i < graph->results_count; i++) {
        write_text(&w, "result %s = ", graph->results[i].name);
        write_value(&w, graph->results[i].value);
        write_text(&w, "\n");
    }
    for (size_t i = 0; i < graph->states_count; i++)
        write_text(&w, "state %s of %s\n", graph->states[i].name, graph->states[i].node->label);
    for (size_t i = 0; i < graph->assignments_count; i++) {
        write_text(&w, "%s becomes ", graph->assignments[i].parameter->name);
        write_value(&w, graph->assignments[i].value);
        write_text(&w, "\n");
    }
    return w.length;
}

/* ---- equality ---- */

/* Whether two values are the same in their graphs. */
static bool same_value(const rg_value *a, const rg_value *b)
{
    if (a == NULL || b == NULL)
        return a == b;
    if (a->kind != b->kind)
        return false;
    if (a->kind == RG_VALUE_CONSTANT) /* NaN is equal to itself here */
        return memcmp(&a->number, &b->number, sizeof a->number) == 0 &&
               same_value(a->like, b->like);
    if (a->kind == RG_VALUE_OUTPUT)
        return a->node->id == b->node->id && a->index == b->index && a->stops == b->stops;
    return strcmp(a->name, b->name) == 0 && a->stops == b->stops &&
           (a->kind == RG_VALUE_SOURCE || rg_shape_same(&a->desc, &b->desc));
}

static bool same_values(rg_value *const a[], rg_value *const b[], int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        if (!same_value(a[i], b[i]))
            return false;
    }
    return true;
}

/* Whether two gradient nodes are given the same state, or none. */
static bool same_given(const rg_node *a, const rg_node *b)
{
    if (a->given == NULL || b->given == NULL)
        return a->given == b->given;
    return strcmp(a->given->name, b->given->name) == 0;
}

bool rg_node_equal(const rg_node *a, const rg_node *b)
{
    if (a == NULL || b == NULL)
        return a == b;
    const bool same_state = a->forward == NULL || b->forward == NULL
                                ? a->forward == b->forward
                                : a->forward->id == b->forward->id;
    bool same_outputs = a->outputs == b->outputs;
    for (int32_t i = 0; same_outputs && i < a->outputs; i++)
        same_outputs = (a->out[i] != NULL) == (b->out[i] != NULL);
    return a->op == b->op && a->gradient == b->gradient && a->inputs == b->inputs && same_outputs &&
           same_state && same_given(a, b) && a->rule == b->rule &&
           a->rule_context == b->rule_context && rg_fields_equal(&a->op->desc, a->desc, b->desc) &&
           same_values(a->in, b->in, a->inputs) && same_values(a->x, b->x, RG_MAX_INPUTS) &&
           same_values(a->y, b->y, RG_MAX_OUTPUTS);
}

/* Whether b has every result, state and assignment of a; both have as many. */
static bool same_requests(const rg_graph *a, const rg_graph *b)
{
    for (size_t i = 0; i < a->results_count; i++) {
        if (!same_value(a->results[i].value,
                        rg_names_find(&b->results_by_name, a->results[i].name)))
            return false;
    }
    for (size_t i = 0; i < a->states_count; i++) {
        const rg_node *node = rg_names_find(&b->states_by_name, a->states[i].name);
        if (node == NULL || node->id != a->states[i].node->id)
            return false;
    }
    for (size_t i = 0; i < a->assignments_count; i++) {
        const rg_value *parameter = rg_graph_find_value(b, a->assignments[i].parameter->name);
        if (parameter == NULL || !same_value(a->assignments[i].value, parameter->assigned))
            return false;
    }
    return true;
}

/* Whether b has the named values of a and their stop marks, and is given its states. */
static bool same_names(const rg_graph *a, const rg_graph *b)
{
    for (size_t i = 0; i < a->given_count; i++) {
        const rg_state_value *state = a->given[i];
        const rg_state_value *other = rg_graph_find_source_state(b, state->name);
        if (other == NULL || other->op != state->op ||
            !rg_fields_equal(&state->op->desc, state->desc, other->desc))
            return false;
    }
    for (size_t i = 0; i < a->values_count; i++) {
        const rg_value *value = a->values[i];
        if (value->name != NULL && !same_value(value, rg_graph_find_value(b, value->name)))
            return false;
    }
    return true;
}

static bool same_stops(const rg_node *a, const rg_node *b)
{
    for (int32_t i = 0; i < a->outputs; i++) {
        if (a->out[i] != NULL && a->out[i]->stops != b->out[i]->stops)
            return false;
    }
    return true;
}

bool rg_graph_equal(const rg_graph *a, const rg_graph *b)
{
    if (a == NULL || b == NULL)
        return a == b;
    if (a->nodes_count != b->nodes_count || a->results_count != b->results_count ||
        a->states_count != b->states_count || a->assignments_count != b->assignments_count ||
        !same_names(a, b) || !same_names(b, a) || !same_requests(a, b))
        return false;
    for (size_t n = 0; n < a->nodes_count; n++) {
        if (!rg_node_equal(a->nodes[n], b->nodes[n]) || !same_stops(a->nodes[n], b->nodes[n]))
            return false;
    }
    return true;
}
