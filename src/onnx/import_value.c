/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Names of the file: what they stand for, and inputs and constants as values of the graph. */
#include "onnx/import.h"

#include "core/dtype.h"
#include "core/shape.h"

#include <stdio.h>
#include <string.h>

bool rg_node_has(const rg_proto_node *node, size_t input)
{
    return input < node->input_count && node->inputs[input][0] != 0;
}

rg_status rg_import_known(rg_import *m, const rg_proto_node *node, size_t input, rg_known **known)
{
    RG_CHECK(rg_node_has(node, input), RG_MALFORMED, "input %zu is not given", input);
    *known = rg_names_find(&m->names, node->inputs[input]);
    RG_CHECK(*known != NULL, RG_MALFORMED,
             "input '%.80s' is neither an input of the graph nor made by a node before this one",
             node->inputs[input]);
    RG_CHECK((*known)->kind != RG_KNOWN_UNCOVERED, RG_UNSUPPORTED, "its input is not covered");
    return RG_OK;
}

rg_status rg_import_add(rg_import *m, const char *name, rg_known **known)
{
    RG_CHECK(rg_names_find(&m->names, name) == NULL, RG_MALFORMED, "'%.80s' is made twice", name);
    RG_TRY(rg_arena_take(&m->network->arena, 1, sizeof **known, known));
    (*known)->name = name;
    return rg_names_add(&m->names, name, *known);
}

rg_status rg_import_define_uncovered(rg_import *m, const rg_proto_node *node, size_t output)
{
    rg_known *known = NULL;
    if (output >= node->output_count || node->outputs[output][0] == 0)
        return RG_OK;
    RG_TRY(rg_import_add(m, node->outputs[output], &known));
    known->kind = RG_KNOWN_UNCOVERED;
    return RG_OK;
}

/* Shapes in the order of the file. */
static void file_shapes(const rg_flow *flow, rg_tensor_desc shape[RG_PROBES])
{
    int64_t dims[RG_MAX_RANK];
    for (int32_t p = 0; p < RG_PROBES; p++) {
        rg_flow_dims(flow, p, dims);
        shape[p] = rg_tensor_desc_dense(flow->shape[p].dtype, flow->shape[p].rank, dims);
    }
}

rg_status rg_import_define(rg_import *m, const rg_proto_node *node, size_t output,
                           const rg_flow *flow)
{
    rg_known *known = NULL;
    if (output >= node->output_count || node->outputs[output][0] == 0)
        return RG_OK;
    RG_TRY(rg_import_add(m, node->outputs[output], &known));
    known->kind = RG_KNOWN_FLOW;
    known->type = rg_onnx_type_of(flow->shape[0].dtype);
    known->has_flow = true;
    known->flow = *flow;
    file_shapes(flow, known->shape);
    rg_node *made = rg_value_node(flow->value);
    if (made != NULL && rg_graph_find_node(m->graph, known->name) == NULL)
        RG_TRY(rg_node_set_label(made, known->name));
    return RG_OK;
}

rg_status rg_import_define_array(rg_import *m, const char *name, const rg_array *a,
                                 const rg_array *b)
{
    rg_known *known = NULL;
    rg_dtype dtype = RG_I64;
    RG_TRY(rg_import_add(m, name, &known));
    rg_onnx_type_dtype(a->type, &dtype);
    known->kind = RG_KNOWN_ARRAY;
    known->type = a->type;
    known->array[0] = a;
    known->array[1] = b;
    for (int32_t p = 0; p < RG_PROBES; p++)
        known->shape[p] = rg_tensor_desc_dense(dtype, known->array[p]->rank, known->array[p]->dims);
    return RG_OK;
}

/* ---- constants and inputs as values of the graph ---- */

static bool same_shapes(const rg_known *known)
{
    return rg_shape_same_dims(&known->shape[0], &known->shape[1]) &&
           known->array[0] == known->array[1];
}

static rg_status add_entry(rg_import *m, const rg_known *known, rg_onnx_role role)
{
    rg_onnx_entry entry = {
        .info = { known->name, role, known->flow.value, known->trained, known->shape[0], { 0 } },
        .tensor = known->tensor,
        .array = known->array[0],
        .shape = { known->shape[0], known->shape[1] }
    };
    entry.info.desc.dtype = known->flow.shape[0].dtype;
    for (int32_t d = 0; d < entry.info.desc.rank; d++) {
        if (known->shape[0].dims[d] != known->shape[1].dims[d])
            entry.info.desc.dims[d] = RG_ONNX_ANY_DIM;
    }
    memcpy(entry.info.order, known->flow.order, sizeof entry.info.order);
    return rg_onnx_network_add(m->network, &entry);
}

/* The dtype that values of a type have in the network. */
static rg_status dtype_of(const rg_import *m, const rg_known *known, rg_dtype *dtype)
{
    RG_CHECK(rg_onnx_type_dtype(known->type, dtype), RG_UNSUPPORTED,
             "'%.80s' has elements of type %s", known->name, rg_onnx_type_name(known->type));
    if (m->options.has_dtype && rg_dtype_is_data(*dtype))
        *dtype = known->wide && rg_dtype_size(m->options.dtype) == 2 ? RG_F32 : m->options.dtype;
    return RG_OK;
}

