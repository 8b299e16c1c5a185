/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* An imported model, written again: everything as the file has it, byte by byte, except for the
 * initializers and constants that a plan has changed, external data, which moves into the file, the
 * training_mode of nodes of a trained network, and on request nodes in front that normalize the
 * input. */
#include "onnx/onnx_write.h"

#include "core/dtype.h"
#include "core/shape.h"

#include <stdio.h>
#include <string.h>

static const rg_allocator *const allocator = &rg_default_allocator;

enum { NAME = 600 };

typedef struct rewrite {
    const rg_onnx_network *network;
    rg_plan *plan;
    rg_writer *writer;
    rg_names entries; /* parameters by their names */
    bool reshaped;    /* a parameter has other dimensions than in the file */
    bool split;       /* tensors that the file lacks are written, and read by their nodes */
    const rg_onnx_write_desc *desc;
    char centered[NAME], normalized[NAME]; /* values in place of the input, or "" */
} rewrite;

/* Whether a parameter has other dimensions than its tensor in the file, as a new last layer has. */
static bool is_reshaped(const rg_onnx_entry *entry)
{
    const rg_proto_tensor *tensor = entry->tensor;
    return entry->info.desc.rank != tensor->rank ||
           memcmp(entry->info.desc.dims, tensor->dims,
                  sizeof tensor->dims[0] * (size_t)tensor->rank) != 0;
}

static rg_status index_entries(rewrite *r)
{
    for (size_t i = 0; i < r->network->entry_count; i++) {
        rg_onnx_entry *entry = &r->network->entries[i];
        rg_tensor *tensor;
        if (entry->info.role != RG_ONNX_PARAMETER || entry->tensor == NULL)
            continue;
        if (rg_plan_parameter(r->plan, entry->info.name, &tensor) != RG_OK)
            continue; /* the plan does not need it, and has not changed it */
        RG_TRY(rg_names_add(&r->entries, entry->info.name, entry));
        r->reshaped |= is_reshaped(entry);
    }
    return RG_OK;
}

/* Whether a plan has other elements than the file. */
static rg_status is_changed(const rewrite *r, const rg_onnx_entry *entry, const void *now,
                            size_t now_bytes, bool *changed)
{
    void *before = NULL;
    size_t before_bytes = 0;
    *changed = is_reshaped(entry) || r->network->model->stripped;
    if (*changed)
        return RG_OK;
    RG_TRY(rg_proto_elements(r->network->model, entry->tensor, &before, &before_bytes));
    *changed = now_bytes > 0 && memcmp(now, before, now_bytes) != 0;
    rg_release(allocator, before, before_bytes);
    return RG_OK;
}

/* The elements of a plan, to be released with their size, and whether the file has others. */
static rg_status read_changed(const rewrite *r, const rg_onnx_entry *entry, void **now,
                              size_t *now_bytes, bool *changed)
{
    const rg_proto_tensor *tensor = entry->tensor;
    rg_dtype dtype;
    RG_CHECK(rg_onnx_type_dtype(tensor->type, &dtype), RG_UNSUPPORTED,
             "'%.80s' has elements of type %s", tensor->name, rg_onnx_type_name(tensor->type));
    RG_TRY(rg_plan_elements(r->plan, entry->info.name, entry->info.order, dtype, now, now_bytes));
    const rg_status status = is_changed(r, entry, *now, *now_bytes, changed);
    if (status != RG_OK)
        rg_release(allocator, *now, *now_bytes);
    return status;
}

/* Whether a tensor that the file lacks, or the one it was made of, has got other elements. */
static rg_status find_split(rewrite *r)
{
    const rg_onnx *model = r->network->model;
    for (size_t i = 0; i < model->initializer_count && !r->split; i++) {
        const rg_proto_tensor *tensor = &model->initializers[i];
        const char *names[] = { tensor->name, tensor->source };
        for (int k = 0; k < 2 && tensor->source != NULL && !r->split; k++) {
            const rg_onnx_entry *entry = rg_names_find(&r->entries, names[k]);
            void *now;
            size_t bytes;
            if (entry == NULL)
                continue;
            RG_TRY(read_changed(r, entry, &now, &bytes, &r->split));
            rg_release(allocator, now, bytes);
        }
    }
    return RG_OK;
}

