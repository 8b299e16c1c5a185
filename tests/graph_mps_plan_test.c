/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Plans as in MPS: results, states, sources, steps and memory, asynchronous runs, batches, copies.
 * docs/mps.md names these tests; numbers are those of the behaviour checks there. */
#include "any_device.h"
#include "graph_f64.h"

#include <math.h>

/* ---- results, states, sources ---- */

/* 12: results stay under their names beside the main one; the state of a node can be read. */
static void test_export(rig *r)
{
    rg_graph *graph = graph_new();
    rg_value *x = rg_graph_source(graph, "x");
    rg_dropout_desc desc = rg_dropout_desc_default();
    rg_node *dropout = rg_graph_dropout(graph, &desc, &x);
    rg_value *h = rg_node_output(dropout, 0), *y = f64_neuron(graph, RG_NEURON_TANH, h);
    EXPECT_OK(rg_graph_result(graph, y, "y"));
    EXPECT_OK(rg_graph_result(graph, h, "h"));
    EXPECT_OK(rg_graph_state_result(graph, dropout, "mask of h"));
    EXPECT_OK(rg_graph_gradients(graph, &y, NULL, 1, NULL, NULL));
    EXPECT_OK(rg_graph_result(graph, rg_value_gradient(x), "dx"));
    const char *name = NULL;
    EXPECT(rg_graph_results(graph) == 3 && rg_graph_result_at(graph, 1, &name) == h);
    EXPECT(name != NULL && strcmp(name, "h") == 0);
    rg_plan_options options = rg_plan_options_default();
    options.poison = true;
    rg_plan *plan = NULL;
    EXPECT_OK(rg_plan_create(r->device, graph, &options, &plan));
    rg_graph_destroy(graph);
    rg_tensor *source = filled(r->device, RG_F64, 1, DIMS(20), 5), *mask = NULL;
    rg_state *state = NULL;
    EXPECT_FAILS(rg_plan_state(plan, "mask of h", &state), RG_INVALID_STATE, "prepared");
    double in[20], kept[20], out[20], dx[20];
    uint8_t bits[3];
    EXPECT_OK(rg_tensor_read(source, in, sizeof in, RG_LAYOUT_SAME));
    f64_run(r, plan, &source);
    f64_read(plan, "h", kept);
    f64_read(plan, "y", out);
    f64_read(plan, "dx", dx);
    EXPECT_OK(rg_plan_state(plan, "mask of h", &state));
    EXPECT_FAILS(rg_plan_state(plan, "other", &state), RG_INVALID_ARGUMENT, "other");
    EXPECT_OK(rg_plan_state(plan, "mask of h", &state));
    EXPECT(rg_state_count(state) == 1 && strcmp(rg_state_name(state, 0), "mask") == 0);
    EXPECT_OK(rg_state_tensor(state, "mask", &mask));
    EXPECT_OK(rg_tensor_read(mask, bits, sizeof bits, RG_LAYOUT_SAME));
    int count = 0;
    for (int i = 0; i < 20; i++) { /* 16: one mask both ways, scale 1 / keep */
        const double m = bits[i / 8] >> i % 8 & 1, t = tanh(2 * m * in[i]);
        EXPECT(kept[i] == 2 * m * in[i] && fabs(out[i] - t) < 1e-12);
        EXPECT(fabs(dx[i] - 2 * m * (1 - t * t)) < 1e-12);
        count += (int)m;
    }
    EXPECT(count > 3 && count < 17);
    rg_tensor_destroy(source);
    rg_plan_destroy(plan);
}

/* A node whose state is a result is not fused into another one. */
static void test_whole_nodes(rig *r)
{
    for (int asked = 0; asked < 3; asked++) { /* for that of which node */
        rg_graph *graph = graph_new();
        rg_neuron_desc swish = rg_neuron_desc_default();
        swish.kind = RG_NEURON_SWISH;
        rg_value *x = rg_graph_source(graph, "x"), *w = f64_parameter(graph, "w", 2, DIMS(3, 3));
        rg_value *h = f64_dense(graph, x, w);
        rg_node *node = rg_graph_neuron(graph, &swish, &h);
        rg_value *y = rg_node_output(node, 0);
        rg_node *const nodes[] = { NULL, rg_value_node(h), node };
        EXPECT_OK(rg_graph_gradients(graph, &y, NULL, 1, NULL, NULL));
        EXPECT_OK(rg_graph_result(graph, y, "y"));
        EXPECT_OK(rg_graph_result(graph, rg_value_gradient(w), "dw"));
        if (asked > 0)
            EXPECT_OK(rg_graph_state_result(graph, nodes[asked], "state"));
        rg_plan *plan = f64_plan(r->device, graph);
        rg_tensor *source = filled(r->device, RG_F64, 2, DIMS(2, 3), 1);
        f64_run(r, plan, &source);
        rg_state *state = NULL;
        EXPECT(rg_plan_steps(plan) == (asked > 0 ? 4 : 2)); /* forward and gradient */
        if (asked > 0) {
            char text[512];
            EXPECT_OK(rg_plan_state(plan, "state", &state));
            rg_state_describe(state, text, sizeof text);
            EXPECT(strstr(text, asked == 1 ? "state of dense" : "state of neuron") != NULL);
        }
        rg_tensor_destroy(source);
        rg_plan_destroy(plan);
        rg_graph_destroy(graph);
    }
}

