/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Ops whose kernels want channels as neighbours, on tensors whose memory has another order. */
#ifndef RG_OPS_TRANSPOSE_CHANNELS_LAST_H
#define RG_OPS_TRANSPOSE_CHANNELS_LAST_H

#include "runtime/objects.h"

/* Records `run`, the forward pass or the gradient of an op. On a CPU, tensors of which another
 * dimension than the last one has neighbours (a view of NCHW memory as NHWC) are copied to
 * temporaries before, and results from there; the copies go in tiles. Where images
 * are independent, some are taken at a time, so that copies stay in the cache. Result bits do not
 * depend on it. */
rg_status rg_channels_last_forward(rg_call *call, rg_status (*run)(rg_call *call));
rg_status rg_channels_last_gradient(rg_call *call, rg_status (*run)(rg_call *call));

/* A dense temporary for a tensor, with its elements if they are read; the caller destroys it. */
rg_status rg_channels_last_copy(const rg_call *call, const rg_tensor *given, bool read,
                                rg_tensor **copy);
/* Copies a result from its temporary; NULL: there is none. */
rg_status rg_channels_last_copy_back(const rg_call *call, const rg_tensor *dense,
                                     const rg_tensor *given);

#endif
