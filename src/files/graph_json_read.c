/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Graphs from JSON. A node names what it reads, which must come before it: there are no cycles. */
#include "files/graph_json.h"

#include "core/number.h"
#include "core/shape.h"
#include "files/kernel_json.h"
#include "files/whole_file.h"
#include "graph/graph.h"
#include "ops/ops.h"

#include <retrograde/files.h>

#include <errno.h>
#include <math.h>
#include <stdlib.h>

static const rg_allocator *const allocator = &rg_default_allocator;

typedef struct reader {
    const rg_json *json;
    rg_graph *graph;
} reader;

/* A name in quotes, cut to what a sentence can hold. */
typedef struct quoted {
    char text[96];
} quoted;

static quoted quote(const char *text)
{
    quoted q;
    rg_text to;
    rg_text_begin(&to, q.text, sizeof q.text);
    rg_text_add_string(&to, text);
    return q;
}

/* What a builder refuses is a fault of the text, unless memory was short. */
static rg_status refuse(const reader *r, const rg_json_value *at, rg_status status)
{
    if (status == RG_OK || status == RG_OUT_OF_MEMORY)
        return status;
    return rg_json_fail(r->json, at->at, "%s", rg_error_text());
}

static rg_status check_keys(const reader *r, const rg_json_value *object, const char *what,
                            const char *const keys[])
{
    if (object->type != RG_JSON_OBJECT)
        return rg_json_fail(r->json, object->at, "%s must be an object", what);
    for (const rg_json_value *v = object->first; v != NULL; v = v->next) {
        int i = 0;
        while (keys[i] != NULL && strcmp(keys[i], v->key) != 0)
            i++;
        if (keys[i] == NULL)
            return rg_json_fail(r->json, v->at, "%s has no %s", what, quote(v->key).text);
    }
    return RG_OK;
}

static rg_status read_string(const reader *r, const rg_json_value *object, const char *key,
                             const char **text)
{
    const rg_json_value *v = rg_json_find(object, key);
    if (v == NULL || v->type != RG_JSON_STRING)
        return rg_json_fail(r->json, v != NULL ? v->at : object->at, "expected \"%s\", a string",
                            key);
    *text = v->text;
    return RG_OK;
}

static rg_status read_int(const reader *r, const rg_json_value *v, int64_t *number)
{
    char *end = NULL;
    errno = 0;
    if (v->type == RG_JSON_NUMBER && strpbrk(v->text, ".eE") == NULL)
        *number = strtoll(v->text, &end, 10);
    if (end == NULL || *end != 0 || errno != 0)
        return rg_json_fail(r->json, v->at, "expected a whole number");
    return RG_OK;
}

/* The entries of a list; none where it is left out. */
static rg_status read_list(const reader *r, const rg_json_value *object, const char *key,
                           const rg_json_value **first)
{
    const rg_json_value *v = rg_json_find(object, key);
    *first = NULL;
    if (v == NULL)
        return RG_OK;
    if (v->type != RG_JSON_ARRAY)
        return rg_json_fail(r->json, v->at, "\"%s\" must be an array", key);
    *first = v->first;
    return RG_OK;
}

/* ---- values ---- */

static rg_status read_node_name(const reader *r, const rg_json_value *v, rg_node **node)
{
    *node = v->type == RG_JSON_STRING ? rg_graph_find_node(r->graph, v->text) : NULL;
    if (v->type != RG_JSON_STRING)
        return rg_json_fail(r->json, v->at, "expected the label of a node");
    if (*node == NULL)
        return rg_json_fail(r->json, v->at, "no earlier node is called %s", quote(v->text).text);
    return RG_OK;
}

static rg_status read_output(const reader *r, const rg_json_value *v, rg_value **value)
{
    rg_node *node = NULL;
    int64_t index = 0;
    if (v->count != 2)
        return rg_json_fail(r->json, v->at, "an output must be [\"label\", number]");
    RG_TRY(read_node_name(r, v->first, &node));
    RG_TRY(read_int(r, v->first->next, &index));
    *value = index >= 0 && index < node->outputs ? node->out[index] : NULL;
    if (*value == NULL)
        return rg_json_fail(r->json, v->at, "%s has no output %lld", quote(node->label).text,
                            (long long)index);
    return RG_OK;
}

