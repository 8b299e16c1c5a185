/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Graphs with bad input: a status and a sentence that names the node, never a crash. */
#include "graph_f64.h"

#include <math.h>

/* The graph keeps its first mistake, whatever comes after it. */
static void expect_mistake(rg_graph *graph, rg_status status, const char *words)
{
    EXPECT_FAILS(rg_graph_status(graph), status, words);
    rg_graph_source(graph, NULL);
    EXPECT_FAILS(rg_graph_status(graph), status, words);
    rg_graph *copy = NULL;
    EXPECT_FAILS(rg_graph_copy(graph, &copy), status, words);
    EXPECT(copy == NULL);
    char text[256];
    rg_graph_describe(graph, text, sizeof text);
    EXPECT(rg_graph_equal(graph, graph));
    rg_graph_destroy(graph);
}

/* ---- NULL ---- */

static void test_null_graphs(void)
{
    const rg_tensor_desc shape = rg_tensor_desc_dense(RG_F64, 0, NULL);
    const rg_data_source source = rg_data_source_default();
    const rg_neuron_desc desc = rg_neuron_desc_default();
    const rg_sgd_desc sgd = rg_sgd_desc_default();
    rg_value *x = NULL;
    rg_graph *copy = NULL;
    EXPECT_FAILS(rg_graph_create(NULL), RG_INVALID_ARGUMENT, "NULL");
    EXPECT_FAILS(rg_graph_status(NULL), RG_INVALID_ARGUMENT, "NULL");
    rg_graph_destroy(NULL);
    EXPECT(rg_graph_source(NULL, "x") == NULL && rg_graph_parameter(NULL, "x", &shape) == NULL);
    EXPECT(rg_graph_parameter_from(NULL, "x", &source) == NULL);
    EXPECT(rg_graph_constant(NULL, NULL, 1) == NULL);
    EXPECT_FAILS(rg_graph_result(NULL, NULL, "x"), RG_INVALID_ARGUMENT, "NULL");
    EXPECT_FAILS(rg_graph_state_result(NULL, NULL, "x"), RG_INVALID_ARGUMENT, "NULL");
    EXPECT_FAILS(rg_graph_assign(NULL, NULL, NULL), RG_INVALID_ARGUMENT, "NULL");
    EXPECT(rg_graph_node(NULL, "neuron", &desc, &x, 1) == NULL);
    EXPECT(rg_graph_neuron(NULL, &desc, &x) == NULL);
    EXPECT(rg_graph_gradient(NULL, NULL, NULL, 1) == NULL);
    EXPECT(rg_graph_neuron_gradient(NULL, &desc, &x, &x, NULL, NULL) == NULL);
    EXPECT(rg_graph_update(NULL, "sgd", &sgd, NULL, NULL, NULL, NULL, NULL) == NULL);
    EXPECT_FAILS(rg_graph_gradients(NULL, &x, NULL, 1, NULL, NULL), RG_INVALID_ARGUMENT, "NULL");
    EXPECT_FAILS(rg_graph_copy(NULL, &copy), RG_INVALID_ARGUMENT, "NULL");
    EXPECT(rg_graph_nodes(NULL) == 0 && rg_graph_node_at(NULL, 0) == NULL);
    EXPECT(rg_graph_values(NULL) == 0 && rg_graph_value_at(NULL, 0) == NULL);
    EXPECT(rg_graph_results(NULL) == 0 && rg_graph_result_at(NULL, 0, NULL) == NULL);
    EXPECT(rg_graph_find_value(NULL, "x") == NULL && rg_graph_find_node(NULL, "x") == NULL);
    EXPECT(rg_graph_assigned(NULL, NULL) == NULL && rg_graph_termini(NULL, NULL, 0) == 0);
    EXPECT(rg_graph_describe(NULL, NULL, 0) > 0);
    EXPECT(rg_graph_equal(NULL, NULL) && rg_node_equal(NULL, NULL));
}