/* Writes the tensor with new elements as field `number`, unless they are those of the file. */
static rg_status write_changed(rewrite *r, uint32_t number, const rg_onnx_entry *entry,
                               bool *changed)
{
    const rg_proto_tensor *tensor = entry->tensor;
    void *now;
    size_t now_bytes;
    *changed = false;
    RG_TRY(read_changed(r, entry, &now, &now_bytes, changed));
    if (*changed)
        rg_proto_write_tensor(r->writer, number, tensor->name, tensor->type, entry->info.desc.rank,
                              entry->info.desc.dims, now, now_bytes);
    rg_release(allocator, now, now_bytes);
    return RG_OK;
}

static rg_status write_inside(rewrite *r, const rg_proto_tensor *tensor)
{
    void *data;
    size_t bytes;
    RG_TRY(rg_proto_elements(r->network->model, tensor, &data, &bytes));
    rg_proto_write_tensor(r->writer, 5, tensor->name, tensor->type, tensor->rank, tensor->dims,
                          data, bytes);
    rg_release(allocator, data, bytes);
    return RG_OK;
}

static rg_status write_initializer(rewrite *r, const rg_proto_tensor *tensor, rg_message message)
{
    const rg_onnx_entry *entry = rg_names_find(&r->entries, tensor->name);
    bool changed = false;
    if (entry != NULL && entry->tensor == tensor)
        RG_TRY(write_changed(r, 5, entry, &changed));
    if (changed)
        return RG_OK;
    RG_CHECK(!rg_proto_is_missing(r->network->model, tensor), RG_UNSUPPORTED,
             "the elements of '%.80s' are not known", tensor->name);
    if (tensor->external || tensor->source != NULL)
        return write_inside(r, tensor);
    rg_write_bytes(r->writer, 5, message.at, rg_message_size(&message));
    return RG_OK;
}

/* A Constant node with another value: the attribute `value` (field 5), its tensor (field 5). */
static rg_status write_constant(rewrite *r, const rg_proto_node *node, const rg_onnx_entry *entry,
                                bool *changed)
{
    const size_t begin = rg_write_begin(r->writer);
    rg_write_text(r->writer, 2, node->outputs[0]);
    if (node->name[0] != 0)
        rg_write_text(r->writer, 3, node->name);
    rg_write_text(r->writer, 4, node->type);
    const size_t attribute = rg_write_begin(r->writer);
    rg_write_text(r->writer, 1, "value");
    RG_TRY(write_changed(r, 5, entry, changed));
    if (!*changed) {
        if (r->writer->failed == RG_OK)
            r->writer->size = begin;
        return RG_OK;
    }
    rg_write_varint(r->writer, 20, RG_PROTO_TENSOR);
    rg_write_end(r->writer, 5, attribute);
    rg_write_end(r->writer, 1, begin);
    return RG_OK;
}

/* ---- a normalized input ---- */

static bool reads(const rg_proto_node *node, const char *name)
{
    for (size_t i = 0; i < node->input_count; i++) {
        if (strcmp(node->inputs[i], name) == 0)
            return true;
    }
    return false;
}

/* Whether training_mode makes a node of a trained network differ from what predictions use. */
static bool has_mode(const rewrite *r, const rg_proto_node *node)
{
    if (r->desc == NULL) /* not trained */
        return false;
    if (strcmp(node->type, "Dropout") == 0)
        return node->input_count > 2;
    for (size_t i = 0; strcmp(node->type, "BatchNormalization") == 0 && i < node->attribute_count;
         i++) {
        if (strcmp(node->attributes[i].name, "training_mode") == 0)
            return node->attributes[i].i != 0;
    }
    return false;
}

/* Whether a field, the index-th of its number, belongs to training_mode: NodeProto has inputs 1,
 * outputs 2, attributes 5. Statistics are outputs in this mode alone. */
static bool is_mode(const rg_proto_node *node, uint32_t number, size_t index)
{
    const bool dropout = strcmp(node->type, "Dropout") == 0;
    if (number == 5)
        return strcmp(node->attributes[index].name, "training_mode") == 0;
    return dropout ? number == 1 && index == 2 : number == 2 && index > 0;
}

