/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* `retrograde run`: inputs from files, gradients by name, results into files. */
#include "cli/run_network.h"
#include "cli/arguments.h"
#include "cli/op_run.h"

#include <retrograde/files.h>
#include <retrograde/safetensors.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 512 };

/* The name of a gradient in the graph. */
static const char *gradient_name(const char *name, char text[NAME])
{
    snprintf(text, NAME, "gradient of %.480s", name);
    return text;
}

static rg_value *find_result(const rg_graph *graph, const char *name)
{
    for (int32_t i = 0; i < rg_graph_results(graph); i++) {
        const char *found;
        rg_value *value = rg_graph_result_at(graph, i, &found);
        if (strcmp(found, name) == 0)
            return value;
    }
    return NULL;
}

/* ---- files ---- */

static rg_status read_files(rg_run_network *run, rg_run_files *files)
{
    for (int i = 0; i < files->count; i++)
        RG_PASS(rg_tensor_load_npy(run->device, files->files[i].path, &files->files[i].tensor));
    return RG_OK;
}

/* ---- the graph ---- */

static rg_status no_result(const rg_run_network *run, const char *name)
{
    char text[NAME] = "";
    for (int32_t i = 0; i < rg_graph_results(run->graph); i++) {
        const char *found;
        const size_t length = strlen(text);
        rg_graph_result_at(run->graph, i, &found);
        snprintf(text + length, sizeof text - length, "%s%s", i > 0 ? ", " : "", found);
    }
    return rg_fails(RG_INVALID_ARGUMENT,
                    run->gradients.count > 0
                        ? "%s has no output, input or parameter '%s' with a gradient; its outputs "
                          "are %s"
                        : "%s has no output '%s'; its outputs are %s",
                    run->path, name, text);
}

static rg_status add_gradients(rg_run_network *run)
{
    rg_value *y[RG_MOST_RUN_FILES], *dy[RG_MOST_RUN_FILES];
    char text[NAME];
    for (int i = 0; i < run->gradients.count; i++) {
        const char *name = run->gradients.files[i].name;
        y[i] = find_result(run->graph, name);
        if (y[i] == NULL)
            return no_result(run, name);
        dy[i] = rg_graph_source(run->graph, gradient_name(name, text));
    }
    return rg_graph_gradients(run->graph, y, dy, run->gradients.count, NULL, NULL);
}

/* Whether an output of the file is a constant, which no node makes. */
static bool is_constant(const rg_run_network *run, const char *name)
{
    rg_onnx_tensor_info info;
    return run->network != NULL && rg_onnx_network_find(run->network, name, &info) == RG_OK &&
           info.role == RG_ONNX_OUTPUT && info.value == NULL;
}

static rg_status ask_gradient(rg_run_network *run, const char *name)
{
    char text[NAME];
    rg_value *value = rg_graph_find_value(run->graph, name);
    rg_value *gradient = value != NULL ? rg_value_gradient(value) : NULL;
    if (gradient == NULL)
        return no_result(run, name);
    return rg_graph_result(run->graph, gradient, gradient_name(name, text));
}

/* Every parameter with a gradient. */
static rg_status ask_all(rg_run_network *run)
{
    bool any = false;
    for (int32_t i = 0; i < rg_graph_values(run->graph); i++) {
        rg_value *value = rg_graph_value_at(run->graph, i);
        if (rg_value_get_kind(value) != RG_VALUE_PARAMETER || rg_value_gradient(value) == NULL)
            continue;
        any = true;
        if (rg_run_files_find(&run->outputs, rg_value_name(value)) == NULL)
            RG_PASS(ask_gradient(run, rg_value_name(value)));
    }
    if (!any)
        return rg_fails(RG_INVALID_ARGUMENT,
                        "%s: no parameter has a gradient of the outputs that are given", run->path);
    return RG_OK;
}

static rg_status ask_results(rg_run_network *run)
{
    if (run->gradients.count > 0)
        RG_PASS(add_gradients(run));
    for (int i = 0; i < run->outputs.count; i++) {
        const char *name = run->outputs.files[i].name;
        if (find_result(run->graph, name) == NULL && !is_constant(run, name))
            RG_PASS(run->gradients.count > 0 ? ask_gradient(run, name) : no_result(run, name));
    }
    return run->all_gradients != NULL ? ask_all(run) : RG_OK;
}

/* ---- a run ---- */

/* A tensor in the order of the graph; `name` is that of the file. */
static rg_status view_of(const rg_run_network *run, const char *name, rg_tensor *tensor,
                         rg_tensor **view)
{
    if (run->network != NULL)
        return rg_onnx_network_view(run->network, name, tensor, view);
    static const int32_t same[] = { 0, 1, 2, 3, 4, 5, 6, 7 };
    return rg_tensor_permute(tensor, same, view);
}

/* The dtype that a source of an ONNX model has; that of the file itself otherwise. */
static rg_status fit_dtype(const rg_run_network *run, const char *name, rg_tensor **tensor)
{
    rg_onnx_tensor_info info;
    rg_tensor_desc desc;
    RG_PASS(rg_tensor_get_desc(*tensor, &desc));
    if (run->network != NULL && rg_onnx_network_find(run->network, name, &info) == RG_OK)
        return rg_op_convert(tensor, info.desc.dtype);
    if (run->has_dtype && (desc.dtype <= RG_BF16))
        return rg_op_convert(tensor, run->dtype);
    return RG_OK;
}

