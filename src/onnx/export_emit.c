/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Nodes of an exported model: gathered with the names they are given first, written with those they
 * have in the end. */
#include "onnx/export.h"

#include <string.h>

/* AttributeProto.type; its fields are name 1, f 2, i 3, s 4, ints 8, type 20. */

static rg_status add_node(rg_export *e, const char *type, bool runtime)
{
    rg_emitted *node = NULL;
    RG_TRY(rg_arena_take(&e->arena, 1, sizeof *node, &node));
    node->type = type;
    node->runtime = runtime;
    node->begin = node->end = e->attributes.size;
    if (e->last != NULL)
        e->last->next = node;
    else
        e->first = node;
    e->last = node;
    return RG_OK;
}

rg_status rg_emit(rg_export *e, const char *type)
{
    return add_node(e, type, false);
}

rg_status rg_emit_runtime(rg_export *e, const char *type)
{
    return add_node(e, type, true);
}

void rg_emit_input(rg_export *e, const char *name)
{
    if (e->last->input_count < RG_EMITTED_INPUTS)
        e->last->inputs[e->last->input_count++] = name;
}

void rg_emit_output(rg_export *e, const char *name)
{
    if (e->last->output_count < RG_EMITTED_OUTPUTS)
        e->last->outputs[e->last->output_count++] = name;
}

static size_t begin_attribute(rg_export *e, const char *name)
{
    const size_t begin = rg_write_begin(&e->attributes);
    rg_write_text(&e->attributes, 1, name);
    return begin;
}

static void end_attribute(rg_export *e, size_t begin, rg_proto_attribute_type type)
{
    rg_write_varint(&e->attributes, 20, (uint64_t)type);
    rg_write_end(&e->attributes, 5, begin);
    e->last->end = e->attributes.size;
}

void rg_emit_int(rg_export *e, const char *name, int64_t value)
{
    const size_t begin = begin_attribute(e, name);
    rg_write_varint(&e->attributes, 3, (uint64_t)value);
    end_attribute(e, begin, RG_PROTO_INT);
}

void rg_emit_ints(rg_export *e, const char *name, const int64_t values[], int32_t count)
{
    const size_t begin = begin_attribute(e, name);
    for (int32_t i = 0; i < count; i++)
        rg_write_varint(&e->attributes, 8, (uint64_t)values[i]);
    end_attribute(e, begin, RG_PROTO_INTS);
}

void rg_emit_float(rg_export *e, const char *name, double value)
{
    const size_t begin = begin_attribute(e, name);
    rg_write_float(&e->attributes, 2, (float)value);
    end_attribute(e, begin, RG_PROTO_FLOAT);
}

void rg_emit_text(rg_export *e, const char *name, const char *value)
{
    const size_t begin = begin_attribute(e, name);
    rg_write_text(&e->attributes, 4, value);
    end_attribute(e, begin, RG_PROTO_STRING);
}

/* ---- the model ---- */

static const char *final_name(const rg_export *e, const char *name)
{
    const char *renamed = name[0] != 0 ? rg_names_find(&e->renamed, name) : NULL;
    return renamed != NULL ? renamed : name;
}

/* NodeProto: input 1, output 2, name 3, op_type 4, attribute 5, domain 7. */
static void write_node(const rg_export *e, const rg_emitted *node, rg_writer *writer)
{
    const size_t begin = rg_write_begin(writer);
    for (int32_t i = 0; i < node->input_count; i++)
        rg_write_text(writer, 1, final_name(e, node->inputs[i]));
    for (int32_t i = 0; i < node->output_count; i++)
        rg_write_text(writer, 2, final_name(e, node->outputs[i]));
    for (int32_t i = 0; i < node->output_count; i++) {
        if (node->outputs[i][0] != 0) {
            rg_write_text(writer, 3, final_name(e, node->outputs[i]));
            break;
        }
    }
    rg_write_text(writer, 4, node->type);
    if (node->end > node->begin && e->attributes.failed == RG_OK)
        rg_write_raw(writer, e->attributes.data + node->begin, node->end - node->begin);
    if (node->runtime)
        rg_write_text(writer, 7, "com.microsoft");
    rg_write_end(writer, 1, begin);
}

/* The first version of the format that has an operator set. */
static int64_t format_of(int32_t opset)
{
    static const int8_t versions[] = { 7, 7, 8, 8, 8, 8, 9, 9, 10, 10, 11, 12 };
    return versions[opset - RG_ONNX_OLDEST_WRITTEN];
}

static void write_opset(rg_writer *writer, const char *domain, int64_t version)
{
    const size_t begin = rg_write_begin(writer);
    rg_write_text(writer, 1, domain);
    rg_write_varint(writer, 2, (uint64_t)version);
    rg_write_end(writer, 8, begin);
}

/* ModelProto: ir_version 1, producer_name 2, producer_version 3, graph 7, opset_import 8;
 * GraphProto: node 1, name 2, initializer 5, input 11, output 12. */
rg_status rg_emit_model(rg_export *e, rg_writer *writer)
{
    bool runtime = false;
    rg_write_varint(writer, 1, (uint64_t)format_of(e->desc.opset));
    rg_write_text(writer, 2, "retrograde");
    rg_write_text(writer, 3, rg_version());
    const size_t begin = rg_write_begin(writer);
    for (const rg_emitted *node = e->first; node != NULL; node = node->next) {
        write_node(e, node, writer);
        runtime |= node->runtime;
    }
    rg_write_text(writer, 2, e->desc.name != NULL ? e->desc.name : "retrograde");
    rg_write_raw(writer, e->tensors.data, e->tensors.size);
    rg_write_raw(writer, e->inputs.data, e->inputs.size);
    rg_write_raw(writer, e->outputs.data, e->outputs.size);
    rg_write_end(writer, 7, begin);
    write_opset(writer, "", e->desc.opset);
    if (runtime)
        write_opset(writer, "com.microsoft", 1);
    const rg_writer *const parts[] = { &e->attributes, &e->tensors, &e->inputs, &e->outputs };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        RG_TRY(parts[i]->failed);
    return writer->failed;
}
