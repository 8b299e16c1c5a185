/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Networks of ONNX models: the imported graph with labels and loss, and its first parameters. */
#include "train/model_onnx.h"

#include "core/dtype.h"
#include "core/memory.h"
#include "core/shape.h"
#include "onnx/onnx_write.h"
#include "train/patterns.h"
#include "train/scores.h"

#include <math.h>
#include <stdio.h>

static const rg_allocator *const allocator = &rg_default_allocator;

static bool is_frozen(const void *context, const char *name)
{
    return rg_patterns_match(context, name);
}

static rg_status import(const rg_onnx *model, const rg_network_desc *o, rg_onnx_network **network)
{
    const rg_loss_kind loss = rg_network_loss(o);
    const rg_onnx_images images = { .height = o->height,
                                    .width = o->width,
                                    .channels = o->channels,
                                    .without_softmax = loss == RG_LOSS_SOFTMAX_CROSS_ENTROPY,
                                    .without_sigmoid = loss == RG_LOSS_SIGMOID_CROSS_ENTROPY,
                                    .is_frozen = is_frozen,
                                    .context = o->freeze };
    rg_onnx_options options = rg_onnx_options_default();
    options.training = o->training;
    options.has_dtype = true;
    options.dtype = o->dtype;
    options.seed = o->seed;
    return rg_onnx_network_for_images(model, &options, &images, network);
}

/* ---- layers ---- */

static int64_t trained_by(const rg_node *node)
{
    int64_t count = 0;
    for (int32_t k = 0; k < node->inputs; k++) {
        const rg_value *value = node->in[k];
        if (value != NULL && value->kind == RG_VALUE_PARAMETER && !value->stops &&
            rg_dtype_is_data(value->desc.dtype))
            count += rg_shape_count(&value->desc);
    }
    return count;
}

/* Every node of the forward pass, with its shape for one image. */
static rg_status list_layers(rg_network *network, const rg_tensor_desc *images)
{
    const rg_graph *graph = network->graph;
    const size_t bytes = graph->values_count * sizeof(rg_tensor_desc);
    void *memory, *layers;
    RG_TRY(
        rg_allocate_zero(allocator, (graph->nodes_count + 1) * sizeof *network->layers, &layers));
    network->layers = (rg_network_layer *)layers + 1;
    network->layers_count = graph->nodes_count;
    RG_TRY(rg_allocate_zero(allocator, bytes, &memory));
    rg_tensor_desc *shapes = memory;
    rg_status status = RG_OK;
    for (size_t i = 0; i < graph->values_count; i++)
        shapes[i] = graph->values[i] == network->images ? *images : graph->values[i]->desc;
    for (size_t i = 0; i < graph->nodes_count && status == RG_OK; i++) {
        rg_node *node = graph->nodes[i];
        rg_tensor_desc x[RG_MAX_INPUTS], y[RG_MAX_OUTPUTS];
        for (int32_t k = 0; k < node->inputs; k++)
            x[k] = shapes[node->in[k]->id];
        status = node->op->shapes(node->desc, x, y);
        for (int32_t k = 0; k < node->outputs && status == RG_OK; k++)
            shapes[node->out[k]->id] = y[k];
        network->layers[i] = (rg_network_layer){ node, node->out[0], y[0], trained_by(node) };
    }
    rg_release(allocator, memory, bytes);
    return status;
}

/* ---- parameters ---- */

/* The last layer starts anew where it was replaced. */
static void start_head(const rg_onnx_head *head, const rg_onnx_tensor_info *info, bool replaced,
                       rg_network_parameter *made)
{
    const bool w = head->w != NULL && strcmp(head->w->name, info->name) == 0;
    const bool b = head->b != NULL && strcmp(head->b->name, info->name) == 0;
    made->head = w || b;
    if (!replaced || !made->head)
        return;
    made->stored = false;
    made->start = w ? RG_START_NORMAL : RG_START_ZERO;
    if (w)
        made->deviation = sqrt((double)head->classes / (double)rg_shape_count(&info->desc));
}

