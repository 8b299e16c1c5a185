/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Models without their weights: all that the graph of a network follows from. */
#include "onnx/onnx_write.h"

#include "graph/name_index.h"

#include <string.h>

/* Shorter lists may be sizes, bounds or factors, which the graph depends on. */
enum { MOST_KEPT = 64 };

static bool is_weight(const rg_proto_tensor *tensor)
{
    return tensor->count > MOST_KEPT && !rg_type_is_integer(tensor->type);
}

/* TensorProto: dims 1, data_type 2, name 8, raw_data 9. `data` may be NULL. */
static void write_tensor(rg_writer *writer, const rg_proto_tensor *tensor, const char *name,
                         const void *data, size_t bytes)
{
    const size_t begin = rg_write_begin(writer);
    for (int32_t d = 0; d < tensor->rank; d++)
        rg_write_varint(writer, 1, (uint64_t)tensor->dims[d]);
    rg_write_varint(writer, 2, (uint64_t)tensor->type);
    rg_write_text(writer, 8, name);
    if (data != NULL)
        rg_write_bytes(writer, 9, data, bytes);
    rg_write_end(writer, 5, begin);
}

/* External elements move into the model, as nothing else is kept. */
static rg_status write_inside(rg_writer *writer, const rg_onnx *model,
                              const rg_proto_tensor *tensor)
{
    const size_t size = rg_onnx_type_size(tensor->type);
    void *data;
    size_t bytes;
    RG_TRY(rg_proto_elements(model, tensor, &data, &bytes));
    rg_proto_byte_order(data, bytes, size);
    write_tensor(writer, tensor, tensor->name, data, bytes);
    rg_release(&rg_default_allocator, data, bytes);
    return RG_OK;
}

/* A tensor with as many channels as the new head has. */
static rg_proto_tensor tensor_of_head(const rg_proto_tensor *tensor, int32_t axis, int64_t classes)
{
    rg_proto_tensor changed = *tensor;
    changed.dims[axis] = classes;
    return changed;
}

/* A tensor of the new head: other dimensions, no elements. */
static void write_head(rg_writer *writer, const rg_proto_tensor *tensor, int32_t axis,
                       int64_t classes)
{
    const rg_proto_tensor changed = tensor_of_head(tensor, axis, classes);
    write_tensor(writer, &changed, tensor->name, NULL, 0);
}

/* Whether a ValueInfoProto, its name 1, is called so. */
static bool is_called(rg_message message, const char *name)
{
    rg_message_field field;
    rg_status failed = RG_OK;
    while (rg_message_next(&message, &field, &failed)) {
        if (field.number == 1 && rg_message_size(&field.bytes) == strlen(name) &&
            memcmp(field.bytes.at, name, strlen(name)) == 0)
            return true;
    }
    return false;
}

/* An input; older files list initializers there, too, and so those of the head. */
static void write_input(rg_writer *writer, rg_message message, const rg_onnx_head *head,
                        int64_t classes)
{
    const rg_proto_tensor *const tensors[] = { head->w, head->b };
    const int32_t axes[] = { head->w_axis, head->b_axis };
    for (int i = 0; i < 2; i++) {
        if (tensors[i] == NULL || !is_called(message, tensors[i]->name))
            continue;
        const rg_proto_tensor changed = tensor_of_head(tensors[i], axes[i], classes);
        rg_proto_write_port(writer, 11, changed.name, changed.type, changed.rank, changed.dims);
        return;
    }
    rg_write_bytes(writer, 11, message.at, rg_message_size(&message));
}

static rg_status write_initializer(rg_writer *writer, const rg_onnx *model,
                                   const rg_proto_tensor *tensor, const rg_names *needed)
{
    if (is_weight(tensor) && rg_names_find(needed, tensor->name) != NULL && !tensor->constant) {
        write_tensor(writer, tensor, tensor->name, NULL, 0);
        return RG_OK;
    }
    if (tensor->external || tensor->source != NULL)
        return write_inside(writer, model, tensor);
    rg_write_bytes(writer, 5, tensor->message.at, rg_message_size(&tensor->message));
    return RG_OK;
}

/* The tensor of a Constant node that is a weight, or NULL. */
static const rg_proto_tensor *weight_of(const rg_proto_node *node)
{
    const bool constant = strcmp(node->type, "Constant") == 0 && node->output_count == 1 &&
                          node->attribute_count == 1 && node->attributes[0].type == RG_PROTO_TENSOR;
    const rg_proto_tensor *tensor = constant ? node->attributes[0].tensor : NULL;
    return tensor != NULL && is_weight(tensor) ? tensor : NULL;
}

/* ValueInfoProto: name 1, type 2; TypeProto: tensor_type 1; of that elem_type 1, shape 2; of that
 * dim 1; of that dim_value 1, dim_param 2. */
