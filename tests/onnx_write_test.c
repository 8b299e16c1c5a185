/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* ONNX models that are written, by the public header alone: graphs, imported networks with changed
 * parameters, and what is wrong. */
#include "tests/scratch_folder.h"

#include <retrograde/nodes.h>
#include <retrograde/onnx.h>
#include <retrograde/safetensors.h>

static rg_device *device;

/* x (n, 4, 4, 2) -> conv, relu -> "y" (n, 4, 4, 3) */
static rg_graph *make_graph(void)
{
    rg_graph *graph = NULL;
    rg_conv_desc conv = rg_conv_desc_default();
    const rg_neuron_desc neuron = rg_neuron_desc_default();
    const int64_t dims[] = { 3, 3, 3, 2 }, channels[] = { 3 };
    const rg_tensor_desc w = rg_tensor_desc_dense(RG_F32, 4, dims);
    const rg_tensor_desc b = rg_tensor_desc_dense(RG_F32, 1, channels);
    conv.padding.policy = RG_PADDING_SAME_UPPER;
    EXPECT_OK(rg_graph_create(&graph));
    rg_value *const in[] = { rg_graph_source(graph, "x"), rg_graph_parameter(graph, "w", &w),
                             rg_graph_parameter(graph, "b", &b) };
    rg_value *const z[] = { rg_node_output(rg_graph_conv(graph, &conv, in), 0) };
    rg_value *y = rg_node_output(rg_graph_neuron(graph, &neuron, z), 0);
    EXPECT_OK(rg_graph_result(graph, y, "y"));
    return graph;
}

static rg_plan *make_plan(const rg_graph *graph)
{
    rg_plan *plan = NULL;
    rg_tensor *w = NULL, *b = NULL;
    float values[54], bias[] = { 0.5f, -1, 0 };
    EXPECT_OK(rg_plan_create(device, graph, NULL, &plan));
    EXPECT_OK(rg_plan_parameter(plan, "w", &w));
    EXPECT_OK(rg_plan_parameter(plan, "b", &b));
    for (int i = 0; i < 54; i++)
        values[i] = (float)(i * 7 % 11 - 5) / 8;
    EXPECT_OK(rg_tensor_write(w, values, sizeof values, RG_LAYOUT_SAME));
    EXPECT_OK(rg_tensor_write(b, bias, sizeof bias, RG_LAYOUT_SAME));
    return plan;
}

static rg_onnx_write_desc make_desc(rg_onnx_write_input *input)
{
    const int64_t dims[] = { 1, 4, 4, 2 };
    rg_onnx_write_desc desc = rg_onnx_write_desc_default();
    *input = (rg_onnx_write_input){ "x", rg_tensor_desc_dense(RG_F32, 4, dims) };
    input->desc.dims[0] = -1;
    desc.inputs = input;
    desc.input_count = 1;
    return desc;
}

/* Parameter `name` of a file, up to 54 elements in the order of the file. */
static void read_parameter(const char *path, const char *name, int64_t count, float values[])
{
    rg_onnx *model = NULL;
    rg_onnx_network *network = NULL;
    rg_tensor *tensor = NULL;
    EXPECT_OK(rg_onnx_open(path, &model));
    EXPECT_OK(rg_onnx_network_create(model, NULL, &network));
    EXPECT_OK(rg_onnx_network_constant(network, name, device, &tensor));
    EXPECT_OK(rg_tensor_read(tensor, values, (size_t)count * sizeof *values, RG_LAYOUT_SAME));
    rg_tensor_destroy(tensor);
    rg_onnx_network_destroy(network);
    rg_onnx_close(model);
}

