/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Public functions that write ONNX models: of graphs, and of imported networks. */
#include "onnx/export.h"

#include "core/dtype.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

rg_onnx_write_desc rg_onnx_write_desc_default(void)
{
    return (rg_onnx_write_desc){ .size = sizeof(rg_onnx_write_desc) };
}

static rg_status check_desc(const char *who, const rg_onnx_write_desc *desc)
{
    RG_CHECK(desc->size == sizeof *desc, RG_INVALID_ARGUMENT,
             "%s: size is %u; start from rg_onnx_write_desc_default()", who, desc->size);
    RG_CHECK(desc->opset == 0 ||
                 (desc->opset >= RG_ONNX_OLDEST_WRITTEN && desc->opset <= RG_ONNX_NEWEST_WRITTEN),
             RG_INVALID_ARGUMENT, "%s: operator set %d cannot be written; %d to %d can", who,
             desc->opset, RG_ONNX_OLDEST_WRITTEN, RG_ONNX_NEWEST_WRITTEN);
    RG_CHECK(!desc->has_dtype || rg_dtype_is_data(desc->dtype), RG_INVALID_ARGUMENT,
             "%s: the dtype must be f32, f64, f16 or bf16", who);
    RG_CHECK(desc->input_count == 0 || desc->inputs != NULL, RG_INVALID_ARGUMENT,
             "%s: inputs is NULL", who);
    RG_CHECK(desc->channels == 0 || (desc->mean != NULL && desc->deviation != NULL),
             RG_INVALID_ARGUMENT, "%s: the mean or the deviation is NULL", who);
    for (int32_t i = 0; i < desc->channels; i++)
        RG_CHECK(isfinite(desc->mean[i]) && isfinite(desc->deviation[i]) && desc->deviation[i] > 0,
                 RG_INVALID_ARGUMENT, "%s: channel %d has mean %g and deviation %g", who, i,
                 desc->mean[i], desc->deviation[i]);
    return RG_OK;
}

/* A model, or its weights alone. */
static rg_status write_either(const rg_graph *graph, rg_plan *plan, const rg_onnx_write_desc *desc,
                              bool weights, const char *path)
{
    rg_writer writer = { 0 };
    RG_CHECK_NOT_NULL(graph);
    RG_CHECK_NOT_NULL(plan);
    RG_CHECK_NOT_NULL(desc);
    RG_CHECK_NOT_NULL(path);
    RG_TRY(check_desc("rg_onnx_write", desc));
    const rg_export_source source = { .plan = plan };
    const rg_status status = rg_graph_export(graph, source, desc, &writer);
    return weights ? rg_writer_save_weights(&writer, status, graph, path)
                   : rg_writer_save(&writer, status, path);
}

rg_status rg_onnx_write(const rg_graph *graph, rg_plan *plan, const rg_onnx_write_desc *desc,
                        const char *path)
{
    return write_either(graph, plan, desc, false, path);
}

rg_status rg_onnx_write_weights(const rg_graph *graph, rg_plan *plan,
                                const rg_onnx_write_desc *desc, const char *path)
{
    return write_either(graph, plan, desc, true, path);
}

/* Whether the model can stay as it was read. */
static bool stays(const rg_onnx_network *network, const rg_onnx_write_desc *desc)
{
    return (desc->opset == 0 || desc->opset == network->model->opset) && !desc->has_dtype &&
           !desc->fold_batch_norm && !desc->gradients && desc->channels == 0;
}

rg_status rg_graph_add_gradients(rg_graph *graph, rg_value *const y[], rg_value *const dy[],
                                 int32_t count)
{
    char name[512];
    RG_TRY(rg_graph_gradients(graph, y, dy, count, NULL, NULL));
    for (size_t i = 0; i < graph->values_count; i++) {
        const rg_value *value = graph->values[i];
        if (value->kind != RG_VALUE_PARAMETER || value->gradient == NULL || value->stops)
            continue;
        snprintf(name, sizeof name, "%.500s_grad", value->name);
        RG_TRY(rg_graph_result(graph, value->gradient, name));
    }
    return RG_OK;
}

/* The outputs that parameters have gradients of, each with an input for its own; *used is how many.
 * Indices of maxima and what depends on inputs alone are none. */
