/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Graphs and plans of f64: see graph_f64.h. */
#include "tests/graph_f64.h"

rg_graph *graph_new(void)
{
    rg_graph *graph = NULL;
    EXPECT_OK(rg_graph_create(&graph));
    return graph;
}

rg_value *f64_neuron(rg_graph *graph, rg_neuron_kind kind, rg_value *x)
{
    rg_neuron_desc desc = rg_neuron_desc_default();
    desc.kind = kind;
    return rg_node_output(rg_graph_neuron(graph, &desc, &x), 0);
}

rg_value *f64_sum(rg_graph *graph, rg_value *a, rg_value *b)
{
    const rg_arithmetic_desc desc = rg_arithmetic_desc_default();
    return rg_node_output(rg_graph_arithmetic(graph, &desc, (rg_value *[]){ a, b }), 0);
}

rg_value *f64_total(rg_graph *graph, rg_value *x)
{
    rg_reduce_desc desc = rg_reduce_desc_default();
    desc.keep_dims = false;
    return rg_node_output(rg_graph_reduce(graph, &desc, &x), 0);
}

rg_value *f64_parameter(rg_graph *graph, const char *name, int32_t rank, const int64_t dims[])
{
    const rg_tensor_desc desc = rg_tensor_desc_dense(RG_F64, rank, dims);
    return rg_graph_parameter(graph, name, &desc);
}

rg_value *f64_dense(rg_graph *graph, rg_value *x, rg_value *w)
{
    rg_dense_desc desc = rg_dense_desc_default();
    desc.bias = false;
    return rg_node_output(rg_graph_dense(graph, &desc, (rg_value *[]){ x, w }), 0);
}

rg_plan *f64_plan(rg_device *device, const rg_graph *graph)
{
    rg_plan *plan = NULL;
    EXPECT_OK(rg_plan_create(device, graph, NULL, &plan));
    return plan;
}

rg_tensor *f64_result(rg_plan *plan, const char *name)
{
    rg_tensor *tensor = NULL;
    EXPECT_OK(rg_plan_result(plan, name, &tensor));
    return tensor;
}

void f64_read(rg_plan *plan, const char *name, double to[])
{
    rg_tensor *tensor = f64_result(plan, name);
    EXPECT_OK(rg_tensor_read(tensor, to, bytes_of(tensor), RG_LAYOUT_SAME));
}

void f64_run(rig *r, rg_plan *plan, rg_tensor *const sources[])
{
    EXPECT_OK(rg_plan_encode(plan, r->commands, sources));
    EXPECT_OK(rig_run(r));
}
