/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What an rg_operator holds. */
#ifndef RG_OPERATORS_OPERATOR_H
#define RG_OPERATORS_OPERATOR_H

#include "operators/onnx_node.h"

enum { RG_OPERATOR_ATTRIBUTES = 32, RG_OPERATOR_TENSORS = 16 };

/* A class of MPS: an entry of an op's list of names. */
typedef struct rg_mps_name {
    const rg_op *op;
    const rg_op_name *name;
} rg_mps_name;

struct rg_operator {
    rg_device *device;
    const char *name;
    const rg_onnx_operator *onnx; /* NULL: a class of MPS */
    rg_mps_name mps;
    _Alignas(16) char desc[RG_MAX_DESC]; /* of a class of MPS */
    bool nhwc;
    int32_t attribute_count, input_count, output_count;
    rg_attribute attributes[RG_OPERATOR_ATTRIBUTES];
    void *blocks[RG_OPERATOR_ATTRIBUTES]; /* that hold them */
    size_t sizes[RG_OPERATOR_ATTRIBUTES];
    rg_onnx_tensor inputs[RG_OPERATOR_TENSORS], outputs[RG_OPERATOR_TENSORS];
};

/* Images of an operator of ONNX are (n, d…, c), and weights as its op has them. */
void rg_operator_set_nhwc(rg_operator *op, bool nhwc);

/* Refuses a name, and names a similar one. */
rg_status rg_operator_unknown(const char *name);

#endif