static void test_null_parts(void)
{
    EXPECT_FAILS(rg_value_stop_gradient(NULL), RG_INVALID_ARGUMENT, "NULL");
    EXPECT_FAILS(rg_value_set_handle(NULL, NULL), RG_INVALID_ARGUMENT, "NULL");
    EXPECT(rg_value_gradient(NULL) == NULL && rg_value_node(NULL) == NULL);
    EXPECT(rg_value_handle(NULL) == NULL && rg_value_index(NULL) == 0);
    EXPECT(strcmp(rg_value_name(NULL), "") == 0);
    EXPECT(rg_value_get_kind(NULL) == RG_VALUE_SOURCE);
    EXPECT(rg_node_output(NULL, 0) == NULL && rg_node_input(NULL, 0) == NULL);
    EXPECT(rg_node_outputs(NULL) == 0 && rg_node_inputs(NULL) == 0);
    EXPECT(strcmp(rg_node_op(NULL), "") == 0 && strcmp(rg_node_label(NULL), "") == 0);
    EXPECT(!rg_node_is_gradient(NULL) && rg_node_forward(NULL) == NULL);
    EXPECT_FAILS(rg_node_desc(NULL, NULL), RG_INVALID_ARGUMENT, "NULL");
    EXPECT_FAILS(rg_node_set_label(NULL, "x"), RG_INVALID_ARGUMENT, "NULL");
    char text[32];
    EXPECT(rg_node_describe(NULL, text, sizeof text) == strlen(text));
    rg_graph *graph = graph_new();
    rg_node *node = rg_value_node(f64_neuron(graph, RG_NEURON_TANH, rg_graph_source(graph, "x")));
    EXPECT_FAILS(rg_node_set_label(node, NULL), RG_INVALID_ARGUMENT, "NULL");
    EXPECT_FAILS(rg_node_set_label(node, ""), RG_INVALID_ARGUMENT, "empty");
    EXPECT_FAILS(rg_node_desc(node, NULL), RG_INVALID_ARGUMENT, "NULL");
    EXPECT(rg_node_output(node, 1) == NULL && rg_node_output(node, -1) == NULL);
    EXPECT(!rg_node_equal(node, NULL) && !rg_graph_equal(graph, NULL));
    EXPECT(rg_graph_find_value(graph, NULL) == NULL && rg_graph_find_node(graph, NULL) == NULL);
    rg_graph_destroy(graph);
}

/* ---- builders ---- */

static void test_values(void)
{
    const rg_tensor_desc bad = { .dtype = RG_F64, .rank = 9 }, good = { .dtype = RG_F64 };
    rg_graph *graph = graph_new();
    EXPECT(rg_graph_source(graph, "") == NULL);
    expect_mistake(graph, RG_INVALID_ARGUMENT, "source needs a name");
    graph = graph_new();
    EXPECT(rg_graph_parameter(graph, NULL, &good) == NULL);
    expect_mistake(graph, RG_INVALID_ARGUMENT, "parameter needs a name");
    graph = graph_new();
    EXPECT(rg_graph_parameter(graph, "w", NULL) == NULL);
    expect_mistake(graph, RG_INVALID_ARGUMENT, "desc is NULL");
    graph = graph_new();
    EXPECT(rg_graph_parameter(graph, "w", &bad) == NULL);
    expect_mistake(graph, RG_INVALID_ARGUMENT, "w");
    graph = graph_new();
    EXPECT(rg_graph_source(graph, "w") != NULL && rg_graph_parameter(graph, "w", &good) == NULL);
    expect_mistake(graph, RG_INVALID_ARGUMENT, "two values with the name 'w'");
    rg_data_source source = rg_data_source_default();
    graph = graph_new();
    EXPECT(rg_graph_parameter_from(graph, "w", &source) == NULL);
    expect_mistake(graph, RG_INVALID_ARGUMENT, "'w' has no load");
    graph = graph_new();
    EXPECT(rg_graph_parameter_from(graph, NULL, NULL) == NULL);
    expect_mistake(graph, RG_INVALID_ARGUMENT, "source is NULL");
    source.size = 0;
    graph = graph_new();
    EXPECT(rg_graph_parameter_from(graph, "w", &source) == NULL);
    expect_mistake(graph, RG_INVALID_ARGUMENT, "size 0");
}

