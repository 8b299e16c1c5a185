/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Batches of separate images in plans as in MPS: each image is one image, each read is counted. On
 * any device. docs/mps.md names these tests. */
#include "any_device.h"
#include "graph_f64.h"

#include <math.h>

/* The 3x3 average of images (h, w, c), with zeros around them. */
static rg_value *average(rg_graph *graph, rg_value *x)
{
    rg_pool_desc desc = rg_pool_desc_default();
    desc.kind = RG_POOL_AVERAGE;
    desc.window[0] = desc.window[1] = 3;
    desc.stride[0] = desc.stride[1] = 1;
    desc.padding.policy = RG_PADDING_SAME;
    return rg_node_output(rg_graph_pool(graph, &desc, &x), 0);
}

/* Two images of 2 by 3 pixels: no window sees pixels of both. */
static void test_images_of_rank_3(rig *r)
{
    rg_graph *graph = graph_new();
    rg_value *x = rg_graph_source(graph, "x"), *scale = rg_graph_source(graph, "scale");
    EXPECT_OK(rg_graph_result(graph, average(graph, x), "y"));
    EXPECT_OK(rg_graph_result(graph, f64_neuron(graph, RG_NEURON_ABSOLUTE, scale), "scales"));
    rg_plan *plan = f64_plan(r->device, graph);
    rg_tensor *sources[4];
    double in[2][6], out[12], numbers[2] = { -2, 3 }, scales[2];
    for (int n = 0; n < 2; n++) {
        sources[n] = filled(r->device, RG_F64, 3, DIMS(2, 3, 1), 7 + (uint64_t)n);
        sources[2 + n] = tensor_of(r->device, RG_F64, 0, NULL);
        EXPECT_OK(rg_tensor_read(sources[n], in[n], sizeof in[n], RG_LAYOUT_SAME));
        EXPECT_OK(rg_tensor_write(sources[2 + n], &numbers[n], 8, RG_LAYOUT_SAME));
    }
    EXPECT_OK(rg_plan_encode_batch(plan, r->commands, 2, sources));
    EXPECT_OK(rig_run(r));
    rg_tensor_desc desc = { 0 };
    EXPECT_OK(rg_tensor_get_desc(f64_result(plan, "y"), &desc));
    EXPECT(desc.rank == 4 && desc.dims[0] == 2 && desc.dims[1] == 2 && desc.dims[2] == 3);
    f64_read(plan, "y", out);
    f64_read(plan, "scales", scales);
    EXPECT(scales[0] == 2 && scales[1] == 3);
    for (int n = 0; n < 2; n++) {
        for (int j = 0; j < 3; j++) { /* both rows see both rows */
            double sum = 0;
            for (int q = 0; q < 3; q++)
                sum += abs(q - j) < 2 ? in[n][q] + in[n][3 + q] : 0;
            EXPECT(fabs(out[6 * n + j] - sum / 9) < 1e-12);
            EXPECT(fabs(out[6 * n + 3 + j] - sum / 9) < 1e-12);
        }
    }
    for (int i = 0; i < 4; i++)
        rg_tensor_destroy(sources[i]);
    rg_plan_destroy(plan);
    rg_graph_destroy(graph);
}

/* A source that two nodes read: each encode takes two reads of each image, however many. */
static void test_read_counts(rig *r)
{
    rg_graph *graph = graph_new();
    rg_value *x = rg_graph_source(graph, "x");
    rg_value *y = f64_sum(graph, f64_neuron(graph, RG_NEURON_TANH, x),
                          f64_neuron(graph, RG_NEURON_SIGMOID, x));
    EXPECT_OK(rg_graph_result(graph, y, "y"));
    rg_plan *plan = f64_plan(r->device, graph);
    const rg_tensor_desc shape = rg_tensor_desc_dense(RG_F64, 3, DIMS(2, 3, 1));
    const double zeros[6] = { 0 };
    for (int64_t count = 1; count <= 3; count++) {
        rg_tensor *images[3] = { NULL };
        for (int64_t n = 0; n < count; n++) {
            EXPECT_OK(rg_tensor_create_temporary(r->commands, &shape, &images[n]));
            EXPECT_OK(
                rg_commands_write(r->commands, images[n], zeros, sizeof zeros, RG_LAYOUT_SAME));
        }
        EXPECT_FAILS(rg_plan_encode_batch(plan, r->commands, count, images), RG_INVALID_STATE,
                     "read 2 times");
        EXPECT(rg_tensor_read_count(images[0]) == 1);
        EXPECT(rg_tensor_add_read_count(images, (size_t)count, 4) == (size_t)count);
        EXPECT_OK(rg_plan_encode_batch(plan, r->commands, count, images));
        EXPECT(rg_plan_source_reads(plan, 0) == 2);
        for (int64_t n = 0; n < count; n++)
            EXPECT(rg_tensor_read_count(images[n]) == 3);
        rg_tensor *again[3] = { images[0], images[count - 1], images[0] };
        EXPECT_OK(rg_plan_encode_batch(plan, r->commands, 3, again)); /* once for each tensor */
        EXPECT(rg_tensor_read_count(images[0]) == 1);
        EXPECT(rg_tensor_read_count(images[count - 1]) == 1);
        EXPECT_OK(rig_run(r));
        for (int64_t n = 0; n < count; n++)
            rg_tensor_destroy(images[n]);
    }
    rg_plan_destroy(plan);
    rg_graph_destroy(graph);
}

/* The sentence about a shape: the node, its inputs and who makes them, then what is wrong. */
static void test_shape_sentence(rig *r)
{
    rg_graph *graph = graph_new();
    EXPECT_OK(rg_graph_result(graph, average(graph, rg_graph_source(graph, "x")), "y"));
    rg_plan *plan = f64_plan(r->device, graph);
    const rg_tensor_desc shape = rg_tensor_desc_dense(RG_F64, 1, DIMS(3));
    EXPECT_FAILS(rg_plan_prepare(plan, &shape), RG_INVALID_ARGUMENT,
                 "pool_0, of f64[3] from x: pool: x has rank 1");
    rg_plan_destroy(plan);
    rg_graph_destroy(graph);
}

int main(void)
{
    RUN_ON_DEVICES(test_images_of_rank_3, test_read_counts, test_shape_sentence);
    return rg_test_report();
}