static rg_status read_number(const reader *r, const rg_json_value *v, double *number)
{
    const bool nan = v != NULL && v->type == RG_JSON_STRING && strcmp(v->text, "nan") == 0;
    const bool infinite = v != NULL && v->type == RG_JSON_STRING &&
                          (strcmp(v->text, "inf") == 0 || strcmp(v->text, "-inf") == 0);
    if (nan)
        *number = NAN;
    else if (infinite)
        *number = v->text[0] == '-' ? -INFINITY : INFINITY;
    else if (v == NULL || v->type != RG_JSON_NUMBER || !rg_number_parse(v->text, number))
        return rg_json_fail(r->json, v != NULL ? v->at : 0, "a constant must be a number");
    return RG_OK;
}

static rg_status read_value(const reader *r, const rg_json_value *v, rg_value **value);

static rg_status read_constant(const reader *r, const rg_json_value *v, rg_value **value)
{
    static const char *const keys[] = { "constant", "like", NULL };
    const rg_json_value *like = rg_json_find(v, "like");
    double number = 0;
    rg_value *of = NULL;
    RG_TRY(check_keys(r, v, "a constant", keys));
    RG_TRY(read_number(r, rg_json_find(v, "constant"), &number));
    if (like == NULL)
        return rg_json_fail(r->json, v->at, "a constant needs \"like\" with a value");
    RG_TRY(read_value(r, like, &of)); /* no deeper than the text */
    *value = rg_graph_constant(r->graph, of, number);
    return refuse(r, v, rg_graph_status(r->graph));
}

static rg_status read_value(const reader *r, const rg_json_value *v, rg_value **value)
{
    if (v->type == RG_JSON_ARRAY)
        return read_output(r, v, value);
    if (v->type == RG_JSON_OBJECT)
        return read_constant(r, v, value);
    if (v->type != RG_JSON_STRING)
        return rg_json_fail(r->json, v->at,
                            "expected a value: \"name\", [\"label\", number] or "
                            "{\"constant\": number, \"like\": value}");
    *value = rg_graph_find_value(r->graph, v->text);
    if (*value == NULL)
        return rg_json_fail(r->json, v->at, "unknown source or parameter %s", quote(v->text).text);
    return RG_OK;
}

/* Up to RG_MAX_INPUTS values; null is NULL. */
static rg_status read_values(const reader *r, const rg_json_value *list, const char *key,
                             rg_value *values[], int32_t *count)
{
    if (list->type != RG_JSON_ARRAY || list->count > RG_MAX_INPUTS)
        return rg_json_fail(r->json, list->at, "\"%s\" must be an array of at most %d values", key,
                            RG_MAX_INPUTS);
    *count = 0;
    for (const rg_json_value *v = list->first; v != NULL; v = v->next, (*count)++) {
        values[*count] = NULL;
        if (v->type != RG_JSON_NULL)
            RG_TRY(read_value(r, v, &values[*count]));
    }
    return RG_OK;
}

/* ---- sources and parameters ---- */

static rg_status read_sources(const reader *r)
{
    const rg_json_value *v = NULL;
    RG_TRY(read_list(r, r->json->root, "sources", &v));
    for (; v != NULL; v = v->next) {
        if (v->type != RG_JSON_STRING)
            return rg_json_fail(r->json, v->at, "a source must be a string, its name");
        rg_graph_source(r->graph, v->text);
        RG_TRY(refuse(r, v, rg_graph_status(r->graph)));
    }
    return RG_OK;
}

static rg_status read_shape(const reader *r, const rg_json_value *object, rg_tensor_desc *desc)
{
    const char *name = "";
    const rg_json_value *dims = rg_json_find(object, "dims");
    int64_t sizes[RG_MAX_RANK] = { 0 };
    int32_t rank = 0, dtype = RG_F32;
    RG_TRY(read_string(r, object, "dtype", &name));
    while (dtype <= RG_I64 && strcmp(rg_dtype_name((rg_dtype)dtype), name) != 0)
        dtype++;
    if (dtype > RG_I64)
        return rg_json_fail(r->json, object->at, "unknown dtype %s", quote(name).text);
    if (dims == NULL || dims->type != RG_JSON_ARRAY || dims->count > RG_MAX_RANK)
        return rg_json_fail(r->json, object->at,
                            "expected \"dims\", an array of at most %d numbers", RG_MAX_RANK);
    for (const rg_json_value *v = dims->first; v != NULL; v = v->next)
        RG_TRY(read_int(r, v, &sizes[rank++]));
    *desc = rg_tensor_desc_dense((rg_dtype)dtype, rank, sizes);
    return RG_OK;
}

