/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Public functions of checkpoints: info, options, the graph, a plan with its weights. */
#include "train/model_onnx.h"
#include "train/trainer.h"

#include "core/memory.h"

#include <retrograde/checkpoint.h>

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
                                  .best_accuracy = s->best_accuracy,
                                  .columns = s->columns,
                                  .column_mean = s->column_mean,
                                  .column_deviation = s->column_deviation,
                                  .train_images = s->set_images };
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

/* Whether the file has these images as (n, h, w, c). */
static bool has_channels_last(const rg_onnx_port_info *info, const rg_network_desc *images)
{
    const int64_t h = images->height, w = images->width, *dims = info->dims;
    return info->rank == 4 && dims[1] == h && dims[2] == w && (dims[2] != h || dims[3] != w);
}

/* Normalization of the images, and names and orders of dimensions as an ONNX model has them;
 * `images` is the name in the graph. */
static void fill_request(const rg_checkpoint *checkpoint, const rg_onnx_write_desc *desc,
                         char images[RG_OWN_NAME], rg_onnx_write_name names[3],
                         rg_onnx_write_desc *request)
{
    const rg_run_state *s = &checkpoint->state;
    const rg_onnx *model = checkpoint->model->onnx;
    rg_onnx_port_info info;
    *request = desc != NULL ? *desc : rg_onnx_write_desc_default();
    request->by_columns = s->columns > 0;
    request->mean = request->by_columns ? s->column_mean : s->mean;
    request->deviation = request->by_columns ? s->column_deviation : s->deviation;
    request->channels = (int32_t)(request->by_columns ? s->columns : s->network.channels);
    if (request->raw_input)
        request->channels = 0;
    request->names = names;
    request->name_count = 0;
    if (rg_onnx_input(model, 0, &info) != RG_OK)
        return;
    rg_onnx_own_name(model, "images", images);
    const bool last = rg_onnx_has_channels_last(model, s->network.channels);
    names[0] = (rg_onnx_write_name){ images, info.name, last };
    if (rg_onnx_output(model, 0, &info) != RG_OK)
        return;
    const bool output_last = last && has_channels_last(&info, &s->network);
    names[1] = (rg_onnx_write_name){ "logits", info.name, output_last };
    names[2] = (rg_onnx_write_name){ "probabilities", "probabilities", output_last };
    request->name_count = 3;
}

static rg_status write_either(const rg_checkpoint *checkpoint, rg_device *device,
                              const rg_onnx_write_desc *desc, bool weights, const char *path)
{
    char images[RG_OWN_NAME];
    rg_onnx_write_name names[3];
    rg_onnx_write_desc request;
    rg_plan *plan;
    RG_CHECK_NOT_NULL(checkpoint);
    RG_CHECK_NOT_NULL(device);
    RG_CHECK_NOT_NULL(path);
    RG_CHECK(checkpoint->model != NULL, RG_INVALID_STATE,
             "%s: the checkpoint was opened for inspection alone", checkpoint->path);
    fill_request(checkpoint, desc, images, names, &request);
    RG_TRY(rg_checkpoint_plan(checkpoint, device, &plan));
    rg_status status = RG_UNSUPPORTED;
    if (checkpoint->model->onnx != NULL)
        status = rg_model_rewrite_onnx(checkpoint->model, &checkpoint->state.network, plan,
                                       &request, weights, path);
    if (status == RG_UNSUPPORTED)
        status = rg_model_write_onnx(checkpoint->model, &checkpoint->state.network, plan, &request,
                                     weights, path);
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
    options.gradients = options.probabilities = false;
    return write_either(checkpoint, device, &options, true, path);
}
