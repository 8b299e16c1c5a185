/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Sessions: plans that make gradients and add them up, one that changes the parameters, and the
 * network as it is used, all with the same parameters. */
#include "train/session.h"

#include "core/memory.h"
#include "core/shape.h"
#include "runtime/objects.h"
#include "train/model_onnx.h"
#include "train/patterns.h"

#include <retrograde/nodes.h>

#include <math.h>

static const rg_allocator *const allocator = &rg_default_allocator;

/* ---- graphs ---- */

static rg_status make_gradients(rg_session *s, bool adds, rg_network *network)
{
    rg_network_desc options = s->desc.network;
    options.training = true;
    RG_TRY(rg_network_create(s->model, &options, network));
    RG_TRY(rg_value_stop_gradient(network->images));
    RG_TRY(rg_graph_gradients(network->graph, &network->loss, NULL, 1, NULL, NULL));
    for (size_t i = 0; i < network->parameters_count; i++) {
        const rg_network_parameter *p = &network->parameters[i];
        rg_value *gradient = rg_value_gradient(p->value);
        if (p->trained && gradient != NULL)
            (void)rg_stepper_add_sum(network, p, adds ? RG_STEP_SHARE_MIDDLE : RG_STEP_SHARE_FIRST,
                                     gradient, p->value->desc.dtype);
    }
    return rg_graph_status(network->graph);
}

/* The optimizer alone: it reads the sums. */
static rg_status make_update(const rg_session *s, rg_graph *graph)
{
    const rg_stepper_options options = { .optimizer = s->desc.optimizer,
                                         .momentum = s->desc.momentum,
                                         .decay = s->desc.decay,
                                         .accumulate = 1 };
    const rg_tensor_desc number = rg_tensor_desc_dense(s->desc.network.dtype, 0, NULL);
    const rg_tensor_desc count = rg_tensor_desc_dense(RG_I64, 0, NULL);
    char name[RG_OWN_NAME];
    rg_network_own_name(&s->network, "rate", name);
    rg_value *rate = rg_graph_parameter(graph, name, &number);
    rg_network_own_name(&s->network, "step", name);
    rg_value *step =
        s->desc.optimizer == RG_OPTIMIZER_ADAM ? rg_graph_parameter(graph, name, &count) : NULL;
    for (size_t i = 0; i < s->network.parameters_count; i++) {
        rg_network_parameter p = s->network.parameters[i];
        if (!p.trained || rg_value_gradient(p.value) == NULL)
            continue;
        rg_stepper_sum_name(&s->network, &p, name);
        rg_value *sum = rg_graph_parameter(graph, name, &p.value->desc);
        p.value = rg_graph_parameter(graph, p.value->name, &p.value->desc);
        RG_TRY(rg_graph_status(graph));
        (void)rg_stepper_add_update(&options, graph, &p, sum, rate, step);
    }
    return rg_graph_status(graph);
}

static rg_status make_plans(rg_session *s)
{
    rg_plan_options options = rg_plan_options_default();
    rg_network adding = { 0 };
    rg_graph *update;
    RG_TRY(make_gradients(s, false, &s->network));
    if (s->freeze != NULL)
        RG_TRY(rg_patterns_check_network(&s->network, s->freeze, ""));
    RG_TRY(rg_plan_create(s->device, s->network.graph, &options, &s->starting));
    RG_TRY(rg_network_start(&s->network, s->starting, s->desc.seed));
    options.share = s->starting;
    rg_status status = make_gradients(s, true, &adding);
    if (status == RG_OK)
        status = rg_plan_create(s->device, adding.graph, &options, &s->adding);
    rg_network_destroy(&adding);
    RG_TRY(status);
    RG_TRY(rg_graph_create(&update));
    status = make_update(s, update);
    if (status == RG_OK)
        status = rg_plan_create(s->device, update, &options, &s->update);
    rg_graph_destroy(update);
    RG_TRY(status);
    RG_TRY(rg_network_create(s->model, &s->desc.network, &s->used));
    return rg_plan_create(s->device, s->used.graph, &options, &s->use);
}

/* ---- creation ---- */

rg_session_desc rg_session_desc_default(void)
{
    return (rg_session_desc){ .size = sizeof(rg_session_desc),
                              .network = rg_network_desc_default(),
                              .optimizer = RG_OPTIMIZER_ADAM,
                              .rate = 0.001,
                              .momentum = 0.9,
                              .seed = 1 };
}

