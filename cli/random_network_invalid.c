/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Random networks: the same network with one mistake in it. It is refused with a sentence, or was
 * none and runs; it never crashes. */
#include "cli/random_network.h"
#include "core/dtype.h"
#include "graph/graph.h"
#include "runtime/objects.h"

#include <string.h>

enum { ENCODINGS = 4 };

static int64_t draw(rg_random *random, int64_t count)
{
    return (int64_t)(rg_random_uniform(random) * (double)count);
}

/* ---- mistakes in a graph ---- */

/* One more node, of a descriptor that there is: with an input too few, one that is NULL, or any
 * values of the graph as inputs. */
static void add_wrong_node(rg_graph *graph, rg_random *random)
{
    const rg_node *node = graph->nodes[draw(random, (int64_t)graph->nodes_count)];
    rg_value *x[RG_MAX_INPUTS] = { NULL };
    const int32_t count = rg_op_inputs(node->op, node->desc);
    const int64_t kind = draw(random, 4), at = draw(random, count);
    for (int32_t i = 0; i < count; i++)
        x[i] = graph->values[draw(random, (int64_t)graph->values_count)];
    if (kind == 0)
        x[at] = NULL;
    rg_node *made =
        rg_graph_node(graph, node->op->name, node->desc, x, kind == 1 ? count - 1 : count);
    if (kind == 3)
        (void)rg_graph_gradient(graph, made, x, 1 + (uint64_t)draw(random, 7));
    if (made != NULL)
        (void)rg_graph_result(graph, rg_node_output(made, 0), "wrong");
}

/* An assignment of a value that may not fit, be assigned, or come in time. */
static void add_wrong_assignment(rg_graph *graph, rg_random *random)
{
    rg_value *to = graph->values[draw(random, (int64_t)graph->values_count)];
    rg_value *from = graph->values[draw(random, (int64_t)graph->values_count)];
    for (size_t i = 0; i < graph->values_count && to->kind != RG_VALUE_PARAMETER; i++)
        to = graph->values[i];
    (void)rg_graph_assign(graph, to, from);
}

static void spoil_graph(rg_graph *graph, rg_random *random)
{
    const int64_t kind = draw(random, 4);
    if (graph->nodes_count == 0)
        return;
    rg_value *any = graph->values[draw(random, (int64_t)graph->values_count)];
    if (kind == 0)
        add_wrong_assignment(graph, random);
    else if (kind == 1)
        (void)rg_graph_gradients(graph, &any, NULL, 1, NULL, NULL);
    else
        add_wrong_node(graph, random);
}

/* ---- mistakes in sources ---- */

static rg_tensor_desc spoil_desc(const rg_tensor_desc *desc, rg_random *random)
{
    static const rg_dtype dtypes[] = { RG_F32, RG_F64, RG_F16, RG_BF16, RG_I32, RG_I64, RG_U8 };
    int64_t dims[RG_MAX_RANK] = { 0 };
    int32_t rank = desc->rank;
    rg_dtype dtype = desc->dtype;
    memcpy(dims, desc->dims, sizeof dims);
    const int64_t kind = draw(random, 4);
    if (kind == 0)
        dtype = dtypes[draw(random, 7)];
    else if (kind == 1 && rank > 0)
        dims[draw(random, rank)] += 1 - 2 * draw(random, 2);
    else if (kind == 2 && rank > 0)
        rank--;
    else if (rank < RG_MAX_RANK)
        dims[rank++] = 2;
    return rg_tensor_desc_dense(dtype, rank, dims);
}

/* Sources of zeros, one of them another than it should be, or none. */
static rg_status run_spoilt(const rg_net *net, rg_plan *plan, rg_queue *queue, rg_random *random)
{
    rg_tensor *list[RG_NET_VALUES] = { NULL };
    const int32_t count = rg_plan_sources(plan);
    const int64_t wrong = count > 0 ? draw(random, count) : -1;
    const bool missing = draw(random, 8) == 0;
    rg_commands *commands = NULL;
    rg_status status = RG_OK;
    for (int32_t i = 0; i < count && status == RG_OK; i++) {
        for (int32_t v = 0; v < net->values_count; v++) {
            if (net->values[v].kind != RG_NET_SOURCE || list[i] != NULL ||
                strcmp(net->values[v].name, rg_plan_source_name(plan, i)) != 0)
                continue;
            rg_tensor_desc desc = net->values[v].desc[0];
            if (i == wrong)
                desc = spoil_desc(&desc, random);
            if (i != wrong || !missing)
                status = rg_tensor_create(queue->device, &desc, &list[i]);
            if (status == RG_OK && list[i] != NULL && i != wrong)
                status = rg_net_write(net, v, 0, list[i]);
            break;
        }
    }
    if (status == RG_OK)
        status = rg_commands_create(queue, &commands);
    if (status == RG_OK)
        status = rg_commands_finish(commands, rg_plan_encode(plan, commands, list));
    for (int32_t i = 0; i < count; i++)
        rg_tensor_destroy(list[i]);
    return status;
}

/* ---- entry point ---- */

/* A refusal has a sentence. */
static bool is_told(rg_status status, const char *what, rg_net_report *report)
{
    report->comparisons++;
    if (status == RG_OK || rg_error_text()[0] != 0)
        return true;
    snprintf(report->text, sizeof report->text, "%s is refused with %s, but without an error text",
             what, rg_status_name(status));
    return false;
}

bool rg_net_check_mistakes(const rg_net *net, const rg_net_graph *g, rg_queue *queue,
                           rg_net_report *report)
{
    rg_random random = rg_random_seed(net->seed, "mistakes");
    rg_graph *graph = NULL;
    rg_plan *plan = NULL;
    bool right = rg_graph_copy(g->graph, &graph) == RG_OK;
    if (right && draw(&random, 2) == 0) {
        spoil_graph(graph, &random);
        right = is_told(rg_graph_status(graph), "a graph with a mistake", report);
    }
    const rg_status status = right ? rg_plan_create(queue->device, graph, NULL, &plan) : RG_OK;
    right = right && is_told(status, "a graph with a mistake", report);
    for (int32_t i = 0; i < ENCODINGS && right && plan != NULL; i++)
        right = is_told(run_spoilt(net, plan, queue, &random), "a wrong source", report);
    rg_plan_destroy(plan);
    rg_graph_destroy(graph);
    return right;
}
