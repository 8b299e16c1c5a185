/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The import of a model: inputs and initializers, nodes in their order, outputs. What is not
 * covered is gathered, so that one error names all of it. */
#include "onnx/import.h"

#include "core/dtype.h"
#include "core/shape.h"
#include "onnx/onnx_train.h"

#include <retrograde/nodes.h>

#include <stdio.h>
#include <string.h>

static const rg_allocator *const allocator = &rg_default_allocator;

/* ---- inputs and initializers ---- */

static rg_status add_input(rg_import *m, size_t index)
{
    const rg_proto_port *port = &m->model->inputs[index];
    const rg_tensor_desc *given = m->options.inputs != NULL && m->options.inputs[index].rank >= 0
                                      ? &m->options.inputs[index]
                                      : NULL;
    rg_known *known = NULL;
    rg_dtype dtype = RG_F32;
    RG_CHECK(port->name[0] != 0, RG_MALFORMED, "input %zu has no name", index);
    RG_TRY(rg_import_add(m, port->name, &known));
    RG_CHECK(given != NULL || port->rank >= 0, RG_INVALID_ARGUMENT,
             "the file does not say the shape of input '%.80s'; it must be given", port->name);
    RG_CHECK(rg_onnx_type_dtype(port->type, &dtype), RG_UNSUPPORTED,
             "input '%.80s' has elements of type %s", port->name, rg_onnx_type_name(port->type));
    const int32_t rank = given != NULL ? given->rank : port->rank;
    const int64_t *dims = given != NULL ? given->dims : port->dims;
    RG_CHECK(port->rank < 0 || rank == port->rank, RG_INVALID_ARGUMENT,
             "input '%.80s' has %d dimensions, but the file says %d", port->name, rank, port->rank);
    RG_CHECK(rank <= RG_MAX_RANK, RG_INVALID_ARGUMENT, "input '%.80s' has %d dimensions",
             port->name, rank);
    known->kind = RG_KNOWN_SOURCE;
    known->type = port->type;
    for (int32_t p = 0; p < RG_PROBES; p++) {
        int64_t sizes[RG_MAX_RANK];
        for (int32_t d = 0; d < rank; d++) {
            RG_CHECK(dims[d] >= 0 || d == 0, RG_INVALID_ARGUMENT,
                     "dimension %d of input '%.80s' is not known; it must be given", d, port->name);
            RG_CHECK(port->rank < 0 || port->dims[d] < 0 || dims[d] == port->dims[d] ||
                         (d == 0 && dims[d] < 0),
                     RG_INVALID_ARGUMENT,
                     "dimension %d of input '%.80s' is %lld, but the file says %lld", d, port->name,
                     (long long)dims[d], (long long)port->dims[d]);
            sizes[d] = dims[d] < 0 ? RG_PROBE_BATCH + p : dims[d];
            if (dims[d] < 0 && port->rank > 0 && port->dims[0] > 0 && port->dims[0] <= INT32_MAX)
                m->file_batch = port->dims[0];
        }
        known->shape[p] = rg_tensor_desc_dense(dtype, rank, sizes);
        RG_TRY(rg_shape_check(&known->shape[p], port->name, NULL));
    }
    return RG_OK;
}

/* Whether a tensor of one element is a factor or a bound rather than a parameter: by its name,
 * which exporters made for a number of the code, and in networks for images without dimensions. */
static bool is_constant(const rg_import *m, const rg_proto_tensor *tensor)
{
    const char *name = tensor->name;
    const bool made = strncmp(name, "onnx::", 6) == 0 || strstr(name, "onst") != NULL ||
                      (strncmp(name, "val_", 4) == 0 && name[4] >= '0' && name[4] <= '9');
    return tensor->count == 1 && (made || (tensor->rank == 0 && m->for_images != NULL));
}

static rg_status add_initializer(rg_import *m, const rg_proto_tensor *tensor)
{
    rg_known *known = NULL;
    rg_dtype dtype = RG_I64;
    RG_TRY(rg_import_add(m, tensor->name, &known));
    rg_onnx_type_dtype(tensor->type, &dtype);
    known->kind = RG_KNOWN_TENSOR;
    known->type = tensor->type;
    known->tensor = tensor;
    known->trained =
        !rg_type_is_integer(tensor->type) && !tensor->constant && !is_constant(m, tensor);
    known->shape[0] = known->shape[1] = rg_tensor_desc_dense(dtype, tensor->rank, tensor->dims);
    return RG_OK;
}

