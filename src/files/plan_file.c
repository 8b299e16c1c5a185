/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Plans in safetensors files: parameters under their names, the graph as JSON beside them. */
#include "files/graph_json.h"
#include "graph/plan.h"

#include <retrograde/files.h>
#include <retrograde/safetensors.h>

static const rg_allocator *const allocator = &rg_default_allocator;

static const char graph_key[] = "retrograde.graph";

/* ---- writing ---- */

static rg_status write_file(const rg_plan *plan, rg_safetensors_entry entries[], char *text,
                            size_t length, const char *path)
{
    size_t count = 0;
    for (int32_t v = 0; v < plan->slots_count; v++) {
        if (plan->parameters[v] != NULL && plan->slots[v].name != NULL)
            entries[count++] = (rg_safetensors_entry){ .name = plan->slots[v].name,
                                                       .tensor = plan->parameters[v] };
    }
    rg_graph_to_json(plan->graph, text, length + 1);
    const rg_safetensors_text graph = { graph_key, text };
    return rg_safetensors_write(path, entries, count, &graph, 1);
}

rg_status rg_plan_save(const rg_plan *plan, const char *path)
{
    RG_CHECK_NOT_NULL(plan);
    RG_CHECK_NOT_NULL(path);
    const size_t length = rg_graph_to_json(plan->graph, NULL, 0);
    const size_t capacity = (size_t)rg_plan_parameters(plan);
    RG_CHECK(length <= RG_GRAPH_TEXT_LIMIT, RG_INVALID_ARGUMENT,
             "rg_plan_save: the graph has %zu bytes, more than can be loaded", length);
    rg_safetensors_entry *entries = NULL;
    char *text = NULL;
    rg_status status = rg_allocate_array(capacity, sizeof *entries, &entries);
    if (status == RG_OK)
        status = rg_allocate_array(length + 1, 1, &text);
    if (status == RG_OK)
        status = write_file(plan, entries, text, length, path);
    rg_release(allocator, entries, capacity * sizeof *entries);
    rg_release(allocator, text, length + 1);
    return status;
}

/* ---- reading ---- */

/* Finds the elements of a parameter in a file, in its dtype and shape. */
static rg_status find_parameter(const rg_safetensors *file, const char *name,
                                const rg_tensor_desc *desc, size_t *index)
{
    char have[RG_SHAPE_TEXT], want[RG_SHAPE_TEXT];
    rg_tensor_desc found;
    RG_CHECK(rg_safetensors_find(file, name, index), RG_MALFORMED,
             "the parameter '%s' does not exist", name);
    RG_TRY(rg_safetensors_desc(file, *index, &found));
    RG_CHECK(found.dtype == desc->dtype && rg_shape_same_dims(&found, desc), RG_MALFORMED,
             "the parameter '%s' is %s, not %s", name, rg_shape_text(&found, have),
             rg_shape_text(desc, want));
    return RG_OK;
}

/* All are looked for before the first is read. */
static rg_status read_parameters(const rg_safetensors *file, const rg_plan *plan)
{
    size_t index;
    for (int read = 0; read < 2; read++) {
        for (int32_t v = 0; v < plan->slots_count; v++) {
            rg_tensor *tensor = plan->parameters[v];
            if (tensor == NULL || plan->slots[v].name == NULL)
                continue;
            RG_TRY(find_parameter(file, plan->slots[v].name, &tensor->desc, &index));
            if (read)
                RG_TRY(rg_safetensors_read_tensor(file, index, tensor));
        }
    }
    return RG_OK;
}

/* Whether the file has what a plan of the graph would allocate. */
static rg_status check_parameters(const rg_safetensors *file, const rg_graph *graph)
{
    bool *live = NULL;
    size_t index;
    RG_TRY(rg_allocate_array(graph->values_count, sizeof *live, &live));
    rg_status status = rg_graph_live(graph, live);
    for (size_t i = 0; i < graph->values_count && status == RG_OK; i++) {
        const rg_value *value = graph->values[i];
        if (live[i] && value->kind == RG_VALUE_PARAMETER)
            status = find_parameter(file, value->name, &value->desc, &index);
    }
    rg_release(allocator, live, graph->values_count * sizeof *live);
    return status;
}

static rg_status read_graph(const rg_safetensors *file, rg_graph **graph)
{
    const char *text = rg_safetensors_metadata(file, graph_key);
    RG_CHECK(text != NULL, RG_MALFORMED, "the file has no metadata entry '%s'", graph_key);
    return rg_graph_from_json(text, strlen(text), graph);
}

static rg_status load_plan(rg_device *device, const rg_safetensors *file,
                           const rg_plan_options *options, rg_plan **plan)
{
    rg_graph *graph = NULL;
    RG_TRY(read_graph(file, &graph));
    rg_status status = check_parameters(file, graph);
    if (status == RG_OK)
        status = rg_plan_create(device, graph, options, plan);
    rg_graph_destroy(graph);
    if (status == RG_OK)
        status = read_parameters(file, *plan);
    if (status != RG_OK) {
        rg_plan_destroy(*plan);
        *plan = NULL;
    }
    return status;
}

rg_status rg_plan_load(rg_device *device, const char *path, const rg_plan_options *options,
                       rg_plan **plan)
{
    RG_CHECK_NOT_NULL(plan);
    *plan = NULL;
    RG_CHECK_NOT_NULL(device);
    RG_CHECK_NOT_NULL(path);
    rg_safetensors *file;
    RG_TRY(rg_safetensors_open(path, &file));
    const rg_status status = load_plan(device, file, options, plan);
    if (status != RG_OK)
        rg_error_prefix("%s: ", path);
    rg_safetensors_close(file);
    return status;
}

rg_status rg_plan_load_parameters(rg_plan *plan, const char *path)
{
    RG_CHECK_NOT_NULL(plan);
    RG_CHECK_NOT_NULL(path);
    rg_safetensors *file;
    RG_TRY(rg_safetensors_open(path, &file));
    const rg_status status = read_parameters(file, plan);
    if (status != RG_OK)
        rg_error_prefix("%s: ", path);
    rg_safetensors_close(file);
    return status;
}
