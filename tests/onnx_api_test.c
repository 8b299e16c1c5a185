/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What an ONNX model tells about itself: its operator set, inputs and outputs. */
#include "test.h"

#include <retrograde/onnx.h>

/* x (N, 3) to y (N, 3) by Relu, with the outputs y and x; operator set 13. */
static const uint8_t file[] = {
    0x08, 8,  0x3a, 71,                                                       /* version, graph */
    0x0a, 12, 0x0a, 1,  'x', 0x12, 1,  'y',  0x22, 4,    'R', 'e',  'l', 'u', /* node */
    0x5a, 17, 0x0a, 1,  'x', 0x12, 12, 0x0a, 10,   0x08, 1,   0x12, 6,   0x0a, 0, /* input x */
    0x0a, 2,  0x08, 3,                                                            /* (N, 3) */
    0x62, 17, 0x0a, 1,  'y', 0x12, 12, 0x0a, 10,   0x08, 1,   0x12, 6,   0x0a, 0, /* output y */
    0x0a, 2,  0x08, 3,                                                            /* (N, 3) */
    0x62, 17, 0x0a, 1,  'x', 0x12, 12, 0x0a, 10,   0x08, 1,   0x12, 6,   0x0a, 0, /* output x */
    0x0a, 2,  0x08, 3,                                                            /* (N, 3) */
    0x42, 2,  0x10, 13                                                            /* operator set */
};

int main(void)
{
    rg_onnx *model;
    rg_onnx_port_info info;
    EXPECT_OK(rg_onnx_parse("relu.onnx", file, sizeof file, &model));
    EXPECT(rg_onnx_opset(model) == 13 && rg_onnx_opset(NULL) == 0);
    EXPECT(rg_onnx_inputs(model) == 1 && rg_onnx_outputs(model) == 2);
    EXPECT_OK(rg_onnx_input(model, 0, &info));
    EXPECT(strcmp(info.name, "x") == 0 && info.rank == 2 && info.dims[0] == -1 &&
           info.dims[1] == 3);
    EXPECT_OK(rg_onnx_output(model, 0, &info));
    EXPECT(strcmp(info.name, "y") == 0 && info.rank == 2 && info.dims[0] == -1 &&
           info.dims[1] == 3);
    EXPECT_OK(rg_onnx_output(model, 1, &info));
    EXPECT(strcmp(info.name, "x") == 0);
    EXPECT_FAILS(rg_onnx_output(model, 2, &info), RG_INVALID_ARGUMENT, "2");
    EXPECT_FAILS(rg_onnx_output(model, -1, &info), RG_INVALID_ARGUMENT, "-1");
    EXPECT_FAILS(rg_onnx_output(model, 0, NULL), RG_INVALID_ARGUMENT, "NULL");
    rg_onnx_close(model);
    EXPECT(rg_onnx_outputs(NULL) == 0);
    return rg_test_report();
}
