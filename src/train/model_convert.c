/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Graphs of other models as models of ours: a line for each node, with the fields that differ from
 * their defaults, and the names that its parameters get. */
#include "train/model_convert.h"

#include "core/memory.h"
#include "graph/name_index.h"
#include "train/layer_rules.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static const rg_allocator *const allocator = &rg_default_allocator;

enum { LABEL = 40, FIELDS = 4096, UNCOVERED = 2048 };

typedef struct converter {
    const rg_graph *graph;
    int64_t classes;
    rg_converted *out;
    bool *live;
    char (*labels)[LABEL];  /* of nodes, by id */
    int32_t *numbers;       /* by id, the last of "input": suffixes tried for other such labels */
    rg_names used;          /* labels, with their numbers */
    const rg_node **reader; /* of each value, by id: a live node that reads it */
    bool *shared;           /* by value: another one does, too */
    char uncovered[UNCOVERED];
} converter;

void rg_converted_release(rg_converted *converted)
{
    for (size_t i = 0; i < converted->name_count; i++)
        free(converted->names[i].now);
    rg_release(allocator, converted->names, converted->name_capacity * sizeof *converted->names);
    rg_release(allocator, converted->text, converted->capacity);
    *converted = (rg_converted){ 0 };
}

__attribute__((format(printf, 2, 3))) static rg_status add(rg_converted *c, const char *format, ...)
{
    char text[FIELDS];
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    RG_CHECK(length >= 0 && length < FIELDS, RG_UNSUPPORTED, "a line is too long");
    while (c->length + (size_t)length + 1 > c->capacity)
        RG_TRY(rg_grow(allocator, (void **)&c->text, &c->capacity, c->capacity, 1));
    memcpy(c->text + c->length, text, (size_t)length + 1);
    c->length += (size_t)length;
    return RG_OK;
}

static void add_uncovered(converter *c, const rg_node *node, const char *why)
{
    const size_t length = strlen(c->uncovered);
    if (length < UNCOVERED - 200)
        snprintf(c->uncovered + length, UNCOVERED - length, "%s%.40s (node '%.60s': %.80s)",
                 length > 0 ? "; " : "", node->op->name, node->label, why);
}

/* ---- labels ---- */

/* The end of the node's label, as far as a model may have it, and a number if it is used. */
static rg_status make_label(converter *c, const rg_node *node)
{
    char text[LABEL - 12], *label = c->labels[node->id];
    const size_t whole = strlen(node->label);
    const char *from = node->label + (whole > sizeof text - 1 ? whole - (sizeof text - 1) : 0);
    size_t length = 0;
    for (; *from != 0; from++) {
        const bool letter = isalnum((unsigned char)*from) != 0;
        if (letter || (length > 0 && text[length - 1] != '_'))
            text[length++] = (char)(letter ? *from : '_');
    }
    while (length > 0 && text[length - 1] == '_')
        length--;
    text[length] = 0;
    if (length == 0 || isdigit((unsigned char)text[0]))
        snprintf(label, LABEL, "%.20s%d", node->op->name, node->id);
    else
        snprintf(label, LABEL, "%s", text);
    int32_t *const number = rg_names_find(&c->used, label);
    while (number != NULL && rg_names_find(&c->used, label) != NULL)
        snprintf(label, LABEL, "%.*s_%d", (int)sizeof text, length > 0 ? text : "layer",
                 ++*number + 1);
    return rg_names_add(&c->used, label, &c->numbers[node->id]);
}

/* ---- parameters ---- */

static bool is_parameter(const char *input, bool weighted)
{
    static const char *const names[] = { "w", "gamma", "beta", "mean", "variance", "slope" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(input, names[i]) == 0)
            return true;
    }
    return strcmp(input, "b") == 0 && weighted;
}

