/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Graphs as in MPS: the backward pass, and paddings by a policy.
 * docs/mps.md names these tests; numbers are those of the behaviour checks there. */
#include "any_device.h"
#include "graph_f64.h"

#include <math.h>

/* ---- the backward pass ---- */

typedef struct pairs {
    int pairs, sums;
    const rg_value *summed, *stop_at;
    rg_node *forward[16];
} pairs;

static void note_pair(void *context, rg_node *gradient, rg_node *forward, rg_value *source,
                      rg_value *dy)
{
    pairs *p = context;
    EXPECT(gradient != NULL && source != NULL && dy != NULL);
    if (forward == NULL) {
        EXPECT(!rg_node_is_gradient(gradient) && rg_node_input(gradient, 0) == dy);
        p->summed = source;
        p->sums++;
        return;
    }
    EXPECT(rg_node_is_gradient(gradient) && rg_node_forward(gradient) == forward);
    EXPECT(rg_node_input(gradient, 0) == dy);
    p->forward[p->pairs++ % 16] = forward;
    if (source == p->stop_at)
        EXPECT_OK(rg_value_stop_gradient(source));
}

/* 9: a value with two readers: the pass adds one addition, which has no forward node. */
static void test_diamond(rig *r)
{
    rg_graph *graph = graph_new();
    rg_value *x = rg_graph_source(graph, "x"), *h = f64_neuron(graph, RG_NEURON_TANH, x);
    rg_value *y = f64_sum(graph, f64_neuron(graph, RG_NEURON_SIGMOID, h),
                          f64_neuron(graph, RG_NEURON_EXPONENTIAL, h));
    rg_value *loss = f64_total(graph, y);
    pairs p = { 0 };
    const int32_t before = rg_graph_nodes(graph);
    EXPECT_OK(rg_graph_gradients(graph, &loss, NULL, 1, note_pair, &p));
    EXPECT(p.sums == 1 && p.summed == h);
    EXPECT(p.pairs == 6); /* the addition has two sources */
    EXPECT(rg_graph_nodes(graph) == before + 6);
    rg_node *terminus = NULL;
    EXPECT(rg_graph_termini(graph, &terminus, 1) == 1);
    EXPECT(terminus == rg_value_node(rg_value_gradient(x)));
    EXPECT_OK(rg_graph_result(graph, rg_value_gradient(x), "dx"));
    rg_plan *plan = f64_plan(r->device, graph);
    rg_tensor *source = filled(r->device, RG_F64, 1, DIMS(5), 3);
    double in[5], out[5];
    EXPECT_OK(rg_tensor_read(source, in, sizeof in, RG_LAYOUT_SAME));
    f64_run(r, plan, &source);
    f64_read(plan, "dx", out);
    for (int i = 0; i < 5; i++) {
        const double t = tanh(in[i]), s = 1 / (1 + exp(-t));
        EXPECT(fabs(out[i] - (s * (1 - s) + exp(t)) * (1 - t * t)) < 1e-12);
    }
    rg_tensor_destroy(source);
    rg_plan_destroy(plan);
    rg_graph_destroy(graph);
}

/* 10: the pass ends at the mark: the node that makes the gradient of the marked value is the last.
 */
static void test_stop(void)
{
    for (int by_handler = 0; by_handler < 2; by_handler++) {
        rg_graph *graph = graph_new();
        rg_value *x = rg_graph_source(graph, "x"), *a = f64_neuron(graph, RG_NEURON_TANH, x);
        rg_value *b = f64_neuron(graph, RG_NEURON_SIGMOID, a),
                 *c = f64_neuron(graph, RG_NEURON_TANH, b);
        pairs p = { .stop_at = by_handler ? b : NULL };
        if (!by_handler)
            EXPECT_OK(rg_value_stop_gradient(b));
        EXPECT_OK(rg_graph_gradients(graph, &c, NULL, 1, note_pair, &p));
        EXPECT(p.pairs == 1 && p.forward[0] == rg_value_node(c));
        EXPECT(rg_value_gradient(b) != NULL);
        EXPECT(rg_value_gradient(a) == NULL && rg_value_gradient(x) == NULL);
        rg_node *termini[2] = { NULL };
        EXPECT(rg_graph_termini(graph, termini, 2) == 1);
        EXPECT(termini[0] == rg_value_node(rg_value_gradient(b)));
        rg_graph_destroy(graph);
    }
}