static void test_graph(void)
{
    rg_onnx_write_input input;
    rg_graph *graph = make_graph();
    rg_plan *plan = make_plan(graph);
    const rg_onnx_write_desc desc = make_desc(&input);
    rg_onnx *model = NULL;
    rg_onnx_port_info port;
    float w[54];
    EXPECT_OK(rg_onnx_write(graph, plan, &desc, scratch("graph.onnx")));
    EXPECT_OK(rg_onnx_open(scratch("graph.onnx"), &model));
    EXPECT(rg_onnx_opset(model) == 17);
    EXPECT_OK(rg_onnx_input(model, 0, &port));
    EXPECT(strcmp(port.name, "x") == 0 && port.rank == 4 && port.dims[0] == -1);
    EXPECT(port.dims[1] == 2 && port.dims[2] == 4 && port.dims[3] == 4);
    EXPECT_OK(rg_onnx_output(model, 0, &port));
    EXPECT(strcmp(port.name, "y") == 0 && port.dims[1] == 3 && port.dims[2] == 4);
    EXPECT_OK(rg_onnx_copy(model, scratch("copy.onnx")));
    rg_onnx_close(model);
    read_parameter(scratch("copy.onnx"), "w", 54, w); /* (o, i, h, w) */
    for (int i = 0; i < 54; i++) {
        const int from = ((i / 18 * 3 + i / 3 % 3) * 3 + i % 3) * 2 + i / 9 % 2;
        EXPECT(w[i] == (float)(from * 7 % 11 - 5) / 8);
    }
    rg_plan_destroy(plan);
    rg_graph_destroy(graph);
}

/* Weights in the order of PyTorch; names that have no layer stay. */
static void test_weights(void)
{
    rg_onnx_write_input input;
    rg_graph *graph = make_graph();
    rg_plan *plan = make_plan(graph);
    const rg_onnx_write_desc desc = make_desc(&input);
    rg_safetensors *file = NULL;
    rg_tensor_desc shape;
    size_t index = 0;
    float w[54];
    EXPECT_OK(rg_onnx_write_weights(graph, plan, &desc, scratch("w.safetensors")));
    EXPECT_OK(rg_safetensors_open(scratch("w.safetensors"), &file));
    EXPECT(rg_safetensors_count(file) == 2 && rg_safetensors_find(file, "w", &index));
    EXPECT_OK(rg_safetensors_desc(file, index, &shape));
    EXPECT(shape.rank == 4 && shape.dims[0] == 3 && shape.dims[1] == 2 && shape.dims[3] == 3);
    EXPECT_OK(rg_safetensors_read(file, index, w, sizeof w)); /* (o, i, h, w) */
    for (int i = 0; i < 54; i++) {
        const int from = ((i / 18 * 3 + i / 3 % 3) * 3 + i % 3) * 2 + i / 9 % 2;
        EXPECT(w[i] == (float)(from * 7 % 11 - 5) / 8);
    }
    rg_safetensors_close(file);
    rg_plan_destroy(plan);
    rg_graph_destroy(graph);
}

/* An imported network with one parameter changed. */
static void test_network(void)
{
    rg_onnx *model = NULL;
    rg_onnx_network *network = NULL;
    rg_plan *plan = NULL;
    rg_tensor *b = NULL;
    float values[54], again[54];
    const float bias[] = { 1, 2, 4 };
    EXPECT_OK(rg_onnx_open(scratch("graph.onnx"), &model));
    EXPECT_OK(rg_onnx_network_create(model, NULL, &network));
    EXPECT_OK(rg_plan_create(device, rg_onnx_network_graph(network), NULL, &plan));
    EXPECT_OK(rg_onnx_network_load(network, plan));
    EXPECT_OK(rg_plan_parameter(plan, "b", &b));
    EXPECT_OK(rg_tensor_write(b, bias, sizeof bias, RG_LAYOUT_SAME));
    EXPECT_OK(rg_onnx_network_write(network, plan, NULL, scratch("changed.onnx")));
    read_parameter(scratch("changed.onnx"), "b", 3, values);
    EXPECT(memcmp(values, bias, sizeof bias) == 0);
    read_parameter(scratch("changed.onnx"), "w", 54, values);
    read_parameter(scratch("graph.onnx"), "w", 54, again);
    EXPECT(memcmp(values, again, sizeof values) == 0);
    rg_onnx_write_desc desc = rg_onnx_write_desc_default();
    desc.opset = 21;
    EXPECT_OK(rg_onnx_network_write(network, plan, &desc, scratch("anew.onnx")));
    read_parameter(scratch("anew.onnx"), "w", 54, values);
    EXPECT(memcmp(values, again, sizeof values) == 0);
    EXPECT_OK(rg_onnx_network_write_weights(network, plan, NULL, scratch("w.safetensors")));
    EXPECT_FAILS(rg_onnx_network_write(network, plan, NULL, NULL), RG_INVALID_ARGUMENT, "path");
    EXPECT_FAILS(rg_onnx_network_write(NULL, plan, NULL, scratch("x.onnx")), RG_INVALID_ARGUMENT,
                 "network is NULL");
    EXPECT_FAILS(rg_onnx_copy(NULL, scratch("x.onnx")), RG_INVALID_ARGUMENT, "model is NULL");
    rg_plan_destroy(plan);
    rg_onnx_network_destroy(network);
    rg_onnx_close(model);
}