/* Makes the source or parameter, with its dimensions in this order. */
static rg_status make_flow(rg_import *m, rg_known *known, const int32_t order[])
{
    rg_dtype dtype;
    RG_CHECK(known->kind != RG_KNOWN_ERF, RG_UNSUPPORTED, "%s", RG_ERF_TEXT);
    RG_TRY(dtype_of(m, known, &dtype));
    const bool source = known->kind == RG_KNOWN_SOURCE;
    RG_CHECK(source || same_shapes(known), RG_UNSUPPORTED,
             "the constant '%.80s' depends on the size of the batch", known->name);
    RG_CHECK(source || rg_dtype_is_data(dtype), RG_UNSUPPORTED,
             "the constant '%.80s' has integers, which no op takes", known->name);
    if (source && m->for_images != NULL) {
        RG_TRY(rg_import_image_source(m, known, dtype));
        known->has_flow = true;
        return add_entry(m, known, RG_ONNX_INPUT);
    }
    rg_flow_plain_order(&known->flow);
    memcpy(known->flow.order, order, sizeof(int32_t) * (size_t)known->shape[0].rank);
    for (int32_t p = 0; p < RG_PROBES; p++) {
        int64_t dims[RG_MAX_RANK];
        for (int32_t d = 0; d < known->shape[p].rank; d++)
            dims[d] = known->shape[p].dims[order[d]];
        known->flow.shape[p] = rg_tensor_desc_dense(dtype, known->shape[p].rank, dims);
    }
    known->flow.value = source ? rg_graph_source(m->graph, known->name)
                               : rg_graph_parameter(m->graph, known->name, &known->flow.shape[0]);
    RG_TRY(rg_graph_status(m->graph));
    if (!source && !known->trained)
        RG_TRY(rg_value_stop_gradient(known->flow.value));
    known->has_flow = true;
    return add_entry(m, known, source ? RG_ONNX_INPUT : RG_ONNX_PARAMETER);
}

/* The order in which inputs and constants are made where any will do. */
static void free_order(const rg_import *m, const rg_known *known, int32_t order[])
{
    const int32_t rank = known->shape[0].rank;
    for (int32_t d = 0; d < rank; d++)
        order[d] = d;
    if (known->kind == RG_KNOWN_SOURCE && rank == 4 && m->images)
        rg_channels_last_order(rank, order);
}

rg_status rg_import_any(rg_import *m, const rg_proto_node *node, size_t input, rg_flow *flow)
{
    rg_known *known = NULL;
    int32_t order[RG_MAX_RANK];
    RG_TRY(rg_import_known(m, node, input, &known));
    if (!known->has_flow) {
        free_order(m, known, order);
        RG_TRY(make_flow(m, known, order));
    }
    *flow = known->flow;
    return RG_OK;
}

rg_status rg_import_ordered(rg_import *m, const rg_proto_node *node, size_t input,
                            const int32_t order[], rg_flow *flow)
{
    rg_known *known = NULL;
    RG_TRY(rg_import_known(m, node, input, &known));
    if (!known->has_flow)
        RG_TRY(make_flow(m, known, order));
    *flow = known->flow;
    return rg_flow_reorder(m, flow, order);
}

rg_status rg_import_plain(rg_import *m, const rg_proto_node *node, size_t input, rg_flow *flow)
{
    static const int32_t order[RG_MAX_RANK] = { 0, 1, 2, 3, 4, 5, 6, 7 };
    return rg_import_ordered(m, node, input, order, flow);
}

rg_status rg_import_channels_last(rg_import *m, const rg_proto_node *node, size_t input,
                                  rg_flow *flow)
{
    rg_known *known = NULL;
    int32_t order[RG_MAX_RANK];
    RG_TRY(rg_import_known(m, node, input, &known));
    rg_channels_last_order(known->shape[0].rank, order);
    return rg_import_ordered(m, node, input, order, flow);
}

rg_status rg_import_define_same(rg_import *m, const rg_proto_node *node, size_t output,
                                rg_known *known)
{
    if (output >= node->output_count || node->outputs[output][0] == 0)
        return RG_OK;
    const char *name = node->outputs[output];
    RG_CHECK(rg_names_find(&m->names, name) == NULL, RG_MALFORMED, "'%.80s' is made twice", name);
    return rg_names_add(&m->names, name, known);
}

rg_status rg_import_name(rg_import *m, const char **name)
{
    char text[64], *made;
    snprintf(text, sizeof text, "retrograde.constant%d", m->made++);
    RG_TRY(rg_arena_text(&m->network->arena, text, strlen(text), &made));
    *name = made;
    return RG_OK;
}

rg_status rg_import_constant(rg_import *m, const rg_array *array, const int32_t order[],
                             rg_flow *flow)
{
    const char *name;
    rg_known *known = NULL;
    RG_TRY(rg_import_name(m, &name));
    RG_TRY(rg_import_define_array(m, name, array, array));
    known = rg_names_find(&m->names, name);
    RG_TRY(make_flow(m, known, order));
    *flow = known->flow;
    return RG_OK;
}

rg_status rg_import_number(rg_import *m, rg_dtype dtype, double number, rg_flow *flow)
{
    rg_array *array = NULL;
    RG_TRY(rg_arena_take(&m->network->arena, 1, sizeof *array, &array));
    RG_TRY(rg_array_create(m, rg_onnx_type_of(dtype), 0, NULL, false, array));
    array->data[0].f = number;
    return rg_import_constant(m, array, (const int32_t[]){ 0 }, flow);
}
