/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Graphs of very many nodes: plans in time that grows with their size, right results, storage near
 * the lower bound. Searches over all steps for each step once made the time grow with its square:
 * these graphs took minutes. */
#include "graph/plan.h"
#include "plan_network.h"

#include <time.h>

enum { LAYERS = 6000, ROWS = 3, COLUMNS = 5 };

/* The mean of two values. */
static rg_value *mean_of(network *n, rg_value *a, rg_value *b)
{
    rg_arithmetic_desc desc = rg_arithmetic_desc_default();
    desc.primary_scale = desc.secondary_scale = 0.5;
    return NODE(n, arithmetic, desc, a, b);
}

/* A chain of neurons with a parameter at its start. Every third layer is the mean of two earlier
 * ones, so gradients are added up, too; none of them vanishes. */
static network make_chain(int32_t layers)
{
    network n = network_open(RG_F32);
    rg_value *x = source_of(&n, RG_F32, 2, DIMS(ROWS, COLUMNS), 0);
    rg_value *before = add_of(&n, x, parameter_of(&n, 2, DIMS(ROWS, COLUMNS)));
    rg_value *y = before;
    for (int32_t i = 0; i < layers; i++) {
        rg_value *next = i % 3 == 2 ? mean_of(&n, y, before)
                                    : neuron_of(&n, i % 2 ? RG_NEURON_RELU : RG_NEURON_ABSOLUTE, y);
        before = y;
        y = next;
    }
    rg_reduce_desc mean = rg_reduce_desc_default();
    mean.kind = RG_REDUCE_MEAN;
    rg_value *losses[] = { NODE(&n, reduce, mean, y) };
    differentiate(&n, losses, 1);
    return n;
}

static double seconds_of_plan(int32_t layers)
{
    network n = make_chain(layers);
    const clock_t start = clock();
    runner u = runner_open(&n, NULL, 1);
    EXPECT_OK(rg_plan_prepare(u.plan, n.sources));
    const double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    runner_close(&u);
    rg_graph_destroy(n.graph);
    return seconds;
}

static void test_time(void)
{
    const double one = seconds_of_plan(LAYERS), four = seconds_of_plan(4 * LAYERS);
    printf("plans of %d and %d layers: %.2f and %.2f s\n", LAYERS, 4 * LAYERS, one, four);
    EXPECT(four < 20 && four < 9 * one + 1); /* 4 times, or 16 where a pass is quadratic */
}

/* Storage that is shared holds what it should: what is no longer read is overwritten here. */
static void test_results(void)
{
    network n = make_chain(LAYERS);
    rg_plan_options options = rg_plan_options_default();
    options.poison = true;
    runner shared = runner_open(&n, &options, 1);
    options.poison = false;
    options.reuse_storage = options.in_place = false;
    runner apart = runner_open(&n, &options, 1);
    runner_run(&shared);
    runner_run(&apart);
    EXPECT(difference(&shared, &apart, "l") == 0 && difference(&shared, &apart, "d") == 0);
    rg_claims c;
    size_t bound = 0;
    int32_t at;
    const rg_sequence *s = &shared.plan->current->sequence;
    EXPECT_OK(rg_claims_make(s, &c));
    EXPECT_OK(rg_claims_bound(c.list, c.count, s->steps_count, &bound, &at));
    printf("storage: %zu bytes, at least %zu; apart %zu\n", rg_plan_bytes(shared.plan), bound,
           rg_plan_bytes(apart.plan));
    EXPECT(rg_plan_bytes(shared.plan) >= bound && rg_plan_bytes(shared.plan) <= bound * 5 / 4);
    rg_claims_free(&c);
    runner_close(&shared);
    runner_close(&apart);
    rg_graph_destroy(n.graph);
}

/* A delay line: each parameter takes the value of the one before, and each of these nodes waits for
 * the next, which reads what it overwrites. */
