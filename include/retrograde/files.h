/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  Kernels and graphs as JSON text, tensors as NPY files.
 *
 *  Readers are written for hostile input. Invalid content gets a status and an error text:
 *  RG_IO if it cannot be read, RG_MALFORMED if it is malformed, RG_UNSUPPORTED
 *  if it is right but not for us. Memory follows the size of the file, never what the file
 *  claims.
 *
 *  Writers write a file whole or not at all: on failure, RG_IO, the previous file is
 *  unchanged. Devices and pipes, such as /dev/stdout, are written directly. */
#ifndef RETROGRADE_FILES_H
#define RETROGRADE_FILES_H

#include <retrograde/graph.h>
#include <retrograde/kernel.h>
#include <retrograde/operator.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Writes the kernel as one JSON object, and a 0 byte, into `text`; truncated if it does not fit.
 *  Returns its whole length without the 0 byte, so that `text` may be NULL with capacity 0 to
 *  ask for it. "retrograde" is the version of the format. The device is not part of it:
 *
 *      {"retrograde": 1, "op": "softmax", "label": "",
 *       "desc": {"kind": "log", "axis": 1, "flatten": false}}
 *
 *  Arrays are arrays, enums are their names, an optional field that is not given is null, and a
 *  group of fields is an object of its own. Infinity, which JSON lacks, is the string "inf" or
 *  "-inf". Bytes of the label that are not UTF-8 become U+FFFD. */
RG_API size_t rg_kernel_to_json(const rg_kernel *kernel, char *text, size_t capacity);

/** Makes the kernel that `length` bytes of JSON describe, on `device`. Label, descriptor and
 *  fields left out have their default; what is unknown, of the wrong type or out of range is
 *  refused as RG_MALFORMED, with line and column. At most 1 MiB. On failure *kernel is NULL. */
RG_API rg_status rg_kernel_from_json(rg_device *device, const char *text, size_t length,
                                     rg_kernel **kernel);

/** The same for operators of ONNX and MPS: {"retrograde": 1, "operator": "MaxPool", "attributes":
 *  {"kernel_shape": [2, 2]}}. Attributes are numbers, strings, arrays of numbers, or true and
 *  false. */
RG_API size_t rg_operator_to_json(const rg_operator *op, char *text, size_t capacity);
RG_API rg_status rg_operator_from_json(rg_device *device, const char *text, size_t length,
                                       rg_operator **made);

/** The same to and from a file. */
RG_API rg_status rg_kernel_save(const rg_kernel *kernel, const char *path);
RG_API rg_status rg_kernel_load(rg_device *device, const char *path, rg_kernel **kernel);

/** Writes a graph as one JSON object, as rg_kernel_to_json does; 0 for a graph with a mistake:
 *
 *      {"retrograde": 1,
 *       "sources": ["x"],
 *       "parameters": [{"name": "w", "dtype": "f32", "dims": [3, 4]}],
 *       "nodes": [{"label": "fc", "op": "dense", "desc": {…}, "x": ["x", "w"]},
 *                 {"label": "g", "op": "dense", "gradient_of": "fc", "wanted": [1],
 *                  "dy": [{"constant": 1, "like": ["fc", 0]}]}],
 *       "results": [{"name": "dw", "value": ["g", 1]}], "states": [{"name": "s", "node": "fc"}],
 *       "assignments": [["w", ["step", 0]]], "stops": [], "gradients": [["w", ["g", 1]]]}
 *
 *  A value is the name of a source or parameter, ["label", output] of a node that comes before,
 *  or a constant; null stands for one that is not given. A gradient node has its descriptor, x
 *  and y from its forward node where they are left out. Handles and data sources are not part of
 *  it. */
RG_API size_t rg_graph_to_json(const rg_graph *graph, char *text, size_t capacity);

/** Makes the graph that `length` bytes of JSON describe, 64 MiB at most; what is unknown, of the
 *  wrong type or out of range, named twice or not yet is refused as RG_MALFORMED, with line and
 *  column. On failure *graph is NULL. */
RG_API rg_status rg_graph_from_json(const char *text, size_t length, rg_graph **graph);

/** The same to and from a file. */
RG_API rg_status rg_graph_save(const rg_graph *graph, const char *path);
RG_API rg_status rg_graph_load(const char *path, rg_graph **graph);

/** Writes the parameters of a plan under their names into a safetensors file, and the graph as JSON
 *  into its text "retrograde.graph". Runs that change parameters are done. */
RG_API rg_status rg_plan_save(const rg_plan *plan, const char *path);

/** Makes the plan that rg_plan_save() has written, on `device`; `options` may be NULL. Every
 *  parameter must be in the file, in the dtype and shape that the graph says. On failure *plan is
 *  NULL. */
RG_API rg_status rg_plan_load(rg_device *device, const char *path, const rg_plan_options *options,
                              rg_plan **plan);

/** Reads the parameters of a plan from a safetensors file; what else the file holds is ignored.
 *  All must be there, in dtype and shape, or none is read. */
RG_API rg_status rg_plan_load_parameters(rg_plan *plan, const char *path);

/** Reads an NPY file (versions 1 to 3; f2 f4 f8 u1 i4 i8, either byte order, C or Fortran order,
 *  up to 8 dimensions) into a new dense tensor. On failure *tensor is NULL. */
RG_API rg_status rg_tensor_load_npy(rg_device *device, const char *path, rg_tensor **tensor);

/** Writes a tensor as NPY 1.0, dense, in C order. bf16, which NPY lacks, is written as f4. The
 *  caller has waited for the commands that write it. Not for temporaries. */
RG_API rg_status rg_tensor_save_npy(const rg_tensor *tensor, const char *path);

#ifdef __cplusplus
}
#endif

#endif