static rg_status add_name(converter *c, const rg_node *node, const char *input,
                          const rg_value *value)
{
    rg_converted *out = c->out;
    char name[LABEL + 16];
    snprintf(name, sizeof name, "%s.%s", c->labels[node->id], input);
    RG_TRY(rg_grow(allocator, (void **)&out->names, &out->name_capacity, out->name_count,
                   sizeof out->names[0]));
    out->names[out->name_count].before = value->name;
    RG_TRY(rg_copy_text(name, &out->names[out->name_count].now));
    out->name_count++;
    return RG_OK;
}

/* Checks the inputs of a node, and lists its parameters; *why says what no line can say. */
static rg_status take_inputs(converter *c, const rg_node *node, const char **why)
{
    const char *const *names = rg_op_input_names(node->op, node->desc);
    const bool weighted = rg_layer_rule_of(node->op)->weights != NULL;
    for (int32_t i = 0; i < node->inputs; i++) {
        const rg_value *value = node->in[i];
        const bool wanted = is_parameter(names[i], weighted);
        if (wanted != (value->kind == RG_VALUE_PARAMETER)) {
            *why = wanted ? "a parameter that is computed" : "an input that is a parameter";
        } else if (wanted && c->shared[value->id]) {
            *why = "a parameter that two nodes share";
        } else if (!wanted && (value->kind == RG_VALUE_CONSTANT ||
                               (value->kind == RG_VALUE_OUTPUT && value->index > 0))) {
            *why = "an input that is not the result of a layer";
        } else if (wanted) {
            RG_TRY(add_name(c, node, names[i], value));
        }
    }
    return RG_OK;
}

/* ---- lines ---- */

/* Fields that the network sets itself. */
static bool is_set_elsewhere(const rg_node *node, const char *field)
{
    return strcmp(node->op->name, "batch_norm") == 0 &&
           (strncmp(field, "statistics=", 11) == 0 || strncmp(field, "unbiased=", 9) == 0);
}

/* Fields that are not as in a new descriptor. */
static rg_status add_fields(converter *c, const rg_node *node)
{
    char now[FIELDS], other[FIELDS];
    char *save_now = NULL, *save_other = NULL;
    rg_fields_text(&node->op->desc, node->desc, now, sizeof now);
    rg_fields_text(&node->op->desc, node->op->desc.defaults, other, sizeof other);
    const char *a = strtok_r(now, " ", &save_now), *b = strtok_r(other, " ", &save_other);
    for (; a != NULL && b != NULL;
         a = strtok_r(NULL, " ", &save_now), b = strtok_r(NULL, " ", &save_other)) {
        if (strcmp(a, b) != 0 && !is_set_elsewhere(node, a))
            RG_TRY(add(c->out, " %s", a));
    }
    return RG_OK;
}

/* Channels of the result and the window of the weights. */
static rg_status add_weights(converter *c, const rg_node *node, bool last)
{
    const rg_layer_rule *rule = rg_layer_rule_of(node->op);
    char fields[FIELDS];
    if (rule->weights == NULL)
        return RG_OK;
    const rg_tensor_desc *w = &node->in[1]->desc;
    rg_fields_text(&node->op->desc, node->desc, fields, sizeof fields);
    const bool outputs_last = strstr(fields, "layout=in_out") != NULL;
    const int64_t outputs = w->dims[outputs_last ? w->rank - 1 : 0];
    if (last && outputs == c->classes)
        RG_TRY(add(c->out, " classes"));
    else
        RG_TRY(add(c->out, " %lld", (long long)outputs));
    if (rule->window)
        RG_TRY(add(c->out, " window=%lld,%lld", (long long)w->dims[1], (long long)w->dims[2]));
    return RG_OK;
}

static rg_status add_from(converter *c, const rg_node *node)
{
    bool first = true;
    for (int32_t i = 0; i < node->inputs; i++) {
        const rg_value *value = node->in[i];
        if (value->kind == RG_VALUE_PARAMETER)
            continue;
        RG_TRY(add(c->out, "%s%s", first ? " from " : ", ",
                   value->node != NULL ? c->labels[value->node->id] : "input"));
        first = false;
    }
    return add(c->out, "\n");
}

