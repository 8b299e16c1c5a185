/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Checking and recording, for batch and group normalization. */
#ifndef RG_OPS_NORM_RECORD_H
#define RG_OPS_NORM_RECORD_H

#include "ops/move/move_record.h"
#include "ops/norm/norm.h"
#include "ops/ops.h"

/* What sums are kept in. */
rg_dtype rg_norm_real(rg_dtype dtype);

/* Units of a launch over channels. */
int64_t rg_norm_units(int64_t channels);

rg_status rg_norm_temporary(rg_call *call, rg_dtype dtype, int32_t rank, const int64_t dims[],
                            rg_tensor **tensor);

rg_norm_neuron rg_norm_neuron_of(const rg_neuron_desc *desc, rg_dtype dtype, bool gradient);

rg_status rg_norm_check_neuron(const rg_neuron_desc *neuron, const char *op);

rg_status rg_norm_check_x(const rg_tensor_desc *x, const char *op);

/* gamma and the like, input i. */
rg_status rg_norm_check_parameter(const rg_tensor_desc x[], int32_t i, const char *name,
                                  const char *op);

#endif
