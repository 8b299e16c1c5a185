/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The graphs and plans of a stepper: the network with its optimizer, and the network as it is
 * used. */
#include "train/stepper_parts.h"

#include <retrograde/nodes.h>

#include <math.h>
#include <stdio.h>

static rg_parameter_copy copy_of(rg_dtype dtype)
{
    return dtype == RG_F16    ? RG_PARAMETER_COPY_F16
           : dtype == RG_BF16 ? RG_PARAMETER_COPY_BF16
                              : RG_PARAMETER_COPY_NONE;
}

typedef struct rate_and_step {
    rg_value *rate, *step;
} rate_and_step;

static rg_node *add_update(const rg_stepper *t, const rg_network *network,
                           const rg_network_parameter *p, rg_value *gradient, rate_and_step n)
{
    const rg_stepper_options *o = &t->options;
    const rg_parameter_copy copy = copy_of(p->value->desc.dtype);
    const bool decays = p->start == RG_START_NORMAL && o->decay > 0; /* weights alone */
    rg_gradient_rules rules = { .clip_minimum = -INFINITY,
                                .clip_maximum = INFINITY,
                                .rescale = 1.0 / o->accumulate };
    if (decays && o->optimizer != RG_OPTIMIZER_ADAM) {
        rules.regularization = RG_REGULARIZATION_L2;
        rules.regularization_scale = o->decay;
    }
    rg_graph *graph = network->graph;
    if (o->optimizer == RG_OPTIMIZER_SGD) {
        rg_sgd_desc d = rg_sgd_desc_default();
        d.form = RG_UPDATE_TORCH;
        d.momentum = o->momentum;
        d.gradient = rules;
        d.copy = copy;
        return rg_graph_update(graph, "sgd", &d, p->value, gradient, n.rate, NULL, NULL);
    }
    if (o->optimizer == RG_OPTIMIZER_RMSPROP) {
        rg_rmsprop_desc d = rg_rmsprop_desc_default();
        d.form = RG_UPDATE_TORCH;
        d.gradient = rules;
        d.copy = copy;
        return rg_graph_update(graph, "rmsprop", &d, p->value, gradient, n.rate, NULL, NULL);
    }
    rg_adam_desc d = rg_adam_desc_default();
    d.form = RG_UPDATE_TORCH;
    d.decay = decays ? o->decay : 0;
    d.gradient = rules;
    d.copy = copy;
    return rg_graph_update(graph, "adam", &d, p->value, gradient, n.rate, n.step, NULL);
}

/* The sum of gradients over the batches of a step. */
static rg_value *add_sum(const rg_network *network, const rg_network_parameter *p,
                         rg_step_share which, rg_value *gradient)
{
    char name[300];
    snprintf(name, sizeof name, "%s.sum", p->value->name);
    rg_value *sum = rg_graph_parameter(network->graph, name, &p->value->desc);
    const rg_arithmetic_desc add = rg_arithmetic_desc_default();
    rg_neuron_desc copy = rg_neuron_desc_default();
    copy.kind = RG_NEURON_NONE;
    rg_node *node =
        which == RG_STEP_SHARE_FIRST
            ? rg_graph_neuron(network->graph, &copy, &gradient)
            : rg_graph_arithmetic(network->graph, &add, (rg_value *[]){ sum, gradient });
    if (which != RG_STEP_SHARE_LAST)
        (void)rg_graph_assign(network->graph, sum, rg_node_output(node, 0));
    return rg_node_output(node, 0);
}

static rg_status make_training(rg_stepper *t, const rg_model *model, rg_step_share which,
                               rg_network *network)
{
    rg_network_desc options = t->options.network;
    options.training = true;
    RG_TRY(rg_network_create(model, &options, network));
    const rg_dtype real = options.dtype == RG_F64 ? RG_F64 : RG_F32;
    const rg_tensor_desc rate = rg_tensor_desc_dense(real, 0, NULL);
    const rg_tensor_desc step = rg_tensor_desc_dense(RG_I64, 0, NULL);
    rate_and_step n = { NULL, NULL };
    if (which == RG_STEP_SHARE_LAST)
        n.rate = rg_graph_parameter(network->graph, "rate", &rate);
    if (which == RG_STEP_SHARE_LAST && t->options.optimizer == RG_OPTIMIZER_ADAM)
        n.step = rg_graph_parameter(network->graph, "step", &step);
    RG_TRY(rg_value_stop_gradient(network->images));
    RG_TRY(rg_graph_gradients(network->graph, &network->loss, NULL, 1, NULL, NULL));
    for (size_t i = 0; i < network->parameters_count; i++) {
        const rg_network_parameter *p = &network->parameters[i];
        rg_value *gradient = rg_value_gradient(p->value);
        if (!p->trained || gradient == NULL)
            continue;
        if (t->options.accumulate > 1)
            gradient = add_sum(network, p, which, gradient);
        if (which == RG_STEP_SHARE_LAST)
            (void)add_update(t, network, p, gradient, n);
    }
    return rg_graph_status(network->graph);
}

rg_status rg_stepper_make_plans(rg_stepper *t, const rg_model *model)
{
    rg_plan_options options = rg_plan_options_default();
    if (!t->options.use_only) {
        RG_TRY(make_training(t, model, RG_STEP_SHARE_LAST, &t->network));
        RG_TRY(
            rg_plan_create(t->device, t->network.graph, &options, &t->plans[RG_STEP_SHARE_LAST]));
        RG_TRY(rg_network_start(&t->network, t->plans[RG_STEP_SHARE_LAST], t->options.seed));
    }
    options.share = t->plans[RG_STEP_SHARE_LAST];
    for (int which = RG_STEP_SHARE_FIRST; which < RG_STEP_SHARE_LAST && t->options.accumulate > 1;
         which++) {
        rg_network network = { 0 };
        rg_status status = make_training(t, model, (rg_step_share)which, &network);
        if (status == RG_OK)
            status = rg_plan_create(t->device, network.graph, &options, &t->plans[which]);
        rg_network_destroy(&network);
        RG_TRY(status);
    }
    rg_network_desc used = t->options.network;
    used.training = false;
    RG_TRY(rg_network_create(model, &used, &t->used));
    return rg_plan_create(t->device, t->used.graph, &options, &t->use);
}