/* 15: a batch normalisation reads x once in each pass, and the plan says so. */
static void test_batch_norm(rig *r)
{
    for (int training = 0; training < 2; training++) {
        rg_graph *graph = graph_new();
        rg_batch_norm_desc desc = rg_batch_norm_desc_default();
        desc.gamma = desc.beta = false;
        rg_value *x = rg_graph_source(graph, "x");
        rg_value *y = rg_node_output(rg_graph_batch_norm(graph, &desc, &x), 0);
        EXPECT_OK(rg_graph_result(graph, y, "y"));
        if (training) {
            EXPECT_OK(rg_graph_gradients(graph, &y, NULL, 1, NULL, NULL));
            EXPECT_OK(rg_graph_result(graph, rg_value_gradient(x), "dx"));
        }
        rg_plan *plan = f64_plan(r->device, graph);
        const rg_tensor_desc shape = rg_tensor_desc_dense(RG_F64, 2, DIMS(8, 3));
        EXPECT_OK(rg_plan_prepare(plan, &shape));
        EXPECT(rg_plan_source_reads(plan, 0) == (training ? 2 : 1));
        EXPECT(rg_plan_source_reads(plan, 1) == 0);
        bool state = false;
        rg_memory_info info;
        for (int32_t i = 0; i < rg_plan_memory_count(plan); i++) {
            EXPECT_OK(rg_plan_memory(plan, i, &info));
            state |= info.state != NULL && strcmp(info.state, "mean") == 0;
            EXPECT(info.offset + info.bytes <= rg_plan_bytes(plan));
        }
        EXPECT(state == training); /* kept for the gradient alone */
        rg_plan_destroy(plan);
        rg_graph_destroy(graph);
    }
}

/* 1: a temporary as a source needs as many reads as the plan says, and loses as many. 18: it
 * outlives a commit. */
static void test_temporary_source(rig *r)
{
    rg_graph *graph = graph_new();
    rg_value *x = rg_graph_source(graph, "x");
    rg_value *y = f64_sum(graph, f64_neuron(graph, RG_NEURON_TANH, x),
                          f64_neuron(graph, RG_NEURON_SIGMOID, x));
    EXPECT_OK(rg_graph_result(graph, y, "y"));
    rg_plan *plan = f64_plan(r->device, graph);
    const rg_tensor_desc shape = rg_tensor_desc_dense(RG_F64, 1, DIMS(6));
    double zeros[6] = { 0 }, out[6];
    rg_tensor *temporary = NULL;
    EXPECT_OK(rg_plan_prepare(plan, &shape));
    EXPECT(rg_plan_source_reads(plan, 0) == 2);
    EXPECT_OK(rg_tensor_create_temporary(r->commands, &shape, &temporary));
    EXPECT_OK(rg_commands_write(r->commands, temporary, zeros, sizeof zeros, RG_LAYOUT_SAME));
    EXPECT_FAILS(rg_plan_encode(plan, r->commands, &temporary), RG_INVALID_STATE, "read 2 times");
    EXPECT(rg_tensor_read_count(temporary) == 1);
    EXPECT_OK(rg_tensor_set_read_count(temporary, 5));
    EXPECT_OK(rg_plan_encode(plan, r->commands, &temporary));
    EXPECT(rg_tensor_read_count(temporary) == 3);
    EXPECT_OK(rg_commands_commit_and_continue(r->commands));
    EXPECT_OK(rg_tensor_set_read_count(temporary, 2));
    EXPECT_OK(rg_plan_encode(plan, r->commands, &temporary));
    EXPECT(rg_tensor_read_count(temporary) == 0);
    EXPECT_FAILS(rg_plan_encode(plan, r->commands, &temporary), RG_INVALID_STATE,
                 "already released");
    EXPECT_OK(rig_run(r));
    f64_read(plan, "y", out);
    for (int i = 0; i < 6; i++)
        EXPECT(out[i] == 0.5);
    rg_tensor_destroy(temporary);
    rg_plan_destroy(plan);
    rg_graph_destroy(graph);
}