static void test_nodes(void)
{
    rg_neuron_desc desc = rg_neuron_desc_default();
    rg_graph *graph = graph_new(), *other = graph_new();
    rg_value *x = rg_graph_source(graph, "x"), *foreign = rg_graph_source(other, "x");
    EXPECT(rg_graph_constant(graph, foreign, 1) == NULL);
    expect_mistake(graph, RG_INVALID_ARGUMENT, "another graph");
    graph = graph_new();
    EXPECT(rg_graph_neuron(graph, &desc, &foreign) == NULL);
    expect_mistake(graph, RG_INVALID_ARGUMENT, "neuron_0: x belongs to another graph");
    graph = graph_new();
    x = NULL;
    EXPECT(f64_neuron(graph, RG_NEURON_TANH, f64_neuron(graph, RG_NEURON_TANH, x)) == NULL);
    expect_mistake(graph, RG_INVALID_ARGUMENT, "neuron_0: x is NULL");
    graph = graph_new();
    x = rg_graph_source(graph, "x");
    EXPECT(rg_graph_node(graph, "nothing", &desc, &x, 1) == NULL);
    expect_mistake(graph, RG_INVALID_ARGUMENT, "nothing");
    graph = graph_new();
    x = rg_graph_source(graph, "x");
    EXPECT(rg_graph_node(graph, "neuron", &desc, &x, -1) == NULL);
    expect_mistake(graph, RG_INVALID_ARGUMENT, "rg_graph_node: invalid number of inputs: -1");
    graph = graph_new();
    x = rg_graph_source(graph, "x");
    EXPECT(rg_graph_node(graph, "MPSCNNNeuron", &desc, &x, 1) == NULL);
    expect_mistake(graph, RG_INVALID_ARGUMENT, "own name");
    graph = graph_new();
    EXPECT(rg_graph_neuron(graph, NULL, &x) == NULL);
    expect_mistake(graph, RG_INVALID_ARGUMENT, "descriptor is NULL");
    desc.size = 0;
    graph = graph_new();
    x = rg_graph_source(graph, "x");
    EXPECT(rg_graph_neuron(graph, &desc, &x) == NULL);
    expect_mistake(graph, RG_INVALID_ARGUMENT, "size of the descriptor is 0");
    graph = graph_new();
    x = rg_graph_source(graph, "x");
    EXPECT(rg_graph_neuron_gradient(graph, &desc, &x, &x, NULL, NULL) == NULL);
    expect_mistake(graph, RG_INVALID_ARGUMENT, "size of the descriptor is 0");
    rg_graph_destroy(other);
}

static void test_gradient_nodes(void)
{
    const rg_neuron_desc desc = rg_neuron_desc_default();
    rg_concat_desc wild = rg_concat_desc_default();
    rg_graph *graph = graph_new(), *other = graph_new();
    rg_value *x = rg_graph_source(graph, "x");
    rg_node *foreign =
        rg_value_node(f64_neuron(other, RG_NEURON_TANH, rg_graph_source(other, "x")));
    EXPECT(rg_graph_gradient(graph, NULL, &x, 1) == NULL);
    EXPECT(rg_graph_gradient(graph, foreign, &x, 1) == NULL);
    expect_mistake(graph, RG_INVALID_ARGUMENT, "another graph");
    graph = graph_new();
    x = rg_graph_source(graph, "x");
    rg_node *node = rg_value_node(f64_neuron(graph, RG_NEURON_TANH, x));
    rg_node *gradient = rg_graph_gradient(graph, node, &x, 1);
    EXPECT(gradient != NULL && rg_graph_gradient(graph, gradient, &x, 1) == NULL);
    expect_mistake(graph, RG_UNSUPPORTED, "a gradient node has no gradient");
    graph = graph_new();
    x = rg_graph_source(graph, "x");
    EXPECT(rg_graph_gradient(graph, rg_value_node(f64_neuron(graph, RG_NEURON_TANH, x)), &x, 2) ==
           NULL);
    expect_mistake(
        graph, RG_INVALID_ARGUMENT,
        "gradients must be requested for at least one of its 1 inputs and for no others");
    graph = graph_new();
    x = rg_graph_source(graph, "x");
    EXPECT(rg_graph_gradient(graph, rg_value_node(f64_neuron(graph, RG_NEURON_TANH, x)), NULL, 1) ==
           NULL);
    expect_mistake(graph, RG_INVALID_ARGUMENT, "dy is NULL");
    graph = graph_new();
    x = rg_graph_source(graph, "x");
    node = rg_value_node(f64_neuron(graph, RG_NEURON_TANH, x));
    const rg_softmax_desc softmax = rg_softmax_desc_default();
    EXPECT(rg_graph_softmax_gradient(graph, &softmax, &x, &x, &x, node) == NULL);
    expect_mistake(graph, RG_INVALID_ARGUMENT,
                   "a gradient of softmax cannot use the state of neuron");
    graph = graph_new();
    EXPECT(rg_graph_neuron_gradient(graph, NULL, &x, &x, NULL, NULL) == NULL);
    expect_mistake(graph, RG_INVALID_ARGUMENT, "NULL");
    graph = graph_new();
    x = rg_graph_source(graph, "x");
    EXPECT(rg_graph_neuron_gradient(graph, &desc, NULL, &x, NULL, NULL) == NULL);
    expect_mistake(graph, RG_INVALID_ARGUMENT, "dy is NULL");
    graph = graph_new();
    x = rg_graph_source(graph, "x");
    const rg_sgd_desc sgd = rg_sgd_desc_default();
    EXPECT(rg_graph_sgd_gradient(graph, &sgd, &x, &x, NULL, NULL) == NULL);
    expect_mistake(graph, RG_UNSUPPORTED, "sgd has no gradient");
    graph = graph_new();
    x = rg_graph_source(graph, "x");
    memset((char *)&wild + sizeof wild.size, 0x7f, sizeof wild - sizeof wild.size);
    EXPECT(rg_graph_concat_gradient(graph, &wild, &x, &x, NULL, NULL) == NULL);
    expect_mistake(graph, RG_INVALID_ARGUMENT, "concat");
    rg_graph_destroy(other);
}