static rg_status read_parameters(const reader *r)
{
    static const char *const keys[] = { "name", "dtype", "dims", NULL };
    const rg_json_value *v = NULL;
    RG_TRY(read_list(r, r->json->root, "parameters", &v));
    for (; v != NULL; v = v->next) {
        const char *name = "";
        rg_tensor_desc desc = { 0 };
        RG_TRY(check_keys(r, v, "a parameter", keys));
        RG_TRY(read_string(r, v, "name", &name));
        RG_TRY(read_shape(r, v, &desc));
        rg_graph_parameter(r->graph, name, &desc);
        RG_TRY(refuse(r, v, rg_graph_status(r->graph)));
    }
    return RG_OK;
}

/* ---- nodes ---- */

static rg_status read_op(const reader *r, const rg_json_value *v, const rg_op **op)
{
    const char *name = "";
    const rg_op_name *other;
    RG_TRY(read_string(r, v, "op", &name));
    if (rg_op_find(name, op, &other) != RG_OK || other != NULL)
        return rg_json_fail(r->json, v->at, "unknown op %s", quote(name).text);
    return RG_OK;
}

static rg_status read_desc(const reader *r, const rg_json_value *v, const rg_op *op, void *desc)
{
    const rg_json_value *fields = rg_json_find(v, "desc");
    return fields != NULL ? rg_fields_from_json(&op->desc, op->name, r->json, fields, desc) : RG_OK;
}

static rg_status read_forward(const reader *r, const rg_json_value *v, rg_node **node)
{
    static const char *const keys[] = { "label", "op", "desc", "x", NULL };
    const rg_json_value *inputs = rg_json_find(v, "x");
    const rg_op *op = NULL;
    _Alignas(16) char desc[RG_MAX_DESC];
    rg_value *x[RG_MAX_INPUTS];
    int32_t count = 0;
    RG_TRY(check_keys(r, v, "a node", keys));
    RG_TRY(read_op(r, v, &op));
    memcpy(desc, op->desc.defaults, op->desc.size);
    RG_TRY(read_desc(r, v, op, desc));
    if (inputs == NULL)
        return rg_json_fail(r->json, v->at, "expected \"x\", the inputs of the node");
    RG_TRY(read_values(r, inputs, "x", x, &count));
    *node = rg_graph_node(r->graph, op->name, desc, x, count);
    return refuse(r, v, rg_graph_status(r->graph));
}

static rg_status read_wanted(const reader *r, const rg_json_value *v, uint64_t *wanted)
{
    const rg_json_value *entry = NULL;
    *wanted = 0;
    RG_TRY(read_list(r, v, "wanted", &entry));
    for (; entry != NULL; entry = entry->next) {
        int64_t index = 0;
        RG_TRY(read_int(r, entry, &index));
        if (index < 0 || index >= RG_MAX_INPUTS)
            return rg_json_fail(r->json, entry->at, "the input %lld does not exist",
                                (long long)index);
        *wanted |= UINT64_C(1) << index;
    }
    if (*wanted == 0)
        return rg_json_fail(r->json, v->at, "expected \"wanted\", the inputs that need gradients");
    return RG_OK;
}

/* Values of a list that has to be as long as the op says; `from` where it is left out. */
static rg_status read_part(const reader *r, const rg_json_value *v, const char *key, int32_t count,
                           rg_value *const from[], rg_value *values[])
{
    const rg_json_value *list = rg_json_find(v, key);
    int32_t got = 0;
    if (list == NULL && from == NULL)
        return rg_json_fail(r->json, v->at, "expected \"%s\"", key);
    if (list == NULL) {
        memcpy(values, from, (size_t)count * sizeof values[0]);
        return RG_OK;
    }
    RG_TRY(read_values(r, list, key, values, &got));
    if (got != count)
        return rg_json_fail(r->json, list->at, "\"%s\" has %d values; it must have %d", key, got,
                            count);
    return RG_OK;
}

