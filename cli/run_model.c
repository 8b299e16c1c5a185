/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The networks of `retrograde run`: ONNX models, checkpoints, models as text. */
#include "cli/arguments.h"
#include "cli/run_network.h"

#include <retrograde/files.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

rg_run_file *rg_run_files_find(rg_run_files *files, const char *name)
{
    for (int i = 0; i < files->count; i++) {
        if (strcmp(files->files[i].name, name) == 0)
            return &files->files[i];
    }
    return NULL;
}

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), size = strlen(end);
    return length >= size && strcmp(text + length - size, end) == 0;
}

/* Every file must be that of an input. Initializers cannot be given, also where the file lists them
 * among its inputs. */
static rg_status check_names(const rg_run_network *run)
{
    for (int i = 0; i < run->inputs.count; i++) {
        const char *name = run->inputs.files[i].name;
        rg_onnx_port_info info = { .name = "" };
        char text[256] = "";
        bool found = false;
        for (int32_t k = 0; k < rg_onnx_inputs(run->onnx) && !found; k++) {
            const size_t length = strlen(text);
            RG_PASS(rg_onnx_input(run->onnx, k, &info));
            found = strcmp(info.name, name) == 0;
            snprintf(text + length, sizeof text - length, "%s%s", k > 0 ? ", " : "", info.name);
        }
        if (!found)
            return rg_fails(RG_INVALID_ARGUMENT, "%s has no input '%s'; its inputs are %s",
                            run->path, name, text);
    }
    return RG_OK;
}

/* A model that cannot be made without the shape of an input lacks that first of all. */
static rg_status check_given(rg_run_network *run, rg_status status)
{
    rg_onnx_port_info info;
    for (int32_t i = 0; i < rg_onnx_inputs(run->onnx); i++) {
        if (rg_onnx_input(run->onnx, i, &info) == RG_OK &&
            rg_run_files_find(&run->inputs, info.name) == NULL)
            return rg_fails(status, "the input '%s' is missing: add %s=FILE", info.name, info.name);
    }
    return status;
}

/* The shapes of the inputs are those of the files. */
static rg_status open_onnx(rg_run_network *run)
{
    rg_onnx_options options = rg_onnx_options_default();
    RG_PASS(rg_onnx_open(run->path, &run->onnx));
    RG_PASS(check_names(run));
    const int32_t count = rg_onnx_inputs(run->onnx);
    rg_tensor_desc *shapes = calloc((size_t)count + 1, sizeof *shapes);
    rg_status status =
        shapes != NULL ? RG_OK : rg_fails(RG_OUT_OF_MEMORY, "out of memory for %d inputs", count);
    for (int32_t i = 0; i < count && status == RG_OK; i++) {
        rg_onnx_port_info info;
        status = rg_onnx_input(run->onnx, i, &info);
        const rg_run_file *file =
            status == RG_OK ? rg_run_files_find(&run->inputs, info.name) : NULL;
        shapes[i].rank = -1;
        if (file != NULL)
            status = rg_tensor_get_desc(file->tensor, &shapes[i]);
    }
    options.inputs = shapes;
    options.has_dtype = run->has_dtype;
    options.dtype = run->dtype;
    if (status == RG_OK)
        status = rg_onnx_network_create(run->onnx, &options, &run->network);
    if (status == RG_INVALID_ARGUMENT || status == RG_MALFORMED)
        status = check_given(run, status);
    free(shapes);
    run->graph = rg_onnx_network_graph(run->network);
    return status;
}

static rg_status open_checkpoint(rg_run_network *run)
{
    RG_PASS(rg_checkpoint_open(run->path, &run->checkpoint));
    return rg_checkpoint_graph(run->checkpoint, &run->graph);
}

/* A model as text is made for the images that are given, with new parameters. */
static rg_status open_text(rg_run_network *run)
{
    rg_network_desc desc = rg_network_desc_default();
    const rg_run_file *images = rg_run_files_find(&run->inputs, "images");
    rg_tensor_desc shape = { .rank = 0 };
    rg_model *model;
    if (images == NULL)
        return rg_fails(RG_INVALID_ARGUMENT, "%s: a model needs images=FILE", run->path);
    RG_PASS(rg_tensor_get_desc(images->tensor, &shape));
    if (shape.rank != 4)
        return rg_fails(RG_INVALID_ARGUMENT, "%s: images must be (n, height, width, channels)",
                        images->path);
    desc.height = shape.dims[1];
    desc.width = shape.dims[2];
    desc.channels = shape.dims[3];
    desc.classes = (int32_t)run->classes;
    desc.dtype = run->has_dtype ? run->dtype : RG_F32;
    desc.logits_only = rg_run_files_find(&run->inputs, "labels") == NULL;
    RG_PASS(rg_model_open(run->path, &model));
    rg_status status = rg_model_graph(model, &desc, &run->graph);
    if (status == RG_OK)
        status = rg_model_plan(model, &desc, run->device, (uint64_t)run->seed, &run->first);
    rg_model_destroy(model);
    return status;
}

rg_status rg_run_network_open(rg_run_network *run)
{
    if (ends_with(run->path, ".onnx"))
        return open_onnx(run);
    if (run->has_dtype && ends_with(run->path, ".safetensors"))
        return rg_fails(RG_INVALID_ARGUMENT, "a checkpoint has its own dtype; omit --dtype");
    return ends_with(run->path, ".safetensors") ? open_checkpoint(run) : open_text(run);
}

rg_status rg_run_network_load(rg_run_network *run)
{
    if (run->network != NULL)
        return rg_onnx_network_load(run->network, run->plan);
    return run->checkpoint != NULL ? rg_plan_load_parameters(run->plan, run->path) : RG_OK;
}
