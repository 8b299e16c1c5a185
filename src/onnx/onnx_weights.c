/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Parameters as PyTorch has them: the initializers of a model that is written, under PyTorch's
 * names. */
#include "onnx/export.h"

#include "core/dtype.h"
#include "core/shape.h"

#include <retrograde/dense.h>
#include <retrograde/safetensors.h>

#include <stdio.h>
#include <string.h>

static const rg_allocator *const allocator = &rg_default_allocator;

enum { NAME = 560 };

typedef struct weights {
    rg_onnx *model;
    const rg_graph *graph; /* whose parameters are renamed; NULL: names stay */
    rg_names readers;      /* the first node of the graph that reads a parameter as its weights */
    rg_arena arena;
    rg_safetensors_entry *entries;
    size_t count;
    void **data; /* of the entries, with their sizes */
    size_t *bytes;
} weights;

/* "conv1.w" is "conv1.weight" in PyTorch. */
static rg_status rename_parameter(weights *w, const char *name, const char **renamed)
{
    static const char *const suffixes[][2] = {
        { "w", "weight" },          { "b", "bias" },
        { "gamma", "weight" },      { "beta", "bias" },
        { "mean", "running_mean" }, { "variance", "running_var" },
        { "slope", "weight" },
    };
    char text[NAME], *copy;
    const char *dot = strrchr(name, '.');
    *renamed = name;
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0] && dot != NULL; i++) {
        if (strcmp(dot + 1, suffixes[i][0]) != 0)
            continue;
        const int length =
            snprintf(text, sizeof text, "%.*s.%s", (int)(dot - name), name, suffixes[i][1]);
        RG_TRY(rg_arena_text(&w->arena, text, (size_t)length, &copy));
        *renamed = copy;
        return RG_OK;
    }
    return RG_OK;
}

static rg_status find_readers(weights *w)
{
    for (size_t n = 0; w->graph != NULL && n < w->graph->nodes_count; n++) {
        rg_node *node = w->graph->nodes[n];
        const rg_value *value = node->inputs > 1 && !node->gradient ? node->in[1] : NULL;
        if (value != NULL && value->name != NULL && rg_names_find(&w->readers, value->name) == NULL)
            RG_TRY(rg_names_add(&w->readers, value->name, node));
    }
    return RG_OK;
}

/* What differs from the initializer: a product has (out, in), slopes have one dimension. */
static void settle_shape(const weights *w, const char *name, rg_tensor_desc *desc)
{
    const rg_node *node = rg_names_find(&w->readers, name);
    const int64_t count = rg_shape_count(desc);
    if (node == NULL)
        return;
    const rg_dense_desc *dense = node->desc;
    if (strcmp(node->op->name, "neuron") == 0)
        *desc = rg_tensor_desc_dense(desc->dtype, 1, &count);
    else if (strcmp(node->op->name, "dense") == 0 && dense->layout == RG_DENSE_IN_OUT &&
             node->in[1]->desc.rank == 2)
        *desc = (rg_tensor_desc){ .dtype = desc->dtype,
                                  .rank = 2,
                                  .dims = { desc->dims[1], desc->dims[0] },
                                  .strides = { 1, desc->dims[1] } };
}

static rg_status add_tensor(weights *w, const rg_proto_tensor *tensor)
{
    rg_safetensors_entry *entry = &w->entries[w->count];
    rg_dtype dtype;
    if (!rg_onnx_type_dtype(tensor->type, &dtype) || !rg_dtype_is_data(dtype))
        return RG_OK;
    const rg_value *value = w->graph != NULL ? rg_graph_find_value(w->graph, tensor->name) : NULL;
    if (w->graph != NULL && (value == NULL || value->kind != RG_VALUE_PARAMETER))
        return RG_OK; /* a constant of the file */
    entry->name = tensor->name;
    entry->desc = rg_tensor_desc_dense(dtype, tensor->rank, tensor->dims);
    if (w->graph != NULL) {
        RG_TRY(rename_parameter(w, tensor->name, &entry->name));
        settle_shape(w, tensor->name, &entry->desc);
    }
    RG_TRY(rg_proto_elements(w->model, tensor, &w->data[w->count], &w->bytes[w->count]));
    entry->data = w->data[w->count];
    w->count++;
    return RG_OK;
}

static rg_status save(weights *w, const char *path)
{
    const size_t most = w->model->initializer_count;
    RG_TRY(rg_arena_take(&w->arena, most, sizeof *w->entries, &w->entries));
    RG_TRY(rg_arena_take(&w->arena, most, sizeof *w->data, &w->data));
    RG_TRY(rg_arena_take(&w->arena, most, sizeof *w->bytes, &w->bytes));
    RG_TRY(find_readers(w));
    for (size_t i = 0; i < most; i++)
        RG_TRY(add_tensor(w, &w->model->initializers[i]));
    RG_CHECK(w->count > 0, RG_INVALID_ARGUMENT, "the network has no parameters");
    static const rg_safetensors_text format = { "format", "pt" };
    return rg_safetensors_write(path, w->entries, w->count, &format, 1);
}

rg_status rg_writer_save_weights(rg_writer *writer, rg_status status, const rg_graph *graph,
                                 const char *path)
{
    weights w = { .graph = graph };
    if (status == RG_OK)
        status = writer->failed;
    if (status == RG_OK)
        status = rg_onnx_parse("the network", writer->data, writer->size, &w.model);
    rg_writer_release(writer);
    if (status == RG_OK)
        status = save(&w, path);
    for (size_t i = 0; i < w.count; i++)
        rg_release(allocator, w.data[i], w.bytes[i]);
    rg_names_clear(&w.readers);
    rg_arena_release(&w.arena);
    rg_onnx_close(w.model);
    return status;
}
