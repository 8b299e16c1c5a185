/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  Operators of ONNX and of ONNX Runtime by their own names: their attributes.
 */
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

#ifdef __cplusplus
}
#endif

#endif
