/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The graphs and plans of a stepper: the network with its optimizer, and the network as it is
 * used. */
#include "train/network_norm.h"
#include "train/stepper_parts.h"

#include "core/memory.h"

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
    rg_value *rates[1 + RG_MOST_RATES], *step;
} rate_and_step;

void rg_stepper_rate_name(const rg_stepper *t, int32_t index, char name[RG_OWN_NAME])
{
    char wanted[16] = "rate";
    if (index > 0)
        snprintf(wanted, sizeof wanted, "rate%d", index);
    rg_network_own_name(rg_stepper_network(t), wanted, name);
}

void rg_stepper_step_name(const rg_stepper *t, char name[RG_OWN_NAME])
{
    rg_network_own_name(rg_stepper_network(t), "step", name);
}

rg_node *rg_stepper_add_update(const rg_stepper_options *o, rg_graph *graph,
                               const rg_network_parameter *p, rg_value *gradient, rg_value *rate,
                               rg_value *step)
{
    const rg_parameter_copy copy = copy_of(p->value->desc.dtype);
    const bool decays = p->start == RG_START_NORMAL && o->decay > 0; /* weights alone */
    rg_gradient_rules rules = { .clip_minimum = -INFINITY,
                                .clip_maximum = INFINITY,
                                .rescale = 1.0 / o->accumulate };
    if (decays && o->optimizer != RG_OPTIMIZER_ADAM) {
        rules.regularization = RG_REGULARIZATION_L2;
        rules.regularization_scale = o->decay;
    }
    if (o->optimizer == RG_OPTIMIZER_SGD) {
        rg_sgd_desc d = rg_sgd_desc_default();
        d.form = RG_UPDATE_TORCH;
        d.momentum = o->momentum;
        d.gradient = rules;
        d.copy = copy;
        return rg_graph_update(graph, "sgd", &d, p->value, gradient, rate, NULL, NULL);
    }
    if (o->optimizer == RG_OPTIMIZER_RMSPROP) {
        rg_rmsprop_desc d = rg_rmsprop_desc_default();
        d.form = RG_UPDATE_TORCH;
        d.gradient = rules;
        d.copy = copy;
        return rg_graph_update(graph, "rmsprop", &d, p->value, gradient, rate, NULL, NULL);
    }
    rg_adam_desc d = rg_adam_desc_default();
    d.form = RG_UPDATE_TORCH;
    d.decay = decays ? o->decay : 0;
    d.gradient = rules;
    d.copy = copy;
    return rg_graph_update(graph, "adam", &d, p->value, gradient, rate, step, NULL);
}

static void add_update(const rg_stepper *t, const rg_network *network,
                       const rg_network_parameter *p, rg_value *gradient, const rate_and_step *n)
{
    double own;
    rg_value *rate = n->rates[rg_rates_find(t->options.rates, p->value->name, &own)];
    (void)rg_stepper_add_update(&t->options, network->graph, p, gradient, rate, n->step);
}

void rg_stepper_sum_name(const rg_network *network, const rg_network_parameter *p,
                         char name[RG_OWN_NAME])
{
    char wanted[RG_OWN_NAME];
    snprintf(wanted, sizeof wanted, "%s.sum", p->value->name);
    rg_network_own_name(network, wanted, name);
}