static rg_status check_desc(const rg_session_desc *desc)
{
    RG_CHECK(desc != NULL && desc->size == sizeof *desc, RG_INVALID_ARGUMENT,
             "rg_session_create: start from rg_session_desc_default()");
    RG_CHECK(desc->network.dtype == RG_F32 || desc->network.dtype == RG_F64, RG_INVALID_ARGUMENT,
             "rg_session_create: dtype must be f32 or f64, not %s",
             rg_dtype_name(desc->network.dtype));
    RG_CHECK((unsigned)desc->optimizer <= RG_OPTIMIZER_ADAM, RG_INVALID_ARGUMENT,
             "rg_session_create: optimizer is %d, which is not one of its values",
             (int)desc->optimizer);
    RG_CHECK(isfinite(desc->rate) && desc->rate >= 0 && desc->momentum >= 0 && desc->momentum < 1 &&
                 isfinite(desc->decay) && desc->decay >= 0,
             RG_INVALID_ARGUMENT,
             "rg_session_create: rate is %g, momentum %g, decay %g: rate and decay must be 0 or "
             "more, momentum 0 to less than 1",
             desc->rate, desc->momentum, desc->decay);
    return RG_OK;
}

static rg_status make(rg_session *s, const rg_model *model, const rg_session_desc *desc)
{
    rg_graph *checked;
    RG_CHECK(model->onnx == NULL || model->file != NULL, RG_INVALID_ARGUMENT,
             "%s: the model has no weights; open its file", model->name);
    s->desc = *desc;
    s->desc.network.training = s->desc.network.logits_only = false;
    RG_TRY(rg_model_graph(model, &s->desc.network, &checked)); /* which checks the sizes */
    rg_graph_destroy(checked);
    if (desc->network.freeze != NULL)
        RG_TRY(rg_copy_text(desc->network.freeze, &s->freeze));
    s->desc.network.freeze = s->freeze;
    s->model = rg_model_retain(model);
    s->rate = desc->rate;
    s->fresh = true;
    RG_TRY(rg_queue_create(s->device, &s->queue));
    RG_TRY(make_plans(s));
    return rg_session_list_parameters(s);
}

rg_status rg_session_create(rg_device *device, const rg_model *model, const rg_session_desc *desc,
                            rg_session **session)
{
    void *memory;
    RG_CHECK_NOT_NULL(session);
    *session = NULL;
    RG_CHECK_NOT_NULL(device);
    RG_CHECK_NOT_NULL(model);
    RG_TRY(check_desc(desc));
    RG_TRY(rg_allocate_zero(allocator, sizeof **session, &memory));
    rg_session *made = memory;
    made->device = rg_device_retain(device);
    const rg_status status = make(made, model, desc);
    if (status == RG_OK)
        *session = made;
    else
        rg_session_destroy(made);
    return status;
}

void rg_session_destroy(rg_session *s)
{
    if (s == NULL)
        return;
    rg_plan *const plans[] = { s->use, s->update, s->adding, s->starting };
    for (int i = 0; i < 4; i++)
        rg_plan_destroy(plans[i]);
    rg_names_clear(&s->by_name);
    rg_release(allocator, s->listed, s->network.parameters_count * sizeof *s->listed);
    rg_network_destroy(&s->network);
    rg_network_destroy(&s->used);
    rg_queue_destroy(s->queue);
    rg_model_destroy(s->model);
    rg_device_destroy(s->device);
    free(s->freeze);
    rg_session_clear_properties(s);
    rg_release(allocator, s, sizeof *s);
}

/* ---- steps ---- */

/* The images as the graph has them: a view of (n, c, h, w) where the file has these. */
static rg_status view_images(const rg_session *s, rg_tensor *images, rg_tensor **view)
{
    static const int32_t last[] = { 0, 2, 3, 1 }, same[] = { 0, 1, 2, 3 };
    const rg_onnx *onnx = s->model->onnx;
    rg_tensor_desc desc;
    RG_TRY(rg_tensor_get_desc(images, &desc));
    RG_CHECK(desc.rank == 4 && desc.dtype == s->desc.network.dtype, RG_INVALID_ARGUMENT,
             "images must have 4 dimensions and be %s", rg_dtype_name(s->desc.network.dtype));
    RG_CHECK(desc.dims[0] > 0, RG_INVALID_ARGUMENT, "the batch has no images");
    const bool first = onnx != NULL && onnx->inputs[0].rank == 4 &&
                       !rg_onnx_has_channels_last(onnx, s->desc.network.channels);
    RG_TRY(rg_tensor_permute(images, first ? last : same, view));
    RG_TRY(rg_tensor_get_desc(*view, &desc));
    const rg_network_desc *n = &s->desc.network;
    if (desc.dims[1] == n->height && desc.dims[2] == n->width && desc.dims[3] == n->channels)
        return RG_OK;
    rg_tensor_destroy(*view);
    *view = NULL;
    return rg_fail(RG_INVALID_ARGUMENT,
                   "the images have %lldx%lld pixels and %lld channels, but the network needs "
                   "%lldx%lld and %lld",
                   (long long)desc.dims[1], (long long)desc.dims[2], (long long)desc.dims[3],
                   (long long)n->height, (long long)n->width, (long long)n->channels);
}