static void test_wrong(void)
{
    rg_onnx_write_input input;
    rg_graph *graph = make_graph();
    rg_plan *plan = make_plan(graph);
    rg_onnx_write_desc desc = make_desc(&input);
    const char *path = scratch("never.onnx");
    const double mean[] = { 0, 0 }, deviation[] = { 1, 0 };
    EXPECT_FAILS(rg_onnx_write(NULL, plan, &desc, path), RG_INVALID_ARGUMENT, "graph is NULL");
    EXPECT_FAILS(rg_onnx_write(graph, NULL, &desc, path), RG_INVALID_ARGUMENT, "plan is NULL");
    EXPECT_FAILS(rg_onnx_write(graph, plan, NULL, path), RG_INVALID_ARGUMENT, "desc is NULL");
    EXPECT_FAILS(rg_onnx_write(graph, plan, &desc, "/no/such/folder/x.onnx"), RG_IO, "x.onnx");
    desc.opset = 12;
    EXPECT_FAILS(rg_onnx_write(graph, plan, &desc, path), RG_INVALID_ARGUMENT, "13 to 24");
    desc = make_desc(&input);
    desc.size = 4;
    EXPECT_FAILS(rg_onnx_write(graph, plan, &desc, path), RG_INVALID_ARGUMENT, "size is 4");
    desc = make_desc(&input);
    desc.has_dtype = true;
    desc.dtype = RG_I32;
    EXPECT_FAILS(rg_onnx_write(graph, plan, &desc, path), RG_INVALID_ARGUMENT, "dtype");
    desc = make_desc(&input);
    desc.input_count = 0;
    EXPECT_FAILS(rg_onnx_write(graph, plan, &desc, path), RG_INVALID_ARGUMENT, "input 'x'");
    desc = make_desc(&input);
    desc.channels = 2;
    desc.mean = mean;
    EXPECT_FAILS(rg_onnx_write(graph, plan, &desc, path), RG_INVALID_ARGUMENT, "deviation is NULL");
    desc.deviation = deviation;
    EXPECT_FAILS(rg_onnx_write(graph, plan, &desc, path), RG_INVALID_ARGUMENT, "channel 1");
    desc = make_desc(&input);
    input.desc.dims[1] = 1 << 30;
    input.desc.dims[2] = 1 << 30;
    EXPECT(rg_onnx_write(graph, plan, &desc, path) != RG_OK);
    EXPECT_FAILS(rg_onnx_open(path, &(rg_onnx *){ NULL }), RG_IO, "never.onnx");
    rg_plan_destroy(plan);
    rg_graph_destroy(graph);
}

int main(void)
{
    scratch_begin();
    EXPECT_OK(rg_device_create("cpu", NULL, &device));
    test_graph();
    test_weights();
    test_network();
    test_wrong();
    static const char *const files[] = { "graph.onnx", "copy.onnx", "changed.onnx", "anew.onnx",
                                         "w.safetensors" };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        scratch_remove(files[i]);
    rg_device_destroy(device);
    scratch_end();
    return rg_test_report();
}
