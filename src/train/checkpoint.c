/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Public functions of checkpoints: info, options, the graph, a plan with its weights. */
#include "train/model_onnx.h"
#include "train/trainer.h"

#include "core/memory.h"

#include <retrograde/checkpoint.h>
#include <retrograde/nodes.h>

#include <stdlib.h>

static const rg_allocator *const allocator = &rg_default_allocator;

struct rg_checkpoint {
    char *path;
    rg_safetensors *file;
    rg_run_state state;
    rg_model *model;
};

static rg_status open_texts(rg_checkpoint *c, const char *path)
{
    RG_TRY(rg_copy_text(path, &c->path));
    return rg_run_state_open(path, &c->state, &c->file);
}

static rg_status open_model(rg_checkpoint *c)
{
    const rg_status status = rg_model_parse(c->state.model_name, c->state.model, &c->model);
    if (status != RG_OK)
        rg_error_prefix("%s: ", c->path);
    RG_TRY(status);
    return rg_run_state_check_file(c->path, c->file, c->model, c->state.network);
}

rg_status rg_checkpoint_inspect(const char *path, rg_checkpoint **checkpoint)
{
    void *memory;
    RG_CHECK_NOT_NULL(checkpoint);
    *checkpoint = NULL;
    RG_CHECK_NOT_NULL(path);
    RG_TRY(rg_allocate_zero(allocator, sizeof **checkpoint, &memory));
    rg_checkpoint *made = memory;
    const rg_status status = open_texts(made, path);
    if (status == RG_OK)
        *checkpoint = made;
    else
        rg_checkpoint_close(made);
    return status;
}

rg_status rg_checkpoint_open(const char *path, rg_checkpoint **checkpoint)
{
    RG_TRY(rg_checkpoint_inspect(path, checkpoint));
    const rg_status status = open_model(*checkpoint);
    if (status != RG_OK) {
        rg_checkpoint_close(*checkpoint);
        *checkpoint = NULL;
    }
    return status;
}

void rg_checkpoint_close(rg_checkpoint *checkpoint)
{
    if (checkpoint == NULL)
        return;
    rg_model_destroy(checkpoint->model);
    rg_run_state_release(&checkpoint->state);
    rg_safetensors_close(checkpoint->file);
    free(checkpoint->path);
    rg_release(allocator, checkpoint, sizeof *checkpoint);
}

rg_status rg_checkpoint_get_info(const rg_checkpoint *checkpoint, rg_checkpoint_info *info)
{
    RG_CHECK_NOT_NULL(checkpoint);
    RG_CHECK_NOT_NULL(info);
    const rg_run_state *s = &checkpoint->state;
    *info = (rg_checkpoint_info){ .network = s->network,
                                  .epochs = s->epoch,
                                  .steps = s->steps,
                                  .best_epoch = s->best_epoch,
                                  .best_accuracy = s->best_accuracy };
    info->network.size = sizeof info->network;
    memcpy(info->mean, s->mean, sizeof info->mean);
    memcpy(info->deviation, s->deviation, sizeof info->deviation);
    return RG_OK;
}

const rg_model *rg_checkpoint_model(const rg_checkpoint *checkpoint)
{
    return checkpoint != NULL ? checkpoint->model : NULL;
}

const char *rg_checkpoint_class_name(const rg_checkpoint *checkpoint, int32_t label)
{
    if (checkpoint == NULL || label < 0 || label >= checkpoint->state.network.classes)
        return "";
    return checkpoint->state.class_names[label];
}

rg_status rg_checkpoint_trainer_desc(const rg_checkpoint *checkpoint, rg_trainer_desc *desc)
{
    RG_CHECK_NOT_NULL(checkpoint);
    RG_CHECK_NOT_NULL(desc);
    const rg_status status = rg_trainer_desc_read(checkpoint->state.options, desc);
    if (status != RG_OK)
        rg_error_prefix("%s: ", checkpoint->path);
    return status;
}

const char *rg_checkpoint_options(const rg_checkpoint *checkpoint)
{
    return checkpoint != NULL ? checkpoint->state.options : "";
}

rg_status rg_checkpoint_graph(const rg_checkpoint *checkpoint, rg_graph **graph)
{
    RG_CHECK_NOT_NULL(graph);
    *graph = NULL;
    RG_CHECK_NOT_NULL(checkpoint);
    RG_CHECK(checkpoint->model != NULL, RG_INVALID_STATE,
             "rg_checkpoint_graph: the checkpoint was opened for inspection alone");
    rg_network_desc desc = checkpoint->state.network;
    desc.logits_only = true;
    return rg_model_graph(checkpoint->model, &desc, graph);
}

rg_status rg_checkpoint_plan(const rg_checkpoint *checkpoint, rg_device *device, rg_plan **plan)
{
    const rg_plan_options options = rg_plan_options_default();
    rg_graph *graph;
    rg_plan *made = NULL;
    RG_CHECK_NOT_NULL(plan);
    *plan = NULL;
    RG_CHECK_NOT_NULL(checkpoint);
    RG_CHECK_NOT_NULL(device);
    RG_TRY(rg_checkpoint_graph(checkpoint, &graph));
    rg_status status = rg_plan_create(device, graph, &options, &made);
    if (status == RG_OK)
        status = rg_run_state_read_plan(checkpoint->path, checkpoint->file, made);
    rg_graph_destroy(graph);
    if (status == RG_OK)
        *plan = made;
    else
        rg_plan_destroy(made);
    return status;
}

