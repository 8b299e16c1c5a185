/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Plans of bad graphs and with bad sources: a status and a sentence that names the node, never a
 * crash. */
#include "graph_f64.h"

#include <math.h>

static void test_null_plans(rig *r)
{
    rg_plan *plan = NULL;
    rg_tensor *tensor = NULL;
    rg_state *state = NULL;
    rg_step_info step;
    rg_memory_info memory;
    rg_tensor_desc desc;
    rg_graph *graph = graph_new();
    EXPECT_FAILS(rg_plan_create(r->device, NULL, NULL, &plan), RG_INVALID_ARGUMENT, "NULL");
    EXPECT_FAILS(rg_plan_create(NULL, graph, NULL, &plan), RG_INVALID_ARGUMENT, "NULL");
    EXPECT_FAILS(rg_plan_create(r->device, graph, NULL, NULL), RG_INVALID_ARGUMENT, "NULL");
    EXPECT_FAILS(rg_plan_create(r->device, graph, NULL, &plan), RG_INVALID_ARGUMENT, "nothing");
    rg_plan_destroy(NULL);
    EXPECT(rg_plan_sources(NULL) == 0 && rg_plan_source_name(NULL, 0) == NULL);
    EXPECT(rg_plan_source_reads(NULL, 0) == 0 && rg_plan_steps(NULL) == 0);
    EXPECT(rg_plan_memory_count(NULL) == 0 && rg_plan_bytes(NULL) == 0);
    EXPECT(rg_plan_bytes_apart(NULL) == 0 && rg_plan_scratch(NULL) == 0);
    EXPECT_FAILS(rg_plan_step_info(NULL, 0, &step), RG_INVALID_ARGUMENT, "NULL");
    EXPECT_FAILS(rg_plan_memory(NULL, 0, &memory), RG_INVALID_ARGUMENT, "NULL");
    EXPECT_FAILS(rg_plan_shape(NULL, "x", 0, &desc), RG_INVALID_ARGUMENT, "NULL");
    EXPECT_FAILS(rg_plan_parameter(NULL, "x", &tensor), RG_INVALID_ARGUMENT, "NULL");
    EXPECT_FAILS(rg_plan_result(NULL, "x", &tensor), RG_INVALID_ARGUMENT, "NULL");
    EXPECT_FAILS(rg_plan_state(NULL, "x", &state), RG_INVALID_ARGUMENT, "NULL");
    EXPECT_FAILS(rg_plan_prepare(NULL, &desc), RG_INVALID_ARGUMENT, "NULL");
    EXPECT_FAILS(rg_plan_encode(NULL, r->commands, &tensor), RG_INVALID_ARGUMENT, "NULL");
    EXPECT_FAILS(rg_plan_encode_batch(NULL, r->commands, 1, &tensor), RG_INVALID_ARGUMENT, "NULL");
    EXPECT_FAILS(rg_plan_run_async(NULL, &tensor, NULL, NULL), RG_INVALID_ARGUMENT, "NULL");
    EXPECT_FAILS(rg_plan_reload(NULL, NULL), RG_INVALID_ARGUMENT, "NULL");
    EXPECT_FAILS(rg_plan_copy(NULL, r->device, &plan), RG_INVALID_ARGUMENT, "NULL");
    EXPECT_OK(rg_graph_result(graph, f64_neuron(graph, RG_NEURON_TANH, rg_graph_source(graph, "x")),
                              "y"));
    EXPECT_OK(rg_plan_create(r->device, graph, NULL, &plan));
    EXPECT_FAILS(rg_plan_encode(plan, NULL, &tensor), RG_INVALID_ARGUMENT, "NULL");
    EXPECT_FAILS(rg_plan_encode(plan, r->commands, NULL), RG_INVALID_ARGUMENT, "sources");
    EXPECT_FAILS(rg_plan_encode(plan, r->commands, &tensor), RG_INVALID_ARGUMENT, "'x' is NULL");
    EXPECT_FAILS(rg_plan_encode_batch(plan, NULL, 1, &tensor), RG_INVALID_ARGUMENT, "NULL");
    EXPECT_FAILS(rg_plan_encode_batch(plan, r->commands, 1, NULL), RG_INVALID_ARGUMENT, "sources");
    EXPECT_FAILS(rg_plan_encode_batch(plan, r->commands, 1, &tensor), RG_INVALID_ARGUMENT, "'x'");
    EXPECT_FAILS(rg_plan_prepare(plan, NULL), RG_INVALID_ARGUMENT, "sources");
    EXPECT_FAILS(rg_plan_parameter(plan, "x", &tensor), RG_INVALID_ARGUMENT, "'x'");
    EXPECT_FAILS(rg_plan_parameter(plan, NULL, &tensor), RG_INVALID_ARGUMENT, "NULL");
    EXPECT_FAILS(rg_plan_parameter(plan, "x", NULL), RG_INVALID_ARGUMENT, "NULL");
    EXPECT_FAILS(rg_plan_result(plan, "y", NULL), RG_INVALID_ARGUMENT, "NULL");
    EXPECT_FAILS(rg_plan_copy(plan, r->device, NULL), RG_INVALID_ARGUMENT, "NULL");
    EXPECT_FAILS(rg_plan_step_info(plan, 0, NULL), RG_INVALID_ARGUMENT, "NULL");
    rg_plan_options options = rg_plan_options_default();
    rg_plan *other = NULL;
    options.size = 0;
    EXPECT_FAILS(
        rg_plan_create(r->device, graph, &options, &other), RG_INVALID_ARGUMENT,
        "rg_plan_create: the options have size 0; initialize them with rg_plan_options_default()");
    options.size = 4096;
    EXPECT_FAILS(rg_plan_create(r->device, graph, &options, &other), RG_INVALID_ARGUMENT, "4096");
    rg_plan_destroy(plan);
    rg_graph_destroy(graph);
}

