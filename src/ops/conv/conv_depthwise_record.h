/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Recording depthwise convolutions. */
#ifndef RG_OPS_CONV_DEPTHWISE_RECORD_H
#define RG_OPS_CONV_DEPTHWISE_RECORD_H

#include "ops/conv/conv_launch.h"

/* Whether the kernels for it do it: by shape alone, and where there are such. */
bool rg_conv_depthwise_takes(const rg_call *call, const rg_conv_shape *s, rg_dtype dtype);

rg_dtype rg_conv_real(rg_dtype dtype);

/* All but pointers. */
rg_conv_depthwise_args rg_conv_depthwise_of(const rg_call *call, bool data, const rg_conv_pass *p);

rg_status rg_conv_record_depthwise(rg_call *call, bool data, const rg_conv_pass *p);

/* Rows of a part: as many as one accumulator may add up, or one. */
int64_t rg_conv_depthwise_part(const rg_conv_shape *s);

/* In units whose sums stay in the first cache. */
rg_status rg_conv_record_depthwise_weights(rg_call *call, const rg_conv_shape *s,
                                           const rg_tensor *x, const rg_tensor *dy,
                                           const rg_tensor *dw, bool add);

#endif