/* ---- running ---- */

typedef struct ending {
    _Atomic int calls;
    rg_status outcome;
} ending;

static void note_end(void *context, rg_status outcome)
{
    ending *e = context;
    e->outcome = outcome;
    e->calls++;
}

/* executeAsyncWithSourceImages:completionHandler: */
static void test_async(rig *r)
{
    rg_graph *graph = graph_new();
    rg_value *x = rg_graph_source(graph, "x");
    EXPECT_OK(rg_graph_result(graph, f64_neuron(graph, RG_NEURON_TANH, x), "y"));
    rg_plan *plan = f64_plan(r->device, graph);
    rg_tensor *source = filled(r->device, RG_F64, 1, DIMS(3), 1);
    double in[3], out[3];
    ending e = { 0 };
    EXPECT_OK(rg_tensor_read(source, in, sizeof in, RG_LAYOUT_SAME));
    EXPECT_FAILS(rg_plan_run_async(plan, NULL, note_end, &e), RG_INVALID_ARGUMENT, "sources");
    EXPECT(e.calls == 0);
    EXPECT_OK(rg_plan_run_async(plan, &source, note_end, &e));
    rg_tensor_destroy(source);
    SECONDS(e.calls == 1);
    EXPECT(e.outcome == RG_OK);
    f64_read(plan, "y", out);
    for (int i = 0; i < 3; i++)
        EXPECT(fabs(out[i] - tanh(in[i])) < 1e-12);
    rg_plan_destroy(plan);
    rg_graph_destroy(graph);
}

enum { COUNT = 3 }; /* images of a batch */

/* Arguments that are refused, after which nothing is recorded. */
static void expect_refused(rig *r, rg_plan *plan, rg_tensor *images[2 * COUNT])
{
    rg_tensor *odd = filled(r->device, RG_F64, 2, DIMS(3, 4), 9), *kept = images[1];
    images[1] = odd;
    EXPECT_FAILS(rg_plan_encode_batch(plan, r->commands, COUNT, images), RG_INVALID_ARGUMENT,
                 "f64[3, 4] for image 1");
    images[1] = NULL;
    EXPECT_FAILS(rg_plan_encode_batch(plan, r->commands, COUNT, images), RG_INVALID_ARGUMENT,
                 "image 1 is NULL");
    EXPECT_FAILS(rg_plan_encode_batch(plan, r->commands, 0, images), RG_INVALID_ARGUMENT,
                 "count must be between 1 and 2147483647, not 0");
    rg_tensor *const bytes[2] = { tensor_of(r->device, RG_U8, 2, DIMS(2, 4)),
                                  tensor_of(r->device, RG_U8, 2, DIMS(2, 4)) };
    EXPECT_FAILS(rg_plan_encode_batch(
                     plan, r->commands, 2,
                     (rg_tensor *[]){ bytes[0], bytes[1], images[COUNT], images[COUNT + 1] }),
                 RG_UNSUPPORTED, "the source 'x' is u8, which no op reads");
    images[1] = kept;
    EXPECT_OK(rig_run(r));
    rg_tensor_destroy(odd);
    rg_tensor_destroy(bytes[0]);
    rg_tensor_destroy(bytes[1]);
}

