/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Recording convolution on the contraction engine of a CPU. */
#ifndef RG_OPS_CONV_ENGINE_H
#define RG_OPS_CONV_ENGINE_H

#include "ops/conv/conv_launch.h"
#include "ops/conv/conv_pairs_plan.h"
#include "ops/conv/conv_plan.h"

/* Whether the engine does it: by shape alone, and where there is one. */
bool rg_conv_engine_takes(const rg_call *call, const rg_conv_shape *s, rg_dtype dtype);

/* ---- between image and windows ---- */

rg_status rg_conv_engine_record(rg_call *call, bool forward, const rg_conv_pass *p);

/* ---- weights ---- */

rg_status rg_conv_engine_weights(rg_call *call, const rg_conv_shape *s, const rg_tensor *x,
                                 const rg_tensor *dy, const rg_tensor *dw, bool add);

#endif
