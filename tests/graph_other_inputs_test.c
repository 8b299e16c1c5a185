/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Gradient nodes that are given other inputs or outputs than their forward node has: a plan reads
 * those, whatever it fuses. On any device. */
#include "any_device.h"
#include "graph_f64.h"

enum { COUNT = 4 };

/* What a plan makes of sources x1, x2 and dy, which differ in their signs. */
static void run_plan(rig *r, const rg_graph *graph, bool fuses, double dx[COUNT])
{
    static const double in[3][COUNT] = { { 1, -2, 3, -4 }, { -1, 2, 3, -4 }, { 5, 6, 7, 8 } };
    rg_plan_options options = rg_plan_options_default();
    options.fuse_neurons = options.fuse_biases = options.fuse_losses = options.fuse_softmax = fuses;
    rg_plan *plan = NULL;
    rg_tensor *sources[3];
    EXPECT_OK(rg_plan_create(r->device, graph, &options, &plan));
    if (rg_plan_parameters(plan) > 0) {
        rg_tensor *w = NULL;
        EXPECT_OK(rg_plan_parameter(plan, "w", &w));
        fill(w, 3);
    }
    for (int i = 0; i < 3; i++) {
        sources[i] = tensor_of(r->device, RG_F64, 2, DIMS(1, COUNT));
        EXPECT_OK(rg_tensor_write(sources[i], in[i], sizeof in[i], RG_LAYOUT_SAME));
    }
    EXPECT_OK(rg_plan_encode(plan, r->commands, sources));
    EXPECT_OK(rig_run(r));
    f64_read(plan, "dx", dx);
    for (int i = 0; i < 3; i++)
        rg_tensor_destroy(sources[i]);
    rg_plan_destroy(plan);
}

typedef rg_value *make_gradient(rg_graph *graph, rg_value *x1, rg_value *x2, rg_value *dy);

/* The slope of another x. */
static rg_value *of_neuron(rg_graph *graph, rg_value *x1, rg_value *x2, rg_value *dy)
{
    rg_neuron_desc desc = rg_neuron_desc_default();
    desc.kind = RG_NEURON_RELU;
    rg_node *node = rg_graph_neuron(graph, &desc, &x1);
    EXPECT_OK(rg_graph_result(graph, rg_node_output(node, 0), "y"));
    return rg_node_output(rg_graph_neuron_gradient(graph, &desc, &dy, &x2, NULL, node), 0);
}

/* The gradient of softmax from another y. */
static rg_value *of_softmax(rg_graph *graph, rg_value *x1, rg_value *x2, rg_value *dy)
{
    const rg_softmax_desc desc = rg_softmax_desc_default();
    rg_node *node = rg_graph_softmax(graph, &desc, &x1);
    EXPECT_OK(rg_graph_result(graph, rg_node_output(node, 0), "y"));
    return rg_node_output(rg_graph_softmax_gradient(graph, &desc, &dy, &x1, &x2, node), 0);
}

/* A product and a neuron behind it, whose gradient has another x than the product makes. */
static rg_value *of_fused(rg_graph *graph, rg_value *x1, rg_value *x2, rg_value *dy)
{
    rg_dense_desc dense = rg_dense_desc_default();
    rg_neuron_desc desc = rg_neuron_desc_default();
    dense.layout = RG_DENSE_IN_OUT;
    dense.bias = false;
    desc.kind = RG_NEURON_ELU;
    rg_value *w = f64_parameter(graph, "w", 2, DIMS(COUNT, COUNT));
    rg_value *in[] = { x1, w };
    rg_node *product = rg_graph_dense(graph, &dense, in);
    rg_value *z = rg_node_output(product, 0);
    rg_node *node = rg_graph_neuron(graph, &desc, &z);
    EXPECT_OK(rg_graph_result(graph, rg_node_output(node, 0), "y"));
    rg_value *dz = rg_node_output(rg_graph_neuron_gradient(graph, &desc, &dy, &x2, NULL, node), 0);
    return rg_node_output(rg_graph_gradient(graph, product, &dz, 1), 0);
}