/* encodeBatchToCommandBuffer: separate images form one batch, with common statistics. */
static void test_batch(rig *r)
{
    rg_graph *graph = graph_new();
    rg_batch_norm_desc norm = rg_batch_norm_desc_default();
    norm.gamma = norm.beta = false;
    rg_loss_desc loss = rg_loss_desc_default();
    loss.labels = RG_LOSS_CLASS_LABELS;
    loss.reduction = RG_LOSS_NONE;
    rg_value *x = rg_graph_source(graph, "x"), *labels = rg_graph_source(graph, "labels");
    rg_value *y = rg_node_output(rg_graph_batch_norm(graph, &norm, &x), 0);
    rg_value *l = rg_node_output(rg_graph_loss(graph, &loss, (rg_value *[]){ y, labels }), 0);
    EXPECT_OK(rg_graph_result(graph, y, "y"));
    EXPECT_OK(rg_graph_result(graph, l, "loss"));
    rg_plan *plan = f64_plan(r->device, graph);
    rg_tensor *images[2 * COUNT], *whole[2];
    whole[0] = tensor_of(r->device, RG_F64, 2, DIMS(2 * COUNT, 4));
    whole[1] = tensor_of(r->device, RG_I32, 1, DIMS(2 * COUNT));
    double all[8 * COUNT];
    int32_t classes[2 * COUNT];
    for (int n = 0; n < COUNT; n++) {
        images[n] = filled(r->device, RG_F64, 2, DIMS(2, 4), 20 + (uint64_t)n);
        images[COUNT + n] = tensor_of(r->device, RG_I32, 1, DIMS(2));
        classes[2 * n] = n;
        classes[2 * n + 1] = 3 - n;
        EXPECT_OK(rg_tensor_read(images[n], all + 8 * n, 64, RG_LAYOUT_SAME));
        EXPECT_OK(rg_tensor_write(images[COUNT + n], classes + 2 * n, 8, RG_LAYOUT_SAME));
    }
    EXPECT_OK(rg_tensor_write(whole[0], all, sizeof all, RG_LAYOUT_SAME));
    EXPECT_OK(rg_tensor_write(whole[1], classes, sizeof classes, RG_LAYOUT_SAME));
    double apart[2][8 * COUNT], together[2][8 * COUNT];
    EXPECT_OK(rg_plan_encode_batch(plan, r->commands, COUNT, images));
    EXPECT_OK(rig_run(r));
    f64_read(plan, "y", apart[0]);
    f64_read(plan, "loss", apart[1]);
    const size_t losses = bytes_of(f64_result(plan, "loss"));
    f64_run(r, plan, whole);
    f64_read(plan, "y", together[0]);
    f64_read(plan, "loss", together[1]);
    EXPECT(memcmp(apart[0], together[0], sizeof apart[0]) == 0);
    EXPECT(losses == bytes_of(f64_result(plan, "loss")));
    EXPECT(memcmp(apart[1], together[1], losses) == 0);
    expect_refused(r, plan, images);
    for (int i = 0; i < 2 * COUNT; i++)
        rg_tensor_destroy(images[i]);
    rg_tensor_destroy(whole[0]);
    rg_tensor_destroy(whole[1]);
    rg_plan_destroy(plan);
    rg_graph_destroy(graph);
}

/* 17: copies of a graph and of a plan, also onto another device. */
static void test_copy(rig *r)
{
    rg_graph *graph = graph_new(), *copy = NULL;
    rg_value *x = rg_graph_source(graph, "x"), *w = f64_parameter(graph, "w", 2, DIMS(2, 2));
    rg_value *y = f64_dense(graph, x, w), *loss = f64_total(graph, y);
    EXPECT_OK(rg_node_set_label(rg_value_node(y), "layer"));
    EXPECT_OK(rg_graph_gradients(graph, &loss, NULL, 1, NULL, NULL));
    EXPECT_OK(rg_graph_result(graph, y, "y"));
    EXPECT_OK(rg_graph_result(graph, rg_value_gradient(w), "dw"));
    EXPECT_OK(rg_graph_copy(graph, &copy));
    EXPECT(rg_graph_equal(graph, copy) && rg_graph_equal(copy, graph));
    EXPECT(rg_graph_find_node(copy, "layer") != rg_value_node(y));
    EXPECT(rg_node_equal(rg_graph_find_node(copy, "layer"), rg_value_node(y)));
    EXPECT(rg_value_gradient(rg_graph_find_value(copy, "w")) != NULL);
    EXPECT_OK(rg_value_stop_gradient(rg_node_output(rg_graph_find_node(copy, "layer"), 0)));
    EXPECT(!rg_graph_equal(graph, copy));
    rig other = rig_open(2);
    rg_plan *plan = f64_plan(r->device, graph), *plans[2] = { NULL };
    rg_tensor *tensor = NULL;
    EXPECT_OK(rg_plan_parameter(plan, "w", &tensor));
    fill(tensor, 4);
    EXPECT_OK(rg_plan_copy(plan, NULL, &plans[0]));
    EXPECT_OK(rg_plan_copy(plan, other.device, &plans[1]));
    rg_graph_destroy(graph);
    rg_graph_destroy(copy);
    rg_tensor *here = filled(r->device, RG_F64, 2, DIMS(3, 2), 8);
    rg_tensor *there = filled(other.device, RG_F64, 2, DIMS(3, 2), 8);
    f64_run(r, plan, &here);
    f64_run(r, plans[0], &here);
    f64_run(&other, plans[1], &there);
    for (int i = 0; i < 2; i++) {
        double out[2][6], slopes[2][4];
        f64_read(plan, "y", out[0]);
        f64_read(plans[i], "y", out[1]);
        f64_read(plan, "dw", slopes[0]);
        f64_read(plans[i], "dw", slopes[1]);
        const double far =
            i == 0 || is_cpu(r) ? 0 : 1e-12; /* the same bits on one kind of device */
        for (int k = 0; k < 6; k++)
            EXPECT(fabs(out[0][k] - out[1][k]) <= far);
        for (int k = 0; k < 4; k++)
            EXPECT(fabs(slopes[0][k] - slopes[1][k]) <= far);
        rg_plan_destroy(plans[i]);
    }
    rg_plan_destroy(plan);
    rg_tensor_destroy(here);
    rg_tensor_destroy(there);
    rig_close(&other);
}

