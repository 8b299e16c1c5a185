/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Graphs and plans when memory is short: every allocation fails once, each failure is reported, and
 * nothing is left behind (which the address sanitizer sees). The linker puts the functions below in
 * the place of the C library's. */
#include "api.h"

#if RG_TEST_FILES
#include <retrograde/files.h>
#endif

static int64_t calls_left; /* the call that brings this to 0 fails; 0: none does */

static bool fails(void)
{
    return calls_left > 0 && --calls_left == 0;
}

int __real_posix_memalign(void **pointer, size_t alignment, size_t size);
int __wrap_posix_memalign(void **pointer, size_t alignment, size_t size);
int __wrap_posix_memalign(void **pointer, size_t alignment, size_t size)
{
    return fails() ? 12 : __real_posix_memalign(pointer, alignment, size);
}

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : __real_malloc(size);
}

char *__real_strdup(const char *text);
char *__wrap_strdup(const char *text);
char *__wrap_strdup(const char *text)
{
    return fails() ? NULL : __real_strdup(text);
}

/* ---- what is run ---- */

static double weights[4];

static rg_status load(void *context, const void **elements)
{
    (void)context;
    *elements = weights;
    return RG_OK;
}

static bool update(void *context, const void *gradient, const void *elements)
{
    (void)context;
    (void)gradient;
    (void)elements;
    return true;
}

/* What plans fuse in every way: a bias and a neuron into the op before them, a neuron that reads y,
 * softmax and a gradient into a loss. */
static rg_value *fused(rg_graph *graph, rg_value *y, rg_value *labels)
{
    const rg_tensor_desc channels = rg_tensor_desc_dense(RG_F64, 1, DIMS(2));
    const rg_arithmetic_desc plus = rg_arithmetic_desc_default();
    const rg_softmax_desc softmax = rg_softmax_desc_default();
    rg_neuron_desc neuron = rg_neuron_desc_default();
    rg_loss_desc loss = rg_loss_desc_default();
    neuron.kind = RG_NEURON_SIGMOID;
    loss.kind = RG_LOSS_CATEGORICAL_CROSS_ENTROPY;
    rg_value *b = rg_graph_parameter(graph, "b", &channels);
    y = rg_node_output(rg_graph_arithmetic(graph, &plus, (rg_value *[]){ y, b }), 0);
    y = rg_node_output(rg_graph_neuron(graph, &neuron, &y), 0);
    y = rg_node_output(rg_graph_neuron(graph, &neuron, &y), 0);
    y = rg_node_output(rg_graph_softmax(graph, &softmax, &y), 0);
    return rg_node_output(rg_graph_loss(graph, &loss, (rg_value *[]){ y, labels }), 0);
}

/* Two layers: one with a data source, one with an optimizer; a state, a sum of gradients. */
static void build(rg_graph *graph)
{
    rg_data_source source = rg_data_source_default();
    source.desc = rg_tensor_desc_dense(RG_F64, 2, DIMS(2, 2));
    source.load = load;
    source.style = RG_UPDATE_HOST;
    source.update_on_host = update;
    const rg_tensor_desc number = rg_tensor_desc_dense(RG_F64, 0, NULL);
    rg_dense_desc dense = rg_dense_desc_default();
    const rg_dropout_desc dropout = rg_dropout_desc_default();
    const rg_arithmetic_desc plus = rg_arithmetic_desc_default();
    rg_sgd_desc sgd = rg_sgd_desc_default();
    dense.bias = false;
    sgd.momentum = 0.5;
    rg_value *x = rg_graph_source(graph, "x"), *w1 = rg_graph_parameter_from(graph, "w1", &source);
    rg_value *w2 = rg_graph_parameter(graph, "w2", &source.desc);
    rg_value *rate = rg_graph_parameter(graph, "rate", &number);
    rg_value *h = rg_node_output(rg_graph_dense(graph, &dense, (rg_value *[]){ x, w1 }), 0);
    rg_node *drop = rg_graph_dropout(graph, &dropout, &h);
    rg_value *a = rg_node_output(drop, 0);
    rg_value *b = rg_node_output(rg_graph_dense(graph, &dense, (rg_value *[]){ a, w2 }), 0);
    rg_value *y = rg_node_output(rg_graph_arithmetic(graph, &plus, (rg_value *[]){ a, b }), 0);
    rg_value *c = rg_node_output(rg_graph_dense(graph, &dense, (rg_value *[]){ y, w2 }), 0);
    rg_value *loss = fused(graph, c, x);
    rg_graph_state_result(graph, drop, "mask");
    rg_graph_result(graph, y, "y");
    rg_graph_result(graph, loss, "loss");
    rg_graph_gradients(graph, (rg_value *[]){ y, loss }, NULL, 2, NULL, NULL);
    rg_graph_result(graph, rg_value_gradient(rg_graph_find_value(graph, "b")), "db");
    rg_graph_update(graph, "sgd", &sgd, w2, rg_value_gradient(w2), rate, NULL, NULL);
    (void)rg_node_state(drop);
}

/* The gradient of a dropout that runs elsewhere. */
static void build_back(rg_graph *graph)
{
    const rg_dropout_desc dropout = rg_dropout_desc_default();
    rg_value *dy = rg_graph_source(graph, "dy");
    rg_state_value *state = rg_graph_source_state(graph, "mask", "dropout", &dropout);
    const rg_gradient_values values = { .dy = &dy, .dy_count = 1 };
    rg_node *node = rg_graph_gradient_from_state(graph, state, &values, 0);
    rg_graph_result(graph, rg_node_output(node, 0), "dx");
}

