/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Random networks: the graph of what was drawn, by the same calls that a program would make. */
#include "cli/random_network.h"

#include "core/dtype.h"

#include <stdlib.h>
#include <string.h>

/* ---- parameters that come from data sources ---- */

static rg_status load(void *context, const void **elements)
{
    *elements = context;
    return RG_OK;
}

static rg_value *add_from_source(const rg_net *net, rg_net_graph *g, int32_t v)
{
    const rg_net_value *value = &net->values[v];
    const int64_t count = rg_shape_count(&value->desc[0]);
    double *numbers = rg_net_fill(net, v, 0);
    g->elements[v] = calloc((size_t)count + 1, 8);
    for (int64_t i = 0; numbers != NULL && g->elements[v] != NULL && i < count; i++)
        rg_element_set(g->elements[v], value->desc[0].dtype, i, numbers[i]);
    free(numbers);
    rg_data_source data = rg_data_source_default();
    data.context = g->elements[v];
    data.desc = value->desc[0];
    data.load = load;
    data.style = RG_UPDATE_DEVICE; /* not frozen; there is no update */
    return rg_graph_parameter_from(g->graph, value->name, &data);
}

/* ---- values and nodes ---- */

/* Sources, parameters and constants come with the first who reads them. */
static rg_value *value_of(const rg_net *net, rg_net_graph *g, int32_t v, bool data_sources)
{
    if (v < 0)
        return NULL;
    const rg_net_value *value = &net->values[v];
    const bool stops = value->stop >= 0 && net->keep[value->stop];
    if (g->values[v] != NULL)
        return g->values[v];
    if (value->kind == RG_NET_SOURCE)
        g->values[v] = rg_graph_source(g->graph, value->name);
    else if (value->kind == RG_NET_PARAMETER && data_sources)
        g->values[v] = add_from_source(net, g, v);
    else if (value->kind == RG_NET_PARAMETER)
        g->values[v] = rg_graph_parameter(g->graph, value->name, &value->desc[0]);
    else if (value->kind == RG_NET_CONSTANT)
        g->values[v] =
            rg_graph_constant(g->graph, value_of(net, g, value->like, data_sources), value->number);
    if (stops && g->values[v] != NULL)
        (void)rg_value_stop_gradient(g->values[v]);
    return g->values[v];
}

static rg_status add_update(const rg_net *net, rg_net_graph *g, int32_t n, bool data_sources)
{
    const rg_net_node *node = &net->nodes[n];
    const rg_op *op = node->test->op;
    const char *const *names = rg_op_input_names(op, node->desc);
    rg_value *gradient = NULL, *rate = NULL, *step = NULL, *scale = NULL;
    for (int32_t i = 0; i < node->inputs; i++) {
        rg_value **const to = strcmp(names[i], "gradient") == 0 ? &gradient
                              : strcmp(names[i], "rate") == 0   ? &rate
                              : strcmp(names[i], "step") == 0   ? &step
                              : strcmp(names[i], "scale") == 0  ? &scale
                                                                : NULL;
        if (to != NULL)
            *to = value_of(net, g, node->in[i], data_sources);
    }
    g->nodes[n] =
        rg_graph_update(g->graph, op->name, node->desc,
                        value_of(net, g, node->updates, data_sources), gradient, rate, step, scale);
    RG_TRY(rg_graph_status(g->graph));
    for (int32_t i = 0; i < node->inputs; i++)
        g->values[node->in[i]] = rg_node_input(g->nodes[n], i);
    return RG_OK;
}

static void add_by_hand(const rg_net *net, rg_net_graph *g, int32_t n, bool data_sources)
{
    const rg_net_node *node = &net->nodes[n], *of = &net->nodes[node->gradient_of];
    rg_value *dy[RG_MAX_OUTPUTS], *x[RG_MAX_INPUTS], *y[RG_MAX_OUTPUTS];
    uint64_t wanted = 0;
    for (int32_t j = 0; j < node->inputs; j++)
        dy[j] = value_of(net, g, node->in[j], data_sources);
    for (int32_t i = 0; i < of->inputs; i++) {
        x[i] = g->values[of->in[i]];
        wanted |= (uint64_t)(node->out[i] >= 0) << i;
    }
    for (int32_t j = 0; j < of->outputs; j++)
        y[j] = g->values[of->out[j]];
    g->nodes[n] = node->with_state
                      ? rg_graph_gradient(g->graph, g->nodes[node->gradient_of], dy, wanted)
                      : rg_graph_gradient_node(g->graph, of->test->op->name, of->desc, dy, x, y,
                                               NULL, wanted);
}