static rg_status add_line(converter *c, const rg_node *node, bool last)
{
    const char *why = NULL;
    RG_TRY(make_label(c, node));
    if (rg_layer_rule_of(node->op)->no_layer || node->op->gradient == NULL)
        why = "an op that is no layer";
    else
        RG_TRY(take_inputs(c, node, &why));
    if (why != NULL) {
        add_uncovered(c, node, why);
        return RG_OK;
    }
    RG_TRY(add(c->out, "%s: %s", c->labels[node->id], node->op->name));
    RG_TRY(add_weights(c, node, last));
    RG_TRY(add_fields(c, node));
    return add_from(c, node);
}

/* Nodes that the result needs. */
static void mark_live(converter *c)
{
    const rg_graph *graph = c->graph;
    const rg_node *end = graph->results[0].value->node;
    if (end != NULL)
        c->live[end->id] = true;
    for (size_t n = graph->nodes_count; n-- > 0;) {
        const rg_node *node = graph->nodes[n];
        for (int32_t i = 0; i < node->inputs && c->live[n]; i++) {
            if (node->in[i]->node != NULL)
                c->live[node->in[i]->node->id] = true;
        }
    }
}

static void find_shared(converter *c)
{
    for (size_t n = 0; n < c->graph->nodes_count; n++) {
        const rg_node *node = c->graph->nodes[n];
        for (int32_t i = 0; i < node->inputs && c->live[n]; i++) {
            const rg_node **reader = &c->reader[node->in[i]->id];
            c->shared[node->in[i]->id] |= *reader != NULL && *reader != node;
            *reader = node;
        }
    }
}

static rg_status convert(converter *c)
{
    const rg_graph *graph = c->graph;
    const rg_node *end = graph->results[0].value->node;
    RG_CHECK(end != NULL && graph->results[0].value->index == 0, RG_UNSUPPORTED,
             "no layer makes the result");
    mark_live(c);
    find_shared(c);
    RG_TRY(rg_names_add(&c->used, "input", &c->numbers[graph->nodes_count]));
    RG_TRY(add(c->out, "# made from an ONNX model\n"));
    for (size_t n = 0; n < graph->nodes_count; n++) {
        if (c->live[n])
            RG_TRY(add_line(c, graph->nodes[n], graph->nodes[n] == end));
    }
    RG_CHECK(c->uncovered[0] == 0, RG_UNSUPPORTED, "a model as text cannot have: %s", c->uncovered);
    return RG_OK;
}

rg_status rg_graph_to_text(const rg_graph *graph, int64_t classes, rg_converted *converted)
{
    converter c = { .graph = graph, .classes = classes, .out = converted };
    const size_t nodes = graph->nodes_count + 1, values = graph->values_count + 1;
    *converted = (rg_converted){ 0 };
    rg_status status = rg_allocate_array(nodes, sizeof *c.live, &c.live);
    if (status == RG_OK)
        status = rg_allocate_array(nodes, sizeof *c.labels, &c.labels);
    if (status == RG_OK)
        status = rg_allocate_array(nodes, sizeof *c.numbers, &c.numbers);
    if (status == RG_OK)
        status = rg_allocate_array(values, sizeof *c.reader, &c.reader);
    if (status == RG_OK)
        status = rg_allocate_array(values, sizeof *c.shared, &c.shared);
    if (status == RG_OK)
        status = convert(&c);
    rg_release(allocator, c.live, nodes * sizeof *c.live);
    rg_release(allocator, c.labels, nodes * sizeof *c.labels);
    rg_release(allocator, c.numbers, nodes * sizeof *c.numbers);
    rg_release(allocator, c.reader, values * sizeof *c.reader);
    rg_release(allocator, c.shared, values * sizeof *c.shared);
    rg_names_clear(&c.used);
    if (status != RG_OK)
        rg_converted_release(converted);
    return status;
}