/* A loss that starts the backward pass, for other predictions than its own. */
static rg_value *of_loss(rg_graph *graph, rg_value *x1, rg_value *x2, rg_value *dy)
{
    rg_loss_desc desc = rg_loss_desc_default();
    desc.kind = RG_LOSS_MEAN_SQUARED;
    rg_value *in[] = { x1, dy }, *other[] = { x2, dy }, *none[] = { NULL, NULL };
    rg_node *node = rg_graph_loss(graph, &desc, in);
    EXPECT_OK(rg_graph_result(graph, rg_node_output(node, 0), "loss"));
    return rg_node_output(rg_graph_loss_gradient(graph, &desc, none, other, NULL, node), 0);
}

static void test_other_inputs(rig *r)
{
    make_gradient *const makers[] = { of_neuron, of_softmax, of_fused, of_loss };
    for (size_t i = 0; i < sizeof makers / sizeof makers[0]; i++) {
        rg_graph *graph = graph_new();
        double fused[COUNT], plain[COUNT], own[COUNT];
        rg_value *x1 = rg_graph_source(graph, "x1"), *x2 = rg_graph_source(graph, "x2");
        EXPECT_OK(
            rg_graph_result(graph, makers[i](graph, x1, x2, rg_graph_source(graph, "dy")), "dx"));
        run_plan(r, graph, true, fused);
        run_plan(r, graph, false, plain);
        for (int k = 0; k < COUNT; k++)
            EXPECT(fused[k] == plain[k]);
        rg_graph_destroy(graph);
        graph = graph_new();
        x1 = rg_graph_source(graph, "x1");
        rg_value *unread = rg_graph_source(graph, "x2");
        EXPECT_OK(rg_graph_result(graph, makers[i](graph, unread, x1, rg_graph_source(graph, "dy")),
                                  "dx"));
        run_plan(r, graph, true, own);
        EXPECT(memcmp(own, fused, sizeof own) != 0); /* the inputs do differ */
        rg_graph_destroy(graph);
    }
}

/* Another input than the node's own, which the gradient does not read: a source that the plan does
 * not need, or a value that nobody computes. dx has the shape of the forward pass. */
static void test_unread_inputs(rig *r)
{
    const rg_softmax_desc softmax = rg_softmax_desc_default();
    const rg_dropout_desc dropout = rg_dropout_desc_default();
    double dx[4][COUNT];
    for (int i = 0; i < 4; i++) {
        rg_graph *graph = graph_new();
        rg_value *x = rg_graph_source(graph, "x1"), *dy = rg_graph_source(graph, "dy");
        rg_value *far = rg_graph_source(graph, "x2"), *y, *d;
        far = i % 2 == 0 ? far : f64_neuron(graph, RG_NEURON_TANH, far);
        rg_node *node =
            i < 2 ? rg_graph_softmax(graph, &softmax, &x) : rg_graph_dropout(graph, &dropout, &x);
        y = rg_node_output(node, 0);
        node = i < 2 ? rg_graph_softmax_gradient(graph, &softmax, &dy, &far, &y, node)
                     : rg_graph_dropout_gradient(graph, &dropout, &dy, &far, NULL, node);
        d = rg_node_output(node, 0);
        EXPECT_OK(rg_graph_result(graph, d, "dx"));
        rg_plan *plan = f64_plan(r->device, graph);
        EXPECT(rg_plan_sources(plan) == 2);
        rg_tensor *sources[] = { filled(r->device, RG_F64, 2, DIMS(1, COUNT), 1),
                                 filled(r->device, RG_F64, 2, DIMS(1, COUNT), 2) };
        rg_tensor_desc desc = { 0 };
        f64_run(r, plan, sources);
        EXPECT_OK(rg_tensor_get_desc(f64_result(plan, "dx"), &desc));
        EXPECT(desc.dtype == RG_F64 && desc.rank == 2 && desc.dims[1] == COUNT);
        f64_read(plan, "dx", dx[i]);
        EXPECT(i % 2 == 0 || memcmp(dx[i], dx[i - 1], sizeof dx[i]) == 0);
        rg_tensor_destroy(sources[0]);
        rg_tensor_destroy(sources[1]);
        rg_plan_destroy(plan);
        rg_graph_destroy(graph);
    }
}

int main(void)
{
    RUN_ON_DEVICES(test_other_inputs, test_unread_inputs);
    return rg_test_report();
}
