/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The messages of an ONNX file: model, graph, nodes, attributes, inputs and outputs. Subgraphs and
 * functions are not entered, so nesting costs nothing. */
#include "onnx/onnx_file.h"

#include "core/dtype.h"
#include "files/json.h"

#include <string.h>

enum { MOST_NODES = 1 << 20, NEWEST_OPSET = 30, OLDEST_OPSET = 7 };

rg_status rg_proto_read_text(rg_arena *arena, const rg_message_field *field, const char *name,
                             const char **text)
{
    char *copy;
    const size_t length = rg_message_size(&field->bytes);
    RG_TRY(rg_message_expect(field, RG_WIRE_BYTES, name));
    RG_CHECK(length == 0 || memchr(field->bytes.at, 0, length) == NULL, RG_MALFORMED,
             "%s has a 0 byte in it", name);
    RG_TRY(rg_arena_text(arena, (const char *)field->bytes.at, length, &copy));
    RG_CHECK(rg_text_is_utf8(copy), RG_MALFORMED, "%s is not UTF-8", name);
    *text = copy;
    return RG_OK;
}

/* ---- attributes ---- */

/* A list of numbers: single fields and packed ones. */
typedef struct number_list {
    uint32_t number; /* of the field */
    uint32_t wire;   /* of a single number */
    size_t count;
    int64_t *ints; /* or */
    float *floats;
} number_list;

static void add_number(number_list *list, uint64_t value)
{
    if (list->ints != NULL)
        list->ints[list->count] = (int64_t)value;
    if (list->floats != NULL)
        list->floats[list->count] = rg_float_of_bits((uint32_t)value);
    list->count++;
}

/* Counts the numbers, and stores them where there is memory. */
static rg_status read_numbers(rg_message message, number_list *list)
{
    rg_message_field field;
    rg_status failed = RG_OK;
    list->count = 0;
    while (rg_message_next(&message, &field, &failed)) {
        if (field.number != list->number)
            continue;
        if (field.wire == list->wire) {
            add_number(list, field.value);
            continue;
        }
        RG_TRY(rg_message_expect(&field, RG_WIRE_BYTES, "a list of numbers"));
        rg_message packed = field.bytes;
        while (packed.at < packed.end) {
            uint64_t value = 0;
            if (list->wire == RG_WIRE_VARINT) {
                RG_TRY(rg_message_varint(&packed, &value));
            } else {
                RG_CHECK(rg_message_size(&packed) >= 4, RG_MALFORMED, "a packed list is truncated");
                for (int i = 0; i < 4; i++)
                    value |= (uint64_t)*packed.at++ << (8 * i);
            }
            add_number(list, value);
        }
    }
    return failed;
}

/* Fields of AttributeProto: f 2, i 3, s 4, t 5, g 6, floats 7, ints 8, strings 9, type 20. */
static rg_status read_attribute_field(rg_arena *arena, const rg_message_field *field,
                                      rg_proto_attribute *attribute, int32_t *type)
{
    rg_message tensor;
    switch (field->number) {
    case 1:
        return rg_proto_read_text(arena, field, "its name", &attribute->name);
    case 2:
        RG_TRY(rg_message_expect(field, RG_WIRE_32, "f"));
        attribute->f = rg_float_of_bits((uint32_t)field->value);
        attribute->type = RG_PROTO_FLOAT;
        return RG_OK;
    case 3:
        RG_TRY(rg_message_expect(field, RG_WIRE_VARINT, "i"));
        attribute->i = (int64_t)field->value;
        attribute->type = RG_PROTO_INT;
        return RG_OK;
    case 4:
        attribute->type = RG_PROTO_STRING;
        if (rg_proto_read_text(arena, field, "s", &attribute->s) == RG_MALFORMED)
            attribute->type = RG_PROTO_OTHER; /* bytes, which no operator of ours has */
        return RG_OK;
    case 5:
        RG_TRY(rg_message_expect(field, RG_WIRE_BYTES, "t"));
        tensor = field->bytes;
        attribute->type = RG_PROTO_TENSOR;
        RG_TRY(rg_arena_take(arena, 1, sizeof(rg_proto_tensor), &attribute->tensor));
        return rg_proto_read_tensor(arena, tensor, attribute->tensor);
    case 20:
        RG_TRY(rg_message_expect(field, RG_WIRE_VARINT, "type"));
        *type = field->value <= INT32_MAX ? (int32_t)field->value : -1;
        return RG_OK;
    case 21:
        return rg_fail(RG_UNSUPPORTED, "it refers to an attribute of a function");
    default:
        return RG_OK;
    }
}