static void test_wishes(void)
{
    rg_graph *other = graph_new(), *graph = graph_new();
    rg_value *foreign = f64_neuron(other, RG_NEURON_TANH, rg_graph_source(other, "x")),
             *x = rg_graph_source(graph, "x");
    EXPECT_FAILS(rg_graph_result(graph, foreign, "y"), RG_INVALID_ARGUMENT, "another graph");
    EXPECT_FAILS(rg_graph_result(graph, x, "y"), RG_INVALID_ARGUMENT, "another graph"); /* first */
    expect_mistake(graph, RG_INVALID_ARGUMENT, "another graph");
    static const char *const words[] = { "'y' is NULL", "needs a name", "two results" };
    for (int i = 0; i < 3; i++) {
        graph = graph_new();
        x = rg_graph_source(graph, "x");
        if (i == 2)
            EXPECT_OK(rg_graph_result(graph, x, "y"));
        EXPECT_FAILS(rg_graph_result(graph, i == 0 ? NULL : x, i == 1 ? NULL : "y"),
                     RG_INVALID_ARGUMENT, words[i]);
        expect_mistake(graph, RG_INVALID_ARGUMENT, words[i]);
    }
    graph = graph_new();
    EXPECT_FAILS(rg_graph_state_result(graph, NULL, "s"), RG_INVALID_ARGUMENT,
                 "the node of the state 's' is NULL");
    expect_mistake(graph, RG_INVALID_ARGUMENT, "the node of the state 's' is NULL");
    graph = graph_new();
    EXPECT_FAILS(rg_graph_state_result(graph, rg_value_node(foreign), "s"), RG_INVALID_ARGUMENT,
                 "another graph");
    expect_mistake(graph, RG_INVALID_ARGUMENT, "another graph");
    rg_graph_destroy(other);
}

