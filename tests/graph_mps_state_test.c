/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Masks, states and asynchronous runs as in MPS, on any device. docs/mps.md names these tests. */
#include "any_device.h"
#include "graph_f64.h"

#include <math.h>
#include <stdatomic.h>

/* ---- dropout ---- */

static rg_plan *dropout_plan(rig *r, bool new_masks)
{
    rg_graph *graph = graph_new();
    const rg_dropout_desc desc = rg_dropout_desc_default();
    rg_value *x = rg_graph_source(graph, "x");
    rg_value *y = rg_node_output(rg_graph_dropout(graph, &desc, &x), 0);
    EXPECT_OK(rg_graph_gradients(graph, &y, NULL, 1, NULL, NULL));
    EXPECT_OK(rg_graph_result(graph, y, "y"));
    EXPECT_OK(rg_graph_result(graph, rg_value_gradient(x), "dx"));
    rg_plan_options options = rg_plan_options_default();
    EXPECT(options.new_masks);
    options.new_masks = new_masks;
    rg_plan *plan = NULL;
    EXPECT_OK(rg_plan_create(r->device, graph, &options, &plan));
    rg_graph_destroy(graph);
    return plan;
}

/* Each run of a plan draws a mask of its own, the first that of the kernel; forward and gradient
 * have the same one. */
static void test_new_masks(rig *r)
{
    enum { COUNT = 200 };
    const rg_dropout_desc desc = rg_dropout_desc_default();
    rg_tensor *x = tensor_of(r->device, RG_F64, 1, DIMS(COUNT)), *alone = NULL;
    rg_kernel *kernel = NULL;
    double ones[COUNT], y[4][COUNT], dx[COUNT], first[COUNT];
    for (int i = 0; i < COUNT; i++)
        ones[i] = 1;
    EXPECT_OK(rg_tensor_write(x, ones, sizeof ones, RG_LAYOUT_SAME));
    EXPECT_OK(rg_dropout_create(r->device, &desc, &kernel));
    EXPECT_OK(rg_kernel_forward_alloc(kernel, r->commands, 1, &x, false, &alone, NULL));
    EXPECT_OK(rig_run(r));
    EXPECT_OK(rg_tensor_read(alone, first, sizeof first, RG_LAYOUT_SAME));
    for (int fresh = 0; fresh < 2; fresh++) {
        rg_plan *plan = dropout_plan(r, fresh), *copy = NULL;
        EXPECT(rg_plan_parameters(plan) == 0 && rg_plan_sources(plan) == 1);
        for (int run = 0; run < 3; run++) {
            f64_run(r, plan, &x);
            f64_read(plan, "y", y[run]);
            f64_read(plan, "dx", dx);
            EXPECT(memcmp(dx, y[run], sizeof dx) == 0); /* x and dy are 1 */
        }
        EXPECT_OK(rg_plan_copy(plan, NULL, &copy)); /* goes on from there */
        f64_run(r, copy, &x);
        f64_read(copy, "y", y[3]);
        EXPECT(memcmp(y[0], first, sizeof first) == 0);
        for (int run = 1; run < 4; run++) {
            for (int other = 0; other < run; other++)
                EXPECT((memcmp(y[run], y[other], sizeof y[run]) != 0) == fresh);
        }
        rg_plan_destroy(plan);
        rg_plan_destroy(copy);
    }
    rg_tensor_destroy(x);
    rg_tensor_destroy(alone);
    rg_kernel_destroy(kernel);
}

/* Separate images of a batch have masks of their own, in both directions. */
static void test_image_masks(rig *r)
{
    enum { IMAGES = 3, COUNT = 100 };
    const rg_dropout_desc desc = rg_dropout_desc_default();
    rg_kernel *kernel = NULL;
    EXPECT_OK(rg_dropout_create(r->device, &desc, &kernel));
    EXPECT(rg_kernel_modifies_state(kernel, false) && !rg_kernel_modifies_state(kernel, true));
    rg_tensor *x[IMAGES], *y[IMAGES], *dx[IMAGES];
    rg_state *states[IMAGES];
    double ones[COUNT], out[IMAGES][COUNT], back[COUNT];
    for (int i = 0; i < COUNT; i++)
        ones[i] = 1;
    for (int n = 0; n < IMAGES; n++) {
        x[n] = tensor_of(r->device, RG_F64, 3, DIMS(5, 10, 2));
        EXPECT_OK(rg_tensor_write(x[n], ones, sizeof ones, RG_LAYOUT_SAME));
    }
    EXPECT_OK(rg_kernel_forward_alloc(kernel, r->commands, IMAGES, x, false, y, states));
    EXPECT_OK(
        rg_kernel_gradient_alloc(kernel, r->commands, IMAGES, x, NULL, NULL, states, 1, false, dx));
    EXPECT_OK(rig_run(r));
    for (int n = 0; n < IMAGES; n++) {
        EXPECT_OK(rg_tensor_read(y[n], out[n], sizeof out[n], RG_LAYOUT_SAME));
        EXPECT_OK(rg_tensor_read(dx[n], back, sizeof back, RG_LAYOUT_SAME));
        EXPECT(memcmp(out[n], back, sizeof back) == 0);
        for (int k = 0; k < n; k++)
            EXPECT(memcmp(out[n], out[k], sizeof back) != 0);
    }
    for (int n = 0; n < IMAGES; n++) {
        rg_tensor_destroy(x[n]);
        rg_tensor_destroy(y[n]);
        rg_tensor_destroy(dx[n]);
        rg_state_destroy(states[n]);
    }
    rg_kernel_destroy(kernel);
}