/* The sentence names the node, and who makes what it reads. */
static void test_shapes(rig *r)
{
    rg_graph *graph = graph_new();
    rg_value *x = rg_graph_source(graph, "x"), *w = f64_parameter(graph, "w", 1, DIMS(3));
    rg_value *h = f64_neuron(graph, RG_NEURON_TANH, x), *y = f64_sum(graph, h, w);
    EXPECT_OK(rg_node_set_label(rg_value_node(h), "maker"));
    EXPECT_OK(rg_node_set_label(rg_value_node(y), "reader"));
    EXPECT_OK(rg_graph_result(graph, y, "y"));
    rg_plan *plan = NULL;
    EXPECT_OK(rg_plan_create(r->device, graph, NULL, &plan));
    const rg_tensor_desc four = rg_tensor_desc_dense(RG_F64, 1, DIMS(4));
    const rg_tensor_desc three = rg_tensor_desc_dense(RG_F64, 1, DIMS(3));
    const rg_tensor_desc f32 = rg_tensor_desc_dense(RG_F32, 1, DIMS(3));
    const rg_tensor_desc i32 = rg_tensor_desc_dense(RG_I32, 1, DIMS(3));
    const rg_tensor_desc wild = { .dtype = (rg_dtype)77, .rank = 99 };
    const rg_tensor_desc *const bad[] = { &four, &f32 };
    for (int i = 0; i < 2; i++) {
        EXPECT(rg_plan_prepare(plan, bad[i]) == RG_INVALID_ARGUMENT);
        EXPECT(strstr(rg_error_text(), "reader, of ") != NULL);
        EXPECT(strstr(rg_error_text(), "from maker, f64[3] from w") != NULL);
    }
    EXPECT_FAILS(rg_plan_prepare(plan, &i32), RG_INVALID_ARGUMENT, "maker, of i32[3] from x: ");
    EXPECT_FAILS(rg_plan_prepare(plan, &wild), RG_INVALID_ARGUMENT, "x");
    EXPECT_OK(rg_plan_prepare(plan, &three));
    rg_tensor *tensor = filled(r->device, RG_F64, 1, DIMS(4), 1), *result = NULL;
    EXPECT_FAILS(rg_plan_encode(plan, r->commands, &tensor), RG_INVALID_ARGUMENT, "reader");
    EXPECT_OK(rg_plan_result(plan, "y", &result)); /* the layout before is still the one */
    EXPECT(count_of(result) == 3);
    rg_tensor_destroy(tensor);
    rg_plan_destroy(plan);
    rg_graph_destroy(graph);
    graph = graph_new(); /* a gradient of another shape than its value */
    x = rg_graph_source(graph, "x");
    rg_value *dy = rg_graph_source(graph, "dy");
    y = f64_neuron(graph, RG_NEURON_TANH, x);
    EXPECT_OK(rg_graph_gradients(graph, &y, &dy, 1, NULL, NULL));
    EXPECT_OK(rg_graph_result(graph, rg_value_gradient(x), "dx"));
    EXPECT_OK(rg_plan_create(r->device, graph, NULL, &plan));
    EXPECT_FAILS(rg_plan_prepare(plan, (rg_tensor_desc[]){ three, four }), RG_INVALID_ARGUMENT,
                 "neuron_gradient_1, of f64[4] from dy");
    rg_plan_destroy(plan);
    rg_graph_destroy(graph);
}

