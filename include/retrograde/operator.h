/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  Operators of ONNX and of ONNX Runtime, and kernel classes of MPS, by their own names: with their
 *  own tensors, attributes, defaults and order of dimensions.
 *
 *      rg_attribute window = { .name = "kernel_shape", .text = "2,2" };
 *      rg_operator *pool;
 *      rg_operator_create(device, "MaxPool", &window, 1, &pool);
 *      rg_operator_run(pool, commands, &x, 1, 1, &y);            // x and y are (n, c, h, w)
 *
 *  An operator is one direction of one op, or a short sequence of ops. docs/onnx.md describes the
 *  operators of ONNX. A class of MPS has the fields of its op as attributes ("stride", "3,3") and
 *  images (n, h, w, c); docs/mps.md describes these. `retrograde op --list` lists all names with
 *  their tensors. */
#ifndef RETROGRADE_OPERATOR_H
#define RETROGRADE_OPERATOR_H

#include <retrograde/kernel.h>

#ifdef __cplusplus
extern "C" {
#endif

/** An attribute: a name and one of text, ints and floats; the others are NULL. Text is read as what
 *  the attribute is: "2,2" and "[2, 2]" are integers for kernel_shape. What ONNX has as an input
 *  tensor and an op has in its descriptor (the shape of Reshape, the pads of Pad) may be given as
 *  an attribute of that name. */
typedef struct rg_attribute {
    const char *name;
    const char *text;
    const int64_t *ints;
    const double *floats;
    int32_t count; /**< of ints or floats */
} rg_attribute;

typedef struct rg_operator rg_operator;

/** What is known of a name. All text is constant and stays valid. */
typedef struct rg_operator_info {
    const char *name;
    const char *domain; /**< "MPS", "ai.onnx", "com.microsoft", … */
    const char *op;     /**< the op that does the work; of several, the main one */
    bool gradient;      /**< whether it is the gradient of an op */
    int32_t inputs;     /**< how many there can be, at most, also when run is called */
    int32_t outputs;
} rg_operator_info;

/** The number of names, and one of them; RG_INVALID_ARGUMENT if the index is out of range. */
RG_API int32_t rg_operator_count(void);
RG_API rg_status rg_operator_get(int32_t index, rg_operator_info *info);

/** Looks a name up. An unknown one is refused with a sentence that names a similar one. */
RG_API rg_status rg_operator_find(const char *name, rg_operator_info *info);

/** Creates an operator; everything is copied. An attribute that the operator does not have is
 *  refused. On failure *made is NULL. */
RG_API rg_status rg_operator_create(rg_device *device, const char *name,
                                    const rg_attribute attributes[], int32_t count,
                                    rg_operator **made);
RG_API void rg_operator_destroy(rg_operator *op);

/** The names of the tensors, in the order of ONNX's or MPS's own. NULL if index is out of range. */
RG_API const char *rg_operator_input(const rg_operator *op, int32_t index);
RG_API const char *rg_operator_output(const rg_operator *op, int32_t index);

/** Records the operator. `inputs` has `count` entries in the order of the names, NULL where an
 *  optional one is absent. Bit i of `wanted` asks for output i: outputs[i] receives a tensor that
 *  the caller destroys, and NULL otherwise; the array has as many entries as
 *  rg_operator_info.outputs. Inputs that ONNX uses as numbers (shapes, pads, scales, ratio), class
 *  weights with their labels, and saved statistics are read at once: commands that write these must
 *  be complete. On failure nothing is left in outputs; commands may have recorded work without
 *  effect. */
RG_API rg_status rg_operator_run(rg_operator *op, rg_commands *commands, rg_tensor *const inputs[],
                                 int32_t count, uint64_t wanted, rg_tensor *outputs[]);

#ifdef __cplusplus
}
#endif

#endif
