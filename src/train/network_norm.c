/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Batch normalization with the statistics of a batch that several plans share. Each layer becomes
 * a node that returns the statistics of its part, and one that normalizes with given ones. Between
 * the two the stepper writes the statistics of the whole batch over those of the part
 * (stepper_sync.c), and in the backward pass the gradient of the whole batch over that of the part.
 */
#include "train/network_norm.h"

#include "core/memory.h"
#include "core/shape.h"

#include <retrograde/nodes.h>

#include <stdio.h>

static const rg_allocator *const allocator = &rg_default_allocator;

/* What plans call a result of a norm. */
void rg_norm_result_name(const rg_split_norm *norm, const char *what, char name[RG_NORM_NAME])
{
    snprintf(name, RG_NORM_NAME, "%.200s.%s", norm->label, what);
}

static rg_status add_result(rg_graph *graph, const rg_split_norm *norm, const char *what,
                            rg_value *value)
{
    char name[RG_NORM_NAME];
    rg_norm_result_name(norm, what, name);
    return rg_graph_result(graph, value, name);
}

/* momentum times the old average plus the rest times the new number. */
static rg_status assign_average(rg_graph *graph, double momentum, rg_value *old, rg_value *number)
{
    rg_arithmetic_desc add = rg_arithmetic_desc_default();
    add.primary_scale = momentum;
    add.secondary_scale = 1 - momentum;
    rg_value *const x[] = { old, number };
    rg_node *node = rg_graph_arithmetic(graph, &add, x);
    return rg_graph_assign(graph, old, rg_node_output(node, 0));
}

/* The node that returns statistics, and a copy of the variance, which becomes the unbiased one. */
static rg_status add_statistics(rg_network *network, const rg_batch_norm_desc *desc, rg_value *x,
                                rg_split_norm *norm)
{
    rg_graph *graph = network->graph;
    rg_batch_norm_desc own = rg_batch_norm_desc_default();
    rg_neuron_desc copy = rg_neuron_desc_default();
    char label[RG_NORM_NAME];
    own.statistics = RG_BATCH_NORM_RETURNED;
    own.gamma = own.beta = false;
    own.epsilon = desc->epsilon;
    copy.kind = RG_NEURON_NONE;
    rg_node *node = rg_graph_batch_norm(graph, &own, &x);
    RG_TRY(rg_graph_status(graph));
    norm->mean = rg_node_output(node, 1);
    norm->variance = rg_node_output(node, 2);
    rg_norm_result_name(norm, "statistics", label);
    RG_TRY(rg_node_set_label(node, label));
    node = rg_graph_neuron(graph, &copy, &norm->variance);
    RG_TRY(rg_graph_status(graph));
    RG_TRY(add_result(graph, norm, "mean_of_batch", norm->mean));
    RG_TRY(add_result(graph, norm, "variance_of_batch", norm->variance));
    norm->unbiased = rg_node_output(node, 0);
    return add_result(graph, norm, "unbiased_of_batch", norm->unbiased);
}

rg_status rg_network_split_norm(rg_network *network, const rg_batch_norm_desc *desc,
                                rg_value *const in[], int64_t elements, const char *label,
                                rg_node **made)
{
    enum { MOST_INPUTS = 5 };
    rg_value *x[MOST_INPUTS] = { in[0] };
    const int32_t mean = 1 + desc->gamma + desc->beta;
    rg_batch_norm_desc given = *desc;
    RG_TRY(rg_grow(allocator, (void **)&network->norms, &network->norms_capacity,
                   network->norms_count, sizeof *network->norms));
    rg_split_norm *norm = &network->norms[network->norms_count];
    *norm =
        (rg_split_norm){ .label = label, .elements = elements, .channels = in[mean]->desc.dims[0] };
    RG_TRY(add_statistics(network, desc, in[0], norm));
    network->norms_count++;
    for (int32_t i = 1; i < mean; i++)
        x[i] = in[i];
    x[mean] = norm->mean;
    x[mean + 1] = norm->variance;
    given.statistics = RG_BATCH_NORM_GIVEN;
    *made = rg_graph_batch_norm(network->graph, &given, x);
    RG_TRY(rg_graph_status(network->graph));
    RG_TRY(assign_average(network->graph, desc->momentum, in[mean], norm->mean));
    return assign_average(network->graph, desc->momentum, in[mean + 1], norm->unbiased);
}

rg_status rg_network_add_norm_gradients(rg_network *network)
{
    for (size_t i = 0; i < network->norms_count; i++) {
        rg_split_norm *norm = &network->norms[i];
        rg_value *dmean = rg_value_gradient(norm->mean);
        rg_value *dvariance = rg_value_gradient(norm->variance);
        norm->has_gradient = dmean != NULL && dvariance != NULL;
        if (!norm->has_gradient)
            continue;
        RG_TRY(add_result(network->graph, norm, "dmean_of_batch", dmean));
        RG_TRY(add_result(network->graph, norm, "dvariance_of_batch", dvariance));
    }
    return RG_OK;
}
