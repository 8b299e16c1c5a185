/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What spatial_norm and local_contrast have in common when they are recorded. */
#ifndef RG_OPS_WINDOW_NORM_BOX_RECORD_H
#define RG_OPS_WINDOW_NORM_BOX_RECORD_H

#include "core/shape.h"
#include "ops/window_norm/box.h"
#include "runtime/objects.h"

/* The shape rule: images, of any size. `who` is the op. */
rg_status rg_box_shapes(const char *who, const rg_tensor_desc *x, rg_tensor_desc *y);

/* Cuts `count` tensors (x and y, or dy, x and dx) of one shape into strips, and these into units.
 * Returns the bytes of one tensor. */
int64_t rg_box_lay_out(const rg_tensor *const tensors[], int count, const int32_t window[2],
                       int kinds, rg_box_shape *s, rg_launch *launch);

#endif
