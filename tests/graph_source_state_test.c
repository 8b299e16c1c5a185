/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* States that plans are given, as sourceStates in MPS: of kernels, of other plans, temporary ones,
 * one for each image of a batch. On any device. docs/mps.md names these tests. */
#include "any_device.h"
#include "graph_f64.h"

/* A graph of one gradient node that reads a state, and no more than it needs. */
static rg_node *gradient_graph(rg_graph *graph, const char *op, const void *desc)
{
    rg_value *dy = rg_graph_source(graph, "dy");
    rg_state_value *state = rg_graph_source_state(graph, "state", op, desc);
    const rg_gradient_values values = { .dy = &dy, .dy_count = 1 };
    rg_node *node = rg_graph_gradient_from_state(graph, state, &values, 0);
    EXPECT(rg_node_source_state(node) == state && rg_state_value_node(state) == NULL);
    EXPECT_OK(rg_graph_result(graph, rg_node_output(node, 0), "dx"));
    return node;
}

static rg_plan *gradient_plan(rig *r, const char *op, const void *desc)
{
    rg_graph *graph = graph_new();
    gradient_graph(graph, op, desc);
    rg_plan *plan = f64_plan(r->device, graph);
    rg_graph_destroy(graph);
    return plan;
}

static rg_pool_desc pool_desc(void)
{
    rg_pool_desc desc = rg_pool_desc_default();
    desc.stride[0] = desc.stride[1] = 1; /* windows overlap: ties would show */
    return desc;
}

/* ---- one state ---- */

/* The gradient of a kernel that ran elsewhere, by the kernel and by a plan: the same bits. */
static void check_elsewhere(rig *r, rg_kernel *kernel, const void *desc, rg_tensor *x, int runs)
{
    rg_tensor *y = NULL, *dx = NULL;
    rg_state *state = NULL;
    rg_plan *plan = gradient_plan(r, rg_kernel_op(kernel), desc);
    EXPECT(rg_plan_sources(plan) == 1 && rg_plan_source_states(plan) == 1);
    EXPECT(strcmp(rg_plan_source_state_name(plan, 0), "state") == 0);
    EXPECT(rg_plan_source_state_name(plan, 1) == NULL);
    EXPECT_OK(rg_kernel_forward_alloc(kernel, r->commands, 1, &x, false, &y, &state));
    EXPECT_OK(rig_run(r));
    fill(y, 11); /* as dy */
    EXPECT_OK(
        rg_kernel_gradient_alloc(kernel, r->commands, 1, &y, NULL, NULL, &state, 1, false, &dx));
    for (int run = 0; run < runs; run++) {
        EXPECT_OK(rg_plan_encode_with_states(plan, r->commands, &y, 1, &state, 1));
        EXPECT_OK(rig_run(r));
        EXPECT(same_bits(dx, f64_result(plan, "dx")));
    }
    EXPECT(rg_plan_source_state_reads(plan, 0) == 1 && rg_plan_source_state_reads(plan, 1) == 0);
    rg_plan *copy = NULL;
    EXPECT_OK(rg_plan_copy(plan, NULL, &copy));
    EXPECT_OK(rg_plan_encode_with_states(copy, r->commands, &y, 1, &state, 1));
    EXPECT_OK(rig_run(r));
    EXPECT(same_bits(dx, f64_result(copy, "dx")));
    rg_plan_destroy(copy);
    rg_plan_destroy(plan);
    rg_state_destroy(state);
    rg_tensor_destroy(y);
    rg_tensor_destroy(dx);
}

static void test_elsewhere(rig *r)
{
    const rg_pool_desc pool = pool_desc();
    const rg_dropout_desc dropout = rg_dropout_desc_default();
    rg_kernel *kernel = NULL;
    for (int64_t size = 3; size < 9; size += 5) {
        rg_tensor *x = filled(r->device, RG_F64, 4, DIMS(2, size, size, 3), 5);
        EXPECT_OK(rg_pool_create(r->device, &pool, &kernel));
        check_elsewhere(r, kernel, &pool, x, 3);
        rg_kernel_destroy(kernel);
        EXPECT_OK(rg_dropout_create(r->device, &dropout, &kernel));
        check_elsewhere(r, kernel, &dropout, x, 3);
        rg_kernel_destroy(kernel);
        rg_tensor_destroy(x);
    }
}