/* Several losses, a parameter that is used twice, a branch that does not reach a loss, a frozen
 * parameter, handles. */
static void test_losses(rig *r)
{
    rg_graph *graph = graph_new();
    int mark = 0;
    rg_value *x = rg_graph_source(graph, "x"), *w = f64_parameter(graph, "w", 1, DIMS(4));
    rg_value *frozen = f64_parameter(graph, "frozen", 1, DIMS(4));
    EXPECT_OK(rg_value_stop_gradient(frozen));
    EXPECT_OK(rg_value_set_handle(w, &mark));
    rg_value *a = f64_sum(graph, f64_sum(graph, x, w), f64_sum(graph, w, frozen)); /* 2 w */
    rg_value *unread = f64_neuron(graph, RG_NEURON_TANH, a);
    rg_value *const losses[] = { f64_total(graph, a),
                                 f64_total(graph, f64_neuron(graph, RG_NEURON_SOFTPLUS, x)) };
    EXPECT_OK(rg_graph_gradients(graph, losses, NULL, 2, NULL, NULL));
    EXPECT(rg_value_gradient(unread) == NULL && rg_value_gradient(frozen) == NULL);
    EXPECT(rg_value_handle(rg_value_gradient(w)) == &mark);
    EXPECT(rg_value_handle(rg_value_gradient(x)) == NULL);
    EXPECT_OK(rg_graph_result(graph, rg_value_gradient(w), "dw"));
    EXPECT_OK(rg_graph_result(graph, rg_value_gradient(x), "dx"));
    rg_plan *plan = f64_plan(r->device, graph);
    rg_tensor *source = filled(r->device, RG_F64, 1, DIMS(4), 5);
    double in[4], dw[4], dx[4];
    EXPECT_OK(rg_tensor_read(source, in, sizeof in, RG_LAYOUT_SAME));
    f64_run(r, plan, &source);
    f64_read(plan, "dw", dw);
    f64_read(plan, "dx", dx);
    for (int i = 0; i < 4; i++) {
        EXPECT(dw[i] == 2);
        EXPECT(fabs(dx[i] - (1 + 1 / (1 + exp(-in[i])))) < 1e-12);
    }
    rg_tensor_destroy(source);
    rg_plan_destroy(plan);
    rg_graph_destroy(graph);
}

/* ---- windows ---- */

/* 5, 6: a policy is resolved for each size, and the kernel does not change; the gradient has the
 * size of its source, although n = 5 and n = 6 both give 3. */
static void test_source_size(rig *r)
{
    rg_graph *graph = graph_new();
    rg_pool_desc desc = rg_pool_desc_default(), after;
    desc.padding.policy = RG_PADDING_SAME;
    rg_value *x = rg_graph_source(graph, "x");
    rg_node *node = rg_graph_pool(graph, &desc, &x);
    rg_value *y = rg_node_output(node, 0);
    EXPECT_OK(rg_graph_gradients(graph, &y, NULL, 1, NULL, NULL));
    EXPECT_OK(rg_graph_result(graph, rg_value_gradient(x), "dx"));
    rg_plan *plan = f64_plan(r->device, graph);
    for (int64_t n = 5; n < 7; n++) {
        rg_tensor *source = filled(r->device, RG_F64, 4, DIMS(1, n, n, 2), 7);
        rg_tensor_desc shape;
        f64_run(r, plan, &source);
        EXPECT(count_of(f64_result(plan, "dx")) == 2 * n * n);
        EXPECT_OK(rg_plan_shape(plan, rg_node_label(node), 0, &shape));
        EXPECT(shape.rank == 4 && shape.dims[1] == 3 && shape.dims[2] == 3);
        rg_tensor_destroy(source);
    }
    EXPECT_OK(rg_node_desc(node, &after));
    EXPECT(memcmp(&desc.padding, &after.padding, sizeof desc.padding) == 0);
    rg_plan_destroy(plan);
    rg_graph_destroy(graph);
}

