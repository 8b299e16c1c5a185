/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Nodes of a session of ONNX Runtime: created with their attributes, computed on its tensors. */
#ifndef RG_ORT_KERNEL_H
#define RG_ORT_KERNEL_H

#include "operators/onnx_node.h"
#include "ort/ort_abi.h"

/* What is registered: an operator for one type of elements on one kind of device. */
typedef struct ort_entry {
    ort_custom_op op; /* first: the runtime hands it back */
    const rg_onnx_operator *entry;
    ort_type type;
    bool cuda;
    bool direct; /* the gradient of one op, all tensors as the op has them */
    int32_t input_count, output_count;
    rg_onnx_tensor inputs[RG_ONNX_TENSORS], outputs[RG_ONNX_TENSORS];
} ort_entry;

ort_status *rg_ort_create_kernel(const ort_custom_op *op, const ort_api *api,
                                 const ort_kernel_info *info, void **kernel);
ort_status *rg_ort_compute(void *kernel, ort_context *context);
void rg_ort_destroy_kernel(void *kernel);

/* The device of operators: opened with the first, and kept. */
rg_status rg_ort_device(bool cuda, rg_device **device);

#endif