static rg_status read_gradient(const reader *r, const rg_json_value *v, rg_node **node)
{
    static const char *const keys[] = { "label", "op", "desc",   "gradient_of", "dy",
                                        "x",     "y",  "wanted", NULL };
    const rg_json_value *name = rg_json_find(v, "gradient_of");
    const rg_op *op = NULL;
    _Alignas(16) char desc[RG_MAX_DESC];
    rg_value *dy[RG_MAX_INPUTS], *x[RG_MAX_INPUTS], *y[RG_MAX_INPUTS];
    rg_node *of = NULL;
    uint64_t wanted = 0;
    RG_TRY(check_keys(r, v, "a gradient node", keys));
    RG_TRY(read_op(r, v, &op));
    if (name->type != RG_JSON_NULL)
        RG_TRY(read_node_name(r, name, &of));
    if (of != NULL && (of->op != op || of->gradient))
        return rg_json_fail(r->json, name->at, "%s is not a forward node of the op %s",
                            quote(of->label).text, op->name);
    memcpy(desc, of != NULL ? of->desc : op->desc.defaults, op->desc.size);
    RG_TRY(read_desc(r, v, op, desc));
    _Alignas(16) char checked[RG_MAX_DESC]; /* ranges, before the op is asked about it */
    RG_TRY(refuse(r, v, rg_fields_copy(&op->desc, op->name, desc, checked)));
    if (op->check != NULL)
        RG_TRY(refuse(r, v, op->check(checked)));
    const int32_t inputs = rg_op_inputs(op, checked), outputs = rg_op_outputs(op, checked);
    const bool alike = of != NULL && of->inputs == inputs && of->outputs == outputs;
    RG_TRY(read_part(r, v, "dy", rg_op_gradients(op, checked), NULL, dy));
    RG_TRY(read_part(r, v, "x", inputs, alike ? of->in : NULL, x));
    RG_TRY(read_part(r, v, "y", outputs, alike ? of->out : NULL, y));
    RG_TRY(read_wanted(r, v, &wanted));
    *node = rg_graph_gradient_node(r->graph, op->name, checked, dy, x, y, of, wanted);
    return refuse(r, v, rg_graph_status(r->graph));
}

static rg_status read_nodes(const reader *r)
{
    const rg_json_value *v = NULL;
    RG_TRY(read_list(r, r->json->root, "nodes", &v));
    for (; v != NULL; v = v->next) {
        rg_node *node = NULL;
        const char *label = "";
        if (v->type != RG_JSON_OBJECT)
            return rg_json_fail(r->json, v->at, "a node must be an object");
        if (rg_json_find(v, "gradient_of") != NULL)
            RG_TRY(read_gradient(r, v, &node));
        else
            RG_TRY(read_forward(r, v, &node));
        if (rg_json_find(v, "label") == NULL)
            continue;
        RG_TRY(read_string(r, v, "label", &label));
        RG_TRY(refuse(r, v, rg_node_set_label(node, label)));
    }
    return RG_OK;
}

/* ---- what is asked for ---- */

static rg_status read_results(const reader *r)
{
    static const char *const keys[] = { "name", "value", NULL };
    const rg_json_value *v = NULL;
    RG_TRY(read_list(r, r->json->root, "results", &v));
    for (; v != NULL; v = v->next) {
        const char *name = "";
        rg_value *value = NULL;
        RG_TRY(check_keys(r, v, "a result", keys));
        RG_TRY(read_string(r, v, "name", &name));
        if (rg_json_find(v, "value") == NULL)
            return rg_json_fail(r->json, v->at, "expected \"value\"");
        RG_TRY(read_value(r, rg_json_find(v, "value"), &value));
        RG_TRY(refuse(r, v, rg_graph_result(r->graph, value, name)));
    }
    return RG_OK;
}

