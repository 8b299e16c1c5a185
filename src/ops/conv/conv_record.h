/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Checking and recording, for conv and conv_transpose. */
#ifndef RG_OPS_CONV_RECORD_H
#define RG_OPS_CONV_RECORD_H

#include "core/shape.h"
#include "ops/conv/conv_engine.h"
#include "ops/conv/conv_grouped_record.h"
#include "ops/fused_neuron/fused_neuron.h"
#include "ops/move/move_record.h"
#include "runtime/strategy.h"

#include <retrograde/padding.h>

#include <stdio.h>

/* ---- checks; `op` is the name ---- */

/* dtypes and ranks of x, w and b. */
rg_status rg_conv_check_inputs(const rg_tensor_desc x[], bool bias, const char *op);

rg_status rg_conv_check_bias(const rg_tensor_desc *b, int64_t channels, const char *op);

/* Resolves the padding. Positions on the image fit into 31 bits, so that kernels can count in 32
 * bits. */
rg_status rg_conv_place(const rg_padding *padding, const rg_window *window, const char *op,
                        rg_placement *at);

/* The shape of the result: that of x with other rows, columns and channels. */
rg_status rg_conv_result(const rg_tensor_desc *x, const rg_placement *at, int64_t channels,
                         const char *op, rg_tensor_desc *y);

/* ---- geometry ---- */

/* From the shapes of the image side and the window side; `w` is left to the caller. */
rg_conv_shape rg_conv_shape_of(const rg_window *window, const rg_placement *at,
                               const rg_tensor_desc *image, const rg_tensor_desc *windows,
                               int64_t groups);

/* ---- launches ---- */

/* By the first strategy that accepts the pass. */
rg_status rg_conv_record(const rg_call *call, const rg_conv_pass *p);

extern const rg_strategy *const *const rg_conv_strategies[];

#endif