/* ---- ONNX ---- */

/* What rg_trainer_predict() gives. */
static rg_status add_probabilities(const rg_checkpoint *checkpoint, rg_graph *graph)
{
    const rg_target_kind target = checkpoint->state.network.target;
    rg_value *logits = rg_graph_result_at(graph, 0, NULL);
    RG_CHECK(target != RG_TARGET_VALUES, RG_INVALID_ARGUMENT,
             "%s: a network that predicts values has no probabilities", checkpoint->path);
    rg_neuron_desc neuron = rg_neuron_desc_default();
    neuron.kind = RG_NEURON_SIGMOID;
    const rg_softmax_desc softmax = rg_softmax_desc_default();
    rg_node *node = target == RG_TARGET_LABELS
                        ? rg_graph_neuron(graph, &neuron, (rg_value *[]){ logits })
                        : rg_graph_softmax(graph, &softmax, (rg_value *[]){ logits });
    RG_TRY(rg_graph_status(graph));
    return rg_graph_result(graph, rg_node_output(node, 0), "probabilities");
}

/* The images, their normalization, and names as an ONNX model has them. */
typedef struct onnx_request {
    rg_onnx_write_desc desc;
    rg_onnx_write_input images;
    rg_onnx_write_name names[2];
} onnx_request;

static void fill_request(const rg_checkpoint *checkpoint, const rg_onnx_write_desc *desc,
                         onnx_request *request)
{
    const rg_run_state *s = &checkpoint->state;
    const rg_onnx *model = checkpoint->model->onnx;
    const int64_t dims[] = { 1, s->network.height, s->network.width, s->network.channels };
    rg_onnx_port_info info;
    request->desc = desc != NULL ? *desc : rg_onnx_write_desc_default();
    request->images.name = "images";
    request->images.desc = rg_tensor_desc_dense(s->network.dtype, 4, dims);
    request->images.desc.dims[0] = -1;
    request->desc.inputs = &request->images;
    request->desc.input_count = 1;
    request->desc.mean = s->mean;
    request->desc.deviation = s->deviation;
    request->desc.channels = request->desc.raw_input ? 0 : (int32_t)s->network.channels;
    request->desc.flat_results = true;
    request->desc.names = request->names;
    request->desc.name_count = 0;
    if (request->desc.name == NULL)
        request->desc.name = s->model_name;
    if (rg_onnx_input(model, 0, &info) != RG_OK)
        return;
    request->names[0] = (rg_onnx_write_name){ "images", info.name };
    if (rg_onnx_output(model, 0, &info) == RG_OK)
        request->names[1] = (rg_onnx_write_name){ "logits", info.name };
    request->desc.name_count = 2;
}

/* From the graph: operators of the set that is asked for. */
static rg_status write_graph(const rg_checkpoint *checkpoint, rg_plan *plan,
                             const rg_onnx_write_desc *desc, bool weights, const char *path)
{
    rg_graph *graph = NULL;
    rg_status status = rg_checkpoint_graph(checkpoint, &graph);
    if (status == RG_OK && desc->probabilities)
        status = add_probabilities(checkpoint, graph);
    if (status == RG_OK)
        status = weights ? rg_onnx_write_weights(graph, plan, desc, path)
                         : rg_onnx_write(graph, plan, desc, path);
    rg_graph_destroy(graph);
    return status;
}

static rg_status write_either(const rg_checkpoint *checkpoint, rg_device *device,
                              const rg_onnx_write_desc *desc, bool weights, const char *path)
{
    onnx_request request;
    rg_plan *plan;
    RG_CHECK_NOT_NULL(checkpoint);
    RG_CHECK_NOT_NULL(device);
    RG_CHECK_NOT_NULL(path);
    RG_CHECK(checkpoint->model != NULL, RG_INVALID_STATE,
             "%s: the checkpoint was opened for inspection alone", checkpoint->path);
    fill_request(checkpoint, desc, &request);
    RG_TRY(rg_checkpoint_plan(checkpoint, device, &plan));
    rg_status status = RG_UNSUPPORTED;
    if (checkpoint->model->onnx != NULL)
        status = rg_model_rewrite_onnx(checkpoint->model, &checkpoint->state.network, plan,
                                       &request.desc, weights, path);
    if (status == RG_UNSUPPORTED)
        status = write_graph(checkpoint, plan, &request.desc, weights, path);
    rg_plan_destroy(plan);
    return status;
}

rg_status rg_checkpoint_write_onnx(const rg_checkpoint *checkpoint, rg_device *device,
                                   const rg_onnx_write_desc *desc, const char *path)
{
    return write_either(checkpoint, device, desc, false, path);
}

rg_status rg_checkpoint_write_weights(const rg_checkpoint *checkpoint, rg_device *device,
                                      const rg_onnx_write_desc *desc, const char *path)
{
    rg_onnx_write_desc options = desc != NULL ? *desc : rg_onnx_write_desc_default();
    options.raw_input = true;
    return write_either(checkpoint, device, &options, true, path);
}
