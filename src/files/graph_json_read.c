/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Graphs from JSON. A node names what it reads, which must come before it: there are no cycles. */
#include "files/graph_json.h"

#include "core/shape.h"
#include "files/kernel_json.h"
#include "files/whole_file.h"
#include "ops/ops.h"

#include <retrograde/files.h>

static const rg_allocator *const allocator = &rg_default_allocator;

/* ---- sources and parameters ---- */

static rg_status read_sources(const rg_graph_reader *r)
{
    const rg_json_value *v = NULL;
    RG_TRY(rg_graph_read_list(r, r->json->root, "sources", &v));
    for (; v != NULL; v = v->next) {
        if (v->type != RG_JSON_STRING)
            return rg_json_fail(r->json, v->at, "a source must be a string, its name");
        rg_graph_source(r->graph, v->text);
        RG_TRY(rg_graph_refuse(r, v, rg_graph_status(r->graph)));
    }
    return RG_OK;
}

static rg_status read_shape(const rg_graph_reader *r, const rg_json_value *object,
                            rg_tensor_desc *desc)
{
    const char *name = "";
    const rg_json_value *dims = rg_json_find(object, "dims");
    int64_t sizes[RG_MAX_RANK] = { 0 };
    int32_t rank = 0, dtype = RG_F32;
    RG_TRY(rg_graph_read_string(r, object, "dtype", &name));
    while (dtype <= RG_I64 && strcmp(rg_dtype_name((rg_dtype)dtype), name) != 0)
        dtype++;
    if (dtype > RG_I64)
        return rg_json_fail(r->json, object->at, "unknown dtype %s", rg_graph_quote(name).text);
    if (dims == NULL || dims->type != RG_JSON_ARRAY || dims->count > RG_MAX_RANK)
        return rg_json_fail(r->json, object->at,
                            "expected \"dims\", an array of at most %d numbers", RG_MAX_RANK);
    for (const rg_json_value *v = dims->first; v != NULL; v = v->next)
        RG_TRY(rg_graph_read_int(r, v, &sizes[rank++]));
    *desc = rg_tensor_desc_dense((rg_dtype)dtype, rank, sizes);
    return RG_OK;
}

static rg_status read_parameters(const rg_graph_reader *r)
{
    static const char *const keys[] = { "name", "dtype", "dims", NULL };
    const rg_json_value *v = NULL;
    RG_TRY(rg_graph_read_list(r, r->json->root, "parameters", &v));
    for (; v != NULL; v = v->next) {
        const char *name = "";
        rg_tensor_desc desc = { 0 };
        RG_TRY(rg_graph_check_keys(r, v, "a parameter", keys));
        RG_TRY(rg_graph_read_string(r, v, "name", &name));
        RG_TRY(read_shape(r, v, &desc));
        rg_graph_parameter(r->graph, name, &desc);
        RG_TRY(rg_graph_refuse(r, v, rg_graph_status(r->graph)));
    }
    return RG_OK;
}

/* ---- nodes ---- */

static rg_status read_op(const rg_graph_reader *r, const rg_json_value *v, const rg_op **op)
{
    const char *name = "";
    const rg_op_name *other;
    RG_TRY(rg_graph_read_string(r, v, "op", &name));
    if (rg_op_find(name, op, &other) != RG_OK || other != NULL)
        return rg_json_fail(r->json, v->at, "unknown op %s", rg_graph_quote(name).text);
    return RG_OK;
}

static rg_status read_desc(const rg_graph_reader *r, const rg_json_value *v, const rg_op *op,
                           void *desc)
{
    const rg_json_value *fields = rg_json_find(v, "desc");
    return fields != NULL ? rg_fields_from_json(&op->desc, op->name, r->json, fields, desc) : RG_OK;
}

/* A descriptor that is in its ranges, before the op is asked about it. */
static rg_status check_desc(const rg_graph_reader *r, const rg_json_value *v, const rg_op *op,
                            const void *desc, void *checked)
{
    RG_TRY(rg_graph_refuse(r, v, rg_fields_copy(&op->desc, op->name, desc, checked)));
    return op->check != NULL ? rg_graph_refuse(r, v, op->check(checked)) : RG_OK;
}

static rg_status read_source_states(const rg_graph_reader *r)
{
    static const char *const keys[] = { "name", "op", "desc", NULL };
    const rg_json_value *v = NULL;
    RG_TRY(rg_graph_read_list(r, r->json->root, "source_states", &v));
    for (; v != NULL; v = v->next) {
        const char *name = "";
        const rg_op *op = NULL;
        _Alignas(16) char desc[RG_MAX_DESC];
        RG_TRY(rg_graph_check_keys(r, v, "a source state", keys));
        RG_TRY(rg_graph_read_string(r, v, "name", &name));
        RG_TRY(read_op(r, v, &op));
        memcpy(desc, op->desc.defaults, op->desc.size);
        RG_TRY(read_desc(r, v, op, desc));
        rg_graph_source_state(r->graph, name, op->name, desc);
        RG_TRY(rg_graph_refuse(r, v, rg_graph_status(r->graph)));
    }
    return RG_OK;
}