/* ---- nodes ---- */

/* Whether the list has an operator, whose entry begins with `head`. */
static bool is_listed(const char *list, const char *head)
{
    for (const char *at = list; at != NULL && (at = strstr(at, head)) != NULL; at++) {
        if (at == list || (at[-1] == ' ' && at[-2] == ';'))
            return true;
    }
    return false;
}

/* Remembers what is not covered: the sentence once per operator. */
static rg_status add_uncovered(rg_import *m, const rg_proto_node *node, const char *why)
{
    enum { MOST_TEXT = 4096 };
    char head[160], text[400];
    m->uncovered_count++;
    if (m->uncovered_length > MOST_TEXT)
        return RG_OK;
    const bool is_other = node->domain[0] != 0 && strcmp(node->domain, "ai.onnx") != 0;
    snprintf(head, sizeof head, "%.60s%s%.60s (node", is_other ? node->domain : "",
             is_other ? "." : "", node->type);
    if (is_listed(m->uncovered, head))
        return RG_OK;
    const int length = snprintf(text, sizeof text, "%s%s '%.60s'%s%.160s)",
                                m->uncovered_length > 0 ? "; " : "", head,
                                node->name[0] != 0       ? node->name
                                : node->output_count > 0 ? node->outputs[0]
                                                         : "",
                                why[0] != 0 ? ": " : "", why);
    while (m->uncovered_length + (size_t)length + 1 > m->uncovered_capacity) {
        const size_t old = m->uncovered_capacity;
        RG_TRY(rg_grow(allocator, (void **)&m->uncovered, &m->uncovered_capacity, old, 1));
        if (old == 0)
            m->uncovered[0] = 0;
    }
    memcpy(m->uncovered + m->uncovered_length, text, (size_t)length + 1);
    m->uncovered_length += (size_t)length;
    return RG_OK;
}

rg_status rg_import_attributes(const rg_proto_node *node, const char *known)
{
    for (size_t i = 0; i < node->attribute_count; i++) {
        const char *name = node->attributes[i].name;
        const size_t length = strlen(name);
        const char *at = known;
        bool found = false;
        while (at != NULL && !found && (at = strstr(at, name)) != NULL) {
            found = (at == known || at[-1] == ' ') && (at[length] == ' ' || at[length] == 0);
            at += length;
        }
        RG_CHECK(found, RG_UNSUPPORTED, "attribute '%.80s' is not covered", name);
    }
    return RG_OK;
}

/* Whether an input depends on something that is not covered. */
static bool is_behind(const rg_import *m, const rg_proto_node *node)
{
    for (size_t i = 0; i < node->input_count; i++) {
        const rg_known *known = rg_names_find(&m->names, node->inputs[i]);
        if (known != NULL && known->kind == RG_KNOWN_UNCOVERED)
            return true;
    }
    return false;
}

static rg_status convert_node(rg_import *m, const rg_proto_node *node)
{
    const rg_importer *op = rg_importer_find(node);
    bool folded;
    RG_CHECK(op != NULL, RG_UNSUPPORTED, "%s", "");
    RG_CHECK(node->output_count > 0, RG_MALFORMED, "it has no output");
    RG_CHECK(node->input_count <= (size_t)op->most, RG_MALFORMED,
             "it has %zu inputs; %d is the "
             "most",
             node->input_count, op->most);
    for (int32_t i = 0; i < op->least; i++)
        RG_CHECK(rg_node_has(node, (size_t)i), RG_MALFORMED, "input %d is not given", i);
    if (op->attributes != NULL)
        RG_TRY(rg_import_attributes(node, op->attributes));
    rg_status status = rg_import_fold(m, node, op, &folded);
    if (status != RG_UNSUPPORTED || op->convert == NULL) {
        RG_TRY(status);
        if (folded)
            return RG_OK;
    }
    status = RG_UNSUPPORTED;
    if (op->convert != NULL)
        status =
            rg_import_is_left_out(m, node) ? rg_convert_identity(m, node) : op->convert(m, node);
    else
        rg_fail(status, "of values that are no constants");
    if (status == RG_UNSUPPORTED && rg_graph_status(m->graph) == RG_OK)
        return rg_import_fold_trained(m, node, op);
    RG_TRY(status);
    return rg_import_fold_also(m, node, op);
}