/* Sentences within sentences stand apart: the node, what it reads from whom, the op, its words. */
static void test_sentences(rig *r)
{
    const rg_pool_desc pool = rg_pool_desc_default();
    const rg_concat_desc concat = rg_concat_desc_default();
    rg_graph *graph = graph_new();
    rg_value *const x[] = { rg_graph_source(graph, "x"), rg_graph_source(graph, "other") };
    rg_value *y = rg_node_output(rg_graph_concat(graph, &concat, x), 0);
    EXPECT_OK(rg_graph_result(graph, rg_node_output(rg_graph_pool(graph, &pool, &y), 0), "y"));
    rg_plan *plan = f64_plan(r->device, graph);
    rg_tensor *row = filled(r->device, RG_F64, 1, DIMS(3), 1);
    rg_tensor *grid = filled(r->device, RG_F64, 2, DIMS(3, 1), 1);
    rg_tensor *const rows[] = { row, row }, *const mixed[] = { row, grid };
    EXPECT(rg_plan_encode(plan, r->commands, rows) == RG_INVALID_ARGUMENT);
    EXPECT(strncmp(rg_error_text(), "pool_1, of f64[6] from concat_0: pool: x ", 41) == 0);
    EXPECT(rg_plan_encode(plan, r->commands, mixed) == RG_INVALID_ARGUMENT);
    EXPECT(strncmp(rg_error_text(),
                   "concat_0, of f64[3] from x, f64[3, 1] from other: concat: ", 58) == 0);
    rg_kernel *kernel = NULL;
    rg_state *states[2];
    rg_tensor *results[2];
    EXPECT_OK(rg_pool_create(r->device, &pool, &kernel));
    EXPECT(rg_kernel_forward_alloc(kernel, r->commands, 2, rows, false, results, states) ==
           RG_INVALID_ARGUMENT);
    EXPECT(strncmp(rg_error_text(), "pool: x ", 8) == 0);
    EXPECT(rg_kernel_forward_batch(kernel, r->commands, 2, rows, rows, NULL) ==
           RG_INVALID_ARGUMENT);
    EXPECT(strstr(rg_error_text(), "image 0: pool: x ") == rg_error_text() ||
           strstr(rg_error_text(), "pool: ") == rg_error_text());
    rg_kernel_destroy(kernel);
    rg_tensor_destroy(row);
    rg_tensor_destroy(grid);
    rg_plan_destroy(plan);
    rg_graph_destroy(graph);
}