static rg_status add_node(const rg_net *net, rg_net_graph *g, int32_t n, bool data_sources)
{
    const rg_net_node *node = &net->nodes[n];
    rg_value *x[RG_MAX_INPUTS];
    if (node->updates >= 0) {
        RG_TRY(add_update(net, g, n, data_sources));
    } else if (node->gradient_of >= 0) {
        add_by_hand(net, g, n, data_sources);
    } else {
        for (int32_t i = 0; i < node->inputs; i++)
            x[i] = value_of(net, g, node->in[i], data_sources);
        g->nodes[n] = rg_graph_node(g->graph, node->test->op->name, node->desc, x, node->inputs);
    }
    RG_TRY(rg_graph_status(g->graph));
    for (int32_t j = 0; j < node->outputs; j++) {
        const int32_t v = node->out[j];
        if (v < 0)
            continue;
        g->values[v] = rg_node_output(g->nodes[n], j);
        if (net->values[v].stop >= 0 && net->keep[net->values[v].stop])
            RG_TRY(rg_value_stop_gradient(g->values[v]));
        if (node->updates < 0 && node->gradient_of < 0 && node->assigns[j] >= 0)
            RG_TRY(rg_graph_assign(g->graph, g->values[node->assigns[j]], g->values[v]));
    }
    return RG_OK;
}

/* ---- gradients ---- */

/* The graph has a gradient for just those parameters and sources that have one by definition. */
static rg_status check_reached(const rg_net *net, const rg_net_graph *g, int32_t pass)
{
    for (int32_t v = 0; v < net->values_count; v++) {
        const rg_net_value *value = &net->values[v];
        const bool has = rg_value_gradient(g->values[v]) != NULL;
        bool want = value->reached[pass];
        for (int32_t p = 0; p < pass; p++)
            want |= value->reached[p];
        RG_CHECK(value->kind == RG_NET_GRADIENT || g->values[v] == NULL || has == want,
                 RG_INVALID_STATE, "the graph has %s gradient of value %d", has ? "a" : "no", v);
    }
    return RG_OK;
}

static rg_status add_gradients(const rg_net *net, rg_net_graph *g, int32_t pass, bool data_sources)
{
    rg_value *y[RG_NET_LOSSES], *dy[RG_NET_LOSSES];
    int32_t count = 0;
    for (int32_t l = 0; l < net->losses_count; l++) {
        const rg_net_mark *loss = &net->losses[l];
        if (loss->pass != pass || !net->keep[loss->item] || !net->values[loss->value].needed)
            continue;
        y[count] = value_of(net, g, loss->value, data_sources);
        dy[count++] = value_of(net, g, loss->dy, data_sources);
    }
    if (count > 0)
        RG_TRY(rg_graph_gradients(g->graph, y, dy, count, NULL, NULL));
    RG_TRY(check_reached(net, g, pass));
    for (int32_t v = 0; v < net->values_count; v++) {
        if (net->values[v].kind == RG_NET_GRADIENT && net->values[v].pass == pass)
            g->values[v] = rg_value_gradient(g->values[net->values[v].of]);
    }
    return RG_OK;
}

static rg_status add_wishes(const rg_net *net, rg_net_graph *g)
{
    char name[32];
    for (int32_t i = 0; i < net->results_count; i++) {
        if (!rg_net_has_result(net, &net->results[i]))
            continue;
        snprintf(name, sizeof name, "r%d", i);
        rg_value *value = value_of(net, g, net->results[i].value, false);
        if (rg_value_get_kind(value) != RG_VALUE_SOURCE)
            RG_TRY(rg_graph_result(g->graph, value, name));
    }
    for (int32_t i = 0; i < net->states_count; i++) {
        snprintf(name, sizeof name, "s%d", i);
        if (net->keep[net->states[i].item] && rg_net_has_node(net, net->states[i].value))
            RG_TRY(rg_graph_state_result(g->graph, g->nodes[net->states[i].value], name));
    }
    return RG_OK;
}

static rg_status build(const rg_net *net, bool data_sources, rg_net_graph *g)
{
    RG_TRY(rg_graph_create(&g->graph));
    for (int32_t n = 0; n < net->nodes_count; n++) {
        if (!net->nodes[n].after_backward && rg_net_has_node(net, n))
            RG_TRY(add_node(net, g, n, data_sources));
    }
    for (int32_t p = 0; p < net->passes; p++)
        RG_TRY(add_gradients(net, g, p, data_sources));
    for (int32_t n = 0; n < net->nodes_count; n++) {
        if (net->nodes[n].after_backward && rg_net_has_node(net, n))
            RG_TRY(add_node(net, g, n, data_sources));
    }
    return add_wishes(net, g);
}

rg_status rg_net_build(const rg_net *net, bool data_sources, rg_net_graph *g)
{
    memset(g, 0, sizeof *g);
    const rg_status status = build(net, data_sources, g);
    return status != RG_OK ? status : rg_graph_status(g->graph);
}

void rg_net_graph_free(rg_net_graph *g)
{
    rg_graph_destroy(g->graph);
    for (int32_t v = 0; v < RG_NET_VALUES; v++)
        free(g->elements[v]);
    memset(g, 0, sizeof *g);
}