static rg_status mark_uncovered(rg_import *m, const rg_proto_node *node)
{
    for (size_t i = 0; i < node->output_count; i++) {
        rg_known *known = NULL;
        if (node->outputs[i][0] == 0)
            continue;
        known = rg_names_find(&m->names, node->outputs[i]);
        if (known == NULL)
            RG_TRY(rg_import_add(m, node->outputs[i], &known));
        known->kind = RG_KNOWN_UNCOVERED;
    }
    return RG_OK;
}

static rg_status import_node(rg_import *m, const rg_proto_node *node)
{
    m->node = node;
    if (is_behind(m, node)) {
        if (rg_importer_find(node) == NULL)
            RG_TRY(add_uncovered(m, node, ""));
        return mark_uncovered(m, node);
    }
    const rg_status status = convert_node(m, node);
    if (status == RG_UNSUPPORTED && rg_graph_status(m->graph) == RG_OK) {
        RG_TRY(add_uncovered(m, node, rg_importer_find(node) != NULL ? rg_error_text() : ""));
        return mark_uncovered(m, node);
    }
    if (status == RG_OK)
        return RG_OK;
    rg_error_prefix("node '%.80s' (%.40s): ",
                    node->name[0] != 0       ? node->name
                    : node->output_count > 0 ? node->outputs[0]
                                             : "",
                    node->type);
    return status == RG_INVALID_ARGUMENT ? RG_MALFORMED : status; /* the file's, not the caller's */
}

/* ---- outputs ---- */

/* A flow of an output: a value that a node makes. */
static rg_status make_output(rg_import *m, rg_known *known, rg_flow *flow)
{
    const char *name = known->name;
    const rg_proto_node node = { .name = "", .inputs = &name, .input_count = 1 };
    RG_TRY(rg_import_any(m, &node, 0, flow));
    const bool made = rg_value_get_kind(flow->value) == RG_VALUE_OUTPUT;
    return made ? RG_OK : rg_flow_neuron(m, flow, RG_NEURON_NONE, NULL, 0);
}

static rg_status add_output(rg_import *m, const rg_proto_port *port)
{
    rg_known *known = rg_names_find(&m->names, port->name);
    rg_flow flow = { 0 };
    RG_CHECK(known != NULL, RG_MALFORMED, "no node makes output '%.80s'", port->name);
    RG_CHECK(known->kind != RG_KNOWN_UNCOVERED, RG_UNSUPPORTED,
             "not covered: output '%.80s' is, or needs, an optional output of a node that is not "
             "computed",
             port->name);
    const bool constant = rg_known_is_constant(known) && !known->has_flow;
    RG_CHECK(!constant || m->for_images == NULL, RG_UNSUPPORTED,
             "output '%.80s' is constant: it does not depend on the images", port->name);
    if (!constant) {
        RG_TRY(make_output(m, known, &flow));
        RG_TRY(m->for_images != NULL ? rg_import_image_output(m, &flow)
                                     : rg_graph_result(m->graph, flow.value, port->name));
    }
    rg_onnx_entry entry = {
        .info = { port->name, RG_ONNX_OUTPUT, flow.value, false, known->shape[0], { 0 } },
        .tensor = known->tensor,
        .array = known->array[0],
        .shape = { known->shape[0], known->shape[1] }
    };
    entry.info.desc.dtype = constant ? known->shape[0].dtype : flow.shape[0].dtype;
    for (int32_t d = 0; d < known->shape[0].rank; d++) {
        entry.info.order[d] = constant ? d : flow.order[d];
        if (known->shape[0].dims[d] != known->shape[1].dims[d])
            entry.info.desc.dims[d] = RG_ONNX_ANY_DIM;
    }
    return rg_onnx_network_add(m->network, &entry);
}

/* All nodes, or of a network for images those that its output needs. */
static rg_status import_nodes(rg_import *m)
{
    const rg_onnx *model = m->model;
    rg_names needed = { 0 };
    rg_status status = m->for_images != NULL ? rg_onnx_needed(model, &needed) : RG_OK;
    for (size_t i = 0; i < model->node_count && status == RG_OK; i++) {
        if (m->for_images == NULL || rg_onnx_is_needed(&model->nodes[i], &needed))
            status = import_node(m, &model->nodes[i]);
    }
    rg_names_clear(&needed);
    return status;
}

