/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Networks of models as ONNX models, with probabilities or gradients on request. */
#include "onnx/onnx_write.h"
#include "train/model.h"

#include <retrograde/nodes.h>

/* What rg_trainer_predict() gives. */
static rg_status add_probabilities(const rg_network *network, rg_target_kind target)
{
    rg_value *logits[] = { network->logits };
    RG_CHECK(target != RG_TARGET_VALUES, RG_INVALID_ARGUMENT,
             "a network that predicts values has no probabilities");
    rg_neuron_desc neuron = rg_neuron_desc_default();
    neuron.kind = RG_NEURON_SIGMOID;
    const rg_softmax_desc softmax = rg_softmax_desc_default();
    rg_node *node = target == RG_TARGET_LABELS ? rg_graph_neuron(network->graph, &neuron, logits)
                                               : rg_graph_softmax(network->graph, &softmax, logits);
    RG_TRY(rg_graph_status(network->graph));
    return rg_graph_result(network->graph, rg_node_output(node, 0), "probabilities");
}

static rg_status write_network(const rg_network *network, const rg_network_desc *options,
                               rg_plan *plan, rg_onnx_write_desc desc, bool weights,
                               const char *path)
{
    const int64_t dims[] = { 1, options->height, options->width, options->channels };
    rg_onnx_write_input inputs[] = {
        { rg_value_name(network->images), rg_tensor_desc_dense(options->dtype, 4, dims) },
        { network->labels != NULL ? rg_value_name(network->labels) : "", network->label_desc },
    };
    inputs[0].desc.dims[0] = inputs[1].desc.dims[0] = -1;
    desc.inputs = inputs;
    desc.input_count = desc.gradients ? 2 : 1;
    desc.flat_results = true;
    if (desc.probabilities)
        RG_TRY(add_probabilities(network, options->target));
    if (desc.gradients) {
        RG_TRY(rg_value_stop_gradient(network->images));
        for (size_t i = 0; i < network->parameters_count; i++) {
            if (!network->parameters[i].trained) /* running statistics */
                RG_TRY(rg_value_stop_gradient(network->parameters[i].value));
        }
        RG_TRY(rg_graph_add_gradients(network->graph, &network->loss, NULL, 1));
    }
    return weights ? rg_onnx_write_weights(network->graph, plan, &desc, path)
                   : rg_onnx_write(network->graph, plan, &desc, path);
}

rg_status rg_model_write_onnx(const rg_model *model, const rg_network_desc *network, rg_plan *plan,
                              const rg_onnx_write_desc *desc, bool weights, const char *path)
{
    rg_onnx_write_desc request = desc != NULL ? *desc : rg_onnx_write_desc_default();
    rg_network made;
    RG_CHECK_NOT_NULL(model);
    RG_CHECK_NOT_NULL(plan);
    RG_CHECK_NOT_NULL(path);
    rg_network_desc options;
    RG_TRY(rg_network_desc_copy(__func__, network, &options));
    options.training = false;
    options.logits_only = !request.gradients;
    if (request.name == NULL)
        request.name = model->name;
    if (model->onnx != NULL && !request.gradients && !request.probabilities) {
        options.has_loss =
            true; /* one that leaves out no softmax: the output is that of the file */
        options.loss = RG_LOSS_MEAN_SQUARED;
    }
    RG_TRY(rg_network_create(model, &options, &made));
    const rg_status status = write_network(&made, &options, plan, request, weights, path);
    rg_network_destroy(&made);
    return status;
}