/* ---- steps and memory ---- */

static void test_steps(rig *r)
{
    rg_graph *graph = graph_new();
    rg_value *x = rg_graph_source(graph, "x"), *h = f64_neuron(graph, RG_NEURON_TANH, x);
    rg_value *y = f64_neuron(graph, RG_NEURON_SIGMOID, h);
    EXPECT_OK(rg_node_set_label(rg_value_node(h), "first"));
    EXPECT_FAILS(rg_node_set_label(rg_value_node(y), "first"), RG_INVALID_ARGUMENT, "first");
    EXPECT_OK(rg_graph_result(graph, y, "y"));
    EXPECT(rg_graph_values(graph) == 3 && rg_graph_value_at(graph, 1) == h);
    EXPECT(rg_graph_value_at(graph, 3) == NULL && rg_graph_node_at(graph, -1) == NULL);
    EXPECT(rg_value_get_kind(h) == RG_VALUE_OUTPUT && rg_value_index(h) == 0);
    char text[1024];
    const size_t length = rg_graph_describe(graph, text, sizeof text);
    EXPECT(length == strlen(text) && length == rg_graph_describe(graph, NULL, 0));
    EXPECT(strstr(text, "source x\n") != NULL && strstr(text, "first: neuron kind=tanh") != NULL);
    EXPECT(strstr(text, "(first)\nresult y = neuron_1\n") != NULL);
    rg_plan_options options = rg_plan_options_default();
    options.in_place = false;
    rg_plan *plan = NULL;
    EXPECT_OK(rg_plan_create(r->device, graph, &options, &plan));
    rg_graph_destroy(graph);
    const rg_tensor_desc shape = rg_tensor_desc_dense(RG_F64, 2, DIMS(3, 5));
    rg_tensor_desc found;
    rg_step_info step;
    EXPECT_FAILS(rg_plan_shape(plan, "first", 0, &found), RG_INVALID_STATE, "prepared");
    EXPECT_OK(rg_plan_prepare(plan, &shape));
    EXPECT_OK(rg_plan_shape(plan, "first", 0, &found));
    EXPECT(memcmp(&found, &shape, sizeof shape) == 0);
    EXPECT_FAILS(rg_plan_shape(plan, "second", 0, &found), RG_INVALID_ARGUMENT, "second");
    EXPECT_FAILS(rg_plan_shape(plan, "first", 1, &found), RG_INVALID_ARGUMENT, "output 1");
    EXPECT_OK(rg_plan_step_info(plan, 0, &step));
    EXPECT(strcmp(step.label, "first") == 0 && strcmp(step.op, "neuron") == 0);
    EXPECT(!step.gradient && step.forward == -1);
    EXPECT_FAILS(rg_plan_step_info(plan, rg_plan_steps(plan), &step), RG_INVALID_ARGUMENT, "step");
    rg_memory_info info[2];
    EXPECT(rg_plan_memory_count(plan) == 2);
    for (int i = 0; i < 2; i++)
        EXPECT_OK(rg_plan_memory(plan, i, &info[i]));
    EXPECT(info[0].first == 0 && info[0].last == 1 && info[0].bytes == 120);
    EXPECT(info[1].first == 1 && info[1].last == rg_plan_steps(plan));
    EXPECT(info[0].offset + 120 <= info[1].offset || info[1].offset + 120 <= info[0].offset);
    EXPECT(strcmp(info[0].label, "first") == 0 && info[0].state == NULL);
    EXPECT_FAILS(rg_plan_memory(plan, 2, &info[0]), RG_INVALID_ARGUMENT,
                 "rg_plan_memory: entry 2 is out of range; there are 2");
    rg_plan_destroy(plan);
}

int main(void)
{
    RUN_ON_DEVICES(test_export, test_whole_nodes, test_batch_norm, test_temporary_source,
                   test_async, test_batch, test_copy, test_steps);
    return rg_test_report();
}