static rg_status run_plan(rg_queue *queue, rg_plan *plan, rg_tensor *const images[])
{
    rg_commands *commands = NULL;
    rg_status status = rg_commands_create(queue, &commands);
    if (status == RG_OK)
        status = rg_plan_encode(plan, commands, images);
    if (status == RG_OK)
        status = rg_commands_commit(commands);
    if (status == RG_OK)
        status = rg_commands_wait(commands);
    rg_commands_destroy(commands);
    commands = NULL;
    if (status == RG_OK)
        status = rg_commands_create(queue, &commands);
    if (status == RG_OK)
        status = rg_plan_encode_batch(plan, commands, 2, images);
    rg_commands_destroy(commands); /* dropped */
    return status;
}

#if RG_TEST_FILES
static rg_status write_and_read(const rg_graph *graph)
{
    static char text[1 << 16];
    rg_graph *back = NULL;
    const size_t length = rg_graph_to_json(graph, text, sizeof text);
    const rg_status status = rg_graph_from_json(text, length, &back);
    EXPECT(status != RG_OK || rg_graph_equal(graph, back));
    rg_graph_destroy(back);
    return status;
}
#else
static rg_status write_and_read(const rg_graph *graph)
{
    (void)graph;
    return RG_OK;
}
#endif

static rg_status run_all(rig *r, rg_tensor *const images[])
{
    rg_graph *graph = NULL, *copy = NULL;
    rg_plan *plan = NULL, *second = NULL;
    rg_status status = rg_graph_create(&graph);
    if (status != RG_OK)
        return status;
    build(graph);
    status = rg_graph_status(graph);
    if (status == RG_OK)
        status = rg_graph_copy(graph, &copy);
    if (status == RG_OK)
        status = write_and_read(graph);
    if (status == RG_OK)
        status = rg_plan_create(r->device, graph, NULL, &plan);
    if (status == RG_OK)
        status = run_plan(r->queue, plan, images);
    if (status == RG_OK)
        status = rg_plan_copy(plan, NULL, &second);
    rg_plan_destroy(second);
    rg_plan_destroy(plan);
    rg_graph_destroy(copy);
    rg_graph_destroy(graph);
    return status;
}

/* Back for one image, and for two that have states of their own. */
static rg_status run_back_plan(rig *r, rg_plan *plan, rg_tensor *const images[])
{
    const rg_dropout_desc desc = rg_dropout_desc_default();
    rg_kernel *kernel = NULL;
    rg_commands *commands = NULL;
    rg_tensor *y[2] = { NULL, NULL };
    rg_state *states[2] = { NULL, NULL };
    rg_status status = rg_dropout_create(r->device, &desc, &kernel);
    if (status == RG_OK)
        status = rg_commands_create(r->queue, &commands);
    if (status == RG_OK)
        status = rg_kernel_forward_alloc(kernel, commands, 2, images, false, y, states);
    if (status == RG_OK)
        status = rg_plan_encode_with_states(plan, commands, images, 1, states, 1);
    if (status == RG_OK)
        status = rg_plan_encode_batch_with_states(plan, commands, 2, images, 2, states, 2);
    rg_commands_destroy(commands); /* dropped */
    for (int n = 0; n < 2; n++) {
        rg_tensor_destroy(y[n]);
        rg_state_destroy(states[n]);
    }
    rg_kernel_destroy(kernel);
    return status;
}

static rg_status run_back(rig *r, rg_tensor *const images[])
{
    rg_graph *graph = NULL;
    rg_plan *plan = NULL, *second = NULL;
    rg_status status = rg_graph_create(&graph);
    if (status != RG_OK)
        return status;
    build_back(graph);
    status = rg_graph_status(graph);
    if (status == RG_OK)
        status = write_and_read(graph);
    if (status == RG_OK)
        status = rg_plan_create(r->device, graph, NULL, &plan);
    if (status == RG_OK)
        status = run_back_plan(r, plan, images);
    if (status == RG_OK)
        status = rg_plan_copy(plan, NULL, &second);
    rg_plan_destroy(second);
    rg_plan_destroy(plan);
    rg_graph_destroy(graph);
    return status;
}

int main(void)
{
    rig r = rig_open(1);
    rg_tensor *images[2];
    for (uint64_t i = 0; i < 2; i++)
        images[i] = filled(r.device, RG_F64, 2, DIMS(3, 2), i);
    int64_t n = 1;
    for (; n < 20000; n++) {
        calls_left = n;
        rg_status status = run_all(&r, images);
        if (status == RG_OK)
            status = run_back(&r, images);
        const bool reached = calls_left == 0;
        calls_left = 0;
        if (!reached) { /* none failed */
            EXPECT(status == RG_OK && n > 100);
            break;
        }
        EXPECT_FAILS(status, RG_OUT_OF_MEMORY, "out of memory");
        if (status != RG_OUT_OF_MEMORY)
            printf("call %lld: %s\n", (long long)n, rg_status_name(status));
    }
    EXPECT(n < 20000);
    for (int i = 0; i < 2; i++)
        rg_tensor_destroy(images[i]);
    rig_close(&r);
    return rg_test_report();
}