/* A node that reads other values instead, or is without training_mode. */
static rg_status write_changed_node(rewrite *r, const rg_proto_node *node)
{
    const char *input = r->normalized[0] != 0 ? r->network->model->inputs[0].name : NULL;
    const bool mode = has_mode(r, node);
    rg_message message = node->message;
    rg_message_field field;
    rg_status failed = RG_OK;
    size_t counts[6] = { 0 };
    const uint8_t *from = message.at;
    const size_t begin = rg_write_begin(r->writer);
    while (rg_message_next(&message, &field, &failed)) {
        const size_t index = field.number < 6 ? counts[field.number]++ : 0;
        const bool listed = field.number == 1 || field.number == 2 || field.number == 5;
        if (field.number == 1 && input != NULL && strcmp(node->inputs[index], input) == 0)
            rg_write_text(r->writer, 1, r->normalized);
        else if (field.number == 1 && node->renamed && r->split)
            rg_write_text(r->writer, 1, node->inputs[index]);
        else if (!mode || !listed || !is_mode(node, field.number, index))
            rg_write_raw(r->writer, from, (size_t)(message.at - from));
        from = message.at;
    }
    rg_write_end(r->writer, 1, begin);
    return failed;
}

static bool is_taken(const rg_onnx *model, const char *name)
{
    for (size_t i = 0; i < model->initializer_count; i++) {
        if (strcmp(model->initializers[i].name, name) == 0)
            return true;
    }
    for (size_t i = 0; i < model->node_count; i++) {
        for (size_t j = 0; j < model->nodes[i].output_count; j++) {
            if (strcmp(model->nodes[i].outputs[j], name) == 0)
                return true;
        }
    }
    return false;
}

static void make_name(const rg_onnx *model, const char *suffix, char name[NAME])
{
    int length = snprintf(name, NAME, "%.500s.%s", model->inputs[0].name, suffix);
    while (is_taken(model, name) && length + 1 < NAME) {
        name[length++] = '_';
        name[length] = 0;
    }
}

static void write_binary(rewrite *r, const char *type, const char *a, const char *b, const char *y)
{
    const size_t begin = rg_write_begin(r->writer);
    rg_write_text(r->writer, 1, a);
    rg_write_text(r->writer, 1, b);
    rg_write_text(r->writer, 2, y);
    rg_write_text(r->writer, 3, y);
    rg_write_text(r->writer, 4, type);
    rg_write_end(r->writer, 1, begin);
}

/* A number for each channel of the input, along the dimension that it has them in. */
static rg_status write_channels(rewrite *r, const char *name, const double numbers[])
{
    const rg_onnx *model = r->network->model;
    const rg_proto_port *port = &model->inputs[0];
    const int64_t channels = r->desc->channels;
    const bool columns = r->desc->by_columns;
    const bool last = rg_onnx_has_channels_last(model, columns ? 1 : channels);
    const int axis = columns ? (last ? 2 : 3) : last ? 3 : 1; /* of what is normalized */
    int64_t dims[] = { 1, 1, 1, 1 };
    double *elements;
    rg_dtype dtype = RG_F32;
    RG_CHECK(rg_onnx_type_dtype(port->type, &dtype) && rg_dtype_is_data(dtype) &&
                 (port->rank == 4 || columns || channels == 1),
             RG_UNSUPPORTED, "input '%.80s' cannot be normalized", port->name);
    RG_TRY(rg_allocate_array((size_t)channels, sizeof *elements, &elements));
    dims[axis] = channels;
    for (int64_t i = 0; i < channels; i++)
        rg_element_set(elements, dtype, i, numbers[i]);
    rg_proto_write_tensor(r->writer, 5, name, port->type, port->rank == 4 ? 4 : 1,
                          port->rank == 4 ? dims : &channels, elements,
                          (size_t)channels * rg_dtype_size(dtype));
    rg_release(&rg_default_allocator, elements, (size_t)channels * sizeof *elements);
    return RG_OK;
}

/* (x - mean) / deviation, before all other nodes. */
static rg_status write_normalization(rewrite *r)
{
    const rg_onnx *model = r->network->model;
    char mean[NAME], deviation[NAME];
    if (r->desc == NULL || r->desc->channels == 0)
        return RG_OK;
    bool plain = rg_type_is_integer(model->inputs[0].type); /* bytes as they are */
    for (int32_t i = 0; i < r->desc->channels; i++)
        plain &= r->desc->mean[i] == 0 && r->desc->deviation[i] == 1;
    if (plain)
        return RG_OK;
    RG_CHECK(model->input_count == 1, RG_UNSUPPORTED, "the model has %zu inputs",
             model->input_count);
    make_name(model, "mean", mean);
    make_name(model, "deviation", deviation);
    make_name(model, "centered", r->centered);
    make_name(model, "normalized", r->normalized);
    RG_TRY(write_channels(r, mean, r->desc->mean));
    RG_TRY(write_channels(r, deviation, r->desc->deviation));
    write_binary(r, "Sub", model->inputs[0].name, mean, r->centered);
    write_binary(r, "Div", r->centered, deviation, r->normalized);
    return RG_OK;
}

