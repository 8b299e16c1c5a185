/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Ops whose kernels want channels as neighbours, on tensors whose memory has another order. */
#ifndef RG_OPS_TRANSPOSE_CHANNELS_LAST_H
#define RG_OPS_TRANSPOSE_CHANNELS_LAST_H

#include "runtime/objects.h"

/* Records `run`, the forward pass or the gradient of an op. On a CPU, tensors of which another
 * dimension than the last one has neighbours (a view of NCHW memory as NHWC) are copied to
 * temporaries before, and results from there; the copies go in tiles. Result bits do not depend on
 * it. */
rg_status rg_channels_last_forward(rg_call *call, rg_status (*run)(rg_call *call));
rg_status rg_channels_last_gradient(rg_call *call, rg_status (*run)(rg_call *call));

#endif