static rg_status read_lists(rg_arena *arena, rg_message message, rg_proto_attribute *attribute)
{
    number_list ints = { .number = 8, .wire = RG_WIRE_VARINT };
    number_list floats = { .number = 7, .wire = RG_WIRE_32 };
    RG_TRY(read_numbers(message, &ints));
    RG_TRY(read_numbers(message, &floats));
    RG_TRY(rg_arena_take(arena, ints.count, sizeof(int64_t), &ints.ints));
    RG_TRY(rg_arena_take(arena, floats.count, sizeof(float), &floats.floats));
    attribute->ints = ints.ints;
    attribute->floats = floats.floats;
    attribute->count = ints.count + floats.count;
    if (ints.count > 0)
        RG_TRY(read_numbers(message, &ints));
    if (floats.count > 0)
        RG_TRY(read_numbers(message, &floats));
    RG_CHECK(ints.count == 0 || floats.count == 0, RG_MALFORMED,
             "it mixes integers and floating-point numbers");
    if (attribute->count > 0)
        attribute->type = ints.count > 0 ? RG_PROTO_INTS : RG_PROTO_FLOATS;
    return RG_OK;
}

static rg_status fill_attribute(rg_arena *arena, rg_message message, rg_proto_attribute *attribute)
{
    const rg_message whole = message;
    rg_message_field field;
    rg_status failed = RG_OK;
    int32_t type = RG_PROTO_NONE;
    while (rg_message_next(&message, &field, &failed))
        RG_TRY(read_attribute_field(arena, &field, attribute, &type));
    RG_TRY(failed);
    RG_TRY(read_lists(arena, whole, attribute));
    RG_CHECK(attribute->name[0] != 0, RG_MALFORMED, "it has no name");
    /* A value of 0, an empty text and an empty list may have no field of their own. */
    if (attribute->type == RG_PROTO_OTHER)
        type = RG_PROTO_OTHER;
    if (attribute->type == RG_PROTO_NONE || type >= RG_PROTO_OTHER)
        attribute->type =
            type >= RG_PROTO_OTHER || type < 0 ? RG_PROTO_OTHER : (rg_proto_attribute_type)type;
    else
        RG_CHECK(type == RG_PROTO_NONE || type == (int32_t)attribute->type, RG_MALFORMED,
                 "its type is %d, but its value is of type %d", type, (int)attribute->type);
    RG_CHECK(attribute->type != RG_PROTO_TENSOR || attribute->tensor != NULL, RG_MALFORMED,
             "it has no tensor");
    if (attribute->s == NULL)
        attribute->s = "";
    return RG_OK;
}

static rg_status read_attribute(rg_arena *arena, rg_message message, rg_proto_attribute *attribute)
{
    *attribute = (rg_proto_attribute){ .name = "" };
    const rg_status status = fill_attribute(arena, message, attribute);
    if (status != RG_OK)
        rg_error_prefix("attribute '%.80s': ", attribute->name);
    return status;
}

/* ---- nodes ---- */

/* Fields of NodeProto: input 1, output 2, name 3, op_type 4, attribute 5, domain 7. */
static rg_status fill_node(rg_arena *arena, rg_message message, rg_proto_node *node)
{
    rg_message_field field;
    rg_status failed = RG_OK;
    while (rg_message_next(&message, &field, &failed)) {
        switch (field.number) {
        case 1:
            RG_TRY(
                rg_proto_read_text(arena, &field, "an input", &node->inputs[node->input_count++]));
            break;
        case 2:
            RG_TRY(rg_proto_read_text(arena, &field, "an output",
                                      &node->outputs[node->output_count++]));
            break;
        case 5:
            RG_TRY(rg_message_expect(&field, RG_WIRE_BYTES, "an attribute"));
            RG_TRY(read_attribute(arena, field.bytes, &node->attributes[node->attribute_count++]));
            break;
        default:
            break;
        }
    }
    RG_TRY(failed);
    for (size_t i = 0; i < node->attribute_count; i++) {
        for (size_t j = 0; j < i; j++)
            RG_CHECK(strcmp(node->attributes[i].name, node->attributes[j].name) != 0, RG_MALFORMED,
                     "attribute '%.80s' is given twice", node->attributes[i].name);
    }
    return RG_OK;
}

