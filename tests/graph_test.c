/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Graphs: a small network by hand and by its graph, gradients, updates, storage. */
#include "api.h"

#include <math.h>

enum { BATCH = 5, IN = 7, HIDDEN = 6, OUT = 3 };

typedef struct net {
    rg_graph *graph;
    rg_value *x, *labels, *w1, *b1, *w2, *b2, *loss;
} net;

static rg_value *parameter(net *n, const char *name, int32_t rank, const int64_t dims[])
{
    const rg_tensor_desc desc = rg_tensor_desc_dense(RG_F64, rank, dims);
    return rg_graph_parameter(n->graph, name, &desc);
}

/* dense, tanh, dense, softmax cross-entropy */
static net make_net(void)
{
    net n = { 0 };
    EXPECT_OK(rg_graph_create(&n.graph));
    n.x = rg_graph_source(n.graph, "x");
    n.labels = rg_graph_source(n.graph, "labels");
    n.w1 = parameter(&n, "w1", 2, DIMS(HIDDEN, IN));
    n.b1 = parameter(&n, "b1", 1, DIMS(HIDDEN));
    n.w2 = parameter(&n, "w2", 2, DIMS(OUT, HIDDEN));
    n.b2 = parameter(&n, "b2", 1, DIMS(OUT));
    const rg_dense_desc dense = rg_dense_desc_default();
    rg_neuron_desc neuron = rg_neuron_desc_default();
    neuron.kind = RG_NEURON_TANH;
    rg_loss_desc loss = rg_loss_desc_default();
    loss.labels = RG_LOSS_CLASS_LABELS;
    rg_value *h =
        rg_node_output(rg_graph_dense(n.graph, &dense, (rg_value *[]){ n.x, n.w1, n.b1 }), 0);
    h = rg_node_output(rg_graph_neuron(n.graph, &neuron, &h), 0);
    rg_value *y =
        rg_node_output(rg_graph_dense(n.graph, &dense, (rg_value *[]){ h, n.w2, n.b2 }), 0);
    n.loss = rg_node_output(rg_graph_loss(n.graph, &loss, (rg_value *[]){ y, n.labels }), 0);
    EXPECT_OK(rg_graph_result(n.graph, n.loss, "loss"));
    return n;
}

static void fill_parameters(rg_plan *plan)
{
    static const char *const names[] = { "w1", "b1", "w2", "b2" };
    for (uint64_t i = 0; i < 4; i++) {
        rg_tensor *tensor = NULL;
        EXPECT_OK(rg_plan_parameter(plan, names[i], &tensor));
        fill(tensor, 10 + i);
    }
}

static double run(rig *r, rg_plan *plan, rg_tensor *const sources[])
{
    rg_tensor *loss = NULL;
    double value = NAN;
    EXPECT_OK(rg_plan_encode(plan, r->commands, sources));
    EXPECT_OK(rig_run(r));
    EXPECT_OK(rg_plan_result(plan, "loss", &loss));
    EXPECT_OK(rg_tensor_read(loss, &value, sizeof value, RG_LAYOUT_SAME));
    return value;
}

static void make_sources(rig *r, rg_tensor *sources[])
{
    const int32_t labels[BATCH] = { 0, 2, 1, 1, 0 };
    sources[0] = tensor_of(r->device, RG_F64, 2, DIMS(BATCH, IN));
    sources[1] = tensor_of(r->device, RG_I32, 1, DIMS(BATCH));
    fill(sources[0], 1);
    EXPECT_OK(rg_tensor_write(sources[1], labels, sizeof labels, RG_LAYOUT_SAME));
}