/* ---- states ---- */

/* gradientForWeights, gradientForBiases: of a 1x1 convolution, so that numbers are easy. */
static void test_conv_state(rig *r)
{
    const rg_conv_desc desc = rg_conv_desc_default();
    rg_kernel *kernel = NULL;
    EXPECT_OK(rg_conv_create(r->device, &desc, &kernel));
    EXPECT(rg_kernel_modifies_state(kernel, true) && !rg_kernel_modifies_state(kernel, false));
    rg_tensor *x[3] = { tensor_of(r->device, RG_F64, 4, DIMS(1, 1, 2, 1)),
                        tensor_of(r->device, RG_F64, 4, DIMS(1, 1, 1, 1)),
                        tensor_of(r->device, RG_F64, 1, DIMS(1)) };
    const double pixels[] = { 2, 3 }, slopes[] = { 5, 7 }, weight = 1, bias = 0;
    EXPECT_OK(rg_tensor_write(x[0], pixels, sizeof pixels, RG_LAYOUT_SAME));
    EXPECT_OK(rg_tensor_write(x[1], &weight, sizeof weight, RG_LAYOUT_SAME));
    EXPECT_OK(rg_tensor_write(x[2], &bias, sizeof bias, RG_LAYOUT_SAME));
    rg_tensor *dy = tensor_of(r->device, RG_F64, 4, DIMS(1, 1, 2, 1)), *y = NULL, *dx[3];
    EXPECT_OK(rg_tensor_write(dy, slopes, sizeof slopes, RG_LAYOUT_SAME));
    rg_state *state = NULL, *other = NULL;
    rg_tensor *dw = NULL, *db = NULL, *data = NULL;
    EXPECT_OK(rg_kernel_forward_alloc(kernel, r->commands, 1, x, false, &y, &state));
    EXPECT_FAILS(rg_state_tensor(state, "dw", &dw), RG_INVALID_ARGUMENT, "no tensor 'dw'");
    EXPECT_OK(rg_kernel_gradient_alloc(kernel, r->commands, 1, &dy, x, NULL, &state, 7, false, dx));
    EXPECT_OK(rig_run(r));
    EXPECT_OK(rg_state_tensor(state, "dw", &dw));
    EXPECT_OK(rg_state_tensor(state, "db", &db));
    EXPECT(dw == dx[1] && db == dx[2]);
    EXPECT_FAILS(rg_state_tensor(state, "dx", &data), RG_INVALID_ARGUMENT, "no tensor 'dx'");
    for (int i = 0; i < 3; i++)
        rg_tensor_destroy(dx[i]); /* the state keeps them */
    double sums[2];
    EXPECT_OK(rg_tensor_read(dw, &sums[0], sizeof sums[0], RG_LAYOUT_SAME));
    EXPECT_OK(rg_tensor_read(db, &sums[1], sizeof sums[1], RG_LAYOUT_SAME));
    EXPECT(sums[0] == 2 * 5 + 3 * 7 && sums[1] == 12);
    EXPECT_OK(rg_state_create(kernel, x, &other));
    EXPECT(rg_state_equal(state, other) && rg_state_hash(state) == rg_state_hash(other));
    rg_state_destroy(other);
    rg_tensor *narrow = tensor_of(r->device, RG_F64, 4, DIMS(1, 1, 1, 1));
    rg_tensor *const less[] = { narrow, x[1], x[2] };
    EXPECT_OK(rg_state_create(kernel, less, &other));
    EXPECT(!rg_state_equal(state, other) && rg_state_hash(state) != rg_state_hash(other));
    EXPECT_OK(rg_state_reset(state));
    EXPECT_FAILS(rg_state_tensor(state, "db", &db), RG_INVALID_ARGUMENT, "no tensor 'db'");
    rg_state_destroy(state);
    rg_state_destroy(other);
    rg_tensor_destroy(narrow);
    for (int i = 0; i < 3; i++)
        rg_tensor_destroy(x[i]);
    rg_tensor_destroy(y);
    rg_tensor_destroy(dy);
    rg_kernel_destroy(kernel);
}