static rg_status write_number(const rg_session *s, rg_commands *commands, rg_plan *plan,
                              const char *wanted, const void *number, size_t bytes)
{
    rg_tensor *tensor;
    char name[RG_OWN_NAME];
    rg_network_own_name(&s->network, wanted, name);
    if (rg_plan_parameter(plan, name, &tensor) != RG_OK)
        return RG_OK; /* this network has none */
    return rg_commands_write(commands, tensor, number, bytes, RG_LAYOUT_SAME);
}

static rg_status record(rg_session *s, rg_commands *commands, rg_plan *plan,
                        rg_tensor *const sources[], void *loss)
{
    RG_TRY(write_number(s, commands, plan, "dropout_step", &s->batches, sizeof s->batches));
    RG_TRY(rg_plan_encode(plan, commands, sources));
    rg_tensor *result;
    if (loss != NULL) {
        RG_TRY(rg_plan_result(plan, "loss", &result));
        RG_TRY(rg_commands_read(commands, result, loss, rg_dtype_size(s->desc.network.dtype),
                                RG_LAYOUT_SAME));
    }
    RG_TRY(rg_commands_commit(commands));
    return rg_commands_wait(commands);
}

static rg_status run(rg_session *s, rg_plan *plan, rg_tensor *images, rg_tensor *labels,
                     double *loss)
{
    rg_commands *commands = NULL;
    rg_tensor *view;
    char value[16] = { 0 };
    RG_CHECK_NOT_NULL(images);
    RG_CHECK_NOT_NULL(labels);
    RG_TRY(view_images(s, images, &view));
    rg_status status = rg_commands_create(s->queue, &commands);
    if (status == RG_OK)
        status = record(s, commands, plan, (rg_tensor *[]){ view, labels }, value);
    rg_commands_destroy(commands);
    rg_tensor_destroy(view);
    if (status == RG_OK && loss != NULL)
        *loss = rg_element_get(value, s->desc.network.dtype, 0);
    return status;
}

rg_status rg_session_train_step(rg_session *session, rg_tensor *images, rg_tensor *labels,
                                double *loss)
{
    RG_CHECK_NOT_NULL(session);
    RG_TRY(
        run(session, session->fresh ? session->starting : session->adding, images, labels, loss));
    session->fresh = false;
    session->batches++;
    return RG_OK;
}

rg_status rg_session_eval_step(rg_session *session, rg_tensor *images, rg_tensor *labels,
                               double *loss, rg_tensor *outputs)
{
    rg_tensor *logits;
    RG_CHECK_NOT_NULL(session);
    RG_TRY(run(session, session->use, images, labels, loss));
    if (outputs == NULL)
        return RG_OK;
    RG_TRY(rg_plan_result(session->use, "logits", &logits));
    return rg_session_copy(logits, outputs);
}

rg_status rg_session_optimizer_step(rg_session *session)
{
    rg_commands *commands = NULL;
    RG_CHECK_NOT_NULL(session);
    RG_CHECK(session->batches > 0, RG_INVALID_STATE,
             "rg_session_optimizer_step: there are no gradients before a training step");
    const int64_t step = session->steps + 1;
    const float rate = (float)session->rate;
    const bool wide = session->desc.network.dtype == RG_F64;
    RG_TRY(rg_commands_create(session->queue, &commands));
    rg_status status = write_number(session, commands, session->update, "rate",
                                    wide ? (const void *)&session->rate : &rate,
                                    wide ? sizeof session->rate : sizeof rate);
    if (status == RG_OK)
        status = write_number(session, commands, session->update, "step", &step, sizeof step);
    if (status == RG_OK)
        status = record(session, commands, session->update, (rg_tensor *[]){ NULL }, NULL);
    rg_commands_destroy(commands);
    if (status == RG_OK)
        session->steps = step;
    return status;
}

rg_status rg_session_reset_gradients(rg_session *session)
{
    RG_CHECK_NOT_NULL(session);
    session->fresh = true;
    return RG_OK;
}