static rg_status read_forward(const rg_graph_reader *r, const rg_json_value *v, rg_node **node)
{
    static const char *const keys[] = { "label", "op", "desc", "x", NULL };
    const rg_json_value *inputs = rg_json_find(v, "x");
    const rg_op *op = NULL;
    _Alignas(16) char desc[RG_MAX_DESC];
    rg_value *x[RG_MAX_INPUTS];
    int32_t count = 0;
    RG_TRY(rg_graph_check_keys(r, v, "a node", keys));
    RG_TRY(read_op(r, v, &op));
    memcpy(desc, op->desc.defaults, op->desc.size);
    RG_TRY(read_desc(r, v, op, desc));
    if (inputs == NULL)
        return rg_json_fail(r->json, v->at, "expected \"x\", the inputs of the node");
    RG_TRY(rg_graph_read_values(r, inputs, "x", x, &count));
    *node = rg_graph_node(r->graph, op->name, desc, x, count);
    return rg_graph_refuse(r, v, rg_graph_status(r->graph));
}

static rg_status read_wanted(const rg_graph_reader *r, const rg_json_value *v, uint64_t *wanted)
{
    const rg_json_value *entry = NULL;
    *wanted = 0;
    RG_TRY(rg_graph_read_list(r, v, "wanted", &entry));
    for (; entry != NULL; entry = entry->next) {
        int64_t index = 0;
        RG_TRY(rg_graph_read_int(r, entry, &index));
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
static rg_status read_part(const rg_graph_reader *r, const rg_json_value *v, const char *key,
                           int32_t count, rg_value *const from[], rg_value *values[])
{
    const rg_json_value *list = rg_json_find(v, key);
    int32_t got = 0;
    if (list == NULL && from == NULL)
        return rg_json_fail(r->json, v->at, "expected \"%s\"", key);
    if (list == NULL) {
        memcpy(values, from, (size_t)count * sizeof values[0]);
        return RG_OK;
    }
    RG_TRY(rg_graph_read_values(r, list, key, values, &got));
    if (got != count)
        return rg_json_fail(r->json, list->at, "\"%s\" has %d values; it must have %d", key, got,
                            count);
    return RG_OK;
}

/* The state that a gradient node reads: that of a node, one that runs are given, or none. */
static rg_status read_state(const rg_graph_reader *r, const rg_json_value *v, const rg_op *op,
                            rg_gradient_parts *parts)
{
    const rg_json_value *of = rg_json_find(v, "gradient_of"), *state = rg_json_find(v, "state");
    if (of->type != RG_JSON_NULL)
        RG_TRY(rg_graph_read_node_name(r, of, &parts->of));
    if (parts->of != NULL && (parts->of->op != op || parts->of->gradient))
        return rg_json_fail(r->json, of->at, "%s is not a forward node of the op %s",
                            rg_graph_quote(parts->of->label).text, op->name);
    if (state == NULL)
        return RG_OK;
    if (state->type == RG_JSON_STRING)
        parts->given = rg_graph_find_source_state(r->graph, state->text);
    if (parts->given == NULL || parts->given->op != op || parts->of != NULL)
        return rg_json_fail(r->json, state->at,
                            "\"state\" must be the name of a source state of %s, with "
                            "\"gradient_of\": null",
                            op->name);
    return RG_OK;
}

static rg_status read_gradient(const rg_graph_reader *r, const rg_json_value *v, rg_node **node)
{
    static const char *const keys[] = { "label", "op", "desc",   "gradient_of", "dy",
                                        "x",     "y",  "wanted", "state",       NULL };
    const rg_op *op = NULL;
    _Alignas(16) char desc[RG_MAX_DESC], checked[RG_MAX_DESC];
    rg_value *dy[RG_MAX_INPUTS], *x[RG_MAX_INPUTS], *y[RG_MAX_INPUTS];
    rg_gradient_parts parts = { .dy = dy, .x = x, .y = y };
    RG_TRY(rg_graph_check_keys(r, v, "a gradient node", keys));
    RG_TRY(read_op(r, v, &op));
    RG_TRY(read_state(r, v, op, &parts));
    const rg_node *of = parts.of;
    memcpy(desc,
           of != NULL            ? of->desc
           : parts.given != NULL ? parts.given->desc
                                 : op->desc.defaults,
           op->desc.size);
    RG_TRY(read_desc(r, v, op, desc));
    RG_TRY(check_desc(r, v, op, desc, checked));
    if (parts.given != NULL && !rg_fields_equal(&op->desc, checked, parts.given->desc))
        return rg_json_fail(r->json, v->at, "\"desc\" differs from that of the state");
    const int32_t inputs = rg_op_inputs(op, checked), outputs = rg_op_outputs(op, checked);
    const bool alike = of != NULL && of->inputs == inputs && of->outputs == outputs;
    RG_TRY(read_part(r, v, "dy", rg_op_gradients(op, checked), NULL, dy));
    RG_TRY(read_part(r, v, "x", inputs, alike ? of->in : NULL, x));
    RG_TRY(read_part(r, v, "y", outputs, alike ? of->out : NULL, y));
    RG_TRY(read_wanted(r, v, &parts.wanted));
    parts.op = op;
    parts.desc = checked;
    parts.dy_count = parts.x_count = parts.y_count = RG_MAX_INPUTS;
    const rg_status status = rg_graph_add_gradient(r->graph, &parts, node);
    return rg_graph_refuse(r, v, rg_graph_mistake(r->graph, status));
}

static rg_status read_nodes(const rg_graph_reader *r)
{
    const rg_json_value *v = NULL;
    RG_TRY(rg_graph_read_list(r, r->json->root, "nodes", &v));
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
        RG_TRY(rg_graph_read_string(r, v, "label", &label));
        RG_TRY(rg_graph_refuse(r, v, rg_node_set_label(node, label)));
    }
    return RG_OK;
}

/* ---- what is asked for ---- */

static rg_status read_results(const rg_graph_reader *r)
{
    static const char *const keys[] = { "name", "value", NULL };
    const rg_json_value *v = NULL;
    RG_TRY(rg_graph_read_list(r, r->json->root, "results", &v));
    for (; v != NULL; v = v->next) {
        const char *name = "";
        rg_value *value = NULL;
        RG_TRY(rg_graph_check_keys(r, v, "a result", keys));
        RG_TRY(rg_graph_read_string(r, v, "name", &name));
        if (rg_json_find(v, "value") == NULL)
            return rg_json_fail(r->json, v->at, "expected \"value\"");
        RG_TRY(rg_graph_read_value(r, rg_json_find(v, "value"), &value));
        RG_TRY(rg_graph_refuse(r, v, rg_graph_result(r->graph, value, name)));
    }
    return RG_OK;
}

static rg_status read_states(const rg_graph_reader *r)
{
    static const char *const keys[] = { "name", "node", NULL };
    const rg_json_value *v = NULL;
    RG_TRY(rg_graph_read_list(r, r->json->root, "states", &v));
    for (; v != NULL; v = v->next) {
        const char *name = "";
        rg_node *node = NULL;
        RG_TRY(rg_graph_check_keys(r, v, "a state", keys));
        RG_TRY(rg_graph_read_string(r, v, "name", &name));
        if (rg_json_find(v, "node") == NULL)
            return rg_json_fail(r->json, v->at, "expected \"node\"");
        RG_TRY(rg_graph_read_node_name(r, rg_json_find(v, "node"), &node));
        RG_TRY(rg_graph_refuse(r, v, rg_graph_state_result(r->graph, node, name)));
    }
    return RG_OK;
}

static rg_status read_pair(const rg_graph_reader *r, const rg_json_value *v, rg_value *pair[2])
{
    if (v->type != RG_JSON_ARRAY || v->count != 2)
        return rg_json_fail(r->json, v->at, "expected two values, [value, value]");
    RG_TRY(rg_graph_read_value(r, v->first, &pair[0]));
    return rg_graph_read_value(r, v->first->next, &pair[1]);
}

static rg_status read_marks(const rg_graph_reader *r)
{
    const rg_json_value *v = NULL;
    rg_value *pair[2] = { NULL, NULL };
    RG_TRY(rg_graph_read_list(r, r->json->root, "assignments", &v));
    for (; v != NULL; v = v->next) {
        RG_TRY(read_pair(r, v, pair));
        RG_TRY(rg_graph_refuse(r, v, rg_graph_assign(r->graph, pair[0], pair[1])));
    }
    RG_TRY(rg_graph_read_list(r, r->json->root, "stops", &v));
    for (; v != NULL; v = v->next) {
        RG_TRY(rg_graph_read_value(r, v, &pair[0]));
        RG_TRY(rg_graph_refuse(r, v, rg_value_stop_gradient(pair[0])));
    }
    RG_TRY(rg_graph_read_list(r, r->json->root, "gradients", &v));
    for (; v != NULL; v = v->next) {
        RG_TRY(read_pair(r, v, pair));
        pair[0]->gradient = pair[1];
    }
    return RG_OK;
}

static rg_status read_graph(const rg_graph_reader *r)
{
    static const char *const keys[] = { "retrograde", "sources", "source_states",
                                        "parameters", "nodes",   "results",
                                        "states",     "stops",   "assignments",
                                        "gradients",  NULL };
    const rg_json_value *root = r->json->root;
    RG_TRY(rg_graph_check_keys(r, root, "a graph", keys));
    const rg_json_value *version = rg_json_find(root, "retrograde");
    if (version == NULL || version->type != RG_JSON_NUMBER || strcmp(version->text, "1") != 0)
        return rg_json_fail(r->json, version != NULL ? version->at : root->at,
                            "expected \"retrograde\": 1, the version of the format");
    RG_TRY(read_sources(r));
    RG_TRY(read_parameters(r));
    RG_TRY(read_source_states(r));
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
        const rg_graph_reader r = { &json, made };
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
