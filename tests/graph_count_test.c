/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Builders that are given fewer values than the descriptor needs: a mistake, never a look past the
 * end of the array. */
#include "api.h"

typedef struct network {
    rg_graph *graph;
    rg_value *x, *w, *b, *dy;
} network;

static network network_new(void)
{
    network n = { .graph = NULL };
    EXPECT_OK(rg_graph_create(&n.graph));
    n.x = rg_graph_source(n.graph, "x");
    n.w = rg_graph_source(n.graph, "w");
    n.b = rg_graph_source(n.graph, "b");
    n.dy = rg_graph_source(n.graph, "dy");
    return n;
}

/* The mistake is remembered: a plan tells it. */
static void expect_mistake(network *n, const rg_node *node, const char *words)
{
    rg_device *device = NULL;
    rg_plan *plan = NULL;
    EXPECT(node == NULL);
    EXPECT_FAILS(rg_graph_status(n->graph), RG_INVALID_ARGUMENT, words);
    EXPECT_OK(rg_device_create("cpu", NULL, &device));
    EXPECT_FAILS(rg_plan_create(device, n->graph, NULL, &plan), RG_INVALID_ARGUMENT, words);
    rg_device_destroy(device);
    rg_graph_destroy(n->graph);
    *n = network_new();
}

/* ---- lengths that are given ---- */

static void test_counted(void)
{
    const rg_conv_desc conv = rg_conv_desc_default(); /* with a bias */
    network n = network_new();
    rg_value *x[] = { n.x, n.w, n.b };
    const char *words = "conv_0 takes 3 values (x, w, b), and 2 were given";
    expect_mistake(&n, rg_graph_conv_counted(n.graph, &conv, x, 2), words);
    expect_mistake(&n, rg_graph_conv_counted(n.graph, &conv, NULL, 0), "x is NULL");
    rg_value *again[] = { n.x, n.w, n.b, n.dy };
    EXPECT(rg_graph_conv_counted(n.graph, &conv, again, 3) != NULL);
    EXPECT(rg_graph_conv_counted(n.graph, &conv, again, 4) != NULL);
    EXPECT(rg_graph_conv_counted(n.graph, &conv, again, SIZE_MAX) != NULL);
    EXPECT_OK(rg_graph_status(n.graph));
    expect_mistake(&n, rg_graph_node(n.graph, "conv", &conv, again, 2), words + 6);
    rg_value *twice[] = { n.x, n.w, n.b, n.dy };
    expect_mistake(&n, rg_graph_node(n.graph, "conv", &conv, twice, 4), "and 4 were given");
    rg_graph_destroy(n.graph);
}

static void test_gradients_counted(void)
{
    const rg_conv_desc conv = rg_conv_desc_default();
    network n = network_new();
    EXPECT(rg_graph_conv_gradient_counted(n.graph, &conv, &n.dy, 1, (rg_value *[]){ n.x, n.w, n.b },
                                          3, NULL, 0, NULL) != NULL);
    EXPECT_OK(rg_graph_status(n.graph));
    expect_mistake(&n,
                   rg_graph_conv_gradient_counted(
                       n.graph, &conv, &n.dy, 0, (rg_value *[]){ n.x, n.w, n.b }, 3, NULL, 0, NULL),
                   "takes 1 value of dy (dy), and 0 were given");
    expect_mistake(&n,
                   rg_graph_conv_gradient_counted(n.graph, &conv, &n.dy, 1, &n.x, 1, NULL, 0, NULL),
                   "takes 3 values of x (x, w, b), and 1 was given");
    expect_mistake(&n,
                   rg_graph_gradient_node_counted(n.graph, "conv", &conv, &n.dy, 1,
                                                  (rg_value *[]){ n.x, n.w, n.b }, 3, &n.x, 0, NULL,
                                                  1),
                   "takes 1 value of y (y), and 0 were given");
    rg_graph_destroy(n.graph);
}

/* ---- lengths that the compiler knows, of calls that were always written so ---- */

#ifdef RG_VALUES_LENGTH
static rg_value *counted(rg_value *value, int *calls)
{
    ++*calls;
    return value;
}

static void test_known(void)
{
    const rg_conv_desc conv = rg_conv_desc_default();
    const char *words = "takes 3 values (x, w, b), and 2 were given";
    int calls = 0;
    network n = network_new();
    expect_mistake(&n, rg_graph_conv(n.graph, &conv, (rg_value *[]){ n.x, n.w }), words);
    expect_mistake(&n, rg_graph_conv(n.graph, &conv, (rg_value *const[]){ n.x, n.w }), words);
    expect_mistake(&n, rg_graph_conv(n.graph, &conv, (rg_value *[]){ counted(n.x, &calls), n.w }),
                   words);
    EXPECT(calls == 1); /* the array is evaluated once */
    expect_mistake(&n, rg_graph_conv(n.graph, &conv, (rg_value *[]){ n.x }), "and 1 was given");
    expect_mistake(&n, rg_graph_conv(n.graph, &conv, &n.x), "given");
    rg_value *two[] = { n.x, n.w };
    expect_mistake(&n, rg_graph_conv(n.graph, &conv, two), words);
    rg_value *three[] = { n.x, n.w, n.b };
    expect_mistake(&n, rg_graph_conv(n.graph, &conv, &three[1]), words);
    rg_graph_destroy(n.graph);
}
#endif

/* What is long enough, or of unknown length, is taken as ever. */
static rg_node *build(const network *n, rg_value *const x[])
{
    const rg_conv_desc conv = rg_conv_desc_default();
    return rg_graph_conv(n->graph, &conv, x);
}

static void test_enough(void)
{
    const rg_neuron_desc neuron = rg_neuron_desc_default();
    const rg_conv_desc conv = rg_conv_desc_default();
    rg_node *(*by_pointer)(rg_graph *, const rg_neuron_desc *, rg_value *const[]) = rg_graph_neuron;
    network n = network_new();
    rg_value *many[] = { n.x, n.w, n.b, n.dy };
    EXPECT(build(&n, many) != NULL && build(&n, (rg_value *[]){ n.x, n.w, n.b }) != NULL);
    EXPECT(rg_graph_conv(n.graph, &conv, many) != NULL);
    EXPECT(rg_graph_neuron(n.graph, &neuron, &n.x) != NULL);
    EXPECT(by_pointer(n.graph, &neuron, &n.x) != NULL);
    EXPECT(rg_graph_neuron(n.graph, &neuron, many + 3) != NULL);
    EXPECT_OK(rg_graph_status(n.graph));
    EXPECT(rg_graph_neuron(n.graph, &neuron, NULL) == NULL);
    EXPECT_FAILS(rg_graph_status(n.graph), RG_INVALID_ARGUMENT, "x is NULL");
    rg_graph_destroy(n.graph);
}

int main(void)
{
    test_counted();
    test_gradients_counted();
#ifdef RG_VALUES_LENGTH
    test_known();
#endif
    test_enough();
    EXPECT(rg_node_describe(NULL, NULL, 8) == strlen("no node"));
    return rg_test_report();
}
