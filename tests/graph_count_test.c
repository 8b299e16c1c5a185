/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Builders that are given fewer values than the descriptor needs: a mistake, never a look past the
 * end of the array. */
#include "api.h"

#include <pthread.h>
#include <stdio.h>

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

/* The graph keeps the mistake, and creating a plan reports it. */
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
    const char *words = "conv_0 needs 3 values (x, w, b), but 2 were given";
    expect_mistake(&n, rg_graph_conv_counted(n.graph, &conv, x, 2), words);
    expect_mistake(&n, rg_graph_conv_counted(n.graph, &conv, NULL, 0), "x is NULL");
    rg_value *again[] = { n.x, n.w, n.b, n.dy };
    EXPECT(rg_graph_conv_counted(n.graph, &conv, again, 3) != NULL);
    EXPECT(rg_graph_conv_counted(n.graph, &conv, again, 4) != NULL);
    EXPECT(rg_graph_conv_counted(n.graph, &conv, again, SIZE_MAX) != NULL);
    EXPECT_OK(rg_graph_status(n.graph));
    expect_mistake(&n, rg_graph_node(n.graph, "conv", &conv, again, 2), words + 6);
    rg_value *twice[] = { n.x, n.w, n.b, n.dy };
    expect_mistake(&n, rg_graph_node(n.graph, "conv", &conv, twice, 4),
                   "conv_0 needs 3 values (x, w, b), but 4 were given");
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
                   "conv_gradient_1 needs 1 value of dy (dy), but 0 were given");
    expect_mistake(&n,
                   rg_graph_conv_gradient_counted(n.graph, &conv, &n.dy, 1, &n.x, 1, NULL, 0, NULL),
                   "conv_gradient_0 needs 3 values of x (x, w, b), but 1 was given");
    expect_mistake(&n,
                   rg_graph_gradient_node_counted(n.graph, "conv", &conv, &n.dy, 1,
                                                  (rg_value *[]){ n.x, n.w, n.b }, 3, &n.x, 0, NULL,
                                                  1),
                   "conv_gradient_0 needs 1 value of y (y), but 0 were given");
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
    const char *words = "needs 3 values (x, w, b), but 2 were given";
    int calls = 0;
    network n = network_new();
    expect_mistake(&n, rg_graph_conv(n.graph, &conv, (rg_value *[]){ n.x, n.w }), words);
    expect_mistake(&n, rg_graph_conv(n.graph, &conv, (rg_value *const[]){ n.x, n.w }), words);
    expect_mistake(&n, rg_graph_conv(n.graph, &conv, (rg_value *[]){ counted(n.x, &calls), n.w }),
                   words);
    EXPECT(calls == 1); /* the array is evaluated once */
    expect_mistake(&n, rg_graph_conv(n.graph, &conv, (rg_value *[]){ n.x }), "but 1 was given");
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

/* ---- many sources: what is kept for each of them was an array on the stack ---- */

enum { SOURCES = 4000, STACK = 512 << 10 };

static void *run_many(void *context)
{
    rig *r = context;
    const rg_arithmetic_desc add = rg_arithmetic_desc_default();
    static rg_tensor_desc descs[SOURCES];
    static rg_tensor *sources[SOURCES];
    static char name[16];
    rg_graph *graph = NULL;
    rg_plan *plan = NULL;
    rg_tensor *one = filled(r->device, RG_F32, 1, DIMS(1), 1), *result = NULL;
    float value = 1, sum = 0;
    EXPECT_OK(rg_tensor_write(one, &value, sizeof value, RG_LAYOUT_SAME));
    EXPECT_OK(rg_graph_create(&graph));
    rg_value *y = NULL;
    for (int i = 0; i < SOURCES; i++) {
        snprintf(name, sizeof name, "s%d", i);
        rg_value *x = rg_graph_source(graph, name);
        y = y == NULL ? x
                      : rg_node_output(rg_graph_arithmetic(graph, &add, (rg_value *[]){ y, x }), 0);
        descs[i] = rg_tensor_desc_dense(RG_F32, 1, DIMS(1));
        sources[i] = one;
    }
    EXPECT_OK(rg_graph_result(graph, y, "y"));
    EXPECT_OK(rg_plan_create(r->device, graph, NULL, &plan));
    EXPECT_OK(rg_plan_prepare(plan, descs));
    EXPECT_OK(rg_plan_encode(plan, r->commands, sources));
    EXPECT_OK(rig_run(r));
    EXPECT_OK(rg_plan_encode_batch(plan, r->commands, 1, sources));
    EXPECT_OK(rig_run(r));
    EXPECT_OK(rg_plan_result(plan, "y", &result));
    EXPECT_OK(rg_tensor_read(result, &sum, sizeof sum, RG_LAYOUT_SAME));
    EXPECT(sum == SOURCES);
    rg_plan_destroy(plan);
    rg_graph_destroy(graph);
    rg_tensor_destroy(one);
    return NULL;
}

static void test_many_sources(void)
{
    rig r = rig_open(1);
    pthread_attr_t attributes;
    pthread_t thread;
    EXPECT(pthread_attr_init(&attributes) == 0);
    EXPECT(pthread_attr_setstacksize(&attributes, STACK) == 0);
    EXPECT(pthread_create(&thread, &attributes, run_many, &r) == 0);
    EXPECT(pthread_join(thread, NULL) == 0);
    pthread_attr_destroy(&attributes);
    rig_close(&r);
}

int main(void)
{
    test_counted();
    test_gradients_counted();
#ifdef RG_VALUES_LENGTH
    test_known();
#endif
    test_enough();
    test_many_sources();
    EXPECT(rg_node_describe(NULL, NULL, 8) == strlen("no node"));
    return rg_test_report();
}
