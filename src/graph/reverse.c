/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The reverse pass: gradient nodes for all that leads from parameters and sources to a value. */
#include "graph/graph.h"

#include "core/memory.h"
#include "core/private_api.h"

#include <retrograde/arithmetic.h>

/* What a value depends on, through floating-point values. */
enum { FROM_SOURCE = 1, FROM_PARAMETER = 2 };

/* For each value: what a gradient of it is needed for, and the sum of its gradients so far. */
typedef struct reverse {
    rg_graph *graph;
    uint8_t *needed;
    rg_value **gradients;
    rg_gradient_handler *handler;
    void *context;
} reverse;

static bool is_needed(const reverse *r, const rg_value *value)
{
    return r->needed[value->id] != 0;
}

/* What the outputs of a node depend on. Ops without a gradient, and gradients, pass on
 * parameters only: the reverse pass refuses to go through them where a parameter comes before. */
static uint8_t needs_of(const reverse *r, const rg_node *node)
{
    uint8_t needs = 0;
    for (int32_t i = 0; i < node->inputs; i++) {
        if (node->in[i] != NULL &&
            (node->gradient || rg_op_differentiates(node->op, node->desc, i)))
            needs |= r->needed[node->in[i]->id];
    }
    for (int32_t i = 0; node->gradient && i < RG_MAX_INPUTS; i++)
        needs |= node->x[i] != NULL ? r->needed[node->x[i]->id] : 0;
    return node->gradient || node->op->gradient == NULL ? needs & FROM_PARAMETER : needs;
}

/* Marks values that depend on something whose gradient is wanted. Not constants, nor what is
 * before a stop mark: the marked value has a gradient, but passes none on. */
static void mark_needed(reverse *r)
{
    const rg_graph *graph = r->graph;
    for (size_t i = 0; i < graph->values_count; i++) {
        const rg_value *value = graph->values[i];
        if (value->kind == RG_VALUE_SOURCE)
            r->needed[i] = value->stops ? 0 : FROM_SOURCE;
        else if (value->kind == RG_VALUE_PARAMETER)
            r->needed[i] = value->stops ? 0 : FROM_PARAMETER;
        else if (value->kind == RG_VALUE_OUTPUT)
            r->needed[i] = value->stops ? FROM_SOURCE : 0;
    }
    for (size_t n = 0; n < graph->nodes_count; n++) {
        const rg_node *node = graph->nodes[n];
        const uint8_t needs = needs_of(r, node);
        const int32_t last = node->gradient ? node->outputs : rg_op_gradients(node->op, node->desc);
        for (int32_t j = 0; j < last; j++) {
            if (node->out[j] != NULL && !node->out[j]->stops)
                r->needed[node->out[j]->id] |= needs;
        }
    }
}

/* Calls the handler; without one a gradient has the handle of the value that it is for. */
static void call_handler(const reverse *r, rg_node *gradient, rg_node *forward, rg_value *source,
                         rg_value *dy)
{
    if (r->handler != NULL) {
        r->handler(r->context, gradient, forward, source, dy);
        return;
    }
    for (int32_t i = 0; i < gradient->outputs; i++) {
        if (gradient->out[i] != NULL && (forward == NULL || forward->in[i] == source))
            gradient->out[i]->handle = source->handle;
    }
}

/* Adds a gradient to those of a value. */
static rg_status add_gradient(reverse *r, rg_value *value, rg_value *gradient)
{
    rg_value **total = &r->gradients[value->id];
    if (*total == NULL) {
        *total = gradient;
        return RG_OK;
    }
    const rg_arithmetic_desc desc = rg_arithmetic_desc_default();
    rg_value *const both[] = { *total, gradient };
    rg_node *sum = rg_graph_node(r->graph, "arithmetic", &desc, both, 2);
    RG_TRY(rg_graph_status(r->graph));
    *total = rg_node_output(sum, 0);
    call_handler(r, sum, NULL, value, both[0]);
    return RG_OK;
}

/* The gradients of a node's outputs; false if there is none yet. */
static bool collect(const reverse *r, const rg_node *node, rg_value *dy[])
{
    const int32_t gradients = rg_op_gradients(node->op, node->desc);
    bool any = false;
    for (int32_t j = 0; j < gradients; j++) {
        const rg_value *y = node->out[j];
        dy[j] = y->stops ? NULL : r->gradients[y->id];
        any |= dy[j] != NULL;
    }
    for (int32_t j = 0; any && j < gradients; j++) {
        if (dy[j] == NULL && !(node->op->optional_dy >> j & 1))
            dy[j] = rg_graph_constant(r->graph, node->out[j], 0);
    }
    return any;
}

/* Refuses a gradient that cannot be passed on although parameters depend on it. */
static rg_status check_undifferentiable(const reverse *r, const rg_node *node)
{
    bool has_gradient = false;
    for (int32_t j = 0; j < node->outputs; j++) {
        const rg_value *y = node->out[j];
        has_gradient |= y != NULL && !y->stops && r->gradients[y->id] != NULL;
    }
    RG_CHECK(!has_gradient || (needs_of(r, node) & FROM_PARAMETER) == 0, RG_UNSUPPORTED,
             "%s: %s has no gradient, but its inputs depend on a parameter that is not frozen",
             node->label, node->gradient ? "a gradient" : node->op->name);
    return RG_OK;
}

