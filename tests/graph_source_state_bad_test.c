/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* States that plans are given: what is refused, and graphs that have them as text. */
#include "any_device.h"
#include "graph_f64.h"

#include <retrograde/files.h>

#include <stdlib.h>

static rg_pool_desc pool_desc(int32_t window)
{
    rg_pool_desc desc = rg_pool_desc_default();
    desc.window[0] = desc.window[1] = window;
    return desc;
}

/* Two states, three gradient nodes: two read the first one. */
static rg_graph *make_graph(void)
{
    rg_graph *graph = graph_new();
    const rg_pool_desc pool = pool_desc(2);
    const rg_dropout_desc dropout = rg_dropout_desc_default();
    rg_state_value *const states[] = { rg_graph_source_state(graph, "winners", "pool", &pool),
                                       rg_graph_source_state(graph, "mask", "dropout", &dropout) };
    rg_value *dy = rg_graph_source(graph, "dy");
    for (int i = 0; i < 3; i++) {
        static const char *const names[] = { "a", "b", "c" };
        const rg_gradient_values values = { .dy = &dy, .dy_count = 1 };
        rg_node *node = rg_graph_gradient_from_state(graph, states[i / 2], &values, 1);
        EXPECT_OK(rg_graph_result(graph, rg_node_output(node, 0), names[i]));
        dy = rg_node_output(node, 0);
    }
    return graph;
}

/* ---- builders ---- */

/* Expects the first mistake of a graph to be told with these words; drops the graph. */
static void expect_mistake(rg_graph *graph, rg_status status, const char *words)
{
    EXPECT_FAILS(rg_graph_status(graph), status, words);
    rg_graph_destroy(graph);
}