static rg_status add_parameter(rg_network *network, const rg_onnx_head *head,
                               const rg_onnx_tensor_info *info)
{
    const bool frozen = rg_patterns_match(network->options.freeze, info->name);
    rg_network_parameter made = { .value = info->value,
                                  .trained = info->trained && !frozen,
                                  .stored = true };
    if (frozen)
        RG_TRY(rg_value_stop_gradient(info->value));
    memcpy(made.order, info->order, sizeof made.order);
    /* weight decay is for those with a row of inputs for each output */
    made.start = info->desc.rank >= 2 ? RG_START_NORMAL : RG_START_ZERO;
    start_head(head, info, network->model->base != NULL, &made);
    RG_TRY(rg_grow(allocator, (void **)&network->parameters, &network->parameters_capacity,
                   network->parameters_count, sizeof network->parameters[0]));
    network->parameters[network->parameters_count++] = made;
    return RG_OK;
}

/* The images, the output and all parameters among the tensors of the file. */
static rg_status take_tensors(const rg_onnx_network *imported, rg_network *network,
                              rg_onnx_tensor_info *output)
{
    rg_onnx_head head;
    char images[RG_OWN_NAME];
    rg_network_own_name(network, "images", images);
    if (rg_onnx_find_head(imported->model, &head) != RG_OK)
        head = (rg_onnx_head){ .w = NULL }; /* of no account until it is replaced */
    for (size_t i = 0; i < imported->entry_count; i++) {
        const rg_onnx_tensor_info *info = &imported->entries[i].info;
        if (info->role == RG_ONNX_INPUT)
            network->images = rg_graph_find_value(network->graph, images);
        else if (info->role == RG_ONNX_OUTPUT)
            *output = *info;
        else
            RG_TRY(add_parameter(network, &head, info));
    }
    RG_CHECK(output->value != NULL, RG_UNSUPPORTED, "the network has no output");
    RG_CHECK(network->images != NULL, RG_UNSUPPORTED, "nothing reads the images");
    return RG_OK;
}

static rg_status check_trained(const rg_network *network)
{
    for (size_t i = 0; i < network->parameters_count; i++) {
        if (network->parameters[i].trained)
            return RG_OK;
    }
    return rg_fail(RG_UNSUPPORTED, "the network has no parameters that can be trained");
}

static rg_status build(const rg_model *model, const rg_network_desc *o,
                       const rg_onnx_network *imported, rg_network *network)
{
    const int64_t dims[] = { 1, o->height, o->width, o->channels };
    const rg_tensor_desc images = rg_tensor_desc_dense(o->dtype, 4, dims);
    rg_onnx_tensor_info output = { .value = NULL };
    int64_t shape[RG_MAX_RANK];
    char labels[RG_OWN_NAME];
    RG_TRY(take_tensors(imported, network, &output));
    if (o->training)
        RG_TRY(check_trained(network));
    for (int32_t d = 0; d < output.desc.rank; d++)
        shape[d] = d == 0 ? 1 : output.desc.dims[output.order[d]];
    const rg_tensor_desc y = rg_tensor_desc_dense(o->dtype, output.desc.rank, shape);
    RG_TRY(list_layers(network, &images));
    rg_network_own_name(network, "labels", labels);
    if (!o->logits_only)
        network->labels = rg_graph_source(network->graph, labels);
    RG_TRY(rg_graph_status(network->graph));
    return rg_network_add_results(network, o, model->name, output.value, &y);
}

rg_status rg_network_build_onnx(const rg_model *model, const rg_network_desc *options,
                                rg_network *network)
{
    rg_onnx_network *imported;
    RG_TRY(import(model->onnx, options, &imported));
    network->graph = imported->graph;
    imported->graph = NULL;
    network->model = model;
    network->options = *options;
    const rg_status status = build(model, options, imported, network);
    rg_onnx_network_destroy(imported);
    return status;
}