/* One plan goes forward, another one back: the mask of run number n. */
static void test_other_plan(rig *r)
{
    enum { COUNT = 60 };
    const rg_dropout_desc desc = rg_dropout_desc_default();
    rg_graph *graph = graph_new();
    rg_value *in = rg_graph_source(graph, "x");
    rg_node *node = rg_graph_dropout(graph, &desc, &in);
    EXPECT_OK(rg_graph_result(graph, rg_node_output(node, 0), "y"));
    EXPECT_OK(rg_graph_state_result(graph, node, "mask"));
    rg_plan *forward = f64_plan(r->device, graph), *back = gradient_plan(r, "dropout", &desc);
    rg_tensor *ones = tensor_of(r->device, RG_F64, 1, DIMS(COUNT));
    double one[COUNT], y[3][COUNT], dx[COUNT];
    for (int i = 0; i < COUNT; i++)
        one[i] = 1;
    EXPECT_OK(rg_tensor_write(ones, one, sizeof one, RG_LAYOUT_SAME));
    for (int run = 0; run < 3; run++) {
        rg_state *mask = NULL;
        f64_run(r, forward, &ones);
        f64_read(forward, "y", y[run]);
        EXPECT_OK(rg_plan_state(forward, "mask", &mask));
        EXPECT_OK(rg_plan_encode_with_states(back, r->commands, &ones, 1, &mask, 1));
        EXPECT_OK(rig_run(r));
        f64_read(back, "dx", dx);
        EXPECT(memcmp(dx, y[run], sizeof dx) == 0);
    }
    EXPECT(memcmp(y[0], y[1], sizeof dx) != 0 && memcmp(y[1], y[2], sizeof dx) != 0);
    rg_tensor_destroy(ones);
    rg_plan_destroy(forward);
    rg_plan_destroy(back);
    rg_graph_destroy(graph);
}

/* Two gradient nodes read one temporary state: it must have two reads, and loses both. */
static void test_temporary(rig *r)
{
    const rg_pool_desc desc = pool_desc();
    rg_graph *graph = graph_new();
    rg_state_value *state = rg_graph_source_state(graph, "winners", "pool", &desc);
    for (int i = 0; i < 2; i++) {
        rg_value *dy = rg_graph_source(graph, i == 0 ? "a" : "b");
        const rg_gradient_values values = { .dy = &dy, .dy_count = 1 };
        rg_node *node = rg_graph_gradient_from_state(graph, state, &values, 1);
        EXPECT_OK(rg_graph_result(graph, rg_node_output(node, 0), i == 0 ? "da" : "db"));
    }
    rg_plan *plan = f64_plan(r->device, graph);
    rg_kernel *kernel = NULL;
    EXPECT_OK(rg_pool_create(r->device, &desc, &kernel));
    rg_tensor *x = filled(r->device, RG_F64, 4, DIMS(1, 4, 4, 2), 3), *y = NULL, *dx[2];
    rg_state *made = NULL;
    for (int run = 0; run < 2; run++) {
        EXPECT_OK(rg_kernel_forward_alloc(kernel, r->commands, 1, &x, true, &y, &made));
        rg_tensor *const dy[] = { filled(r->device, RG_F64, 4, DIMS(1, 3, 3, 2), 1),
                                  filled(r->device, RG_F64, 4, DIMS(1, 3, 3, 2), 2) };
        EXPECT(rg_state_is_temporary(made) && rg_state_read_count(made) == 1);
        EXPECT_FAILS(rg_plan_encode_with_states(plan, r->commands, dy, 2, &made, 1),
                     RG_INVALID_STATE,
                     "the state 'winners' is a temporary with a read count of 1, and is read 2 "
                     "times");
        EXPECT(rg_state_read_count(made) == 1 && rg_plan_source_state_reads(plan, 0) == 2);
        EXPECT_OK(rg_state_set_read_count(made, 4));
        for (int i = 0; i < 2; i++)
            EXPECT_OK(rg_kernel_gradient_alloc(kernel, r->commands, 1, &dy[i], NULL, NULL, &made, 1,
                                               false, &dx[i]));
        EXPECT_OK(rg_plan_encode_with_states(plan, r->commands, dy, 2, &made, 1));
        EXPECT(rg_state_read_count(made) == 0);
        EXPECT_FAILS(rg_plan_encode_with_states(plan, r->commands, dy, 2, &made, 1),
                     RG_INVALID_STATE, "already released");
        EXPECT_OK(rig_run(r));
        EXPECT(same_bits(dx[0], f64_result(plan, "da")));
        EXPECT(same_bits(dx[1], f64_result(plan, "db")));
        for (int i = 0; i < 2; i++) {
            rg_tensor_destroy(dx[i]);
            rg_tensor_destroy(dy[i]);
        }
        rg_tensor_destroy(y);
        rg_state_destroy(made);
    }
    rg_tensor_destroy(x);
    rg_kernel_destroy(kernel);
    rg_plan_destroy(plan);
    rg_graph_destroy(graph);
}

