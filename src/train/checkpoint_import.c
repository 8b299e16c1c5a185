/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Checkpoints of networks that were not trained here: ONNX models, as they are or as text. */
#include "train/model_convert.h"
#include "train/trainer.h"

#include "core/memory.h"
#include "core/shape.h"

#include <retrograde/checkpoint.h>

#include <stdlib.h>

static const rg_allocator *const allocator = &rg_default_allocator;

static rg_status copy_parameter(rg_plan *from, const char *before, rg_plan *to, const char *now)
{
    char have[RG_SHAPE_TEXT], want[RG_SHAPE_TEXT];
    rg_tensor *source, *target;
    rg_tensor_desc a, b;
    void *data;
    RG_TRY(rg_plan_parameter(from, before, &source));
    RG_TRY(rg_plan_parameter(to, now, &target));
    RG_TRY(rg_tensor_get_desc(source, &a));
    RG_TRY(rg_tensor_get_desc(target, &b));
    RG_CHECK(a.dtype == b.dtype && rg_shape_same_dims(&a, &b), RG_UNSUPPORTED,
             "the parameter '%.80s' is %s, but a model as text has %s", before,
             rg_shape_text(&a, have), rg_shape_text(&b, want));
    const size_t bytes = (size_t)rg_shape_count(&a) * rg_dtype_size(a.dtype);
    RG_TRY(rg_allocate(allocator, bytes, &data));
    rg_status status = rg_tensor_read(source, data, bytes, RG_LAYOUT_SAME);
    if (status == RG_OK)
        status = rg_tensor_write(target, data, bytes, RG_LAYOUT_SAME);
    rg_release(allocator, data, bytes);
    return status;
}

/* Replaces the model of a trainer for use alone by one as text. */
static rg_status make_text(rg_trainer *t, const rg_converted *converted)
{
    const rg_stepper_options options = { .network = t->state.network,
                                         .accumulate = 1,
                                         .use_only = true };
    rg_model *model = NULL;
    rg_stepper *stepper = NULL;
    rg_status status = rg_model_parse(t->model->name, converted->text, &model);
    if (status == RG_OK)
        status = rg_stepper_create(t->device, model, &options, &stepper);
    for (size_t i = 0; i < converted->name_count && status == RG_OK; i++)
        status = copy_parameter(rg_stepper_plan(t->stepper), converted->names[i].before,
                                rg_stepper_plan(stepper), converted->names[i].now);
    if (status != RG_OK) {
        rg_stepper_destroy(stepper);
        rg_model_destroy(model);
        return status;
    }
    rg_stepper_destroy(t->stepper);
    rg_model_destroy(t->model);
    t->stepper = stepper;
    t->model = model;
    return RG_OK;
}

static rg_status convert_model(rg_trainer *t)
{
    rg_network_desc desc = t->state.network;
    rg_converted converted;
    rg_graph *graph;
    desc.size = sizeof desc;
    desc.logits_only = true;
    desc.training = false;
    RG_TRY(rg_model_graph(t->model, &desc, &graph));
    rg_status status = rg_graph_to_text(graph, desc.classes, &converted);
    if (status == RG_OK) {
        status = make_text(t, &converted);
        rg_converted_release(&converted);
    }
    if (status != RG_OK)
        rg_error_prefix("%s: ", t->model->name);
    rg_graph_destroy(graph);
    return status;
}

static rg_status write_state(rg_trainer *t, const char *path)
{
    rg_run_state *s = &t->state;
    free(s->model_name);
    free(s->model);
    free(s->options);
    s->model_name = s->model = s->options = NULL;
    RG_TRY(rg_copy_text(t->model->name, &s->model_name));
    RG_TRY(rg_copy_text(t->model->text, &s->model));
    RG_TRY(rg_copy_text("", &s->options));
    RG_TRY(rg_run_state_check(t->stepper));
    return rg_run_state_write(path, s, t->stepper);
}

rg_status rg_checkpoint_import(rg_device *device, const rg_model *model, bool as_text,
                               const char *path)
{
    rg_trainer *trainer;
    RG_CHECK_NOT_NULL(path);
    RG_TRY(rg_trainer_open(device, model, NULL, RG_NORMALIZE_NONE, &trainer));
    rg_status status = as_text ? convert_model(trainer) : RG_OK;
    if (status == RG_OK)
        status = write_state(trainer, path);
    rg_trainer_destroy(trainer);
    return status;
}

rg_status rg_checkpoint_import_weights(rg_device *device, const rg_model *model,
                                       const rg_network_desc *network, const char *weights,
                                       rg_weights_say *say, void *context, const char *path)
{
    rg_trainer *trainer;
    RG_CHECK_NOT_NULL(device);
    RG_CHECK_NOT_NULL(model);
    RG_CHECK_NOT_NULL(weights);
    RG_CHECK_NOT_NULL(path);
    rg_network_desc checked;
    RG_TRY(rg_network_desc_copy(__func__, network, &checked));
    RG_CHECK(checked.channels <= RG_DATASET_CHANNELS && checked.classes <= RG_DATASET_CLASSES,
             RG_INVALID_ARGUMENT, "a checkpoint has at most %d channels and %d classes",
             RG_DATASET_CHANNELS, RG_DATASET_CLASSES);
    RG_TRY(rg_trainer_use(device, model, &checked, &trainer));
    rg_status status = rg_trainer_read_weights(trainer, weights, true, say, context);
    if (status == RG_OK)
        status = write_state(trainer, path);
    rg_trainer_destroy(trainer);
    return status;
}