static rg_status differentiate_node(reverse *r, rg_node *node)
{
    rg_value *dy[RG_MAX_OUTPUTS] = { NULL };
    uint64_t wanted = 0;
    if (node->gradient || node->op->gradient == NULL)
        return check_undifferentiable(r, node);
    if (!collect(r, node, dy))
        return RG_OK;
    RG_TRY(rg_graph_status(r->graph));
    for (int32_t i = 0; i < node->inputs; i++) {
        if (is_needed(r, node->in[i]) && rg_op_differentiates(node->op, node->desc, i))
            wanted |= UINT64_C(1) << i;
    }
    if (wanted == 0)
        return RG_OK;
    rg_node *gradient = rg_graph_gradient(r->graph, node, dy, wanted);
    RG_TRY(rg_graph_status(r->graph));
    rg_value *first = NULL;
    for (int32_t j = 0; j < gradient->inputs && first == NULL; j++)
        first = gradient->in[j];
    for (int32_t i = 0; i < node->inputs; i++) {
        if (!(wanted >> i & 1))
            continue;
        call_handler(r, gradient, node, node->in[i], first);
        RG_TRY(add_gradient(r, node->in[i], gradient->out[i]));
    }
    return RG_OK;
}

static rg_status seed_gradients(reverse *r, rg_value *const y[], rg_value *const dy[],
                                int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        RG_CHECK(y[i] != NULL && y[i]->graph == r->graph, RG_INVALID_ARGUMENT,
                 "rg_graph_gradients: value %d is NULL or belongs to another graph", i);
        RG_CHECK(dy == NULL || dy[i] == NULL || dy[i]->graph == r->graph, RG_INVALID_ARGUMENT,
                 "rg_graph_gradients: the gradient of value %d belongs to another graph", i);
        RG_CHECK(is_needed(r, y[i]), RG_INVALID_ARGUMENT,
                 "rg_graph_gradients: value %d depends on no source and no parameter that is "
                 "not frozen",
                 i);
        rg_value *gradient =
            dy != NULL && dy[i] != NULL ? dy[i] : rg_graph_constant(r->graph, y[i], 1);
        RG_TRY(rg_graph_status(r->graph));
        RG_TRY(add_gradient(r, y[i], gradient));
    }
    return RG_OK;
}

/* Marks those of the new nodes whose results no other one reads. */
static void mark_ends(const rg_graph *graph)
{
    for (size_t n = graph->backward; n < graph->backward_end; n++) {
        rg_node *node = graph->nodes[n];
        node->ends = true;
        for (int32_t i = 0; i < node->inputs; i++) {
            if (node->in[i] != NULL && node->in[i]->node != NULL)
                node->in[i]->node->ends = false;
        }
    }
}

/* Nodes come after what they read. So, from the last to the first, all gradients of a value are
 * known when its node is visited. */
static rg_status run_backward(reverse *r, rg_value *const y[], rg_value *const dy[], int32_t count,
                              size_t values)
{
    const size_t nodes = r->graph->nodes_count;
    RG_TRY(seed_gradients(r, y, dy, count));
    for (size_t n = nodes; n-- > 0;)
        RG_TRY(differentiate_node(r, r->graph->nodes[n]));
    r->graph->backward = nodes;
    r->graph->backward_end = r->graph->nodes_count;
    mark_ends(r->graph);
    for (size_t i = 0; i < values; i++) {
        if (r->gradients[i] != NULL)
            r->graph->values[i]->gradient = r->gradients[i];
    }
    return RG_OK;
}

RG_PRIVATE_API rg_status rg_graph_trained_values(rg_graph *graph, bool trained[])
{
    const size_t values = graph->values_count;
    reverse r = { .graph = graph };
    void *needed = NULL;
    RG_TRY(rg_allocate_zero(&rg_default_allocator, values * sizeof *r.needed, &needed));
    r.needed = needed;
    mark_needed(&r);
    for (size_t i = 0; i < values; i++)
        trained[i] = (r.needed[i] & FROM_PARAMETER) != 0;
    rg_release(&rg_default_allocator, needed, values * sizeof *r.needed);
    return RG_OK;
}

rg_status rg_graph_gradients(rg_graph *graph, rg_value *const y[], rg_value *const dy[],
                             int32_t count, rg_gradient_handler *handler, void *context)
{
    RG_CHECK_NOT_NULL(graph);
    RG_CHECK_NOT_NULL(y);
    RG_TRY(rg_graph_status(graph));
    if (count < 1)
        return rg_graph_mistake(graph,
                                rg_fail(RG_INVALID_ARGUMENT,
                                        "rg_graph_gradients: invalid number of values: %d", count));
    const size_t values = graph->values_count; /* those that come are gradients */
    reverse r = { .graph = graph, .handler = handler, .context = context };
    void *needed = NULL, *gradients = NULL;
    rg_status status = rg_allocate_zero(&rg_default_allocator, values * sizeof *r.needed, &needed);
    if (status == RG_OK)
        status = rg_allocate_zero(&rg_default_allocator, values * sizeof *r.gradients, &gradients);
    r.needed = needed;
    r.gradients = gradients;
    if (status == RG_OK) {
        mark_needed(&r);
        status = run_backward(&r, y, dy, count, values);
    }
    rg_release(&rg_default_allocator, needed, values * sizeof *r.needed);
    rg_release(&rg_default_allocator, gradients, values * sizeof *r.gradients);
    return rg_graph_mistake(graph, status);
}