/* MPSStateBatchIncrementReadCount: of each distinct temporary, once. */
static void test_state_counts(rig *r)
{
    const rg_dropout_desc desc = rg_dropout_desc_default();
    rg_kernel *kernel = NULL;
    rg_state *a = NULL, *b = NULL, *kept = NULL;
    rg_tensor *x = filled(r->device, RG_F64, 1, DIMS(9), 1);
    EXPECT_OK(rg_dropout_create(r->device, &desc, &kernel));
    EXPECT_OK(rg_state_create_temporary(kernel, r->commands, &x, &a));
    EXPECT_OK(rg_state_create_temporary(kernel, r->commands, &x, &b));
    EXPECT_OK(rg_state_create(kernel, &x, &kept));
    rg_state *const batch[] = { a, a, b, kept };
    EXPECT(rg_state_add_read_count(batch, 4, 2) == 3);
    EXPECT(rg_state_read_count(a) == 3 && rg_state_read_count(b) == 3);
    EXPECT(rg_state_read_count(kept) == 0);
    EXPECT(rg_state_add_read_count(batch, 2, -3) == 1 && rg_state_read_count(a) == 0);
    EXPECT_OK(rig_run(r));
    rg_state_destroy(a);
    rg_state_destroy(b);
    rg_state_destroy(kept);
    rg_tensor_destroy(x);
    rg_kernel_destroy(kernel);
}

/* ---- batches of images with states of their own ---- */

enum { IMAGES = 3 };

/* Images of `rank` dimensions: kernels go over them one by one, the plan over all. */
static void check_images(rig *r, rg_kernel *kernel, const void *desc, int32_t rank, bool temporary)
{
    rg_tensor *x[IMAGES], *y[IMAGES], *dy[IMAGES], *dx[IMAGES];
    rg_state *states[IMAGES];
    const int64_t dims[] = { 1, 3, 5, 2 };
    rg_plan *plan = gradient_plan(r, rg_kernel_op(kernel), desc);
    for (int n = 0; n < IMAGES; n++)
        x[n] = filled(r->device, RG_F64, rank, dims + 4 - rank, 20 + (uint64_t)n);
    for (int run = 0; run < 2; run++) {
        EXPECT_OK(rg_kernel_forward_alloc(kernel, r->commands, IMAGES, x, temporary, y, states));
        for (int n = 0; n < IMAGES; n++) {
            rg_tensor_desc d;
            EXPECT_OK(rg_tensor_get_desc(y[n], &d));
            dy[n] = filled(r->device, RG_F64, d.rank, d.dims, 30 + (uint64_t)n);
            if (temporary)
                EXPECT_OK(rg_state_set_read_count(states[n], 3));
        }
        EXPECT_OK(rg_kernel_gradient_alloc(kernel, r->commands, IMAGES, dy, NULL, NULL, states, 1,
                                           false, dx));
        EXPECT_OK(rg_plan_encode_batch_with_states(plan, r->commands, IMAGES, dy, IMAGES, states,
                                                   IMAGES));
        for (int n = 0; n < IMAGES; n++)
            EXPECT(rg_state_read_count(states[n]) == (temporary ? 1 : 0));
        EXPECT_OK(rig_run(r));
        double all[IMAGES * 30], one[30];
        f64_read(plan, "dx", all);
        for (int n = 0; n < IMAGES; n++) {
            EXPECT_OK(rg_tensor_read(dx[n], one, sizeof one, RG_LAYOUT_SAME));
            EXPECT(memcmp(one, all + 30 * n, sizeof one) == 0);
            rg_tensor_destroy(dx[n]);
            rg_tensor_destroy(dy[n]);
            rg_tensor_destroy(y[n]);
            rg_state_destroy(states[n]);
        }
    }
    for (int n = 0; n < IMAGES; n++)
        rg_tensor_destroy(x[n]);
    rg_plan_destroy(plan);
}

