/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Random networks: what is left where items are left out, and which gradients there are. */
#include "cli/random_network.h"

bool rg_net_has_node(const rg_net *net, int32_t node)
{
    const rg_net_node *n = &net->nodes[node];
    return net->keep[n->item] && (n->gradient_of < 0 || net->keep[net->nodes[n->gradient_of].item]);
}

static bool is_stopped(const rg_net *net, int32_t v)
{
    return net->values[v].stop >= 0 && net->keep[net->values[v].stop];
}

/* What depends on a source or parameter whose gradient is wanted, or is a stop mark itself. */
static void mark_needed(rg_net *net)
{
    for (int32_t v = 0; v < net->values_count; v++) {
        rg_net_value *value = &net->values[v];
        value->needed = is_stopped(net, v)
                            ? value->kind == RG_NET_OUTPUT
                            : value->kind == RG_NET_SOURCE || value->kind == RG_NET_PARAMETER;
    }
    for (int32_t n = 0; n < net->nodes_count; n++) {
        const rg_net_node *node = &net->nodes[n];
        if (!rg_net_has_node(net, n) || node->after_backward || node->test->op->gradient == NULL)
            continue;
        bool needs = false;
        for (int32_t i = 0; i < node->inputs; i++)
            needs |= net->values[node->in[i]].needed &&
                     rg_op_differentiates(node->test->op, node->desc, i);
        for (int32_t j = 0; j < rg_op_gradients(node->test->op, node->desc); j++)
            net->values[node->out[j]].needed |= needs && !is_stopped(net, node->out[j]);
    }
}

static void mark_reached(rg_net *net, int32_t pass)
{
    for (int32_t v = 0; v < net->values_count; v++)
        net->values[v].reached[pass] = false;
    for (int32_t l = 0; l < net->losses_count; l++) {
        if (net->losses[l].pass == pass && net->keep[net->losses[l].item])
            net->values[net->losses[l].value].reached[pass] |=
                net->values[net->losses[l].value].needed;
    }
    for (int32_t n = net->nodes_count - 1; n >= 0; n--) {
        const rg_net_node *node = &net->nodes[n];
        if (!rg_net_has_node(net, n) || node->after_backward || node->test->op->gradient == NULL)
            continue;
        bool reached = false;
        for (int32_t j = 0; j < rg_op_gradients(node->test->op, node->desc); j++)
            reached |= net->values[node->out[j]].reached[pass] && !is_stopped(net, node->out[j]);
        for (int32_t i = 0; i < node->inputs; i++)
            net->values[node->in[i]].reached[pass] |=
                reached && net->values[node->in[i]].needed &&
                rg_op_differentiates(node->test->op, node->desc, i);
    }
}

void rg_net_settle(rg_net *net)
{
    for (int32_t v = 0; v < net->values_count; v++) {
        rg_net_value *value = &net->values[v];
        value->kind = value->drawn;
        if (value->drawn == RG_NET_OUTPUT && !rg_net_has_node(net, value->node))
            value->kind = RG_NET_SOURCE;
    }
    net->shapes = net->shape_item > 0 && net->keep[net->shape_item] ? 2 : 1;
    net->steps = 1;
    for (int32_t i = 0; i < RG_NET_STEPS - 1; i++)
        net->steps += net->run_items[i] > 0 && net->keep[net->run_items[i]];
    mark_needed(net);
    for (int32_t p = 0; p < RG_NET_PASSES; p++)
        mark_reached(net, p);
    for (int32_t v = 0; v < net->values_count; v++) {
        rg_net_value *value = &net->values[v];
        if (value->drawn == RG_NET_GRADIENT && !net->values[value->of].reached[value->pass])
            value->kind = RG_NET_SOURCE;
    }
}

bool rg_net_has_result(const rg_net *net, const rg_net_mark *result)
{
    const rg_net_value *value = &net->values[result->value];
    return net->keep[result->item] && value->kind != RG_NET_SOURCE;
}