static void test_bad_states(rig *r)
{
    (void)r;
    const rg_pool_desc pool = pool_desc(2);
    rg_pool_desc wrong = pool_desc(0);
    rg_batch_norm_desc phase = rg_batch_norm_desc_default();
    phase.phase = RG_BATCH_NORM_STATISTICS;
    const rg_sgd_desc sgd = rg_sgd_desc_default();
    const struct {
        const char *name, *op;
        const void *desc;
        rg_status status;
        const char *words;
    } cases[] = {
        { NULL, "pool", &pool, RG_INVALID_ARGUMENT, "needs a name" },
        { "", "pool", &pool, RG_INVALID_ARGUMENT, "needs a name" },
        { "s", NULL, &pool, RG_INVALID_ARGUMENT, "name of an op" },
        { "s", "nothing", &pool, RG_INVALID_ARGUMENT, "nothing" },
        { "s", "MPSCNNPoolingMax", &pool, RG_INVALID_ARGUMENT, "another name of the op pool" },
        { "s", "pool", NULL, RG_INVALID_ARGUMENT, "descriptor is NULL" },
        { "s", "pool", &wrong, RG_INVALID_ARGUMENT, "window" },
        { "s", "sgd", &sgd, RG_UNSUPPORTED, "sgd has no gradient" },
        { "s", "batch_norm", &phase, RG_UNSUPPORTED, "add to it" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rg_graph *graph = graph_new();
        EXPECT(rg_graph_source_state(graph, cases[i].name, cases[i].op, cases[i].desc) == NULL);
        expect_mistake(graph, cases[i].status, cases[i].words);
    }
    rg_graph *graph = graph_new();
    EXPECT(rg_graph_source_state(graph, "s", "pool", &pool) != NULL);
    EXPECT(rg_graph_source_state(graph, "s", "pool", &pool) == NULL);
    expect_mistake(graph, RG_INVALID_ARGUMENT, "two states with the name 's'");
    EXPECT(rg_graph_source_state(NULL, "s", "pool", &pool) == NULL);
}

static void test_bad_nodes(rig *r)
{
    (void)r;
    const rg_dense_desc dense = rg_dense_desc_default();
    for (int i = 0; i < 7; i++) {
        static const char *const words[] = { "values is NULL",
                                             "another graph",
                                             "length is not 0",
                                             "1 value of dy",
                                             "x is NULL",
                                             "3 values of x",
                                             "at least one of its 3 inputs" };
        rg_graph *graph = graph_new(), *other = graph_new();
        rg_state_value *state = rg_graph_source_state(i == 1 ? other : graph, "s", "dense", &dense);
        rg_value *dy = rg_graph_source(graph, "dy"), *x = rg_graph_source(graph, "x");
        rg_value *const all[] = { i == 4 ? NULL : x, x, x };
        rg_gradient_values values = { &dy, 1, all, 3, NULL, 0 };
        if (i == 2)
            values.y_count = 1;
        if (i == 3)
            values.dy_count = 0;
        if (i == 5)
            values.x_count = 2;
        EXPECT(rg_graph_gradient_from_state(graph, state, i == 0 ? NULL : &values,
                                            i == 6 ? 8 : 1) == NULL);
        expect_mistake(graph, RG_INVALID_ARGUMENT, words[i]);
        rg_graph_destroy(other);
    }
    rg_graph *graph = graph_new();
    EXPECT(rg_graph_gradient_from_state(graph, NULL, NULL, 1) == NULL);
    EXPECT_OK(rg_graph_status(graph));
    EXPECT(rg_node_state(NULL) == NULL && rg_node_source_state(NULL) == NULL);
    EXPECT(rg_state_value_node(NULL) == NULL && rg_state_value_handle(NULL) == NULL);
    EXPECT(strcmp(rg_state_value_name(NULL), "") == 0);
    EXPECT_FAILS(rg_state_value_set_handle(NULL, NULL), RG_INVALID_ARGUMENT, "state is NULL");
    EXPECT(rg_graph_source_states(NULL) == 0 && rg_graph_source_state_at(graph, 0) == NULL);
    EXPECT(rg_graph_find_source_state(graph, "s") == NULL);
    rg_graph_destroy(graph);
}

/* ---- runs ---- */

/* A state of max pooling, filled for x of (1, size, size, 1). */
static rg_state *winners_of(rig *r, int32_t window, int64_t size, bool filled_too)
{
    const rg_pool_desc desc = pool_desc(window);
    rg_kernel *kernel = NULL;
    rg_state *state = NULL;
    rg_tensor *x = filled(r->device, RG_F64, 4, DIMS(1, size, size, 1), 1), *y = NULL;
    EXPECT_OK(rg_pool_create(r->device, &desc, &kernel));
    if (filled_too) {
        EXPECT_OK(rg_kernel_forward_alloc(kernel, r->commands, 1, &x, false, &y, &state));
        EXPECT_OK(rig_run(r));
    } else {
        EXPECT_OK(rg_state_create(kernel, &x, &state));
    }
    rg_tensor_destroy(x);
    rg_tensor_destroy(y);
    rg_kernel_destroy(kernel);
    return state;
}

static rg_plan *pool_plan(rig *r)
{
    const rg_pool_desc desc = pool_desc(2);
    rg_graph *graph = graph_new();
    rg_value *dy = rg_graph_source(graph, "dy");
    const rg_gradient_values values = { .dy = &dy, .dy_count = 1 };
    rg_node *node = rg_graph_gradient_from_state(
        graph, rg_graph_source_state(graph, "winners", "pool", &desc), &values, 1);
    EXPECT_OK(rg_graph_result(graph, rg_node_output(node, 0), "dx"));
    rg_plan *plan = f64_plan(r->device, graph);
    rg_graph_destroy(graph);
    return plan;
}

static void test_bad_runs(rig *r)
{
    rg_plan *plan = pool_plan(r);
    rg_tensor *dy = filled(r->device, RG_F64, 4, DIMS(1, 2, 2, 1), 2);
    rg_tensor_desc shape = { 0 };
    rg_state *good = winners_of(r, 2, 4, true), *wide = winners_of(r, 3, 4, true);
    rg_state *empty = winners_of(r, 2, 4, false), *large = winners_of(r, 2, 6, true), *none = NULL;
    rg_commands *const c = r->commands;
    EXPECT_OK(rg_tensor_get_desc(dy, &shape));
    EXPECT_FAILS(rg_plan_encode(plan, c, &dy), RG_INVALID_ARGUMENT,
                 "given 1 state, the first 'winners': call rg_plan_encode_with_states");
    EXPECT_FAILS(rg_plan_encode_batch(plan, c, 1, &dy), RG_INVALID_ARGUMENT,
                 "rg_plan_encode_batch_with_states");
    EXPECT_FAILS(rg_plan_prepare(plan, &shape), RG_INVALID_ARGUMENT, "rg_plan_prepare_with_states");
    EXPECT_FAILS(rg_plan_run_async(plan, &dy, NULL, NULL), RG_INVALID_ARGUMENT, "given 1 state");
    EXPECT_FAILS(rg_plan_encode_with_states(NULL, c, &dy, 1, &good, 1), RG_INVALID_ARGUMENT,
                 "plan is NULL");
    EXPECT_FAILS(rg_plan_encode_with_states(plan, NULL, &dy, 1, &good, 1), RG_INVALID_ARGUMENT,
                 "commands");
    EXPECT_FAILS(rg_plan_encode_with_states(plan, c, &dy, 2, &good, 1), RG_INVALID_ARGUMENT,
                 "needs 1 sources, but 2 were given");
    EXPECT_FAILS(rg_plan_encode_with_states(plan, c, &dy, 1, &good, 0), RG_INVALID_ARGUMENT,
                 "needs 1 states, but 0 were given");
    EXPECT_FAILS(rg_plan_encode_with_states(plan, c, NULL, 1, &good, 1), RG_INVALID_ARGUMENT,
                 "sources is NULL");
    EXPECT_FAILS(rg_plan_encode_with_states(plan, c, &dy, 1, NULL, 1), RG_INVALID_ARGUMENT,
                 "states is NULL");
    EXPECT_FAILS(rg_plan_encode_with_states(plan, c, &dy, 1, &none, 1), RG_INVALID_ARGUMENT,
                 "the state 'winners' is NULL");
    EXPECT_FAILS(rg_plan_encode_with_states(plan, c, &dy, 1, &wide, 1), RG_INVALID_ARGUMENT,
                 "has another descriptor (");
    EXPECT_FAILS(rg_plan_encode_with_states(plan, c, &dy, 1, &empty, 1), RG_INVALID_STATE,
                 "the state 'winners': rg_plan_encode_with_states: it is empty");
    EXPECT_FAILS(rg_plan_encode_with_states(plan, c, &dy, 1, &large, 1), RG_INVALID_ARGUMENT,
                 "from dy: pool: dy is f64[1, 2, 2, 1], but must be f64[1, 3, 3, 1]");
    EXPECT_OK(rg_plan_prepare_with_states(plan, &shape, 1, &empty, 1));
    EXPECT_OK(rg_plan_encode_with_states(plan, c, &dy, 1, &good, 1));
    EXPECT_OK(rig_run(r));
    rg_state_destroy(good);
    rg_state_destroy(wide);
    rg_state_destroy(empty);
    rg_state_destroy(large);
    rg_tensor_destroy(dy);
    rg_plan_destroy(plan);
}

/* States of another op, of commands that were dropped, of the plan itself, of other shapes among
 * the images of a batch. */
static void test_bad_owners(rig *r)
{
    rg_plan *plan = pool_plan(r), *own = NULL;
    const rg_dropout_desc desc = rg_dropout_desc_default();
    rg_kernel *kernel = NULL;
    rg_tensor *dy = filled(r->device, RG_F64, 4, DIMS(1, 2, 2, 1), 2), *y = NULL;
    rg_tensor *const two[] = { dy, dy };
    rg_state *mask = NULL, *const states[] = { winners_of(r, 2, 4, true),
                                               winners_of(r, 2, 6, true) };
    EXPECT_OK(rg_dropout_create(r->device, &desc, &kernel));
    EXPECT_OK(rg_kernel_forward_alloc(kernel, r->commands, 1, &dy, false, &y, &mask));
    EXPECT_FAILS(rg_plan_encode_with_states(plan, r->commands, &dy, 1, &mask, 1),
                 RG_INVALID_ARGUMENT, "must be of pool, but is of dropout");
    EXPECT_FAILS(rg_plan_encode_batch_with_states(plan, r->commands, 2, two, 2, states, 2),
                 RG_INVALID_ARGUMENT, "of images 0 and 1 differ");
    rg_state *const holes[] = { states[0], NULL };
    EXPECT_FAILS(rg_plan_encode_batch_with_states(plan, r->commands, 2, two, 2, holes, 2),
                 RG_INVALID_ARGUMENT, "image 1: ");
    rg_tensor *const hole[] = { dy, NULL };
    rg_state *const same[] = { states[0], states[0] };
    EXPECT_FAILS(rg_plan_encode_batch_with_states(plan, r->commands, 2, hole, 2, same, 2),
                 RG_INVALID_ARGUMENT,
                 "rg_plan_encode_batch_with_states: the source 'dy' of image 1 is NULL");
    EXPECT_FAILS(rg_plan_encode_batch_with_states(plan, r->commands, INT64_MAX, two, 2, states, 2),
                 RG_INVALID_ARGUMENT, "count must be");
    EXPECT_FAILS(rg_plan_encode_batch_with_states(plan, r->commands, 0, two, 0, states, 0),
                 RG_INVALID_ARGUMENT, "count must be");
    rg_graph *graph = graph_new();
    rg_value *x = rg_graph_source(graph, "x"), *up = rg_graph_source(graph, "up");
    rg_node *node = rg_graph_dropout(graph, &desc, &x);
    const rg_gradient_values values = { .dy = &up, .dy_count = 1 };
    rg_node *back = rg_graph_gradient_from_state(
        graph, rg_graph_source_state(graph, "old", "dropout", &desc), &values, 1);
    EXPECT_OK(rg_graph_result(graph, rg_node_output(node, 0), "y"));
    EXPECT_OK(rg_graph_result(graph, rg_node_output(back, 0), "dx"));
    EXPECT_OK(rg_graph_state_result(graph, node, "mask"));
    own = f64_plan(r->device, graph);
    EXPECT_OK(rg_plan_encode_with_states(own, r->commands, two, 2, &mask, 1));
    rig_renew(r); /* drops what has filled the mask */
    EXPECT_FAILS(rg_plan_encode_with_states(own, r->commands, two, 2, &mask, 1), RG_INVALID_STATE,
                 "it is empty");
    rg_tensor_destroy(y);
    rg_state_destroy(mask);
    EXPECT_OK(rg_kernel_forward_alloc(kernel, r->commands, 1, &dy, false, &y, &mask));
    EXPECT_OK(rg_plan_encode_with_states(own, r->commands, two, 2, &mask, 1));
    EXPECT_OK(rig_run(r));
    rg_state *kept = NULL;
    EXPECT_OK(rg_plan_state(own, "mask", &kept));
    EXPECT_FAILS(rg_plan_encode_with_states(own, r->commands, two, 2, &kept, 1),
                 RG_INVALID_ARGUMENT, "state 'old' is a result of the same plan");
    for (int i = 0; i < 2; i++)
        rg_state_destroy(states[i]);
    rg_state_destroy(mask);
    rg_tensor_destroy(y);
    rg_tensor_destroy(dy);
    rg_kernel_destroy(kernel);
    rg_graph_destroy(graph);
    rg_plan_destroy(plan);
    rg_plan_destroy(own);
}

/* ---- text ---- */

static char *text_of(const rg_graph *graph)
{
    const size_t length = rg_graph_to_json(graph, NULL, 0);
    char *text = malloc(length + 1);
    EXPECT(text != NULL && rg_graph_to_json(graph, text, length + 1) == length);
    return text;
}

static void test_json(rig *r)
{
    (void)r;
    rg_graph *graph = make_graph(), *back = NULL, *copy = NULL;
    char *text = text_of(graph), *again, description[2048];
    EXPECT(strstr(text, "\"source_states\"") != NULL);
    EXPECT(strstr(text, "\"gradient_of\": null, \"state\": \"winners\"") != NULL);
    EXPECT_OK(rg_graph_from_json(text, strlen(text), &back));
    EXPECT(rg_graph_source_states(back) == 2 && rg_graph_equal(graph, back));
    EXPECT(rg_graph_find_source_state(back, "mask") == rg_graph_source_state_at(back, 1));
    again = text_of(back);
    EXPECT(strcmp(text, again) == 0);
    EXPECT_OK(rg_graph_copy(back, &copy));
    EXPECT(rg_graph_equal(copy, graph));
    EXPECT(rg_graph_describe(graph, description, sizeof description) < sizeof description);
    EXPECT(strstr(description, "source state winners of pool\n") != NULL);
    EXPECT(strstr(description, "from state mask\n") != NULL);
    for (size_t cut = 0; cut < strlen(text); cut += 7) {
        rg_graph *none = NULL;
        EXPECT(rg_graph_from_json(text, cut, &none) == RG_MALFORMED);
    }
    const rg_pool_desc other = pool_desc(3);
    EXPECT(rg_graph_source_state(copy, "more", "pool", &other) != NULL);
    EXPECT(!rg_graph_equal(copy, graph) && !rg_graph_equal(graph, copy));
    free(text);
    free(again);
    rg_graph_destroy(graph);
    rg_graph_destroy(back);
    rg_graph_destroy(copy);
}

static void test_bad_json(rig *r)
{
    (void)r;
    static const struct {
        const char *states, *node, *words;
    } cases[] = {
        { "3", "", "must be an object" },
        { "{\"name\": \"s\"}", "", "\\\"op\\\"" },
        { "{\"name\": \"s\", \"op\": \"sgd\"}", "", "no gradient" },
        { "{\"name\": \"s\", \"op\": \"pool\", \"x\": 1}", "", "a source state has no" },
        { "{\"name\": \"s\", \"op\": \"pool\", \"desc\": {\"window\": [0, 1]}}", "", "window" },
        { "{\"name\": \"s\", \"op\": \"pool\"}", "\"state\": \"t\"", "\"state\" must be" },
        { "{\"name\": \"s\", \"op\": \"pool\"}", "\"state\": 1", "\"state\" must be" },
        { "{\"name\": \"s\", \"op\": \"dropout\"}", "\"state\": \"s\"", "\"state\" must be" },
        { "{\"name\": \"s\", \"op\": \"pool\"}", "\"state\": \"s\", \"desc\": {\"window\": [3, 3]}",
          "differs from that of the state" },
        { "{\"name\": \"s\", \"op\": \"pool\"}", "\"state\": \"s\", \"x\": []", "\"x\" has 0" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[512];
        rg_graph *graph = NULL;
        snprintf(text, sizeof text,
                 "{\"retrograde\": 1, \"sources\": [\"dy\"], \"source_states\": [%s], \"nodes\": "
                 "[{\"op\": \"pool\", \"gradient_of\": null, \"dy\": [\"dy\"], \"y\": [null], "
                 "\"wanted\": [0]%s%s}]}",
                 cases[i].states, cases[i].node[0] != 0 ? ", " : "", cases[i].node);
        EXPECT(rg_graph_from_json(text, strlen(text), &graph) == RG_MALFORMED);
        const char *words = cases[i].words[0] == '\\' ? "\"op\"" : cases[i].words;
        EXPECT(strstr(rg_error_text(), words) != NULL);
    }
}

int main(void)
{
    RUN_ON_DEVICES(test_bad_states, test_bad_nodes, test_bad_runs, test_bad_owners, test_json,
                   test_bad_json);
    return rg_test_report();
}