static void test_images(rig *r)
{
    const rg_pool_desc pool = pool_desc();
    rg_dropout_desc dropout = rg_dropout_desc_default(); /* 30 bits do not end with a byte */
    rg_kernel *kernel = NULL;
    for (int32_t rank = 3; rank <= 4; rank++) {
        for (int temporary = 0; temporary < 2; temporary++) {
            EXPECT_OK(rg_pool_create(r->device, &pool, &kernel));
            check_images(r, kernel, &pool, rank, temporary);
            rg_kernel_destroy(kernel);
            EXPECT_OK(rg_dropout_create(r->device, &dropout, &kernel));
            check_images(r, kernel, &dropout, rank, temporary);
            rg_kernel_destroy(kernel);
        }
    }
}

/* One state for the whole batch is repeated, as isResultStateReusedAcrossBatch says. */
static void test_shared_state(rig *r)
{
    const rg_pool_desc desc = pool_desc();
    rg_kernel *kernel = NULL;
    EXPECT_OK(rg_pool_create(r->device, &desc, &kernel));
    rg_tensor *x = filled(r->device, RG_F64, 4, DIMS(2, 3, 3, 1), 9), *y = NULL, *dx = NULL;
    rg_tensor *dy = filled(r->device, RG_F64, 4, DIMS(2, 2, 2, 1), 8), *images[2];
    rg_state *state = NULL;
    EXPECT_OK(rg_kernel_forward_alloc(kernel, r->commands, 1, &x, false, &y, &state));
    EXPECT_OK(
        rg_kernel_gradient_alloc(kernel, r->commands, 1, &dy, NULL, NULL, &state, 1, false, &dx));
    for (int64_t n = 0; n < 2; n++)
        EXPECT_OK(rg_tensor_slice(dy, DIMS(n, 0, 0, 0), DIMS(1, 2, 2, 1), NULL, &images[n]));
    rg_plan *plan = gradient_plan(r, "pool", &desc);
    rg_state *const states[] = { state, state };
    EXPECT_OK(rg_plan_encode_batch_with_states(plan, r->commands, 2, images, 2, states, 2));
    EXPECT_OK(rig_run(r));
    EXPECT(same_bits(dx, f64_result(plan, "dx")));
    for (int n = 0; n < 2; n++)
        rg_tensor_destroy(images[n]);
    rg_tensor_destroy(x);
    rg_tensor_destroy(y);
    rg_tensor_destroy(dy);
    rg_tensor_destroy(dx);
    rg_state_destroy(state);
    rg_plan_destroy(plan);
    rg_kernel_destroy(kernel);
}

/* x, w and b of two images, which share w and b. */
static void fill_images(rig *r, rg_tensor *in[6])
{
    rg_tensor *w = filled(r->device, RG_F64, 4, DIMS(2, 1, 1, 3), 1);
    rg_tensor *b = filled(r->device, RG_F64, 1, DIMS(2), 2);
    for (int n = 0; n < 2; n++) {
        in[n] = filled(r->device, RG_F64, 4, DIMS(1, 2, 2, 3), 3 + (uint64_t)n);
        in[2 + n] = w;
        in[4 + n] = b;
    }
}

/* A convolution with a neuron that its state is needed for: images have dx of their own, and add
 * up dw and db in their order, as kernels do. */