typedef struct convolution {
    rg_padding_policy policy;
    int32_t stride, dilation;
} convolution;

static double loss_at(rig *r, rg_plan *plan, rg_tensor *x)
{
    double loss = NAN;
    f64_run(r, plan, &x);
    f64_read(plan, "loss", &loss);
    return loss;
}

/* Compares d loss / d tensor with finite differences. */
static void check_gradient(rig *r, rg_plan *plan, rg_tensor *x, rg_tensor *tensor, const char *name)
{
    const double h = 1e-5;
    double values[256], gradient[256];
    loss_at(r, plan, x);
    f64_read(plan, name, gradient);
    EXPECT_OK(rg_tensor_read(tensor, values, bytes_of(tensor), RG_LAYOUT_SAME));
    for (int64_t i = 0; i < count_of(tensor); i += 3) {
        const double at = values[i];
        double loss[2];
        for (int side = 0; side < 2; side++) {
            values[i] = side ? at - h : at + h;
            EXPECT_OK(rg_tensor_write(tensor, values, bytes_of(tensor), RG_LAYOUT_SAME));
            loss[side] = loss_at(r, plan, x);
        }
        values[i] = at;
        EXPECT_OK(rg_tensor_write(tensor, values, bytes_of(tensor), RG_LAYOUT_SAME));
        EXPECT(fabs((loss[0] - loss[1]) / (2 * h) - gradient[i]) < 1e-6 * (1 + fabs(gradient[i])));
    }
}

/* 7: dx, dw and db of a batch of 3, through every policy; dw is the sum over the images. */
static void test_policies(rig *r)
{
    static const convolution cases[] = { { RG_PADDING_VALID, 1, 1 },
                                         { RG_PADDING_SAME, 2, 1 },
                                         { RG_PADDING_FULL, 1, 2 },
                                         { RG_PADDING_SAME, 3, 2 },
                                         { RG_PADDING_VALID, 2, 2 } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rg_graph *graph = graph_new();
        rg_conv_desc desc = rg_conv_desc_default();
        desc.padding.policy = cases[i].policy;
        desc.stride[0] = desc.stride[1] = cases[i].stride;
        desc.dilation[0] = desc.dilation[1] = cases[i].dilation;
        rg_value *x = rg_graph_source(graph, "x"),
                 *w = f64_parameter(graph, "w", 4, DIMS(2, 2, 3, 2));
        rg_value *b = f64_parameter(graph, "b", 1, DIMS(2));
        rg_value *y = rg_node_output(rg_graph_conv(graph, &desc, (rg_value *[]){ x, w, b }), 0);
        rg_value *loss = f64_total(graph, f64_neuron(graph, RG_NEURON_TANH, y));
        EXPECT_OK(rg_graph_gradients(graph, &loss, NULL, 1, NULL, NULL));
        EXPECT_OK(rg_graph_result(graph, loss, "loss"));
        EXPECT_OK(rg_graph_result(graph, rg_value_gradient(x), "dx"));
        EXPECT_OK(rg_graph_result(graph, rg_value_gradient(w), "dw"));
        EXPECT_OK(rg_graph_result(graph, rg_value_gradient(b), "db"));
        rg_plan *plan = f64_plan(r->device, graph);
        rg_tensor *source = filled(r->device, RG_F64, 4, DIMS(3, 5, 6, 2), 11), *tensor = NULL;
        EXPECT_OK(rg_plan_parameter(plan, "w", &tensor));
        fill(tensor, 12);
        check_gradient(r, plan, source, tensor, "dw");
        check_gradient(r, plan, source, source, "dx");
        EXPECT_OK(rg_plan_parameter(plan, "b", &tensor));
        check_gradient(r, plan, source, tensor, "db");
        rg_tensor_destroy(source);
        rg_plan_destroy(plan);
        rg_graph_destroy(graph);
    }
}

int main(void)
{
    test_stop();
    RUN_ON_DEVICES(test_diamond, test_losses, test_source_size, test_policies);
    return rg_test_report();
}