static void write_output(rg_writer *writer, const rg_proto_port *port, int64_t old, int64_t classes)
{
    const size_t begin = rg_write_begin(writer);
    rg_write_text(writer, 1, port->name);
    const size_t type = rg_write_begin(writer);
    rg_write_varint(writer, 1, (uint64_t)port->type);
    if (port->rank >= 0) {
        const size_t shape = rg_write_begin(writer);
        for (int32_t d = 0; d < port->rank; d++) {
            const size_t dim = rg_write_begin(writer);
            const int64_t length = d > 0 && port->dims[d] == old ? classes : port->dims[d];
            if (length > 0)
                rg_write_varint(writer, 1, (uint64_t)length);
            else
                rg_write_text(writer, 2, d == 0 ? "batch" : "any");
            rg_write_end(writer, 1, dim);
        }
        rg_write_end(writer, 2, shape);
    }
    rg_write_end(writer, 1, type);
    rg_write_end(writer, 2, type);
    rg_write_end(writer, 12, begin);
}

/* NodeProto: input 1. */
static rg_status write_node(rg_writer *writer, const rg_proto_node *node)
{
    rg_message message = node->message;
    rg_message_field field;
    rg_status failed = RG_OK;
    size_t inputs = 0;
    const uint8_t *from = message.at;
    if (!node->renamed) {
        rg_write_bytes(writer, 1, message.at, rg_message_size(&message));
        return RG_OK;
    }
    const size_t begin = rg_write_begin(writer);
    while (rg_message_next(&message, &field, &failed)) {
        if (field.number == 1)
            rg_write_text(writer, 1, node->inputs[inputs++]);
        else
            rg_write_raw(writer, from, (size_t)(message.at - from));
        from = message.at;
    }
    rg_write_end(writer, 1, begin);
    return failed;
}

/* GraphProto: node 1, name 2, initializer 5, input 11, output 12. */
static rg_status write_graph(rg_writer *writer, const rg_onnx *model, const rg_onnx_head *head,
                             int64_t classes, const rg_names *needed)
{
    size_t outputs = 0;
    rg_message message = model->graph;
    rg_message_field field;
    rg_status failed = RG_OK;
    for (size_t i = 0; i < model->node_count; i++) {
        const rg_proto_node *node = &model->nodes[i];
        const rg_proto_tensor *tensor = weight_of(node);
        if (tensor != NULL && rg_names_find(needed, node->outputs[0]) != NULL && !tensor->constant)
            write_tensor(writer, tensor, node->outputs[0], NULL, 0);
        else
            RG_TRY(write_node(writer, node));
    }
    for (size_t i = 0; i < model->initializer_count; i++) {
        const rg_proto_tensor *tensor = &model->initializers[i];
        if (tensor == head->w || tensor == head->b)
            write_head(writer, tensor, tensor == head->w ? head->w_axis : head->b_axis, classes);
        else
            RG_TRY(write_initializer(writer, model, tensor, needed));
    }
    while (rg_message_next(&message, &field, &failed)) {
        if (field.number == 12 && head->w != NULL && outputs++ == 0)
            write_output(writer, &model->outputs[0], head->classes, classes);
        else if (field.number == 11)
            write_input(writer, field.bytes, head, classes);
        else if (field.number == 2 || field.number == 12)
            rg_write_bytes(writer, field.number, field.bytes.at, rg_message_size(&field.bytes));
    }
    return failed;
}

/* The first ir_version with initializers that are no inputs. Constants become such ones, as mean
 * and deviation do where a checkpoint is exported. */
enum { FREE_INITIALIZERS = 4 };

/* ModelProto: ir_version 1, graph 7, opset_import 8. */
rg_status rg_onnx_strip(const rg_onnx *model, int64_t classes, rg_writer *writer)
{
    rg_onnx_head head = { .w = NULL };
    rg_names needed = { 0 };
    if (classes > 0)
        RG_TRY(rg_onnx_find_head(model, &head));
    rg_message message = { (const uint8_t *)model->file.data,
                           (const uint8_t *)model->file.data + model->file.size };
    rg_message_field field;
    rg_status failed = RG_OK;
    rg_write_varint(
        writer, 1,
        (uint64_t)(model->ir_version > FREE_INITIALIZERS ? model->ir_version : FREE_INITIALIZERS));
    while (rg_message_next(&message, &field, &failed)) {
        if (field.number == 8)
            rg_write_bytes(writer, 8, field.bytes.at, rg_message_size(&field.bytes));
    }
    RG_TRY(failed);
    const size_t begin = rg_write_begin(writer);
    rg_status status = rg_onnx_needed(model, &needed);
    if (status == RG_OK)
        status = write_graph(writer, model, &head, classes, &needed);
    rg_names_clear(&needed);
    rg_write_end(writer, 7, begin);
    return status == RG_OK ? writer->failed : status;
}

rg_status rg_onnx_parse_stripped(const char *name, const void *data, size_t bytes, rg_onnx **model)
{
    RG_TRY(rg_onnx_parse(name, data, bytes, model));
    (*model)->stripped = true;
    return RG_OK;
}
