/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* ONNX's operators as ops: a node, by its type and attributes, becomes an op with a descriptor, and
 * each of its tensors a tensor of the op with its dimensions in a given order.
 *
 *      rg_onnx_node node = { .type = "Conv", .attributes = a, .attribute_count = 2,
 *                            .inputs = shapes, .input_count = 3, .outputs = 1 };
 *      rg_onnx_call call;
 *      RG_TRY(rg_onnx_convert(&node, &call));
 *      call.op            rg_op_conv
 *      call.desc          an rg_conv_desc
 *      call.inputs[1]     { "W", RG_ROLE_X, 1, RG_ONNX_IMAGE }: input 1 of the op, as (o, kh, kw,
 * i)
 *
 * A node that takes more than one op (Selu, MatMul of stacks, a loss with class weights) is refused
 * with RG_UNSUPPORTED; rg_operator_run() runs those, too. */
#ifndef RG_OPERATORS_ONNX_H
#define RG_OPERATORS_ONNX_H

#include "ops/ops.h"

#include <retrograde/operator.h>

enum { RG_ONNX_TENSORS = 8, RG_ONNX_NAME = 32 };

/* How the op has a tensor that ONNX has as (n, c, d…). */
typedef enum rg_onnx_layout {
    RG_ONNX_SAME, /* the same dimensions */
    RG_ONNX_LAST, /* (n, d…, c) */
    /* Likewise, also for weights (o, i, k…) and their inputs; with one d: (n, 1, d, c). */
    RG_ONNX_IMAGE,
    RG_ONNX_ROWS,       /* (rows, columns): flattened, columns from dimension `call.axis` on */
    RG_ONNX_FLAT,       /* (elements) */
    RG_ONNX_TRANSPOSED, /* a matrix, (columns, rows) */
    RG_ONNX_NUMBERS     /* numbers of the descriptor: no tensor of the op */
} rg_onnx_layout;

typedef struct rg_onnx_tensor {
    char name[RG_ONNX_NAME]; /* in ONNX */
    rg_role role;            /* of X, Y, DY or DX of the op; 0: none */
    int32_t index;
    rg_onnx_layout layout;
    bool optional;
} rg_onnx_tensor;

/* A node. What ONNX has as an input and a descriptor holds, such as `shape` of Reshape, is an
 * attribute of the same name here, and its entry of `inputs` is absent. */
typedef struct rg_onnx_node {
    const char *type;
    int32_t opset; /* of its domain; 0: the newest */
    const rg_attribute *attributes;
    int32_t attribute_count;
    const rg_tensor_desc *inputs; /* shapes; rank -1: absent */
    int32_t input_count;
    uint32_t outputs; /* bit i: output i is wanted */
    bool nhwc;        /* images are (n, d…, c) already; weights are those of the op */
    const struct rg_onnx_operator *entry; /* NULL: found by `type` */
} rg_onnx_node;

typedef struct rg_onnx_call {
    const rg_op *op;
    bool gradient;
    _Alignas(16) char desc[RG_MAX_DESC];
    int64_t axis; /* of RG_ONNX_ROWS */
    int32_t input_count, output_count;
    rg_onnx_tensor inputs[RG_ONNX_TENSORS], outputs[RG_ONNX_TENSORS];
} rg_onnx_call;

/* Fills in *call. Checks the attributes, and the ranks that are known; the rest is the op's. */
rg_status rg_onnx_convert(const rg_onnx_node *node, rg_onnx_call *call);

/* The shape that the op has for a tensor of ONNX's shape `from` in `layout`: for planning. */
rg_status rg_onnx_shape(const rg_tensor_desc *from, rg_onnx_layout layout, int64_t axis,
                        rg_tensor_desc *to);

#endif
