/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The messages of an ONNX file, written: tensors, inputs and outputs; where parameters come from.
 */
#ifndef RG_ONNX_WRITE_H
#define RG_ONNX_WRITE_H

#include "onnx/onnx_train.h"

/* A TensorProto as field `number`; `data` are its elements in the byte order of the machine. */
void rg_proto_write_tensor(rg_writer *writer, uint32_t number, const char *name, int32_t type,
                           int32_t rank, const int64_t dims[], const void *data, size_t bytes);
/* A ValueInfoProto as field `number`; dimensions of RG_ONNX_ANY_DIM are called "batch",
 * those of RG_ONNX_OTHER_DIM are not told. */
void rg_proto_write_port(rg_writer *writer, uint32_t number, const char *name, int32_t type,
                         int32_t rank, const int64_t dims[]);

/* Elements of a parameter of a plan, dimensions in the order of `order` (see rg_onnx_tensor_info),
 * as `dtype`; to be released with *bytes. */
rg_status rg_plan_elements(rg_plan *plan, const char *name, const int32_t order[], rg_dtype dtype,
                           void **data, size_t *bytes);

/* The model with the parameters of a plan; NULL: as they are. Of `desc`, which may be NULL, the
 * normalization of the input alone is used. RG_UNSUPPORTED if that is not possible, or if the
 * model lacks elements that the plan does not have. */
rg_status rg_onnx_rewrite(const rg_onnx_network *network, rg_plan *plan,
                          const rg_onnx_write_desc *desc, rg_writer *writer);

/* Adds the gradients of `y`, and those of all parameters that are not frozen as results "w_grad".
 */
rg_status rg_graph_add_gradients(rg_graph *graph, rg_value *const y[], rg_value *const dy[],
                                 int32_t count);

/* Writes the floating-point initializers of the model that a writer holds to a safetensors file,
 * and releases the writer; of `graph`, unless it is NULL, the parameters alone, under PyTorch's
 * names. */
rg_status rg_writer_save_weights(rg_writer *writer, rg_status status, const rg_graph *graph,
                                 const char *path);

/* Writes what a writer holds, whole or not at all, and releases it. `status` is what came before.
 */
rg_status rg_writer_save(rg_writer *writer, rg_status status, const char *path);

#endif
