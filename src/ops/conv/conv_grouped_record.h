/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Recording convolutions where groups have few channels. */
#ifndef RG_OPS_CONV_GROUPED_RECORD_H
#define RG_OPS_CONV_GROUPED_RECORD_H

#include "ops/conv/conv_depthwise_record.h"
#include "ops/conv/conv_grouped.h"

/* Whether the kernels for it do it: by shape alone, and where there are such. */
bool rg_conv_grouped_takes(const rg_call *call, const rg_conv_shape *s, rg_dtype dtype);

rg_status rg_conv_record_grouped(rg_call *call, bool data, const rg_conv_pass *p);

rg_status rg_conv_record_grouped_weights(rg_call *call, const rg_conv_shape *s, const rg_tensor *x,
                                         const rg_tensor *dy, const rg_tensor *dw, bool add);

#endif