static rg_status find_trained(rg_graph *graph, rg_value *y[], rg_value *dy[], int32_t *used)
{
    char name[512];
    void *trained;
    const int32_t count = rg_graph_results(graph);
    const size_t bytes = graph->values_count * sizeof(bool);
    *used = 0;
    RG_TRY(rg_allocate_zero(&rg_default_allocator, bytes, &trained));
    const rg_status status = rg_graph_trained_values(graph, trained);
    for (int32_t i = 0; i < count && status == RG_OK; i++) {
        const char *result;
        y[*used] = rg_graph_result_at(graph, i, &result);
        if (!((const bool *)trained)[y[*used]->id])
            continue;
        snprintf(name, sizeof name, "%.500s_grad", result);
        dy[(*used)++] = rg_graph_source(graph, name);
    }
    rg_release(&rg_default_allocator, trained, bytes);
    RG_TRY(status);
    return rg_graph_status(graph);
}

static rg_status add_gradients(rg_graph *graph)
{
    enum { MOST = 64 };
    rg_value *y[MOST], *dy[MOST];
    int32_t used = 0;
    const int32_t count = rg_graph_results(graph);
    RG_CHECK(count <= MOST, RG_UNSUPPORTED, "the network has %d outputs", count);
    for (size_t i = 0; i < graph->values_count; i++) {
        if (graph->values[i]->kind == RG_VALUE_SOURCE)
            RG_TRY(rg_value_stop_gradient(graph->values[i]));
    }
    RG_TRY(find_trained(graph, y, dy, &used));
    RG_CHECK(used > 0, RG_UNSUPPORTED, "no output has a gradient of a parameter that is trained");
    return rg_graph_add_gradients(graph, y, dy, used);
}

static rg_status write_used(const rg_onnx_network *network, rg_plan *plan,
                            const rg_onnx_write_desc *desc, rg_writer *writer)
{
    const rg_export_source source = { plan, network };
    rg_graph *copy;
    if (!desc->gradients)
        return rg_graph_export(network->graph, source, desc, writer);
    RG_TRY(rg_graph_copy(network->graph, &copy));
    rg_status status = add_gradients(copy);
    if (status == RG_OK)
        status = rg_graph_export(copy, source, desc, writer);
    rg_graph_destroy(copy);
    return status;
}

/* From the graph as the network is used, which a network for training is imported once more for. */
static rg_status write_graph(const rg_onnx_network *network, rg_plan *plan,
                             const rg_onnx_write_desc *desc, rg_writer *writer)
{
    rg_onnx_network *used = NULL;
    if (!network->options.training)
        return write_used(network, plan, desc, writer);
    rg_onnx_options options = network->options;
    options.training = false;
    RG_TRY(rg_onnx_network_create(network->model, &options, &used));
    const rg_status status = write_used(used, plan, desc, writer);
    rg_onnx_network_destroy(used);
    return status;
}

rg_status rg_onnx_copy(const rg_onnx *model, const char *path)
{
    const rg_onnx_network none = { .model = model };
    rg_writer writer = { 0 };
    RG_CHECK_NOT_NULL(model);
    RG_CHECK_NOT_NULL(path);
    return rg_writer_save(&writer, rg_onnx_rewrite(&none, NULL, NULL, &writer), path);
}

static rg_status write_network(const rg_onnx_network *network, rg_plan *plan,
                               const rg_onnx_write_desc *desc, rg_writer *writer)
{
    rg_onnx_write_desc checked = desc != NULL ? *desc : rg_onnx_write_desc_default();
    RG_CHECK_NOT_NULL(network);
    RG_TRY(check_desc("rg_onnx_write", &checked));
    if (stays(network, &checked))
        return rg_onnx_rewrite(network, plan, NULL, writer);
    if (checked.opset == 0 && network->model->opset >= RG_ONNX_OLDEST_WRITTEN &&
        network->model->opset <= RG_ONNX_NEWEST_WRITTEN)
        checked.opset = (int32_t)network->model->opset;
    return write_graph(network, plan, &checked, writer);
}

rg_status rg_onnx_network_write(const rg_onnx_network *network, rg_plan *plan,
                                const rg_onnx_write_desc *desc, const char *path)
{
    rg_writer writer = { 0 };
    RG_CHECK_NOT_NULL(path);
    return rg_writer_save(&writer, write_network(network, plan, desc, &writer), path);
}

rg_status rg_onnx_network_write_weights(const rg_onnx_network *network, rg_plan *plan,
                                        const rg_onnx_write_desc *desc, const char *path)
{
    rg_writer writer = { 0 };
    RG_CHECK_NOT_NULL(path);
    return rg_writer_save_weights(&writer, write_network(network, plan, desc, &writer), NULL, path);
}