/* A gradient whose descriptor is not that of its forward node is refused when it is built. */
static void test_other_descriptor(rig *r)
{
    (void)r;
    rg_graph *graph = graph_new();
    rg_pool_desc desc = rg_pool_desc_default();
    rg_value *x = rg_graph_source(graph, "x");
    rg_node *node = rg_graph_pool(graph, &desc, &x);
    rg_value *y = rg_node_output(node, 0);
    EXPECT(rg_graph_pool_gradient(graph, &desc, &y, &x, NULL, node) != NULL);
    desc.window[0] = 3;
    EXPECT(rg_graph_pool_gradient(graph, &desc, &y, &x, NULL, node) == NULL);
    EXPECT_FAILS(rg_graph_status(graph), RG_INVALID_ARGUMENT,
                 "pool_0: its gradient has another descriptor");
    rg_graph_destroy(graph);
}

/* The same for batch normalization, whose phases have descriptors of their own. */
static void test_other_phase(rig *r)
{
    (void)r;
    for (int i = 0; i < 4; i++) {
        static const rg_batch_norm_phase phases[][2] = {
            { RG_BATCH_NORM_WHOLE, RG_BATCH_NORM_WHOLE },
            { RG_BATCH_NORM_WHOLE, RG_BATCH_NORM_NORMALIZE },
            { RG_BATCH_NORM_NORMALIZE, RG_BATCH_NORM_NORMALIZE },
            { RG_BATCH_NORM_NORMALIZE, RG_BATCH_NORM_STATISTICS },
        };
        rg_graph *graph = graph_new();
        rg_batch_norm_desc desc = rg_batch_norm_desc_default();
        desc.gamma = desc.beta = false;
        rg_value *x = rg_graph_source(graph, "x"), *dy[] = { rg_graph_source(graph, "dy"), x, x };
        desc.phase = phases[i][0];
        rg_node *node = rg_graph_batch_norm(graph, &desc, &x);
        desc.phase = phases[i][1];
        EXPECT((rg_graph_batch_norm_gradient(graph, &desc, dy, &x, NULL, node) == NULL) ==
               (i == 1));
        EXPECT((rg_graph_status(graph) == RG_OK) == (i != 1));
        rg_graph_destroy(graph);
        graph = graph_new();
        x = rg_graph_source(graph, "x");
        dy[0] = rg_graph_source(graph, "dy");
        dy[1] = dy[2] = x;
        desc.phase = phases[i][0];
        node = rg_graph_batch_norm(graph, &desc, &x);
        desc.phase = phases[i][1];
        desc.epsilon = 1e-3;
        EXPECT(rg_graph_batch_norm_gradient(graph, &desc, dy, &x, NULL, node) == NULL);
        EXPECT_FAILS(rg_graph_status(graph), RG_INVALID_ARGUMENT,
                     "batch_norm_0: its gradient has another descriptor");
        rg_graph_destroy(graph);
    }
}

/* Whether forward and the gradient of a kernel change its state. */
static void expect_modified(rg_status status, rg_kernel **kernel, bool forward, bool gradient)
{
    EXPECT_OK(status);
    EXPECT(rg_kernel_modifies_state(*kernel, false) == forward);
    EXPECT(rg_kernel_modifies_state(*kernel, true) == gradient);
    rg_kernel_destroy(*kernel);
}

/* isStateModified: what kernels do with a state that they are given. */
static void test_modified_states(rig *r)
{
    rg_kernel *kernel = NULL;
    rg_pool_desc pool = rg_pool_desc_default();
    expect_modified(rg_pool_create(r->device, &pool, &kernel), &kernel, true, false);
    pool.indices = true;
    expect_modified(rg_pool_create(r->device, &pool, &kernel), &kernel, false, false);
    pool.indices = false;
    pool.kind = RG_POOL_AVERAGE;
    expect_modified(rg_pool_create(r->device, &pool, &kernel), &kernel, false, false);
    rg_conv_desc conv = rg_conv_desc_default();
    expect_modified(rg_conv_create(r->device, &conv, &kernel), &kernel, false, true);
    conv.neuron.kind = RG_NEURON_GELU;
    expect_modified(rg_conv_create(r->device, &conv, &kernel), &kernel, true, true);
    rg_batch_norm_desc batch = rg_batch_norm_desc_default();
    for (int phase = RG_BATCH_NORM_WHOLE; phase <= RG_BATCH_NORM_NORMALIZE; phase++) {
        batch.phase = (rg_batch_norm_phase)phase;
        batch.gamma = batch.beta = phase == RG_BATCH_NORM_WHOLE;
        expect_modified(rg_batch_norm_create(r->device, &batch, &kernel), &kernel, true, true);
    }
    rg_group_norm_desc group = rg_group_norm_desc_default();
    group.gamma = group.beta = false;
    expect_modified(rg_group_norm_create(r->device, &group, &kernel), &kernel, true, false);
    group.image_gradients = group.gamma = true;
    expect_modified(rg_group_norm_create(r->device, &group, &kernel), &kernel, true, true);
    const rg_softmax_desc softmax = rg_softmax_desc_default();
    expect_modified(rg_softmax_create(r->device, &softmax, &kernel), &kernel, false, false);
    EXPECT(!rg_kernel_modifies_state(NULL, true));
}