void rg_network_own_name(const rg_network *network, const char *wanted, char name[RG_OWN_NAME])
{
    rg_onnx_own_name(network->model != NULL ? network->model->onnx : NULL, wanted, name);
}

/* ---- first values ---- */

static rg_status write_values(const rg_onnx_network *file, const rg_onnx_entry *entry,
                              rg_tensor *tensor)
{
    rg_tensor_desc desc;
    rg_tensor *view;
    void *data = NULL;
    size_t bytes = 0;
    RG_TRY(rg_tensor_get_desc(tensor, &desc));
    RG_TRY(rg_onnx_network_file_view(file, entry->info.name, tensor, &view));
    rg_status status = rg_onnx_network_elements(file, entry, desc.dtype, &data, &bytes);
    if (status == RG_OK)
        status = rg_tensor_write(view, data, bytes, RG_LAYOUT_SAME);
    rg_release(allocator, data, bytes);
    rg_tensor_destroy(view);
    return status;
}

/* The parameters whose values are those of the file, by their names. */
static rg_status list_stored(const rg_network *network, rg_names *stored)
{
    for (size_t i = 0; i < network->parameters_count; i++) {
        const rg_network_parameter *p = &network->parameters[i];
        if (p->stored && rg_names_find(stored, p->value->name) == NULL)
            RG_TRY(rg_names_add(stored, p->value->name, p->value));
    }
    return RG_OK;
}

/* A parameter, and its copy of 32 bits where it has 16. One that the plan does not need is not in
 * it. */
static rg_status start_entry(const rg_names *stored, const rg_onnx_network *file,
                             const rg_onnx_entry *entry, rg_plan *plan)
{
    rg_tensor *tensor;
    char master[300];
    if (entry->info.role != RG_ONNX_PARAMETER || rg_names_find(stored, entry->info.name) == NULL ||
        rg_plan_parameter(plan, entry->info.name, &tensor) != RG_OK)
        return RG_OK;
    RG_TRY(write_values(file, entry, tensor));
    snprintf(master, sizeof master, "%s.master", entry->info.name);
    return rg_plan_parameter(plan, master, &tensor) == RG_OK ? write_values(file, entry, tensor)
                                                             : RG_OK;
}

rg_status rg_network_start_onnx(const rg_network *network, rg_plan *plan)
{
    rg_onnx_network *file;
    if (network->model->file == NULL)
        return RG_OK; /* of a checkpoint, which has the values */
    RG_TRY(import(network->model->file, &network->options, &file));
    rg_names stored = { 0 };
    rg_status status = list_stored(network, &stored);
    for (size_t i = 0; i < file->entry_count && status == RG_OK; i++) {
        status = start_entry(&stored, file, &file->entries[i], plan);
        if (status != RG_OK)
            rg_error_prefix("%s: parameter '%.80s': ", network->model->name,
                            file->entries[i].info.name);
    }
    rg_names_clear(&stored);
    rg_onnx_network_destroy(file);
    return status;
}

/* ---- models with new weights ---- */

rg_status rg_model_rewrite_onnx(const rg_model *model, const rg_network_desc *network,
                                rg_plan *plan, const rg_onnx_write_desc *desc, bool weights,
                                const char *path)
{
    rg_onnx_network *imported;
    rg_writer writer = { 0 };
    if (desc->has_dtype || desc->fold_batch_norm || desc->probabilities || desc->gradients ||
        (desc->opset != 0 && desc->opset != rg_onnx_opset(model->onnx)))
        return RG_UNSUPPORTED;
    RG_TRY(import(model->onnx, network, &imported));
    const rg_status status = rg_onnx_rewrite(imported, plan, desc, &writer);
    rg_onnx_network_destroy(imported);
    return weights ? rg_writer_save_weights(&writer, status, NULL, path)
                   : rg_writer_save(&writer, status, path);
}
