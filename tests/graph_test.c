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

/* A gradient from all its parts beside the one that a node gives, with a state and without: the
 * same bits. */
static void test_gradient_node(void)
{
    rig r = rig_open(1);
    rg_graph *g = NULL;
    EXPECT_OK(rg_graph_create(&g));
    const rg_pool_desc pool = rg_pool_desc_default();
    rg_value *x = rg_graph_source(g, "x"), *dy = rg_graph_source(g, "dy");
    rg_node *node = rg_graph_pool(g, &pool, &x);
    rg_value *y = rg_node_output(node, 0);
    rg_node *const gradients[] = {
        rg_graph_gradient(g, node, &dy, 1),
        rg_graph_gradient_node(g, "pool", &pool, &dy, &x, &y, node, 1),
        rg_graph_gradient_node(g, "pool", &pool, &dy, &x, NULL, node, 0), /* all there are */
        rg_graph_gradient_node(g, "pool", &pool, &dy, &x, &y, NULL, 1),
    };
    for (int i = 0; i < 4; i++) {
        char name[8];
        EXPECT(rg_node_is_gradient(gradients[i]) && rg_node_input(gradients[i], 0) == dy);
        EXPECT(rg_node_forward(gradients[i]) == (i < 3 ? node : NULL));
        EXPECT(rg_node_outputs(gradients[i]) == 1);
        snprintf(name, sizeof name, "dx%d", i);
        EXPECT_OK(rg_graph_result(g, rg_node_output(gradients[i], 0), name));
    }
    EXPECT(rg_graph_gradient_node(NULL, "pool", &pool, &dy, &x, &y, node, 1) == NULL);
    rg_plan *plan = NULL;
    EXPECT_OK(rg_plan_create(r.device, g, NULL, &plan));
    rg_tensor *sources[2] = { filled(r.device, RG_F64, 4, DIMS(2, 4, 6, 3), 1),
                              filled(r.device, RG_F64, 4, DIMS(2, 2, 3, 3), 2) };
    EXPECT_OK(rg_plan_encode(plan, r.commands, sources));
    EXPECT_OK(rig_run(&r));
    rg_tensor *dx[4] = { NULL };
    for (int i = 0; i < 4; i++) {
        char name[8];
        snprintf(name, sizeof name, "dx%d", i);
        EXPECT_OK(rg_plan_result(plan, name, &dx[i]));
        EXPECT(same_bits(dx[0], dx[i]));
    }
    rg_tensor_destroy(sources[0]);
    rg_tensor_destroy(sources[1]);
    rg_plan_destroy(plan);
    rg_graph_destroy(g);
    rig_close(&r);
}

static void test_gradient_node_mistakes(void)
{
    rg_graph *wrong = NULL;
    const rg_pool_desc pool = rg_pool_desc_default();
    const struct {
        const char *op;
        uint64_t wanted;
        bool has_dy, has_desc;
        const char *says;
    } mistakes[] = {
        { "pool", 2, true, true,
          "gradients must be requested for at least one of its 1 inputs and for no others" },
        { "pool", 1, false, true, "dy is NULL" },
        { "pool", 1, true, false, "descriptor is NULL" },
        { "puddle", 1, true, true, "puddle" },
        { NULL, 1, true, true, "name of an op" },
        { "sgd", 1, true, true, "sgd" },
    };
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
        EXPECT_OK(rg_graph_create(&wrong));
        const rg_sgd_desc sgd = rg_sgd_desc_default();
        const void *desc = i == 5 ? (const void *)&sgd : &pool;
        rg_value *x = rg_graph_source(wrong, "x");
        rg_value *dy = mistakes[i].has_dy ? rg_graph_source(wrong, "dy") : NULL;
        rg_value *const all[] = { x, x, x, x };
        EXPECT(rg_graph_gradient_node(wrong, mistakes[i].op, mistakes[i].has_desc ? desc : NULL,
                                      &dy, all, all, NULL, mistakes[i].wanted) == NULL);
        EXPECT(rg_graph_status(wrong) != RG_OK);
        EXPECT(strstr(rg_error_text(), mistakes[i].says) != NULL);
        rg_graph_destroy(wrong);
    }
}

/* Every parameter of a wide graph is where the pass ends, in a copy of the graph, too. */
static void test_wide(void)
{
    enum { WIDTH = 2000 };
    rg_graph *graph = NULL, *copy = NULL;
    EXPECT_OK(rg_graph_create(&graph));
    const rg_neuron_desc relu = rg_neuron_desc_default();
    const rg_tensor_desc desc = rg_tensor_desc_dense(RG_F32, 1, DIMS(3));
    rg_value *y[WIDTH];
    for (int i = 0; i < WIDTH; i++) {
        char name[16];
        snprintf(name, sizeof name, "p%d", i);
        rg_value *p = rg_graph_parameter(graph, name, &desc);
        y[i] = rg_node_output(rg_graph_neuron(graph, &relu, &p), 0);
        y[i] = rg_node_output(rg_graph_neuron(graph, &relu, &y[i]), 0);
    }
    EXPECT_OK(rg_graph_gradients(graph, y, NULL, WIDTH, NULL, NULL));
    EXPECT_OK(rg_graph_copy(graph, &copy));
    static rg_node *nodes[2][WIDTH];
    EXPECT(rg_graph_termini(graph, nodes[0], WIDTH) == WIDTH);
    EXPECT(rg_graph_termini(copy, nodes[1], WIDTH) == WIDTH);
    EXPECT(rg_graph_termini(copy, nodes[1], 3) == WIDTH); /* those that fit, and how many */
    for (int i = 0; i < WIDTH; i++) {
        EXPECT(rg_node_is_gradient(nodes[0][i]));
        EXPECT(strcmp(rg_node_label(nodes[0][i]), rg_node_label(nodes[1][i])) == 0);
    }
    rg_graph_destroy(graph);
    rg_graph_destroy(copy);
}

/* A step that is timed is a slice of the plan: its fault word is told as that of a whole run. */
static void test_slice_faults(void)
{
    const int32_t bad[BATCH] = { 0, 2, OUT, 1, 0 };
    rig r = rig_open(2);
    net n = make_net();
    EXPECT_OK(rg_graph_gradients(n.graph, &n.loss, NULL, 1, NULL, NULL));
    EXPECT_OK(rg_graph_result(n.graph, rg_value_gradient(n.w1), "dw1"));
    rg_plan *plan = NULL;
    rg_tensor *sources[2], *good;
    double milliseconds[64];
    EXPECT_OK(rg_plan_create(r.device, n.graph, NULL, &plan));
    make_sources(&r, sources);
    fill_parameters(plan);
    good = sources[1];
    sources[1] = tensor_of(r.device, RG_I32, 1, DIMS(BATCH));
    EXPECT_OK(rg_tensor_write(sources[1], bad, sizeof bad, RG_LAYOUT_SAME));
    EXPECT_OK(rg_plan_encode(plan, r.commands, sources));
    EXPECT_FAILS(rig_run(&r), RG_KERNEL_FAULT, "label");
    EXPECT(rg_plan_steps(plan) <= 64);
    EXPECT_FAILS(rg_plan_time(plan, r.queue, sources, 2, milliseconds), RG_KERNEL_FAULT, "label");
    rg_tensor_destroy(sources[1]);
    sources[1] = good;
    EXPECT_OK(rg_plan_time(plan, r.queue, sources, 2, milliseconds));
    EXPECT(isfinite(run(&r, plan, sources)));
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
    test_gradient_node();
    test_gradient_node_mistakes();
    test_wide();
    test_slice_faults();
    return rg_test_report();
}