static rg_status read_states(const reader *r)
{
    static const char *const keys[] = { "name", "node", NULL };
    const rg_json_value *v = NULL;
    RG_TRY(read_list(r, r->json->root, "states", &v));
    for (; v != NULL; v = v->next) {
        const char *name = "";
        rg_node *node = NULL;
        RG_TRY(check_keys(r, v, "a state", keys));
        RG_TRY(read_string(r, v, "name", &name));
        if (rg_json_find(v, "node") == NULL)
            return rg_json_fail(r->json, v->at, "expected \"node\"");
        RG_TRY(read_node_name(r, rg_json_find(v, "node"), &node));
        RG_TRY(refuse(r, v, rg_graph_state_result(r->graph, node, name)));
    }
    return RG_OK;
}

static rg_status read_pair(const reader *r, const rg_json_value *v, rg_value *pair[2])
{
    if (v->type != RG_JSON_ARRAY || v->count != 2)
        return rg_json_fail(r->json, v->at, "expected two values, [value, value]");
    RG_TRY(read_value(r, v->first, &pair[0]));
    return read_value(r, v->first->next, &pair[1]);
}

static rg_status read_marks(const reader *r)
{
    const rg_json_value *v = NULL;
    rg_value *pair[2] = { NULL, NULL };
    RG_TRY(read_list(r, r->json->root, "assignments", &v));
    for (; v != NULL; v = v->next) {
        RG_TRY(read_pair(r, v, pair));
        RG_TRY(refuse(r, v, rg_graph_assign(r->graph, pair[0], pair[1])));
    }
    RG_TRY(read_list(r, r->json->root, "stops", &v));
    for (; v != NULL; v = v->next) {
        RG_TRY(read_value(r, v, &pair[0]));
        RG_TRY(refuse(r, v, rg_value_stop_gradient(pair[0])));
    }
    RG_TRY(read_list(r, r->json->root, "gradients", &v));
    for (; v != NULL; v = v->next) {
        RG_TRY(read_pair(r, v, pair));
        pair[0]->gradient = pair[1];
    }
    return RG_OK;
}

static rg_status read_graph(const reader *r)
{
    static const char *const keys[] = { "retrograde", "sources", "parameters", "nodes",
                                        "results",    "states",  "stops",      "assignments",
                                        "gradients",  NULL };
    const rg_json_value *root = r->json->root;
    RG_TRY(check_keys(r, root, "a graph", keys));
    const rg_json_value *version = rg_json_find(root, "retrograde");
    if (version == NULL || version->type != RG_JSON_NUMBER || strcmp(version->text, "1") != 0)
        return rg_json_fail(r->json, version != NULL ? version->at : root->at,
                            "expected \"retrograde\": 1, the version of the format");
    RG_TRY(read_sources(r));
    RG_TRY(read_parameters(r));
    RG_TRY(read_nodes(r));
    RG_TRY(read_results(r));
    RG_TRY(read_states(r));
    return read_marks(r);
}

/* `from` begins the sentence. */
static rg_status read_text(const char *from, const char *text, size_t length, rg_graph **graph)
{
    rg_json json;
    rg_graph *made = NULL;
    rg_status status = rg_graph_create(&made);
    if (status == RG_OK)
        status = rg_json_read(&json, allocator, text, length);
    if (status == RG_OK) {
        const reader r = { &json, made };
        status = read_graph(&r);
        rg_json_clear(&json);
    }
    if (status != RG_OK) {
        rg_error_prefix("%s: ", from);
        rg_graph_destroy(made);
        return status;
    }
    *graph = made;
    return RG_OK;
}

rg_status rg_graph_from_json(const char *text, size_t length, rg_graph **graph)
{
    RG_CHECK_NOT_NULL(graph);
    *graph = NULL;
    RG_CHECK_NOT_NULL(text);
    RG_CHECK(length <= RG_GRAPH_TEXT_LIMIT, RG_MALFORMED,
             "rg_graph_from_json: the text has %zu bytes; at most %d are supported", length,
             RG_GRAPH_TEXT_LIMIT);
    return read_text("rg_graph_from_json", text, length, graph);
}

rg_status rg_graph_load(const char *path, rg_graph **graph)
{
    RG_CHECK_NOT_NULL(graph);
    *graph = NULL;
    RG_CHECK_NOT_NULL(path);
    rg_bytes bytes;
    RG_TRY(rg_file_read(allocator, path, RG_GRAPH_TEXT_LIMIT, &bytes));
    const rg_status status = read_text(path, bytes.data, bytes.size, graph);
    rg_bytes_release(allocator, &bytes);
    return status;
}