static void test_convolution(rig *r)
{
    rg_conv_desc desc = rg_conv_desc_default();
    desc.neuron.kind = RG_NEURON_GELU;
    rg_kernel *kernel = NULL;
    EXPECT_OK(rg_conv_create(r->device, &desc, &kernel));
    rg_graph *graph = graph_new();
    rg_state_value *state = rg_graph_source_state(graph, "z", "conv", &desc);
    rg_value *const x[] = { rg_graph_source(graph, "x"), rg_graph_source(graph, "w"),
                            rg_graph_source(graph, "b") };
    rg_value *dy = rg_graph_source(graph, "dy");
    const rg_gradient_values values = { &dy, 1, x, 3, NULL, 0 };
    rg_node *node = rg_graph_gradient_from_state(graph, state, &values, 7);
    static const char *const names[] = { "dx", "dw", "db" };
    for (int i = 0; i < 3; i++)
        EXPECT_OK(rg_graph_result(graph, rg_node_output(node, i), names[i]));
    rg_plan *plan = f64_plan(r->device, graph);
    rg_tensor *in[6], *y[2], *sources[8], *dx[6], *sums[3];
    rg_state *states[2];
    fill_images(r, in);
    EXPECT_OK(rg_kernel_forward_alloc(kernel, r->commands, 2, in, false, y, states));
    for (int n = 0; n < 2; n++)
        sources[6 + n] = filled(r->device, RG_F64, 4, DIMS(1, 2, 2, 2), 6 + (uint64_t)n);
    memcpy(sources, in, 6 * sizeof in[0]);
    sums[1] = tensor_of(r->device, RG_F64, 4, DIMS(2, 1, 1, 3));
    sums[2] = tensor_of(r->device, RG_F64, 1, DIMS(2));
    for (int n = 0; n < 2; n++) {
        dx[n] = tensor_of(r->device, RG_F64, 4, DIMS(1, 2, 2, 3));
        dx[2 + n] = sums[1];
        dx[4 + n] = sums[2];
    }
    EXPECT_OK(
        rg_kernel_gradient_batch(kernel, r->commands, 2, sources + 6, in, NULL, states, dx, 0));
    EXPECT_OK(rg_plan_encode_batch_with_states(plan, r->commands, 2, sources, 8, states, 2));
    EXPECT_OK(rig_run(r));
    double all[24], one[12];
    f64_read(plan, "dx", all);
    for (int n = 0; n < 2; n++) {
        EXPECT_OK(rg_tensor_read(dx[n], one, sizeof one, RG_LAYOUT_SAME));
        EXPECT(memcmp(one, all + 12 * n, sizeof one) == 0);
    }
    EXPECT(same_bits(sums[1], f64_result(plan, "dw")));
    EXPECT(same_bits(sums[2], f64_result(plan, "db")));
    for (int n = 0; n < 2; n++) {
        rg_tensor_destroy(in[n]);
        rg_tensor_destroy(y[n]);
        rg_tensor_destroy(sources[6 + n]);
        rg_tensor_destroy(dx[n]);
        rg_tensor_destroy(sums[1 + n]);
        rg_state_destroy(states[n]);
    }
    rg_tensor_destroy(in[2]);
    rg_tensor_destroy(in[4]);
    rg_kernel_destroy(kernel);
    rg_plan_destroy(plan);
    rg_graph_destroy(graph);
}

/* ---- states of nodes as values ---- */

/* A node has one state; gradient nodes for single sources may all read it, as those of MPS's
 * concatenation do. */
static void test_state_of_node(rig *r)
{
    const rg_concat_desc desc = rg_concat_desc_default();
    rg_graph *graph = graph_new(), *copy = NULL;
    rg_value *const x[] = { rg_graph_source(graph, "a"), rg_graph_source(graph, "b") };
    rg_value *dy = rg_graph_source(graph, "dy");
    rg_node *node = rg_graph_concat(graph, &desc, x);
    rg_state_value *state = rg_node_state(node);
    int tag;
    EXPECT(state != NULL && rg_node_state(node) == state && rg_state_value_node(state) == node);
    EXPECT(strcmp(rg_state_value_name(state), "") == 0 && rg_state_value_handle(state) == NULL);
    EXPECT_OK(rg_state_value_set_handle(state, &tag));
    const rg_gradient_values values = { .dy = &dy, .dy_count = 1 };
    for (int32_t i = 0; i < 2; i++) {
        rg_node *gradient = rg_graph_gradient_from_state(graph, state, &values, UINT64_C(1) << i);
        EXPECT(rg_node_forward(gradient) == node && rg_node_source_state(gradient) == state);
        EXPECT(rg_node_state(gradient) == NULL && rg_node_is_gradient(gradient));
        EXPECT_OK(rg_graph_result(graph, rg_node_output(gradient, i), i == 0 ? "da" : "db"));
    }
    EXPECT_OK(rg_graph_result(graph, rg_node_output(node, 0), "y"));
    EXPECT_OK(rg_graph_copy(graph, &copy));
    EXPECT(rg_state_value_handle(rg_node_state(rg_graph_node_at(copy, 0))) == &tag);
    rg_plan *plan = f64_plan(r->device, copy);
    EXPECT(rg_plan_source_states(plan) == 0);
    rg_tensor *const sources[] = { filled(r->device, RG_F64, 2, DIMS(2, 1), 1),
                                   filled(r->device, RG_F64, 2, DIMS(2, 2), 2),
                                   filled(r->device, RG_F64, 2, DIMS(2, 3), 3) };
    double all[6], da[2], db[4];
    f64_run(r, plan, sources);
    EXPECT_OK(rg_tensor_read(sources[2], all, sizeof all, RG_LAYOUT_SAME));
    f64_read(plan, "da", da);
    f64_read(plan, "db", db);
    EXPECT(da[0] == all[0] && da[1] == all[3] && db[0] == all[1] && db[1] == all[2]);
    EXPECT(db[2] == all[4] && db[3] == all[5]);
    for (int i = 0; i < 3; i++)
        rg_tensor_destroy(sources[i]);
    rg_plan_destroy(plan);
    rg_graph_destroy(copy);
    rg_graph_destroy(graph);
}