/* Inputs that nothing reads are sources all the same, with no place in the graph. */
static rg_status import_all(rg_import *m)
{
    const rg_onnx *model = m->model;
    for (size_t i = 0; i < model->initializer_count; i++)
        RG_TRY(add_initializer(m, &model->initializers[i]));
    for (size_t i = 0; i < model->input_count; i++)
        RG_TRY(add_input(m, i));
    for (size_t i = 0; i < model->node_count; i++) {
        const char *type = model->nodes[i].type;
        m->images |= strcmp(type, "Conv") == 0 || strstr(type, "Pool") != NULL;
    }
    RG_TRY(import_nodes(m));
    RG_CHECK(m->uncovered_count == 0, RG_UNSUPPORTED, "not covered: %s", m->uncovered);
    for (size_t i = 0; i < model->output_count && (i == 0 || m->for_images == NULL); i++)
        RG_TRY(add_output(m, &model->outputs[i]));
    return rg_graph_status(m->graph);
}

rg_onnx_options rg_onnx_options_default(void)
{
    return (rg_onnx_options){ .size = sizeof(rg_onnx_options) };
}

static rg_status check_options(const rg_onnx_options *options)
{
    RG_CHECK(options->size == sizeof *options, RG_INVALID_ARGUMENT,
             "rg_onnx_network_create: options.size is %u; start from rg_onnx_options_default()",
             options->size);
    RG_CHECK(!options->has_dtype || rg_dtype_is_data(options->dtype), RG_INVALID_ARGUMENT,
             "rg_onnx_network_create: the dtype must be f32, f64, f16 or bf16");
    return RG_OK;
}

static rg_status keep_options(rg_import *m)
{
    rg_tensor_desc *inputs = NULL;
    m->network->options = m->options;
    if (m->options.inputs == NULL || m->model->input_count == 0)
        return RG_OK;
    RG_TRY(rg_arena_take(&m->network->arena, m->model->input_count, sizeof *inputs, &inputs));
    memcpy(inputs, m->options.inputs, m->model->input_count * sizeof *inputs);
    m->network->options.inputs = inputs;
    return RG_OK;
}

/* *mixed: the type to compute in, where values of several types are why it failed. */
static rg_status import_once(const rg_onnx *model, const rg_onnx_options *options,
                             const struct rg_onnx_images *images, int32_t *mixed,
                             rg_onnx_network **network)
{
    rg_import m = { .model = model, .options = *options, .for_images = images };
    void *made;
    *network = NULL;
    RG_TRY(check_options(&m.options));
    RG_TRY(rg_allocate_zero(allocator, sizeof **network, &made));
    m.network = made;
    m.network->model = model;
    rg_status status = rg_graph_create(&m.network->graph);
    m.graph = m.network->graph;
    if (status == RG_OK)
        status = keep_options(&m);
    if (status == RG_OK)
        status = import_all(&m);
    rg_names_clear(&m.names);
    rg_release(allocator, m.uncovered, m.uncovered_capacity);
    *mixed = m.mixed;
    if (status != RG_OK) {
        rg_error_prefix("%s: ", model->name);
        rg_onnx_network_destroy(m.network);
        return status;
    }
    *network = m.network;
    return RG_OK;
}

/* A model of several types of floating-point numbers is computed in the widest one. */
rg_status rg_onnx_import(const rg_onnx *model, const rg_onnx_options *options,
                         const struct rg_onnx_images *images, rg_onnx_network **network)
{
    rg_onnx_options wide = *options;
    int32_t mixed = 0;
    const rg_status status = import_once(model, options, images, &mixed, network);
    if (status != RG_UNSUPPORTED || mixed == 0 || options->has_dtype)
        return status;
    wide.has_dtype = true;
    wide.dtype = mixed == RG_ONNX_DOUBLE ? RG_F64 : RG_F32;
    return import_once(model, &wide, images, &mixed, network);
}

rg_status rg_onnx_network_create(const rg_onnx *model, const rg_onnx_options *options,
                                 rg_onnx_network **network)
{
    const rg_onnx_options defaults = rg_onnx_options_default();
    RG_CHECK_NOT_NULL(network);
    *network = NULL;
    RG_CHECK_NOT_NULL(model);
    return rg_onnx_import(model, options != NULL ? options : &defaults, NULL, network);
}