static void test_gradients(bool reuse, bool in_place)
{
    static const char *const names[] = { "w1", "b1", "w2", "b2" };
    rig r = rig_open(1);
    net n = make_net();
    EXPECT_OK(rg_graph_gradients(n.graph, &n.loss, NULL, 1, NULL, NULL));
    rg_value *const parameters[] = { n.w1, n.b1, n.w2, n.b2 };
    for (int i = 0; i < 4; i++) {
        char name[8];
        snprintf(name, sizeof name, "d%s", names[i]);
        EXPECT_OK(rg_graph_result(n.graph, rg_value_gradient(parameters[i]), name));
    }
    rg_plan_options options = rg_plan_options_default();
    options.reuse_storage = reuse;
    options.in_place = in_place;
    options.poison = true;
    rg_plan *plan = NULL;
    EXPECT_OK(rg_plan_create(r.device, n.graph, &options, &plan));
    EXPECT(rg_plan_sources(plan) == 2);
    rg_tensor *sources[2];
    make_sources(&r, sources);
    fill_parameters(plan);
    run(&r, plan, sources);
    double analytic[64], values[64];
    for (int i = 0; i < 4; i++) {
        char name[8];
        rg_tensor *gradient = NULL, *tensor = NULL;
        snprintf(name, sizeof name, "d%s", names[i]);
        EXPECT_OK(rg_plan_result(plan, name, &gradient));
        EXPECT_OK(rg_plan_parameter(plan, names[i], &tensor));
        EXPECT_OK(rg_tensor_read(gradient, analytic, bytes_of(gradient), RG_LAYOUT_SAME));
        EXPECT_OK(rg_tensor_read(tensor, values, bytes_of(tensor), RG_LAYOUT_SAME));
        double largest = 0;
        for (int64_t k = 0; k < count_of(tensor); k++) {
            const double at = values[k], h = 1e-5;
            values[k] = at + h;
            EXPECT_OK(rg_tensor_write(tensor, values, bytes_of(tensor), RG_LAYOUT_SAME));
            const double above = run(&r, plan, sources);
            values[k] = at - h;
            EXPECT_OK(rg_tensor_write(tensor, values, bytes_of(tensor), RG_LAYOUT_SAME));
            const double below = run(&r, plan, sources);
            values[k] = at;
            EXPECT_OK(rg_tensor_write(tensor, values, bytes_of(tensor), RG_LAYOUT_SAME));
            EXPECT(fabs((above - below) / (2 * h) - analytic[k]) < 1e-6);
            largest = fmax(largest, fabs(analytic[k]));
        }
        EXPECT(largest > 1e-3);
    }
    EXPECT(rg_plan_bytes(plan) <= rg_plan_bytes_apart(plan) + 64 * 64);
    rg_tensor_destroy(sources[0]);
    rg_tensor_destroy(sources[1]);
    rg_plan_destroy(plan);
    rg_graph_destroy(n.graph);
    rig_close(&r);
}

static void test_training(void)
{
    rig r = rig_open(2);
    net n = make_net();
    EXPECT_OK(rg_graph_gradients(n.graph, &n.loss, NULL, 1, NULL, NULL));
    const rg_tensor_desc number = rg_tensor_desc_dense(RG_F64, 0, NULL);
    rg_value *rate = rg_graph_parameter(n.graph, "rate", &number);
    rg_sgd_desc sgd = rg_sgd_desc_default();
    sgd.momentum = 0.5;
    rg_value *const parameters[] = { n.w1, n.b1, n.w2, n.b2 };
    for (int i = 0; i < 4; i++)
        EXPECT(rg_graph_update(n.graph, "sgd", &sgd, parameters[i],
                               rg_value_gradient(parameters[i]), rate, NULL, NULL) != NULL);
    rg_plan *plan = NULL;
    EXPECT_OK(rg_plan_create(r.device, n.graph, NULL, &plan));
    rg_tensor *sources[2], *tensor = NULL;
    make_sources(&r, sources);
    fill_parameters(plan);
    EXPECT_OK(rg_plan_parameter(plan, "rate", &tensor));
    const double step = 0.2;
    EXPECT_OK(rg_tensor_write(tensor, &step, sizeof step, RG_LAYOUT_SAME));
    const double first = run(&r, plan, sources);
    double last = first;
    for (int i = 0; i < 100; i++)
        last = run(&r, plan, sources);
    EXPECT(last < 0.1 * first);
    rg_tensor_destroy(sources[0]);
    rg_tensor_destroy(sources[1]);
    rg_plan_destroy(plan);
    rg_graph_destroy(n.graph);
    rig_close(&r);
}

int main(void)
{
    for (int i = 0; i < 4; i++)
        test_gradients(i & 1, i & 2);
    test_training();
    return rg_test_report();
}