static void test_assignments(rig *r)
{
    static const char *const words[] = {
        "NULL",
        "rg_graph_assign: only a parameter can be assigned to",
        "rg_graph_assign: 'w' must be assigned an output of a forward node",
        "assigned twice",
        "rg_graph_assign: one output of neuron_0 is assigned to both 'w' and 'v'",
        "another graph"
    };
    for (int i = 0; i < 6; i++) {
        rg_graph *graph = graph_new(), *other = graph_new();
        rg_value *x = rg_graph_source(graph, "x"), *w = f64_parameter(graph, "w", 1, DIMS(3));
        rg_value *v = f64_parameter(graph, "v", 1, DIMS(3)),
                 *y = f64_neuron(graph, RG_NEURON_TANH, x);
        if (i == 3 || i == 4)
            EXPECT_OK(rg_graph_assign(graph, w, y));
        rg_value *target = i == 0 ? NULL : i == 1 ? x : i == 4 ? v : w;
        rg_value *what = i == 2   ? v
                         : i == 3 ? f64_neuron(graph, RG_NEURON_TANH, v)
                         : i == 5 ? rg_graph_source(other, "x")
                                  : y;
        EXPECT_FAILS(rg_graph_assign(graph, target, what), RG_INVALID_ARGUMENT, words[i]);
        expect_mistake(graph, RG_INVALID_ARGUMENT, words[i]);
        rg_graph_destroy(other);
    }
    rg_graph *graph = graph_new(); /* u becomes f(w), w becomes g(u): each waits for the other */
    rg_value *w = f64_parameter(graph, "w", 1, DIMS(3)), *u = f64_parameter(graph, "u", 1, DIMS(3));
    rg_value *f = f64_neuron(graph, RG_NEURON_TANH, w), *g = f64_neuron(graph, RG_NEURON_TANH, u);
    EXPECT_OK(rg_node_set_label(rg_value_node(f), "f"));
    EXPECT_OK(rg_graph_assign(graph, u, f));
    EXPECT_OK(rg_graph_assign(graph, w, g));
    rg_plan *plan = NULL;
    EXPECT_FAILS(
        rg_plan_create(r->device, graph, NULL, &plan), RG_INVALID_ARGUMENT,
        "f depends on itself: the parameter it assigns is read by a node that needs its result");
    EXPECT(plan == NULL);
    rg_graph_destroy(graph);
    graph = graph_new(); /* another shape */
    w = f64_parameter(graph, "w", 1, DIMS(3));
    EXPECT_OK(
        rg_graph_assign(graph, w, f64_neuron(graph, RG_NEURON_TANH, rg_graph_source(graph, "x"))));
    EXPECT_OK(rg_plan_create(r->device, graph, NULL, &plan));
    const rg_tensor_desc four = rg_tensor_desc_dense(RG_F64, 1, DIMS(4));
    EXPECT_FAILS(rg_plan_prepare(plan, &four), RG_INVALID_ARGUMENT,
                 "neuron_0: the parameter 'w' is f64[3], but is assigned f64[4]");
    rg_plan_destroy(plan);
    rg_graph_destroy(graph);
    graph = graph_new(); /* an op that cannot write over what it reads */
    w = f64_parameter(graph, "w", 1, DIMS(3));
    const rg_reduce_desc reduce = rg_reduce_desc_default();
    EXPECT_OK(rg_graph_assign(graph, w, rg_node_output(rg_graph_reduce(graph, &reduce, &w), 0)));
    EXPECT_FAILS(rg_plan_create(r->device, graph, NULL, &plan), RG_UNSUPPORTED,
                 "reduce_0 cannot overwrite the parameter 'w' that it reads");
    rg_graph_destroy(graph);
}

/* ---- the backward pass ---- */

static void test_no_gradient(void)
{
    rg_graph *graph = graph_new();
    rg_value *x = rg_graph_source(graph, "x"), *w = f64_parameter(graph, "w", 1, DIMS(3));
    const rg_tensor_desc number = rg_tensor_desc_dense(RG_F64, 0, NULL);
    rg_value *rate = rg_graph_parameter(graph, "rate", &number);
    const rg_sgd_desc sgd = rg_sgd_desc_default();
    rg_node *step =
        rg_graph_sgd(graph, &sgd, (rg_value *[]){ f64_neuron(graph, RG_NEURON_TANH, w), x, rate });
    EXPECT_OK(rg_node_set_label(step, "inner step"));
    rg_value *loss = f64_neuron(graph, RG_NEURON_TANH, rg_node_output(step, 0));
    EXPECT_FAILS(rg_graph_gradients(graph, &loss, NULL, 1, NULL, NULL), RG_UNSUPPORTED,
                 "inner step: sgd has no gradient");
    expect_mistake(graph, RG_UNSUPPORTED, "inner step");
    graph = graph_new(); /* all parameters behind it are frozen: the pass ends there */
    x = rg_graph_source(graph, "x");
    rate = rg_graph_parameter(graph, "rate", &number);
    EXPECT_OK(rg_value_stop_gradient(rate));
    step = rg_graph_sgd(graph, &sgd, (rg_value *[]){ x, x, rate });
    loss = f64_sum(graph, rg_node_output(step, 0), x);
    EXPECT_OK(rg_graph_gradients(graph, &loss, NULL, 1, NULL, NULL));
    EXPECT(rg_value_gradient(x) != NULL);
    rg_graph_destroy(graph);
    graph = graph_new(); /* through a gradient */
    x = rg_graph_source(graph, "x");
    w = f64_parameter(graph, "w", 1, DIMS(3));
    rg_value *y = f64_neuron(graph, RG_NEURON_TANH, f64_sum(graph, x, w));
    EXPECT_OK(rg_graph_gradients(graph, &y, NULL, 1, NULL, NULL));
    loss = f64_sum(graph, y, rg_value_gradient(w));
    EXPECT_FAILS(rg_graph_gradients(graph, &loss, NULL, 1, NULL, NULL), RG_UNSUPPORTED,
                 "a gradient has no gradient");
    rg_graph_destroy(graph);
}