static rg_status write_node(rewrite *r, const rg_proto_node *node)
{
    const bool constant = strcmp(node->type, "Constant") == 0 && node->output_count == 1 &&
                          node->attribute_count == 1 && node->attributes[0].type == RG_PROTO_TENSOR;
    const rg_onnx_entry *entry = constant ? rg_names_find(&r->entries, node->outputs[0]) : NULL;
    bool changed = false;
    if (entry != NULL && entry->tensor == node->attributes[0].tensor)
        RG_TRY(write_constant(r, node, entry, &changed));
    const bool normalized = r->normalized[0] != 0 && reads(node, r->network->model->inputs[0].name);
    if (normalized || has_mode(r, node) || (node->renamed && r->split))
        return write_changed_node(r, node);
    if (!changed)
        rg_write_bytes(r->writer, 1, node->message.at, rg_message_size(&node->message));
    return RG_OK;
}

/* Whether the file declares dimensions that the output does not have. */
static bool is_wrong(const rg_proto_port *port, const rg_onnx_tensor_info *info)
{
    bool wrong = port->rank >= 0 && port->rank != info->desc.rank;
    for (int32_t d = 0; d < port->rank && !wrong; d++)
        wrong =
            port->dims[d] >= 0 && info->desc.dims[d] >= 0 && port->dims[d] != info->desc.dims[d];
    return wrong;
}

/* An output, with another shape where a layer has other channels than in the file. */
static void write_output(rewrite *r, const rg_proto_port *port, rg_message message)
{
    const rg_onnx_tensor_info *info = NULL;
    for (size_t i = 0; i < r->network->entry_count; i++) {
        const rg_onnx_tensor_info *entry = &r->network->entries[i].info;
        if (entry->role == RG_ONNX_OUTPUT && strcmp(entry->name, port->name) == 0)
            info = entry;
    }
    if (info != NULL && is_wrong(port, info))
        rg_proto_write_port(r->writer, 12, port->name, port->type, info->desc.rank,
                            info->desc.dims);
    else
        rg_write_bytes(r->writer, 12, message.at, rg_message_size(&message));
}

enum { NODE = 1, INITIALIZER = 5, OUTPUT = 12, VALUE_INFO = 13 };

static rg_status write_graph(rewrite *r)
{
    const rg_onnx *model = r->network->model;
    rg_message message = model->graph;
    rg_message_field field;
    rg_status failed = RG_OK;
    size_t nodes = 0, tensors = 0, outputs = 0;
    const uint8_t *from = message.at;
    const size_t begin = rg_write_begin(r->writer);
    RG_TRY(write_normalization(r));
    while (rg_message_next(&message, &field, &failed)) {
        if (field.number == NODE)
            RG_TRY(write_node(r, &model->nodes[nodes++]));
        else if (field.number == INITIALIZER)
            RG_TRY(write_initializer(r, &model->initializers[tensors++], field.bytes));
        else if (field.number == OUTPUT)
            write_output(r, &model->outputs[outputs++], field.bytes);
        else if (field.number != VALUE_INFO || !r->reshaped)
            rg_write_raw(r->writer, from, (size_t)(message.at - from));
        from = message.at;
    }
    for (; tensors < model->initializer_count && r->split; tensors++)
        RG_TRY(write_initializer(r, &model->initializers[tensors], message));
    rg_write_end(r->writer, 7, begin);
    return failed;
}

static rg_status write_model(rewrite *r)
{
    const rg_onnx *model = r->network->model;
    rg_message message = { (const uint8_t *)model->file.data,
                           (const uint8_t *)model->file.data + model->file.size };
    rg_message_field field;
    rg_status failed = RG_OK;
    const uint8_t *from = message.at;
    while (rg_message_next(&message, &field, &failed)) {
        if (field.number == 7)
            RG_TRY(write_graph(r));
        else
            rg_write_raw(r->writer, from, (size_t)(message.at - from));
        from = message.at;
    }
    return failed;
}

rg_status rg_onnx_rewrite(const rg_onnx_network *network, rg_plan *plan,
                          const rg_onnx_write_desc *desc, rg_writer *writer)
{
    rewrite r = { .network = network, .plan = plan, .writer = writer, .desc = desc };
    rg_status status = plan != NULL ? index_entries(&r) : RG_OK;
    if (status == RG_OK)
        status = find_split(&r);
    if (status == RG_OK)
        status = write_model(&r);
    rg_names_clear(&r.entries);
    return status == RG_OK ? writer->failed : status;
}