/* ---- asynchronous runs ---- */

typedef struct ending {
    _Atomic int calls;
    rg_status outcome;
    char text[256];
} ending;

static void note_end(void *context, rg_status outcome)
{
    ending *e = context;
    e->outcome = outcome;
    snprintf(e->text, sizeof e->text, "%s", outcome != RG_OK ? rg_error_text() : "");
    e->calls++;
}

/* Each of several runs has results of its own, which later ones do not touch. */
static void test_own_results(rig *r)
{
    enum { RUNS = 4 };
    rg_graph *graph = graph_new();
    rg_value *x = rg_graph_source(graph, "x");
    EXPECT_OK(rg_graph_result(graph, f64_neuron(graph, RG_NEURON_ABSOLUTE, x), "y"));
    EXPECT_OK(rg_graph_result(graph, f64_total(graph, x), "sum"));
    rg_plan *plan = f64_plan(r->device, graph);
    EXPECT(rg_plan_results(plan) == 2 && strcmp(rg_plan_result_name(plan, 1), "sum") == 0);
    EXPECT(rg_plan_result_name(plan, 2) == NULL);
    rg_tensor *sources[RUNS], *results[RUNS][2];
    ending e[RUNS] = { 0 };
    for (int i = 0; i < RUNS; i++) {
        const double in[3] = { -i, i, 10 * i };
        sources[i] = tensor_of(r->device, RG_F64, 1, DIMS(3));
        EXPECT_OK(rg_tensor_write(sources[i], in, sizeof in, RG_LAYOUT_SAME));
        EXPECT_OK(rg_plan_run_async_results(plan, &sources[i], results[i], note_end, &e[i]));
    }
    for (int i = 0; i < RUNS; i++) {
        double out[3] = { 0 }, sum = 0;
        SECONDS(e[i].calls == 1);
        EXPECT(e[i].outcome == RG_OK);
        EXPECT_OK(rg_tensor_read(results[i][0], out, sizeof out, RG_LAYOUT_SAME));
        EXPECT_OK(rg_tensor_read(results[i][1], &sum, sizeof sum, RG_LAYOUT_SAME));
        EXPECT(out[0] == i && out[1] == i && out[2] == 10 * i && sum == 10 * i);
        rg_tensor_destroy(sources[i]);
        rg_tensor_destroy(results[i][0]);
        rg_tensor_destroy(results[i][1]);
    }
    EXPECT_FAILS(rg_plan_run_async_results(plan, NULL, results[0], NULL, NULL), RG_INVALID_ARGUMENT,
                 "sources");
    EXPECT(results[0][0] == NULL && results[0][1] == NULL);
    rg_plan_destroy(plan);
    rg_graph_destroy(graph);
}

/* A label out of range: the handler finds the sentence. */
static void test_failed_run(rig *r)
{
    rg_graph *graph = graph_new();
    rg_loss_desc desc = rg_loss_desc_default();
    desc.labels = RG_LOSS_CLASS_LABELS;
    rg_value *const in[] = { rg_graph_source(graph, "x"), rg_graph_source(graph, "labels") };
    EXPECT_OK(rg_graph_result(graph, rg_node_output(rg_graph_loss(graph, &desc, in), 0), "loss"));
    rg_plan *plan = f64_plan(r->device, graph);
    rg_tensor *sources[] = { filled(r->device, RG_F64, 2, DIMS(1, 3), 1),
                             tensor_of(r->device, RG_I32, 1, DIMS(1)) };
    const int32_t label = 7;
    ending e = { 0 };
    EXPECT_OK(rg_tensor_write(sources[1], &label, sizeof label, RG_LAYOUT_SAME));
    EXPECT_OK(rg_plan_run_async(plan, sources, note_end, &e));
    SECONDS(e.calls == 1);
    EXPECT(e.outcome == RG_KERNEL_FAULT && strstr(e.text, "label") != NULL);
    rg_tensor_destroy(sources[0]);
    rg_tensor_destroy(sources[1]);
    rg_plan_destroy(plan);
    rg_graph_destroy(graph);
}

int main(void)
{
    RUN_ON_DEVICES(test_new_masks, test_image_masks, test_conv_state, test_other_descriptor,
                   test_other_phase, test_modified_states, test_own_results, test_failed_run);
    return rg_test_report();
}
