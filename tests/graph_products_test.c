/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Matrix products and transposes: kernels, nodes, and what they refuse. */
#include "tests/graph_f64.h"

#include <retrograde/nodes.h>

static rg_tensor *numbers(rg_device *device, int32_t rank, const int64_t dims[],
                          const double values[])
{
    rg_tensor *tensor = tensor_of(device, RG_F64, rank, dims);
    EXPECT_OK(rg_tensor_write(tensor, values, bytes_of(tensor), RG_LAYOUT_SAME));
    return tensor;
}

static void expect_numbers(const rg_tensor *tensor, const double wanted[], int64_t count)
{
    double *got = (double *)elements_of(tensor);
    EXPECT(count_of(tensor) == count);
    for (int64_t i = 0; i < count; i++)
        EXPECT(got[i] == wanted[i]);
    free(got);
}

static const double A[] = { 1, 2, 3, 4, 5, 6 }, B[] = { 1, 0, -1, 2, 0.5, 1 };

static void test_matmul_kernel(rig *r)
{
    rg_matmul_desc desc = rg_matmul_desc_default();
    rg_kernel *kernel;
    EXPECT(!desc.transpose_a && !desc.transpose_b && desc.alpha == 1);
    desc.alpha = 2;
    EXPECT_OK(rg_matmul_create(r->device, &desc, &kernel));
    rg_tensor *x[] = { numbers(r->device, 2, DIMS(2, 3), A), numbers(r->device, 2, DIMS(3, 2), B) };
    rg_tensor *y = tensor_of(r->device, RG_F64, 2, DIMS(2, 2));
    EXPECT_OK(rg_kernel_forward(kernel, r->commands, x, &y, NULL));
    EXPECT_OK(rig_run(r));
    expect_numbers(y, (const double[]){ 1, 14, 4, 32 }, 4);
    rg_kernel_destroy(kernel);
    rg_tensor_destroy(y);
    rg_tensor_destroy(x[0]);
    rg_tensor_destroy(x[1]);
    desc.size = 0;
    EXPECT_FAILS(rg_matmul_create(r->device, &desc, &kernel), RG_INVALID_ARGUMENT, "size");
    EXPECT(kernel == NULL);
}

static void test_transpose_kernel(rig *r)
{
    rg_transpose_desc desc = rg_transpose_desc_default();
    rg_kernel *kernel;
    EXPECT(desc.order_count == 0);
    EXPECT_OK(rg_transpose_create(r->device, &desc, &kernel));
    rg_tensor *x = numbers(r->device, 2, DIMS(2, 3), A);
    rg_tensor *y = tensor_of(r->device, RG_F64, 2, DIMS(3, 2));
    EXPECT_OK(rg_kernel_forward(kernel, r->commands, &x, &y, NULL));
    EXPECT_OK(rig_run(r));
    expect_numbers(y, (const double[]){ 1, 4, 2, 5, 3, 6 }, 6);
    rg_kernel_destroy(kernel);
    rg_tensor_destroy(y);
    rg_tensor_destroy(x);
    desc.order_count = 2;
    desc.order[0] = desc.order[1] = 1;
    EXPECT_FAILS(rg_transpose_create(r->device, &desc, &kernel), RG_INVALID_ARGUMENT, "order");
    EXPECT(kernel == NULL);
}

/* y = a b^T with b transposed by a node, and the gradient of its sum. */
static void test_nodes(rig *r)
{
    rg_graph *graph = graph_new();
    const rg_matmul_desc product = rg_matmul_desc_default();
    const rg_transpose_desc transposed = rg_transpose_desc_default();
    rg_value *a = f64_parameter(graph, "a", 2, DIMS(2, 3));
    rg_value *b = f64_parameter(graph, "b", 2, DIMS(2, 3));
    rg_value *bt = rg_node_output(rg_graph_transpose(graph, &transposed, (rg_value *[]){ b }), 0);
    rg_value *y = rg_node_output(rg_graph_matmul(graph, &product, (rg_value *[]){ a, bt }), 0);
    rg_value *total = f64_total(graph, y);
    EXPECT_OK(rg_graph_gradients(graph, &total, NULL, 1, NULL, NULL));
    EXPECT_OK(rg_graph_result(graph, y, "y"));
    EXPECT_OK(rg_graph_result(graph, rg_value_gradient(a), "da"));
    EXPECT_OK(rg_graph_result(graph, rg_value_gradient(b), "db"));
    rg_plan *plan = f64_plan(r->device, graph);
    rg_tensor *parameter;
    EXPECT_OK(rg_plan_parameter(plan, "a", &parameter));
    EXPECT_OK(rg_tensor_write(parameter, A, sizeof A, RG_LAYOUT_SAME));
    EXPECT_OK(rg_plan_parameter(plan, "b", &parameter));
    EXPECT_OK(rg_tensor_write(parameter, B, sizeof B, RG_LAYOUT_SAME));
    f64_run(r, plan, NULL);
    static const double rows[] = { 3, 0.5, 0 }, columns[] = { 5, 7, 9 };
    double got[6];
    f64_read(plan, "y", got);
    EXPECT(got[0] == -2 && got[1] == 6 && got[2] == -2 && got[3] == 16.5);
    f64_read(plan, "da", got); /* the sum of the rows of b, twice */
    for (int i = 0; i < 6; i++)
        EXPECT(got[i] == rows[i % 3]);
    f64_read(plan, "db", got);
    for (int i = 0; i < 6; i++)
        EXPECT(got[i] == columns[i % 3]);
    EXPECT(rg_graph_matmul(graph, &product, (rg_value *[]){ NULL, bt }) == NULL);
    EXPECT(rg_graph_transpose(graph, &transposed, (rg_value *[]){ NULL }) == NULL);
    rg_plan_destroy(plan);
    rg_graph_destroy(graph);
}

int main(void)
{
    rig r = rig_open(2);
    test_matmul_kernel(&r);
    test_transpose_kernel(&r);
    test_nodes(&r);
    rig_close(&r);
    return rg_test_report();
}
