/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The converters that the table of ONNX's operators names. Each completes the descriptor of a call
 * that already holds the fields of the table. */
#ifndef RG_OPERATORS_ONNX_CONVERTERS_H
#define RG_OPERATORS_ONNX_CONVERTERS_H

#include "operators/onnx_node.h"

typedef rg_status rg_onnx_converter(const rg_onnx_node *node, rg_onnx_call *call);

/* onnx_windows.c */
rg_onnx_converter rg_onnx_conv, rg_onnx_conv_transpose, rg_onnx_pool, rg_onnx_lp_pool,
    rg_onnx_global_pool;
/* onnx_elements.c */
rg_onnx_converter rg_onnx_softmax, rg_onnx_neuron, rg_onnx_gelu, rg_onnx_prelu, rg_onnx_gemm,
    rg_onnx_matmul, rg_onnx_loss, rg_onnx_dropout, rg_onnx_biased;
/* onnx_norms.c */
rg_onnx_converter rg_onnx_batch_norm, rg_onnx_batch_norm_gradient, rg_onnx_layer_norm,
    rg_onnx_group_norm, rg_onnx_instance_norm, rg_onnx_lrn, rg_onnx_adam, rg_onnx_momentum;
/* onnx_shapes.c */
/* As rg_onnx_slice; bit d of *backwards is set where the elements along dimension d are wanted in
 * reverse order. */
rg_status rg_onnx_slice_any(const rg_onnx_node *node, rg_onnx_call *call, uint32_t *backwards);
/* What Pad adds before and after each dimension of an input of `rank`. */
typedef struct rg_onnx_pads {
    int64_t before[RG_MAX_RANK], after[RG_MAX_RANK];
    int32_t rank;
    bool wraps; /* around the edge, which the op has not */
} rg_onnx_pads;
/* Reads the pads, and the mode into the descriptor. */
rg_status rg_onnx_read_pads(const rg_onnx_node *node, rg_onnx_call *call, rg_onnx_pads *p);
rg_onnx_converter rg_onnx_transpose, rg_onnx_reshape, rg_onnx_slice, rg_onnx_concat, rg_onnx_pad,
    rg_onnx_reduce, rg_onnx_arg_reduce, rg_onnx_arg_reduce_any, rg_onnx_resize;

/* For operators that are more than one op: rg_operator_run() runs them. */
rg_onnx_converter rg_onnx_several;

#endif
