/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* `retrograde op` by a name of ONNX: its attributes are options, its tensors are files. */
#ifndef RG_CLI_OP_ONNX_H
#define RG_CLI_OP_ONNX_H

#include "operators/operator.h"

typedef struct rg_onnx_options {
    const char *device, *dtype, *isa;
    int64_t threads;
} rg_onnx_options;

typedef struct rg_op_onnx {
    const rg_onnx_operator *entry;
    rg_attribute attributes[RG_OPERATOR_ATTRIBUTES];
    char attribute_names[RG_OPERATOR_ATTRIBUTES][RG_ONNX_NAME];
    int32_t attribute_count;
    bool nhwc;
    rg_onnx_tensor names[2][RG_ONNX_TENSORS]; /* inputs, outputs */
    int32_t counts[2];
    rg_tensor *inputs[RG_ONNX_TENSORS], *outputs[RG_ONNX_TENSORS];
    const char *paths[RG_ONNX_TENSORS]; /* of outputs; NULL: not requested */
} rg_op_onnx;

/* All that return int print what is wrong and return the exit status, 0 if all is well. */

/* Whether it is a name of ONNX. */
bool rg_op_onnx_begin(rg_op_onnx *run, const char *called);
/* An option that is an attribute: for rg_options_take. */
int rg_op_onnx_take(void *context, const char *name, const char *value);
int rg_op_onnx_run(rg_op_onnx *run, const rg_onnx_options *options, int argc, char **argv);
void rg_op_onnx_help(const rg_op_onnx *run);
/* The lines of --list for the operators that an op computes. */
void rg_op_onnx_list(const rg_op *op);

#endif
