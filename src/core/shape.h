/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Shapes: what a description of a tensor means in elements and bytes, and whether two of them
 * meet. */
#ifndef RG_CORE_SHAPE_H
#define RG_CORE_SHAPE_H

#include "core/status.h"

#include <retrograde/tensor.h>

/* Checks dtype, rank, dims and strides; `bytes`, unless NULL, receives the bytes from the first
 * element to the end of the last one (0 for an empty tensor). `who` begins the sentence. */
rg_status rg_shape_check(const rg_tensor_desc *desc, const char *who, size_t *bytes);

/* Normalizes the strides of dimensions of size 0 and 1 to those of a dense tensor, so that
 * comparisons of strides are meaningful. For descriptions that rg_shape_check has passed. */
void rg_shape_normalize(rg_tensor_desc *desc);

int64_t rg_shape_count(const rg_tensor_desc *desc);
bool rg_shape_same_dims(const rg_tensor_desc *a, const rg_tensor_desc *b);
bool rg_shape_same(const rg_tensor_desc *a, const rg_tensor_desc *b); /* strides too */
bool rg_shape_is_dense(const rg_tensor_desc *desc);

/* Whether two elements of one tensor share an address. */
bool rg_shape_overlaps_itself(const rg_tensor_desc *desc);

/* Whether b, whose first element is `distance` bytes after that of a, shares a byte with a.
 * Exact for equal strides and dtypes, otherwise by byte ranges. */
bool rg_shape_overlaps(const rg_tensor_desc *a, const rg_tensor_desc *b, int64_t distance);

/* "f32[2, 3, 4]" into a buffer of at least RG_SHAPE_TEXT bytes; returns it. */
enum { RG_SHAPE_TEXT = 192 };
const char *rg_shape_text(const rg_tensor_desc *desc, char *text);

#endif
