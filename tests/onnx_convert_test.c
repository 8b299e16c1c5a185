/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Nodes of ONNX become ops: descriptors, layouts, defaults, and sentences for what is wrong. */
#include "operators/onnx.h"
#include "test.h"

#include <retrograde/operator.h>

static rg_tensor_desc shape_of(int32_t rank, int64_t a, int64_t b, int64_t c, int64_t d)
{
    const int64_t dims[] = { a, b, c, d };
    return rg_tensor_desc_dense(RG_F32, rank, dims);
}

static void test_conv(void)
{
    const int64_t pads[] = { 1, 2, 3, 4 };
    const rg_attribute attributes[] = { { .name = "pads", .ints = pads, .count = 4 },
                                        { .name = "strides", .text = "[2, 3]" },
                                        { .name = "group", .text = "2" } };
    const rg_tensor_desc inputs[] = { shape_of(4, 1, 4, 8, 8),
                                      shape_of(4, 6, 2, 3, 3),
                                      { .rank = -1 } };
    rg_onnx_node node = { .type = "Conv",
                          .attributes = attributes,
                          .attribute_count = 3,
                          .inputs = inputs,
                          .input_count = 3,
                          .outputs = 1 };
    rg_onnx_call call;
    EXPECT_OK(rg_onnx_convert(&node, &call));
    const rg_conv_desc *d = (const rg_conv_desc *)call.desc;
    EXPECT(call.op == &rg_op_conv && !call.gradient);
    EXPECT(d->padding.top == 1 && d->padding.left == 2 && d->padding.bottom == 3 &&
           d->padding.right == 4);
    EXPECT(d->stride[0] == 2 && d->stride[1] == 3 && d->groups == 2 && !d->bias);
    EXPECT(call.input_count == 3 && strcmp(call.inputs[1].name, "W") == 0);
    EXPECT(call.inputs[1].role == RG_ROLE_X && call.inputs[1].index == 1 &&
           call.inputs[1].layout == RG_ONNX_IMAGE);
    EXPECT(call.inputs[2].optional && call.inputs[2].role == 0);
    EXPECT(call.outputs[0].role == RG_ROLE_Y);
    rg_tensor_desc to;
    EXPECT_OK(rg_onnx_shape(&inputs[1], RG_ONNX_IMAGE, 0, &to));
    EXPECT(to.rank == 4 && to.dims[0] == 6 && to.dims[1] == 3 && to.dims[3] == 2);
}

static void test_sentences(void)
{
    const rg_attribute wrong = { .name = "stride", .text = "1,1" };
    const rg_attribute text = { .name = "strides", .text = "two" };
    const rg_tensor_desc x[] = { shape_of(4, 1, 4, 8, 8), shape_of(4, 6, 4, 3, 3) };
    const rg_tensor_desc deep = rg_tensor_desc_dense(RG_F32, 5, (int64_t[]){ 1, 2, 3, 4, 5 });
    rg_onnx_node node = { .type = "Conv", .inputs = x, .input_count = 2, .outputs = 1 };
    rg_onnx_call call;
    node.attributes = &wrong;
    node.attribute_count = 1;
    EXPECT_FAILS(rg_onnx_convert(&node, &call), RG_INVALID_ARGUMENT,
                 "Conv has no attribute 'stride'; did you mean 'strides'?");
    node.attributes = &text;
    EXPECT_FAILS(rg_onnx_convert(&node, &call), RG_INVALID_ARGUMENT,
                 "Conv: attribute strides must be a list of integers, such as 2,2, not 'two'");
    node.attribute_count = 0;
    node.inputs = &deep;
    node.input_count = 1;
    EXPECT_FAILS(rg_onnx_convert(&node, &call), RG_UNSUPPORTED, "three dimensions");
    node.type = "MaxPol";
    EXPECT_FAILS(rg_onnx_convert(&node, &call), RG_UNSUPPORTED, "did you mean 'MaxPool'?");
    node.type = "MaxPool";
    EXPECT_FAILS(rg_onnx_convert(&node, &call), RG_INVALID_ARGUMENT,
                 "MaxPool: the attribute kernel_shape is required");
}

int main(void)
{
    test_conv();
    test_sentences();
    return rg_test_report();
}