static rg_status name_node(rg_arena *arena, rg_message message, rg_proto_node *node)
{
    rg_message_field field;
    rg_status failed = RG_OK;
    while (rg_message_next(&message, &field, &failed)) {
        if (field.number == 3)
            RG_TRY(rg_proto_read_text(arena, &field, "the name of a node", &node->name));
        else if (field.number == 4)
            RG_TRY(rg_proto_read_text(arena, &field, "op_type of a node", &node->type));
        else if (field.number == 7)
            RG_TRY(rg_proto_read_text(arena, &field, "domain of a node", &node->domain));
    }
    return failed;
}

static rg_status read_node(rg_arena *arena, rg_message message, rg_proto_node *node)
{
    enum { MOST_ATTRIBUTES = 256 };
    *node = (rg_proto_node){ .name = "", .type = "", .domain = "", .message = message };
    RG_TRY(name_node(arena, message, node));
    const size_t attributes = rg_message_count(message, 5);
    RG_CHECK(attributes <= MOST_ATTRIBUTES, RG_MALFORMED, "node '%.80s' has %zu attributes",
             node->name, attributes);
    RG_TRY(rg_arena_take(arena, rg_message_count(message, 1), sizeof(char *), &node->inputs));
    RG_TRY(rg_arena_take(arena, rg_message_count(message, 2), sizeof(char *), &node->outputs));
    RG_TRY(rg_arena_take(arena, attributes, sizeof(rg_proto_attribute), &node->attributes));
    const rg_status status = fill_node(arena, message, node);
    if (status != RG_OK)
        rg_error_prefix("node '%.80s' (%.40s): ", node->name, node->type);
    return status;
}

/* ---- inputs and outputs ---- */

/* TensorShapeProto: dim 1, with dim_value 1. */
static rg_status read_shape(rg_message message, rg_proto_port *port)
{
    rg_message_field field, inner;
    rg_status failed = RG_OK;
    port->rank = 0;
    while (rg_message_next(&message, &field, &failed)) {
        if (field.number != 1)
            continue;
        RG_TRY(rg_message_expect(&field, RG_WIRE_BYTES, "dim"));
        RG_CHECK(port->rank < RG_MAX_RANK, RG_UNSUPPORTED, "it has more than %d dimensions",
                 RG_MAX_RANK);
        rg_message dim = field.bytes;
        int64_t length = RG_ONNX_ANY_DIM;
        while (rg_message_next(&dim, &inner, &failed)) {
            if (inner.number == 1 && inner.wire == RG_WIRE_VARINT && (int64_t)inner.value > 0)
                length = (int64_t)inner.value;
        }
        port->dims[port->rank++] = length;
    }
    return failed;
}

/* TypeProto: tensor_type 1, with elem_type 1 and shape 2. */
static rg_status read_type(rg_message message, rg_proto_port *port)
{
    rg_message_field field, inner;
    rg_status failed = RG_OK;
    while (rg_message_next(&message, &field, &failed)) {
        if (field.number != 1)
            continue;
        RG_TRY(rg_message_expect(&field, RG_WIRE_BYTES, "tensor_type"));
        rg_message tensor = field.bytes;
        while (rg_message_next(&tensor, &inner, &failed)) {
            if (inner.number == 1 && inner.wire == RG_WIRE_VARINT)
                port->type = inner.value <= INT32_MAX ? (int32_t)inner.value : -1;
            else if (inner.number == 2 && inner.wire == RG_WIRE_BYTES)
                RG_TRY(read_shape(inner.bytes, port));
        }
    }
    return failed;
}

static rg_status read_port(rg_arena *arena, rg_message message, rg_proto_port *port)
{
    rg_message_field field;
    rg_status failed = RG_OK;
    *port = (rg_proto_port){ .name = "", .rank = RG_ONNX_ANY_RANK };
    while (rg_message_next(&message, &field, &failed)) {
        rg_status status = RG_OK;
        if (field.number == 1) {
            status = rg_proto_read_text(arena, &field, "the name of an input", &port->name);
        } else if (field.number == 2) {
            RG_TRY(rg_message_expect(&field, RG_WIRE_BYTES, "type"));
            status = read_type(field.bytes, port);
        }
        if (status != RG_OK) {
            rg_error_prefix("'%.80s': ", port->name);
            return status;
        }
    }
    return failed;
}

/* ---- graph and model ---- */