/* Batch normalization: its gradient reads the statistics of the state. */
static void test_batch_norm(rig *r)
{
    const rg_batch_norm_desc desc = rg_batch_norm_desc_default();
    rg_kernel *kernel = NULL;
    EXPECT_OK(rg_batch_norm_create(r->device, &desc, &kernel));
    rg_graph *graph = graph_new();
    rg_state_value *state = rg_graph_source_state(graph, "statistics", "batch_norm", &desc);
    rg_value *x[8] = { rg_graph_source(graph, "x"), rg_graph_source(graph, "gamma"),
                       rg_graph_source(graph, "beta") };
    rg_value *dy[] = { rg_graph_source(graph, "dy"), NULL, NULL };
    const rg_gradient_values values = { dy, 3, x, 8, NULL, 0 };
    rg_node *node = rg_graph_gradient_from_state(graph, state, &values, 3);
    EXPECT_OK(rg_graph_result(graph, rg_node_output(node, 0), "dx"));
    EXPECT_OK(rg_graph_result(graph, rg_node_output(node, 1), "dgamma"));
    rg_plan *plan = f64_plan(r->device, graph);
    EXPECT(rg_kernel_inputs(kernel) == 3);
    rg_tensor *in[3] = { filled(r->device, RG_F64, 2, DIMS(5, 2), 1),
                         filled(r->device, RG_F64, 1, DIMS(2), 2),
                         filled(r->device, RG_F64, 1, DIMS(2), 3) };
    rg_tensor *up[3] = { filled(r->device, RG_F64, 2, DIMS(5, 2), 4), NULL, NULL };
    rg_tensor *y[3] = { NULL }, *dx[3];
    rg_state *made = NULL;
    EXPECT_OK(rg_kernel_forward_alloc(kernel, r->commands, 1, in, false, y, &made));
    EXPECT_OK(rg_kernel_gradient_alloc(kernel, r->commands, 1, up, in, NULL, &made, 3, false, dx));
    rg_tensor *sources[4];
    EXPECT(rg_plan_sources(plan) == 3 || rg_plan_sources(plan) == 4);
    for (int32_t i = 0; i < rg_plan_sources(plan); i++) {
        const char *name = rg_plan_source_name(plan, i);
        sources[i] = strcmp(name, "x") == 0       ? in[0]
                     : strcmp(name, "gamma") == 0 ? in[1]
                     : strcmp(name, "beta") == 0  ? in[2]
                                                  : up[0];
    }
    EXPECT_OK(
        rg_plan_encode_with_states(plan, r->commands, sources, rg_plan_sources(plan), &made, 1));
    EXPECT_OK(rig_run(r));
    EXPECT(same_bits(dx[0], f64_result(plan, "dx")));
    EXPECT(same_bits(dx[1], f64_result(plan, "dgamma")));
    for (int i = 0; i < 3; i++) {
        rg_tensor_destroy(in[i]);
        rg_tensor_destroy(y[i]);
        rg_tensor_destroy(dx[i]);
    }
    rg_tensor_destroy(up[0]);
    rg_state_destroy(made);
    rg_kernel_destroy(kernel);
    rg_plan_destroy(plan);
    rg_graph_destroy(graph);
}

int main(void)
{
    RUN_ON_DEVICES(test_state_counts, test_elsewhere, test_other_plan, test_temporary, test_images,
                   test_shared_state, test_convolution, test_state_of_node, test_batch_norm);
    return rg_test_report();
}