static void test_sources(rig *r)
{
    rg_graph *graph = graph_new();
    rg_value *x = rg_graph_source(graph, "x"), *w = f64_parameter(graph, "w", 1, DIMS(3));
    rg_value *y = f64_neuron(graph, RG_NEURON_TANH, f64_sum(graph, x, w));
    EXPECT_OK(rg_graph_result(graph, y, "y"));
    EXPECT_OK(rg_graph_assign(graph, w, y));
    rg_plan *plan = NULL;
    EXPECT_OK(rg_plan_create(r->device, graph, NULL, &plan));
    rig other = rig_open(1);
    rg_tensor *here = filled(r->device, RG_F64, 1, DIMS(3), 1), *own = NULL;
    rg_tensor *there = filled(other.device, RG_F64, 1, DIMS(3), 1);
    EXPECT_FAILS(rg_plan_encode(plan, other.commands, &there), RG_INVALID_ARGUMENT,
                 "different devices");
    EXPECT_FAILS(rg_plan_encode(plan, r->commands, &there), RG_INVALID_ARGUMENT,
                 "different devices");
    EXPECT_FAILS(rg_plan_encode_batch(plan, other.commands, 1, &there), RG_INVALID_ARGUMENT,
                 "different devices");
    EXPECT_OK(rg_plan_parameter(plan, "w", &own));
    EXPECT_FAILS(rg_plan_encode(plan, r->commands, &own), RG_INVALID_ARGUMENT, "parameter 'w'");
    const rg_tensor_desc shape = rg_tensor_desc_dense(RG_F64, 1, DIMS(3));
    rg_tensor *temporary = NULL;
    EXPECT_OK(rg_tensor_create_temporary(r->commands, &shape, &temporary));
    EXPECT_OK(rg_tensor_set_read_count(temporary, 0));
    EXPECT_FAILS(rg_plan_encode(plan, r->commands, &temporary), RG_INVALID_STATE,
                 "already released");
    EXPECT_FAILS(rg_plan_encode_batch(plan, r->commands, 1, &temporary), RG_INVALID_STATE,
                 "already released");
    rg_tensor *const two[] = { here, temporary };
    EXPECT_FAILS(rg_plan_encode_batch(plan, r->commands, 2, two), RG_INVALID_STATE,
                 "already released");
    rg_tensor_destroy(temporary);
    EXPECT_OK(rg_tensor_create_temporary(other.commands, &shape, &temporary));
    EXPECT_FAILS(rg_plan_encode(plan, r->commands, &temporary), RG_INVALID_ARGUMENT, "device");
    rg_tensor_destroy(temporary);
    EXPECT_OK(rg_commands_commit(r->commands));
    EXPECT_FAILS(rg_plan_encode(plan, r->commands, &here), RG_INVALID_STATE, "committed");
    EXPECT_FAILS(rg_plan_encode_batch(plan, r->commands, 1, &here), RG_INVALID_STATE, "committed");
    EXPECT_OK(rg_commands_wait(r->commands));
    rig_renew(r);
    rg_tensor_destroy(here);
    rg_tensor_destroy(there);
    rig_close(&other);
    rg_plan_destroy(plan);
    rg_graph_destroy(graph);
}

/* A result may be a constant; a source that is one is the caller's own tensor. */
static void test_odd_results(rig *r)
{
    rg_graph *graph = graph_new();
    rg_value *x = rg_graph_source(graph, "x"), *w = f64_parameter(graph, "w", 1, DIMS(2));
    rg_value *seven = rg_graph_constant(graph, rg_graph_constant(graph, x, 1), 7);
    EXPECT_OK(rg_graph_result(graph, seven, "seven"));
    EXPECT_OK(rg_graph_result(graph, x, "x"));
    EXPECT_OK(rg_graph_result(graph, w, "w"));
    rg_plan *plan = NULL;
    EXPECT_OK(rg_plan_create(r->device, graph, NULL, &plan));
    rg_tensor *source = filled(r->device, RG_F64, 1, DIMS(3), 1), *tensor = NULL, *w_tensor = NULL;
    double values[3];
    EXPECT_OK(rg_plan_encode(plan, r->commands, &source));
    EXPECT_OK(rig_run(r));
    EXPECT_OK(rg_plan_result(plan, "seven", &tensor));
    EXPECT_OK(rg_tensor_read(tensor, values, sizeof values, RG_LAYOUT_SAME));
    EXPECT(values[0] == 7 && values[2] == 7);
    EXPECT_FAILS(rg_plan_result(plan, "x", &tensor), RG_UNSUPPORTED, "the result 'x' is a source");
    EXPECT_OK(rg_plan_result(plan, "w", &tensor));
    EXPECT_OK(rg_plan_parameter(plan, "w", &w_tensor));
    EXPECT(tensor == w_tensor);
    rg_tensor_destroy(source);
    rg_plan_destroy(plan);
    rg_graph_destroy(graph);
}

int main(void)
{
    rig r = rig_open(1);
    test_null_plans(&r);
    test_shapes(&r);
    test_sentences(&r);
    test_sources(&r);
    test_odd_results(&r);
    rig_close(&r);
    return rg_test_report();
}