static void test_gradients(void)
{
    rg_graph *graph = graph_new(), *other = graph_new();
    rg_value *x = rg_graph_source(graph, "x"), *foreign = rg_graph_source(other, "x"), *none = NULL;
    EXPECT_FAILS(rg_graph_gradients(graph, NULL, NULL, 1, NULL, NULL), RG_INVALID_ARGUMENT, "NULL");
    EXPECT_OK(rg_graph_status(graph));
    EXPECT_FAILS(rg_graph_gradients(graph, &none, NULL, 1, NULL, NULL), RG_INVALID_ARGUMENT,
                 "value 0 is NULL");
    expect_mistake(graph, RG_INVALID_ARGUMENT, "value 0");
    for (int i = 0; i < 4; i++) {
        static const char *const words[] = { "belongs to another graph", "gradient of value 0",
                                             "rg_graph_gradients: invalid number of values: 0",
                                             "depends on no source" };
        graph = graph_new();
        x = rg_graph_source(graph, "x");
        rg_value *y = f64_neuron(graph, RG_NEURON_TANH, x), *one = rg_graph_constant(graph, x, 1);
        rg_value *const of[] = { i == 0 ? foreign : i == 3 ? one : y };
        EXPECT_FAILS(rg_graph_gradients(graph, of, i == 1 ? &foreign : NULL, i != 2, NULL, NULL),
                     RG_INVALID_ARGUMENT, words[i]);
        expect_mistake(graph, RG_INVALID_ARGUMENT, words[i]);
    }
    rg_graph_destroy(other);
}

static void test_updates(void)
{
    const rg_tensor_desc number = rg_tensor_desc_dense(RG_F64, 0, NULL);
    static const char *const words[] = { "is NULL",
                                         "not an optimizer",
                                         "only parameters can be updated",
                                         "rate of 'w'",
                                         "size of the descriptor is 0",
                                         "another graph",
                                         "is assigned twice" };
    for (int i = 0; i < 7; i++) {
        rg_graph *graph = graph_new(), *other = graph_new();
        rg_value *w = f64_parameter(graph, "w", 1, DIMS(3)),
                 *rate = rg_graph_parameter(graph, "rate", &number);
        rg_value *x = rg_graph_source(graph, "x"), *foreign = f64_parameter(other, "w", 1, DIMS(3));
        rg_sgd_desc sgd = rg_sgd_desc_default();
        const rg_neuron_desc neuron_desc = rg_neuron_desc_default();
        sgd.size = i == 4 ? 0 : sgd.size;
        const void *desc = i == 1 ? (const void *)&neuron_desc : &sgd;
        if (i == 6)
            EXPECT(rg_graph_update(graph, "sgd", desc, w, x, rate, NULL, NULL) != NULL);
        EXPECT(rg_graph_update(graph, i == 1 ? "neuron" : "sgd", desc,
                               i == 2   ? x
                               : i == 5 ? foreign
                                        : w,
                               i == 0 ? NULL : x, i == 3 ? NULL : rate, NULL, NULL) == NULL);
        expect_mistake(graph, RG_INVALID_ARGUMENT, words[i]);
        rg_graph_destroy(other);
    }
}

int main(void)
{
    rig r = rig_open(1);
    test_null_graphs();
    test_null_parts();
    test_values();
    test_nodes();
    test_gradient_nodes();
    test_wishes();
    test_assignments(&r);
    test_no_gradient();
    test_gradients();
    test_updates();
    rig_close(&r);
    return rg_test_report();
}