/* Fields of GraphProto: node 1, initializer 5, input 11, output 12, sparse_initializer 15. */
static rg_status read_graph_field(rg_onnx *model, const rg_message_field *field)
{
    rg_arena *arena = &model->arena;
    switch (field->number) {
    case 1:
        RG_TRY(rg_message_expect(field, RG_WIRE_BYTES, "a node"));
        return read_node(arena, field->bytes, &model->nodes[model->node_count++]);
    case 5:
        RG_TRY(rg_message_expect(field, RG_WIRE_BYTES, "an initializer"));
        return rg_proto_read_tensor(arena, field->bytes,
                                    &model->initializers[model->initializer_count++]);
    case 11:
        RG_TRY(rg_message_expect(field, RG_WIRE_BYTES, "an input"));
        return read_port(arena, field->bytes, &model->inputs[model->input_count++]);
    case 12:
        RG_TRY(rg_message_expect(field, RG_WIRE_BYTES, "an output"));
        return read_port(arena, field->bytes, &model->outputs[model->output_count++]);
    case 15:
        return rg_fail(RG_UNSUPPORTED, "the graph has sparse initializers");
    default:
        return RG_OK;
    }
}

static rg_status read_graph(rg_onnx *model)
{
    rg_arena *arena = &model->arena;
    rg_message message = model->graph;
    rg_message_field field;
    rg_status failed = RG_OK;
    const size_t nodes = rg_message_count(message, 1), tensors = rg_message_count(message, 5);
    RG_CHECK(nodes <= MOST_NODES && tensors <= MOST_NODES, RG_UNSUPPORTED,
             "the graph has %zu nodes and %zu initializers; at most %d are read", nodes, tensors,
             MOST_NODES);
    RG_TRY(rg_arena_take(arena, nodes, sizeof(rg_proto_node), &model->nodes));
    RG_TRY(rg_arena_take(arena, tensors, sizeof(rg_proto_tensor), &model->initializers));
    RG_TRY(
        rg_arena_take(arena, rg_message_count(message, 11), sizeof(rg_proto_port), &model->inputs));
    RG_TRY(rg_arena_take(arena, rg_message_count(message, 12), sizeof(rg_proto_port),
                         &model->outputs));
    while (rg_message_next(&message, &field, &failed))
        RG_TRY(read_graph_field(model, &field));
    return failed;
}

/* OperatorSetIdProto: domain 1, version 2. */
static rg_status read_opset(rg_onnx *model, rg_message message)
{
    const char *domain = "";
    int64_t version = 0;
    rg_message_field field;
    rg_status failed = RG_OK;
    while (rg_message_next(&message, &field, &failed)) {
        if (field.number == 1)
            RG_TRY(rg_proto_read_text(&model->arena, &field, "domain of opset_import", &domain));
        else if (field.number == 2 && field.wire == RG_WIRE_VARINT)
            version = (int64_t)field.value;
    }
    RG_TRY(failed);
    if (domain[0] == 0 || strcmp(domain, "ai.onnx") == 0)
        model->opset = version;
    return RG_OK;
}

/* Fields of ModelProto: ir_version 1, graph 7, opset_import 8. */
rg_status rg_proto_read_model(rg_onnx *model)
{
    RG_CHECK(model->file.size > 0, RG_MALFORMED, "the file is empty");
    rg_message message = { (const uint8_t *)model->file.data,
                           (const uint8_t *)model->file.data + model->file.size };
    rg_message_field field;
    rg_status failed = RG_OK;
    bool has_graph = false;
    while (rg_message_next(&message, &field, &failed)) {
        if (field.number == 1) {
            RG_TRY(rg_message_expect(&field, RG_WIRE_VARINT, "ir_version"));
            model->ir_version = (int64_t)field.value;
        } else if (field.number == 7) {
            RG_TRY(rg_message_expect(&field, RG_WIRE_BYTES, "graph"));
            RG_CHECK(!has_graph, RG_MALFORMED, "the model has two graphs");
            model->graph = field.bytes;
            has_graph = true;
        } else if (field.number == 8) {
            RG_TRY(rg_message_expect(&field, RG_WIRE_BYTES, "opset_import"));
            RG_TRY(read_opset(model, field.bytes));
        }
    }
    RG_TRY(failed);
    RG_CHECK(has_graph, RG_MALFORMED, "it is not an ONNX model: there is no graph in it");
    RG_CHECK(model->opset != 0, RG_UNSUPPORTED, "not covered: it uses no operators of ai.onnx");
    RG_CHECK(model->opset >= OLDEST_OPSET && model->opset <= NEWEST_OPSET, RG_UNSUPPORTED,
             "it uses operator set %lld; %d to %d are read", (long long)model->opset, OLDEST_OPSET,
             NEWEST_OPSET);
    return read_graph(model);
}