static void test_waiting(void)
{
    enum { LINE = 30000 };
    rig r = rig_open(1);
    rg_graph *graph;
    rg_plan *plan = NULL;
    const rg_tensor_desc desc = rg_tensor_desc_dense(RG_F32, 1, DIMS(1));
    const rg_neuron_desc copy = rg_neuron_desc_default();
    EXPECT_OK(rg_graph_create(&graph));
    rg_value *before = rg_graph_source(graph, "x");
    for (int32_t i = 0; i < LINE; i++) {
        char name[16];
        snprintf(name, sizeof name, "p%d", i);
        rg_value *parameter = rg_graph_parameter(graph, name, &desc);
        rg_value *moved = rg_node_output(rg_graph_neuron(graph, &copy, &before), 0);
        EXPECT_OK(rg_graph_assign(graph, parameter, moved));
        before = parameter;
    }
    const clock_t start = clock();
    EXPECT_OK(rg_plan_create(r.device, graph, NULL, &plan));
    const double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    printf("a line of %d nodes that wait for each other: %.2f s\n", LINE, seconds);
    EXPECT(seconds < 5);
    rg_step_info info = { 0 };
    for (int32_t i = 0; i < 3; i++) {
        char label[32];
        EXPECT_OK(rg_plan_step_info(plan, i, &info));
        snprintf(label, sizeof label, "neuron_%d", LINE - 1 - i);
        EXPECT(strcmp(info.label, label) == 0); /* the last comes first */
    }
    rg_plan_destroy(plan);
    rg_graph_destroy(graph);
    rig_close(&r);
}

/* A run keeps lists of its sources on the stack, which very many of them overflowed. */
static void test_sources(int32_t count, bool fits)
{
    rig r = rig_open(1);
    rg_graph *graph;
    rg_plan *plan = NULL;
    rg_tensor_desc *descs = calloc((size_t)count, sizeof *descs);
    rg_value *sum = NULL;
    EXPECT_OK(rg_graph_create(&graph));
    for (int32_t i = 0; i < count; i++) {
        char name[16];
        snprintf(name, sizeof name, "x%d", i);
        rg_value *x = rg_graph_source(graph, name);
        const rg_arithmetic_desc add = rg_arithmetic_desc_default();
        sum = i == 0
                  ? x
                  : rg_node_output(rg_graph_arithmetic(graph, &add, (rg_value *[]){ sum, x }), 0);
        descs[i] = rg_tensor_desc_dense(RG_F32, 1, DIMS(3));
    }
    EXPECT_OK(rg_graph_result(graph, sum, "sum"));
    if (fits) {
        EXPECT_OK(rg_plan_create(r.device, graph, NULL, &plan));
        EXPECT_OK(rg_plan_prepare(plan, descs));
    } else {
        EXPECT_FAILS(rg_plan_create(r.device, graph, NULL, &plan), RG_UNSUPPORTED, "4096 sources");
        EXPECT(plan == NULL);
    }
    free(descs);
    rg_plan_destroy(plan);
    rg_graph_destroy(graph);
    rig_close(&r);
}

/* ---- places ---- */

static bool overlap(const rg_claim *a, const rg_claim *b)
{
    return a->first <= b->last && b->first <= a->last && a->offset < b->offset + b->bytes &&
           b->offset < a->offset + a->bytes;
}

/* Claims of all kinds of sizes and times; none may lie where another does. */
static void test_sweep(uint64_t seed, int32_t steps)
{
    enum { COUNT = 3000 };
    static rg_claim claims[COUNT];
    size_t size = 0, bound = 0, top = 0;
    int32_t at, wrong = 0;
    for (int32_t i = 0; i < COUNT; i++) {
        const int32_t first = (int32_t)draw_from(&seed, -1, steps);
        const int32_t last = (int32_t)draw_from(&seed, first, steps);
        claims[i] = (rg_claim){ .bytes = 64 * (size_t)draw_from(&seed, 0, i % 5 == 0 ? 400 : 4),
                                .first = first,
                                .last = last };
    }
    EXPECT_OK(rg_claims_bound(claims, COUNT, steps, &bound, &at));
    EXPECT_OK(rg_claims_sweep(claims, COUNT, &size));
    for (int32_t i = 0; i < COUNT; i++) {
        const size_t end = claims[i].offset + claims[i].bytes;
        top = end > top ? end : top;
        for (int32_t k = 0; k < i; k++)
            wrong += claims[i].bytes > 0 && claims[k].bytes > 0 && overlap(&claims[i], &claims[k]);
    }
    EXPECT(wrong == 0);
    EXPECT(top == size && size >= bound && size <= bound + bound / 2);
}

int main(void)
{
    test_time();
    test_results();
    test_waiting();
    test_sources(RG_PLAN_SOURCES, true);
    test_sources(60000, false);
    for (uint64_t seed = 1; seed <= 8; seed++)
        test_sweep(seed, seed % 2 ? 40 : 4000);
    return rg_test_report();
}