rg_value *rg_stepper_add_sum(const rg_network *network, const rg_network_parameter *p,
                             rg_step_share which, rg_value *gradient, rg_dtype dtype)
{
    char name[RG_OWN_NAME];
    rg_stepper_sum_name(network, p, name);
    rg_tensor_desc desc = p->value->desc;
    desc.dtype = dtype;
    rg_value *sum = rg_graph_parameter(network->graph, name, &desc);
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

/* The numbers of a step, where this batch changes the parameters. */
static rate_and_step add_numbers(const rg_stepper *t, rg_graph *graph, rg_step_share which)
{
    const rg_dtype real = t->options.network.dtype == RG_F64 ? RG_F64 : RG_F32;
    const rg_tensor_desc rate = rg_tensor_desc_dense(real, 0, NULL);
    const rg_tensor_desc step = rg_tensor_desc_dense(RG_I64, 0, NULL);
    rate_and_step n = { .step = NULL };
    char name[RG_OWN_NAME];
    for (int32_t i = 0; which == RG_STEP_SHARE_LAST && i <= rg_rates_count(t->options.rates); i++) {
        rg_stepper_rate_name(t, i, name);
        n.rates[i] = rg_graph_parameter(graph, name, &rate);
    }
    rg_stepper_step_name(t, name);
    if (which == RG_STEP_SHARE_LAST && t->options.optimizer == RG_OPTIMIZER_ADAM)
        n.step = rg_graph_parameter(graph, name, &step);
    return n;
}

static rg_status make_gradients(const rg_stepper *t, const rg_model *model, rg_network *network)
{
    rg_network_desc options = t->options.network;
    options.training = true;
    RG_TRY(t->options.sync_norms && t->options.micro_batches > 1
               ? rg_network_create_split(model, &options, network)
               : rg_network_create(model, &options, network));
    RG_TRY(rg_value_stop_gradient(network->images));
    RG_TRY(rg_graph_gradients(network->graph, &network->loss, NULL, 1, NULL, NULL));
    return rg_network_add_norm_gradients(network);
}

static rg_status make_training(rg_stepper *t, const rg_model *model, rg_step_share which,
                               rg_network *network)
{
    RG_TRY(make_gradients(t, model, network));
    const rate_and_step n = add_numbers(t, network->graph, which);
    for (size_t i = 0; i < network->parameters_count; i++) {
        const rg_network_parameter *p = &network->parameters[i];
        rg_value *gradient = rg_value_gradient(p->value);
        if (!p->trained || gradient == NULL)
            continue;
        if (t->options.accumulate > 1)
            gradient = rg_stepper_add_sum(network, p, which, gradient, p->value->desc.dtype);
        if (which == RG_STEP_SHARE_LAST)
            add_update(t, network, p, gradient, &n);
    }
    return rg_graph_status(network->graph);
}

/* ---- micro-batches ---- */

/* What becomes of the sum of a piece: a step of the optimizer, or a new running statistic. */
static void add_piece(const rg_stepper *t, const rg_network *network, const rg_network_parameter *p,
                      rg_value *sum, rg_step_share which, const rate_and_step *n)
{
    rg_neuron_desc copy = rg_neuron_desc_default();
    copy.kind = RG_NEURON_NONE;
    if (!p->trained) {
        rg_node *node = rg_graph_neuron(network->graph, &copy, &sum);
        (void)rg_graph_assign(network->graph, p->value, rg_node_output(node, 0));
        return;
    }
    if (t->options.accumulate > 1)
        sum = rg_stepper_add_sum(network, p, which, sum,
                                 p->value->desc.dtype == RG_F64 ? RG_F64 : RG_F32);
    if (which == RG_STEP_SHARE_LAST)
        add_update(t, network, p, sum, n);
}

/* The optimizer's part of a step: a graph whose sources are the sums over micro-batches. */
static rg_status make_update(const rg_stepper *t, rg_step_share which, rg_network *network)
{
    const rg_micro *m = t->micro;
    network->model = t->network.model;
    network->options = t->network.options;
    RG_TRY(rg_graph_create(&network->graph));
    const rate_and_step n = add_numbers(t, network->graph, which);
    RG_TRY(rg_allocate_array(m->count, sizeof *network->parameters, &network->parameters));
    network->parameters_capacity = m->count;
    for (size_t i = 0; i < m->count; i++) {
        const rg_micro_piece *piece = &m->pieces[i];
        const rg_network_parameter *of = piece->parameter;
        rg_network_parameter *p = &network->parameters[network->parameters_count++];
        *p = *of;
        rg_value *sum = rg_graph_source(network->graph, piece->name);
        p->value = rg_graph_parameter(network->graph, of->value->name, &of->value->desc);
        RG_TRY(rg_graph_status(network->graph));
        add_piece(t, network, p, sum, which, &n);
    }
    return rg_graph_status(network->graph);
}

static rg_status make_update_plan(rg_stepper *t, rg_step_share which)
{
    rg_plan_options options = rg_plan_options_default();
    rg_network network = { 0 };
    options.share = which == RG_STEP_SHARE_LAST ? t->micro->gradient : t->plans[RG_STEP_SHARE_LAST];
    rg_status status = make_update(t, which, &network);
    if (status == RG_OK)
        status = rg_plan_create(t->device, network.graph, &options, &t->plans[which]);
    if (status == RG_OK && which == RG_STEP_SHARE_LAST) /* f32 masters are its own */
        status = rg_network_start(&network, t->plans[which], t->options.seed);
    rg_network_destroy(&network);
    return status;
}

/* One plan makes the gradients of a micro-batch, others sum them over batches and take steps. */
static rg_status make_micro_plans(rg_stepper *t, const rg_model *model)
{
    const rg_plan_options options = rg_plan_options_default();
    RG_TRY(make_gradients(t, model, &t->network));
    RG_TRY(rg_micro_create(t));
    RG_TRY(rg_plan_create(t->device, t->network.graph, &options, &t->micro->gradient));
    RG_TRY(rg_network_start(&t->network, t->micro->gradient, t->options.seed));
    RG_TRY(rg_sync_create(t));
    for (int which = RG_STEP_SHARE_LAST; which >= RG_STEP_SHARE_FIRST; which--) {
        if (which == RG_STEP_SHARE_LAST || t->options.accumulate > 1)
            RG_TRY(make_update_plan(t, (rg_step_share)which));
    }
    return RG_OK;
}

/* ---- plans ---- */

/* Plans for whole batches. */
static rg_status make_whole_plans(rg_stepper *t, const rg_model *model)
{
    rg_plan_options options = rg_plan_options_default();
    RG_TRY(make_training(t, model, RG_STEP_SHARE_LAST, &t->network));
    RG_TRY(rg_plan_create(t->device, t->network.graph, &options, &t->plans[RG_STEP_SHARE_LAST]));
    RG_TRY(rg_network_start(&t->network, t->plans[RG_STEP_SHARE_LAST], t->options.seed));
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
    return RG_OK;
}

rg_status rg_stepper_make_plans(rg_stepper *t, const rg_model *model)
{
    rg_plan_options options = rg_plan_options_default();
    if (!t->options.use_only)
        RG_TRY(t->options.micro_batches > 1 ? make_micro_plans(t, model)
                                            : make_whole_plans(t, model));
    options.share = t->options.use_only ? NULL : rg_stepper_plan(t);
    rg_network_desc used = t->options.network;
    used.training = false;
    RG_TRY(rg_network_create(model, &used, &t->used));
    return rg_plan_create(t->device, t->used.graph, &options, &t->use);
}
