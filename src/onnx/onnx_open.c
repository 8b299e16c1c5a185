/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Opening an ONNX model, from a file or from memory, and what it declares. */
#include "onnx/onnx_train.h"

#include <stdlib.h>
#include <string.h>

static const rg_allocator *const allocator = &rg_default_allocator;
static const size_t most_bytes = (size_t)1 << 31;

void rg_onnx_close(rg_onnx *model)
{
    if (model == NULL)
        return;
    rg_names_clear(&model->names);
    rg_arena_release(&model->arena);
    rg_bytes_release(allocator, &model->file);
    free(model->name);
    free(model->folder);
    rg_release(allocator, model, sizeof *model);
}

/* Inputs of old models repeat the initializers; these are left out. */
static rg_status drop_initializers(rg_onnx *model)
{
    rg_names names = { 0 };
    rg_status status = RG_OK;
    size_t kept = 0;
    for (size_t i = 0; i < model->initializer_count && status == RG_OK; i++) {
        const char *name = model->initializers[i].name;
        if (name[0] == 0)
            status = rg_fail(RG_MALFORMED, "initializer %zu has no name", i);
        else if (rg_names_find(&names, name) != NULL)
            status = rg_fail(RG_MALFORMED, "there are two initializers '%.80s'", name);
        else
            status = rg_names_add(&names, name, &model->initializers[i]);
    }
    for (size_t i = 0; i < model->input_count && status == RG_OK; i++) {
        if (rg_names_find(&names, model->inputs[i].name) == NULL)
            model->inputs[kept++] = model->inputs[i];
    }
    rg_names_clear(&names);
    model->input_count = kept;
    return status;
}

static rg_status read_model(rg_onnx *model)
{
    rg_status status = rg_proto_read_model(model);
    if (status == RG_OK)
        status = drop_initializers(model);
    if (status == RG_OK)
        status = rg_onnx_index_names(model);
    if (status == RG_OK)
        status = rg_onnx_settle_tensors(model);
    if (status != RG_OK)
        rg_error_prefix("%s: ", model->name);
    return status;
}

/* The folder of a path, "." for a name alone. */
static rg_status copy_folder(const char *path, char **folder)
{
    const char *slash = strrchr(path, '/');
    RG_TRY(rg_copy_text(slash == NULL ? "." : path, folder));
    if (slash != NULL)
        (*folder)[slash == path ? 1 : slash - path] = 0;
    return RG_OK;
}

static rg_status create(const char *name, rg_onnx **model)
{
    void *made;
    RG_TRY(rg_allocate_zero(allocator, sizeof **model, &made));
    *model = made;
    return rg_copy_text(name, &(*model)->name);
}

static rg_status finish(rg_status status, rg_onnx **model)
{
    if (status == RG_OK)
        status = read_model(*model);
    if (status != RG_OK) {
        rg_onnx_close(*model);
        *model = NULL;
    }
    return status;
}

rg_status rg_onnx_open(const char *path, rg_onnx **model)
{
    RG_CHECK_NOT_NULL(model);
    *model = NULL;
    RG_CHECK_NOT_NULL(path);
    rg_status status = create(path, model);
    if (status == RG_OK)
        status = copy_folder(path, &(*model)->folder);
    if (status == RG_OK)
        status = rg_file_read(allocator, path, most_bytes, &(*model)->file);
    return finish(status, model);
}

rg_status rg_onnx_parse(const char *name, const void *data, size_t bytes, rg_onnx **model)
{
    RG_CHECK_NOT_NULL(model);
    *model = NULL;
    RG_CHECK_NOT_NULL(name);
    RG_CHECK(data != NULL || bytes == 0, RG_INVALID_ARGUMENT, "rg_onnx_parse: data is NULL");
    rg_status status = create(name, model);
    if (status == RG_OK && bytes > 0) {
        void *copy;
        status = rg_allocate(allocator, bytes, &copy);
        if (status == RG_OK) {
            memcpy(copy, data, bytes);
            (*model)->file = (rg_bytes){ copy, bytes, bytes };
        }
    }
    return finish(status, model);
}

int64_t rg_onnx_opset(const rg_onnx *model)
{
    return model != NULL ? model->opset : 0;
}

int32_t rg_onnx_inputs(const rg_onnx *model)
{
    return model != NULL ? (int32_t)model->input_count : 0;
}

int32_t rg_onnx_outputs(const rg_onnx *model)
{
    return model != NULL ? (int32_t)model->output_count : 0;
}

static rg_status tell(const rg_proto_port *ports, size_t count, int32_t index,
                      rg_onnx_port_info *info)
{
    RG_CHECK(index >= 0 && (size_t)index < count, RG_INVALID_ARGUMENT,
             "there is no input or output %d; there are %zu", index, count);
    const rg_proto_port *port = &ports[index];
    *info = (rg_onnx_port_info){ .name = port->name, .rank = port->rank };
    info->has_dtype = rg_onnx_type_dtype(port->type, &info->dtype);
    memcpy(info->dims, port->dims, sizeof info->dims);
    return RG_OK;
}

rg_status rg_onnx_input(const rg_onnx *model, int32_t index, rg_onnx_port_info *info)
{
    RG_CHECK_NOT_NULL(model);
    RG_CHECK_NOT_NULL(info);
    return tell(model->inputs, model->input_count, index, info);
}

rg_status rg_onnx_output(const rg_onnx *model, int32_t index, rg_onnx_port_info *info)
{
    RG_CHECK_NOT_NULL(model);
    RG_CHECK_NOT_NULL(info);
    return tell(model->outputs, model->output_count, index, info);
}
