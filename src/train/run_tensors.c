/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The tensors of a checkpoint: all parameters of a plan, written, checked and read. */
#include "train/run_state.h"

#include "core/memory.h"
#include "files/tensor_pieces.h"
#include "graph/plan.h"

#include <math.h>

static const rg_allocator *const allocator = &rg_default_allocator;

/* ---- checking ---- */

static rg_status check_numbers(const char *name, const void *data, rg_dtype dtype, size_t bytes)
{
    const int64_t count = (int64_t)(bytes / rg_dtype_size(dtype));
    for (int64_t i = 0; i < count; i++) {
        const double value = rg_element_get(data, dtype, i);
        RG_CHECK(isfinite(value), RG_INVALID_STATE, "the parameter '%s' contains %g", name,
                 isnan(value) ? NAN : value);
    }
    return RG_OK;
}

static rg_status check_tensor(const char *name, const rg_tensor *tensor)
{
    const rg_dtype dtype = tensor->desc.dtype;
    rg_pieces pieces;
    RG_TRY(rg_pieces_of_tensor(tensor, true, name, &pieces));
    if (pieces.direct != NULL)
        return check_numbers(name, pieces.direct, dtype, pieces.bytes);
    void *staging;
    RG_TRY(rg_allocate(allocator, pieces.staging, &staging));
    rg_status status = RG_OK;
    for (size_t size; status == RG_OK && (size = rg_pieces_next(&pieces)) > 0;) {
        status = rg_pieces_copy(&pieces, staging);
        if (status == RG_OK)
            status = check_numbers(name, staging, dtype, size);
    }
    rg_release(allocator, staging, pieces.staging);
    return status;
}

rg_status rg_run_state_check(rg_stepper *stepper)
{
    const char *name;
    rg_tensor *tensor;
    RG_TRY(rg_stepper_parameter(stepper, 0, &name, &tensor));
    for (int32_t i = 1; name != NULL; i++) {
        RG_TRY(check_tensor(name, tensor));
        RG_TRY(rg_stepper_parameter(stepper, i, &name, &tensor));
    }
    return RG_OK;
}

/* ---- writing ---- */

/* Fills in the entries, unless it is NULL, and counts them. */
static rg_status list_parameters(rg_stepper *stepper, rg_safetensors_entry *entries, size_t *count)
{
    const char *name;
    rg_tensor *tensor;
    *count = 0;
    RG_TRY(rg_stepper_parameter(stepper, 0, &name, &tensor));
    while (name != NULL) {
        if (entries != NULL)
            entries[*count] = (rg_safetensors_entry){ .name = name, .tensor = tensor };
        *count += 1;
        RG_TRY(rg_stepper_parameter(stepper, (int32_t)*count, &name, &tensor));
    }
    return RG_OK;
}

rg_status rg_run_state_write_file(const char *path, const rg_safetensors_text texts[],
                                  size_t text_count, rg_stepper *stepper)
{
    size_t count;
    rg_safetensors_entry *entries;
    RG_TRY(list_parameters(stepper, NULL, &count));
    RG_TRY(rg_allocate_array(count, sizeof *entries, &entries));
    rg_status status = list_parameters(stepper, entries, &count);
    if (status == RG_OK)
        status = rg_safetensors_write(path, entries, count, texts, text_count);
    rg_release(allocator, entries, count * sizeof *entries);
    return status;
}

/* ---- reading ---- */

static rg_status find_tensor(const char *path, const rg_safetensors *file, const char *name,
                             size_t *index)
{
    RG_CHECK(
        rg_safetensors_find(file, name, index), RG_MALFORMED,
        "%s: the parameter '%s' is missing; the checkpoint belongs to another model or optimizer",
        path, name);
    return RG_OK;
}

static rg_status check_parameter(const char *path, const rg_safetensors *file,
                                 const rg_value *parameter)
{
    char have[RG_SHAPE_TEXT], want[RG_SHAPE_TEXT];
    const rg_tensor_desc *desc = &parameter->desc;
    rg_tensor_desc found;
    size_t index;
    RG_TRY(find_tensor(path, file, parameter->name, &index));
    RG_TRY(rg_safetensors_desc(file, index, &found));
    RG_CHECK(found.dtype == desc->dtype && rg_shape_same_dims(&found, desc), RG_MALFORMED,
             "%s: the parameter '%s' is %s, but the model needs %s", path, parameter->name,
             rg_shape_text(&found, have), rg_shape_text(desc, want));
    return RG_OK;
}

rg_status rg_run_state_check_file(const char *path, const rg_safetensors *file,
                                  const rg_model *model, rg_network_desc options)
{
    rg_network network;
    void *live;
    options.training = false;
    const rg_status made = rg_network_create(model, &options, &network);
    if (made != RG_OK)
        rg_error_prefix("%s: ", path);
    RG_TRY(made);
    const rg_graph *graph = network.graph;
    rg_status status = rg_allocate_zero(allocator, graph->values_count * sizeof(bool), &live);
    if (status == RG_OK) {
        status = rg_graph_live(graph, live);
        for (size_t i = 0; i < graph->values_count && status == RG_OK; i++) {
            const rg_value *value = graph->values[i];
            if (((const bool *)live)[i] && value->kind == RG_VALUE_PARAMETER)
                status = check_parameter(path, file, value);
        }
        rg_release(allocator, live, graph->values_count * sizeof(bool));
    }
    rg_network_destroy(&network);
    return status;
}

static rg_status read_tensor(const char *path, const rg_safetensors *file, const char *name,
                             rg_tensor *tensor)
{
    size_t index;
    RG_TRY(find_tensor(path, file, name, &index));
    return rg_safetensors_read_tensor(file, index, tensor);
}

rg_status rg_run_state_read_plan(const char *path, const rg_safetensors *file, rg_plan *plan)
{
    for (int32_t i = 0; i < rg_plan_parameters(plan); i++) {
        const char *name = rg_plan_parameter_name(plan, i);
        rg_tensor *tensor;
        RG_TRY(rg_plan_parameter(plan, name, &tensor));
        RG_TRY(read_tensor(path, file, name, tensor));
    }
    return RG_OK;
}

rg_status rg_run_state_read_stepper(const char *path, const rg_safetensors *file,
                                    rg_stepper *stepper)
{
    const char *name;
    rg_tensor *tensor;
    RG_TRY(rg_stepper_parameter(stepper, 0, &name, &tensor));
    for (int32_t i = 1; name != NULL; i++) {
        RG_TRY(read_tensor(path, file, name, tensor));
        RG_TRY(rg_stepper_parameter(stepper, i, &name, &tensor));
    }
    return RG_OK;
}

rg_status rg_run_state_read(const char *path, const rg_safetensors *file, const rg_run_state *c,
                            rg_device *device, const rg_stepper_options *options, rg_model **model,
                            rg_stepper **stepper)
{
    rg_status status = rg_model_parse(c->model_name, c->model, model);
    if (status == RG_OK) {
        RG_TRY(rg_run_state_check_file(path, file, *model, options->network));
        status = rg_stepper_create(device, *model, options, stepper);
    }
    if (status != RG_OK)
        rg_error_prefix("%s: ", path);
    RG_TRY(status);
    return rg_run_state_read_stepper(path, file, *stepper);
}