static rg_status find_source(rg_run_network *run, const char *source, rg_tensor **view)
{
    static const char prefix[] = "gradient of ";
    const size_t length = sizeof prefix - 1;
    const bool gradient = strncmp(source, prefix, length) == 0;
    const char *name = gradient ? source + length : source;
    rg_run_file *file = rg_run_files_find(gradient ? &run->gradients : &run->inputs, name);
    if (file == NULL)
        return rg_fails(RG_INVALID_ARGUMENT, "the input '%s' is missing: add %s=FILE", name, name);
    RG_PASS(fit_dtype(run, name, &file->tensor));
    return view_of(run, name, file->tensor, view);
}

static rg_status encode(rg_run_network *run, rg_commands *commands)
{
    const int32_t count = rg_plan_sources(run->plan);
    rg_tensor **views = calloc((size_t)count + 1, sizeof *views);
    rg_status status =
        views != NULL ? RG_OK : rg_fails(RG_OUT_OF_MEMORY, "out of memory for %d inputs", count);
    for (int32_t i = 0; i < count && status == RG_OK; i++)
        status = find_source(run, rg_plan_source_name(run->plan, i), &views[i]);
    if (status == RG_OK)
        status = rg_plan_encode(run->plan, commands, views);
    if (status == RG_OK)
        status = rg_commands_commit(commands);
    if (status == RG_OK)
        status = rg_commands_wait(commands);
    for (int32_t i = 0; i < count && views != NULL; i++)
        rg_tensor_destroy(views[i]);
    free(views);
    return status;
}

static rg_status run_plan(rg_run_network *run)
{
    rg_queue *queue = NULL;
    rg_commands *commands = NULL;
    rg_status status = rg_queue_create(run->device, &queue);
    if (status == RG_OK)
        status = rg_commands_create(queue, &commands);
    if (status == RG_OK)
        status = encode(run, commands);
    rg_commands_destroy(commands);
    rg_queue_destroy(queue);
    return status;
}

/* ---- results ---- */

/* A result, or a gradient, in the order of the file. */
static rg_status result_view(rg_run_network *run, const char *name, rg_tensor **view)
{
    char text[NAME];
    rg_tensor *tensor;
    const bool result = rg_plan_result(run->plan, name, &tensor) == RG_OK;
    if (!result)
        RG_PASS(rg_plan_result(run->plan, gradient_name(name, text), &tensor));
    if (run->network != NULL)
        return rg_onnx_network_file_view(run->network, name, tensor, view);
    return view_of(run, name, tensor, view);
}

static rg_status write_result(rg_run_network *run, const rg_run_file *file)
{
    rg_tensor *view;
    RG_PASS(is_constant(run, file->name)
                ? rg_onnx_network_constant(run->network, file->name, run->device, &view)
                : result_view(run, file->name, &view));
    const rg_status status = rg_tensor_save_npy(view, file->path);
    rg_tensor_destroy(view);
    return status;
}

static rg_status write_all(rg_run_network *run)
{
    const int32_t most = rg_graph_values(run->graph);
    rg_safetensors_entry *entries = calloc((size_t)most + 1, sizeof *entries);
    rg_tensor **views = calloc((size_t)most + 1, sizeof *views);
    rg_status status = entries != NULL && views != NULL
                           ? RG_OK
                           : rg_fails(RG_OUT_OF_MEMORY, "out of memory for the gradients");
    size_t count = 0;
    for (int32_t i = 0; i < most && status == RG_OK; i++) {
        rg_value *value = rg_graph_value_at(run->graph, i);
        if (rg_value_get_kind(value) != RG_VALUE_PARAMETER || rg_value_gradient(value) == NULL)
            continue;
        status = result_view(run, rg_value_name(value), &views[count]);
        entries[count].name = rg_value_name(value);
        entries[count].tensor = views[count];
        count++;
    }
    if (status == RG_OK)
        status = rg_safetensors_write(run->all_gradients, entries, count, NULL, 0);
    for (size_t i = 0; i < count; i++)
        rg_tensor_destroy(views[i]);
    free(entries);
    free(views);
    return status;
}

rg_status rg_run_network_run(rg_run_network *run)
{
    rg_plan_options options = rg_plan_options_default();
    RG_PASS(read_files(run, &run->inputs));
    RG_PASS(read_files(run, &run->gradients));
    RG_PASS(rg_run_network_open(run));
    RG_PASS(ask_results(run));
    options.share = run->first;
    if (rg_graph_results(run->graph) > 0) { /* all outputs of an ONNX model may be constants */
        RG_PASS(rg_plan_create(run->device, run->graph, &options, &run->plan));
        RG_PASS(rg_run_network_load(run));
        RG_PASS(run_plan(run));
    }
    for (int i = 0; i < run->outputs.count; i++)
        RG_PASS(write_result(run, &run->outputs.files[i]));
    return run->all_gradients != NULL ? write_all(run) : RG_OK;
}

static void release_files(rg_run_files *files)
{
    for (int i = 0; i < files->count; i++) {
        rg_tensor_destroy(files->files[i].tensor);
        free(files->files[i].name);
    }
}

void rg_run_network_end(rg_run_network *run)
{
    release_files(&run->inputs);
    release_files(&run->outputs);
    release_files(&run->gradients);
    rg_plan_destroy(run->plan);
    rg_plan_destroy(run->first);
    if (run->network == NULL)
        rg_graph_destroy(run->graph);
    rg_onnx_network_destroy(run->network);
    rg_onnx_close(run->onnx);
    rg_checkpoint_close(run->checkpoint);
    rg_device_destroy(run->device);
}
